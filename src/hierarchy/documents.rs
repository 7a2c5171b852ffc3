//! Documents in the store: read, checked, replaced and erased as one, though a dialect has two files for them.
//!
//! No other file knows that there may be two. This one asks for both versions and stores the file
//! that differs. It stores the attributes of a new node before its metadata file.

use std::cell::Cell;

use bytes::Bytes;

use super::node::{Attributes, Document};
use crate::error::{At, Error, Kind, Result};
use crate::json;
use crate::metadata::{Dialect, NodeKind, NodePath, join, skim, split};
use crate::store::{Condition, Key, Stat, Store, Version};

/// How often an edit starts again because someone else changed the document meanwhile.
pub(super) const ATTEMPTS: usize = 100;

/// What a document takes the place of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replaced<'d> {
    /// Nothing: there must be none.
    Absent,
    /// This one, which must be what is stored still.
    Unchanged(&'d Document),
}

impl<'d> Replaced<'d> {
    /// This document, or nothing if there is none.
    pub fn of(document: Option<&'d Document>) -> Self {
        document.map_or(Self::Absent, Self::Unchanged)
    }
}

/// What one of the keys of a document has before a change of it, and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) key: Key,
    /// None where there is no value.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
}

/// How many steps of a change have been taken.
pub(super) type Taken = Cell<usize>;

/// What is to be done to store a document.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    key: Key,
    text: Bytes,
    steps: Vec<(Step, Condition)>,
    /// Of the document that is there, where it stays.
    stat: Option<Stat>,
    attributes: Option<Attributes>,
}

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

impl Planned {
    /// The keys that change, in order.
    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.iter().map(|(step, _)| step.clone()).collect()
    }
}

/// The metadata files of a hierarchy, where its dialect puts them in a store.
#[derive(Debug)]
pub(super) struct DocumentStore {
    pub store: Store,
    pub dialect: Dialect,
}

impl DocumentStore {
    /// The document at `key`, which is one of those of `path`.
    pub fn get(&self, path: &NodePath, key: &Key) -> Result<Option<Document>> {
        let Some(found) = skim::get(&self.store, key)? else { return Ok(None) };
        let document = Document {
            key: key.clone(),
            text: found.text.into(),
            stat: found.stat,
            attributes: None,
            is_whole: found.is_whole,
        };
        let Some(attributes) = self.dialect.attributes_key(path)? else {
            return Ok(Some(document));
        };
        let found = self.store.get(&attributes, json::MAX_DOCUMENT_LEN)?;
        let text = found.as_ref().map(|value| String::from_utf8_lossy(&value.bytes));
        let stat = found.as_ref().map(|value| value.stat);
        let own = String::from_utf8_lossy(&document.text);
        // What is wrong with the document itself is found when it is lowered.
        let joined = match json::parse_object(own.as_bytes()) {
            Ok(_) => join(&own, text.as_deref()).at(&attributes)?,
            Err(_) => own.into_owned(),
        };
        let attributes = Attributes { key: attributes, stat };
        Ok(Some(Document { text: joined.into(), attributes: Some(attributes), ..document }))
    }

    /// All of the text of a document; [`Kind::Stale`] where another one is stored by now.
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

    /// Whether a document is what is stored still.
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

    /// Stores a document. Of two files those are stored whose text differs, the attributes first: whoever finds the
    /// node finds them.
    pub fn set(
        &self,
        path: &NodePath,
        key: &Key,
        text: &str,
        replaced: Replaced<'_>,
    ) -> Result<Document> {
        self.apply(self.plan(path, key, text, replaced)?, &Taken::default())
    }

    /// What storing a document takes.
    pub fn plan(
        &self,
        path: &NodePath,
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
        let mut planned = Planned {
            key: key.clone(),
            text: Bytes::copy_from_slice(text.as_bytes()),
            steps: Vec::new(),
            stat: old.map(|document| document.stat),
            attributes: None,
        };
        if let Some(attributes_key) = &attributes_key {
            if old.is_none() && self.store.stat(key)?.is_some() {
                return Err(Error::new(Kind::Exists, "the file exists").at(key));
            }
            let known = match old {
                Some(document) => document.attributes.as_ref().and_then(|known| known.stat),
                None => self.store.stat(attributes_key)?,
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
                let step = Step { key: attributes_key.clone(), old: stored, new: wanted };
                planned.steps.push((step, condition));
            }
            planned.attributes = Some(Attributes { key: attributes_key.clone(), stat: known });
        }
        if old_own.as_ref() != Some(&own) || attributes_key.is_none() {
            let step = Step { key: key.clone(), old: old_own, new: Some(own) };
            planned.steps.push((step, condition));
        }
        if let Some(other) = other {
            // What it had the place of goes last.
            let step = Step { key: other.key.clone(), old: Some(of(other)?.0), new: None };
            planned.steps.push((step, Condition::Always));
        }
        Ok(planned)
    }

    /// Does what was planned, and counts the steps.
    pub fn apply(&self, planned: Planned, taken: &Taken) -> Result<Document> {
        let Planned { key, text, steps, mut stat, mut attributes } = planned;
        for (step, condition) in &steps {
            let stored = self.take_step(&step.key, step.new.as_deref(), *condition)?;
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

    /// Gives one key of a document its text, or erases it.
    pub fn take_step(
        &self,
        key: &Key,
        text: Option<&str>,
        condition: Condition,
    ) -> Result<Option<Stat>> {
        let write = self.store.write()?;
        match text {
            Some(text) => {
                let pieces = [Bytes::copy_from_slice(text.as_bytes()).into()];
                write.set(key, &pieces, condition).map(Some).at(key)
            }
            None => write.erase_values(std::slice::from_ref(key)).map(|()| None),
        }
    }

    /// The text that is stored at the key of a document, or of a part of one.
    pub fn text_at(&self, key: &Key) -> Result<Option<String>> {
        let value = self.store.get(key, json::MAX_DOCUMENT_LEN)?;
        Ok(value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()))
    }

    /// Refuses what was planned where others have changed the document meanwhile.
    pub fn check(&self, planned: &Planned) -> Result<()> {
        for (step, condition) in &planned.steps {
            condition.check(self.store.stat(&step.key)?.map(|stat| stat.version)).at(&step.key)?;
        }
        Ok(())
    }

    /// Erases a document: first what makes the node visible.
    pub fn erase(&self, document: &Document, taken: &Taken) -> Result<()> {
        let write = self.store.write()?;
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

    /// Where the document of a node of `kind` lies.
    pub fn key_of(&self, path: &NodePath, kind: NodeKind) -> Result<Key> {
        let keys = self.dialect.document_keys(path)?;
        let key = keys.into_iter().find(|(found, _)| found.is_none_or(|found| found == kind));
        key.map(|(_, key)| key).ok_or_else(|| Error::new(Kind::Internal, "a node has no key"))
    }

    /// How far a change of documents has come.
    pub fn progress(&self, steps: &[Step]) -> Result<Progress> {
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
    pub fn replace_step(&self, key: &Key, from: Option<&str>, to: Option<&str>) -> Result<()> {
        let stat = self.store.stat(key)?;
        if !is_same(self.text_at(key)?.as_deref(), from) {
            return Ok(());
        }
        let condition = stat.map_or(Condition::Absent, |stat| Condition::Unchanged(stat.version));
        self.take_step(key, to, condition).map(drop)
    }
}

/// What erasing a document takes.
pub(super) fn steps_to_erase(document: &Document) -> Result<Vec<Step>> {
    let text = String::from_utf8_lossy(&document.text);
    let step = |key: &Key, old: String| Step { key: key.clone(), old: Some(old), new: None };
    let Some(attributes) = &document.attributes else {
        return Ok(vec![step(&document.key, text.into_owned())]);
    };
    let (own, old) = split(&text)?;
    let mut steps = vec![step(&document.key, own)];
    steps.extend(old.map(|old| step(&attributes.key, old)));
    Ok(steps)
}

/// Whether the text of an object has any members.
fn has_members(text: &str) -> bool {
    json::parse_object(text.as_bytes()).is_ok_and(|members| !members.is_empty())
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

/// Whether others have changed a document meanwhile, so that it must be read again.
pub(super) fn is_late(error: &Error) -> bool {
    matches!(error.kind(), Kind::Stale | Kind::Exists)
}

/// What becomes of an edit that never comes first.
pub(super) fn overtaken(path: &NodePath) -> Error {
    Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep changing the \
         metadata file",
    )
    .at(path)
}
