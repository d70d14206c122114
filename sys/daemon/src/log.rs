//! Log output: to standard error or a file, one line per event.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log file cannot be opened.
    #[error("log file {path}: {source}")]
    Open {
        /// File.
        path: String,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// Something in this process writes logs already.
    #[error("logging was started twice")]
    Twice,
}

/// Reads a level by upstream's names, in any case; `None` for words that are no level.
///
/// `panic` and `fatal` show nothing below errors; `none` and the empty text show nothing at all.
pub fn level(word: &str) -> Option<LevelFilter> {
    Some(match word.to_ascii_lowercase().as_str() {
        "" | "none" => LevelFilter::OFF,
        "panic" | "fatal" | "error" => LevelFilter::ERROR,
        "warn" | "warning" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return None,
    })
}

/// Sends the process's events of `level` and above to standard error.
pub fn to_stderr(level: LevelFilter) -> Result<(), LogError> {
    start(level, io::stderr)
}

/// Sends the process's events of `level` and above to the end of a file, which is made if it is not there.
pub fn to_file(level: LevelFilter, path: &Path) -> Result<(), LogError> {
    let fail = |source| LogError::Open { path: path.display().to_string(), source };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(fail)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(fail)?;
    start(level, Mutex::new(file))
}

fn start<W>(level: LevelFilter, writer: W) -> Result<(), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(true)
        .with_writer(writer)
        .try_init()
        .map_err(|_| LogError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_upstreams_names() {
        for (word, want) in [
            ("Info", Some(LevelFilter::INFO)),
            ("WARNING", Some(LevelFilter::WARN)),
            ("fatal", Some(LevelFilter::ERROR)),
            ("none", Some(LevelFilter::OFF)),
            ("loud", None),
        ] {
            assert_eq!(level(word), want, "{word}");
        }
    }
}
