//! Texts of settings to values.

use std::net::IpAddr;
use std::time::Duration;

use calico_net::cidr::parse_ip;
use calico_net::{Cidr, PortRange};
use calico_rules::ProtoPorts;
use calico_rules::config::FailsafePort;
use smol_str::SmolStr;

use super::RawSettings;

/// A setting whose text cannot be read; its default holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {name} = {text:?}: {reason}")]
pub struct BadValue {
    /// Setting.
    pub name: &'static str,
    /// Text.
    pub text: String,
    /// What is wrong.
    pub reason: String,
}

/// Reads settings one by one and collects the bad ones.
pub(super) struct Reader<'a> {
    raw: &'a RawSettings,
    pub(super) bad: Vec<BadValue>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(raw: &'a RawSettings) -> Self {
        Self { raw, bad: Vec::new() }
    }

    /// The setting as `parse` reads it; `zero` for `none`; `default` if unset or bad.
    pub(super) fn get<T>(
        &mut self,
        name: &'static str,
        default: T,
        zero: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let Some(text) = self.raw.get(name) else { return default };
        if text.eq_ignore_ascii_case("none") {
            return zero;
        }
        match parse(text) {
            Ok(value) => value,
            Err(reason) => {
                self.bad.push(BadValue { name, text: text.to_string(), reason });
                default
            }
        }
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> bool {
        self.get(name, default, false, boolean)
    }

    /// A flag that may be left to be worked out.
    pub(super) fn maybe_flag(&mut self, name: &'static str) -> Option<bool> {
        self.get(name, None, Some(false), |t| boolean(t).map(Some))
    }

    pub(super) fn number<T: std::str::FromStr + Default + PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        default: T,
        range: std::ops::RangeInclusive<T>,
    ) -> T {
        self.get(name, default, T::default(), |t| {
            let n: T = t.parse().map_err(|_| "not a number in range".to_owned())?;
            if range.contains(&n) { Ok(n) } else { Err("out of range".to_owned()) }
        })
    }

    /// A length of time in seconds, as the store's model and the file write it; Go's forms are read too.
    pub(super) fn seconds(&mut self, name: &'static str, default: u64) -> Duration {
        self.get(name, Duration::from_secs(default), Duration::ZERO, duration)
    }

    pub(super) fn text(&mut self, name: &'static str, default: &str) -> String {
        self.get(name, default.to_owned(), String::new(), |t| Ok(t.to_owned()))
    }

    /// One of `words`, in any case.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, default: T, words: &[(&str, T)]) -> T {
        self.get(name, default, default, |t| {
            let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(t));
            found.map(|&(_, value)| value).ok_or_else(|| {
                let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("must be one of {}", all.join(", "))
            })
        })
    }

    pub(super) fn list(&mut self, name: &'static str, default: &[&str]) -> Vec<SmolStr> {
        let default = default.iter().map(|&w| w.into()).collect();
        self.get(name, default, Vec::new(), |t| {
            Ok(t.split(',').map(str::trim).filter(|w| !w.is_empty()).map(SmolStr::from).collect())
        })
    }

    pub(super) fn cidrs(&mut self, name: &'static str) -> Vec<Cidr> {
        self.get(name, Vec::new(), Vec::new(), |t| {
            let words = t.split(',').map(str::trim).filter(|w| !w.is_empty());
            words.map(|w| Cidr::parse(w).map(|c| c.masked()).map_err(|e| e.to_string())).collect()
        })
    }

    pub(super) fn address(&mut self, name: &'static str) -> Option<IpAddr> {
        self.get(name, None, None, |t| parse_ip(t).map(Some).ok_or_else(|| "not an IP address".to_owned()))
    }

    pub(super) fn mask(&mut self, name: &'static str, default: u32) -> u32 {
        self.get(name, default, 0, |t| {
            let parsed = match t.strip_prefix("0x").or_else(|| t.strip_prefix("0X")) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => t.parse(),
            };
            parsed.map_err(|_| "not a 32-bit number".to_owned())
        })
    }

    pub(super) fn port_range(&mut self, name: &'static str) -> Option<PortRange> {
        self.get(name, None, None, |t| match t.parse() {
            Ok(calico_net::Port::Range(range)) => Ok(Some(range)),
            _ => Err("not a port or a range of ports".to_owned()),
        })
    }

    /// `tcp:22,udp:[fd00::/8]:53,53`: protocol (TCP if left out), peers (all if left out), port.
    pub(super) fn failsafes(&mut self, name: &'static str, default: Vec<FailsafePort>) -> Vec<FailsafePort> {
        self.get(name, default, Vec::new(), |t| {
            t.split(',').map(str::trim).filter(|w| !w.is_empty()).map(failsafe).collect()
        })
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds = |n: f64| Duration::try_from_secs_f64(n).map_err(|_| "not a length of time".to_owned());
    if let Ok(n) = text.parse::<f64>() {
        return seconds(n);
    }
    // Go's form: numbers with units, for example 1m30s.
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let split = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or("a number without a unit")?;
        let n: f64 = rest[..split].parse().map_err(|_| "not a number".to_owned())?;
        let tail = &rest[split..];
        let unit_len = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        total += n * match &tail[..unit_len] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            unit => return Err(format!("unknown unit {unit:?}")),
        };
        rest = &tail[unit_len..];
    }
    seconds(total)
}

fn failsafe(word: &str) -> Result<FailsafePort, String> {
    let bad = || format!("{word:?} is not a port such as tcp:22");
    let (head, port) = word.rsplit_once(':').unwrap_or(("tcp", word));
    let (protocol, net) = head.split_once(':').unwrap_or((head, ""));
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "tcp" => ProtoPorts::Tcp,
        "udp" => ProtoPorts::Udp,
        _ => return Err(bad()),
    };
    let net = match net.trim_start_matches('[').trim_end_matches(']') {
        "" => None,
        net => Some(Cidr::parse(net).map_err(|e| e.to_string())?.masked()),
    };
    Ok(FailsafePort { protocol, port: port.parse().map_err(|_| bad())?, net })
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[test]
    fn times_have_two_forms() {
        for (text, want) in [("90", 90_000), ("1.5", 1_500), ("1m30s", 90_000), ("250ms", 250), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(want)), "{text}");
        }
        for text in ["", "x", "5x", "-1", "m"] {
            assert!(text.is_empty() || duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn failsafe_ports_have_protocol_and_peers() {
        let net = |t: &str| Some(t.parse().expect(t));
        let cases = [
            ("22", ProtoPorts::Tcp, 22, None),
            ("udp:53", ProtoPorts::Udp, 53, None),
            ("tcp:10.0.0.0/8:22", ProtoPorts::Tcp, 22, net("10.0.0.0/8")),
            ("udp:[fd00::/8]:53", ProtoPorts::Udp, 53, net("fd00::/8")),
        ];
        for (text, protocol, port, net) in cases {
            assert_eq!(failsafe(text), Ok(FailsafePort { protocol, port, net }), "{text}");
        }
        for text in ["icmp:1", "tcp:x", "tcp:10.0.0.0/99:22"] {
            assert!(failsafe(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bad_texts_are_reported_and_defaults_hold() {
        let mut raw = RawSettings::default();
        raw.set(Source::Global, "HealthPort", Some("99999999".into()));
        raw.set(Source::Global, "IPv6Support", Some("none".into()));
        let mut reader = Reader::new(&raw);
        assert_eq!(reader.number("HealthPort", 9099u16, 1..=65535), 9099);
        assert!(!reader.flag("IPv6Support", true));
        assert_eq!(reader.bad.len(), 1);
        assert!(reader.bad[0].to_string().contains("HealthPort = \"99999999\""));
    }
}
