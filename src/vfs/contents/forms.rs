//! Switches the chunk files of arrays between decoded and encoded chunks.

use std::sync::Arc;

use super::Contents;
use crate::cache::Due;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Bounds, Node};
use crate::metadata::NodePath;
use crate::metadata::model::Levels;
use crate::metadata::shown::{EncodedChunks, ShownChunks};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;

/// The form of chunk files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Elements.
    Decoded,
    /// The bytes that the codecs of the array made of them.
    Stored,
}

impl Shown {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decoded => "decoded",
            Self::Stored => "stored",
        }
    }

    fn parse(value: &[u8]) -> Result<Self> {
        let all = [Self::Decoded, Self::Stored];
        let found = all.into_iter().find(|shown| shown.name().as_bytes() == value);
        found.ok_or_else(|| Error::invalid("it must be `decoded` or `stored`"))
    }
}

impl Contents {
    /// Has the chunk files of an array, or of all arrays below a group, show what `value` says.
    /// [`Kind::Busy`] if one of these files or of the metadata files is open.
    pub fn show_chunks(&self, path: &NodePath, value: &[u8]) -> Result<()> {
        let shown = Shown::parse(value)?;
        let _alone = self.core.alone()?;
        self.chunks.store_shards(Due::Below(path))?;
        let mut arrays = Vec::new();
        let node = self.core.hierarchy.existing(path)?;
        let below = self.core.hierarchy.walk_below(path, Bounds::COPIES);
        for node in std::iter::once(Ok(node)).chain(below) {
            let node = node?;
            let Some(array) = node.array() else { continue };
            let forms = &self.core.hierarchy.forms;
            let is_encoded = forms.encoded_chunks(node.path(), array.model()).is_some();
            if is_encoded != (shown == Shown::Stored) {
                arrays.push((node.path().clone(), Self::chunks_shown(&node, shown)?));
            }
        }
        let inodes: Vec<_> = arrays.iter().map(|(path, _)| self.inodes_in(path)).collect();
        for inode in inodes.iter().flatten() {
            if inode.known_file().is_some_and(|file| file.lock().openers > 0) {
                let place = inode.place().map(|place| place.shown()).unwrap_or_default();
                return Err(Error::new(Kind::Busy, "a program has this file open").at(place));
            }
        }
        for (path, chunks) in arrays {
            self.core.hierarchy.forms.change(&path, |form| form.encoded = chunks);
            self.core.hierarchy.invalidate(&path);
            // A program that asks for another form knows it.
            self.names.seen_texts.forget_below(&path);
        }
        for inode in inodes.iter().flatten() {
            if let Some(file) = inode.known_file() {
                file.lock().seen = None;
            }
            self.core.invalidate(inode.number());
        }
        Ok(())
    }

    fn chunks_shown(node: &Node, shown: Shown) -> Result<Option<Arc<EncodedChunks>>> {
        let Some(array) = node.array().filter(|_| shown == Shown::Stored) else { return Ok(None) };
        let has_headers = |codec: &crate::codec::CodecSpec| codec.name == "n5_default";
        if array.model().codecs.iter().any(has_headers) {
            let detail = "no metadata of Zarr 3 can describe the chunks of N5";
            return Err(Error::unsupported(detail).at(node.path()));
        }
        let shown = ShownChunks::encoded(array.model());
        Ok(Some(Arc::new(EncodedChunks::of(array.model(), Levels::Maker, shown))))
    }

    /// Returns the inodes of the metadata file and the chunks of an array.
    fn inodes_in(&self, path: &NodePath) -> Vec<Arc<Inode>> {
        let is_in = |inode: &Arc<Inode>| {
            inode.place().is_some_and(|place| match place {
                Place::Document(at) | Place::Chunk(at, _) => at == *path,
                _ => false,
            })
        };
        self.names.inodes.below(path).into_iter().filter(is_in).collect()
    }
}
