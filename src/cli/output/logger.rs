//! Log lines: to standard error, to a file, or to the system log.
//!
//! A message that repeats is logged once a minute, with the number of times. A line in a file or on
//! standard error is `2026-11-24T23:59:59Z zarrfs: warn: MESSAGE`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

use crate::cli::failure::{Failure, failed};
use crate::cli::mount::outputs;
use crate::printable::escaped;
use crate::store::OMISSIONS_TARGET;
use crate::sys::{self, AppendedFile};
use crate::vfs::timestamp;

/// The shortest time between equal messages.
const INTERVAL: Duration = Duration::from_secs(60);

/// How often to look for messages that were repeated.
const TICK: Duration = Duration::from_secs(5);

/// The most messages whose repetitions are counted. Others are logged each time.
const CAPACITY: usize = 256;

/// The socket of the system log.
const SYSLOG: &str = "/dev/log";

/// The facility of a daemon in the system log.
const FACILITY: u8 = 3;

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// The destination of log lines.
#[derive(Debug)]
pub enum Sink {
    /// Standard error of a command that ends soon: every line, without a time.
    Command,
    /// Like `Command`, for a command that prints itself what was not seen.
    Check,
    /// Standard error of a mount.
    Stderr,
    /// The file with this path.
    File(PathBuf),
    /// The system log.
    System,
}

#[derive(Debug)]
struct Logger {
    sink: Sink,
    file: Mutex<Option<File>>,
    place: Option<AppendedFile>,
    repeats: Mutex<Repeats>,
    /// The omissions that a command has printed: it may list a store several times. A leaf lock.
    not_seen: Mutex<HashSet<String>>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log errors that do not matter here, such as a reply after the kernel has ended
        // the mount, or a certificate that an error names, too. Errors that matter are returned.
        let is_of_library = !metadata.target().starts_with(env!("CARGO_PKG_NAME"));
        let level = if is_of_library { Level::Debug } else { metadata.level() };
        let is_printed = matches!(self.sink, Sink::Check) && metadata.target() == OMISSIONS_TARGET;
        level <= log::max_level() && !is_printed
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let message = escaped(&record.args().to_string()).into_owned();
        if matches!(self.sink, Sink::Command | Sink::Check) {
            let is_new = record.metadata().target() != OMISSIONS_TARGET
                || self.not_seen.lock().insert(message.clone());
            if !is_new {
                return;
            }
            return self.write(record.level(), &message);
        }
        let due = self.repeats.lock().note(record.level(), message, Instant::now());
        if let Some(line) = due {
            self.write(record.level(), &line);
        }
    }

    fn flush(&self) {
        let due = self.repeats.lock().take(Instant::now(), Duration::ZERO);
        self.write_all(due);
    }
}

impl Logger {
    fn write_all(&self, lines: Vec<Line>) {
        for Line { level, text } in lines {
            self.write(level, &text);
        }
    }

    fn write(&self, level: Level, message: &str) {
        let name = level.as_str().to_lowercase();
        let line = || format!("{} zarrfs: {name}: {message}\n", timestamp(SystemTime::now()));
        // A failure to write the log must not fail the operation.
        let _full = match (&self.sink, &mut *self.file.lock()) {
            (Sink::System, _) => send(level, &name, message),
            (Sink::Command | Sink::Check, _) => {
                let line = format!("zarrfs: {name}: {message}\n");
                io::stderr().lock().write_all(line.as_bytes())
            }
            (Sink::File(_), Some(file)) => file.write_all(line().as_bytes()),
            (Sink::File(_) | Sink::Stderr, _) => io::stderr().lock().write_all(line().as_bytes()),
        };
    }
}

/// Sends a line to the system log.
fn send(level: Level, name: &str, message: &str) -> io::Result<()> {
    let severity = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    let priority = FACILITY * 8 + severity;
    let line = format!("<{priority}>zarrfs[{}]: {name}: {message}", std::process::id());
    let socket = UnixDatagram::unbound()?;
    // A system log that does not read its socket must not stop the mount.
    socket.set_nonblocking(true)?;
    socket.send_to(line.as_bytes(), SYSLOG).map(drop)
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    level: Level,
    text: String,
}

/// The latest messages, with the number of times that each was not logged.
#[derive(Debug, Default)]
struct Repeats {
    messages: HashMap<String, Repeat>,
}

#[derive(Debug)]
struct Repeat {
    level: Level,
    logged: Instant,
    count: u64,
}

impl Repeats {
    /// Returns the line to log now, `None` if the message is only counted.
    fn note(&mut self, level: Level, message: String, now: Instant) -> Option<String> {
        if let Some(repeat) = self.messages.get_mut(&message) {
            repeat.count += 1;
            if now.duration_since(repeat.logged) < INTERVAL {
                return None;
            }
            repeat.logged = now;
            let count = std::mem::take(&mut repeat.count);
            return Some(repeated(&message, count));
        }
        if self.messages.len() >= CAPACITY {
            // Messages that were not repeated need no line.
            self.messages.retain(|_, repeat| repeat.count > 0);
        }
        if self.messages.len() < CAPACITY {
            self.messages.insert(message.clone(), Repeat { level, logged: now, count: 0 });
        }
        Some(message)
    }

    /// Takes the lines for messages that were last logged at least `age` ago.
    fn take(&mut self, now: Instant, age: Duration) -> Vec<Line> {
        let is_due = |repeat: &Repeat| now.duration_since(repeat.logged) >= age;
        let mut due = Vec::new();
        self.messages.retain(|message, repeat| {
            if !is_due(repeat) {
                return true;
            }
            if repeat.count == 0 {
                return false;
            }
            due.push(Line { level: repeat.level, text: repeated(message, repeat.count) });
            repeat.count = 0;
            repeat.logged = now;
            true
        });
        due
    }
}

fn repeated(message: &str, count: u64) -> String {
    if count == 1 { message.to_owned() } else { format!("{message} (repeated {count} times)") }
}

/// Opens a log file, and its directory. There it is opened again: its path may lead into the mount
/// by then, and the daemon would wait for itself. Fails if the path is a link of another user.
fn open(path: &Path) -> io::Result<(File, AppendedFile)> {
    drop(sys::open_log(path)?);
    let place = AppendedFile::at(&outputs::real(path)?)?;
    Ok((place.open()?, place))
}

/// Sends log lines of `level` and above to `sink`.
pub fn start(level: LevelFilter, sink: Sink) -> Result<(), Failure> {
    let opened = match &sink {
        Sink::File(path) => {
            let opened = open(path);
            Some(opened.map_err(|error| failed(format!("{}: {error}", path.display())))?)
        }
        Sink::Command | Sink::Check | Sink::Stderr | Sink::System => None,
    };
    let counts = !matches!(sink, Sink::Command | Sink::Check);
    let (file, place) = opened.unzip();
    let (repeats, not_seen) = (Mutex::default(), Mutex::default());
    let logger = Logger { sink, file: Mutex::new(file), place, repeats, not_seen };
    let logger = LOGGER.get_or_init(|| logger);
    log::set_logger(logger).map_err(|error| failed(error.to_string()))?;
    log::set_max_level(level);
    if !counts {
        return Ok(());
    }
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        loop {
            thread::sleep(TICK);
            let due = logger.repeats.lock().take(Instant::now(), INTERVAL);
            logger.write_all(due);
        }
    })?;
    Ok(())
}

/// Reopens the log file by its name in its directory, so that it can be rotated.
pub fn reopen() {
    let Some(logger) = LOGGER.get() else { return };
    let (Sink::File(path), Some(place)) = (&logger.sink, &logger.place) else { return };
    match place.open() {
        Ok(file) => *logger.file.lock() = Some(file),
        Err(error) => {
            log::error!("{}: {error}; the old log file stays in use", path.display());
        }
    }
}

/// Logs a line at any level, and even if it repeats.
pub fn report(line: &str) {
    if let Some(logger) = LOGGER.get() {
        logger.write(Level::Info, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_are_logged_once_a_minute_with_their_number() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let mut lines = Vec::new();
        for n in 0..100_000_u64 {
            let now = start + Duration::from_millis(n * 2);
            lines.extend(repeats.note(Level::Warn, "read: EIO".to_owned(), now));
        }
        let last = repeats.take(start + Duration::from_secs(200), Duration::ZERO);
        lines.extend(last.into_iter().map(|line| line.text));
        let counts = ["", " (repeated 30000 times)", " (repeated 30000 times)"];
        let wanted: Vec<_> = counts.iter().map(|count| format!("read: EIO{count}")).collect();
        assert_eq!(lines.get(..3), Some(wanted.as_slice()));
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(repeats.take(start + Duration::from_secs(500), INTERVAL), []);
    }

    #[test]
    fn different_messages_are_all_logged() {
        let mut repeats = Repeats::default();
        let now = Instant::now();
        for n in 0..1_000 {
            assert!(repeats.note(Level::Warn, format!("file {n}"), now).is_some());
        }
        assert!(repeats.messages.len() <= CAPACITY);
    }
}
