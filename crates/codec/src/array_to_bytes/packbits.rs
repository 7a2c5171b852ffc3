//! `packbits` {`padding_encoding`?, `first_bit`?, `last_bit`?}: some bits of each component,
//! without gaps.
//!
//! ```text
//! byte 0                 byte 1
//! bit 0 1 2 3 4 5 6 7    0 1 2 ..
//!     \first/ \second ...
//! ```
//!
//! Each component stores its bits from `first_bit` to `last_bit`, least significant first. The
//! specification does not define this order; zarrs writes it, and numcodecs' own `packbits` uses
//! the reverse. When decoding, the bits that are not stored become zero; in a signed integer, those
//! above `last_bit` become copies of the sign bit.
//!
//! The number of padding bits in the last byte is stored in a separate byte: the first one
//! (`first_byte`), the last one (`last_byte`), or none (`none`). Like zarrs, this codec omits that
//! byte if every component is stored completely and fills whole bytes. Length: known.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/packbits>

use bytes::Bytes;
use serde_json::Value;

use crate::configuration::count;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use crate::number::{bits, push};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

/// The codec, bound to a length and a type.
#[derive(Debug)]
pub struct PackBits {
    padding: Padding,
    /// The number of components in a chunk.
    count: usize,
    component: Component,
    first_bit: u32,
    /// The number of stored bits per component, at least 1.
    width: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    None,
    FirstByte,
    LastByte,
}

/// The components of an element.
#[derive(Debug, Clone, Copy)]
struct Component {
    /// The length of a decoded component in bytes.
    len: u8,
    /// The number of significant bits.
    bits: u32,
    is_signed: bool,
    /// The number of components in an element.
    count: usize,
}

impl Component {
    fn of(dtype: &DType) -> Option<Self> {
        let whole = |len: u8| Self { len, bits: 8 * u32::from(len), is_signed: false, count: 1 };
        Some(match dtype {
            DType::Bool => Self { bits: 1, ..whole(1) },
            DType::Int(len) => Self { is_signed: true, ..whole(*len) },
            DType::Time(_) => Self { is_signed: true, ..whole(8) },
            DType::Uint(len) | DType::Float(len) => whole(*len),
            DType::Complex(len) => Self { count: 2, ..whole(len / 2) },
            DType::Narrow(number) => Self {
                bits: number.bits(),
                is_signed: number.is_signed_int(),
                ..whole(u8::try_from(number.len).ok()?)
            },
            DType::ComplexNarrow(part) => {
                Self { bits: part.bits(), count: 2, ..whole(u8::try_from(part.len).ok()?) }
            }
            _ => return None,
        })
    }
}

impl PackBits {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        let padding = match configuration.get("padding_encoding") {
            None | Some(Value::Null) => Padding::None,
            Some(value) => match value.as_str() {
                Some("none") => Padding::None,
                Some("first_byte") => Padding::FirstByte,
                Some("last_byte") => Padding::LastByte,
                Some(_) | None => {
                    let what = format!("packbits: padding_encoding {value} is not known");
                    return Err(Error::invalid(what));
                }
            },
        };
        let component = Component::of(&elements.dtype).ok_or_else(|| {
            Error::unsupported(format!("packbits: {} is not supported", elements.dtype.name()))
        })?;
        let last = component.bits.saturating_sub(1);
        let first_bit = count("packbits", configuration, "first_bit", 0, 0..=last)?;
        let last_bit = count("packbits", configuration, "last_bit", last, first_bit..=last)?;
        let total = elements.count()?.checked_mul(component.count).filter(|n| *n < usize::MAX / 64);
        let total = total.ok_or_else(|| {
            Error::too_large(format!(
                "packbits: a chunk of shape {:?} is too large",
                elements.shape
            ))
        })?;
        let is_whole =
            last_bit - first_bit + 1 == component.bits && component.bits.is_multiple_of(8);
        let padding = if is_whole { Padding::None } else { padding };
        Ok(Self { padding, count: total, component, first_bit, width: last_bit - first_bit + 1 })
    }

    fn total_bits(&self) -> usize {
        usize::try_from(self.width).unwrap_or(64).saturating_mul(self.count)
    }

    /// Returns the length in bytes without the byte for the padding.
    fn packed_len(&self) -> usize {
        self.total_bits().div_ceil(8)
    }

    fn len(&self) -> usize {
        self.packed_len().saturating_add(usize::from(self.padding != Padding::None))
    }

    fn padding_bits(&self) -> u8 {
        let used = u8::try_from(self.total_bits() % 8).unwrap_or_default();
        if used == 0 { 0 } else { 8 - used }
    }

    /// Returns a mask of the lowest `width` bits.
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width.clamp(1, 64))
    }

    /// Restores a component from its stored bits.
    fn unpacked(&self, packed: u64) -> u64 {
        let unused = 64 - self.width.clamp(1, 64);
        let value = if self.component.is_signed {
            ((packed << unused).cast_signed() >> unused).cast_unsigned()
        } else {
            packed
        };
        value << self.first_bit
    }
}

impl ArrayToBytes for PackBits {
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        let mut target = reserve(self.len())?;
        if self.padding == Padding::FirstByte {
            target.push(self.padding_bits());
        }
        // At most 7 bits of earlier components and 64 of the next.
        let (mut pending, mut pending_count) = (0_u128, 0_u32);
        for item in decoded.chunks_exact(usize::from(self.component.len.max(1))) {
            pending |= u128::from(bits(item) >> self.first_bit & self.mask()) << pending_count;
            pending_count += self.width;
            while pending_count >= 8 {
                push(&mut target, &pending.to_le_bytes(), 1);
                pending >>= 8;
                pending_count -= 8;
            }
        }
        if pending_count > 0 {
            push(&mut target, &pending.to_le_bytes(), 1);
        }
        if self.padding == Padding::LastByte {
            target.push(self.padding_bits());
        }
        Ok(target.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        if encoded.len() != self.len() {
            let (len, expected) = (encoded.len(), self.len());
            return Err(Error::corrupt(format!("packbits: {len} bytes, expected {expected}")));
        }
        let parts = match self.padding {
            Padding::None => None,
            Padding::FirstByte => encoded.split_first(),
            Padding::LastByte => encoded.split_last(),
        };
        let (padding, packed) = parts.unwrap_or((&0, &encoded));
        if self.padding != Padding::None && *padding != self.padding_bits() {
            return Err(Error::corrupt(format!(
                "packbits: {padding} bits of padding, expected {}",
                self.padding_bits()
            )));
        }
        let item_len = usize::from(self.component.len);
        let mut target = reserve(self.count.saturating_mul(item_len))?;
        let (mut pending, mut pending_count) = (0_u128, 0_u32);
        let mut bytes = packed.iter();
        for _ in 0..self.count {
            while pending_count < self.width {
                pending |= u128::from(bytes.next().copied().unwrap_or_default()) << pending_count;
                pending_count += 8;
            }
            let low = u64::try_from(pending & u128::from(self.mask()));
            let value = self.unpacked(low.unwrap_or_default());
            push(&mut target, &value.to_le_bytes(), self.component.len);
            pending >>= self.width;
            pending_count -= self.width;
        }
        Ok(target.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        u64::try_from(self.len()).ok()
    }

    fn is_lossy(&self) -> bool {
        self.width < self.component.bits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::dtype::Narrow;

    fn bound(configuration: &Value, dtype: DType, count: u64) -> PackBits {
        let elements = ChunkType { shape: vec![count], dtype };
        PackBits::new(configuration.as_object().unwrap(), &elements).unwrap()
    }

    fn checked(configuration: &Value, dtype: DType, decoded: &[u8], encoded: &[u8]) {
        let count = decoded.len() / dtype.item_len();
        let codec = bound(configuration, dtype, count as u64);
        let actual = codec.encode(decoded.to_vec().into(), &[]).unwrap();
        assert_eq!(actual, encoded, "{configuration}");
        assert_eq!(codec.encoded_len(), Some(encoded.len() as u64), "{configuration}");
        assert_eq!(*codec.decode(actual).unwrap(), *decoded, "{configuration}");
        let mut wrong = encoded.to_vec();
        wrong.push(0);
        assert!(codec.decode(wrong.into()).is_err(), "{configuration}");
    }

    #[test]
    fn the_first_element_is_in_the_least_significant_bit() {
        let bools = [1, 0, 1, 1, 0, 0, 0, 0, 1];
        let padded = |how| json!({"padding_encoding": how});
        checked(&json!({}), DType::Bool, &bools, &[0b0000_1101, 1]);
        checked(&padded("none"), DType::Bool, &bools, &[0b0000_1101, 1]);
        checked(&padded("first_byte"), DType::Bool, &bools, &[7, 0b0000_1101, 1]);
        checked(&padded("last_byte"), DType::Bool, &bools, &[0b0000_1101, 1, 7]);
        let int4 = DType::Narrow(Narrow::parse("int4").unwrap());
        checked(&json!({}), int4, &[0xf8, 7, 0xff], &[0x78, 0x0f]);
        let float6 = DType::ComplexNarrow(Narrow::parse("float6_e3m2fn").unwrap());
        checked(&json!({}), float6, &[0x3f, 1], &[0x7f, 0]);
    }

    #[test]
    fn some_bits_of_a_number_keep_its_sign() {
        let bits = json!({"first_bit": 4, "last_bit": 12, "padding_encoding": null});
        let numbers = [-16_i16, 0xff0, -0x1000].map(i16::to_le_bytes).concat();
        checked(&bits, DType::Int(2), &numbers, &[0xff, 0xff, 0x01, 0x04]);
        let numbers = [0xff0_u16, 0x1010].map(u16::to_le_bytes).concat();
        checked(&bits, DType::Uint(2), &numbers, &[0xff, 0x02, 0x02]);
        assert!(bound(&bits, DType::Int(2), 3).is_lossy());
        let padded = json!({"padding_encoding": "first_byte"});
        checked(&padded, DType::Float(4), &[1, 2, 3, 4], &[1, 2, 3, 4]);
    }

    #[test]
    fn bits_that_a_type_has_not_are_refused() {
        for (configuration, dtype) in [
            (json!({"last_bit": 16}), DType::Int(2)),
            (json!({"first_bit": 3, "last_bit": 2}), DType::Int(2)),
            (json!({"padding_encoding": "both"}), DType::Bool),
            (json!({}), DType::String),
            (json!({}), DType::Raw(2)),
        ] {
            let elements = ChunkType { shape: vec![3], dtype };
            let built = PackBits::new(configuration.as_object().unwrap(), &elements);
            assert!(built.is_err(), "{configuration}");
        }
        let elements = ChunkType { shape: vec![u64::MAX, 2], dtype: DType::Bool };
        assert!(PackBits::new(&Object::new(), &elements).is_err());
    }

    proptest! {
        #[test]
        fn packed_elements_unpack_to_the_same(
            (len, first, last) in (prop::sample::select(vec![1_u8, 2, 4, 8]), 0..64_u32, 0..64_u32),
            numbers in prop::collection::vec(any::<u64>(), 0..30),
        ) {
            let bits = 8 * u32::from(len);
            let (first, last) = ((first % bits).min(last % bits), (first % bits).max(last % bits));
            let configuration = json!({"first_bit": first, "last_bit": last});
            let codec = bound(&configuration, DType::Uint(len), numbers.len() as u64);
            let kept = u64::MAX >> (63 - last) >> first << first;
            let mut elements = Vec::new();
            for number in numbers {
                push(&mut elements, &(number & kept).to_le_bytes(), len);
            }
            let encoded = codec.encode(elements.clone().into(), &[]).unwrap();
            prop_assert_eq!(codec.encoded_len(), Some(encoded.len() as u64));
            prop_assert_eq!(&*codec.decode(encoded).unwrap(), &*elements);
        }
    }
}
