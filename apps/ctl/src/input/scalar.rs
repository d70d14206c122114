//! What a plain YAML word means, by the rules that Go's YAML library follows (YAML 1.1 with its exceptions).

use serde_json::{Number, Value};

/// What a word is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Resolved {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A number that JSON has no form for.
    NotFinite,
    /// A date or a time; read as the text it is.
    Time,
    /// A text.
    Text,
}

/// The meaning of a plain word.
pub(crate) fn resolve(word: &str) -> Resolved {
    match word {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::NotFinite,
        _ => {}
    }
    let unsigned = word.trim_start_matches(['+', '-']);
    if word.len() - unsigned.len() <= 1 && matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Resolved::NotFinite;
    }
    if !word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Resolved::Text;
    }
    if is_time(word) {
        return Resolved::Time;
    }
    let plain: String = word.chars().filter(|c| *c != '_').collect();
    if let Some(number) = integer(&plain) {
        return Resolved::Number(number);
    }
    if is_float(&plain)
        && let Ok(value) = plain.parse::<f64>()
    {
        return Number::from_f64(value).map_or(Resolved::NotFinite, Resolved::Number);
    }
    Resolved::Text
}

/// The JSON value of a plain word; `None` for a number that JSON has no form for.
pub(super) fn value(word: &str) -> Option<Value> {
    Some(match resolve(word) {
        Resolved::Null => Value::Null,
        Resolved::Bool(value) => Value::Bool(value),
        Resolved::Number(number) => Value::Number(number),
        Resolved::NotFinite => return None,
        Resolved::Time | Resolved::Text => Value::String(word.to_owned()),
    })
}

/// A whole number: decimal, or in another base by its prefix (`0x`, `0b`, `0o` or a leading `0`).
fn integer(word: &str) -> Option<Number> {
    let (negative, digits) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0i64.checked_sub_unsigned(magnitude).map(Number::from);
    }
    Some(magnitude.into())
}

/// A decimal fraction, perhaps with an exponent.
fn is_float(word: &str) -> bool {
    let rest = word.strip_prefix(['+', '-']).unwrap_or(word);
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(rest);
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = digits(fraction);
        if whole == 0 && count == 0 {
            return false;
        }
        rest = &fraction[count..];
    } else if whole == 0 {
        return false;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let count = digits(exponent);
        return count > 0 && count == exponent.len();
    }
    rest.is_empty()
}

/// A date (`2026-1-30`), or a date and a time of day.
fn is_time(word: &str) -> bool {
    let Some((year, rest)) = word.split_once('-') else { return false };
    if year.len() != 4 || !year.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let Some((month, rest)) = rest.split_once('-') else { return false };
    let day_end = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (day, rest) = rest.split_at(day_end);
    if !between(month, 1, 12) || !between(day, 1, 31) {
        return false;
    }
    let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else { return rest.is_empty() };
    let mut parts = rest.splitn(3, ':');
    let (Some(hour), Some(minute), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if !between(hour, 0, 23) || !between(minute, 0, 59) {
        return false;
    }
    let second_end = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (second, rest) = rest.split_at(second_end);
    if !between(second, 0, 59) {
        return false;
    }
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let offset = |text: &str| {
        text.split_once(':').is_some_and(|(h, m)| between(h, 0, 23) && between(m, 0, 59) && m.len() == 2)
    };
    match zone.strip_prefix(['+', '-']) {
        Some(text) => offset(text),
        None => zone == "Z" || (zone.is_empty() && word.contains(' ')),
    }
}

fn between(digits: &str, least: u8, most: u8) -> bool {
    (1..=2).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && digits.parse::<u8>().is_ok_and(|n| (least..=most).contains(&n))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_mean_what_go_takes_them_for() {
        for (words, want) in [
            ("y Y yes Yes YES on On ON true True TRUE", json!(true)),
            ("n N no No NO off Off OFF false False FALSE", json!(false)),
            ("~ null Null NULL", json!(null)),
            ("255 0xff 0xFF 0377 0o377 0b1111_1111 +255 2_5_5", json!(255)),
            ("-8 -010 -0b1000 -0x8", json!(-8)),
            ("12.5 1_2.5 1.25e1 125E-1 +12.5", json!(12.5)),
            (".5 0.5 5e-1", json!(0.5)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
        ] {
            for word in words.split(' ') {
                assert_eq!(value(word), Some(want.clone()), "{word}");
            }
        }
        for word in [
            "yEs",
            "nULL",
            "oN",
            "tRue",
            "abc",
            "1.2.3",
            "10.0.0.0/8",
            "0x",
            "0b2",
            "1e",
            "1:30",
            "--5",
            "-",
            ".",
            "+",
            "e5",
            "1a",
            "2026-11-30",
            "2026-11-30T01:02:03Z",
            "<<",
            "99999999999999999999x",
            "Infinity",
        ] {
            assert_eq!(value(word), Some(json!(word)), "{word}");
        }
        assert_eq!(value("08"), Some(json!(8.0)));
        assert_eq!(value("18446744073709551616"), Some(json!(18_446_744_073_709_551_616.0)));
        for word in [".nan", ".inf", "-.Inf", "+.INF", "1e999"] {
            assert_eq!(value(word), None, "{word}");
        }
    }

    #[test]
    fn times_are_told_from_texts() {
        for word in [
            "2026-11-30",
            "2026-1-2",
            "2026-11-30T16:15:14Z",
            "2026-11-30t16:15:14.5+01:30",
            "2026-11-30 1:2:3",
            "2026-11-30 1:2:3.25 ".trim(),
        ] {
            assert_eq!(resolve(word), Resolved::Time, "{word}");
        }
        for word in [
            "2026-13-01",
            "2026-11-32",
            "26-11-30",
            "2026-11-30T16:15",
            "2026-11-30T16:15:14",
            "2026-11",
            "2026-11-30x",
        ] {
            assert_eq!(resolve(word), Resolved::Text, "{word}");
        }
    }
}
