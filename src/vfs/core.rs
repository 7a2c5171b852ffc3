//! What every part of the mounted tree stands on: the hierarchy, its decoded chunks, the options of
//! the mount, the journal of errors and the link to the kernel's pages.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::journal::Journal;
use super::options::{Presentation, VfsOptions};
use super::refused::RefusedFiles;
use crate::array::{Array, Coords};
use crate::budget::Budget;
use crate::cache::ChunkCache;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Content as NodeContent, Hierarchy};
use crate::metadata::NodePath;
use crate::metadata::model::Levels;
use crate::pool::Pool;
use crate::store::Stat;
use crate::view::{ElementRange, View};
use crate::waiting;

/// How often to retry finding a file whose name is being taken by others.
pub const ATTEMPTS: usize = 16;

/// Returns the error of a call that names a file. The kernel repeats such a call after `ESTALE`,
/// and that would change what has taken the place of the node.
pub fn once(error: Error) -> Error {
    if error.errno() == libc::ESTALE { error.of_kind(Kind::Busy) } else { error }
}

/// A lock on the names of the tree.
pub(in crate::vfs) enum TreeLock<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

/// A thing in the cache of the kernel that it must drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outdated {
    /// The pages and attributes of the inode with this number.
    Inode(u64),
    /// The attributes of the inode with this number.
    Attributes(u64),
    /// The same, of an inode that a program is opening: at once, so that it gets the length of now.
    AttributesAtOpen(u64),
    /// A name in the directory with this inode number, and its inode if no program uses it.
    Name(u64, String),
}

/// Has the kernel drop something.
pub(in crate::vfs) type Invalidate = Box<dyn Fn(Outdated) + Send + Sync>;

/// The stored data that the tree shows.
pub(in crate::vfs) struct Core {
    pub hierarchy: Hierarchy,
    pub cache: Arc<ChunkCache>,
    pub options: VfsOptions,
    /// The memory of the mount.
    pub budget: Arc<Budget>,
    /// Protects the names. A thread that creates, moves or removes nodes holds it exclusively, one
    /// that creates or renames files holds it shared. Taken before the lock of any file.
    pub tree_lock: RwLock<()>,
    /// How often it was locked exclusively.
    pub changes: AtomicU64,
    /// Runs background work; unset without a mount.
    pub pool: OnceLock<Arc<Pool>>,
    /// When the hierarchy was mounted.
    pub mounted: SystemTime,
    pub journal: Journal,
    pub refused: RefusedFiles,
    /// Called with what the kernel must drop. Unset without a mount. A leaf lock.
    pub invalidate: Mutex<Option<Invalidate>>,
}

impl Core {
    /// Records an error in the journal, because the program only sees its errno.
    pub fn note(&self, operation: &str, error: &Error) {
        if !error.is_expected() {
            log::warn!("{operation}: {error}");
            self.journal.note(operation, error);
        }
    }

    /// Whether each answer of the store takes long.
    pub fn is_remote(&self) -> bool {
        self.hierarchy.store().read().is_remote()
    }

    /// Has the kernel drop its pages and attributes of the inode with this number.
    pub fn invalidate(&self, number: u64) {
        self.outdate(Outdated::Inode(number));
    }

    /// Has the kernel drop something.
    pub fn outdate(&self, outdated: Outdated) {
        if let Some(invalidate) = &*self.invalidate.lock() {
            invalidate(outdated);
        }
    }

    /// Returns the form of the files of the node at `path`.
    pub fn form_of(&self, path: &NodePath) -> Presentation {
        match self.options.form {
            Presentation::Zarr3 if self.hierarchy.forms.is_zarr2(path) => Presentation::Zarr2,
            form => form,
        }
    }

    /// Returns the array at `path` in the form that its chunk files show, or the reason why it was
    /// not understood.
    pub fn shown_array(&self, path: &NodePath) -> Result<Arc<Array>> {
        Ok(self.hierarchy.forms.shown_array(path, &self.array(path)?))
    }

    /// Like [`Self::shown_array`]. If a chunk that begins with `indices` lies outside of the array,
    /// returns the array as if it were larger: the store may still have the chunk.
    pub fn shown_array_at(&self, path: &NodePath, indices: &[u64]) -> Result<Arc<Array>> {
        let array = self.shown_array(path)?;
        Ok(array.reaching(indices).unwrap_or(array))
    }

    /// Returns the array at `path` with decoded or encoded chunks.
    pub fn array_in(&self, path: &NodePath, encoded: Option<Levels>) -> Result<Arc<Array>> {
        Ok(self.hierarchy.forms.array_in(&self.array(path)?, encoded))
    }

    /// Returns the array at `path` with decoded chunks, or the reason why it was not understood.
    pub fn array(&self, path: &NodePath) -> Result<Arc<Array>> {
        match self.hierarchy.existing(path)?.content() {
            NodeContent::Array(array) => Ok(Arc::clone(array)),
            NodeContent::NotUnderstood(_, error) => Err(error.clone()),
            NodeContent::Group(_) => Err(Error::new(Kind::Stale, "not an array any more").at(path)),
        }
    }

    /// Returns the stat of a chunk. The kernel may know chunks that are now outside the grid.
    pub fn stat_chunk(&self, array: &Array, coords: &Coords) -> Result<Stat> {
        let stat =
            if array.grid().contains(coords) { self.cache.stat(array, coords)? } else { None };
        stat.ok_or_else(Error::not_found)
    }

    /// Returns the current array of a part of a view that was generated after `moves` nodes had
    /// moved. [`Kind::Stale`] if it is not the same array with the same elements: an array that has
    /// gone has no chunks, and must not read as the fill value.
    pub fn array_of(&self, elements: &ElementRange, moves: u64) -> Result<Arc<Array>> {
        if !self.hierarchy.has_moved_since(&elements.path, moves) {
            match self.array(&elements.path) {
                Ok(current) if current.has_elements_of(&elements.array) => return Ok(current),
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        let detail = "the array has changed since the file was opened";
        Err(Error::new(Kind::Stale, detail).at(&elements.path))
    }

    /// Returns the earliest time at which a cached chunk may have been compared with the store:
    /// when the file was opened, and at most `--metadata-ttl` ago. `None` if no other program
    /// writes.
    pub fn fresh_since(&self, opened: Option<Instant>) -> Option<Instant> {
        let aged = Instant::now().checked_sub(self.hierarchy.options().metadata_ttl)?;
        Some(opened.map_or(aged, |opened| opened.max(aged)))
    }

    /// Whether the store takes a value on the condition that it has not changed.
    pub fn compares_puts(&self) -> Result<bool> {
        match self.hierarchy.store().write()?.check_conditions() {
            Err(error) if error.kind() != Kind::Unsupported => Err(error),
            checked => Ok(checked.is_ok()),
        }
    }

    /// Returns the sum of the generations of the arrays of a view and of other arrays.
    pub fn generation_of(&self, view: &View, used: &[Arc<Array>]) -> u64 {
        let arrays = view.sources().map(|elements| &elements.array).chain(used);
        arrays.map(|array| self.cache.generation(array)).fold(0, u64::wrapping_add)
    }
}

impl Core {
    /// Locks the tree shared. Fails if the program that waits for it was killed: the thread that
    /// has it exclusively may wait for a server that is silent.
    pub fn shared(&self) -> Result<RwLockReadGuard<'_, ()>> {
        waiting::read(&self.tree_lock)
    }

    /// Locks the tree exclusively. Fails if the program that waits for it was killed.
    pub fn alone(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        Ok(self.counted(waiting::write(&self.tree_lock)?))
    }

    /// Locks the tree exclusively for this process itself.
    pub fn alone_for_itself(&self) -> RwLockWriteGuard<'_, ()> {
        self.counted(self.tree_lock.write())
    }

    fn counted<'t>(&self, alone: RwLockWriteGuard<'t, ()>) -> RwLockWriteGuard<'t, ()> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        alone
    }

    /// Returns a number that is another one after a thread had the tree exclusively; `None` while
    /// one has it. Looking up a name does not lock the tree, so it may miss a name meanwhile.
    pub fn epoch(&self) -> Option<u64> {
        let is_changing = self.tree_lock.is_locked_exclusive();
        // A thread that sees it unlocked must see that it was counted.
        fence(Ordering::Acquire);
        (!is_changing).then(|| self.changes.load(Ordering::Relaxed))
    }

    /// Whether no thread had the tree exclusively since [`Self::epoch`] returned `epoch`.
    pub fn is_unchanged_since(&self, epoch: Option<u64>) -> bool {
        epoch.is_some() && self.epoch() == epoch
    }

    pub fn lock_tree(&self, alone: bool) -> Result<TreeLock<'_>> {
        Ok(if alone {
            TreeLock::Alone { _guard: self.alone()? }
        } else {
            TreeLock::Shared { _guard: self.shared()? }
        })
    }
}
