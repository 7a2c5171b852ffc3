//! Reads nodes from the store: the metadata files that they have, and what lies below a path that
//! has none.

use std::collections::VecDeque;
use std::sync::Arc;

use super::node::{Content, Node, NodeState};
use super::nodes::{Hierarchy, IMPLICIT_GROUP_SEARCH};
use crate::metadata::model::Group;
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Error, Kind, Result, WithSubject, Word};
use zarrfs_store::{Expected, FileKind, Key, Prefix, StoreEntry};

/// What lies below a path that has no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BelowPath {
    Node,
    Files,
    Nothing,
}

/// Reads nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeReader<'h> {
    hierarchy: &'h Hierarchy,
}

/// Why a directory with metadata of another dialect is not shown.
const OTHER_DIALECT: &str = "its metadata file is one of another version of Zarr, so no node is \
                             shown; open it by its own path";

impl Hierarchy {
    /// Fails if another program removed the directory of a node, or gave it another name, also
    /// while what was read of the node may still be used. Only a store of files is asked.
    pub fn check_there(&self, path: &NodePath) -> Result<()> {
        let Some(files) = self.store().files() else { return Ok(()) };
        let may_lack_it =
            self.directories.get(path).is_some() && !self.directories.is_in_store(path);
        if path.is_root() || may_lack_it || !self.dialect_of(path).has_one_tree() {
            return Ok(());
        }
        if !matches!(files.file_stat(self.ordinary_prefix(path)?.as_str()), Ok(None)) {
            return Ok(());
        }
        drop(self.directories.take_below(path));
        self.invalidate_below(path);
        Err(Error::not_found())
    }

    /// Returns what reads nodes from the store.
    pub(super) fn reader(&self) -> NodeReader<'_> {
        NodeReader { hierarchy: self }
    }
}

impl NodeReader<'_> {
    /// Reads the node at `path`, or the directory that may become one; `None` if there is nothing.
    /// `kept` is the node that was read there before.
    pub fn read(self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        let read = self.read_once(path, kept)?;
        if !self.lacks_listed_document(path, read.as_deref())? {
            return Ok(read);
        }
        // A server that says now and then that a value is not there must not make a group of an
        // array.
        let read = self.read_once(path, None)?;
        if self.lacks_listed_document(path, read.as_deref())? {
            let why = "its metadata file is listed, but the server answers that it is not there";
            self.hierarchy.store().omissions().note(path.as_str(), Word::Missing, why);
        }
        Ok(read)
    }

    /// Whether a node was found to have no metadata file, although a server lists one.
    fn lacks_listed_document(self, path: &NodePath, node: Option<&Node>) -> Result<bool> {
        let store = self.hierarchy.store();
        let lacks_it = node.is_none_or(|node| node.document().is_none() && node.stored().is_none());
        let Some(list) = store.list().filter(|_| lacks_it && store.read().is_remote()) else {
            return Ok(false);
        };
        for (_, key) in self.hierarchy.dialect_of(path).document_keys(path)? {
            let directory = key.parent();
            if !list.is_listed(&directory) {
                continue;
            }
            let document = StoreEntry::Key(key.name().to_owned());
            for entry in list.list_dir(&directory)? {
                if entry? == document {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn read_once(self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        let (hierarchy, dialect) = (self.hierarchy, self.hierarchy.dialect_of(path));
        let known = hierarchy.directories.get(path);
        if known.is_none()
            && let Some(node) = self.copied_node(path, kept)?
        {
            return Ok(Some(node));
        }
        let _expected = self.expect_document(path)?;
        for (kind, key) in dialect.document_keys(path)? {
            if let Some(document) = known.as_ref().and_then(|known| known.stored())
                && document.key == key
            {
                if hierarchy.documents.is_current(document)? {
                    return Ok(known);
                }
                // Another program created a node here.
                hierarchy.directories.remove(path);
            }
            if let Some(kept) = kept
                && let Some(document) = kept.document().filter(|document| document.key == key)
                && hierarchy.documents.is_current(document)?
            {
                return Ok(Some(Arc::clone(kept)));
            }
            let document = match hierarchy.documents.get(dialect, path, &key) {
                Ok(Some(document)) => document,
                Ok(None) => continue,
                Err(error) if self.is_closed(path, &key, &error)? => {
                    return Ok(Some(Arc::new(Node::closed(path.clone(), error))));
                }
                // The node stays visible; its content is the error.
                Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => {
                    let kind = kind.unwrap_or(NodeKind::Group);
                    let content = Content::NotUnderstood(kind, error);
                    let state = NodeState::Unreadable(key);
                    return Ok(Some(Arc::new(Node { path: path.clone(), state, content })));
                }
                Err(error) => return Err(error),
            };
            let lowered = dialect.lower(kind, &document.text);
            let content = match lowered.node.and_then(|node| hierarchy.bind(path, node)) {
                Ok(content) => content,
                Err(error) => Content::NotUnderstood(lowered.kind, error.at(&key)),
            };
            if known.as_ref().is_some_and(|known| known.is_made()) {
                // Another program created a node here.
                hierarchy.directories.remove_for_other(path);
            }
            let state = NodeState::Stored(document);
            return Ok(Some(Arc::new(Node { path: path.clone(), state, content })));
        }
        if let Some(known) = known.filter(|known| known.stored().is_none())
            && !self.has_gone(path)?
        {
            return Ok(Some(known));
        }
        self.without_document(path)
    }

    /// Returns the directory at `path`, which has no document: it is a node because of what lies
    /// below it, or none.
    fn without_document(self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        Ok(match self.find_below(path)? {
            BelowPath::Node => {
                let content = Content::Group(Group::default());
                let state = NodeState::Implicit;
                Some(Arc::new(Node { path: path.clone(), state, content }))
            }
            BelowPath::Files => Some(Arc::new(Node::bare(path.clone(), None))),
            BelowPath::Nothing => None,
        })
    }

    /// Returns the node at `path` from the copy of its metadata file in a group above, if there is
    /// one. `kept` is the node that was read there before.
    fn copied_node(self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        let hierarchy = self.hierarchy;
        let (ttl, node) =
            (hierarchy.options.metadata_ttl, |group: &NodePath| hierarchy.node(group));
        let Some((kind, document)) =
            hierarchy.copied.document(&hierarchy.documents, path, ttl, &node)?
        else {
            return Ok(None);
        };
        let known = kept.and_then(|node| node.document());
        if known.is_some_and(|known| {
            known.text == document.text && known.stat.version.is_same(document.stat.version)
        }) {
            return Ok(kept.map(Arc::clone));
        }
        let lowered = hierarchy.dialect_of(path).lower(Some(kind), &document.text);
        // If it cannot be read, the metadata file itself may be another.
        let Ok(content @ (Content::Array(_) | Content::Group(_))) =
            lowered.node.and_then(|node| hierarchy.bind(path, node))
        else {
            return Ok(None);
        };
        let state = NodeState::Stored(document);
        Ok(Some(Arc::new(Node { path: path.clone(), state, content })))
    }

    /// Announces the metadata files that a node may have to a store that takes long, and those of
    /// the nodes that a program will probably read after it.
    fn expect_document(self, path: &NodePath) -> Result<Expected> {
        if !self.hierarchy.store().read().is_remote() {
            return Ok(Expected::default());
        }
        let expected = self.hierarchy.store().read().expect(&self.hierarchy.document_ranges(path)?);
        if let (Some(group), Some(name)) = (path.parent(), path.name()) {
            self.expect_siblings(&group, name)?;
        }
        Ok(expected)
    }

    fn expect_siblings(self, group: &NodePath, name: &str) -> Result<()> {
        // An error is reported when the group is listed.
        let list = || self.known_child_names(group).ok().flatten();
        let next =
            self.hierarchy.siblings.next(group, name, self.hierarchy.options.metadata_ttl, list);
        if next.is_empty() {
            return Ok(());
        }
        let mut ranges = Vec::new();
        for name in next {
            let path = group.child(&name)?;
            if self.hierarchy.directories.get(&path).is_none() && !self.hierarchy.is_read(&path) {
                ranges.extend(self.hierarchy.document_ranges(&path)?);
            }
        }
        self.hierarchy.siblings.keep(group, self.hierarchy.store().read().expect(&ranges));
        Ok(())
    }

    /// Returns the sorted names directly below a group that may be nodes, if the store lists them
    /// without a request.
    fn known_child_names(self, group: &NodePath) -> Result<Option<Vec<String>>> {
        let prefix = self.hierarchy.dialect_of(group).children_prefix(group)?;
        let list = self.hierarchy.store().list().filter(|list| list.is_listed(&prefix));
        list.map(|list| self.hierarchy.listed_names(group, list)).transpose()
    }

    /// Whether `path` has no metadata file, but nodes below it.
    pub fn is_implicit_group(self, path: &NodePath) -> Result<bool> {
        Ok(self.find_below(path)? == BelowPath::Node)
    }

    /// Finds what lies below `path`, which has no document.
    fn find_below(self, path: &NodePath) -> Result<BelowPath> {
        let dialect = self.hierarchy.dialect_of(path);
        let is_folder = self.hierarchy.folder.is_above(path);
        if is_folder || (path.is_root() && dialect.has_implicit_root()) {
            return Ok(BelowPath::Node);
        }
        let Some(list) = self.hierarchy.store().list() else {
            let is_group = path.is_root()
                || dialect.has_implicit_groups() && self.hierarchy.hinted().is_group(path)?;
            return Ok(if is_group { BelowPath::Node } else { BelowPath::Nothing });
        };
        self.expect_names_beside(path)?;
        let mut found = if path.is_root() { BelowPath::Files } else { BelowPath::Nothing };
        let nodes = self.hierarchy.dialect_of(path).children_prefix(path)?;
        let ordinary = self.hierarchy.ordinary_prefix(path)?;
        if ordinary == nodes && self.lacks_name(&nodes) {
            return Ok(found);
        }
        if dialect.has_implicit_groups() {
            let omissions = self.hierarchy.store().omissions();
            let mut not_seen = Vec::new();
            for (number, key) in list.list_prefix(&nodes)?.enumerate() {
                found = BelowPath::Files;
                match key {
                    Ok(key) if dialect.is_document(&key) => return Ok(BelowPath::Node),
                    // A root without nodes is no hierarchy, which its reader reports.
                    Ok(key) if !path.is_root() && dialect.is_node_of_other(&key) => {
                        let place = key.parent().as_str().trim_end_matches('/').to_owned();
                        not_seen.push((place, Word::Unsupported, OTHER_DIALECT.to_owned()));
                    }
                    Ok(_) => {}
                    // A directory that this process may not read shows no nodes.
                    Err(error) if error.errno() == libc::EACCES => {
                        let place = error.subject().unwrap_or(path.as_str()).to_owned();
                        not_seen.push((place, Word::Refused, error.detail().to_owned()));
                    }
                    Err(error) => return Err(error),
                }
                if number.saturating_add(1) >= IMPLICIT_GROUP_SEARCH {
                    let why = format!(
                        "none of the first {IMPLICIT_GROUP_SEARCH} files in it is a \
                                       metadata file, so no nodes are shown in it"
                    );
                    not_seen.push((path.as_str().to_owned(), Word::Limited, why));
                    break;
                }
            }
            if !list.proves_absence() && self.any_below(path)? || self.any_behind_links(path) {
                return Ok(BelowPath::Node);
            }
            // The directory is not shown as a group, so no walk enters it.
            for (place, word, why) in not_seen {
                omissions.note(&place, word, &why);
            }
        }
        if ordinary != nodes {
            // In a dialect with a separate tree of documents, only that tree has nodes.
            let any = list.list_dir(&ordinary)?.next().transpose()?.is_some();
            found = if any { BelowPath::Files } else { BelowPath::Nothing };
        }
        if found == BelowPath::Nothing && self.has_directory(&ordinary)? {
            found = BelowPath::Files;
        }
        Ok(found)
    }

    /// Whether reading a document failed because this process may not search its directory, which
    /// belongs to another user. The directory itself can be seen.
    fn is_closed(self, path: &NodePath, document: &Key, error: &Error) -> Result<bool> {
        let Some(files) = self.hierarchy.store().files() else { return Ok(false) };
        let is_refused = |error: &Error| error.errno() == libc::EACCES;
        Ok(is_refused(error)
            && files.file_stat(document.as_str()).is_err_and(|error| is_refused(&error))
            && self.has_directory(&self.hierarchy.ordinary_prefix(path)?)?)
    }

    /// Whether another program removed or moved a directory that this mount knows. It is forgotten
    /// then.
    fn has_gone(self, path: &NodePath) -> Result<bool> {
        let hierarchy = self.hierarchy;
        let has_gone = hierarchy.directories.is_in_store(path)
            && !self.has_directory(&hierarchy.ordinary_prefix(path)?)?;
        if has_gone {
            hierarchy.directories.remove_gone(path);
        }
        Ok(has_gone)
    }

    /// Whether a store of files has nothing of this name. Programs ask for each name before they
    /// make a file or directory, so this must not take several calls.
    fn lacks_name(self, prefix: &Prefix) -> bool {
        let files = self.hierarchy.store().files();
        files.is_some_and(|files| matches!(files.file_stat(prefix.as_str()), Ok(None)))
    }

    /// Whether a store of files has this directory, which may be empty.
    pub fn has_directory(self, prefix: &Prefix) -> Result<bool> {
        let Some(files) = self.hierarchy.store().files() else { return Ok(false) };
        let found = files.file_stat(prefix.as_str())?;
        Ok(found.is_some_and(|found| found.kind == FileKind::Directory))
    }

    /// Whether a directory below `path` to which a link leads is a node. Lists of all keys omit
    /// what is behind links.
    fn any_behind_links(self, path: &NodePath) -> bool {
        // The error of a directory was noted when all keys were listed.
        self.hierarchy.store().files().is_some() && self.any_below(path).unwrap_or(false)
    }

    /// Whether a directory below `path` is a node, whose metadata file the store does not list.
    fn any_below(self, path: &NodePath) -> Result<bool> {
        let Some(list) = self.hierarchy.store().list() else { return Ok(false) };
        let (mut open, mut seen) = (VecDeque::from([path.clone()]), 0_usize);
        while let Some(group) = open.pop_front() {
            let nodes = self.hierarchy.dialect_of(&group).children_prefix(&group)?;
            let mut keys = Vec::new();
            for entry in list.list_dir(&nodes)? {
                if let StoreEntry::Prefix(name) = entry? {
                    let child = group.child(&name)?;
                    let documents = self.hierarchy.dialect_of(&child).document_keys(&child)?;
                    keys.extend(documents.into_iter().map(|(_, key)| key));
                    open.push_back(child);
                }
                seen = seen.saturating_add(1);
                if seen > IMPLICIT_GROUP_SEARCH {
                    return Ok(false);
                }
            }
            if self.hierarchy.store().read().stat(&keys)?.iter().any(Option::is_some) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has the store bring the names in the group of `path`: if this one is not there, programs ask
    /// for others, too.
    fn expect_names_beside(self, path: &NodePath) -> Result<()> {
        let (Some(list), Some(parent)) = (self.hierarchy.store().list(), path.parent()) else {
            return Ok(());
        };
        let nodes = self.hierarchy.dialect_of(path).children_prefix(&parent)?;
        list.expect_names(&nodes);
        let ordinary = self.hierarchy.ordinary_prefix(&parent)?;
        if ordinary != nodes {
            list.expect_names(&ordinary);
        }
        Ok(())
    }
}
