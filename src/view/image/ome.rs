//! The OME-Zarr metadata of an array: `ome.multiscales` and `ome.omero` of the group that lists it
//! in `datasets` (<https://ngff.openmicroscopy.org/0.5/>). The module `metadata` converts the
//! attributes of version 0.4 to this form; [`systems`] has the places of version 0.6.

use serde_json::Value;

use super::axis::{Axis, AxisKind, Channel, Scale};
use super::directions::Directions;
use super::kinds::of_name;
use super::systems::{self, Placed};
use super::unit::Unit;
use crate::error::{Error, Result};
use crate::json::Object;
use crate::metadata::{NodePath, image_axes};
use crate::view::source::ViewSource;

/// The most levels of an image: each has half as many elements along an axis as the previous one.
const MAX_LEVELS: usize = 64;

/// The axes of versions before 0.3, which do not list them.
const AXES: [&str; 5] = ["t", "c", "z", "y", "x"];

/// The description of an array by the image that it belongs to, besides its axes.
#[derive(Debug, Default)]
pub(super) struct ImageDescription {
    pub channels: Vec<Channel>,
    /// The directions of axes that do not run along those of the coordinate system.
    pub directions: Option<Directions>,
    /// The parts of the description that no view says, in words.
    pub left_out: Vec<String>,
}

/// Describes the axes of an array in a multiscale image; `None` if it is not in one.
pub(super) fn of(source: &ViewSource<'_>, axes: &mut [Axis]) -> Option<ImageDescription> {
    source.above().find_map(|group| {
        let relative = source.path().relative_to(group.path())?;
        let image = multiscale(&group)?;
        let dataset = datasets(image)
            .find(|dataset| dataset.get("path").and_then(Value::as_str) == Some(relative))?;
        let channels = channels(&group);
        if image.get("coordinateSystems").is_none() {
            describe(image, dataset, axes)?;
            return Some(ImageDescription { channels, ..ImageDescription::default() });
        }
        let placed = systems::place(&group, image, dataset, axes.len())?;
        let directions = describe_placed(&placed, image_axes(image)?, axes);
        Some(ImageDescription { channels, directions, left_out: placed.left_out })
    })
}

/// Returns the arrays of a group that is a multiscale image, the largest first.
pub fn levels<'s>(group: &ViewSource<'s>) -> Result<Vec<ViewSource<'s>>> {
    let image = multiscale(group).ok_or_else(|| {
        Error::unsupported("a group, but not an OME-Zarr image (it has no multiscales)")
    })?;
    let level = |dataset: &Value| {
        let path = dataset.get("path").and_then(Value::as_str);
        let path =
            path.ok_or_else(|| Error::unsupported("a dataset of multiscales has no path"))?;
        let path: NodePath = group.path().join(path)?;
        group.other(&path)
    };
    datasets(image).take(MAX_LEVELS).map(level).collect()
}

/// Returns the number of the axis of channels in an image.
pub fn channel_axis(image: &Value) -> Option<usize> {
    axes_of(image).iter().position(|axis| kind_of(axis) == Some(AxisKind::Channel))
}

/// Returns the axes of an image, which versions before 0.3 do not list.
fn axes_of(image: &Value) -> Vec<Value> {
    image_axes(image).map_or_else(|| AXES.into_iter().map(Value::from).collect(), <[Value]>::to_vec)
}

fn name_of(axis: &Value) -> Option<&str> {
    axis.as_str().or_else(|| axis.get("name").and_then(Value::as_str))
}

fn kind_of(axis: &Value) -> Option<AxisKind> {
    match axis.get("type").and_then(Value::as_str) {
        Some("time") => Some(AxisKind::Time),
        Some("channel") => Some(AxisKind::Channel),
        _ => name_of(axis).and_then(of_name),
    }
}

fn unit_of(axis: &Value) -> Option<Unit> {
    axis.get("unit").and_then(Value::as_str).map(Unit::parse)
}

/// Whether the group with these attributes is an image with the level `name`.
pub fn has_level(attributes: &Object, name: &str) -> bool {
    let listed =
        attributes.get("ome").map_or(attributes.get("multiscales"), |ome| ome.get("multiscales"));
    let image = listed.and_then(|images| images.get(0));
    let mut datasets = image.into_iter().flat_map(datasets);
    datasets.any(|dataset| dataset.get("path").and_then(Value::as_str) == Some(name))
}

/// Returns the title of a group that is an image.
pub fn title(group: &ViewSource<'_>) -> Option<String> {
    multiscale(group)?.get("name")?.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

pub(super) fn multiscale<'g>(group: &'g ViewSource<'_>) -> Option<&'g Value> {
    member(group, "multiscales")?.as_array()?.first().filter(|image| image.is_object())
}

/// Returns a member of `ome`. Versions before 0.4 are not converted, so their members are looked up
/// in the attributes.
pub(super) fn member<'g>(group: &'g ViewSource<'_>, name: &str) -> Option<&'g Value> {
    let attributes = group.attributes();
    attributes.get("ome").map_or_else(|| attributes.get(name), |ome| ome.get(name))
}

fn datasets(image: &Value) -> impl Iterator<Item = &Value> {
    image.get("datasets").and_then(Value::as_array).into_iter().flatten()
}

fn describe(image: &Value, dataset: &Value, axes: &mut [Axis]) -> Option<()> {
    let listed = axes_of(image);
    if listed.len() != axes.len() {
        return None;
    }
    let transforms = [dataset, image].map(|of| of.get("coordinateTransformations"));
    let mut place: Option<Vec<(f64, f64)>> = None;
    for transform in transforms.into_iter().flatten().filter_map(Value::as_array).flatten() {
        apply(transform, axes.len(), &mut place);
    }
    for (index, (axis, listed)) in axes.iter_mut().zip(&listed).enumerate() {
        (axis.name, axis.kind) = (name_of(listed).map(str::to_owned), kind_of(listed));
        let unit = unit_of(listed);
        let place = place.as_ref().and_then(|place| place.get(index));
        let place = place.filter(|(step, start)| step.is_normal() && start.is_finite());
        axis.scale = place.map(|(step, start)| Scale { step: *step, start: *start, unit });
    }
    Some(())
}

/// Describes axes by the place of the array in a coordinate system, and returns the directions of
/// those that run along none of its axes. These keep their names in the image.
fn describe_placed(placed: &Placed, own: &[Value], axes: &mut [Axis]) -> Option<Directions> {
    let Placed { axes: listed, map, .. } = placed;
    let (kinds, own_kinds) = (kinds_of(listed), kinds_of(own));
    let mut is_turned = false;
    for (index, axis) in axes.iter_mut().enumerate() {
        let output = map.axis_of(index).and_then(|output| Some((output, listed.get(output)?)));
        let Some((output, listed)) = output else {
            axis.name = own.get(index).and_then(name_of).map(str::to_owned);
            axis.kind = own_kinds.get(index).copied().flatten();
            // An axis that leads nowhere has no place, either.
            is_turned |= (0..map.outputs()).any(|output| map.factor(output, index) != 0.0);
            continue;
        };
        axis.name = name_of(listed).map(str::to_owned);
        axis.kind = kinds.get(output).copied().flatten();
        let (step, start) = (map.factor(output, index), map.start(output));
        let unit = unit_of(listed);
        axis.scale = step.is_normal().then_some(Scale { step, start, unit });
    }
    if !is_turned {
        return None;
    }
    let space = |(axis, kind): (&Value, &Option<AxisKind>)| {
        kind.filter(|kind| kind.is_space()).zip(Some(unit_of(axis)))
    };
    let space: Vec<_> = listed.iter().zip(&kinds).map(space).collect();
    let directions = Directions::new(map, &space);
    for (index, axis) in axes.iter_mut().enumerate().filter(|(at, _)| map.axis_of(*at).is_none()) {
        axis.scale = directions.scale(index, axis.kind);
    }
    Some(directions)
}

/// Returns the kinds of the axes of a coordinate system. Those of space whose names say nothing
/// are x, y and z from the last on, as far as these are not there yet.
fn kinds_of(axes: &[Value]) -> Vec<Option<AxisKind>> {
    let mut kinds: Vec<Option<AxisKind>> = axes.iter().map(kind_of).collect();
    let mut free = vec![AxisKind::Z, AxisKind::Y, AxisKind::X];
    free.retain(|kind| !kinds.contains(&Some(*kind)));
    for (axis, kind) in axes.iter().zip(&mut kinds).rev() {
        let is_space = axis.get("type").and_then(Value::as_str) == Some("space");
        if kind.is_none() && is_space {
            *kind = free.pop();
        }
    }
    kinds
}

/// Applies a scale or a translation after the previous ones. Ignores one of another rank, and one
/// whose values are in an array.
fn apply(transform: &Value, rank: usize, place: &mut Option<Vec<(f64, f64)>>) {
    let of = |name: &str| transform.get(name).and_then(floats).filter(|list| list.len() == rank);
    let place = place.get_or_insert_with(|| vec![(1.0, 0.0); rank]);
    if let Some(scale) = of("scale") {
        for ((step, start), by) in place.iter_mut().zip(scale) {
            *step *= by;
            *start *= by;
        }
    } else if let Some(translation) = of("translation") {
        for ((_, start), by) in place.iter_mut().zip(translation) {
            *start += by;
        }
    }
}

fn channels(group: &ViewSource<'_>) -> Vec<Channel> {
    let listed =
        member(group, "omero").and_then(|omero| omero.get("channels")).and_then(Value::as_array);
    let channel = |channel: &Value| {
        let text = |name: &str| channel.get(name).and_then(Value::as_str);
        let color = text("color").map(|color| color.trim_start_matches('#'));
        let color = color.filter(|color| color.len() == 6);
        Channel {
            label: text("label").map(str::to_owned),
            color: color.and_then(|color| u32::from_str_radix(color, 16).ok()),
        }
    };
    listed.into_iter().flatten().map(channel).collect()
}

/// Returns the numbers of a list.
fn floats(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}
