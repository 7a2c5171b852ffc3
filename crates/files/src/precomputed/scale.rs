//! The chunks of a scale: their keys and shapes follow from their coordinates.

use super::chunk_names;
use super::sharding::Sharding;
use zarrfs_base::error::Result;
use zarrfs_store::{Key, Prefix};

/// A scale of a volume. Lengths and coordinates are along x, y, z.
#[derive(Debug, Clone)]
pub struct VolumeScale {
    /// The directory with its chunks.
    pub directory: Prefix,
    /// The number of elements along each dimension.
    pub size: [u64; 3],
    /// The place of the first element.
    pub offset: [i64; 3],
    /// The number of elements of a whole chunk, at most `u32::MAX`.
    pub chunk: [u64; 3],
    /// The number of channels.
    pub channels: u64,
    /// How chunks are put together, if they are.
    pub sharding: Option<Sharding>,
}

/// A chunk of a scale.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPlace<'v> {
    /// The scale.
    pub scale: &'v VolumeScale,
    /// Its index.
    pub index: usize,
    /// The coordinates of the chunk in the grid.
    pub cell: [u64; 3],
}

/// Parses a number as it is written in keys.
pub fn number(text: &str) -> Option<u64> {
    let is_number =
        text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl VolumeScale {
    /// Returns the number of chunks along each dimension.
    pub fn grid(&self) -> [u64; 3] {
        let mut counts = self.size;
        for (count, chunk) in counts.iter_mut().zip(self.chunk) {
            *count = count.div_ceil(chunk.max(1));
        }
        counts
    }

    /// Returns the number of all chunks.
    pub fn count(&self) -> Option<u64> {
        self.grid().into_iter().try_fold(1, u64::checked_mul)
    }

    /// Returns the chunk whose key goes on with `rest` after that of the array: `[c/]z/y/x`.
    pub fn place(&self, index: usize, rest: &str) -> Option<ChunkPlace<'_>> {
        let mut numbers = rest.split('/').map(number);
        if self.channels > 1 && numbers.next()?? != 0 {
            return None;
        }
        let (z, y, x) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let cell = [x, y, z];
        let is_inside = cell.iter().zip(self.grid()).all(|(at, count)| *at < count);
        (is_inside && numbers.next().is_none()).then_some(ChunkPlace { scale: self, index, cell })
    }

    /// Returns the coordinates of the chunk with this name in the directory of the scale.
    pub fn cell(&self, name: &str) -> Option<[u64; 3]> {
        let name = chunk_names::unpacked_name(name);
        let mut cell = [0; 3];
        let mut ranges = name.split('_');
        for (axis, at) in cell.iter_mut().enumerate() {
            let range = ranges.next()?;
            // The sign of a negative number comes first.
            let split = range.get(1..)?.find('-')?.checked_add(1)?;
            let begin: i128 = range.get(..split)?.parse().ok()?;
            let within = begin.checked_sub(i128::from(*self.offset.get(axis)?))?;
            let within = u64::try_from(within).ok()?;
            *at = within / (*self.chunk.get(axis)?).max(1);
        }
        let place = ChunkPlace { scale: self, index: 0, cell };
        let is_inside = cell.iter().zip(self.grid()).all(|(at, count)| *at < count);
        (is_inside && place.name() == name).then_some(cell)
    }

    /// Returns the key of a chunk below its array.
    pub fn key_of(&self, cell: [u64; 3]) -> String {
        let [x, y, z] = cell;
        let channel = if self.channels > 1 { "0/" } else { "" };
        format!("c/{channel}{z}/{y}/{x}")
    }
}

impl ChunkPlace<'_> {
    /// Returns the first element along each dimension, and the number of elements.
    fn spans(&self) -> [(u64, u64); 3] {
        let VolumeScale { size, chunk, .. } = self.scale;
        let mut spans = [(0, 0); 3];
        for (((span, at), size), chunk) in spans.iter_mut().zip(self.cell).zip(size).zip(chunk) {
            let start = at.saturating_mul(*chunk).min(*size);
            *span = (start, (*chunk).min(size.saturating_sub(start)));
        }
        spans
    }

    /// Returns the number of elements along each dimension of the array.
    pub fn shape(&self) -> Vec<u64> {
        let [x, y, z] = self.spans().map(|(_, len)| len);
        if self.scale.channels > 1 { vec![self.scale.channels, z, y, x] } else { vec![z, y, x] }
    }

    /// Returns the name of a chunk that is a value of its own.
    pub fn name(&self) -> String {
        let spans = self.spans().into_iter().zip(self.scale.offset);
        let ranges = spans.map(|((start, len), offset)| {
            let begin = i128::from(offset).saturating_add(i128::from(start));
            format!("{begin}-{}", begin.saturating_add(i128::from(len)))
        });
        ranges.collect::<Vec<_>>().join("_")
    }

    /// Returns the key of a chunk that is a value of its own.
    pub fn key(&self) -> Result<Key> {
        self.scale.directory.key(&self.name())
    }

    /// Returns the number of the chunk in shards: the bits of its coordinates, in turns, without
    /// those that are zero for all chunks ("compressed Morton code").
    pub fn id(&self) -> u64 {
        morton_code(self.cell, self.scale.grid())
    }
}

/// Returns how many bits number the chunks of a grid.
pub fn morton_bits(grid: [u64; 3]) -> u32 {
    grid.map(|count| u64::BITS - count.saturating_sub(1).leading_zeros()).iter().sum()
}

/// Returns the bits of coordinates in turns, from the lowest on. A bit that no coordinate in the
/// grid has takes no room.
fn morton_code(cell: [u64; 3], grid: [u64; 3]) -> u64 {
    let (mut code, mut to) = (0, 0);
    for from in 0..u64::BITS {
        for (at, count) in cell.into_iter().zip(grid) {
            if to < u64::BITS && count.saturating_sub(1) >> from > 0 {
                code |= (at >> from & 1) << to;
                to += 1;
            }
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> VolumeScale {
        VolumeScale {
            directory: Prefix::parse("4_4_40").expect("a prefix"),
            size: [10, 7, 5],
            offset: [100, -3, 7],
            chunk: [4, 3, 2],
            channels: 1,
            sharding: None,
        }
    }

    #[test]
    fn the_name_of_a_chunk_has_the_elements_that_lie_in_the_array() {
        // As TensorStore names them.
        let scale = scale();
        for (rest, name, shape) in [
            ("0/0/0", "100-104_-3-0_7-9", [2, 3, 4]),
            ("2/1/0", "100-104_0-3_11-12", [1, 3, 4]),
            ("2/2/2", "108-110_3-4_11-12", [1, 1, 2]),
        ] {
            let place = scale.place(0, rest).expect("inside");
            assert_eq!(place.key().expect("a key").as_str(), format!("4_4_40/{name}"));
            assert_eq!(place.shape(), shape, "{name}");
            assert_eq!(scale.cell(name), Some(place.cell));
            assert_eq!(scale.cell(&format!("{name}.gz")), Some(place.cell));
            assert_eq!(scale.key_of(place.cell), format!("c/{rest}"));
        }
        for name in ["", "-", "100-105_-3-0_7-9", "0-4_-3-0_7-9", "104-108_0-3", "112-116_0-3_7-9"]
        {
            assert_eq!(scale.cell(name), None, "{name}");
        }
        for rest in ["0/0/3", "3/0/0", "0/0", "0/0/0/0", "00/0/0", "-0/0/0", "", "x"] {
            assert!(scale.place(0, rest).is_none(), "{rest}");
        }
    }

    #[test]
    fn all_channels_are_in_one_chunk() {
        let scale = VolumeScale { channels: 3, ..scale() };
        assert_eq!(scale.place(0, "0/2/2/2").expect("inside").shape(), [3, 1, 1, 2]);
        assert!(scale.place(0, "1/2/2/2").is_none());
        assert_eq!(scale.key_of([2, 1, 0]), "c/0/0/1/2");
    }

    #[test]
    fn numbers_near_the_end_of_their_range_do_no_harm() {
        let size = [u64::MAX, u64::MAX, 1];
        let (offset, chunk) = ([i64::MAX, i64::MIN, 0], [u64::from(u32::MAX); 3]);
        let scale = VolumeScale { size, offset, chunk, ..scale() };
        let [x, ..] = scale.grid();
        let place = scale.place(0, &format!("0/0/{}", x - 1)).expect("inside");
        assert_eq!(scale.cell(&place.name()), Some(place.cell));
        assert!(scale.place(0, "0/0/18446744073709551615").is_none());
        assert!(scale.place(0, "0/0/18446744073709551616").is_none());
    }

    #[test]
    fn the_code_of_a_chunk_leaves_out_bits_that_no_chunk_has() {
        for (cell, grid, code) in [
            ([0, 0, 0], [1, 1, 1], 0),
            ([1, 1, 1], [2, 2, 2], 0b111),
            // x has four bits, y one and z three: x3 · z2 x2 · z1 x1 · z0 y0 x0 from the top.
            ([0b1010, 1, 0b101], [16, 2, 8], 0b1100_1110),
            ([5, 0, 0], [6, 1, 1], 5),
            // cloud-volume 12.15.2: compressed_morton_code.
            ([37, 5, 1000], [40, 6, 1025], 517_315),
            ([0, 0, 5], [1, 1, 6], 5),
            ([0, 2, 0], [1, 3, 2], 0b100),
        ] {
            assert_eq!(morton_code(cell, grid), code, "{cell:?} of {grid:?}");
        }
        assert_eq!(morton_bits([16, 2, 8]), 8);
        assert_eq!(morton_bits([1, 1, 1]), 0);
        assert_eq!(morton_bits([0, 3, u64::MAX]), 66);
        assert_eq!(morton_code([u64::MAX; 3], [u64::MAX; 3]), u64::MAX);
    }

    #[test]
    fn each_chunk_of_a_grid_has_a_code_of_its_own() {
        let grid = [5, 3, 9];
        let mut codes = std::collections::BTreeSet::new();
        for x in 0..5 {
            for y in 0..3 {
                for z in 0..9 {
                    let code = morton_code([x, y, z], grid);
                    assert!(codes.insert(code) && code >> morton_bits(grid) == 0, "{x} {y} {z}");
                }
            }
        }
    }
}
