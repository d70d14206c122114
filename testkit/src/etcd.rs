//! An etcd server of Debian's package, for tests.
//!
//! Each [`Etcd`] is one process on free loopback ports with its own data, which ends with the value. With TLS it has
//! certificates made on the spot, for the servers (`127.0.0.1`, `::1`, `localhost`) and for clients.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use calico_datastore::{EtcdOptions, EtcdRaw, EtcdTls, RawStore};
use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Where the package puts the server.
const PROGRAM: &str = "/usr/bin/etcd";

/// Longest wait for a server to answer.
const START: Duration = Duration::from_secs(30);

/// How a server is to be started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Serve by TLS, and demand a client's certificate.
    pub tls: bool,
    /// Demand the user and password of [`Etcd::USER`], who may do everything below `/calico/`.
    pub auth: bool,
    /// Keep the data on a disk, so that each write costs what it costs in life. Otherwise they are in memory where
    /// the system has a file system for that.
    pub durable: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Etcd {
    directory: TempDir,
    settings: Settings,
    port: u16,
    peer_port: u16,
    process: Option<Child>,
    certificates: Option<Certificates>,
}

/// PEM texts of a little authority.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority's certificate.
    pub ca: String,
    /// The server's certificate and key.
    pub server: (String, String),
    /// A client's certificate and key.
    pub client: (String, String),
}

// === impl Etcd ===

impl Etcd {
    /// Name and password with [`Settings::auth`].
    pub const USER: (&'static str, &'static str) = ("calico", "secret");

    /// Starts a server and waits until it answers. `None`, with a word on stderr, where etcd is not installed.
    pub async fn start(settings: Settings) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            // A closed stderr is no reason to fail.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: {PROGRAM} is not installed (Debian package etcd-server)"
            );
            return None;
        }
        let memory = Path::new("/dev/shm");
        let directory = match !settings.durable && memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let mut etcd = Self {
            directory: directory.unwrap(),
            settings,
            port: free_port(),
            peer_port: free_port(),
            process: None,
            certificates: settings.tls.then(certificates),
        };
        etcd.run().await;
        if settings.auth {
            etcd.enable_auth().await;
        }
        Some(etcd)
    }

    /// Starts the server again, on the same port with the same data.
    pub async fn run(&mut self) {
        let scheme = if self.settings.tls { "https" } else { "http" };
        let listen = format!("{scheme}://127.0.0.1:{},{scheme}://[::1]:{}", self.port, self.port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new(PROGRAM);
        command
            .arg("--data-dir")
            .arg(self.directory.path().join("data"))
            .args(["--listen-client-urls", &listen, "--advertise-client-urls", &listen])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args([
                "--initial-cluster",
                &format!("default={peer}"),
                "--logger",
                "zap",
                "--log-level",
                "error",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(certificates) = &self.certificates {
            let (cert, key) = &certificates.server;
            command
                .args(["--client-cert-auth=true", "--trusted-ca-file"])
                .arg(self.file("ca.pem", &certificates.ca))
                .arg("--cert-file")
                .arg(self.file("server.pem", cert))
                .arg("--key-file")
                .arg(self.file("server-key.pem", key));
        }
        self.process = Some(command.spawn().unwrap());
        let raw = EtcdRaw::new(EtcdOptions { user: None, ..self.options() }, "").unwrap();
        let started = Instant::now();
        // With authentication on, a refusal is an answer too.
        while let Err(error @ calico_datastore::StoreError::Unreachable { .. }) =
            raw.get(&["/".into()], None).await
        {
            let exited = self.process.as_mut().and_then(|process| process.try_wait().ok().flatten());
            assert!(exited.is_none(), "etcd ended: {exited:?}");
            assert!(started.elapsed() < START, "etcd does not answer: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the server, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may be gone already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Removes the data of a killed server: it will begin anew.
    pub fn forget(&self) {
        std::fs::remove_dir_all(self.directory.path().join("data")).unwrap();
    }

    /// URL of the server.
    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.settings.tls { "https" } else { "http" }, self.port)
    }

    /// URL of the server on the other family.
    pub fn endpoint_v6(&self) -> String {
        format!("{}://[::1]:{}", if self.settings.tls { "https" } else { "http" }, self.port)
    }

    /// What a client needs to be let in.
    pub fn options(&self) -> EtcdOptions {
        let mut options = EtcdOptions::new([self.endpoint()]);
        if let Some(certificates) = &self.certificates {
            options.tls =
                EtcdTls { ca: Some(certificates.ca.clone()), identity: Some(certificates.client.clone()) };
        }
        if self.settings.auth {
            options.user = Some((Self::USER.0.into(), Self::USER.1.into()));
        }
        options
    }

    /// The certificates in use.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Writes a file beside the server's data.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn enable_auth(&self) {
        let mut client = Client::connect([self.endpoint()], None::<ConnectOptions>).await.unwrap();
        let (name, password) = Self::USER;
        client.role_add("root").await.unwrap();
        client.user_add("root", "root-secret", None).await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.role_add("calico").await.unwrap();
        let everything = Permission::new(PermissionType::Readwrite, "/calico/").with_prefix();
        client.role_grant_permission("calico", everything).await.unwrap();
        client.user_add(name, password, None).await.unwrap();
        client.user_grant_role(name, "calico").await.unwrap();
        client.auth_enable().await.unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback port that nothing listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Makes an authority and what it certifies.
pub fn certificates() -> Certificates {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    let ca = params.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(params, ca_key);
    let issue = |names: &[&str], common: &str| {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, common);
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    // The server's certificate has to do for the server's own gateway too, which is a client of it.
    Certificates {
        server: issue(&["127.0.0.1", "::1", "localhost"], "server"),
        client: issue(&[], "client"),
        ca,
    }
}
