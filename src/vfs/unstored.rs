//! What is not stored yet, for people: by name, and why.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Vfs;
use super::file::Content;
use super::place::Place;
use crate::cache::Due;
use crate::codec::Buffer;
use crate::error::Error;

/// A file that is not stored as it is now.
#[derive(Debug)]
pub struct Unstored {
    /// Its path in the mount.
    pub path: String,
    /// Its bytes: of a chunk the decoded ones.
    pub bytes: Buffer,
    /// Why not, if it was tried.
    pub failure: Option<Error>,
}

impl Vfs {
    /// Every file that is not stored as it is now, by path.
    pub fn unstored(&self) -> Vec<Unstored> {
        let mut all = BTreeMap::new();
        for key in self.cache.due(Due::All) {
            let failure = self.cache.failure(&key);
            let Some((path, chunks)) = self.cache.waiting_for(&key) else { continue };
            for (coords, bytes) in chunks {
                let path = Place::Chunk(path.clone(), coords).shown();
                let failure = failure.clone();
                all.insert(path.clone(), Unstored { path, bytes, failure });
            }
        }
        for inode in self.overlay.files().into_iter().chain(self.open_files()) {
            let Some(place) = inode.place() else { continue };
            if let Content::Unstored(unstored) = &inode.file.lock().content
                && unstored.changed
            {
                let (path, bytes) = (place.shown(), unstored.bytes.clone());
                let failure = unstored.refused.clone();
                all.insert(path.clone(), Unstored { path, bytes, failure });
            }
        }
        all.into_values().collect()
    }

    /// What `.zarrfs/unstored` shows: a line for each, its path, then the reason after a tab if it was tried.
    pub(super) fn unstored_text(&self) -> String {
        let mut text = String::new();
        for Unstored { path, failure, .. } in self.unstored() {
            let reason = failure.map_or_else(String::new, |error| format!("\t{}", error.detail()));
            // Writing to a string does not fail.
            let _never = writeln!(text, "{path}{reason}");
        }
        text
    }
}
