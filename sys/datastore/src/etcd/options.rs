//! Settings of a connection to etcd.

use std::path::Path;
use std::time::Duration;

use crate::StoreError;
use crate::config::CalicoApiConfig;

/// Longest time for reaching any server.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Keys and certificates in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EtcdTls {
    /// Authorities that the servers' certificates must come from; `None` trusts those of the system.
    pub ca: Option<String>,
    /// Certificate and key to show to the servers.
    pub identity: Option<(String, String)>,
}

/// How to reach etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// URLs of servers. The scheme of the first decides for all whether TLS is used; without one it is.
    pub endpoints: Vec<String>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// Used where the first endpoint asks for TLS.
    pub tls: EtcdTls,
    /// Longest time for reaching any server, and for any answer.
    pub timeout: Duration,
}

impl std::fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl std::fmt::Debug for EtcdOptions {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .finish()
    }
}

// === impl EtcdOptions ===

impl EtcdOptions {
    /// Plain connections to `endpoints`.
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            user: None,
            tls: EtcdTls::default(),
            timeout: DIAL_TIMEOUT,
        }
    }

    /// Takes the settings over, reading the files that they name.
    pub fn from_config(config: &CalicoApiConfig) -> Result<Self, StoreError> {
        match (config.etcd_endpoints.is_empty(), config.etcd_discovery_srv.is_empty()) {
            (false, false) => {
                return Err(StoreError::Config(
                    "multiple discovery or bootstrap options specified, use either \"etcdEndpoints\" or \
                     \"etcdDiscoverySrv\""
                        .into(),
                ));
            }
            (true, false) => {
                return Err(StoreError::NotSupported {
                    operation: "discovery of etcd by SRV records".into(),
                    id: config.etcd_discovery_srv.clone(),
                    reason: "set etcdEndpoints instead of etcdDiscoverySrv".into(),
                });
            }
            (true, true) => return Err(StoreError::Config("no etcd endpoints specified".into())),
            (false, true) => {}
        }
        let mut options = Self::new(config.etcd_endpoints.split(',').map(str::trim));
        options.tls = tls(config)?;
        if !config.etcd_username.is_empty() && !config.etcd_password.is_empty() {
            options.user = Some((config.etcd_username.clone(), config.etcd_password.clone()));
        }
        Ok(options)
    }
}

fn tls(config: &CalicoApiConfig) -> Result<EtcdTls, StoreError> {
    let inline = [&config.etcd_key, &config.etcd_cert, &config.etcd_ca_cert];
    let files = [&config.etcd_key_file, &config.etcd_cert_file, &config.etcd_ca_cert_file];
    let any = |texts: [&String; 3]| texts.iter().any(|text| !text.is_empty());
    let (key, cert, ca) = match (any(inline), any(files)) {
        (true, true) => {
            return Err(StoreError::Config(
                "Cannot mix inline certificate-key and certificate / key files".into(),
            ));
        }
        (true, false) => {
            let [key, cert, ca] = inline.map(Clone::clone);
            if key.is_empty() || cert.is_empty() {
                return Err(invalid("etcdKey and etcdCert are needed together"));
            }
            (key, cert, ca)
        }
        (false, true) => {
            let [key, cert, ca] = files;
            if key.is_empty() != cert.is_empty() {
                return Err(invalid("etcdKeyFile and etcdCertFile are needed together"));
            }
            (read(key)?, read(cert)?, read(ca)?)
        }
        (false, false) => return Ok(EtcdTls::default()),
    };
    for (name, pem) in [("key", &key), ("certificate", &cert), ("CA certificate", &ca)] {
        if !pem.is_empty() && !pem.contains("-----BEGIN ") {
            return Err(invalid(&format!("the {name} is not in PEM")));
        }
    }
    Ok(EtcdTls {
        ca: Some(ca).filter(|ca| !ca.is_empty()),
        identity: Some((cert, key)).filter(|(cert, _)| !cert.is_empty()),
    })
}

/// Content of a file; nothing for no file. An empty file is an error.
fn read(path: &str) -> Result<String, StoreError> {
    if path.is_empty() {
        return Ok(String::new());
    }
    match std::fs::read_to_string(Path::new(path)) {
        Ok(text) if text.trim().is_empty() => Err(invalid(&format!("{path} is empty"))),
        Ok(text) => Ok(text),
        Err(error) => Err(invalid(&format!("{path}: {error}"))),
    }
}

pub(super) fn invalid(reason: &str) -> StoreError {
    StoreError::Config(format!("could not initialize etcdv3 client: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(change: impl FnOnce(&mut CalicoApiConfig)) -> Result<EtcdOptions, String> {
        let mut config =
            CalicoApiConfig { etcd_endpoints: "http://a:1, b:2".into(), ..CalicoApiConfig::default() };
        change(&mut config);
        EtcdOptions::from_config(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_taken_over_or_refused() {
        let plain = options(|c| c.etcd_username = "u".into()).unwrap();
        assert_eq!(plain, EtcdOptions::new(["http://a:1", "b:2"]));
        let user = options(|c| {
            c.etcd_username = "u".into();
            c.etcd_password = "secret".into();
        });
        let user = user.unwrap();
        assert_eq!(user.user, Some(("u".into(), "secret".into())));
        assert!(!format!("{user:?}").contains("secret"));
        let pem = "-----BEGIN CERTIFICATE-----";
        let inline = options(|c| {
            c.etcd_key = pem.into();
            c.etcd_cert = pem.into();
        });
        assert_eq!(inline.unwrap().tls.identity, Some((pem.into(), pem.into())));
        type Change = fn(&mut CalicoApiConfig);
        let cases: [(Change, &str); 8] = [
            (|c| c.etcd_endpoints.clear(), "no etcd endpoints specified"),
            (
                |c| c.etcd_discovery_srv = "example.com".into(),
                "multiple discovery or bootstrap options specified, use either \"etcdEndpoints\" or \
                 \"etcdDiscoverySrv\"",
            ),
            (
                |c| {
                    c.etcd_endpoints.clear();
                    c.etcd_discovery_srv = "example.com".into();
                },
                "operation discovery of etcd by SRV records is not supported on example.com: set etcdEndpoints \
                 instead of etcdDiscoverySrv",
            ),
            (
                |c| {
                    c.etcd_ca_cert = "x".into();
                    c.etcd_ca_cert_file = "/x".into();
                },
                "Cannot mix inline certificate-key and certificate / key files",
            ),
            (
                |c| c.etcd_ca_cert = "x".into(),
                "could not initialize etcdv3 client: etcdKey and etcdCert are needed together",
            ),
            (
                |c| c.etcd_key_file = "/x".into(),
                "could not initialize etcdv3 client: etcdKeyFile and etcdCertFile are needed together",
            ),
            (
                |c| c.etcd_ca_cert_file = "/nonexistent/ca".into(),
                "could not initialize etcdv3 client: /nonexistent/ca: No such file or directory (os error 2)",
            ),
            (
                |c| {
                    c.etcd_key = "x".into();
                    c.etcd_cert = "x".into();
                },
                "could not initialize etcdv3 client: the key is not in PEM",
            ),
        ];
        for (change, text) in cases {
            assert_eq!(options(change).unwrap_err(), text);
        }
    }
}
