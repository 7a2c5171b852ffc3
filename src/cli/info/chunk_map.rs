//! `zarrfs info --chunks`: a map of the chunks of an array.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::statistics;
use super::stored;
use crate::array::{Array, Coords};
use crate::cli::failure::Failure;
use crate::cli::output::size;
use crate::cli::output::terminal::Terminal;
use crate::metadata::Packing;
use crate::picture::grid::{Cell, ChunkLayout, legend};

/// The most decoded bytes of chunks in which to look for fill values.
const MOST_DECODED: u64 = 1 << 30;

/// The chunks of an array, in cells of a map.
#[derive(Debug)]
pub struct ChunkMap {
    layout: ChunkLayout,
    counts: Vec<u64>,
    cells: Mutex<Vec<Cell>>,
    fill_values: FillValues,
}

/// Whether a map knows which chunks have only fill values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FillValues {
    Known,
    /// The chunks were not decoded.
    Undecoded,
    /// A chunk cannot be decoded.
    Damaged,
}

impl ChunkMap {
    /// Returns a map without stored chunks, for output of this width.
    pub fn new(array: &Array, width: usize) -> Self {
        let counts = array.grid().counts().to_vec();
        let layout = ChunkLayout::new(&counts, width);
        let cells = Mutex::new(layout.cells());
        Self { layout, counts, cells, fill_values: FillValues::Known }
    }

    /// Adds a chunk, and whether it has only fill values; `None` if it is missing.
    pub fn add(&self, coords: &Coords, is_fill: Option<bool>) {
        let at = self.layout.cell_of(&self.counts, coords.indices());
        let mut cells = self.cells.lock();
        if let (Some(cell), Some(is_fill)) = (cells.get_mut(at), is_fill) {
            let count = if is_fill { &mut cell.fill } else { &mut cell.stored };
            *count = count.saturating_add(1);
        }
    }

    /// Adds all stored chunks of an array. Decodes them if they have at most [`MOST_DECODED`]
    /// bytes.
    pub fn fill(&mut self, array: &Arc<Array>, source: &Path) -> Result<(), Failure> {
        let stored = stored::StoredChunks::of(array)?.chunks;
        let decoded = array.longest_chunk_len().longest().checked_mul(stored);
        if decoded.is_some_and(|len| len <= MOST_DECODED) && array.not_understood().is_none() {
            let add = |coords: &Coords, is_fill| self.add(coords, is_fill);
            if statistics::compute(array, source, None, &Packing::none(), &add).is_ok() {
                return Ok(());
            }
            *self.cells.lock() = self.layout.cells();
            self.fill_values = FillValues::Damaged;
        } else {
            self.fill_values = FillValues::Undecoded;
        }
        for coords in Arc::clone(array.chunks()).list()? {
            self.add(&coords?, Some(false));
        }
        Ok(())
    }

    /// Returns how many chunks are stored, how many of these have only fill values (`None` if that
    /// is not known), and how many are missing.
    fn sums(&self) -> (u64, Option<u64>, u128) {
        let cells = self.cells.lock();
        let sum = |of: fn(&Cell) -> u64| cells.iter().map(of).fold(0_u64, u64::saturating_add);
        let (stored, fill) = (sum(|cell| cell.stored), sum(|cell| cell.fill));
        let all = stored.saturating_add(fill);
        let missing = self.layout.chunks.saturating_sub(all.into());
        (all, (self.fill_values == FillValues::Known).then_some(fill), missing)
    }

    /// Returns the counts as JSON.
    pub fn facts(&self) -> Value {
        let (stored, fill, missing) = self.sums();
        json!({
            "grid": self.counts,
            "stored": stored,
            "only_fill_values": fill,
            "missing": u64::try_from(missing).ok(),
        })
    }

    /// Draws the map, with a legend.
    pub fn lines(&self, terminal: &Terminal) -> Vec<String> {
        let (stored, fill, missing) = self.sums();
        let all = u64::try_from(self.layout.chunks).unwrap_or(u64::MAX);
        let fill = match self.fill_values {
            FillValues::Known => {
                format!("{} of them with only fill values", fill.unwrap_or_default())
            }
            FillValues::Undecoded => {
                "not decoded to look for fill values (--stats decodes them)".to_owned()
            }
            FillValues::Damaged => {
                "not searched for fill values, because one cannot be decoded (see zarrfs check)"
                    .to_owned()
            }
        };
        let counts = self.counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let counts = if counts.is_empty() { "1".to_owned() } else { counts };
        let part = size::part(stored, all);
        let mut lines = vec![format!("chunks {counts}: {part} stored, {fill}; {missing} missing")];
        lines.extend(self.layout.draw(&self.cells.lock(), terminal.colors, terminal.glyphs));
        lines.extend([legend(terminal.glyphs), self.layout.scale()]);
        lines
    }
}
