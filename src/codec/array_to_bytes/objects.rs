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
mod message_pack;
mod scalar;

use bytes::Bytes;
use serde_json::Value;

use self::scalar::Scalar;
use crate::buffer::{Buffer, reserve};
use crate::codec::configuration::numpy_name;
use crate::codec::elements::Elements;
use crate::codec::kinds::ArrayToBytes;
use crate::codec::number::{Format, Number};
use crate::codec::texts;
use crate::dtype::{DType, FillValue};
use crate::error::{Error, Result};
use crate::json::Object;

/// The most dimensions of an array in NumPy.
const MAX_RANK: usize = 64;

/// The codec, bound to a shape and a type.
#[derive(Debug)]
pub struct Objects {
    notation: Notation,
    elements: Elements,
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
    pub fn json(configuration: &Object, elements: &Elements, limit: usize) -> Result<Self> {
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
    pub fn message_pack(elements: &Elements, limit: usize) -> Result<Self> {
        Self::new(Notation::MessagePack, elements, limit)
    }

    fn new(notation: Notation, elements: &Elements, limit: usize) -> Result<Self> {
        let type_name = numpy_name(&elements.dtype).ok_or_else(|| {
            Error::unsupported(format!("lists of {} are not supported", elements.dtype.name()))
        })?;
        Ok(Self { notation, elements: elements.clone(), type_name, limit })
    }

    /// Returns the encoded elements of the list in C order.
    fn leaves<'b>(&self, encoded: &'b [u8]) -> Result<Vec<&'b [u8]>> {
        let mut leaves = self.notation.items(encoded)?;
        let wrong = || Error::corrupt("the list of objects has no type and shape");
        let shape = leaves.pop().ok_or_else(wrong)?;
        let shape: Vec<u64> =
            serde_json::from_value(self.notation.value(shape)?).map_err(|_| wrong())?;
        let name = leaves.pop().ok_or_else(wrong)?;
        if !self.notation.value(name)?.is_string() || shape.len() > MAX_RANK {
            return Err(wrong());
        }
        let check = |row: &[&[u8]], len: u64| {
            if u64::try_from(row.len()) == Ok(len) {
                return Ok(());
            }
            Err(Error::corrupt(format!("{} objects, the row needs {len}", row.len())))
        };
        check(&leaves, shape.first().copied().unwrap_or(1))?;
        for len in shape.iter().skip(1) {
            let mut inner = Vec::new();
            for row in leaves {
                let row = self.notation.items(row)?;
                check(&row, *len)?;
                inner.extend(row);
            }
            leaves = inner;
        }
        let count = self.elements.count()?;
        if leaves.len() != count {
            let found = leaves.len();
            return Err(Error::corrupt(format!("{found} objects, the chunk needs {count}")));
        }
        Ok(leaves)
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

    fn write(&self, item: &[u8], target: &mut Vec<u8>) -> Result<()> {
        let scalar = match (&self.elements.dtype, Format::of(&self.elements.dtype)) {
            (DType::Bool, _) => Scalar::Bool(item.iter().any(|byte| *byte != 0)),
            (_, Some(format)) => match format.load(item) {
                Number::Int(int) => Scalar::Int(int),
                Number::Float(float) => Scalar::Float(float),
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
    /// Returns the encoded items of a list.
    fn items(self, list: &[u8]) -> Result<Vec<&[u8]>> {
        match self {
            Self::Json { .. } => json::items(list),
            Self::MessagePack => message_pack::items(list),
        }
    }

    /// Decodes an item.
    fn value(self, item: &[u8]) -> Result<Value> {
        match self {
            Self::Json { .. } => crate::json::parse(item),
            Self::MessagePack => message_pack::value(item),
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
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        let items = if self.elements.dtype == DType::String {
            texts::items(&decoded, self.elements.count()?)?
        } else {
            decoded.chunks_exact(self.elements.dtype.item_len().max(1)).collect()
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
        for item in &items {
            for (len, count) in &inner {
                if at.is_multiple_of((*len).max(1)) {
                    notation.open(*count, &mut target);
                }
            }
            self.write(item, &mut target)?;
            at = at.saturating_add(1);
            let ended = inner.iter().rev().take_while(|(len, _)| at.is_multiple_of((*len).max(1)));
            ended.for_each(|_| notation.close(&mut target));
            notation.next(&mut target);
        }
        notation.write(Scalar::Text(&self.type_name), &mut target);
        notation.next(&mut target);
        notation.open(u64::try_from(rows.len()).unwrap_or_default(), &mut target);
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

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let leaves = self.leaves(&encoded)?;
        if self.elements.dtype == DType::String {
            let mut chunk = texts::Writer::new(leaves.len(), self.limit)?;
            for leaf in leaves {
                match self.notation.value(leaf)? {
                    Value::String(text) => chunk.push(text.as_bytes())?,
                    Value::Null => chunk.push(b"")?,
                    other => chunk.push(other.to_string().as_bytes())?,
                }
            }
            return Ok(chunk.into_chunk().into());
        }
        let mut target = reserve(self.elements.byte_len()?.unwrap_or_default())?;
        for leaf in leaves {
            target.extend(self.item(&self.notation.value(leaf)?)?);
        }
        Ok(target.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests;
