//! Makes nodes of new files, in a mount with `--import`.
//!
//! A file such as `diff.nc` that has no node `diff` is an ordinary file while a program writes it.
//! When it is complete, it becomes that node, which has a view with its name. If anything does not
//! fit, it stays an ordinary file, and the program gets the reason.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{mem, thread};

use super::renames::Renames;
use crate::convert::{self, Requested};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::files::FileFormat;
use crate::hierarchy::{Content, Hierarchy};
use crate::metadata::{NodeKind, NodePath};
use crate::rewrite;
use crate::store::{FileChanges, FileKind, FileUse, Ownership};
use crate::sys;
use crate::vfs::access::Caller;
use crate::vfs::authors::Thread;
use crate::vfs::contents::new_view_files::refused;
use crate::vfs::core::{Outdated, once};
use crate::vfs::inodes::file::ImportState;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::view::{Format, GetChunk, ROOT_NAME, ViewSource};

/// Times of files may be that much older than the change.
const CLOCK_TICK: Duration = Duration::from_millis(20);

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
        let is_group = |path| {
            self.core.hierarchy.existing(path).is_ok_and(|node| node.kind() == NodeKind::Group)
        };
        let (stem, format) = Format::split(name).into_iter().next()?;
        // This name is that of a view of the root.
        if stem == ROOT_NAME && group.is_root() {
            return None;
        }
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
    /// that a program still has open to write waits for the last close. `own` is the number of the
    /// caller's handles that may write.
    pub fn import_closed(&self, (inode, own): (&Arc<Inode>, u32), by: Thread) -> Result<()> {
        if !self.core.options.imports {
            return Ok(());
        }
        let Some(place @ Place::Ordinary(..)) = inode.place() else { return Ok(()) };
        let (parent, name) = (place.parent(), place.name().unwrap_or_default());
        let Some(new) = self.new_node(&parent, &name) else { return Ok(()) };
        let awaits = is_written(inode, by, own);
        let mut file = inode.file().lock();
        if file.import == ImportState::Done {
            return Ok(()); // Another thread makes the node.
        }
        file.import = if awaits { ImportState::AtLastClose } else { ImportState::No };
        drop(file);
        if awaits || self.names.attrs.of(inode)?.len == 0 {
            return Ok(());
        }
        if by.is_some_and(sys::ends_by_failure) {
            let detail = "its program failed or was killed before it had closed the file: it stays \
                          an ordinary file";
            return Err(Error::invalid(detail).at(place.shown()));
        }
        self.import((inode, own), &place, &new).map_err(|error| refused(&error)).at(place.shown())
    }

    /// Makes a node of an ordinary file that a program gives such a name. `None`, and no change,
    /// for another name.
    pub fn import_renamed(
        &self,
        user: Caller,
        from: &Place,
        (parent, name): (&Place, &str),
    ) -> Option<Result<()>> {
        let new = self.new_node(parent, name).filter(|_| matches!(from, Place::Ordinary(..)))?;
        let inode = self.names.inodes.at(from);
        let is_complete = self.names.attrs.of(&inode).is_ok_and(|attr| {
            // The last close makes the node.
            attr.kind == FileKind::Regular && attr.len > 0 && !is_written(&inode, None, 0)
        });
        let imported = is_complete.then(|| {
            self.check_may_copy(user, &inode).and_then(|()| self.import((&inode, 0), from, &new))
        });
        self.names.inodes.release(inode);
        imported.map(|imported| imported.map_err(|error| once(refused(&error))))
    }

    /// Returns the length and the times of a file, after waiting until a later change would get
    /// another time.
    fn settled(&self, inode: &Inode) -> Result<(u64, SystemTime, SystemTime)> {
        let attr = self.names.attrs.of(inode)?;
        if attr.modified.elapsed().is_ok_and(|since| since < CLOCK_TICK) {
            thread::sleep(CLOCK_TICK);
        }
        Ok((attr.len, attr.modified, attr.changed))
    }

    /// Gives the directory of a new node the owner of the file that it was, and no more permissions
    /// than that has.
    fn give_to(&self, owner: Option<Ownership>, path: &NodePath) -> Result<()> {
        let (Some(Ownership { mode, uid, gid }), Some(files)) =
            (owner, self.names.ordinary.store())
        else {
            return Ok(());
        };
        let prefix = self.core.hierarchy.ordinary_prefix(path)?;
        let Some(directory) =
            files.open(prefix.as_str().trim_end_matches('/'), FileUse::Attributes)?
        else {
            return Ok(());
        };
        let now = directory.stat()?.owner;
        // Permission to read the file is permission to search the directory.
        let mode = now.mode & (mode | (mode & 0o444) >> 2);
        if mode != now.mode {
            directory.change(&FileChanges { mode: Some(mode), ..FileChanges::default() })?;
        }
        if (uid, gid) != (now.uid, now.gid) {
            let (uid, gid) = (Some(uid), Some(gid));
            directory.change(&FileChanges { uid, gid, ..FileChanges::default() })?;
        }
        Ok(())
    }

    /// `own` is the number of the caller's handles that may write.
    fn import(
        &self,
        (inode, own): (&Arc<Inode>, u32),
        from: &Place,
        new: &NewNodeFile<'_>,
    ) -> Result<()> {
        let NewNodeFile { parent, name, path, format } = new;
        let hierarchy = &self.core.hierarchy;
        let before = self.settled(inode)?;
        let file = self.copy_of(inode, from)?;
        let source = rewrite::as_hierarchy(&file, name)?;
        let node = node_of(&source, path.name().unwrap_or_default(), format)?;
        check_has_view(&source, &node, format)?;
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
        let is_first = Cell::new(false);
        let alone = || {
            rewrite::check_seen(&source)?;
            let alone = self.core.alone()?;
            // A write from now on fails, and an earlier one is seen.
            let was = mem::replace(&mut inode.file().lock().import, ImportState::Done);
            if was == ImportState::Done {
                return Err(changed_meanwhile()); // Another thread has just made the node.
            }
            is_first.set(true);
            let is_same = !is_written(inode, None, own) && self.settled(inode)? == before;
            if is_same && inode.is_at(from) { Ok(alone) } else { Err(changed_meanwhile()) }
        };
        let owner = self.names.attrs.of(inode)?.owner;
        let made = convert::make_at_once(hierarchy, path, &plan, fill_chunks, alone);
        let made = made.and_then(|made| self.give_to(owner, path).map(|()| made));
        let (keys, _alone) = made.inspect_err(|_| {
            if is_first.get() {
                inode.file().lock().import = ImportState::No;
            }
        })?;
        for key in keys {
            self.contents.unsynced.changed(key);
        }
        self.unlink_file(inode, from)?;
        // An earlier file of this name could not become a node, and is replaced.
        let replaced =
            Place::Ordinary(path.parent().unwrap_or_else(NodePath::root), (*name).to_owned());
        if replaced != *from {
            match self.unlink(&replaced) {
                Err(error) if error.kind() == Kind::NotFound => {}
                removed => removed?,
            }
        }
        // The kernel still knows one name as the file, and the other as missing.
        if let Some(directory) = self.names.inodes.known_at(parent) {
            for name in [*name, path.name().unwrap_or_default()] {
                self.core.outdate(Outdated::Name(directory.number(), name.to_owned()));
            }
        }
        log::info!("{path}: made of the file {name}");
        Ok(())
    }
}

/// Whether programs may still write to a file, beside `own` handles of the caller, also by a
/// descriptor that `by` or a relative of its shares.
fn is_written(inode: &Inode, by: Thread, own: u32) -> bool {
    let file = inode.file().lock();
    let (mut users, writers) = (file.users.clone(), file.writers);
    drop(file);
    if by.is_some() {
        users.note(by);
    }
    let name = inode.place().and_then(|place| place.name());
    let users = users.known().unwrap_or_default();
    writers > own || sys::may_have_open(users, inode.number(), &name.unwrap_or_default())
}

fn changed_meanwhile() -> Error {
    let detail = "another program has changed the file meanwhile: it stays an ordinary file until \
                  it is closed again";
    Error::new(Kind::Busy, detail)
}

/// Fails if a node would have no file with the name that the program gave it.
fn check_has_view(source: &Hierarchy, node: &NodePath, format: &Format) -> Result<()> {
    let get: &GetChunk<'_> = &|_, _, _| Ok(None);
    let view = ViewSource::new(source, node, get).and_then(|node| format.view(&node).map(drop));
    view.map_err(|error| {
        let detail = format!(
            "the node would have no file with this name ({}): use `zarrfs import`, or a name that \
             ends otherwise",
            error.detail()
        );
        Error::invalid(detail)
    })
}

/// Returns the node of a file that the new node becomes: all that is in it, or the array that a
/// view with the name of the file needs.
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
    Err(Error::invalid(format!(
        "the file has {count} arrays, but a view with this extension has one"
    )))
}
