//! A steady stream of numbered datagrams that counts which of them were answered.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long answers may come after the last datagram.
const DRAIN: Duration = Duration::from_secs(2);

/// What became of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams never answered.
    pub lost: u64,
    /// Datagrams that the kernel refused to send; they count as lost too.
    pub refused: u64,
    /// Longest run of lost datagrams, as time.
    pub longest_gap: Duration,
}

/// A running stream. It goes on until [`Flood::end`].
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Tally>,
}

impl Flood {
    /// Starts a stream to `to` from the calling thread's network namespace.
    pub fn start(to: SocketAddr, per_second: u32) -> io::Result<Self> {
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let interval = Duration::from_secs(1) / per_second.max(1);
        let thread = std::thread::Builder::new()
            .name("flood".into())
            .spawn(move || pour(&socket, interval, &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Stops sending, waits for late answers and counts.
    pub fn end(self) -> io::Result<Tally> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| io::Error::other("the flood's thread panicked"))
    }
}

fn pour(socket: &UdpSocket, interval: Duration, stop: &AtomicBool) -> Tally {
    let mut open: HashSet<u64> = HashSet::new();
    let (mut sent, mut refused) = (0u64, 0u64);
    let mut next = Instant::now();
    while !stop.load(Ordering::Acquire) {
        match socket.send(sent.to_string().as_bytes()) {
            Ok(_) => {}
            // ICMP errors of earlier datagrams come up here; the datagram itself was not sent.
            Err(_) => refused += 1,
        }
        open.insert(sent);
        sent += 1;
        collect(socket, &mut open);
        next += interval;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let deadline = Instant::now() + DRAIN;
    while !open.is_empty() && Instant::now() < deadline {
        collect(socket, &mut open);
        std::thread::sleep(Duration::from_millis(5));
    }
    Tally { sent, lost: open.len() as u64, refused, longest_gap: interval * longest_run(&open) }
}

fn collect(socket: &UdpSocket, open: &mut HashSet<u64>) {
    let mut buffer = [0u8; 64];
    // An error is no answer; the next round looks again.
    while let Ok(n) = socket.recv(&mut buffer) {
        if let Some(number) = std::str::from_utf8(&buffer[..n]).ok().and_then(|t| t.parse().ok()) {
            open.remove(&number);
        }
    }
}

fn longest_run(lost: &HashSet<u64>) -> u32 {
    let mut numbers: Vec<u64> = lost.iter().copied().collect();
    numbers.sort_unstable();
    let (mut longest, mut run) = (0u32, 0u32);
    for (i, n) in numbers.iter().enumerate() {
        run = if i > 0 && numbers[i - 1] + 1 == *n { run + 1 } else { 1 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Probe, serve};

    #[test]
    fn an_answered_stream_loses_nothing_and_a_dead_one_all() {
        let free = || UdpSocket::bind(("::", 0)).and_then(|s| s.local_addr()).expect("port").port();
        let (open, dead) = (free(), free());
        serve(&[Probe::Udp(open)]).expect("serve");
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let good = Flood::start(at(open), 1000).expect("start");
        let bad = Flood::start(at(dead), 1000).expect("start");
        let deadline = Instant::now() + Duration::from_millis(200);
        while Instant::now() < deadline {
            std::thread::yield_now();
        }
        let (good, bad) = (good.end().expect("end"), bad.end().expect("end"));
        assert!(good.sent > 0 && good.lost == 0, "{good:?}");
        assert!(bad.sent > 0 && bad.lost == bad.sent, "{bad:?}");
        assert!(bad.longest_gap > Duration::ZERO);
    }

    #[test]
    fn runs_are_counted() {
        assert_eq!(longest_run(&HashSet::new()), 0);
        assert_eq!(longest_run(&HashSet::from([1, 2, 3, 7, 8])), 3);
    }
}
