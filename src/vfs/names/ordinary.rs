//! Ordinary files and directories, which the store keeps as they are.

use super::Names;
use super::place::{CHUNKS, DirEntries, Place};
use crate::error::Result;
use crate::metadata::NodePath;
use crate::store::Entry;

impl Names {
    /// Whether the store has ordinary files in a directory.
    pub fn holds_ordinary(&self, place: &Place) -> Result<bool> {
        let (Place::ChunkDir(path, _) | Place::OrdinaryDir(path, _)) = place else {
            return Ok(false);
        };
        Ok(self.ordinary_entries(path, place)?.next().transpose()?.is_some())
    }

    /// Lists the ordinary files and directories beside a node, in the directory `place`.
    pub fn ordinary_entries(&self, path: &NodePath, place: &Place) -> Result<DirEntries> {
        let Some(list) = self.core.hierarchy.store().list() else {
            return Ok(Box::new(std::iter::empty()));
        };
        let relative = place.relative();
        let prefix = self.core.hierarchy.ordinary_prefix(path)?.join(&relative)?;
        let dialect = self.core.hierarchy.dialect_of(path).clone();
        let array = self.core.hierarchy.node(path)?.and_then(|node| node.array().cloned());
        let path = path.clone();
        let entries = list.list_dir(&prefix)?;
        Ok(Box::new(entries.filter_map(move |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let name = entry.name().to_owned();
            let below =
                if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let is_chunks = array
                .as_ref()
                .is_some_and(|array| name == CHUNKS && relative.is_empty() || array.owns(&below));
            if is_chunks || dialect.is_reserved(&path, &below) {
                return None;
            }
            let place = match entry {
                Entry::Key(_) => Place::Ordinary(path.clone(), below),
                Entry::Prefix(_) => Place::OrdinaryDir(path.clone(), below),
            };
            Some(Ok((name, place)))
        })))
    }
}
