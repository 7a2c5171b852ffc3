//! Nested lists that are read in one pass, in either notation.

use zarrfs_base::error::{Error, Result};

/// The unread bytes of nested lists.
pub(super) trait Lists<'b> {
    /// Begins the next value, which must be a list.
    fn begin(&mut self) -> Result<()>;

    /// Whether another item follows in the innermost list that was begun. If not, that list ends.
    fn has_next(&mut self) -> Result<bool>;

    /// Returns the next item as it is encoded. Does not parse nested values.
    fn item(&mut self) -> Result<&'b [u8]>;

    /// Fails if anything follows the outermost list.
    fn end(&self) -> Result<()>;
}

/// Calls `each` with each encoded item of a list.
pub(super) fn for_each<'b>(
    list: &mut impl Lists<'b>,
    each: &mut dyn FnMut(&'b [u8]) -> Result<()>,
) -> Result<()> {
    list.begin()?;
    while list.has_next()? {
        each(list.item()?)?;
    }
    list.end()
}

/// Calls `each` with each encoded element of nested lists of this shape, in C order. In the
/// outermost list, `more` other items follow.
pub(super) fn for_each_leaf<'b>(
    list: &mut impl Lists<'b>,
    shape: &[u64],
    more: u64,
    each: &mut dyn FnMut(&'b [u8]) -> Result<()>,
) -> Result<()> {
    let lens = if shape.is_empty() { &[1] } else { shape };
    // The number of items so far in each list from the outermost to the innermost.
    let mut counts = vec![0_u64];
    list.begin()?;
    while let Some(found) = counts.last_mut() {
        let has_next = list.has_next()?;
        *found = found.saturating_add(u64::from(has_next));
        let (found, depth) = (*found, counts.len());
        let len = lens.get(depth.saturating_sub(1)).copied().unwrap_or(1);
        let more = if depth == 1 { more } else { 0 };
        if !has_next {
            check_row(found.saturating_sub(more), len)?;
            counts.pop();
        } else if found > len.saturating_add(more) {
            check_row(found, len)?;
        } else if found > len {
            list.item()?;
        } else if depth == lens.len() {
            each(list.item()?)?;
        } else {
            list.begin()?;
            counts.push(0);
        }
    }
    list.end()
}

/// Fails unless a row has `len` items.
pub(super) fn check_row(found: u64, len: u64) -> Result<()> {
    if found == len {
        return Ok(());
    }
    Err(Error::corrupt(format!("{found} objects, the row needs {len}")))
}
