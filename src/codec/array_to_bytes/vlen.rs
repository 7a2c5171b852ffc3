//! `vlen-utf8` and `vlen-bytes`: elements that have lengths of their own.
//!
//! ```text
//! u32 number of elements | u32 length, bytes | u32 length, bytes | ...      all little endian
//! ```
//!
//! This is also what such a chunk is when it is decoded, in memory and as a file, since there is no other form of it.
//! So nothing is changed here; whether bytes are a chunk at all is checked, on both ways.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/vlen-utf8>

use bytes::Bytes;

use crate::buffer::{Buffer, reserve};
use crate::codec::{ArrayToBytes, Elements};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Bytes of a number.
const NUMBER_LEN: usize = 4;

/// The codec, bound to a number of elements.
#[derive(Debug)]
pub struct Vlen {
    form: Form,
    limit: usize,
}

/// What a decoded chunk of elements of any length looks like.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    count: u32,
    /// Whether each element is text in UTF-8.
    is_text: bool,
}

impl Vlen {
    /// The codec of that name, for chunks of `elements` that may have `limit` bytes.
    pub fn new(name: &str, elements: &Elements, limit: usize) -> Result<Self> {
        let form = Form::new(elements)?;
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

impl Form {
    /// That of chunks of `elements`.
    pub fn new(elements: &Elements) -> Result<Self> {
        let is_text = match &elements.dtype {
            DType::String => true,
            DType::VariableBytes => false,
            other => {
                let detail = format!("elements of {} have a fixed length", other.name());
                return Err(Error::unsupported(detail));
            }
        };
        let count = u32::try_from(elements.count()?).map_err(|_| {
            Error::unsupported(format!(
                "a chunk of shape {:?} has too many elements",
                elements.shape
            ))
        })?;
        Ok(Self { count, is_text })
    }

    /// The codec that has this form.
    fn name(self) -> &'static str {
        if self.is_text { "vlen-utf8" } else { "vlen-bytes" }
    }

    /// Why `bytes` are no chunk, if they are none.
    pub fn check(self, bytes: &[u8]) -> Result<(), String> {
        let wrong = |detail: String| Err(format!("{}: {detail}", self.name()));
        let Some((said, mut rest)) = number(bytes) else {
            return wrong(format!("{} bytes, the element count needs {NUMBER_LEN}", bytes.len()));
        };
        if said != self.count {
            return wrong(format!("{said} elements declared, the chunk has {}", self.count));
        }
        for index in 0..self.count {
            let element = number(rest)
                .and_then(|(len, rest)| rest.split_at_checked(usize::try_from(len).ok()?));
            let Some((element, behind)) = element else {
                return wrong(format!(
                    "truncated in element {index} of {}: only {} bytes left",
                    self.count,
                    rest.len()
                ));
            };
            if self.is_text && std::str::from_utf8(element).is_err() {
                return wrong(format!("element {index} is not UTF-8"));
            }
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        wrong(format!("{} bytes follow the last of {} elements", rest.len(), self.count))
    }

    /// A chunk in which every element holds `item`, of at most `limit` bytes.
    pub fn filled(self, item: &[u8], limit: u64) -> Result<Vec<u8>> {
        let element = element(item)?;
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let len = element.len().checked_mul(count).and_then(|len| len.checked_add(NUMBER_LEN));
        let len = len.filter(|len| u64::try_from(*len).is_ok_and(|len| len <= limit));
        let len = len.ok_or_else(|| {
            let detail = format!("{count} elements of {} bytes: the limit is {limit}", item.len());
            Error::too_large(detail)
        })?;
        let mut bytes = reserve(len)?;
        bytes.extend_from_slice(&self.count.to_le_bytes());
        for _ in 0..count {
            bytes.extend_from_slice(&element);
        }
        Ok(bytes)
    }

    /// Whether `bytes` are a chunk in which every element holds `item`.
    pub fn is_filled(self, bytes: &[u8], item: &[u8]) -> bool {
        let Ok(element) = element(item) else { return false };
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        number(bytes).is_some_and(|(said, rest)| {
            said == self.count
                && element.len().checked_mul(count) == Some(rest.len())
                && rest.chunks_exact(element.len()).all(|found| found == element)
        })
    }
}

/// The elements of a chunk, each with its length in front, one after another.
pub fn elements(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = number(chunk).map_or(&[][..], |(_, rest)| rest);
    std::iter::from_fn(move || {
        let (len, _) = number(rest)?;
        let len = usize::try_from(len).ok()?.checked_add(NUMBER_LEN)?;
        let (element, behind) = rest.split_at_checked(len)?;
        rest = behind;
        Some(element)
    })
}

/// The number that `bytes` begin with, and the rest.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// An element with its length in front.
fn element(item: &[u8]) -> Result<Vec<u8>> {
    let len = u32::try_from(item.len())
        .map_err(|_| Error::too_large(format!("an element of {} bytes", item.len())))?;
    Ok([&len.to_le_bytes(), item].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;

    fn codec(dtype: DType, shape: &[u64]) -> Vlen {
        let elements = Elements { shape: shape.to_vec(), dtype };
        let name = Form::new(&elements).expect("a form").name();
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
    fn what_is_no_chunk_is_damage_when_it_is_read_and_refused_when_it_is_written() {
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
            let elements = Elements { shape: vec![2], dtype };
            let error = Vlen::new(name, &elements, 1000).expect_err(name);
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        }
        let elements = Elements { shape: vec![1 << 32], dtype: DType::String };
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
        fn no_bytes_panic_and_what_passes_has_the_elements_it_says(
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
