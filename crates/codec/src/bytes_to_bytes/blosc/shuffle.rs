//! Byte shuffle, as C-Blosc applies it to a block and numcodecs to a whole chunk.
//!
//! For n elements of T bytes, byte k of element i goes to k * n + i. Bytes at the end that are not
//! a whole element stay there. Source and destination have the same length; bytes beyond the
//! shorter one stay unchanged. No length causes a panic.

/// The number of elements in one step; their bytes fit the first-level cache.
const TILE_COUNT: usize = 1024;

/// Shuffles elements of `item_len` bytes into rows.
pub(in super::super) fn shuffle(item_len: usize, elements: &[u8], rows: &mut [u8]) {
    let Some((elements, rows)) = body_and_tail(item_len, elements, rows) else { return };
    let count = elements.len() / item_len;
    match item_len {
        2 => shuffle_2(elements, rows, count),
        4 => shuffle_4(elements, rows, count),
        8 => shuffle_8(elements, rows, count),
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

/// Reverses [`shuffle`].
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

/// Copies the bytes that are not a whole element, and returns the rest; `None` if nothing is left.
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

/// Copies as many bytes as both slices have.
pub(super) fn copy(source: &[u8], target: &mut [u8]) {
    let len = source.len().min(target.len());
    if let (Some(source), Some(target)) = (source.get(..len), target.get_mut(..len)) {
        target.copy_from_slice(source);
    }
}

/// The number of elements whose halves are buffered in one step.
const STEP_COUNT: usize = 512;

fn shuffle_2(elements: &[u8], rows: &mut [u8], count: usize) {
    let (elements, _) = elements.as_chunks();
    let (low, high) = rows.split_at_mut(count);
    for ((element, a), b) in elements.iter().zip(low).zip(high) {
        [*a, *b] = *element;
    }
}

fn shuffle_4(elements: &[u8], rows: &mut [u8], count: usize) {
    let (mut low, mut high) = ([0; STEP_COUNT], [0; STEP_COUNT]);
    let (elements, _) = elements.as_chunks();
    let (low_rows, high_rows) = rows.split_at_mut(count * 2);
    let (mut low_rows, mut high_rows) = (PairMut::new(low_rows), PairMut::new(high_rows));
    for elements in elements.chunks(STEP_COUNT) {
        for ((element, low), high) in elements.iter().zip(&mut low).zip(&mut high) {
            let [a, b, c, d] = *element;
            (*low, *high) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        }
        low_rows.split_next(&low, elements.len());
        high_rows.split_next(&high, elements.len());
    }
}

fn shuffle_8(elements: &[u8], rows: &mut [u8], count: usize) {
    let mut words = [[0; STEP_COUNT]; 4];
    let (elements, _) = elements.as_chunks();
    let mut rows = rows.chunks_exact_mut(count * 2);
    let mut rows: [PairMut<'_>; 4] =
        std::array::from_fn(|_| PairMut::new(rows.next().unwrap_or_default()));
    for elements in elements.chunks(STEP_COUNT) {
        let [w0, w1, w2, w3] = &mut words;
        for ((((element, w0), w1), w2), w3) in elements.iter().zip(w0).zip(w1).zip(w2).zip(w3) {
            let [a, b, c, d, e, f, g, h] = *element;
            (*w0, *w1) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            (*w2, *w3) = (u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
        }
        for (rows, words) in rows.iter_mut().zip(&words) {
            rows.split_next(words, elements.len());
        }
    }
}

fn unshuffle_2(rows: &[u8], elements: &mut [u8], count: usize) {
    let (low, high) = rows.split_at(count);
    let (elements, _) = elements.as_chunks_mut();
    for ((element, a), b) in elements.iter_mut().zip(low).zip(high) {
        *element = [*a, *b];
    }
}

fn unshuffle_4(rows: &[u8], elements: &mut [u8], count: usize) {
    let (mut low, mut high) = ([0; STEP_COUNT], [0; STEP_COUNT]);
    let (elements, _) = elements.as_chunks_mut();
    let (low_rows, high_rows) = rows.split_at(count * 2);
    let (mut low_rows, mut high_rows) = (Pair::new(low_rows), Pair::new(high_rows));
    for elements in elements.chunks_mut(STEP_COUNT) {
        low_rows.join_next(&mut low, elements.len());
        high_rows.join_next(&mut high, elements.len());
        for ((element, low), high) in elements.iter_mut().zip(&low).zip(&high) {
            *element = (u32::from(*low) | u32::from(*high) << 16).to_le_bytes();
        }
    }
}

fn unshuffle_8(rows: &[u8], elements: &mut [u8], count: usize) {
    let mut words = [[0; STEP_COUNT]; 4];
    let (mut low, mut high) = ([0; STEP_COUNT], [0; STEP_COUNT]);
    let (elements, _) = elements.as_chunks_mut();
    let mut rows = rows.chunks_exact(count * 2);
    let mut rows: [Pair<'_>; 4] =
        std::array::from_fn(|_| Pair::new(rows.next().unwrap_or_default()));
    for elements in elements.chunks_mut(STEP_COUNT) {
        for (rows, words) in rows.iter_mut().zip(&mut words) {
            rows.join_next(words, elements.len());
        }
        let [w0, w1, w2, w3] = &words;
        for (target, (w0, w1)) in low.iter_mut().zip(w0.iter().zip(w1)) {
            *target = u32::from(*w0) | u32::from(*w1) << 16;
        }
        for (target, (w2, w3)) in high.iter_mut().zip(w2.iter().zip(w3)) {
            *target = u32::from(*w2) | u32::from(*w3) << 16;
        }
        for ((element, low), high) in elements.iter_mut().zip(&low).zip(&high) {
            *element = (u64::from(*low) | u64::from(*high) << 32).to_le_bytes();
        }
    }
}

/// Two rows that each step reads as one row of u16. Compilers vectorize this halving and doubling,
/// but not strides of 4 or 8 bytes.
struct Pair<'a> {
    low: &'a [u8],
    high: &'a [u8],
}

/// A [`Pair`] to write to.
struct PairMut<'a> {
    low: &'a mut [u8],
    high: &'a mut [u8],
}

impl<'a> Pair<'a> {
    fn new(rows: &'a [u8]) -> Self {
        let (low, high) = rows.split_at(rows.len() / 2);
        Self { low, high }
    }

    fn join_next(&mut self, words: &mut [u16; STEP_COUNT], count: usize) {
        let (low, low_rest) = self.low.split_at(count.min(self.low.len()));
        let (high, high_rest) = self.high.split_at(count.min(self.high.len()));
        for ((word, a), b) in words.iter_mut().zip(low).zip(high) {
            *word = u16::from_le_bytes([*a, *b]);
        }
        *self = Self { low: low_rest, high: high_rest };
    }
}

impl<'a> PairMut<'a> {
    fn new(rows: &'a mut [u8]) -> Self {
        let (low, high) = rows.split_at_mut(rows.len() / 2);
        Self { low, high }
    }

    fn split_next(&mut self, words: &[u16; STEP_COUNT], count: usize) {
        let low = self.low.split_off_mut(..count.min(self.low.len())).unwrap_or_default();
        let high = self.high.split_off_mut(..count.min(self.high.len())).unwrap_or_default();
        for ((word, a), b) in words.iter().zip(low).zip(high) {
            [*a, *b] = word.to_le_bytes();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn sample(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect()
    }

    pub const LENS: [usize; 13] = [0, 1, 7, 8, 16, 63, 64, 127, 128, 1000, 1024, 4096 + 40, 20_000];

    #[test]
    fn byte_shuffle_follows_its_definition() {
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
}
