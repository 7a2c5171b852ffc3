//! Extended attributes of ordinary files and of directories, which a store of files keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::is_of_node;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::{FileUse, OpenFile, Presence};
use crate::vfs::core::Core;
use crate::vfs::inodes::file::BytesAt;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::Names;

/// The namespaces that are passed to the store. Access control lists are not: the kernel, which
/// checks access, would not know them.
const KEPT: [&str; 3] = ["user.", "trusted.", "security."];

/// An extended attribute that says which programs a file may run as, which must not come from the
/// files of a mount.
const CAPABILITY: &str = "security.capability";

/// The extended attributes that the store keeps.
pub(super) struct KeptXattrs {
    core: Arc<Core>,
    names: Arc<Names>,
}

impl KeptXattrs {
    /// Returns those of the files in `names`.
    pub fn new(core: &Arc<Core>, names: &Arc<Names>) -> Self {
        Self { core: Arc::clone(core), names: Arc::clone(names) }
    }

    /// Returns the value of an attribute.
    pub fn get(&self, number: u64, name: &str) -> Result<Vec<u8>> {
        let absent = || Error::new(Kind::NoAttribute, "no such attribute");
        if self.names.ordinary.store().is_none() || !is_kept(name) {
            return Err(absent());
        }
        let inode = self.names.inode(number)?;
        if let Some(created) = created(&inode, |all| all.get(name).cloned()) {
            return created.ok_or_else(absent);
        }
        self.with_file(&inode, |file| file.xattr(name.as_ref()))?.ok_or_else(absent)
    }

    /// Returns the names of all attributes.
    pub fn list(&self, number: u64) -> Result<Vec<String>> {
        if self.names.ordinary.store().is_none() {
            return Ok(Vec::new());
        }
        let inode = self.names.inode(number)?;
        if let Some(names) = created(&inode, |all| all.keys().cloned().collect()) {
            return Ok(names);
        }
        let Some(list) = self.with_file(&inode, OpenFile::xattrs)? else {
            return Ok(Vec::new());
        };
        let names = list.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
        Ok(names.filter(|name| is_kept(name)).map(str::to_owned).collect())
    }

    /// Sets an attribute, or removes it without a value. `None` if the file has none of its own.
    pub fn set(
        &self,
        number: u64,
        name: &str,
        value: Option<(&[u8], Presence)>,
    ) -> Result<Option<()>> {
        if self.names.ordinary.store().is_none() || !is_kept(name) {
            return Ok(None);
        }
        self.core.hierarchy.store().write()?;
        if name == CAPABILITY {
            return Err(Error::new(Kind::NotPermitted, "files of a mount get no capabilities"));
        }
        let inode = self.names.inode(number)?;
        let of_new = created(&inode, |all| match value {
            Some((value, presence)) => {
                match presence {
                    Presence::Absent if all.contains_key(name) => {
                        return Err(Error::new(Kind::Exists, "the attribute exists"));
                    }
                    Presence::Present if !all.contains_key(name) => {
                        return Err(Error::new(Kind::NoAttribute, "no such attribute"));
                    }
                    _ => {}
                }
                all.insert(name.to_owned(), value.to_vec());
                Ok(())
            }
            None => all
                .remove(name)
                .map(drop)
                .ok_or_else(|| Error::new(Kind::NoAttribute, "no such attribute")),
        });
        if let Some(set) = of_new {
            return set.map(Some);
        }
        self.with_file(&inode, |file| match value {
            Some((value, presence)) => file.set_xattr(name.as_ref(), value, presence),
            None => file.remove_xattr(name.as_ref()),
        })
    }

    /// Calls `with` with the file of the store that an inode is; `None` if it is none.
    fn with_file<T>(
        &self,
        inode: &Inode,
        with: impl FnOnce(&OpenFile) -> Result<T>,
    ) -> Result<Option<T>> {
        if let Some(file) = inode.known_file()
            && let Some(open) = file.lock().content.open_file()
        {
            return with(open).map(Some);
        }
        let (Some(place), Some(files)) = (inode.place(), self.names.ordinary.store()) else {
            return Ok(None);
        };
        let Some(path) = self.names.ordinary.path(&place)? else { return Ok(None) };
        match files.open(&path, FileUse::Attributes)? {
            Some(file) => with(&file).at(place.shown()).map(Some),
            None => Ok(None),
        }
    }
}

/// Calls `with` with the extended attributes of a file that is not stored yet.
fn created<T>(inode: &Inode, with: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T) -> Option<T> {
    if !matches!(inode.place(), None | Some(Place::Ordinary(..))) {
        return None;
    }
    let mut file = inode.known_file()?.lock();
    if !matches!(file.content, BytesAt::Unstored(_) | BytesAt::Detached(_)) {
        return None;
    }
    Some(with(&mut file.created.as_mut()?.xattrs))
}

/// Whether the store keeps the attribute. If it has some with names of the properties and
/// attributes of nodes, perhaps copied out of a mount, they are not shown.
fn is_kept(name: &str) -> bool {
    KEPT.iter().any(|space| name.starts_with(space)) && !is_of_node(name)
}
