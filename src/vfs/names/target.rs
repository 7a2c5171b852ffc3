//! The target of a request: a place, with the array of its chunk looked up once.

use super::Names;
use crate::array::{ArrayId, ChunkRef};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::NodePath;
use crate::vfs::inodes::file::{BytesAt, InodeFile, OpenedAs};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;

/// A place. If it is a chunk, the array that is there now belongs to it.
#[derive(Debug, Clone)]
pub struct CurrentPlace {
    pub place: Place,
    /// If the chunk lies outside of the array, the array of `chunk` reaches it where it can.
    chunk: Option<ChunkRef>,
    /// How many chunks the array has along its dimensions, if the chunk lies outside of it.
    outside_of: Option<Vec<u64>>,
}

impl CurrentPlace {
    /// Returns its path in the mount, for messages.
    pub fn shown(&self) -> String {
        self.place.shown()
    }

    /// Returns the chunk that it is, with the path of the array.
    pub fn chunk(&self) -> Option<(&NodePath, &ChunkRef)> {
        self.place.node().zip(self.chunk.as_ref())
    }

    /// Returns why it waits for another metadata file: it is the chunk of a grid that the array
    /// does not have yet. `None` if it does not wait.
    pub fn waits(&self) -> Option<Error> {
        let counts = self.outside_of.as_ref()?;
        let detail = format!(
            "no such chunk: the array has {counts:?} chunks along its dimensions. It waits in memory \
             for a zarr.json with a larger shape"
        );
        Some(Error::invalid(detail).at(self.shown()))
    }

    /// Returns the number of the array that it is a chunk of.
    pub fn array_id(&self) -> Option<ArrayId> {
        self.chunk.as_ref().map(|chunk| chunk.array.id())
    }
}

impl Names {
    /// Looks up what a place is now.
    pub fn target(&self, place: Place) -> Result<CurrentPlace> {
        let Place::Chunk(path, coords) = &place else {
            return Ok(CurrentPlace { place, chunk: None, outside_of: None });
        };
        let array = self.core.shown_array(path)?;
        let grid = array.grid();
        let outside_of = (!grid.contains(coords)).then(|| grid.counts().to_vec());
        let reaching = outside_of.as_ref().and_then(|_| array.reaching(coords.indices()));
        let chunk = ChunkRef::new(reaching.as_ref().unwrap_or(&array), coords);
        Ok(CurrentPlace { chunk: Some(chunk), place, outside_of })
    }

    /// Looks up what a locked file is now; `None` if it has no name. Fails if the array of an open
    /// chunk was replaced by another one.
    pub fn target_of(&self, inode: &Inode, file: &InodeFile) -> Result<Option<CurrentPlace>> {
        let opened = match &file.opened {
            Some(OpenedAs::Chunk(opened))
                if !matches!(file.content, BytesAt::Detached(_) | BytesAt::Open(_)) =>
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
