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
use crate::vfs::authors::Processes;

/// The most chunks that are remembered.
const MOST: usize = 1 << 14;

/// The most processes that are remembered for one chunk.
const MOST_PROCESSES: usize = 16;

/// The version of a chunk that a process has read, and when.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq))]
pub struct SeenVersion {
    process: u32,
    at: Instant,
    /// `None` if there was no chunk, and the mount showed the fill value.
    pub version: Option<Version>,
}

impl SeenVersion {
    /// Returns the version as one that was read just now.
    #[must_use]
    pub fn renewed(self) -> Self {
        Self { at: Instant::now(), ..self }
    }
}

/// The chunks that programs have read.
#[derive(Debug)]
pub struct SeenChunks {
    /// A leaf lock.
    chunks: Mutex<Bounded<(NodePath, Coords), Vec<SeenVersion>>>,
}

impl Default for SeenChunks {
    fn default() -> Self {
        Self { chunks: Mutex::new(Bounded::new(Limits::entries(MOST))) }
    }
}

impl SeenChunks {
    /// Notes that programs read this version of a chunk. A version that does not tell whether the
    /// chunk changes is of no use.
    pub fn note(&self, path: &NodePath, coords: &Coords, by: &Processes, version: Option<Version>) {
        let is_usable = version.is_none_or(|it| it.holds(it) && !it.is_unstored());
        for process in by.known().filter(|_| is_usable).unwrap_or_default() {
            let seen = SeenVersion { process: *process, at: Instant::now(), version };
            self.put_back(path, coords, seen);
        }
    }

    /// Notes again what [`Self::take`] has returned, since its program has not stored the chunk.
    pub fn put_back(&self, path: &NodePath, coords: &Coords, seen: SeenVersion) {
        let key = (path.clone(), coords.clone());
        let mut chunks = self.chunks.lock();
        let mut all = chunks.remove(&key).unwrap_or_default();
        all.retain(|known| known.process != seen.process);
        all.push(seen);
        let surplus = all.len().saturating_sub(MOST_PROCESSES);
        all.drain(..surplus);
        drop(chunks.put(key, all, 1));
    }

    /// Forgets the programs that have read a chunk, because this mount changes it: they are as any
    /// two programs on one file.
    pub fn forget(&self, path: &NodePath, coords: &Coords) {
        self.chunks.lock().remove(&(path.clone(), coords.clone()));
    }

    /// Returns the version that the programs which write a chunk have read last, within `time`.
    pub fn take(
        &self,
        path: &NodePath,
        coords: &Coords,
        by: &Processes,
        time: Duration,
    ) -> Option<SeenVersion> {
        let processes = by.known()?;
        let mut chunks = self.chunks.lock();
        let all = chunks.get_mut(&(path.clone(), coords.clone()))?;
        let is_theirs = |seen: &&SeenVersion| processes.contains(&seen.process);
        let last = all.iter().rev().find(is_theirs).copied();
        all.retain(|seen| !processes.contains(&seen.process));
        last.filter(|seen| seen.at.elapsed() < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_compared_once_with_what_its_program_has_read_last() {
        let seen = SeenChunks::default();
        let (path, coords) = (NodePath::root(), Coords::new([1]));
        let process = |number: u32| {
            let mut processes = Processes::default();
            processes.note(Some(number));
            processes
        };
        let (us, others) = (process(std::process::id()), process(1));
        let version = |number| Some(Version::settled([number; 4]));
        let minute = Duration::from_secs(60);
        let take = |by: &Processes, time| seen.take(&path, &coords, by, time).map(|it| it.version);
        assert_eq!(take(&us, minute), None, "it has read nothing");
        seen.note(&path, &coords, &us, version(1));
        seen.note(&path, &coords, &others, version(1));
        seen.note(&path, &coords, &us, version(2));
        assert_eq!(take(&us, minute), Some(version(2)));
        assert_eq!(take(&us, minute), None, "once");
        assert_eq!(take(&others, minute), Some(version(1)), "another program has read it, too");
        seen.note(&path, &coords, &us, version(1));
        assert_eq!(take(&us, Duration::ZERO), None, "that was long ago");
        seen.note(&path, &coords, &Processes::default(), version(1));
        assert_eq!(take(&Processes::default(), minute), None);
        seen.note(&path, &coords, &us, version(1));
        seen.forget(&path, &coords);
        assert_eq!(take(&us, minute), None);
    }
}
