//! New nodes: translates the metadata file that a program wrote for decoded chunk files to the
//! stored one.
//!
//! A program writes released v3, which describes decoded chunk files. This module checks it,
//! derives the model to store from it and from the [`Policy`], and edits the program's own string
//! into a metadata file of that model; anything that need not change keeps its spelling. Finally it
//! parses the result, which must give that model.

mod draft;
mod n5;
mod splice;
mod v2;
mod v3;

use serde_json::Value;

use super::codecs::{self, EncodedElements};
use super::dialect::Dialect;
use super::era::Draft;
use super::members::{check_size, named};
use super::model::{ArrayMetadata, Group, KeyEncoding, Levels, NodeKind, NodeMetadata};
use super::path::NodePath;
use super::policy::{self, Policy};
use super::rectilinear;
use super::shown::{EncodedChunks, ShownChunks};
use super::types::{Endian, data_type};
use splice::New;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, Text, describe};
use zarrfs_store::Key;

/// The stored form of a new node.
#[derive(Debug, Clone)]
pub struct NewDocument {
    /// The key of the metadata file.
    pub key: Key,
    /// The stored metadata file.
    pub text: String,
    /// The node that it describes.
    pub node: NodeMetadata,
    /// Whether the program's metadata file of a group has inline consolidated metadata. This only
    /// requests that zarrfs generates them; their contents are never copied.
    pub consolidated: bool,
    /// For an array whose maker chose the codecs: its chunk files, which arrive encoded.
    pub encoded: Option<EncodedChunks>,
    /// For an array: the form of the names under which its maker stores chunks.
    pub keys: KeyEncoding,
}

impl Dialect {
    /// Returns the stored metadata file for a new node at `path`. `written` is released v3, as a
    /// program wrote it for decoded chunk files.
    pub fn new_document(
        &self,
        path: &NodePath,
        written: &[u8],
        policy: &Policy,
    ) -> Result<NewDocument> {
        self.check_makes_nodes()?;
        let written = written.strip_prefix(b"\xef\xbb\xbf").unwrap_or(written);
        let document = json::parse_object(written).map_err(invalid)?;
        let kind = check_head(&document)?;
        let is_for = |found: Option<NodeKind>| found.is_none_or(|found| found == kind);
        let keys = self.document_keys(path)?;
        let key = keys.into_iter().find_map(|(found, key)| is_for(found).then_some(key));
        let key = key.ok_or_else(|| Error::new(Kind::Internal, "a node has no key"))?;
        if kind == NodeKind::Array {
            check_array(&document)?;
        }
        let mut text = Text::parse(written).map_err(invalid)?;
        let lowered = super::v3::lower(written).node.map_err(invalid)?;
        let (mut consolidated, mut encoded, mut keys) = (false, None, KeyEncoding::default());
        let expected = match lowered {
            NodeMetadata::Group(group) => {
                consolidated = group.consolidated;
                NodeMetadata::Group(self.new_group_text(&mut text, &document, group)?)
            }
            NodeMetadata::Array(shown) => {
                keys = shown.key_encoding;
                let new = self.new_array(&document, &shown, policy)?;
                encoded = match new.encoded {
                    Some(levels) => {
                        let list = codecs::list(document.get("codecs")).map_err(invalid)?;
                        let chunk_shape = shown.chunk_shape.clone();
                        let shown = ShownChunks { chunk_shape, codecs: list, keys };
                        Some((levels, shown))
                    }
                    None => None,
                };
                NodeMetadata::Array(Box::new(
                    self.new_array_text(&mut text, &document, *shown, new)?,
                ))
            }
        };
        if *self == Self::N5 && path.is_root() {
            // This member marks the root of a hierarchy.
            text.set(&["n5"], &Value::from(super::n5::VERSION))?;
        }
        let text = text.into_string();
        let node = self.lower(Some(kind), text.as_bytes()).node;
        let node = node.map_err(|error| error.of_kind(Kind::Internal))?;
        if node != expected {
            log::debug!("expected {expected:?}, but {text} describes {node:?}");
            let detail = format!(
                "the metadata generated for /{} do not describe the requested node",
                path.as_str()
            );
            return Err(Error::new(Kind::Internal, detail));
        }
        let encoded = match (&node, encoded) {
            (NodeMetadata::Array(array), Some((levels, shown))) => {
                Some(EncodedChunks::of(array, levels, shown))
            }
            _ => None,
        };
        Ok(NewDocument { key, text, node, consolidated, encoded, keys })
    }

    /// Checks a *stored* metadata file that a user wrote in this dialect's own form, with any
    /// codecs. `kind` comes from [`Dialect::document_keys`].
    pub fn check_stored(&self, kind: Option<NodeKind>, text: &[u8]) -> Result<NodeMetadata> {
        self.lower(kind, text).node.map_err(invalid)
    }

    fn new_group_text(&self, text: &mut Text, document: &Object, group: Group) -> Result<Group> {
        let group = Group { consolidated: false, ..group };
        match self {
            Self::V3 => v3::group(text, document)?,
            Self::Draft(Draft { era, .. }) => draft::group(*era, text, document)?,
            Self::V2 => return v2::group(text, document),
            Self::N5 => n5::group(text)?,
            Self::D2023_02 => {}
        }
        Ok(group)
    }

    /// Returns how to store the chunks of an array that a program described as `shown`.
    fn new_array(&self, document: &Object, shown: &ArrayMetadata, policy: &Policy) -> Result<New> {
        let (rank, dtype) = (shown.shape.len(), &shown.dtype);
        let elements = EncodedElements { rank, dtype: dtype.clone(), endian: Endian::Little };
        let is_plain = codecs::is_plain(&shown.codecs, dtype);
        let listed = codecs::list(document.get("codecs")).map_err(invalid)?;
        let has_released_names = codecs::named(listed.clone()) == listed;
        let has_shards = shown.codecs.iter().any(|codec| codec.name == "sharding_indexed");
        let shards = match &shown.rectilinear {
            None if !has_shards => policy.shard_grid(&shown.shape, &shown.chunk_shape, dtype)?,
            _ => None,
        };
        if let Some(shards) = &shards {
            check_size(&shards.shape, dtype, "a shard").map_err(invalid)?;
        }
        let levels = if shards.is_some() { Levels::Mount } else { Levels::Maker };
        let is_as_written =
            *self == Self::V3 && !is_plain && shards.is_none() && has_released_names;
        let chain = match (is_plain, is_as_written) {
            (true, _) => released(policy.chain(&elements)?, dtype),
            (false, true) => shown.codecs.clone(),
            (false, false) => {
                released(shown.codecs.iter().cloned().map(policy::completed).collect(), dtype)
            }
        };
        Ok(New {
            chain,
            is_as_written,
            chunk_shape: shown.chunk_shape.clone(),
            shards,
            encoded: (!is_plain).then_some(levels),
        })
    }

    /// Changes `text` to the stored metadata file of an array, and returns the array that it must
    /// describe.
    fn new_array_text(
        &self,
        text: &mut Text,
        document: &Object,
        shown: ArrayMetadata,
        new: New,
    ) -> Result<ArrayMetadata> {
        // Released v3 does not allow null.
        let fill = match self {
            Self::V2 if !shown.fill.is_defined() => FillValue::UNDEFINED,
            _ => FillValue::parse(&shown.fill.to_json(&shown.dtype), &shown.dtype)?,
        };
        let array = ArrayMetadata { fill, ..shown };
        let shards = new.shards.as_ref().and_then(|shards| shards.rectilinear.as_ref());
        if array.rectilinear.as_ref().or(shards).is_some() && *self != Self::V3 {
            let detail = format!("a rectilinear chunk grid cannot be expressed in {}", self.name());
            return Err(Error::invalid(detail));
        }
        match self {
            Self::V3 => v3::array(text, document, array, new),
            Self::Draft(Draft { era, .. }) => draft::array(*era, text, document, array, new),
            Self::V2 => v2::array(text, document, array, new),
            Self::N5 => n5::array(text, array, new),
            Self::D2023_02 => self.check_makes_nodes().map(|()| array),
        }
    }
}

/// Returns canonical codecs in the form of Zarr 2, which lacks some.
pub(super) fn v2_chain(codecs: Vec<CodecSpec>, rank: usize) -> Result<v2::V2Codecs> {
    v2::V2Codecs::new(codecs, rank)
}

fn invalid(error: Error) -> Error {
    error.of_kind(Kind::Invalid)
}

/// Returns the kind of node that the metadata file describes.
fn check_head(document: &Object) -> Result<NodeKind> {
    let format = document.get("zarr_format").unwrap_or(&Value::Null);
    if format.as_number().and_then(|number| integer(number.as_str())) != Some(3) {
        let found = if format.is_null() { "missing".to_owned() } else { describe(format) };
        return Err(Error::invalid(format!(
            "zarr_format is {found}: this mount accepts only Zarr 3 metadata"
        )));
    }
    match document.get("node_type").map(|found| (found, found.as_str())) {
        Some((_, Some("array"))) => Ok(NodeKind::Array),
        None if document.contains_key("shape") => Ok(NodeKind::Array),
        Some((_, Some("group"))) | None => Ok(NodeKind::Group),
        Some((other, _)) => Err(Error::invalid(format!(
            "node_type is {}: it must be \"array\" or \"group\"",
            describe(other)
        ))),
    }
}

/// Fails for an array that the mount cannot store.
fn check_array(document: &Object) -> Result<()> {
    if let Some(value) = document.get("data_type") {
        check_type(value)?;
    }
    if let Some((name, _)) = document.get("chunk_grid").and_then(named)
        && name != "regular"
        && name != rectilinear::NAME
    {
        return Err(Error::invalid(format!(
            "chunk_grid {name:?} is not known: use a regular grid"
        )));
    }
    for member in ["storage_transformers", "extensions"] {
        let value = document.get(member).unwrap_or(&Value::Null);
        if !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) {
            return Err(Error::invalid(format!(
                "{member} are {}: Zarr 3 defines none, so leave them out",
                describe(value)
            )));
        }
    }
    codecs::list(document.get("codecs")).map(drop).map_err(invalid)
}

/// Fails for a type that only its fallback makes known, because the array would get another type.
pub(super) fn check_type(value: &Value) -> Result<()> {
    let mut alone = value.clone();
    if let Value::Object(members) = &mut alone {
        members.shift_remove("fallback");
    }
    data_type(&alone).map(|_| ()).map_err(|error| {
        Error::invalid(format!(
            "{}: use bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, complex128, \
             string, bytes, or raw bits like r16",
            error.detail()
        ))
    })
}

/// Returns the chain in the form of released v3: elements of one byte have no byte order.
fn released(mut chain: Vec<CodecSpec>, dtype: &DType) -> Vec<CodecSpec> {
    for codec in &mut chain {
        if codec.name == "bytes" && dtype.component_len() == 1 {
            codec.configuration.shift_remove("endian");
        }
    }
    chain
}

#[cfg(test)]
mod tests;
