//! Finds the coordinates of an array: without them its file would lack positions of elements.

use serde_json::Value;

use crate::error::Result;
use crate::view::source::ViewSource;

/// The most arrays that the attributes of one array may name.
const MAX_NAMES: usize = 256;

/// Whether an array has one dimension, which has the name of the array.
pub(crate) fn is_coordinate(array: &ViewSource<'_>) -> bool {
    array.array().is_ok_and(|own| {
        let model = own.model();
        model.shape.len() == 1
            && matches!(model.dimension_names.as_slice(), [Some(name)] if name == array.name())
    })
}

/// Returns an array with related arrays of its group, and the group. Related are the coordinates of
/// its dimensions, the arrays in the attributes `coordinates` and `grid_mapping` if they have no
/// other dimensions, and the `bounds` of these, which have one more dimension.
pub(crate) fn with_coordinates<'s>(
    source: &ViewSource<'s>,
) -> Result<(Vec<ViewSource<'s>>, Option<ViewSource<'s>>)> {
    let mut arrays = vec![source.clone()];
    let Some(group) = source.path().parent() else { return Ok((arrays, None)) };
    let model = source.array()?.model();
    let named = |name: &str| {
        let path = group.child(name).ok()?;
        // A missing or unsupported node is not a coordinate.
        source.other(&path).ok().filter(|other| other.array().is_ok())
    };
    let coordinates = model.dimension_names.iter().flatten().filter_map(|name| named(name));
    let mut found: Vec<ViewSource<'s>> = coordinates.filter(is_coordinate).collect();
    for name in names(source, &["coordinates", "grid_mapping"]) {
        found.extend(named(name));
    }
    found.retain(|other| has_dimensions_of(other, source, 0));
    for other in found.clone() {
        let bounds = names(&other, &["bounds", "climatology"]).filter_map(&named);
        found.extend(bounds.filter(|bounds| has_dimensions_of(bounds, source, 1)));
    }
    arrays.extend(found);
    arrays.sort_by(|one, other| one.path().cmp(other.path()));
    arrays.dedup_by(|one, other| one.path() == other.path());
    Ok((arrays, source.other(&group).ok()))
}

/// Returns the names in the attributes of an array; in `grid_mapping` some may end with a colon.
fn names<'a>(array: &'a ViewSource<'_>, attributes: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let texts = attributes.iter().filter_map(|name| array.attributes().get(*name));
    texts.filter_map(Value::as_str).flat_map(|text| text.split([' ', ':'])).take(MAX_NAMES)
}

/// Whether `other` has all dimensions of an array except the last `more`.
fn has_dimensions_of(array: &ViewSource<'_>, other: &ViewSource<'_>, more: usize) -> bool {
    let dimensions = |source: &ViewSource<'_>| -> Vec<(Option<String>, u64)> {
        let Ok(array) = source.array() else { return Vec::new() };
        let mut names = array.model().dimension_names.iter().cloned();
        array.model().shape.iter().map(|len| (names.next().flatten(), *len)).collect()
    };
    let (own, others) = (dimensions(array), dimensions(other));
    let count = own.len().saturating_sub(more);
    own.iter().take(count).all(|dimension| dimension.0.is_some() && others.contains(dimension))
}
