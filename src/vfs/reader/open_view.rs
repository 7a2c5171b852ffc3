//! A view that a program has open.

use std::ptr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;

use super::state::ReadState;
use super::stored_versions::LastVersions;
use crate::metadata::NodePath;
use crate::store::unnamed::UnnamedFile;
use crate::vfs::authors::Thread;
use crate::vfs::kernel::view_pages::{Generations, ReadVersions};
use crate::vfs::view_writers::{OpenId, ViewWriters};
use crate::view::{Format, View};

/// Requests for more chunks than this always go to the pool, even if all chunks are cached.
pub const MOST_AT_HAND: usize = 64;

/// The new file that a program writes in the place of a view.
#[derive(Debug, Default)]
pub(in crate::vfs) struct NewViewFile {
    /// The end of the bytes that were written in order from the start, and that the view has, too.
    pub same_until: u64,
    /// All bytes, since one of them differs from the view; `None` if the program writes to the view
    /// itself.
    pub file: Option<UnnamedFile>,
    /// Whether any of them was written since they were stored.
    pub is_changed: bool,
    /// Whether a program has closed it since, while another descriptor seemed to be open.
    pub was_closed: bool,
}

/// An open view. It does not change while it is open.
#[derive(Debug)]
pub(in crate::vfs) struct OpenView {
    pub view: Arc<View>,
    /// The number of its inode.
    pub number: u64,
    pub path: NodePath,
    pub format: &'static Format,
    pub opened: Instant,
    /// The generations that it shows.
    pub generations: Generations,
    /// The time of the last change of its contents.
    pub modified: SystemTime,
    /// `Hierarchy::moves` before it was generated.
    pub moves: u64,
    /// The generations that the kernel's pages will show, if this open makes it drop its pages.
    pub pages: Option<Generations>,
    /// The chunks that are read.
    pub seen: Arc<ReadVersions>,
    /// The shared state of the writers, if it is open for writing.
    pub writing: Option<Arc<ViewWriters>>,
    /// Whether this open truncated it.
    pub is_cut: bool,
    /// The new file that a program writes in its place, if this open truncated it.
    pub new_file: Mutex<NewViewFile>,
    /// The versions of its stored values that were read last.
    pub versions: LastVersions,
    /// How it is being read.
    pub reads: ReadState,
}

impl OpenView {
    pub fn note_author(&self, by: Thread) {
        if let Some(writing) = &self.writing {
            writing.authors.lock().note(by);
            if by.is_some() {
                writing.users.lock().note(by);
            }
        }
    }

    /// Notes the length of the new file in its place, or that there is none any more.
    pub fn set_new_len(&self, len: Option<u64>) {
        if let Some(writing) = &self.writing {
            writing.set_new_len(OpenId(ptr::from_ref(self).addr()), len);
        }
    }

    /// Records who opened it for writing.
    pub fn note_user(&self, by: Thread) {
        if let Some(writing) = &self.writing {
            writing.users.lock().note(by);
        }
    }

    /// Whether a close by `thread` is that of a copy, and changes nothing.
    pub fn is_closed_by_stranger(&self, thread: Thread) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.users.lock().knows_as_stranger(thread))
    }

    /// Whether it was written, but not by the process of `thread`.
    pub fn is_written_by_others(&self, thread: Thread) -> bool {
        self.writing.as_ref().is_some_and(|writing| !writing.authors.lock().may_include(thread))
    }
}
