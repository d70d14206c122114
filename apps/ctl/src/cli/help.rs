//! Help texts, made from the tree of commands.

use std::fmt::Write as _;

use super::{Command, Flag, Takes, tree};

/// The help text of a command; `path` is how it is called, beginning with the program.
pub(super) fn text(command: &Command, program: &str, path: &str) -> String {
    let mut out = format!("{}\n", command.about);
    if !command.details.is_empty() {
        let _ = write!(out, "\n{}\n", command.details.trim_end());
    }
    let usage = if command.verb.is_some() { command.usage } else { "COMMAND" };
    let _ = write!(out, "\nUsage:\n  {path} {usage}\n");
    if !command.commands.is_empty() {
        out.push_str("\nCommands:\n");
        let width = command.commands.iter().map(|c| c.name.len()).max().unwrap_or_default();
        for sub in command.commands {
            let _ = writeln!(out, "  {:width$}  {}", sub.name, sub.about);
        }
        let group = path.strip_prefix(program).unwrap_or_default();
        let _ = write!(out, "\n\"{program} help{group} COMMAND\" tells more about a command.\n");
    }
    let is_root = std::ptr::eq(command, &tree::ROOT);
    if !command.flags.is_empty() && !is_root {
        out.push_str("\nOptions:\n");
        flags(&mut out, command.flags);
    }
    out.push_str("\nOptions of every command:\n");
    flags(&mut out, tree::ROOT.flags);
    out
}

fn flags(out: &mut String, flags: &[Flag]) {
    let form = |flag: &Flag| {
        let short = flag.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        match flag.takes {
            Takes::Switch => format!("{short}--{}", flag.long),
            Takes::Text(word) | Takes::Number(word) => format!("{short}--{} {word}", flag.long),
        }
    };
    let shown: Vec<(String, &str)> =
        flags.iter().filter(|flag| !flag.help.is_empty()).map(|flag| (form(flag), flag.help)).collect();
    let width = shown.iter().map(|(form, _)| form.len()).max().unwrap_or_default();
    for (form, help) in shown {
        let _ = writeln!(out, "  {form:width$}  {help}");
    }
}
