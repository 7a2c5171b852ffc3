//! `numcodecs.json2` {encoding?, `ensure_ascii`?, ..} and `numcodecs.msgpack2` {}: a list of Python
//! objects.
//!
//! ```text
//! [["a", null], ["b", 1.5], "|O", [2, 2]]
//! ```
//!
//! The list holds the elements of the chunk as nested lists, then NumPy's name of the type, then
//! the shape. A string is decoded as it is, null to an empty string, and any other object to its
//! JSON. Numbers may be stored in this form, too. The shape may differ if it has the same number of
//! elements. Length: depends on the values.
//!
//! <https://numcodecs.readthedocs.io/en/stable/other/json.html>,
//! <https://numcodecs.readthedocs.io/en/stable/other/msgpacks.html>

mod json;
mod lists;
mod message_pack;
mod scalar;

use bytes::Bytes;
use serde_json::Value;

use self::lists::check_row;
use self::scalar::{Scalar, written};
use crate::configuration::numpy_name;
use crate::dtype::{DType, FillValue};
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use crate::number::{ExactNumber, NumberFormat};
use crate::texts;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The most dimensions of an array in NumPy.
const MAX_RANK: usize = 64;

/// An object may have strings of this many bytes, even if the chunk is shorter: a number may be
/// stored as one.
const LEAST_LIMIT: usize = 4096;

/// The codec, bound to a shape and a type.
#[derive(Debug)]
pub struct Objects {
    notation: Notation,
    elements: ChunkType,
    /// NumPy's name of the type.
    type_name: String,
    /// The most bytes of a decoded chunk.
    limit: usize,
}

/// The notation of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Json { ascii: bool },
    MessagePack,
}

impl Objects {
    /// Returns `numcodecs.json2` for chunks of `elements`, of at most `limit` bytes.
    pub fn json(configuration: &Object, elements: &ChunkType, limit: usize) -> Result<Self> {
        let encoding = configuration.get("encoding").and_then(Value::as_str).unwrap_or("utf-8");
        let ascii = configuration.get("ensure_ascii").and_then(Value::as_bool).unwrap_or(true);
        if !matches!(encoding.to_ascii_lowercase().as_str(), "utf-8" | "utf8" | "ascii") {
            return Err(Error::unsupported(format!(
                "json2: encoding {encoding:?} is not \
                 supported"
            )));
        }
        Self::new(Notation::Json { ascii }, elements, limit)
    }

    /// Returns `numcodecs.msgpack2` for chunks of `elements`, of at most `limit` bytes.
    pub fn message_pack(elements: &ChunkType, limit: usize) -> Result<Self> {
        Self::new(Notation::MessagePack, elements, limit)
    }

    fn new(notation: Notation, elements: &ChunkType, limit: usize) -> Result<Self> {
        let type_name = numpy_name(&elements.dtype).ok_or_else(|| {
            Error::unsupported(format!("lists of {} are not supported", elements.dtype.name()))
        })?;
        Ok(Self { notation, elements: elements.clone(), type_name, limit })
    }

    /// Returns the shape in the list. Fails unless it has as many elements as the chunk, before
    /// anything is kept of them.
    fn shape(&self, encoded: &[u8]) -> Result<Vec<u64>> {
        let wrong = || Error::corrupt("the list of objects has no type and shape");
        let count = self.elements.count()?.to_u64();
        let (mut found, mut name, mut shape) = (0_u64, None, None);
        self.notation.for_each(encoded, &mut |item| {
            found = found.saturating_add(1);
            name = shape.replace(item);
            if count > 0 && found.saturating_sub(2) > count {
                return Err(Error::corrupt(format!("more objects than the {count} of the chunk")));
            }
            Ok(())
        })?;
        let (name, shape) = name.zip(shape).ok_or_else(wrong)?;
        let shape: Vec<u64> = serde_json::from_value(self.notation.value(shape, LEAST_LIMIT)?)
            .map_err(|_| wrong())?;
        let name = self.notation.value(name, LEAST_LIMIT)?;
        if !name.is_string() || shape.len() > MAX_RANK {
            return Err(wrong());
        }
        check_row(found.saturating_sub(2), shape.first().copied().unwrap_or(1))?;
        let product = shape.iter().try_fold(1_u64, |product, len| product.checked_mul(*len));
        if product == Some(count) {
            return Ok(shape);
        }
        Err(Error::corrupt(format!("objects of shape {shape:?}, the chunk needs {count}")))
    }

    /// Encodes an element of fixed length as in a decoded chunk.
    fn item(&self, value: &Value) -> Result<Vec<u8>> {
        let dtype = &self.elements.dtype;
        let value =
            if value.is_null() && matches!(dtype, DType::Float(_)) { &"NaN".into() } else { value };
        let fill = FillValue::parse(value, dtype).ok().filter(FillValue::is_defined);
        let fill = fill
            .ok_or_else(|| Error::corrupt(format!("an object is not a valid {}", dtype.name())))?;
        Ok(fill.item(dtype).into_owned())
    }

    /// Returns the encoded elements of a list, in order.
    fn leaves<'b>(&self, list: &'b [u8]) -> Result<Vec<&'b [u8]>> {
        let shape = self.shape(list)?;
        let mut leaves = Vec::new();
        self.notation.for_each_leaf(list, &shape, 2, &mut |leaf| {
            leaves.push(leaf);
            Ok(())
        })?;
        Ok(leaves)
    }

    /// Whether an encoded element decodes to these bytes.
    fn is_form_of(&self, leaf: &[u8], item: &[u8]) -> bool {
        let Ok(value) = self.notation.value(leaf, self.limit.max(LEAST_LIMIT)) else {
            return false;
        };
        match (&self.elements.dtype, value) {
            (DType::String, Value::String(text)) => text.as_bytes() == item,
            (DType::String, Value::Null) => item.is_empty(),
            (DType::String, other) => {
                written(&other, self.limit).is_some_and(|text| text.as_bytes() == item)
            }
            (_, value) => self.item(&value).is_ok_and(|found| found == item),
        }
    }

    /// Encodes a chunk. Elements that `old` has at the same place keep its form.
    fn encode_keeping(&self, decoded: &[u8], old: &[&[u8]]) -> Result<Bytes> {
        let items: Box<dyn Iterator<Item = &[u8]>> = if self.elements.dtype == DType::String {
            Box::new(texts::items(decoded, self.elements.count()?)?.all())
        } else {
            Box::new(decoded.chunks_exact(self.elements.dtype.item_len().max(1)))
        };
        let notation = self.notation;
        let rows = self.elements.shape.as_slice();
        let first = rows.first().copied().unwrap_or(1);
        let mut target = Vec::new();
        notation.open(first.saturating_add(2), &mut target);
        // For each dimension but the first, outermost first, the number of elements in a row.
        let inner: Vec<(u64, u64)> = (1..rows.len())
            .map(|axis| {
                let product = rows.iter().skip(axis).fold(1_u64, |len, n| len.saturating_mul(*n));
                (product, rows.get(axis).copied().unwrap_or(1))
            })
            .collect();
        let mut at = 0_u64;
        for item in items {
            for (len, count) in &inner {
                if at.is_multiple_of((*len).max(1)) {
                    notation.open(*count, &mut target);
                }
            }
            let kept = usize::try_from(at).ok().and_then(|at| old.get(at));
            match kept.filter(|kept| self.is_form_of(kept, item)) {
                Some(kept) => target.extend_from_slice(kept),
                None => self.write(item, &mut target)?,
            }
            at = at.saturating_add(1);
            let ended = inner.iter().rev().take_while(|(len, _)| at.is_multiple_of((*len).max(1)));
            ended.for_each(|_| notation.close(&mut target));
            notation.next(&mut target);
        }
        notation.write(Scalar::Text(&self.type_name), &mut target);
        notation.next(&mut target);
        notation.open(rows.len().to_u64(), &mut target);
        for (axis, len) in rows.iter().enumerate() {
            if axis > 0 {
                notation.next(&mut target);
            }
            notation.write(Scalar::Int(i128::from(*len)), &mut target);
        }
        notation.close(&mut target);
        notation.close(&mut target);
        Ok(target.into())
    }

    fn write(&self, item: &[u8], target: &mut Vec<u8>) -> Result<()> {
        let scalar = match (&self.elements.dtype, NumberFormat::of(&self.elements.dtype)) {
            (DType::Bool, _) => Scalar::Bool(item.iter().any(|byte| *byte != 0)),
            (_, Some(format)) => match format.load(item) {
                ExactNumber::Int(int) => Scalar::Int(int),
                ExactNumber::Float(float) => Scalar::Float(float),
            },
            (DType::Utf32(_), None) => {
                let fill = FillValue::from_item(item).to_json(&self.elements.dtype);
                let text = fill.as_str().unwrap_or_default();
                self.notation.write(Scalar::Text(text), target);
                return Ok(());
            }
            (_, None) => {
                let text = std::str::from_utf8(item);
                Scalar::Text(text.map_err(|_| Error::invalid("a string is not UTF-8"))?)
            }
        };
        self.notation.write(scalar, target);
        Ok(())
    }
}

impl Notation {
    /// Calls `each` with each encoded item of a list.
    fn for_each<'b>(
        self,
        list: &'b [u8],
        each: &mut dyn FnMut(&'b [u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Json { .. } => lists::for_each(&mut json::List::new(list), each),
            Self::MessagePack => lists::for_each(&mut message_pack::List::new(list), each),
        }
    }

    /// Calls `each` with each encoded element of nested lists of this shape, in C order. In the
    /// outermost list, `more` other items follow.
    fn for_each_leaf<'b>(
        self,
        list: &'b [u8],
        shape: &[u64],
        more: u64,
        each: &mut dyn FnMut(&'b [u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Json { .. } => {
                lists::for_each_leaf(&mut json::List::new(list), shape, more, each)
            }
            Self::MessagePack => {
                lists::for_each_leaf(&mut message_pack::List::new(list), shape, more, each)
            }
        }
    }

    /// Decodes an item. The strings in it have at most `limit` bytes.
    fn value(self, item: &[u8], limit: usize) -> Result<Value> {
        match self {
            Self::Json { .. } => json::value(item, limit),
            Self::MessagePack => message_pack::value(item, limit),
        }
    }

    /// Writes a scalar.
    fn write(self, scalar: Scalar<'_>, target: &mut Vec<u8>) {
        match self {
            Self::Json { ascii } => json::write(scalar, ascii, target),
            Self::MessagePack => message_pack::write(scalar, target),
        }
    }

    /// Begins a list of `count` items.
    fn open(self, count: u64, target: &mut Vec<u8>) {
        match self {
            Self::Json { .. } => target.push(b'['),
            Self::MessagePack => message_pack::open(count, target),
        }
    }

    /// Separates items.
    fn next(self, target: &mut Vec<u8>) {
        if self != Self::MessagePack {
            target.push(b',');
        }
    }

    /// Ends a list.
    fn close(self, target: &mut Vec<u8>) {
        if self != Self::MessagePack {
            target.push(b']');
        }
    }
}

impl ArrayToBytes for Objects {
    fn has_spellings(&self) -> bool {
        true
    }

    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        self.encode_keeping(&decoded, &[])
    }

    fn encode_over(&self, decoded: Buffer, _extent: &[u64], old: &[u8]) -> Result<Bytes> {
        // A list that cannot be read has no elements to keep.
        let leaves = self.leaves(old).unwrap_or_default();
        self.encode_keeping(&decoded, &leaves)
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let limit = self.limit.max(LEAST_LIMIT);
        if self.elements.dtype == DType::String {
            let mut chunk = texts::TextWriter::new(self.elements.count()?, self.limit)?;
            let shape = self.shape(&encoded)?;
            self.notation.for_each_leaf(&encoded, &shape, 2, &mut |leaf| match self
                .notation
                .value(leaf, limit)?
            {
                Value::String(text) => chunk.push(text.as_bytes()),
                Value::Null => chunk.push(b""),
                other => match written(&other, self.limit) {
                    Some(text) => chunk.push(text.as_bytes()),
                    None => Err(chunk.too_large()),
                },
            })?;
            return Ok(chunk.into_chunk().into());
        }
        let shape = self.shape(&encoded)?;
        let mut target = reserve(self.elements.byte_len()?.unwrap_or_default())?;
        self.notation.for_each_leaf(&encoded, &shape, 2, &mut |leaf| {
            target.extend(self.item(&self.notation.value(leaf, limit)?)?);
            Ok(())
        })?;
        Ok(target.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests;
