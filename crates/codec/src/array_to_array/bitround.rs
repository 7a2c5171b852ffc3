//! `bitround` {keepbits}, and `numcodecs.bitround`: clears the last bits of numbers, rounding to
//! the nearest, ties to even.
//!
//! For a float, `keepbits` counts the bits of the fraction; for an integer, the bits from the most
//! significant set bit down. A NaN stays unchanged, while numcodecs may round it to -0. Decoding
//! does nothing. Length: the same.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/bitround>,
//! <https://numcodecs.readthedocs.io/en/stable/filter/bitround.html>

use crate::configuration::count;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{bits, push};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

/// The codec, bound to a type.
#[derive(Debug)]
pub struct BitRound {
    /// The length of a component in bytes.
    len: u8,
    /// The number of bits in the fraction of a float; `None` for an integer.
    fraction: Option<u32>,
    keep: u32,
}

impl BitRound {
    /// Returns the codec with this configuration, `None` if all bits are kept.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Option<Self>> {
        if configuration.get("keepbits").is_none() {
            return Err(Error::invalid("bitround: keepbits is missing"));
        }
        let keep = count("bitround", configuration, "keepbits", 0, 0..=u32::MAX)?;
        let fraction = |len| match len {
            2 => 10,
            4 => 23,
            _ => 52,
        };
        let (len, fraction) = match &elements.dtype {
            DType::Float(len) => (*len, Some(fraction(*len))),
            DType::Complex(len) => (len / 2, Some(fraction(len / 2))),
            DType::Narrow(part) | DType::ComplexNarrow(part) if part.name == "bfloat16" => {
                (2, Some(7))
            }
            DType::Int(len) | DType::Uint(len) => (*len, None),
            DType::Time(_) => (8, None),
            other => {
                return Err(Error::unsupported(format!(
                    "bitround: {} has no bits to round",
                    other.name()
                )));
            }
        };
        let most = fraction.unwrap_or(8 * u32::from(len));
        if fraction.is_some() && keep > most {
            return Err(Error::invalid(format!("bitround: keepbits {keep} is not in 0..={most}")));
        }
        Ok((keep < most).then_some(Self { len, fraction, keep }))
    }

    fn round(&self, bits: u64) -> u64 {
        let width = 8 * u32::from(self.len);
        let all = u64::MAX >> (64 - width);
        let found = match self.fraction {
            Some(fraction) => {
                let infinity = (all >> 1) & (u64::MAX << fraction);
                if bits & (all >> 1) > infinity {
                    return bits;
                }
                fraction
            }
            None => 64 - bits.leading_zeros(),
        };
        let drop = found.saturating_sub(self.keep);
        if drop == 0 {
            return bits;
        }
        let mask = all & u64::MAX.checked_shl(drop).unwrap_or_default();
        let odd = bits.checked_shr(drop).unwrap_or_default() & 1;
        let rounded = bits.wrapping_add((1 << (drop - 1)) - 1).wrapping_add(odd);
        // An integer that cannot be rounded up is truncated.
        if self.fraction.is_none() && (rounded < bits || rounded > all) {
            return all & mask;
        }
        rounded & mask
    }
}

impl ArrayToArray for BitRound {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        let mut target = reserve(decoded.len())?;
        for item in decoded.chunks_exact(usize::from(self.len.max(1))) {
            push(&mut target, &self.round(bits(item)).to_le_bytes(), self.len);
        }
        Ok(target.into())
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        Ok(encoded)
    }

    fn is_lossy(&self) -> bool {
        true
    }
}
