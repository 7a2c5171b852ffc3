//! The versions of chunks that programs have read from a server a moment ago.
//!
//! A mount shows a chunk of a server as it was up to `--metadata-ttl` ago. A program that changes
//! one element reads the whole chunk and writes all of it again, so with an old chunk it would undo
//! what another program has stored before. A chunk of a program that has read it within that time
//! is therefore compared with the store, once.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::Coords;
use crate::bounded::{Bounded, Limits};
use crate::metadata::NodePath;
use crate::store::Version;
use crate::sys;
use crate::vfs::authors::{Processes, Thread};

/// The most chunks that are remembered.
const MOST: usize = 1 << 14;

/// The most threads that are remembered for one chunk.
const MOST_THREADS: usize = 16;

/// The version of a chunk that a program has opened; `None` if there was no chunk.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq))]
pub struct SeenVersion(pub Option<Version>);

/// A version that a thread has opened.
type Opened = (u32, Instant, SeenVersion);

/// The chunks that programs have opened to read them.
#[derive(Debug)]
pub struct SeenChunks {
    /// A leaf lock.
    chunks: Mutex<Bounded<(NodePath, Coords), Vec<Opened>>>,
}

impl Default for SeenChunks {
    fn default() -> Self {
        Self { chunks: Mutex::new(Bounded::new(Limits::entries(MOST))) }
    }
}

impl SeenChunks {
    /// Notes that a thread has opened a chunk with this version.
    pub fn note(&self, path: &NodePath, coords: &Coords, by: Thread, version: SeenVersion) {
        let Some(thread) = by else { return };
        let key = (path.clone(), coords.clone());
        let mut chunks = self.chunks.lock();
        let mut seen = chunks.remove(&key).unwrap_or_default();
        seen.retain(|(known, ..)| *known != thread);
        if seen.len() >= MOST_THREADS {
            seen.remove(0);
        }
        seen.push((thread, Instant::now(), version));
        drop(chunks.put(key, seen, 1));
    }

    /// Notes that these programs have opened a chunk with this version, and not again since.
    pub fn put_back(&self, path: &NodePath, coords: &Coords, by: &Processes, version: SeenVersion) {
        for process in by.known().unwrap_or_default() {
            self.note(path, coords, Some(*process), version);
        }
    }

    /// Forgets the programs that have opened a chunk, because this mount removes it.
    pub fn forget(&self, path: &NodePath, coords: &Coords) {
        self.chunks.lock().remove(&(path.clone(), coords.clone()));
    }

    /// Returns the version that the programs which write a chunk have opened last, within `time`.
    pub fn take(
        &self,
        path: &NodePath,
        coords: &Coords,
        by: &Processes,
        time: Duration,
    ) -> Option<SeenVersion> {
        let processes = by.known()?;
        let seen = self.chunks.lock().remove(&(path.clone(), coords.clone()))?;
        // `/proc` is read without the lock.
        let is_theirs = |thread: u32| {
            let is_of = |process: &u32| *process == thread || sys::is_thread_of(*process, thread);
            processes.iter().any(is_of)
        };
        let recent = seen.into_iter().rev().filter(|(_, at, _)| at.elapsed() < time);
        recent.filter(|(thread, ..)| is_theirs(*thread)).map(|(.., version)| version).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_compared_once_with_what_its_program_has_opened_last() {
        let (seen, own) = (SeenChunks::default(), std::process::id());
        let (path, coords) = (NodePath::root(), Coords::new([1]));
        let mut us = Processes::default();
        us.note(Some(own));
        let absent = SeenVersion(None);
        let minute = Duration::from_secs(60);
        let take = |by: &Processes, time| seen.take(&path, &coords, by, time);
        assert_eq!(take(&us, minute), None, "it has read nothing");
        seen.note(&path, &coords, Some(own), absent);
        assert_eq!(take(&us, minute), Some(absent));
        assert_eq!(take(&us, minute), None, "once");
        seen.note(&path, &coords, Some(own), absent);
        assert_eq!(take(&us, Duration::ZERO), None, "that was long ago");
        seen.note(&path, &coords, Some(1), absent);
        assert_eq!(take(&us, minute), None, "another program");
        seen.note(&path, &coords, None, absent);
        assert_eq!(take(&Processes::default(), minute), None);
        for thread in 0..100 {
            seen.note(&path, &coords, Some(thread), absent);
        }
        assert_eq!(seen.chunks.lock().peek(&(path, coords)).map(Vec::len), Some(MOST_THREADS));
    }
}
