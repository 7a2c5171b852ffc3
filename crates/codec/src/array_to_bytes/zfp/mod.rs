//! The registered `zfp` {mode, ..}, `numcodecs.zfpy` {mode, tolerance, rate, precision} and
//! `imagecodecs_zfp` {mode?, level?, header?}: the elements as a stream of zfp.
//!
//! ```text
//! imagecodecs without header   "zfp" 05   mode   blocks
//! zfpy, imagecodecs            "zfp" 05   type and lengths: 52 bits   mode: 12 or 64 bits   blocks
//! zfp                          blocks
//! ```
//!
//! A stream holds int32, int64, float32 or float64 in one to four dimensions. The registered codec
//! also takes smaller integers, which it shifts up, and unsigned ones, which must fit the signed
//! type. A header decides how its stream is decoded; it may have other lengths than the chunk if
//! the number of elements is the same, as in Zarr 2 with order F. Length: depends on the values,
//! and is a multiple of 8.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/zfp>,
//! <https://numcodecs.readthedocs.io/en/stable/compression/zfpy.html>

mod numbers;

use bytes::Bytes;
use serde_json::Value;
use zfp_rs::{
    ZfpBitStream, ZfpConfig, ZfpDimensionality, ZfpField, ZfpFieldMut, ZfpHeaderMask, ZfpScalar,
    ZfpScalarType, ZfpStreamAlignment,
};

use crate::configuration::{flag, integer};
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use numbers::Coding;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The length of a word of a stream.
const WORD_LEN: usize = 8;

/// The most dimensions of a stream.
const MAX_RANK: usize = 4;

/// A stream of zfp, bound to a shape and a type.
#[derive(Debug)]
struct Zfp<T> {
    name: &'static str,
    coding: Coding<T>,
    count: usize,
    /// The length along each dimension, the fastest one first, and 0 for those that do not exist.
    lengths: [usize; MAX_RANK],
    header: Option<ZfpHeaderMask>,
    /// How to encode, and how to decode without a header.
    config: ZfpConfig,
}

/// The codec before it is bound to numbers.
struct Unbound<'a> {
    name: &'static str,
    elements: &'a ChunkType,
    header: Option<ZfpHeaderMask>,
    config: ZfpConfig,
}

/// Returns the registered codec with this configuration, for chunks of `elements`.
pub fn registered(configuration: &Object, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    let name = "zfp";
    let mode = configuration.get("mode").and_then(Value::as_str).unwrap_or_default();
    let config = match mode {
        "reversible" => ZfpConfig::reversible(),
        "fixed_accuracy" => ZfpConfig::fixed_accuracy(number(name, configuration, "tolerance")?),
        "fixed_precision" => {
            ZfpConfig::fixed_precision(unsigned(name, configuration, "precision")?)
        }
        "fixed_rate" => fixed_rate(name, number(name, configuration, "rate")?, elements)?,
        "expert" => expert(configuration)?,
        _ => {
            let mode = configuration.get("mode").unwrap_or(&Value::Null);
            return Err(Error::unsupported(format!(
                "zfp: mode {mode} is none of reversible, expert, fixed_accuracy, fixed_rate and \
                 fixed_precision"
            )));
        }
    };
    Unbound { name, elements, header: None, config }.bind_all()
}

/// Returns the codec of numcodecs with this configuration, for chunks of `elements`.
pub fn zfpy(configuration: &Object, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    let name = "zfpy";
    let mode = integer(name, configuration, "mode", 4, 0..=5)?;
    let member = |member| match configuration.get(member) {
        None | Some(Value::Null) => Ok(-1.0),
        Some(_) => number(name, configuration, member),
    };
    // Python decides by the mode which parameter counts, and one below zero means no loss.
    let config = match mode {
        2 => Some(member("rate")?).filter(|rate| *rate >= 0.0),
        3 => Some(member("precision")?).filter(|precision| *precision >= 0.0),
        4 => Some(member("tolerance")?).filter(|tolerance| *tolerance >= 0.0),
        _ => None,
    };
    let config = match (mode, config) {
        (_, None) => ZfpConfig::reversible(),
        (2, Some(rate)) => fixed_rate(name, rate, elements)?,
        (3, Some(_)) => ZfpConfig::fixed_precision(unsigned(name, configuration, "precision")?),
        (_, Some(tolerance)) => ZfpConfig::fixed_accuracy(tolerance),
    };
    Unbound { name, elements, header: Some(ZfpHeaderMask::FULL), config }.bind()
}

/// Returns the codec of imagecodecs with this configuration, for chunks of `elements`.
pub fn imagecodecs(configuration: &Object, elements: &ChunkType) -> Result<Box<dyn ArrayToBytes>> {
    let name = "imagecodecs_zfp";
    let level = |default: Option<f64>| match (configuration.get("level"), default) {
        (None | Some(Value::Null), Some(default)) => Ok(default),
        _ => number(name, configuration, "level"),
    };
    let mode = configuration.get("mode").unwrap_or(&Value::Null);
    let word = mode.as_str().map(str::to_ascii_lowercase);
    let config = match (word.as_deref(), mode.as_u64()) {
        (Some("reversible" | "none"), _) | (None, None | Some(0 | 5)) => ZfpConfig::reversible(),
        (Some("fixed_precision"), _) | (_, Some(3)) => {
            level(Some(64.0))?;
            ZfpConfig::fixed_precision(
                u32::try_from(integer(name, configuration, "level", 64, 0..=64)?)
                    .unwrap_or_default(),
            )
        }
        (Some("fixed_rate"), _) | (_, Some(2)) => fixed_rate(name, level(None)?, elements)?,
        (Some("fixed_accuracy"), _) | (_, Some(4)) => ZfpConfig::fixed_accuracy(level(None)?),
        _ => {
            return Err(Error::unsupported(format!(
                "imagecodecs_zfp: mode {mode} is none of REVERSIBLE, FIXED_ACCURACY, FIXED_RATE \
                 and FIXED_PRECISION"
            )));
        }
    };
    let has_none = matches!(configuration.get("header"), Some(Value::Bool(false)));
    if !has_none {
        flag(name, configuration, "header")?;
    }
    let short = ZfpHeaderMask::MAGIC | ZfpHeaderMask::MODE;
    let header = Some(if has_none { short } else { ZfpHeaderMask::FULL });
    Unbound { name, elements, header, config }.bind()
}

/// Returns the number `member`.
fn number(codec: &str, configuration: &Object, member: &str) -> Result<f64> {
    let value = configuration.get(member).unwrap_or(&Value::Null);
    value
        .as_f64()
        .filter(|number| number.is_finite())
        .ok_or_else(|| Error::invalid(format!("{codec}: {member} {value} is not a number")))
}

/// Returns the number `member`, which must be a whole one.
fn unsigned(codec: &str, configuration: &Object, member: &str) -> Result<u32> {
    number(codec, configuration, member)?;
    let number = integer(codec, configuration, member, 0, 0..=u32::MAX.into())?;
    u32::try_from(number).map_err(|_| Error::invalid(format!("{codec}: {member} is too large")))
}

fn expert(configuration: &Object) -> Result<ZfpConfig> {
    let member = |member| unsigned("zfp", configuration, member);
    let range = i64::from(i32::MIN)..=i32::MAX.into();
    number("zfp", configuration, "minexp")?;
    let exponent = integer("zfp", configuration, "minexp", 0, range)?;
    let exponent = i32::try_from(exponent).unwrap_or_default();
    ZfpConfig::expert(member("minbits")?, member("maxbits")?, member("maxprec")?, exponent)
        .map_err(|error| Error::invalid(format!("zfp: {error}")))
}

fn fixed_rate(codec: &str, rate: f64, elements: &ChunkType) -> Result<ZfpConfig> {
    let scalar = match elements.dtype {
        DType::Float(8) => ZfpScalarType::F64,
        DType::Float(_) => ZfpScalarType::F32,
        DType::Int(8) | DType::Uint(8) => ZfpScalarType::I64,
        _ => ZfpScalarType::I32,
    };
    let rank = u32::try_from(elements.shape.len().max(1)).unwrap_or(u32::MAX);
    let rank = ZfpDimensionality::try_from(rank).map_err(|_| too_many(codec, elements))?;
    ZfpConfig::fixed_rate(rate, scalar, rank, ZfpStreamAlignment::Unaligned)
        .map_err(|error| Error::invalid(format!("{codec}: rate {rate}: {error}")))
}

fn too_many(codec: &str, elements: &ChunkType) -> Error {
    let rank = elements.shape.len();
    Error::unsupported(format!("{codec}: {rank} dimensions, a stream of zfp has at most 4"))
}

impl Unbound<'_> {
    /// Binds the codec to any numbers that the registered codec takes.
    fn bind_all(self) -> Result<Box<dyn ArrayToBytes>> {
        match self.elements.dtype {
            DType::Int(1) => self.bound(Coding::<i32>::int8()),
            DType::Int(2) => self.bound(Coding::<i32>::int16()),
            DType::Uint(1) => self.bound(Coding::<i32>::uint8()),
            DType::Uint(2) => self.bound(Coding::<i32>::uint16()),
            DType::Uint(4) => self.bound(Coding::<i32>::uint32()),
            DType::Uint(8) => self.bound(Coding::<i64>::uint64()),
            _ => self.bind(),
        }
    }

    /// Binds the codec to the numbers that zfp has.
    fn bind(self) -> Result<Box<dyn ArrayToBytes>> {
        match &self.elements.dtype {
            DType::Int(4) => self.bound(Coding::<i32>::plain()),
            DType::Int(8) => self.bound(Coding::<i64>::plain()),
            DType::Float(4) => self.bound(Coding::<f32>::plain()),
            DType::Float(8) => self.bound(Coding::<f64>::plain()),
            other => {
                let what = format!("{}: {} is not supported", self.name, other.name());
                Err(Error::unsupported(what))
            }
        }
    }

    fn bound<T>(self, coding: Coding<T>) -> Result<Box<dyn ArrayToBytes>>
    where
        T: ZfpScalar + Copy + Default + Send + Sync + std::fmt::Debug + 'static,
    {
        let count = self.elements.count()?;
        let mut lengths = [0; MAX_RANK];
        if self.elements.shape.len() > MAX_RANK {
            return Err(too_many(self.name, self.elements));
        }
        for (target, len) in lengths.iter_mut().zip(self.elements.shape.iter().rev()) {
            *target = len.to_usize();
        }
        if let [first, ..] = &mut lengths
            && self.elements.shape.is_empty()
        {
            *first = 1;
        }
        let Self { name, header, config, .. } = self;
        Ok(Box::new(Zfp { name, coding, count, lengths, header, config }))
    }
}

impl<T: ZfpScalar> Zfp<T> {
    fn corrupt(&self, what: &dyn std::fmt::Display) -> Error {
        Error::corrupt(format!("{}: {what}", self.name))
    }

    fn invalid(&self, what: &dyn std::fmt::Display) -> Error {
        Error::invalid(format!("{}: {what}", self.name))
    }

    /// Reads the header, if there is one, and returns how to decode the blocks and their lengths.
    fn header(&self, stream: &mut ZfpBitStream) -> Result<(ZfpConfig, [usize; MAX_RANK])> {
        let Some(mask) = self.header else { return Ok((self.config, self.lengths)) };
        let header = stream.read_header(mask).map_err(|error| self.corrupt(&error))?;
        let config = header.config.unwrap_or(self.config);
        let Some(metadata) = header.metadata else { return Ok((config, self.lengths)) };
        if metadata.scalar_type != T::SCALAR_TYPE {
            let (found, name) = (metadata.scalar_type, self.name);
            return Err(Error::corrupt(format!(
                "{name}: the stream has elements of {found:?}, the chunk needs {:?}",
                T::SCALAR_TYPE
            )));
        }
        let lengths = metadata.dims.iter().filter(|len| **len > 0);
        let count = lengths.fold(1_u64, |count, len| count.saturating_mul(len.to_u64()));
        if count != self.count.to_u64() {
            let (name, needed) = (self.name, self.count);
            return Err(Error::corrupt(format!(
                "{name}: the stream has {count} elements, the chunk needs {needed}"
            )));
        }
        Ok((config, metadata.dims))
    }

    fn no_memory(&self) -> Error {
        Error::new(Kind::NoMemory, format!("cannot allocate {} numbers", self.count))
    }
}

impl<T> ArrayToBytes for Zfp<T>
where
    T: ZfpScalar + Copy + Default + Send + Sync + std::fmt::Debug,
{
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        let numbers = self.coding.load(&decoded).map_err(|what| self.invalid(&what))?;
        let field = ZfpField::new(&numbers, self.lengths).map_err(|error| self.invalid(&error))?;
        let room = self.config.maximum_size(T::SCALAR_TYPE, self.lengths);
        let room = room.ok_or_else(|| Error::too_large(format!("{}: too long", self.name)))?;
        let mut stream = ZfpBitStream::new(room.saturating_add(3 * WORD_LEN))
            .map_err(|error| self.invalid(&error))?;
        if let Some(mask) = self.header {
            let metadata = field.metadata();
            stream
                .write_header(&self.config, &metadata, mask)
                .map_err(|error| self.invalid(&error))?;
        }
        stream.compress(&self.config, &field).map_err(|error| self.invalid(&error))?;
        Ok(Bytes::copy_from_slice(stream.as_bytes()))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        if !encoded.len().is_multiple_of(WORD_LEN) {
            let what = format!("{} bytes are not a multiple of 8", encoded.len());
            return Err(self.corrupt(&what));
        }
        let mut stream =
            ZfpBitStream::from_bytes(&encoded).map_err(|error| self.invalid(&error))?;
        let (config, lengths) = self.header(&mut stream)?;
        let mut numbers: Vec<T> = Vec::new();
        numbers.try_reserve_exact(self.count).map_err(|_| self.no_memory())?;
        numbers.resize(self.count, T::default());
        let mut field =
            ZfpFieldMut::new(&mut numbers, lengths).map_err(|error| self.corrupt(&error))?;
        let used = stream.decompress(&config, &mut field).map_err(|error| self.corrupt(&error))?;
        if used < encoded.len() {
            let surplus = encoded.len().saturating_sub(used);
            return Err(self.corrupt(&format!("{surplus} bytes follow the stream")));
        }
        let mut decoded = reserve(self.count.saturating_mul(self.coding.len))?;
        self.coding.store(&numbers, &mut decoded);
        Ok(decoded.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }

    fn is_lossy(&self) -> bool {
        self.config != ZfpConfig::reversible()
    }
}

#[cfg(test)]
mod tests;
