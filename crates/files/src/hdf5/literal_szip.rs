//! A stream of szip that holds bytes as they are, for a chunk that left the filter out: every block
//! says that it is not compressed.
//!
//! ```text
//! decoded length u32 | scanlines: blocks: option, all ones | samples
//! ```
//!
//! Bits begin at the highest one. Pixels of 32 and 64 bits are samples of 8 bits, the first byte of
//! all pixels first. Each scanline is padded to whole blocks. With the preprocessor, each sample
//! but the first is the difference from the one before, mapped to a number without a sign.

use zarrfs_base::error::{Error, Result};

/// The bits of the first parameter.
const IS_BIG: u32 = 16;
const HAS_PREPROCESSOR: u32 = 32;

/// Writes bits, the highest first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    pending: u64,
    pending_len: u32,
}

impl BitWriter {
    /// Adds the lowest `len` bits of a number, at most 32.
    fn push(&mut self, number: u32, len: u32) {
        self.pending = self.pending << len | u64::from(number);
        self.pending_len += len;
        while self.pending_len >= 8 {
            self.pending_len -= 8;
            let byte = self.pending >> self.pending_len & 0xff;
            self.bytes.extend(u8::try_from(byte));
        }
        self.pending &= (1 << self.pending_len) - 1;
    }

    fn finish(mut self) -> Vec<u8> {
        if self.pending_len > 0 {
            self.push(0, 8 - self.pending_len);
        }
        self.bytes
    }
}

/// Returns a stream of the bytes of a chunk, with the parameters of the filter.
pub fn literal_szip(bytes: &[u8], parameters: &[u32]) -> Result<Vec<u8>> {
    let wrong = || Error::corrupt(format!("HDF5: szip with the parameters {parameters:?}"));
    let &[options, block_len, pixel_bits, line_len] = parameters else { return Err(wrong()) };
    let is_split = matches!(pixel_bits, 32 | 64);
    let sample_bits = if is_split { 8 } else { pixel_bits };
    let (sample_len, option_bits) = match sample_bits {
        1..=8 => (1_usize, 3),
        9..=16 => (2, 4),
        17..=31 => (4, 5),
        _ => return Err(wrong()),
    };
    if !(1..=32).contains(&block_len) || !(1..=1 << 17).contains(&line_len) {
        return Err(wrong());
    }
    let block_len = usize::try_from(block_len).map_err(|_| wrong())?;
    let line_len = usize::try_from(line_len).map_err(|_| wrong())?;
    let planes = if is_split { planes(bytes, pixel_bits) } else { bytes.to_vec() };
    let most = u32::MAX >> (32 - sample_bits);
    let sample = |bytes: &[u8]| {
        let fold = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
        let whole = if options & IS_BIG == 0 {
            bytes.iter().rev().fold(0, fold)
        } else {
            bytes.iter().fold(0, fold)
        };
        whole & most
    };
    let mut writer = BitWriter::default();
    for line in planes.chunks(line_len.saturating_mul(sample_len)) {
        let mut samples: Vec<u32> = line.chunks(sample_len).map(sample).collect();
        if options & HAS_PREPROCESSOR != 0 {
            predict(&mut samples, most);
        }
        samples.resize(samples.len().next_multiple_of(block_len), 0);
        for block in samples.chunks(block_len) {
            writer.push((1 << option_bits) - 1, option_bits);
            for sample in block {
                writer.push(*sample, sample_bits);
            }
        }
    }
    let len = u32::try_from(bytes.len()).map_err(|_| wrong())?;
    let mut stream = len.to_le_bytes().to_vec();
    stream.extend(writer.finish());
    Ok(stream)
}

/// Returns the first byte of all pixels, then the second of all, and so on.
fn planes(bytes: &[u8], pixel_bits: u32) -> Vec<u8> {
    let len = usize::try_from(pixel_bits / 8).unwrap_or(1).max(1);
    let count = bytes.len() / len;
    (0..len).flat_map(|at| bytes.iter().skip(at).step_by(len).take(count).copied()).collect()
}

/// Puts the mapped difference from the sample before in the place of each but the first.
fn predict(samples: &mut [u32], most: u32) {
    let mut last = None;
    for sample in samples {
        let value = *sample;
        if let Some(before) = last {
            let room = if before <= most - before { before } else { most - before };
            let distance = value.abs_diff(before);
            *sample = match (value >= before, distance <= room) {
                (true, true) => distance.saturating_mul(2),
                (false, true) => distance.saturating_mul(2) - 1,
                (_, false) => distance.saturating_add(room),
            };
        }
        last = Some(value);
    }
}
