//! Limits of this process besides those of its caches: memory, open files and threads.
//!
//! Open files are counted by purpose. Each purpose has at most a part of the limit, so that some
//! are always left for files that are open for a single call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sys;

/// The most open files to request.
const MAX_DESCRIPTORS: u64 = 1 << 16;

/// With less memory than this, the usual limits would take all of it.
const LITTLE_MEMORY: u64 = 2 << 30;

/// Returns the memory limit of this process in bytes.
pub fn memory_limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(sys::memory_limit)
}

/// Returns `len`, or with less than 2 GiB of memory at most one of `parts` equal parts of it.
pub fn within_memory(len: u64, parts: u64) -> u64 {
    let limit = memory_limit();
    if limit < LITTLE_MEMORY { len.min(limit / parts.max(1)) } else { len }
}

/// Has threads share the memory that they free if there is little. To be called before any thread
/// starts.
pub fn share_freed_memory() {
    if memory_limit() < LITTLE_MEMORY {
        sys::use_one_arena();
    }
}

/// Raises the limit of open files as far as allowed, and returns it. Child processes inherit it.
pub fn raise_descriptor_limit() -> u64 {
    match sys::raise_descriptor_limit(MAX_DESCRIPTORS) {
        Ok((now, was)) => {
            log::debug!("limit of open files: {now}, was {was}");
            now
        }
        Err(error) => {
            log::debug!("the limit of open files cannot be raised: {error}");
            sys::descriptor_limit()
        }
    }
}

/// The resources in use and their limits, `None` if the system does not report them.
#[derive(Debug, Clone, Copy)]
pub struct InUse {
    /// Open files.
    pub descriptors: Option<u64>,
    /// The most open files.
    pub descriptor_limit: u64,
    /// Directories being read, which are among the open files.
    pub directories: usize,
    /// Threads.
    pub threads: Option<u64>,
    /// The most threads of this user in all processes.
    pub thread_limit: Option<u64>,
}

/// Returns the resources in use.
pub fn in_use() -> InUse {
    let (descriptors, threads) = sys::in_use();
    InUse {
        descriptors,
        descriptor_limit: sys::descriptor_limit(),
        directories: sys::open_directories(),
        threads,
        thread_limit: sys::thread_limit(),
    }
}

/// Returns the number of directories being read, each with an open file.
pub fn open_directories() -> usize {
    sys::open_directories()
}

/// A share of the open files for one purpose.
#[derive(Debug)]
pub struct FileShare {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// An open file of a share; dropping it returns it.
#[derive(Debug)]
pub struct FilePermit(Arc<AtomicUsize>);

impl FileShare {
    /// Returns a share of `most` open files.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes an open file, `None` if all are taken.
    pub fn take(&self) -> Option<FilePermit> {
        let more = |taken: usize| (taken < self.most).then_some(taken.saturating_add(1));
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| FilePermit(Arc::clone(&self.taken)))
    }

    /// Returns the number of open files that are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for FilePermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_files_are_taken_than_the_limit_and_each_is_returned() {
        let part = FileShare::new(2);
        let (first, second) = (part.take(), part.take());
        assert!(first.is_some() && second.is_some() && part.take().is_none());
        drop(first);
        assert!(part.taken() == 1 && part.take().is_some());
        drop(second);
        assert_eq!(part.taken(), 0);
    }
}
