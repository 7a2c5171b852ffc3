//! The chunks that programs stored lately, and who.
//!
//! A program that copies an array may bring its chunks before the metadata file, which says how
//! they are encoded. If it then turns out that they are encoded in another way than they were
//! taken, what this program has stored is taken again (`mirrored`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::Coords;
use crate::metadata::NodePath;
use crate::sys;
use crate::vfs::authors::Thread;

/// How long the author of a chunk matters if its program has ended.
const RECENT: Duration = Duration::from_secs(60);

/// The most chunks that are known.
const MOST: usize = 1 << 20;

/// The author of a chunk.
#[derive(Debug, Clone, Copy)]
struct Stored {
    by: Thread,
    at: Instant,
}

/// The chunks that programs stored lately.
#[derive(Debug, Default)]
pub struct Latest {
    /// A leaf lock.
    known: Mutex<HashMap<NodePath, HashMap<Coords, Stored>>>,
}

/// Who stored a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The program in question.
    Same,
    /// A program that has ended, or one that the kernel does not name.
    Unknown,
}

impl Latest {
    /// Records that a thread has stored a chunk.
    pub fn note(&self, path: &NodePath, coords: &Coords, by: Thread) {
        let mut known = self.known.lock();
        if !known.contains_key(path) {
            known.insert(path.clone(), HashMap::new());
        }
        if let Some(chunks) = known.get_mut(path) {
            let now = Instant::now();
            if chunks.len() >= MOST {
                chunks.retain(|_, stored| now.duration_since(stored.at) < RECENT);
            }
            chunks.insert(coords.clone(), Stored { by, at: now });
        }
    }

    /// Takes the chunks of an array that the program of the thread `by` has stored, or that a
    /// program that has ended since has stored lately. Forgets those of others.
    pub fn take(&self, path: &NodePath, by: Thread) -> Vec<(Coords, Author)> {
        let Some(chunks) = self.known.lock().remove(path) else { return Vec::new() };
        let program = by.and_then(sys::process_of);
        let mut programs: HashMap<u32, Option<u32>> = HashMap::new();
        let mut of =
            |thread: u32| *programs.entry(thread).or_insert_with(|| sys::process_of(thread));
        let author = |(coords, stored): (Coords, Stored)| {
            let of_chunk = stored.by.and_then(&mut of);
            let author = match (of_chunk, program) {
                (Some(one), Some(other)) if one == other => Some(Author::Same),
                (Some(_), Some(_)) => None,
                _ => (stored.at.elapsed() < RECENT).then_some(Author::Unknown),
            };
            author.map(|author| (coords, author))
        };
        let mut found: Vec<_> = chunks.into_iter().filter_map(author).collect();
        found.sort_by(|(one, _), (other, _)| one.indices().cmp(other.indices()));
        found
    }

    /// Forgets the chunks of an array.
    pub fn forget(&self, path: &NodePath) {
        self.known.lock().remove(path);
    }
}
