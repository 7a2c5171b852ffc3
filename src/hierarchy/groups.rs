//! Groups: of directories that programs made, and above new nodes.

use bytes::Bytes;

use super::documents::{Replaced, Step};
use super::intent::{Documents, Intent};
use super::names::check_is_not_private;
use super::node::{Content, Document, Node, Standing};
use super::nodes::Hierarchy;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Condition, Key};

impl Hierarchy {
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
        let (key, text) = self.dialect().new_group(path)?;
        match self.documents.set(path, &key, &text, Replaced::Absent) {
            Err(error) if error.kind() == Kind::Exists => {
                // Another program has made a node of it.
                self.documents.get(path, &key)?.ok_or_else(|| Error::not_found().at(&key))
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
                Standing::Implicit if self.dialect().wants_group_documents() => {
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

    /// Stores what a hierarchy has at its root besides the documents of nodes, where it is not there yet.
    pub fn store_entry_point(&self) -> Result<Option<Key>> {
        let Some((key, text)) = self.dialect().new_entry_point()? else { return Ok(None) };
        match self.store().write()?.set(&key, &[Bytes::from(text).into()], Condition::Absent) {
            Err(error) if error.kind() != Kind::Exists => Err(error.at(&key)),
            _ => Ok(Some(key)),
        }
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

    /// The same of a group that gets the document of one that says nothing.
    pub(super) fn set_group_whole(&self, path: &NodePath) -> Result<Document> {
        let (key, text) = self.dialect().new_group(path)?;
        let step = Step { key, old: None, new: Some(text) };
        let intent = Intent::Documents(Documents {
            path: path.clone(),
            steps: vec![step],
            consolidated: None,
            was: None,
            stage: None,
        });
        let mut stored = None;
        self.whole(&intent, false, |taken| {
            let document = stored.insert(self.put_group(path)?);
            taken.set(1);
            self.known_as_stored(path);
            self.update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))
        })?;
        stored.ok_or_else(|| Error::new(Kind::Internal, "a metadata file was not stored"))
    }
}
