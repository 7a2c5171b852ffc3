//! The handles of open files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::backing::Backing;
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::metadata::NodePath;
use crate::vfs::access::Access;
use crate::vfs::authors::Processes;
use crate::vfs::inodes::file::slice;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::reader::open_view::OpenView;

/// How many files may be open beyond the limit if they are reports: they tell why it was reached.
const SPARE_FOR_REPORTS: usize = 64;

/// An open file.
#[derive(Debug, Clone)]
pub(in crate::vfs) struct Handle {
    pub inode: Arc<Inode>,
    pub access: Access,
    pub source: HandleSource,
    /// The program that reads a chunk of a server with it.
    pub reader: Arc<OnceLock<Processes>>,
}

/// Where a handle reads from.
#[derive(Debug, Clone)]
pub(in crate::vfs) enum HandleSource {
    /// The current bytes of its file, with the drop epoch if this open made the kernel drop its
    /// pages.
    File(Option<u64>),
    /// Bytes that were generated at the open.
    Made(Bytes),
    /// A view.
    View(Arc<OpenView>),
    /// A backing file that the kernel reads. All opens of the inode use passthrough while this one
    /// lasts.
    Backing(Arc<Backing>),
}

impl Handle {
    /// Reads what the open has made, or the file that the kernel reads; `None` if the handle reads
    /// the current bytes of its file.
    pub fn read_kept(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        match &self.source {
            HandleSource::Made(made) => Some(Ok(slice(made, offset, len))),
            HandleSource::Backing(backing) if !self.may_write() => {
                Some(backing.read(offset, len).map_err(Error::from))
            }
            HandleSource::Backing(_) | HandleSource::File(_) | HandleSource::View(_) => None,
        }
    }

    /// Whether it may write.
    pub fn may_write(&self) -> bool {
        self.access != Access::Read
    }

    pub fn shown(&self) -> String {
        self.inode.place().map_or_else(String::new, |place| place.shown())
    }

    /// Returns the arrays with elements in this file.
    pub fn arrays(&self) -> Vec<NodePath> {
        match (self.view(), self.inode.place()) {
            (Some(open), _) => open.view.sources().map(|part| part.path.clone()).collect(),
            (None, Some(Place::Chunk(path, _))) => vec![path],
            _ => Vec::new(),
        }
    }

    pub fn view(&self) -> Option<&Arc<OpenView>> {
        match &self.source {
            HandleSource::View(view) => Some(view),
            _ => None,
        }
    }
}

/// The open files.
#[derive(Debug)]
pub(in crate::vfs) struct Handles {
    /// By handle number. A leaf lock: copy the handle out, unlock, then work.
    table: Mutex<HashMap<u64, Handle>>,
    next: AtomicU64,
    /// How many of the handles may write.
    writing: AtomicUsize,
}

impl Default for Handles {
    fn default() -> Self {
        Self { table: Mutex::default(), next: AtomicU64::new(1), writing: AtomicUsize::new(0) }
    }
}

impl Handles {
    /// Adds a handle, and returns its number.
    pub fn insert(&self, handle: Handle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if handle.may_write() {
            self.writing.fetch_add(1, Ordering::Relaxed);
        }
        self.table.lock().insert(number, handle);
        number
    }

    /// Fails if programs have as many files open as they may. Some reports can be opened even then.
    pub fn check_count(&self, inode: &Inode) -> Result<()> {
        let open = self.len().saturating_add(1);
        let is_refused = limits::OPEN_FILES.is_exceeded_by(open)
            && (limits::OPEN_FILES.is_exceeded_by(open.saturating_sub(SPARE_FOR_REPORTS))
                || !matches!(inode.place(), Some(Place::Report(_))));
        if is_refused {
            let detail = format!("too many open files, {}", limits::OPEN_FILES);
            return Err(Error::new(Kind::Os(libc::ENFILE), detail));
        }
        Ok(())
    }

    /// Returns the handle with this number.
    pub fn get(&self, handle: u64) -> Result<Handle> {
        let found = self.table.lock().get(&handle).cloned();
        found.ok_or_else(|| Error::new(Kind::Os(libc::EBADF), "unknown file handle"))
    }

    /// Has a handle read the current bytes of its file.
    pub fn read_file(&self, handle: u64) {
        if let Some(handle) = self.table.lock().get_mut(&handle) {
            handle.source = HandleSource::File(None);
        }
    }

    /// Removes a handle.
    pub fn remove(&self, handle: u64) {
        let removed = self.table.lock().remove(&handle);
        if removed.is_some_and(|removed| removed.may_write()) {
            self.writing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of handles.
    pub fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Returns the files that are open for writing.
    pub fn written_files(&self) -> Vec<Arc<Inode>> {
        let table = self.table.lock();
        let writers = table.values().filter(|handle| handle.may_write());
        writers.map(|handle| Arc::clone(&handle.inode)).collect()
    }

    /// Returns the other files that are open for writing and have elements of the same arrays as
    /// `written`.
    pub fn others_with_elements_of(&self, written: &Handle) -> Vec<Arc<Inode>> {
        if self.writing.load(Ordering::Relaxed) < 2 {
            return Vec::new();
        }
        let arrays = written.arrays();
        let is_other = |handle: &&Handle| {
            handle.may_write()
                // Two different chunk files have no elements in common.
                && (handle.view().is_some() || written.view().is_some())
                && handle.inode.number() != written.inode.number()
                && handle.arrays().iter().any(|path| arrays.contains(path))
        };
        let table = self.table.lock();
        table.values().filter(is_other).map(|handle| Arc::clone(&handle.inode)).collect()
    }

    /// Returns the open views of an inode.
    pub fn open_views(&self, inode: &Inode) -> Vec<Arc<OpenView>> {
        let table = self.table.lock();
        let of_inode = table.values().filter(|handle| handle.inode.number() == inode.number());
        of_inode.filter_map(Handle::view).cloned().collect()
    }

    /// Returns all open views.
    pub fn all_open_views(&self) -> Vec<Arc<OpenView>> {
        self.table.lock().values().filter_map(Handle::view).cloned().collect()
    }
}
