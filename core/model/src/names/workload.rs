//! Names of workload endpoints: node, orchestrator, workload and endpoint joined by `-`, with `--` for a `-`
//! inside a part.

use std::fmt::Write as _;

use smol_str::{SmolStr, format_smolstr};

use super::{ORCHESTRATOR_CNI, ORCHESTRATOR_KUBERNETES, ORCHESTRATOR_LIBNETWORK};
use crate::key::WorkloadEndpointKey;

/// Why a workload endpoint has no name, or a name has no workload endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadNameError {
    /// The node is not set.
    #[error("error with field node (field should be assigned)")]
    NoNode,
    /// An identifier that the orchestrator needs is not set.
    #[error("error with field {0} = '' (field should be assigned)")]
    Missing(&'static str),
    /// An identifier begins with a dash.
    #[error("error with field {field} = '{value}' (field must not begin with a '-')")]
    LeadingDash {
        /// Identifier.
        field: &'static str,
        /// Its value.
        value: SmolStr,
    },
    /// An identifier ends with a dash.
    #[error("error with field {field} = '{value}' (field must not end with a '-')")]
    TrailingDash {
        /// Identifier.
        field: &'static str,
        /// Its value.
        value: SmolStr,
    },
    /// The name is empty.
    #[error("Cannot parse empty string")]
    Empty,
    /// The name has more parts than a workload endpoint.
    #[error("Error parsing {0}, verify that WorkloadEndpoint name is correct")]
    Malformed(SmolStr),
    /// The name does not identify a single endpoint of a namespace.
    #[error("not enough information provided to create v1 Workload Endpoint Key")]
    Incomplete,
}

/// What identifies a workload endpoint within its namespace. Empty identifiers are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct WorkloadEndpointIds {
    /// Node.
    pub node: SmolStr,
    /// Orchestrator.
    pub orchestrator: SmolStr,
    /// Pod, for orchestrator `k8s`.
    pub pod: SmolStr,
    /// Container, for orchestrator `cni`.
    pub container_id: SmolStr,
    /// Workload, for other orchestrators.
    pub workload: SmolStr,
    /// Interface inside the workload.
    pub endpoint: SmolStr,
}

// === impl WorkloadEndpointIds ===

impl WorkloadEndpointIds {
    /// The name of the endpoint. Errors if an identifier is missing or begins or ends with a dash.
    pub fn name(&self) -> Result<String, WorkloadNameError> {
        self.build(false)
    }

    /// What the names of all endpoints start with that have the known identifiers; the whole name if all are
    /// known. The node must be known.
    pub fn name_prefix(&self) -> Result<String, WorkloadNameError> {
        self.build(true)
    }

    /// True if `name` is the name of an endpoint that has every identifier known here.
    pub fn matches(&self, name: &str) -> bool {
        let fields = self.fields();
        let known = fields.iter().take_while(|(_, value)| !value.is_empty()).count();
        let parts = split_name(name);
        self.name_prefix().is_ok()
            && parts.len() == fields.len()
            && fields.iter().take(known).zip(&parts).all(|((_, value), part)| value == part)
    }

    /// Reads a name, complete or only the beginning of one.
    pub fn parse(name: &str) -> Result<Self, WorkloadNameError> {
        if name.is_empty() {
            return Err(WorkloadNameError::Empty);
        }
        let mut parts = split_name(name).into_iter();
        let mut next = || parts.next().unwrap_or_default();
        let (node, orchestrator, third, endpoint) = (next(), next(), next(), next());
        if parts.next().is_some() {
            return Err(WorkloadNameError::Malformed(name.into()));
        }
        let mut ids = Self { node, orchestrator, endpoint, ..Self::default() };
        match ids.orchestrator.as_str() {
            ORCHESTRATOR_KUBERNETES => ids.pod = third,
            ORCHESTRATOR_CNI => ids.container_id = third,
            ORCHESTRATOR_LIBNETWORK => {}
            _ => ids.workload = third,
        }
        Ok(ids)
    }

    fn fields(&self) -> [(&'static str, SmolStr); 4] {
        let third = match self.orchestrator.as_str() {
            ORCHESTRATOR_KUBERNETES => ("pod", self.pod.clone()),
            ORCHESTRATOR_CNI => ("containerID", self.container_id.clone()),
            ORCHESTRATOR_LIBNETWORK => ("orchestrator", self.orchestrator.clone()),
            _ => ("workload", self.workload.clone()),
        };
        [
            ("node", self.node.clone()),
            ("orchestrator", self.orchestrator.clone()),
            third,
            ("endpoint", self.endpoint.clone()),
        ]
    }

    fn build(&self, allow_prefix: bool) -> Result<String, WorkloadNameError> {
        if self.node.is_empty() {
            return Err(WorkloadNameError::NoNode);
        }
        let mut out = String::with_capacity(64);
        for (i, (field, value)) in self.fields().into_iter().enumerate() {
            if i > 0 {
                out.push('-');
            }
            if value.is_empty() {
                if allow_prefix {
                    return Ok(out);
                }
                return Err(WorkloadNameError::Missing(field));
            }
            if value.starts_with('-') {
                return Err(WorkloadNameError::LeadingDash { field, value });
            }
            if value.ends_with('-') {
                return Err(WorkloadNameError::TrailingDash { field, value });
            }
            out.push_str(&value.replace('-', "--"));
        }
        Ok(out)
    }
}

/// Splits a name at its single dashes; `--` inside a part stands for one dash. A dash at the very start belongs
/// to the first part.
pub fn split_name(name: &str) -> Vec<SmolStr> {
    let bytes = name.as_bytes();
    let mut parts = Vec::with_capacity(4);
    let (mut start, mut at) = (0, 1);
    while at < bytes.len() {
        if bytes[at] != b'-' {
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'-') {
            at += 2;
        } else {
            parts.push(unescape(&name[start..at]));
            start = at + 1;
            at = start;
        }
    }
    if !name.is_empty() {
        parts.push(unescape(&name[start..]));
    }
    parts
}

/// The identity in Felix's model of the endpoint of this name in `namespace`.
pub fn workload_endpoint_key(namespace: &str, name: &str) -> Result<WorkloadEndpointKey, WorkloadNameError> {
    let parts: [SmolStr; 4] = split_name(name).try_into().map_err(|_| WorkloadNameError::Incomplete)?;
    if namespace.is_empty() || parts.iter().any(|part| part.is_empty()) {
        return Err(WorkloadNameError::Incomplete);
    }
    let [host, orchestrator, workload, endpoint] = parts;
    let workload = format_smolstr!("{namespace}/{workload}");
    Ok(WorkloadEndpointKey { host, orchestrator, workload, endpoint })
}

/// Name of the file in which Felix tells the status of an endpoint: orchestrator, workload and endpoint, each
/// escaped as a URL path segment (RFC 3986), joined by blanks.
pub fn status_file_name(key: &WorkloadEndpointKey) -> String {
    let mut out = String::with_capacity(64);
    for (i, part) in [&key.orchestrator, &key.workload, &key.endpoint].into_iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+=:@".contains(&byte) {
                out.push(char::from(byte));
            } else {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

fn unescape(part: &str) -> SmolStr {
    if part.contains("--") { part.replace("--", "-").into() } else { part.into() }
}
