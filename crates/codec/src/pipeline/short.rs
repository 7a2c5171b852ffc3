//! `short_chunk` {shape, codecs}: chunks that may end earlier along one dimension.
//!
//! The last strip of a TIFF has only the rows that are left, and Zarr pads it to a whole chunk.
//! `codecs` are those of a whole chunk, and also those of a chunk of `shape`, which is shorter
//! along one dimension. A chunk that is not a whole one is decoded as a short one, and zeros fill
//! the rest. Chunks of any other length are damaged. Not a name of Zarr: only the references to
//! parts of other files have it.

use bytes::Bytes;
use serde_json::Value;

use super::Pipeline;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use crate::registry::{CodecChain, holds_chunks};
use crate::spec::CodecSpec;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The name of the codec.
pub(super) const NAME: &str = "short_chunk";

/// The codec, bound to a shape.
#[derive(Debug)]
pub struct ShortChunk {
    whole: Pipeline,
    short: Pipeline,
    /// The bytes from one place along the dimensions before the shorter one to the next.
    whole_len: usize,
    short_len: usize,
    /// The bytes of all elements.
    len: usize,
}

impl ShortChunk {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(configuration: &Object, elements: &ChunkType, limit: usize) -> Result<Self> {
        let list = configuration.get("codecs").and_then(Value::as_array);
        let list = list.ok_or_else(|| wrong("codecs is not a list"))?;
        let specs: Vec<_> = list.iter().map(CodecSpec::from_json).collect::<Result<_>>()?;
        if specs.iter().any(holds_chunks) {
            return Err(wrong("a codec in its list holds chunks itself"));
        }
        let shape = configuration.get("shape").and_then(Value::as_array);
        let shape = shape.and_then(|lens| lens.iter().map(Value::as_u64).collect());
        let shape: Vec<u64> = shape.ok_or_else(|| wrong("shape is not a list of lengths"))?;
        let lens = shape.iter().zip(&elements.shape);
        let differing: Vec<usize> =
            lens.enumerate().filter(|(_, (short, len))| short != len).map(|(at, _)| at).collect();
        let is_shorter =
            shape.iter().zip(&elements.shape).all(|(short, len)| short <= len && *short > 0);
        let (&[at], true) =
            (differing.as_slice(), is_shorter && shape.len() == elements.shape.len())
        else {
            return Err(wrong("shape is not shorter than a chunk along one dimension"));
        };
        let len = elements.byte_len()?.ok_or_else(|| wrong("elements of variable length"))?;
        let item_len = elements.dtype.item_len();
        let run = |shape: &[u64]| {
            let inner = shape.get(at..).unwrap_or_default();
            inner.iter().fold(item_len, |len, n| len.saturating_mul(n.to_usize()))
        };
        let (whole_len, short_len) = (run(&elements.shape), run(&shape));
        let chain = CodecChain::sort(&specs)?;
        let bind = |shape: &[u64]| {
            let elements = ChunkType { shape: shape.to_vec(), dtype: elements.dtype.clone() };
            Pipeline::bind(&chain, &[], &elements, limit.to_u64())
        };
        let (whole, short) = (bind(&elements.shape)?, bind(&shape)?);
        Ok(Self { whole, short, whole_len, short_len, len })
    }

    /// Returns the elements of a short chunk, with zeros after them.
    fn padded(&self, short: &[u8]) -> Result<Buffer> {
        let mut padded = reserve(self.len)?;
        for run in short.chunks(self.short_len.max(1)) {
            padded.extend_from_slice(run);
            padded.resize(padded.len().saturating_add(self.whole_len - self.short_len), 0);
        }
        Ok(padded.into())
    }
}

fn wrong(why: &str) -> Error {
    Error::corrupt(format!("{NAME}: {why}"))
}

impl ArrayToBytes for ShortChunk {
    fn encode(&self, _decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Err(Error::unsupported(format!("{NAME}: zarrfs reads such chunks and writes none")))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        match self.whole.decode(encoded.clone()) {
            Ok(decoded) => Ok(decoded),
            // The error of a damaged chunk is that of a whole one.
            Err(error) => match self.short.decode(encoded) {
                Ok(short) => self.padded(&short),
                Err(_) => Err(error),
            },
        }
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }

    fn is_lossy(&self) -> bool {
        self.whole.is_lossy()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dtype::DType;
    use zarrfs_base::error::Kind;

    fn bound(shape: &[u64], short: &[u64], codecs: Value) -> Result<ShortChunk> {
        let configuration = json!({"shape": short, "codecs": codecs});
        let elements = ChunkType { shape: shape.to_vec(), dtype: DType::Uint(1) };
        ShortChunk::new(configuration.as_object().expect("an object"), &elements, 1 << 20)
    }

    #[test]
    fn a_short_chunk_is_followed_by_zeros() {
        let codec = bound(&[2, 3, 2], &[2, 1, 2], json!(["bytes"])).unwrap();
        let whole: Vec<u8> = (1..=12).collect();
        assert_eq!(*codec.decode(whole.clone().into()).unwrap(), whole);
        let padded = codec.decode(vec![1, 2, 3, 4].into()).unwrap();
        assert_eq!(*padded, [1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0]);
        assert_eq!(codec.decode(vec![1; 8].into()).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn its_codecs_know_the_shorter_shape() {
        let codecs = json!([
            {"name": "transpose", "configuration": {"order": [1, 0]}}, "imagecodecs_delta", "bytes",
            "imagecodecs_packbits"
        ]);
        let codec = bound(&[2, 3], &[2, 2], codecs).unwrap();
        // Of the rows (1, 2) and (3, 4) the columns are stored, as differences.
        let padded = codec.decode(vec![3, 1, 2, 2, 2].into()).unwrap();
        assert_eq!(*padded, [1, 2, 0, 3, 4, 0]);
    }

    #[test]
    fn a_configuration_without_meaning_is_refused() {
        for (short, codecs) in [
            (json!([2, 3]), json!(["bytes"])),
            (json!([1, 1]), json!(["bytes"])),
            (json!([3, 3]), json!(["bytes"])),
            (json!([0, 3]), json!(["bytes"])),
            (json!([1]), json!(["bytes"])),
            (json!([1, 3]), json!([{"name": "short_chunk"}])),
            (json!([1, 3]), json!("bytes")),
        ] {
            let configuration = json!({"shape": short, "codecs": codecs});
            let elements = ChunkType { shape: vec![2, 3], dtype: DType::Uint(1) };
            let built = ShortChunk::new(configuration.as_object().unwrap(), &elements, 1 << 20);
            assert_eq!(built.unwrap_err().kind(), Kind::Corrupt, "{configuration}");
        }
    }
}
