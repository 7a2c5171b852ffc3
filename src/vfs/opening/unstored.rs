//! Reports the unstored files and directories.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::reports::Reports;
use crate::budget::Purpose;
use crate::buffer::Buffer;
use crate::cache::Due;
use crate::error::{Error, Kind, Result};
use crate::printable::escaped_json;
use crate::vfs::inodes::file::BytesAt;
use crate::vfs::inodes::held::HeldBytes;
use crate::vfs::inodes::place::Place;

/// A file or directory with an unstored change.
#[derive(Debug)]
pub struct Unstored {
    /// Its path in the mount.
    pub path: String,
    /// The change.
    pub change: UnstoredChange,
    /// The error of the last attempt to store it.
    pub failure: Option<Error>,
}

/// An unstored change.
#[derive(Debug)]
pub enum UnstoredChange {
    /// A file has these bytes; those of a chunk are decoded.
    Bytes(HeldBytes),
    /// A file was removed here but is still in the store.
    Removed,
    /// A new directory, which becomes a group.
    Directory,
}

impl Unstored {
    /// Returns its path, the error of the last attempt, and whether it was removed or is a
    /// directory.
    fn line(&self) -> Value {
        let mut line = json!({"path": self.path});
        if let Some(error) = &self.failure {
            line["reason"] = error.detail().into();
        }
        match self.change {
            UnstoredChange::Bytes(_) => {}
            UnstoredChange::Removed => line["removed"] = true.into(),
            UnstoredChange::Directory => line["directory"] = true.into(),
        }
        line
    }
}

impl Reports {
    /// Returns all files and directories with unstored changes, by path.
    pub fn unstored(&self) -> Vec<Unstored> {
        let mut all = BTreeMap::new();
        for (path, failure) in self.core.hierarchy.directories.unstored() {
            let attributes = self.names.zarr2.early_attributes.lock().get(&path).cloned();
            if let Some(text) = attributes {
                let path = Place::Attributes(path.clone()).shown();
                let bytes = Buffer::from(text.into_bytes());
                let (change, failure) = (UnstoredChange::Bytes(bytes.into()), failure.clone());
                all.insert(path.clone(), Unstored { path, change, failure });
            }
            let path = Place::Node(path).shown();
            all.insert(path.clone(), Unstored { path, change: UnstoredChange::Directory, failure });
        }
        for key in self.core.cache.due(Due::All) {
            let failure = self.core.cache.failure(&key);
            // Partially written chunks whose other bytes cannot be read.
            let pending = self.core.cache.pending_array(&key);
            let array = pending.and_then(|(path, written)| {
                let now = self.core.array_in(&path, written.encoded_levels()).ok();
                now.filter(|now| now.has_chunks_of(&written))
            });
            let unread = array.map(|array| self.core.cache.complete_all(&array, &key));
            let mut unread: HashMap<_, _> = unread.unwrap_or_default().into_iter().collect();
            let Some((path, chunks)) = self.core.cache.pending_in_value(&key) else { continue };
            for (coords, bytes) in chunks {
                let failure = unread.remove(&coords).or_else(|| failure.clone());
                let path = Place::Chunk(path.clone(), coords).shown();
                let change = bytes
                    .map_or(UnstoredChange::Removed, |bytes| UnstoredChange::Bytes(bytes.into()));
                all.insert(path.clone(), Unstored { path, change, failure });
            }
        }
        for inode in self.names.overlay.files().into_iter().chain(self.handles.written_files()) {
            let Some(place) = inode.place() else { continue };
            if let BytesAt::Unstored(unstored) = &inode.file().lock().content
                && unstored.changed
            {
                let (path, change) = (place.shown(), UnstoredChange::Bytes(unstored.bytes.clone()));
                let failure = unstored.refused.clone();
                all.insert(path.clone(), Unstored { path, change, failure });
            }
        }
        all.into_values().collect()
    }

    /// Returns the text of `.zarrfs/unstored`: a JSON object in a line for each file or
    /// directory, with its path, the error of the last attempt, and whether it was removed or is a
    /// directory.
    pub fn unstored_text(&self) -> String {
        let lines = self.unstored();
        let text = |file: &Unstored| format!("{}\n", escaped_json(&file.line().to_string()));
        let lines: Vec<String> = lines.iter().map(text).collect();
        lines.concat()
    }

    /// Returns the contents of `.zarrfs/unstored-bytes`: like `.zarrfs/unstored`, with each line
    /// followed by as many bytes of the file as it says. They do not come from values of the store.
    pub fn unstored_bytes(&self) -> Result<Vec<u8>> {
        let mut made = Vec::new();
        for file in self.unstored() {
            let bytes = match &file.change {
                UnstoredChange::Bytes(bytes) => {
                    bytes.to_buffer(self.core.budget.limit(Purpose::Unstored))?
                }
                UnstoredChange::Removed | UnstoredChange::Directory => Vec::new().into(),
            };
            let mut line = file.line();
            line["len"] = bytes.len().into();
            let line = format!("{line}\n");
            made.try_reserve(line.len().saturating_add(bytes.len())).map_err(|_| no_memory())?;
            made.extend_from_slice(line.as_bytes());
            made.extend_from_slice(&bytes);
        }
        Ok(made)
    }
}

fn no_memory() -> Error {
    Error::new(Kind::NoMemory, "not enough memory for the unstored files")
}
