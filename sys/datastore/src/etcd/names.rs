//! Addresses of servers that are given by name.
//!
//! Names are looked up by our own resolver and not by the C library's, which needs files beside the program and so does
//! not work in a fully static one. It follows `/etc/hosts` and `/etc/resolv.conf`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use tokio::net::TcpStream;

/// Host and port of a URL without scheme and path; the port of the scheme if there is none.
pub(super) fn host_and_port(address: &str, plain: bool) -> (String, u16) {
    let default = if plain { 80 } else { 443 };
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match address.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    (host.to_owned(), port.and_then(|port| port.parse().ok()).unwrap_or(default))
}

/// An address of `host` that accepts a connection.
pub(super) async fn reachable(host: &str, port: u16, each: Duration) -> Result<IpAddr, String> {
    let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
    let resolver = resolver.map_err(|error| format!("cannot set up name resolution: {error}"))?;
    let found = resolver.lookup_ip(host).await.map_err(|error| format!("cannot resolve {host}: {error}"))?;
    let mut failures = Vec::new();
    for ip in found.iter() {
        match tokio::time::timeout(each, TcpStream::connect(SocketAddr::new(ip, port))).await {
            Ok(Ok(_)) => return Ok(ip),
            Ok(Err(error)) => failures.push(format!("{ip}: {error}")),
            Err(_) => failures.push(format!("{ip}: no answer")),
        }
    }
    Err(if failures.is_empty() { format!("{host} has no address") } else { failures.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (address, plain, host, port) in [
            ("10.0.0.1:2379", true, "10.0.0.1", 2379),
            ("etcd.example:2379", true, "etcd.example", 2379),
            ("etcd.example", true, "etcd.example", 80),
            ("etcd.example", false, "etcd.example", 443),
            ("[::1]:2379", true, "::1", 2379),
            ("[::1]", false, "::1", 443),
        ] {
            assert_eq!(host_and_port(address, plain), (host.to_owned(), port), "{address}");
        }
    }
}
