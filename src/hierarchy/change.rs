//! Nodes that come, go and move.

use super::documents::{Replaced, Taken, steps_to_erase};
use super::intent::{Documents, Intent};
use super::names::check_is_not_private;
use super::node::{Content, Document, Node, Standing};
use super::nodes::Hierarchy;
use super::raise::Raised;
use crate::array::Array;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::NodePath;
use crate::metadata::merge::Edit;
use crate::store::Key;

impl Hierarchy {
    /// Makes a directory that becomes a group in time, or what a document says that is created in it.
    pub fn make_directory(&self, path: &NodePath) -> Result<()> {
        self.check_new_name(path)?;
        // The longest name that the directories of most stores take, also of what the dialect makes of it.
        for (_, key) in self.dialect().document_keys(path)? {
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

    /// Notes that something was done at `path`: a directory above it that was made is still being filled.
    pub fn touch(&self, path: &NodePath) {
        self.directories.touch(path);
    }

    /// Directories that were made and in which nothing was done for `delay`, those above first.
    pub fn quiet_directories(&self, delay: std::time::Duration) -> Vec<NodePath> {
        self.directories.quiet(delay)
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
        let text = self.text_to_store(path, raised)?;
        let replaces = Replaced::of(replaced);
        let planned = self.documents.plan(path, raised.key(), &text, replaces)?;
        let was = match (array, replaced, raised.array()) {
            (Some(array), Some(replaced), Some(new)) => {
                Some((array, replaced, new.model().shape.as_slice()))
            }
            _ => None,
        };
        self.set_whole(path, planned, raised.is_consolidated().then_some(true), was)?;
        Ok(raised.key().clone())
    }

    /// Stores again the document that was removed from `node`, with `edit` in it.
    pub fn restore(&self, node: &Node, removed: &Document, edit: &Edit) -> Result<()> {
        let (path, key) = (&node.path, &removed.key);
        let text = String::from_utf8_lossy(&removed.text);
        let mut edited = self.dialect().edit(node.kind(), &text, edit).at(key)?;
        let had = matches!(&node.content, Content::Group(group) if group.consolidated);
        if edit.consolidated.unwrap_or(had) {
            // What lies below may have changed since.
            edited = self.dialect().consolidate(&edited, &self.documents_below(path)?).at(key)?;
        }
        self.store_groups_above(path)?;
        let was = match (&edit.shape, node.array()) {
            (Some(shape), Some(array)) => Some((&**array, removed, shape.as_slice())),
            _ => None,
        };
        let planned = self.documents.plan(path, key, &edited, Replaced::of(None))?;
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
            (Some(_), Some(document)) => steps_to_erase(document)?,
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
                (Some(_), Some(document)) => self.documents.erase(document, taken),
                (Some(key), None) => self.store().write()?.erase_values(std::slice::from_ref(key)),
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
        let write = self.store().write()?;
        let chunks = self.dialect().chunk_prefix(path)?;
        let nodes = self.dialect().children_prefix(path)?;
        path.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        let node = self.existing(path)?;
        let remove = |taken: &Taken| -> Result<()> {
            // Whoever reads the copies alone must not find a node whose chunks are missing.
            self.update_consolidated(path, None)?;
            if let Some(document) = node.stored() {
                self.documents.erase(document, taken)?;
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

    /// A directory that showed nothing is there again, though it could not be removed, or what was to have its name could
    /// not.
    pub(super) fn put_back(&self, node: &Node) {
        let standing = match &node.standing {
            Standing::Removed(document) => Standing::Removed(document.clone()),
            Standing::Bare(None) => Standing::Bare(None),
            // As well as that goes: it becomes a group in time.
            Standing::Bare(Some(document)) => {
                Standing::Bare(self.put_back_document(document, &node.path).ok())
            }
            Standing::Stored(_) | Standing::Unreadable(_) | Standing::Implicit => return,
        };
        let (path, content) = (node.path.clone(), node.content.clone());
        self.invalidate(&path);
        self.directories.insert(Node { path, standing, content });
    }

    fn put_back_document(&self, document: &Document, path: &NodePath) -> Result<Document> {
        if self.documents.is_current(document)? {
            return Ok(document.clone());
        }
        let document = self.put_group(path)?;
        self.update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))?;
        Ok(document)
    }
}
