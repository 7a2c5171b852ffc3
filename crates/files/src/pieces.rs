//! Arrays that are stored as a whole, in pieces that can be read one by one.

use crate::described::{Described, DescribedArray};
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};

/// About how many bytes a piece has.
pub const PIECE_LEN: u64 = 1 << 20;

/// Returns the shape of pieces of an array of elements of `item_len` bytes: some of the slowest
/// dimensions are divided, and all others are whole.
pub fn piece_shape(shape: &[u64], item_len: u64) -> Vec<u64> {
    let mut piece: Vec<u64> = shape.iter().map(|len| (*len).max(1)).collect();
    let mut rest = piece.iter().fold(item_len.max(1), |total, len| total.saturating_mul(*len));
    for len in &mut piece {
        if rest <= PIECE_LEN {
            break;
        }
        let one = rest.checked_div(*len).unwrap_or(1).max(1);
        let kept = (PIECE_LEN / one).clamp(1, *len);
        *len = kept;
        rest = one;
        if kept > 1 {
            break;
        }
    }
    piece
}

/// Describes an array whose elements lie in the file from `offset` on, in C order of `stored`, the
/// shape in the order of the file. `array.chunk_shape` gets the shape of pieces in that order.
pub fn describe(
    described: &mut Described,
    path: &str,
    array: DescribedArray,
    stored: Stored<'_>,
) -> Result<()> {
    let Stored { shape, item_len, is_reversed, .. } = stored;
    let piece = piece_shape(shape, item_len);
    let chunk_shape =
        if is_reversed { piece.iter().rev().copied().collect() } else { piece.clone() };
    described.array(path, &DescribedArray { chunk_shape, ..array })?;
    if shape.contains(&0) {
        return Ok(());
    }
    chunks(stored, |coords, piece| {
        let mut coords = coords.to_vec();
        if is_reversed {
            coords.reverse();
        }
        described.part(path, &coords, piece.offset, piece.len, piece.needed)
    })
}

/// A piece of an array in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// How many of them belong to the array, if it is the last along a dimension.
    pub needed: u64,
}

/// Calls `add` for each piece of an array, with its coordinates in the order of the file.
pub fn chunks(stored: Stored<'_>, mut add: impl FnMut(&[u64], Piece) -> Result<()>) -> Result<()> {
    let Stored { shape, item_len, offset, .. } = stored;
    let piece = piece_shape(shape, item_len);
    let too_large = || Error::corrupt("an array of more than 2^64 bytes");
    let product = |lens: &[u64]| {
        lens.iter().try_fold(item_len, |total, len| total.checked_mul(*len)).ok_or_else(too_large)
    };
    product(shape)?;
    let piece_len = product(&piece)?;
    // At most one dimension has pieces of more than one index and less than all; those before it
    // have one index each, and those after it are whole.
    let divided = piece.iter().zip(shape).position(|(piece, len)| piece < len && *piece > 1);
    let outer = divided.unwrap_or_else(|| piece.iter().zip(shape).filter(|(p, l)| p < l).count());
    let counts: Vec<u64> =
        piece.iter().zip(shape).map(|(piece, len)| len.div_ceil((*piece).max(1))).collect();
    let row_len = product(shape.get(outer..).unwrap_or_default())?;
    let mut coords = vec![0_u64; shape.len()];
    loop {
        let mut row = 0_u64;
        for (coord, len) in coords.iter().zip(shape).take(outer) {
            row = row.saturating_mul(*len).saturating_add(*coord);
        }
        let coord = coords.get(outer).copied().unwrap_or_default();
        let within = coord.saturating_mul(piece_len);
        let at = row.checked_mul(row_len).and_then(|at| at.checked_add(within));
        let at = at.and_then(|at| at.checked_add(offset)).ok_or_else(too_large)?;
        let needed = piece_len.min(row_len.saturating_sub(within));
        add(&coords, Piece { offset: at, len: piece_len, needed })?;
        if !advance(&mut coords, &counts) {
            return Ok(());
        }
    }
}

/// Fails if elements lie past the end of a file.
pub fn check_end(stored: Stored<'_>, file: &SourceFile) -> Result<()> {
    let Stored { shape, item_len, offset, .. } = stored;
    let len = if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(item_len, |all, len| all.checked_mul(*len))
    };
    let needed = len.and_then(|len| len.checked_add(offset));
    if len != Some(0) && needed.is_none_or(|needed| needed > file.len()) {
        let (name, end) = (file.name(), file.len());
        let detail = format!("the file {name} ends at byte {end}, before the last element");
        return Err(Error::corrupt(detail));
    }
    Ok(())
}

/// The place of an array in the file.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'s> {
    /// The shape in the order of the file, the slowest dimension first.
    pub shape: &'s [u64],
    /// The bytes of an element.
    pub item_len: u64,
    /// Where the first element begins.
    pub offset: u64,
    /// Whether the dimensions of the array are in the opposite order.
    pub is_reversed: bool,
}

/// Goes to the next coordinates; false at the end.
pub fn advance(coords: &mut [u64], counts: &[u64]) -> bool {
    for (coord, count) in coords.iter_mut().zip(counts).rev() {
        *coord += 1;
        if *coord < *count {
            return true;
        }
        *coord = 0;
    }
    false
}
