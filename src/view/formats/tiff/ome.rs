//! `ome.tif`: a BigTIFF whose tiles are the chunks, with OME-XML in the first directory
//! (<https://ome-model.readthedocs.io/en/stable/ome-tiff/>). If a group is an OME-Zarr image, its
//! smaller levels are sub-directories of each page.
//!
//! TIFF needs tiles whose sides are multiples of 16, or strips, which are as wide as the page. If
//! chunks are neither, or so small that their offsets would fill the header, pages are stored one
//! after another.

use super::directory::{TiffEntry, TiffValue, TiffVariant, TiffWriter, lens, resolution, tag};
use super::ome_xml;
use super::page::{TiffPage, stack};
use crate::error::{Error, Result};
use crate::view::elements::ElementRange;
use crate::view::image::{AxisKind, Image, levels, title};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View, max_prefix_len};
use crate::view::source::ViewSource;
use crate::width::ToU64;

const FORM: TiffVariant = TiffVariant { is_big: true, big_endian: false };

/// The length in bytes of a strip that is not a chunk.
const STRIP_LEN: u64 = 1 << 20;

/// The most bytes of a tile or strip, since readers read each as a whole.
const MAX_TILE_LEN: u64 = 1 << 30;

/// Returns the most pages. The directory of each has more than 256 bytes.
fn max_pages() -> u64 {
    max_prefix_len() / 256
}

/// Returns the most tiles in all levels: the header has 12 bytes for each.
fn max_tiles() -> u64 {
    max_prefix_len() / 16
}

/// One resolution of the image.
struct Resolution {
    page: TiffPage,
    /// The lengths of the axes before those of a page.
    outer: Vec<u64>,
    elements: ElementRange,
    tiles: Option<Tiles>,
}

/// The tiles that correspond to chunks.
struct Tiles {
    width: u32,
    height: u32,
    /// Whether chunks are as wide as the page, and so are strips.
    are_strips: bool,
    /// The lengths of a chunk along the axes before those of a page.
    chunk: Vec<u64>,
    /// The number of chunks along these axes.
    counts: Vec<u64>,
    across: u64,
    down: u64,
    len: u64,
}

pub(in super::super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let arrays = match source.array() {
        Ok(_) => vec![source.clone()],
        Err(_) => levels(source)?,
    };
    let mut arrays = arrays.iter();
    let first = arrays.next().ok_or_else(|| Error::unsupported("an image without datasets"))?;
    let image = Image::of(first)?.in_pages();
    let mut places_left = max_tiles();
    let mut all = vec![Resolution::of(first, &image, &mut places_left)?];
    let mut left_out = LeftOutOfView::of_image(source.path(), &image, false);
    for array in arrays.by_ref() {
        let smaller = Image::of(array)?.in_pages();
        // In an OME-TIFF pyramid only rows and columns shrink, so it ends before a level that
        // differs otherwise.
        let level = (smaller.dtype == image.dtype)
            .then(|| Resolution::of(array, &smaller, &mut places_left))
            .transpose()?
            .filter(|level| all.last().is_some_and(|last| level.is_smaller_than(last)));
        let Some(level) = level else {
            leave_out(source, array, &mut left_out);
            break;
        };
        all.push(level);
    }
    arrays.for_each(|array| leave_out(source, array, &mut left_out));
    let (page, outer) = TiffPage::of(&image)?;
    let kinds = stack(outer, page.samples > 1).ok_or_else(|| {
        Error::unsupported(
            "OME has at most one axis of time, one of channels and three spatial ones",
        )
    })?;
    let name = title(source).unwrap_or_else(|| source.name().to_owned());
    let text = ome_xml::text(&name, &image, outer, &kinds, page.samples)?;
    let header = |start: u64| header(&all, start, &text, &image);
    // The length of the header does not depend on the offsets.
    let start = header(0)?.len().to_u64();
    let header = header(start)?;
    let elements = all.into_iter().map(|level| Part::from(level.elements));
    Ok(View::new([Part::from(header)].into_iter().chain(elements))?.with_left_out(left_out))
}

/// Lists a level that the pyramid does not have.
fn leave_out(image: &ViewSource<'_>, level: &ViewSource<'_>, left_out: &mut LeftOutOfView) {
    let why = "in the pyramid of an OME-TIFF only rows and columns become fewer";
    let (root, name) = (image.path(), level.path().relative_to(image.path()));
    left_out.add(root, root, name.unwrap_or_else(|| level.name()), &Error::unsupported(why));
}

fn header(levels: &[Resolution], start: u64, text: &str, image: &Image) -> Result<Vec<u8>> {
    let step = |kind| image.axis(kind)?.1.step_in(-2).map(f64::abs);
    let place = match (step(AxisKind::X), step(AxisKind::Y)) {
        (Some(x), Some(y)) => resolution(x, y, 3),
        _ => Vec::new(),
    };
    let mut writer = TiffWriter::new(FORM);
    let pages = levels.first().map_or(0, Resolution::pages);
    for number in 0..pages {
        let mut at = start;
        let (mut own, mut subs) = (Vec::new(), Vec::new());
        for (depth, level) in levels.iter().enumerate() {
            let mut entries = level.page.entries();
            entries.extend(level.places(at, number));
            at = at.saturating_add(level.elements.len());
            if depth == 0 {
                own = entries;
            } else {
                entries.push((tag::NEW_SUBFILE_TYPE, TiffValue::Long(vec![1])));
                subs.push(writer.directory(entries)?);
            }
        }
        if number == 0 {
            own.push((tag::IMAGE_DESCRIPTION, TiffValue::Text(text.to_owned())));
        }
        own.extend(place.clone());
        if !subs.is_empty() {
            own.push((tag::SUB_IFDS, TiffValue::Directories(subs)));
        }
        writer.chained(own)?;
    }
    writer.bytes.resize(writer.bytes.len().next_multiple_of(64), 0);
    Ok(writer.bytes)
}

impl Resolution {
    fn of(source: &ViewSource<'_>, image: &Image, places_left: &mut u64) -> Result<Self> {
        let (page, outer) = TiffPage::of(image)?;
        let outer: Vec<u64> = outer.iter().map(|axis| axis.len).collect();
        let pages = product(&outer).filter(|pages| *pages <= max_pages()).ok_or_else(|| {
            let most = max_pages();
            Error::unsupported(format!("it has more than {most} pages, the limit of a header"))
        })?;
        let tiles = Tiles::of(source, &page, outer.len())?;
        let count = |tiles: &Tiles| tiles.across.checked_mul(tiles.down)?.checked_mul(pages);
        let tiles = tiles.filter(|tiles| {
            let left = count(tiles).and_then(|count| places_left.checked_sub(count));
            *places_left = left.unwrap_or(*places_left);
            left.is_some()
        });
        let layout = if tiles.is_some() { Layout::Chunks } else { Layout::Linear };
        let elements = source.elements(layout, NumberForm::default())?;
        Ok(Self { page, outer, elements, tiles })
    }

    fn pages(&self) -> u64 {
        product(&self.outer).unwrap_or(0)
    }

    /// Whether the level can follow another in the pyramid.
    fn is_smaller_than(&self, other: &Self) -> bool {
        self.outer == other.outer
            && self.page.samples == other.page.samples
            && self.page.width <= other.page.width
            && self.page.height <= other.page.height
    }

    /// Returns the entries with the offsets of a page, in a file whose elements of the level begin
    /// at `start`.
    fn places(&self, start: u64, number: u64) -> Vec<TiffEntry> {
        let Some(tiles) = &self.tiles else {
            let at = start.saturating_add(self.page.len().saturating_mul(number));
            return self.page.strips(at, self.page.rows_of(STRIP_LEN));
        };
        let offsets = tiles.offsets(start, &self.outer, number);
        if tiles.are_strips {
            let mut left = self.page.height;
            let counts = offsets.iter().map(|_| {
                let rows = left.min(tiles.height);
                left = left.saturating_sub(rows);
                self.page.row_len.saturating_mul(u64::from(rows))
            });
            return vec![
                (tag::STRIP_BYTE_COUNTS, lens(counts.collect())),
                (tag::STRIP_OFFSETS, TiffValue::Offsets(offsets)),
                (tag::ROWS_PER_STRIP, TiffValue::Long(vec![tiles.height])),
            ];
        }
        vec![
            (tag::TILE_WIDTH, TiffValue::Long(vec![tiles.width])),
            (tag::TILE_LENGTH, TiffValue::Long(vec![tiles.height])),
            (tag::TILE_BYTE_COUNTS, lens(vec![tiles.len; offsets.len()])),
            (tag::TILE_OFFSETS, TiffValue::Offsets(offsets)),
        ]
    }
}

impl Tiles {
    /// Returns the chunks as tiles, `None` if that is impossible.
    fn of(source: &ViewSource<'_>, page: &TiffPage, outer: usize) -> Result<Option<Self>> {
        let array = source.array()?;
        if !array.grid().is_regular() {
            return Ok(None);
        }
        let (chunk, inner) = array.chunk_shape().split_at_checked(outer).unwrap_or_default();
        let (counts, grid) = array.grid().counts().split_at_checked(outer).unwrap_or_default();
        let (sides, samples) = inner.split_at(inner.len().min(2));
        let ((height, width), (down, across)) = match (sides, grid) {
            ([height, width], [down, across, ..]) => ((*height, *width), (*down, *across)),
            ([width], [across]) => ((1, *width), (1, *across)),
            _ => return Ok(None),
        };
        let (Ok(width), Ok(height)) = (u32::try_from(width), u32::try_from(height)) else {
            return Ok(None);
        };
        let pixel_len = page.row_len / u64::from(page.width).max(1);
        let len = u64::from(width).saturating_mul(u64::from(height)).saturating_mul(pixel_len);
        let has_all_samples = samples.iter().all(|len| *len == u64::from(page.samples));
        let is_tile = width.is_multiple_of(16) && height.is_multiple_of(16);
        let is_strip = width == page.width;
        if !has_all_samples || !(is_tile || is_strip) || len > MAX_TILE_LEN {
            return Ok(None);
        }
        let (chunk, counts) = (chunk.to_vec(), counts.to_vec());
        Ok(Some(Self { width, height, are_strips: !is_tile, chunk, counts, across, down, len }))
    }

    /// Returns the offsets of the tiles of a page, row by row.
    fn offsets(&self, start: u64, outer: &[u64], number: u64) -> Vec<u64> {
        let (mut left, mut indices) = (number, Vec::new());
        for len in outer.iter().rev() {
            indices.push(left % (*len).max(1));
            left /= (*len).max(1);
        }
        indices.reverse();
        // The number of the chunk along the axes before those of a page, and of the page in it.
        let (mut chunk, mut within) = (0_u64, 0_u64);
        for ((index, len), count) in indices.iter().zip(&self.chunk).zip(&self.counts) {
            chunk = chunk.saturating_mul(*count).saturating_add(index / (*len).max(1));
            within = within.saturating_mul(*len).saturating_add(index % (*len).max(1));
        }
        let chunk_len = self.chunk.iter().fold(self.len, |all, len| all.saturating_mul(*len));
        let tiles = self.across.saturating_mul(self.down);
        let first = chunk.saturating_mul(tiles);
        let start = start.saturating_add(within.saturating_mul(self.len));
        let place =
            |tile: u64| start.saturating_add(first.saturating_add(tile).saturating_mul(chunk_len));
        (0..tiles).map(place).collect()
    }
}

fn product(lens: &[u64]) -> Option<u64> {
    lens.iter().try_fold(1_u64, |all, len| all.checked_mul(*len))
}
