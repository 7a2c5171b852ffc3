//! The attributes of files and directories.
//!
//! Directories have the owner and mode of the store's. If `-o uid=`, `gid=` or `umask=` is given,
//! those of nodes and chunks have the given ones, because users give these options so that others
//! can write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::ordinary::OrdinaryFiles;
use super::private::PrivateFiles;
use super::views::Views;
use super::zarr2::Zarr2;
use crate::array::{Array, Coords};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::TextPurpose;
use crate::metadata::NodePath;
use crate::store::{FileKind, Ownership, Stat};
use crate::vfs::core::Core;
use crate::vfs::inodes::attr::Attr;
use crate::vfs::inodes::file::BytesAt;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::width::ToU64;

/// Knows the attributes of files and directories.
pub(in crate::vfs) struct Attrs {
    core: Arc<Core>,
    views: Arc<Views>,
    zarr2: Arc<Zarr2>,
    ordinary: Arc<OrdinaryFiles>,
    private: Arc<PrivateFiles>,
    /// Whether any chunk with a length that is known only after decoding was used.
    pub has_variable: AtomicBool,
}

impl Attrs {
    /// Returns those of the places in a tree that has `views` and `private` files, and which
    /// `zarr2` may show as Zarr 2.
    pub fn new(
        core: &Arc<Core>,
        views: &Arc<Views>,
        zarr2: &Arc<Zarr2>,
        ordinary: &Arc<OrdinaryFiles>,
        private: &Arc<PrivateFiles>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            views: Arc::clone(views),
            zarr2: Arc::clone(zarr2),
            ordinary: Arc::clone(ordinary),
            private: Arc::clone(private),
            has_variable: AtomicBool::new(false),
        }
    }

    /// Returns the attributes of an inode.
    pub fn of(&self, inode: &Inode) -> Result<Attr> {
        self.of_with_stat(inode, None)
    }

    /// Adds the owner and mode of a file that some users may not read. A file that has no name any
    /// more can only be opened again by the user who mounted, unless it has an owner of its own.
    pub fn with_private(&self, attr: Attr, place: Option<&Place>) -> Result<Attr> {
        let private = match place {
            Some(place) => {
                self.private.ownership_of(place).map_err(|error| error.at(place.shown()))?
            }
            None if self.core.options.has_others && !attr.is_dir() && attr.owner.is_none() => {
                Some(Ownership::of_process(0o600))
            }
            None => None,
        };
        Ok(Attr { private: private.or(attr.private), ..attr })
    }

    /// Like [`Self::of`], with the stat of a stored chunk if the caller knows it.
    pub fn of_with_stat(&self, inode: &Inode, stored: Option<&Stat>) -> Result<Attr> {
        let place = inode.place();
        if place.as_ref().is_none_or(|place| !place.is_dir())
            && let Some(attr) = self.of_content(inode, place.as_ref())?
        {
            return self.with_private(attr, place.as_ref());
        }
        if let Some(attr) = self.of_open_view(inode) {
            return self.with_private(attr, place.as_ref());
        }
        let Some(place) = place else {
            // A program that has a removed directory open sees it empty.
            let removed =
                Attr { number: inode.number(), links: 0, ..Attr::directory(self.core.mounted) };
            return if inode.is_dir() { Ok(removed) } else { Err(Error::not_found()) };
        };
        Ok(Attr { number: inode.number(), ..self.at(&place, stored)? })
    }

    /// Returns the attributes of a place, without its inode number.
    pub fn at(&self, place: &Place, stored: Option<&Stat>) -> Result<Attr> {
        let attr = match (place, stored) {
            (Place::Chunk(path, coords), Some(stat)) => {
                self.of_chunk(path, coords, self.of_any_file(place), Some(stat))
            }
            (Place::Ordinary(..), Some(stat)) if self.ordinary.store().is_none() => {
                Ok(self.of_any_file(place).of_value(stat.len, stat))
            }
            _ => self.of_stored(place),
        };
        let attr = attr.map_err(|error| error.at(place.shown()))?;
        self.with_private(attr, Some(place))
    }

    /// Returns the attributes that all files share.
    fn of_any_file(&self, place: &Place) -> Attr {
        if place.is_dir() {
            Attr::directory(self.core.mounted)
        } else {
            Attr { may_change: place.is_document(), ..Attr::file(self.core.mounted) }
        }
    }

    /// Returns the attributes of unstored or detached bytes, or of an open ordinary file.
    fn of_content(&self, inode: &Inode, place: Option<&Place>) -> Result<Option<Attr>> {
        let Some(file) = inode.known_file() else { return Ok(None) };
        let file = file.lock();
        let number = inode.number();
        let unstored = match &file.content {
            BytesAt::Unstored(unstored) if unstored.changed => unstored,
            BytesAt::Detached(unstored) => unstored,
            BytesAt::Open(open) => {
                let attr = Attr { number, ..Attr::file(self.core.mounted) };
                return Ok(Some(attr.of_file(&open.stat()?)));
            }
            BytesAt::Stored | BytesAt::Unstored(_) => return Ok(None),
        };
        let len = unstored.bytes.len().to_u64();
        let own = file.created.as_ref();
        // Only a store of files keeps the owner.
        let is_file =
            self.ordinary.store().is_some() && matches!(place, None | Some(Place::Ordinary(..)));
        let attr = Attr {
            number,
            len,
            blocks: Attr::blocks_of(len, len),
            links: u32::from(place.is_some()),
            mode: own.map(|own| own.owner.mode & 0o777),
            owner: own.filter(|_| is_file).map(|own| own.owner),
            may_change: true,
            ..Attr::file(unstored.last_modified())
        };
        let accessed = own.and_then(|own| own.accessed).unwrap_or(attr.modified);
        Ok(Some(Attr { accessed, ..attr }))
    }

    pub fn of_stored(&self, place: &Place) -> Result<Attr> {
        let attr = self.of_any_file(place);
        Ok(match place {
            Place::Node(path) => {
                let node = self.core.hierarchy.existing(path)?;
                let attr = Attr { is_of_node: !node.is_bare(), ..attr };
                match (self.ordinary.stat(place)?, node.document()) {
                    (Some(stat), _) if stat.kind == FileKind::Directory => attr.of_file(&stat),
                    (_, Some(document)) => attr.modified_at(document.total().modified),
                    (_, None) => attr,
                }
            }
            Place::Document(path) | Place::Attributes(path) | Place::Copies(path) => {
                let node = self.core.hierarchy.existing(path)?;
                let len = self.zarr2.shown_at(place, TextPurpose::Len)?.len().to_u64();
                match node.document() {
                    Some(document) => attr.of_value(len, &document.total()),
                    None => Attr { len, blocks: Attr::blocks_of(0, len), ..attr },
                }
            }
            Place::Chunk(path, coords) => self.of_chunk(path, coords, attr, None)?,
            Place::Ordinary(path, relative) => {
                if self.ordinary.store().is_some() {
                    return Ok(
                        attr.of_file(&self.ordinary.stat(place)?.ok_or_else(Error::not_found)?)
                    );
                }
                let stat = self.ordinary.stat_value(path, relative)?;
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
                Attr { len, blocks, may_change: true, ..attr }.modified_at(modified)
            }
            Place::Report(_) | Place::Control | Place::ViewsOf(..) => {
                Attr { is_writable: false, ..attr }
            }
            Place::ViewsDir(_) | Place::StoredDir(_) => {
                let is_writable = matches!(place, Place::StoredDir(_));
                let attr = Attr { is_writable, ..attr };
                match self.private.stat_of_control(place)? {
                    Some(stat) => Attr { private: Some(stat.owner), ..attr },
                    None => attr,
                }
            }
            Place::ChunkDir(..) | Place::OrdinaryDir(..) => {
                let attr = Attr { is_of_node: matches!(place, Place::ChunkDir(..)), ..attr };
                match self.ordinary.stat(place)? {
                    Some(stat) if stat.kind == FileKind::Directory => attr.of_file(&stat),
                    _ => attr,
                }
            }
        })
    }

    fn of_chunk(
        &self,
        path: &NodePath,
        coords: &Coords,
        attr: Attr,
        stored: Option<&Stat>,
    ) -> Result<Attr> {
        let array = self.core.shown_array_at(path, coords.indices())?;
        let stat = stored.map_or_else(|| self.core.stat_chunk(&array, coords), |stat| Ok(*stat));
        let stat = match stat {
            Err(error) if error.kind() == Kind::NotFound && self.zarr2.shows_fill(path, &array) => {
                let len = array.fill_file(coords)?.len();
                let len = len.to_u64();
                // It was never changed: `cp -u` and `rsync -u` store a chunk in its place.
                let attr = attr.modified_at(SystemTime::UNIX_EPOCH);
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
            Ok(Some(chunk)) => Ok(chunk.bytes.len().to_u64()),
            Ok(None) => Err(Error::not_found()),
            Err(error) if error.is_of_data() => Ok(stat.len.max(1)),
            Err(error) => Err(error),
        }
    }

    /// Whether the attributes of a place, or of a name in it, may require decoding a chunk.
    pub fn may_decode(&self, place: &Place) -> bool {
        match place {
            Place::View(..) | Place::ViewsDir(_) => true,
            Place::Chunk(path, _) | Place::ChunkDir(path, _) => {
                // Most hierarchies have no such arrays, so the flag avoids looking up this one.
                self.has_variable.load(Ordering::Relaxed)
                    && self
                        .core
                        .shown_array(path)
                        .is_ok_and(|array| !array.is_encoded() && array.has_variable_len())
            }
            _ => false,
        }
    }

    /// Returns the attributes of an open view, whatever its name means now.
    pub fn of_open_view(&self, inode: &Inode) -> Option<Attr> {
        let view = inode.open_view()?;
        let place = inode.place();
        let (mut modified, mut len) = (None, view.len());
        if let Some(Place::View(path, format)) = &place {
            modified = self.views.stat_view(path, format).ok().map(|stat| stat.1);
            len = self.views.new_len(path, format).unwrap_or(len);
        }
        Some(Attr {
            number: inode.number(),
            len,
            blocks: Attr::blocks_of(len, len),
            links: u32::from(place.is_some()),
            may_change: true,
            ..Attr::file(modified.unwrap_or(self.core.mounted))
        })
    }
}
