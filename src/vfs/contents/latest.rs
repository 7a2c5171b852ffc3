//! The chunks that programs stored lately, and which program stored each.
//!
//! A program that copies an array may bring its chunks before the metadata file, which says how
//! they are encoded. If it then turns out that they are encoded in another way than they were
//! taken, what this program has stored is taken again (`mirrored`). Only chunks whose files differ
//! between the two are remembered. A chunk that is not remembered any more counts as that of a
//! program that is not known, so a metadata file is refused rather than chunks are misread.
//!
//! A program that goes on after its metadata file of another array was refused would store chunks
//! of that other array. So for a minute none of its chunks is stored there. A program that removes
//! an array goes on after the first file that it may not remove, because another program has
//! replaced or changed the array: for a minute it removes nothing else there, unless it reads the
//! metadata file. Which programs know an array as it is, is remembered too, so that their chunks
//! are compared with it only once.
//!
//! A chunk is compared with the metadata file that its program has read
//! (`ChunkWriter::check_seen`), not only with the one that the mount knows: the mount learns of
//! another array by the first chunk that it refuses, or a second later, and the program goes on
//! with the chunks of the old one. A pair of a program and an array is compared once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::{ArrayId, Coords};
use crate::bounded::{Bounded, MapLimits};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::vfs::authors::{Processes, Thread};
use crate::width::ToU64;

/// How long the author of a chunk matters if it is another program.
const RECENT: Duration = Duration::from_secs(60);

/// The most chunks of one array that are known.
const MOST: usize = 1 << 12;

/// The most arrays whose metadata file was refused a moment ago.
const MOST_REFUSED: usize = 1 << 10;

/// The most pairs of a process and an array that it knows.
const MOST_SEEN: usize = 1 << 12;

/// The most bytes of all that is known.
const MAX_LEN: u64 = 8 << 20;

/// The memory of a chunk, in bytes.
const CHUNK_LEN: usize = 128;

/// What an array takes besides its chunks, in bytes.
const ARRAY_LEN: usize = 256;

/// The chunks of one array.
#[derive(Debug, Default)]
struct LatestChunks {
    /// The process that stored each chunk; `None` if that is not known.
    chunks: HashMap<Coords, Option<u32>>,
    /// When a chunk was stored that is not in `chunks` any more.
    dropped: Option<Instant>,
    /// When the last chunk of each process was stored.
    last: HashMap<Option<u32>, Instant>,
}

/// The chunks that programs stored lately.
#[derive(Debug)]
pub struct Latest {
    /// A leaf lock.
    known: Mutex<LatestState>,
}

#[derive(Debug)]
struct LatestState {
    arrays: Bounded<NodePath, LatestChunks>,
    /// The process whose metadata file of an array was refused last, and when that was.
    refused: Vec<(NodePath, u32, Instant)>,
    /// The processes that were refused a removal in a node, and when that was.
    kept: Vec<(NodePath, u32, Instant)>,
    /// When a whole array was dropped.
    dropped: Option<Instant>,
    /// The processes that know an array as it is.
    seen: Bounded<(u32, ArrayId), ()>,
}

impl Default for Latest {
    fn default() -> Self {
        let arrays = Bounded::new(MapLimits::bytes(MAX_LEN));
        let seen = Bounded::new(MapLimits::entries(MOST_SEEN));
        let (refused, kept) = (Vec::new(), Vec::new());
        Self { known: Mutex::new(LatestState { arrays, refused, kept, dropped: None, seen }) }
    }
}

/// The chunks of an array that were stored before its metadata file.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// These, by the program that writes the metadata file, in the order of their coordinates.
    Ours(Vec<Coords>),
    /// A program that is not known, or another one, has stored one a moment ago.
    Others,
}

/// Returns the one process of `by`; `None` if there are several, or it is not known.
fn only(by: &Processes) -> Option<u32> {
    match by.known() {
        Some([process]) => Some(*process),
        _ => None,
    }
}

impl Latest {
    /// Records that these programs have stored a chunk.
    pub fn note(&self, path: &NodePath, coords: &Coords, by: &Processes) {
        let (process, now) = (only(by), Instant::now());
        let mut guard = self.known.lock();
        let known = &mut *guard;
        if !known.arrays.contains(path) {
            drop(known.arrays.put(path.clone(), LatestChunks::default(), 0));
        }
        let Some(stored) = known.arrays.get_mut(path) else { return };
        if stored.chunks.len() >= MOST || stored.last.len() >= MOST {
            *stored = LatestChunks { dropped: Some(now), ..LatestChunks::default() };
        }
        stored.chunks.insert(coords.clone(), process);
        stored.last.insert(process, now);
        let count = stored.chunks.len().saturating_add(stored.last.len());
        let len = count.saturating_mul(CHUNK_LEN).saturating_add(ARRAY_LEN);
        let evicted = known.arrays.set_len(path, len.to_u64());
        if !evicted.is_empty() {
            known.dropped = Some(now);
        }
        drop(guard);
        drop(evicted); // Freeing memory takes time: not under the lock.
    }

    /// Records that a metadata file by these programs, which describes another array than the one
    /// at `path`, was refused.
    pub fn note_refused(&self, path: &NodePath, by: &Processes) {
        let Some(process) = only(by) else { return };
        let mut known = self.known.lock();
        known.refused.retain(|(at, _, since)| at != path && since.elapsed() < RECENT);
        if known.refused.len() < MOST_REFUSED {
            known.refused.push((path.clone(), process, Instant::now()));
        }
    }

    /// Fails if the metadata file that these programs wrote for an array was refused a moment ago.
    pub fn check_accepted(&self, path: &NodePath, by: &Processes) -> Result<()> {
        let known = self.known.lock();
        let is_refused = |(at, process, since): &(NodePath, u32, Instant)| {
            at == path && only(by) == Some(*process) && since.elapsed() < RECENT
        };
        if !known.refused.iter().any(is_refused) {
            return Ok(());
        }
        Err(Error::invalid(
            "this program has just written the metadata file of another array, which was refused: \
             nothing was stored; write the metadata file of the array that is here first",
        ))
    }

    /// Records that these programs were refused a removal in the node at `path`.
    pub fn note_kept(&self, path: &NodePath, by: &Processes) {
        let Some(process) = only(by) else { return };
        let mut known = self.known.lock();
        known.kept.retain(|(_, _, since)| since.elapsed() < RECENT);
        if known.kept.len() < MOST_REFUSED {
            known.kept.push((path.clone(), process, Instant::now()));
        }
    }

    /// Records that a program has read the metadata file of the node at `path`.
    pub fn note_looked(&self, path: &NodePath, by: Thread) {
        if self.known.lock().kept.is_empty() {
            return;
        }
        let mut program = Processes::default();
        program.note(by);
        let process = only(&program);
        self.known.lock().kept.retain(|(at, other, _)| at != path || Some(*other) != process);
    }

    /// Fails if a program was refused a removal in the node at `path` a moment ago.
    pub fn check_removable(&self, path: &NodePath, by: Thread) -> Result<()> {
        if self.known.lock().kept.is_empty() {
            return Ok(());
        }
        let mut program = Processes::default();
        program.note(by);
        let is_kept = |(at, process, since): &(NodePath, u32, Instant)| {
            at == path && only(&program) == Some(*process) && since.elapsed() < RECENT
        };
        if !self.known.lock().kept.iter().any(is_kept) {
            return Ok(());
        }
        let detail = "another program has changed or replaced the node: this one removes nothing \
                      here until it has read the metadata file again, or a minute has passed";
        Err(Error::new(Kind::Busy, detail))
    }

    /// Whether these programs are known to have seen the metadata of an array as it is.
    pub fn has_seen(&self, by: &Processes, array: ArrayId) -> bool {
        only(by).is_some_and(|process| self.known.lock().seen.get(&(process, array)).is_some())
    }

    /// Records that these programs have seen the metadata of an array as it is.
    pub fn note_seen(&self, by: &Processes, array: ArrayId) {
        if let Some(process) = only(by) {
            drop(self.known.lock().seen.put((process, array), (), 1));
        }
    }

    /// Returns the chunks of an array that `by`, which write its metadata file, have stored before.
    pub fn before(&self, path: &NodePath, by: &Processes) -> Before {
        let is_recent = |at: &Instant| at.elapsed() < RECENT;
        let known = self.known.lock();
        let Some(stored) = known.arrays.peek(path) else {
            let may_be_dropped = known.dropped.as_ref().is_some_and(is_recent);
            return if may_be_dropped { Before::Others } else { Before::Ours(Vec::new()) };
        };
        let process = only(by);
        let is_ours = |other: &Option<u32>| other.is_some() && *other == process;
        let others = stored.last.iter().filter(|(other, _)| !is_ours(other)).map(|(_, at)| at);
        if others.chain(&stored.dropped).any(is_recent) {
            return Before::Others;
        }
        let ours = stored.chunks.iter().filter(|(_, other)| is_ours(other));
        let mut ours: Vec<Coords> = ours.map(|(coords, _)| coords.clone()).collect();
        drop(known);
        ours.sort_by(|one, other| one.indices().cmp(other.indices()));
        Before::Ours(ours)
    }

    /// Forgets the chunks of the arrays at and below `path`.
    pub fn forget_below(&self, path: &NodePath) {
        let mut known = self.known.lock();
        known.arrays.retain(|at, _| at.relative_to(path).is_none());
        known.refused.retain(|(at, ..)| at.relative_to(path).is_none());
        known.kept.retain(|(at, ..)| at.relative_to(path).is_none());
    }

    /// Forgets the chunks of an array.
    pub fn forget(&self, path: &NodePath) {
        let mut known = self.known.lock();
        known.arrays.remove(path);
        known.refused.retain(|(at, ..)| at != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: u32) -> Processes {
        let mut processes = Processes::default();
        processes.note(Some(number));
        processes
    }

    #[test]
    fn only_the_program_that_stored_the_chunks_takes_them_again() {
        let (latest, path) = (Latest::default(), NodePath::parse("a").expect("a path"));
        let (us, others) = (process(std::process::id()), Processes::default());
        assert_eq!(latest.before(&path, &us), Before::Ours(Vec::new()));
        for index in [2, 1] {
            latest.note(&path, &Coords::new(vec![index]), &us);
        }
        let ours = vec![Coords::new(vec![1]), Coords::new(vec![2])];
        assert_eq!(latest.before(&path, &us), Before::Ours(ours));
        assert_eq!(latest.before(&path, &others), Before::Others);
        latest.note(&path, &Coords::new(vec![3]), &others);
        assert_eq!(latest.before(&path, &us), Before::Others);
        latest.forget(&path);
        assert_eq!(latest.before(&path, &others), Before::Ours(Vec::new()));
    }

    #[test]
    fn a_program_whose_metadata_file_was_refused_stores_no_chunks_there() {
        let (latest, path) = (Latest::default(), NodePath::parse("g/a").expect("a path"));
        let us = process(std::process::id());
        assert!(latest.check_accepted(&path, &us).is_ok());
        latest.note_refused(&path, &us);
        assert!(latest.check_accepted(&path, &us).is_err());
        assert!(latest.check_accepted(&path, &Processes::default()).is_ok(), "somebody else");
        let other = NodePath::parse("g/b").expect("a path");
        assert!(latest.check_accepted(&other, &us).is_ok());
        latest.forget_below(&NodePath::parse("g").expect("a path"));
        assert!(latest.check_accepted(&path, &us).is_ok());
        latest.note_refused(&path, &us);
        latest.forget(&path);
        assert!(latest.check_accepted(&path, &us).is_ok());
    }

    #[test]
    fn a_program_that_was_refused_a_removal_removes_nothing_there_until_it_looks() {
        let (latest, path) = (Latest::default(), NodePath::parse("g/a").expect("a path"));
        let own = Some(std::process::id());
        let is_removable = |by| latest.check_removable(&path, by).is_ok();
        latest.note_kept(&path, &process(std::process::id()));
        assert!(!is_removable(own) && is_removable(None));
        let other = NodePath::parse("g/b").expect("a path");
        assert!(latest.check_removable(&other, own).is_ok());
        latest.note_looked(&other, own);
        latest.note_looked(&path, None);
        assert!(!is_removable(own));
        latest.note_looked(&path, own);
        assert!(is_removable(own));
    }

    #[test]
    fn chunks_that_are_too_many_to_know_count_as_those_of_others() {
        let (latest, us) = (Latest::default(), process(std::process::id()));
        let path = NodePath::parse("a").expect("a path");
        for index in 0..=u64::try_from(MOST).expect("a number") {
            latest.note(&path, &Coords::new(vec![index]), &us);
        }
        assert_eq!(latest.before(&path, &us), Before::Others);
        let latest = Latest::default();
        let arrays = MAX_LEN / 256;
        for index in 0..arrays {
            let path = NodePath::parse(&format!("a{index}")).expect("a path");
            latest.note(&path, &Coords::new(vec![0]), &us);
        }
        assert_eq!(latest.before(&NodePath::parse("a0").expect("a path"), &us), Before::Others);
    }
}
