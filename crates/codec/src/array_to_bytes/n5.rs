//! `n5_default` {codecs}: a block of N5, which begins with its own shape.
//!
//! ```text
//! u16 be  mode: 0 default, 1 with a length (not read), 2 an object (not read)
//! u16 be  number of dimensions                                           not in mode 2
//! u32 be  number of elements along each dimension, the fastest first     not in mode 2
//! u32 be  number of elements                                             not in mode 0
//! ..      the elements in that order, big endian, through at most one compressor
//! ```
//!
//! `codecs` has `bytes` and a compressor. N5 lists dimensions in reverse order, so the `transpose`
//! in the `codecs` of a metadata file comes before this codec. A block at the edge of an array is
//! cropped to the array; when it is read, zeros fill the rest. Length: that of the elements, 4
//! bytes, and 4 bytes for each dimension.
//!
//! <https://github.com/saalfeldlab/n5#file-system-specification>,
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/n5_default>

use bytes::Bytes;
use serde_json::Value;

use super::bytes::ByteSwap;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::{ArrayToBytes, BytesToBytes};
use crate::row::FindBytes;
use crate::spec::CodecSpec;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

/// An intermediate form may be longer than twice the elements by at most this many bytes.
const SLACK: usize = 1 << 20;

/// The codec, bound to a shape.
#[derive(Debug)]
pub struct N5Default {
    shape: Vec<usize>,
    item_len: usize,
    /// The length of a whole block in bytes.
    len: usize,
    swap: ByteSwap,
    compressors: Vec<Box<dyn BytesToBytes>>,
}

impl N5Default {
    /// Returns the codec with this configuration, for chunks of `elements`. `find` finds the
    /// compressors in its list.
    pub fn new(configuration: &Object, elements: &ChunkType, find: FindBytes) -> Result<Self> {
        let list = configuration.get("codecs").and_then(Value::as_array);
        let list = list.ok_or_else(|| Error::corrupt("n5_default: codecs is not a list"))?;
        let specs: Vec<_> = list.iter().map(CodecSpec::from_json).collect::<Result<_>>()?;
        let Some((bytes, compressors)) =
            specs.split_first().filter(|(bytes, _)| bytes.name == "bytes")
        else {
            return Err(Error::unsupported("n5_default: codecs do not begin with bytes"));
        };
        let compressor = |spec: &CodecSpec| match find(&spec.name) {
            Some(build) => build(&spec.configuration),
            None => Err(Error::unsupported(format!(
                "n5_default: codec {:?} cannot be in its list",
                spec.name
            ))),
        };
        let len = elements.byte_len()?.ok_or_else(|| {
            Error::unsupported(format!("n5_default: {} has no fixed length", elements.dtype.name()))
        })?;
        let lens = elements.shape.iter().map(|n| u32::try_from(*n).ok().and_then(to_usize));
        let shape = lens.collect::<Option<Vec<_>>>().filter(|shape| shape.len() <= 0xffff);
        let shape = shape.ok_or_else(|| {
            Error::unsupported(format!(
                "n5_default: a block cannot have the shape {:?}",
                elements.shape
            ))
        })?;
        Ok(Self {
            shape,
            item_len: elements.dtype.item_len(),
            len,
            swap: ByteSwap::parse(bytes.configuration.get("endian"), &elements.dtype)?,
            compressors: compressors.iter().map(compressor).collect::<Result<_>>()?,
        })
    }

    /// Returns the stored shape: at most `extent` elements along each dimension.
    fn stored(&self, extent: &[u64]) -> Vec<usize> {
        let all = self.shape.clone();
        if extent.len() != all.len() || extent.contains(&0) {
            return all;
        }
        let least = |(len, extent): (usize, &u64)| usize::try_from(*extent).unwrap_or(len).min(len);
        all.into_iter().zip(extent).map(least).collect()
    }

    /// Returns the offset in a whole block, in bytes, of each row of a block of the shape `part`,
    /// and the length of a row.
    fn rows(&self, part: &[usize]) -> (impl Iterator<Item = usize>, usize) {
        let outer = part.split_last().map_or(part, |(_, outer)| outer);
        let row_len = part.last().unwrap_or(&1).saturating_mul(self.item_len);
        // For each dimension but the last, innermost first: the number of places, and the step
        // between them.
        let mut steps = Vec::with_capacity(outer.len());
        let mut step = self.item_len.saturating_mul(*self.shape.last().unwrap_or(&1));
        for (len, count) in self.shape.iter().zip(outer).rev() {
            steps.push((*count, step));
            step = step.saturating_mul(*len);
        }
        let count = outer.iter().fold(1_usize, |count, len| count.saturating_mul(*len));
        let count = if row_len == 0 { 0 } else { count };
        let offset = move |row: usize| {
            let place = steps.iter().fold((row, 0_usize), |(rest, offset), (count, step)| {
                let count = (*count).max(1);
                (rest / count, offset.saturating_add((rest % count).saturating_mul(*step)))
            });
            place.1
        };
        ((0..count).map(offset), row_len)
    }

    fn decompress(&self, payload: &[u8], len: usize) -> Result<Vec<u8>> {
        let mut lens = vec![u64::try_from(len).ok()];
        for codec in &self.compressors {
            let known = lens.last().copied().flatten();
            lens.push(known.and_then(|len| codec.encoded_len(len)));
        }
        let longest = self.len.saturating_mul(2).saturating_add(SLACK);
        let mut bytes = payload.to_vec();
        for (codec, len) in self.compressors.iter().zip(lens).rev() {
            let limit = len.and_then(|len| usize::try_from(len).ok()).unwrap_or(longest);
            bytes = codec.decode(&bytes, limit)?;
        }
        if bytes.len() != len {
            let found = bytes.len();
            return Err(Error::corrupt(format!("{found} bytes decoded, the block needs {len}")));
        }
        Ok(bytes)
    }

    /// Returns the error for a block of another mode, whose header goes on with `rest`. If that
    /// does not fit the mode, the mode is wrong: one bit makes it so.
    fn other_mode(&self, mode: &str, rest: &[u8]) -> Error {
        let skipped = match mode {
            "object" => 0,
            _ => self.shape.len().saturating_mul(4).saturating_add(2),
        };
        let rank = u16::try_from(self.shape.len()).unwrap_or(u16::MAX).to_be_bytes();
        let has_rank = mode == "object" || rest.starts_with(&rank);
        let parts = rest.get(skipped..).and_then(|rest| rest.split_first_chunk::<4>());
        let is_whole = |(count, payload): (&[u8; 4], &[u8])| {
            let count = usize::try_from(u32::from_be_bytes(*count)).ok();
            // An element is one byte in what has another form than numbers.
            let lens = [1, self.item_len].map(|len| count.and_then(|count| count.checked_mul(len)));
            let most = self.len.saturating_mul(2).saturating_add(SLACK);
            let fits = |len: &usize| *len <= most && self.decompress(payload, *len).is_ok();
            lens.iter().flatten().any(fits)
        };
        if has_rank && parts.is_some_and(is_whole) {
            return Error::unsupported(format!(
                "n5_default: blocks in {mode} mode are not supported"
            ));
        }
        Error::corrupt(format!(
            "n5_default: block mode {mode}, but the rest of the block does not have that form"
        ))
    }

    /// Returns the shape in the header of a block, in C order, and the bytes after the header.
    fn header<'b>(&self, encoded: &'b [u8]) -> Result<(Vec<usize>, &'b [u8])> {
        let short = || {
            Error::corrupt(format!(
                "n5_default: {} bytes are too few for a block \
                 header",
                encoded.len()
            ))
        };
        let (mode, rest) = encoded.split_first_chunk().ok_or_else(short)?;
        match u16::from_be_bytes(*mode) {
            0 => {}
            1 => return Err(self.other_mode("varlength", rest)),
            2 => return Err(self.other_mode("object", rest)),
            other => {
                return Err(Error::corrupt(format!(
                    "n5_default: block mode {other} is not \
                     known"
                )));
            }
        }
        let (rank, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let rank = usize::from(u16::from_be_bytes(*rank));
        if rank != self.shape.len() {
            return Err(Error::corrupt(format!(
                "n5_default: a block of {rank} dimensions, the array has {}",
                self.shape.len()
            )));
        }
        let (lens, payload) = rest.split_at_checked(rank.saturating_mul(4)).ok_or_else(short)?;
        let lens = lens.as_chunks().0.iter().rev().map(|len| to_usize(u32::from_be_bytes(*len)));
        let part: Vec<usize> = lens.map(|len| len.unwrap_or(usize::MAX)).collect();
        if part.iter().zip(&self.shape).any(|(len, most)| len > most) {
            return Err(Error::corrupt(format!(
                "n5_default: a block of shape {part:?}, the largest is {:?}",
                self.shape
            )));
        }
        Ok((part, payload))
    }
}

fn to_usize(len: u32) -> Option<usize> {
    usize::try_from(len).ok()
}

impl ArrayToBytes for N5Default {
    fn encode(&self, mut decoded: Buffer, extent: &[u64]) -> Result<Bytes> {
        let part = self.stored(extent);
        if part != self.shape {
            let (rows, row_len) = self.rows(&part);
            let mut cut = Vec::new();
            for offset in rows {
                let row = offset.checked_add(row_len).and_then(|end| decoded.get(offset..end));
                cut.extend_from_slice(row.unwrap_or_default());
            }
            decoded = cut.into();
        }
        if self.swap != ByteSwap::Nothing {
            self.swap.apply(decoded.to_mut());
        }
        let mut payload: Vec<u8> = decoded.into_vec();
        for codec in &self.compressors {
            payload = codec.encode(&payload)?;
        }
        let mut encoded = reserve(payload.len().saturating_add(4 + 4 * part.len()))?;
        encoded.extend_from_slice(&[0, 0]);
        let rank = u16::try_from(part.len()).unwrap_or(u16::MAX);
        encoded.extend_from_slice(&rank.to_be_bytes());
        for len in part.iter().rev() {
            encoded.extend_from_slice(&u32::try_from(*len).unwrap_or(u32::MAX).to_be_bytes());
        }
        encoded.extend_from_slice(&payload);
        Ok(encoded.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let (part, payload) = self.header(&encoded)?;
        let len = part.iter().fold(self.item_len, |len, n| len.saturating_mul(*n));
        let mut bytes = self.decompress(payload, len)?;
        self.swap.apply(&mut bytes);
        if part == self.shape {
            return Ok(bytes.into());
        }
        let mut whole = reserve(self.len)?;
        whole.resize(self.len, 0);
        let (rows, row_len) = self.rows(&part);
        for (offset, row) in rows.zip(bytes.chunks_exact(row_len.max(1))) {
            let end = offset.saturating_add(row_len);
            if let Some(place) = whole.get_mut(offset..end) {
                place.copy_from_slice(row);
            }
        }
        Ok(whole.into())
    }

    fn crops(&self) -> bool {
        true
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::dtype::DType;
    use crate::table::find_bytes_to_bytes;
    use zarrfs_base::error::Kind;

    /// A codec for blocks of `uint16` with this compressor.
    fn bound(shape: &[u64], compressor: Option<Value>) -> N5Default {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "big"}});
        let codecs: Vec<Value> = [bytes].into_iter().chain(compressor).collect();
        let configuration = Object::from_iter([("codecs".to_owned(), codecs.into())]);
        let elements = ChunkType { shape: shape.to_vec(), dtype: DType::Uint(2) };
        N5Default::new(&configuration, &elements, find_bytes_to_bytes).unwrap()
    }

    fn numbers(numbers: impl IntoIterator<Item = u16>) -> Vec<u8> {
        numbers.into_iter().flat_map(u16::to_le_bytes).collect()
    }

    /// The header of the examples in the README of N5: 1 x 2 x 3.
    const HEADER: [u8; 16] = [0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];

    fn block(payload: &[u8]) -> Bytes {
        [&HEADER, payload].concat().into()
    }

    #[test]
    fn the_examples_of_n5_are_read() {
        let raw = [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6];
        let bzip2 = b"BZh91AY&SY\x02\x3e\x0d\xd2\x00\x00\x00\x40\x00\x7f\x00\x20\x00\x31\x0c\x01\
            \x0d1\xa8\x73\x94\x33\x7c\x5d\xc9\x14\xe1\x42\x40\x08\xf8\x37\x48";
        let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00\x63\x60\x64\x60\x62\x60\x66\x60\x61\
            \x60\x65\x60\x03\x00\xaa\xea\x6d\xbf\x0c\x00\x00\x00";
        let xz = b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\
            \xe5\xa3\x01\x00\x0b\x00\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06\x00\x0d\x03\
            \x09\xca\x34\xec\x15\xa7\x00\x01\x24\x0c\xa6\x18\xd8\xd8\x1f\xb6\xf3\x7d\x01\x00\x00\
            \x00\x00\x04YZ";
        for (compressor, payload) in [
            (None, &raw[..]),
            (Some(json!("numcodecs.bz2")), bzip2),
            (Some(json!("gzip")), gzip),
            (Some(json!("numcodecs.lzma")), xz),
        ] {
            let codec = bound(&[3, 2, 1], compressor.clone());
            let decoded = codec.decode(block(payload));
            assert_eq!(*decoded.unwrap(), numbers(1..=6), "{compressor:?}");
            let again = codec.encode(numbers(1..=6).into(), &[]).unwrap();
            assert_eq!(again[..16], HEADER, "{compressor:?}");
            assert_eq!(*codec.decode(again).unwrap(), numbers(1..=6), "{compressor:?}");
        }
        let encoded = bound(&[3, 2, 1], None).encode(numbers(1..=6).into(), &[3, 2, 1]).unwrap();
        assert_eq!(encoded, block(&raw));
    }

    #[test]
    fn a_block_of_zarr_python_is_read() {
        // N5Store of zarr-python 2.18.7, the last of 4 x 5 x 3 elements in blocks of 2 x 2 x 2.
        let encoded = [
            0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 31, 139, 8, 0, 149, 191, 0, 107, 4,
            255, 179, 90, 103, 189, 145, 1, 9, 0, 0, 46, 12, 74, 92, 16, 0, 0, 0,
        ];
        let decoded = bound(&[2, 2, 2], Some(json!("gzip"))).decode(encoded.to_vec().into());
        assert_eq!(*decoded.unwrap(), numbers([15022, 15281, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn a_shorter_block_is_followed_by_zeros() {
        let codec = bound(&[3, 4, 2], None);
        let raw = [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6];
        let mut expected = [0; 24];
        for (place, value) in [(0, 1), (2, 2), (8, 3), (10, 4), (16, 5), (18, 6)] {
            expected[place] = value;
        }
        assert_eq!(*codec.decode(block(&raw)).unwrap(), numbers(expected));
        let encoded = codec.encode(numbers(expected).into(), &[3, 2, 1]).unwrap();
        assert_eq!(encoded, block(&raw));
        let whole = codec.encode(numbers(expected).into(), &[3, 4, 2]).unwrap();
        assert_eq!(whole[..16], [0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 3]);
        assert_eq!(*codec.decode(whole).unwrap(), numbers(expected));
    }

    #[test]
    fn a_block_that_does_not_fit_is_refused() {
        let error = |shape: &[u64], encoded: &[u8]| {
            bound(shape, None).decode(encoded.to_vec().into()).unwrap_err()
        };
        let raw = block(&[0; 12]);
        assert_eq!(error(&[2, 2, 1], &raw).kind(), Kind::Corrupt);
        assert_eq!(error(&[3, 2], &raw).kind(), Kind::Corrupt);
        assert_eq!(error(&[3, 2, 1], &raw[..27]).kind(), Kind::Corrupt);
        assert_eq!(error(&[3, 2, 1], &raw[..11]).kind(), Kind::Corrupt);
        assert_eq!(error(&[3, 2, 1], &[0]).kind(), Kind::Corrupt);
        assert_eq!(error(&[3], &[0, 0, 0, 1, 255, 255, 255, 255]).kind(), Kind::Corrupt);
        let varlength = error(&[3], &[0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]);
        assert_eq!(error(&[3], &[0, 2, 0, 0, 0, 2, 7, 8]).kind(), Kind::Unsupported);
        for damaged in
            [&[0, 1, 0, 1, 0, 0, 0, 3, 0, 1, 0, 2, 0, 3][..], &[0, 1, 0, 2], &[0, 2, 0, 1]]
        {
            assert_eq!(error(&[3], damaged).kind(), Kind::Corrupt, "{damaged:?}");
        }
        assert_eq!(varlength.detail(), "n5_default: blocks in varlength mode are not supported");
        assert_eq!(varlength.kind(), Kind::Unsupported);
        assert_eq!(error(&[3], &[0, 3, 0, 1]).kind(), Kind::Corrupt);
    }

    proptest! {
        #[test]
        fn elements_inside_the_array_survive(
            dims in prop::collection::vec((1_u64..6, 1_u64..6), 0..5),
            compress in any::<bool>(),
        ) {
            let (shape, extent): (Vec<u64>, Vec<u64>) =
                dims.into_iter().map(|(a, b)| (a.max(b), a.min(b))).unzip();
            let codec = bound(&shape, compress.then(|| json!("zstd")));
            let count = shape.iter().product::<u64>() as u16;
            let decoded = codec.decode(codec.encode(numbers(1..=count).into(), &extent).unwrap());
            let decoded = decoded.unwrap();
            for flat in 0..u64::from(count) {
                let mut rest = flat;
                let mut inside = true;
                for (len, extent) in shape.iter().zip(&extent).rev() {
                    inside &= rest % len < *extent;
                    rest /= len;
                }
                let at = 2 * flat as usize;
                let want = if inside { flat as u16 + 1 } else { 0 };
                prop_assert_eq!(&decoded[at..at + 2], &want.to_le_bytes());
            }
        }

        #[test]
        fn any_bytes_are_a_block_or_not(encoded in prop::collection::vec(0..4_u8, 0..60)) {
            for shape in [&[][..], &[3], &[2, 3], &[300, 300, 300]] {
                let _ = bound(shape, None).decode(encoded.clone().into());
            }
        }
    }
}
