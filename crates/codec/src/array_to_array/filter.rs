//! Code that the filters of numcodecs share: the types on both sides, spelled as in NumPy.

use crate::configuration;
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::number::NumberFormat;
use crate::spec::CodecSpec;
use zarrfs_base::error::{Error, Result};

/// The types that a filter converts between.
#[derive(Debug)]
pub(super) struct Sides {
    /// The format of decoded elements.
    pub decoded: NumberFormat,
    /// The format of encoded elements.
    pub encoded: NumberFormat,
    /// The type of the encoded elements.
    encoded_dtype: DType,
}

impl Sides {
    /// Returns the types that `configuration` names. `dtype` defaults to the type of the elements,
    /// and `astype` to `dtype`.
    pub fn parse(codec: &str, configuration: &Object, elements: &ChunkType) -> Result<Self> {
        Self::named(codec, configuration, elements, ["dtype", "astype"])
    }

    /// Like [`Self::parse`], with other names for the members.
    pub fn named(
        codec: &str,
        configuration: &Object,
        elements: &ChunkType,
        [decoded, encoded]: [&str; 2],
    ) -> Result<Self> {
        let numpy_type = |member| configuration::dtype(codec, configuration, member);
        let decoded =
            numpy_type(decoded)?.map_or_else(|| elements.dtype.clone(), |type_| type_.dtype);
        let encoded = numpy_type(encoded)?.map_or_else(|| decoded.clone(), |type_| type_.dtype);
        if decoded.item_len() != elements.dtype.item_len() {
            return Err(Error::invalid(format!(
                "{codec}: {} and {} differ in size",
                decoded.name(),
                elements.dtype.name()
            )));
        }
        let format = |dtype: &DType| {
            NumberFormat::of(dtype).ok_or_else(|| {
                Error::unsupported(format!("{codec}: {} is not a real number type", dtype.name()))
            })
        };
        Ok(Self { decoded: format(&decoded)?, encoded: format(&encoded)?, encoded_dtype: encoded })
    }

    /// Returns the encoded elements for decoded `elements`.
    pub fn encoded_elements(&self, elements: &ChunkType) -> ChunkType {
        ChunkType { shape: elements.shape.clone(), dtype: self.encoded_dtype.clone() }
    }
}

/// Whether the codec of `spec` produces elements in big endian order, `None` if its configuration
/// names no type. Between codecs elements are little endian, so
/// [`BigEndian`](super::BigEndian) follows the last codec if that one returns true.
pub fn makes_big(spec: &CodecSpec) -> Result<Option<bool>> {
    let members: &[&str] = match spec.name.as_str() {
        "numcodecs.delta" | "numcodecs.fixedscaleoffset" | "numcodecs.quantize" => {
            &["astype", "dtype"]
        }
        "numcodecs.categorize" => &["astype"],
        "numcodecs.astype" => &["encode_dtype"],
        _ => return Ok(None),
    };
    for member in members {
        if let Some(numpy_type) = configuration::dtype(spec.written(), &spec.configuration, member)?
        {
            return Ok(Some(numpy_type.is_big));
        }
    }
    Ok(None)
}
