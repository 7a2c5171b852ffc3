//! The entropy coder: residuals from the main bits of a block.
//!
//! Three medians follow the magnitudes of each channel. A run of ones says between which of them a
//! residual lies, and the bits after it say where. In hybrid mode, the bits only narrow the
//! interval down to an error that depends on the bits per sample, which is the loss.

use super::bits::Bits;
use super::block::Flags;
use super::log::{exp2, log2, signed_exp2};

/// The most that a residual can be.
const MOST: u32 = 0x7fff_ffff;

/// The state of one channel.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// The medians, times 16.
    pub(super) medians: [u32; 3],
    /// The mean of the logarithms of residuals, times 256.
    pub(super) level: u32,
    /// The length of an interval that is not divided further.
    error: u32,
}

/// The bits per sample in hybrid mode.
#[derive(Debug, Default)]
pub(super) struct Bitrate {
    /// Times 2^24.
    pub(super) rates: [u32; 2],
    /// The change after each sample.
    pub(super) changes: [i32; 2],
}

/// The residuals of one block.
#[derive(Debug)]
pub(super) struct Words<'a> {
    pub(super) bits: Bits<'a>,
    pub(super) channels: [Channel; 2],
    pub(super) bitrate: Bitrate,
    pub(super) flags: Flags,
    /// Whether the run before was odd: its last one belongs to the next residual.
    is_one_held: bool,
    /// Whether the run before was even: the next residual has none.
    is_zero_held: bool,
    /// The residuals of 0 that are left, and one more.
    zeros: u32,
}

fn median(median: u32) -> u32 {
    (median >> 4) + 1
}

/// Raises a median after a residual above it.
fn raise(median: &mut u32, divisor: u32) {
    *median = median.wrapping_add((median.wrapping_add(divisor) / divisor).wrapping_mul(5));
}

/// Lowers a median after a residual below it.
fn lower(median: &mut u32, divisor: u32) {
    *median = median.wrapping_sub((median.wrapping_add(divisor - 2) / divisor).wrapping_mul(2));
}

fn decayed(level: u32) -> u32 {
    level.wrapping_sub(level.wrapping_add(128) >> 8)
}

impl Channel {
    /// Returns the least and the most that a residual of this zone can be.
    #[inline]
    fn interval(&mut self, zone: u32) -> (u32, u32) {
        let [first, second, third] = &mut self.medians;
        let lengths = [*first, *second, *third].map(median);
        let [a, b, c] = lengths;
        let (low, len) = match zone {
            0 => {
                lower(first, 128);
                (0, a)
            }
            1 => {
                raise(first, 128);
                lower(second, 64);
                (a, b)
            }
            2 => {
                raise(first, 128);
                raise(second, 64);
                lower(third, 32);
                (a.wrapping_add(b), c)
            }
            _ => {
                raise(first, 128);
                raise(second, 64);
                raise(third, 32);
                (a.wrapping_add(b).wrapping_add((zone - 2).wrapping_mul(c)), c)
            }
        };
        let high = low.wrapping_add(len).wrapping_sub(1) & MOST;
        let low = low & MOST;
        (low, high.max(low))
    }
}

impl<'a> Words<'a> {
    pub(super) fn new(bits: &'a [u8], flags: Flags) -> Self {
        Self {
            bits: Bits::new(bits),
            channels: Default::default(),
            bitrate: Bitrate::default(),
            flags,
            is_one_held: false,
            is_zero_held: false,
            zeros: 0,
        }
    }

    /// Returns the next residual, which is one of the second channel if `is_second`. `None` if the
    /// bits are none.
    #[inline]
    pub(super) fn next(&mut self, is_second: bool) -> Option<i32> {
        let is_quiet = self.channels.iter().all(|channel| channel.medians[0] < 2);
        if is_quiet && !self.is_one_held && !self.is_zero_held && self.is_zero(is_second)? {
            return Some(0);
        }
        let zone = self.zone()?;
        if self.flags.is_hybrid() && !is_second {
            self.limit_error();
        }
        let [first, second] = &mut self.channels;
        let channel = if is_second { second } else { first };
        let (mut low, mut high) = channel.interval(zone);
        let magnitude = if channel.error == 0 {
            low + self.bits.up_to(high - low)
        } else {
            let mut middle = (low + high).div_ceil(2);
            while high - low > channel.error {
                if self.bits.bit() {
                    low = middle;
                } else {
                    high = middle - 1;
                }
                middle = (low + high).div_ceil(2);
            }
            middle
        };
        let is_negative = self.bits.bit();
        if self.flags.has_bitrate() {
            channel.level = decayed(channel.level).wrapping_add(log2(magnitude));
        }
        let magnitude = magnitude.cast_signed();
        Some(if is_negative { !magnitude } else { magnitude })
    }

    /// Whether the next residual is in a run of zeros.
    fn is_zero(&mut self, is_second: bool) -> Option<bool> {
        if self.zeros > 0 {
            self.zeros -= 1;
        } else {
            self.zeros = self.bits.zeros()?;
            if self.zeros > 0 {
                for channel in &mut self.channels {
                    channel.medians = [0; 3];
                }
            }
        }
        let [first, second] = &mut self.channels;
        let channel = if is_second { second } else { first };
        if self.zeros > 0 {
            channel.level = decayed(channel.level);
        }
        Some(self.zeros > 0)
    }

    /// Returns how many medians are below the next residual.
    #[inline]
    fn zone(&mut self) -> Option<u32> {
        if self.is_zero_held {
            self.is_zero_held = false;
            return Some(0);
        }
        let ones = self.bits.ones()?;
        let zone = (ones >> 1) + u32::from(self.is_one_held);
        self.is_one_held = ones & 1 != 0;
        self.is_zero_held = !self.is_one_held;
        Some(zone)
    }

    /// Computes the error that the bits per sample allow.
    fn limit_error(&mut self) {
        let rate = |rate: &mut u32, change: i32| {
            *rate = rate.wrapping_add_signed(change);
            (*rate >> 16).cast_signed()
        };
        let [rate0, rate1] = &mut self.bitrate.rates;
        let [change0, change1] = self.bitrate.changes;
        let is_mono = self.flags.has_mono_data();
        let mut rates = [rate(rate0, change0), if is_mono { 0 } else { rate(rate1, change1) }];
        if !self.flags.has_bitrate() {
            for (channel, rate) in self.channels.iter_mut().zip(rates) {
                channel.error = signed_exp2(rate).cast_unsigned();
            }
            return;
        }
        let levels = [0, 1].map(|index: usize| {
            let level = self.channels.get(index).map_or(0, |channel| channel.level);
            (level.wrapping_add(128) >> 8).cast_signed()
        });
        if self.flags.is_balanced() && !is_mono {
            let [level0, level1] = levels;
            let [rate0, rate1] = rates;
            let balance = (level1 - level0 + rate1 + 1) >> 1;
            rates = if balance > rate0 {
                [0, rate0 * 2]
            } else if -balance > rate0 {
                [rate0 * 2, 0]
            } else {
                [rate0 - balance, rate0 + balance]
            };
        }
        for ((channel, rate), level) in self.channels.iter_mut().zip(rates).zip(levels) {
            let log = u32::try_from(level - rate + 0x100).unwrap_or_default();
            channel.error = if log > 0 { exp2(log) } else { 0 };
        }
    }
}
