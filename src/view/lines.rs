//! A text file of a line for each row of a table, which is made when it is read.
//!
//! The lines are made once when the file is opened, because its length is that of all of them. Only
//! the length of each block of lines is kept, with a number that depends on its bytes. A block that
//! a read makes again, and that differs then, is [`Kind::Stale`].

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;

use foldhash::quality::FixedState;
use parking_lot::Mutex;

use super::elements::{ElementRange, GetChunk};
use super::parts::Derived;
use crate::error::{Error, Kind, Result};
use crate::width::{ToU64, ToUsize};

/// How many fields of a block are made at a time, at least one line.
const BLOCK_FIELDS: u64 = 1 << 15;

/// The most bytes of a block.
const MAX_BLOCK: usize = 64 << 20;

/// A table whose rows are lines.
pub(super) trait Rows: fmt::Debug + Send + Sync {
    /// Returns the number of rows.
    fn count(&self) -> u64;
    /// Returns the number of fields in a row.
    fn width(&self) -> u64;
    /// Returns the elements that they are made from.
    fn sources(&self) -> Vec<&ElementRange>;
    /// Returns the lines of some rows.
    fn lines(&self, rows: Range<u64>, get: &GetChunk<'_>) -> Result<String>;
}

/// The lines of all rows.
#[derive(Debug)]
pub(super) struct TableLines<R> {
    rows: R,
    /// The number of lines in a block.
    step: u64,
    blocks: Vec<LineBlock>,
    /// The block that was made last, which the next read often needs, with its number. A leaf lock.
    last: Mutex<Option<(usize, Arc<str>)>>,
}

#[derive(Debug)]
struct LineBlock {
    /// Its end in the file.
    end: u64,
    /// A number that depends on its bytes.
    print: u64,
}

impl<R: Rows> TableLines<R> {
    /// Makes all lines once. Fails if they have more than `most` fields.
    pub fn new(rows: R, most: u64, get: &GetChunk<'_>) -> Result<Self> {
        let (count, width) = (rows.count(), rows.width().max(1));
        let fields = count.saturating_mul(width);
        if fields > most {
            return Err(Error::unsupported(format!(
                "it has {count} rows of {width} columns, the limit of a file is {most} fields"
            )));
        }
        let step = BLOCK_FIELDS.checked_div(width).unwrap_or_default().max(1);
        let mut lines = Self { rows, step, blocks: Vec::new(), last: Mutex::default() };
        let mut end = 0_u64;
        while lines.blocks.len().to_u64().saturating_mul(step) < count {
            let text = lines.block(lines.blocks.len(), get)?;
            if text.len() > MAX_BLOCK {
                return Err(Error::unsupported(format!(
                    "{step} of its rows have {} bytes, the limit is {MAX_BLOCK}",
                    text.len()
                )));
            }
            end = end.saturating_add(text.len().to_u64());
            lines.blocks.push(LineBlock { end, print: print_of(&text) });
        }
        Ok(lines)
    }

    fn block(&self, number: usize, get: &GetChunk<'_>) -> Result<String> {
        let first = number.to_u64().saturating_mul(self.step);
        let end = first.saturating_add(self.step).min(self.rows.count());
        let whole: &GetChunk<'_> = &|elements, coords, _| get(elements, coords, &(0..usize::MAX));
        self.rows.lines(first..end, whole)
    }

    /// Returns the lines of a block as they were when the file was opened.
    fn checked_block(
        &self,
        number: usize,
        block: &LineBlock,
        get: &GetChunk<'_>,
    ) -> Result<Arc<str>> {
        if let Some((of, text)) = &*self.last.lock()
            && *of == number
        {
            return Ok(Arc::clone(text));
        }
        let text: Arc<str> = self.block(number, get)?.into();
        if print_of(&text) != block.print {
            let detail = "its values have changed since the file was opened";
            return Err(Error::new(Kind::Stale, detail));
        }
        *self.last.lock() = Some((number, Arc::clone(&text)));
        Ok(text)
    }
}

impl<R: Rows> Derived for TableLines<R> {
    fn len(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.end)
    }

    fn print(&self) -> u64 {
        let mut hasher = FixedState::default().build_hasher();
        for block in &self.blocks {
            hasher.write_u64(block.end);
            hasher.write_u64(block.print);
        }
        hasher.finish()
    }

    fn sources(&self) -> Vec<&ElementRange> {
        self.rows.sources()
    }

    fn what(&self) -> &'static str {
        "the lines of a table"
    }

    fn read(&self, from: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()> {
        let (mut at, mut left) = (from, target);
        while !left.is_empty() {
            let number = self.blocks.partition_point(|block| block.end <= at);
            let outside = || Error::new(Kind::Internal, "outside of the lines");
            let block = self.blocks.get(number).ok_or_else(outside)?;
            let text = self.checked_block(number, block, get)?;
            let start = block.end.saturating_sub(text.len().to_u64());
            let bytes = text.as_bytes().get(at.saturating_sub(start).to_usize()..);
            let bytes = bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(outside)?;
            let (head, rest) = left.split_at_mut(bytes.len().min(left.len()));
            head.copy_from_slice(bytes.get(..head.len()).unwrap_or_default());
            at = at.saturating_add(head.len().to_u64());
            left = rest;
        }
        Ok(())
    }
}

fn print_of(text: &str) -> u64 {
    FixedState::default().hash_one(text)
}
