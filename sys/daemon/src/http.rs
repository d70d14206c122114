//! A small HTTP/1.1 server for health and metrics: GET only, one response per connection.
//!
//! Requests are bounded in size and time, so that a stray client cannot hold the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Encoder as _, Registry, TextEncoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::Health;

const MAX_REQUEST: usize = 8192;
const PATIENCE: Duration = Duration::from_secs(5);

/// A response: status, content type and body.
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Content type.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
}

impl Response {
    fn text(status: u16, body: String) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into_bytes() }
    }
}

/// Answers a path; `None` is 404.
pub type Handler = Arc<dyn Fn(&str) -> Option<Response> + Send + Sync>;

/// A handler for `/liveness` and `/readiness`.
pub fn health_handler(health: Health) -> Handler {
    Arc::new(move |path| {
        let answer = match path {
            "/liveness" => health.live(Instant::now()),
            "/readiness" => health.ready(Instant::now()),
            _ => return None,
        };
        Some(Response::text(answer.status(), answer.detail))
    })
}

/// A handler for `/metrics` in Prometheus' text format.
pub fn metrics_handler(registry: Registry) -> Handler {
    Arc::new(move |path| {
        if path != "/metrics" {
            return None;
        }
        let mut body = Vec::new();
        match TextEncoder::new().encode(&registry.gather(), &mut body) {
            Ok(()) => {
                let content_type = "text/plain; version=0.0.4; charset=utf-8";
                Some(Response { status: 200, content_type, body })
            }
            Err(error) => Some(Response::text(500, error.to_string())),
        }
    })
}

/// Listens on `host:port` (an empty host is every address) and serves until dropped or aborted.
/// The address returned is the one in use, also for port 0.
pub async fn serve(
    host: &str,
    port: u16,
    handler: Handler,
) -> io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let listener = if host.is_empty() {
        match TcpListener::bind(("::", port)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("0.0.0.0", port)).await?,
        }
    } else {
        TcpListener::bind((host, port)).await?
    };
    let addr = listener.local_addr()?;
    let task = tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let handler = handler.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(PATIENCE, answer(stream, handler)).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(error = %error, "accepting a connection failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok((addr, task))
}

async fn answer(mut stream: TcpStream, handler: Handler) -> io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        let mut chunk = [0u8; 1024];
        let n = stream.read(&mut chunk).await?;
        if n == 0 || request.len() + n > MAX_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..n]);
    }
    let line = request.split(|&b| b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let response = match method {
        "GET" | "HEAD" => {
            handler(path).unwrap_or_else(|| Response::text(404, "404 page not found\n".to_owned()))
        }
        _ => Response::text(405, "405 method not allowed\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status,
        reason(response.status),
        response.content_type,
        response.body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if method != "HEAD" && response.status != 204 {
        stream.write_all(&response.body).await?;
    }
    stream.shutdown().await
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(addr: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.expect("connect");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("read");
        text
    }

    #[tokio::test]
    async fn serves_health_and_metrics_and_refuses_the_rest() {
        let health = Health::default();
        health.register("part", true, None, Instant::now());
        let (addr, _task) = serve("127.0.0.1", 0, health_handler(health.clone())).await.expect("bind");
        let text = get(addr, "GET /readiness HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{text}");
        assert!(text.ends_with("part: not ready\n"), "{text}");
        health.report("part", true, true, "", Instant::now());
        assert!(get(addr, "GET /readiness HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 204 "));
        assert!(get(addr, "GET /nothing HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404 "));
        assert!(get(addr, "POST /readiness HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405 "));

        let registry = Registry::new();
        let gauge = prometheus::IntGauge::new("felix_resync_state", "State").expect("gauge");
        gauge.set(3);
        registry.register(Box::new(gauge)).expect("register");
        let (addr, _task) = serve("127.0.0.1", 0, metrics_handler(registry)).await.expect("bind");
        let text = get(addr, "GET /metrics?x=1 HTTP/1.1\r\n\r\n").await;
        assert!(text.contains("\nfelix_resync_state 3\n"), "{text}");
    }
}
