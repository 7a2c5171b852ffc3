//! Changes that take several keys, kept whole.
//!
//! What is about to be done is stored first ([`Intent`]), and erased when it is done. A change that fails is undone as
//! far as that can be; one whose daemon is killed is finished or undone by the next that writes (`recover`). A
//! change of one key is whole by itself, and costs nothing more.
//!
//! `recover` touches a key only while it has the value that the change found or put there. Copies
//! of metadata files are made again from what is stored. Undoing a change uses the steps that it
//! has counted: a value that another program stored meanwhile stays, even if it is equal.

use bytes::Bytes;

use super::documents::{Planned, Taken, is_late};
use super::intent::{Documents, Intent, MAX_LEN, Move};
use super::node::Document;
use super::nodes::Hierarchy;
use super::recover::is_for_good;
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::Aside;

/// What became of a change that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undone {
    Yes,
    /// All of it is done after all.
    ByDoingTheRest,
    No,
}

impl Hierarchy {
    /// Stores a document with what belongs to it: consolidated metadata of its own, where that is `wanted`
    /// or not, the copies above it, and of an array that becomes smaller the end of chunks outside. `was` is that array.
    pub(super) fn set_whole(
        &self,
        path: &NodePath,
        planned: Planned,
        consolidated: Option<bool>,
        was: Option<(&Array, &Document, &[u64])>,
    ) -> Result<()> {
        let consolidated = match self.dialect().own_copies(path)? {
            Some(_) => consolidated,
            None => None,
        };
        let was = was.filter(|(array, _, shape)| loses_chunks(array, shape));
        let intent = Intent::Documents(Documents {
            path: path.clone(),
            steps: planned.steps(),
            consolidated,
            was: was.map(|(_, document, _)| String::from_utf8_lossy(&document.text).into_owned()),
            stage: None,
        });
        let several = was.is_some() || consolidated.is_some();
        // The copies of what lies below it have gone with its own.
        let was_removed = self.node(path)?.is_some_and(|node| node.removed().is_some());
        self.whole(&intent, several, |taken| {
            let document = self.documents.apply(planned, taken)?;
            self.invalidate(path);
            if let Some(wanted) = consolidated {
                self.set_shared_copies(path, wanted)?;
            }
            self.known_as_stored(path);
            if was_removed {
                self.renew_copies(path)?;
            } else {
                let text = String::from_utf8_lossy(&document.text);
                self.update_consolidated(path, Some(&text))?;
            }
            was.map_or(Ok(()), |(array, _, shape)| array.erase_outside(shape))
        })
    }

    /// Does `change`, which is what `intent` says, as a whole. `several` is whether it takes more than
    /// its documents and the copies of them. If it fails, what it has done is undone, or, where that is nearer, the rest
    /// is done at a second attempt.
    pub(super) fn whole(
        &self,
        intent: &Intent,
        several: bool,
        change: impl FnOnce(&Taken) -> Result<()>,
    ) -> Result<()> {
        let takes_several = several
            || matches!(intent, Intent::Documents(documents) if documents.steps.len() > 1)
            || self.has_copies_above(intent.path())?;
        let taken = Taken::default();
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
                Undone::ByDoingTheRest => Ok(()),
                Undone::Yes | Undone::No => Err(error),
            },
        }
    }

    /// Stores what is going to be done, before anything is.
    pub(super) fn begin(&self, intent: &Intent) -> Result<Aside> {
        let aside = self.store().write()?.aside()?;
        self.declare(&aside, intent).inspect_err(|_| self.end(&aside))?;
        Ok(aside)
    }

    pub(super) fn declare(&self, aside: &Aside, intent: &Intent) -> Result<()> {
        let text = intent.to_text(self.dialect());
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_LEN {
            let detail = format!("a change of {} bytes, the limit is {MAX_LEN}", text.len());
            return Err(Error::too_large(detail));
        }
        self.store().write()?.declare(aside, Bytes::from(text))
    }

    /// What was declared is done. Where that cannot be taken back, it is found to be done when it is found.
    pub(super) fn end(&self, aside: &Aside) {
        if let Err(error) =
            self.store().write().and_then(|write| write.erase_prefix(aside.prefix()))
        {
            log::warn!(
                "{}: the record of a finished change cannot be removed: {error}",
                aside.prefix()
            );
        }
    }

    /// Undoes what was done of a change that has failed; what cannot be undone is left to whoever recovers.
    pub(super) fn undo(
        &self,
        intent: &Intent,
        aside: &Aside,
        taken: &Taken,
        error: &Error,
    ) -> Undone {
        let mut is_done = false;
        let undone = match intent {
            Intent::Documents(documents) => self
                .undo_documents(documents, taken.get(), error)
                .map(|is_there| is_done = is_there),
            // What has gone has gone: the caller was told that the rest has not.
            Intent::Remove(path) => {
                self.invalidate(path);
                self.renew_copies(path)
            }
            Intent::Move(moved) => self.undo_move(moved, aside),
        };
        match undone {
            Ok(()) => {
                self.end(aside);
                if is_done { Undone::ByDoingTheRest } else { Undone::Yes }
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

    /// Whoever moves puts back what has moved: it is left to see that it is there.
    fn undo_move(&self, moved: &Move, aside: &Aside) -> Result<()> {
        let key = self.documents.key_of(&moved.from, moved.kind)?;
        if moved.document.is_some() && self.documents.text_at(&key)? != moved.document {
            return Err(Error::new(Kind::Busy, "it is being moved"));
        }
        self.settle_move(moved, aside).map(drop)
    }

    /// Undoes the steps that were `taken` before `error`; once there are no more, what is left to do is done. What somebody
    /// else has put there is not ours, though it may be the same. Whether the document is there.
    pub(super) fn undo_documents(
        &self,
        documents: &Documents,
        taken: usize,
        error: &Error,
    ) -> Result<bool> {
        let Documents { path, steps, was, .. } = documents;
        self.invalidate(path);
        if taken < steps.len() {
            // The one that has failed may have come to pass all the same, unless that was what it found.
            let reached = if is_late(error) { taken } else { taken + 1 };
            for step in steps.iter().take(reached).rev() {
                self.documents.replace_step(&step.key, step.new.as_deref(), step.old.as_deref())?;
            }
            self.invalidate(path);
            // The copies of a document go before it.
            let are_changed = taken > 0 || documents.is_removal();
            return if are_changed { self.renew_copies(path).map(|()| false) } else { Ok(false) };
        }
        if let Err(error) = self.renew_copies(path) {
            for step in steps.iter().rev() {
                self.documents.replace_step(&step.key, step.new.as_deref(), step.old.as_deref())?;
            }
            self.invalidate(path);
            if !is_for_good(error.kind()) {
                return Err(error);
            }
            // No mount can ever change the copies that failed. Those changed before them are restored.
            return match self.renew_copies(path) {
                Err(error) if !is_for_good(error.kind()) => Err(error),
                _ => Ok(false),
            };
        }
        if let Some(was) = was {
            self.erase_outside_of_now(path, was)?;
        }
        Ok(true)
    }

    /// Whether there is anything to be changed in what describes `path` or lies below it.
    pub(super) fn holds_values(&self, path: &NodePath) -> Result<bool> {
        let Some(list) = self.store().list() else { return Ok(true) };
        let (nodes, chunks) =
            (self.dialect().children_prefix(path)?, self.dialect().chunk_prefix(path)?);
        for prefix in [&nodes, &chunks] {
            if list.list_prefix(prefix)?.next().transpose()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether an array of another shape has fewer chunks along any dimension.
fn loses_chunks(array: &Array, shape: &[u64]) -> bool {
    let counts = array.grid().counts();
    shape.len() == counts.len()
        && array.grid().resized(shape).counts().iter().zip(counts).any(|(new, old)| new < old)
}

/// Says that a change is done but for the copies of its documents, which are left to whoever recovers.
pub(super) fn leave_copies(path: &NodePath, error: &Error) {
    log::warn!("{path}: consolidated metadata stay outdated until the next mount: {error}");
}
