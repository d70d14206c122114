//! Looks at the tree itself: sizes of files and leftovers.

use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, bail};

/// Most lines of a source file that is not generated.
const MAX_LINES: usize = 800;

/// Checks every tracked source file; the error lists what is too long or unfinished.
pub(crate) fn check() -> anyhow::Result<()> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git ls-files")?;
    let mut faults = Vec::new();
    let mut count = 0;
    for path in String::from_utf8_lossy(&out.stdout).lines() {
        let generated = path.split('/').any(|part| part == "generated");
        if !path.ends_with(".rs") || generated {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        count += 1;
        let lines = text.lines().count();
        if lines > MAX_LINES && !text.contains("@table") {
            faults.push(format!("{path}: {lines} lines (at most {MAX_LINES})"));
        }
        // Spelt apart so that this file does not find itself.
        for word in
            [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("unimpl", "emented!"), concat!("to", "do!(")]
        {
            if let Some(n) = text.lines().position(|l| l.contains(word)) {
                faults.push(format!("{path}:{}: {word}", n + 1));
            }
        }
    }
    if faults.is_empty() {
        writeln!(
            std::io::stdout(),
            "tree: {count} source files, none above {MAX_LINES} lines, nothing left over"
        )?;
        Ok(())
    } else {
        bail!("tree:\n  {}", faults.join("\n  "))
    }
}
