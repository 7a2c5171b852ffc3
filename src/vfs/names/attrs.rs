//! The attributes of files and directories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Names;
use super::attr::Attr;
use super::file::Content;
use super::inode::Inode;
use super::place::Place;
use crate::array::{Array, Coords};
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::Wanted;
use crate::metadata::NodePath;
use crate::store::Stat;

impl Names {
    /// Returns the attributes of an inode.
    pub fn attr(&self, inode: &Inode) -> Result<Attr> {
        self.attr_with_stat(inode, None)
    }

    /// Like [`Self::attr`], with the stat of a stored chunk if the caller knows it.
    pub fn attr_with_stat(&self, inode: &Inode, stored: Option<&Stat>) -> Result<Attr> {
        let place = inode.place();
        if place.as_ref().is_none_or(|place| !place.is_dir())
            && let Some(attr) = Self::attr_of_content(inode)
        {
            return Ok(Attr { links: u32::from(place.is_some()), ..attr });
        }
        if let Some(attr) = self.attr_of_open_view(inode) {
            return Ok(attr);
        }
        let Some(place) = place else {
            // A program that has a removed directory open sees it empty.
            let removed =
                Attr { number: inode.number(), links: 0, ..Attr::directory(self.core.mounted) };
            return if inode.is_dir() { Ok(removed) } else { Err(Error::not_found()) };
        };
        Ok(Attr { number: inode.number(), ..self.attr_at(&place, stored)? })
    }

    /// Returns the attributes of a place, without its inode number.
    pub fn attr_at(&self, place: &Place, stored: Option<&Stat>) -> Result<Attr> {
        let attr = match (place, stored) {
            (Place::Chunk(path, coords), Some(stat)) => {
                self.attr_of_chunk(path, coords, self.attr_of_file(place), Some(stat))
            }
            (Place::Ordinary(..), Some(stat)) => {
                Ok(self.attr_of_file(place).of_value(stat.len, stat))
            }
            _ => self.attr_of_stored(place),
        };
        attr.map_err(|error| error.at(place.shown()))
    }

    /// Returns the attributes that all files share.
    fn attr_of_file(&self, place: &Place) -> Attr {
        Attr {
            number: 0,
            is_dir: place.is_dir(),
            len: 0,
            blocks: 0,
            modified: self.core.mounted,
            links: if place.is_dir() { 2 } else { 1 },
            mode: None,
            is_writable: true,
            may_change: place.is_document(),
        }
    }

    /// Returns the attributes of unstored or detached bytes.
    fn attr_of_content(inode: &Inode) -> Option<Attr> {
        let file = inode.known_file()?.lock();
        let unstored = match &file.content {
            Content::Unstored(unstored) if unstored.changed => unstored,
            Content::Detached(unstored) => unstored,
            Content::Stored | Content::Unstored(_) => return None,
        };
        let modified = unstored.last_modified();
        let len = u64::try_from(unstored.bytes.len()).unwrap_or(u64::MAX);
        let (number, blocks) = (inode.number(), Attr::blocks_of(len, len));
        let (is_writable, may_change) = (true, true);
        Some(Attr {
            number,
            is_dir: false,
            len,
            blocks,
            modified,
            links: 1,
            mode: file.mode,
            is_writable,
            may_change,
        })
    }

    pub fn attr_of_stored(&self, place: &Place) -> Result<Attr> {
        let attr = self.attr_of_file(place);
        Ok(match place {
            Place::Node(path) => {
                let node = self.core.hierarchy.existing(path)?;
                let modified =
                    node.document().map_or(self.core.mounted, |document| document.total().modified);
                Attr { modified, ..attr }
            }
            Place::Document(path) | Place::Attributes(path) | Place::Copies(path) => {
                let node = self.core.hierarchy.existing(path)?;
                let len = u64::try_from(self.zarr2.shown_at(place, Wanted::Len)?.len())
                    .unwrap_or(u64::MAX);
                match node.document() {
                    Some(document) => attr.of_value(len, &document.total()),
                    None => Attr { len, blocks: Attr::blocks_of(0, len), ..attr },
                }
            }
            Place::Chunk(path, coords) => self.attr_of_chunk(path, coords, attr, None)?,
            Place::Ordinary(path, relative) => {
                let stat = self.stat_ordinary(path, relative)?;
                attr.of_value(stat.len, &stat)
            }
            Place::StoredDocument(_, key) => {
                let stat = self.core.hierarchy.store().stat(key)?.ok_or_else(Error::not_found)?;
                attr.of_value(stat.len, &stat)
            }
            Place::View(path, format) => {
                let (len, modified) = self.views.stat_view(path, format)?;
                // All blocks count, so that programs find no holes. The name and the length may
                // change with the node, without notice to the kernel.
                let blocks = Attr::blocks_of(len, len);
                Attr { len, blocks, modified, may_change: true, ..attr }
            }
            Place::Report(_) | Place::Control | Place::ViewsDir(_) | Place::ViewsOf(..) => {
                Attr { is_writable: false, ..attr }
            }
            Place::ChunkDir(..) | Place::OrdinaryDir(..) | Place::StoredDir(_) => attr,
        })
    }

    fn attr_of_chunk(
        &self,
        path: &NodePath,
        coords: &Coords,
        attr: Attr,
        stored: Option<&Stat>,
    ) -> Result<Attr> {
        let array = self.core.shown_array(path)?;
        let stat = stored.map_or_else(|| self.stat_chunk(&array, coords), |stat| Ok(*stat));
        let stat = match stat {
            Err(error) if error.kind() == Kind::NotFound && self.zarr2.shows_fill(path, &array) => {
                let len = array.fill_chunk(coords)?.len();
                let len = u64::try_from(len).unwrap_or(u64::MAX);
                return Ok(Attr { len, blocks: 0, may_change: true, ..attr });
            }
            found => found?,
        };
        if let Some(len) = array.len_of_stored(coords, &stat)? {
            let may_change = array.has_variable_len();
            return Ok(Attr { may_change, ..attr.of_value(len, &stat) });
        }
        // The kernel must ask for the length each time, or it would truncate longer bytes that
        // another program stores.
        let len = self.len_of_elements(&array, coords, &stat)?;
        Ok(Attr { may_change: true, ..attr.of_value(len, &stat) })
    }

    /// Returns the decoded length of a chunk with elements of variable length, which requires
    /// decoding it. A damaged chunk gets its stored length, so that it can be listed and removed,
    /// and a read reports the damage.
    fn len_of_elements(&self, array: &Arc<Array>, coords: &Coords, stat: &Stat) -> Result<u64> {
        self.has_variable.store(true, Ordering::Relaxed);
        self.core.cache.keep_only(array, coords, Some(stat.version));
        match self.core.cache.get(array, coords) {
            Ok(Some(chunk)) => Ok(u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX)),
            Ok(None) => Err(Error::not_found()),
            Err(error) if error.is_of_data() => Ok(stat.len.max(1)),
            Err(error) => Err(error),
        }
    }

    /// Whether the attributes of `number`, or of a name in it, may require decoding a chunk.
    pub fn may_decode(&self, number: u64) -> bool {
        // Most hierarchies have no such arrays, so the flag avoids looking up the place.
        let place = || self.inodes.get(number).and_then(|inode| inode.place());
        if matches!(place(), Some(Place::View(..) | Place::ViewsDir(_))) {
            return true;
        }
        self.has_variable.load(Ordering::Relaxed)
            && match place() {
                Some(Place::Chunk(path, _) | Place::ChunkDir(path, _)) => self
                    .core
                    .shown_array(&path)
                    .is_ok_and(|array| !array.is_encoded() && array.has_variable_len()),
                _ => false,
            }
    }

    pub fn stat_ordinary(&self, path: &NodePath, relative: &str) -> Result<Stat> {
        let key = self.core.hierarchy.ordinary_prefix(path)?.key(relative)?;
        self.core.hierarchy.store().stat(&key)?.ok_or_else(Error::not_found)
    }

    /// Returns the stat of a chunk. The kernel may know chunks that are now outside the grid.
    pub fn stat_chunk(&self, array: &Array, coords: &Coords) -> Result<Stat> {
        let stat =
            if array.grid().contains(coords) { self.core.cache.stat(array, coords)? } else { None };
        stat.ok_or_else(Error::not_found)
    }
}
