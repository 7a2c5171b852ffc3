//! Documents in the store: read, checked, replaced and erased as one, though a dialect has two files for them.

use bytes::Bytes;

use super::Hierarchy;
use super::node::{Attributes, Document};
use crate::error::{At, Error, Kind, Result};
use crate::metadata::{NodePath, join, json, split};
use crate::store::{Condition, Key, Stat};

/// What a document takes the place of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replaced<'d> {
    /// Nothing: there must be none.
    Absent,
    /// This one, which must be what is stored still.
    Unchanged(&'d Document),
}

impl Hierarchy {
    /// The document at `key`, which is one of those of `path`.
    pub(super) fn get_document(&self, path: &NodePath, key: &Key) -> Result<Option<Document>> {
        let Some(value) = self.store.get(key, json::MAX_DOCUMENT_LEN)? else { return Ok(None) };
        let document =
            Document { key: key.clone(), text: value.bytes, stat: value.stat, attributes: None };
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

    /// Whether a document is what is stored still.
    pub(super) fn is_current(&self, document: &Document) -> Result<bool> {
        let is_same = |key: &Key, known: Option<&Stat>| -> Result<bool> {
            let version = self.store.stat(key)?.map(|stat| stat.version);
            Ok(version == known.map(|stat| stat.version))
        };
        Ok(is_same(&document.key, Some(&document.stat))?
            && match &document.attributes {
                Some(attributes) => is_same(&attributes.key, attributes.stat.as_ref())?,
                None => true,
            })
    }

    /// Stores a document. Of two files those are stored whose text differs, the attributes first: whoever finds the
    /// node finds them.
    pub(super) fn set_document(
        &self,
        path: &NodePath,
        key: &Key,
        text: &str,
        replaced: Replaced<'_>,
    ) -> Result<Document> {
        let write = self.store.write()?;
        let set = |key: &Key, text: &str, condition| {
            let pieces = [Bytes::copy_from_slice(text.as_bytes()).into()];
            write.set(key, &pieces, condition).at(key)
        };
        let old = match replaced {
            Replaced::Unchanged(document) if document.key == *key => Some(document),
            Replaced::Unchanged(_) | Replaced::Absent => None,
        };
        let condition =
            old.map_or(Condition::Absent, |document| Condition::Unchanged(document.stat.version));
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let Some(attributes_key) = self.dialect.attributes_key(path)? else {
            let stat = set(key, text, condition)?;
            let document = Document { key: key.clone(), text: bytes, stat, attributes: None };
            self.erase_replaced(key, replaced)?;
            return Ok(document);
        };
        let (own, attributes) = split(text)?;
        let (old_own, old_attributes) = match old {
            Some(document) => {
                let (own, attributes) = split(&String::from_utf8_lossy(&document.text))?;
                (Some(own), attributes)
            }
            None => (None, None),
        };
        if old.is_none() && self.store.stat(key)?.is_some() {
            return Err(Error::new(Kind::Exists, "the file exists").at(key));
        }
        let old_stat = old.and_then(|document| document.attributes.as_ref()?.stat);
        let stat = match (&attributes, old) {
            (Some(new), Some(_)) if old_attributes.as_ref() == Some(new) => old_stat,
            (Some(new), Some(_)) => {
                let condition =
                    old_stat.map_or(Condition::Absent, |stat| Condition::Unchanged(stat.version));
                Some(set(&attributes_key, new, condition)?)
            }
            (Some(new), None) if has_members(new) => {
                Some(set(&attributes_key, new, Condition::Always)?)
            }
            (_, None) | (None, Some(_)) => {
                write.erase_values(std::slice::from_ref(&attributes_key))?;
                None
            }
        };
        let own_stat = match old {
            Some(document) if old_own.as_ref() == Some(&own) => document.stat,
            _ => set(key, &own, condition)?,
        };
        self.erase_replaced(key, replaced)?;
        let attributes = Some(Attributes { key: attributes_key, stat });
        Ok(Document { key: key.clone(), text: bytes, stat: own_stat, attributes })
    }

    /// Erases the document that the one at `key` has taken the place of, where that had another key.
    fn erase_replaced(&self, key: &Key, replaced: Replaced<'_>) -> Result<()> {
        match replaced {
            Replaced::Unchanged(old) if old.key != *key => {
                self.store.write()?.erase_values(std::slice::from_ref(&old.key))
            }
            Replaced::Unchanged(_) | Replaced::Absent => Ok(()),
        }
    }

    /// Erases a document: first what makes the node visible.
    pub(super) fn erase_document(&self, document: &Document) -> Result<()> {
        let write = self.store.write()?;
        write.erase_values(std::slice::from_ref(&document.key))?;
        match &document.attributes {
            Some(attributes) => write.erase_values(std::slice::from_ref(&attributes.key)),
            None => Ok(()),
        }
    }
}

/// Whether the text of an object has any members.
fn has_members(text: &str) -> bool {
    json::parse_object(text.as_bytes()).is_ok_and(|members| !members.is_empty())
}
