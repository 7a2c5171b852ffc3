//! A map of the chunks of an array.
//!
//! A line shows all indices of the last dimension, or of as many of the last dimensions as fit.
//! Short rows share a line. If there are too many chunks, a cell of the map stands for several.

use super::colors::{Colors, Glyphs};
use crate::dtype::{to_float, to_index};

/// The most lines of a map.
const MOST_LINES: u64 = 32;

/// How the chunks of a grid are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLayout {
    /// The number of chunks.
    pub chunks: u128,
    /// The number of chunks in a row, one after another in C order.
    pub row: u128,
    /// The number of chunks of a row in a cell.
    pub across: u128,
    /// The number of rows in a line of cells.
    pub down: u128,
}

/// The number of chunks of each kind in a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell {
    /// Stored, and not known to have only fill values.
    pub stored: u64,
    /// Stored, with only fill values.
    pub fill: u64,
    /// All chunks in the cell.
    pub all: u128,
}

impl ChunkLayout {
    /// Returns the arrangement of a grid in at most `width` columns.
    pub fn new(counts: &[u64], width: usize) -> Self {
        let width = u128::try_from(width.max(1)).unwrap_or(1);
        let chunks = counts.iter().fold(1_u128, |all, n| all.saturating_mul((*n).into()));
        let mut row = 1_u128;
        let several = || counts.iter().rev().filter(|count| **count > 1);
        for count in several() {
            let next = row.saturating_mul((*count).into());
            if next > width && row > 1 {
                break;
            }
            row = next;
        }
        if several().count() == 1 {
            // The chunks along a single dimension wrap from line to line.
            row = row.min(width);
        }
        if row <= width / 2 && row < chunks {
            row *= (width / row).min(chunks.div_ceil(row));
        }
        let across = row.div_ceil(width).max(1);
        let down = chunks.div_ceil(row.max(1)).div_ceil(MOST_LINES.into()).max(1);
        Self { chunks, row, across, down }
    }

    /// Returns the number of lines of cells, and of cells in a line.
    fn size(&self) -> (u128, u128) {
        let rows = self.chunks.div_ceil(self.row.max(1));
        (rows.div_ceil(self.down), self.row.min(self.chunks).div_ceil(self.across))
    }

    /// Returns the cells line by line, without any stored chunks.
    pub fn cells(&self) -> Vec<Cell> {
        let (lines, columns) = self.size();
        let cell = |line: u128, column: u128| {
            let across = self.across.min(self.row.saturating_sub(column * self.across));
            let rows = self.down.min(self.chunks.div_ceil(self.row.max(1)) - line * self.down);
            // The last row may be shorter.
            let whole = across.saturating_mul(rows.saturating_sub(1));
            let last = (line * self.down + rows - 1) * self.row + column * self.across;
            let rest = self.chunks.saturating_sub(last).min(across);
            Cell { all: whole + rest, ..Cell::default() }
        };
        (0..lines).flat_map(|line| (0..columns).map(move |column| cell(line, column))).collect()
    }

    /// Returns the index of the cell of the chunk at `coords` in a grid.
    pub fn cell_of(&self, counts: &[u64], coords: &[u64]) -> usize {
        let index = coords.iter().zip(counts).fold(0_u128, |index, (at, count)| {
            index.saturating_mul((*count).into()).saturating_add((*at).into())
        });
        let (_, columns) = self.size();
        let (line, column) =
            (index / self.row.max(1) / self.down, index % self.row.max(1) / self.across);
        usize::try_from(line.saturating_mul(columns).saturating_add(column)).unwrap_or(usize::MAX)
    }

    /// Draws the map.
    pub fn draw(&self, cells: &[Cell], colors: Colors, glyphs: Glyphs) -> Vec<String> {
        let columns = usize::try_from(self.size().1).unwrap_or(1).max(1);
        cells.chunks(columns).map(|line| draw_line(line, colors, glyphs)).collect()
    }

    /// Describes the size of a cell and of a line.
    pub fn scale(&self) -> String {
        let cell = self.across.saturating_mul(self.down);
        let each = if cell == 1 { "a chunk".to_owned() } else { format!("{cell} chunks") };
        let line = self.row.min(self.chunks);
        let rows =
            if self.down > 1 { format!("{} rows of {line}", self.down) } else { line.to_string() };
        format!("each character is {each}, each line has {rows} in C order")
    }
}

/// Characters for missing chunks, for fill values, and for one to four quarters stored.
const BLOCKS: [char; 6] = ['·', 'o', '░', '▒', '▓', '█'];
const ASCII: [char; 6] = ['.', 'o', '-', '+', '*', '#'];

fn draw_line(line: &[Cell], colors: Colors, glyphs: Glyphs) -> String {
    let mut text = String::new();
    let mut current = "";
    // The last row may be shorter.
    for cell in line.iter().filter(|cell| cell.all > 0) {
        let there = cell.stored.saturating_add(cell.fill);
        let (at, color) = if there == 0 {
            (0, "2")
        } else if cell.fill > cell.stored {
            (1, "33")
        } else {
            let all = i128::try_from(cell.all.max(1)).unwrap_or(i128::MAX);
            let part = to_float(there.into()) / to_float(all);
            (1 + to_index((part * 4.0).floor()).clamp(1, 4), "32")
        };
        if colors != Colors::None && color != current {
            text.push_str("\x1b[0m\x1b[");
            text.push_str(color);
            text.push('m');
            current = color;
        }
        let all = if glyphs == Glyphs::Ascii { ASCII } else { BLOCKS };
        text.push(all.get(at).copied().unwrap_or('?'));
    }
    if !current.is_empty() {
        text.push_str("\x1b[0m");
    }
    text
}

/// Explains the characters of a map.
pub fn legend(glyphs: Glyphs) -> String {
    let all = if glyphs == Glyphs::Ascii { ASCII } else { BLOCKS };
    let [missing, fill, some, _, most, full] = all;
    format!(
        "{full} stored, {some} to {most} some stored, {fill} only fill values, {missing} missing"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts: &[u64], width: usize, stored: &[&[u64]]) -> Vec<String> {
        let layout = ChunkLayout::new(counts, width);
        let mut cells = layout.cells();
        assert_eq!(cells.iter().map(|cell| cell.all).sum::<u128>(), layout.chunks);
        for coords in stored {
            cells[layout.cell_of(counts, coords)].stored += 1;
        }
        layout.draw(&cells, Colors::None, Glyphs::Ascii)
    }

    #[test]
    fn a_small_grid_is_drawn_chunk_by_chunk() {
        assert_eq!(drawn(&[2, 3], 5, &[&[0, 1], &[1, 2]]), [".#.", "..#"]);
        assert_eq!(drawn(&[2, 3], 80, &[&[0, 1], &[1, 2]]), [".#...#"]);
        assert_eq!(drawn(&[], 80, &[&[]]), ["#"]);
        assert_eq!(drawn(&[7, 1, 1], 4, &[&[5, 0, 0]]), ["....", ".#."]);
        assert_eq!(drawn(&[0, 3], 80, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_large_grid_is_scaled_to_the_width() {
        let lines = drawn(&[100_000, 1000], 40, &[&[0, 0], &[99_999, 999]]);
        assert_eq!(lines.len(), 32);
        assert!(lines.iter().all(|line| line.len() == 40), "{lines:?}");
        assert!(lines[0].starts_with("-.") && lines[31].ends_with(".-"), "{lines:?}");
        drawn(&[13, 7, 101], 50, &[&[12, 6, 100]]);
        drawn(&[u64::MAX, u64::MAX], 80, &[]);
    }
}
