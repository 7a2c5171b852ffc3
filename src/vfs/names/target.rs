//! The target of a request: a place, with the array of its chunk looked up once.

use super::Names;
use super::file::{Content, File, OpenedAs};
use super::inode::Inode;
use super::place::Place;
use crate::array::{ArrayId, ChunkRef};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;

/// A place. If it is a chunk, the array that is there now belongs to it.
#[derive(Debug, Clone)]
pub struct Target {
    pub place: Place,
    chunk: Option<ChunkRef>,
}

impl Target {
    /// Returns its path in the mount, for messages.
    pub fn shown(&self) -> String {
        self.place.shown()
    }

    /// Returns the chunk that it is, with the path of the array.
    pub fn chunk(&self) -> Option<(&NodePath, &ChunkRef)> {
        self.place.node().zip(self.chunk.as_ref())
    }

    /// Returns the number of the array that it is a chunk of.
    pub fn array_id(&self) -> Option<ArrayId> {
        self.chunk.as_ref().map(|chunk| chunk.array.id())
    }
}

impl Names {
    /// Looks up what a place is now.
    pub fn target(&self, place: Place) -> Result<Target> {
        let chunk = match &place {
            Place::Chunk(path, coords) => {
                Some(ChunkRef::new(&self.core.shown_array_at(path, coords.indices())?, coords))
            }
            _ => None,
        };
        Ok(Target { place, chunk })
    }

    /// Looks up what a locked file is now; `None` if it has no name. Fails if the array of an open
    /// chunk was replaced by another one.
    pub fn target_of(&self, inode: &Inode, file: &File) -> Result<Option<Target>> {
        let opened = match &file.opened {
            Some(OpenedAs::Chunk(opened))
                if !matches!(file.content, Content::Detached(_) | Content::Open(_)) =>
            {
                Some(opened)
            }
            _ => None,
        };
        let Some(place) = inode.place() else {
            let is_replaced = opened.is_some() && inode.was_renewed();
            return if is_replaced { Err(replaced()) } else { Ok(None) };
        };
        let target = self.target(place)?;
        match (opened, &target.chunk) {
            (Some(opened), Some(chunk)) if !chunk.array.has_chunks_of(opened) => Err(replaced()),
            _ => Ok(Some(target)),
        }
    }
}

/// Returns the error for an open chunk of a replaced array.
fn replaced() -> Error {
    let detail = "another program replaced the array after the chunk was opened: open it again";
    Error::new(Kind::Stale, detail)
}
