//! Nodes that a user describes by options (`zarrfs create`, `zarrfs convert`). This module makes
//! the metadata file that a program would write for them, from which every dialect makes its own.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::codecs::list;
use super::conventions::{FILL, coded_fill};
use super::create::check_type;
use super::model::{ArrayMetadata, Group};
use super::policy::{Policy, Shards};
use super::shown;
use super::types::data_type;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_codec::json::{NewValue, Object, Text, foreign, parse, parse_object};
use zarrfs_codec::table::{self, CodecKind};

/// The most bytes of a decoded chunk by default.
const CHUNK_LEN: u64 = 1 << 20;

/// The assumed length in bytes of an element of variable length.
const TYPICAL_LEN: usize = 16;

/// An array that a user described.
#[derive(Debug, Clone, Default)]
pub struct NewArray {
    /// The number of elements along each dimension.
    pub shape: Vec<u64>,
    /// The name of the type, or its JSON.
    pub data_type: String,
    /// The chunk shape in elements; by default chunks have about 1 MiB.
    pub chunk_shape: Option<Vec<u64>>,
    /// The fill value, as JSON or a plain word such as NaN; by default that of the type.
    pub fill: Option<String>,
    /// User attributes.
    pub attributes: Object,
    /// The names of dimensions, if not empty.
    pub dimension_names: Vec<String>,
    /// Whether xarray masks the fill value if dimensions have names, as always in Zarr 2.
    pub masks_fill: bool,
}

impl NewArray {
    /// Returns the released v3 metadata file of the array with decoded chunk files.
    pub fn document(&self) -> Result<String> {
        let rank = self.shape.len();
        let dtype = self.dtype()?;
        let default = || chunk_shape(&self.shape, &dtype);
        let chunk_shape = self.chunk_shape.clone().unwrap_or_else(default);
        if chunk_shape.len() != rank || chunk_shape.contains(&0) {
            return Err(Error::invalid(format!(
                "chunks of shape {chunk_shape:?} do not fit an array of shape {:?}: each \
                 dimension needs an integer of at least 1",
                self.shape
            )));
        }
        let fill = match &self.fill {
            Some(text) => fill_of(&worded(text), &dtype)
                .map_err(|error| Error::invalid(error.detail().to_owned()))?,
            None => FillValue::UNDEFINED,
        };
        let mut document = Object::new();
        let mut member = |name: &str, value: Value| drop(document.insert(name.to_owned(), value));
        member("zarr_format", json!(3));
        member("node_type", json!("array"));
        member("shape", json!(self.shape));
        member("data_type", dtype.to_json());
        member("chunk_grid", grid(&chunk_shape));
        let encoding = json!({"name": "default", "configuration": {"separator": "/"}});
        member("chunk_key_encoding", encoding);
        member("fill_value", fill.to_json(&dtype));
        member("codecs", json!([super::codecs::plain(&dtype).to_json()]));
        let mut attributes = self.attributes.clone();
        let is_zero = fill.item(&dtype).iter().all(|byte| *byte == 0);
        // A scalar of Zarr 2 is stored with an empty list of names.
        let is_named = !self.dimension_names.is_empty() || self.shape.is_empty();
        if self.masks_fill
            && is_named
            && !is_zero
            && !attributes.contains_key(FILL)
            && let Some(coded) = coded_fill(&fill, &dtype)
        {
            attributes.insert(FILL.to_owned(), coded);
        }
        member("attributes", Value::Object(attributes));
        if !self.dimension_names.is_empty() {
            member("dimension_names", json!(self.dimension_names));
        }
        Ok(shown::print(&Value::Object(document)))
    }

    /// Returns the data type. NumPy's names may omit the byte order (`f4` means `<f4`), which the
    /// store decides anyway.
    fn dtype(&self) -> Result<DType> {
        let written = worded(&self.data_type);
        let Err(error) = check_type(&written) else { return Ok(data_type(&written)?.0) };
        let numpy = written.as_str().map(|name| json!(format!("<{name}")));
        match numpy.filter(|numpy| check_type(numpy).is_ok()) {
            Some(numpy) => Ok(data_type(&numpy)?.0),
            None => Err(error),
        }
    }

    /// Fails if an array of several chunks would have no shards, because the requested size holds
    /// fewer than two chunks.
    pub fn check_shards(&self, shards: &Shards) -> Result<()> {
        let Shards::Target(target) = shards else { return Ok(()) };
        let dtype = self.dtype()?;
        let default = || chunk_shape(&self.shape, &dtype);
        let chunk_shape = self.chunk_shape.clone().unwrap_or_else(default);
        let chunk_len = chunk_len(&chunk_shape, &dtype);
        let has_several = self.shape.iter().zip(&chunk_shape).any(|(len, chunk)| len > chunk);
        if !has_several || *target >= chunk_len.saturating_mul(2) {
            return Ok(());
        }
        let doubled: Vec<u64> = chunk_shape.iter().map(|len| len.saturating_mul(2)).collect();
        Err(Error::invalid(format!(
            "--shards {target}: shards of {target} bytes do not hold two chunks of shape {chunk_shape:?}, which have \
             {chunk_len} bytes each: give a larger size, or the shape of a shard in brackets, like {doubled:?}"
        )))
    }
}

/// Returns the bytes of a decoded chunk, estimated for elements of variable length.
fn chunk_len(chunk_shape: &[u64], dtype: &DType) -> u64 {
    let item_len = if dtype.is_variable() { TYPICAL_LEN } else { dtype.item_len().max(1) };
    let item_len = item_len.to_u64();
    chunk_shape.iter().fold(item_len, |product, len| product.saturating_mul(*len))
}

/// Returns the released v3 metadata file of a group.
pub fn group(attributes: Object) -> String {
    shown::group(&Group { attributes, consolidated: false }, None)
}

/// Returns the shown metadata file of an array, with another chunk shape.
pub fn with_chunks(shown: &str, chunk_shape: &[u64]) -> Result<String> {
    let mut document = parse_object(shown.as_bytes())?;
    if document.get("shape").and_then(Value::as_array).map(Vec::len) != Some(chunk_shape.len()) {
        return Err(Error::new(
            Kind::Internal,
            "the chunk shape has a different number of dimensions \
             than the array",
        ));
    }
    document.insert("chunk_grid".to_owned(), grid(chunk_shape));
    Ok(shown::print(&Value::Object(document)))
}

/// Returns the released v3 metadata file `shown` with the registered name of structures, because no
/// new array may have the old one.
pub fn with_registered_name(shown: &str) -> Result<String> {
    let document = parse_object(shown.as_bytes())?;
    if !shown::has_old_name(&document) {
        return Ok(shown.to_owned());
    }
    let member = |name: &str| document.get(name).unwrap_or(&Value::Null);
    let (dtype, _) = data_type(member("data_type"))?;
    let fill = FillValue::parse(member("fill_value"), &dtype)?;
    let mut text = Text::parse(shown.as_bytes())?;
    text.set(&["data_type"], &dtype.to_json())?;
    text.set(&["fill_value"], &fill.to_json(&dtype))?;
    Ok(text.into_string())
}

/// Returns the shown metadata file of an array, without names of its dimensions.
pub fn without_names(shown: &str) -> Result<String> {
    let mut text = Text::parse(shown.as_bytes())?;
    text.remove(&["dimension_names"])?;
    Ok(text.into_string())
}

/// Whether both arrays, of the same shape and type, have the same encoded chunks.
pub fn same_encoding(one: &ArrayMetadata, other: &ArrayMetadata) -> bool {
    let (one, other) = (chunk_codecs(one), chunk_codecs(other));
    one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| is_same(one, other))
}

/// Whether two codecs encode a chunk identically. Zarr 2 omits some members that v3 has.
fn is_same(one: &CodecSpec, other: &CodecSpec) -> bool {
    let without_implied = |codec: &CodecSpec, against: &CodecSpec| {
        let mut codec = codec.clone();
        match codec.name.as_str() {
            "zstd" if codec.configuration.get("checksum") == Some(&json!(false)) => {
                codec.configuration.shift_remove("checksum");
            }
            // The decoder reads it from the chunk.
            "blosc" if !against.configuration.contains_key("typesize") => {
                codec.configuration.shift_remove("typesize");
            }
            _ => {}
        }
        codec
    };
    let (one, other) = (without_implied(one, other), without_implied(other, one));
    one.name == other.name
        && one.configuration == other.configuration
        && one.optional == other.optional
}

/// Returns the codecs of a chunk, for a sharded array of the innermost chunk, without a byte order
/// for single bytes.
fn chunk_codecs(array: &ArrayMetadata) -> Vec<CodecSpec> {
    let mut codecs = innermost(&array.codecs);
    for codec in codecs.iter_mut().filter(|codec| codec.name == "bytes") {
        if array.dtype.component_len() == 1 {
            codec.configuration.shift_remove("endian");
        }
    }
    codecs
}

/// Returns lists of codecs for a copy of an array, the most similar first: its own, only its
/// compressors, the default ones. Only the default ones if its own cannot be encoded.
pub fn codecs_like(array: &ArrayMetadata) -> Vec<Vec<CodecSpec>> {
    let own = match chunk_codecs(array).as_slice() {
        [n5] if n5.name == "n5_default" => nested(n5),
        own => own.to_vec(),
    };
    // Other programs do not expect such a codec outside of references, or in Zarr 3.
    let is_rare = |codec: &CodecSpec| {
        table::find(&codec.name).is_some_and(|row| row.is_read_only || row.is_zarr2_only)
    };
    if own.iter().any(is_rare) {
        return Policy::usual_codecs();
    }
    let compresses = |codec: &&CodecSpec| table::kind(&codec.name) == CodecKind::BytesToBytes;
    let compressors: Vec<CodecSpec> = own.iter().filter(compresses).cloned().collect();
    let last = compressors.last().cloned().into_iter().collect();
    let mut all = vec![own, compressors, last];
    all.dedup();
    all.extend(Policy::usual_codecs());
    all
}

/// Returns the metadata file `shown` with the attributes as `stored` spells them: a shown metadata
/// file has strings in place of the bare NaN that Python writes.
pub fn with_stored_attributes(shown: &str, stored: &[u8]) -> Result<String> {
    let mut text = Text::parse(shown.as_bytes())?;
    // JSON is UTF-8, and bytes that are not have the meaning that readers gave them.
    let Ok(stored) = std::str::from_utf8(stored) else { return Ok(text.into_string()) };
    let Ok(stored) = Text::parse(foreign::shown(stored).as_bytes()) else {
        return Ok(text.into_string());
    };
    let document = parse_object(shown.as_bytes())?;
    // The last of several members with the same name counts.
    let texts = |path: &[&str]| Ok::<_, Error>(HashMap::<_, _>::from_iter(stored.texts(path)?));
    // N5 has attributes beside the members that it defines.
    let (attributes, members) = (texts(&["attributes"])?, texts(&[])?);
    let mut spelled = Vec::new();
    for (name, value) in document.get("attributes").and_then(Value::as_object).into_iter().flatten()
    {
        let raw = attributes.get(name).or_else(|| members.get(name));
        if let Some(raw) = raw.filter(|raw| parse(raw.as_bytes()).as_ref() == Ok(value)) {
            spelled.push((name, Text::parse(raw.as_bytes())?));
        }
    }
    let changes = spelled.iter().map(|(name, raw)| (name.as_str(), Some(NewValue::Text(raw))));
    text.edit(&["attributes"], &changes.collect::<Vec<_>>())?;
    Ok(text.into_string())
}

/// Returns a metadata file with these members as another one, of the same dialect, spells them. A
/// member that the other one lacks is removed.
pub fn with_members_of(text: &str, other: &str, names: &[&str]) -> Result<String> {
    let (mut text, other) = (Text::parse(text.as_bytes())?, Text::parse(other.as_bytes())?);
    for name in names {
        match other.member(&[name])? {
            Some(value) => text.set_text(&[name], &Text::parse(value.as_bytes())?)?,
            None => text.remove(&[name])?,
        }
    }
    Ok(text.into_string())
}

/// Whether the libraries of Zarr 3 know all of these codecs.
pub fn is_widely_read(codecs: &[CodecSpec]) -> bool {
    let other =
        ["numcodecs.json2", "numcodecs.msgpack2", "numcodecs.base64", "numcodecs.categorize"];
    codecs.iter().all(|codec| !other.contains(&codec.name.as_str()))
}

fn innermost(codecs: &[CodecSpec]) -> Vec<CodecSpec> {
    let mut chain = Vec::new();
    for codec in codecs {
        if codec.name == "sharding_indexed" {
            chain.extend(innermost(&nested(codec)));
            break;
        }
        chain.push(codec.clone());
    }
    chain
}

/// Returns the codecs nested in a codec.
fn nested(codec: &CodecSpec) -> Vec<CodecSpec> {
    list(codec.configuration.get("codecs")).unwrap_or_default()
}

/// Parses attributes from the command line: a JSON object.
pub fn attributes(text: &str) -> Result<Object> {
    parse_object(text.as_bytes()).map_err(|error| {
        Error::invalid(format!("expected a JSON object such as {{\"units\": \"K\"}}: {error}"))
    })
}

fn grid(chunk_shape: &[u64]) -> Value {
    json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}})
}

/// Parses JSON; a string that is not JSON is returned as a string.
fn worded(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// Returns chunks of at most [`CHUNK_LEN`] bytes. Halves the longest dimension repeatedly, so that
/// the sides are about equal, and the last chunk along a dimension is nearly full.
fn chunk_shape(shape: &[u64], dtype: &DType) -> Vec<u64> {
    let mut parts = vec![1_u64; shape.len()];
    let lens = |parts: &[u64]| -> Vec<u64> {
        shape.iter().zip(parts).map(|(len, parts)| len.div_ceil(*parts).max(1)).collect()
    };
    loop {
        let chunk = lens(&parts);
        let len = chunk_len(&chunk, dtype);
        match chunk.iter().zip(&mut parts).max_by_key(|(len, _)| **len) {
            Some((longest, parts)) if len > CHUNK_LEN && *longest > 1 => {
                *parts = parts.saturating_mul(2);
            }
            _ => return chunk,
        }
    }
}

/// Returns the fill value that a user asks for. Fails for a number that is too large for the type:
/// metadata files may have one, which readers take for infinity.
fn fill_of(written: &Value, dtype: &DType) -> Result<FillValue> {
    let fill = FillValue::parse(written, dtype)?;
    let is_beyond = |(one, other): (&Value, &Value)| one.is_number() && !other.is_number();
    let read = fill.to_json(dtype);
    let parts = written.as_array().zip(read.as_array());
    let is_too_large = is_beyond((written, &read))
        || parts.is_some_and(|(one, other)| one.iter().zip(other).any(is_beyond));
    if is_too_large && matches!(dtype, DType::Float(_) | DType::Complex(_) | DType::Narrow(_)) {
        return Err(Error::invalid(format!(
            "fill_value {written} is too large for {}: write Infinity if that is meant",
            dtype.name()
        )));
    }
    Ok(fill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_chunks_have_about_a_mebibyte_and_nearly_fill_the_array() {
        let of =
            |shape: &[u64], name: &str| chunk_shape(shape, &DType::parse(name).expect("a type"));
        assert_eq!(of(&[365, 721, 1440], "float32"), [46, 46, 90]);
        assert_eq!(of(&[1000], "int8"), [1000]);
        assert_eq!(of(&[], "int8"), [0_u64; 0]);
        assert_eq!(of(&[0, 4], "int8"), [1, 4]);
        assert_eq!(of(&[u64::MAX, 1], "float64"), [1 << 17, 1]);
    }

    #[test]
    fn words_are_fill_values_as_json_is() {
        let fill = |text: &str, data_type: &str| {
            let (fill, data_type) = (Some(text.to_owned()), data_type.to_owned());
            let wanted = NewArray { shape: vec![2], data_type, fill, ..NewArray::default() };
            let document = parse_object(wanted.document().expect(text).as_bytes()).expect("JSON");
            document["fill_value"].clone()
        };
        assert_eq!(fill("NaN", "float32"), "NaN");
        assert_eq!(fill("-1", "int16"), -1);
        assert_eq!(fill("true", "bool"), true);
        assert_eq!(fill("[1, 2]", "complex64"), json!([1.0, 2.0]));
        assert_eq!(fill("abc", "string"), "abc");
    }
}
