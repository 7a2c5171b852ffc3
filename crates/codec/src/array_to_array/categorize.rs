//! `numcodecs.categorize` {labels, dtype?, astype?}: stores each string as the number of its label,
//! counted from 1, or 0 if it is not a label.
//!
//! 0 is decoded to the empty string. Length: that of the same number of elements of `astype`, `|u1`
//! by default.
//!
//! <https://numcodecs.readthedocs.io/en/stable/filter/categorize.html>

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{ExactNumber, NumberFormat};
use crate::{configuration, texts};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

/// The codec, bound to its types and to a length.
#[derive(Debug)]
pub struct Categorize {
    /// The element for each number, the empty one first. An element of fixed length has no padding
    /// here, because a label of one character may stand for an element of a MiB.
    items: Vec<Arc<[u8]>>,
    /// The number of each label.
    numbers: HashMap<Arc<[u8]>, usize>,
    encoded: NumberFormat,
    count: usize,
    /// The length of a decoded element in bytes, `None` for elements of variable length.
    item_len: Option<usize>,
    /// The most bytes of a decoded chunk whose elements are of variable length.
    limit: usize,
}

impl Categorize {
    /// Returns the codec with this configuration, and the elements that it produces. `limit` is the
    /// most bytes of a decoded chunk whose length does not follow from its shape.
    pub fn new(
        configuration: &Object,
        elements: &ChunkType,
        limit: usize,
    ) -> Result<(Self, ChunkType)> {
        let labels = configuration.get("labels").and_then(Value::as_array);
        let labels: Option<Vec<_>> =
            labels.and_then(|labels| labels.iter().map(Value::as_str).collect());
        let labels = labels.ok_or_else(|| Error::invalid("categorize: labels are not strings"))?;
        let numpy_type = configuration::dtype("categorize", configuration, "astype")?;
        let dtype = numpy_type.map_or(DType::Uint(1), |numpy_type| numpy_type.dtype);
        let encoded = NumberFormat::of(&dtype).filter(|format| {
            let bits = match format {
                NumberFormat::Uint(len) => 8 * u32::from(*len),
                NumberFormat::Int(len) => 8 * u32::from(*len) - 1,
                NumberFormat::Bool | NumberFormat::Float(_) => 0,
            };
            u64::try_from(labels.len()).is_ok_and(|count| count <= u64::MAX >> (64 - bits.max(1)))
        });
        let encoded = encoded.ok_or_else(|| {
            let count = labels.len();
            Error::unsupported(format!(
                "categorize: {} has too few values for {count} labels",
                dtype.name()
            ))
        })?;
        let item_len = match elements.dtype {
            DType::Utf32(_) => Some(elements.dtype.item_len()),
            DType::String => None,
            _ => {
                let name = elements.dtype.name();
                return Err(Error::unsupported(format!("categorize: {name} is not a string type")));
            }
        };
        let item = |label: &str| -> Arc<[u8]> {
            let Some(len) = item_len else { return label.as_bytes().into() };
            let points = label.chars().flat_map(|c| u32::from(c).to_le_bytes());
            unpadded(&points.take(len).collect::<Vec<u8>>()).into()
        };
        let items: Vec<_> = [""].iter().chain(&labels).map(|label| item(label)).collect();
        let numbered = items.iter().enumerate().skip(1);
        let numbers = numbered.map(|(number, item)| (Arc::clone(item), number)).collect();
        let shape = elements.shape.clone();
        let codec = Self { items, numbers, encoded, count: elements.count()?, item_len, limit };
        Ok((codec, ChunkType { shape, dtype }))
    }
}

/// Returns an element of fixed length without the zeros at its end.
fn unpadded(item: &[u8]) -> &[u8] {
    let len = item.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    item.get(..len).unwrap_or(item)
}

impl ArrayToArray for Categorize {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        let store = |items: &mut dyn Iterator<Item = &[u8]>| -> Result<Buffer> {
            let mut target = reserve(self.count.saturating_mul(self.encoded.len()))?;
            for item in items {
                let number = self.numbers.get(item).copied().unwrap_or_default();
                let number = i128::try_from(number).unwrap_or_default();
                self.encoded.store(ExactNumber::Int(number), &mut target);
            }
            Ok(target.into())
        };
        match self.item_len {
            Some(len) => store(&mut decoded.chunks_exact(len.max(1)).map(unpadded)),
            None => store(&mut texts::items(&decoded, self.count)?.all()),
        }
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        let empty: &[u8] = self.items.first().map(AsRef::as_ref).unwrap_or_default();
        let label = |item: &[u8]| {
            let number = match self.encoded.load(item) {
                ExactNumber::Int(number) => usize::try_from(number).ok(),
                ExactNumber::Float(_) => None,
            };
            number.and_then(|number| self.items.get(number)).map_or(empty, AsRef::as_ref)
        };
        let labels = encoded.chunks_exact(self.encoded.len()).map(label);
        let Some(item_len) = self.item_len else {
            let mut target = texts::TextWriter::new(labels.len(), self.limit)?;
            for label in labels {
                target.push(label)?;
            }
            return Ok(target.into_chunk().into());
        };
        let mut target = reserve(labels.len().saturating_mul(item_len))?;
        for label in labels {
            let end = target.len().saturating_add(item_len);
            target.extend_from_slice(label);
            target.resize(end, 0);
        }
        Ok(target.into())
    }

    fn is_lossy(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use zarrfs_base::error::Kind;

    fn codec(labels: &[&str], dtype: DType) -> Categorize {
        let configuration = json!({"labels": labels, "dtype": "|O", "astype": "<u2"});
        let elements = ChunkType { shape: vec![3], dtype };
        Categorize::new(configuration.as_object().unwrap(), &elements, 100).unwrap().0
    }

    #[test]
    fn a_label_takes_no_more_memory_than_its_own_characters() {
        let labels: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let len = 1 << 20;
        let codec = codec(&labels, DType::Utf32(1 << 18));
        let kept: usize = codec.items.iter().map(|item| item.len()).sum();
        assert!(kept < 32_000, "{kept} bytes");
        let decoded = codec.decode(vec![2, 0, 0, 0, 0xd0, 7].into()).unwrap();
        let item = |text: &str| {
            let mut item: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
            item.resize(len, 0);
            item
        };
        assert!(*decoded == *[item("1"), item(""), item("1999")].concat());
        assert_eq!(*codec.encode(decoded).unwrap(), [2, 0, 0, 0, 0xd0, 7]);
    }

    #[test]
    fn strings_stay_within_the_limit_of_a_chunk() {
        let (short, long) = ("x".repeat(28), "x".repeat(29));
        let codec = codec(&[&short, &long, ""], DType::String);
        assert_eq!(codec.decode(vec![1, 0, 1, 0, 1, 0].into()).unwrap().len(), 100);
        let error = codec.decode(vec![1, 0, 2, 0, 1, 0].into()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge);
        assert_eq!(
            error.detail(),
            "the strings of a chunk have more than 100 bytes, the limit (--max-chunk-size)"
        );
        let many = codec.decode([3, 0].repeat(25).into());
        assert_eq!(many.unwrap_err().kind(), Kind::TooLarge, "the lengths count, too");
    }

    #[test]
    fn a_label_longer_than_an_element_is_cut() {
        let codec = codec(&["w\u{e4}rm", "\u{100}", "c\0"], DType::Utf32(3));
        let decoded = codec.decode(vec![1, 0, 2, 0, 3, 0].into()).unwrap();
        let points = [[0x77, 0xe4, 0x72], [0x100, 0, 0], [0x63, 0, 0]];
        let bytes: Vec<u8> = points.concat().iter().flat_map(|c: &u32| c.to_le_bytes()).collect();
        assert_eq!(*decoded, *bytes);
        assert_eq!(*codec.encode(decoded).unwrap(), [1, 0, 2, 0, 3, 0]);
    }
}
