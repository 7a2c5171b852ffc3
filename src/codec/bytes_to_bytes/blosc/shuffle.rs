//! Byte shuffle and bit shuffle, as C-Blosc 1 does them to one block.
//!
//! For n elements of T bytes, byte shuffle puts byte k of element i at k * n + i; bytes that are no
//! whole element stay at the end. Bit shuffle cuts each of those T rows into 8 rows of n / 8 bytes:
//! bit b of element i is bit i % 8 of byte i / 8 of row 8 * k + b. A block whose n is not a multiple
//! of 8 is left as it is. Source and destination are equally long; beyond the shorter one nothing
//! is touched.

/// Elements to whose bytes are brought together in one step: what fits the first cache.
const TILE_COUNT: usize = 1024;

/// Byte shuffle from elements of `item_len` bytes to rows.
pub(in super::super) fn shuffle(item_len: usize, elements: &[u8], rows: &mut [u8]) {
    let Some((elements, rows)) = body_and_tail(item_len, elements, rows) else { return };
    let count = elements.len() / item_len;
    match item_len {
        2 => shuffle_fixed::<2>(elements, rows, count),
        4 => shuffle_fixed::<4>(elements, rows, count),
        8 => shuffle_fixed::<8>(elements, rows, count),
        _ => {
            for (tile_index, tile) in
                elements.chunks(TILE_COUNT.saturating_mul(item_len)).enumerate()
            {
                for (k, row) in rows.chunks_exact_mut(count).enumerate() {
                    let row = row.iter_mut().skip(tile_index * TILE_COUNT);
                    for (byte, element) in row.zip(tile.chunks_exact(item_len)) {
                        *byte = element.get(k).copied().unwrap_or_default();
                    }
                }
            }
        }
    }
}

/// The inverse of [`shuffle`].
pub(in super::super) fn unshuffle(item_len: usize, rows: &[u8], elements: &mut [u8]) {
    let Some((rows, elements)) = body_and_tail(item_len, rows, elements) else { return };
    let count = elements.len() / item_len;
    match item_len {
        2 => unshuffle_2(rows, elements, count),
        4 => unshuffle_4(rows, elements, count),
        8 => unshuffle_8(rows, elements, count),
        _ => {
            let tiles = elements.chunks_mut(TILE_COUNT.saturating_mul(item_len));
            for (tile_index, tile) in tiles.enumerate() {
                for (k, row) in rows.chunks_exact(count).enumerate() {
                    let row = row.iter().skip(tile_index * TILE_COUNT);
                    for (byte, element) in row.zip(tile.chunks_exact_mut(item_len)) {
                        if let Some(target) = element.get_mut(k) {
                            *target = *byte;
                        }
                    }
                }
            }
        }
    }
}

/// Bit shuffle from elements to rows. `scratch` is as long as they are; what it holds does not matter.
pub(super) fn bitshuffle(item_len: usize, elements: &[u8], rows: &mut [u8], scratch: &mut [u8]) {
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

/// The inverse of [`bitshuffle`].
pub(super) fn bitunshuffle(item_len: usize, rows: &[u8], elements: &mut [u8], scratch: &mut [u8]) {
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

/// Whether a block is bit shuffled at all: it has elements, a multiple of 8.
fn has_bit_rows(item_len: usize, len: usize) -> bool {
    len.checked_div(item_len).is_some_and(|count| count > 0 && count.is_multiple_of(8))
}

/// Copies what is no whole element, and hands back the rest; `None` where that was all.
fn body_and_tail<'a, 'b>(
    item_len: usize,
    source: &'a [u8],
    target: &'b mut [u8],
) -> Option<(&'a [u8], &'b mut [u8])> {
    let len = source.len().min(target.len());
    let body_len = if item_len > 1 { len / item_len * item_len } else { 0 };
    let (body, tail) = source.split_at_checked(body_len)?;
    let (target, rest) = target.split_at_mut_checked(body_len)?;
    copy(tail, rest);
    (body_len > 0).then_some((body, target))
}

/// Copies as much as both have.
fn copy(source: &[u8], target: &mut [u8]) {
    let len = source.len().min(target.len());
    if let (Some(source), Some(target)) = (source.get(..len), target.get_mut(..len)) {
        target.copy_from_slice(source);
    }
}

/// The rows one by one, in vectors: the compiler sees a gather of a fixed stride.
fn shuffle_fixed<const ITEM_LEN: usize>(elements: &[u8], rows: &mut [u8], count: usize) {
    let (elements, _) = elements.as_chunks::<ITEM_LEN>();
    for (k, row) in rows.chunks_exact_mut(count).enumerate().take(ITEM_LEN) {
        for (byte, element) in row.iter_mut().zip(elements) {
            *byte = element[k];
        }
    }
}

fn unshuffle_2(rows: &[u8], elements: &mut [u8], count: usize) {
    let (low, high) = rows.split_at(count);
    let (elements, _) = elements.as_chunks_mut::<2>();
    for ((element, a), b) in elements.iter_mut().zip(low).zip(high) {
        *element = [*a, *b];
    }
}

fn unshuffle_4(rows: &[u8], elements: &mut [u8], count: usize) {
    let (ab, cd) = rows.split_at(count * 2);
    let ((a, b), (c, d)) = (ab.split_at(count), cd.split_at(count));
    let (elements, _) = elements.as_chunks_mut::<4>();
    for ((((element, a), b), c), d) in elements.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *element = [*a, *b, *c, *d];
    }
}

fn unshuffle_8(rows: &[u8], elements: &mut [u8], count: usize) {
    let (low, high) = rows.split_at(count * 4);
    let ((ab, cd), (ef, gh)) = (low.split_at(count * 2), high.split_at(count * 2));
    let ((a, b), (c, d)) = (ab.split_at(count), cd.split_at(count));
    let ((e, f), (g, h)) = (ef.split_at(count), gh.split_at(count));
    let (elements, _) = elements.as_chunks_mut::<8>();
    let low = a.iter().zip(b).zip(c).zip(d);
    let high = e.iter().zip(f).zip(g).zip(h);
    for ((element, (((a, b), c), d)), (((e, f), g), h)) in elements.iter_mut().zip(low).zip(high) {
        *element = [*a, *b, *c, *d, *e, *f, *g, *h];
    }
}

/// Cuts each of `row_count` rows of bytes into 8 rows of bits.
fn bits_to_rows(bytes: &[u8], rows: &mut [u8], row_count: usize) {
    let byte_row_len = bytes.len() / row_count;
    let bit_row_len = byte_row_len / 8;
    for (bytes, rows) in bytes.chunks_exact(byte_row_len).zip(rows.chunks_exact_mut(byte_row_len)) {
        let (words, _) = bytes.as_chunks::<8>();
        let (squares, rest) = words.as_chunks::<8>();
        for (index, square) in squares.iter().enumerate() {
            let square = square.map(|word| transpose_bits(u64::from_le_bytes(word)));
            for (row, word) in rows.chunks_exact_mut(bit_row_len).zip(transpose_bytes(square)) {
                if let Some(target) = row.get_mut(index * 8..index * 8 + 8) {
                    target.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        for (index, word) in (squares.len() * 8..).zip(rest) {
            let word = transpose_bits(u64::from_le_bytes(*word)).to_le_bytes();
            for (row, byte) in rows.chunks_exact_mut(bit_row_len).zip(word) {
                if let Some(target) = row.get_mut(index) {
                    *target = byte;
                }
            }
        }
    }
}

/// The inverse of [`bits_to_rows`].
fn rows_to_bits(rows: &[u8], bytes: &mut [u8], row_count: usize) {
    let byte_row_len = bytes.len() / row_count;
    let bit_row_len = byte_row_len / 8;
    for (rows, bytes) in rows.chunks_exact(byte_row_len).zip(bytes.chunks_exact_mut(byte_row_len)) {
        let (words, _) = bytes.as_chunks_mut::<8>();
        let (squares, rest) = words.as_chunks_mut::<8>();
        for (index, square) in squares.iter_mut().enumerate() {
            let mut columns = [0; 8];
            for (column, row) in columns.iter_mut().zip(rows.chunks_exact(bit_row_len)) {
                let word = row.get(index * 8..).and_then(|row| row.first_chunk());
                *column = word.map_or(0, |word| u64::from_le_bytes(*word));
            }
            *square = transpose_bytes(columns).map(|word| transpose_bits(word).to_le_bytes());
        }
        for (index, word) in (squares.len() * 8..).zip(rest) {
            for (byte, row) in word.iter_mut().zip(rows.chunks_exact(bit_row_len)) {
                *byte = row.get(index).copied().unwrap_or_default();
            }
            *word = transpose_bits(u64::from_le_bytes(*word)).to_le_bytes();
        }
    }
}

/// Bit j of byte i becomes bit i of byte j (Hacker's Delight, 7-3).
fn transpose_bits(mut word: u64) -> u64 {
    let mut swap = (word ^ (word >> 7)) & 0x00aa_00aa_00aa_00aa;
    word ^= swap ^ (swap << 7);
    swap = (word ^ (word >> 14)) & 0x0000_cccc_0000_cccc;
    word ^= swap ^ (swap << 14);
    swap = (word ^ (word >> 28)) & 0x0000_0000_f0f0_f0f0;
    word ^ swap ^ (swap << 28)
}

/// Byte j of word i becomes byte i of word j.
fn transpose_bytes(mut words: [u64; 8]) -> [u64; 8] {
    let swap = |words: &mut [u64; 8], step: usize, shift: u32, mask: u64| {
        for low in 0..8_usize {
            if low & step == 0 {
                let high = low | step;
                let swap = ((words[low] >> shift) ^ words[high]) & mask;
                words[low] ^= swap << shift;
                words[high] ^= swap;
            }
        }
    };
    swap(&mut words, 4, 32, 0x0000_0000_ffff_ffff);
    swap(&mut words, 2, 16, 0x0000_ffff_0000_ffff);
    swap(&mut words, 1, 8, 0x00ff_00ff_00ff_00ff);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect()
    }

    const LENS: [usize; 13] = [0, 1, 7, 8, 16, 63, 64, 127, 128, 1000, 1024, 4096 + 40, 20_000];

    #[test]
    fn byte_shuffle_is_what_its_definition_says() {
        for item_len in (1..=20).chain([33, 64, 255]) {
            for len in LENS {
                let elements = sample(len);
                let count = len / item_len;
                let mut expected = elements.clone();
                for i in 0..count {
                    for k in 0..item_len {
                        expected[k * count + i] = elements[i * item_len + k];
                    }
                }
                let (mut rows, mut back) = (vec![0; len], vec![0; len]);
                shuffle(item_len, &elements, &mut rows);
                assert_eq!(rows, expected, "{len} bytes of items of {item_len}");
                unshuffle(item_len, &rows, &mut back);
                assert_eq!(back, elements, "{len} bytes of items of {item_len}");
            }
        }
    }

    #[test]
    fn bit_shuffle_is_what_its_definition_says() {
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
        let words: [u64; 8] = std::array::from_fn(|i| {
            u64::from_le_bytes(sample(64)[i * 8..][..8].try_into().unwrap())
        });
        assert_eq!(transpose_bytes(transpose_bytes(words)), words);
        assert_eq!(words.map(|word| transpose_bits(transpose_bits(word))), words);
        assert_eq!(transpose_bits(0xff), 0x0101_0101_0101_0101);
    }
}
