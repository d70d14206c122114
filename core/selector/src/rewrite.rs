//! Rewrites of selector text on its way into the internal model.
//!
//! The model gives endpoints labels of their namespace and service account, so a selector over namespaces
//! becomes one over endpoints: its labels get a prefix ([`crate::Selector::prefixed`]) and the words that
//! mean "any" must stay within endpoints that have a namespace at all.

/// Replaces each `all()` by `has(label)`, except inside quoted strings.
///
/// Works on text because the selectors it is applied to are joined from parts as written. Only the exact
/// spelling of canonical text is replaced, not `all( )`.
pub fn replace_all(text: &str, label: &str) -> String {
    replace_call(text, "all()", &format!("has({label})"))
}

/// Replaces each `global()` by `!has(label)`, except inside quoted strings; else as [`replace_all`].
pub fn replace_global(text: &str, label: &str) -> String {
    replace_call(text, "global()", &format!("!has({label})"))
}

fn replace_call(text: &str, call: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len() + by.len());
    let mut rest = text;
    while let Some(quote_at) = rest.find(['"', '\'']) {
        let (code, quoted) = rest.split_at(quote_at);
        out.push_str(&code.replace(call, by));
        let quote = quoted.as_bytes()[0];
        let end = quoted.bytes().skip(1).position(|b| b == quote).map_or(quoted.len(), |len| len + 2);
        let (literal, after) = quoted.split_at(end);
        out.push_str(literal);
        rest = after;
    }
    out.push_str(&rest.replace(call, by));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_replaced_and_strings_are_not() {
        let table = [
            ("all()", "has(ns)"),
            ("(all()) && a == 'all()'", "(has(ns)) && a == 'all()'"),
            (
                r#"(a == "'" && !all()) || b == 'all()"' || all()"#,
                r#"(a == "'" && !has(ns)) || b == 'all()"' || has(ns)"#,
            ),
            ("all( )", "all( )"),
            ("a == 'all() &&", "a == 'all() &&"),
            ("", ""),
            ("é == 'é' && all()", "é == 'é' && has(ns)"),
        ];
        for (text, expect) in table {
            assert_eq!(replace_all(text, "ns"), expect);
        }
        assert_eq!(replace_global("global() || x == \"global()\"", "ns"), "!has(ns) || x == \"global()\"");
    }
}
