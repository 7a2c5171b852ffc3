//! A program changes metadata by rewriting the shown metadata file. This module applies its changes
//! to the stored one.
//!
//! The written metadata file is compared with the one last shown (`difference`). The changes are
//! applied member by member and attribute by attribute; everything else keeps its stored spelling.
//! A change that would alter the meaning of stored chunks fails.

mod difference;

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::conventions::{self, DIMENSIONS, FILL};
use super::dialect::Dialect;
use super::members::lengths;
use super::model::NodeKind;
use super::ome::{self, OME};
use super::types::Endian;
use super::{draft, n5, skim, v2};
use difference::as_invalid;
pub use difference::{describe_one_node, diff, have_like_chunks};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, MemberEdit, NewValue, Text, describe};

/// The changes of a metadata file. Nothing by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// Attributes to set, or to remove if there is no value.
    pub attributes: Vec<(String, Option<Value>)>,
    /// The new shape of an array, of the same rank.
    pub shape: Option<Vec<u64>>,
    /// The shape that the writer saw; empty if any stored shape becomes the new one.
    pub shape_before: Vec<u64>,
    /// The new names of an array's dimensions; an empty list removes them.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// Whether a group gets consolidated metadata, which zarrfs generates from the stored metadata.
    pub consolidated: Option<bool>,
    /// Other members to set or to remove.
    pub members: Vec<(String, Option<Value>)>,
    /// Whether the array has no chunks yet, so that its fill value may change.
    pub has_no_chunks: bool,
}

impl Edit {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the edit of a single attribute.
    pub fn attribute(name: &str, value: Option<Value>) -> Self {
        Self { attributes: vec![(name.to_owned(), value)], ..Self::default() }
    }
}

impl Dialect {
    /// Applies `edit` to a stored metadata file, in the spelling of the dialect. All other bytes
    /// stay. Fails if the result could not be read.
    pub fn edit(&self, kind: NodeKind, stored: &str, edit: &Edit) -> Result<String> {
        let mut text = Text::parse(stored.as_bytes())?;
        let document = json::parse_object(&skim::without_copies(stored.as_bytes()))?;
        self.apply(&mut text, &document, kind, edit)?;
        let edited = text.into_string();
        if self.lower(Some(kind), stored.as_bytes()).node.is_ok() {
            self.lower(Some(kind), edited.as_bytes()).node.map_err(|error| as_invalid(&error))?;
        }
        Ok(edited)
    }

    /// Edits `text`, the string of `document`.
    fn apply(&self, text: &mut Text, document: &Object, kind: NodeKind, edit: &Edit) -> Result<()> {
        if kind == NodeKind::Array {
            self.check_names(document, edit)?;
        }
        self.put_attributes(text, document, kind, edit)?;
        if let Some(shape) = &edit.shape {
            match self {
                Self::N5 => {
                    let reversed = |shape: &[u64]| shape.iter().rev().copied().collect::<Vec<_>>();
                    let (before, new) = (reversed(&edit.shape_before), reversed(shape));
                    put_shape(text, document, "dimensions", &before, &new)?;
                }
                _ => put_shape(text, document, "shape", &edit.shape_before, shape)?,
            }
        }
        if let Some(names) = &edit.dimension_names {
            let attribute: Option<&[&str]> = match self {
                Self::Draft(_) if document.contains_key("dimension_names") => None,
                Self::Draft(_) | Self::V2 => Some(&["attributes", DIMENSIONS]),
                Self::N5 => Some(&[DIMENSIONS]),
                Self::V3 | Self::D2023_02 => None,
            };
            if rank_of(document) == Some(0) {
                put(text, attribute.unwrap_or(&["dimension_names"]), Some(&json!([])))?;
            } else if let Some(path) = attribute {
                put(text, path, all_named(names)?.as_ref())?;
            } else {
                let value = (!names.is_empty()).then(|| json!(names));
                put(text, &["dimension_names"], value.as_ref())?;
            }
        }
        if let Some((name, _)) = edit.members.first().filter(|_| *self == Self::N5) {
            return Err(Error::invalid(format!("N5 cannot store the member {name:?}")));
        }
        text.edit(&[], &changes_of(&edit.members))?;
        if edit.consolidated == Some(false) {
            text.remove(&["consolidated_metadata"])?;
        }
        Ok(())
    }

    /// Fails if the names of dimensions and the attribute `_ARRAY_DIMENSIONS` would need the same
    /// place with different contents. Nothing may be lost of either.
    fn check_names(&self, document: &Object, edit: &Edit) -> Result<()> {
        let (attributes, lengths) = match self {
            Self::V3 | Self::D2023_02 => return Ok(()),
            Self::Draft(_) if document.contains_key("dimension_names") => return Ok(()),
            Self::N5 => (Some(document), "dimensions"),
            Self::Draft(_) | Self::V2 => {
                (document.get("attributes").and_then(Value::as_object), "shape")
            }
        };
        let rank = document.get(lengths).and_then(Value::as_array).map_or(0, Vec::len);
        let stored = attributes.and_then(|attributes| attributes.get(DIMENSIONS));
        let names_in = |value: &Value| conventions::names_of(value, rank);
        let written = edit.attributes.iter().rfind(|(name, _)| name == DIMENSIONS);
        let names = match &edit.dimension_names {
            Some(names) => Some(names.clone()).filter(|names| !names.is_empty()),
            None => stored.and_then(names_in),
        };
        let attribute = match written {
            Some((_, value)) => value.as_ref(),
            None => stored.filter(|value| names_in(value).is_none()),
        };
        match (names, attribute) {
            (Some(names), Some(value)) if names_in(value).as_ref() != Some(&names) => {
                Err(Error::invalid(format!(
                    "the attribute {DIMENSIONS} cannot be {}: this dialect keeps the names of dimensions {} in it; \
                     change dimension_names instead",
                    describe(value),
                    json!(names)
                )))
            }
            _ => Ok(()),
        }
    }

    /// Changes the attributes in one pass: a metadata file of some megabytes may have thousands.
    fn put_attributes(
        &self,
        text: &mut Text,
        document: &Object,
        kind: NodeKind,
        edit: &Edit,
    ) -> Result<()> {
        let is_array = kind == NodeKind::Array;
        let attributes = &edit.attributes;
        match self {
            Self::V2 => {
                let is_named = is_array && is_named(document, edit);
                if is_named && !self::is_named(document, &Edit::default()) {
                    keep_unmasked(text, document, edit)?;
                }
                let meaning = Conventions { is_named, may_refill: edit.has_no_chunks };
                let mut changed = Vec::with_capacity(attributes.len());
                for (name, value) in attributes {
                    put_v2_attribute(text, &mut changed, document, meaning, name, value.as_ref())?;
                }
                text.edit(&["attributes"], &changes_of(&changed))
            }
            Self::N5 => {
                attributes.iter().try_for_each(|(name, _)| check_n5_attribute(name))?;
                text.edit(&[], &changes_of(attributes))
            }
            Self::V3 | Self::D2023_02 | Self::Draft(_) => {
                if is_array && matches!(self, Self::Draft(_)) {
                    let check = |(name, value): &ChangedMember| {
                        check_draft_attribute(document, name, value.as_ref())
                    };
                    attributes.iter().try_for_each(check)?;
                }
                text.edit(&["attributes"], &changes_of(attributes))
            }
        }
    }
}

/// A member to set, or to remove if there is no value.
type ChangedMember = (String, Option<Value>);

/// Returns changes of the text of a metadata file.
fn changes_of(members: &[ChangedMember]) -> Vec<MemberEdit<'_>> {
    let members = members.iter();
    members.map(|(name, value)| (name.as_str(), value.as_ref().map(NewValue::Value))).collect()
}

fn rank_of(document: &Object) -> Option<usize> {
    document.get("shape").and_then(Value::as_array).map(Vec::len)
}

/// Whether the dimensions of an array have names after the edit.
fn is_named(document: &Object, edit: &Edit) -> bool {
    let rank = rank_of(document);
    let stored = || {
        let written = edit.attributes.iter().rfind(|(name, _)| name == DIMENSIONS);
        let names = match written {
            Some((_, value)) => value.as_ref(),
            None => document.get("attributes").and_then(|attributes| attributes.get(DIMENSIONS)),
        };
        names.zip(rank).is_some_and(|(names, rank)| conventions::names_of(names, rank).is_some())
    };
    edit.dimension_names.as_ref().map_or_else(stored, |names| !names.is_empty() || rank == Some(0))
}

/// Keeps elements that equal the fill value from being masked because the dimensions get names, in
/// an array that has no `_FillValue`.
fn keep_unmasked(text: &mut Text, document: &Object, edit: &Edit) -> Result<()> {
    let stored = document.get("attributes").and_then(|attributes| attributes.get(FILL));
    let written = edit.attributes.iter().any(|(name, value)| name == FILL && value.is_some());
    let Ok((dtype, fill)) = v2::masked_by(document) else { return Ok(()) };
    let is_harmless = !fill.is_defined() || conventions::is_masked_by_itself(&fill, &dtype);
    if written || stored.is_some() || is_harmless {
        return Ok(());
    }
    if fill.item(&dtype).iter().all(|byte| *byte == 0) {
        // Missing chunks still read as zero.
        return text.set(&["fill_value"], &Value::Null);
    }
    Err(Error::invalid(format!(
        "dimensions cannot get names in Zarr 2 while the fill value is {}: xarray would mask the elements that \
         equal it; set _FillValue, too, if they are missing data",
        fill.to_json(&dtype)
    )))
}

/// The conventions for attributes of an array.
#[derive(Debug, Clone, Copy)]
struct Conventions {
    /// Whether the dimensions of the array have names: then xarray masks its fill value.
    is_named: bool,
    /// Whether the fill value may change.
    may_refill: bool,
}

/// Adds the changes that set an attribute of Zarr 3 in the form of Zarr 2 ("conventions").
fn put_v2_attribute(
    text: &mut Text,
    changed: &mut Vec<ChangedMember>,
    document: &Object,
    meaning: Conventions,
    name: &str,
    value: Option<&Value>,
) -> Result<()> {
    let has_ome = document.get("attributes").is_some_and(|stored| stored.get(OME).is_some());
    if name == OME && !has_ome {
        let new = value.map(ome::ome_to_v2);
        // Attributes that are not OME-Zarr 0.5 stay unchanged.
        if let Some(members) = new.unwrap_or_else(|| Some(Object::new())) {
            let gone = ome::ome_members().iter().filter(|old| !members.contains_key(**old));
            changed.extend(gone.map(|old| ((*old).to_owned(), None)));
            changed.extend(members.into_iter().map(|(name, value)| (name, Some(value))));
            return Ok(());
        }
    }
    if name == FILL && meaning.is_named {
        let (dtype, fill) = v2::masked_by(document)?;
        let decoded = |value: &Value| {
            conventions::decoded_fill(value, &dtype).ok_or_else(|| {
                Error::invalid(format!(
                    "_FillValue {} is not a valid {} in the form of xarray: in Zarr 3, numbers of \
                     floats are the base64 of 8 bytes",
                    describe(value),
                    dtype.name()
                ))
            })
        };
        let new = value.map(decoded).transpose()?;
        return match new {
            Some(new) if new == fill => Ok(()),
            // The program that sets it may have the array open, and leave out chunks of zeros.
            new if !fill.is_defined() => {
                let value = new.map(|new| v2::fill_to_json(&new, &dtype, &Endian::Little));
                changed.push((FILL.to_owned(), value.transpose()?));
                Ok(())
            }
            Some(new) if meaning.may_refill => {
                changed.push((FILL.to_owned(), None));
                text.set(&["fill_value"], &v2::stored_fill(document, &new)?)
            }
            _ => Err(Error::invalid(
                "_FillValue cannot change: it is the fill value of an array in Zarr 2, so \
                 missing chunks would change their values",
            )),
        };
    }
    changed.push((name.to_owned(), value.cloned()));
    Ok(())
}

/// Fails for an attribute with a name that N5 uses: attributes are beside the members of N5.
fn check_n5_attribute(name: &str) -> Result<()> {
    if n5::MEMBERS.contains(&name) {
        return Err(Error::invalid(format!(
            "the attribute {name:?} is a member of N5 itself: give it another name"
        )));
    }
    Ok(())
}

fn put(text: &mut Text, path: &[&str], value: Option<&Value>) -> Result<()> {
    match value {
        Some(value) => text.set(path, value),
        None => text.remove(path),
    }
}

/// Sets the lengths that change. `before` is the shape that the writer saw.
fn put_shape(
    text: &mut Text,
    document: &Object,
    member: &str,
    before: &[u64],
    shape: &[u64],
) -> Result<()> {
    let stored = lengths(document.get(member).unwrap_or(&Value::Null), member)?;
    if stored.len() != shape.len() {
        return Err(Error::invalid(format!(
            "shape cannot become {shape:?}: the number of dimensions cannot change"
        )));
    }
    for (index, (old, new)) in stored.iter().zip(shape).enumerate() {
        let new = merged_length(*before.get(index).unwrap_or(old), *new, *old)
            .ok_or_else(|| changed_by_others(before, &stored))?;
        if *old != new {
            text.set_item(&[member], index, &json!(new))?;
        }
    }
    Ok(())
}

/// Merges the new length of a dimension with the stored one; `before` is the length that the writer
/// saw. If two programs have made it shorter, it becomes the shorter one. `None` if one has made it
/// longer since another has changed it: a program that appends writes behind the length that it
/// saw, where another one may have appended by now.
fn merged_length(before: u64, new: u64, stored: u64) -> Option<u64> {
    match (new.cmp(&before), stored.cmp(&before)) {
        (Ordering::Equal, _) => Some(stored),
        (_, Ordering::Equal) => Some(new),
        (Ordering::Less, Ordering::Less) => Some(new.min(stored)),
        _ => None,
    }
}

/// Returns the error of a writer that does not know the stored shape.
fn changed_by_others(before: &[u64], stored: &[u64]) -> Error {
    let detail = format!(
        "another program has changed the shape from {before:?} to {stored:?} since the metadata \
         was read: open the array again"
    );
    Error::new(Kind::Os(libc::ESTALE), detail)
}

/// Returns the attribute with the names of dimensions. Fails if only some have names.
fn all_named(names: &[Option<String>]) -> Result<Option<Value>> {
    if names.is_empty() {
        return Ok(None);
    }
    let all: Option<Vec<_>> = names.iter().map(Option::as_deref).collect();
    all.map(|all| Some(json!(all))).ok_or_else(|| {
        Error::invalid("dimension_names need a name for every dimension in this dialect")
    })
}

/// Fails for an attribute that would add filters to existing chunks, or remove theirs.
fn check_draft_attribute(document: &Object, name: &str, value: Option<&Value>) -> Result<()> {
    let stored = document.get("attributes").and_then(|attributes| attributes.get(name));
    let filters = stored.is_some_and(draft::are_filters) || value.is_some_and(draft::are_filters);
    if name == draft::FILTERS && filters {
        return Err(Error::invalid(
            "the attribute \"filters\" holds the codecs of arrays in the 2020 draft: it cannot be set",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
