//! The command line: a tree of commands, and options by the rules of Go's pflag, which upstream's users know.
//!
//! `--flag=v`, `--flag v`, `-fv`, `-f v`, `-f=v`, clusters of one-letter switches, options behind positional
//! arguments, `--` as the end of options. In: arguments. Out: a [`Call`]: which command with which options, or the
//! help text to print. Errors have the texts that pflag and cobra print.
//!
//! A parser of our own because the texts are part of the interface, and because nothing may be built before a
//! command is known.

use std::collections::BTreeMap;
use std::ffi::OsString;

mod help;
pub(crate) mod tree;

#[cfg(test)]
mod tests;

/// An option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    /// Name without the dashes.
    pub(crate) long: &'static str,
    /// One-letter form.
    pub(crate) short: Option<char>,
    /// What the option takes.
    pub(crate) takes: Takes,
    /// One line for the help text; empty hides the option.
    pub(crate) help: &'static str,
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing, or `=true` and `=false`.
    Switch,
    /// A text; the word stands for it in the help.
    Text(&'static str),
    /// A whole number; the word stands for it in the help.
    Number(&'static str),
}

/// How many positional arguments a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arity {
    /// Any number.
    Any,
    /// Exactly so many.
    Exactly(usize),
    /// At least so many.
    AtLeast(usize),
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the commands")]
pub(crate) enum Verb {
    Create,
    Replace,
    Apply,
    Patch,
    Delete,
    Get,
    Label,
    Validate,
    Version,
    IpamShow,
    IpamRelease,
    IpamConfigure,
    DatastoreInit,
}

/// A command, or a group of commands.
#[derive(Debug)]
pub(crate) struct Command {
    /// Name.
    pub(crate) name: &'static str,
    /// What comes behind the name in the usage line.
    pub(crate) usage: &'static str,
    /// One line for the list of commands.
    pub(crate) about: &'static str,
    /// Further lines of the help text.
    pub(crate) details: &'static str,
    /// Options, without those that every command has.
    pub(crate) flags: &'static [Flag],
    /// Positional arguments.
    pub(crate) arity: Arity,
    /// What it does; `None` for a group.
    pub(crate) verb: Option<Verb>,
    /// Commands of the group.
    pub(crate) commands: &'static [Command],
}

/// What a command line means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Print this and be done.
    Help(String),
    /// Run a command.
    Run(Verb, Args),
}

/// Options and positional arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Args {
    flags: BTreeMap<&'static str, Vec<String>>,
    /// Positional arguments.
    pub(crate) words: Vec<String>,
}

/// A command line that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    /// No such command.
    #[error("unknown command \"{word}\" for \"{program}\"{}", did_you_mean(.near))]
    UnknownCommand {
        /// Word found.
        word: String,
        /// Program or group.
        program: String,
        /// Commands with similar names.
        near: Vec<&'static str>,
    },
    /// No such option.
    #[error("unknown flag: --{0}")]
    UnknownFlag(String),
    /// No such one-letter option.
    #[error("unknown shorthand flag: '{letter}' in -{cluster}")]
    UnknownShorthand {
        /// Letter.
        letter: char,
        /// The letters from there on.
        cluster: String,
    },
    /// An option without its value.
    #[error("flag needs an argument: --{0}")]
    NoValue(String),
    /// A one-letter option without its value.
    #[error("flag needs an argument: '{letter}' in -{letter}")]
    NoShorthandValue {
        /// Letter.
        letter: char,
    },
    /// A value that the option does not take.
    #[error(
        "invalid argument \"{value}\" for \"{flag}\" flag: strconv.{parser}: parsing \"{value}\": invalid syntax"
    )]
    BadValue {
        /// Value.
        value: String,
        /// Option in all its forms.
        flag: String,
        /// What read it.
        parser: &'static str,
    },
    /// Something that is no option looks like one.
    #[error("bad flag syntax: {0}")]
    BadSyntax(String),
    /// Wrong number of positional arguments.
    #[error("accepts {wanted} arg(s), received {got}")]
    NotExactly {
        /// Wanted.
        wanted: usize,
        /// Given.
        got: usize,
    },
    /// Too few positional arguments.
    #[error("requires at least {wanted} arg(s), only received {got}")]
    TooFew {
        /// Wanted.
        wanted: usize,
        /// Given.
        got: usize,
    },
    /// An argument is no text.
    #[error("argument {0:?} is not valid UTF-8")]
    NotText(OsString),
    /// A value outside of what the option knows.
    #[error("{0}")]
    Refused(String),
}

fn did_you_mean(near: &[&str]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let lines: String = near.iter().map(|name| format!("\t{name}\n")).collect();
    format!("\n\nDid you mean this?\n{lines}")
}

// === impl Flag ===

impl Flag {
    /// Both forms, as messages name them.
    fn forms(&self) -> String {
        match self.short {
            Some(letter) => format!("-{letter}, --{}", self.long),
            None => format!("--{}", self.long),
        }
    }

    fn check(&self, value: &str) -> Result<(), UsageError> {
        let (parser, fits) = match self.takes {
            Takes::Switch => ("ParseBool", go_bool(value).is_some()),
            Takes::Number(_) => ("ParseInt", value.parse::<i64>().is_ok()),
            Takes::Text(_) => return Ok(()),
        };
        if fits {
            return Ok(());
        }
        Err(UsageError::BadValue { value: value.to_owned(), flag: self.forms(), parser })
    }
}

// === impl Args ===

impl Args {
    /// The last value given for an option.
    pub(crate) fn text(&self, flag: &str) -> Option<&str> {
        self.flags.get(flag).and_then(|values| values.last()).map(String::as_str)
    }

    /// All values given for an option.
    pub(crate) fn texts(&self, flag: &str) -> &[String] {
        self.flags.get(flag).map(Vec::as_slice).unwrap_or_default()
    }

    /// The value of a numeric option.
    pub(crate) fn number(&self, flag: &str) -> Option<i64> {
        self.text(flag).and_then(|value| value.parse().ok())
    }

    /// Whether a switch is on.
    pub(crate) fn is_set(&self, flag: &str) -> bool {
        self.text(flag).and_then(go_bool).unwrap_or(false)
    }
}

/// Reads a command line; `program` is how the tool was called.
pub(crate) fn parse(root: &'static Command, program: &str, args: &[OsString]) -> Result<Call, UsageError> {
    let text = |arg: &OsString| arg.clone().into_string().map_err(UsageError::NotText);
    let args = args.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    if let Some(("help", topic)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        let words: Vec<&str> = topic.iter().map(String::as_str).filter(|w| !w.starts_with('-')).collect();
        let (command, path) = descend(root, program, &words)?;
        return Ok(Call::Help(help::text(command, program, &path)));
    }
    let words = command_words(root, program, &args)?;
    let mut path = program.to_owned();
    let mut command = root;
    let mut skip = Vec::new();
    for at in words {
        let Some(next) = command.commands.iter().find(|c| c.name == args[at]) else { break };
        command = next;
        path = format!("{path} {}", next.name);
        skip.push(at);
    }
    let rest: Vec<String> =
        args.into_iter().enumerate().filter(|(at, _)| !skip.contains(at)).map(|(_, arg)| arg).collect();
    let Some(parsed) = read_flags(command, rest)? else {
        return Ok(Call::Help(help::text(command, program, &path)));
    };
    let Some(verb) = command.verb else { return Ok(Call::Help(help::text(command, program, &path))) };
    let got = parsed.words.len();
    match command.arity {
        Arity::Exactly(wanted) if wanted != got => Err(UsageError::NotExactly { wanted, got }),
        Arity::AtLeast(wanted) if got < wanted => Err(UsageError::TooFew { wanted, got }),
        _ => Ok(Call::Run(verb, parsed)),
    }
}

/// The command that `words` name, all of which must be commands.
fn descend(
    root: &'static Command,
    program: &str,
    words: &[&str],
) -> Result<(&'static Command, String), UsageError> {
    let mut path = program.to_owned();
    let mut command = root;
    for word in words {
        command = sub_command(command, &path, word)?;
        path = format!("{path} {word}");
    }
    Ok((command, path))
}

fn sub_command(command: &'static Command, path: &str, word: &str) -> Result<&'static Command, UsageError> {
    command.commands.iter().find(|c| c.name == word).ok_or_else(|| UsageError::UnknownCommand {
        word: word.to_owned(),
        program: path.to_owned(),
        near: command
            .commands
            .iter()
            .map(|c| c.name)
            .filter(|name| distance(word, name) <= 2 || name.starts_with(word))
            .collect(),
    })
}

/// Positions of the words that name the command: options may stand between and before them.
fn command_words(root: &'static Command, program: &str, args: &[String]) -> Result<Vec<usize>, UsageError> {
    let mut found = Vec::new();
    let mut command = root;
    let mut path = program.to_owned();
    let mut at = 0;
    while at < args.len() && !command.commands.is_empty() {
        let arg = &args[at];
        if arg == "--" {
            break;
        }
        if let Some(flag) = arg.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            if takes_next(root, flag) {
                at += 1;
            }
        } else {
            command = sub_command(command, &path, arg)?;
            path = format!("{path} {}", command.name);
            found.push(at);
        }
        at += 1;
    }
    Ok(found)
}

/// Whether an option (without its first dash) that stands before its command takes the next argument. The
/// command is not known yet, so any command's option of that name counts.
fn takes_next(root: &'static Command, flag: &str) -> bool {
    fn any(command: &Command, test: &dyn Fn(&Flag) -> bool) -> bool {
        command.flags.iter().any(test) || command.commands.iter().any(|c| any(c, test))
    }
    if flag.contains('=') {
        return false;
    }
    let with_value = |flag: &Flag| flag.takes != Takes::Switch;
    match flag.strip_prefix('-') {
        Some(long) => any(root, &|f| f.long == long && with_value(f)),
        None => {
            let letter = flag.chars().last();
            any(root, &|f| f.short == letter && with_value(f))
        }
    }
}

/// Reads options and positional arguments; `None` if help is asked for.
fn read_flags(command: &'static Command, args: Vec<String>) -> Result<Option<Args>, UsageError> {
    let known = || tree::ROOT.flags.iter().chain(command.flags);
    let mut parsed = Args::default();
    let mut wants_help = false;
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            parsed.words.extend(args.by_ref());
        } else if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            if name.is_empty() || name.starts_with('-') {
                return Err(UsageError::BadSyntax(arg.clone()));
            }
            let Some(flag) = known().find(|f| f.long == name) else {
                if name == "help" {
                    wants_help = true;
                    continue;
                }
                return Err(UsageError::UnknownFlag(name.to_owned()));
            };
            let value = match (value, flag.takes) {
                (Some(value), _) => value,
                (None, Takes::Switch) => "true".to_owned(),
                (None, _) => args.next().ok_or_else(|| UsageError::NoValue(name.to_owned()))?,
            };
            flag.check(&value)?;
            parsed.flags.entry(flag.long).or_default().push(value);
        } else if arg.len() > 1 && arg.starts_with('-') {
            let mut cluster = &arg[1..];
            while let Some(letter) = cluster.chars().next() {
                let rest = &cluster[letter.len_utf8()..];
                let Some(flag) = known().find(|f| f.short == Some(letter)) else {
                    if letter == 'h' {
                        wants_help = true;
                        cluster = rest;
                        continue;
                    }
                    return Err(UsageError::UnknownShorthand { letter, cluster: cluster.to_owned() });
                };
                let value = match (rest.strip_prefix('='), flag.takes) {
                    (Some(value), _) => {
                        cluster = "";
                        value.to_owned()
                    }
                    (None, Takes::Switch) => {
                        cluster = rest;
                        "true".to_owned()
                    }
                    (None, _) if !rest.is_empty() => {
                        cluster = "";
                        rest.to_owned()
                    }
                    (None, _) => {
                        cluster = "";
                        args.next().ok_or(UsageError::NoShorthandValue { letter })?
                    }
                };
                flag.check(&value)?;
                parsed.flags.entry(flag.long).or_default().push(value);
            }
        } else {
            parsed.words.push(arg);
        }
    }
    Ok((!wants_help).then_some(parsed))
}

/// The words that Go takes for true and false.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Edits between two words.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != *y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
