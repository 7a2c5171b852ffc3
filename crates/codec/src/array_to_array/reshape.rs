//! `reshape` {shape}: the same elements in C order, in another shape.
//!
//! An entry of `shape` is a length, a list of dimensions whose lengths are multiplied, or -1, at
//! most once, for the rest. Length: the same.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/reshape>

use serde_json::Value;

use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to a shape. It changes only the dimensions, not the bytes.
#[derive(Debug)]
pub struct Reshape {
    encoded_shape: Vec<u64>,
}

impl Reshape {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<(Self, ChunkType)> {
        let entries = configuration.get("shape").and_then(Value::as_array);
        let entries = entries.ok_or_else(|| Error::invalid("reshape: shape is not a list"))?;
        let shape = resolved(entries, &elements.shape).ok_or_else(|| {
            let entries = Value::from(entries.clone());
            Error::invalid(format!("reshape: shape {:?} cannot become {entries}", elements.shape))
        })?;
        let encoded = ChunkType { shape: shape.clone(), dtype: elements.dtype.clone() };
        Ok((Self { encoded_shape: shape }, encoded))
    }
}

fn product(lens: &[u64]) -> Option<u64> {
    lens.iter().try_fold(1_u64, |product, len| product.checked_mul(*len))
}

/// Returns the encoded shape, `None` if the elements do not fit it.
fn resolved(entries: &[Value], decoded: &[u64]) -> Option<Vec<u64>> {
    let mut shape = Vec::with_capacity(entries.len());
    let mut left = None;
    // For each list, its place in the shape, its first dimension, and the one after its last.
    let mut lists = Vec::new();
    let mut next = 0;
    for (place, entry) in entries.iter().enumerate() {
        if let Some(dims) = entry.as_array() {
            let mut len = 1_u64;
            let mut first = None;
            for dim in dims {
                let dim = usize::try_from(dim.as_u64()?).ok().filter(|dim| *dim >= next)?;
                len = len.checked_mul(*decoded.get(dim)?)?;
                first.get_or_insert(dim);
                next = dim + 1;
            }
            lists.extend(first.map(|first| (place, first, next)));
            shape.push(len);
        } else if entry.as_i64() == Some(-1) && left.is_none() {
            left = Some(place);
            shape.push(1);
        } else {
            shape.push(entry.as_u64().filter(|len| *len > 0)?);
        }
    }
    let (count, others) = (product(decoded)?, product(&shape)?);
    if let Some(len) = left.and_then(|place| shape.get_mut(place)) {
        *len = count.checked_div(others)?;
    }
    for (place, first, after) in lists {
        let before = product(shape.get(..place)?)? == product(decoded.get(..first)?)?;
        let behind = product(shape.get(place + 1..)?)? == product(decoded.get(after..)?)?;
        if !(before && behind) {
            return None;
        }
    }
    (product(&shape)? == count).then_some(shape)
}

impl ArrayToArray for Reshape {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        Ok(decoded)
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        Ok(encoded)
    }

    fn encoded_extent(&self, _extent: Vec<u64>) -> Vec<u64> {
        self.encoded_shape.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_a_length_a_list_of_dimensions_or_the_rest() {
        let shaped = |entries: &Value| resolved(entries.as_array().unwrap(), &[10, 5, 4, 3]);
        for (entries, shape) in [
            (json!([[0, 1], [2], 3]), Some(vec![50, 4, 3])),
            (json!([-1]), Some(vec![600])),
            (json!([[0], 20, [3]]), Some(vec![10, 20, 3])),
            (json!([60, -1, 1]), Some(vec![60, 10, 1])),
            (json!([[0, 1, 2, 3]]), Some(vec![600])),
            (json!([7, -1]), None),
            (json!([-1, -1]), None),
            (json!([[1], [0], -1]), None),
            (json!([5, [0], -1]), None),
            (json!([[0, 2], -1]), None),
            (json!([[4], -1]), None),
            (json!([0, -1]), None),
            (json!([599]), None),
            (json!([u64::MAX, 2]), None),
            (json!([]), None),
        ] {
            assert_eq!(shaped(&entries), shape, "{entries}");
        }
        assert_eq!(resolved(&[], &[1, 1]), Some(Vec::new()));
    }
}
