//! The elements that bytes are, for the codecs of imagecodecs that know them.
//!
//! In Zarr 2, the configuration of such a codec has `shape` and `dtype`, because it gets bytes to
//! decode. In Zarr 3 the chunk decides.

use serde_json::Value;

use crate::configuration::{self, integer};
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The shape and the type of elements, with their byte order.
#[derive(Debug)]
pub struct Items {
    /// `None` if all bytes are one row.
    shape: Option<Vec<u64>>,
    /// The type of an element.
    pub dtype: DType,
    /// Whether the most significant byte of an element is the first one.
    pub is_big: bool,
}

/// How the elements lie along one axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// The number of elements from the first to the last along the axis; `None` means all.
    pub row: Option<usize>,
    /// The distance of neighbours along the axis, in elements.
    pub step: usize,
}

impl Items {
    /// Returns the elements of a chunk, which are little endian between codecs.
    pub fn of(elements: &ChunkType) -> Self {
        let shape = Some(elements.shape.clone());
        Self { shape, dtype: elements.dtype.clone(), is_big: false }
    }

    /// Returns the elements that a configuration of Zarr 2 names: bytes if it names none.
    pub fn parse(codec: &str, configuration: &Object) -> Result<Self> {
        let shape = match configuration.get("shape") {
            None | Some(Value::Null) => None,
            Some(shape) => {
                let lens =
                    shape.as_array().and_then(|lens| lens.iter().map(Value::as_u64).collect());
                let lens: Option<Vec<u64>> = lens;
                Some(lens.ok_or_else(|| {
                    Error::invalid(format!("{codec}: shape {shape} is not a list of lengths"))
                })?)
            }
        };
        let named = configuration::dtype(codec, configuration, "dtype")?;
        let (dtype, is_big) = match named {
            Some(named) => (named.dtype, named.is_big),
            None => (DType::Uint(1), false),
        };
        let items = Self { shape, dtype, is_big };
        if items.dtype.is_variable() {
            return Err(Error::unsupported(format!("{codec}: elements of variable length")));
        }
        Ok(items)
    }

    /// Returns the length of an element in bytes.
    pub fn item_len(&self) -> usize {
        self.dtype.item_len().max(1)
    }

    /// Returns an error unless `bytes` have the length of the elements.
    pub(super) fn check(&self, codec: &str, bytes: &[u8]) -> Result<()> {
        let count = match &self.shape {
            Some(shape) => shape.iter().try_fold(1_u64, |count, len| count.checked_mul(*len)),
            None => Some((bytes.len() / self.item_len()).to_u64()),
        };
        let needed = count.and_then(|count| count.checked_mul(self.item_len().to_u64()));
        if needed == Some(bytes.len().to_u64()) {
            return Ok(());
        }
        let (len, item) = (bytes.len(), self.dtype.name());
        Err(match &self.shape {
            Some(shape) => Error::corrupt(format!(
                "{codec}: {len} bytes are not elements of {item} in the shape {shape:?}"
            )),
            None => Error::corrupt(format!("{codec}: {len} bytes are not elements of {item}")),
        })
    }

    /// Returns how elements lie along the axis that the configuration names, by default the last.
    pub(super) fn axis(&self, codec: &str, configuration: &Object) -> Result<Axis> {
        let shape = self.shape.as_deref();
        let rank = shape.map_or(1, |shape| shape.len().max(1)).to_u64();
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        let axis = integer(codec, configuration, "axis", -1, -rank..=rank.saturating_sub(1))?;
        let axis = usize::try_from(axis.rem_euclid(rank)).unwrap_or_default();
        let product =
            |lens: &[u64]| lens.iter().fold(1_usize, |n, len| n.saturating_mul(len.to_usize()));
        let Some(shape) = shape else { return Ok(Axis { row: None, step: 1 }) };
        let row = product(shape.get(axis..).unwrap_or_default());
        let step = product(shape.get(axis.saturating_add(1)..).unwrap_or_default());
        Ok(Axis { row: Some(row.max(1)), step: step.max(1) })
    }
}
