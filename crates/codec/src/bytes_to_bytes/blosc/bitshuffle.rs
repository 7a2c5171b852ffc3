//! Bit shuffle of one block, as in C-Blosc 1.
//!
//! The block has n elements of T bytes and becomes 8T rows of n / 8 bytes. Bit b of byte k of
//! element i goes to bit i % 8 of byte i / 8 of row 8k + b: a byte shuffle that then splits each
//! row into 8. A block whose n is not a multiple of 8 stays unchanged, and so do bytes at the end
//! that are not a whole element. Source, destination and scratch have the same length. No length
//! causes a panic.

use super::shuffle::{copy, shuffle, unshuffle};

/// Shuffles the bits of elements into rows. `scratch` has the same length; its contents do not
/// matter.
pub(in super::super) fn bitshuffle(
    item_len: usize,
    elements: &[u8],
    rows: &mut [u8],
    scratch: &mut [u8],
) {
    if !has_bit_rows(item_len, elements.len()) {
        return copy(elements, rows);
    }
    if item_len == 1 {
        return bits_to_rows(elements, rows, 1);
    }
    shuffle(item_len, elements, scratch);
    let body_len = elements.len() / item_len * item_len;
    let (Some(bytes), Some((rows, tail))) =
        (scratch.split_at_checked(body_len), rows.split_at_mut_checked(body_len))
    else {
        return;
    };
    bits_to_rows(bytes.0, rows, item_len);
    copy(bytes.1, tail);
}

/// Reverses [`bitshuffle`].
pub(in super::super) fn bitunshuffle(
    item_len: usize,
    rows: &[u8],
    elements: &mut [u8],
    scratch: &mut [u8],
) {
    if !has_bit_rows(item_len, elements.len()) {
        return copy(rows, elements);
    }
    if item_len == 1 {
        return rows_to_bits(rows, elements, 1);
    }
    let body_len = rows.len() / item_len * item_len;
    let (Some((rows, tail)), Some((bytes, rest))) =
        (rows.split_at_checked(body_len), scratch.split_at_mut_checked(body_len))
    else {
        return;
    };
    rows_to_bits(rows, bytes, item_len);
    copy(tail, rest);
    unshuffle(item_len, scratch, elements);
}

/// Whether a block is bit shuffled: its number of elements is a multiple of 8 and not 0.
fn has_bit_rows(item_len: usize, len: usize) -> bool {
    len.checked_div(item_len).is_some_and(|count| count > 0 && count.is_multiple_of(8))
}

/// 8 rows of words. The words at one index are a square of 64 bytes.
type Squares<const COUNT: usize> = [[u64; COUNT]; 8];

/// The number of squares that are transposed together: a cache line of each row.
const SQUARE_COUNT: usize = 8;

/// Splits each of `row_count` rows of bytes into 8 rows of bits.
fn bits_to_rows(bytes: &[u8], rows: &mut [u8], row_count: usize) {
    let byte_row_len = bytes.len() / row_count;
    let bit_row_len = byte_row_len / 8;
    for (bytes, rows) in bytes.chunks_exact(byte_row_len).zip(rows.chunks_exact_mut(byte_row_len)) {
        let (words, _) = bytes.as_chunks::<8>();
        let (squares, words) = words.as_chunks::<8>();
        let (many, few) = squares.as_chunks::<SQUARE_COUNT>();
        for (index, squares) in many.iter().enumerate() {
            store_rows(rows, bit_row_len, index * SQUARE_COUNT, bits_of_squares(squares));
        }
        for (index, square) in (many.len() * SQUARE_COUNT..).zip(few) {
            store_rows(rows, bit_row_len, index, bits_of_squares(&[*square]));
        }
        for (index, word) in (squares.len() * 8..).zip(words) {
            let word = transpose_bits(u64::from_le_bytes(*word)).to_le_bytes();
            for (row, byte) in rows.chunks_exact_mut(bit_row_len).zip(word) {
                if let Some(target) = row.get_mut(index) {
                    *target = byte;
                }
            }
        }
    }
}

/// Reverses [`bits_to_rows`].
fn rows_to_bits(rows: &[u8], bytes: &mut [u8], row_count: usize) {
    let byte_row_len = bytes.len() / row_count;
    let bit_row_len = byte_row_len / 8;
    for (rows, bytes) in rows.chunks_exact(byte_row_len).zip(bytes.chunks_exact_mut(byte_row_len)) {
        let (words, _) = bytes.as_chunks_mut::<8>();
        let word_index = words.len() / 8 * 8;
        let (squares, words) = words.as_chunks_mut::<8>();
        let (many, few) = squares.as_chunks_mut::<SQUARE_COUNT>();
        let few_index = many.len() * SQUARE_COUNT;
        for (index, squares) in many.iter_mut().enumerate() {
            squares_of_bits(load_rows(rows, bit_row_len, index * SQUARE_COUNT), squares);
        }
        for (index, square) in (few_index..).zip(few) {
            squares_of_bits(load_rows(rows, bit_row_len, index), std::array::from_mut(square));
        }
        for (index, word) in (word_index..).zip(words) {
            for (byte, row) in word.iter_mut().zip(rows.chunks_exact(bit_row_len)) {
                *byte = row.get(index).copied().unwrap_or_default();
            }
            *word = transpose_bits(u64::from_le_bytes(*word)).to_le_bytes();
        }
    }
}

/// Loads the words of each row from square `index` on.
fn load_rows<const COUNT: usize>(rows: &[u8], row_len: usize, index: usize) -> Squares<COUNT> {
    let mut squares = [[0; COUNT]; 8];
    for (target, row) in squares.iter_mut().zip(rows.chunks_exact(row_len)) {
        let (words, _) = row.get(index * 8..).unwrap_or_default().as_chunks();
        for (target, word) in target.iter_mut().zip(words) {
            *target = u64::from_le_bytes(*word);
        }
    }
    squares
}

/// Reverses [`load_rows`].
fn store_rows<const COUNT: usize>(
    rows: &mut [u8],
    row_len: usize,
    index: usize,
    squares: Squares<COUNT>,
) {
    for (words, row) in squares.iter().zip(rows.chunks_exact_mut(row_len)) {
        let (targets, _) = row.get_mut(index * 8..).unwrap_or_default().as_chunks_mut();
        for (target, word) in targets.iter_mut().zip(words) {
            *target = word.to_le_bytes();
        }
    }
}

fn bits_of_squares<const COUNT: usize>(bytes: &[[[u8; 8]; 8]; COUNT]) -> Squares<COUNT> {
    let mut squares = [[0; COUNT]; 8];
    for (row, words) in squares.iter_mut().enumerate() {
        for (word, bytes) in words.iter_mut().zip(bytes) {
            let bytes = bytes.get(row).copied().unwrap_or_default();
            *word = transpose_bits(u64::from_le_bytes(bytes));
        }
    }
    transpose_bytes(&mut squares);
    squares
}

fn squares_of_bits<const COUNT: usize>(
    mut squares: Squares<COUNT>,
    bytes: &mut [[[u8; 8]; 8]; COUNT],
) {
    transpose_bytes(&mut squares);
    for (row, words) in squares.iter().enumerate() {
        for (word, bytes) in words.iter().zip(bytes.iter_mut()) {
            if let Some(target) = bytes.get_mut(row) {
                *target = transpose_bits(*word).to_le_bytes();
            }
        }
    }
}

/// Transposes a square of bits: bit j of byte i becomes bit i of byte j (Hacker's Delight, 7-3).
fn transpose_bits(mut word: u64) -> u64 {
    let mut swap = (word ^ (word >> 7)) & 0x00aa_00aa_00aa_00aa;
    word ^= swap ^ (swap << 7);
    swap = (word ^ (word >> 14)) & 0x0000_cccc_0000_cccc;
    word ^= swap ^ (swap << 14);
    swap = (word ^ (word >> 28)) & 0x0000_0000_f0f0_f0f0;
    word ^ swap ^ (swap << 28)
}

/// Transposes the bytes of each square: byte j of row i becomes byte i of row j.
fn transpose_bytes<const COUNT: usize>(squares: &mut Squares<COUNT>) {
    for (step, shift, mask) in [
        (4, 32, 0x0000_0000_ffff_ffff),
        (2, 16, 0x0000_ffff_0000_ffff),
        (1, 8, 0x00ff_00ff_00ff_00ff),
    ] {
        for rows in squares.chunks_exact_mut(step * 2) {
            let (low, high) = rows.split_at_mut(step);
            for (low, high) in low.iter_mut().zip(high) {
                for (low, high) in low.iter_mut().zip(high) {
                    let swap = ((*low >> shift) ^ *high) & mask;
                    *low ^= swap << shift;
                    *high ^= swap;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::tests::{LENS, sample};
    use super::*;

    #[test]
    fn bit_shuffle_follows_its_definition() {
        for item_len in (1..=20).chain([33, 64, 255]) {
            for len in LENS.into_iter().chain([item_len * 8, item_len * 72, item_len * 136 + 1]) {
                let elements = sample(len);
                let count = len / item_len;
                let mut expected = elements.clone();
                if count % 8 == 0 {
                    expected[..count * item_len].fill(0);
                    for i in 0..count {
                        for k in 0..item_len * 8 {
                            let bit = elements[i * item_len + k / 8] >> (k % 8) & 1;
                            expected[k * (count / 8) + i / 8] |= bit << (i % 8);
                        }
                    }
                }
                let (mut rows, mut back) = (vec![0; len], vec![0; len]);
                let mut scratch = vec![0xa5; len];
                bitshuffle(item_len, &elements, &mut rows, &mut scratch);
                assert_eq!(rows, expected, "{len} bytes of items of {item_len}");
                scratch.fill(0x5a);
                bitunshuffle(item_len, &rows, &mut back, &mut scratch);
                assert_eq!(back, elements, "{len} bytes of items of {item_len}");
            }
        }
    }

    #[test]
    fn transposing_twice_changes_nothing() {
        let noise = sample(64);
        let bytes: [[u8; 8]; 8] = std::array::from_fn(|i| noise[i * 8..][..8].try_into().unwrap());
        let words = bytes.map(|bytes| [u64::from_le_bytes(bytes)]);
        let mut squares = words;
        transpose_bytes(&mut squares);
        assert_eq!(squares[3][0].to_le_bytes(), bytes.map(|bytes| bytes[3]));
        transpose_bytes(&mut squares);
        assert_eq!(squares, words);
        assert_eq!(words.map(|[word]| [transpose_bits(transpose_bits(word))]), words);
        assert_eq!(transpose_bits(0xff), 0x0101_0101_0101_0101);
    }
}
