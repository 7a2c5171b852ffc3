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

use super::codecs::{self, Elements};
use super::dialect::Dialect;
use super::era::Draft;
use super::members::{check_size, named};
use super::model::{Array, Group, KeyEncoding, Node, NodeKind, Separator};
use super::path::NodePath;
use super::policy::{self, Policy};
use super::rectilinear;
use super::types::{Endian, data_type};
use crate::codec::CodecSpec;
use crate::codec::table::{self, CodecKind};
use crate::dtype::{DType, FillValue, integer};
use crate::error::{Error, Kind, Result};
use crate::json::Object;
use crate::json::{self, Text, describe};
use crate::store::Key;
use splice::New;

/// The stored form of a new node.
#[derive(Debug, Clone)]
pub struct NewDocument {
    /// The key of the metadata file.
    pub key: Key,
    /// The stored metadata file.
    pub text: String,
    /// The node that it describes.
    pub node: Node,
    /// Whether the program's metadata file of a group has inline consolidated metadata. This only
    /// requests that zarrfs generates them; their contents are never copied.
    pub consolidated: bool,
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
            check_array(&document, &stored_name(path, &key))?;
        }
        let mut text = Text::parse(written).map_err(invalid)?;
        let lowered = super::v3::lower(written).node.map_err(invalid)?;
        let (expected, consolidated) = match lowered {
            Node::Group(group) => {
                let consolidated = group.consolidated;
                (Node::Group(self.new_group_text(&mut text, &document, group)?), consolidated)
            }
            Node::Array(array) => {
                let array = self.new_array_text(&mut text, &document, &array, policy)?;
                (Node::Array(Box::new(array)), false)
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
        Ok(NewDocument { key, text, node, consolidated })
    }

    /// Checks a *stored* metadata file that a user wrote in this dialect's own form, with any
    /// codecs. `kind` comes from [`Dialect::document_keys`].
    pub fn check_stored(&self, kind: Option<NodeKind>, text: &[u8]) -> Result<Node> {
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

    /// Changes `text` to the stored metadata file of an array, and returns the array that it must
    /// describe.
    fn new_array_text(
        &self,
        text: &mut Text,
        document: &Object,
        shown: &Array,
        policy: &Policy,
    ) -> Result<Array> {
        if shown.key_encoding != KeyEncoding::Default(Separator::Slash) {
            return Err(wrong_encoding());
        }
        let (rank, dtype) = (shown.shape.len(), &shown.dtype);
        let elements = Elements { rank, dtype: dtype.clone(), endian: Endian::Little };
        let pipeline = pipeline(document, dtype)?;
        let (chain, shards) = if pipeline.is_empty() {
            let shards = match &shown.rectilinear {
                Some(_) => None,
                None => policy.shard_shape(&shown.shape, &shown.chunk_shape, dtype)?,
            };
            (policy.chain(&elements)?, shards)
        } else {
            (codecs::canonical(pipeline, &elements).map_err(invalid)?, None)
        };
        if let Some(shards) = &shards {
            check_size(shards, dtype, "a shard").map_err(invalid)?;
        }
        let new =
            New { chain: released(chain, dtype), chunk_shape: shown.chunk_shape.clone(), shards };
        // Released v3 does not allow null.
        let fill = match self {
            Self::V2 if !shown.fill.is_defined() => FillValue::UNDEFINED,
            _ => FillValue::parse(&shown.fill.to_json(dtype), dtype)?,
        };
        let array = Array { fill, ..shown.clone() };
        if array.rectilinear.is_some() && *self != Self::V3 {
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

fn invalid(error: Error) -> Error {
    error.of_kind(Kind::Invalid)
}

/// Returns the name of the stored metadata file in a mount.
fn stored_name(path: &NodePath, key: &Key) -> String {
    let slash = if path.is_root() { "" } else { "/" };
    format!(".zarrfs/stored/{}{slash}{}", path.as_str(), key.name())
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

/// Fails for an array that the mount cannot store; `stored` is the name of its stored metadata
/// file.
fn check_array(document: &Object, stored: &str) -> Result<()> {
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
    let encoding = document.get("chunk_key_encoding").filter(|encoding| !encoding.is_null());
    if encoding.is_some_and(|encoding| named(encoding).is_none_or(|(name, _)| name != "default")) {
        return Err(wrong_encoding());
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
    check_codecs(document, stored)
}

fn wrong_encoding() -> Error {
    Error::invalid(
        "chunk_key_encoding must be `default` with separator `/`: the mount shows chunks as c/0/0, \
         whatever their keys in the store",
    )
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

/// Fails for codecs that would not leave little-endian elements in C order in a chunk file, or that
/// could be confused with the codec of a chunk file.
fn check_codecs(document: &Object, stored: &str) -> Result<()> {
    let refused = |what: &str, option: &str| {
        Err(Error::invalid(format!(
            "{what} is not allowed here, because chunk files are decoded: remove it and mount \
             with {option}, or write the stored metadata file, {stored}"
        )))
    };
    let (dtype, in_type) = data_type(document.get("data_type").unwrap_or(&Value::Null))
        .map_err(|_| Error::invalid("data_type is missing"))?;
    let mut endian = in_type.as_ref().map(Endian::to_json);
    let mut first: Option<String> = None;
    let plain = codecs::plain(&dtype);
    let listed = listed(document)?;
    for codec in &listed {
        let name = codec.name.as_str();
        match (table::kind(name), &first) {
            (CodecKind::ArrayToBytes, Some(first)) if name == plain.name => {
                return Err(Error::invalid(format!(
                    "codec {name:?} follows {first:?}: it must be the first, and the only one of its name"
                )));
            }
            (CodecKind::ArrayToBytes, _) if name == "sharding_indexed" => {
                return refused("codec \"sharding_indexed\"", "--shards");
            }
            (CodecKind::ArrayToBytes, None) if name == plain.name => {
                endian = codec.configuration.get("endian").cloned().or(endian);
            }
            (CodecKind::ArrayToArray | CodecKind::ArrayToBytes, _) => {
                return refused(&format!("codec {name:?}"), "--codecs");
            }
            (CodecKind::BytesToBytes, _) => {}
        }
        first.get_or_insert_with(|| name.to_owned());
    }
    if endian.is_some_and(|endian| endian != "little") && dtype.component_len() > 1 {
        return refused("codec \"bytes\" with big endian", "--codecs");
    }
    Ok(())
}

/// Returns the codecs of the metadata file under their canonical names.
fn listed(document: &Object) -> Result<Vec<CodecSpec>> {
    codecs::list(document.get("codecs")).map(codecs::named).map_err(invalid)
}

/// Returns the codecs that the program requests after the plain one.
fn pipeline(document: &Object, dtype: &DType) -> Result<Vec<CodecSpec>> {
    let plain = codecs::plain(dtype);
    let listed = listed(document)?.into_iter();
    Ok(listed.filter(|codec| codec.name != plain.name).map(policy::completed).collect())
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
mod random;
#[cfg(test)]
mod tests;
