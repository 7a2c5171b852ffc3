//! `numcodecs.grib` {`var`, `dtype`?} and `gribberish` {`var`?, `dtype`?}: a field of a GRIB
//! message.
//!
//! References of kerchunk name these codecs. Each chunk is a message in a GRIB file. kerchunk's
//! codec returns the doubles that ecCodes computes, cast to `dtype`, with NaN for missing values,
//! in the order of the message. The last bit of a double depends on the order of operations, so
//! this codec follows ecCodes, and gribberish for its codec ([`scale`]). If `var` is `latitude`
//! or `longitude`, the elements are those of the points of the grid ([`places`]).
//!
//! Nothing encodes GRIB. Length: depends on the values.
//!
//! <https://github.com/fsspec/kerchunk/blob/main/kerchunk/codecs.py>,
//! <https://github.com/mpiannucci/gribberish>, <https://codes.ecmwf.int/grib/format/grib2/>
//!
//! The decoder is our own, since no Rust library computes the doubles of ecCodes: the crate
//! `grib` uses single precision. The only well-maintained library for CCSDS compression is written
//! in C.

mod aec;
mod bits;
mod complex;
mod images;
mod message;
mod places;
mod plain;
mod scale;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde_json::Value;

use self::message::Message;
use self::places::Coordinate;
use self::scale::{Powers, Scale};
use crate::configuration;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use crate::number::{ExactNumber, NumberFormat};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Fault, Result};

/// ecCodes returns this value for a missing one, so a value that equals it is missing, too.
const MISSING: f64 = 9999.0;

/// The codec, bound to a length and a type.
#[derive(Debug)]
pub struct Grib {
    count: usize,
    format: NumberFormat,
    powers: Powers,
    /// `None` for the values of the points.
    coordinate: Option<Coordinate>,
}

impl Grib {
    /// Returns kerchunk's codec with this configuration, for chunks of `elements`.
    pub fn kerchunk(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        Self::new("grib", configuration, elements, Powers::Repeated)
    }

    /// Returns gribberish's codec with this configuration, for chunks of `elements`.
    pub fn gribberish(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        Self::new("gribberish", configuration, elements, Powers::Squared)
    }

    fn new(
        codec: &str,
        configuration: &Object,
        elements: &ChunkType,
        powers: Powers,
    ) -> Result<Self> {
        let format = match &elements.dtype {
            DType::Float(len @ (4 | 8)) => NumberFormat::Float(*len),
            other => {
                let what = format!("{codec}: {} is neither float32 nor float64", other.name());
                return Err(Error::unsupported(what));
            }
        };
        let returned = configuration::dtype(codec, configuration, "dtype")?;
        if returned.is_some_and(|returned| returned.dtype != elements.dtype) {
            return Err(Error::unsupported(format!(
                "{codec}: dtype differs from the data type of the array, {}",
                elements.dtype.name()
            )));
        }
        let coordinate = match configuration.get("var").and_then(Value::as_str) {
            Some("latitude") => Some(Coordinate::Latitude),
            Some("longitude") => Some(Coordinate::Longitude),
            Some(_) | None => None,
        };
        if coordinate.is_some() && powers == Powers::Squared {
            return Err(Error::unsupported(
                "gribberish: zarrfs does not compute the points of a grid as gribberish does",
            ));
        }
        Ok(Self { count: elements.count()?, format, powers, coordinate })
    }

    /// Returns the value of each point.
    fn values(&self, message: &Message<'_>) -> Result<Vec<f64>> {
        let (what, count) = match message.bitmap {
            Some(_) => ("points", message.point_count),
            None => ("values", message.value_count),
        };
        // This also limits what the templates allocate.
        if count != self.count || message.value_count > count {
            let needed = self.count;
            let detail = format!("grib: the message has {count} {what}, the chunk needs {needed}");
            return Err(Error::fault(Fault::Length, detail));
        }
        let stored =
            if message.value_count == 0 { Vec::new() } else { stored(message, self.powers)? };
        let Some(bitmap) = message.bitmap else { return Ok(stored) };
        spread(&stored, bitmap, count)
            .ok_or_else(|| Error::corrupt("grib: the bit map does not match the number of values"))
    }
}

/// Returns the stored values.
fn stored(message: &Message<'_>, powers: Powers) -> Result<Vec<f64>> {
    let section = message.representation;
    let template = section.u16(9)?;
    match template {
        4 => return plain::floats(message),
        200 => return plain::runs(message, powers),
        0 | 2 | 3 | 40..=42 => {}
        1 | 50 | 51 | 53 | 61 | 40_000..=65_534 => {
            return Err(Error::unsupported(format!(
                "grib: zarrfs does not read data in template 5.{template}"
            )));
        }
        // Code table 5.0 of the WMO has no such template.
        other => {
            return Err(Error::corrupt(format!("grib: data in template 5.{other}")));
        }
    }
    let scale = Scale::parse(section, powers)?;
    if matches!(template, 2 | 3) {
        return complex::values(message, template, &scale);
    }
    if scale.width == 0 {
        return Ok(vec![scale.constant(); message.value_count]);
    }
    let numbers = match template {
        0 => plain::numbers(message, scale.width)?,
        40 => images::jpeg2000(message)?,
        41 => images::png(message, scale.width)?,
        _ => aec::numbers(section, scale.width, message.data, message.value_count)?,
    };
    Ok(numbers.into_iter().map(|number| scale.value(f64::from(number))).collect())
}

/// Returns the values of all `count` points, NaN where the bit of a point is 0. `None` if there are
/// not enough bits or values.
fn spread(stored: &[f64], bitmap: &[u8], count: usize) -> Option<Vec<f64>> {
    let mut stored = stored.iter();
    let mut bits = bits::Bits::new(bitmap);
    let value = |_| match bits.number(1)? {
        0 => Some(f64::NAN),
        _ => stored.next().copied(),
    };
    (0..count).map(value).collect()
}

impl ArrayToBytes for Grib {
    fn encode(&self, _decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Err(Error::unsupported("grib: zarrfs reads GRIB messages and does not write them"))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let message = Message::parse(&encoded)?;
        let values = match self.coordinate {
            Some(coordinate) => places::coordinates(&message, coordinate, self.count)?,
            None => self.values(&message)?,
        };
        if values.len() != self.count {
            let (len, needed) = (values.len(), self.count);
            let detail = format!("grib: {len} values decoded, the chunk needs {needed}");
            return Err(Error::fault(Fault::Length, detail));
        }
        let mut bytes = reserve(self.count.saturating_mul(self.format.len()))?;
        for value in values {
            let is_missing = self.coordinate.is_none() && value.to_bits() == MISSING.to_bits();
            let value = if is_missing { f64::NAN } else { value };
            self.format.store(ExactNumber::Float(value), &mut bytes);
        }
        Ok(bytes.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}
