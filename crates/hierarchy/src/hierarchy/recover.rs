//! Finishes or undoes interrupted changes.
//!
//! [`Recovery::recover`] runs before a writable mount answers requests. It keeps changes that
//! other programs made since: it changes a key only if the key has the value from before or after
//! the interrupted change, and does not remove a node that exists again.
//!
//! A mount of a server looks for interrupted changes beside its other work: it takes the time of a
//! lease to see that their writer is dead.

use std::collections::BTreeSet;
use std::time::Duration;

use super::documents::{DocumentStep, StoredSteps};
use super::intent::{Documents, Intent, Move, Stage, max_len};
use super::nodes::Hierarchy;
use crate::metadata::NodePath;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::{Aside, Prefix, Stat, WritableStore};

/// The result of recovering a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Finished,
    Undone,
    /// Other programs changed the same keys since.
    Conflict,
}

/// Finishes or undoes interrupted changes.
#[derive(Debug, Clone, Copy)]
pub struct Recovery<'h> {
    pub(super) hierarchy: &'h Hierarchy,
}

impl Hierarchy {
    /// Returns what finishes or undoes interrupted changes.
    pub fn recovery(&self) -> Recovery<'_> {
        Recovery { hierarchy: self }
    }
}

impl Recovery<'_> {
    /// Finishes or undoes the changes of killed daemons, and logs it. A change that cannot be
    /// recovered stays as it is; the hierarchy remains usable.
    pub fn recover(self) {
        self.recover_beside(|| ());
    }

    /// Like [`Self::recover`], beside other work: `alone` locks out other changes of this mount.
    pub fn recover_beside<L>(self, alone: impl Fn() -> L) {
        if let Some(above) = &self.hierarchy.above {
            above.hierarchy.recovery().recover();
        }
        if self.hierarchy.store().list().is_none() {
            return; // Places of other writers cannot be found.
        }
        let abandoned = match self.hierarchy.store().write().and_then(WritableStore::abandoned) {
            Ok(abandoned) => abandoned,
            Err(error) if error.kind() == Kind::ReadOnly => return,
            Err(error) => {
                return log::warn!("files left by killed writers cannot be removed: {error}");
            }
        };
        for aside in abandoned {
            let _alone = alone();
            if let Some(list) = self.hierarchy.store().list() {
                // The cache is older than the interrupted change.
                list.forget_below(&Prefix::root());
            }
            self.hierarchy.invalidate_below(&NodePath::root());
            if let Err(error) = self.settle(&aside) {
                log::warn!(
                    "an interrupted change could be neither finished nor undone; its files are \
                     kept in {}: {error}",
                    aside.prefix()
                );
            }
        }
        self.hierarchy.release_idle(Duration::ZERO);
    }

    fn settle(self, aside: &Aside) -> Result<()> {
        let write = self.hierarchy.store().write()?;
        let Some(declared) = self.hierarchy.store().get(&aside.declaration()?, max_len())? else {
            // The change had not begun.
            return write.erase_prefix(aside.prefix());
        };
        let (dialect, base, intent) = Intent::parse(&declared.bytes)?;
        if dialect != self.hierarchy.dialect().name() {
            return Err(Error::unsupported(format!("it is a change of a hierarchy in {dialect}")));
        }
        let dialect = self.hierarchy.dialect().with_base(base);
        let mut whole = Hierarchy::open(
            self.hierarchy.store().clone(),
            Some(dialect),
            self.hierarchy.options.clone(),
        )?;
        whole.above.clone_from(&self.hierarchy.above);
        let path = intent.path();
        let outcome = match &intent {
            Intent::Documents(documents) => whole.recovery().settle_documents(documents, aside),
            Intent::Remove(path) => whole.recovery().settle_removal(path, &declared.stat),
            Intent::Move(moved) => whole.recovery().settle_move(moved, aside),
            Intent::Values(values) => whole.recovery().settle_values(values, aside),
        };
        self.hierarchy.invalidate_below(&NodePath::root());
        match outcome.at(path)? {
            Outcome::Finished => log::info!("{path}: finished an interrupted change"),
            Outcome::Undone => log::info!("{path}: undid an interrupted change"),
            Outcome::Conflict => {
                log::warn!(
                    "{path}: left unchanged: another program changed it after an interrupted change"
                );
            }
        }
        write.erase_prefix(aside.prefix())
    }

    fn settle_documents(self, documents: &Documents, aside: &Aside) -> Result<Outcome> {
        let Documents { path, steps, consolidated, stage } = documents;
        self.check_steps(std::slice::from_ref(path), steps)?;
        let write = self.hierarchy.store().write()?;
        let progress = self.hierarchy.documents.progress(steps)?;
        match stage {
            None if progress == StoredSteps::Nothing => {
                // Copies are updated before a removal, and may not have been restored.
                self.hierarchy.copies().rebuild_copies(path)?;
                return Ok(Outcome::Undone);
            }
            None => {}
            Some(Stage::Files) => {
                write.move_prefix(&aside.prefix().join(FILES)?, &Prefix::root())?;
                self.hierarchy.invalidate_below(path);
                self.hierarchy.copies().rebuild_copies(path)?;
                return Ok(Outcome::Undone);
            }
            Some(Stage::Chunks) if progress == StoredSteps::Unknown => {
                return Err(Error::new(Kind::Exists, "another node was created in its place"));
            }
            Some(Stage::Chunks) => {
                let chunks = self.hierarchy.dialect().chunk_prefix(path)?;
                write.move_prefix(&aside.prefix().join(CHUNKS)?, &chunks)?;
            }
        }
        if matches!(progress, StoredSteps::Nothing | StoredSteps::Part) {
            for DocumentStep { key, old, new } in steps {
                self.hierarchy.documents.replace_step(key, old.as_deref(), new.as_deref())?;
            }
        }
        self.hierarchy.invalidate_below(path);
        if let Some(wanted) = consolidated
            && self.hierarchy.node(path)?.is_some_and(|node| node.document().is_some())
        {
            self.hierarchy.copies().set_shared_copies(path, *wanted)?;
        }
        self.hierarchy.copies().rebuild_copies(path)?;
        Ok(if progress == StoredSteps::Unknown { Outcome::Conflict } else { Outcome::Finished })
    }

    /// Refuses steps that are not on the documents of `nodes`.
    pub(super) fn check_steps(self, nodes: &[NodePath], steps: &[DocumentStep]) -> Result<()> {
        let mut own = BTreeSet::new();
        for path in nodes {
            let dialect = self.hierarchy.dialect();
            own.extend(dialect.document_keys(path)?.into_iter().map(|(_, key)| key));
            own.extend(dialect.attributes_key(path)?);
        }
        match steps.iter().find(|step| !own.contains(&step.key)) {
            Some(step) => {
                Err(Error::corrupt("not a metadata file of the node that it names").at(&step.key))
            }
            None => Ok(()),
        }
    }

    /// Finishes the removal of a directory.
    fn settle_removal(self, path: &NodePath, declared: &Stat) -> Result<Outcome> {
        if path.is_root() {
            return Err(Error::corrupt("the root of a hierarchy cannot be removed"));
        }
        let node = self.hierarchy.node(path)?;
        if node.is_some_and(|node| !node.is_bare()) {
            // The removal had not begun, or the node was created again.
            self.hierarchy.copies().rebuild_copies(path)?;
            return Ok(Outcome::Undone);
        }
        let write = self.hierarchy.store().write()?;
        let list = self
            .hierarchy
            .store()
            .list()
            .ok_or_else(|| Error::unsupported("the store cannot list"))?;
        let prefixes = [
            self.hierarchy.dialect().chunk_prefix(path)?,
            self.hierarchy.dialect().children_prefix(path)?,
        ];
        let mut is_left = false;
        for prefix in &prefixes {
            for key in list.list_prefix(prefix)? {
                let key = key?;
                match self.hierarchy.store().stat(&key)? {
                    Some(stat) if stat.modified > declared.modified => is_left = true,
                    _ => write.erase_values(std::slice::from_ref(&key))?,
                }
            }
        }
        // Directories without values.
        if !is_left && write.promises().moves {
            for prefix in &prefixes {
                match write.erase_empty(prefix) {
                    // Another program has made something there since.
                    Err(error) if error.kind() == Kind::NotEmpty => {}
                    erased => erased?,
                }
            }
        }
        self.hierarchy.copies().rebuild_copies(path)?;
        Ok(Outcome::Finished)
    }

    /// Finishes a move, or detects that it had not begun.
    pub(super) fn settle_move(self, moved: &Move, aside: &Aside) -> Result<Outcome> {
        if moved.from.is_root() || moved.to.is_root() {
            return Err(Error::corrupt("the root of a hierarchy cannot be moved"));
        }
        let outcome = self.settle_trees(moved, aside)?;
        for path in [&moved.from, &moved.to] {
            self.hierarchy.invalidate_below(path);
            self.hierarchy.copies().rebuild_copies(path)?;
        }
        Ok(outcome)
    }

    fn settle_trees(self, moved: &Move, aside: &Aside) -> Result<Outcome> {
        let Move { from, to, kind, document } = moved;
        let Hierarchy { documents, .. } = self.hierarchy;
        let (store, dialect) = (self.hierarchy.store(), self.hierarchy.dialect());
        let write = store.write()?;
        let (nodes, chunks) = (dialect.children_prefix(from)?, dialect.chunk_prefix(from)?);
        let (new_nodes, new_chunks) = (dialect.children_prefix(to)?, dialect.chunk_prefix(to)?);
        let holds = |prefix: &Prefix| -> Result<bool> {
            let list = store.list().ok_or_else(|| Error::unsupported("the store cannot list"))?;
            Ok(list.list_prefix(prefix)?.next().transpose()?.is_some())
        };
        let (key, new_key) = (documents.key_of(from, *kind)?, documents.key_of(to, *kind)?);
        let (old, new) = (documents.text_at(&key)?, documents.text_at(&new_key)?);
        if nodes == chunks {
            return match (holds(&nodes)?, holds(&new_nodes)?) {
                (true, false) => Ok(Outcome::Undone),
                (true, true) if old.is_some() && new.is_some() => Ok(Outcome::Conflict),
                (true, true) => {
                    write.move_prefix(&nodes, &new_nodes)?;
                    Ok(Outcome::Finished)
                }
                (false, _) => Ok(Outcome::Finished),
            };
        }
        let below = aside.prefix().join(BELOW)?;
        match (document, &old, &new) {
            // Storing the document is the last step.
            (Some(text), _, Some(new)) if text == new => {
                write.move_prefix(&below, &new_nodes)?;
                return Ok(Outcome::Finished);
            }
            // Removing the document is the first step.
            (Some(text), Some(old), _) if text == old => {
                write.move_prefix(&below, &nodes)?;
                return Ok(Outcome::Undone);
            }
            (Some(_), None, None) => {}
            (Some(_), _, _) => {
                return Err(Error::new(Kind::Exists, "another node was created in its place"));
            }
            (None, _, _) if holds(&below)? => {}
            (None, _, _) if holds(&new_chunks)? || holds(&new_nodes)? => {
                write.move_prefix(&chunks, &new_chunks)?;
                write.move_prefix(&nodes, &new_nodes)?;
                return Ok(Outcome::Finished);
            }
            (None, _, _) => return Ok(Outcome::Undone),
        }
        write.move_prefix(&nodes, &below)?;
        write.move_prefix(&chunks, &new_chunks)?;
        write.move_prefix(&below, &new_nodes)?;
        if let Some(text) = document {
            documents.replace_step(&new_key, None, Some(text))?;
        }
        Ok(Outcome::Finished)
    }
}

/// Holds the nodes below a node while it moves.
pub(super) const BELOW: &str = "below";

/// Holds the encoded chunks of a directory that becomes an array.
pub(super) const CHUNKS: &str = "chunks";

/// Holds the files that the chunks replace, by their full keys.
pub(super) const FILES: &str = "files";

/// Whether an error is permanent, so that a retry is pointless.
pub(super) fn is_permanent(kind: Kind) -> bool {
    matches!(kind, Kind::Corrupt | Kind::Unsupported | Kind::Invalid | Kind::TooLarge)
}
