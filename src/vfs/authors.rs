//! The processes that have changed a file since it was stored.
//!
//! The kernel sends a flush for every descriptor that is closed, even if a child closes one that it
//! inherited (`exec` closes most). Only the processes that write an unfinished file get an error
//! for it.

use crate::sys;

/// The thread that the kernel names in a request; `None` if the kernel does not name one.
pub type Thread = Option<u32>;

/// If more threads than this write one file, they are not told apart.
const MAX_THREADS: usize = 64;

/// A handle and the thread that uses it.
#[derive(Debug, Clone, Copy)]
pub struct HandleUse {
    pub(super) handle: u64,
    pub(super) thread: Thread,
}

impl HandleUse {
    /// Names the user of a handle. The number 0 is the kernel itself, or a thread that this process
    /// cannot see.
    pub fn by(handle: u64, thread: u32) -> Self {
        Self { handle, thread: Some(thread).filter(|thread| *thread != 0) }
    }
}

impl From<u64> for HandleUse {
    fn from(handle: u64) -> Self {
        Self { handle, thread: None }
    }
}

/// The processes that have changed a file.
#[derive(Debug, Default)]
pub struct Authors {
    threads: Vec<Author>,
    /// Whether any process may be an author.
    is_anybody: bool,
}

#[derive(Debug)]
struct Author {
    thread: u32,
    process: u32,
}

impl Authors {
    /// Records that a thread changes the file. The thread must wait for the answer, so that its
    /// process can be looked up.
    pub fn note(&mut self, thread: Thread) {
        let is_known = |thread| self.threads.iter().any(|author| author.thread == thread);
        if self.is_anybody || thread.is_some_and(is_known) {
            return;
        }
        let author = thread
            .filter(|_| self.threads.len() < MAX_THREADS)
            .and_then(|thread| Some(Author { thread, process: sys::process_of(thread)? }));
        match author {
            Some(author) => self.threads.push(author),
            None => self.is_anybody = true,
        }
    }

    /// Whether the process of a thread has changed the file, or may have.
    pub fn may_include(&self, thread: Thread) -> bool {
        let Some(thread) = thread.filter(|_| !self.is_anybody && !self.threads.is_empty()) else {
            return true;
        };
        self.threads.iter().any(|author| author.thread == thread)
            || sys::process_of(thread)
                .is_none_or(|process| self.threads.iter().any(|author| author.process == process))
    }
}
