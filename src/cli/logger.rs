//! Log lines, to standard error or to a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

use super::failure::{Failure, failed};
use crate::fuse;

struct Logger {
    file: Option<Mutex<File>>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The protocol library logs errors that do not matter here, such as a reply after the
        // kernel has ended the mount. Errors that matter are returned.
        let is_protocol = metadata.target().starts_with(fuse::LOG_TARGET);
        let level = if is_protocol { Level::Debug } else { metadata.level() };
        level <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line =
            format!("zarrfs: {}: {}\n", record.level().as_str().to_lowercase(), record.args());
        // A failure to write the log must not fail the operation.
        let _full = match &self.file {
            Some(file) => file.lock().write_all(line.as_bytes()),
            None => std::io::stderr().lock().write_all(line.as_bytes()),
        };
    }

    fn flush(&self) {}
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
