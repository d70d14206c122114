//! Tables: plain columns for objects, boxes for address management.

/// How cells stand in their column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// At the left.
    Left,
    /// At the right; the heading stays at the left.
    Right,
}

/// Least width of a column, blanks included.
const LEAST: usize = 5;

/// Blanks behind the widest cell of a column.
const GAP: usize = 3;

/// Rows in columns, each line ended, with an empty line behind.
pub(crate) fn columns(headings: &[&str], rows: &[Vec<String>]) -> String {
    let lines = || {
        std::iter::once(headings.to_vec()).chain(rows.iter().map(|r| r.iter().map(String::as_str).collect()))
    };
    let mut widths = vec![LEAST; headings.len()];
    for line in lines() {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count() + GAP);
        }
    }
    let mut out = String::new();
    for line in lines() {
        for (width, cell) in widths.iter().zip(line) {
            pad(&mut out, cell, *width, Align::Left);
        }
        out.push('\n');
    }
    out.push('\n');
    out
}

/// Rows in a box drawn with `+`, `-` and `|`.
pub(crate) fn boxed(headings: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|(heading, _)| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let rule: String =
        widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).chain(["+\n".to_owned()]).collect();
    let mut out = rule.clone();
    for ((heading, _), width) in headings.iter().zip(&widths) {
        out.push_str("| ");
        pad(&mut out, heading, width + 1, Align::Left);
    }
    out.push_str("|\n");
    out.push_str(&rule);
    for row in rows {
        for ((cell, (_, align)), width) in row.iter().zip(headings).zip(&widths) {
            out.push_str("| ");
            pad(&mut out, cell, *width, *align);
            out.push(' ');
        }
        out.push_str("|\n");
    }
    out.push_str(&rule);
    out
}

fn pad(out: &mut String, cell: &str, width: usize, align: Align) {
    let blanks = width.saturating_sub(cell.chars().count());
    let blanks = std::iter::repeat_n(' ', blanks);
    match align {
        Align::Left => {
            out.push_str(cell);
            out.extend(blanks);
        }
        Align::Right => {
            out.extend(blanks);
            out.push_str(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&c| c.to_owned()).collect()
    }

    #[test]
    fn columns_are_padded_and_end_with_an_empty_line() {
        let rows = [row(&["a", "10.0.0.0/8"]), row(&["größe", ""])];
        assert_eq!(
            columns(&["N", "CIDR"], &rows),
            "N       CIDR         \na       10.0.0.0/8   \ngröße                \n\n"
        );
        assert_eq!(columns(&["N"], &[]), "N    \n\n");
    }

    #[test]
    fn boxes_hold_both_alignments() {
        let headings = [("GROUP", Align::Left), ("FREE", Align::Right)];
        assert_eq!(
            boxed(&headings, &[row(&["a", "1 (100%)"])]),
            "+-------+----------+\n| GROUP | FREE     |\n+-------+----------+\n| a     | 1 (100%) |\n\
             +-------+----------+\n"
        );
        assert_eq!(boxed(&headings[..1], &[]), "+-------+\n| GROUP |\n+-------+\n+-------+\n");
    }
}
