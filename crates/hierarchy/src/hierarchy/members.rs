//! Lists the nodes, directories and ordinary files directly below a group.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::node::Node;
use super::nodes::Hierarchy;
use crate::metadata::NodePath;
use zarrfs_base::error::{Error, Result, WithSubject, Word};
use zarrfs_base::limits;
use zarrfs_store::{FileKind, Key, ListableStore, PRIVATE, StoreEntry};

/// Why a node, or what its attributes say, is not shown.
const ONLY_A_COPY: &str = "its metadata file is gone, and only consolidated metadata have a copy, \
                           which zarr-python reads";

/// An entry directly below a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// A node, or a directory of ordinary files.
    Directory(String),
    /// An ordinary file.
    File(String),
}

/// An iterator over members, each of them once.
pub type Members<'a> = Box<dyn Iterator<Item = Result<Member>> + Send + 'a>;

impl Hierarchy {
    /// Returns the members of a group, without its own document.
    pub fn members(&self, path: &NodePath) -> Result<Members<'static>> {
        let known = self.directories.below(path);
        let stored = self.stored_members(path)?;
        let names: HashSet<String> = known.iter().cloned().collect();
        let stored = stored.filter(move |member| match member {
            Ok(Member::Directory(name)) => !names.contains(name),
            Ok(Member::File(_)) | Err(_) => true,
        });
        Ok(Box::new(known.into_iter().map(|name| Ok(Member::Directory(name))).chain(stored)))
    }

    fn stored_members(&self, path: &NodePath) -> Result<Members<'static>> {
        let Some(list) = self.store().list() else {
            let names = self.hinted().names(path)?.into_iter();
            return Ok(Box::new(names.map(|name| Ok(Member::Directory(name)))));
        };
        let nodes = self.dialect_of(path).children_prefix(path)?;
        let ordinary = self.ordinary_prefix(path)?;
        let dialect = self.dialect_of(path).clone();
        if nodes == ordinary {
            let entries = list.list_dir(&ordinary)?;
            let hidden = if list.proves_absence() {
                Vec::new()
            } else {
                self.hinted().hidden_names(path, &self.listed_names(path, list)?)?
            };
            let hidden = hidden.into_iter().map(|name| Ok(Member::Directory(name)));
            return Ok(Box::new(
                entries
                    .filter_map(move |entry| match entry {
                        Ok(StoreEntry::Prefix(name)) => Some(Ok(Member::Directory(name))),
                        Ok(StoreEntry::Key(name)) if dialect.is_reserved(&name) => None,
                        Ok(StoreEntry::Key(name)) => Some(Ok(Member::File(name))),
                        Err(error) => Some(Err(error)),
                    })
                    .chain(hidden),
            ));
        }
        // With two trees, a name may occur in both, or twice in one.
        let mut names = BTreeMap::new();
        for entry in list.list_dir(&nodes)? {
            let Some(child) = dialect.child(&entry?) else { continue };
            if child.certain || self.reader().is_implicit_group(&path.child(&child.name)?)? {
                names.insert(child.name.clone(), Member::Directory(child.name));
            }
        }
        for entry in list.list_dir(&ordinary)? {
            match entry? {
                StoreEntry::Prefix(name) => {
                    names.entry(name.clone()).or_insert(Member::Directory(name));
                }
                StoreEntry::Key(name) if !dialect.is_reserved(&name) => {
                    names.entry(name.clone()).or_insert(Member::File(name));
                }
                StoreEntry::Key(_) => {}
            }
        }
        Ok(Box::new(names.into_values().map(Ok)))
    }

    /// Returns the sorted names directly below a group that may be nodes.
    pub fn child_names(&self, path: &NodePath) -> Result<Vec<String>> {
        let Some(list) = self.store().list() else { return self.hinted().names(path) };
        let is_implicit =
            |node: &Arc<Node>| !node.is_bare() && node.stored().or(node.removed()).is_none();
        if self.node(path)?.as_ref().is_some_and(is_implicit) {
            self.note_lost_attributes(path)?;
        }
        let mut names = self.listed_names(path, list)?;
        if !list.proves_absence() {
            names.extend(self.hinted().hidden_names(path, &names)?);
            names.sort_unstable();
        }
        Ok(names)
    }

    /// Returns the sorted names directly below a group that the store lists and that may be nodes.
    pub(super) fn listed_names(
        &self,
        path: &NodePath,
        list: &dyn ListableStore,
    ) -> Result<Vec<String>> {
        let (mut names, mut len) = (Vec::new(), 0_usize);
        for entry in list.list_dir(&self.dialect_of(path).children_prefix(path)?)? {
            let entry = entry?;
            let Some(child) = self.dialect_of(path).child(&entry) else {
                self.note_hidden(path, &entry);
                continue;
            };
            len = len.saturating_add(child.name.capacity()).saturating_add(size_of::<String>());
            if limits::GROUP_NAMES.is_exceeded_by(len) {
                let detail =
                    format!("the names in it take too much memory, {}", limits::GROUP_NAMES);
                return Err(Error::too_large(detail).at(path));
            }
            names.push(child.name);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Notes a directory whose name no node can have.
    fn note_hidden(&self, path: &NodePath, entry: &StoreEntry) {
        let StoreEntry::Prefix(name) = entry else { return };
        // At the root of a store it is zarrfs's own.
        let is_own = *name == PRIVATE && path.is_root() && self.dialect().base().is_root();
        if is_own {
            return;
        }
        // The mark of an unfinished copy also lies in a directory of this name.
        let has_document = || {
            let child = path.child(name)?;
            let documents = self.dialect_of(path).document_keys(&child)?;
            let keys: Vec<Key> = documents.into_iter().map(|(_, key)| key).collect();
            Ok::<_, Error>(self.store().read().stat(&keys)?.iter().any(Option::is_some))
        };
        if has_document().unwrap_or(true) {
            let place = format!("{}/{name}", path.as_str());
            let why = "no node can have this name, so it is not shown, nor what is in it";
            self.store().omissions().note(place.trim_start_matches('/'), Word::Unsupported, why);
        }
    }

    /// Returns the node at `path`, one of the child names; `None` if it is no node. A directory
    /// that this process may not search may be one.
    pub fn child_node(&self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        let Some(node) = self.node(path)? else { return Ok(None) };
        if is_node(&node) {
            return Ok(Some(node));
        }
        self.note_lost(path)?;
        Ok(None)
    }

    /// Notes a group that is there only because of what lies below it, if its metadata file was
    /// there before: its attributes are not shown.
    fn note_lost_attributes(&self, path: &NodePath) -> Result<()> {
        let note = |why: &str| self.store().omissions().note(path.as_str(), Word::Missing, why);
        if self.hinted().has_copy(path)? {
            note(ONLY_A_COPY);
        } else if let Some(key) = self.dialect_of(path).attributes_key(path)?
            && self.store().stat(&key)?.is_some()
        {
            note(&format!("its metadata file is gone, so its attributes in {key} are not shown"));
        }
        Ok(())
    }

    /// Notes a directory that would be a node if its metadata file were there.
    fn note_lost(&self, path: &NodePath) -> Result<()> {
        let note = |word, why: &str| self.store().omissions().note(path.as_str(), word, why);
        if let Some(files) = self.store().files() {
            for (_, key) in self.dialect_of(path).document_keys(path)? {
                let found = files.file_stat(key.as_str()).ok().flatten();
                if found.is_some_and(|found| found.kind == FileKind::Directory) {
                    let why = format!("{} is a directory and not its metadata file", key.name());
                    note(Word::Damaged, &why);
                    return Ok(());
                }
            }
        }
        if self.hinted().is_copied(path)? {
            note(Word::Missing, ONLY_A_COPY);
        }
        Ok(())
    }

    /// Like [`Self::child_node`], as the store has it at `since` or later.
    pub(super) fn child_node_since(
        &self,
        path: &NodePath,
        since: Instant,
    ) -> Result<Option<Arc<Node>>> {
        Ok(self.node_since(path, since)?.filter(is_node))
    }

    /// Returns the nodes directly below a group, sorted by name. Each is read when the iterator
    /// reaches it.
    pub fn children(
        &self,
        path: &NodePath,
    ) -> Result<impl Iterator<Item = Result<Arc<Node>>> + use<'_>> {
        let (names, path) = (self.child_names(path)?, path.clone());
        Ok(names.into_iter().filter_map(move |name| {
            let path = path.child(&name);
            path.and_then(|path| self.child_node(&path)).transpose()
        }))
    }

    /// Whether the store holds a hierarchy: its root has a document, or nodes below it.
    pub fn exists(&self) -> Result<bool> {
        let root = NodePath::root();
        Ok(self.existing(&root)?.document().is_some()
            || self.children(&root)?.next().transpose()?.is_some())
    }
}

/// Whether a directory is a node, even if the mount does not show its metadata file.
fn is_node(node: &Arc<Node>) -> bool {
    !node.is_bare() || node.stored().is_some() || node.is_closed()
}
