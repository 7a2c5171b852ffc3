//! The runs in decoded pages, which are checked before the crate `parquet` reads them: it panics if
//! the length of a run has too many bytes.
//!
//! ```text
//! levels    in a page of version 1: u32 length | runs
//! indices   of values in the dictionary: u8 bits of an index | runs
//! run       varint 2 * n | a value, n times
//!           varint 2 * n + 1 | 8 * n values of some bits
//!           varint 0, and padding
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

/// The pages of a column whose runs are checked.
pub(super) struct CheckedPages {
    pages: Box<dyn PageReader>,
    has_levels: bool,
}

impl CheckedPages {
    /// Returns the same pages. If the column `has_levels`, each page has those.
    pub fn new(pages: Box<dyn PageReader>, has_levels: bool) -> Self {
        Self { pages, has_levels }
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
            check(page, self.has_levels).ok_or_else(|| {
                ParquetError::General("a run in a page is too long, or cut off".to_owned())
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

/// Checks all runs of a page. `None` if one is wrong.
fn check(page: &Page, has_levels: bool) -> Option<()> {
    let (levels, values) = match page {
        Page::DictionaryPage { .. } => return Some(()),
        Page::DataPage { buf, .. } if has_levels => {
            let (len, rest) = buf.split_first_chunk::<4>()?;
            rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?
        }
        Page::DataPage { buf, .. } => (&[][..], &buf[..]),
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let rest = buf.get(usize::try_from(*rep_levels_byte_len).ok()?..)?;
            rest.split_at_checked(usize::try_from(*def_levels_byte_len).ok()?)?
        }
    };
    if has_levels {
        check_runs(levels, LEVEL_BITS)?;
    }
    if page.encoding() != Encoding::PLAIN {
        let (bits, runs) = values.split_first()?;
        check_runs(runs, Some(*bits).filter(|bits| *bits <= MAX_BITS)?)?;
    }
    Some(())
}

fn check_runs(mut runs: &[u8], bits: u8) -> Option<()> {
    while !runs.is_empty() {
        let (head, rest) = varint(runs)?;
        let count = head >> 1;
        if head == 0 {
            return Some(());
        }
        let len = match head & 1 {
            0 if count < MAX_RUN => usize::from(bits).div_ceil(8),
            1 if count < MAX_RUN / 8 => usize::try_from(count).ok()?.checked_mul(bits.into())?,
            _ => return None,
        };
        // Some programs cut off the last values of the last run.
        runs = match rest.get(len..) {
            None if head & 1 == 1 => &[],
            rest => rest?,
        };
    }
    Some(())
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
            assert_eq!(check_runs(runs, bits).is_some(), is_valid, "{runs:?}");
        }
    }
}
