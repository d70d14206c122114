//! Points in time and durations as Kubernetes' API spells them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, written in UTC with whole seconds (`2026-01-02T03:04:05Z`).
///
/// Reads any RFC 3339 time; a fraction of a second is kept in memory and dropped when written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub jiff::Timestamp);

/// Why a text is not a point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {0:?}: want the form 2006-01-02T15:04:05Z")]
pub struct TimestampError(pub String);

// === impl Timestamp ===

impl Timestamp {
    /// The time `seconds` after 1970-01-01T00:00:00Z; `None` beyond the years -9999 to 9999.
    pub fn from_second(seconds: i64) -> Option<Self> {
        jiff::Timestamp::from_second(seconds).ok().map(Self)
    }

    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    pub fn as_second(&self) -> i64 {
        self.0.as_second()
    }

    /// The same time without its fraction of a second, as it is after a trip through a store.
    pub fn truncated(&self) -> Self {
        let seconds = self.0.as_nanosecond().div_euclid(1_000_000_000);
        i64::try_from(seconds).ok().and_then(Self::from_second).unwrap_or(*self)
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(time: jiff::Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // jiff is more liberal than RFC 3339 (week dates, a bare hour); the letter positions rule that out.
        let b = text.as_bytes();
        let shaped =
            b.len() >= 20 && b[4] == b'-' && b[7] == b'-' && matches!(b[10], b'T' | b't') && b[13] == b':';
        if !shaped {
            return Err(TimestampError(text.to_owned()));
        }
        text.parse().map(Self).map_err(|_| TimestampError(text.to_owned()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A length of time in Go's text form (`1h0m0s`, `1m30s`, `500ms`), kept in nanoseconds; may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GoDuration(pub i64);

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a sequence of numbers with units.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit other than ns, us, ms, s, m, h.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit found.
        unit: String,
        /// The whole text.
        text: String,
    },
}

const SECOND: u64 = 1_000_000_000;

// === impl GoDuration ===

impl GoDuration {
    /// A duration of whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND as i64))
    }

    /// A duration of whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// As a standard duration; `None` if negative.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }

    /// In seconds, with fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / SECOND as f64
    }

    /// In milliseconds, with fraction.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    /// Reads `[+-]` and a sequence of decimal numbers, each with a unit of `ns us µs ms s m h`; or `0`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
            let whole = digits(rest);
            let (int, after) = rest.split_at(whole);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(tail) => tail.split_at(digits(tail)),
                None => ("", after),
            };
            if int.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let unit_len = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, tail) = after.split_at(unit_len);
            let scale: u64 = match unit {
                "" => return Err(DurationError::MissingUnit(text.to_owned())),
                "ns" => 1,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
                "ms" => 1_000_000,
                "s" => SECOND,
                "m" => 60 * SECOND,
                "h" => 3600 * SECOND,
                _ => {
                    return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() });
                }
            };
            let int: u64 = if int.is_empty() { 0 } else { int.parse().map_err(|_| invalid())? };
            let mut part = int.checked_mul(scale).ok_or_else(invalid)?;
            if !fraction.is_empty() {
                // Digits beyond the 18th cannot change a count of nanoseconds below 2^63.
                let kept = &fraction[..fraction.len().min(18)];
                let numerator: u128 = kept.parse().map_err(|_| invalid())?;
                let nanos = numerator * u128::from(scale) / 10u128.pow(kept.len() as u32);
                part = part.checked_add(u64::try_from(nanos).map_err(|_| invalid())?).ok_or_else(invalid)?;
            }
            total = total.checked_add(part).filter(|&t| t <= 1 << 63).ok_or_else(invalid)?;
            rest = tail;
        }
        if negative {
            // -2^63 is a valid duration although 2^63 is not.
            return Ok(Self((total as i64).wrapping_neg()));
        }
        i64::try_from(total).map(Self).map_err(|_| invalid())
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (unit, scale) = match nanos {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("\u{b5}s", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => {
                let seconds = nanos / SECOND;
                let (h, m) = (seconds / 3600, seconds / 60 % 60);
                if h > 0 {
                    write!(f, "{h}h")?;
                }
                if h > 0 || m > 0 {
                    write!(f, "{m}m")?;
                }
                return write_decimal(f, seconds % 60, nanos % SECOND, 9, "s");
            }
        };
        let width = match scale {
            1 => 0,
            1_000 => 3,
            _ => 6,
        };
        write_decimal(f, nanos / scale, nanos % scale, width, unit)
    }
}

fn write_decimal(
    f: &mut fmt::Formatter<'_>,
    int: u64,
    fraction: u64,
    width: usize,
    unit: &str,
) -> fmt::Result {
    if fraction == 0 {
        return write!(f, "{int}{unit}");
    }
    let digits = format!("{fraction:0width$}");
    write!(f, "{int}.{}{unit}", digits.trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_and_write() {
        let rows = [
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05.999999Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05+02:00", Some("2026-01-02T01:04:05Z")),
            ("1969-12-31T23:59:59.5Z", Some("1969-12-31T23:59:59Z")),
            ("2026-01-02", None),
            ("2026-01-02 03:04:05Z", None),
            ("2026-13-02T03:04:05Z", None),
            ("", None),
        ];
        for (text, want) in rows {
            let got = text.parse::<Timestamp>().ok();
            assert_eq!(got.map(|t| t.truncated().to_string()).as_deref(), want, "{text}");
            assert_eq!(got.map(|t| t.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn durations_read_and_write() {
        let rows = [
            ("0", "0s"),
            ("0s", "0s"),
            ("90s", "1m30s"),
            ("1h", "1h0m0s"),
            ("500ms", "500ms"),
            ("1.5s", "1.5s"),
            ("1.5h", "1h30m0s"),
            ("100us", "100\u{b5}s"),
            ("7ns", "7ns"),
            ("-90s", "-1m30s"),
            ("+5m", "5m0s"),
            ("1h1ns", "1h0m0.000000001s"),
            (".5s", "500ms"),
            ("86400s", "24h0m0s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ];
        for (text, want) in rows {
            assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), want, "{text}");
        }
        for bad in ["", "-", "1", "s", "1x", "1.s.", "9223372036854775808ns", "1 s", ".s", "99999999999h"] {
            assert!(bad.parse::<GoDuration>().is_err(), "{bad}");
        }
    }
}
