//! `vlen-utf8` and `vlen-bytes`: elements that differ in length.
//!
//! The encoded form is the decoded one, see [`vlen`](crate::vlen). The codec checks it in
//! both directions.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/vlen-utf8>

use bytes::Bytes;

use crate::elements::ChunkType;
use crate::kinds::ArrayToBytes;
use crate::vlen::DecodedVlen;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to a number of elements.
#[derive(Debug)]
pub struct Vlen {
    form: DecodedVlen,
    limit: usize,
}

impl Vlen {
    /// Returns the codec with this name, for chunks of `elements` with at most `limit` bytes.
    pub fn new(name: &str, elements: &ChunkType, limit: usize) -> Result<Self> {
        let form = DecodedVlen::new(elements)?;
        if form.name() != name {
            return Err(Error::unsupported(format!(
                "{name}: cannot encode {}",
                elements.dtype.name()
            )));
        }
        Ok(Self { form, limit })
    }
}

impl ArrayToBytes for Vlen {
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        self.form.check(&decoded).map_err(Error::invalid)?;
        Ok(decoded.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        if encoded.len() > self.limit {
            return Err(Error::too_large(format!(
                "the chunk has {} bytes, the limit is {} (--max-chunk-size)",
                encoded.len(),
                self.limit
            )));
        }
        self.form.check(&encoded).map_err(Error::corrupt)?;
        Ok(encoded.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::DType;
    use crate::vlen::elements;
    use zarrfs_base::error::Kind;

    fn codec(dtype: DType, shape: &[u64]) -> Vlen {
        let elements = ChunkType { shape: shape.to_vec(), dtype };
        let name = DecodedVlen::new(&elements).expect("a form").name();
        Vlen::new(name, &elements, 1000).expect("bound")
    }

    /// Section 6.5 of the dialects: `a`, `é` and nothing.
    const THREE: &[u8] = b"\x03\0\0\0\x01\0\0\0a\x02\0\0\0\xc3\xa9\0\0\0\0";

    #[test]
    fn a_chunk_is_the_same_before_and_after() {
        let codec = codec(DType::String, &[3, 1]);
        let decoded = codec.decode(Bytes::from_static(THREE)).expect("decoded");
        assert_eq!(*decoded, *THREE);
        assert_eq!(codec.encode(decoded, &[3, 1]).expect("encoded"), THREE);
        assert_eq!(elements(THREE).map(|one| one.len() - 4).collect::<Vec<_>>(), [1, 2, 0]);
    }

    #[test]
    fn bytes_that_are_no_chunk_are_damage_when_read_and_refused_when_written() {
        let text = codec(DType::String, &[3]);
        let cases: [(&[u8], &str); 7] = [
            (b"", "vlen-utf8: 0 bytes, the element count needs 4"),
            (b"\x03\0\0", "vlen-utf8: 3 bytes, the element count needs 4"),
            (b"\x02\0\0\0\0\0\0\0\0\0\0\0", "vlen-utf8: 2 elements declared, the chunk has 3"),
            (&THREE[..17], "vlen-utf8: truncated in element 2 of 3: only 2 bytes left"),
            (&THREE[..14], "vlen-utf8: truncated in element 1 of 3: only 5 bytes left"),
            (
                b"\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0!!",
                "vlen-utf8: 2 bytes follow the last of 3 elements",
            ),
            (b"\x03\0\0\0\0\0\0\0\x01\0\0\0\xff\0\0\0\0", "vlen-utf8: element 1 is not UTF-8"),
        ];
        for (bytes, detail) in cases {
            let read = text.decode(Bytes::copy_from_slice(bytes)).expect_err(detail);
            assert_eq!((read.kind(), read.detail()), (Kind::Corrupt, detail));
            let written = text.encode(bytes.to_vec().into(), &[3]).expect_err(detail);
            assert_eq!((written.kind(), written.detail()), (Kind::Invalid, detail));
        }
        let bytes = codec(DType::VariableBytes, &[3]);
        let any = Bytes::from_static(b"\x03\0\0\0\0\0\0\0\x01\0\0\0\xff\0\0\0\0");
        assert!(bytes.decode(any).is_ok(), "bytes need not be text");
    }

    #[test]
    fn a_codec_is_for_its_own_type() {
        for (name, dtype) in [("vlen-utf8", DType::VariableBytes), ("vlen-bytes", DType::Int(4))] {
            let elements = ChunkType { shape: vec![2], dtype };
            let error = Vlen::new(name, &elements, 1000).expect_err(name);
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        }
        let elements = ChunkType { shape: vec![1 << 32], dtype: DType::String };
        assert!(Vlen::new("vlen-utf8", &elements, 1000).is_err(), "no number for so many");
    }

    #[test]
    fn a_chunk_over_the_limit_is_not_damage() {
        let codec = codec(DType::VariableBytes, &[]);
        let chunk = |len: u32| {
            let parts = [1_u32.to_le_bytes(), len.to_le_bytes()].concat();
            Bytes::from([parts, vec![7; len as usize]].concat())
        };
        assert_eq!(codec.decode(chunk(992)).expect("short enough").len(), 1000);
        assert_eq!(codec.decode(chunk(993)).expect_err("too long").kind(), Kind::TooLarge);
    }

    #[test]
    fn a_filled_chunk_is_known_again() {
        let form = codec(DType::String, &[2, 2]).form;
        let chunk = form.filled("fé".as_bytes(), 1000).expect("short");
        assert_eq!(chunk.len(), 4 + 4 * 7);
        assert!(form.check(&chunk).is_ok() && form.is_filled(&chunk, "fé".as_bytes()));
        assert!(!form.is_filled(&chunk, b"f") && !form.is_filled(&chunk[..25], "fé".as_bytes()));
        assert_eq!(form.filled(b"x", 23).expect_err("too long").kind(), Kind::TooLarge);
        assert_eq!(form.filled(b"x", 24).expect("fits").len(), 24);
        let empty = form.filled(b"", 1000).expect("short");
        assert_eq!(empty, [&[4, 0, 0, 0][..], &[0; 16]].concat());
        assert!(form.is_filled(&empty, b"") && !form.is_filled(&chunk, b""));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_and_valid_ones_have_the_declared_elements(
            bytes in prop::collection::vec(0..5_u8, 0..60),
            count in 0..4_u64,
        ) {
            let codec = codec(DType::VariableBytes, &[count]);
            if let Ok(decoded) = codec.decode(bytes.clone().into()) {
                let whole = elements(&decoded).collect::<Vec<_>>();
                prop_assert_eq!(whole.len() as u64, count);
                prop_assert_eq!(whole.concat(), bytes[4..].to_vec());
            }
        }
    }
}
