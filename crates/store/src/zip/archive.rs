//! The value that is an archive, and what an archive may have.

use std::time::Duration;

use crate::{ByteRange, Key, Store, Value};
use zarrfs_base::error::{Error, Kind, Result};

/// A part of the archive: its offset and length.
pub(super) type ArchiveSpan = (u64, u64);

/// The bounds of an archive.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveLimits {
    /// How long the archive is taken to be the same without a look at it.
    pub ttl: Duration,
    /// The longest compressed entry, in bytes.
    pub value: u64,
    /// The longest central directory, in bytes.
    pub directory: u64,
    /// The most entries.
    pub entries: usize,
}

impl ArchiveLimits {
    /// Those of a mount without options.
    pub const DEFAULT: Self = Self {
        ttl: Duration::from_secs(1),
        value: 1 << 30,
        directory: 256 << 20,
        entries: 5_000_000,
    };
}

/// The value that is an archive.
#[derive(Debug, Clone)]
pub(super) struct Archive {
    pub(super) below: Store,
    pub(super) key: Key,
}

impl Archive {
    pub(super) fn get(&self, range: ByteRange) -> Result<Value> {
        let values = self.below.read().get_partial_values(&[(self.key.clone(), range)])?;
        values.into_iter().next().flatten().ok_or_else(Self::gone)
    }

    pub(super) fn get_all(&self, spans: &[ArchiveSpan]) -> Result<Vec<Option<Value>>> {
        self.below.read().get_partial_values(&self.ranges(spans))
    }

    pub(super) fn ranges(&self, spans: &[ArchiveSpan]) -> Vec<(Key, ByteRange)> {
        let range = |(offset, len): &ArchiveSpan| ByteRange::Span { offset: *offset, len: *len };
        spans.iter().map(|span| (self.key.clone(), range(span))).collect()
    }

    /// Returns the error for an archive that is not there. It is never an absent value, which would
    /// read as the fill value.
    pub(super) fn gone() -> Error {
        Error::new(Kind::Stale, "the zip archive is gone")
    }

    pub(super) fn replaced() -> Error {
        Error::new(Kind::Stale, "other programs keep replacing the zip archive")
    }
}
