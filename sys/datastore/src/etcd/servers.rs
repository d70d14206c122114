//! Which server to ask, and what to do when it does not answer.
//!
//! There is one connection per server; requests go to one server until it fails. A request that certainly did not
//! reach a server goes on to the next one; so does a reading request whose connection broke. A writing request whose
//! connection broke is an error, because it may have been carried out.
//!
//! A process that has never reached a server gives up after asking each once, so that a user learns of a wrong
//! address at once. One that has reached a server before is in the middle of its work, and tries for the whole time
//! limit, so that the restart of a server is a delay and no failure.

use std::error::Error as StdError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, Identity, KvClient, LeaseClient, TlsOptions, WatchClient,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::options::{EtcdOptions, invalid};
use super::{Answer, names, raw};
use crate::StoreError;

/// HTTP/2 pings on a connection, and how long one may stay without answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Pause after all servers were asked in vain.
const PAUSE: Duration = Duration::from_millis(100);

/// Shortest time for one server to accept a connection.
const SHORTEST_CONNECT: Duration = Duration::from_secs(2);

/// The servers of a store. Clones share their connections.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    list: Vec<Server>,
    /// Index of the server in use; counts on and wraps.
    current: AtomicUsize,
    /// Whether any server ever answered.
    reached: AtomicBool,
    timeout: Duration,
    description: String,
    closed: watch::Sender<bool>,
}

/// One server and its connection.
struct Server {
    url: String,
    /// The name to look up, where the URL has no address, and the port.
    name: Option<(String, u16)>,
    options: ConnectOptions,
    connect_timeout: Duration,
    clients: Mutex<Option<Clients>>,
}

/// The parts of etcd's API that are used, on one server.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) watch: WatchClient,
}

/// Why there is no answer.
#[derive(Debug)]
enum Fault {
    /// The request did not reach the server.
    NotSent(String),
    /// The connection broke after the request was sent, or may have been.
    Broken(String),
    /// The server refused.
    Refused(StoreError),
}

// === impl Servers ===

impl Servers {
    pub(super) fn new(options: EtcdOptions, why: &str) -> Result<Self, StoreError> {
        let endpoints = options.endpoints.join(",");
        let description = match why {
            "" => format!("etcd ({endpoints})"),
            why => format!("etcd ({endpoints}; {why})"),
        };
        let plain = options.endpoints.first().is_some_and(|first| first.starts_with("http://"));
        let count = u32::try_from(options.endpoints.len()).unwrap_or(u32::MAX).max(1);
        let connect_timeout = (options.timeout / count).max(SHORTEST_CONNECT).min(options.timeout);
        let server = |endpoint: &String| Server::new(endpoint, plain, &options, connect_timeout);
        let list = options.endpoints.iter().map(server).collect::<Result<Vec<_>, _>>()?;
        if list.is_empty() {
            return Err(StoreError::Config("no etcd endpoints specified".into()));
        }
        Ok(Self {
            shared: Arc::new(Shared {
                list,
                current: AtomicUsize::new(0),
                reached: AtomicBool::new(false),
                timeout: options.timeout,
                description,
                closed: watch::Sender::new(false),
            }),
        })
    }

    pub(super) fn description(&self) -> &str {
        &self.shared.description
    }

    pub(super) fn close(&self) {
        self.shared.closed.send_replace(true);
        for server in &self.shared.list {
            server.clients.lock().take();
        }
    }

    /// Ends when the store is closed.
    pub(super) async fn closed(&self) -> StoreError {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.shared.closed.subscribe().wait_for(|closed| *closed).await;
        raw::closed(&self.shared.description)
    }

    /// A request that may be carried out twice. `at` is the revision that it asks for, for the error of its being
    /// gone.
    pub(super) async fn read<T, F>(
        &self,
        at: Option<u64>,
        request: impl Fn(Clients) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Answer<T>>,
    {
        self.request(true, at, request).await
    }

    /// A request that may be carried out only once.
    pub(super) async fn write<T, F>(&self, request: impl Fn(Clients) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Answer<T>>,
    {
        self.request(false, None, request).await
    }

    async fn request<T, F>(
        &self,
        repeatable: bool,
        at: Option<u64>,
        request: impl Fn(Clients) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Answer<T>>,
    {
        let deadline = Instant::now() + self.shared.timeout;
        let mut failures: Vec<String> = Vec::new();
        loop {
            if *self.shared.closed.borrow() {
                return Err(raw::closed(&self.shared.description));
            }
            let turn = self.shared.current.load(Ordering::Relaxed);
            let server = &self.shared.list[turn % self.shared.list.len()];
            let attempt = async {
                let clients = server.clients().await?;
                request(clients).await.map_err(|error| fault(&error, at))
            };
            let reason = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Ok(answer)) => {
                    self.shared.reached.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(Fault::Refused(error))) => {
                    self.shared.reached.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                Ok(Err(Fault::Broken(reason))) if !repeatable => {
                    let url = &server.url;
                    let reason = format!("{url}: {reason}; the write may or may not have happened");
                    return Err(self.unreachable(reason));
                }
                Ok(Err(Fault::Broken(reason))) => reason,
                Ok(Err(Fault::NotSent(reason))) => {
                    server.forget_address();
                    reason
                }
                Err(_) => {
                    self.next_server(turn);
                    let limit = self.shared.timeout.as_secs_f32();
                    failures.push(format!("{}: no answer within {limit} s", server.url));
                    return Err(self.unreachable(failures.join("; ")));
                }
            };
            self.next_server(turn);
            failures.push(format!("{}: {reason}", server.url));
            if failures.len().is_multiple_of(self.shared.list.len()) {
                let time_left = Instant::now() + PAUSE < deadline;
                if !self.shared.reached.load(Ordering::Relaxed) || !time_left {
                    let last = failures.split_off(failures.len() - self.shared.list.len());
                    return Err(self.unreachable(last.join("; ")));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Goes on to the next server, unless somebody else already did.
    fn next_server(&self, turn: usize) {
        let next = turn.wrapping_add(1);
        // Failing means that another request was first.
        let _ = self.shared.current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn unreachable(&self, reason: String) -> StoreError {
        StoreError::Unreachable { store: self.shared.description.clone(), reason }
    }
}

// === impl Server ===

impl Server {
    fn new(
        endpoint: &str,
        plain: bool,
        options: &EtcdOptions,
        connect_timeout: Duration,
    ) -> Result<Self, StoreError> {
        let address =
            endpoint.split_once("://").map_or(endpoint, |(_, address)| address).trim_end_matches('/');
        if address.is_empty() || address.contains([' ', '/', '@', '?', '#']) {
            return Err(StoreError::Config(format!("etcd endpoint {endpoint:?} is not a URL of a server")));
        }
        let url = format!("{}://{address}", if plain { "http" } else { "https" });
        let (host, port) = names::host_and_port(address, plain);
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(connect_timeout)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &options.user {
            connect = connect.with_user(name, password);
        }
        if !plain {
            let mut tls = match &options.tls.ca {
                Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
                None => TlsOptions::new().with_native_roots(),
            };
            if let Some((cert, key)) = &options.tls.identity {
                tls = tls.identity(Identity::from_pem(cert, key));
            }
            // Not that of the URL: an IPv6 address stands in brackets there, and a name is looked up before.
            tls = tls.domain_name(host.clone());
            connect = connect.with_tls(tls);
        }
        let name = host.parse::<IpAddr>().is_err().then_some((host, port));
        Ok(Self { url, name, options: connect, connect_timeout, clients: Mutex::new(None) })
    }

    async fn clients(&self) -> Result<Clients, Fault> {
        let known = self.clients.lock().clone();
        if let Some(clients) = known {
            return Ok(clients);
        }
        let url = match &self.name {
            None => self.url.clone(),
            Some((host, port)) => {
                let ip = names::reachable(host, *port, self.connect_timeout).await.map_err(Fault::NotSent)?;
                let scheme = self.url.split("://").next().unwrap_or_default();
                format!("{scheme}://{}", SocketAddr::new(ip, *port))
            }
        };
        // Talks to the server only if there is a user to authenticate.
        let client =
            Client::connect([url], Some(self.options.clone())).await.map_err(|error| fault(&error, None))?;
        let clients = Clients {
            kv: client.kv_client().max_decoding_message_size(usize::MAX),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(usize::MAX),
        };
        *self.clients.lock() = Some(clients.clone());
        Ok(clients)
    }

    /// Has a name looked up again.
    fn forget_address(&self) {
        if self.name.is_some() {
            self.clients.lock().take();
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish_non_exhaustive()
    }
}

// === errors ===

/// gRPC's numbers of the codes that matter here.
mod code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const INTERNAL: i32 = 13;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// What an error of etcd's client means.
fn fault(error: &Error, at: Option<u64>) -> Fault {
    let status = match error {
        Error::GRpcStatus(status) => status,
        Error::TransportError(error) => return Fault::NotSent(chain(error.to_string(), error).join(": ")),
        Error::IoError(error) => return Fault::Broken(error.to_string()),
        Error::InvalidArgs(reason) => return Fault::Refused(invalid(reason)),
        Error::InvalidUri(reason) => return Fault::Refused(invalid(&reason.to_string())),
        other => return Fault::Refused(other_error(other.to_string())),
    };
    let message = status.message();
    let refused = |error| Fault::Refused(error);
    let code = status.code() as i32;
    let texts = chain(message.to_owned(), status);
    // Without a cause the server itself answered; with one it was our side of the connection.
    let from_server = status.source().is_none();
    match code {
        _ if message.contains("required revision has been compacted") => {
            refused(raw::compacted(at.unwrap_or_default()))
        }
        _ if message.contains("required revision is a future revision") => {
            let revision = at.unwrap_or_default();
            refused(other_error(format!("revision {revision} does not exist yet")))
        }
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => refused(StoreError::Unauthorized(message.into())),
        _ if message.contains("authentication failed")
            || message.contains("user name is empty")
            || message.contains("invalid auth token") =>
        {
            refused(StoreError::Unauthorized(message.into()))
        }
        _ if never_sent(status) => Fault::NotSent(texts.join(": ")),
        code::UNAVAILABLE | code::DEADLINE_EXCEEDED => Fault::Broken(texts.join(": ")),
        code::CANCELLED | code::UNKNOWN | code::INTERNAL if !from_server => Fault::Broken(texts.join(": ")),
        _ => refused(other_error(message.into())),
    }
}

fn other_error(reason: String) -> StoreError {
    StoreError::Other { id: String::new(), reason }
}

/// What was said of an error, and its causes, each once.
fn chain(first: String, error: &dyn StdError) -> Vec<String> {
    let mut texts = vec![first];
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts
}

/// True if a connection could not be made at all.
fn never_sent(error: &dyn StdError) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            let connecting = matches!(
                io.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::AddrNotAvailable
            );
            if connecting {
                return true;
            }
        }
        let text = error.to_string();
        if text.contains("tcp connect error")
            || text.contains("dns error")
            || text.contains("invalid peer certificate")
        {
            return true;
        }
        next = error.source();
    }
    false
}
