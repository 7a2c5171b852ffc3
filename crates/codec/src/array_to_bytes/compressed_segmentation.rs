//! `compressed_segmentation` {`block_size`}: labels of a volume, in blocks that have tables.
//!
//! ```text
//! u32 le × channels    where the data of each channel begin, in words of 4 bytes
//! each channel:
//!   u24 le             of each block: where its table begins, in words from the channel's data
//!   u8                     the bits of an index: 0, 1, 2, 4, 8, 16 or 32
//!   u32 le                 where its indexes begin, likewise
//!   ..                 tables (elements) and indexes (packed from the lowest bit), in any order
//! ```
//!
//! Blocks and the elements in them are in C order, the last dimension the fastest; a block at the
//! end has the indexes of a whole one. `block_size` lists the fastest dimension first, as
//! Neuroglancer does. Several blocks may share a table. Only `uint32` and `uint64`; the last three
//! dimensions are those of space, all before them are channels. Length: depends on the values.
//!
//! <https://github.com/google/neuroglancer/tree/master/src/sliceview/compressed_segmentation>

use bytes::Bytes;
use serde_json::Value;

use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::{Buffer, unset};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The bytes of a word, which offsets count.
const WORD: u64 = 4;

/// The words of the header of a block.
const HEADER_WORDS: u64 = 2;

/// The codec, bound to a shape.
#[derive(Debug)]
pub struct CompressedSegmentation {
    /// The lengths of the dimensions z, y, x.
    shape: [u64; 3],
    /// Those of a block.
    block: [u64; 3],
    item_len: usize,
    /// The length of all elements in bytes.
    len: usize,
}

/// A block: where its table and its indexes begin, and the bits of an index.
struct Block {
    table: u64,
    bits: u32,
    indexes: u64,
}

impl CompressedSegmentation {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<Self> {
        if !matches!(elements.dtype, DType::Uint(4 | 8)) {
            let dtype = elements.dtype.name();
            return Err(wrong(&format!("{dtype} is neither uint32 nor uint64")));
        }
        let sizes = configuration.get("block_size").and_then(Value::as_array);
        let sizes = sizes.map(|sizes| sizes.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
        let Some(&[x, y, z]) = sizes.flatten().as_deref().filter(|sizes| !sizes.contains(&0))
        else {
            return Err(wrong("block_size is no list of three lengths"));
        };
        let mut shape = [1; 3];
        for (len, known) in shape.iter_mut().rev().zip(elements.shape.iter().rev()) {
            *len = *known;
        }
        Ok(Self {
            shape,
            block: [z, y, x],
            item_len: elements.dtype.item_len(),
            len: elements.byte_len()?.unwrap_or_default(),
        })
    }

    /// Decodes the data of a channel, which begin at the start of `data`, into its elements.
    fn channel(&self, data: &[u8], elements: &mut [u8]) -> Result<()> {
        let counts = [0, 1, 2].map(|axis| self.along(axis).0);
        let [_, rows, columns] = self.shape;
        let mut number = 0_u64;
        for z in 0..counts[0] {
            for y in 0..counts[1] {
                for x in 0..counts[2] {
                    let block = Block::parse(data, number)?;
                    number = number.saturating_add(1);
                    let [z, y, x] =
                        [(0, z), (1, y), (2, x)].map(|(axis, index)| self.span(axis, index));
                    for (dz, z) in (z.0..z.1).enumerate() {
                        for (dy, y) in (y.0..y.1).enumerate() {
                            let first = (z * rows + y) * columns + x.0;
                            let start = first.to_usize() * self.item_len;
                            let row_len = (x.1 - x.0).to_usize() * self.item_len;
                            let place = start.checked_add(row_len).map(|end| start..end);
                            let row = place.and_then(|place| elements.get_mut(place));
                            let row = row.ok_or_else(|| wrong("a block lies outside"))?;
                            self.row(data, &block, [dz.to_u64(), dy.to_u64()], row)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of blocks along a dimension, and the length of one.
    fn along(&self, axis: usize) -> (u64, u64) {
        let len = self.shape.get(axis).copied().unwrap_or_default();
        let block = self.block.get(axis).copied().unwrap_or(1).max(1);
        (len.div_ceil(block), block)
    }

    /// Returns the first place of a block along a dimension, and the one after its last.
    fn span(&self, axis: usize, index: u64) -> (u64, u64) {
        let (_, block) = self.along(axis);
        let len = self.shape.get(axis).copied().unwrap_or_default();
        let start = index.saturating_mul(block);
        (start.min(len), start.saturating_add(block).min(len))
    }

    /// Decodes a row of a block, whose place along z and y in the block is `row`.
    fn row(&self, data: &[u8], block: &Block, row: [u64; 2], elements: &mut [u8]) -> Result<()> {
        let [z, y] = row;
        let [_, rows, columns] = self.block;
        let first =
            z.checked_mul(rows).and_then(|first| first.checked_add(y)?.checked_mul(columns));
        let bits = u64::from(block.bits);
        let mut bit =
            first.and_then(|first| first.checked_mul(bits)).ok_or_else(|| past("indexes"))?;
        for element in elements.chunks_exact_mut(self.item_len) {
            let index = match bits {
                0 => 0,
                bits => {
                    let word = block.indexes.checked_add(bit / 32).and_then(|at| word(data, at));
                    let word = word.ok_or_else(|| past("indexes"))?;
                    let mask = u32::MAX >> (32 - block.bits);
                    bit = bit.saturating_add(bits);
                    u64::from(word >> ((bit - bits) % 32) & mask)
                }
            };
            let start = block.table * WORD + index * self.item_len.to_u64();
            let value = data.get(start.to_usize()..).and_then(|rest| rest.get(..self.item_len));
            element.copy_from_slice(value.ok_or_else(|| past("table"))?);
        }
        Ok(())
    }
}

impl Block {
    /// Parses the header of the block with this number.
    fn parse(data: &[u8], number: u64) -> Result<Self> {
        let at = number.saturating_mul(HEADER_WORDS);
        let both = word(data, at).zip(at.checked_add(1).and_then(|at| word(data, at)));
        let (first, indexes) = both.ok_or_else(|| past("header"))?;
        let bits = first >> 24;
        if !matches!(bits, 0 | 1 | 2 | 4 | 8 | 16 | 32) {
            return Err(wrong(&format!("a block with indexes of {bits} bits")));
        }
        Ok(Self { table: u64::from(first & 0x00ff_ffff), bits, indexes: u64::from(indexes) })
    }
}

/// Returns the word at an offset in words.
fn word(data: &[u8], at: u64) -> Option<u32> {
    let rest = data.get(at.checked_mul(WORD)?.to_usize()..)?;
    rest.first_chunk::<4>().map(|word| u32::from_le_bytes(*word))
}

fn wrong(why: &str) -> Error {
    Error::corrupt(format!("compressed_segmentation: {why}"))
}

fn past(what: &str) -> Error {
    wrong(&format!("the {what} of a block lies past the end"))
}

impl ArrayToBytes for CompressedSegmentation {
    fn encode(&self, _decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Err(Error::unsupported("compressed_segmentation: zarrfs reads such chunks and writes none"))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let mut elements = unset(self.len)?;
        let all =
            self.shape.iter().fold(self.item_len.to_u64(), |all, len| all.saturating_mul(*len));
        for (channel, part) in elements.chunks_mut(all.to_usize().max(1)).enumerate() {
            let start = word(&encoded, channel.to_u64());
            let start = start.ok_or_else(|| wrong("the places of the channels are cut off"))?;
            let data = encoded.get((u64::from(start) * WORD).to_usize()..);
            self.channel(data.ok_or_else(|| wrong("a channel begins past the end"))?, part)?;
        }
        Ok(elements.into())
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
    use zarrfs_base::error::Kind;

    fn bound(shape: &[u64], len: u8, block_size: &Value) -> Result<CompressedSegmentation> {
        let configuration = Object::from_iter([("block_size".to_owned(), block_size.clone())]);
        let elements = ChunkType { shape: shape.to_vec(), dtype: DType::Uint(len) };
        CompressedSegmentation::new(&configuration, &elements)
    }

    /// Words as TensorStore 0.1.80 has written them.
    fn encoded(words: &[u32]) -> Bytes {
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    #[test]
    fn blocks_of_tensorstore_are_read_also_those_cut_at_the_end() {
        // 3 x 2 x 2 elements in blocks of 2 x 2 x 1.
        let words = [
            1,
            0x0200_0009,
            8,
            0x0100_0010,
            15,
            0x0200_0015,
            20,
            0x0100_001e,
            29,
            18,
            7,
            0,
            9,
            0,
            5,
            1 << 31,
            4,
            7,
            0,
            8,
            0,
            228,
            1,
            0,
            2,
            0,
            4,
            0,
            5,
            0,
            4,
            3,
            0,
            6,
            0,
        ];
        let codec = bound(&[2, 2, 3], 8, &json!([2, 2, 1])).expect("bound");
        let decoded = codec.decode(encoded(&words)).expect("decoded");
        let expected: [u64; 12] = [(1 << 63) + 5, 7, 7, 9, 7, 8, 1, 2, 3, 4, 5, 6];
        assert_eq!(*decoded, expected.map(u64::to_le_bytes).concat());
        for cut in 0..words.len() {
            let error = codec.decode(encoded(&words[..cut])).expect_err("cut");
            assert_eq!(error.kind(), Kind::Corrupt, "{cut}");
        }
    }

    #[test]
    fn each_channel_has_blocks_of_its_own() {
        // 2 x 2 x 1 elements of two channels, in blocks larger than the chunk.
        let mut words = vec![2, 22, 0x0100_0012, 2, 512];
        words.resize(20, 0);
        words.extend([7, 9, 2, 2, 1]);
        let codec = bound(&[2, 1, 2, 2], 4, &json!([8, 8, 8])).expect("bound");
        let expected: [u32; 8] = [7, 7, 7, 9, 1, 1, 1, 1];
        let decoded = codec.decode(encoded(&words)).expect("decoded");
        assert_eq!(*decoded, expected.map(u32::to_le_bytes).concat());
    }

    #[test]
    fn a_configuration_without_meaning_is_refused() {
        for block_size in [json!(null), json!([8, 8]), json!([8, 8, 0]), json!([8, -1, 8])] {
            bound(&[2, 2, 2], 4, &block_size).expect_err("no lengths");
        }
        bound(&[2, 2, 2], 2, &json!([8, 8, 8])).expect_err("uint16");
        let codec = bound(&[2, 2, 2], 4, &json!([u64::MAX, u64::MAX, u64::MAX])).expect("bound");
        codec.decode(encoded(&[1, 0x0100_0002, 2, 0])).expect_err("past the end");
    }

    proptest! {
        #[test]
        fn any_words_are_labels_or_not(words in prop::collection::vec(
            prop_oneof![0..8_u32, any::<u32>(), (0..33_u32).prop_map(|bits| bits << 24 | 3)], 0..30,
        )) {
            for (shape, len) in [(&[2, 3, 4][..], 4), (&[3, 2, 1, 5], 8)] {
                let codec = bound(shape, len, &json!([2, 2, 2])).expect("bound");
                let _ = codec.decode(encoded(&words));
            }
        }
    }
}
