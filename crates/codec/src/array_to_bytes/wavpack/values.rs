//! The last step: elements from samples.
//!
//! Integers of more than 24 bits and floats are stored as shorter samples, with the bits that these
//! lack beside them. Samples with loss are limited to the range of the type.

use super::block::{Block, Extra};
use super::decorrelation::Samples;

/// The flags of floats.
const SHIFT_ONES: u8 = 1;
const SHIFT_SAME: u8 = 2;
const SHIFT_SENT: u8 = 4;
const ZEROS_SENT: u8 = 8;
const NEGATIVE_ZEROS: u8 = 16;

/// A sample above all exponents stands for an infinity or a NaN.
const EXCEPTION: u32 = 0x100_0000;

impl Samples {
    /// Changes all samples in the order of a stream, in which those of both channels alternate.
    fn change(&mut self, mut change: impl FnMut(&mut i32)) {
        if self.second.is_empty() {
            self.first.iter_mut().for_each(change);
            return;
        }
        for (first, second) in self.first.iter_mut().zip(&mut self.second) {
            change(first);
            change(second);
        }
    }
}

fn shifted(value: i32, count: u32) -> i32 {
    value.wrapping_shl(count)
}

/// The bits that all integers of a block have at their end.
#[derive(Clone, Copy)]
struct Tail {
    zeros: u32,
    ones: u32,
    copies: u32,
}

impl Tail {
    fn put(self, value: i32) -> i32 {
        if self.zeros > 0 {
            shifted(value, self.zeros)
        } else if self.ones > 0 {
            shifted(value.wrapping_add(1), self.ones).wrapping_sub(1)
        } else if self.copies > 0 {
            shifted(value.wrapping_add(value & 1), self.copies).wrapping_sub(value & 1)
        } else {
            value
        }
    }

    fn len(self) -> u32 {
        self.zeros + self.ones + self.copies
    }

    /// Removes one bit. Returns whether there was one.
    fn shorten(&mut self) -> bool {
        let counts = [&mut self.zeros, &mut self.ones, &mut self.copies];
        let Some(count) = counts.into_iter().find(|count| **count > 0) else { return false };
        *count -= 1;
        true
    }
}

impl Block<'_> {
    /// Replaces samples by elements. Returns whether their checksum is right.
    pub(super) fn finish(&mut self, samples: &mut Samples) -> bool {
        if self.flags.is_float() {
            return self.finish_floats(samples);
        }
        let mut shift = self.flags.shift();
        let mut is_right = true;
        if self.flags.has_extra_bits() {
            let [sent, zeros, ones, copies] = self.integer.map(|count| u32::from(count & 31));
            let mut tail = Tail { zeros, ones, copies };
            if let Some(extra) = &mut self.extra {
                is_right = extra.finish_integers(samples, sent, tail);
            } else if sent == 0 && tail.len() > 0 {
                let is_cut = self.flags.is_hybrid() && self.flags.item_len() == 4;
                while is_cut && shift < 8 && tail.shorten() {
                    shift += 1;
                }
                samples.change(|value| *value = tail.put(*value));
            } else {
                shift += tail.len() + sent;
            }
        }
        let shift = shift & 31;
        if self.flags.is_hybrid() {
            let bits = u32::try_from(self.flags.item_len()).unwrap_or(4) * 8;
            let most = (i32::MAX >> (32 - bits)) >> shift;
            samples.change(|value| *value = shifted((*value).clamp(!most, most), shift));
        } else if shift > 0 {
            samples.change(|value| *value = shifted(*value, shift));
        }
        is_right
    }

    fn finish_floats(&mut self, samples: &mut Samples) -> bool {
        let [flags, shift, exponent, _] = self.float;
        let (shift, exponent) = (u32::from(shift & 31), u32::from(exponent));
        let Some(extra) = &mut self.extra else {
            samples.change(|value| {
                *value = lossy_float(shifted(*value, shift), flags, exponent).cast_signed();
            });
            return true;
        };
        let mut crc = u32::MAX;
        samples.change(|value| {
            let float = extra.float(shifted(*value, shift), flags, exponent);
            let parts = [(float & 0x7f_ffff) * 9, (float >> 23 & 0xff) * 3, float >> 31];
            crc = parts.iter().fold(crc.wrapping_mul(27), |sum, part| sum.wrapping_add(*part));
            *value = float.cast_signed();
        });
        crc == extra.crc && !extra.bits.is_overrun()
    }
}

/// Returns a magnitude whose first bit is the one that a float omits, its exponent, and by how many
/// bits it was shifted.
fn normalized(mut magnitude: u32, mut exponent: u32) -> (u32, u32, u32) {
    let mut count = 0;
    while exponent > 0 && magnitude & 0x80_0000 == 0 {
        exponent -= 1;
        if exponent > 0 {
            count += 1;
            magnitude <<= 1;
        }
    }
    (magnitude, exponent, count & 31)
}

fn float(is_negative: bool, exponent: u32, magnitude: u32) -> u32 {
    u32::from(is_negative) << 31 | (exponent & 0xff) << 23 | magnitude & 0x7f_ffff
}

/// Returns the bits of a float without those that were not stored.
fn lossy_float(value: i32, flags: u8, exponent: u32) -> u32 {
    let mut magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    if magnitude >= EXCEPTION {
        let mut exponent = exponent;
        while magnitude & 0xf00_0000 != 0 {
            magnitude >>= 1;
            exponent += 1;
        }
        return float(value < 0, exponent, magnitude);
    }
    let (magnitude, exponent, count) = normalized(magnitude, exponent);
    let low = if flags & SHIFT_ONES != 0 { (1 << count) - 1 } else { 0 };
    float(value < 0, exponent, magnitude | low)
}

impl Extra<'_> {
    fn finish_integers(&mut self, samples: &mut Samples, sent: u32, tail: Tail) -> bool {
        let mut crc = u32::MAX;
        samples.change(|value| {
            let mut count = sent;
            if self.max_width > 0 && sent > 0 {
                let magnitude = if *value < 0 { !*value } else { *value }.cast_unsigned();
                let width = u32::BITS - magnitude.leading_zeros() + sent;
                count = sent.saturating_sub(width.saturating_sub(self.max_width));
            }
            let low = self.bits.number(count).cast_signed();
            *value = tail.put(shifted(shifted(*value, count) | low, sent - count));
            let bits = value.cast_unsigned();
            crc = crc.wrapping_mul(9).wrapping_add((bits & 0xffff) * 3).wrapping_add(bits >> 16);
        });
        crc == self.crc && !self.bits.is_overrun()
    }

    /// Returns the bits of a float.
    fn float(&mut self, value: i32, flags: u8, exponent: u32) -> u32 {
        let magnitude = value.unsigned_abs();
        if magnitude == 0 {
            return self.zero(flags, exponent);
        }
        if magnitude == EXCEPTION {
            let mantissa = if self.bits.bit() { self.bits.number(23) } else { 0 };
            return float(value < 0, 0xff, mantissa);
        }
        let (magnitude, exponent, count) = normalized(magnitude, exponent);
        let low = if count == 0 { 0 } else { self.low_bits(flags, count) };
        float(value < 0, exponent, magnitude | low)
    }

    /// Returns the bits of a float that was too small for a sample.
    fn zero(&mut self, flags: u8, max_exponent: u32) -> u32 {
        if flags & ZEROS_SENT == 0 {
            return 0;
        }
        if self.bits.bit() {
            let mantissa = self.bits.number(23);
            let exponent = if max_exponent >= 25 { self.bits.number(8) } else { 0 };
            return float(self.bits.bit(), exponent, mantissa);
        }
        float(flags & NEGATIVE_ZEROS != 0 && self.bits.bit(), 0, 0)
    }

    /// Returns the bits that were shifted out of a float.
    fn low_bits(&mut self, flags: u8, count: u32) -> u32 {
        let ones = (1 << count) - 1;
        if flags & SHIFT_ONES != 0 || (flags & SHIFT_SAME != 0 && self.bits.bit()) {
            return ones;
        }
        if flags & SHIFT_SENT == 0 {
            return 0;
        }
        let mut zeros = if self.max_ones > 0 { count.saturating_sub(self.max_ones) } else { 0 };
        if self.min_zeros > zeros {
            zeros = self.min_zeros.min(count);
        }
        self.bits.number(count - zeros) << zeros & ones
    }
}
