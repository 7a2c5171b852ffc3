//! Virtual data sets: arrays whose elements are in other data sets, mostly in other files.
//! Detectors write them.
//!
//! A virtual data set is shown without a copy: its chunks are those of its sources. So all sources
//! must have chunks of one shape, which the mappings put on one grid, or lie in their files one
//! element after the other. Elements without a mapping, and those of a file that is missing, are
//! the fill value, as in the library of HDF5.

use std::rc::Rc;

use serde_json::Value;

use super::data_set::StoredDataSet;
use super::mappings::{self, Mapping};
use super::pairing::Part;
use super::placed::{INLINE, PlacedChunk, SourcePlaces, SourceSet, coords_of, grid};
use super::placing;
use super::selection::{SelectedAxis, Selection};
use super::sources::{OpenSource, Sources};
use super::types;
use crate::described::{Described, DescribedArray, bytes_codec};
use crate::pieces;
use zarrfs_base::error::{Error, Result};

/// The most names of missing files that are reported.
const MAX_NAMED: usize = 3;

/// A virtual data set as one with chunks.
pub struct AssembledSet {
    /// The data set.
    pub source: SourceSet,
    /// Its parts that do not exist.
    pub missing: MissingParts,
}

/// Parts that do not exist.
#[derive(Default)]
pub struct MissingParts {
    named: Vec<String>,
    count: usize,
}

impl MissingParts {
    fn note(&mut self, mapping: &Mapping) {
        if self.named.len() < MAX_NAMED {
            self.named.push(format!("{} in {}", mapping.data_set, mapping.file));
        }
        self.count = self.count.saturating_add(1);
    }
}

/// Describes a virtual data set, or one with values in files of other formats.
pub fn describe(
    path: &str,
    at: &Rc<OpenSource>,
    set: &StoredDataSet,
    sources: &mut Sources<'_>,
    array: &mut DescribedArray,
    described: &mut Described,
) -> Result<()> {
    sources.clear();
    let AssembledSet { source, missing } = match &set.external {
        Some(listed) => {
            let source = sources.external(at, set, listed)?;
            AssembledSet { source, missing: MissingParts::default() }
        }
        None => assembled(sources, at, set, 0)?,
    };
    let SourceSet { shape, stored, filters, places, .. } = source;
    array.codecs = std::iter::once(bytes_codec(stored.is_big)).chain(filters).collect();
    array.chunk_shape = match &places {
        SourcePlaces::Chunks { shape, .. } => shape.clone(),
        _ => pieces::piece_shape(&shape, stored.item_len),
    };
    array.shape = shape;
    if let Some(names) = &mut array.dimension_names {
        names.resize(array.shape.len(), None);
    }
    if let SourcePlaces::Chunks { stored, .. } = &places {
        lead_to_all(stored, sources, described)?;
        described.lead_into(&at.as_chunk_file())?;
        described.check_room(stored.len())?;
    }
    described.array(path, array)?;
    if missing.count > 0 {
        let names = missing.named.join(", ");
        let count = missing.count;
        described.miss(
            path,
            &format!("{count} of its parts do not exist and are the fill value: {names}"),
        );
    }
    let SourcePlaces::Chunks { shape: chunk_shape, stored: mut chunks } = places else {
        return Ok(());
    };
    let counts = grid(&array.shape, &chunk_shape)?;
    chunks.sort_by_key(|chunk| chunk.file);
    let result = add_chunks(path, &chunks, &counts, sources, described);
    described.lead_into(&at.as_chunk_file())?;
    result
}

/// Notes all files that chunks lie in: each makes room for some.
fn lead_to_all(
    chunks: &[PlacedChunk],
    sources: &Sources<'_>,
    described: &mut Described,
) -> Result<()> {
    let mut last = None;
    for chunk in chunks.iter().filter(|chunk| chunk.file != INLINE) {
        if last != Some(chunk.file)
            && let Some(file) = sources.chunk_file(chunk.file)
        {
            described.lead_into(file)?;
        }
        last = Some(chunk.file);
    }
    Ok(())
}

fn add_chunks(
    path: &str,
    chunks: &[PlacedChunk],
    counts: &[u64],
    sources: &mut Sources<'_>,
    described: &mut Described,
) -> Result<()> {
    for same_file in chunks.chunk_by(|one, other| one.file == other.file) {
        let number = same_file.first().map_or(INLINE, |chunk| chunk.file);
        if let Some(file) = sources.chunk_file(number).filter(|_| number != INLINE) {
            described.lead_into(file)?;
        }
        for chunk in same_file {
            let coords = coords_of(chunk.number, counts);
            if number == INLINE {
                let at = usize::try_from(chunk.offset).unwrap_or(usize::MAX);
                let bytes = sources.inline.get(at).cloned().unwrap_or_default();
                described.inline(path, &coords, bytes)?;
            } else {
                described.part(path, &coords, chunk.offset, chunk.len, chunk.needed)?;
            }
        }
    }
    Ok(())
}

/// Returns a virtual data set of a file as one with chunks. `depth` counts those that led there.
pub fn assembled(
    sources: &mut Sources<'_>,
    at: &Rc<OpenSource>,
    set: &StoredDataSet,
    depth: usize,
) -> Result<AssembledSet> {
    let place = set.mappings.ok_or_else(|| Error::corrupt("HDF5: no virtual data set"))?;
    let stored = set.element_type(&at.file)?;
    let fill = types::fill_value(set.fill.as_deref(), &stored);
    let listed = mappings::read(&at.file, place)?;
    sources.take_mappings(listed.len())?;
    let (parts, shape, missing) = sources.within(at, set.address, |sources| {
        let (depth, missing) = (depth.saturating_add(1), MissingParts::default());
        let mut opening = Opening { sources, at, depth, missing };
        let (parts, shape) = opening.parts(listed, set)?;
        Ok((parts, shape, opening.missing))
    })?;
    let mut shape: Vec<u64> = shape;
    shape.extend(&stored.inner_shape);
    let inner = || stored.inner_shape.iter().map(|len| SelectedAxis::whole(*len));
    let parts: Vec<Part> = parts
        .into_iter()
        .map(|mut part| {
            part.source_axes.extend(inner());
            part.target_axes.extend(inner());
            part
        })
        .collect();
    let mut found =
        SourceSet { shape, stored, filters: Vec::new(), fill, places: SourcePlaces::Nowhere };
    check_types(&mut found, &parts)?;
    found.places = placing::places(&parts, &found, &mut sources.chunk_count)?;
    if !matches!(found.places, SourcePlaces::Nowhere) {
        found.filters = common_filters(&parts)?;
    }
    Ok(AssembledSet { source: found, missing })
}

/// Fails unless all parts have elements of one type, which the data set then has, too.
fn check_types(found: &mut SourceSet, parts: &[Part]) -> Result<()> {
    let mut order = None;
    for Part { source, .. } in parts {
        let one = &source.stored;
        if one.data_type != found.stored.data_type || one.inner_shape != found.stored.inner_shape {
            return Err(Error::unsupported(format!(
                "a virtual data set of {} with parts of {}",
                shown(&found.stored.data_type),
                shown(&one.data_type)
            )));
        }
        if matches!(source.places, SourcePlaces::Nowhere) || one.item_len < 2 {
            continue;
        }
        if order.is_some_and(|is_big| is_big != one.is_big) {
            return Err(Error::unsupported("a virtual data set with parts of both byte orders"));
        }
        order = Some(one.is_big);
    }
    found.stored.is_big = order.unwrap_or(found.stored.is_big);
    Ok(())
}

fn shown(data_type: &Value) -> String {
    data_type.as_str().map_or_else(|| data_type.to_string(), str::to_owned)
}

/// Returns the codecs of the chunks of all parts.
fn common_filters(parts: &[Part]) -> Result<Vec<Value>> {
    let mut found: Option<&Vec<Value>> = None;
    for Part { source, .. } in parts {
        if matches!(source.places, SourcePlaces::Nowhere) {
            continue;
        }
        if found.is_some_and(|filters| *filters != source.filters) {
            return Err(Error::unsupported("a virtual data set with parts of different filters"));
        }
        found = Some(&source.filters);
    }
    Ok(found.cloned().unwrap_or_default())
}

/// Opens the sources of mappings.
struct Opening<'o, 'p> {
    sources: &'o mut Sources<'p>,
    at: &'o Rc<OpenSource>,
    depth: usize,
    missing: MissingParts,
}

impl Opening<'_, '_> {
    /// Returns the parts that exist, and the shape of the data set. Mappings of any number of
    /// elements end where their sources do, and the shape follows from that.
    fn parts(
        &mut self,
        listed: Vec<Mapping>,
        set: &StoredDataSet,
    ) -> Result<(Vec<Part>, Vec<u64>)> {
        let mut shape = set.shape.clone();
        // With the indices of their mappings.
        let mut parts: Vec<(usize, Part)> = Vec::new();
        let mut open = Vec::new();
        // The ends of the mappings along each dimension.
        let mut ends = vec![0; shape.len()];
        for (at, mapping) in listed.into_iter().enumerate() {
            let target = mapping.target.axes(&shape)?;
            if let Some(dimension) = mapping.target.unlimited() {
                open.push((at, mapping, target, dimension));
                continue;
            }
            for (end, axis) in ends.iter_mut().zip(&target) {
                *end = axis.end()?.max(*end);
            }
            if let Some(source) = self.source(&mapping)? {
                parts.push((at, self.part(source, &mapping.source, target)?));
            }
        }
        for (_, _, _, dimension) in &open {
            if let Some(len) = shape.get_mut(*dimension) {
                *len = ends.get(*dimension).copied().unwrap_or_default();
            }
        }
        for (at, mapping, target, dimension) in open {
            let found = if mapping.source.unlimited().is_some() {
                self.until_end(&mapping, &target, dimension)?
            } else {
                self.numbered(&mapping, &target, dimension)?
            };
            for part in found {
                let end = part.target_axes.get(dimension).map_or(Ok(0), SelectedAxis::end)?;
                if let Some(len) = shape.get_mut(dimension) {
                    *len = end.max(*len);
                }
                parts.push((at, part));
            }
        }
        // The last of the mappings that cover an element gives it.
        parts.sort_by_key(|(at, _)| *at);
        let parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
        let is_outside = |part: &Part| {
            let ends = part.target_axes.iter().zip(&shape);
            ends.map(|(axis, len)| Ok(axis.end()? > *len)).collect::<Result<Vec<bool>>>()
        };
        for part in &parts {
            if is_outside(part)?.contains(&true) {
                return Err(Error::corrupt("HDF5: a mapping past the virtual data set"));
            }
        }
        Ok((parts, shape))
    }

    /// Returns the source of a mapping; `None` if it is missing, which is noted.
    fn source(&mut self, mapping: &Mapping) -> Result<Option<Rc<SourceSet>>> {
        let found = self.source_of(&unescaped(&mapping.file), &unescaped(&mapping.data_set))?;
        if found.is_none() {
            self.missing.note(mapping);
        }
        Ok(found)
    }

    fn source_of(&mut self, file: &str, data_set: &str) -> Result<Option<Rc<SourceSet>>> {
        let Some(file) = self.sources.open(self.at, file)? else { return Ok(None) };
        self.sources.find(&file, data_set, self.depth)
    }

    /// Returns the part of a mapping that goes on for as long as its source does.
    fn until_end(
        &mut self,
        mapping: &Mapping,
        target: &[SelectedAxis],
        dimension: usize,
    ) -> Result<Vec<Part>> {
        let Some(source) = self.source(mapping)? else { return Ok(Vec::new()) };
        let outer = source_shape(&source);
        let mut axes = mapping.source.axes(outer)?;
        let mut taken = 0;
        for (axis, len) in axes.iter_mut().zip(outer) {
            if axis.is_unlimited() {
                *axis = axis.within(*len)?;
                taken = axis.len()?;
            }
        }
        let mut target = target.to_vec();
        if let Some(axis) = target.get_mut(dimension) {
            *axis = axis.first(taken)?;
        }
        Ok(if taken == 0 { Vec::new() } else { vec![self.kept(source, axes, target)?] })
    }

    /// Returns the parts of a mapping whose names have a number, up to the first that is missing.
    fn numbered(
        &mut self,
        mapping: &Mapping,
        target: &[SelectedAxis],
        dimension: usize,
    ) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for number in 0.. {
            let of = |name: &str| with_number(name, number);
            let (file, data_set) = (of(&mapping.file), of(&mapping.data_set));
            if !(file.1 || data_set.1) {
                let detail = "an unlimited mapping whose source name has no `%b`";
                return Err(Error::unsupported(detail));
            }
            let Some(source) = self.source_of(&file.0, &data_set.0)? else { break };
            self.sources.take_mappings(1)?;
            let mut target = target.to_vec();
            if let Some(axis) = target.get_mut(dimension) {
                let block = axis.of_block(number);
                *axis = block.ok_or_else(|| {
                    Error::corrupt("HDF5: an unlimited mapping with an unlimited block")
                })?;
            }
            parts.push(self.part(source, &mapping.source, target)?);
        }
        Ok(parts)
    }

    /// Returns the part of a source that a mapping has.
    fn part(
        &mut self,
        source: Rc<SourceSet>,
        selection: &Selection,
        target: Vec<SelectedAxis>,
    ) -> Result<Part> {
        let axes = selection.axes(source_shape(&source))?;
        self.kept(source, axes, target)
    }

    /// Returns a part, and counts the runs that it keeps in memory.
    fn kept(
        &mut self,
        source: Rc<SourceSet>,
        axes: Vec<SelectedAxis>,
        target: Vec<SelectedAxis>,
    ) -> Result<Part> {
        let runs = axes.iter().chain(&target).map(SelectedAxis::kept_runs);
        self.sources.chunk_count.add(runs.fold(0, usize::saturating_add))?;
        Ok(Part::new(source, axes, target))
    }
}

/// Returns the shape of a source without the dimensions of its elements.
fn source_shape(source: &SourceSet) -> &[u64] {
    let outer = source.shape.len().saturating_sub(source.stored.inner_shape.len());
    source.shape.get(..outer).unwrap_or_default()
}

/// Returns a name without escapes.
fn unescaped(name: &str) -> String {
    name.replace("%%", "%")
}

/// Returns a name with a number in the place of `%b`, and whether it has one.
fn with_number(name: &str, number: u64) -> (String, bool) {
    let mut parts = name.split("%%").map(|part| part.replace("%b", &number.to_string()));
    let has_number = name.split("%%").any(|part| part.contains("%b"));
    let first = parts.next().unwrap_or_default();
    (parts.fold(first, |whole, part| format!("{whole}%{part}")), has_number)
}
