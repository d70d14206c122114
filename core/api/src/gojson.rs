//! The one writer of stored JSON: what Go's `encoding/json` makes.
//!
//! Compact; struct fields in declaration order; `&`, `<`, `>`, U+2028 and U+2029 escaped inside strings;
//! floating point numbers in Go's shortest form (`100`, `0.5`, `1e+21`, `1e-7`).

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Encodes `value` as Go would, as text.
///
/// Errors: only what the type's own encoding reports, such as a map whose keys are not strings.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let bytes = to_vec(value)?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Encodes `value` as Go would, as bytes.
///
/// Errors: as [`to_string`].
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(256);
    value.serialize(&mut Serializer::with_formatter(&mut out, GoFormatter))?;
    Ok(out)
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(format_f64(value).as_bytes())
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        writer.write_all(format_f64(f64::from(value)).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let bytes = fragment.as_bytes();
        let mut done = 0;
        let mut at = 0;
        while at < bytes.len() {
            let (escape, len): (&[u8], usize) = match bytes[at] {
                b'&' => (br"\u0026", 1),
                b'<' => (br"\u003c", 1),
                b'>' => (br"\u003e", 1),
                0xe2 if bytes[at..].starts_with(&[0xe2, 0x80, 0xa8]) => (br"\u2028", 3),
                0xe2 if bytes[at..].starts_with(&[0xe2, 0x80, 0xa9]) => (br"\u2029", 3),
                _ => {
                    at += 1;
                    continue;
                }
            };
            writer.write_all(&bytes[done..at])?;
            writer.write_all(escape)?;
            at += len;
            done = at;
        }
        writer.write_all(&bytes[done..])
    }
}

/// Go's text of a finite number: plain digits between 1e-6 and 1e21, an exponent outside.
pub fn format_f64(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        if magnitude >= 1e21 { text.replacen('e', "e+", 1) } else { text }
    } else {
        format!("{value}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn numbers_as_go_writes_them() {
        let rows: [(f64, &str); 13] = [
            (100.0, "100"),
            (0.0, "0"),
            (-0.0, "-0"),
            (250.5, "250.5"),
            (-0.125, "-0.125"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (-2.5e-9, "-2.5e-9"),
            (123_456_789_012.0, "123456789012"),
            (0.1, "0.1"),
        ];
        for (value, want) in rows {
            assert_eq!(to_string(&value).unwrap(), want);
        }
    }

    #[test]
    fn strings_as_go_writes_them() {
        let rows = [
            ("a&b<c>d", r#""a\u0026b\u003cc\u003ed""#),
            ("x\u{2028}y\u{2029}", r#""x\u2028y\u2029""#),
            ("é\u{2027}", "\"é\u{2027}\""),
            ("\"\\/\n\r\t", r#""\"\\/\n\r\t""#),
            ("\u{8}\u{c}\u{1}\u{1f}\u{7f}", "\"\\b\\f\\u0001\\u001f\u{7f}\""),
            ("&&", r#""\u0026\u0026""#),
            ("", r#""""#),
        ];
        for (value, want) in rows {
            assert_eq!(to_string(value).unwrap(), want);
        }
    }

    #[test]
    fn keys_are_escaped_and_sorted() {
        let map = BTreeMap::from([("b", 1), ("a<", 2), ("B", 3)]);
        assert_eq!(to_string(&map).unwrap(), r#"{"B":3,"a\u003c":2,"b":1}"#);
    }
}
