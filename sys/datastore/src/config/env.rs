//! Settings from environment variables, by the rules of Go's envconfig package with the prefix `calico`.
//!
//! `CALICO_X` counts; if it is not set at all, `X` does. A variable that is set to nothing is set.

use super::{CalicoApiConfig, FLAGS, TEXTS};

/// A variable that does not hold what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "envconfig.Process: assigning {variable} to {field}: converting '{value}' to type {kind}. details: {details}"
)]
pub struct EnvError {
    /// Variable, with prefix.
    pub variable: String,
    /// Setting, as upstream names it.
    pub field: &'static str,
    /// What the variable holds.
    pub value: String,
    /// Type that was expected.
    pub kind: &'static str,
    /// What is wrong.
    pub details: String,
}

/// Why a text is no number or flag, in the words of Go's parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Syntax,
    Range,
}

pub(super) fn load(env: &dyn Fn(&str) -> Option<String>) -> Result<CalicoApiConfig, EnvError> {
    let prefixed = |name: &str| format!("CALICO_{name}");
    let lookup = |name: &str| env(&prefixed(name)).or_else(|| env(name));
    let mut config = CalicoApiConfig::default();
    for setting in TEXTS {
        let Some(name) = setting.env else { continue };
        let value = if setting.bare { lookup(name) } else { env(&prefixed(name)) };
        if let Some(value) = value {
            *(setting.field)(&mut config) = value;
        }
    }
    let error = |name: &str, field, value: &str, kind, parser: &str, fault| EnvError {
        variable: prefixed(name),
        field,
        value: value.to_owned(),
        kind,
        details: match fault {
            Fault::Syntax => format!("strconv.{parser}: parsing {value:?}: invalid syntax"),
            Fault::Range => format!("strconv.{parser}: parsing {value:?}: value out of range"),
        },
    };
    for setting in FLAGS {
        if let Some(value) = lookup(setting.env) {
            *(setting.field)(&mut config) = parse_bool(&value)
                .map_err(|fault| error(setting.env, setting.name, &value, "bool", "ParseBool", fault))?;
        }
    }
    if let Some(value) = lookup("K8S_CLIENT_QPS") {
        config.k8s_client_qps = parse_float(&value).map_err(|fault| {
            error("K8S_CLIENT_QPS", "K8sClientQPS", &value, "float32", "ParseFloat", fault)
        })?;
    }
    if let Some(value) = lookup("K8S_CLIENT_BURST") {
        config.k8s_client_burst = parse_int(&value)
            .map_err(|fault| error("K8S_CLIENT_BURST", "K8sClientBurst", &value, "int", "ParseInt", fault))?;
    }
    Ok(config)
}

fn parse_bool(text: &str) -> Result<bool, Fault> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(Fault::Syntax),
    }
}

fn parse_float(text: &str) -> Result<f32, Fault> {
    let value: f32 = text.parse().map_err(|_| Fault::Syntax)?;
    let spelled_infinite = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    if value.is_infinite() && !spelled_infinite { Err(Fault::Range) } else { Ok(value) }
}

/// A whole number; the base follows from the prefix, and `_` may stand between digits behind one.
fn parse_int(text: &str) -> Result<i64, Fault> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, body) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    let prefixed = base != 10;
    let body = if prefixed { body.strip_prefix('_').unwrap_or(body) } else { body };
    let doubled = body.starts_with('_') || body.ends_with('_') || body.contains("__");
    let digits: String = body.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || doubled || digits.contains(['+', '-']) {
        return Err(Fault::Syntax);
    }
    if !digits.chars().all(|c| c.is_digit(base)) {
        return Err(Fault::Syntax);
    }
    let value = i128::from_str_radix(&digits, base).map_err(|_| Fault::Range)?;
    i64::try_from(if negative { -value } else { value }).map_err(|_| Fault::Range)
}
