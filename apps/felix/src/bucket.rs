//! A leaky bucket: how often something may happen. Time is passed in.

use std::time::{Duration, Instant};

/// Tokens that come back at a fixed pace.
#[derive(Debug)]
pub struct Bucket {
    capacity: u32,
    interval: Duration,
    tokens: u32,
    last: Instant,
}

// === impl Bucket ===

impl Bucket {
    /// A bucket with one token that gets another per `interval`, up to `capacity`.
    pub fn new(capacity: u32, interval: Duration, now: Instant) -> Self {
        Self { capacity, interval, tokens: 1, last: now }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let there = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        there
    }

    /// How long until there is a token.
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.refill(now);
        if self.tokens > 0 {
            Duration::ZERO
        } else {
            (self.last + self.interval).saturating_duration_since(now)
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.last).as_nanos() / self.interval.as_nanos().max(1);
        let new = u32::try_from(passed).unwrap_or(u32::MAX).min(self.capacity);
        if new > 0 {
            self.tokens = self.tokens.saturating_add(new).min(self.capacity);
            self.last = if self.tokens == self.capacity { now } else { self.last + self.interval * new };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_at_the_pace_up_to_the_capacity() {
        let t0 = Instant::now();
        let at = |ms| t0 + Duration::from_millis(ms);
        let mut bucket = Bucket::new(2, Duration::from_millis(10), t0);
        assert!(bucket.take(at(0)));
        assert!(!bucket.take(at(5)));
        assert_eq!(bucket.wait(at(5)), Duration::from_millis(5));
        assert!(bucket.take(at(12)));
        assert!(!bucket.take(at(12)));
        assert_eq!(bucket.wait(at(12)), Duration::from_millis(8));
        assert!(bucket.take(at(1000)) && bucket.take(at(1000)) && !bucket.take(at(1000)));
    }
}
