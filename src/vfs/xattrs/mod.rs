//! Extended attributes: properties of the array (`user.zarr.*`, `properties`), the node's own
//! attributes (`user.attrs.*`), and any others of ordinary files and directories, if the store
//! keeps files (`kept`).

mod kept;
mod properties;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::access::Caller;
use super::contents::Contents;
use super::core::{Core, once};
use super::inodes::place::Place;
use super::names::Names;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Node, TextPurpose};
use crate::json as lenient;
use crate::metadata::NodePath;
use crate::metadata::merge::Edit;
use crate::store::Presence;
use kept::KeptXattrs;
use properties::{SHOWN, ZARR, properties};

const ATTRS: &str = "user.attrs.";

/// The most bytes of a value that the kernel accepts.
const MAX_VALUE_LEN: usize = 65_536;

/// Reads and changes extended attributes.
pub struct Xattrs {
    core: Arc<Core>,
    names: Arc<Names>,
    contents: Contents,
    kept: KeptXattrs,
}

impl fmt::Debug for Xattrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xattrs").finish_non_exhaustive()
    }
}

impl Xattrs {
    /// Returns the extended attributes of the files of `contents`.
    pub(in crate::vfs) fn new(contents: &Contents) -> Self {
        let contents = contents.clone();
        Self {
            core: Arc::clone(&contents.core),
            names: Arc::clone(&contents.names),
            kept: KeptXattrs::new(&contents.core, &contents.names),
            contents,
        }
    }

    /// Returns the value of an extended attribute.
    pub fn get(&self, number: u64, name: &str) -> Result<Vec<u8>> {
        let place = || -> Result<_> { Ok(self.names.inode(number)?.place()) };
        let found = if let Some(attribute) = name.strip_prefix(ATTRS) {
            // Programs ask for attributes one by one, so compute only this one.
            match self.node_of(place()?.as_ref())? {
                Some(node) => {
                    node.attributes().and_then(|all| all.get(attribute)).map(ToString::to_string)
                }
                None => None,
            }
        } else if name.starts_with(ZARR) {
            let all = properties(&self.core, place()?.as_ref())?;
            all.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
        } else {
            return self.kept.get(number, name);
        };
        let absent = || Error::new(Kind::NoAttribute, "no such attribute");
        found.map(String::into_bytes).ok_or_else(absent)
    }

    /// Returns the names of all extended attributes that a user may know. Every user may list those
    /// of a file, but those of a node are the content of its metadata file.
    pub fn list_for(&self, user: Caller, number: u64) -> Result<Vec<String>> {
        let mut names = self.list(number)?;
        if user.uid != 0 {
            names.retain(|name| !name.starts_with("trusted."));
        }
        if !self.may_know_node(user, number)? {
            names.retain(|name| !is_of_node(name));
        }
        Ok(names)
    }

    /// Returns the value of an extended attribute that a user may know.
    pub fn get_for(&self, user: Caller, number: u64, name: &str) -> Result<Vec<u8>> {
        if is_of_node(name) && !self.may_know_node(user, number)? {
            let detail = "the user may not read the metadata file in the store";
            return Err(Error::new(Kind::Os(libc::EACCES), detail));
        }
        self.get(number, name)
    }

    /// Whether a user may read what the store has of a node or a chunk. The kernel has only checked
    /// the directory.
    fn may_know_node(&self, user: Caller, number: u64) -> Result<bool> {
        if !self.core.options.has_others || user.is_trusted() {
            return Ok(true);
        }
        let private = match self.names.inode(number)?.place() {
            Some(Place::Node(path)) => self.names.private.ownership_of_node(&path)?,
            Some(place) => self.names.private.ownership_of(&place)?,
            None => None,
        };
        Ok(private.is_none_or(|owner| user.may_read(owner)))
    }

    /// Returns the names of all extended attributes.
    pub fn list(&self, number: u64) -> Result<Vec<String>> {
        let place = self.names.inode(number)?.place();
        let of_file = self.kept.list(number)?;
        // Longer values can be read in the metadata file.
        let fits = |(name, value): &(String, String)| is_listed(name, value.len());
        let own =
            properties(&self.core, place.as_ref())?.into_iter().filter(fits).map(|(name, _)| name);
        let mut names: Vec<String> = own.chain(of_file).collect();
        let mut len = 0_usize;
        if let Some(node) = self.node_of(place.as_ref())? {
            for (name, value) in node.attributes().into_iter().flatten() {
                if name.contains('\0') {
                    let detail = format!(
                        "the attribute {name:?} has a NUL in its name, which no extended attribute \
                         can have: it is left out, and is in the metadata file"
                    );
                    self.core.journal.note("listxattr", &Error::invalid(detail).at(node.path()));
                    continue;
                }
                let name = format!("{ATTRS}{name}");
                if is_listed(&name, lenient::compact(value).len()) {
                    len = len.saturating_add(name.len());
                    names.push(name);
                }
                // The kernel accepts no longer list.
                if len > MAX_VALUE_LEN {
                    break;
                }
            }
        }
        Ok(names)
    }

    /// Returns the node whose attributes a place shows.
    fn node_of(&self, place: Option<&Place>) -> Result<Option<Arc<Node>>> {
        match place {
            Some(Place::Node(path) | Place::Document(path)) => {
                self.core.hierarchy.existing(path).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Sets an attribute of a node to a JSON value.
    pub fn set(&self, number: u64, name: &str, value: &[u8], presence: Presence) -> Result<()> {
        self.core.options.check_names_change()?;
        if let Some(set) = self.kept.set(number, name, Some((value, presence)))? {
            return Ok(set);
        }
        if name == SHOWN {
            let place = self.names.inode(number)?.place();
            let Some(Place::Node(path) | Place::Document(path)) = place else {
                return Err(Error::unsupported(format!("{name}: only groups and arrays have it")));
            };
            return self.contents.show_chunks(&path, value).at(format!("{path}: {name}"));
        }
        let (path, attribute) = self.attribute_of(number, name)?;
        let value = lenient::parse(value).map_err(|_| {
            let detail =
                r#"not JSON: a string needs quotes, in addition to those that setfattr removes: -v '"\"K\""'"#;
            Error::invalid(detail).at(format!("{path}: {name}"))
        })?;
        // The node as the program sees it, and as it is stored now.
        let seen = self.core.hierarchy.existing(&path)?;
        let node = self.core.hierarchy.changes().existing(&path)?;
        let is_there = node.attributes().is_some_and(|all| all.contains_key(&attribute));
        match presence {
            Presence::Absent if is_there => {
                return Err(Error::new(Kind::Exists, "the attribute exists"));
            }
            Presence::Present if !is_there => {
                return Err(Error::new(Kind::NoAttribute, "no such attribute"));
            }
            _ => {}
        }
        self.edit_attribute(&seen, attribute, Some(value))
    }

    /// Removes an attribute of a node.
    pub fn remove(&self, number: u64, name: &str) -> Result<()> {
        self.core.options.check_names_change()?;
        if name.starts_with(ZARR) {
            return Ok(()); // `rsync -X` removes what its source has not: as with chmod nothing changes.
        }
        if let Some(removed) = self.kept.set(number, name, None)? {
            return Ok(removed);
        }
        let (path, attribute) = self.attribute_of(number, name)?;
        let seen = self.core.hierarchy.existing(&path)?;
        let node = self.core.hierarchy.changes().existing(&path)?;
        if node.attributes().is_none_or(|all| !all.contains_key(&attribute)) {
            return Err(Error::new(Kind::NoAttribute, "no such attribute"));
        }
        self.edit_attribute(&seen, attribute, None)
    }

    fn edit_attribute(&self, seen: &Node, name: String, value: Option<Value>) -> Result<()> {
        let path = seen.path();
        let _alone = self.core.alone()?;
        let before = self.core.hierarchy.shown().text_of(seen, TextPurpose::Text);
        let edit = Edit { attributes: vec![(name, value)], ..Edit::default() };
        self.core.hierarchy.changes().edit_like(path, Some(seen), &edit).map_err(once)?;
        let place = Place::Document(path.clone());
        if let Ok(before) = before {
            self.names.seen_texts.note_changed(&place, &before);
        }
        if let Some(key) = self.contents.stored.key_of(&self.names.target(place.clone())?)? {
            self.contents.unsynced.changed(key);
        }
        if let Some(inode) = self.names.inodes.known_at(&place) {
            self.core.invalidate(inode.number());
        }
        Ok(())
    }

    /// Returns the node and its attribute for the extended attribute `name`, if it can be changed.
    fn attribute_of(&self, number: u64, name: &str) -> Result<(NodePath, String)> {
        if !name.starts_with("user.") {
            // `cp -a` and `install` try to set access control lists and continue without them, so
            // this error is not recorded.
            return Err(Error::new(Kind::NoSuchNamespace, "only user attributes can be set"));
        }
        self.core.hierarchy.store().write()?;
        let inode = self.names.inode(number)?;
        let place = inode.place();
        if let Some(Place::Document(_)) = place
            && inode.file().lock().is_changed()
        {
            // `cp -a` sets attributes that the metadata file contains anyway, and continues without
            // them.
            return Err(Error::unsupported(format!(
                "{name}: a program is writing the metadata \
                 file"
            )));
        }
        if name.starts_with(ZARR) {
            return Err(Error::new(Kind::FixedAttribute, format!("{name} is read-only")));
        }
        match (place, name.strip_prefix(ATTRS)) {
            (Some(Place::Node(path) | Place::Document(path)), Some(attribute)) => {
                Ok((path, attribute.to_owned()))
            }
            _ => Err(Error::unsupported(format!(
                "{name}: only {ATTRS}NAME of groups and arrays can be set"
            ))),
        }
    }
}

/// Whether an attribute is a property of a node or a chunk, or an attribute of a node.
fn is_of_node(name: &str) -> bool {
    name.starts_with(ATTRS) || name.starts_with(ZARR)
}

/// Whether the kernel accepts an attribute with this name and length.
fn is_listed(name: &str, len: usize) -> bool {
    len <= MAX_VALUE_LEN && name.len() <= 255
}
