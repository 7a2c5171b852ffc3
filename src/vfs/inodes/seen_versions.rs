//! The versions of chunks and ordinary files that programs have read from a server a moment ago.
//!
//! A mount shows a file of a server as it was up to `--metadata-ttl` ago. A program that changes
//! one element or one line reads the whole file and writes all of it again, so with an old file it
//! would undo what another program has stored before. If a program writes or removes a file that it
//! has read within that time, the file is therefore compared with the store, once.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::place::Place;
use crate::bounded::{Bounded, MapLimits};
use crate::metadata::NodePath;
use crate::store::Version;
use crate::vfs::authors::Processes;

/// The most files that are remembered.
const MOST: usize = 1 << 14;

/// The most arrays that are remembered.
const MOST_ARRAYS: usize = 1 << 10;

/// The most processes that are remembered for one file or array.
const MOST_PROCESSES: usize = 16;

/// The version of a file that a process has read, and when.
#[derive(Debug, Clone, Copy)]
pub struct SeenVersion {
    process: u32,
    at: Instant,
    /// `None` if there was no such chunk, and the mount showed the fill value.
    pub version: Option<Version>,
}

impl SeenVersion {
    /// Returns a version that is compared at once, so that its process and time do not count.
    pub fn of(version: Version) -> Self {
        Self { process: 0, at: Instant::now(), version: Some(version) }
    }

    /// Returns the version as one that was read just now.
    #[must_use]
    pub fn renewed(self) -> Self {
        Self { at: Instant::now(), ..self }
    }
}

/// The files that programs have read.
#[derive(Debug)]
pub struct SeenVersions {
    /// A leaf lock.
    files: Mutex<Bounded<Place, Vec<SeenVersion>>>,
    /// The arrays that programs have opened as views, to read: which of their chunks these have
    /// read is not known, since the kernel has pages of them. A leaf lock.
    arrays: Mutex<Bounded<NodePath, Vec<(u32, Instant)>>>,
}

impl Default for SeenVersions {
    fn default() -> Self {
        Self {
            files: Mutex::new(Bounded::new(MapLimits::entries(MOST))),
            arrays: Mutex::new(Bounded::new(MapLimits::entries(MOST_ARRAYS))),
        }
    }
}

impl SeenVersions {
    /// Notes that programs read this version of a file. A version that does not tell whether the
    /// file changes is of no use.
    pub fn note(&self, place: &Place, by: &Processes, version: Option<Version>) {
        let is_usable = version.is_none_or(|it| it.holds(it) && !it.is_unstored());
        for process in by.known().filter(|_| is_usable).unwrap_or_default() {
            let seen = SeenVersion { process: *process, at: Instant::now(), version };
            self.put_back(place, seen);
        }
    }

    /// Notes again what [`Self::take`] has returned, since its program has not stored the file.
    pub fn put_back(&self, place: &Place, seen: SeenVersion) {
        let mut files = self.files.lock();
        let mut all = files.remove(place).unwrap_or_default();
        all.retain(|known| known.process != seen.process);
        all.push(seen);
        let surplus = all.len().saturating_sub(MOST_PROCESSES);
        all.drain(..surplus);
        drop(files.put(place.clone(), all, 1));
    }

    /// Forgets the programs that have read a file, because this mount changes it: they are as any
    /// two programs on one file.
    pub fn forget(&self, place: &Place) {
        self.files.lock().remove(place);
    }

    /// Notes that a program has opened a view of an array, to read.
    pub fn note_array(&self, path: &NodePath, by: &Processes) {
        for process in by.known().unwrap_or_default() {
            let mut arrays = self.arrays.lock();
            let mut all = arrays.remove(path).unwrap_or_default();
            all.retain(|(known, _)| known != process);
            all.push((*process, Instant::now()));
            let surplus = all.len().saturating_sub(MOST_PROCESSES);
            all.drain(..surplus);
            drop(arrays.put(path.clone(), all, 1));
        }
    }

    /// Whether one of these programs has opened a view of an array, to read, within `time`.
    pub fn has_read_array(&self, path: &NodePath, by: &Processes, time: Duration) -> bool {
        let Some(processes) = by.known() else { return false };
        let mut arrays = self.arrays.lock();
        let all = arrays.get_mut(path).map(|all| &**all).unwrap_or_default();
        all.iter().any(|(process, at)| processes.contains(process) && at.elapsed() < time)
    }

    /// Returns the version that the programs which write a file have read last, within `time`.
    pub fn take(&self, place: &Place, by: &Processes, time: Duration) -> Option<SeenVersion> {
        let processes = by.known()?;
        let mut files = self.files.lock();
        let all = files.get_mut(place)?;
        let is_theirs = |seen: &&SeenVersion| processes.contains(&seen.process);
        let last = all.iter().rev().find(is_theirs).copied();
        all.retain(|seen| !processes.contains(&seen.process));
        last.filter(|seen| seen.at.elapsed() < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Coords;

    #[test]
    fn a_file_is_compared_once_with_what_its_program_has_read_last() {
        let seen = SeenVersions::default();
        let place = Place::Chunk(NodePath::root(), Coords::new([1]));
        let process = |number: u32| {
            let mut processes = Processes::default();
            processes.note(Some(number));
            processes
        };
        let (us, others) = (process(std::process::id()), process(1));
        let version = |number| Some(Version::settled([number; 4]));
        let minute = Duration::from_secs(60);
        let take = |by: &Processes, time| {
            seen.take(&place, by, time).map(|it| it.version.map(Version::state))
        };
        let state = |number| Some([number; 4]);
        assert_eq!(take(&us, minute), None, "it has read nothing");
        seen.note(&place, &us, version(1));
        seen.note(&place, &others, version(1));
        seen.note(&place, &us, version(2));
        assert_eq!(take(&us, minute), Some(state(2)));
        assert_eq!(take(&us, minute), None, "once");
        assert_eq!(take(&others, minute), Some(state(1)), "another program has read it, too");
        seen.note(&place, &us, version(1));
        assert_eq!(take(&us, Duration::ZERO), None, "that was long ago");
        seen.note(&place, &Processes::default(), version(1));
        assert_eq!(take(&Processes::default(), minute), None);
        seen.note(&place, &us, version(1));
        seen.forget(&place);
        assert_eq!(take(&us, minute), None);
    }

    #[test]
    fn an_array_counts_as_read_by_the_program_that_has_opened_a_view_of_it() {
        let (seen, path, minute) = (SeenVersions::default(), NodePath::root(), 60);
        let process = |number: u32| {
            let mut processes = Processes::default();
            processes.note(Some(number));
            processes
        };
        let (us, other) = (process(std::process::id()), process(1));
        let has_read =
            |by: &Processes, time| seen.has_read_array(&path, by, Duration::from_secs(time));
        assert!(!has_read(&us, minute));
        seen.note_array(&path, &us);
        assert!(has_read(&us, minute) && !has_read(&us, 0) && !has_read(&other, minute));
    }
}
