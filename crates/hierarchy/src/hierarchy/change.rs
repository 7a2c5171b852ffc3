//! Creates, changes and removes nodes.

use std::sync::Arc;
use std::time::Instant;

use super::atomic::Atomic;
use super::consolidated::CopiesAbove;
use super::documents::{Replaced, StepsDone, steps_to_erase};
use super::guard::array_made;
use super::intent::{Documents, Intent};
use super::names::check_is_not_private;
use super::node::{Content, Document, Node, NodeState};
use super::nodes::Hierarchy;
use super::raise::Raised;
use crate::metadata::merge::Edit;
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::{Key, Prefix, Store, not_free};

/// Changes that programs ask for. Each is complete or has no effect, and follows from what the
/// store has had since the change began (`hierarchy::guard`).
#[derive(Debug, Clone, Copy)]
pub struct Changes<'h> {
    pub(super) hierarchy: &'h Hierarchy,
    since: Instant,
}

impl Hierarchy {
    /// Returns the changes that programs can ask for from now on.
    pub fn changes(&self) -> Changes<'_> {
        Changes { hierarchy: self, since: Instant::now() }
    }
}

impl<'h> Changes<'h> {
    /// Returns the node at `path` as the store has it now.
    pub fn node(self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        self.hierarchy.node_since(path, self.since)
    }

    /// Returns the node at `path` as the store has it now; its absence is an error.
    pub fn existing(self, path: &NodePath) -> Result<Arc<Node>> {
        self.hierarchy.existing_since(path, self.since)
    }

    /// Returns when the change began.
    pub(super) fn since(self) -> Instant {
        self.since
    }

    pub(super) fn atomic(self) -> Atomic<'h> {
        self.hierarchy.atomic_since(self.since)
    }

    pub(super) fn copies(self) -> CopiesAbove<'h> {
        self.hierarchy.copies_since(self.since)
    }
}

impl Changes<'_> {
    /// Makes a directory. It becomes a group after a while, or the node whose document a program
    /// creates in it.
    pub fn make_directory(self, path: &NodePath) -> Result<()> {
        self.hierarchy.check_new_name(path)?;
        // Most file systems limit names to 255 bytes, including the dialect's prefix or suffix.
        for (_, key) in self.hierarchy.dialect().document_keys(path)? {
            if key.name().len() > 255 || path.name().is_some_and(|name| name.len() > 255) {
                let detail = "the name is too long for the store";
                return Err(Error::new(Kind::Os(libc::ENAMETOOLONG), detail).at(path));
            }
        }
        if self.node(path)?.is_some_and(|node| !node.is_bare()) {
            let detail = "another program has just made a node here";
            return Err(Error::new(Kind::Exists, detail).at(path));
        }
        self.check_parent_is_no_array(path)?;
        self.hierarchy.directories.touch(path);
        self.hierarchy.directories.insert(Node::bare(path.clone(), None));
        self.hierarchy.invalidate(path);
        Ok(())
    }

    /// Takes the directory of a group whose document was removed for one that was just made. It
    /// becomes a group again after a while, or the node whose document a program creates in it.
    pub fn await_metadata(self, path: &NodePath) -> Result<()> {
        self.hierarchy.directories.touch(path);
        self.hierarchy.directories.insert(Node::bare(path.clone(), None));
        self.note_in_store(path)?;
        self.hierarchy.invalidate(path);
        Ok(())
    }

    /// Fails if another program has made an array of the group in which something is made.
    fn check_parent_is_no_array(self, path: &NodePath) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if self.node(&parent)?.is_some_and(|node| node.kind() == NodeKind::Array && !node.is_bare())
        {
            return Err(array_made(&parent));
        }
        Ok(())
    }

    /// Makes the missing directories above a new node, which become groups with it. Refuses a name
    /// that the dialect does not allow.
    pub fn make_directories(self, path: &NodePath) -> Result<()> {
        check_is_not_private(path)?;
        for above in path.ancestors() {
            if !above.is_root() && self.node(&above)?.is_none() {
                match self.make_directory(&above) {
                    // Another program has made the group since; an array refuses what comes next.
                    Err(error) if error.kind() == Kind::Exists => {}
                    made => made?,
                }
            }
        }
        path.name().map_or(Ok(()), |name| self.hierarchy.check_name(name))
    }

    /// Stores the document of a new node, or another one of a node that keeps its chunks.
    /// `replaced` is the document that must still be stored; without it there must be none.
    pub fn put_document(
        self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
    ) -> Result<Key> {
        if replaced.is_none() {
            self.check_is_new(path, raised.key())?;
            self.hierarchy.check_directories(path)?;
        }
        self.store_groups_above(path)?;
        let text = self.hierarchy.text_to_store(path, raised)?;
        let replaces = Replaced::of(replaced);
        let home = self.home_of_document(path)?;
        let planned =
            self.hierarchy.documents.plan((path, &home), raised.key(), &text, replaces)?;
        let consolidated = raised.is_consolidated().then_some(true);
        self.atomic().set_atomically(path, planned, consolidated)?;
        if let (None, Some(list)) = (replaced, self.hierarchy.store().list()) {
            // Programs create directories of chunks next.
            list.expect_names(&self.hierarchy.dialect().chunk_prefix(path)?);
        }
        Ok(raised.key().clone())
    }

    /// Fails if another program has made a node at `path`. The put itself fails for a node with the
    /// same `key`.
    pub(super) fn check_is_new(self, path: &NodePath, key: &Key) -> Result<()> {
        let keys = self.hierarchy.dialect().document_keys(path)?;
        if keys.iter().all(|(_, other)| other == key) {
            return Ok(());
        }
        match self.node(path)? {
            Some(node) if node.document().is_some_and(|document| document.key != *key) => {
                let detail = "another program has just made a node here";
                Err(Error::new(Kind::Exists, detail).at(path))
            }
            _ => Ok(()),
        }
    }

    /// Whether the store has the directory of `path`, unless another program has moved or removed
    /// it just now. In a dialect of two trees it may be in one of them.
    pub(super) fn is_in_store(self, path: &NodePath) -> Result<bool> {
        if !self.hierarchy.dialect_of(path).has_one_tree() {
            return Ok(false);
        }
        Ok(match self.hierarchy.directories.get(path) {
            Some(_) => self.hierarchy.directories.is_in_store(path),
            None => self.node(path)?.is_some(),
        })
    }

    /// Returns the home of what is made in the directory of the node at `path`: the directory of it
    /// or of the nearest node above it that the store has, unless another program has moved or
    /// removed that. No change recreates it.
    pub fn home_of(self, path: &NodePath) -> Result<Prefix> {
        for path in std::iter::successors(Some(path.clone()), NodePath::parent) {
            if !self.may_lack_directory(&path)? {
                return self.hierarchy.dialect_of(&path).chunk_prefix(&path);
            }
        }
        Ok(Prefix::root())
    }

    /// Returns the home of the metadata file of the directory `path`, which was there before. In a
    /// dialect of two trees the file lies in the other one.
    pub(super) fn home_of_stored(self, path: &NodePath) -> Result<Prefix> {
        let has_one_tree = self.hierarchy.dialect_of(path).has_one_tree();
        if has_one_tree { self.home_of(path) } else { Ok(Prefix::root()) }
    }

    /// Returns the home of the metadata file of the node at `path`, which may be new.
    pub(super) fn home_of_document(self, path: &NodePath) -> Result<Prefix> {
        match path.parent() {
            Some(parent) if !self.is_in_store(path)? => self.home_of_stored(&parent),
            _ => self.home_of_stored(path),
        }
    }

    /// Whether the store may lack the directory for the files and chunks of the node at `path`,
    /// although no other program has moved or removed it.
    fn may_lack_directory(self, path: &NodePath) -> Result<bool> {
        if self.hierarchy.directories.get(path).is_some() {
            return Ok(!self.hierarchy.directories.is_in_store(path));
        }
        // In a dialect of two trees, a metadata file lies in the other one.
        let has_one_tree = self.hierarchy.dialect_of(path).has_one_tree();
        let is_node =
            || -> Result<bool> { Ok(self.node(path)?.is_some_and(|node| !node.is_bare())) };
        Ok(!has_one_tree && (path.is_root() || is_node()?))
    }

    /// Stores a document that was removed from `node` again, after applying `edit`.
    pub fn restore(self, node: &Node, removed: &Document, edit: &Edit) -> Result<()> {
        let (path, key) = (&node.path, &removed.key);
        let text = String::from_utf8_lossy(&removed.text);
        let mut edited = self.hierarchy.dialect().edit(node.kind(), &text, edit).at(key)?;
        let had = matches!(&node.content, Content::Group(group) if group.consolidated);
        if edit.consolidated.unwrap_or(had) {
            // Nodes below it may have changed since it was removed.
            edited = self
                .hierarchy
                .dialect()
                .consolidate(&edited, &self.copies().documents_below(path)?)
                .at(key)?;
        }
        self.store_groups_above(path)?;
        self.check_is_new(path, key)?;
        let home = self.home_of_document(path)?;
        let replaces = Replaced::of(None);
        let planned = self.hierarchy.documents.plan((path, &home), key, &edited, replaces)?;
        self.atomic().set_atomically(path, planned, None)
    }

    /// Erases the document of a node. This mount remembers its content until the directory is
    /// removed. Fails if it is another node than the one that programs have seen here.
    pub fn remove_document(self, path: &NodePath) -> Result<Option<Key>> {
        self.hierarchy.end_values_below(path)?;
        let seen = self.hierarchy.kept(path);
        let node = self.existing(path)?;
        if seen.is_some_and(|seen| !node.is_like(&seen)) {
            return Err(Error::new(
                Kind::Stale,
                "another program has replaced the node: look again before you remove it",
            )
            .at(path));
        }
        let key = match &node.state {
            NodeState::Stored(document) => Some(document.key.clone()),
            NodeState::Unreadable(key) => Some(key.clone()),
            NodeState::Implicit | NodeState::Bare(_) | NodeState::Removed(_) => None,
        };
        if key.is_some() {
            // A group above it without a document is a group only because of this node.
            path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        }
        let steps = match (&key, node.document()) {
            (Some(_), Some(document)) => steps_to_erase(document)?,
            _ => Vec::new(),
        };
        let intent = Intent::Documents(Documents {
            path: path.clone(),
            steps,
            consolidated: None,
            stage: None,
        });
        self.atomic().atomically(&intent, false, |taken| {
            // Do this first, because it may need free space in the store.
            self.copies().update_consolidated(path, None)?;
            match (&key, node.document()) {
                (Some(_), Some(document)) => self.hierarchy.documents.erase(document, taken),
                (Some(key), None) => {
                    self.hierarchy.store().write()?.erase_values(std::slice::from_ref(key))
                }
                (None, _) => Ok(()),
            }
        })?;
        let state = NodeState::Removed(node.document().cloned());
        let content = node.content.clone();
        self.hierarchy.directories.insert(Node { path: path.clone(), state, content });
        self.note_in_store(path)?;
        self.hierarchy.invalidate(path);
        Ok(key)
    }

    /// Forgets what is cached of the keys at and below `path`, because what the store has there now
    /// decides over a removal.
    pub fn look_again(self, path: &NodePath) -> Result<()> {
        if let Some(list) = self.hierarchy.store().list() {
            list.forget_below(&self.hierarchy.dialect_of(path).children_prefix(path)?);
            list.forget_below(&self.hierarchy.dialect_of(path).chunk_prefix(path)?);
            self.hierarchy.invalidate(path);
        }
        Ok(())
    }

    /// Removes the directory `path`, which looks empty, with what the store still has below it that
    /// no mount shows: chunks outside the grid, and consolidated metadata of a node that was
    /// removed. If another program makes something there meanwhile, that stays, and the directory
    /// with it.
    pub fn remove_directory(self, path: &NodePath) -> Result<()> {
        self.hierarchy.end_values_below(path)?;
        let write = self.hierarchy.store().write()?;
        let chunks = self.hierarchy.dialect().chunk_prefix(path)?;
        let nodes = self.hierarchy.dialect().children_prefix(path)?;
        path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        let node = self.existing(path)?;
        if !node.is_bare() && !self.is_directory_as_group(path)? {
            return Err(not_free().at(path));
        }
        let values = self.hidden_values(&node)?;
        // A directory that this mount has not made stays one: it does not become a group.
        let is_restored = !matches!(node.state, NodeState::Bare(None))
            || self.hierarchy.directories.get(path).is_some();
        let holds_values = node.stored().is_some() || !values.is_empty();
        let in_store =
            self.is_in_store(path)?.then(|| self.hierarchy.store().in_directory(&chunks));
        let remove = |taken: &StepsDone| -> Result<()> {
            // Programs that read only the copies must not find a node whose chunks are missing.
            self.copies().update_consolidated(path, None)?;
            if let Some(document) = node.stored() {
                // A server would take a request for this.
                if write.promises().erases_unchanged
                    && !self.hierarchy.documents.is_current(document)?
                {
                    return Err(not_free().at(path));
                }
                self.hierarchy.documents.erase(document, taken)?;
            }
            write.erase_values(&values)?;
            in_store.as_ref().map_or(Ok(write), Store::write)?.erase_empty(&chunks)?;
            if nodes == chunks { Ok(()) } else { write.erase_empty(&nodes) }
        };
        let removed = if holds_values {
            self.atomic().atomically(&Intent::Remove(path.clone()), true, remove)
        } else {
            remove(&StepsDone::default()).or_else(|error| {
                self.hierarchy.invalidate(path);
                self.copies().rebuild_copies(path)?;
                Err(error)
            })
        };
        removed.inspect_err(|_| {
            if is_restored {
                self.restore_directory(&node);
            }
            self.hierarchy.invalidate(path);
        })?;
        drop(self.hierarchy.directories.take_below(path));
        self.hierarchy.directories.forget_groups_below(path);
        self.hierarchy.forms.forget_below(path);
        self.hierarchy.invalidate_below(path);
        Ok(())
    }

    /// Returns the keys below `node`, a directory that looks empty, whose values no mount shows.
    /// Fails if there are others: another program has just stored them.
    fn hidden_values(self, node: &Node) -> Result<Vec<Key>> {
        let dialect = self.hierarchy.dialect();
        let chunks = dialect.chunk_prefix(&node.path)?;
        let own = match node.stored() {
            Some(document) => steps_to_erase(document)?.into_iter().map(|step| step.key).collect(),
            None => Vec::new(),
        };
        let documents = dialect.document_keys(&node.path)?;
        let attributes = dialect.attributes_key(&node.path)?;
        // Another program stores the attributes of a new node before its metadata file.
        let was_node = node.stored().or(node.removed()).is_some();
        let is_hidden = |key: &Key| {
            let Some(relative) = key.as_str().strip_prefix(chunks.as_str()) else { return false };
            let is_chunk = match &node.content {
                Content::Array(array) => array.owns(relative),
                // Any key may be that of a chunk.
                Content::NotUnderstood(..) => true,
                Content::Group(_) => false,
            };
            let is_metadata = was_node
                && attributes.as_ref() != Some(key)
                && !relative.contains('/')
                && dialect.is_reserved(relative)
                && documents.iter().all(|(_, document)| document != key);
            is_chunk || is_metadata
        };
        let mut values = self.atomic().values_below(&node.path)?;
        values.retain(|key| !own.contains(key));
        if values.iter().all(is_hidden) { Ok(values) } else { Err(not_free().at(&node.path)) }
    }

    /// Keeps the directory `path` from becoming a group by itself.
    pub fn keep_plain_directory(self, path: &NodePath) -> Result<()> {
        let content = self.existing(path)?.remembered();
        self.hierarchy.directories.insert(Node {
            path: path.clone(),
            state: NodeState::Removed(None),
            content,
        });
        self.note_in_store(path)?;
        self.hierarchy.invalidate(path);
        Ok(())
    }

    /// Forgets the directories below `path`, because they now belong to an array.
    pub fn forget_directories(self, path: &NodePath) {
        drop(self.hierarchy.directories.take_below(path));
        self.hierarchy.invalidate_below(path);
    }

    /// Restores a directory that looked empty, after its removal or replacement failed.
    pub(super) fn restore_directory(self, node: &Node) {
        let state = match &node.state {
            NodeState::Removed(document) => NodeState::Removed(document.clone()),
            NodeState::Bare(None) => NodeState::Bare(None),
            // Best effort: otherwise it becomes a group after a while.
            NodeState::Bare(Some(document)) | NodeState::Stored(document) => {
                NodeState::Bare(self.put_back_document(document, &node.path).ok())
            }
            NodeState::Unreadable(_) | NodeState::Implicit => return,
        };
        let (path, content) = (node.path.clone(), node.content.clone());
        self.hierarchy.invalidate(&path);
        self.hierarchy.directories.insert(Node { path, state, content });
    }

    fn put_back_document(self, document: &Document, path: &NodePath) -> Result<Document> {
        if self.hierarchy.documents.is_current(document)? {
            return Ok(document.clone());
        }
        let document = self.put_group(path)?;
        self.copies().update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))?;
        Ok(document)
    }
}
