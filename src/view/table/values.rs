//! The values of a column, one after the other.

use super::column::{ColumnElements, ColumnSource};
use super::field::TableField;
use crate::dtype::Element;
use crate::error::{Error, Kind, Result};
use crate::view::elements::GetChunk;
use crate::view::texts::TextRows;
use crate::width::ToUsize;

/// How many bytes of elements are read at a time, if no row of chunks has more.
const STEP: u64 = 1 << 20;

/// The most bytes of elements that are read at a time.
const MAX_STEP: u64 = 64 << 20;

/// How many strings are read at a time.
const TEXTS: u64 = 1 << 13;

/// Reads a column in order.
pub(in crate::view) struct Values<'c> {
    source: &'c ColumnSource,
    /// The number of the next element, and of the one after the last.
    at: u64,
    until: u64,
    /// Some elements or strings, and the number of the first.
    read: Vec<u8>,
    texts: Vec<String>,
    read_from: u64,
    /// The readers of values and of their mask.
    parts: Vec<Self>,
}

impl<'c> Values<'c> {
    pub fn new(source: &'c ColumnSource, at: u64, until: u64) -> Self {
        let parts = match source {
            ColumnSource::Masked(values, mask) => {
                vec![Self::new(values, at, until), Self::new(mask, at, until)]
            }
            _ => Vec::new(),
        };
        Self { source, at, until, read: Vec::new(), texts: Vec::new(), read_from: 0, parts }
    }

    /// Returns the next field.
    pub fn next(&mut self, get: &GetChunk<'_>) -> Result<TableField> {
        let at = self.at;
        self.at = at.saturating_add(1);
        match self.source {
            ColumnSource::Indices => Ok(TableField::Number(at.to_string())),
            ColumnSource::Fields(fields) => {
                Ok(fields.get(at.to_usize()).cloned().unwrap_or(TableField::Missing))
            }
            ColumnSource::Elements(elements) => {
                Ok(elements.form.field(self.item(at, elements, get)?))
            }
            ColumnSource::Texts(texts) => self.text(at, texts, get).map(TableField::Text),
            ColumnSource::Codes(codes, categories) => {
                let item = self.item(at, codes, get)?;
                let Element::Int(code) = Element::of(&codes.form.dtype, item) else {
                    return Err(short());
                };
                if code < 0 {
                    return Ok(TableField::Missing);
                }
                let found = usize::try_from(code).ok().and_then(|code| categories.get(code));
                found.cloned().ok_or_else(|| {
                    let count = categories.len();
                    Error::unsupported(format!("row {at} has category {code} of {count}"))
                })
            }
            ColumnSource::Masked(..) => {
                let mut fields = Vec::new();
                for part in &mut self.parts {
                    fields.push(part.next(get)?);
                }
                let is_missing = fields.pop() == Some(TableField::Bool(true));
                Ok(fields.pop().filter(|_| !is_missing).unwrap_or(TableField::Missing))
            }
        }
    }

    /// Returns the bytes of an element's field.
    fn item(&mut self, at: u64, elements: &ColumnElements, get: &GetChunk<'_>) -> Result<&[u8]> {
        let (item_len, range) = (elements.item_len, &elements.range);
        let place = |from: u64| at.saturating_sub(from).to_usize().saturating_mul(item_len);
        if self.read.len() <= place(self.read_from) {
            self.read_from = at;
            let start = elements.start(at);
            let end = elements.start(self.until).min(range.len());
            let left = end.saturating_sub(start).to_usize();
            // Less than a row of chunks would be decoded again for the rest.
            let step = range.slab_len().unwrap_or(MAX_STEP).clamp(STEP, MAX_STEP).to_usize();
            let step = (step.checked_div(item_len).unwrap_or_default()).max(1);
            self.read.resize(left.min(step.saturating_mul(item_len)), 0);
            range.read(start, &mut self.read, get)?;
        }
        let start = place(self.read_from);
        let item = self.read.get(start..start.saturating_add(item_len));
        item.map(|item| elements.member(item)).ok_or_else(short)
    }

    /// Returns a string.
    fn text(&mut self, at: u64, texts: &TextRows, get: &GetChunk<'_>) -> Result<String> {
        let index = at.saturating_sub(self.read_from).to_usize();
        if let Some(text) = self.texts.get_mut(index) {
            return Ok(std::mem::take(text));
        }
        let width = texts.width().max(1);
        let row = at.checked_div(width).unwrap_or_default();
        let rows = TEXTS.checked_div(width).unwrap_or_default().max(1);
        let end = row.saturating_add(rows).min(self.until.div_ceil(width));
        self.texts = texts.read(row..end, get)?;
        self.read_from = row.saturating_mul(width);
        let index = at.saturating_sub(self.read_from).to_usize();
        self.texts.get_mut(index).map(std::mem::take).ok_or_else(short)
    }
}

fn short() -> Error {
    Error::new(Kind::Internal, "a short column")
}
