//! Nodes that move, and directories that become arrays: changes with values on their way.

use std::sync::Arc;

use super::documents::{Planned, Taken};
use super::intent::{Documents, Intent, MAX_LEN, Move, Stage};
use super::node::{Node, Standing};
use super::recover::{BELOW, CHUNKS, FILES};
use super::{Content, Document, Hierarchy, Raised};
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath, model};
use crate::store::{Aside, Condition, Key, Prefix};

/// A node that has moved; what is left is [`Hierarchy::consolidate_moved`].
#[derive(Debug)]
#[must_use = "the copies of its document are still to be told"]
pub struct Moved {
    from: NodePath,
    to: NodePath,
    aside: Option<Aside>,
}

impl Hierarchy {
    /// Moves the directory `from`, node or not, with all that is below it.
    pub fn rename(&self, from: &NodePath, to: &NodePath) -> Result<Moved> {
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
        let has_copies = self.has_copies_above(from)? || self.has_copies_above(to)?;
        let document = node.stored().map(|found| String::from_utf8_lossy(&found.text).into_owned());
        let intent =
            Intent::Move(Move { from: from.clone(), to: to.clone(), kind: node.kind(), document });
        let aside = if has_copies || nodes != chunks {
            if matches!(node.standing, Standing::Unreadable(_)) && nodes != chunks {
                let detail = "a node with unreadable metadata cannot be moved";
                return Err(Error::unsupported(detail));
            }
            Some(self.begin(&intent)?)
        } else {
            None
        };
        let moved = match &aside {
            Some(aside) => {
                // Whoever reads the copies alone must not find a node whose chunks are missing.
                self.update_consolidated(from, None).and_then(|()| {
                    if nodes == chunks {
                        return self.store.write()?.move_prefix(&chunks, &new_chunks);
                    }
                    let below = aside.prefix().join(BELOW)?;
                    let trees = [(&nodes, &new_nodes), (&chunks, &new_chunks)];
                    self.move_trees(&node, to, &below, trees)
                })
            }
            None => self.store.write()?.move_prefix(&chunks, &new_chunks),
        };
        if let (Err(error), Some(aside)) = (&moved, &aside) {
            let _undone = self.undo(&intent, aside, &Taken::default(), error);
        }
        moved?;
        self.invalidate_below(from);
        self.rename_directories(from, to)?;
        self.invalidate_below(to);
        Ok(Moved { from: from.clone(), to: to.clone(), aside })
    }

    /// The same where `to` is a directory that shows nothing, which goes. If that fails it is there still.
    pub fn rename_onto_empty(&self, from: &NodePath, to: &NodePath) -> Result<Moved> {
        let replaced = self.existing(to)?;
        self.remove_directory(to)?;
        self.rename(from, to).inspect_err(|_| self.put_back(&replaced))
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
        if self.is_current(document)? {
            return Ok(document.clone());
        }
        let document = self.put_group(path)?;
        self.update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))?;
        Ok(document)
    }

    /// Gives directories that only this mount knows the paths that they have now.
    fn rename_directories(&self, from: &NodePath, to: &NodePath) -> Result<()> {
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
        Ok(())
    }

    /// The document that the store has for a group.
    fn document_of(&self, path: &NodePath) -> Result<Option<Document>> {
        let key = self.document_key(path, NodeKind::Group)?;
        self.get_document(path, &key)
    }

    /// Keeps consolidated metadata true, and ends the move.
    pub fn consolidate_moved(&self, moved: Moved) {
        let Some(aside) = moved.aside else { return };
        for path in [&moved.from, &moved.to] {
            self.invalidate(path);
        }
        match self.renew_copies(&moved.to) {
            Ok(()) => self.end(&aside),
            // The node has moved.
            Err(error) => leave_copies(&moved.to, &error),
        }
    }

    /// Moves a node whose documents and chunks lie in trees of their own. Its documents go first and come last, so
    /// that whoever looks in between sees no node, and never one whose chunks are missing.
    fn move_trees(
        &self,
        node: &Node,
        to: &NodePath,
        below: &Prefix,
        [nodes, chunks]: [(&Prefix, &Prefix); 2],
    ) -> Result<()> {
        let write = self.store.write()?;
        let document = node.stored();
        let new_key = self.document_key(to, node.kind())?;
        let mut chunks_moved = false;
        let mut moved = || -> Result<()> {
            if let Some(document) = document {
                write.erase_values(std::slice::from_ref(&document.key))?;
            }
            write.move_prefix(nodes.0, below)?;
            write.move_prefix(chunks.0, chunks.1)?;
            chunks_moved = true;
            write.move_prefix(below, nodes.1)?;
            match document {
                Some(document) => {
                    let text = document.text.clone().into();
                    write.set(&new_key, &[text], Condition::Absent).map(drop)
                }
                None => Ok(()),
            }
        };
        let Err(error) = moved() else { return Ok(()) };
        // Each as far as it had come; what cannot be put back is left to whoever recovers.
        if chunks_moved {
            write.move_prefix(chunks.1, chunks.0)?;
            write.move_prefix(nodes.1, nodes.0)?;
        }
        write.move_prefix(below, nodes.0)?;
        if let Some(document) = document {
            match write.set(&document.key, &[document.text.clone().into()], Condition::Absent) {
                Err(error) if error.kind() == Kind::Exists => {}
                put_back => drop(put_back?),
            }
        }
        // Whatever the kind was, the caller is to be told.
        Err(Error::new(Kind::Os(error.errno()), error.to_string()))
    }

    /// A place in the store for what a directory gets that becomes an array.
    pub fn aside(&self) -> Result<Aside> {
        self.store.write()?.aside()
    }

    /// `array` as if its chunks lay in `aside`.
    pub fn bind_aside(&self, array: &Array, aside: &Aside) -> Result<Arc<Array>> {
        let (model, prefix) = (array.model().clone(), aside.prefix().join(CHUNKS)?);
        Ok(Arc::new(Array::open(
            model,
            &self.store,
            prefix,
            self.options.max_chunk_len,
            self.options.layout,
        )?))
    }

    /// What was put aside is not needed.
    pub fn drop_aside(&self, aside: &Aside) {
        self.end(aside);
    }

    /// Makes an array of a directory whose chunks are encoded in `aside`. The `files` that they were go, and so do
    /// the documents of `groups`, which are directories of the array from now on. Where that fails nothing has changed.
    ///
    /// The files go aside, the chunks take their keys, and the document comes last: who finds the array finds its chunks.
    pub fn put_converted(
        &self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        (aside, files, groups): (&Aside, &[Key], &[NodePath]),
    ) -> Result<()> {
        let planned = self.plan_conversion(path, raised, replaced, (aside, files, groups));
        let conversion = planned.inspect_err(|_| self.end(aside))?;
        let taken = Taken::default();
        let converted = self.convert(&conversion, &taken);
        self.invalidate_below(path);
        if let Err(error) = converted {
            match self.undo_conversion(&conversion, &taken, &error) {
                Ok(()) => self.end(aside),
                Err(undone) => log::warn!(
                    "{path}: a failed change could not be undone: {undone}; the next mount will \
                     undo it"
                ),
            }
            self.invalidate_below(path);
            return Err(error);
        }
        self.known_as_stored(path);
        match self.renew_copies(path) {
            Ok(()) => self.end(aside),
            // The array is there.
            Err(error) => leave_copies(path, &error),
        }
        Ok(())
    }

    fn plan_conversion<'a>(
        &self,
        path: &NodePath,
        raised: &Raised,
        replaced: Option<&Document>,
        (aside, files, groups): (&'a Aside, &[Key], &[NodePath]),
    ) -> Result<Conversion<'a>> {
        self.store_groups_above(path)?;
        let text = self.text_to_store(path, raised)?;
        let planned = self.plan_text(path, raised.key(), &text, replaced)?;
        // Before anything moves: the files may be chunks by now, of an array that somebody else has made.
        self.check_planned(&planned)?;
        let mut all = files.to_vec();
        for group in groups {
            if let Some(document) = self.node(group)?.and_then(|node| node.stored().cloned()) {
                all.extend(document.keys());
            }
        }
        let kept = aside.prefix().join(FILES)?;
        let put_aside = |key: Key| Ok((kept.key(key.as_str())?, key));
        let files = all.into_iter().map(put_aside).collect::<Result<_>>()?;
        let list = self.store.list();
        let list = list.ok_or_else(|| Error::unsupported("the store cannot list its keys"))?;
        let (encoded, target) = (aside.prefix().join(CHUNKS)?, self.dialect.chunk_prefix(path)?);
        let chunk = |key: Result<Key>| {
            let key = key?;
            let relative = key.as_str().strip_prefix(encoded.as_str()).unwrap_or_default();
            Ok((target.key(relative)?, key))
        };
        let chunks = list.list_prefix(&encoded)?.map(chunk).collect::<Result<_>>()?;
        let documents = Documents {
            path: path.clone(),
            steps: planned.steps(),
            consolidated: None,
            was: None,
            stage: Some(Stage::Files),
        };
        self.declare(aside, &Intent::Documents(documents.clone()))?;
        Ok(Conversion { planned, aside, files, chunks, trees: (encoded, target), documents })
    }

    fn convert(&self, conversion: &Conversion<'_>, taken: &Taken) -> Result<()> {
        let Conversion { planned, aside, files, trees, documents, .. } = conversion;
        let write = self.store.write()?;
        for (kept, file) in files {
            write.move_value(file, kept)?;
        }
        let documents = Documents { stage: Some(Stage::Chunks), ..documents.clone() };
        self.declare(aside, &Intent::Documents(documents))?;
        write.move_prefix(&trees.0, &trees.1)?;
        self.apply(planned.clone(), taken).map(drop)
    }

    /// How far a directory has come, by what is declared of it.
    fn declared_stage(&self, aside: &Aside) -> Result<Option<Stage>> {
        let declared = self.store.get(&aside.declaration()?, MAX_LEN)?;
        let intent = declared.map(|declared| Intent::parse(&declared.bytes)).transpose()?;
        Ok(match intent {
            Some((_, _, Intent::Documents(documents))) => documents.stage,
            _ => None,
        })
    }

    /// Puts everything back. At every instant what is declared can be done with what is there.
    fn undo_conversion(
        &self,
        conversion: &Conversion<'_>,
        taken: &Taken,
        error: &Error,
    ) -> Result<()> {
        let Conversion { aside, chunks, documents, .. } = conversion;
        if self.undo_documents(documents, taken.get(), error)? {
            return Err(Error::new(Kind::Exists, "its metadata file exists"));
        }
        let write = self.store.write()?;
        if self.declared_stage(aside)? == Some(Stage::Chunks) {
            for (key, encoded) in chunks {
                write.move_value(key, encoded)?;
            }
        }
        self.declare(aside, &Intent::Documents(documents.clone()))?;
        write.move_prefix(&aside.prefix().join(FILES)?, &Prefix::root())?;
        self.invalidate_below(&documents.path);
        self.renew_copies(&documents.path)
    }
}

/// Says that a change is done but for the copies of its documents, which are left to whoever recovers.
fn leave_copies(path: &NodePath, error: &Error) {
    log::warn!("{path}: consolidated metadata stay outdated until the next mount: {error}");
}

/// A directory that becomes an array.
#[derive(Debug)]
struct Conversion<'a> {
    planned: Planned,
    aside: &'a Aside,
    /// Where each file is kept, and its key.
    files: Vec<(Key, Key)>,
    /// The key of each chunk, and where it is encoded.
    chunks: Vec<(Key, Key)>,
    /// Where chunks are encoded, and where they belong.
    trees: (Prefix, Prefix),
    /// With the stage before any chunk has its key.
    documents: Documents,
}
