//! The lossless compression of CCSDS 121.0-B-3 (template 5.42): Rice codes.
//!
//! ```text
//! interval   RSI blocks; begins with a reference, if samples are predicted
//! block      J samples: identifier, then one of
//!              0, bit 0     zeros: the number of blocks, unary
//!              0, bit 1     pairs of samples: unary numbers
//!              all ones     samples as they are
//!              k + 1        upper parts, unary, then the k lowest bits of each
//! ```
//!
//! Predicted samples are differences to the sample before, folded into unsigned numbers.
//!
//! <https://public.ccsds.org/Pubs/121x0b3.pdf>

use super::bits::Bits;
use super::message::Section;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

const SIGNED: u8 = 1;
const PREDICTED: u8 = 8;
const RESTRICTED: u8 = 16;
const PADDED: u8 = 32;

/// The unary number that stands for all blocks up to the end of a segment.
const REST_OF_SEGMENT: u32 = 4;
/// The blocks of a segment.
const SEGMENT: usize = 64;
/// The highest number that stands for a pair of samples.
const LAST_PAIR: u32 = 90;

/// The parameters of the code.
#[derive(Debug)]
struct AecParameters {
    width: u32,
    identifier_bits: u32,
    flags: u8,
    block_len: usize,
    /// The blocks of an interval.
    interval: usize,
}

/// Returns `count` numbers of `width` bits that `data` encodes. `section` is section 5.
pub(super) fn numbers(
    section: Section<'_>,
    width: u32,
    data: &[u8],
    count: usize,
) -> Result<Vec<u32>> {
    let flags = section.u8(21)?;
    let block_len = usize::from(section.u8(22)?);
    let interval = usize::from(section.u16(23)?);
    // ecCodes does not read padded intervals right.
    let is_known = flags & (SIGNED | PADDED) == 0 && [8, 16, 32, 64].contains(&block_len);
    if !is_known || !(1..=32).contains(&width) || !(1..=4096).contains(&interval) {
        return Err(Error::unsupported(format!(
            "grib: CCSDS compression of {width} bits with flags {flags}, blocks of {block_len} \
             and intervals of {interval}"
        )));
    }
    let identifier_bits = match width {
        1..=2 if flags & RESTRICTED != 0 => 1,
        3..=4 if flags & RESTRICTED != 0 => 2,
        1..=8 => 3,
        9..=16 => 4,
        _ => 5,
    };
    let code = AecParameters { width, identifier_bits, flags, block_len, interval };
    let numbers = code.numbers(data, count);
    numbers.ok_or_else(|| Error::corrupt("grib: the compressed data are damaged"))
}

impl AecParameters {
    fn numbers(&self, data: &[u8], count: usize) -> Option<Vec<u32>> {
        let mut bits = Bits::new(data);
        let mut numbers = Vec::new();
        numbers.try_reserve_exact(count).ok()?;
        let mut samples = Vec::with_capacity(self.interval.checked_mul(self.block_len)?);
        while numbers.len() < count {
            samples.clear();
            let wanted = count.checked_sub(numbers.len())?;
            self.interval(&mut bits, wanted, &mut samples)?;
            if self.flags & PREDICTED != 0 {
                self.undo_prediction(&mut samples);
            }
            numbers.extend(samples.iter().take(wanted));
        }
        Some(numbers)
    }

    /// Reads the blocks of an interval, until there are `wanted` samples.
    fn interval(&self, bits: &mut Bits<'_>, wanted: usize, samples: &mut Vec<u32>) -> Option<()> {
        let most = self.interval.checked_mul(self.block_len)?;
        while samples.len() < most.min(wanted) {
            let has_reference = samples.is_empty() && self.flags & PREDICTED != 0;
            let end = samples.len().checked_add(self.block_len)?;
            let identifier = bits.number(self.identifier_bits)?;
            let verbatim = u32::MAX >> 32_u32.checked_sub(self.identifier_bits)?;
            if identifier == verbatim {
                while samples.len() < end {
                    samples.push(bits.number(self.width)?);
                }
                continue;
            }
            let has_pairs = identifier == 0 && bits.number(1)? == 1;
            if has_reference {
                samples.push(bits.number(self.width)?);
            }
            if has_pairs {
                pairs(bits, end, samples)?;
            } else if identifier == 0 {
                samples.resize(self.end_of_zeros(bits, samples.len(), end, most)?, 0);
            } else {
                split(bits, identifier.checked_sub(1)?, end, samples)?;
            }
        }
        Some(())
    }

    /// Returns the number of samples after blocks of zeros. The first block ends at `end`.
    fn end_of_zeros(
        &self,
        bits: &mut Bits<'_>,
        len: usize,
        end: usize,
        most: usize,
    ) -> Option<usize> {
        let number = bits.zeros(u32::try_from(SEGMENT).ok()?)?;
        let before = len.checked_div(self.block_len)?;
        let more = match number {
            REST_OF_SEGMENT => {
                let rest = self.interval.checked_sub(before)?;
                rest.min(SEGMENT.checked_sub(before % SEGMENT)?).checked_sub(1)?
            }
            _ if number > REST_OF_SEGMENT => number.checked_sub(1)?.to_usize(),
            _ => number.to_usize(),
        };
        let end = end.checked_add(more.checked_mul(self.block_len)?)?;
        Some(end).filter(|end| *end <= most)
    }

    /// Replaces folded differences by samples. The first sample is the reference.
    fn undo_prediction(&self, samples: &mut [u32]) {
        let highest = u32::MAX.checked_shr(32_u32.saturating_sub(self.width)).unwrap_or_default();
        let mut samples = samples.iter_mut();
        let Some(mut last) = samples.next().copied() else { return };
        for sample in samples {
            let folded = *sample;
            let above = highest.wrapping_sub(last);
            let reach = last.min(above);
            // Differences that are possible in both directions alternate; the rest follow.
            *sample = if folded / 2 > reach || (folded / 2 == reach && folded % 2 == 1) {
                if last < above { folded } else { highest.wrapping_sub(folded) }
            } else if folded.is_multiple_of(2) {
                last.wrapping_add(folded / 2)
            } else {
                last.wrapping_sub(folded / 2).wrapping_sub(1)
            };
            last = *sample;
        }
    }
}

/// Reads pairs of samples up to `end`.
fn pairs(bits: &mut Bits<'_>, end: usize, samples: &mut Vec<u32>) -> Option<()> {
    while samples.len() < end {
        let number = bits.zeros(LAST_PAIR)?;
        // The pairs are numbered by their sum, then by the second sample.
        let mut sum = 0_u32;
        let mut first_of_sum = 0_u32;
        while first_of_sum.checked_add(sum)? < number {
            sum = sum.checked_add(1)?;
            first_of_sum = first_of_sum.checked_add(sum)?;
        }
        let second = number.checked_sub(first_of_sum)?;
        // The first of a pair may be the reference.
        if samples.len().is_multiple_of(2) {
            samples.push(sum.checked_sub(second)?);
        }
        samples.push(second);
    }
    Some(())
}

/// Reads samples whose lowest bits are stored apart, up to `end`.
fn split(bits: &mut Bits<'_>, low_bits: u32, end: usize, samples: &mut Vec<u32>) -> Option<()> {
    let start = samples.len();
    // A wider number would be sent as it is.
    let most = u32::MAX.checked_shr(low_bits)?;
    while samples.len() < end {
        samples.push(bits.zeros(most)?.checked_shl(low_bits)?);
    }
    for sample in samples.get_mut(start..)? {
        *sample |= bits.number(low_bits)?;
    }
    Some(())
}
