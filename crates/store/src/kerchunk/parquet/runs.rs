//! The lengths in decoded pages, which are checked before the crate `parquet` reads them: it panics
//! if a run or a string is longer than the page.
//!
//! ```text
//! levels    in a page of version 1: u32 length | runs
//! indices   of values in the dictionary: u8 bits of an index | runs
//! run       varint 2 * n | a value, n times
//!           varint 2 * n + 1 | 8 * n values of some bits
//!           varint 0, and padding
//! string    u32 length | bytes
//! ```

use ::parquet::basic::Encoding;
use ::parquet::column::page::{Page, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};

/// The most bits of an index.
const MAX_BITS: u8 = 32;

/// The most values of a run: more than a file has rows.
const MAX_RUN: u32 = 1 << 28;

/// The bits of a level. Values are null or not.
const LEVEL_BITS: u8 = 1;

/// The form of the values of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnValues {
    /// Whether they may be null, so that each page has levels.
    pub has_levels: bool,
    /// Whether they are strings, and not numbers.
    pub are_strings: bool,
}

/// The pages of a column whose lengths are checked.
pub(super) struct CheckedPages {
    pages: Box<dyn PageReader>,
    values: ColumnValues,
}

impl CheckedPages {
    /// Returns the same pages.
    pub fn new(pages: Box<dyn PageReader>, values: ColumnValues) -> Self {
        Self { pages, values }
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.values.check(page).ok_or_else(|| {
                ParquetError::General("a part of a page is too long, or cut off".to_owned())
            })?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl ColumnValues {
    /// Checks all lengths in a page. `None` if one is wrong.
    fn check(self, page: &Page) -> Option<()> {
        let count = u64::from(page.num_values());
        let (levels, values) = match page {
            Page::DictionaryPage { buf, .. } => return self.check_values(buf, count),
            Page::DataPage { buf, .. } if self.has_levels => {
                let (len, rest) = buf.split_first_chunk::<4>()?;
                rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?
            }
            Page::DataPage { buf, .. } => (&[][..], &buf[..]),
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let rest = buf.get(usize::try_from(*rep_levels_byte_len).ok()?..)?;
                rest.split_at_checked(usize::try_from(*def_levels_byte_len).ok()?)?
            }
        };
        let count = if self.has_levels { read_runs(levels, LEVEL_BITS, count)? } else { count };
        if page.encoding() == Encoding::PLAIN {
            return self.check_values(values, count);
        }
        let (bits, runs) = values.split_first()?;
        read_runs(runs, Some(*bits).filter(|bits| *bits <= MAX_BITS)?, count).map(drop)
    }

    /// Checks values that are stored as they are.
    fn check_values(self, mut values: &[u8], count: u64) -> Option<()> {
        for _ in 0..if self.are_strings { count } else { 0 } {
            let (len, rest) = values.split_first_chunk::<4>()?;
            values = rest.get(usize::try_from(u32::from_le_bytes(*len)).ok()?..)?;
        }
        Some(())
    }
}

/// Reads all runs of values of some bits, and returns how many of the first `count` values are 1.
fn read_runs(mut runs: &[u8], bits: u8, count: u64) -> Option<u64> {
    let (mut left, mut ones) = (count, 0_u64);
    while !runs.is_empty() {
        let (head, rest) = varint(runs)?;
        let run = head >> 1;
        if head == 0 {
            break;
        }
        let is_packed = head & 1 == 1;
        let (run, len) = if is_packed {
            let run = Some(run).filter(|run| *run < MAX_RUN / 8)?;
            (run.checked_mul(8)?, usize::try_from(run).ok()?.checked_mul(bits.into())?)
        } else {
            (Some(run).filter(|run| *run < MAX_RUN)?, usize::from(bits).div_ceil(8))
        };
        // Some programs cut off the last values of the last run.
        let (values, after) = match rest.split_at_checked(len) {
            None if is_packed => (rest, &[][..]),
            split => split?,
        };
        let counted = u64::from(run).min(left);
        left = left.saturating_sub(counted);
        ones = ones.saturating_add(match (is_packed, values) {
            (false, [1]) => counted,
            (true, values) if bits == LEVEL_BITS => ones_in(values, counted),
            _ => 0,
        });
        runs = after;
    }
    Some(ones)
}

/// Returns how many of the first bits are 1.
fn ones_in(bytes: &[u8], mut bits: u64) -> u64 {
    let mut ones = 0_u64;
    for byte in bytes {
        let used = u32::try_from(bits.min(8)).unwrap_or_default();
        let mask = 0xff_u8.checked_shr(8_u32.saturating_sub(used)).unwrap_or_default();
        ones = ones.saturating_add(u64::from((byte & mask).count_ones()));
        bits = bits.saturating_sub(8);
    }
    ones
}

fn varint(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u64;
    for (shift, (at, byte)) in (0..).step_by(7).zip(bytes.iter().enumerate().take(5)) {
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, bytes.get(at.checked_add(1)?..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_an_end() {
        for (runs, bits, is_valid) in [
            (&[][..], 1, true),
            (&[6, 1], 1, true),
            (&[6], 1, false),
            (&[3, 0xff, 6, 0], 1, true),
            (&[5, 0xff], 1, true),
            (&[0, 0xff, 0xff], 1, true),
            (&[0xfe, 0xff, 0xff, 0xff, 0x01, 1], 1, true),
            (&[0xff, 0xff, 0xff, 0xff, 0x0f, 1], 1, false),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 1, false),
            (&[4, 1, 2, 3], 24, true),
            (&[4, 1, 2], 24, false),
            (&[4], 0, true),
        ] {
            assert_eq!(read_runs(runs, bits, 9).is_some(), is_valid, "{runs:?}");
        }
    }

    #[test]
    fn the_levels_of_values_that_are_not_null_are_counted() {
        for (runs, count, ones) in [
            (&[][..], 5, 0),
            (&[10, 1], 5, 5),
            (&[10, 1], 3, 3),
            (&[10, 0, 4, 1], 7, 2),
            (&[3, 0b0101_0101], 8, 4),
            (&[3, 0b0101_0101], 3, 2),
            (&[5, 0xff, 0x01, 2, 1], 17, 10),
            (&[5, 0xff], 16, 8),
        ] {
            assert_eq!(read_runs(runs, LEVEL_BITS, count), Some(ones), "{runs:?}");
        }
    }
}
