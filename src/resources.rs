//! Limits of this process besides those of its caches: memory, open files and threads.
//!
//! Open files are counted by what they are kept open for, so that each kind has a part of the limit
//! at most and what is opened for the time of one call always has some left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sys;

/// The most open files that are asked for.
const MAX_DESCRIPTORS: u64 = 1 << 16;

/// Where there is less memory the limits that are meant for other machines would take all of it.
const LITTLE_MEMORY: u64 = 2 << 30;

/// How much memory this process may have, in bytes.
pub fn memory_limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(sys::memory_limit)
}

/// `len` bytes, or where there is less than 2 GiB of memory the part of it that is one of `parts`,
/// if that is less.
pub fn within_memory(len: u64, parts: u64) -> u64 {
    let limit = memory_limit();
    if limit < LITTLE_MEMORY { len.min(limit / parts.max(1)) } else { len }
}

/// Lets this process have as many files open as it may; how many these are. Programs that it starts
/// inherit the limit.
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

/// What is in use, and how much of it there may be, `None` if the system does not say.
#[derive(Debug, Clone, Copy)]
pub struct InUse {
    /// Open files.
    pub descriptors: Option<u64>,
    /// How many of them there may be.
    pub descriptor_limit: u64,
    /// Directories that are being read, among them.
    pub directories: usize,
    /// Threads.
    pub threads: Option<u64>,
    /// How many of them the user of this process may have, in all processes.
    pub thread_limit: Option<u64>,
}

/// What is in use now.
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

/// How many directories are being read, each with an open file.
pub fn open_directories() -> usize {
    sys::open_directories()
}

/// A part of the open files, for one purpose.
#[derive(Debug)]
pub struct Part {
    most: usize,
    taken: Arc<AtomicUsize>,
}

/// One of them; given back when it is dropped.
#[derive(Debug)]
pub struct Taken(Arc<AtomicUsize>);

impl Part {
    /// None taken yet of `most`.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// One more, `None` if all are taken.
    pub fn take(&self) -> Option<Taken> {
        let more = |taken: usize| (taken < self.most).then_some(taken.saturating_add(1));
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Taken(Arc::clone(&self.taken)))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_there_are_and_each_is_given_back() {
        let part = Part::new(2);
        let (first, second) = (part.take(), part.take());
        assert!(first.is_some() && second.is_some() && part.take().is_none());
        drop(first);
        assert!(part.taken() == 1 && part.take().is_some());
        drop(second);
        assert_eq!(part.taken(), 0);
    }
}
