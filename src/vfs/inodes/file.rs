//! The bytes of a file that are not stored yet.
//!
//! They belong to the file, not to a handle: all openers see the same bytes and length. When they
//! are stored, the place of the file decides what they are: a chunk, a metadata file or an ordinary
//! file.
//!
//! The cache of chunks does not hold them, since they may be incomplete: it has whole chunks,
//! stored and pending ones.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;

use super::held::HeldBytes;
use super::place::Place;
use crate::array::Array;
use crate::backing::Backing;
use crate::buffer::Buffer;
use crate::cache::ChunkBase;
use crate::error::{Error, Kind, Result};
use crate::store::{Condition, FileChanges, FileId, NewTime, OpenFile, Ownership, Stamp, Version};
use crate::vfs::authors::{Processes, Thread};
use crate::vfs::kernel::backing_files::PassthroughState;
use crate::view::View;
use crate::width::{ToU64, ToUsize};

/// The most written ranges of a chunk to remember.
const MAX_WRITTEN: usize = 256;

/// Whether an ordinary file becomes a node, in a mount with `--import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImportState {
    /// Not as far as is known.
    #[default]
    No,
    /// At the last close, which a program that shares the descriptor may make.
    AtLastClose,
    /// It has, so nothing can be written to it any more.
    Done,
}

/// The bytes of an inode and their state.
///
/// Its lock may be held while this file is decoded, encoded and read from or written to the store,
/// and locks of the cache are taken under it. Only a rename locks two files, the one with the lower
/// number first.
#[derive(Debug, Default)]
pub struct InodeFile {
    /// Where the bytes are.
    pub content: BytesAt,
    /// The meaning of the bytes that all current openers share; `None` while it is not open.
    pub opened: Option<OpenedAs>,
    /// The number of open handles.
    pub openers: u32,
    /// The number of open handles that may write.
    pub writers: u32,
    /// Whether it becomes a node.
    pub import: ImportState,
    /// The number of opens in progress, which have not decided yet how they read.
    pub opening: u32,
    /// The stored version that the kernel's pages show.
    pub seen: Option<Version>,
    /// The version that they will show after the kernel has dropped its current pages.
    dropping: Option<Dropping>,
    /// The number of opens that made the kernel drop its pages.
    drops: u64,
    /// Whether the kernel may have pages of several versions after a store: another program had the
    /// file open at the last open, or another program replaced the stored value since.
    pub is_shared: bool,
    /// The state of passthrough.
    pub passthrough: PassthroughState,
    /// Whether a write failed since the file was opened: a program knows that it is incomplete.
    pub has_failed_write: bool,
    /// The attributes of a file that was created here and is not stored yet.
    pub created: Option<Created>,
    /// The processes that changed the unstored bytes.
    pub authors: Processes,
    /// The processes that changed the bytes which this mount has stored last.
    pub stored_by: Processes,
    /// The processes that opened the file for writing or wrote to it while it was open.
    pub users: Processes,
    /// The metadata file as it was last shown; a rewrite is compared with it.
    pub shown: Option<Arc<str>>,
}

/// The meaning that an open file got from its place when it was opened. All handles, mappings and
/// pages of an inode share it. If the name gets another meaning, it gets another inode
/// (`names/identity.rs`).
#[derive(Debug, Clone)]
pub enum OpenedAs {
    /// The header and the layout of a view.
    View(Arc<View>),
    /// The array of a chunk.
    Chunk(Arc<Array>),
    /// The file of the store that an ordinary file is.
    Ordinary(FileId),
}

impl OpenedAs {
    /// Whether an open with the meaning `now` may share the inode.
    pub fn is_like(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::View(one), Self::View(other)) => Arc::ptr_eq(one, other) || one.is_like(other),
            (Self::Chunk(one), Self::Chunk(other)) => one.has_chunks_of(other),
            (Self::Ordinary(one), Self::Ordinary(other)) => one == other,
            _ => false,
        }
    }
}

/// A pending drop of the kernel's pages.
#[derive(Debug)]
struct Dropping {
    /// The stored version.
    version: Option<Version>,
    /// The drop epoch of the first open that dropped the pages since that version was stored.
    first: u64,
}

impl InodeFile {
    /// Records an open while `version` is stored; `None` if the version is unknown. Returns the
    /// drop epoch if the kernel must drop its pages, `None` if they are current.
    ///
    /// The kernel drops the pages when it receives our answer, perhaps after the answers to later
    /// opens, so these must drop them too. A read proves that the answer has arrived.
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

    /// Records a read by the open of this drop epoch, which proves that the kernel has dropped its
    /// pages.
    pub fn note_dropped(&mut self, opener: u64) {
        if let Some(dropping) = self.dropping.take_if(|dropping| dropping.first <= opener) {
            self.seen = dropping.version;
        }
    }

    /// Records that the version `was` has become `now`, with the same bytes.
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

    /// Records that one open in progress has decided how it reads.
    pub fn settle(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    /// Whether all other opens use passthrough and none has written bytes that are not stored, so
    /// that another one may use passthrough as well.
    pub fn may_use_passthrough(&self) -> bool {
        self.writers == self.passthrough.writers
            && self.openers.saturating_sub(self.opening) == self.passthrough.openers
    }

    /// Whether the kernel's pages have what was written and nothing else.
    pub fn has_pages_of_one_version(&self) -> bool {
        !self.is_shared && self.passthrough.openers == 0
    }

    /// Returns the processes that changed its bytes, stored or not.
    pub fn makers(&self) -> Processes {
        let is_changed = matches!(self.content, BytesAt::Unstored(_));
        if is_changed { self.authors.clone() } else { self.stored_by.clone() }
    }

    /// Records a write that failed.
    pub fn note_failed_write(&mut self, error: &Error) {
        self.has_failed_write = true;
        // Changes of a stored chunk before it are complete by themselves.
        if let BytesAt::Unstored(unstored) = &mut self.content
            && error.kind() == Kind::TooLarge
            && unstored.base.is_none()
            && !unstored.bytes.is_empty()
        {
            unstored.cut_by = Some(error.clone());
        }
    }

    /// Records who changed unstored bytes.
    pub fn note_author(&mut self, by: Thread) {
        self.authors.note(by);
        // The kernel writes a mapping of a process that opened the file.
        if by.is_some() {
            self.users.note(by);
        }
    }

    /// Whether its unstored bytes belong only to other processes than that of `thread`.
    pub fn is_written_by_others(&self, thread: Thread) -> bool {
        matches!(self.content, BytesAt::Unstored(_)) && !self.authors.may_include(thread)
    }

    /// Whether a program has made it here, and it was not stored since.
    pub fn is_new(&self) -> bool {
        matches!(&self.content, BytesAt::Unstored(unstored) if unstored.is_new())
    }

    /// Whether what the store has under its name is not it: it was made here and not stored since,
    /// or another program has stored another one.
    pub fn is_only_here(&self) -> bool {
        self.is_new() || matches!(&self.content, BytesAt::Unstored(unstored) if unstored.is_taken())
    }

    /// Whether it has unstored changes.
    pub fn is_changed(&self) -> bool {
        matches!(&self.content, BytesAt::Unstored(unstored) if unstored.changed)
    }
}

/// Where the bytes of a file are.
#[derive(Debug, Default)]
pub enum BytesAt {
    /// In the store.
    #[default]
    Stored,
    /// To be stored.
    Unstored(UnstoredBytes),
    /// Never to be stored: the file was unlinked or replaced while it was open.
    Detached(UnstoredBytes),
    /// In an ordinary file of the store that is open, whatever its names are. Programs change it in
    /// place.
    Open(Arc<OpenFile>),
}

impl BytesAt {
    /// Returns the bytes that are not in the store, or never will be.
    fn held(&self) -> Option<&HeldBytes> {
        match self {
            Self::Unstored(unstored) | Self::Detached(unstored) => Some(&unstored.bytes),
            Self::Stored | Self::Open(_) => None,
        }
    }

    /// Returns up to `len` bytes at `offset`, if the file has unstored bytes.
    pub fn range(&self, offset: u64, len: usize) -> Result<Option<Bytes>> {
        self.held().map(|held| held.range(offset, len)).transpose()
    }

    /// Returns the ordinary file of the store that is open.
    pub fn open_file(&self) -> Option<&Arc<OpenFile>> {
        match self {
            Self::Open(open) => Some(open),
            Self::Stored | Self::Unstored(_) | Self::Detached(_) => None,
        }
    }

    /// Returns the new file of the store that the kernel writes, if there is one.
    pub fn backing(&self) -> Option<&Arc<Backing>> {
        self.held()?.file()
    }

    /// Returns the condition under which an ordinary file is stored.
    pub fn condition(&self) -> Condition {
        match self {
            Self::Unstored(unstored) => unstored.condition,
            Self::Stored | Self::Detached(_) | Self::Open(_) => Condition::Always,
        }
    }

    /// Returns the length of bytes that are in memory.
    pub fn len(&self) -> Option<u64> {
        u64::try_from(self.held()?.len()).ok()
    }

    /// Returns how much memory a write needs for the bytes that it adds.
    pub fn added_by(&self, write: Write<'_>) -> usize {
        let end = write.end().to_usize();
        self.held().map_or(0, |held| held.memory_added(end))
    }
}

/// The attributes that a file got from its creator and has until it is stored.
#[derive(Debug, Clone)]
pub struct Created {
    /// The owner and mode.
    pub owner: Ownership,
    /// The time of the last access, if a program set it.
    pub accessed: Option<SystemTime>,
    /// The extended attributes by name.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// The directory in which it was created, and the directory of the store that this was then.
    /// `None` if the store had none.
    pub home: Option<(Place, FileId)>,
}

impl Created {
    /// Returns those of a file that was just created.
    pub fn by(owner: Ownership) -> Self {
        Self { owner, accessed: None, xattrs: BTreeMap::new(), home: None }
    }

    /// Applies changes to them and to the time of the unstored bytes.
    pub fn change(&mut self, unstored: &mut UnstoredBytes, changes: &FileChanges) {
        let Ownership { mode, uid, gid } = self.owner;
        self.owner = Ownership {
            mode: changes.mode.unwrap_or(mode),
            uid: changes.uid.unwrap_or(uid),
            gid: changes.gid.unwrap_or(gid),
        };
        let at = |time| match time {
            NewTime::Now => SystemTime::now(),
            NewTime::At(time) => time,
        };
        self.accessed = changes.accessed.map(at).or(self.accessed);
        if let Some(modified) = changes.modified.map(at) {
            if let Some(new) = unstored.bytes.file().and_then(|backing| backing.new_file()) {
                // Storing it sets the time again.
                new.set_modified(modified).unwrap_or_else(|error| log::debug!("{error}"));
            }
            unstored.modified = modified;
            unstored.keep_modified = true;
        }
    }
}

/// Bytes that are to be stored.
#[derive(Debug)]
pub struct UnstoredBytes {
    /// All bytes of the file.
    pub bytes: HeldBytes,
    /// Whether they differ from the stored bytes.
    pub changed: bool,
    /// The condition under which an ordinary or metadata file is stored. One that a program made
    /// here, where this mount saw none, must be absent; removing it before leaves the store as it
    /// is.
    pub condition: Condition,
    /// If the kernel writes them: their state when they were stored or refused.
    pub stamp: Option<Stamp>,
    /// The reason why the store refused them as they are now, which was reported to a program.
    pub refused: Option<Error>,
    /// The time of the last write, or the time that a program set.
    pub modified: SystemTime,
    /// Whether a program set the time, so that it must be kept.
    pub keep_modified: bool,
    /// Whether a close or `fsync` came after the last write.
    pub settled: bool,
    /// The error of a write past the longest file, so that they are only its first part.
    pub cut_by: Option<Error>,
    /// When a close found no array that has such a chunk, since when it waits for one.
    pub waits_since: Option<Instant>,
    /// When they were loaded, or when storing them last failed.
    pub since: Instant,
    /// The chunk before a part of it was changed, `None` if it was written completely.
    pub base: Option<ChunkBase>,
    /// Ranges of bytes that were written since the base was read. They do not touch each other, and
    /// there are at most [`MAX_WRITTEN`]; further ones are forgotten.
    pub written: Vec<Range<usize>>,
}

impl UnstoredBytes {
    /// Returns bytes that equal the stored ones.
    pub fn of(bytes: impl Into<HeldBytes>) -> Self {
        let (modified, since) = (SystemTime::now(), Instant::now());
        Self {
            bytes: bytes.into(),
            changed: false,
            condition: Condition::Always,
            stamp: None,
            refused: None,
            modified,
            keep_modified: false,
            settled: false,
            cut_by: None,
            waits_since: None,
            since,
            base: None,
            written: Vec::new(),
        }
    }

    /// Returns the time of the last write, or the time that a program set.
    pub fn last_modified(&self) -> SystemTime {
        self.bytes.file().map_or(self.modified, |file| file.modified())
    }

    /// Takes note of what the kernel has written since the bytes were stored or refused.
    pub fn refresh(&mut self) {
        if self.stamp.is_some() && self.stamp != self.bytes.stamp() {
            self.stamp = None;
            self.touch();
        }
    }

    /// Returns what is to be stored now.
    pub fn written(&self) -> FileToStore {
        // The kernel does not say when it writes after a program set the time.
        let is_last = self.last_modified() == self.modified;
        let modified = (self.keep_modified && is_last).then_some(self.modified);
        let (bytes, base) = (self.bytes.clone(), self.base.clone());
        FileToStore { bytes, base, modified, condition: self.condition }
    }

    /// Whether a program made the file here, and it was not stored since.
    pub fn is_new(&self) -> bool {
        matches!(self.condition, Condition::Absent)
    }

    /// Returns the bytes of a new or truncated file.
    pub fn empty() -> Self {
        Self { changed: true, ..Self::of(Buffer::from(Vec::new())) }
    }

    /// Writes `data` at `offset` and fills a gap before it with zeros. Allocates `full_len` bytes
    /// at once.
    pub fn write(&mut self, offset: usize, data: &[u8], full_len: usize) -> Result<()> {
        let end = offset
            .checked_add(data.len())
            .ok_or_else(|| Error::too_large("offset out of range"))?;
        self.bytes.write(offset..end, data, full_len)?;
        self.note_written(offset..end);
        self.touch();
        Ok(())
    }

    /// Adds a written range, and drops the base once the whole chunk has been written: the chunk is
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

    /// Returns the bytes that the base takes.
    pub fn base_len(&self) -> usize {
        self.base.as_ref().map_or(0, ChunkBase::bytes_len)
    }

    /// Truncates the file, or extends it with zeros.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        self.bytes.set_len(len)?;
        if len == 0 {
            self.base = None;
            self.cut_by = None;
            if let Condition::Unchanged(_) = self.condition {
                self.condition = Condition::Always; // It is written anew, whatever it was.
            }
        }
        self.touch();
        Ok(())
    }

    /// Records why the store refused them, and restarts the delay before the next attempt, instead
    /// of trying and logging at every tick.
    pub fn note_refused(&mut self, error: &Error, stamp: Option<Stamp>) {
        (self.refused, self.stamp, self.since) = (Some(error.clone()), stamp, Instant::now());
    }

    /// Whether they are no valid chunk or metadata file, as was reported at a close.
    pub fn is_unfit(&self) -> bool {
        let kind = self.refused.as_ref().map(Error::kind);
        matches!(kind, Some(Kind::Invalid | Kind::Incomplete))
    }

    /// Whether another program had stored a file of their name when they were to be stored.
    pub fn is_taken(&self) -> bool {
        let is_compared = matches!(self.condition, Condition::Unchanged(_));
        self.refused.as_ref().is_some_and(|error| match error.errno() {
            libc::EEXIST => true,
            libc::EBUSY => is_compared,
            _ => false,
        })
    }

    fn touch(&mut self) {
        self.changed = true;
        self.waits_since = None;
        self.refused = None;
        self.settled = false;
        self.keep_modified = false;
        self.modified = SystemTime::now();
    }
}

/// Bytes that a program writes, and their offset in the file.
#[derive(Debug, Clone, Copy)]
pub struct Write<'d> {
    pub offset: u64,
    pub data: &'d [u8],
}

impl Write<'_> {
    /// Returns the offset after the last byte.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.data.len().to_u64())
    }
}

/// The bytes of a file that is to be stored.
#[derive(Debug)]
pub struct FileToStore {
    pub bytes: HeldBytes,
    /// The chunk before a part of it was changed.
    pub base: Option<ChunkBase>,
    /// The modification time that a program set.
    pub modified: Option<SystemTime>,
    /// The condition under which an ordinary file is stored.
    pub condition: Condition,
}

impl From<Buffer> for FileToStore {
    fn from(bytes: Buffer) -> Self {
        Self { bytes: bytes.into(), base: None, modified: None, condition: Condition::Always }
    }
}

/// Returns up to `len` bytes at `offset`.
pub fn slice(bytes: &Bytes, offset: u64, len: usize) -> Bytes {
    let start = offset.to_usize().min(bytes.len());
    let end = start.saturating_add(len).min(bytes.len());
    bytes.slice(start..end)
}
