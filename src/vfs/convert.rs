//! A directory becomes an array: what lies below it with the name of a chunk goes through the pipeline.
//!
//! `cp -r` and `tar` may bring chunks before the document. The chunks are encoded aside and
//! moved to their keys when all of them are, so that whatever fails nothing has changed.

use std::sync::Arc;
use std::time::SystemTime;

use super::Vfs;
use super::commit::When;
use super::documents::is_plain_group;
use super::file::Content;
use super::inode::Inode;
use super::overlay::Shown;
use super::place::{CHUNKS, Place};
use crate::array::{Array, Coords};
use crate::codec::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::store::Key;

/// Decoded bytes that are encoded at a time.
const BATCH_LEN: usize = 256 << 20;

/// What lies below a directory that becomes an array.
#[derive(Default)]
pub(super) struct Below {
    /// Directories, by what they become.
    dirs: Vec<Place>,
    /// Groups that say nothing: what directories have become whose maker took its time.
    pub(super) groups: Vec<NodePath>,
    chunks: Vec<NewChunk>,
}

/// A file with the name of a chunk.
struct NewChunk {
    from: Place,
    coords: Coords,
    inode: Arc<Inode>,
    /// When it was modified, as it was when it was encoded; none where somebody is still writing it.
    encoded: Option<SystemTime>,
}

impl Vfs {
    /// What lies below `path`, which is to become `array`; an error where it cannot be in one.
    pub(super) fn below_new_array(&self, path: &NodePath, array: &Array) -> Result<Below> {
        let mut below = Below::default();
        self.collect_below(&Place::Node(path.clone()), path, array, &mut below)?;
        below.chunks.sort_by(|one, other| one.coords.indices().cmp(other.coords.indices()));
        Ok(below)
    }

    fn collect_below(
        &self,
        directory: &Place,
        path: &NodePath,
        array: &Array,
        below: &mut Below,
    ) -> Result<()> {
        for found in self.entries(directory)? {
            let (_, place) = found?;
            let outside = |what: &str| {
                let counts = array.grid().counts();
                let detail = format!(
                    "{what}: the array has {counts:?} chunks along its dimensions; remove it first"
                );
                Err(Error::invalid(detail).at(place.shown()))
            };
            match &place {
                Place::Document(own) if own == path || below.groups.contains(own) => continue,
                Place::Control => continue,
                Place::Node(child) => {
                    let Some(node) = self.hierarchy.node(child)? else { continue };
                    if is_plain_group(&node) {
                        below.groups.push(child.clone());
                    } else if !node.is_bare() || node.kind() == NodeKind::Array {
                        let detail = "a node lies here: an array has none below it";
                        return Err(Error::invalid(detail).at(place.shown()));
                    }
                }
                Place::Ordinary(..) => {}
                _ => {
                    let detail = "it lies where an array is to be made; remove it first";
                    return Err(Error::invalid(detail).at(place.shown()));
                }
            }
            let grid = array.grid();
            match place.in_array(path) {
                Some(Place::ChunkDir(_, indices))
                    if indices.len() >= grid.rank() || !grid.contains_prefix(&indices) =>
                {
                    return outside("no chunks go below this directory");
                }
                Some(Place::Chunk(_, coords)) if !grid.contains(&coords) => {
                    return outside("not a chunk of the array");
                }
                Some(Place::Chunk(_, coords)) => {
                    let inode = self.inodes.at(&place);
                    below.chunks.push(NewChunk { from: place, coords, inode, encoded: None });
                }
                Some(Place::Ordinary(_, relative))
                    if relative == CHUNKS || array.owns(&relative) =>
                {
                    return outside("the store has chunks under this name");
                }
                Some(new @ (Place::ChunkDir(..) | Place::OrdinaryDir(..))) => {
                    below.dirs.push(new);
                    self.collect_below(&place, path, array, below)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Stores the chunks that lie below as chunks of `array`, which has no document yet.
    pub(super) fn encode_below(&self, below: &mut Below, array: &Array) -> Result<()> {
        if below.chunks.iter().all(|chunk| chunk.inode.file.lock().writers > 0) {
            return Ok(());
        }
        let aside = self.hierarchy.aside()?;
        let new = self.hierarchy.bind_aside(array, aside.clone())?;
        let write = self.hierarchy.store().write()?;
        if let Err(error) = self.encode_aside(below, &new) {
            write.erase_prefix(&aside)?;
            return Err(error);
        }
        let mut plain = Vec::new();
        for chunk in below.chunks.iter().filter(|chunk| chunk.encoded.is_some()) {
            plain.extend(self.key_of(&chunk.from)?);
            self.unsynced.changed(array.key(&chunk.coords)?);
        }
        write.erase_values(&plain)?;
        write.move_prefix(&aside, array.prefix())
    }

    fn encode_aside(&self, below: &mut Below, array: &Arc<Array>) -> Result<()> {
        // A key aside says nothing to anybody: the document that is being stored is named instead.
        let store = |batch| {
            let stored = array.write_chunks(batch, self.fill_chunks());
            stored.map_err(|error| Error::new(error.kind(), error.detail().to_owned()))
        };
        let mut batch: Vec<(Coords, Option<Buffer>)> = Vec::new();
        let mut batch_len = 0_usize;
        let mut shard: Option<Key> = None;
        for chunk in &mut below.chunks {
            let Some((bytes, modified)) = self.bytes_to_encode(chunk).at(chunk.from.shown())?
            else {
                continue;
            };
            let (len, needed) = (u64::try_from(bytes.len()).unwrap_or(u64::MAX), array.chunk_len());
            if len != needed {
                let detail = format!("{len} bytes, a chunk of the array has {needed}");
                return Err(Error::invalid(detail).at(chunk.from.shown()));
            }
            // Of one shard as many as fit: it is written once then.
            let key = array.key(&chunk.coords)?;
            if shard.as_ref() != Some(&key) || batch_len >= BATCH_LEN {
                store(std::mem::take(&mut batch))?;
                batch_len = 0;
                shard = Some(key);
            }
            batch_len = batch_len.saturating_add(bytes.len());
            batch.push((chunk.coords.clone(), Some(bytes)));
            chunk.encoded = Some(modified);
        }
        store(batch).map(drop)
    }

    /// The bytes of a file that nobody is writing, and when they were modified.
    fn bytes_to_encode(&self, chunk: &NewChunk) -> Result<Option<(Buffer, SystemTime)>> {
        let file = chunk.inode.file.lock();
        match &file.content {
            _ if file.writers > 0 => Ok(None),
            Content::Unstored(unstored) if unstored.changed => {
                Ok(Some((unstored.bytes.clone(), unstored.modified)))
            }
            _ => {
                let modified = self.attr_of_stored(&chunk.from)?.modified;
                Ok(Some((self.stored_bytes(&chunk.from)?, modified)))
            }
        }
    }

    /// Gives what lies below `path`, which is an array now, the places that it has in one.
    pub(super) fn settle_below(&self, path: &NodePath, below: Below) -> Result<()> {
        self.hierarchy.forget_directories(path);
        self.overlay.replace(|place| place.in_array(path));
        self.inodes.replace(|place| place.in_array(path));
        for place in below.dirs {
            if let Some(name) = place.name() {
                self.overlay.insert(place.parent(), &name, Shown::Directory(place));
            }
        }
        let mut first = Ok(());
        for NewChunk { coords, inode, encoded, .. } in below.chunks {
            let place = Place::Chunk(path.clone(), coords);
            first = first.and(self.settle_chunk(&inode, &place, encoded).at(place.shown()));
            self.inodes.release(inode);
        }
        first
    }

    fn settle_chunk(
        &self,
        inode: &Arc<Inode>,
        place: &Place,
        encoded: Option<SystemTime>,
    ) -> Result<()> {
        let mut file = inode.file.lock();
        if file.writers > 0 {
            return Ok(()); // Stored when its writer closes it.
        }
        let kept = match &file.content {
            Content::Unstored(unstored) if Some(unstored.modified) != encoded => {
                // Written again since it was encoded.
                return self.store_locked(inode, &mut file, When::Asked);
            }
            Content::Unstored(unstored) => unstored.keep_modified.then_some(unstored.modified),
            Content::Stored => encoded,
            Content::Detached(_) => None,
        };
        self.forget_unstored(&mut file);
        self.leave_overlay(place, inode);
        file.seen = None;
        drop(file);
        if let Some(modified) = kept {
            match self.set_stored_modified(place, modified) {
                // A chunk of nothing but the fill value was not stored.
                Err(error) if error.kind() == Kind::NotFound => {}
                set => drop(set?),
            }
        }
        Ok(())
    }
}
