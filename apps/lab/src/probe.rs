//! Real packets: TCP connections, UDP datagrams and ICMP echo requests, many at once from one network namespace.
//!
//! A server answers each TCP connection and each datagram with the source address that it saw, so that address
//! translation shows. The caller has entered the right namespace; nothing here knows about namespaces.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use calico_net::cidr::parse_ip;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use socket2::{Domain, Protocol, Socket, Type};

/// How long a probe waits for its answer.
pub const PATIENCE: Duration = Duration::from_millis(700);

/// After which time without an answer a datagram is sent again.
const RESEND: Duration = Duration::from_millis(200);

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// A TCP connection to a port.
    Tcp(u16),
    /// A datagram to a port, answered.
    Udp(u16),
    /// An echo request, answered.
    Icmp,
}

/// A text that is no probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no probe; write tcp:PORT, udp:PORT or icmp")]
pub struct ProbeError(String);

/// One thing to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Try {
    /// Target.
    pub to: IpAddr,
    /// How.
    pub probe: Probe,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An answer came. For TCP and UDP with the source address that the target saw.
    Reached(Option<IpAddr>),
    /// Nothing came back in time.
    Silence,
    /// Something on the way or the target refused.
    Refused(String),
    /// The packet could not even be sent.
    Failed(String),
}

// === impl Probe ===

impl FromStr for Probe {
    type Err = ProbeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ProbeError(text.to_owned());
        if text == "icmp" {
            return Ok(Self::Icmp);
        }
        let (kind, port) = text.split_once(':').ok_or_else(fail)?;
        let port: u16 = port.parse().map_err(|_| fail())?;
        match (kind, port) {
            (_, 0) => Err(fail()),
            ("tcp", port) => Ok(Self::Tcp(port)),
            ("udp", port) => Ok(Self::Udp(port)),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "tcp:{port}"),
            Self::Udp(port) => write!(f, "udp:{port}"),
            Self::Icmp => f.write_str("icmp"),
        }
    }
}

impl<'de> Deserialize<'de> for Probe {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Probe {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

// === impl Outcome ===

impl Outcome {
    /// True if the target answered.
    pub fn reached(&self) -> bool {
        matches!(self, Self::Reached(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached(_) => f.write_str("reached"),
            Self::Silence => f.write_str("no answer"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Failed(why) => write!(f, "not sent: {why}"),
        }
    }
}

/// A probe under way.
struct Flight {
    socket: Socket,
    probe: Probe,
    connected: bool,
    text: Vec<u8>,
    sent: Instant,
}

/// Tries everything at once and returns the outcomes in the same order, after [`PATIENCE`] at the latest.
pub fn run(tries: &[Try]) -> Vec<Outcome> {
    let start = Instant::now();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; tries.len()];
    let mut flights: Vec<Option<Flight>> = Vec::with_capacity(tries.len());
    for (i, t) in tries.iter().enumerate() {
        match launch(t, start) {
            Ok(flight) => flights.push(Some(flight)),
            Err(error) => {
                flights.push(None);
                outcomes[i] = Some(failure(&error));
            }
        }
    }
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        let waiting: Vec<usize> = (0..flights.len()).filter(|&i| flights[i].is_some()).collect();
        if waiting.is_empty() || left.is_zero() {
            break;
        }
        let mut fds: Vec<PollFd<'_>> = waiting
            .iter()
            .filter_map(|&i| flights[i].as_ref())
            .map(|f| {
                let tcp = matches!(f.probe, Probe::Tcp(_));
                let flags = if tcp && !f.connected { PollFlags::POLLOUT } else { PollFlags::POLLIN };
                PollFd::new(f.socket.as_fd(), flags)
            })
            .collect();
        let wait = left.min(RESEND).as_millis().max(1) as u16;
        if poll(&mut fds, PollTimeout::from(wait)).is_err() {
            continue;
        }
        let ready: Vec<usize> = waiting
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| fd.revents().is_some_and(|r| !r.is_empty()))
            .map(|(&i, _)| i)
            .collect();
        drop(fds);
        for i in ready {
            if let Some(flight) = &mut flights[i]
                && let Some(outcome) = advance(flight)
            {
                outcomes[i] = Some(outcome);
                flights[i] = None;
            }
        }
        for i in waiting {
            if let Some(flight) = &mut flights[i]
                && !matches!(flight.probe, Probe::Tcp(_))
                && flight.sent.elapsed() >= RESEND
            {
                flight.sent = Instant::now();
                // A lost repetition is what the next one is for.
                let _ = flight.socket.send(&payload(flight.probe));
            }
        }
    }
    outcomes.into_iter().map(|o| o.unwrap_or(Outcome::Silence)).collect()
}

fn launch(t: &Try, now: Instant) -> io::Result<Flight> {
    let domain = if t.to.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let (kind, protocol, port) = match t.probe {
        Probe::Tcp(port) => (Type::STREAM, Protocol::TCP, port),
        Probe::Udp(port) => (Type::DGRAM, Protocol::UDP, port),
        Probe::Icmp if t.to.is_ipv4() => (Type::DGRAM, Protocol::ICMPV4, 0),
        Probe::Icmp => (Type::DGRAM, Protocol::ICMPV6, 0),
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SocketAddr::new(t.to, port).into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
        Err(e) => return Err(e),
    }
    if !matches!(t.probe, Probe::Tcp(_)) {
        let mut request = payload(t.probe);
        if t.probe == Probe::Icmp && t.to.is_ipv6() {
            request[0] = 128;
        }
        socket.send(&request)?;
    }
    Ok(Flight { socket, probe: t.probe, connected: false, text: Vec::new(), sent: now })
}

/// What is sent: an ICMPv4 echo request (the kernel fills in identifier and checksum), or a short text.
fn payload(probe: Probe) -> Vec<u8> {
    match probe {
        Probe::Icmp => vec![8, 0, 0, 0, 0, 0, 0, 1, b'c', b'a', b'l', b'i'],
        _ => b"who".to_vec(),
    }
}

/// Goes on with a probe whose socket is ready; an outcome ends it.
fn advance(flight: &mut Flight) -> Option<Outcome> {
    if let Ok(Some(error)) = flight.socket.take_error() {
        return Some(failure(&error));
    }
    if matches!(flight.probe, Probe::Tcp(_)) && !flight.connected {
        flight.connected = true;
        return None;
    }
    let mut buffer = [0u8; 256];
    match (&flight.socket).read(&mut buffer) {
        Ok(0) if flight.text.is_empty() => Some(Outcome::Refused("closed without an answer".into())),
        Ok(0) => Some(Outcome::Reached(seen(&flight.text))),
        Ok(n) => match flight.probe {
            Probe::Tcp(_) => {
                flight.text.extend_from_slice(&buffer[..n]);
                None
            }
            Probe::Udp(_) => Some(Outcome::Reached(seen(&buffer[..n]))),
            Probe::Icmp => Some(Outcome::Reached(None)),
        },
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        Err(e) => Some(failure(&e)),
    }
}

fn seen(text: &[u8]) -> Option<IpAddr> {
    parse_ip(std::str::from_utf8(text).ok()?.trim())
}

fn failure(error: &io::Error) -> Outcome {
    use io::ErrorKind as K;
    match error.kind() {
        K::ConnectionRefused | K::ConnectionReset | K::HostUnreachable | K::PermissionDenied => {
            Outcome::Refused(error.to_string())
        }
        K::TimedOut => Outcome::Silence,
        _ => Outcome::Failed(error.to_string()),
    }
}

/// Answers on the ports of `probes` with each client's address, until the process ends.
///
/// Returns once every port is open; the answering goes on in threads.
pub fn serve(probes: &[Probe]) -> io::Result<()> {
    for probe in probes {
        match probe {
            Probe::Tcp(port) => {
                let listener = TcpListener::bind(("::", *port))?;
                thread::Builder::new().name(probe.to_string()).spawn(move || serve_tcp(&listener))?;
            }
            Probe::Udp(port) => {
                let socket = UdpSocket::bind(("::", *port))?;
                thread::Builder::new().name(probe.to_string()).spawn(move || serve_udp(&socket))?;
            }
            Probe::Icmp => {}
        }
    }
    Ok(())
}

fn serve_tcp(listener: &TcpListener) {
    loop {
        if let Ok((mut stream, from)) = listener.accept() {
            // The client sees a cut connection if this fails; that is its answer.
            let _ = writeln!(stream, "{}", from.ip().to_canonical());
        }
    }
}

fn serve_udp(socket: &UdpSocket) {
    let mut buffer = [0u8; 256];
    loop {
        if let Ok((n, from)) = socket.recv_from(&mut buffer) {
            // A datagram that starts with a digit is one of a stream: its number goes back.
            let answer = match buffer[..n].first() {
                Some(b) if b.is_ascii_digit() => buffer[..n].to_vec(),
                _ => from.ip().to_canonical().to_string().into_bytes(),
            };
            let _ = socket.send_to(&answer, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_have_a_text() {
        for text in ["tcp:80", "udp:53", "icmp"] {
            assert_eq!(text.parse::<Probe>().expect(text).to_string(), text);
        }
        for text in ["", "tcp", "tcp:0", "tcp:65536", "sctp:1", "icmp:8"] {
            assert!(text.parse::<Probe>().is_err(), "{text}");
        }
    }

    #[test]
    fn open_ports_answer_and_closed_ones_refuse() {
        let free = |_| TcpListener::bind(("::", 0)).and_then(|l| l.local_addr()).expect("port").port();
        let (tcp, closed) = (free(0), free(1));
        let udp = UdpSocket::bind(("::", 0)).and_then(|s| s.local_addr()).expect("port").port();
        serve(&[Probe::Tcp(tcp), Probe::Udp(udp)]).expect("serve");
        let to: IpAddr = "127.0.0.1".parse().expect("address");
        let tries = [Probe::Tcp(tcp), Probe::Udp(udp), Probe::Tcp(closed)].map(|probe| Try { to, probe });
        let outcomes = run(&tries);
        assert_eq!(outcomes[0], Outcome::Reached(Some(to)));
        assert_eq!(outcomes[1], Outcome::Reached(Some(to)));
        assert!(matches!(outcomes[2], Outcome::Refused(_)), "{:?}", outcomes[2]);
    }
}
