//! Attributes that a new file has changed.

use serde_json::Value;

use super::file::{ArrayPair, FileNodes, in_variable};
use super::place::RewrittenView;
use crate::codec::number::exactly;
use crate::dtype::{DType, Element, FillValue};
use crate::error::{Error, Result};
use crate::json::{Object, same};
use crate::metadata::merge::Edit;
use crate::metadata::{Dialect, FILL, NodePath, coded_fill, masked_value};
use crate::view::ElementRange;

/// Returns the elements that a variable of the view stands for.
type TargetOf<'t> = dyn Fn(&ArrayPair) -> Option<ElementRange> + 't;

/// Returns the changes of attributes, one for each node.
pub(super) fn edits_of(
    view: RewrittenView<'_>,
    (old, new): (&FileNodes, &FileNodes),
    pairs: &[ArrayPair],
    target: &TargetOf<'_>,
) -> Result<Vec<(NodePath, Edit)>> {
    let mut edits = Vec::new();
    for pair in pairs {
        let (Some(before), Some(now)) = (pair.old.attributes(), pair.new.attributes()) else {
            continue;
        };
        let changes = changes(before, now);
        if changes.is_empty() {
            continue;
        }
        let path = match target(pair) {
            Some(elements) => elements.path,
            None => match view.node_named(&pair.name) {
                // It has no elements.
                Err(_) if !old.is_netcdf() => continue,
                path => path?,
            },
        };
        let changes = if old.is_netcdf() {
            let own = own_changes(view, (&path, before), changes);
            own.and_then(|own| for_array(view, pair, &path, own))
        } else {
            of_header(view, (&path, before), changes)
        };
        let changes = changes.map_err(|error| in_variable(&pair.name, &error))?;
        if !changes.is_empty() {
            edits.push((path, Edit { attributes: changes, ..Edit::default() }));
        }
    }
    let is_array = view.hierarchy.existing(view.path)?.array().is_some();
    for (name, group) in old.groups() {
        let found = new.groups().find(|(other, _)| *other == name);
        let now = found.and_then(|(_, group)| group.attributes());
        let (Some(before), Some(now)) = (group.attributes(), now) else { continue };
        let changes = changes(before, now);
        if changes.is_empty() {
            continue;
        }
        if !old.is_netcdf() {
            check_geometry(&changes, before)?;
        }
        if is_array || !old.is_netcdf() {
            // The view of an array has no place for attributes of a file.
            note_left_out(view, &changes);
            continue;
        }
        let path = view.node_named(name)?;
        let changes = own_changes(view, (&path, before), changes)?;
        if !changes.is_empty() {
            edits.push((path, Edit { attributes: changes, ..Edit::default() }));
        }
    }
    Ok(edits)
}

/// Returns the changes of attributes of a format whose header has fields: those that the store
/// has as attributes. What says where the elements are, and what they mean, must not change.
fn of_header(
    view: RewrittenView<'_>,
    (path, before): (&NodePath, &Object),
    changes: Changes,
) -> Result<Changes> {
    check_geometry(&changes, before)?;
    let node = view.hierarchy.existing(path)?;
    let stored = node.attributes();
    let is_stored = |(name, value): &(String, Option<Value>)| {
        let now = stored.and_then(|stored| stored.get(name));
        let both = now.zip(before.get(name));
        // A program that does not copy a field has not removed it.
        value.is_some() && both.is_some_and(|(now, before)| same(now, before))
    };
    let (stored, left_out): (Changes, Changes) = changes.into_iter().partition(is_stored);
    note_left_out(view, &left_out);
    Ok(stored)
}

/// Returns the changes of attributes that a node has. A view also has others, which its format
/// makes of other metadata: a new file may lack these, but not change them.
fn own_changes(
    view: RewrittenView<'_>,
    (path, before): (&NodePath, &Object),
    changes: Changes,
) -> Result<Changes> {
    let node = view.hierarchy.existing(path)?;
    let has = |name: &str| node.attributes().is_some_and(|own| own.contains_key(name));
    let mut own = Changes::new();
    for (name, value) in changes {
        let is_made = before.contains_key(&name) && !has(&name) && name != FILL;
        if !is_made {
            own.push((name, value));
        } else if value.is_some() && name != COORDINATES {
            return Err(Error::invalid(format!(
                "zarrfs makes its attribute {name} from other metadata, so a file cannot change it"
            )));
        }
    }
    Ok(own)
}

/// The attribute with the names of coordinates (CF conventions, section 5), which libraries make.
const COORDINATES: &str = "coordinates";

/// Returns changes of the attributes of an array in the words of the store.
fn for_array(
    view: RewrittenView<'_>,
    pair: &ArrayPair,
    path: &NodePath,
    changes: Changes,
) -> Result<Changes> {
    let array = view.array_at(path)?;
    let (from, to) = match pair.new.array() {
        Some(new) => (new.model().dtype.clone(), array.model().dtype.clone()),
        None => return Ok(changes),
    };
    let mut all = Changes::new();
    for (name, value) in changes {
        if name != FILL {
            all.push((name, value));
            continue;
        }
        if value.is_none() && *view.hierarchy.dialect_of(path) == Dialect::V2 {
            // It is the fill value of Zarr 2, which programs need not know.
            continue;
        }
        let before = pair.old.attributes().and_then(|attributes| attributes.get(FILL));
        let before = before.zip(pair.old.array());
        let before = before.and_then(|(one, old)| masked_value(one, &old.model().dtype));
        let masked = value.as_ref().and_then(|value| masked_value(value, &from));
        let is_nan = |fill: &Option<FillValue>, dtype: &DType| {
            fill.as_ref().is_none_or(|fill| {
                matches!(Element::of(dtype, &fill.item(dtype)),
                    Element::Float(float) if float.is_nan())
            })
        };
        // NaN is missing without being declared so.
        let old_type =
            pair.old.array().map_or_else(|| from.clone(), |old| old.model().dtype.clone());
        if is_nan(&masked, &from) && is_nan(&before, &old_type) {
            continue;
        }
        let coded = match &masked {
            Some(fill) => {
                let item = exactly(&from, &to, &fill.item(&from))?;
                let coded = coded_fill(&FillValue::from_item(&item), &to);
                Some(coded.ok_or_else(|| Error::invalid("_FillValue does not fit its type"))?)
            }
            None => None,
        };
        if coded.as_ref() != array.model().attributes.get(FILL) {
            all.push((name, coded));
        }
    }
    Ok(all)
}

/// Fails if attributes change that say where elements are or what they mean: the store has these in
/// its own words, so the view would go on to say the old ones.
fn check_geometry(changes: &Changes, before: &Object) -> Result<()> {
    for (name, value) in changes {
        let is_of_values = ["scale_factor", "add_offset"].contains(&name.as_str());
        if !is_of_values && !["affine", "ome"].contains(&name.as_str()) {
            continue;
        }
        let numbers = |value: Option<&Value>| value.map(numbers_in).unwrap_or_default();
        let (old, new) = (numbers(before.get(name)), numbers(value.as_ref()));
        let is_near = |(old, new): (&f64, &f64)| (old - new).abs() <= 1e-6 * old.abs().max(1.0);
        let units_before = before.get(name).map(units_in).unwrap_or_default();
        let units_now = value.as_ref().map(units_in).unwrap_or_default();
        // Most programs leave out units.
        let has_other_units = !units_before.is_empty()
            && !units_now.is_empty()
            && units_before.iter().zip(&units_now).any(|(before, now)| before != now);
        let has_others = old.len() != new.len() || !old.iter().zip(&new).all(is_near);
        if has_others || has_other_units {
            return Err(Error::invalid(if is_of_values {
                format!("the new file scales its values in another way ({name})")
            } else {
                "the new file has another place or size of elements in space: change the metadata \
                 of the node instead"
                    .to_owned()
            }));
        }
    }
    Ok(())
}

/// Returns all numbers in a value, in their order.
fn numbers_in(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => number.as_f64().into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(numbers_in).collect(),
        Value::Object(members) => members.values().flat_map(numbers_in).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
    }
}

/// Returns all units in a value, in their order.
fn units_in(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(items) => items.iter().flat_map(units_in).collect(),
        Value::Object(members) => {
            let own = members.get("unit").and_then(Value::as_str);
            own.into_iter().chain(members.values().flat_map(units_in)).collect()
        }
        _ => Vec::new(),
    }
}

/// Logs the attributes of a new file that the store has no place for.
fn note_left_out(view: RewrittenView<'_>, changes: &Changes) {
    if !changes.is_empty() {
        let names: Vec<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
        log::info!("{}: not stored: {}", view.path, names.join(", "));
    }
}

/// Attributes to set, or to remove.
type Changes = Vec<(String, Option<Value>)>;

/// Returns what differs between the attributes before and now.
fn changes(before: &Object, now: &Object) -> Changes {
    let set = now
        .iter()
        .filter(|(name, value)| before.get(*name).is_none_or(|before| !same(before, value)));
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    let gone = gone.map(|name| (name.clone(), None));
    set.map(|(name, value)| (name.clone(), Some(value.clone()))).chain(gone).collect()
}
