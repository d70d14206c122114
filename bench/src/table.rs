//! Lines of results, printed as they come.

use std::fmt::{Display, Write as _};
use std::io::Write as _;

/// Prints a line to stdout. A closed pipe ends the output, not the measurement.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Begins a table.
pub fn head(title: &str) {
    line(&format!("\n{title}"));
    row("shape", "ours", "compared with", "better by");
}

/// One result; `better` is how many times better than the other figure, or empty.
pub fn row(shape: &str, ours: &str, other: &str, better: &str) {
    line(format!("  {shape:<58} {ours:<34} {other:<44} {better}").trim_end());
}

/// A time beside another: how many times shorter it is.
pub fn faster(ours: f64, other: f64) -> String {
    times(other / ours)
}

/// A rate or size beside another: how many times larger it is.
pub fn larger(ours: f64, other: f64) -> String {
    times(ours / other)
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.1} x") } else { String::new() }
}

/// Values around `/`, such as `min/median/max`, with `digits` after the point.
pub fn slashed<T: Display>(values: impl IntoIterator<Item = T>, digits: usize) -> String {
    let mut out = String::new();
    for (n, value) in values.into_iter().enumerate() {
        if n > 0 {
            out.push('/');
        }
        // Writing to a string does not fail.
        let _ = write!(out, "{value:.digits$}");
    }
    out
}
