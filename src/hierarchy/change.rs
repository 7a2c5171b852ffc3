//! Nodes that come, go and move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;

use super::documents::Replaced;
use super::node::{Node, Standing};
use super::{Content, Document, Hierarchy, Member};
use crate::array::Array;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::merge::Edit;
use crate::metadata::{NewDocument, NodeKind, NodePath, Policy, join, model, split};
use crate::store::{Condition, Key, Prefix};

/// Where values lie while they are on their way, at the root of the store.
const ASIDE: &str = ".zarrfs";

/// A document for a new node, and what it describes.
#[derive(Debug)]
pub struct Raised {
    document: NewDocument,
    content: Content,
}

impl Raised {
    /// The array, if it is one.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match &self.content {
            Content::Array(array) => Some(array),
            Content::Group(_) | Content::NotUnderstood(..) => None,
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
    fn check_new_name(&self, path: &NodePath) -> Result<()> {
        let name = path.name().unwrap_or_default();
        self.dialect.check_name(name)?;
        let Some(parent) = path.parent().filter(|_| self.dialect.folds_case()) else {
            return Ok(());
        };
        for member in self.members(&parent)? {
            let (Member::Directory(other) | Member::File(other)) = member?;
            if other != name && other.eq_ignore_ascii_case(name) {
                return Err(Error::invalid(format!(
                    "{name:?} differs from {other:?} in the case of letters alone, which the drafts of 2019 do not \
                     allow"
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
        let document = stored.map_or_else(|| self.put_group(path), Ok)?;
        self.known_as_stored(path);
        self.update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))?;
        Ok(document.key)
    }

    /// Sets the document of a group without attributes, or finds the one that is there.
    fn put_group(&self, path: &NodePath) -> Result<Document> {
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
    fn store_groups_above(&self, path: &NodePath) -> Result<()> {
        let mut wanted = Vec::new();
        for above in path.ancestors().into_iter().rev() {
            let node = self.node(&above)?;
            let is_stored = node.as_ref().is_some_and(|node| node.stored().is_some());
            wanted.extend(node.map(|node| (above, node)));
            if is_stored {
                break; // And so are those above it.
            }
        }
        for (above, node) in wanted.into_iter().rev() {
            if !matches!(node.content, Content::Group(_)) {
                if node.is_bare() || node.kind() == NodeKind::Array {
                    return Err(Error::invalid("an array has no nodes below it").at(above));
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
                    let document = self.put_group(&above)?;
                    self.known_as_stored(&above);
                    let text = String::from_utf8_lossy(&document.text);
                    self.update_consolidated(&above, Some(&text))?;
                }
                Standing::Implicit
                | Standing::Bare(Some(_))
                | Standing::Stored(_)
                | Standing::Unreadable(_) => {}
            }
        }
        Ok(())
    }

    fn known_as_stored(&self, path: &NodePath) {
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
        for above in path.ancestors() {
            if !above.is_root() && self.node(&above)?.is_none() {
                self.make_directory(&above)?;
            }
        }
        path.name().map_or(Ok(()), |name| self.dialect.check_name(name))
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
                    Error::invalid("attributes without a node: write its other document first")
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
            .ok_or_else(|| Error::new(Kind::NotPermitted, "not the document of a node here"))?;
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
        self.store_groups_above(path)?;
        let NewDocument { key, text, consolidated, .. } = &raised.document;
        let text = if *consolidated {
            self.dialect.consolidate(text, &self.documents_below(path)?)?
        } else {
            text.clone()
        };
        let replaced = replaced.map_or(Replaced::Absent, Replaced::Unchanged);
        self.set_document(path, key, &text, replaced)?;
        self.known_as_stored(path);
        if *consolidated {
            self.set_shared_copies(path, true)?;
        }
        self.update_consolidated(path, Some(&text))?;
        Ok(key.clone())
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
        self.set_document(path, key, &edited, Replaced::Absent)?;
        self.known_as_stored(path);
        self.update_consolidated(path, Some(&edited))
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
        if let Some(key) = &key {
            // A group above it that has no document of its own is one because of this node.
            path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
            match node.document() {
                Some(document) => self.erase_document(document)?,
                None => self.store.write()?.erase_values(std::slice::from_ref(key))?,
            }
        }
        let standing = Standing::Removed(node.document().cloned());
        let content = node.content.clone();
        self.directories.insert(Node { path: path.clone(), standing, content });
        self.invalidate(path);
        self.update_consolidated(path, None)?;
        Ok(key)
    }

    /// Erases the documents of groups that are directories of an array from now on.
    pub fn remove_groups(&self, groups: &[NodePath]) -> Result<()> {
        for path in groups {
            if let Some(document) = self.node(path)?.and_then(|node| node.stored().cloned()) {
                self.erase_document(&document)?;
            }
            self.update_consolidated(path, None)?;
        }
        Ok(())
    }

    /// Removes the directory `path`, which shows nothing any more, with what the store still has below it:
    /// chunks outside of the grid, and what was never shown.
    pub fn remove_directory(&self, path: &NodePath) -> Result<()> {
        let write = self.store.write()?;
        let chunks = self.dialect.chunk_prefix(path)?;
        let nodes = self.dialect.children_prefix(path)?;
        path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        if let Some(document) = self.existing(path)?.stored() {
            self.erase_document(document)?;
        }
        write.erase_prefix(&chunks)?;
        if nodes != chunks {
            write.erase_prefix(&nodes)?;
        }
        drop(self.directories.take_below(path));
        self.invalidate_below(path);
        self.update_consolidated(path, None)
    }

    /// To be called before something goes from the directory `path`: it stays, though the store has no directory
    /// that holds nothing.
    pub fn keep_directory(&self, path: &NodePath) -> Result<()> {
        let Some(node) = self.node(path)? else { return Ok(()) };
        match &node.standing {
            Standing::Implicit if !path.is_root() => {
                let document = self.put_group(path)?;
                self.known_as_stored(path);
                self.update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))
            }
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

    /// Moves the directory `from`, node or not, with all that is below it.
    pub fn rename(&self, from: &NodePath, to: &NodePath) -> Result<()> {
        self.check_new_name(to)?;
        self.invalidate_below(from);
        let node = self.existing(from)?;
        if !node.is_bare() || node.stored().is_some() {
            self.store_groups_above(to)?;
        }
        let prefixes = |path| -> Result<_> {
            Ok((self.dialect.children_prefix(path)?, self.dialect.chunk_prefix(path)?))
        };
        let ((nodes, chunks), (new_nodes, new_chunks)) = (prefixes(from)?, prefixes(to)?);
        from.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        if nodes == chunks {
            self.store.write()?.move_prefix(&chunks, &new_chunks)?;
        } else {
            self.move_trees(&node, to, (&nodes, &new_nodes), (&chunks, &new_chunks))?;
        }
        self.invalidate_below(from);
        for known in self.directories.take_below(from) {
            let Some(path) = known.path.moved(from, to) else { continue };
            let content = match &known.content {
                Content::Array(array) => {
                    self.bind(&path, model::Node::Array(Box::new(array.model().clone())))?
                }
                other => other.clone(),
            };
            let standing = match &known.standing {
                Standing::Removed(Some(document)) => {
                    let key = self.document_key(&path, known.kind())?;
                    Standing::Removed(Some(Document { key, ..document.clone() }))
                }
                Standing::Removed(None) => Standing::Removed(None),
                _ => Standing::Bare(self.document_of(&path)?.filter(|_| known.stored().is_some())),
            };
            self.directories.insert(Node { path, standing, content });
        }
        self.invalidate_below(to);
        Ok(())
    }

    /// The document that the store has for a group.
    fn document_of(&self, path: &NodePath) -> Result<Option<Document>> {
        let key = self.document_key(path, NodeKind::Group)?;
        self.get_document(path, &key)
    }

    /// Keeps consolidated metadata true when `from` has become `to`.
    pub fn consolidate_moved(&self, from: &NodePath, to: &NodePath) -> Result<()> {
        self.update_consolidated(from, None)?;
        if !self.has_copies_above(to)? {
            return Ok(());
        }
        let Some(node) = self.node(to)?.filter(|node| !node.is_bare()) else { return Ok(()) };
        let text = match node.stored() {
            Some(document) => String::from_utf8_lossy(&document.text).into_owned(),
            None => self.dialect.new_group(to)?.1,
        };
        self.update_consolidated(to, Some(&text))?;
        if node.kind() == NodeKind::Array {
            return Ok(());
        }
        for (relative, text) in self.documents_below(to)? {
            self.update_consolidated(&to.join(&relative)?, Some(&text))?;
        }
        Ok(())
    }

    /// Moves a node whose documents and chunks lie in trees of their own. Its documents go first and come last, so
    /// that whoever looks in between sees no node, and never one whose chunks are missing.
    fn move_trees(
        &self,
        node: &Node,
        to: &NodePath,
        nodes: (&Prefix, &Prefix),
        chunks: (&Prefix, &Prefix),
    ) -> Result<()> {
        if matches!(node.standing, Standing::Unreadable(_)) {
            return Err(Error::unsupported("a node whose document cannot be read is not moved"));
        }
        let write = self.store.write()?;
        let (aside, document) = (self.aside()?, node.stored());
        let below = aside.join("below")?;
        if let Some(document) = document {
            let kept = aside.key("document")?;
            write.set(&kept, &[document.text.clone().into()], Condition::Always)?;
        }
        let new_key = self.document_key(to, node.kind())?;
        let mut chunks_moved = false;
        let mut moved = || -> Result<()> {
            if let Some(document) = document {
                write.erase_values(std::slice::from_ref(&document.key))?;
            }
            write.move_prefix(nodes.0, &below)?;
            write.move_prefix(chunks.0, chunks.1)?;
            chunks_moved = true;
            write.move_prefix(&below, nodes.1)?;
            match document {
                Some(document) => {
                    let text = document.text.clone().into();
                    write.set(&new_key, &[text], Condition::Absent).map(drop)
                }
                None => Ok(()),
            }
        };
        let Err(error) = moved() else { return write.erase_prefix(&aside) };
        // Each as far as it had come; what cannot be put back stays aside, with the document.
        if chunks_moved {
            write.move_prefix(chunks.1, chunks.0)?;
            write.move_prefix(nodes.1, nodes.0)?;
        }
        write.move_prefix(&below, nodes.0)?;
        if let Some(document) = document {
            match write.set(&document.key, &[document.text.clone().into()], Condition::Absent) {
                Err(error) if error.kind() == Kind::Exists => {}
                put_back => drop(put_back?),
            }
        }
        write.erase_prefix(&aside)?;
        // Whatever the kind was, the caller is to be told.
        Err(Error::new(Kind::Os(error.errno()), error.to_string()))
    }

    /// Where the document of a node of `kind` lies.
    pub(super) fn document_key(&self, path: &NodePath, kind: NodeKind) -> Result<Key> {
        let keys = self.dialect.document_keys(path)?;
        let key = keys.into_iter().find(|(found, _)| found.is_none_or(|found| found == kind));
        key.map(|(_, key)| key).ok_or_else(|| Error::new(Kind::Internal, "a node has no key"))
    }

    /// A place in the store for values on their way, that nobody else has.
    pub fn aside(&self) -> Result<Prefix> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // A process of the same number may have died and left something.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Prefix::parse(&format!("{ASIDE}/{}-{}-{number}", std::process::id(), since.as_nanos()))
    }

    /// `array` as if its chunks lay below `prefix`.
    pub fn bind_aside(&self, array: &Array, prefix: Prefix) -> Result<Arc<Array>> {
        let model = array.model().clone();
        Ok(Arc::new(Array::open(
            model,
            &self.store,
            prefix,
            self.options.max_chunk_len,
            self.options.layout,
        )?))
    }
}
