//! Makes nodes of new files, in a mount with `--import`.
//!
//! A file such as `diff.nc` that has no node `diff` is an ordinary file while a program writes it.
//! When it is complete, it becomes that node, which has a view with its name. If anything does not
//! fit, it stays an ordinary file, and the program gets the reason.

use std::sync::Arc;

use super::renames::Renames;
use crate::convert::{self, Requested};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::files::FileFormat;
use crate::hierarchy::{Content, Hierarchy};
use crate::metadata::{NodeKind, NodePath};
use crate::rewrite;
use crate::sys;
use crate::vfs::access::Caller;
use crate::vfs::authors::Thread;
use crate::vfs::contents::new_view_files::refused;
use crate::vfs::core::{Outdated, once};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::view::Format;

/// A file whose name is that of a view of a node that does not exist.
struct NewNodeFile<'f> {
    /// The directory and the name of the file.
    parent: Place,
    name: &'f str,
    /// The node that it becomes.
    path: NodePath,
    /// The format of the view.
    format: &'static Format,
}

impl Renames {
    /// Returns what a file with this name becomes; `None` for one that stays an ordinary file.
    fn new_node<'f>(&self, parent: &Place, name: &'f str) -> Option<NewNodeFile<'f>> {
        let Place::Node(group) = parent else { return None };
        if !self.core.options.imports || !FileFormat::is_of_arrays(name) {
            return None;
        }
        let is_group = |path| matches!(self.core.hierarchy.existing(path), Ok(node) if node.kind() == NodeKind::Group);
        let (stem, format) = Format::split(name).into_iter().next()?;
        let path = group.child(stem).ok()?;
        let is_free = matches!(self.core.hierarchy.node(&path), Ok(None));
        (is_free && is_group(group)).then_some(NewNodeFile {
            parent: parent.clone(),
            name,
            path,
            format,
        })
    }

    /// Makes a node of an ordinary file that `by` has closed, if its name is that of a view. A file
    /// that a program still has open to write waits for the last close.
    pub fn import_closed(&self, inode: &Arc<Inode>, by: Thread) -> Result<()> {
        let Some(place @ Place::Ordinary(..)) = inode.place() else { return Ok(()) };
        let (parent, name) = (place.parent(), place.name().unwrap_or_default());
        let Some(new) = self.new_node(&parent, &name) else { return Ok(()) };
        let mut writers = inode.file().lock().users.clone();
        writers.note(by);
        let writers = writers.known().unwrap_or_default();
        let is_open = writers.iter().any(|process| sys::has_open(*process, inode.number()));
        if is_open || self.names.attrs.of(inode)?.len == 0 {
            return Ok(());
        }
        if by.is_some_and(sys::ends_by_failure) {
            let detail = "its program failed or was killed before it had closed the file: it stays \
                          an ordinary file";
            return Err(Error::invalid(detail).at(place.shown()));
        }
        self.import(inode, &place, &new).map_err(|error| refused(&error)).at(place.shown())
    }

    /// Makes a node of an ordinary file that a program gives such a name. `None`, and no change, for
    /// another name.
    pub fn import_renamed(
        &self,
        user: Caller,
        from: &Place,
        (parent, name): (&Place, &str),
    ) -> Option<Result<()>> {
        let new = self.new_node(parent, name).filter(|_| matches!(from, Place::Ordinary(..)))?;
        let inode = self.names.inodes.at(from);
        let imported =
            self.check_may_copy(user, &inode).and_then(|()| self.import(&inode, from, &new));
        self.names.inodes.release(inode);
        Some(imported.map_err(|error| once(refused(&error))))
    }

    fn import(&self, inode: &Arc<Inode>, from: &Place, new: &NewNodeFile<'_>) -> Result<()> {
        let NewNodeFile { parent, name, path, format } = new;
        let hierarchy = &self.core.hierarchy;
        let file = self.copy_of(inode, from)?;
        let source = rewrite::as_hierarchy(&file, name)?;
        let node = node_of(&source, path.name().unwrap_or_default(), format)?;
        let options = hierarchy.options();
        // As for other new arrays, unless the user has left it to zarrfs.
        let is_chosen = !options.keeps_copied;
        let requested = Requested {
            codecs: is_chosen.then(|| options.policy.codecs.clone()),
            shards: is_chosen.then(|| options.policy.shards.clone()),
            ..Requested::default()
        };
        let plan = convert::plan((&source, &node), (hierarchy, path), &requested, &|| false)?;
        let fill_chunks = self.core.options.fill_chunks;
        let (keys, _alone) =
            convert::make_at_once(hierarchy, path, &plan, fill_chunks, || self.core.alone())?;
        for key in keys {
            self.contents.unsynced.changed(key);
        }
        self.unlink_file(inode, from)?;
        // One that could not become a node, and that a program replaces.
        let replaced =
            Place::Ordinary(path.parent().unwrap_or_else(NodePath::root), (*name).to_owned());
        if replaced != *from {
            match self.unlink(&replaced) {
                Err(error) if error.kind() == Kind::NotFound => {}
                removed => removed?,
            }
        }
        // The kernel takes the one for the file, and the other for missing.
        if let Some(directory) = self.names.inodes.known_at(parent) {
            for name in [*name, path.name().unwrap_or_default()] {
                self.core.outdate(Outdated::Name(directory.number(), name.to_owned()));
            }
        }
        log::info!("{path}: made of the file {name}");
        Ok(())
    }
}

/// Returns the node of a file that the new node becomes: all that is in it, or the array that a view
/// with the name of the file needs.
fn node_of(source: &Hierarchy, stem: &str, format: &Format) -> Result<NodePath> {
    let root = source.existing(&NodePath::root())?;
    let has_attributes = root.attributes().is_some_and(|attributes| !attributes.is_empty());
    if format.is_for(NodeKind::Group) && (format.holds_names() || has_attributes) {
        return Ok(NodePath::root());
    }
    let mut arrays = Vec::new();
    for child in source.children(&NodePath::root())? {
        let child = child?;
        if matches!(child.content(), Content::Array(_)) {
            arrays.push(child.path().clone());
        }
    }
    let named = arrays.iter().find(|path| path.name() == Some(stem));
    if let Some(array) = named.or_else(|| arrays.first().filter(|_| arrays.len() == 1)) {
        return Ok(array.clone());
    }
    let count = arrays.len();
    Err(Error::invalid(format!("the file has {count} arrays, and a view with this name has one")))
}
