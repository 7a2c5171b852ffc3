//! The OME-Zarr metadata of an array: `ome.multiscales` and `ome.omero` of the group that lists it
//! in `datasets` (<https://ngff.openmicroscopy.org/0.5/>). The module `metadata` converts the
//! attributes of version 0.4 to this form.

use serde_json::Value;

use super::axis::{Axis, AxisKind, Channel, Scale};
use super::kinds::of_name;
use super::unit::Unit;
use crate::error::{Error, Result};
use crate::json::Object;
use crate::metadata::NodePath;
use crate::view::source::ViewSource;

/// The most levels of an image: each has half as many elements along an axis as the previous one.
const MAX_LEVELS: usize = 64;

/// The axes of versions before 0.3, which do not list them.
const AXES: [&str; 5] = ["t", "c", "z", "y", "x"];

/// Describes the axes of an array in a multiscale image, and returns its channels; `None` if it is
/// not in one.
pub(super) fn of(source: &ViewSource<'_>, axes: &mut [Axis]) -> Option<Vec<Channel>> {
    source.above().find_map(|group| {
        let relative = source.path().relative_to(group.path())?;
        let image = multiscale(&group)?;
        let dataset = datasets(image)
            .find(|dataset| dataset.get("path").and_then(Value::as_str) == Some(relative))?;
        describe(image, dataset, axes)?;
        Some(channels(&group))
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
    let listed: Vec<Value> = match image.get("axes").and_then(Value::as_array) {
        Some(listed) => listed.clone(),
        None => AXES.into_iter().map(Value::from).collect(),
    };
    listed.iter().position(|axis| {
        let name = axis.as_str().or_else(|| axis.get("name").and_then(Value::as_str));
        match axis.get("type").and_then(Value::as_str) {
            Some(kind) => kind == "channel",
            None => name.and_then(of_name) == Some(AxisKind::Channel),
        }
    })
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

fn multiscale<'g>(group: &'g ViewSource<'_>) -> Option<&'g Value> {
    member(group, "multiscales")?.as_array()?.first().filter(|image| image.is_object())
}

/// Returns a member of `ome`. Versions before 0.4 are not converted, so their members are looked up
/// in the attributes.
fn member<'g>(group: &'g ViewSource<'_>, name: &str) -> Option<&'g Value> {
    let attributes = group.attributes();
    attributes.get("ome").map_or_else(|| attributes.get(name), |ome| ome.get(name))
}

fn datasets(image: &Value) -> impl Iterator<Item = &Value> {
    image.get("datasets").and_then(Value::as_array).into_iter().flatten()
}

fn describe(image: &Value, dataset: &Value, axes: &mut [Axis]) -> Option<()> {
    let listed: Vec<Value> = match image.get("axes").and_then(Value::as_array) {
        Some(listed) => listed.clone(),
        None => AXES.into_iter().map(Value::from).collect(),
    };
    if listed.len() != axes.len() {
        return None;
    }
    let transforms = [dataset, image].map(|of| of.get("coordinateTransformations"));
    let mut place: Option<Vec<(f64, f64)>> = None;
    for transform in transforms.into_iter().flatten().filter_map(Value::as_array).flatten() {
        apply(transform, axes.len(), &mut place);
    }
    for (index, (axis, listed)) in axes.iter_mut().zip(&listed).enumerate() {
        let name = listed.as_str().or_else(|| listed.get("name").and_then(Value::as_str));
        axis.name = name.map(str::to_owned);
        axis.kind = match listed.get("type").and_then(Value::as_str) {
            Some("time") => Some(AxisKind::Time),
            Some("channel") => Some(AxisKind::Channel),
            _ => name.and_then(of_name),
        };
        let unit = listed.get("unit").and_then(Value::as_str).map(Unit::parse);
        let place = place.as_ref().and_then(|place| place.get(index));
        let place = place.filter(|(step, start)| step.is_normal() && start.is_finite());
        axis.scale = place.map(|(step, start)| Scale { step: *step, start: *start, unit });
    }
    Some(())
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
