//! The bytes of a file that are not stored yet.
//!
//! They belong to the file, not to a handle: every opener sees them and the length
//! that they have. What they will mean (a chunk, a document, a file) is the business of
//! the place that the file is at, when they are stored.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::authors::{Authors, Thread};
use super::passthrough::Passing;
use crate::array::Array;
use crate::buffer::{Buffer, reserve};
use crate::cache::Base;
use crate::error::{Error, Kind, Result};
use crate::store::Version;
use crate::view::View;

/// How many written ranges of a chunk are remembered at most.
const MAX_WRITTEN: usize = 256;

/// What an inode knows of its bytes.
///
/// Its lock is the file's own: it may be held over decoding, encoding and store I/O of this one
/// file, and then any lock of the cache is taken under it. Only a rename locks two files, the one of the lower number first.
#[derive(Debug, Default)]
pub struct File {
    /// Where its bytes are.
    pub content: Content,
    /// What its openers have opened; none while nobody has it open.
    pub opened: Option<OpenedAs>,
    /// Handles on it.
    pub openers: u32,
    /// Those of them that may write.
    pub writers: u32,
    /// Those of them that are being opened: how they read it is not settled.
    pub opening: u32,
    /// The stored version that the kernel's pages are of.
    pub seen: Option<Version>,
    /// What they will be of when the kernel has dropped those that it has.
    dropping: Option<Dropping>,
    /// How many openers were told to have them dropped.
    drops: u64,
    /// Whether the kernel may have pages of several versions after a store: another program had the
    /// file open at the last open, or another program replaced the stored value since.
    pub is_shared: bool,
    /// How the kernel reads it by itself.
    pub passing: Passing,
    /// Its mode, of one that was made here and is not stored yet.
    pub mode: Option<u16>,
    /// Who has changed the bytes that are not stored yet, while they were not whole.
    pub authors: Authors,
    /// The document that was shown last, against which a rewrite of it is compared.
    pub shown: Option<Arc<str>>,
}

/// What gave the bytes of an open file their meaning when it was opened. All handles, mappings and pages of an inode are of this
/// one thing. When the name leads to another one, the name gets another inode ([`super::identity`]).
#[derive(Debug, Clone)]
pub enum OpenedAs {
    /// The header and the layout of a view.
    View(Arc<View>),
    /// The array of a chunk.
    Chunk(Arc<Array>),
}

impl OpenedAs {
    /// Whether somebody who opens `now` may share the inode.
    pub fn is_like(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::View(one), Self::View(other)) => Arc::ptr_eq(one, other) || one.is_like(other),
            (Self::Chunk(one), Self::Chunk(other)) => one.has_chunks_of(other),
            _ => false,
        }
    }
}

/// What an opener is told of the kernel's pages.
#[derive(Debug)]
struct Dropping {
    /// What is stored.
    version: Option<Version>,
    /// The first opener that was told to have them dropped since that was stored.
    first: u64,
}

impl File {
    /// Notes that somebody opens it while `version` is stored, none where that is not known. Returns which one he is of
    /// those for whom the kernel's pages are dropped; none where they are what is stored.
    ///
    /// They are dropped when the kernel has our answer, which it may have after those to later openers: these must not keep
    /// the old ones. Who asks for bytes has it.
    pub fn open_pages(&mut self, version: Option<Version>) -> Option<u64> {
        if self.seen.zip(version).is_some_and(|(seen, version)| seen.holds(version)) {
            return None;
        }
        self.seen = None;
        self.drops = self.drops.saturating_add(1);
        let known =
            self.dropping.take().filter(|dropping| Version::holds_of(dropping.version, version));
        let first = known.map_or(self.drops, |dropping| dropping.first);
        self.dropping = Some(Dropping { version, first });
        Some(self.drops)
    }

    /// Notes that the opener of this number asks for bytes.
    pub fn note_dropped(&mut self, opener: u64) {
        if let Some(dropping) = self.dropping.take_if(|dropping| dropping.first <= opener) {
            self.seen = dropping.version;
        }
    }

    /// Notes that what was stored as one version is another one now, with the same bytes.
    pub fn renew_version(&mut self, was: Version, now: Option<Version>) {
        if self.seen.is_some_and(|seen| seen.holds(was)) {
            self.seen = now;
        }
        if let Some(dropping) =
            self.dropping.as_mut().filter(|d| d.version.is_some_and(|version| version.holds(was)))
        {
            dropping.version = now;
        }
    }

    /// Notes that it is settled how somebody who is opening it reads it.
    pub fn settle(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    /// Whether nobody writes it, and all for whom it is settled have the kernel read it: another one may, too.
    pub fn is_for_kernel(&self) -> bool {
        self.writers == 0 && self.openers.saturating_sub(self.opening) == self.passing.openers
    }

    /// Notes who has changed bytes that wait to be stored. A file that has its full length, `full_len`, has no
    /// part missing, and its author does not matter; 0 if it has no such length.
    pub fn note_author(&mut self, full_len: usize, by: Thread) {
        let is_whole = matches!(&self.content, Content::Unstored(unstored)
            if full_len > 0 && unstored.bytes.len() == full_len);
        if !is_whole {
            self.authors.note(by);
        }
    }

    /// Whether its bytes wait to be stored, and are the business of other processes than that of `thread`.
    pub fn is_written_by_others(&self, thread: Thread) -> bool {
        matches!(self.content, Content::Unstored(_)) && !self.authors.may_include(thread)
    }

    /// Whether it has bytes that wait to be stored.
    pub fn is_changed(&self) -> bool {
        matches!(&self.content, Content::Unstored(unstored) if unstored.changed)
    }
}

/// Where the bytes of a file are.
#[derive(Debug, Default)]
pub enum Content {
    /// In the store.
    #[default]
    Stored,
    /// Here, to be stored.
    Unstored(Unstored),
    /// Here, never to be stored: the file was unlinked or replaced while it was open.
    Detached(Unstored),
}

/// Bytes that are to be stored.
#[derive(Debug)]
pub struct Unstored {
    /// All bytes of the file.
    pub bytes: Buffer,
    /// Whether they differ from what is stored.
    pub changed: bool,
    /// Why they could not be stored as they are now, which a program was told.
    pub refused: Option<Error>,
    /// When they were last written, or said to have been.
    pub modified: SystemTime,
    /// Whether a program has set the time, so that it is to be kept.
    pub keep_modified: bool,
    /// Whether they are as somebody who wrote them has left them: a close or `fsync` came after the last write.
    pub settled: bool,
    /// Since when they have been here.
    pub since: Instant,
    /// The chunk before a part of it was changed, `None` if it was written completely.
    pub base: Option<Base>,
    /// Ranges of bytes that were written since the base was read. They do not touch each other, and
    /// there are at most [`MAX_WRITTEN`]; further ones are forgotten.
    pub written: Vec<Range<usize>>,
}

impl Unstored {
    /// Bytes that are what is stored.
    pub fn of(bytes: Buffer) -> Self {
        let (modified, since) = (SystemTime::now(), Instant::now());
        Self {
            bytes,
            changed: false,
            refused: None,
            modified,
            keep_modified: false,
            settled: false,
            since,
            base: None,
            written: Vec::new(),
        }
    }

    /// A file that has just been created, or cut to nothing.
    pub fn empty() -> Self {
        Self { changed: true, ..Self::of(Vec::new().into()) }
    }

    /// Puts `data` at `offset`; a gap before it becomes zero bytes. `full_len` is room worth having at once.
    pub fn write(&mut self, offset: usize, data: &[u8], full_len: usize) -> Result<()> {
        let end = offset
            .checked_add(data.len())
            .ok_or_else(|| Error::too_large("offset out of range"))?;
        let bytes = self.bytes.to_mut();
        if end > bytes.len() {
            let room = end.max(full_len).saturating_sub(bytes.len());
            if bytes.capacity() == 0 {
                *bytes = reserve(room)?;
            }
            bytes
                .try_reserve_exact(room)
                .map_err(|_| Error::new(Kind::NoMemory, "not enough memory for the file"))?;
            // What is written next to what is there need not be zero first.
            bytes.resize(offset.max(bytes.len()), 0);
            let known = bytes.len().saturating_sub(offset).min(data.len());
            let (over, more) = data.split_at(known);
            bytes.extend_from_slice(more);
            if let Some(target) = offset.checked_add(known).and_then(|to| bytes.get_mut(offset..to))
            {
                target.copy_from_slice(over);
            }
        } else if let Some(target) = bytes.get_mut(offset..end) {
            target.copy_from_slice(data);
        }
        self.note_written(offset..end);
        self.touch();
        Ok(())
    }

    /// Notes a written range, and drops the base once the whole chunk has been written: the chunk is
    /// then stored whatever it was before.
    fn note_written(&mut self, new: Range<usize>) {
        if self.base.is_none() {
            return;
        }
        let mut all = new;
        self.written.retain(|known| {
            let is_apart = known.end < all.start || all.end < known.start;
            if !is_apart {
                all = known.start.min(all.start)..known.end.max(all.end);
            }
            is_apart
        });
        if all == (0..self.bytes.len()) {
            self.base = None;
            self.written = Vec::new();
        } else if self.written.len() < MAX_WRITTEN {
            self.written.push(all);
        }
    }

    /// How many bytes are kept of what the chunk was.
    pub fn base_len(&self) -> usize {
        self.base.as_ref().map_or(0, Base::bytes_len)
    }

    /// Cuts the file, or adds zero bytes.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        let bytes = self.bytes.to_mut();
        let more = len.saturating_sub(bytes.len());
        bytes
            .try_reserve_exact(more)
            .map_err(|_| Error::new(Kind::NoMemory, "not enough memory for the file"))?;
        bytes.resize(len, 0);
        if len == 0 {
            self.base = None;
        }
        self.touch();
        Ok(())
    }

    /// Whether they are no chunk and no document, as a program was told at its close.
    pub fn is_unfit(&self) -> bool {
        let kind = self.refused.as_ref().map(Error::kind);
        matches!(kind, Some(Kind::Invalid | Kind::Incomplete))
    }

    fn touch(&mut self) {
        self.changed = true;
        self.refused = None;
        self.settled = false;
        self.keep_modified = false;
        self.modified = SystemTime::now();
    }
}
