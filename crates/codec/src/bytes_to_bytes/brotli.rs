//! `imagecodecs_brotli` {level?, mode?, lgwin?}: one Brotli stream.
//!
//! zarrfs stores the bytes in it without compressing them:
//!
//! ```text
//! bits, the lowest first: 0 (window), then for each block of up to 64 KiB 0, 00, length - 1: 16, 1,
//! padding, the bytes; at the end 11
//! ```
//!
//! Specification: RFC 7932; streams with a larger window than 16 MiB are an error. Length: as
//! encoded here, 3 bytes more for each block. Bytes after the stream are an error. Decoding takes
//! up to 17 MB of extra memory.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::stream::{Decompressor, Input, StreamStep, decode_one, room, room_to_decode};
use crate::clock::Clock;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

const NAME: &str = "imagecodecs_brotli";

/// How many bytes to decode at a time.
const PART_LEN: usize = 16 << 10;

/// The most bytes of a block whose length takes 16 bits.
const BLOCK_LEN: usize = 1 << 16;

/// The bit that says that a block is not compressed, after 3 bits and the length.
const STORED: u32 = 1 << 19;

/// The codec.
#[derive(Debug)]
pub struct Brotli;

/// A stream as a [`Decompressor`].
struct BrotliStream {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    part: Vec<u8>,
    total: usize,
}

impl Decompressor for BrotliStream {
    fn step(&mut self, input: &[u8], _: Input, output: &mut Vec<u8>) -> Result<StreamStep> {
        let room = output.capacity().saturating_sub(output.len());
        let (mut available, mut consumed) = (input.len(), 0);
        let (mut left, mut found) = (room.min(PART_LEN), 0);
        let result = BrotliDecompressStream(
            &mut available,
            &mut consumed,
            input,
            &mut left,
            &mut found,
            &mut self.part,
            &mut self.total,
            &mut self.state,
        );
        output.extend_from_slice(self.part.get(..found).unwrap_or_default());
        match result {
            BrotliResult::ResultFailure => {
                Err(Error::corrupt(format!("{NAME}: the stream is damaged")))
            }
            BrotliResult::ResultSuccess => Ok(StreamStep { consumed, ended: true }),
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
                Ok(StreamStep { consumed, ended: false })
            }
        }
    }
}

impl BytesToBytes for Brotli {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let block_count = decoded.len().div_ceil(BLOCK_LEN);
        let len = decoded.len().saturating_add(block_count.saturating_mul(3)).saturating_add(1);
        let mut encoded = room(NAME, len)?;
        for (index, block) in decoded.chunks(BLOCK_LEN).enumerate() {
            let last = u32::try_from(block.len().saturating_sub(1)).unwrap_or_default();
            // The size of the window is in front of the first block.
            let header = (STORED | last << 3) << u32::from(index == 0);
            encoded.extend(header.to_le_bytes().iter().take(3));
            encoded.extend_from_slice(block);
        }
        encoded.push(if decoded.is_empty() { 6 } else { 3 });
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut output = room_to_decode(NAME, encoded.len(), limit)?;
        let alloc = StandardAlloc::default;
        let state = BrotliState::new_strict(alloc(), alloc(), alloc());
        let mut stream = BrotliStream { state, part: vec![0; PART_LEN], total: 0 };
        let used = decode_one(NAME, &mut stream, encoded, &mut output, limit, Clock::start())?;
        if used != encoded.len() {
            let surplus = encoded.len().saturating_sub(used);
            return Err(Error::corrupt(format!("{NAME}: {surplus} bytes follow the stream")));
        }
        Ok(output)
    }
}
