//! All groups and data sets of a file.

use std::collections::HashMap;

use hdf5_reader::group::Group;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::fill_value::FillValueMessage;
use hdf5_reader::{Attribute, Dataset, Hdf5File};
use serde_json::{Value, json};

use super::attributes;
use super::chunks::DataSet;
use super::dimensions::{self, Scales};
use super::failed;
use super::filters;
use super::types::{self, StoredKind, StoredType};
use super::values::Values;
use crate::described::{Described, DescribedArray, bytes_codec, codec, is_node_name};
use crate::json::code_masked;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_codec::dtype::base64_encode;

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
    objects.walk(root.clone(), described)?;
    let Objects { groups, data_sets, paths, scales } = objects;
    let is_netcdf = data_sets
        .iter()
        .any(|found| dimensions::attribute(&found.object.1, "_Netcdf4Dimid").is_some())
        || root.attributes().is_ok_and(|it| dimensions::attribute(&it, "_NCProperties").is_some());
    let mut values = Values::new(file, root, paths);
    for Found { path, object, .. } in &groups {
        let attributes = object.attributes().map_err(failed)?;
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

impl Objects {
    /// Finds all objects. A group that is in itself is left out there.
    fn walk(&mut self, root: Group, described: &mut Described) -> Result<()> {
        let mut open =
            vec![(Found { path: String::new(), name: String::new(), object: root }, Vec::new())];
        let mut count = 0_usize;
        while let Some((found, above)) = open.pop() {
            count = count.saturating_add(1);
            if limits::NODES.is_exceeded_by(count) {
                return Err(Error::too_large(format!("groups in the file, {}", limits::NODES)));
            }
            let Found { path, object: group, .. } = &found;
            self.paths.entry(group.address()).or_insert_with(|| format!("/{path}"));
            let mut above: Vec<u64> = above;
            above.push(group.address());
            let (groups, data_sets) = group.member_names().map_err(failed)?;
            for name in groups {
                let below = join(path, &name);
                if !is_node_name(&name) {
                    described.omit(&below, "no node can have this name");
                    continue;
                }
                let object = group.group(&name).map_err(failed)?;
                if above.contains(&object.address()) || above.len() >= MAX_DEPTH {
                    described.omit(&below, "the group is a link to one above it");
                    continue;
                }
                open.push((Found { path: below, name, object }, above.clone()));
            }
            for name in data_sets {
                let shown = dimensions::variable_name(&name).to_owned();
                let below = join(path, &shown);
                if !is_node_name(&shown) {
                    described.omit(&below, "no node can have this name");
                    continue;
                }
                let object = group.dataset(&name).map_err(failed)?;
                let attributes = object.attributes();
                let address = object.address();
                self.paths.entry(address).or_insert_with(|| format!("/{below}"));
                self.scales.note(address, &shown, &attributes);
                self.data_sets.push(Found {
                    path: below,
                    name: shown,
                    object: (object, attributes),
                });
            }
            self.groups.push(found);
        }
        Ok(())
    }
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
        array.codecs = vec![if stored.is_in_file() {
            bytes_codec(stored.is_big)
        } else {
            codec("vlen-utf8", json!({}))
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
        StoredKind::Bytes => Some(json!(base64_encode(bytes))),
        StoredKind::Structure if !stored.is_big => Some(json!(base64_encode(bytes))),
        StoredKind::Structure | StoredKind::Text | StoredKind::ObjectReference => None,
    };
    value.unwrap_or_else(|| types::zero(stored))
}
