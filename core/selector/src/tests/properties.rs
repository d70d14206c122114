//! Properties over random expressions, checked against a plain tree that is written, evaluated and printed
//! in the most obvious way.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::{Selector, normalise, validate};

#[derive(Debug, Clone)]
enum Tree {
    All,
    Global,
    Has(String),
    Compare(String, &'static str, String),
    Set(String, bool, Vec<String>),
    Not(Box<Tree>),
    And(Vec<Tree>),
    Or(Vec<Tree>),
}

type LabelMap = BTreeMap<String, String>;

impl Tree {
    fn canonical(&self) -> String {
        match self {
            Tree::All => "all()".into(),
            Tree::Global => "global()".into(),
            Tree::Has(label) => format!("has({label})"),
            Tree::Compare(label, op, value) => format!("{label} {op} {}", quote(value)),
            Tree::Set(label, negated, values) => {
                let mut values = values.clone();
                values.sort();
                values.dedup();
                let values: Vec<_> = values.iter().map(|v| quote(v)).collect();
                format!("{label} {} {{{}}}", if *negated { "not in" } else { "in" }, values.join(", "))
            }
            Tree::Not(inner) => format!("!{}", inner.canonical()),
            Tree::And(parts) => list(parts, " && "),
            Tree::Or(parts) => list(parts, " || "),
        }
    }

    fn eval(&self, labels: &LabelMap) -> bool {
        match self {
            Tree::All | Tree::Global => true,
            Tree::Has(label) => labels.contains_key(label),
            Tree::Compare(label, op, value) => match (labels.get(label), *op) {
                (None, op) => op == "!=",
                (Some(l), "==") => l == value,
                (Some(l), "!=") => l != value,
                (Some(l), "contains") => l.contains(value.as_str()),
                (Some(l), "starts with") => l.starts_with(value.as_str()),
                (Some(l), _) => l.ends_with(value.as_str()),
            },
            Tree::Set(label, negated, values) => {
                labels.get(label).is_some_and(|l| values.contains(l)) != *negated
            }
            Tree::Not(inner) => !inner.eval(labels),
            Tree::And(parts) => parts.iter().all(|p| p.eval(labels)),
            Tree::Or(parts) => parts.iter().any(|p| p.eval(labels)),
        }
    }

    /// The tree that the canonical text reads as: pairs of negations next to each other are gone.
    fn reread(&self) -> Tree {
        match self {
            Tree::Not(inner) => match &**inner {
                Tree::Not(inner) => inner.reread(),
                inner => Tree::Not(Box::new(inner.reread())),
            },
            Tree::And(parts) => Tree::And(parts.iter().map(Tree::reread).collect()),
            Tree::Or(parts) => Tree::Or(parts.iter().map(Tree::reread).collect()),
            leaf => leaf.clone(),
        }
    }

    /// Canonical text of the tree and of each part, outer before inner.
    fn parts(&self, out: &mut Vec<String>) {
        out.push(self.canonical());
        match self {
            Tree::Not(inner) => inner.parts(out),
            Tree::And(parts) | Tree::Or(parts) => parts.iter().for_each(|p| p.parts(out)),
            _ => {}
        }
    }

    /// One of the many ways to write the tree.
    fn write(&self, style: &mut Style<'_>, out: &mut String) {
        match self {
            Tree::All => *out += style.pick(&["all()", "all( )", "all(\t )"]),
            Tree::Global => *out += style.pick(&["global()", "global(\t)"]),
            Tree::Has(label) => *out += &format!("has({}{label}{})", style.blank(), style.blank()),
            Tree::Compare(label, op, value) => {
                let word = op.as_bytes()[0].is_ascii_alphabetic();
                let op = match *op {
                    "starts with" => style.pick(&["starts with", "startswith", "starts \t with"]),
                    "ends with" => style.pick(&["ends with", "endswith", "ends\twith"]),
                    op => op,
                };
                *out +=
                    &format!("{label}{}{}{op}{}", if word { " " } else { "" }, style.blank(), style.blank());
                style.quote(value, out);
            }
            Tree::Set(label, negated, values) => {
                let op = if *negated { style.pick(&["not in", "notin", "not  in"]) } else { "in" };
                *out += &format!("{label} {}{op}{}{{{}", style.blank(), style.blank(), style.blank());
                for (i, value) in values.iter().enumerate() {
                    *out += if i > 0 { "," } else { "" };
                    *out += style.blank();
                    style.quote(value, out);
                    *out += style.blank();
                }
                *out += if values.is_empty() { "}" } else { style.pick(&["}", ",}", ", }"]) };
            }
            Tree::Not(inner) => {
                *out += "!";
                *out += style.blank();
                let group =
                    !matches!(**inner, Tree::Not(_) | Tree::And(_) | Tree::Or(_)) && style.next() > 60;
                if group { inner.write(style, out) } else { inner.grouped(style, out) }
            }
            Tree::And(parts) => {
                Self::join(parts, "&&", style, out, |part| matches!(part, Tree::Or(_) | Tree::And(_)))
            }
            Tree::Or(parts) => Self::join(parts, "||", style, out, |part| matches!(part, Tree::Or(_))),
        }
    }

    fn grouped(&self, style: &mut Style<'_>, out: &mut String) {
        *out += "(";
        *out += style.blank();
        self.write(style, out);
        *out += style.blank();
        *out += ")";
    }

    fn join(parts: &[Tree], op: &str, style: &mut Style<'_>, out: &mut String, group: fn(&Tree) -> bool) {
        for (i, part) in parts.iter().enumerate() {
            *out += style.blank();
            *out += if i > 0 { op } else { "" };
            *out += style.blank();
            let run = style.next();
            if matches!(part, Tree::And(_)) {
                part.grouped_if(run.is_multiple_of(2) || group(part), style, out);
                continue;
            }
            if run.is_multiple_of(8) {
                *out += style.pick(&["!!", "! !", "!!!\t!"]);
            }
            part.grouped_if(group(part) || run % 8 == 1, style, out);
        }
    }

    fn grouped_if(&self, group: bool, style: &mut Style<'_>, out: &mut String) {
        if group { self.grouped(style, out) } else { self.write(style, out) }
    }
}

fn list(parts: &[Tree], separator: &str) -> String {
    let parts: Vec<_> = parts.iter().map(Tree::canonical).collect();
    format!("({})", parts.join(separator))
}

fn quote(value: &str) -> String {
    if value.contains('"') { format!("'{value}'") } else { format!("\"{value}\"") }
}

/// A stream of choices.
struct Style<'a> {
    bytes: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Style<'_> {
    fn next(&mut self) -> u8 {
        *self.bytes.next().unwrap()
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[usize::from(self.next()) % choices.len()]
    }

    fn blank(&mut self) -> &'static str {
        self.pick(&["", "", " ", "\t", "  \t"])
    }

    fn quote(&mut self, value: &str, out: &mut String) {
        let single = value.contains('"') || (!value.contains('\'') && self.next().is_multiple_of(2));
        *out += &if single { format!("'{value}'") } else { format!("\"{value}\"") };
    }
}

fn label() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "in", "not", "has", "all", "starts", "x/y.z-1_", "9", "-"])
        .prop_map(String::from)
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab]{0,2}", 1 => "[ab\"é &|!(){},\t]{0,4}", 1 => "[ab'é &|!(){},\n]{0,4}"]
}

fn tree() -> impl Strategy<Value = Tree> {
    let op = prop::sample::select(vec!["==", "!=", "contains", "starts with", "ends with"]);
    let leaf = prop_oneof![
        1 => Just(Tree::All),
        1 => Just(Tree::Global),
        3 => label().prop_map(Tree::Has),
        6 => (label(), op, value()).prop_map(|(l, o, v)| Tree::Compare(l, o, v)),
        3 => (label(), any::<bool>(), vec(value(), 0..12)).prop_map(|(l, n, v)| Tree::Set(l, n, v)),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            2 => inner.clone().prop_map(|t| Tree::Not(Box::new(t))),
            2 => vec(inner.clone(), 2..5).prop_map(Tree::And),
            2 => vec(inner, 2..5).prop_map(Tree::Or),
        ]
    })
}

fn labels() -> impl Strategy<Value = LabelMap> {
    btree_map(label(), value(), 0..8)
}

fn style() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..60)
}

/// Text that is nearly a selector.
fn nearly() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "in",
        "not",
        "starts",
        "with",
        "contains",
        "has(",
        "all()",
        "global(",
        "(",
        ")",
        "{",
        "}",
        ",",
        "==",
        "!=",
        "!",
        "&&",
        "||",
        "'x'",
        "\"y\"",
        "'",
        " ",
        "\t",
        "=",
        "&",
        "é",
        "\n",
        "startswith",
        "notin",
    ]);
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_spelling_reads_as_the_tree(tree in tree(), bytes in style(), labels in vec(labels(), 1..6)) {
        let mut text = String::new();
        tree.write(&mut Style { bytes: bytes.iter().cycle() }, &mut text);
        let selector = Selector::parse(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        prop_assert_eq!(selector.canonical(), tree.canonical(), "{}", text);
        prop_assert_eq!(selector.expr().to_string(), tree.canonical());
        prop_assert_eq!(normalise(&text), tree.canonical());
        let parts: Vec<_> = selector.expr().parts().map(|part| part.to_string()).collect();
        let mut expect = vec![];
        tree.parts(&mut expect);
        prop_assert_eq!(parts, expect);

        let again = Selector::parse(selector.canonical()).unwrap();
        prop_assert_eq!(again.canonical(), tree.reread().canonical());
        let fixed = Selector::parse(again.canonical()).unwrap();
        prop_assert_eq!(fixed.canonical(), tree.reread().reread().canonical());

        for labels in labels {
            let matches = tree.eval(&labels);
            prop_assert_eq!(selector.matches(&labels), matches, "{}", text);
            prop_assert_eq!(again.matches(&labels), matches, "{}", text);
            let prefixed: LabelMap = labels.iter().map(|(k, v)| (format!("p.{k}"), v.clone())).collect();
            prop_assert_eq!(Selector::parse(&selector.prefixed("p.")).unwrap().matches(&prefixed), matches);
            if matches {
                prop_assert!(selector.restrictions().is_satisfiable(), "{}", text);
                for (label, restriction) in selector.restrictions().iter() {
                    let value = labels.get(label.as_str()).map(String::as_str);
                    prop_assert!(restriction.allows(value), "{}: {} {:?}", text, label, restriction);
                }
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200)) {
        judge(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn no_near_miss_panics(text in nearly()) {
        judge(&text)?;
    }

    /// One changed character in a good selector.
    #[test]
    fn no_damage_panics(tree in tree(), bytes in style(), at in any::<prop::sample::Index>(), with in any::<char>()) {
        let mut text = String::new();
        tree.write(&mut Style { bytes: bytes.iter().cycle() }, &mut text);
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        chars[at] = with;
        judge(&chars.iter().collect::<String>())?;
    }
}

/// A text is either a selector whose canonical text is one too, or is refused with a place inside it.
fn judge(text: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(validate(text), Selector::parse(text).map(drop));
    match Selector::parse(text) {
        Ok(selector) => prop_assert!(Selector::parse(selector.canonical()).is_ok()),
        Err(error) => {
            prop_assert!(error.position <= text.len() && text.is_char_boundary(error.position));
            prop_assert!(text[error.position..].starts_with(error.token.trim_end_matches('.')));
            prop_assert_eq!(error.token.is_empty(), error.position == text.len());
        }
    }
    Ok(())
}
