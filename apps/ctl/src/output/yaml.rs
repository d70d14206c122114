//! YAML as Go's library writes it: sorted keys, lists not indented, words quoted where they would be read as
//! something else, long texts folded at column 80.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::input::{Resolved, resolve};

/// Column behind which a text is folded at its next blank.
const FOLD: usize = 80;

/// Longest key that stands before its colon on one line.
const LONGEST_KEY: usize = 128;

/// The value as a YAML document, with a line break at the end.
pub(crate) fn to_yaml(value: &Value) -> String {
    let mut writer = Writer { out: String::new() };
    match value {
        Value::Object(map) if !map.is_empty() => writer.mapping(map, 0, true),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0, true),
        other => writer.leaf(other, 0),
    }
    writer.out.push('\n');
    writer.out
}

struct Writer {
    out: String,
}

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

impl Writer {
    /// Entries at `indent`; the first one continues the current line if `inline`.
    fn mapping(&mut self, map: &Map<String, Value>, indent: usize, inline: bool) {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|a, b| natural(a.0, b.0));
        for (i, (key, value)) in entries.into_iter().enumerate() {
            if i > 0 || !inline {
                self.line(indent);
            }
            let long = key.chars().count() > LONGEST_KEY || key.contains('\n');
            if long {
                self.out.push_str("? ");
            }
            self.text(key, indent, true);
            if long {
                self.line(indent);
            }
            self.out.push(':');
            match value {
                Value::Object(map) if !map.is_empty() => self.mapping(map, indent + 2, false),
                Value::Array(items) if !items.is_empty() => self.sequence(items, indent, false),
                other => {
                    self.out.push(' ');
                    self.leaf(other, indent);
                }
            }
        }
    }

    /// Items at `indent`; the first one continues the current line if `inline`.
    fn sequence(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 || !inline {
                self.line(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.mapping(map, indent + 2, true),
                Value::Array(items) if !items.is_empty() => self.sequence(items, indent + 2, true),
                other => self.leaf(other, indent),
            }
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(value) => {
                let _ = write!(self.out, "{value}");
            }
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => self.out.push_str(&general(float)),
                None => {
                    let _ = write!(self.out, "{number}");
                }
            },
            Value::String(text) => self.text(text, indent, false),
            Value::Object(_) => self.out.push_str("{}"),
            Value::Array(_) => self.out.push_str("[]"),
        }
    }

    fn line(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    fn column(&self) -> usize {
        let start = self.out.rfind('\n').map_or(0, |at| at + 1);
        self.out[start..].chars().count()
    }

    fn text(&mut self, text: &str, indent: usize, is_key: bool) {
        match style(text, is_key) {
            Style::Plain => self.folded(text, indent + 2, is_key, |c| c.to_string()),
            Style::Single => {
                self.out.push('\'');
                self.folded(
                    text,
                    indent + 2,
                    is_key,
                    |c| if c == '\'' { "''".into() } else { c.to_string() },
                );
                self.out.push('\'');
            }
            Style::Double => self.double(text, indent + 2, is_key),
            Style::Literal => self.literal(text, indent + 2),
        }
    }

    /// Writes a text; behind column 80 a single blank inside becomes a line break, which is read as a blank.
    fn folded(&mut self, text: &str, indent: usize, is_key: bool, letter: impl Fn(char) -> String) {
        let letters: Vec<char> = text.chars().collect();
        let mut column = self.column();
        let mut spaces = false;
        for (i, c) in letters.iter().enumerate() {
            if *c == ' ' {
                let inner = i > 0 && i + 1 < letters.len() && letters[i + 1] != ' ';
                if !is_key && !spaces && column > FOLD && inner {
                    self.line(indent);
                    column = indent;
                } else {
                    self.out.push(' ');
                    column += 1;
                }
                spaces = true;
            } else {
                let written = letter(*c);
                column += written.chars().count();
                self.out.push_str(&written);
                spaces = false;
            }
        }
    }

    fn double(&mut self, text: &str, indent: usize, is_key: bool) {
        self.out.push('"');
        let letters: Vec<char> = text.chars().collect();
        let mut column = self.column();
        let mut spaces = false;
        for (i, c) in letters.iter().enumerate() {
            if *c == ' ' && !is_key && !spaces && column > FOLD && i > 0 && i + 1 < letters.len() {
                self.line(indent);
                column = indent;
                // A blank at the start of a line would be lost.
                if letters[i + 1] == ' ' {
                    self.out.push('\\');
                    column += 1;
                }
            } else {
                let written = escaped(*c);
                column += written.chars().count();
                self.out.push_str(&written);
            }
            spaces = *c == ' ';
        }
        self.out.push('"');
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        match text.strip_suffix('\n') {
            None => self.out.push('-'),
            Some(rest) if rest.is_empty() || rest.ends_with('\n') => self.out.push('+'),
            Some(_) => {}
        }
        let body = text.strip_suffix('\n').unwrap_or(text);
        for line in body.split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.out.extend(std::iter::repeat_n(' ', indent));
                self.out.push_str(line);
            }
        }
    }
}

fn escaped(c: char) -> String {
    match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\0' => "\\0".into(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\t' => "\\t".into(),
        '\n' => "\\n".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\r' => "\\r".into(),
        '\u{1b}' => "\\e".into(),
        '\u{85}' => "\\N".into(),
        '\u{2028}' => "\\L".into(),
        '\u{2029}' => "\\P".into(),
        c if is_printable(c) && c != '\u{feff}' => c.to_string(),
        c if (c as u32) <= 0xff => format!("\\x{:02X}", c as u32),
        c if (c as u32) <= 0xffff => format!("\\u{:04X}", c as u32),
        c => format!("\\U{:08X}", c as u32),
    }
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
        || c >= '\u{10000}'
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The plainest form that is read back as the same text.
fn style(text: &str, is_key: bool) -> Style {
    let stays_text = resolve(text) == Resolved::Text && !is_base_60(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if stays_text {
        Style::Plain
    } else {
        Style::Double
    };
    let allowed = Allowed::of(text);
    match wanted {
        Style::Plain if allowed.plain => Style::Plain,
        Style::Plain | Style::Single if allowed.single => Style::Single,
        Style::Literal if allowed.literal && !is_key => Style::Literal,
        _ => Style::Double,
    }
}

/// Sexagesimal numbers of YAML 1.1, which other readers may know.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let Some((first, rest)) = unsigned.split_once(':') else { return false };
    if !first.starts_with(|c: char| c.is_ascii_digit())
        || !first.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        return false;
    }
    let (groups, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let sixty = |group: &str| match group.as_bytes() {
        [d] => d.is_ascii_digit(),
        [tens, ones] => (b'0'..=b'5').contains(tens) && ones.is_ascii_digit(),
        _ => false,
    };
    groups.split(':').all(sixty) && fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Which forms can hold a text.
struct Allowed {
    plain: bool,
    single: bool,
    literal: bool,
}

impl Allowed {
    fn of(text: &str) -> Self {
        let letters: Vec<char> = text.chars().collect();
        let Some(last) = letters.last() else { return Self { plain: false, single: true, literal: false } };
        let mut allowed = Self { plain: true, single: true, literal: true };
        if text.starts_with("---") || text.starts_with("...") {
            allowed.plain = false;
        }
        let blank_at =
            |i: usize| letters.get(i).is_none_or(|c| matches!(c, ' ' | '\t' | '\0') || is_break(*c));
        for (i, c) in letters.iter().enumerate() {
            let blank_before = i == 0 || blank_at(i - 1);
            let indicator = match c {
                ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`'
                    if i == 0 =>
                {
                    true
                }
                '?' | '-' if i == 0 => blank_at(i + 1),
                ':' => blank_at(i + 1),
                '#' => blank_before,
                _ => false,
            };
            allowed.plain &= !indicator;
            if !is_printable(*c) {
                return Self { plain: false, single: false, literal: false };
            }
            if is_break(*c) {
                allowed.plain = false;
                // A blank before a break would be lost, one behind it would be taken for indentation.
                if i > 0 && letters[i - 1] == ' ' {
                    return Self { plain: false, single: false, literal: false };
                }
                if letters.get(i + 1) == Some(&' ') {
                    allowed.single = false;
                }
            }
        }
        let at_edge = |c: &char| *c == ' ' || is_break(*c);
        if letters.first().is_some_and(at_edge) || at_edge(last) {
            allowed.plain = false;
        }
        if *last == ' ' {
            allowed.literal = false;
        }
        allowed
    }
}

/// A float as Go's shortest general form.
pub(crate) fn general(value: f64) -> String {
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let Ok(exponent) = exponent.parse::<i32>() else { return text };
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Order of keys: other signs before letters, numbers by their value.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(i) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len().cmp(&b.len()) };
    let (x, y) = (a[i], b[i]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let number = |letters: &[char]| {
        // Digits before the difference belong to the number; equal ones need only be known to be there.
        let mut value = 0u128;
        if x == '0' || y == '0' {
            let before = a[..i].iter().rev().take_while(|c| c.is_ascii_digit());
            if before.into_iter().any(|c| *c != '0') {
                value = 1;
            }
        }
        let digits = letters[i..].iter().take_while(|c| c.is_ascii_digit());
        let count = digits.clone().count();
        for digit in digits {
            value = value.saturating_mul(10).saturating_add(u128::from(*digit as u32 - '0' as u32));
        }
        (value, count)
    };
    number(&a).cmp(&number(&b)).then(x.cmp(&y))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn golden() {
        for (value, want) in [
            (json!({}), "{}\n"),
            (json!([]), "[]\n"),
            (json!(null), "null\n"),
            (
                json!({"b": {"y": [], "x": {}}, "a": [1, 2.5, true, null, [3, [4]], {"k": "v", "j": ["w"]}]}),
                "a:\n- 1\n- 2.5\n- true\n- null\n- - 3\n  - - 4\n- j:\n  - w\n  k: v\nb:\n  x: {}\n  \"y\": []\n",
            ),
            (
                json!({"v10": 1, "v9": 2, "v": 3, "_": 4, "1": 5, "V": 6}),
                "_: 4\n\"1\": 5\nV: 6\nv: 3\nv9: 2\nv10: 1\n",
            ),
            (
                json!([1e21, 1e-7, 0.5, 1234567.5, -2.5e-9, 123456.5]),
                "- 1e+21\n- 1e-07\n- 0.5\n- 1.2345675e+06\n- -2.5e-09\n- 123456.5\n",
            ),
        ] {
            assert_eq!(to_yaml(&value), want);
        }
    }

    #[test]
    fn texts_in_their_forms() {
        for (text, want) in [
            ("plain words", "plain words"),
            ("", "\"\""),
            ("470", "\"470\""),
            ("yes", "\"yes\""),
            ("true", "\"true\""),
            ("null", "\"null\""),
            ("1e3", "\"1e3\""),
            ("2026-11-30T00:00:00Z", "\"2026-11-30T00:00:00Z\""),
            ("64999:17", "\"64999:17\""),
            ("08:15", "\"08:15\""),
            ("64999:99", "64999:99"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("*", "'*'"),
            ("[2001:db8::1]:179", "'[2001:db8::1]:179'"),
            ("role == \"db\"", "role == \"db\""),
            ("'x' in a", "'''x'' in a'"),
            ("a: b", "'a: b'"),
            ("a:b", "a:b"),
            ("a #b", "'a #b'"),
            ("a#b", "a#b"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("<tag> & more", "<tag> & more"),
            (" lead", "' lead'"),
            ("trail ", "'trail '"),
            ("tab\there", "\"tab\\there\""),
            ("one\ntwo\n", "|\n  one\n  two"),
            ("one\n\ntwo", "|-\n  one\n\n  two"),
            ("one\n\n", "|+\n  one\n"),
            (" one\ntwo", "|2-\n   one\n  two"),
            ("one \ntwo", "\"one \\ntwo\""),
            ("größe", "größe"),
            ("\u{1}\u{feff}\u{85}", "\"\\x01\\uFEFF\\N\""),
        ] {
            assert_eq!(to_yaml(&json!({"k": text})), format!("k: {want}\n"), "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_folded() {
        let words = "word ".repeat(30);
        let text = words.trim_end();
        let yaml = to_yaml(&json!({"message": text}));
        let lines: Vec<&str> = yaml.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].len() > FOLD && lines[0].len() < FOLD + 6, "{yaml}");
        assert!(lines[1].starts_with("  word"), "{yaml}");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9f64..1e9).prop_map(Value::from),
            "[ -~\n\u{e9}]{0,24}".prop_map(Value::from),
            "[a-z ]{60,200}".prop_map(Value::from),
            "(0[0-9]{2}|[0-9]{1,3}:[0-9]{2}|yes|no|~|[-:?#] ?x|\\.\\.\\.|---)".prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,12}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in any_value()) {
            let text = to_yaml(&value);
            let read = crate::input::read_yaml(&text).unwrap();
            let read = read.first().cloned().unwrap_or(Value::Null);
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
