//! All groups and data sets of a file.

use std::collections::HashMap;

use hdf5_reader::group::Group;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::fill_value::FillValueMessage;
use hdf5_reader::messages::link::LinkTarget;
use hdf5_reader::{Attribute, Dataset, Hdf5File};
use serde_json::{Value, json};

use super::attributes;
use super::chunks::DataSet;
use super::dimensions::{self, Scales};
use super::failed;
use super::filters;
use super::links;
use super::types::{self, StoredKind, StoredType};
use super::unusual;
use super::values::Values;
use crate::described::{Described, DescribedArray, bytes_codec, codec, is_node_name};
use crate::json::code_masked;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_codec::dtype::{MAX_ITEM_LEN, base64_encode};
use zarrfs_store::MAX_KEY_LEN;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 64;

/// A group or a data set, with its path.
struct Found<T> {
    path: String,
    name: String,
    object: T,
}

/// The objects of a file.
#[derive(Default)]
struct Objects {
    groups: Vec<Found<Group>>,
    data_sets: Vec<Found<(Dataset, Vec<Attribute>)>>,
    paths: HashMap<u64, String>,
    scales: Scales,
}

/// Describes all groups and data sets of a file.
pub fn describe(file: &Hdf5File, described: &mut Described) -> Result<()> {
    let root = file.root_group().map_err(failed)?;
    let mut objects = Objects::default();
    objects.walk(file, described)?;
    let Objects { groups, data_sets, paths, scales } = objects;
    let is_netcdf = data_sets
        .iter()
        .any(|found| dimensions::attribute(&found.object.1, "_Netcdf4Dimid").is_some())
        || root.attributes().is_ok_and(|it| dimensions::attribute(&it, "_NCProperties").is_some());
    let mut values = Values::new(file, root, paths);
    for Found { path, object, .. } in &groups {
        let attributes = object.attributes().map_err(failed).unwrap_or_else(|error| {
            described.omit(path, &format!("its attributes: {}", error.detail()));
            Vec::new()
        });
        let mut left_out = Vec::new();
        let shown = attributes::shown(&attributes, &values, attributes::is_internal, &mut left_out);
        note_left_out(described, path, &left_out);
        described.group(path, shown)?;
    }
    for Found { path, name, object: (data_set, attributes) } in &data_sets {
        if is_netcdf && dimensions::is_only_length(attributes) {
            continue;
        }
        let array = Arrays { file, path, name, data_set, attributes, scales: &scales };
        array.describe(&mut values, described)?;
    }
    Ok(())
}

fn note_left_out(described: &mut Described, path: &str, left_out: &[String]) {
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        described.omit(path, &format!("attributes of a type that JSON cannot have: {names}"));
    }
}

/// The object that a link leads to.
enum Member {
    Group(Group),
    DataSet(Box<Dataset>),
    /// A type, which is no node.
    Type,
}

impl Objects {
    /// Finds all objects. A group that is in itself is left out there.
    fn walk(&mut self, file: &Hdf5File, described: &mut Described) -> Result<()> {
        let root = file.root_group().map_err(failed)?;
        let root = Found { path: String::new(), name: String::new(), object: root };
        let mut open = vec![(root, Vec::new())];
        let mut count = 0_usize;
        while let Some((found, mut above)) = open.pop() {
            count = count.saturating_add(1);
            if limits::NODES.is_exceeded_by(count) {
                return Err(Error::too_large(format!("groups in the file, {}", limits::NODES)));
            }
            let Found { path, object: group, .. } = &found;
            self.paths.entry(group.address()).or_insert_with(|| format!("/{path}"));
            above.push(group.address());
            let links = links::of_group(file, group.address()).or_else(|error| {
                if path.is_empty() || !error.is_of_data() {
                    return Err(error);
                }
                described.omit(path, error.detail());
                Ok(Vec::new())
            })?;
            for (name, target) in links {
                let shown = dimensions::variable_name(&name).to_owned();
                let below = join(path, &shown);
                if !is_node_name(&shown) || below.len() > MAX_KEY_LEN / 2 {
                    described.omit(&below, "no node can have this name");
                    continue;
                }
                match member(file, group, &name, &target) {
                    Ok(Member::Type) => {}
                    Ok(Member::DataSet(object)) => self.note_data_set(below, shown, *object),
                    Ok(Member::Group(object)) => {
                        if above.contains(&object.address()) || above.len() >= MAX_DEPTH {
                            described.omit(&below, "the group is a link to one above it");
                            continue;
                        }
                        let found = Found { path: below, name: shown, object };
                        open.push((found, above.clone()));
                    }
                    Err(error) if error.is_of_data() => match &target {
                        LinkTarget::Hard { .. } => {
                            described.unread(&below, &DescribedArray::unknown(), error.detail())?;
                        }
                        LinkTarget::Soft { .. } | LinkTarget::External { .. } => {
                            described.omit(&below, error.detail());
                        }
                    },
                    Err(error) => return Err(error),
                }
            }
            self.groups.push(found);
        }
        Ok(())
    }

    fn note_data_set(&mut self, path: String, name: String, object: Dataset) {
        let attributes = object.attributes();
        let address = object.address();
        self.paths.entry(address).or_insert_with(|| format!("/{path}"));
        self.scales.note(address, &name, &attributes);
        self.data_sets.push(Found { path, name, object: (object, attributes) });
    }
}

/// Returns what a link of a group leads to.
fn member(file: &Hdf5File, group: &Group, name: &str, target: &LinkTarget) -> Result<Member> {
    let is_group = match target {
        LinkTarget::External { filename, path } => {
            let detail = format!("a link to {path} in the file {filename}, which is not followed");
            return Err(Error::unsupported(detail));
        }
        LinkTarget::Soft { path } => {
            if let Ok(found) = group.group(name) {
                return Ok(Member::Group(found));
            }
            let found = group.dataset(name).map(|found| Member::DataSet(Box::new(found)));
            return found.map_err(|_| {
                Error::unsupported(format!("a link to {path}, which is not a group or a data set"))
            });
        }
        LinkTarget::Hard { address } => {
            let header = file.get_or_parse_header(*address).map_err(failed)?;
            let has = |is: fn(&HdfMessage) -> bool| header.messages.iter().any(is);
            let is_group = has(|message| {
                matches!(
                    message,
                    HdfMessage::SymbolTable(_) | HdfMessage::LinkInfo(_) | HdfMessage::Link(_)
                )
            });
            if !is_group && !has(|message| matches!(message, HdfMessage::Dataspace(_))) {
                return Ok(Member::Type);
            }
            is_group
        }
    };
    if is_group {
        return group.group(name).map(Member::Group).map_err(failed);
    }
    group.dataset(name).map(|found| Member::DataSet(Box::new(found))).map_err(failed)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// A data set to describe as an array.
struct Arrays<'a> {
    file: &'a Hdf5File,
    path: &'a str,
    name: &'a str,
    data_set: &'a Dataset,
    attributes: &'a [Attribute],
    scales: &'a Scales,
}

impl Arrays<'_> {
    fn describe(&self, values: &mut Values<'_>, described: &mut Described) -> Result<()> {
        let mut left_out = Vec::new();
        let is_scale = dimensions::is_scale(self.attributes);
        let is_hidden = |name: &str| {
            attributes::is_internal(name) && (is_scale || !matches!(name, "CLASS" | "NAME"))
        };
        let shown = attributes::shown(self.attributes, values, is_hidden, &mut left_out);
        note_left_out(described, self.path, &left_out);
        let mut array = DescribedArray {
            shape: self.data_set.shape().to_vec(),
            data_type: json!("uint8"),
            fill_value: json!(0),
            chunk_shape: self.data_set.shape().iter().map(|len| (*len).max(1)).collect(),
            attributes: shown,
            ..DescribedArray::default()
        };
        match self.fill(&mut array, values, described) {
            // Another array can be read.
            Err(error)
                if error.is_of_data() || error.word() == zarrfs_base::error::Word::Unsupported =>
            {
                array.codecs.clear();
                described.unread(self.path, &array, error.detail())
            }
            other => other,
        }
    }

    fn fill(
        &self,
        array: &mut DescribedArray,
        values: &mut Values<'_>,
        described: &mut Described,
    ) -> Result<()> {
        let header = self.file.get_or_parse_header(self.data_set.address()).map_err(failed)?;
        let (mut layout, mut pipeline) = (None, None);
        for message in &header.messages {
            match message {
                HdfMessage::DataLayout(found) => layout = Some(&found.layout),
                HdfMessage::FilterPipeline(found) => pipeline = Some(found),
                HdfMessage::ExternalFiles(_) => {
                    return Err(Error::unsupported("HDF5 values in other files"));
                }
                _ => {}
            }
        }
        let layout = layout
            .ok_or_else(|| Error::unsupported("an HDF5 layout, such as a virtual data set"))?;
        let stored = StoredType::of(self.data_set.dtype(), self.file.superblock().offset_size)?;
        if stored.item_len > u64::from(MAX_ITEM_LEN) {
            let len = stored.item_len;
            return Err(Error::unsupported(format!(
                "HDF5 elements of {len} bytes, the limit is {MAX_ITEM_LEN}"
            )));
        }
        let encoded = self.data_set.raw_datatype().map_err(failed)?;
        let has_gaps = stored.data_type.to_string().contains("\"padding0\"");
        unusual::check(&encoded, has_gaps)?;
        array.data_type = stored.data_type.clone();
        array.shape.extend(&stored.inner_shape);
        array.fill_value = fill_value(self.data_set.fill_value(), &stored);
        let rank = self.data_set.shape().len();
        let names = self.scales.names(self.name, rank, self.attributes, values);
        array.dimension_names = names.map(|mut names| {
            names.resize(array.shape.len(), None);
            names
        });
        if stored.kind == StoredKind::Float {
            code_masked(&mut array.attributes, stored.item_len);
        }
        array.codecs = vec![if stored.is_listed() {
            codec("vlen-utf8", json!({}))
        } else {
            bytes_codec(stored.is_big)
        }];
        if let Some(pipeline) = pipeline.filter(|_| stored.is_in_file()) {
            array.codecs.extend(filters::codecs(pipeline, stored.item_len)?);
        }
        let set = DataSet {
            path: self.path,
            shape: self.data_set.shape(),
            max_shape: self.data_set.max_dims(),
            stored: &stored,
            layout,
            pipeline,
        };
        set.describe(self.file, values, described, array.clone())
    }
}

/// Returns the fill value, as in a metadata file.
fn fill_value(message: Option<&FillValueMessage>, stored: &StoredType) -> Value {
    let bytes = message.and_then(|message| message.value.as_deref()).filter(|it| !it.is_empty());
    let Some(bytes) = bytes else { return types::zero(stored) };
    let order = if stored.is_big {
        hdf5_reader::ByteOrder::BigEndian
    } else {
        hdf5_reader::ByteOrder::LittleEndian
    };
    let float = |bytes: &[u8]| attributes::float(bytes, order).map(crate::json::fill_value);
    let is_signed = stored.data_type.as_str().is_some_and(|name| name.starts_with("int"));
    let value = match stored.kind {
        StoredKind::Integer => attributes::integer(bytes, is_signed, order),
        StoredKind::Bool => Some(json!(bytes.first().is_some_and(|byte| *byte != 0))),
        StoredKind::Float => float(bytes),
        StoredKind::Complex => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            float(real).zip(float(imaginary)).map(|(real, imaginary)| json!([real, imaginary]))
        }
        StoredKind::Bytes | StoredKind::Terminated | StoredKind::SpacePadded => {
            Some(json!(base64_encode(bytes)))
        }
        StoredKind::Structure if !stored.is_big => Some(json!(base64_encode(bytes))),
        StoredKind::Structure | StoredKind::Text | StoredKind::ObjectReference => None,
    };
    value.unwrap_or_else(|| types::zero(stored))
}
