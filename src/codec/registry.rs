//! Which codecs there are: canonical names to constructors, and to kinds.

use super::array_to_array::{self, Order};
use super::{BytesToBytes, array_to_bytes, bytes_to_bytes};
use crate::error::{At, Error, Result};
use crate::metadata::model::CodecSpec;

/// A chain of codecs sorted by kind.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// From array to array, in order of encoding.
    pub array_to_array: Vec<CodecSpec>,
    /// The array-to-bytes codec; none means `bytes`, little endian.
    pub array_to_bytes: Option<CodecSpec>,
    /// The rest, in order of encoding.
    pub bytes_to_bytes: Vec<CodecSpec>,
}

impl Chain {
    /// Sorts codecs. One that is not known is an error, unless its document says that it may be left out.
    pub fn sort(specs: &[CodecSpec]) -> Result<Self> {
        let mut chain = Self::default();
        for spec in specs {
            let name = spec.name.as_str();
            let is_of_arrays = array_to_array::is_known(name);
            let makes_bytes = array_to_bytes::is_known(name) || name == "sharding_indexed";
            let before_bytes = chain.array_to_bytes.is_none() && chain.bytes_to_bytes.is_empty();
            if (is_of_arrays || makes_bytes) && !before_bytes {
                return Err(
                    Error::corrupt("a codec of arrays after one that makes bytes").at(&spec.name)
                );
            } else if is_of_arrays {
                chain.array_to_array.push(spec.clone());
            } else if makes_bytes {
                chain.array_to_bytes = Some(spec.clone());
            } else if bytes_to_bytes::build(name, &spec.configuration)?.is_some() {
                chain.bytes_to_bytes.push(spec.clone());
            } else if !spec.optional {
                return Err(Error::unsupported(format!("codec {name:?} is not known")));
            }
        }
        Ok(chain)
    }

    /// The permutation of the `transpose` codecs of an array of `rank` dimensions, in one; none where
    /// something else than a permutation moves elements.
    pub fn order(&self, rank: usize) -> Result<Option<Order>> {
        let mut order = Order::identity(rank);
        for spec in &self.array_to_array {
            if spec.name == "transpose" {
                order = order.then(&Order::parse(&spec.configuration, rank)?);
            } else if !array_to_array::is_of_each_element(&spec.name) {
                return Ok(None);
            }
        }
        Ok(Some(order))
    }
}

/// Builds bytes-to-bytes codecs, in order of encoding.
pub fn bytes_to_bytes(specs: &[CodecSpec]) -> Result<Vec<Box<dyn BytesToBytes>>> {
    let build = |spec: &CodecSpec| {
        let built = bytes_to_bytes::build(&spec.name, &spec.configuration)?;
        built.ok_or_else(|| Error::unsupported(format!("codec {:?} is not known", spec.name)))
    };
    specs.iter().map(build).collect()
}
