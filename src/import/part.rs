//! An array of a source in an array of the target: its place, and its elements as the target has
//! them.

use std::sync::Arc;

use super::times::TimeShift;
use crate::array::assembled::{Assembled, ElementBox};
use crate::array::{Array, Coords, Grid};
use crate::buffer::Buffer;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::hierarchy::Node;
use crate::metadata::model::ArrayMetadata;
use crate::metadata::{NodePath, Packing};

/// An array of the target, and what goes into it.
#[derive(Debug)]
pub struct ArrayImport {
    /// Its path.
    pub path: NodePath,
    /// Its node, as it was when the import was planned.
    pub seen: Arc<Node>,
    /// The array as it is now.
    pub now: Arc<Array>,
    /// The array with the shape that it gets.
    pub grown: Arc<Array>,
    /// The arrays of the sources that go into it.
    pub(super) parts: Vec<ImportPart>,
}

/// An array of a source, and its place in the array of the target.
#[derive(Debug, Clone)]
pub(super) struct ImportPart {
    /// How the user wrote the source, and the array in it.
    pub(super) shown: Arc<str>,
    pub(super) source: Arc<Array>,
    /// The place of its first element.
    pub(super) at: Vec<u64>,
    /// How its times become those of the target.
    pub(super) shift: Option<TimeShift>,
    /// Its elements that are no values, which no shift changes.
    pub(super) packing: Packing,
}

impl ImportPart {
    /// Returns an error about the source.
    fn named(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("{}: {error}", self.shown))
    }

    /// Returns its box in the array of the target.
    pub(super) fn place(&self) -> ElementBox {
        ElementBox::whole(&self.source.model().shape).moved(&self.at)
    }
}

impl ArrayImport {
    /// Returns the box that the parts fill, which is one without gaps.
    pub(super) fn region(&self) -> ElementBox {
        let mut parts = self.parts.iter().map(ImportPart::place);
        let mut region = parts.next().unwrap_or_default();
        for place in parts {
            let along = region.start.iter().zip(place.ends());
            let extent: Vec<u64> = along
                .zip(&region.extent)
                .map(|((at, end), len)| end.saturating_sub(*at).max(*len))
                .collect();
            region.extent = extent;
        }
        region
    }

    /// Returns the shape of the array before and after the import.
    pub fn shapes(&self) -> (&[u64], &[u64]) {
        (&self.now.model().shape, &self.grown.model().shape)
    }

    /// Whether the array gets another shape.
    pub fn grows(&self) -> bool {
        self.now.model().shape != self.grown.model().shape
    }
}

/// Returns the grid of the stored values of an array: its shards, or its chunks.
pub(super) fn values_of(array: &Array) -> &Grid {
    array.levels().first().map_or(array.grid(), |direct| direct.grid())
}

/// Reads a chunk of a source; `None` if it is not stored.
pub(super) type GetSource<'g> = dyn Fn(&Arc<Array>, &Coords) -> Result<Option<Buffer>> + 'g;

/// Puts the elements of a part that are in `wanted`, a box of the target, into a chunk of it.
/// Returns whether any of them is stored, or differs from the fill value of the target.
pub(super) fn put_part(
    part: &ImportPart,
    wanted: &ElementBox,
    made: &mut Assembled,
    target: &ArrayMetadata,
    get: &GetSource<'_>,
) -> Result<bool> {
    let Some(wanted) = part.place().intersection(wanted) else { return Ok(false) };
    let (source, model) = (&part.source, part.source.model());
    let start = wanted.start.iter().zip(&part.at).map(|(at, by)| at.saturating_sub(*by));
    let from = ElementBox { start: start.collect(), extent: wanted.extent.clone() };
    let item = |model: &ArrayMetadata| model.fill.item(&model.dtype).into_owned();
    let mut is_stored = item(model) != item(target);
    let mut put = |made: &mut Assembled, by: &[u64], wanted: &ElementBox| -> Result<()> {
        for coords in source.grid().overlapping(&from) {
            let spans = ElementBox::of_spans(&source.grid().spans(&coords)?).moved(by).spans();
            let found = get(source, &coords).and_then(|found| match found {
                Some(bytes) => Ok(Some(bytes)),
                None => Ok(source.read_again(&coords)?.map(|(bytes, _)| bytes)),
            });
            let found = found.map_err(|error| part.named(&error))?;
            is_stored |= found.is_some();
            let bytes = found.map_or_else(|| source.fill_chunk(&coords), Ok)?;
            made.put(&bytes, &spans, wanted)?;
        }
        Ok(())
    };
    let Some(shift) = &part.shift else {
        put(made, &part.at, &wanted)?;
        return Ok(is_stored);
    };
    let mut times = Assembled::new(&model.dtype, &model.fill, from.clone())?;
    put(&mut times, &vec![0; from.start.len()], &from)?;
    let mut times = times.finish()?;
    let counted = shift.apply(&model.dtype, &part.packing, times.to_mut());
    counted.map_err(|error| part.named(&error))?;
    made.put(&times, &wanted.spans(), &wanted)?;
    Ok(true)
}

/// Returns the elements of a part in a box of the target.
fn elements(part: &ImportPart, target: &Array, wanted: &ElementBox) -> Result<Buffer> {
    let model = target.model();
    let mut made = Assembled::new(&model.dtype, &model.fill, wanted.clone())?;
    put_part(part, wanted, &mut made, model, &read)?;
    made.finish()
}

fn read(array: &Arc<Array>, coords: &Coords) -> Result<Option<Buffer>> {
    Ok(array.read_chunk(coords)?.map(|(bytes, _)| bytes))
}

/// Whether a chunk of the target has the elements of a part.
pub(super) fn is_same(part: &ImportPart, target: &Array, coords: &Coords) -> Result<bool> {
    let spans = target.grid().spans(coords)?;
    let place = ElementBox::of_spans(&spans);
    let Some(wanted) = part.place().intersection(&place) else { return Ok(true) };
    let model = target.model();
    let mut found = Assembled::new(&model.dtype, &model.fill, wanted.clone())?;
    if let Some((bytes, _)) = target.read_chunk(coords)? {
        found.put(&bytes, &spans, &wanted)?;
    }
    Ok(*found.finish()? == *elements(part, target, &wanted)?)
}

/// Returns the first element of the first chunk in which an array of the target differs from a
/// part.
pub(super) fn first_difference(part: &ImportPart, target: &Array) -> Result<Option<Vec<u64>>> {
    for coords in target.grid().overlapping(&ElementBox::whole(&target.model().shape)) {
        if !is_same(part, target, &coords)? {
            return Ok(Some(ElementBox::of_spans(&target.grid().spans(&coords)?).start));
        }
    }
    Ok(None)
}

/// Fails if times of a part cannot be converted, before anything is stored.
pub(super) fn check_times(import: &ArrayImport) -> Result<()> {
    let mut counted = import.parts.iter().filter(|part| part.shift.is_some());
    counted.try_for_each(|part| elements(part, &import.grown, &part.place()).map(drop))
}

/// Returns the last values of an array of one dimension, and those that go behind them.
pub(super) fn values_along(import: &ArrayImport) -> Result<(Vec<Element>, Vec<Element>)> {
    let model = import.now.model();
    let values = |bytes: &[u8]| -> Vec<Element> {
        let items = bytes.chunks_exact(model.dtype.item_len().max(1));
        items.map(|item| Element::of(&model.dtype, item)).collect()
    };
    let len = model.shape.first().copied().unwrap_or_default();
    let last = len.min(2);
    let before = ElementBox { start: vec![len.saturating_sub(last)], extent: vec![last] };
    let own = ImportPart {
        shown: Arc::from("the target"),
        source: Arc::clone(&import.now),
        at: vec![0],
        shift: None,
        packing: Packing::none(),
    };
    let before = elements(&own, &import.now, &before)?;
    let mut new = Vec::new();
    for part in &import.parts {
        new.extend(values(&elements(part, &import.grown, &part.place())?));
    }
    Ok((values(&before), new))
}
