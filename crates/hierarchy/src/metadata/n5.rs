//! N5: an `attributes.json` in every directory of a node, which also has the user's attributes.
//!
//! ```text
//! {"dimensions": [10, 7], "blockSize": [4, 3], "dataType": "int32", "compression": {"type": "gzip", "level": 5}}
//! ```
//!
//! Dimensions are shown in reverse order, as in zarr-python's `N5Store`: in N5 the first dimension
//! is the fastest, in Zarr the last. The bytes are the same. A block begins with its own header,
//! which the codec `n5_default` handles. The fill value is always zero.
//!
//! <https://github.com/saalfeldlab/n5#file-system-specification>

use serde_json::{Value, json};

use super::codecs::{self, EncodedElements};
use super::conventions;
use super::members::{check_size, chunk_lengths, lengths, required};
use super::model::{ArrayMetadata, Group, KeyEncoding, Lowered, NodeKind, NodeMetadata};
use super::path::NodePath;
use super::types::Endian;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe};

/// The name of the metadata file in every directory of a node.
pub(super) const DOCUMENT: &str = "attributes.json";

/// The members that N5 defines.
pub(super) const MEMBERS: [&str; 6] =
    ["n5", "dimensions", "blockSize", "dataType", "compression", "compressionType"];

/// The newest major version of the format with the default blocks of this reader.
const MAX_MAJOR: u64 = 4;

/// The version of N5 to write at the root.
pub(super) const VERSION: &str = "2.0.0";

/// Lowers a metadata file.
pub(super) fn lower(text: &[u8]) -> Lowered {
    let document = match json::parse_object(text) {
        Ok(document) => document,
        Err(error) => return Lowered { kind: NodeKind::Group, node: Err(error) },
    };
    let is_dataset = document.contains_key("dimensions") && document.contains_key("dataType");
    let kind = if is_dataset { NodeKind::Array } else { NodeKind::Group };
    let node = check_version(&document).and_then(|()| match kind {
        NodeKind::Array => array(&document).map(|array| NodeMetadata::Array(Box::new(array))),
        NodeKind::Group => {
            let attributes = user_attributes(&document);
            Ok(NodeMetadata::Group(Group { attributes, consolidated: false }))
        }
    });
    Lowered { kind, node }
}

fn check_version(document: &Object) -> Result<()> {
    let Some(version) = document.get("n5").and_then(Value::as_str) else { return Ok(()) };
    let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    match major {
        Some(major) if major <= MAX_MAJOR => Ok(()),
        Some(_) | None => Err(Error::unsupported(format!(
            "version {version} of N5 is not known, only those up to {MAX_MAJOR}"
        ))),
    }
}

fn user_attributes(document: &Object) -> Object {
    let mut attributes = document.clone();
    attributes.retain(|name, _| !MEMBERS.contains(&name.as_str()));
    attributes
}

fn array(document: &Object) -> Result<ArrayMetadata> {
    for newer in ["shardSize", "codecs"] {
        if document.contains_key(newer) {
            return Err(Error::unsupported(format!(
                "a dataset of a newer N5, with {newer}, is not supported"
            )));
        }
    }
    if document.get("isLabelMultiset") == Some(&Value::Bool(true)) {
        return Err(Error::unsupported(
            "a dataset of label multisets (isLabelMultiset), whose blocks have any length, is not \
             supported",
        ));
    }
    let dimensions = lengths(required(document, "dimensions")?, "dimensions")?;
    let shape: Vec<u64> = dimensions.iter().rev().copied().collect();
    let block = required(document, "blockSize")?;
    let mut chunk_shape = chunk_lengths(block, &dimensions)?;
    chunk_shape.reverse();
    let dtype = data_type(required(document, "dataType")?)?;
    check_size(&shape, &dtype, "the array")?;
    check_size(&chunk_shape, &dtype, "a chunk")?;
    let rank = shape.len();
    let inner = EncodedElements { rank, dtype: dtype.clone(), endian: Endian::Big };
    let inner = codecs::canonical(compression(document)?.into_iter().collect(), &inner)?;
    let list: Value = inner.iter().map(CodecSpec::to_json).collect();
    let configuration = Object::from_iter([("codecs".to_owned(), list)]);
    let mut attributes = user_attributes(document);
    Ok(ArrayMetadata {
        chunk_shape,
        rectilinear: None,
        // As in zarr-python; no reader uses another value.
        fill: FillValue::parse(&json!(0), &dtype)?,
        key_encoding: KeyEncoding::N5,
        codecs: vec![CodecSpec::new("n5_default", configuration)],
        dimension_names: conventions::take_names(&mut attributes, rank),
        attributes,
        shape,
        dtype,
    })
}

fn data_type(value: &Value) -> Result<DType> {
    let found = value.as_str().and_then(DType::parse);
    match found {
        Some(dtype @ (DType::Int(_) | DType::Uint(_))) => Ok(dtype),
        Some(dtype @ DType::Float(len)) if len > 2 => Ok(dtype),
        Some(_) | None => Err(Error::unsupported(format!(
            "data type {} is not known: blocks of strings and of objects are not supported",
            describe(value)
        ))),
    }
}

/// The shortest block of Java's `LZ4BlockOutputStream`. z5py writes a level in its place, and its
/// chunks have a format of their own.
const MIN_LZ4_BLOCK: u64 = 64;

/// Returns the compressor, with the name and parameters of released v3.
fn compression(document: &Object) -> Result<Option<CodecSpec>> {
    // Before N5 2.0 there is only a name.
    let (kind, parameters) = match document.get("compression") {
        Some(found) => (found.get("type").unwrap_or(found), found.as_object().cloned()),
        None => (document.get("compressionType").unwrap_or(&Value::Null), None),
    };
    let parameters = parameters.unwrap_or_default();
    let level = |default: i64| {
        let number = parameters.get("level").and_then(Value::as_number);
        let level = number.and_then(|number| integer(number.as_str()));
        // Java's default compression.
        json!(level.filter(|level| *level >= 0).unwrap_or(i128::from(default)))
    };
    let codec = |name: &str, configuration: Value| {
        let configuration = configuration.as_object().cloned().unwrap_or_default();
        Ok(Some(CodecSpec::new(name, configuration)))
    };
    match kind.as_str() {
        Some("raw") => Ok(None),
        None if kind.is_null() => Ok(None),
        Some("gzip") if parameters.get("useZlib") == Some(&Value::Bool(true)) => {
            codec("numcodecs.zlib", json!({"level": level(6)}))
        }
        Some("gzip") => codec("gzip", json!({"level": level(6)})),
        Some("zlib") => codec("numcodecs.zlib", json!({"level": level(6)})),
        Some("bzip2") => {
            let size = parameters.get("blockSize").filter(|size| size.as_u64().is_some());
            codec("numcodecs.bz2", json!({"level": size.unwrap_or(&json!(9))}))
        }
        Some("xz" | "lzma") => {
            let preset = parameters.get("preset").filter(|preset| preset.as_u64().is_some());
            codec("numcodecs.lzma", json!({"format": 1, "preset": preset.unwrap_or(&json!(6))}))
        }
        // zarr-python 2 stores a codec of numcodecs that N5 lacks with its own parameters.
        Some("lz4") if parameters.get("id").is_some_and(|id| id == "lz4") => {
            codec("numcodecs.lz4", json!({"acceleration": 1}))
        }
        Some("lz4") => {
            let size = parameters.get("blockSize").filter(|size| size.as_u64().is_some());
            if let Some(len) = size.and_then(Value::as_u64).filter(|len| *len < MIN_LZ4_BLOCK) {
                return Err(Error::unsupported(format!(
                    "compression lz4 with blocks of {len} bytes is not known"
                )));
            }
            codec("lz4_block_stream", json!({"blockSize": size.unwrap_or(&json!(65536))}))
        }
        Some("zstd") => codec("zstd", json!({"level": level(3), "checksum": false})),
        Some("blosc") => {
            let mut configuration = parameters.clone();
            for member in ["type", "nthreads"] {
                configuration.shift_remove(member);
            }
            codec("blosc", Value::Object(configuration))
        }
        _ => Err(Error::unsupported(format!("compression {} is not known", describe(kind)))),
    }
}

/// Returns the metadata file of a group without attributes.
pub(super) fn group_document(path: &NodePath) -> String {
    let document = if path.is_root() { json!({"n5": VERSION}) } else { json!({}) };
    format!("{document:#}\n")
}
