//! Turns a directory into an array: encodes the files below it that have names of chunks.
//!
//! `cp -r` and `tar` may create chunk files before the metadata file. When the metadata file
//! arrives, the chunks are encoded aside. After all of them succeed, they replace the files and the
//! metadata file is stored; on any failure nothing changes. Files that are encoded already, and
//! have the key of their chunk, stay where they are.
//!
//! The steps: the metadata file is raised to the stored form and bound (`Hierarchy::raise`), and
//! files below with names of chunks are encoded aside. Then these files go aside, the chunks take
//! their keys, and the metadata file is set on the condition that there is still none
//! (`Changes::put_converted`).

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::MutexGuard;

use super::documents::{DocumentWriter, is_plain_group};
use crate::array::{Array, Coords, Current};
use crate::buffer::Buffer;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Node;
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Aside, FileChanges, FileUse, Key};
use crate::vfs::inodes::chunk_names::ChunkNames;
use crate::vfs::inodes::file::{BytesAt, FileToStore, InodeFile, OpenedAs, UnstoredBytes};
use crate::vfs::inodes::held::HeldBytes;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::{CHUNKS, Place};
use crate::vfs::names::overlay::Shown;
use crate::width::ToUsize;

/// The decoded bytes to encode at a time.
const BATCH_LEN: usize = 256 << 20;

/// The permission bits with which the owner of a directory may change its entries.
const WRITABLE: u16 = 0o300;

/// A locked file.
pub(in crate::vfs) type Locked<'i> = MutexGuard<'i, InodeFile>;

/// The files and directories below a directory that becomes an array.
#[derive(Default)]
pub(in crate::vfs) struct FilesBelow {
    /// Whether the directory is an array, without stored chunks, that another one replaces.
    is_array: bool,
    /// The directories, by what they become.
    dirs: Vec<Place>,
    /// Groups without attributes: directories that became groups before their maker had filled
    /// them.
    pub groups: Vec<NodePath>,
    chunks: Vec<NewChunk>,
}

/// A file with the name of a chunk.
struct NewChunk {
    from: Place,
    coords: Coords,
    inode: Arc<Inode>,
    /// The modification time of the encoded bytes; `None` if a program is still writing the file.
    encoded: Option<SystemTime>,
    /// Whether the file already lies where the chunk belongs.
    is_in_place: bool,
}

impl FilesBelow {
    /// Returns the inodes of the files that are chunks.
    pub fn inodes(&self) -> Vec<Arc<Inode>> {
        self.chunks.iter().map(|chunk| Arc::clone(&chunk.inode)).collect()
    }
}

impl DocumentWriter {
    /// Returns everything below `path`, which is to become `array`; an error if an array cannot
    /// contain it.
    pub fn below_new_array(&self, node: &Node, array: &Array) -> Result<FilesBelow> {
        let path = node.path();
        let is_array = node.kind() == NodeKind::Array;
        let mut below = FilesBelow { is_array, ..FilesBelow::default() };
        let names = ChunkNames::of(&self.core, path, array.grid().rank());
        self.collect_below(&Place::Node(path.clone()), (path, names), array, &mut below)?;
        below.chunks.sort_by(|one, other| one.coords.indices().cmp(other.coords.indices()));
        Ok(below)
    }

    fn collect_below(
        &self,
        directory: &Place,
        (path, names): (&NodePath, ChunkNames),
        array: &Array,
        below: &mut FilesBelow,
    ) -> Result<()> {
        for found in self.listings.entries(directory)? {
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
                Place::Control | Place::Attributes(_) | Place::Copies(_) => continue,
                Place::Ordinary(..) => {}
                // Its chunks are not stored: they wait for the new array.
                _ if below.is_array => continue,
                Place::Node(child) => {
                    let Some(node) = self.core.hierarchy.node(child)? else { continue };
                    if is_plain_group(&node) || (node.is_made() && node.stored().is_some()) {
                        below.groups.push(child.clone());
                    } else if !node.is_bare() || node.kind() == NodeKind::Array {
                        let detail = "this is a node, and an array cannot contain nodes";
                        return Err(Error::invalid(detail).at(place.shown()));
                    }
                }
                _ => {
                    let detail = "it is in the way of the new array; remove it first";
                    return Err(Error::invalid(detail).at(place.shown()));
                }
            }
            let grid = array.grid();
            match place.in_array(path, names) {
                Some(Place::Chunk(_, coords)) if !grid.contains(&coords) => {
                    return outside("not a chunk of the array");
                }
                Some(Place::Chunk(_, coords)) => {
                    let inode = self.names.inodes.alone_at(&place);
                    below.chunks.push(NewChunk {
                        from: place,
                        coords,
                        inode,
                        encoded: None,
                        is_in_place: false,
                    });
                }
                Some(Place::Ordinary(_, relative))
                    if relative == CHUNKS || array.owns(&relative) =>
                {
                    return outside("the store has chunks under this name");
                }
                Some(new @ (Place::ChunkDir(..) | Place::OrdinaryDir(..))) => {
                    below.dirs.push(new);
                    self.collect_below(&place, (path, names), array, below)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Encodes the chunk files below `path` into a place aside. Returns `None` if nothing below
    /// changes. Changes nothing else but the modes of read-only directories.
    pub fn encode_below(
        &self,
        path: &NodePath,
        below: &mut FilesBelow,
        files: &mut [Locked<'_>],
        array: &Array,
    ) -> Result<Option<Aside>> {
        for (chunk, file) in below.chunks.iter_mut().zip(files.iter_mut()) {
            self.store_in_place(chunk, file, array).at(chunk.from.shown())?;
        }
        if below.chunks.iter().all(|chunk| chunk.is_in_place) && below.groups.is_empty() {
            return Ok(None);
        }
        self.make_writable(path, below)?;
        let aside = self.core.hierarchy.changes().aside()?;
        let new = self.core.hierarchy.changes().bind_aside(array, &aside)?;
        let new = self.core.hierarchy.forms.array_in(&new, array.encoded_levels());
        if let Err(error) = self.encode_aside(below, files, &new) {
            self.core.hierarchy.changes().drop_aside(&aside);
            return Err(error);
        }
        Ok(Some(aside))
    }

    /// Lets this process take files out of directories of chunks that are read-only: `cp -a` gives
    /// a directory its mode before it copies the metadata file beside it. The store makes these
    /// directories again.
    fn make_writable(&self, path: &NodePath, below: &FilesBelow) -> Result<()> {
        let Some(files) = self.names.ordinary.store() else { return Ok(()) };
        for place in below.dirs.iter().filter(|place| matches!(place, Place::ChunkDir(..))) {
            let key = self.core.hierarchy.ordinary_prefix(path)?.key(&place.relative())?;
            let Some(directory) = files.open(key.as_str(), FileUse::Attributes)? else { continue };
            let mode = directory.stat()?.owner.mode;
            if mode & WRITABLE != WRITABLE {
                let changes = FileChanges { mode: Some(mode | WRITABLE), ..FileChanges::default() };
                // Where it may not be changed, the files cannot be taken out, which is reported.
                directory.change(&changes).unwrap_or_else(|error| log::debug!("{error}"));
            }
        }
        Ok(())
    }

    /// Returns the keys of the files that were encoded.
    pub fn plain_keys(&self, below: &FilesBelow) -> Result<Vec<Key>> {
        let is_moved = |chunk: &&NewChunk| chunk.encoded.is_some() && !chunk.is_in_place;
        let encoded = below.chunks.iter().filter(is_moved);
        let key = |chunk: &NewChunk| self.stored.key_of(&self.names.target(chunk.from.clone())?);
        encoded.filter_map(|chunk| key(chunk).transpose()).collect()
    }

    /// Marks the encoded chunks and their new places as not synced to disk.
    pub fn note_converted(&self, below: &FilesBelow, plain: Vec<Key>, array: &Array) -> Result<()> {
        for chunk in below.chunks.iter().filter(|chunk| chunk.encoded.is_some()) {
            self.unsynced.changed(array.key(&chunk.coords)?);
        }
        for key in plain {
            self.unsynced.changed(key);
        }
        Ok(())
    }

    fn encode_aside(
        &self,
        below: &mut FilesBelow,
        files: &[Locked<'_>],
        array: &Arc<Array>,
    ) -> Result<()> {
        // The user does not know the keys aside, so the error names the metadata file that is being
        // stored.
        let new = Current::made_here(array);
        let store = |batch| {
            let stored = new.write_chunks(batch, self.core.options.fill_chunks);
            stored.map_err(|error| Error::new(error.kind(), error.detail().to_owned()))
        };
        let mut batch: Vec<(Coords, Option<Buffer>)> = Vec::new();
        let mut batch_len = 0_usize;
        let mut shard: Option<Key> = None;
        let rest = below.chunks.iter_mut().zip(files).filter(|(chunk, _)| !chunk.is_in_place);
        for (chunk, file) in rest {
            let found = self.bytes_to_encode(chunk, file).at(chunk.from.shown())?;
            let Some((held, modified)) = found else { continue };
            let bytes = held.to_buffer(array.chunk_len(&chunk.coords)?.longest())?;
            array.check_chunk(&chunk.coords, &bytes).at(chunk.from.shown())?;
            // Take as many chunks of one shard as fit, to write the shard once.
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

    /// Stores a file that has the bytes and the key of its chunk already, where it is: it is a
    /// chunk once the metadata file is there, and an ordinary file until then.
    fn store_in_place(
        &self,
        chunk: &mut NewChunk,
        file: &mut InodeFile,
        array: &Array,
    ) -> Result<()> {
        let key = self.stored.key_of(&self.names.target(chunk.from.clone())?)?;
        let Some(key) = key.filter(|_| array.stores_as_written()) else { return Ok(()) };
        if array.key(&chunk.coords)? != key {
            return Ok(());
        }
        let is_stored = !file.is_changed();
        if is_stored && array.is_trusted() {
            let attr = self.names.attrs.of_stored(&chunk.from)?;
            if attr.len > 0 {
                (chunk.encoded, chunk.is_in_place) = (Some(attr.modified), true);
                return Ok(());
            }
        }
        let Some((held, modified)) = self.bytes_to_encode(chunk, file)? else { return Ok(()) };
        if held.is_empty() || !array.is_trusted() {
            let limit = array.chunk_len(&chunk.coords)?.longest();
            array.check_chunk(&chunk.coords, &held.to_buffer(limit)?)?;
        }
        if !is_stored {
            let condition = file.content.condition();
            let written = FileToStore { bytes: held, base: None, modified: None, condition };
            self.stored.set_ordinary(&key, &written)?;
            self.unsynced.changed(key);
            self.memory.forget_unstored(file);
        }
        (chunk.encoded, chunk.is_in_place) = (Some(modified), true);
        Ok(())
    }

    /// Returns the bytes of a file and their modification time; `None` if a program is still
    /// writing it.
    fn bytes_to_encode(
        &self,
        chunk: &NewChunk,
        file: &InodeFile,
    ) -> Result<Option<(HeldBytes, SystemTime)>> {
        match &file.content {
            BytesAt::Unstored(unstored) if unstored.changed && file.writers > 0 => Ok(None),
            BytesAt::Open(_) if file.writers > 0 => Ok(None),
            BytesAt::Unstored(unstored) if unstored.changed => {
                Ok(Some((unstored.bytes.clone(), unstored.last_modified())))
            }
            _ => {
                let modified = self.names.attrs.of_stored(&chunk.from)?.modified;
                Ok(Some((self.stored.bytes_at(&chunk.from)?.into(), modified)))
            }
        }
    }

    /// Gives everything below `path`, an array now, its place in the array.
    pub fn settle_below(
        &self,
        path: &NodePath,
        below: &FilesBelow,
        files: Vec<Locked<'_>>,
        rank: usize,
    ) -> Result<()> {
        self.core.hierarchy.changes().forget_directories(path);
        let names = ChunkNames::of(&self.core, path, rank);
        self.names.overlay.replace(|place| place.in_array(path, names));
        self.names.inodes.replace(|place| place.in_array(path, names));
        // A chunk's name belongs to a directory of chunks, even if none is shown.
        let directory = Place::Node(path.clone());
        for (name, shown) in self.names.overlay.list(&directory) {
            if let place @ Place::Chunk(..) = shown.place() {
                self.names.overlay.remove(&directory, &name);
                let name = place.name().unwrap_or_default();
                self.names.overlay.insert(place.parent(), &name, shown.clone());
            }
        }
        for place in below.dirs.iter().rev() {
            // The store makes a directory of chunks again with its first chunk.
            if let (Place::ChunkDir(..), Some(files)) = (place, self.names.ordinary.store()) {
                let made = self.core.hierarchy.ordinary_prefix(path)?.key(&place.relative())?;
                files
                    .remove_directory(made.as_str())
                    .unwrap_or_else(|error| log::debug!("{error}"));
            }
        }
        for place in &below.dirs {
            if let Some(name) = place.name() {
                self.names.overlay.insert(place.parent(), &name, Shown::Directory(place.clone()));
            }
        }
        let mut first = Ok(());
        for (NewChunk { from, coords, inode, encoded, .. }, file) in below.chunks.iter().zip(files)
        {
            if encoded.is_none()
                && let Some(files) = self.names.ordinary.store()
                && let Some(plain) = self.names.ordinary.path(from)?
            {
                // Its writer stores the chunk when it closes the file.
                files.remove_file(&plain).unwrap_or_else(|error| log::debug!("{error}"));
            }
            let place = Place::Chunk(path.clone(), coords.clone());
            first = first.and(self.settle_chunk(inode, file, &place, *encoded).at(place.shown()));
        }
        first
    }

    fn settle_chunk(
        &self,
        inode: &Arc<Inode>,
        mut file: Locked<'_>,
        place: &Place,
        encoded: Option<SystemTime>,
    ) -> Result<()> {
        if let Some(OpenedAs::Ordinary(_)) = file.opened {
            file.opened = None;
        }
        if let BytesAt::Open(open) = &file.content
            && file.writers > 0
        {
            let limit = self.core.hierarchy.options().max_chunk_len;
            let len = open.stat()?.len.min(limit).to_usize();
            let bytes = Vec::from(open.read(0, len)?);
            self.memory.add(bytes.len());
            file.content = BytesAt::Unstored(UnstoredBytes {
                changed: true,
                ..UnstoredBytes::of(Buffer::from(bytes))
            });
        }
        let kept = match &file.content {
            BytesAt::Unstored(_) if encoded.is_none() || file.writers > 0 => {
                // It is stored when its writer closes it, and listed until then, too.
                let (name, shown) = (place.name().unwrap_or_default(), Arc::clone(inode));
                let shown = Shown::File(place.clone(), shown);
                self.names.overlay.insert(place.parent(), &name, shown);
                return Ok(());
            }
            BytesAt::Unstored(unstored) => unstored.keep_modified.then_some(unstored.modified),
            BytesAt::Stored | BytesAt::Open(_) => encoded,
            BytesAt::Detached(_) => None,
        };
        self.memory.forget_unstored(&mut file);
        self.names.overlay.remove_file(place, inode);
        file.seen = None;
        drop(file);
        if let Some(modified) = kept {
            match self.stored.set_stored_modified(&self.names.target(place.clone())?, modified) {
                // A chunk that equals the fill value was not stored.
                Err(error) if error.kind() == Kind::NotFound => {}
                set => drop(set?),
            }
        }
        Ok(())
    }
}

/// Locks files, so that no thread writes or stores one before it has its new place. Only the
/// caller, which has `tree_lock` exclusively, ever waits for two files.
pub fn lock(inodes: &[Arc<Inode>]) -> Vec<Locked<'_>> {
    inodes.iter().map(|inode| inode.file().lock()).collect()
}
