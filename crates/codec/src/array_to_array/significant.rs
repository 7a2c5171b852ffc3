//! `imagecodecs_quantize` {mode, nsd}: floats with the digits that matter.
//!
//! With `bitround`, `nsd` bits of the fraction are kept, as netCDF-C rounds; with `scale`, `nsd`
//! decimal digits after the point, as a multiple of a power of two. What netCDF-C calls `bitgroom`
//! and `granularbr` is not written. Decoding changes nothing. Length: the same.
//!
//! <https://github.com/cgohlke/imagecodecs>

use serde_json::Value;

use crate::configuration::integer;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{ExactNumber, NumberFormat};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

const NAME: &str = "imagecodecs_quantize";

/// The bits of the fraction of a float32 and a float64.
const FRACTION_32: u32 = 23;
const FRACTION_64: u32 = 52;

/// The floats that netCDF-C does not round: its default fill value.
const FILL: u32 = 0x7cf0_0000;
const FILL_64: u64 = 0x479e_0000_0000_0000;

#[derive(Debug, Clone, Copy)]
enum Mode {
    /// The number of bits to remove.
    Bits(u32),
    /// The power of two.
    Scale(f64),
    DecodeOnly,
}

/// The codec, bound to a type.
#[derive(Debug)]
pub struct Significant {
    mode: Mode,
    is_double: bool,
}

impl Significant {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        let is_double = match elements.dtype {
            DType::Float(4) => false,
            DType::Float(8) => true,
            _ => {
                let name = elements.dtype.name();
                return Err(Error::unsupported(format!(
                    "{NAME}: {name} is neither float32 nor float64"
                )));
            }
        };
        let digits = integer(NAME, configuration, "nsd", 8, 0..=63)?;
        let digits = u32::try_from(digits).unwrap_or_default();
        let fraction = if is_double { FRACTION_64 } else { FRACTION_32 };
        let mode = configuration.get("mode").unwrap_or(&Value::Null);
        let mode = match mode.as_str() {
            Some("bitround") => Mode::Bits(fraction.saturating_sub(digits)),
            Some("scale") => Mode::Scale(scale(digits)),
            Some("noquantize") => Mode::Bits(0),
            Some("bitgroom" | "granularbr" | "gbr") => Mode::DecodeOnly,
            None if mode.is_null() => Mode::DecodeOnly,
            _ => return Err(Error::unsupported(format!("{NAME}: mode {mode} is not known"))),
        };
        Ok(Self { mode, is_double })
    }

    fn single(&self, bits: u32) -> u32 {
        match self.mode {
            Mode::Bits(0) | Mode::DecodeOnly => bits,
            Mode::Bits(_) if bits == FILL => bits,
            Mode::Bits(count) => bits.wrapping_add(1 << count >> 1) & (u32::MAX << count),
            Mode::Scale(scale) => {
                let number = f64::from(f32::from_bits(bits));
                narrow((number * scale).round() / scale)
            }
        }
    }

    fn double(&self, bits: u64) -> u64 {
        match self.mode {
            Mode::Bits(0) | Mode::DecodeOnly => bits,
            Mode::Bits(_) if bits == FILL_64 => bits,
            Mode::Bits(count) => bits.wrapping_add(1 << count >> 1) & (u64::MAX << count),
            Mode::Scale(scale) => ((f64::from_bits(bits) * scale).round() / scale).to_bits(),
        }
    }
}

/// Returns the power of two that keeps so many decimal digits.
fn scale(digits: u32) -> f64 {
    let exponent = 10_f64.powf(-f64::from(digits)).log10();
    let exponent = if exponent < 0.0 { exponent.floor() } else { exponent.ceil() };
    10_f64.powf(-exponent).log2().ceil().exp2()
}

/// Returns the nearest float32.
fn narrow(number: f64) -> u32 {
    let mut bytes = Vec::new();
    NumberFormat::Float(4).store(ExactNumber::Float(number), &mut bytes);
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

impl ArrayToArray for Significant {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        if matches!(self.mode, Mode::DecodeOnly) {
            return Err(Error::unsupported(format!(
                "{NAME}: zarrfs writes the modes bitround and scale alone"
            )));
        }
        let mut encoded = reserve(decoded.len())?;
        if self.is_double {
            let (items, _) = decoded.as_chunks();
            encoded.extend(
                items.iter().flat_map(|item| self.double(u64::from_le_bytes(*item)).to_le_bytes()),
            );
        } else {
            let (items, _) = decoded.as_chunks();
            encoded.extend(
                items.iter().flat_map(|item| self.single(u32::from_le_bytes(*item)).to_le_bytes()),
            );
        }
        Ok(encoded.into())
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        Ok(encoded)
    }

    fn is_lossy(&self) -> bool {
        true
    }
}
