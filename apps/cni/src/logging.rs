//! Log lines: to standard error and, if the configuration names one, to a file that is begun anew when it is big.
//!
//! Standard output belongs to the result alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use tracing_subscriber::filter::LevelFilter;

use crate::config::LogConf;

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Starts logging for this process. A file that cannot be opened is reported on standard error and left out: a full
/// disk must not keep containers from starting.
pub fn start(conf: &LogConf) {
    let level = match conf.level.to_ascii_lowercase().as_str() {
        "debug" => LevelFilter::DEBUG,
        "error" => LevelFilter::ERROR,
        _ => LevelFilter::INFO,
    };
    let opened = if conf.path.is_empty() { None } else { Some(open(conf, SystemTime::now())) };
    let (file, failure) = match opened {
        Some(Ok(file)) => (Some(file), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let both = Mutex::new(Both { file });
    // Fails only if logging runs already.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        .with_writer(both)
        .try_init();
    if let Some(error) = failure {
        tracing::error!(path = conf.path, %error, "Log file could not be opened");
    }
}

/// Writes each line to standard error and to the file. Neither can fail the other.
struct Both {
    file: Option<File>,
}

impl Write for Both {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            let _ = file.write_all(line);
        }
        let _ = io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the log file for appending; renames it before if it is too big, and removes renamed ones that are too many or
/// too old.
fn open(conf: &LogConf, now: SystemTime) -> io::Result<File> {
    let path = Path::new(&conf.path);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    if fs::metadata(path).is_ok_and(|m| conf.max_size > 0 && m.len() >= conf.max_size * MEGABYTE) {
        let stamp = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        // Another process may have been faster; both go on with the new file.
        let _ = fs::rename(path, backup_path(path, stamp));
        for old in surplus(conf, backups(path), now) {
            let _ = fs::remove_file(old);
        }
    }
    OpenOptions::new().create(true).append(true).mode(0o644).open(path)
}

/// `<stem>-<milliseconds since 1970><extension>` beside the file.
fn backup_path(path: &Path, stamp: u128) -> PathBuf {
    let (stem, extension) = parts(path);
    path.with_file_name(format!("{stem}-{stamp}{extension}"))
}

fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    (text(path.file_stem()), extension)
}

/// Renamed files, newest first, with the time in their names.
fn backups(path: &Path) -> Vec<(u128, PathBuf)> {
    let (stem, extension) = parts(path);
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<(u128, PathBuf)> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let stamp = name.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(&extension)?;
            Some((stamp.parse().ok()?, path))
        })
        .collect();
    found.sort_by_key(|(stamp, _)| std::cmp::Reverse(*stamp));
    found
}

/// The renamed files that are to go.
fn surplus(conf: &LogConf, backups: Vec<(u128, PathBuf)>, now: SystemTime) -> Vec<PathBuf> {
    let keep = usize::try_from(conf.max_count).ok().filter(|n| *n > 0).unwrap_or(usize::MAX);
    let max_age = u32::try_from(conf.max_age).ok().filter(|days| *days > 0).map(|days| DAY * days);
    let age = |stamp: u128| {
        let then = Duration::from_millis(u64::try_from(stamp).unwrap_or(u64::MAX));
        now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(then)
    };
    backups
        .into_iter()
        .enumerate()
        .filter(|(i, (stamp, _))| *i >= keep || max_age.is_some_and(|max| age(*stamp) > max))
        .map(|(_, (_, path))| path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(path: &Path) -> LogConf {
        LogConf {
            level: String::new(),
            path: path.display().to_string(),
            max_size: 1,
            max_age: 2,
            max_count: 3,
        }
    }

    #[test]
    fn big_files_are_renamed_and_old_ones_removed() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("deep/cni.log");
        let now = SystemTime::UNIX_EPOCH + DAY * 100;
        let at = |days: u32| (DAY * days).as_millis();
        open(&conf(&path), now).expect("made with its directory").write_all(b"small").expect("write");
        open(&conf(&path), now).expect("append").write_all(b"er").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"smaller");
        for days in [90, 97, 99] {
            fs::write(backup_path(&path, at(days)), "old").expect("write");
        }
        fs::write(path.with_file_name("cni-other.log"), "not ours").expect("write");
        fs::write(&path, vec![b'x'; MEGABYTE as usize]).expect("write");
        open(&conf(&path), now).expect("rotate");
        assert_eq!(fs::metadata(&path).expect("new").len(), 0);
        let stamps: Vec<u128> = backups(&path).into_iter().map(|(stamp, _)| stamp).collect();
        assert_eq!(stamps, vec![at(100), at(99)], "97 and 90 are older than two days");
        assert!(path.with_file_name("cni-other.log").exists());
    }

    #[test]
    fn only_so_many_are_kept() {
        let conf = LogConf { max_age: 0, max_count: 2, ..LogConf::default() };
        let files: Vec<(u128, PathBuf)> =
            [9u128, 7, 5, 3].map(|n| (n, PathBuf::from(n.to_string()))).to_vec();
        let gone = surplus(&conf, files.clone(), SystemTime::now());
        assert_eq!(gone, vec![PathBuf::from("5"), PathBuf::from("3")]);
        let all = LogConf { max_age: 0, max_count: 0, ..LogConf::default() };
        assert!(surplus(&all, files, SystemTime::now()).is_empty());
    }
}
