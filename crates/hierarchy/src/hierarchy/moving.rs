//! Moves nodes, and turns directories into arrays; both move values in the store.

use super::atomic::leave_copies;
use super::change::Changes;
use super::directories::KnownDirectory;
use super::documents::StepsDone;
use super::intent::{Intent, Move};
use super::node::{Content, Document, Node, NodeState};
use super::recover::BELOW;
use crate::metadata::{NodeKind, NodePath, model};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::{Aside, Condition, Prefix};

/// A node that was moved. [`Changes::consolidate_moved`](super::Changes::consolidate_moved)
/// completes the move.
#[derive(Debug)]
#[must_use = "the copies of its document are not updated yet"]
pub struct Moved {
    from: NodePath,
    to: NodePath,
    aside: Option<Aside>,
}

impl Changes<'_> {
    /// Moves the directory `from`, whether it is a node or not, with everything below it. The
    /// caller has checked the new name.
    pub fn rename(self, from: &NodePath, to: &NodePath) -> Result<Moved> {
        self.check_moves(from)?;
        self.check_is_free(to)?;
        self.hierarchy.invalidate_below(from);
        let node = self.existing(from)?;
        if !node.is_bare() || node.stored().is_some() {
            self.store_groups_above(to)?;
        }
        let dialect = self.hierarchy.dialect();
        let prefixes =
            |path| Ok::<_, Error>((dialect.children_prefix(path)?, dialect.chunk_prefix(path)?));
        let ((nodes, chunks), (new_nodes, new_chunks)) = (prefixes(from)?, prefixes(to)?);
        if nodes != chunks
            && let Some(above) = to.parent()
        {
            self.existing(&above)?; // Neither of its directories tells whether it has gone.
        }
        from.ancestors().iter().try_for_each(|above| self.keep_directory(above))?;
        let has_copies =
            self.copies().has_copies_above(from)? || self.copies().has_copies_above(to)?;
        let document = node.stored().map(|found| String::from_utf8_lossy(&found.text).into_owned());
        let intent =
            Intent::Move(Move { from: from.clone(), to: to.clone(), kind: node.kind(), document });
        let aside = if has_copies || nodes != chunks {
            if matches!(node.state, NodeState::Unreadable(_)) && nodes != chunks {
                let detail = "a node with unreadable metadata cannot be moved";
                return Err(Error::unsupported(detail));
            }
            Some(self.atomic().begin(&intent)?)
        } else {
            None
        };
        let is_in_store = self.is_in_store(from)?;
        let known = self.hierarchy.directories.take_below(from);
        let move_directory = || self.move_directory(to, [&chunks, &new_chunks], is_in_store);
        let moved = match &aside {
            Some(aside) => {
                // Programs that read only the copies must not find a node whose chunks are missing.
                self.copies().update_consolidated(from, None).and_then(|()| {
                    if nodes == chunks {
                        return move_directory();
                    }
                    let below = aside.prefix().join(BELOW)?;
                    let trees = [(&nodes, &new_nodes), (&chunks, &new_chunks)];
                    self.move_trees(&node, to, &below, trees)
                })
            }
            None => move_directory(),
        };
        if let (Err(error), Some(aside)) = (&moved, &aside) {
            let _undone = self.atomic().undo(&intent, aside, &StepsDone::default(), error);
        }
        if let Err(error) = moved {
            self.hierarchy.directories.put_back(known);
            return Err(error);
        }
        self.hierarchy.invalidate_below(from);
        self.hierarchy.forms.move_below(from, to);
        self.hierarchy.directories.move_groups(from, to);
        self.rename_directories(from, to, &known)?;
        self.hierarchy.invalidate_below(to);
        Ok(Moved { from: from.clone(), to: to.clone(), aside })
    }

    /// Moves the directory of a node to that of `to`. `is_in_store` is whether the store had it.
    fn move_directory(
        self,
        to: &NodePath,
        [old, new]: [&Prefix; 2],
        is_in_store: bool,
    ) -> Result<()> {
        let mut store = self.hierarchy.store().clone();
        if let Some(above) = to.parent() {
            store = store.in_directory(&self.home_of(&above)?);
        }
        let moved = store.write()?.move_to_free(old, new);
        if is_in_store { moved } else { unless_nothing(moved) }
    }

    /// Fails if another program has made something at `path`, which a new node would replace.
    pub(super) fn check_is_free(self, path: &NodePath) -> Result<()> {
        let is_node = self.node(path)?.is_some_and(|node| node.document().is_some());
        if !is_node && !self.atomic().holds_values(path)? {
            return Ok(());
        }
        let detail = "another program has just made a node or files here";
        Err(Error::new(Kind::NotEmpty, detail).at(path))
    }

    /// Fails with `EXDEV` if the store cannot move what it has below `from` in one step. Ends
    /// changes there that failed before.
    fn check_moves(self, from: &NodePath) -> Result<()> {
        self.hierarchy.end_values_below(from)?;
        let moves = self.hierarchy.store().write()?.promises().moves;
        if moves || !self.atomic().holds_values(from)? {
            return Ok(());
        }
        // Then `mv` copies, and removes what it has copied. A copy within the mount keeps the
        // stored metadata (`Hierarchy::raise_copy`).
        let detail = "the store cannot move a group or an array in one step";
        Err(Error::new(Kind::CrossDevice, detail).at(from))
    }

    /// Moves a directory onto `to`, a directory that looks empty. If that fails, `to` is restored.
    pub fn rename_onto_empty(self, from: &NodePath, to: &NodePath) -> Result<Moved> {
        self.check_moves(from)?;
        let replaced = self.existing(to)?;
        self.remove_directory(to)?;
        self.rename(from, to).inspect_err(|_| self.restore_directory(&replaced))
    }

    /// Adds the directories that only this mount knew below `from` where they are now. If no node
    /// can have the new name, the store has them.
    fn rename_directories(
        self,
        from: &NodePath,
        to: &NodePath,
        all: &[KnownDirectory],
    ) -> Result<()> {
        if to.name().is_some_and(|name| self.hierarchy.check_name(name).is_err()) {
            return Ok(());
        }
        for known in all {
            let node = &known.node;
            let Some(path) = node.path.moved(from, to) else { continue };
            let content = match &node.content {
                Content::Array(array) => self
                    .hierarchy
                    .bind(&path, model::NodeMetadata::Array(Box::new(array.model().clone())))?,
                other => other.clone(),
            };
            let state = match &node.state {
                NodeState::Removed(Some(document)) => {
                    let key = self.hierarchy.documents.key_of(&path, node.kind())?;
                    NodeState::Removed(Some(Document { key, ..document.clone() }))
                }
                NodeState::Removed(None) => NodeState::Removed(None),
                _ => NodeState::Bare(self.document_of(&path)?.filter(|_| node.stored().is_some())),
            };
            self.hierarchy.directories.put_back([known.moved_as(Node { path, state, content })]);
        }
        Ok(())
    }

    /// Reads the stored document of a group.
    fn document_of(self, path: &NodePath) -> Result<Option<Document>> {
        let key = self.hierarchy.documents.key_of(path, NodeKind::Group)?;
        self.hierarchy.documents.get(self.hierarchy.dialect(), path, &key)
    }

    /// Updates consolidated metadata, and completes the move.
    pub fn consolidate_moved(self, moved: Moved) {
        let Some(aside) = moved.aside else { return };
        for path in [&moved.from, &moved.to] {
            self.hierarchy.invalidate(path);
        }
        match self.copies().rebuild_copies(&moved.to) {
            Ok(()) => self.atomic().end(&aside),
            // The move itself succeeded.
            Err(error) => leave_copies(&moved.to, &error),
        }
    }

    /// Moves a node whose documents and chunks lie in separate trees. Its documents are removed
    /// first and stored last, so that other programs never see a node whose chunks are missing.
    fn move_trees(
        self,
        node: &Node,
        to: &NodePath,
        below: &Prefix,
        [nodes, chunks]: [(&Prefix, &Prefix); 2],
    ) -> Result<()> {
        let write = self.hierarchy.store().write()?;
        let document = node.stored();
        let new_key = self.hierarchy.documents.key_of(to, node.kind())?;
        let mut chunks_moved = false;
        let mut moved = || -> Result<()> {
            if let Some(document) = document {
                write.erase_values(std::slice::from_ref(&document.key))?;
            }
            write.move_prefix(nodes.0, below)?;
            unless_nothing(write.move_to_free(chunks.0, chunks.1))?;
            chunks_moved = true;
            unless_nothing(write.move_to_free(below, nodes.1))?;
            match document {
                Some(document) => {
                    let text = document.text.clone().into();
                    write.set(&new_key, &[text], Condition::Absent).map(drop)
                }
                None => Ok(()),
            }
        };
        let Err(error) = moved() else { return Ok(()) };
        // Undo only the steps that were done. If this fails, recovery undoes the rest.
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
        // Report the error to the caller, with its errno, whatever its kind.
        Err(Error::new(Kind::Os(error.errno()), error.to_string()))
    }
}

/// Takes a move of nothing for done.
fn unless_nothing(moved: Result<()>) -> Result<()> {
    match moved {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        moved => moved,
    }
}
