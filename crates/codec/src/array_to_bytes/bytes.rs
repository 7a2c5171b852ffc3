//! `bytes`: the elements one after another, little or big endian.
//!
//! Length: the same. The byte order applies to each component: to both parts of a complex number,
//! and to each field of a structure. If `endian` is absent (one-byte types, and structs that
//! zarr-python 3.1 wrote), it is little. In Zarr 2 each field of a structure may have its own byte
//! order; then `endian` is a list with an item for each field that is not itself a structure. Only
//! the model has such a list, never a stored metadata file.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/bytes/index.html>

use bytes::Bytes;
use serde_json::Value;

use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Fault, Result};

/// The codec, bound to a length.
#[derive(Debug)]
pub struct BytesCodec {
    swap: ByteSwap,
    len: usize,
}

/// The bytes to reverse.
#[derive(Debug, PartialEq, Eq)]
pub enum ByteSwap {
    /// Nothing.
    Nothing,
    /// All components, of this length in bytes.
    All(usize),
    /// These runs in each element, as the count of components and their length in bytes; then the
    /// length of an element.
    Runs(Vec<(usize, usize)>, usize),
}

impl BytesCodec {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        let len = elements.byte_len()?.ok_or_else(|| {
            Error::unsupported(format!("bytes: {} has no fixed length", elements.dtype.name()))
        })?;
        Ok(Self { swap: ByteSwap::parse(configuration.get("endian"), &elements.dtype)?, len })
    }
}

impl ByteSwap {
    /// Returns the bytes to reverse in elements of a type for a value of `endian`.
    pub fn parse(endian: Option<&Value>, dtype: &DType) -> Result<Self> {
        let wrong = || Error::invalid("bytes: endian is neither little nor big");
        let is_big = |value: &Value| match value.as_str() {
            Some("little") => Ok(false),
            Some("big") => Ok(true),
            Some(_) | None => Err(wrong()),
        };
        let runs = match endian {
            None => return Ok(Self::Nothing),
            Some(Value::Array(orders)) => {
                let orders = orders.iter().map(is_big).collect::<Result<Vec<bool>>>()?;
                let mut orders = orders.into_iter();
                let runs = ordered(dtype, &mut orders).ok_or_else(wrong)?;
                if orders.next().is_some() {
                    return Err(wrong());
                }
                runs
            }
            Some(one) if !is_big(one)? => return Ok(Self::Nothing),
            Some(_) if matches!(dtype, DType::Struct(_)) => dtype.components(),
            Some(_) => return Ok(Self::of_each(dtype.component_len())),
        };
        Ok(match runs.as_slice() {
            [] => Self::Nothing,
            [(len, _), rest @ ..] if rest.iter().all(|(other, _)| other == len) => {
                Self::of_each(*len)
            }
            _ => Self::Runs(runs, dtype.item_len()),
        })
    }

    fn of_each(len: usize) -> Self {
        if len > 1 { Self::All(len) } else { Self::Nothing }
    }

    /// Reverses the bytes of the components of whole elements.
    pub fn apply(&self, bytes: &mut [u8]) {
        match self {
            Self::Nothing => {}
            Self::All(2) => swap_exact::<2>(bytes),
            Self::All(4) => swap_exact::<4>(bytes),
            Self::All(8) => swap_exact::<8>(bytes),
            Self::All(other) => bytes.chunks_exact_mut((*other).max(1)).for_each(<[u8]>::reverse),
            Self::Runs(runs, item_len) => {
                for mut element in bytes.chunks_exact_mut((*item_len).max(1)) {
                    for (len, count) in runs {
                        let run = len.saturating_mul(*count).min(element.len());
                        let (components, rest) = element.split_at_mut(run);
                        components.chunks_exact_mut((*len).max(1)).for_each(<[u8]>::reverse);
                        element = rest;
                    }
                }
            }
        }
    }
}

/// Returns the byte runs to swap in a type whose fields have different byte orders; fields that are
/// not swapped are runs of single bytes.
fn ordered(dtype: &DType, orders: &mut impl Iterator<Item = bool>) -> Option<Vec<(usize, usize)>> {
    let DType::Struct(fields) = dtype else {
        return Some(if orders.next()? { dtype.components() } else { vec![(1, dtype.item_len())] });
    };
    let mut runs = Vec::new();
    for field in fields.iter() {
        let one = ordered(&field.dtype, orders)?;
        runs.extend(std::iter::repeat_n(one, field.count()).flatten());
    }
    Some(runs)
}

impl ArrayToBytes for BytesCodec {
    fn encode(&self, mut decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        if self.swap != ByteSwap::Nothing {
            self.swap.apply(decoded.to_mut());
        }
        Ok(decoded.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        if encoded.len() != self.len {
            let detail = format!("{} bytes decoded, the chunk needs {}", encoded.len(), self.len);
            return Err(Error::fault(Fault::Length, detail));
        }
        self.decode_elements(encoded)
    }

    fn is_by_element(&self) -> bool {
        true
    }

    fn decode_elements(&self, encoded: Bytes) -> Result<Buffer> {
        let mut decoded = Buffer::from(encoded);
        if self.swap != ByteSwap::Nothing {
            self.swap.apply(decoded.to_mut());
        }
        Ok(decoded)
    }

    fn is_identity(&self) -> bool {
        self.swap == ByteSwap::Nothing
    }

    fn encoded_len(&self) -> Option<u64> {
        u64::try_from(self.len).ok()
    }
}

fn swap_exact<const N: usize>(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|component| component.reverse());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::dtype::Field;

    fn decoded(configuration: &Value, dtype: DType, bytes: &'static [u8]) -> Vec<u8> {
        let item_len = u64::try_from(dtype.item_len()).expect("short");
        let elements = ChunkType { shape: vec![8 / item_len], dtype };
        let codec = BytesCodec::new(configuration.as_object().expect("an object"), &elements);
        let codec = codec.expect("bound");
        let decoded = codec.decode(Bytes::from_static(bytes)).expect("decoded");
        let again = codec.encode(decoded.clone(), &[]).expect("encoded");
        assert_eq!(again, bytes);
        decoded.to_vec()
    }

    #[test]
    fn each_part_of_a_complex_number_is_turned_alone() {
        let big = json!({"endian": "big"});
        let bytes = decoded(&big, DType::Complex(8), &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes, [4, 3, 2, 1, 8, 7, 6, 5]);
    }

    #[test]
    fn each_field_of_a_structure_is_turned_alone() {
        let field = |name: &str, dtype, shape: &[u32]| Field {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        let inner = DType::Struct(Arc::new([field("x", DType::Int(2), &[])]));
        let fields = [
            field("a", DType::Uint(1), &[]),
            field("b", DType::Int(2), &[2]),
            field("c", inner, &[]),
            field("d", DType::Uint(1), &[]),
        ];
        let dtype = DType::Struct(Arc::new(fields));
        let bytes = &[1, 2, 3, 4, 5, 6, 7, 8];
        let big = decoded(&json!({"endian": "big"}), dtype.clone(), bytes);
        assert_eq!(big, [1, 3, 2, 5, 4, 7, 6, 8]);
        let mixed = json!({"endian": ["little", "little", "big", "little"]});
        assert_eq!(decoded(&mixed, dtype.clone(), bytes), [1, 2, 3, 4, 5, 7, 6, 8]);
        assert!(ByteSwap::parse(Some(&json!(["big"])), &dtype).is_err());
    }
}
