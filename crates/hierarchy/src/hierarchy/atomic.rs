//! Makes changes of several keys atomic.
//!
//! The change is first declared in the store ([`Intent`]), and the declaration is erased at the
//! end. If the change fails, it is undone as far as possible. If the daemon is killed, the next
//! mount that can write finishes or undoes the change (`recover`). A change of a single key is
//! atomic by itself and needs no declaration.
//!
//! `recover` changes a key only if it has its value from before or after the change, and rebuilds
//! copies of metadata files from the stored documents. Undoing a failed change relies on its count
//! of completed steps instead: a value that another program stored meanwhile stays, even if it is
//! equal.

use std::time::Instant;

use bytes::Bytes;

use super::consolidated::CopiesAbove;
use super::documents::{Planned, StepsDone, is_conflict};
use super::intent::{Documents, Intent, Move, max_len};
use super::nodes::Hierarchy;
use super::recover::is_permanent;
use crate::metadata::NodePath;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;
use zarrfs_store::{Aside, Key};

/// The result of undoing a failed change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undone {
    Yes,
    /// The change is complete after all.
    Completed,
    No,
}

/// Makes changes of several keys atomic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Atomic<'h> {
    pub(super) hierarchy: &'h Hierarchy,
    /// When the change began.
    since: Instant,
}

impl Hierarchy {
    /// Returns what makes changes of several keys atomic, for a change that began at `since`.
    pub(super) fn atomic_since(&self, since: Instant) -> Atomic<'_> {
        Atomic { hierarchy: self, since }
    }
}

impl<'h> Atomic<'h> {
    fn copies(self) -> CopiesAbove<'h> {
        self.hierarchy.copies_since(self.since)
    }
}

impl Atomic<'_> {
    /// Stores a document atomically together with what depends on it: the shared copies
    /// (`consolidated` adds or removes them) and the copies above it. Chunks outside of a smaller
    /// shape stay, as in a directory: a program that does not need them removes them. A program may
    /// write a smaller shape only because it does not know of a larger one.
    pub(super) fn set_atomically(
        self,
        path: &NodePath,
        planned: Planned,
        consolidated: Option<bool>,
    ) -> Result<()> {
        let consolidated = match self.hierarchy.dialect().own_copies(path)? {
            Some(_) => consolidated,
            None => None,
        };
        let intent = Intent::Documents(Documents {
            path: path.clone(),
            steps: planned.steps(),
            consolidated,
            stage: None,
        });
        // Removing the document also removed the copies of everything below it.
        let was_removed = self.hierarchy.node(path)?.is_some_and(|node| node.removed().is_some());
        self.atomically(&intent, consolidated.is_some(), |taken| {
            let document = self.hierarchy.documents.apply(planned, taken)?;
            self.hierarchy.invalidate(path);
            if let Some(wanted) = consolidated {
                self.copies().set_shared_copies(path, wanted)?;
            }
            self.hierarchy.forget_unstored(path);
            if was_removed {
                self.copies().rebuild_copies(path)?;
            } else {
                let text = String::from_utf8_lossy(&document.text);
                self.copies().update_consolidated(path, Some(&text))?;
            }
            Ok(())
        })
    }

    /// Runs `change`, declared as `intent`, atomically. `several` is true if it changes more than
    /// the documents and their copies. On failure it undoes the change, or completes it if little
    /// is left to do.
    pub(super) fn atomically(
        self,
        intent: &Intent,
        several: bool,
        change: impl FnOnce(&StepsDone) -> Result<()>,
    ) -> Result<()> {
        let takes_several = several
            || matches!(intent, Intent::Documents(documents) if documents.steps.len() > 1)
            || self.copies().has_copies_above(intent.path())?;
        let taken = StepsDone::default();
        if !takes_several {
            return change(&taken);
        }
        let aside = self.begin(intent)?;
        match change(&taken) {
            Ok(()) => {
                self.end(&aside);
                Ok(())
            }
            Err(error) => match self.undo(intent, &aside, &taken, &error) {
                Undone::Completed => Ok(()),
                Undone::Yes | Undone::No => Err(error),
            },
        }
    }

    /// Declares a change in the store.
    pub(super) fn begin(self, intent: &Intent) -> Result<Aside> {
        let aside = self.hierarchy.store().write()?.aside()?;
        self.declare(&aside, intent).inspect_err(|_| self.end(&aside))?;
        Ok(aside)
    }

    pub(super) fn declare(self, aside: &Aside, intent: &Intent) -> Result<()> {
        let text = intent.to_text(self.hierarchy.dialect());
        if text.len().to_u64() > max_len() {
            let detail = format!("a change of {} bytes, the limit is {}", text.len(), max_len());
            return Err(Error::too_large(detail));
        }
        // What recovery cannot read must not begin.
        Intent::parse(text.as_bytes()).map_err(|error| error.of_kind(Kind::TooLarge))?;
        self.hierarchy.store().write()?.declare(aside, Bytes::from(text))
    }

    /// Erases a declaration. If that fails, recovery will find the change complete.
    pub(super) fn end(self, aside: &Aside) {
        if let Err(error) =
            self.hierarchy.store().write().and_then(|write| write.erase_prefix(aside.prefix()))
        {
            log::warn!(
                "{}: the record of a finished change cannot be removed: {error}",
                aside.prefix()
            );
        }
    }

    /// Undoes a failed change. Recovery undoes the rest at the next mount.
    pub(super) fn undo(
        self,
        intent: &Intent,
        aside: &Aside,
        taken: &StepsDone,
        error: &Error,
    ) -> Undone {
        let mut is_done = false;
        let undone = match intent {
            Intent::Documents(documents) => self
                .undo_documents(documents, taken.get(), error)
                .map(|is_there| is_done = is_there),
            // Erased values stay erased, and the caller got an error for the others.
            Intent::Remove(path) => {
                self.hierarchy.invalidate(path);
                self.copies().rebuild_copies(path)
            }
            // Nothing has moved, and what another program has made there is not ours.
            Intent::Move(moved) if error.kind() == Kind::NotEmpty => {
                self.hierarchy.invalidate_below(&moved.to);
                self.hierarchy.invalidate_below(&moved.from);
                self.copies().rebuild_copies(&moved.from)
            }
            Intent::Move(moved) => self.undo_move(moved, aside),
            // Such a change is finished, never undone.
            Intent::Values(_) => Ok(()),
        };
        match undone {
            Ok(()) => {
                self.end(aside);
                if is_done { Undone::Completed } else { Undone::Yes }
            }
            Err(error) => {
                log::warn!(
                    "{}: a failed change could not be undone: {error}; the next mount will undo it",
                    intent.path()
                );
                Undone::No
            }
        }
    }

    /// Checks that the node is there, because the failed move has already moved everything back.
    fn undo_move(self, moved: &Move, aside: &Aside) -> Result<()> {
        let key = self.hierarchy.documents.key_of(&moved.from, moved.kind)?;
        if moved.document.is_some() && self.hierarchy.documents.text_at(&key)? != moved.document {
            return Err(Error::new(Kind::Busy, "it is being moved"));
        }
        self.hierarchy.recovery().settle_move(moved, aside).map(drop)
    }

    /// Undoes the `taken` steps before `error`, or completes the change if all were taken. Keeps
    /// values that another program stored, even equal ones. Returns whether the document is stored.
    pub(super) fn undo_documents(
        self,
        documents: &Documents,
        taken: usize,
        error: &Error,
    ) -> Result<bool> {
        let Documents { path, steps, .. } = documents;
        self.hierarchy.invalidate(path);
        if taken < steps.len() {
            // The failed step may have taken effect, unless a conflict was the reason.
            let reached = if is_conflict(error) { taken } else { taken + 1 };
            for step in steps.iter().take(reached).rev() {
                self.hierarchy.documents.undo_step(step)?;
            }
            self.hierarchy.invalidate(path);
            // A removal changes the copies before the document.
            let are_changed = taken > 0 || documents.is_removal();
            return if are_changed {
                self.copies().rebuild_copies(path).map(|()| false)
            } else {
                Ok(false)
            };
        }
        if let Err(error) = self.copies().rebuild_copies(path) {
            for step in steps.iter().rev() {
                self.hierarchy.documents.undo_step(step)?;
            }
            self.hierarchy.invalidate(path);
            if !is_permanent(error.kind()) {
                return Err(error);
            }
            // The copies that failed can never be changed. This restores those that changed before
            // them.
            return match self.copies().rebuild_copies(path) {
                Err(error) if !is_permanent(error.kind()) => Err(error),
                _ => Ok(false),
            };
        }
        Ok(true)
    }

    /// Whether the store has any documents or values at or below `path`.
    pub(super) fn holds_values(self, path: &NodePath) -> Result<bool> {
        if self.hierarchy.store().list().is_none() {
            return Ok(true);
        }
        Ok(self.lists_below(path)?.next().transpose()?.is_some())
    }

    /// Returns the keys of all documents and values that the store has at or below `path` now.
    pub(super) fn values_below(self, path: &NodePath) -> Result<Vec<Key>> {
        self.lists_below(path)?.collect()
    }

    fn lists_below(self, path: &NodePath) -> Result<impl Iterator<Item = Result<Key>>> {
        let store = self.hierarchy.store();
        let list = store.list().ok_or_else(|| Error::unsupported("the store cannot list"))?;
        let nodes = self.hierarchy.dialect().children_prefix(path)?;
        let chunks = self.hierarchy.dialect().chunk_prefix(path)?;
        let prefixes = if nodes == chunks { vec![nodes] } else { vec![nodes, chunks] };
        let mut lists = Vec::new();
        for prefix in &prefixes {
            list.forget_below(prefix);
            lists.push(list.list_prefix(prefix)?);
        }
        Ok(lists.into_iter().flatten())
    }
}

/// Logs that a change is complete except for the copies of its documents, which recovery makes.
pub(super) fn leave_copies(path: &NodePath, error: &Error) {
    log::warn!("{path}: consolidated metadata stay outdated until the next mount: {error}");
}
