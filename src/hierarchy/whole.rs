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

use super::Hierarchy;
use super::documents::{Planned, Replaced, Step, Taken};
use super::edit::is_late;
use super::intent::{Documents, Intent, MAX_LEN, Move};
use super::node::Document;
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::json;
use crate::metadata::NodePath;
use crate::store::{Aside, Condition, Key};

/// How much of a document's change is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// No key has changed.
    Nothing,
    /// Some have.
    Part,
    /// All have.
    Everything,
    /// Somebody else has changed one of them since.
    Unknown,
}

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
        let consolidated = match self.dialect.own_copies(path)? {
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
            let document = self.apply(planned, taken)?;
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

    /// The same of a group that gets the document of one that says nothing.
    pub(super) fn set_group_whole(&self, path: &NodePath) -> Result<Document> {
        let (key, text) = self.dialect.new_group(path)?;
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
        let aside = self.store.write()?.aside()?;
        self.declare(&aside, intent).inspect_err(|_| self.end(&aside))?;
        Ok(aside)
    }

    pub(super) fn declare(&self, aside: &Aside, intent: &Intent) -> Result<()> {
        let text = intent.to_text(self);
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_LEN {
            let detail = format!("a change of {} bytes, the limit is {MAX_LEN}", text.len());
            return Err(Error::too_large(detail));
        }
        self.store.write()?.declare(aside, Bytes::from(text))
    }

    /// What was declared is done. Where that cannot be taken back, it is found to be done when it is found.
    pub(super) fn end(&self, aside: &Aside) {
        if let Err(error) = self.store.write().and_then(|write| write.erase_prefix(aside.prefix()))
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
        let key = self.document_key(&moved.from, moved.kind)?;
        if moved.document.is_some() && self.text_at(&key)? != moved.document {
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
                self.replace_step(&step.key, step.new.as_deref(), step.old.as_deref())?;
            }
            self.invalidate(path);
            // The copies of a document go before it.
            let are_changed = taken > 0 || documents.is_removal();
            return if are_changed { self.renew_copies(path).map(|()| false) } else { Ok(false) };
        }
        if let Err(error) = self.renew_copies(path) {
            for step in steps.iter().rev() {
                self.replace_step(&step.key, step.new.as_deref(), step.old.as_deref())?;
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

    /// How far a change of documents has come.
    pub(super) fn progress(&self, steps: &[Step]) -> Result<Progress> {
        let (mut old, mut new) = (0, 0);
        for step in steps {
            let found = self.text_at(&step.key)?;
            if is_same(found.as_deref(), step.new.as_deref()) {
                new += 1;
            } else if is_same(found.as_deref(), step.old.as_deref()) {
                old += 1;
            } else {
                return Ok(Progress::Unknown);
            }
        }
        Ok(match (old, new) {
            (0, _) => Progress::Everything,
            (_, 0) => Progress::Nothing,
            _ => Progress::Part,
        })
    }

    /// Gives a key another text, if it has `from` still.
    pub(super) fn replace_step(
        &self,
        key: &Key,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<()> {
        let stat = self.store.stat(key)?;
        if !is_same(self.text_at(key)?.as_deref(), from) {
            return Ok(());
        }
        let condition = stat.map_or(Condition::Absent, |stat| Condition::Unchanged(stat.version));
        self.take_step(key, to, condition).map(drop)
    }

    /// Whether there is anything to be changed in what describes `path` or lies below it.
    pub(super) fn holds_values(&self, path: &NodePath) -> Result<bool> {
        let Some(list) = self.store.list() else { return Ok(true) };
        let (nodes, chunks) =
            (self.dialect.children_prefix(path)?, self.dialect.chunk_prefix(path)?);
        for prefix in [&nodes, &chunks] {
            if list.list_prefix(prefix)?.next().transpose()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The plan of a document; where somebody else was faster, an error of [`Kind::Exists`] or [`Kind::Stale`].
    pub(super) fn plan_text(
        &self,
        path: &NodePath,
        key: &Key,
        text: &str,
        replaced: Option<&Document>,
    ) -> Result<Planned> {
        let replaced = replaced.map_or(Replaced::Absent, Replaced::Unchanged);
        self.plan_document(path, key, text, replaced)
    }
}

/// Whether an array of another shape has fewer chunks along any dimension.
fn loses_chunks(array: &Array, shape: &[u64]) -> bool {
    let counts = array.grid().counts();
    shape.len() == counts.len()
        && array.grid().resized(shape).counts().iter().zip(counts).any(|(new, old)| new < old)
}

/// Whether two documents say the same, or neither is there.
pub(super) fn is_same(one: Option<&str>, other: Option<&str>) -> bool {
    let parsed = |text: &str| json::parse_object(text.as_bytes()).ok();
    match (one, other) {
        (Some(one), Some(other)) => {
            one == other || parsed(one).is_some_and(|one| parsed(other) == Some(one))
        }
        (None, None) => true,
        _ => false,
    }
}

/// Whether an error says that something can never be done, and not that the store could not do it now.
pub(super) fn is_for_good(kind: Kind) -> bool {
    matches!(kind, Kind::Corrupt | Kind::Unsupported | Kind::Invalid | Kind::TooLarge)
}
