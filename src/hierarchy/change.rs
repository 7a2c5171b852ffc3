//! Nodes that come, go and move.

use std::sync::Arc;

use bytes::Bytes;

use super::documents::{Replaced, Taken};
use super::intent::{Documents, Intent};
use super::node::{Node, Standing};
use super::{Content, Document, Hierarchy, Member};
use crate::array::Array;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::merge::Edit;
use crate::metadata::{NewDocument, NodeKind, NodePath, Policy, join, model, split};
use crate::store::directory::LOCK_SUFFIX;
use crate::store::{Condition, Key, PRIVATE};

/// A document for a new node, and what it describes.
#[derive(Debug)]
pub struct Raised {
    document: NewDocument,
    content: Content,
}

impl Raised {
    /// Where it is to be stored.
    pub(super) fn key(&self) -> &Key {
        &self.document.key
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.document.text
    }

    /// What it describes.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The array, if it is one.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match &self.content {
            Content::Array(array) => Some(array),
            Content::Group(_) | Content::NotUnderstood(..) => None,
        }
    }
}

/// Refuses a node where zarrfs keeps files of its own, or under the name of a lock file, which no listing shows.
fn check_is_not_private(path: &NodePath) -> Result<()> {
    let wrong = |name: &&str| *name == PRIVATE || name.ends_with(LOCK_SUFFIX);
    match path.components().find(wrong) {
        None => Ok(()),
        Some(name) => {
            let detail = format!("{name:?}: this name is reserved for zarrfs; choose another");
            Err(Error::new(Kind::NotPermitted, detail).at(path))
        }
    }
}

impl Hierarchy {
    /// Makes a directory that becomes a group in time, or what a document says that is created in it.
    pub fn make_directory(&self, path: &NodePath) -> Result<()> {
        self.check_new_name(path)?;
        // The longest name that the directories of most stores take, also of what the dialect makes of it.
        for (_, key) in self.dialect.document_keys(path)? {
            if key.name().len() > 255 || path.name().is_some_and(|name| name.len() > 255) {
                let detail = "the name is too long for the store";
                return Err(Error::new(Kind::Os(libc::ENAMETOOLONG), detail).at(path));
            }
        }
        self.directories.touch(path);
        self.directories.insert(Node::bare(path.clone(), None));
        self.invalidate(path);
        Ok(())
    }

    /// Refuses a name that the dialect does not allow, or not beside those that are there.
    pub(super) fn check_new_name(&self, path: &NodePath) -> Result<()> {
        let name = path.name().unwrap_or_default();
        self.check_name(name)?;
        let Some(parent) = path.parent().filter(|_| self.dialect.folds_case()) else {
            return Ok(());
        };
        for member in self.members(&parent)? {
            let (Member::Directory(other) | Member::File(other)) = member?;
            if other != name && other.eq_ignore_ascii_case(name) {
                return Err(Error::invalid(format!(
                    "{name:?} differs from {other:?} only in case, which the drafts of 2019 do \
                     not allow"
                ))
                .at(path));
            }
        }
        Ok(())
    }

    /// Notes that something was done at `path`: a directory above it that was made is still being filled.
    pub fn touch(&self, path: &NodePath) {
        self.directories.touch(path);
    }

    /// Directories that were made and in which nothing was done for `delay`, those above first.
    pub fn quiet_directories(&self, delay: std::time::Duration) -> Vec<NodePath> {
        self.directories.quiet(delay)
    }

    /// Makes a group without attributes of the directory `path`, which is no node.
    pub fn store_group(&self, path: &NodePath) -> Result<Key> {
        self.store_groups_above(path)?;
        let stored = self.existing(path)?.stored().cloned();
        if let Some(document) = stored {
            self.known_as_stored(path);
            self.update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))?;
            return Ok(document.key);
        }
        Ok(self.set_group_whole(path)?.key)
    }

    /// Sets the document of a group without attributes, or finds the one that is there.
    pub(super) fn put_group(&self, path: &NodePath) -> Result<Document> {
        let (key, text) = self.dialect.new_group(path)?;
        match self.set_document(path, &key, &text, Replaced::Absent) {
            Err(error) if error.kind() == Kind::Exists => {
                // Another program has made a node of it.
                self.get_document(path, &key)?.ok_or_else(|| Error::not_found().at(&key))
            }
            stored => stored,
        }
    }

    /// Groups that the dialect wants above a node have documents in the store from now on. Directories that
    /// programs have made still show none, so that they can be given one.
    pub(super) fn store_groups_above(&self, path: &NodePath) -> Result<()> {
        check_is_not_private(path)?;
        let mut wanted = Vec::new();
        for above in path.ancestors() {
            // One that is stored may lie below one whose document was removed.
            wanted.extend(self.node(&above)?.map(|node| (above, node)));
        }
        for (above, node) in wanted {
            if !matches!(node.content, Content::Group(_)) {
                if node.is_bare() || node.kind() == NodeKind::Array {
                    return Err(Error::invalid("an array cannot contain nodes").at(above));
                }
                continue;
            }
            match &node.standing {
                Standing::Bare(None) | Standing::Removed(_) => {
                    let document = self.put_group(&above)?;
                    self.directories.insert(Node::bare(above.clone(), Some(document)));
                    self.invalidate(&above);
                }
                Standing::Implicit if self.dialect.wants_group_documents() => {
                    self.set_group_whole(&above)?;
                }
                Standing::Implicit
                | Standing::Bare(Some(_))
                | Standing::Stored(_)
                | Standing::Unreadable(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn known_as_stored(&self, path: &NodePath) {
        self.directories.remove(path);
        self.invalidate(path);
    }

    /// Stores what a hierarchy has at its root besides the documents of nodes, where it is not there yet.
    pub fn store_entry_point(&self) -> Result<Option<Key>> {
        let Some((key, text)) = self.dialect.new_entry_point()? else { return Ok(None) };
        match self.store.write()?.set(&key, &[Bytes::from(text).into()], Condition::Absent) {
            Err(error) if error.kind() != Kind::Exists => Err(error.at(&key)),
            _ => Ok(Some(key)),
        }
    }

    /// Makes the directories above a new node, which become groups with it. A name that the dialect does not
    /// allow is refused.
    pub fn make_directories(&self, path: &NodePath) -> Result<()> {
        check_is_not_private(path)?;
        for above in path.ancestors() {
            if !above.is_root() && self.node(&above)?.is_none() {
                self.make_directory(&above)?;
            }
        }
        path.name().map_or(Ok(()), |name| self.check_name(name))
    }

    /// Refuses what neither the dialect nor the store allows as the name of a new node.
    fn check_name(&self, name: &str) -> Result<()> {
        if name.ends_with(LOCK_SUFFIX) {
            let detail =
                format!("{name:?}: names that end in {LOCK_SUFFIX} are reserved for lock files");
            return Err(Error::invalid(detail));
        }
        self.dialect.check_name(name)
    }

    /// What is to be stored for the document that a program wrote for a new node at `path`.
    pub fn raise(&self, path: &NodePath, written: &[u8]) -> Result<Raised> {
        self.raise_with(path, written, &self.options.policy)
    }

    /// The same, stored as `policy` says.
    pub fn raise_with(&self, path: &NodePath, written: &[u8], policy: &Policy) -> Result<Raised> {
        let document = self.dialect.new_document(path, written, policy)?;
        let content = self.bind_new(path, document.node.clone())?;
        Ok(Raised { document, content })
    }

    /// The same of a document as the dialect has it, which a person wrote to be stored at `key`.
    pub fn raise_stored(&self, path: &NodePath, key: &Key, text: &[u8]) -> Result<Raised> {
        let keys = self.dialect.document_keys(path)?;
        let own = String::from_utf8_lossy(text).into_owned();
        let stored = self.existing(path)?.stored().cloned();
        // What the dialect has in two files is one document.
        let (key, text) = match self.dialect.attributes_key(path)? {
            Some(attributes) if attributes == *key => {
                let stored = stored.ok_or_else(|| {
                    Error::invalid("attributes without a node: write its other metadata file first")
                })?;
                let (document, _) = split(&String::from_utf8_lossy(&stored.text))?;
                (
                    stored.key,
                    join(&document, Some(&own)).map_err(|error| error.of_kind(Kind::Invalid))?,
                )
            }
            Some(_) => {
                let stored = stored.map(|stored| split(&String::from_utf8_lossy(&stored.text)));
                let attributes = stored.transpose()?.and_then(|(_, attributes)| attributes);
                let joined = join(&own, attributes.as_deref());
                (key.clone(), joined.map_err(|error| error.of_kind(Kind::Invalid))?)
            }
            None => (key.clone(), own),
        };
        let (kind, _) = keys
            .into_iter()
            .find(|(_, known)| *known == key)
            .ok_or_else(|| Error::new(Kind::NotPermitted, "not a metadata file of this dialect"))?;
        let node = self.dialect.check_stored(kind, text.as_bytes())?;
        let content = self.bind_new(path, node.clone())?;
        let consolidated =
            matches!(&node, model::Node::Group(model::Group { consolidated: true, .. }));
        let document = NewDocument { key, text, node, consolidated };
        Ok(Raised { document, content })
    }

    /// Nothing is stored that could not be read again.
    fn bind_new(&self, path: &NodePath, node: model::Node) -> Result<Content> {
        let as_invalid = |error: &Error| Error::invalid(error.detail().to_owned());
        let content = self.bind(path, node).map_err(|error| as_invalid(&error))?;
        match &content {
            Content::Array(array) => match array.not_understood() {
                Some(error) => Err(as_invalid(error)),
                None => Ok(content),
            },
            Content::Group(_) | Content::NotUnderstood(..) => Ok(content),
        }
    }

    /// Stores the document of a new node, where there is none; or in the place of `replaced`, which must be what is
    /// stored still.
    pub fn put_document(
        &self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
    ) -> Result<Key> {
        self.put(path, raised, replaced, None)
    }

    /// Stores another document for `array`, whose chunks mean the same in it; then erases those outside of its shape.
    pub fn replace_document(
        &self,
        path: &NodePath,
        raised: &Raised,
        (array, document): (&Array, &Document),
    ) -> Result<Key> {
        self.put(path, raised, Some(document), Some(array))
    }

    fn put(
        &self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        array: Option<&Array>,
    ) -> Result<Key> {
        self.store_groups_above(path)?;
        let NewDocument { key, consolidated, .. } = &raised.document;
        let planned = self.plan_text(path, key, &self.text_to_store(path, raised)?, replaced)?;
        let was = match (array, replaced, raised.array()) {
            (Some(array), Some(replaced), Some(new)) => {
                Some((array, replaced, new.model().shape.as_slice()))
            }
            _ => None,
        };
        self.set_whole(path, planned, consolidated.then_some(true), was)?;
        Ok(key.clone())
    }

    /// The text of a new document, with the copies in it that are wished.
    pub(super) fn text_to_store(&self, path: &NodePath, raised: &Raised) -> Result<String> {
        let NewDocument { text, consolidated, .. } = &raised.document;
        if *consolidated {
            return self.dialect.consolidate(text, &self.documents_below(path)?);
        }
        Ok(text.clone())
    }

    /// Stores again the document that was removed from `node`, with `edit` in it.
    pub fn restore(&self, node: &Node, removed: &Document, edit: &Edit) -> Result<()> {
        let (path, key) = (&node.path, &removed.key);
        let text = String::from_utf8_lossy(&removed.text);
        let mut edited = self.dialect.edit(node.kind(), &text, edit).at(key)?;
        let had = matches!(&node.content, Content::Group(group) if group.consolidated);
        if edit.consolidated.unwrap_or(had) {
            // What lies below may have changed since.
            edited = self.dialect.consolidate(&edited, &self.documents_below(path)?).at(key)?;
        }
        self.store_groups_above(path)?;
        let was = match (&edit.shape, node.array()) {
            (Some(shape), Some(array)) => Some((&**array, removed, shape.as_slice())),
            _ => None,
        };
        let planned = self.plan_text(path, key, &edited, None)?;
        self.set_whole(path, planned, None, was)
    }

    /// Erases the document of a node. What it was is kept in this mount until its directory is removed.
    pub fn remove_document(&self, path: &NodePath) -> Result<Option<Key>> {
        self.invalidate(path);
        let node = self.existing(path)?;
        let key = match &node.standing {
            Standing::Stored(document) => Some(document.key.clone()),
            Standing::Unreadable(key) => Some(key.clone()),
            Standing::Implicit | Standing::Bare(_) | Standing::Removed(_) => None,
        };
        if key.is_some() {
            // A group above it that has no document of its own is one because of this node.
            path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        }
        let steps = match (&key, node.document()) {
            (Some(_), Some(document)) => Self::steps_to_erase(document)?,
            _ => Vec::new(),
        };
        let intent = Intent::Documents(Documents {
            path: path.clone(),
            steps,
            consolidated: None,
            was: None,
            stage: None,
        });
        self.whole(&intent, false, |taken| {
            // First, since it may need room in the store.
            self.update_consolidated(path, None)?;
            match (&key, node.document()) {
                (Some(_), Some(document)) => self.erase_document(document, taken),
                (Some(key), None) => self.store.write()?.erase_values(std::slice::from_ref(key)),
                (None, _) => Ok(()),
            }
        })?;
        let standing = Standing::Removed(node.document().cloned());
        let content = node.content.clone();
        self.directories.insert(Node { path: path.clone(), standing, content });
        self.invalidate(path);
        Ok(key)
    }

    /// Removes the directory `path`, which shows nothing any more, with what the store still has below it:
    /// chunks outside of the grid, and what was never shown.
    pub fn remove_directory(&self, path: &NodePath) -> Result<()> {
        let write = self.store.write()?;
        let chunks = self.dialect.chunk_prefix(path)?;
        let nodes = self.dialect.children_prefix(path)?;
        path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        let node = self.existing(path)?;
        let remove = |taken: &Taken| -> Result<()> {
            // Whoever reads the copies alone must not find a node whose chunks are missing.
            self.update_consolidated(path, None)?;
            if let Some(document) = node.stored() {
                self.erase_document(document, taken)?;
            }
            write.erase_prefix(&chunks)?;
            if nodes != chunks {
                write.erase_prefix(&nodes)?;
            }
            Ok(())
        };
        let removed = if node.stored().is_some() || self.holds_values(path)? {
            self.whole(&Intent::Remove(path.clone()), true, remove)
        } else {
            remove(&Taken::default())
        };
        removed.inspect_err(|_| self.put_back(&node))?;
        drop(self.directories.take_below(path));
        self.invalidate_below(path);
        Ok(())
    }

    /// To be called before something goes from the directory `path`: it stays, though the store has no directory
    /// that holds nothing.
    pub fn keep_directory(&self, path: &NodePath) -> Result<()> {
        let Some(node) = self.node(path)? else { return Ok(()) };
        match &node.standing {
            Standing::Implicit if !path.is_root() => self.set_group_whole(path).map(drop),
            Standing::Bare(None) if self.directories.get(path).is_none() => {
                let (standing, content) = (Standing::Removed(None), node.content.clone());
                self.directories.insert(Node { path: path.clone(), standing, content });
                self.invalidate(path);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nothing becomes of the directory `path` by itself.
    pub fn leave_directory(&self, path: &NodePath) -> Result<()> {
        let content = self.existing(path)?.content.clone();
        self.directories.insert(Node {
            path: path.clone(),
            standing: Standing::Removed(None),
            content,
        });
        self.invalidate(path);
        Ok(())
    }

    /// Forgets the directories below `path`, which are those of an array from now on.
    pub fn forget_directories(&self, path: &NodePath) {
        drop(self.directories.take_below(path));
        self.invalidate_below(path);
    }

    /// Where the document of a node of `kind` lies.
    pub(super) fn document_key(&self, path: &NodePath, kind: NodeKind) -> Result<Key> {
        let keys = self.dialect.document_keys(path)?;
        let key = keys.into_iter().find(|(found, _)| found.is_none_or(|found| found == kind));
        key.map(|(_, key)| key).ok_or_else(|| Error::new(Kind::Internal, "a node has no key"))
    }
}
