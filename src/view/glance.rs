//! How much of the values is read to describe a file, and not to make it.
//!
//! The length of a text file, and whether a format can hold a node, may depend on every value.
//! A description of a node names such a file without its length, if that would take long.

use std::cell::Cell;

use crate::error::{Error, Kind, Result};
use crate::width::ToU64;

/// The most decoded bytes of chunks that are read to describe one file.
const MOST: u64 = 4 << 20;

/// What a chunk counts at least, and one that is not stored.
const LEAST: u64 = 1 << 10;
const NOT_STORED: u64 = 64 << 10;

/// The bytes of chunks that the description of one file may still read.
#[derive(Debug)]
pub struct Glance(Cell<Option<u64>>);

impl Default for Glance {
    fn default() -> Self {
        Self(Cell::new(Some(MOST)))
    }
}

impl Glance {
    /// Counts a chunk of `len` decoded bytes; `None` if it is not stored. Fails with
    /// [`Kind::Busy`] if the description takes more than it may.
    pub fn count(&self, len: Option<usize>) -> Result<()> {
        let len = len.map_or(NOT_STORED, |len| len.to_u64().max(LEAST));
        self.0.set(self.0.get().and_then(|left| left.checked_sub(len)));
        if self.is_over() {
            let detail = "a description does not read more of the values";
            return Err(Error::new(Kind::Busy, detail));
        }
        Ok(())
    }

    /// Whether the description would have taken more, so that nothing else is known of the file.
    pub fn is_over(&self) -> bool {
        self.0.get().is_none()
    }
}
