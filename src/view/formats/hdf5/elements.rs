//! The layout of an array's elements in the file.
//!
//! If chunks divide more than the first dimension, the dataset has the same chunks, stored
//! consecutively and without an index, which needs HDF5 1.10 or later. Otherwise the elements are
//! in C order.

use super::file::ElementsLocation;
use crate::error::Result;
use crate::view::layout::{Layout, NumberForm};
use crate::view::parts::Part;
use crate::view::source::ViewSource;

/// Chunks must be shorter than this, in bytes.
const MAX_CHUNK_LEN: u64 = 1 << 32;

/// Returns the elements of an array. Each has `characters` elements of the file if given.
pub(super) fn stored(source: &ViewSource<'_>, characters: Option<u64>) -> Result<ElementsLocation> {
    let array = source.array()?;
    let (grid, shape) = (array.grid(), &array.model().shape);
    let item_len = array.model().dtype.item_len();
    let mut chunk = array.chunk_shape().to_vec();
    let chunk_len = chunk.iter().try_fold(u64::try_from(item_len).ok(), |len, n| {
        Some(len.and_then(|len| len.checked_mul(*n)))
    });
    let is_chunked = grid.is_regular()
        && !shape.contains(&0)
        // Chunks that divide only the first dimension are the same bytes as C order.
        && grid.counts().iter().skip(1).any(|count| *count > 1)
        // Libraries refuse to create a dataset with chunks larger than itself, so a copy of this
        // file would fail.
        && chunk.iter().zip(shape).all(|(chunk, len)| chunk <= len)
        && chunk_len.flatten().is_some_and(|len| len < MAX_CHUNK_LEN);
    if !is_chunked {
        return Ok(ElementsLocation::Contiguous(
            source.elements(Layout::Linear, NumberForm::default())?.into(),
        ));
    }
    chunk.extend(characters);
    let part = Part::from(source.elements(Layout::Chunks, NumberForm::default())?);
    Ok(ElementsLocation::Chunks(part, chunk, if characters.is_some() { 1 } else { item_len }))
}
