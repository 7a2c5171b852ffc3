//! A block: its header and what its metadata say of the decoder.
//!
//! ```text
//! "wvpk" | length | version | samples in all | index, samples of this block | flags | CRC
//! | metadata: id, length in words, bytes | ..
//! ```

use super::bits::Bits;
use super::decorrelation::{ChannelSide, Pass};
use super::log::{exp2, signed_exp2};
use super::words::Words;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The length of a header in bytes.
const HEADER_LEN: usize = 32;

/// The most passes of a block.
const MAX_PASSES: usize = 16;

/// The flags of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags(u32);

impl Flags {
    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// The length of an element in bytes.
    pub(super) fn item_len(self) -> usize {
        (self.0 & 3).to_usize() + 1
    }

    pub(super) fn is_mono(self) -> bool {
        self.has(4)
    }

    /// Whether two channels are equal, and stored once.
    pub(super) fn is_false_stereo(self) -> bool {
        self.has(1 << 30)
    }

    pub(super) fn has_mono_data(self) -> bool {
        self.is_mono() || self.is_false_stereo()
    }

    pub(super) fn is_hybrid(self) -> bool {
        self.has(8)
    }

    /// Whether the second channel is the difference to the first one.
    pub(super) fn is_joint(self) -> bool {
        self.has(0x10)
    }

    pub(super) fn is_float(self) -> bool {
        self.has(0x80)
    }

    /// Whether bits are stored beside the samples.
    pub(super) fn has_extra_bits(self) -> bool {
        self.has(0x100)
    }

    /// Whether the loss depends on the bits per sample.
    pub(super) fn has_bitrate(self) -> bool {
        self.has(0x200)
    }

    /// Whether two channels share their bits.
    pub(super) fn is_balanced(self) -> bool {
        self.has(0x400)
    }

    /// Whether this is the first block of several that have the channels of the same samples.
    pub(super) fn is_first(self) -> bool {
        self.has(0x800)
    }

    pub(super) fn is_last(self) -> bool {
        self.has(0x1000)
    }

    /// The zero bits at the end of each sample.
    pub(super) fn shift(self) -> u32 {
        self.0 >> 13 & 31
    }

    fn has_checksum(self) -> bool {
        self.has(1 << 28)
    }

    /// Whether the samples have 1 bit.
    fn is_dsd(self) -> bool {
        self.has(1 << 31)
    }
}

/// The header of a block.
#[derive(Debug)]
pub(super) struct Header {
    /// The samples of each channel in all blocks, `None` if unknown.
    pub(super) all_samples: Option<u64>,
    /// The place of the first sample of this block.
    pub(super) index: u64,
    /// The samples of each channel in this block.
    pub(super) samples: u32,
    pub(super) flags: Flags,
    /// The checksum of the samples.
    pub(super) crc: u32,
}

/// Values that follow the samples of a block if they have many bits.
#[derive(Debug)]
pub(super) struct Extra<'a> {
    pub(super) bits: Bits<'a>,
    /// The checksum of the values.
    pub(super) crc: u32,
    /// The most bits of an integer, or 0.
    pub(super) max_width: u32,
    /// The fewest zeros, and the most other bits, at the end of a float.
    pub(super) min_zeros: u32,
    pub(super) max_ones: u32,
}

/// A block, ready to be decoded.
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) flags: Flags,
    pub(super) crc: u32,
    /// The number of channels of the whole stream, if this block says it.
    pub(super) channels: Option<u64>,
    /// The passes, the last one first.
    pub(super) passes: Vec<Pass>,
    pub(super) words: Words<'a>,
    pub(super) extra: Option<Extra<'a>>,
    /// The bits that were sent for each integer, and the zeros, ones or copies of the last bit at
    /// the end of all.
    pub(super) integer: [u8; 4],
    /// The flags, the shift and the largest exponent of floats.
    pub(super) float: [u8; 4],
}

fn corrupt(what: &'static str) -> Error {
    Error::corrupt(format!("wavpack: {what}"))
}

/// Returns the first `N` bytes, and removes them.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or_else(|| corrupt("too few bytes"))?;
    *bytes = rest;
    Ok(*first)
}

/// Returns the next logarithm, which is signed.
fn logarithm(bytes: &mut &[u8]) -> Result<i32> {
    Ok(signed_exp2(i16::from_le_bytes(take(bytes)?).into()))
}

/// Returns the next logarithm of a number that is not negative.
fn magnitude(bytes: &mut &[u8]) -> Result<u32> {
    Ok(exp2(u16::from_le_bytes(take(bytes)?).into()))
}

impl Header {
    /// Returns the header of the first block, its metadata, and the bytes after the block.
    pub(super) fn split(encoded: &[u8]) -> Result<(Self, &[u8], &[u8])> {
        let mut fields = encoded;
        if take(&mut fields)? != *b"wvpk" {
            return Err(corrupt("no block begins here"));
        }
        let len = u32::from_le_bytes(take(&mut fields)?).to_usize().saturating_add(8);
        let [version, index_high, all_high] = {
            let [low, high, index, all] = take(&mut fields)?;
            [u16::from_le_bytes([low, high]).into(), u64::from(index), u64::from(all)]
        };
        if !(0x403..=0x410).contains(&version) {
            return Err(Error::unsupported(format!("wavpack: version {version:#x} of the stream")));
        }
        let mut field = || take(&mut fields).map(u32::from_le_bytes);
        let [all, index, samples, flags, crc] = [field()?, field()?, field()?, field()?, field()?];
        let (block, rest) =
            encoded.split_at_checked(len).ok_or_else(|| corrupt("a block is cut off"))?;
        let metadata = block.get(HEADER_LEN..).ok_or_else(|| corrupt("a block is too short"))?;
        let all_samples = (all != u32::MAX).then(|| {
            // 2^32 - 1 samples are as none in the low part, so the high part is one less.
            (u64::from(all) + (all_high << 32)).saturating_sub(all_high)
        });
        let index = u64::from(index) + (index_high << 32);
        let flags = Flags(flags);
        check_sum(block, metadata, flags)?;
        Ok((Self { all_samples, index, samples, flags, crc }, metadata, rest))
    }
}

/// Fails if the bytes of a block differ from those that were written.
fn check_sum(block: &[u8], metadata: &[u8], flags: Flags) -> Result<()> {
    if !flags.has_checksum() {
        return Ok(());
    }
    let mut rest = metadata;
    while let Some((id, value)) = next(&mut rest)? {
        if id != 0x2f {
            continue;
        }
        // The checksum is of the bytes before its id and its length.
        let len = block.len().saturating_sub(rest.len() + value.len() + 2);
        let words = block.get(..len).unwrap_or_default().chunks_exact(2);
        let sum = words.fold(u32::MAX, |sum, word| {
            let word = word.try_into().map_or(0, u16::from_le_bytes);
            sum.wrapping_mul(3).wrapping_add(word.into())
        });
        let short = sum ^ sum >> 16;
        let is_same = match value {
            [_, _] => short.to_le_bytes().starts_with(value),
            _ => sum.to_le_bytes() == *value,
        };
        return if is_same { Ok(()) } else { Err(corrupt("a block has another checksum")) };
    }
    Err(corrupt("a block has no checksum"))
}

/// Returns the next item of metadata, `None` at the end.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let [id, short] = take(rest)?;
    let words = if id & 0x80 != 0 {
        let [middle, high] = take(rest)?;
        u32::from_le_bytes([short, middle, high, 0])
    } else {
        short.into()
    };
    let len = words.to_usize().saturating_mul(2);
    let (value, after) =
        rest.split_at_checked(len).ok_or_else(|| corrupt("metadata of a block are cut off"))?;
    *rest = after;
    let odd = usize::from(id & 0x40 != 0);
    let value = value.len().checked_sub(odd).and_then(|len| value.get(..len));
    let value = value.ok_or_else(|| corrupt("metadata of a block have no length"))?;
    Ok(Some((id & 0x3f, value)))
}

impl<'a> Block<'a> {
    /// Parses a block with samples.
    pub(super) fn parse(header: &Header, metadata: &'a [u8]) -> Result<Self> {
        let flags = header.flags;
        if flags.is_dsd() {
            return Err(Error::unsupported("wavpack: samples of 1 bit (DSD)"));
        }
        if flags.is_mono() && flags.is_false_stereo() {
            return Err(corrupt("a block is mono and stereo"));
        }
        let mut block = Self {
            flags,
            crc: header.crc,
            channels: None,
            passes: Vec::new(),
            words: Words::new(&[], flags),
            extra: None,
            integer: [0; 4],
            float: [0; 4],
        };
        let mut bits = None;
        let mut rest = metadata;
        while let Some((id, value)) = next(&mut rest)? {
            if id == 0x0a {
                bits = Some(value);
            } else {
                block.put(id, value)?;
            }
        }
        block.words.bits = Bits::new(bits.ok_or_else(|| corrupt("a block has no samples"))?);
        Ok(block)
    }

    /// Sets what an item of metadata says.
    fn put(&mut self, id: u8, value: &'a [u8]) -> Result<()> {
        let four = || value.try_into().map_err(|_| corrupt("metadata of 4 bytes have others"));
        match id {
            2 => self.put_terms(value),
            3 => self.put_weights(value),
            4 => self.put_samples(value),
            5 => self.put_medians(value),
            6 => self.put_bitrate(value),
            8 => {
                self.float = four()?;
                Ok(())
            }
            9 => {
                self.integer = four()?;
                Ok(())
            }
            0x0c | 0x2c => self.put_extra(value, id == 0x2c),
            0x0d => self.put_channels(value),
            // The shape of the noise only matters together with a file of corrections.
            0 | 1 | 7 | 0x20.. => Ok(()),
            _ => Err(Error::unsupported(format!("wavpack: metadata {id} of a block"))),
        }
    }

    fn is_mono(&self) -> bool {
        self.flags.has_mono_data()
    }

    fn put_terms(&mut self, value: &[u8]) -> Result<()> {
        if value.len() > MAX_PASSES {
            return Err(corrupt("too many passes"));
        }
        self.passes.clear();
        for byte in value {
            let term = i8::try_from(byte & 31).unwrap_or_default() - 5;
            let is_term =
                matches!(term, 1..=8 | 17 | 18) || (!self.is_mono() && matches!(term, -3..=-1));
            if !is_term {
                return Err(corrupt("a pass has an unknown term"));
            }
            let side = ChannelSide { delta: (byte >> 5).into(), ..ChannelSide::default() };
            self.passes.push(Pass { term, sides: [side; 2] });
        }
        Ok(())
    }

    fn put_weights(&mut self, value: &[u8]) -> Result<()> {
        let width = if self.is_mono() { 1 } else { 2 };
        if value.len() / width > self.passes.len() {
            return Err(corrupt("too many weights"));
        }
        for (pass, weights) in self.passes.iter_mut().zip(value.chunks_exact(width)) {
            for (side, weight) in pass.sides.iter_mut().zip(weights) {
                let weight = i32::from(weight.cast_signed()) * 8;
                side.weight = if weight > 0 { weight + ((weight + 64) >> 7) } else { weight };
            }
        }
        Ok(())
    }

    fn put_samples(&mut self, mut value: &[u8]) -> Result<()> {
        let is_mono = self.is_mono();
        for pass in &mut self.passes {
            if value.is_empty() {
                break;
            }
            let [first, second] = &mut pass.sides;
            let [first, second] = [&mut first.before, &mut second.before];
            match usize::try_from(pass.term) {
                // Both samples of a channel, then those of the other.
                Ok(9..) => {
                    for before in [first, second].into_iter().take(if is_mono { 1 } else { 2 }) {
                        for sample in before.iter_mut().take(2) {
                            *sample = logarithm(&mut value)?;
                        }
                    }
                }
                term => {
                    let pairs = first.iter_mut().zip(second);
                    for (a, b) in pairs.take(term.unwrap_or(1)) {
                        *a = logarithm(&mut value)?;
                        if !is_mono {
                            *b = logarithm(&mut value)?;
                        }
                    }
                }
            }
        }
        if value.is_empty() { Ok(()) } else { Err(corrupt("too many samples of passes")) }
    }

    fn put_medians(&mut self, mut value: &[u8]) -> Result<()> {
        let count = if self.is_mono() { 1 } else { 2 };
        for channel in self.words.channels.iter_mut().take(count) {
            for median in &mut channel.medians {
                *median = magnitude(&mut value)?;
            }
        }
        if value.is_empty() { Ok(()) } else { Err(corrupt("too many medians")) }
    }

    fn put_bitrate(&mut self, mut value: &[u8]) -> Result<()> {
        let count = if self.is_mono() { 1 } else { 2 };
        if self.flags.has_bitrate() {
            for channel in self.words.channels.iter_mut().take(count) {
                channel.level = magnitude(&mut value)?;
            }
        }
        for rate in self.words.bitrate.rates.iter_mut().take(count) {
            *rate = u32::from(u16::from_le_bytes(take(&mut value)?)) << 16;
        }
        if value.is_empty() {
            return Ok(());
        }
        for change in self.words.bitrate.changes.iter_mut().take(count) {
            *change = logarithm(&mut value)?;
        }
        if value.is_empty() { Ok(()) } else { Err(corrupt("an unknown profile of the bit rate")) }
    }

    fn put_extra(&mut self, mut value: &'a [u8], is_new: bool) -> Result<()> {
        let crc = u32::from_le_bytes(take(&mut value)?);
        let mut bits = Bits::new(value);
        let mut field = |is_there: bool| if is_new && is_there { bits.number(5) } else { 0 };
        let is_float = self.flags.is_float();
        let [min_zeros, max_ones, max_width] = [field(is_float), field(is_float), field(!is_float)];
        self.extra = Some(Extra { bits, crc, max_width, min_zeros, max_ones });
        Ok(())
    }

    fn put_channels(&mut self, value: &[u8]) -> Result<()> {
        let channels = match *value {
            [low, _, high, _, _, _] | [low, _, high, _, _, _, _] => {
                u64::from(low) + (u64::from(high & 15) << 8) + 1
            }
            [count, ..] if value.len() <= 5 => count.into(),
            _ => return Err(corrupt("the number of channels has no form")),
        };
        self.channels = Some(channels);
        Ok(())
    }
}
