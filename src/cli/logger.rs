//! Log lines, to standard error or to a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

use super::{Failure, failed};

struct Logger {
    file: Option<Mutex<File>>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // fuser says of its own what is nobody's fault: a mount that someone else has ended, a reply to a
        // request that nobody waits for any more.
        let is_ours = !metadata.target().starts_with("fuser");
        let most = if is_ours { log::max_level() } else { log::max_level().min(quiet()) };
        metadata.level() <= most
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line =
            format!("zarrfs: {}: {}\n", record.level().as_str().to_lowercase(), record.args());
        // A log that cannot be written is no reason to fail what it tells of.
        let _full = match &self.file {
            Some(file) => file.lock().write_all(line.as_bytes()),
            None => std::io::stderr().lock().write_all(line.as_bytes()),
        };
    }

    fn flush(&self) {}
}

/// The level up to which other crates are heard: all of it where everything is, else nothing.
fn quiet() -> LevelFilter {
    if log::max_level() >= LevelFilter::Debug { LevelFilter::Trace } else { LevelFilter::Off }
}

/// Sends log lines of `level` and above to `file`, or to standard error.
pub fn start(level: LevelFilter, file: Option<&Path>) -> Result<(), Failure> {
    let file = match file {
        Some(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            let opened = opened.map_err(|error| failed(format!("{}: {error}", path.display())))?;
            Some(Mutex::new(opened))
        }
        None => None,
    };
    log::set_boxed_logger(Box::new(Logger { file })).map_err(|error| failed(error.to_string()))?;
    log::set_max_level(level);
    Ok(())
}
