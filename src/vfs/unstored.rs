//! What is not stored yet, for people: by name, and why.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use super::Vfs;
use super::file::Content;
use super::place::Place;
use crate::buffer::Buffer;
use crate::cache::Due;
use crate::error::Error;

/// A file that is not stored as it is now.
#[derive(Debug)]
pub struct Unstored {
    /// Its path in the mount.
    pub path: String,
    /// Its bytes: of a chunk the decoded ones; none where it was removed, and the store has it still.
    pub bytes: Option<Buffer>,
    /// Why not, if it was tried.
    pub failure: Option<Error>,
}

impl Vfs {
    /// Every file that is not stored as it is now, by path.
    pub fn unstored(&self) -> Vec<Unstored> {
        let mut all = BTreeMap::new();
        for key in self.cache.due(Due::All) {
            let failure = self.cache.failure(&key);
            // Those of which a part was written, and the rest cannot be read.
            let array = self.cache.waiting_in(&key).and_then(|path| self.array(&path).ok());
            let unread = array.map(|array| self.cache.complete_all(&array, &key));
            let mut unread: HashMap<_, _> = unread.unwrap_or_default().into_iter().collect();
            let Some((path, chunks)) = self.cache.waiting_for(&key) else { continue };
            for (coords, bytes) in chunks {
                let failure = unread.remove(&coords).or_else(|| failure.clone());
                let path = Place::Chunk(path.clone(), coords).shown();
                all.insert(path.clone(), Unstored { path, bytes, failure });
            }
        }
        for inode in self.overlay.files().into_iter().chain(self.open_files()) {
            let Some(place) = inode.place() else { continue };
            if let Content::Unstored(unstored) = &inode.file().lock().content
                && unstored.changed
            {
                let (path, bytes) = (place.shown(), Some(unstored.bytes.clone()));
                let failure = unstored.refused.clone();
                all.insert(path.clone(), Unstored { path, bytes, failure });
            }
        }
        all.into_values().collect()
    }

    /// What `.zarrfs/unstored` shows: a line for each, a JSON object of its path, of the reason if it was tried, and of
    /// whether it was removed.
    pub(super) fn unstored_text(&self) -> String {
        let mut text = String::new();
        for Unstored { path, failure, bytes } in self.unstored() {
            let mut line = serde_json::json!({"path": path});
            if let Some(error) = failure {
                line["reason"] = error.detail().into();
            }
            if bytes.is_none() {
                line["removed"] = true.into();
            }
            // Writing to a string does not fail.
            let _never = writeln!(text, "{line}");
        }
        text
    }
}
