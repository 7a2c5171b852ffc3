//! `mount --access-log FILE`: a line of JSON for each read that reaches zarrfs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde_json::json;

use crate::cli::failure::{Failure, failed};
use crate::fuse::{Answered, AnsweredRead, ReadLog};
use crate::printable::escaped_json;
use crate::sys;
use crate::vfs::timestamp;

/// The open log of reads.
#[derive(Debug)]
pub struct AccessLog {
    file: Mutex<File>,
}

impl AccessLog {
    /// Opens the file, to append to it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file =
            sys::open_log(path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        Ok(Self { file: Mutex::new(file) })
    }
}

impl ReadLog for AccessLog {
    fn note(&self, read: &AnsweredRead) {
        let line = json!({
            "time": timestamp(SystemTime::now()),
            "path": read.path,
            "offset": read.offset,
            "length": read.len,
            "how": match read.answered {
                Answered::AtOnce => "hit",
                Answered::ByPool => "decode",
                Answered::Unknown => "unknown",
            },
            "microseconds": u64::try_from(read.took.as_micros()).unwrap_or(u64::MAX),
        });
        let line = format!("{}\n", escaped_json(&line.to_string()));
        // A failure to write the log must not fail the read.
        let _full = self.file.lock().write_all(line.as_bytes());
    }
}
