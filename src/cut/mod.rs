//! A part of a hierarchy as a hierarchy of its own: the arrays with the shapes of a region.
//!
//! Of an array, the part has that array, the arrays of its group that share dimensions with it
//! (coordinates, their bounds), and the groups above. Of a group it has all nodes below it. Chunks
//! of the part are made from those of the source when they are read (`store`), so every command
//! and view shows a part as it shows any hierarchy. The part is that of the moment in which it was
//! opened: an array that grows later does not grow in it.

mod array;
mod store;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use array::{ArrayPart, TurnedAxis, part_document};
use store::PartStore;

use crate::array::Array;
use crate::cache::ChunkCache;
use crate::error::{Result, WithSubject};
use crate::hierarchy::{Bounds, Content, Hierarchy, HierarchyOptions, Node};
use crate::json::Object;
use crate::metadata::shown;
use crate::metadata::{Dialect, NodePath, model};
use crate::selection::Selector;
use crate::store::Store;
use crate::view::region::{Region, Selected, TURN, Turns};
use crate::view::{GetChunk, Image, ViewSource, attributes_of_box, levels, map};

/// Returns the part of the node at `path` that a region has, with the same paths. `cache_size` is
/// the memory for decoded chunks of the source.
pub fn open(
    hierarchy: &Hierarchy,
    path: &NodePath,
    region: &Region,
    cache_size: u64,
    options: HierarchyOptions,
) -> Result<Hierarchy> {
    let store = Store::reading(Arc::new(store(hierarchy, path, region, cache_size)?));
    Hierarchy::open(store, Some(Dialect::V3), options)
}

fn store(
    hierarchy: &Hierarchy,
    path: &NodePath,
    region: &Region,
    cache_size: u64,
) -> Result<PartStore> {
    let cache = ChunkCache::new(cache_size);
    let get: &GetChunk<'_> = &|elements, coords, _| {
        Ok(cache.get(&elements.array, coords)?.map(|chunk| chunk.bytes.into()))
    };
    let mut parts = Parts { hierarchy, get, documents: BTreeMap::new(), arrays: HashMap::new() };
    let node = hierarchy.existing(path)?;
    let selector = Selector::new(region);
    if let Some(array) = node.array() {
        parts.add_array(&node, array, &selector)?;
    } else {
        parts.add_group(path, &selector)?;
        selector.check_used().at(path)?;
    }
    let Parts { documents, arrays, .. } = parts;
    Ok(PartStore::new(documents, arrays, cache))
}

/// How attributes begin that say where all elements of a group are
/// (<https://wiki.esipfed.org/Attribute_Convention_for_Data_Discovery_1-3>).
const EXTENTS: [&str; 7] = [
    "geospatial_bounds",
    "geospatial_lat_m",
    "geospatial_lon_m",
    "geospatial_vertical_m",
    "time_coverage_start",
    "time_coverage_end",
    "time_coverage_duration",
];

/// The nodes of a part, while they are found.
struct Parts<'h> {
    hierarchy: &'h Hierarchy,
    get: &'h GetChunk<'h>,
    documents: BTreeMap<NodePath, String>,
    arrays: HashMap<NodePath, ArrayPart>,
}

impl Parts<'_> {
    /// Adds an array, the arrays beside it that share dimensions, and the groups above.
    fn add_array(
        &mut self,
        node: &Node,
        array: &Arc<Array>,
        selector: &Selector<'_>,
    ) -> Result<()> {
        let path = node.path();
        let source = ViewSource::new(self.hierarchy, path, self.get)?;
        let selected = selector.of_array(&source).at(path)?;
        self.add_groups_above(path, Some(&selected))?;
        if let Some(group) = path.parent() {
            let group = ViewSource::new(self.hierarchy, &group, self.get)?;
            let children = group.children()?;
            for (name, error) in &children.left_out {
                log::warn!("{name}: left out: {}", error.detail());
            }
            for other in children.nodes.iter().filter(|other| other.path() != path) {
                if let Ok(found) = other.array()
                    && let Some(selected) = shared(found.model(), array.model(), &selected)
                {
                    self.add(other.path(), found, selected)?;
                }
            }
        }
        self.add(path, array, selected)
    }

    fn add_groups_above(&mut self, path: &NodePath, selected: Option<&[Selected]>) -> Result<()> {
        for above in path.ancestors() {
            let group = self.hierarchy.existing(&above)?;
            let mut attributes = attributes(&group);
            if let Some(selected) = selected {
                let relative = path.relative_to(&above).unwrap_or_default();
                attributes = attributes_of_box(attributes, relative, selected);
            }
            self.add_document(&above, attributes);
        }
        Ok(())
    }

    /// Adds a group with all nodes below it.
    fn add_group(&mut self, path: &NodePath, selector: &Selector<'_>) -> Result<()> {
        self.add_groups_above(path, None)?;
        let hierarchy = self.hierarchy;
        // The smaller levels of images, whose elements are others than those of the largest one.
        let mut left_out: HashSet<NodePath> = HashSet::new();
        let own = self.image_part(&*hierarchy.existing(path)?, selector, &mut left_out)?;
        self.add_document(path, own);
        let below = hierarchy.walk_below(path, Bounds::COPIES);
        for node in below {
            let node = node?;
            match node.content() {
                Content::Group(_) => {
                    let attributes = self.image_part(&node, selector, &mut left_out)?;
                    self.add_document(node.path(), attributes);
                }
                Content::Array(_) if left_out.contains(node.path()) => {}
                Content::Array(array) => {
                    let source = ViewSource::new(hierarchy, node.path(), self.get)?;
                    let selected = selector.in_group(&source).at(node.path())?;
                    self.add(node.path(), array, selected)?;
                }
                Content::NotUnderstood(_, error) => {
                    log::warn!("{}: left out: {}", node.path(), error.detail());
                }
            }
        }
        Ok(())
    }

    /// Returns the attributes of a group; those of an image that the region cuts name only its
    /// largest level.
    fn image_part(
        &self,
        group: &Node,
        selector: &Selector<'_>,
        left_out: &mut HashSet<NodePath>,
    ) -> Result<Object> {
        let source = ViewSource::new(self.hierarchy, group.path(), self.get)?;
        let levels = levels(&source).unwrap_or_default();
        let Some((first, smaller)) = levels.split_first() else { return Ok(attributes(group)) };
        let selected = selector.in_group(first).at(first.path())?;
        let shape = &first.array()?.model().shape;
        if selected.iter().zip(shape).all(|(one, len)| *one == Selected::all(*len)) {
            return Ok(attributes(group));
        }
        left_out.extend(smaller.iter().map(|level| level.path().clone()));
        let relative = first.path().relative_to(group.path()).unwrap_or_default();
        Ok(attributes_of_box(attributes(group), relative, &selected))
    }

    /// Adds a group. Its arrays have their own places on a map.
    fn add_document(&mut self, path: &NodePath, mut attributes: Object) {
        let is_of_all = |name: &str| {
            map::OF_ALL_ELEMENTS.contains(&name)
                || EXTENTS.iter().any(|start| name.starts_with(start))
        };
        attributes.retain(|name, _| !is_of_all(name));
        let multiscales = attributes.get("multiscales");
        if multiscales.is_some_and(|described| described.get("layout").is_some()) {
            attributes.shift_remove("multiscales");
        }
        let group = model::Group { attributes, consolidated: false };
        self.documents.insert(path.clone(), shown::group(&group, None));
    }

    fn add(&mut self, path: &NodePath, array: &Arc<Array>, selected: Vec<Selected>) -> Result<()> {
        if let Some(error) = array.not_understood() {
            log::warn!("{path}: left out: {}", error.detail());
            return Ok(());
        }
        self.add_coordinates_above(path, array, &selected)?;
        let turned = self.turned_axis(path, array, &selected);
        let transform = self.transform(path, &selected)?;
        let (document, shape, chunk_shape) =
            part_document(array, &selected, transform, turned.is_some());
        self.documents.insert(path.clone(), document);
        let part =
            ArrayPart::new(Arc::clone(array), selected, turned, (shape, chunk_shape)).at(path)?;
        self.arrays.insert(path.clone(), part);
        Ok(())
    }

    /// Adds the coordinates of an array that are in groups above its own.
    fn add_coordinates_above(
        &mut self,
        path: &NodePath,
        array: &Array,
        selected: &[Selected],
    ) -> Result<()> {
        let source = ViewSource::new(self.hierarchy, path, self.get)?;
        let model = array.model();
        for (name, (len, one)) in model.dimension_names.iter().zip(model.shape.iter().zip(selected))
        {
            let Some(name) = name else { continue };
            if let Some(coordinates) = source.coordinates(name, *len)?
                && coordinates.path().parent() != path.parent()
                && !self.arrays.contains_key(coordinates.path())
            {
                self.add(coordinates.path(), coordinates.array()?, vec![*one])?;
            }
        }
        Ok(())
    }

    /// Returns the place of the part of an array on a map by GeoZarr.
    fn transform(&self, path: &NodePath, selected: &[Selected]) -> Result<Option<[f64; 6]>> {
        let source = ViewSource::new(self.hierarchy, path, self.get)?;
        let Ok(image) = Image::of(&source) else { return Ok(None) };
        let start = |axis: usize| {
            let one = selected.get(axis).filter(|one| one.is_kept)?;
            Some((one.start, TURN * f64::from(one.turns.first)))
        };
        Ok(map::transform_of_part(&source, &image, &start))
    }

    /// Returns the dimension along which an array has longitudes that are turned: it is the
    /// coordinate of that dimension, or the bounds of it.
    fn turned_axis(
        &self,
        path: &NodePath,
        array: &Array,
        selected: &[Selected],
    ) -> Option<TurnedAxis> {
        let is_turned =
            |one: &Selected| one.turns != Turns { count: one.turns.count, first: 0, rest: 0 };
        let axis = selected.iter().position(is_turned)?;
        let name = array.model().dimension_names.get(axis).cloned().flatten()?;
        let is_bounds = || {
            let coordinate = path.parent()?.child(&name).ok()?;
            let coordinate = self.hierarchy.existing(&coordinate).ok()?;
            let bounds = coordinate.array()?.model().attributes.get("bounds")?.as_str()?;
            Some(path.name() == Some(bounds))
        };
        let is_own = path.name() == Some(name.as_str()) && selected.len() == 1;
        let turns = selected.get(axis).map(|one| one.turns)?;
        (is_own || is_bounds() == Some(true)).then_some(TurnedAxis { axis, turns })
    }
}

fn attributes(node: &Node) -> Object {
    match node.content() {
        Content::Group(group) => group.attributes.clone(),
        Content::Array(_) | Content::NotUnderstood(..) => Object::new(),
    }
}

/// Returns the selected elements of an array beside the one of the region; `None` if it has no
/// dimension of that, but some dimension.
fn shared(
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
