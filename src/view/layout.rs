//! How the elements of an array lie in a file: their order, and the bytes of each.

/// The order of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All elements of the array in C order.
    Linear,
    /// Whole chunks in C order of the grid, each with its elements in C order. Chunks at the edges
    /// include the elements that lie outside of the array.
    Chunks,
}

/// The form of numbers in a file; in a decoded chunk they are little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NumberForm {
    /// Whether numbers are big-endian.
    pub big_endian: bool,
    /// Whether the highest bit of each number is inverted, because the file stores integers with an
    /// offset of half their range.
    pub flip_sign: bool,
}

impl NumberForm {
    /// Converts numbers of a chunk, of `component_len` bytes each, to those of the file.
    pub(super) fn to_file(self, component_len: usize, bytes: &mut [u8]) {
        self.flip(component_len, bytes);
        self.swap(component_len, bytes);
    }

    /// Converts numbers of the file, of `component_len` bytes each, to those of a chunk.
    pub(super) fn to_chunk(self, component_len: usize, bytes: &mut [u8]) {
        self.swap(component_len, bytes);
        self.flip(component_len, bytes);
    }

    /// Inverts the highest bit of each little-endian number.
    fn flip(self, component_len: usize, bytes: &mut [u8]) {
        if self.flip_sign {
            for number in bytes.chunks_exact_mut(component_len.max(1)) {
                if let Some(highest) = number.last_mut() {
                    *highest ^= 0x80;
                }
            }
        }
    }

    fn swap(self, component_len: usize, bytes: &mut [u8]) {
        if !self.big_endian {
            return;
        }
        match component_len {
            1 => {}
            2 => reverse::<2>(bytes),
            4 => reverse::<4>(bytes),
            8 => reverse::<8>(bytes),
            len => bytes.chunks_exact_mut(len.max(1)).for_each(<[u8]>::reverse),
        }
    }
}

fn reverse<const LEN: usize>(bytes: &mut [u8]) {
    let (numbers, _) = bytes.as_chunks_mut::<LEN>();
    for number in numbers {
        number.reverse();
    }
}
