//! The time that decoding one chunk may take.
//!
//! A chunk of a few bytes may decode to a gigabyte, through many slow codecs. A program that reads
//! it cannot be interrupted meanwhile, nor killed: it waits for an answer of the file system.

use std::time::{Duration, Instant};

use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::limits;

/// The time since decoding began.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts to measure.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Fails if decoding takes too long.
    pub fn check(self) -> Result<()> {
        if self.0.elapsed() <= Duration::from_millis(limits::DECODE_TIME.get()) {
            return Ok(());
        }
        let detail = format!("decoding the chunk takes too long, {}", limits::DECODE_TIME);
        Err(Error::limit(Kind::Os(libc::ETIMEDOUT), detail))
    }
}
