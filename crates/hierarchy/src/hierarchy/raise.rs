//! Makes and checks the metadata files of new nodes before anything is stored.

use std::sync::Arc;

use serde_json::Value;

use super::node::{Content, Node};
use super::nodes::Hierarchy;
use super::texts::TextPurpose;
use crate::array::Array;
use crate::metadata::model::KeyEncoding;
use crate::metadata::shown::EncodedChunks;
use crate::metadata::{
    Dialect, NewDocument, NodeKind, NodePath, Policy, join, model, split, wanted,
};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::{foreign, parse_object};
use zarrfs_store::Key;

/// A document for a new node, with the parsed content.
#[derive(Debug)]
pub struct Raised {
    document: NewDocument,
    content: Content,
}

impl Raised {
    /// Returns the key to store it at.
    pub(super) fn key(&self) -> &Key {
        &self.document.key
    }

    /// Whether it is a group that asks for consolidated metadata.
    pub(super) fn is_consolidated(&self) -> bool {
        self.document.consolidated
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.document.text
    }

    /// Returns the chunk files of the array if its maker chose the codecs, so that its chunks
    /// arrive encoded.
    pub fn encoded(&self) -> Option<&EncodedChunks> {
        self.document.encoded.as_ref()
    }

    /// Returns the form of the names under which a program stores the chunks of the array.
    pub fn keys(&self) -> KeyEncoding {
        self.document.keys
    }

    /// Returns the content that it describes.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the array that it describes; `None` for a group.
    pub fn array(&self) -> Option<&Arc<Array>> {
        self.content.array()
    }
}

/// Fails if missing chunks of an array would read as zero instead of the fill value that the
/// program wrote.
fn check_fill(raised: &Raised, written: &[u8]) -> Result<()> {
    let Some(new) = raised.array().map(|array| array.model()) else { return Ok(()) };
    // The dialect reports by itself what it cannot read.
    let Ok(model::NodeMetadata::Array(asked)) = Dialect::V3.lower(None, written).node else {
        return Ok(());
    };
    let is_kept =
        new.fill.is_defined() || new.fill.item(&new.dtype) == asked.fill.item(&asked.dtype);
    if is_kept {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "fill_value {} cannot be expressed in Zarr 2 for an array with named dimensions, where xarray masks the \
         elements that equal it: use fill_value 0, or set the attribute _FillValue to it if they are missing data",
        asked.fill.to_json(&asked.dtype)
    )))
}

impl Hierarchy {
    /// Converts the document that a program wrote for a new node at `path` to the stored dialect.
    pub fn raise(&self, path: &NodePath, written: &[u8]) -> Result<Raised> {
        self.raise_with(path, written, &self.options.policy)
    }

    /// Like [`Hierarchy::raise`], with another policy for storing arrays.
    pub fn raise_with(&self, path: &NodePath, written: &[u8], policy: &Policy) -> Result<Raised> {
        let raised = self.raise_for_all_chunks(path, written, policy)?;
        check_fill(&raised, written)?;
        Ok(raised)
    }

    /// Like [`Hierarchy::raise_with`], for a caller that also stores the chunks that are missing if
    /// the stored array has no fill value, or another one.
    pub fn raise_for_all_chunks(
        &self,
        path: &NodePath,
        written: &[u8],
        policy: &Policy,
    ) -> Result<Raised> {
        let document = self.dialect().new_document(path, written, policy)?;
        let content = self.bind_new(path, document.node.clone())?;
        Ok(Raised { document, content })
    }

    /// Like [`Hierarchy::raise`], for a copy of `source` in this hierarchy, which a program made
    /// from the metadata file that it was shown. The copy gets the stored metadata file of
    /// `source`, with everything that is not shown (codecs, shards, spellings, unknown members). If
    /// programs see attributes in a file of their own, it gets the codecs and shards. `None` if
    /// `source` cannot say how to store the copy.
    pub fn raise_copy(
        &self,
        path: &NodePath,
        written: &[u8],
        source: &Node,
    ) -> Result<Option<Raised>> {
        let Some(document) = source.document() else { return Ok(None) };
        if *self.dialect_of(source.path()) != *self.dialect() {
            return Ok(None);
        }
        let is_exact = |shown: &str| shown.as_bytes() == written;
        let may_equal = match source.content() {
            Content::Array(array) if array.not_understood().is_some() => return Ok(None),
            Content::Array(_) => !source.path().is_root(),
            // A copy of consolidated metadata would be outdated.
            Content::Group(_) => {
                !source.path().is_root() && !self.copies().shows_consolidated(source)?
            }
            Content::NotUnderstood(..) => return Ok(None),
        };
        if may_equal && is_exact(&self.shown().text_of(source, TextPurpose::Text)?) {
            let key = self.documents.key_of(path, source.kind())?;
            let text = String::from_utf8_lossy(&document.text).into_owned();
            let node = self.dialect().check_stored(Some(source.kind()), text.as_bytes())?;
            let content = self.bind_new(path, node.clone())?;
            let keys = KeyEncoding::default();
            let document =
                NewDocument { key, text, node, consolidated: false, encoded: None, keys };
            return Ok(Some(Raised { document, content }));
        }
        let Some(array) = source.array() else { return Ok(None) };
        let shards = array.shards();
        let Some(codecs) = wanted::codecs_like(array.model()).into_iter().next() else {
            return Ok(None);
        };
        self.raise_with(path, written, &Policy { codecs, shards }).map(Some)
    }

    /// Returns `raised`, a copy of the array `source` of the same dialect, with the fill value and
    /// the attributes as `source` stores them. In Zarr 2 they may say what no other dialect can: a
    /// fill value of null, a number as the fill value of strings, which some programs read as its
    /// digits, and a `_FillValue` that xarray does not look at.
    pub fn with_stored_details(
        &self,
        path: &NodePath,
        raised: Raised,
        source: &Node,
    ) -> Result<Raised> {
        let (Some(document), Some(old), Some(new)) =
            (source.document(), source.array(), raised.array())
        else {
            return Ok(raised);
        };
        let stored = std::str::from_utf8(&document.text).map(foreign::shown);
        let Ok(stored) = stored else { return Ok(raised) };
        let is_number_of_strings = old.model().dtype == DType::String
            && parse_object(stored.as_bytes())?.get("fill_value").is_some_and(Value::is_number);
        let says_more = !old.model().fill.is_defined()
            || !new.model().fill.is_defined()
            || is_number_of_strings;
        let fill = says_more.then_some("fill_value");
        let members: Vec<&str> = fill.into_iter().chain(["attributes"]).collect();
        let text = wanted::with_members_of(raised.text(), &stored, &members)?;
        let Ok(node) = self.dialect().check_stored(Some(NodeKind::Array), text.as_bytes()) else {
            return Ok(raised);
        };
        let model::NodeMetadata::Array(kept) = &node else { return Ok(raised) };
        let (old, new) = (old.model(), new.model());
        let means_same = kept.dtype == new.dtype
            && kept.codecs == new.codecs
            && kept.fill == old.fill
            && kept.dimension_names == old.dimension_names
            && kept.attributes == old.attributes;
        if !means_same {
            return Ok(raised);
        }
        let content = self.bind_new(path, node.clone())?;
        Ok(Raised { document: NewDocument { text, node, ..raised.document }, content })
    }

    /// Returns `raised`, a group that a program makes of the directory `path`, with the attributes
    /// that programs gave the directory before. Those that the metadata file sets itself count.
    pub fn with_attributes_of_directory(&self, path: &NodePath, raised: Raised) -> Result<Raised> {
        let model::NodeMetadata::Group(group) = &raised.document.node else { return Ok(raised) };
        let mut edit = self.directories.attributes(path);
        edit.attributes.retain(|(name, _)| !group.attributes.contains_key(name));
        if edit.is_empty() {
            return Ok(raised);
        }
        let text = self.dialect().edit(NodeKind::Group, raised.text(), &edit)?;
        let node = self.dialect().check_stored(Some(NodeKind::Group), text.as_bytes())?;
        let content = self.bind_new(path, node.clone())?;
        Ok(Raised { document: NewDocument { text, node, ..raised.document }, content })
    }

    /// Checks a document in the stored dialect, which a user wrote to `key`.
    pub fn raise_stored(&self, path: &NodePath, key: &Key, text: &[u8]) -> Result<Raised> {
        let keys = self.dialect().document_keys(path)?;
        let own = String::from_utf8_lossy(text).into_owned();
        let stored = self.existing(path)?.stored().cloned();
        // Some dialects split one document into two files.
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
            matches!(&node, model::NodeMetadata::Group(model::Group { consolidated: true, .. }));
        let document = NewDocument {
            key,
            text,
            node,
            consolidated,
            encoded: None,
            keys: KeyEncoding::default(),
        };
        Ok(Raised { document, content })
    }

    /// Binds a new node, and refuses one that could not be read back.
    fn bind_new(&self, path: &NodePath, node: model::NodeMetadata) -> Result<Content> {
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

    /// Returns the text of a new document, including consolidated metadata if it asks for them.
    pub(super) fn text_to_store(&self, path: &NodePath, raised: &Raised) -> Result<String> {
        let NewDocument { text, consolidated, .. } = &raised.document;
        if *consolidated {
            return self.dialect().consolidate(text, &self.copies().documents_below(path)?);
        }
        Ok(text.clone())
    }
}
