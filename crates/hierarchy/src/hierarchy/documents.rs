//! Documents in the store: read, checked, replaced and erased as one, even if the dialect splits
//! them into two files.
//!
//! No other module knows that there may be two files. This one checks both versions, stores only
//! the file that differs, and stores the attributes of a new node before its metadata file.

use std::cell::Cell;
use std::time::Instant;

use bytes::Bytes;

use super::node::{Attributes, Document};
use crate::metadata::{Dialect, NodeKind, NodePath, join, skim, split};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_codec::json::{self, foreign};
use zarrfs_store::{Condition, Key, Prefix, Stat, Store, Version};

/// How often to retry an edit because another program changed the document in the meantime.
pub(super) const ATTEMPTS: usize = 100;

/// The condition on the document that a new one replaces.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replaced<'d> {
    /// There must be none.
    Absent,
    /// This document must still be stored.
    Unchanged(&'d Document),
}

impl<'d> Replaced<'d> {
    /// Returns the condition that `document` is still stored, or that there is none.
    pub fn of(document: Option<&'d Document>) -> Self {
        document.map_or(Self::Absent, Self::Unchanged)
    }
}

/// One key of a document before and after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocumentStep {
    pub(super) key: Key,
    /// `None` if the key has no value.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
}

/// The number of steps of a change that were done.
pub(super) type StepsDone = Cell<usize>;

/// The plan for storing a document.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    key: Key,
    text: Bytes,
    steps: Vec<(DocumentStep, Condition)>,
    /// The stat of the stored document, if its file does not change.
    stat: Option<Stat>,
    attributes: Option<Attributes>,
    /// The directory that no step recreates.
    home: Prefix,
}

/// How much of a change of documents is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredSteps {
    /// No key has changed.
    Nothing,
    /// Some keys have changed.
    Part,
    /// All keys have changed.
    Everything,
    /// Another program has changed one of the keys since.
    Unknown,
}

impl Planned {
    /// Returns a plan without steps for the document that replaces `old`.
    fn new(key: &Key, text: &str, old: Option<&Document>, home: &Prefix) -> Self {
        Self {
            key: key.clone(),
            text: Bytes::copy_from_slice(text.as_bytes()),
            steps: Vec::new(),
            stat: old.map(|document| document.stat),
            attributes: None,
            home: home.clone(),
        }
    }

    /// Returns the directory that no step recreates.
    pub(super) fn home(&self) -> &Prefix {
        &self.home
    }

    /// Returns the keys that change, in order.
    pub(super) fn steps(&self) -> Vec<DocumentStep> {
        self.steps.iter().map(|(step, _)| step.clone()).collect()
    }
}

/// The metadata files of a hierarchy in a store, at the keys of its dialect.
#[derive(Debug)]
pub(super) struct DocumentStore {
    pub store: Store,
    pub dialect: Dialect,
}

impl DocumentStore {
    /// Reads the document at `key`, one of the keys that `path` has in its dialect.
    pub fn get(&self, dialect: &Dialect, path: &NodePath, key: &Key) -> Result<Option<Document>> {
        let Some(found) = skim::get(&self.store, key)? else { return Ok(None) };
        let document = Document {
            key: key.clone(),
            text: found.text.into(),
            stat: found.stat,
            attributes: None,
            is_whole: found.is_whole,
        };
        let Some(attributes) = dialect.attributes_key(path)? else {
            return Ok(Some(document));
        };
        let found = self.store.get(&attributes, limits::METADATA.get())?;
        let text = found.as_ref().map(|value| foreign::text_of(&value.bytes));
        let stat = found.as_ref().map(|value| value.stat);
        let own = String::from_utf8_lossy(&document.text);
        // Lowering reports the fault of the metadata file itself.
        let joined = match json::parse_object(own.as_bytes()) {
            Ok(_) => join(&own, text.as_deref()).at(&attributes)?,
            Err(_) => own.into_owned(),
        };
        let attributes = Attributes { key: attributes, stat };
        Ok(Some(Document { text: joined.into(), attributes: Some(attributes), ..document }))
    }

    /// Returns the full text of a document; [`Kind::Stale`] if another version is stored by now.
    pub fn whole_text(&self, document: &Document) -> Result<String> {
        if document.is_whole {
            return Ok(String::from_utf8_lossy(&document.text).into_owned());
        }
        let stale = || Error::new(Kind::Stale, "another program changed the metadata file");
        let value = self.store.get(&document.key, json::max_text_len())?.ok_or_else(stale)?;
        if !document.stat.version.is_same(value.stat.version) {
            return Err(stale());
        }
        Ok(String::from_utf8_lossy(&value.bytes).into_owned())
    }

    /// Whether this version of a document is still stored.
    pub fn is_current(&self, document: &Document) -> Result<bool> {
        let is_same = |key: &Key, known: Option<&Stat>| -> Result<bool> {
            let version = self.store.stat(key)?.map(|stat| stat.version);
            Ok(Version::holds_of(known.map(|stat| stat.version), version))
        };
        Ok(is_same(&document.key, Some(&document.stat))?
            && match &document.attributes {
                Some(attributes) => is_same(&attributes.key, attributes.stat.as_ref())?,
                None => true,
            })
    }

    /// Stores the document of a node, as [`Self::plan`] says. If it has two files, stores only
    /// those that differ, the attributes first, so that a program that finds the node also finds
    /// its attributes.
    pub fn set(
        &self,
        place: (&NodePath, &Prefix),
        key: &Key,
        text: &str,
        replaced: Replaced<'_>,
    ) -> Result<Document> {
        self.apply(self.plan(place, key, text, replaced)?, &StepsDone::default())
    }

    /// Plans the steps that store the document of the node at `path`. They do not recreate `home`,
    /// a directory at or above that of the document.
    pub fn plan(
        &self,
        (path, home): (&NodePath, &Prefix),
        key: &Key,
        text: &str,
        replaced: Replaced<'_>,
    ) -> Result<Planned> {
        let (old, other) = match replaced {
            Replaced::Unchanged(document) if document.key == *key => (Some(document), None),
            Replaced::Unchanged(document) => (None, Some(document)),
            Replaced::Absent => (None, None),
        };
        let condition =
            old.map_or(Condition::Absent, |document| Condition::Unchanged(document.stat.version));
        let attributes_key = self.dialect.attributes_key(path)?;
        let halves = |text: &str| match &attributes_key {
            Some(_) => split(text),
            None => Ok((text.to_owned(), None)),
        };
        let of = |document: &Document| halves(&String::from_utf8_lossy(&document.text));
        let (own, attributes) = halves(text)?;
        let (old_own, old_attributes) = match old {
            Some(document) => of(document).map(|(own, attributes)| (Some(own), attributes))?,
            None => (None, None),
        };
        let mut planned = Planned::new(key, text, old, home);
        if let Some(attributes_key) = &attributes_key {
            let now = Instant::now();
            if old.is_none() && self.store.stat_since(key, now)?.is_some() {
                return Err(Error::new(Kind::Exists, "the file exists").at(key));
            }
            let known = match old {
                Some(document) => document.attributes.as_ref().and_then(|known| known.stat),
                None => self.store.stat_since(attributes_key, now)?,
            };
            let stored = match (old, known) {
                (Some(_), _) => old_attributes,
                (None, Some(_)) => self.text_at(attributes_key)?,
                (None, None) => None,
            };
            let wanted = attributes.filter(|text| old.is_some() || has_members(text));
            if wanted != stored {
                let condition = match (old, known) {
                    (Some(_), Some(stat)) => Condition::Unchanged(stat.version),
                    (Some(_), None) => Condition::Absent,
                    (None, _) => Condition::Always,
                };
                let step = DocumentStep { key: attributes_key.clone(), old: stored, new: wanted };
                planned.steps.push((step, condition));
            }
            planned.attributes = Some(Attributes { key: attributes_key.clone(), stat: known });
        }
        if old_own.as_ref() != Some(&own) || attributes_key.is_none() {
            let step = DocumentStep { key: key.clone(), old: old_own, new: Some(own) };
            planned.steps.push((step, condition));
        }
        if let Some(other) = other {
            // The document that it replaces goes last.
            let step = DocumentStep { key: other.key.clone(), old: Some(of(other)?.0), new: None };
            planned.steps.push((step, Condition::Always));
        }
        Ok(planned)
    }

    /// Runs a plan and counts its steps.
    pub fn apply(&self, planned: Planned, taken: &StepsDone) -> Result<Document> {
        let Planned { key, text, steps, mut stat, mut attributes, home } = planned;
        // The files of a node are in one directory, also if another program moves it in between.
        let (first, beside) =
            (self.store.in_directory(&home), self.store.in_directory(&key.parent()));
        for (at, (step, condition)) in steps.iter().enumerate() {
            let store = if at == 0 { &first } else { &beside };
            let stored = take_step(store, &step.key, step.new.as_deref(), *condition)?;
            taken.set(taken.get() + 1);
            match &mut attributes {
                Some(attributes) if attributes.key == step.key => attributes.stat = stored,
                _ if step.key == key => stat = stored,
                _ => {}
            }
        }
        let stat = stat.ok_or_else(|| {
            Error::new(
                Kind::Internal,
                "a metadata file was not \
                 stored",
            )
        })?;
        Ok(Document { key, text, stat, attributes, is_whole: true })
    }

    /// Returns the stored text of one key of a document.
    pub fn text_at(&self, key: &Key) -> Result<Option<String>> {
        let value = self.store.get(key, limits::METADATA.get())?;
        Ok(value.map(|value| foreign::text_of(&value.bytes).into_owned()))
    }

    /// Fails if another program changed the document since it was planned.
    pub fn check(&self, planned: &Planned, since: Instant) -> Result<()> {
        for (step, condition) in &planned.steps {
            let now = self.store.stat_since(&step.key, since)?;
            condition.check(now.map(|stat| stat.version)).at(&step.key)?;
        }
        Ok(())
    }

    /// Erases a document, starting with the file that makes the node visible.
    pub fn erase(&self, document: &Document, taken: &StepsDone) -> Result<()> {
        // The directory of the node stays until a program removes it.
        let store = self.store.in_directory(&document.key.parent());
        let write = store.write()?;
        write.erase_values(std::slice::from_ref(&document.key))?;
        taken.set(taken.get() + 1);
        match &document.attributes {
            Some(attributes) => {
                write.erase_values(std::slice::from_ref(&attributes.key))?;
                taken.set(taken.get() + 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the key of the document of a node of `kind`.
    pub fn key_of(&self, path: &NodePath, kind: NodeKind) -> Result<Key> {
        let keys = self.dialect.document_keys(path)?;
        let key = keys.into_iter().find(|(found, _)| found.is_none_or(|found| found == kind));
        key.map(|(_, key)| key).ok_or_else(|| Error::new(Kind::Internal, "a node has no key"))
    }

    /// Returns how much of a change of documents is stored.
    pub fn progress(&self, steps: &[DocumentStep]) -> Result<StoredSteps> {
        let (mut old, mut new) = (0, 0);
        for step in steps {
            let found = self.text_at(&step.key)?;
            if is_same(found.as_deref(), step.new.as_deref()) {
                new += 1;
            } else if is_same(found.as_deref(), step.old.as_deref()) {
                old += 1;
            } else {
                return Ok(StoredSteps::Unknown);
            }
        }
        Ok(match (old, new) {
            (0, _) => StoredSteps::Everything,
            (_, 0) => StoredSteps::Nothing,
            _ => StoredSteps::Part,
        })
    }

    /// Undoes a step, unless another program changed the value, or moved or removed its directory.
    pub fn undo_step(&self, step: &DocumentStep) -> Result<()> {
        let store = self.store.in_directory(&step.key.parent());
        match self.replace(&store, &step.key, step.new.as_deref(), step.old.as_deref()) {
            Err(error) if error.kind() == Kind::Os(libc::ESTALE) => Ok(()),
            undone => undone,
        }
    }

    /// Changes a key from one value to another, unless another program changed it.
    pub fn replace_step(&self, key: &Key, from: Option<&str>, to: Option<&str>) -> Result<()> {
        self.replace(&self.store, key, from, to)
    }

    fn replace(
        &self,
        store: &Store,
        key: &Key,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<()> {
        let stat = self.store.stat(key)?;
        if !is_same(self.text_at(key)?.as_deref(), from) {
            return Ok(());
        }
        let condition = stat.map_or(Condition::Absent, |stat| Condition::Unchanged(stat.version));
        take_step(store, key, to, condition).map(drop)
    }
}

/// Returns the steps that erase a document.
pub(super) fn steps_to_erase(document: &Document) -> Result<Vec<DocumentStep>> {
    let text = String::from_utf8_lossy(&document.text);
    let step =
        |key: &Key, old: String| DocumentStep { key: key.clone(), old: Some(old), new: None };
    let Some(attributes) = &document.attributes else {
        return Ok(vec![step(&document.key, text.into_owned())]);
    };
    let (own, old) = split(&text)?;
    let mut steps = vec![step(&document.key, own)];
    steps.extend(old.map(|old| step(&attributes.key, old)));
    Ok(steps)
}

/// Whether the text is a JSON object with members.
fn has_members(text: &str) -> bool {
    json::parse_object(text.as_bytes()).is_ok_and(|members| !members.is_empty())
}

/// Whether two documents are equal as JSON, or both are absent.
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

/// Whether an error means that another program changed the document, so that it must be read again.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), Kind::Stale | Kind::Exists)
}

/// Returns the error for an edit that lost every race.
pub(super) fn too_many_conflicts(path: &NodePath) -> Error {
    Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep changing the \
         metadata file",
    )
    .at(path)
}

fn take_step(
    store: &Store,
    key: &Key,
    text: Option<&str>,
    condition: Condition,
) -> Result<Option<Stat>> {
    let Some(text) = text else {
        // The directory of the node stays until a program removes it.
        let store = store.in_directory(&key.parent());
        return store.write()?.erase_values(std::slice::from_ref(key)).map(|()| None);
    };
    let pieces = [Bytes::copy_from_slice(&foreign::bytes_of(text)).into()];
    store.write()?.set(key, &pieces, condition).map(Some).at(key)
}
