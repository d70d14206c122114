//! JSON for people.

/// Compact JSON with line breaks and an indentation of two, without a break at the end; what Go's encoder makes.
pub(crate) fn indented(compact: &str) -> String {
    let mut out = String::with_capacity(compact.len() * 2);
    let mut depth = 0;
    let mut in_text = false;
    let mut letters = compact.chars().peekable();
    while let Some(letter) = letters.next() {
        if in_text {
            out.push(letter);
            match letter {
                '\\' => out.extend(letters.next()),
                '"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match letter {
            '{' | '[' => {
                out.push(letter);
                let end = if letter == '{' { '}' } else { ']' };
                if letters.peek() == Some(&end) {
                    out.extend(letters.next());
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            other => {
                in_text = other == '"';
                out.push(other);
            }
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn layout() {
        for (compact, want) in [
            ("{}", "{}"),
            ("[]", "[]"),
            (
                r#"{"a":1,"b":[{"c":"x,y:{}\"]"}],"d":{},"e":[]}"#,
                "{\n  \"a\": 1,\n  \"b\": [\n    {\n      \"c\": \"x,y:{}\\\"]\"\n    }\n  ],\n  \"d\": {},\n  \"e\": []\n}",
            ),
        ] {
            assert_eq!(indented(compact), want);
        }
    }
}
