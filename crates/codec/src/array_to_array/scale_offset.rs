//! `scale_offset` {offset?, scale?}: `(x - offset) * scale` in the arithmetic of the type; decoded
//! to `y / scale + offset`.
//!
//! An intermediate result that the type cannot represent is an error: an integer overflow, a
//! quotient that is not an integer, or a finite number that becomes infinite. Length: the same.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/scale_offset>

use crate::dtype::{DType, FillValue};
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{ExactNumber, NumberFormat};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to a type.
#[derive(Debug)]
pub struct ScaleOffset {
    format: NumberFormat,
    offset: Option<ExactNumber>,
    scale: Option<ExactNumber>,
}

impl ScaleOffset {
    /// Returns the codec with this configuration, `None` if it would change nothing.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Option<Self>> {
        if let Some(other) =
            configuration.keys().find(|name| !matches!(name.as_str(), "offset" | "scale"))
        {
            return Err(Error::invalid(format!("scale_offset: {other:?} is not known")));
        }
        let format = match &elements.dtype {
            DType::Int(len) => NumberFormat::Int(*len),
            DType::Uint(len) => NumberFormat::Uint(*len),
            DType::Float(len) => NumberFormat::Float(*len),
            other => {
                let what = format!("scale_offset: no arithmetic for {}", other.name());
                return Err(Error::unsupported(what));
            }
        };
        let number = |member: &str, neutral: i128| -> Result<Option<ExactNumber>> {
            let Some(value) = configuration.get(member) else { return Ok(None) };
            let fill = FillValue::parse(value, &elements.dtype).map_err(|_| {
                Error::invalid(format!(
                    "scale_offset: {member} {value} is not a valid {}",
                    elements.dtype.name()
                ))
            })?;
            let number = format.load(&fill.item(&elements.dtype));
            Ok(Some(number).filter(|number| *number != format.cast(ExactNumber::Int(neutral))))
        };
        let (offset, scale) = (number("offset", 0)?, number("scale", 1)?);
        let changes = offset.is_some() || scale.is_some();
        Ok(changes.then_some(Self { format, offset, scale }))
    }

    /// Returns the result of an operation, or an error if the type cannot represent it.
    fn representable(&self, result: Option<ExactNumber>, x: ExactNumber) -> Result<ExactNumber> {
        let fits = |result: &ExactNumber| match (result, self.format.range()) {
            (ExactNumber::Int(int), Some((least, most))) => (least..=most).contains(int),
            (ExactNumber::Float(float), _) => float.is_finite() || !x.to_float().is_finite(),
            (ExactNumber::Int(_), None) => false,
        };
        let result = result.map(|result| match result {
            ExactNumber::Float(_) => self.format.cast(result),
            ExactNumber::Int(_) => result,
        });
        result.filter(fits).ok_or_else(|| {
            Error::invalid(format!("scale_offset: {x:?} cannot be represented in its type"))
        })
    }
}

impl ArrayToArray for ScaleOffset {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        self.format.try_map(self.format, &decoded, |x| {
            let shifted = match (x, self.offset) {
                (ExactNumber::Int(x), Some(ExactNumber::Int(offset))) => {
                    x.checked_sub(offset).map(ExactNumber::Int)
                }
                (x, Some(offset)) => Some(ExactNumber::Float(x.to_float() - offset.to_float())),
                (x, None) => Some(x),
            };
            let shifted = self.representable(shifted, x)?;
            let scaled = match (shifted, self.scale) {
                (ExactNumber::Int(y), Some(ExactNumber::Int(scale))) => {
                    y.checked_mul(scale).map(ExactNumber::Int)
                }
                (y, Some(scale)) => Some(ExactNumber::Float(y.to_float() * scale.to_float())),
                (y, None) => Some(y),
            };
            self.representable(scaled, x)
        })
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        self.format.try_map(self.format, &encoded, |y| {
            let divided = match (y, self.scale) {
                (ExactNumber::Int(y), Some(ExactNumber::Int(scale))) => {
                    let is_whole = y.checked_rem(scale) == Some(0);
                    y.checked_div(scale).filter(|_| is_whole).map(ExactNumber::Int)
                }
                (y, Some(scale)) => Some(ExactNumber::Float(y.to_float() / scale.to_float())),
                (y, None) => Some(y),
            };
            let divided = self.representable(divided, y)?;
            let shifted = match (divided, self.offset) {
                (ExactNumber::Int(x), Some(ExactNumber::Int(offset))) => {
                    x.checked_add(offset).map(ExactNumber::Int)
                }
                (x, Some(offset)) => Some(ExactNumber::Float(x.to_float() + offset.to_float())),
                (x, None) => Some(x),
            };
            self.representable(shifted, y)
        })
    }

    fn is_lossy(&self) -> bool {
        self.format.is_float()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn bound(configuration: &Value, dtype: DType) -> Option<ScaleOffset> {
        let elements = ChunkType { shape: vec![1], dtype };
        ScaleOffset::new(configuration.as_object().unwrap(), &elements).unwrap()
    }

    #[test]
    fn integers_stay_integers_or_are_refused() {
        let codec = bound(&json!({"offset": 1000, "scale": 2}), DType::Int(2)).unwrap();
        let encoded = codec.encode(1003_i16.to_le_bytes().to_vec().into()).unwrap();
        assert_eq!(*encoded, 6_i16.to_le_bytes());
        assert_eq!(*codec.decode(encoded).unwrap(), 1003_i16.to_le_bytes());
        assert!(codec.encode(i16::MIN.to_le_bytes().to_vec().into()).is_err());
        assert!(codec.encode(i16::MAX.to_le_bytes().to_vec().into()).is_err());
        assert!(codec.decode(7_i16.to_le_bytes().to_vec().into()).is_err());
        assert!(!codec.is_lossy());
        let never = bound(&json!({"scale": 0}), DType::Uint(1)).unwrap();
        assert!(never.decode(vec![1].into()).is_err());
    }

    #[test]
    fn floats_are_computed_in_their_own_type() {
        let codec = bound(&json!({"offset": 5, "scale": 0.1}), DType::Float(4)).unwrap();
        let encoded = codec.encode(8.3_f32.to_le_bytes().to_vec().into()).unwrap();
        assert_eq!(*encoded, ((8.3_f32 - 5.0) * 0.1).to_le_bytes());
        let decoded = codec.decode(encoded).unwrap();
        assert_eq!(*decoded, ((8.3_f32 - 5.0) * 0.1 / 0.1 + 5.0).to_le_bytes());
        assert!(codec.encode(f32::NAN.to_le_bytes().to_vec().into()).is_ok());
        assert!(codec.decode(f32::MAX.to_le_bytes().to_vec().into()).is_err());
    }

    #[test]
    fn an_identity_becomes_no_codec() {
        assert!(bound(&json!({}), DType::Int(4)).is_none());
        assert!(bound(&json!({"offset": 0, "scale": 1.0}), DType::Float(8)).is_none());
        let elements = ChunkType { shape: vec![1], dtype: DType::Uint(1) };
        for wrong in [json!({"offset": -1}), json!({"scale": 1.5}), json!({"astype": "int8"})] {
            assert!(ScaleOffset::new(wrong.as_object().unwrap(), &elements).is_err(), "{wrong}");
        }
    }
}
