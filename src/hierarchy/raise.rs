//! The metadata files of new nodes: made and checked before anything is stored.

use std::sync::Arc;

use super::node::Content;
use super::nodes::Hierarchy;
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::metadata::{NewDocument, NodePath, Policy, join, model, split};
use crate::store::Key;

/// A document for a new node, and what it describes.
#[derive(Debug)]
pub struct Raised {
    document: NewDocument,
    content: Content,
}

impl Raised {
    /// Where it is to be stored.
    pub(super) fn key(&self) -> &Key {
        &self.document.key
    }

    /// Whether it is a group that is to have consolidated metadata.
    pub(super) fn is_consolidated(&self) -> bool {
        self.document.consolidated
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.document.text
    }

    /// What it describes.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The array, if it is one.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match &self.content {
            Content::Array(array) => Some(array),
            Content::Group(_) | Content::NotUnderstood(..) => None,
        }
    }
}

impl Hierarchy {
    /// What is to be stored for the document that a program wrote for a new node at `path`.
    pub fn raise(&self, path: &NodePath, written: &[u8]) -> Result<Raised> {
        self.raise_with(path, written, &self.options.policy)
    }

    /// The same, stored as `policy` says.
    pub fn raise_with(&self, path: &NodePath, written: &[u8], policy: &Policy) -> Result<Raised> {
        let document = self.dialect().new_document(path, written, policy)?;
        let content = self.bind_new(path, document.node.clone())?;
        Ok(Raised { document, content })
    }

    /// The same of a document as the dialect has it, which a person wrote to be stored at `key`.
    pub fn raise_stored(&self, path: &NodePath, key: &Key, text: &[u8]) -> Result<Raised> {
        let keys = self.dialect().document_keys(path)?;
        let own = String::from_utf8_lossy(text).into_owned();
        let stored = self.existing(path)?.stored().cloned();
        // What the dialect has in two files is one document.
        let (key, text) = match self.dialect().attributes_key(path)? {
            Some(attributes) if attributes == *key => {
                let stored = stored.ok_or_else(|| {
                    Error::invalid("attributes without a node: write its other metadata file first")
                })?;
                let (document, _) = split(&String::from_utf8_lossy(&stored.text))?;
                (
                    stored.key,
                    join(&document, Some(&own)).map_err(|error| error.of_kind(Kind::Invalid))?,
                )
            }
            Some(_) => {
                let stored = stored.map(|stored| split(&String::from_utf8_lossy(&stored.text)));
                let attributes = stored.transpose()?.and_then(|(_, attributes)| attributes);
                let joined = join(&own, attributes.as_deref());
                (key.clone(), joined.map_err(|error| error.of_kind(Kind::Invalid))?)
            }
            None => (key.clone(), own),
        };
        let (kind, _) = keys
            .into_iter()
            .find(|(_, known)| *known == key)
            .ok_or_else(|| Error::new(Kind::NotPermitted, "not a metadata file of this dialect"))?;
        let node = self.dialect().check_stored(kind, text.as_bytes())?;
        let content = self.bind_new(path, node.clone())?;
        let consolidated =
            matches!(&node, model::Node::Group(model::Group { consolidated: true, .. }));
        let document = NewDocument { key, text, node, consolidated };
        Ok(Raised { document, content })
    }

    /// Nothing is stored that could not be read again.
    fn bind_new(&self, path: &NodePath, node: model::Node) -> Result<Content> {
        let as_invalid = |error: &Error| Error::invalid(error.detail().to_owned());
        let content = self.bind(path, node).map_err(|error| as_invalid(&error))?;
        match &content {
            Content::Array(array) => match array.not_understood() {
                Some(error) => Err(as_invalid(error)),
                None => Ok(content),
            },
            Content::Group(_) | Content::NotUnderstood(..) => Ok(content),
        }
    }

    /// The text of a new document, with the copies in it that are wished.
    pub(super) fn text_to_store(&self, path: &NodePath, raised: &Raised) -> Result<String> {
        let NewDocument { text, consolidated, .. } = &raised.document;
        if *consolidated {
            return self.dialect().consolidate(text, &self.documents_below(path)?);
        }
        Ok(text.clone())
    }
}
