//! Tests of the language as a whole: tables here, properties in `properties`.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use smol_str::SmolStr;

use super::*;

mod properties;

fn parse(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn canonical_text() {
    let long = "l".repeat(MAX_LABEL_BYTES);
    let table = [
        ("", "all()"),
        (" \t ", "all()"),
        (" (all( \t) )", "all()"),
        ("global( )", "global()"),
        ("has( a )", "has(a)"),
        ("((a == 'b'))", r#"a == "b""#),
        ("a==\"b\"", r#"a == "b""#),
        ("a != 'b\"c'", "a != 'b\"c'"),
        ("a != \"b'c\"", "a != \"b'c\""),
        ("a == ''", r#"a == """#),
        ("a contains\"b\"", r#"a contains "b""#),
        ("a starts   with\"b\"", r#"a starts with "b""#),
        ("a startswith 'b'", r#"a starts with "b""#),
        ("a ends\twith 'b'", r#"a ends with "b""#),
        ("a endswith'b'", r#"a ends with "b""#),
        ("a in {}", "a in {}"),
        ("a in{ 'b' ,\"a\",'b', }", r#"a in {"a", "b"}"#),
        ("a in {'é', 'z', 'Z', '', 'a\"'}", r#"a in {"", "Z", 'a"', "z", "é"}"#),
        ("a notin {\"x\"}", r#"a not in {"x"}"#),
        ("a not \t in{\"x\"}", r#"a not in {"x"}"#),
        ("!!has(a)", "has(a)"),
        ("! ! !has(a)", "!has(a)"),
        ("!(!has(a))", "!!has(a)"),
        ("!a == 'b'", r#"!a == "b""#),
        ("! (has( b)||! has(a ))", "!(has(b) || !has(a))"),
        ("has(a) && has(b) && has(c)", "(has(a) && has(b) && has(c))"),
        ("(has(a) && has(b)) && has(c)", "((has(a) && has(b)) && has(c))"),
        ("has(a) && ((has(b)) && has(c))", "(has(a) && (has(b) && has(c)))"),
        ("a==\"b\"&&c!=\"d\"||has(e)", r#"((a == "b" && c != "d") || has(e))"#),
        ("has(a)||has(b)&&!has(c)||has(d)", "(has(a) || (has(b) && !has(c)) || has(d))"),
        ("in in {\"in\"}", r#"in in {"in"}"#),
        ("has(has)&&has == 'all()'", r#"(has(has) && has == "all()")"#),
        ("not not in {'not'} && contains contains 'x'", r#"(not not in {"not"} && contains contains "x")"#),
        ("-a == \"b\" || / == 'x' || .9_ == 'y'", r#"(-a == "b" || / == "x" || .9_ == "y")"#),
        ("a == 'é'", "a == \"é\""),
        ("a == '&& || ) } \n'", "a == \"&& || ) } \n\""),
    ];
    for (text, canonical) in table {
        assert_eq!(parse(text).canonical(), canonical, "{text}");
        assert_eq!(normalise(text), canonical, "{text}");
        assert_eq!(validate(text), Ok(()), "{text}");
    }
    assert_eq!(parse(&format!("has({long})")).canonical(), format!("has({long})"));
}

#[test]
fn ids() {
    let table = [
        ("", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
        ("a in {'b', \"a\", 'b'}", "s:9_m7wGzS6DBRW0E2xvXSZcEzJkXmVVNAsAI50Q"),
        ("(has(a) && has(b)) && has(c)", "s:AD_tBne9DdYzzGx-5Kq-cORN5560djp8AUKz0A"),
        ("a != 'b\"c'", "s:FN_avzXec9di52DiVfoLCLGBq14hfhkCUwN-kA"),
        ("projectcalico.org/namespace == 'default'", "s:4g010_DunYvItGg3dv2MxnaJYxWEVRwn0exiaA"),
    ];
    for (text, id) in table {
        assert_eq!(parse(text).unique_id(), id, "{text}");
    }
}

#[test]
fn refusals_name_the_place_and_the_reason() {
    let table = [
        (
            "a",
            "byte 1: expected an operator after the label a (==, !=, in, not in, contains, starts with, ends with), found the end",
        ),
        (
            "a b",
            "byte 2: expected an operator after the label a (==, !=, in, not in, contains, starts with, ends with), found b",
        ),
        ("app == web", "byte 7: expected a quoted string, found web"),
        ("'b' == a", "byte 0: expected a condition such as app == 'web', found 'b'"),
        ("!", "byte 1: expected a condition such as app == 'web', found the end"),
        ("()", "byte 1: expected a condition such as app == 'web', found )"),
        ("a == 'x')", "byte 8: expected &&, || or the end, found )"),
        ("(a == 'x'", "byte 9: expected &&, || or ), found the end"),
        ("a == 'x' & has(b)", "byte 9: expected &&, || or the end, found &"),
        ("has(a)has(b)", "byte 6: expected &&, || or the end, found has"),
        ("has(a) && ", "byte 10: expected a condition such as app == 'web', found the end"),
        ("a in ''", "byte 5: expected a set such as {'a', 'b'}, found ''"),
        ("a in {,}", "byte 6: expected a quoted string or } in the set, found ,"),
        ("a in {'x' 'y'}", "byte 10: expected a comma or } after a value of the set, found 'y'"),
        ("has('a')", "byte 4: expected a label name, found 'a'"),
        ("has()", "byte 4: expected a label name, found )"),
        ("has(a,b)", "byte 5: expected ) to end has(, found ,"),
        ("all(x)", "byte 4: expected ) to end all(, found x"),
        ("global(", "byte 7: expected ) to end global(, found the end"),
        ("a == 'x", "byte 5: a string without closing quote, found 'x"),
        ("é == 'b'", "byte 0: expected a condition such as app == 'web', found é"),
        ("a == 'b'\n", r"byte 8: expected &&, || or the end, found \n"),
        ("a == \\", r"byte 5: expected a quoted string, found \"),
        ("\u{feff}a == 'b'", r"byte 0: expected a condition such as app == 'web', found \u{feff}"),
        (
            "a == abcdefghijklmnopqrstuvwxyz",
            "byte 5: expected a quoted string, found abcdefghijklmnopqrstuvwx...",
        ),
    ];
    for (text, message) in table {
        assert_eq!(Selector::parse(text).unwrap_err().to_string(), message, "{text}");
        assert_eq!(validate(text).unwrap_err().to_string(), message, "{text}");
        if !text.ends_with('\n') {
            assert_eq!(normalise(&format!("\n {text}\u{a0}")), text.trim(), "{text}");
        }
    }
}

#[test]
fn more_refusals() {
    let long = format!("has({})", "l".repeat(MAX_LABEL_BYTES + 1));
    let refused = [
        "a == a",
        ")",
        "has(foo) &&",
        "a == 'b' &",
        "foo != ||",
        "foo in {\"\", ||",
        "\"FOO",
        "%",
        "a = \"b\"",
        "all ()",
        "has (a)",
        "all(",
        "haS(a)",
        "xhas(a)",
        "ALL()",
        "has(a) AND has(b)",
        "a == \"b\"c",
        "a:b == \"c\"",
        "a@b == 'c'",
        "a\n== \"b\"",
        "a == 'b'\n",
        "label starts foo 'v'",
        "label inf 'v'",
        "label ends withs 'v'",
        "a starts with b",
        "a startsWith 'b'",
        "a IN {'b'}",
        "a in {'b',,}",
        "a in {'b'",
        "a in {b}",
        "a not {'b'}",
        "a ! in {'b'}",
        "! = 'b'",
        "!= 'b'",
        "a == 'b' == 'c'",
        "a == ('b')",
        "(a) == 'b'",
        "a == `b`",
        "not has(a)",
        "has(a) || || has(b)",
        "&&",
        "a == '",
        "\u{feff}has(a)",
        "has(a)\0",
        "{'a'}",
        "a in ('b')",
        "a containsx 'b'",
        "a not\u{a0}in {'b'}",
        &long,
    ];
    for text in refused {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
    assert_eq!(Selector::parse(&long).unwrap_err().reason, Reason::LabelTooLong);
    let huge = " ".repeat(MAX_TEXT_BYTES + 1);
    assert_eq!(Selector::parse(&huge).unwrap_err().reason, Reason::TooLong);
}

#[test]
fn evaluation() {
    let labels = [("app", "web"), ("tier", "front-end"), ("empty", ""), ("ü", "x")];
    let table = [
        ("", true),
        ("global()", true),
        ("!all()", false),
        ("app == 'web'", true),
        ("app == 'we'", false),
        ("none == ''", false),
        ("empty == ''", true),
        ("app != 'web'", false),
        ("none != 'web'", true),
        ("app in {'a', 'web'}", true),
        ("app in {}", false),
        ("none in {''}", false),
        ("app not in {'web'}", false),
        ("app not in {}", true),
        ("none not in {'web'}", true),
        ("tier contains 't-e'", true),
        ("tier contains ''", true),
        ("none contains ''", false),
        ("tier starts with 'front'", true),
        ("tier starts with 'end'", false),
        ("none starts with ''", false),
        ("tier ends with 'end'", true),
        ("none ends with ''", false),
        ("has(empty)", true),
        ("!has(none)", true),
        ("!none == 'x'", true),
        ("!app != 'web'", true),
        ("!(!has(app))", true),
        ("has(none) || has(app) && has(tier)", true),
        ("(has(app) || has(none)) && has(none)", false),
        ("!(has(app) && has(none))", true),
        ("app in {'00', '01', '02', '03', '04', '05', '06', '07', '08', 'web', 'x'}", true),
        ("app in {'00', '01', '02', '03', '04', '05', '06', '07', '08', '09', 'x'}", false),
    ];
    let owned = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
    let tree: BTreeMap<String, String> = labels.map(owned).into();
    let small: BTreeMap<SmolStr, SmolStr> = labels.map(|(k, v)| (k.into(), v.into())).into();
    let hash: HashMap<String, String> = labels.map(owned).into();
    let vec: Vec<(SmolStr, String)> = labels.map(|(k, v)| (k.into(), v.into())).into();
    for (text, expect) in table {
        let s = parse(text);
        assert_eq!(s.matches(&labels), expect, "{text}");
        assert_eq!(s.matches(&labels[..]), expect, "{text}");
        assert_eq!(s.matches(&tree), expect, "{text}");
        assert_eq!(s.matches(&small), expect, "{text}");
        assert_eq!(s.matches(&&hash), expect, "{text}");
        assert_eq!(s.matches(&vec), expect, "{text}");
        assert_eq!(s.expr().matches(&labels), expect, "{text}");
    }
}

#[test]
fn nesting_is_bounded_and_safe_at_the_bound() {
    let nest = |open: &str, close: &str, depth: usize| {
        format!("{}has(a){}", open.repeat(depth), close.repeat(depth))
    };
    assert_eq!(parse(&nest("(", ")", MAX_DEPTH)).canonical(), "has(a)");
    let deeper = Selector::parse(&nest("(", ")", MAX_DEPTH + 1)).unwrap_err();
    assert_eq!((deeper.reason, deeper.position), (Reason::TooDeep, MAX_DEPTH));
    for (open, parens) in
        [("!(has(a) && ", 1), ("has(a) && (", 1), ("has(b) || !!(", 1), ("!(!(has(b) || ", 2)]
    {
        let depth = MAX_DEPTH / parens;
        let s = parse(&nest(open, &")".repeat(parens), depth));
        let _ = s.matches(&[("a", "")]);
        assert_eq!(s.expr().to_string(), s.canonical());
        assert!(s.prefixed("p.").contains("has(p.a)"));
        assert!(s.restrictions().len() <= 2);
        assert!(s.expr().parts().count() > depth);
    }
    assert_eq!(parse(&format!("{}has(a)", "!".repeat(100_001))).canonical(), "!has(a)");
    let wide = vec!["has(a)"; 100_000].join(" && ");
    assert!(parse(&wide).matches(&[("a", "")]));
}

#[test]
fn the_expression_can_be_looked_into() {
    let s =
        parse("app == 'web' && (tier in {'b', 'a'} || !has(x)) && z not in {} && y ends with 'q' && all()");
    let Node::And(operands) = s.expr().node() else { panic!("an and") };
    assert_eq!(operands.len(), 5);
    let parts: Vec<_> = operands.map(|o| o.to_string()).collect();
    assert_eq!(
        parts,
        [
            r#"app == "web""#,
            r#"(tier in {"a", "b"} || !has(x))"#,
            "z not in {}",
            r#"y ends with "q""#,
            "all()"
        ]
    );
    let mut labels = vec![];
    s.expr().parts().for_each(|e| match e.node() {
        Node::Has { label } | Node::NotIn { label, .. } => labels.push(label.to_owned()),
        Node::Compare { label, comparison, value } => {
            labels.push(format!("{label} {} {value}", comparison.as_str()))
        }
        Node::In { label, values } => labels.push(format!("{label} {values:?}")),
        _ => {}
    });
    assert_eq!(labels, ["app == web", r#"tier {"a", "b"}"#, "x", "z", "y ends with q"]);
    assert_eq!(format!("{:?}", parse("!has(a)").expr().node()), "Not(`has(a)`)");
}

#[test]
fn prefixes_go_before_every_label() {
    let table = [
        ("", "all()"),
        ("global() || !has(a)", "(global() || !has(pcns.a))"),
        ("a in {'a', 'b'} && a/b != 'a'", r#"(pcns.a in {"a", "b"} && pcns.a/b != "a")"#),
        (
            "a == 'x\"' || (b starts with '' && c not in {})",
            r#"(pcns.a == 'x"' || (pcns.b starts with "" && pcns.c not in {}))"#,
        ),
    ];
    for (text, expect) in table {
        assert_eq!(parse(text).prefixed("pcns."), expect);
    }
}

#[test]
fn restrictions() {
    let show = |text: &str| -> String {
        let s = parse(text);
        let one = |(label, r): (&SmolStr, &LabelRestriction)| {
            let flags = match (r.must_be_present, r.must_be_absent) {
                (true, true) => "+-",
                (true, false) => "+",
                (false, true) => "-",
                (false, false) => "?",
            };
            let values = r.must_have_one_of.as_ref().map(|v| format!("={}", v.join("|"))).unwrap_or_default();
            format!("{label}{flags}{values}")
        };
        let all: Vec<_> = s.restrictions().iter().map(one).collect();
        all.join(" ") + if s.restrictions().is_satisfiable() { "" } else { " never" }
    };
    let table = [
        ("", ""),
        ("global()", ""),
        ("a == 'x'", "a+=x"),
        ("a != 'x'", ""),
        ("a not in {'x'}", ""),
        ("a in {'y', 'x'}", "a+=x|y"),
        ("a in {}", "a+"),
        ("has(a)", "a+"),
        ("a contains 'x'", "a+"),
        ("a starts with 'x'", "a+"),
        ("a ends with 'x'", "a+"),
        ("!has(a)", "a-"),
        ("!(!has(a))", ""),
        ("!a == 'x'", ""),
        ("!(has(a) || has(b))", ""),
        ("has(b) && a == 'x'", "a+=x b+"),
        ("a in {'x', 'y'} && a in {'y', 'z'} && has(a)", "a+=y"),
        ("a == 'x' && a == 'y'", "a+= never"),
        ("has(a) && !has(a)", "a+- never"),
        ("a == 'x' || a == 'y'", "a+=x|y"),
        ("a == 'x' || has(a)", "a+"),
        ("a == 'x' || has(b)", ""),
        ("a == 'x' || !has(a)", ""),
        ("!has(a) || !has(a) && has(b)", "a-"),
        ("a == 'x' || all()", ""),
        ("has(c) && (a == 'x' && b == '1' || a == 'y' && b != '2')", "a+=x|y c+"),
    ];
    for (text, expect) in table {
        assert_eq!(show(text), expect, "{text}");
    }
    let s = parse("a in {'x', 'y'} && !has(b)");
    let (a, b) = (s.restrictions().get("a").unwrap(), s.restrictions().get("b").unwrap());
    assert!(a.allows(Some("x")) && !a.allows(Some("z")) && !a.allows(None));
    assert!(b.allows(None) && !b.allows(Some("")));
    assert_eq!(
        (s.restrictions().get("c"), s.restrictions().len(), s.restrictions().is_empty()),
        (None, 2, false)
    );
}

#[test]
fn equality_is_that_of_the_canonical_text() {
    let (a, b, c) = (parse("a=='x'"), parse("(a == \"x\")"), parse("has(a)"));
    assert_eq!(a, b);
    assert_ne!(a, c);
    assert!(a < c && a.clone() <= b);
    let hash = |s: &Selector| BuildHasherDefault::<DefaultHasher>::default().hash_one(s);
    assert_eq!(hash(&a), hash(&b));
    assert_eq!(Selector::all(), "".parse().unwrap());
    assert_eq!(format!("{:?} {}", Selector::all(), Selector::all()), "Selector(\"all()\") all()");
}
