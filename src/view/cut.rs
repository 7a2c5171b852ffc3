//! A box of an array as an array of its own, for `zarrfs cat --region`.
//!
//! A [`Cut`] is a hierarchy that has only metadata: the array with the shape of the box, the arrays
//! of its group that share dimensions with it (coordinates, their bounds), and the groups above.
//! Their chunks are made from those of the source, so every format shows a box as it shows any
//! array.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::elements::{ElementRange, Excerpt};
use super::image::attributes_of_box;
use super::region::{Region, Selected};
use crate::array::assembled::{Assembled, ElementBox};
use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Content, Hierarchy};
use crate::json::Object;
use crate::metadata::shown::{self, ShownChunks};
use crate::metadata::{NodePath, model};

/// The attribute of a grid mapping with the position of the first element, which GDAL prefers to
/// coordinates. It does not hold for a box.
const GEO_TRANSFORM: &str = "GeoTransform";

/// Reads a chunk of an array; `None` if it is not stored.
pub type GetOf<'g> = dyn Fn(&Arc<Array>, &Coords) -> Result<Option<Buffer>> + 'g;

/// A box of an array, with the coordinates of its dimensions.
#[derive(Debug)]
pub struct Cut {
    hierarchy: Hierarchy,
    arrays: HashMap<NodePath, SelectedPart>,
}

/// The selected elements of one array.
#[derive(Debug)]
struct SelectedPart {
    source: Arc<Array>,
    selected: Vec<Selected>,
}

impl Cut {
    /// Returns the region of the array at `path`.
    pub fn new(hierarchy: &Hierarchy, path: &NodePath, region: &Region) -> Result<Self> {
        let node = hierarchy.existing(path)?;
        let array = node.array().ok_or_else(|| {
            Error::invalid("a region is one of an array, and this is a group").at(path)
        })?;
        let selected = region.of(&array.model().shape).at(path)?;
        let (mut documents, mut arrays) = (Vec::new(), HashMap::new());
        for path in path.ancestors() {
            let group = hierarchy.existing(&path)?;
            let attributes = match group.content() {
                Content::Group(group) => group.attributes.clone(),
                _ => Object::new(),
            };
            let relative = node.path().relative_to(&path).unwrap_or_default();
            let attributes = attributes_of_box(attributes, relative, &selected);
            let group = model::Group { attributes, consolidated: false };
            documents.push((path, shown::group(&group, None)));
        }
        let mut add = |path: &NodePath, source: &Arc<Array>, selected: Vec<Selected>| {
            documents.push((path.clone(), document(source, &selected)));
            arrays.insert(path.clone(), SelectedPart { source: Arc::clone(source), selected });
        };
        if let Some(group) = path.parent() {
            for other in hierarchy.children(&group)?.flatten().filter(|other| other.path() != path)
            {
                if let Some(found) = other.array()
                    && let Some(selected) = beside(found.model(), array.model(), &selected)
                {
                    add(other.path(), found, selected);
                }
            }
        }
        add(path, array, selected);
        Ok(Self { hierarchy: Hierarchy::in_memory(documents)?, arrays })
    }

    /// Returns the hierarchy, in which the box has the path of the array.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Returns a chunk of the cut hierarchy, made from chunks of the source, which `get` reads;
    /// `None` if none of them is stored.
    pub fn chunk(
        &self,
        elements: &ElementRange,
        coords: &Coords,
        get: &GetOf<'_>,
    ) -> Result<Option<Excerpt>> {
        let part = self.arrays.get(&elements.path);
        let part = part.ok_or_else(|| Error::new(Kind::Internal, "an array that was not cut"))?;
        part.chunk(&elements.array, coords, get).at(&elements.path)
    }
}

/// A box of the source, and the chunks that overlap it.
struct SourceBox {
    elements: ElementBox,
    chunks: Vec<Range<u64>>,
}

impl SelectedPart {
    fn chunk(&self, cut: &Array, coords: &Coords, get: &GetOf<'_>) -> Result<Option<Excerpt>> {
        // The shape of the chunk, with a length of 1 along the dimensions that the box lacks.
        let mut of_chunk = cut.chunk_shape().iter();
        let shape: Vec<u64> = self
            .selected
            .iter()
            .map(|one| if one.is_kept { of_chunk.next().copied().unwrap_or(1) } else { 1 })
            .collect();
        let wanted = self.wanted(cut, coords)?;
        let model = self.source.model();
        let start = wanted.elements.start.clone();
        let mut chunk =
            Assembled::new(&model.dtype, &model.fill, ElementBox { start, extent: shape })?;
        let mut is_stored = false;
        let mut at: Vec<u64> = wanted.chunks.iter().map(|range| range.start).collect();
        loop {
            let coords = Coords::new(at.clone());
            if let Some(bytes) = get(&self.source, &coords)? {
                chunk.put(&bytes, &self.source.grid().spans(&coords)?, &wanted.elements)?;
                is_stored = true;
            }
            let is_more = at.iter_mut().zip(&wanted.chunks).rev().any(|(index, range)| {
                *index = index.saturating_add(1);
                let is_in = *index < range.end;
                if !is_in {
                    *index = range.start;
                }
                is_in
            });
            if !is_more {
                return if is_stored {
                    chunk.finish().map(|made| Some(made.into()))
                } else {
                    Ok(None)
                };
            }
        }
    }

    /// Returns what a chunk of the cut needs of the source.
    fn wanted(&self, cut: &Array, coords: &Coords) -> Result<SourceBox> {
        let outside = || Error::new(Kind::Internal, "a chunk outside of its array");
        let mut of_cut = coords.indices().iter().zip(cut.chunk_shape()).zip(&cut.model().shape);
        let mut wanted = SourceBox { elements: ElementBox::default(), chunks: Vec::new() };
        for (axis, one) in self.selected.iter().enumerate() {
            let (from, len) = if one.is_kept {
                let ((index, chunk), all) = of_cut.next().ok_or_else(outside)?;
                let from = index.checked_mul(*chunk).ok_or_else(outside)?;
                (from, (*chunk).min(all.saturating_sub(from)))
            } else {
                (0, 1)
            };
            let start = one.start.saturating_add(from);
            let last = start.saturating_add(len.saturating_sub(1));
            let grid = self.source.grid();
            let first = grid.index_of(axis, start).ok_or_else(outside)?;
            let end = grid.index_of(axis, last).ok_or_else(outside)?.saturating_add(1);
            wanted.elements.start.push(start);
            wanted.elements.extent.push(len);
            wanted.chunks.push(first..end);
        }
        Ok(wanted)
    }
}

/// Returns the selected elements of an array beside the cut one; `None` if it has no dimension of
/// that, but some dimension.
fn beside(
    model: &model::ArrayMetadata,
    main: &model::ArrayMetadata,
    selected: &[Selected],
) -> Option<Vec<Selected>> {
    let mut is_related = model.shape.is_empty();
    let mut found = Vec::new();
    for (axis, len) in model.shape.iter().enumerate() {
        let name = model.dimension_names.get(axis).and_then(Option::as_ref);
        let same = main.dimension_names.iter().zip(&main.shape).position(|(other, other_len)| {
            name.is_some() && other.as_ref() == name && other_len == len
        });
        let one = same.and_then(|axis| selected.get(axis).copied());
        is_related |= one.is_some();
        found.push(one.unwrap_or(Selected::all(*len)));
    }
    is_related.then_some(found)
}

/// Returns the metadata file of the selected elements of an array.
fn document(source: &Array, selected: &[Selected]) -> String {
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
    model.attributes.shift_remove(GEO_TRANSFORM);
    shown::array(&model, &ShownChunks::decoded(&model, &model.chunk_shape))
}
