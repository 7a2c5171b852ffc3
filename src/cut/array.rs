//! An array of a part, and its chunks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use serde_json::json;

use crate::array::assembled::{Assembled, ElementBox};
use crate::array::{Array, Coords};
use crate::cache::{ChunkCache, DecodedChunk};
use crate::dtype::{DType, Element, to_single};
use crate::error::{Error, Kind, Result};
use crate::metadata::Packing;
use crate::metadata::shown::{self, ShownChunks};
use crate::store::{Stat, Version};
use crate::view::map;
use crate::view::region::{Selected, TURN, Turns};
use crate::width::ToU64;

/// The attribute of a grid mapping with the position of the first element, which GDAL prefers to
/// coordinates. It does not hold for a part.
const GEO_TRANSFORM: &str = "GeoTransform";

/// The attribute of an array with its place on a map.
const TRANSFORM: &str = "spatial:transform";

/// Longitudes that get whole turns along a dimension.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnedAxis {
    /// The dimension of the source.
    pub axis: usize,
    /// The turns.
    pub turns: Turns,
}

/// The selected elements of one array.
#[derive(Debug)]
pub(super) struct ArrayPart {
    source: Arc<Array>,
    selected: Vec<Selected>,
    turned: Option<TurnedAxis>,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
}

/// Elements of the source that a chunk needs, and the chunks that have them. Elements after the end
/// of a dimension are those at its beginning.
struct SourceBox {
    elements: ElementBox,
    chunks: Vec<Range<u64>>,
    /// How far the elements of these chunks are moved along each dimension.
    moved: Vec<u64>,
}

impl ArrayPart {
    /// Returns the elements `selected` of an array as one of a shape and a chunk shape.
    pub fn new(
        source: Arc<Array>,
        selected: Vec<Selected>,
        turned: Option<TurnedAxis>,
        (shape, chunk_shape): (Vec<u64>, Vec<u64>),
    ) -> Result<Self> {
        if turned.is_some() && !matches!(source.model().dtype, DType::Float(4 | 8) | DType::Int(_))
        {
            return Err(Error::unsupported(format!(
                "its longitudes are of the type {}, and zarrfs turns only floats and signed \
                 integers: select a range that does not go on after 360 degrees",
                source.model().dtype.name()
            )));
        }
        if turned.is_some() && !packing(&source).changes_nothing() {
            return Err(Error::unsupported(
                "its longitudes are packed, and zarrfs does not turn these: select a range that does \
                 not go on after 360 degrees",
            ));
        }
        Ok(Self { source, selected, turned, shape, chunk_shape })
    }

    /// Returns the number of chunks along each dimension.
    pub fn counts(&self) -> Vec<u64> {
        let along = self.shape.iter().zip(&self.chunk_shape);
        along.map(|(len, chunk)| len.div_ceil((*chunk).max(1))).collect()
    }

    /// Whether the array has a chunk at these coordinates.
    pub fn has(&self, coords: &[u64]) -> bool {
        let counts = self.counts();
        coords.len() == counts.len() && coords.iter().zip(&counts).all(|(at, count)| at < count)
    }

    /// Returns the chunk at `coords`; `None` if no chunk of the source is stored that it needs.
    pub fn chunk(&self, cache: &ChunkCache, coords: &[u64]) -> Result<Option<(Vec<u8>, Stat)>> {
        let (start, extent) = self.place(coords);
        let model = self.source.model();
        let place = ElementBox { start, extent };
        let mut chunk = Assembled::new(&model.dtype, &model.fill, place)?;
        let mut stats = Vec::new();
        self.for_each_source(coords, |wanted, coords| {
            let Some(found) = self.current(cache, coords)? else {
                stats.push(None);
                return Ok(());
            };
            stats.push(Some(found.stat));
            let mut spans = self.source.grid().spans(coords)?;
            for ((start, _), by) in spans.iter_mut().zip(&wanted.moved) {
                *start = start.saturating_add(*by);
            }
            chunk.put(&found.bytes, &spans, &wanted.elements)
        })?;
        let mut bytes = chunk.finish()?.to_vec();
        if let Some(turned) = self.turned {
            self.turn(turned, coords, &mut bytes)?;
        }
        Ok(stat_of(&stats, bytes.len().to_u64()).map(|stat| (bytes, stat)))
    }

    /// Returns a chunk of the source as it is stored now.
    fn current(&self, cache: &ChunkCache, coords: &Coords) -> Result<Option<DecodedChunk>> {
        let found = cache.get(&self.source, coords)?;
        // A server remembers what it has just answered.
        let now = cache.stat(&self.source, coords)?;
        let was = found.as_ref().map(|found| found.stat.version);
        if Version::holds_of(was, now.map(|stat| stat.version)) {
            return Ok(found);
        }
        cache.remove(&self.source, coords);
        cache.get(&self.source, coords)
    }

    /// Returns the stat of the chunk at `coords`.
    pub fn stat(&self, cache: &ChunkCache, coords: &[u64]) -> Result<Option<Stat>> {
        let mut needed = Vec::new();
        self.for_each_source(coords, |_, coords| {
            needed.push(coords.clone());
            Ok(())
        })?;
        let stats = cache.stat_many(&self.source, &needed)?;
        let model = self.source.model();
        if model.dtype.is_variable() {
            return Ok(self.chunk(cache, coords)?.map(|(_, stat)| stat));
        }
        let (_, extent) = self.place(coords);
        let count = extent.iter().fold(1, |all: u64, len| all.saturating_mul(*len));
        Ok(stat_of(&stats, count.saturating_mul(model.dtype.item_len().to_u64())))
    }

    /// Returns where the elements of a chunk are in the source, as if that had no end, and its
    /// shape with a length of 1 along the dimensions that the part lacks.
    fn place(&self, coords: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut of_part = coords.iter().zip(&self.chunk_shape);
        let along = self.selected.iter().map(|one| {
            if !one.is_kept {
                return (one.start, 1);
            }
            let (index, chunk) = of_part.next().unwrap_or((&0, &1));
            (one.start.saturating_add(index.saturating_mul(*chunk)), *chunk)
        });
        along.unzip()
    }

    /// Calls `take` with each chunk of the source that the chunk at `coords` needs.
    fn for_each_source(
        &self,
        coords: &[u64],
        mut take: impl FnMut(&SourceBox, &Coords) -> Result<()>,
    ) -> Result<()> {
        for wanted in self.wanted(coords)? {
            let extent = wanted.chunks.iter().map(|range| range.end.saturating_sub(range.start));
            let places = ElementBox {
                start: wanted.chunks.iter().map(|range| range.start).collect(),
                extent: extent.collect(),
            };
            places.places().try_for_each(|coords| take(&wanted, &coords))?;
        }
        Ok(())
    }

    /// Returns the boxes of the source that a chunk needs: two along a dimension after whose end it
    /// goes on at the beginning.
    fn wanted(&self, coords: &[u64]) -> Result<Vec<SourceBox>> {
        let outside = || Error::new(Kind::Internal, "a chunk outside of its array");
        let (start, extent) = self.place(coords);
        let mut boxes = vec![SourceBox {
            elements: ElementBox::default(),
            chunks: Vec::new(),
            moved: Vec::new(),
        }];
        let all = self.selected.iter().zip(&self.source.model().shape).enumerate();
        for ((axis, (one, len)), (start, extent)) in all.zip(start.iter().zip(&extent)) {
            let end = one.start.saturating_add(one.len).min(start.saturating_add(*extent));
            let mut pieces = Vec::new();
            for (from, until, moved) in
                [(*start, end.min(*len), 0), ((*start).max(*len), end, *len)]
            {
                let Some(count) = until.checked_sub(from).filter(|count| *count > 0) else {
                    continue;
                };
                let grid = self.source.grid();
                let index = |at: u64| grid.index_of(axis, at.saturating_sub(moved));
                let first = index(from).ok_or_else(outside)?;
                let last = index(until.saturating_sub(1)).ok_or_else(outside)?;
                pieces.push((from, count, first..last.saturating_add(1), moved));
            }
            boxes = boxes
                .iter()
                .flat_map(|found| pieces.iter().map(|piece| found.with(piece)))
                .collect();
        }
        Ok(boxes)
    }

    /// Adds whole turns to the longitudes of a chunk.
    fn turn(&self, turned: TurnedAxis, coords: &[u64], bytes: &mut [u8]) -> Result<()> {
        let (start, extent) = self.place(coords);
        let lens = extent.iter().skip(turned.axis.saturating_add(1));
        let inner = lens.fold(1, |all: u64, len| all.saturating_mul(*len)).max(1);
        let len = extent.get(turned.axis).copied().unwrap_or(1).max(1);
        let first = self.selected.get(turned.axis).map_or(0, |one| one.start);
        let before = start.get(turned.axis).map_or(0, |start| start.saturating_sub(first));
        let packing = packing(&self.source);
        let dtype = &self.source.model().dtype;
        let item_len = dtype.item_len().max(1);
        for (number, item) in (0_u64..).zip(bytes.chunks_exact_mut(item_len)) {
            let within = number.checked_div(inner).and_then(|at| at.checked_rem(len));
            let at = before.saturating_add(within.unwrap_or_default());
            let is_first = at < turned.turns.count;
            let turns = if is_first { turned.turns.first } else { turned.turns.rest };
            let Some(value) = packing.value(Element::of(dtype, item)) else { continue };
            if turns != 0 {
                put_turned(item, value, turns)?;
            }
        }
        Ok(())
    }
}

impl SourceBox {
    fn with(&self, (from, count, chunks, moved): &(u64, u64, Range<u64>, u64)) -> Self {
        let mut next = Self {
            elements: self.elements.clone(),
            chunks: self.chunks.clone(),
            moved: self.moved.clone(),
        };
        next.elements.start.push(*from);
        next.elements.extent.push(*count);
        next.chunks.push(chunks.clone());
        next.moved.push(*moved);
        next
    }
}

fn packing(array: &Array) -> Packing {
    Packing::of(&array.model().dtype, &array.model().attributes)
}

/// Stores a longitude after whole turns.
fn put_turned(item: &mut [u8], value: Element, turns: i32) -> Result<()> {
    let wide = || Error::unsupported("its integers are too short for longitudes after a turn");
    match value {
        Element::Int(int) => {
            let turned = int.saturating_add(i128::from(turns).saturating_mul(360));
            let bits = item.len().to_u64().saturating_mul(8).saturating_sub(1).min(127);
            let most = 1_i128.checked_shl(u32::try_from(bits).unwrap_or(127)).unwrap_or(i128::MAX);
            if turned >= most || turned < most.saturating_neg() {
                return Err(wide());
            }
            let bytes = turned.to_le_bytes();
            item.copy_from_slice(bytes.get(..item.len()).ok_or_else(wide)?);
        }
        Element::Float(float) => {
            let turned = float + f64::from(turns) * TURN;
            match item.len() {
                4 => item.copy_from_slice(&to_single(turned).to_le_bytes()),
                _ => item.copy_from_slice(turned.to_le_bytes().get(..item.len()).ok_or_else(wide)?),
            }
        }
        Element::Complex(..) | Element::Bytes => {}
    }
    Ok(())
}

/// Returns the stat of a chunk that is made of chunks with these stats; `None` if none is stored.
fn stat_of(stats: &[Option<Stat>], len: u64) -> Option<Stat> {
    let stored = || stats.iter().flatten();
    let modified = stored().map(|stat| stat.modified).max()?;
    // While one of them may change without another state, so may the chunk.
    if let Some(one) = stored().find(|stat| !stat.version.holds(stat.version)) {
        return Some(Stat { len, modified, version: one.version });
    }
    let mut state = [0; 4];
    for (number, word) in (0_u64..).zip(&mut state) {
        let mut hasher = DefaultHasher::new();
        number.hash(&mut hasher);
        for stat in stats {
            stat.as_ref().map(|stat| stat.version.state()).hash(&mut hasher);
        }
        *word = hasher.finish();
    }
    Some(Stat { len, modified, version: Version::settled(state) })
}

/// Returns the metadata file of the selected elements of an array, their shape, and the shape of
/// their chunks. `transform` is their place on a map by GeoZarr.
pub(super) fn part_document(
    source: &Array,
    selected: &[Selected],
    transform: Option<[f64; 6]>,
    is_turned: bool,
) -> (String, Vec<u64>, Vec<u64>) {
    let mut model = source.model().clone();
    let kept = |list: Vec<u64>| -> Vec<u64> {
        let all = list.into_iter().zip(selected);
        all.filter(|(_, one)| one.is_kept).map(|(len, _)| len).collect()
    };
    let chunk = source.chunk_shape().iter().zip(selected);
    let chunk = chunk.map(|(chunk, one)| (*chunk).min(one.len).max(1)).collect();
    model.shape = kept(selected.iter().map(|one| one.len).collect());
    model.chunk_shape = kept(chunk);
    model.rectilinear = None;
    if !model.dimension_names.is_empty() {
        let names = model.dimension_names.into_iter().zip(selected);
        model.dimension_names =
            names.filter(|(_, one)| one.is_kept).map(|(name, _)| name).collect();
    }
    let is_of_all = |name: &str| {
        [GEO_TRANSFORM, "actual_range"].contains(&name)
            || map::OF_ALL_ELEMENTS.contains(&name)
            || is_turned && ["valid_range", "valid_min", "valid_max"].contains(&name)
    };
    model.attributes.retain(|name, _| !is_of_all(name));
    if let Some(transform) = transform {
        model.attributes.insert(TRANSFORM.to_owned(), json!(transform));
    }
    let text = shown::array(&model, &ShownChunks::decoded(&model, &model.chunk_shape));
    (text, model.shape, model.chunk_shape)
}
