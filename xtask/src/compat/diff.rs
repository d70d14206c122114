//! Two texts side by side.

use std::io::Write;

/// Characters per column.
const WIDTH: usize = 84;

/// Most lines of a text that are aligned; longer ones are paired in order.
const MAX_ALIGNED: usize = 4000;

/// Prints both texts next to each other: `|` between lines that differ, `<` and `>` where one side has none.
pub(crate) fn side_by_side(out: &mut impl Write, expected: &str, ours: &str) -> std::io::Result<()> {
    writeln!(out, "{:WIDTH$}   OURS", "EXPECTED")?;
    let (left, right) = (wrap(expected), wrap(ours));
    for (l, r) in align(&left, &right) {
        let mark = match (l, r) {
            (Some(l), Some(r)) if l == r => ' ',
            (Some(_), Some(_)) => '|',
            (Some(_), None) => '<',
            (None, _) => '>',
        };
        let (l, r) = (l.map_or("", String::as_str), r.map_or("", String::as_str));
        writeln!(out, "{}", format!("{l:WIDTH$} {mark} {r}").trim_end())?;
    }
    Ok(())
}

/// Lines of at most one column.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        if chars.is_empty() {
            lines.push(String::new());
        }
        lines.extend(chars.chunks(WIDTH).map(|chunk| chunk.iter().collect::<String>()));
    }
    lines
}

type Row<'a> = (Option<&'a String>, Option<&'a String>);

/// Pairs the lines of a longest common subsequence; what lies between is paired in order.
fn align<'a>(left: &'a [String], right: &'a [String]) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let (mut l, mut r) = (0, 0);
    if left.len().max(right.len()) <= MAX_ALIGNED {
        for (i, j) in common(left, right) {
            between(&mut rows, &left[l..i], &right[r..j]);
            rows.push((Some(&left[i]), Some(&right[j])));
            (l, r) = (i + 1, j + 1);
        }
    }
    between(&mut rows, &left[l..], &right[r..]);
    rows
}

fn between<'a>(rows: &mut Vec<Row<'a>>, left: &'a [String], right: &'a [String]) {
    rows.extend((0..left.len().max(right.len())).map(|i| (left.get(i), right.get(i))));
}

fn common(left: &[String], right: &[String]) -> Vec<(usize, usize)> {
    let width = right.len() + 1;
    let mut longest = vec![0u16; (left.len() + 1) * width];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            longest[i * width + j] = if left[i] == right[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut pairs, mut i, mut j) = (Vec::new(), 0, 0);
    while i < left.len() && j < right.len() {
        if left[i] == right[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_carry_their_marks() {
        let mut out = Vec::new();
        side_by_side(&mut out, "a\nb\nc\nd", "a\nx\nc\ny\nz").unwrap();
        let text = String::from_utf8(out).unwrap();
        let marks: Vec<String> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(marks, ["a a", "b | x", "c c", "d | y", "> z"]);
    }
}
