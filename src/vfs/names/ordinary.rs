//! Ordinary files and directories, which the store keeps as they are.
//!
//! In a store of files ([`FileStore`]) they are files of the store: they have its attributes, may
//! be links or other special files, and keep their bytes there while they are open. The directories
//! of nodes and chunks also have the attributes of the store's directories, where it has them.

use std::sync::Arc;

use crate::array::{Coords, parse_index};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::{FileId, FileKind, FileStat, FileStore, Prefix, Stat, Store, StoreEntry};
use crate::vfs::core::Core;
use crate::vfs::inodes::file::Created;
use crate::vfs::inodes::place::{CHUNKS, DirEntries, Place, below};

/// A new name in a store of files.
pub(in crate::vfs) struct NewName {
    /// The store, which does not recreate the directory of the name.
    pub store: Store,
    /// The path in the store.
    pub path: String,
}

impl NewName {
    /// Returns the files of the store.
    pub fn files(&self) -> Result<&dyn FileStore> {
        self.store.files().ok_or_else(keeps_no_files)
    }
}

/// Returns the error for a store that does not keep files.
pub(in crate::vfs) fn keeps_no_files() -> Error {
    Error::unsupported("the store does not keep files")
}

/// Returns the directory to which a new file belongs. The store makes directories of chunks, and
/// removes them.
fn home_of(place: &Place) -> Place {
    match place.parent() {
        Place::ChunkDir(path, _) => Place::Node(path),
        above => above,
    }
}

/// The ordinary files and directories of the store, and its directories of nodes and chunks.
#[derive(Clone)]
pub(in crate::vfs) struct OrdinaryFiles {
    core: Arc<Core>,
}

impl OrdinaryFiles {
    /// Returns those beside the nodes in `core`.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Returns the store of files, if there is one and the kernel follows its links.
    pub fn store(&self) -> Option<&dyn FileStore> {
        self.core.hierarchy.store().files().filter(|_| !self.core.options.follows_links)
    }

    /// Returns the path in the store of an ordinary file, or of any directory that the store has
    /// too.
    pub fn path(&self, place: &Place) -> Result<Option<String>> {
        let prefix = |path: &NodePath| self.core.hierarchy.ordinary_prefix(path);
        Ok(match place {
            Place::Node(path) => Some(prefix(path)?.as_str().trim_end_matches('/').to_owned()),
            Place::OrdinaryDir(path, relative) | Place::Ordinary(path, relative) => {
                Some(prefix(path)?.key(relative)?.as_str().to_owned())
            }
            Place::ChunkDir(path, indices) => {
                // Only if the keys of the array have the form of the names in the mount.
                let array = self.core.shown_array(path)?;
                let mut first = indices.clone();
                first.resize(array.grid().rank(), 0);
                let coords = Coords::new(first);
                let is_alike = array.grid().contains(&coords)
                    && array.key(&coords)? == prefix(path)?.key(&coords.to_string())?;
                if !is_alike {
                    return Ok(None);
                }
                Some(prefix(path)?.key(&place.relative())?.as_str().to_owned())
            }
            _ => None,
        })
    }

    /// Returns the store for a new file or directory at `place`, and its path. If another program
    /// has moved or removed the directory of that name, making it fails with `ESTALE`: the
    /// directory is not recreated. The store creates only directories of chunks.
    pub fn for_new(&self, place: &Place) -> Result<Option<NewName>> {
        let (Some(_), Some(path)) = (self.store(), self.path(place)?) else { return Ok(None) };
        let above = home_of(place);
        let hierarchy = &self.core.hierarchy;
        let home = match (&above, self.path(&above)?) {
            (Place::Node(node), _) => hierarchy.changes().home_of(node)?,
            (_, Some(home)) => Prefix::parse(&home)?,
            (_, None) => Prefix::root(),
        };
        Ok(Some(NewName { store: hierarchy.store().in_directory(&home), path }))
    }

    /// Returns the directory in which an ordinary file is created, with the directory of the store
    /// that this is; `None` if the store has none.
    pub fn home(&self, place: &Place) -> Result<Option<(Place, FileId)>> {
        if !matches!(place, Place::Ordinary(..)) {
            return Ok(None);
        }
        let home = home_of(place);
        Ok(self.stat(&home)?.map(|stat| (home, stat.id)))
    }

    /// Fails if another program has put another directory at the name of the one in which a file
    /// was created.
    pub fn check_home(&self, place: &Place, created: &Created) -> Result<()> {
        let Some((home, id)) = &created.home else { return Ok(()) };
        if home_of(place) != *home || self.stat(home)?.is_none_or(|now| now.id == *id) {
            return Ok(());
        }
        let detail = "another program has replaced the directory in which it was created";
        Err(Error::new(Kind::Os(libc::ESTALE), detail))
    }

    /// Returns the attributes of the file of the store that a file or directory is; `None` if there
    /// is none.
    pub fn stat(&self, place: &Place) -> Result<Option<FileStat>> {
        let Some(files) = self.store() else { return Ok(None) };
        match self.path(place)? {
            Some(path) => files.file_stat(&path),
            None => Ok(None),
        }
    }

    /// Returns the stat of the value of an ordinary file. All stores have this one.
    pub fn stat_value(&self, path: &NodePath, relative: &str) -> Result<Stat> {
        let key = self.core.hierarchy.ordinary_prefix(path)?.key(relative)?;
        self.core.hierarchy.store().stat(&key)?.ok_or_else(Error::not_found)
    }

    /// Returns the identity of the file of the store that an ordinary file is.
    pub fn id(&self, place: &Place) -> Result<Option<FileId>> {
        if !matches!(place, Place::Ordinary(..)) {
            return Ok(None);
        }
        Ok(self.stat(place)?.map(|stat| stat.id))
    }

    /// Whether `name` in `directory` is neither a regular file nor a directory in the store: a
    /// link, a FIFO, a socket or a device.
    pub fn is_special(&self, path: &NodePath, directory: &Place, name: &str) -> Result<bool> {
        let Some(files) = self.store() else { return Ok(false) };
        let key = self.core.hierarchy.ordinary_prefix(path)?.key(&below(directory, name))?;
        let found = files.file_stat(key.as_str())?;
        let is_plain = |kind| matches!(kind, FileKind::Regular | FileKind::Directory);
        Ok(found.is_some_and(|found| !is_plain(found.kind)))
    }

    /// Whether the stored dialect itself uses the path `relative` below a node, for metadata or
    /// chunks.
    pub fn is_reserved(&self, path: &NodePath, relative: &str) -> Result<bool> {
        if self.core.hierarchy.dialect_of(path).is_reserved(relative) {
            return Ok(true);
        }
        let node = self.core.hierarchy.node(path)?;
        Ok(node.is_some_and(|node| node.array().is_some_and(|array| array.owns(relative))))
    }

    /// Whether there are ordinary files in a directory, or in the directories of chunks below it.
    pub fn are_in(&self, place: &Place) -> Result<bool> {
        let (Place::ChunkDir(path, _) | Place::OrdinaryDir(path, _)) = place else {
            return Ok(false);
        };
        for found in self.entries(path, place)? {
            match found?.1 {
                Place::OrdinaryDir(path, relative) if self.core.is_remote() => {
                    if self.is_directory(&path, &relative)? {
                        return Ok(true);
                    }
                }
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Whether `relative` is a directory beside a node, in a store whose directories are those of
    /// its keys: some servers go on listing directories in which no key is left.
    pub fn is_directory(&self, path: &NodePath, relative: &str) -> Result<bool> {
        let Some(list) = self.core.hierarchy.store().list() else { return Ok(false) };
        let prefix = self.core.hierarchy.ordinary_prefix(path)?.join(relative)?;
        Ok(match list.list_dir(&prefix)?.next().transpose()? {
            Some(StoreEntry::Prefix(_)) if self.core.is_remote() => {
                // An error may hide keys: a web server lists some of its directories only.
                list.list_prefix(&prefix)?.next().is_some()
            }
            found => found.is_some(),
        })
    }

    /// Returns the directory of the chunks with the first indices `indices`, if it has ordinary
    /// files in or below it.
    fn chunk_directory(&self, path: &NodePath, indices: Vec<u64>) -> Result<Option<Place>> {
        let array = self.core.shown_array(path)?;
        let is_level = indices.len() < array.grid().rank();
        if !is_level || !array.grid().contains_prefix(&indices) {
            return Ok(None);
        }
        let place = Place::ChunkDir(path.clone(), indices);
        Ok(self.are_in(&place)?.then_some(place))
    }

    /// Lists the ordinary files and directories beside a node, in the directory `place`, and the
    /// directories of chunks that hold any.
    pub fn entries(&self, path: &NodePath, place: &Place) -> Result<DirEntries> {
        self.entries_beside(path, place, |_| Ok(false))
    }

    /// Like [`Self::entries`], without the directories of chunks that are listed already:
    /// `is_listed` says so for their last index.
    pub fn entries_beside(
        &self,
        path: &NodePath,
        place: &Place,
        is_listed: impl Fn(u64) -> Result<bool> + Send + 'static,
    ) -> Result<DirEntries> {
        let Some(list) = self.core.hierarchy.store().list() else {
            return Ok(Box::new(std::iter::empty()));
        };
        let relative = place.relative();
        let prefix = self.core.hierarchy.ordinary_prefix(path)?.join(&relative)?;
        let dialect = self.core.hierarchy.dialect_of(path).clone();
        let array = self.core.hierarchy.node(path)?.and_then(|node| node.array().cloned());
        let (files, path, place) = (self.clone(), path.clone(), place.clone());
        let entries = list.list_dir(&prefix)?;
        Ok(Box::new(entries.filter_map(move |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                // A web server does not list this directory, but the chunks in it are known.
                Err(error) if array.is_some() && error.kind() == Kind::Unsupported => return None,
                Err(error) => return Some(Err(error)),
            };
            let name = entry.name().to_owned();
            if let Place::ChunkDir(_, above) = &place
                && let Some(index) = parse_index(&name)
            {
                // In the mount it is a chunk or a directory of chunks, whatever keys the store has.
                if matches!(entry, StoreEntry::Key(_)) {
                    return None;
                }
                let found = is_listed(index).and_then(|is_listed| {
                    let below = [&above[..], &[index]].concat();
                    if is_listed { Ok(None) } else { files.chunk_directory(&path, below) }
                });
                return found.map(|place| Some((name, place?))).transpose();
            }
            let below =
                if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let is_chunks = array
                .as_ref()
                .is_some_and(|array| name == CHUNKS && relative.is_empty() || array.owns(&below));
            if is_chunks || dialect.is_reserved(&below) {
                return None;
            }
            let place = match entry {
                StoreEntry::Key(_) => Place::Ordinary(path.clone(), below),
                StoreEntry::Prefix(_) => Place::OrdinaryDir(path.clone(), below),
            };
            Some(Ok((name, place)))
        })))
    }
}
