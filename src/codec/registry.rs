//! Which codecs there are: canonical names to constructors, and to kinds.

use super::array_to_array::Order;
use super::{BytesToBytes, bytes_to_bytes};
use crate::error::{At, Error, Result};
use crate::metadata::model::CodecSpec;

/// A chain of codecs sorted by kind.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// The permutation of all `transpose` codecs in front, in one.
    pub order: Order,
    /// The array-to-bytes codec; none means `bytes`, little endian.
    pub array_to_bytes: Option<CodecSpec>,
    /// The rest, in order of encoding.
    pub bytes_to_bytes: Vec<CodecSpec>,
}

impl Chain {
    /// Sorts the codecs of an array of `rank` dimensions. One that is not known is an error, unless its
    /// document says that it may be left out.
    pub fn sort(specs: &[CodecSpec], rank: usize) -> Result<Self> {
        let mut chain = Self { order: Order::identity(rank), ..Self::default() };
        for spec in specs {
            let before_bytes = chain.array_to_bytes.is_none() && chain.bytes_to_bytes.is_empty();
            match spec.name.as_str() {
                "transpose" if before_bytes => {
                    chain.order = chain.order.then(&Order::parse(&spec.configuration, rank)?);
                }
                "bytes" | "sharding_indexed" if before_bytes => {
                    chain.array_to_bytes = Some(spec.clone());
                }
                "transpose" | "bytes" | "sharding_indexed" => {
                    return Err(Error::corrupt("a codec of arrays after one that makes bytes")
                        .at(&spec.name));
                }
                name if bytes_to_bytes::build(name, &spec.configuration)?.is_some() => {
                    chain.bytes_to_bytes.push(spec.clone());
                }
                _ if spec.optional => {}
                name => return Err(Error::unsupported(format!("codec {name:?} is not known"))),
            }
        }
        Ok(chain)
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
