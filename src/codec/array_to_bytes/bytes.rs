//! `bytes`: the elements one after another, in one byte order or the other.
//!
//! Length: the same. Byte order turns each component: of a complex number each
//! part, never the pair. Without `endian` (one-byte types, and what zarr-python 3.1
//! wrote for structs) it is little.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/bytes/index.html>

use bytes::Bytes;

use crate::codec::{ArrayToBytes, Buffer};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::metadata::model::Object;

/// The codec, bound to a length.
#[derive(Debug)]
pub struct BytesCodec {
    /// Bytes whose order is turned; 1 turns nothing.
    swap: usize,
    len: usize,
}

impl BytesCodec {
    /// Little endian, which is what decoded chunks are.
    pub fn little(len: usize) -> Self {
        Self { swap: 1, len }
    }

    /// As `configuration` says, for chunks of `len` bytes.
    pub fn new(configuration: &Object, dtype: DType, len: usize) -> Result<Self> {
        let swap = match configuration.get("endian").map(|endian| endian.as_str()) {
            None | Some(Some("little")) => 1,
            Some(Some("big")) => dtype.component_len(),
            Some(_) => return Err(Error::invalid("bytes: endian is neither little nor big")),
        };
        Ok(Self { swap, len })
    }
}

impl ArrayToBytes for BytesCodec {
    fn encode(&self, mut decoded: Buffer) -> Result<Bytes> {
        if self.swap > 1 {
            swap(decoded.to_mut(), self.swap);
        }
        Ok(decoded.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        if encoded.len() != self.len {
            return Err(Error::corrupt(format!(
                "{} bytes decoded, the chunk needs {}",
                encoded.len(),
                self.len
            )));
        }
        let mut decoded = Buffer::from(encoded);
        if self.swap > 1 {
            swap(decoded.to_mut(), self.swap);
        }
        Ok(decoded)
    }

    fn encoded_len(&self) -> Option<u64> {
        u64::try_from(self.len).ok()
    }
}

/// Turns the bytes of each component round.
fn swap(bytes: &mut [u8], component_len: usize) {
    match component_len {
        2 => swap_exact::<2>(bytes),
        4 => swap_exact::<4>(bytes),
        8 => swap_exact::<8>(bytes),
        other => bytes.chunks_exact_mut(other.max(1)).for_each(<[u8]>::reverse),
    }
}

fn swap_exact<const N: usize>(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|component| component.reverse());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_complex_number_is_turned_alone() {
        let configuration = serde_json::from_str(r#"{"endian": "big"}"#).expect("an object");
        let codec = BytesCodec::new(&configuration, DType::Complex(8), 8).expect("bound");
        let decoded = codec.decode(Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8])).expect("decoded");
        assert_eq!(*decoded, [4, 3, 2, 1, 8, 7, 6, 5]);
    }
}
