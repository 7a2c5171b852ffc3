//! Arrays of pages: the chunks are tiles, strips, or pieces of pages that are not compressed.

use serde_json::{Value, json};

use super::codecs::{self, SampleType};
use super::page::{PageForm, TiffPage};
use super::pages::TiffPages;
use crate::described::{Described, DescribedArray, codec};
use crate::pieces::advance;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_codec::json::Object;

/// About how many bytes a piece of a page that is not compressed has.
const PIECE_LEN: u64 = 1 << 20;

/// How many places of tiles are read at a time.
const WINDOW: u64 = 4096;

/// The most bytes of tables that JPEG images share.
const MAX_TABLES_LEN: u64 = 64 << 10;

/// The most planes of an array.
pub const MAX_PLANES: u64 = 1 << 20;

/// A plane of an array: a page, or a part of what follows the first plane of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plane {
    /// The number of the page.
    pub page: u32,
    /// The bytes from the first element of the page to the first of the plane.
    pub skip: u64,
}

/// An array of planes.
#[derive(Debug, Clone, Default)]
pub struct PlaneArray {
    /// The lengths of the dimensions before those of a page.
    pub outer: Vec<u64>,
    /// Its planes, in C order of these; `None` for one that is not there.
    pub planes: Vec<Option<Plane>>,
    /// Whether the samples of a pixel are a dimension before the rows, also if the file has them
    /// together.
    pub samples_first: bool,
    /// The names of all dimensions.
    pub names: Vec<String>,
    /// The attributes.
    pub attributes: Object,
    /// The fill value, if it is not zero.
    pub fill_value: Option<Value>,
    /// Why it cannot be read.
    pub unread: Option<&'static str>,
}

/// The dimensions of a page in an array, and of a chunk in it.
struct PageGrid {
    /// The lengths in the order of the array, without the outer dimensions.
    shape: Vec<u64>,
    chunk: Vec<u64>,
    /// The place of the rows among these; the columns follow.
    row: usize,
    /// The codec that moves the samples to the end.
    moves: Option<Value>,
}

impl PageGrid {
    fn of(form: &PageForm, samples_first: bool, outer: usize) -> Self {
        let (size, tile) = ([form.height, form.width], [form.tile_height, form.tile_width]);
        let with_samples = |[y, x]: [u64; 2], samples: u64, is_first: bool| {
            if is_first { vec![samples, y, x] } else { vec![y, x, samples] }
        };
        if form.samples == 1 {
            let (shape, chunk) = (size.to_vec(), tile.to_vec());
            return Self { shape, chunk, row: 0, moves: None };
        }
        let is_first = form.is_planar || samples_first;
        let in_chunk = if form.is_planar { 1 } else { form.samples };
        let order = (0..outer).chain([outer + 1, outer + 2, outer]);
        let moves = (is_first && !form.is_planar)
            .then(|| codec("transpose", json!({"order": order.collect::<Vec<_>>()})));
        Self {
            shape: with_samples(size, form.samples, is_first),
            chunk: with_samples(tile, in_chunk, is_first),
            row: usize::from(is_first),
            moves,
        }
    }

    /// Returns the coordinates of a chunk.
    fn coords(&self, outer: &[u64], sample: u64, row: u64, column: u64) -> Vec<u64> {
        let mut coords = outer.to_vec();
        match (self.row, self.shape.len()) {
            (0, 2) => coords.extend([row, column]),
            (0, _) => coords.extend([row, column, 0]),
            _ => coords.extend([sample, row, column]),
        }
        coords
    }
}

impl PlaneArray {
    /// Returns the shape of the array, whose pages have this form.
    pub fn shape(&self, form: &PageForm) -> Vec<u64> {
        let grid = PageGrid::of(form, self.samples_first, self.outer.len());
        self.outer.iter().copied().chain(grid.shape).collect()
    }

    /// Describes the array at `path`. All its pages have the form of the first one.
    pub fn describe(&self, described: &mut Described, pages: &TiffPages, path: &str) -> Result<()> {
        let first = self.planes.iter().flatten().next();
        let first = first.ok_or_else(|| Error::corrupt(format!("{path} has no page")))?;
        let form = pages.get(first.page.to_usize())?.form.clone();
        let mut grid = PageGrid::of(&form, self.samples_first, self.outer.len());
        let starts = self.starts(pages, &form)?;
        if starts.is_some() {
            let row_len = form.width.saturating_mul(form.bits / 8).max(1);
            let row_len =
                if form.is_planar { row_len } else { row_len.saturating_mul(form.samples) };
            let rows = (PIECE_LEN / row_len).clamp(1, form.height);
            if let Some(len) = grid.chunk.get_mut(grid.row) {
                *len = rows;
            }
        }
        let mut array = DescribedArray {
            shape: self.shape(&form),
            chunk_shape: self.outer.iter().map(|_| 1).chain(grid.chunk.iter().copied()).collect(),
            data_type: json!("uint8"),
            fill_value: json!(0),
            dimension_names: Some(self.names.iter().cloned().map(Some).collect()),
            attributes: self.attributes.clone(),
            ..DescribedArray::default()
        };
        if let Some(why) = self.unread {
            return described.unread(path, &array, why);
        }
        let sample = match SampleType::of(&form) {
            Ok(sample) => sample,
            Err(why) => return described.unread(path, &array, &why),
        };
        array.data_type = json!(sample.name);
        array.fill_value = self.fill_value.clone().unwrap_or_else(|| sample.zero.clone());
        let codecs = self
            .tables(pages)?
            .and_then(|tables| codecs::of(&form, &sample, pages.bytes.is_big_endian, &tables));
        let codecs: Vec<Value> = match codecs {
            Ok(codecs) => grid.moves.clone().into_iter().chain(codecs).collect(),
            Err(why) => return described.unread(path, &array, &why),
        };
        let last = form.height % form.tile_height;
        let is_short = starts.is_none() && !form.is_tiled && form.compression != 1 && last != 0;
        let row = self.outer.len().saturating_add(grid.row);
        array.codecs = if is_short { with_short(&array, row, last, &codecs) } else { codecs };
        described.array(path, &array)?;
        match starts {
            Some(starts) => self.pieces(described, path, &form, &grid, &starts),
            None => self.tiles(described, pages, path, &grid),
        }
    }

    /// Returns the tables that all JPEG images share, or why they cannot be used.
    fn tables(&self, pages: &TiffPages) -> Result<Result<Vec<u8>, String>> {
        let mut found: Option<Vec<u8>> = None;
        let mut left = pages.bytes.file.len();
        for plane in self.planes.iter().flatten() {
            let page = pages.get(plane.page.to_usize())?;
            if page.form.compression != 7 {
                break;
            }
            let tables = match page.jpeg_tables {
                Some(values) => pages.bytes.bytes(values, MAX_TABLES_LEN)?,
                None => Vec::new(),
            };
            // Those of a page are in no other one.
            let len = u64::try_from(tables.len()).unwrap_or(u64::MAX);
            let rest = left.checked_sub(len);
            left = rest.ok_or_else(|| Error::corrupt("tables of JPEG images overlap"))?;
            if found.as_ref().is_some_and(|found| *found != tables) {
                return Ok(Err("pages of JPEG images with different tables".to_owned()));
            }
            found = Some(tables);
        }
        Ok(Ok(found.unwrap_or_default()))
    }

    /// Returns where the elements of each plane begin in the file, one for each kind of samples if
    /// these lie apart. `None` unless each plane lies in one piece, without compression.
    fn starts(&self, pages: &TiffPages, form: &PageForm) -> Result<Option<Vec<Option<Starts>>>> {
        if form.compression != 1
            || form.is_tiled
            || form.is_bit_reversed
            || !form.bits.is_multiple_of(8)
        {
            return Ok(None);
        }
        let mut all = Vec::new();
        for plane in &self.planes {
            let Some(plane) = plane else {
                all.push(None);
                continue;
            };
            let page = pages.get(plane.page.to_usize())?;
            let Some(starts) = starts_of(pages, page)? else { return Ok(None) };
            let skipped = |start: u64| start.saturating_add(plane.skip);
            all.push(Some(starts.into_iter().map(skipped).collect()));
        }
        Ok(Some(all))
    }

    /// Describes the chunks of planes that lie in one piece each.
    fn pieces(
        &self,
        described: &mut Described,
        path: &str,
        form: &PageForm,
        grid: &PageGrid,
        starts: &[Option<Starts>],
    ) -> Result<()> {
        let rows = grid.chunk.get(grid.row).copied().unwrap_or(1).max(1);
        let in_pixel = if form.is_planar { 1 } else { form.samples };
        let mut row_len = [form.width, in_pixel, form.bits / 8].into_iter();
        let row_len = row_len.try_fold(1_u64, u64::checked_mul).ok_or_else(|| too_large(path))?;
        let plane_len = row_len.checked_mul(form.height).ok_or_else(|| too_large(path))?;
        let piece_len = row_len.checked_mul(rows).ok_or_else(|| too_large(path))?;
        let mut outer = vec![0_u64; self.outer.len()];
        for plane in starts {
            for (sample, start) in (0..).zip(plane.iter().flatten()) {
                for piece in 0..form.height.div_ceil(rows) {
                    let within = piece.saturating_mul(piece_len);
                    let offset = start.saturating_add(within);
                    let needed = piece_len.min(plane_len.saturating_sub(within));
                    let coords = grid.coords(&outer, sample, piece, 0);
                    described.part(path, &coords, offset, piece_len, needed)?;
                }
            }
            advance(&mut outer, &self.outer);
        }
        Ok(())
    }

    /// Describes the chunks of tiles and strips.
    fn tiles(
        &self,
        described: &mut Described,
        pages: &TiffPages,
        path: &str,
        grid: &PageGrid,
    ) -> Result<()> {
        let mut outer = vec![0_u64; self.outer.len()];
        for plane in &self.planes {
            if let Some(plane) = plane {
                let page = pages.get(plane.page.to_usize())?;
                tiles_of(described, pages, page, path, grid, &outer)?;
            }
            advance(&mut outer, &self.outer);
        }
        Ok(())
    }
}

/// Where the elements of a plane begin, for each kind of samples that lies apart.
type Starts = Vec<u64>;

fn too_large(path: &str) -> Error {
    Error::corrupt(format!("a page of {path} has more than 2^64 bytes"))
}

/// Returns codecs for an array whose last chunk along the dimension `row` has `last` rows.
fn with_short(array: &DescribedArray, row: usize, last: u64, codecs: &[Value]) -> Vec<Value> {
    let mut shape = array.chunk_shape.clone();
    if let Some(len) = shape.get_mut(row) {
        *len = last;
    }
    vec![codec("short_chunk", json!({"shape": shape, "codecs": codecs}))]
}

/// Returns where the strips of a page begin, for each kind of samples that lies apart; `None` if
/// they do not follow each other.
fn starts_of(pages: &TiffPages, page: &TiffPage) -> Result<Option<Starts>> {
    let form = &page.form;
    let Some(offsets) = page.offsets else { return Ok(None) };
    let in_plane = form.height.div_ceil(form.tile_height);
    let (planes, in_pixel) = if form.is_planar { (form.samples, 1) } else { (1, form.samples) };
    if in_plane.checked_mul(planes) != Some(offsets.count) {
        return Ok(None);
    }
    let mut len = [form.tile_height, form.width, in_pixel, form.bits / 8].into_iter();
    let Some(len) = len.try_fold(1_u64, u64::checked_mul) else { return Ok(None) };
    let mut starts = Vec::new();
    let mut before: Option<u64> = None;
    let mut index = 0;
    while index < offsets.count {
        let window = pages.places(offsets, index, WINDOW)?;
        for offset in &window {
            let is_first = index.is_multiple_of(in_plane);
            let is_next = before.and_then(|before| before.checked_add(len)) == Some(*offset);
            if *offset == 0 || (!is_first && !is_next) {
                return Ok(None);
            }
            if is_first {
                starts.push(*offset);
            }
            before = Some(*offset);
            index = index.saturating_add(1);
        }
        if window.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some(starts))
}

/// Describes the chunks of the tiles or strips of a page.
fn tiles_of(
    described: &mut Described,
    pages: &TiffPages,
    page: &TiffPage,
    path: &str,
    grid: &PageGrid,
    outer: &[u64],
) -> Result<()> {
    let form = &page.form;
    let Some(offsets) = page.offsets else { return Ok(()) };
    let (across, down) =
        (form.width.div_ceil(form.tile_width), form.height.div_ceil(form.tile_height));
    let samples = if form.is_planar { form.samples } else { 1 };
    let in_plane = down.saturating_mul(across).max(1);
    let count = in_plane.saturating_mul(samples).min(offsets.count);
    let in_pixel = if form.is_planar { 1 } else { form.samples };
    let mut len = [form.tile_height, form.tile_width, in_pixel, form.bits / 8].into_iter();
    let whole_len = len.try_fold(1_u64, u64::checked_mul).ok_or_else(|| too_large(path))?;
    let is_plain = form.compression == 1;
    let mut index = 0_u64;
    while index < count {
        let most = WINDOW.min(count - index);
        let places = pages.places(offsets, index, most)?;
        let lens = match page.lens {
            Some(lens) => pages.places(lens, index, most)?,
            None => Vec::new(),
        };
        if places.is_empty() {
            return Ok(());
        }
        for (at, offset) in places.into_iter().enumerate() {
            let number = index.saturating_add(at.to_u64());
            let len = lens.get(at).copied().unwrap_or(if is_plain { whole_len } else { 0 });
            if offset == 0 || len == 0 {
                continue;
            }
            let (sample, within) = (number / in_plane, number % in_plane);
            let (row, column) = (within / across, within % across);
            let coords = grid.coords(outer, sample, row, column);
            if is_plain {
                // The last strip has fewer rows, and what follows it is outside of the array.
                let left = form.height.saturating_sub(row.saturating_mul(form.tile_height));
                let is_whole = form.is_tiled || left >= form.tile_height;
                let needed = whole_len / form.tile_height.max(1) * left;
                let needed = if is_whole { whole_len } else { needed };
                described.part(path, &coords, offset, whole_len, needed)?;
            } else {
                described.part(path, &coords, offset, len, len)?;
            }
        }
        index = index.saturating_add(most);
    }
    Ok(())
}
