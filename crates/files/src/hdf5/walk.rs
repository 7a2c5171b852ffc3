//! All groups and data sets of a file.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use hdf5_reader::Hdf5File;
use hdf5_reader::group::Group;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::link::LinkTarget;
use serde_json::json;

use super::attribute_list::AttributeList;
use super::attributes;
use super::chunks::DataSet;
use super::data_set::StoredDataSet;
use super::dimensions::{self, RecordCounts, Scales};
use super::filters;
use super::header::ObjectHeader;
use super::library::failed;
use super::links::{self, NamedLink};
use super::sources::{OpenSource, Sources};
use super::types::{self, StoredKind, StoredType};
use super::unusual;
use super::values::{MAX_TEXT_LEN, Values};
use super::virtual_set;
use crate::described::{Described, DescribedArray, bytes_codec, codec, is_node_name};
use crate::json::code_masked;
use zarrfs_base::error::{Error, Result, Word};
use zarrfs_base::limits;
use zarrfs_codec::dtype::MAX_ITEM_LEN;
use zarrfs_store::MAX_KEY_LEN;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 64;

/// The most links to other files that are followed, and how many in a row.
const MAX_AWAY: usize = 1 << 16;
const MAX_AWAY_DEPTH: usize = 8;

/// A group or a data set, with its path.
struct Found<T> {
    path: String,
    name: String,
    object: T,
    attributes: AttributeList,
}

/// A group with the links in it.
struct StoredGroup {
    address: u64,
    links: Vec<NamedLink>,
}

/// The groups above a node: their files and addresses.
type Above = Vec<(u32, u64)>;

/// The objects of a file, or of a part of one.
#[derive(Default)]
struct Objects {
    groups: Vec<Found<()>>,
    data_sets: Vec<Found<StoredDataSet>>,
    paths: HashMap<u64, String>,
    scales: Scales,
    /// The links to objects of other files.
    away: Vec<Start>,
}

/// An object that is described with all below it.
struct Start {
    /// Its path here, and its name.
    path: String,
    name: String,
    /// The number of the file that the link to it is in.
    from: u32,
    /// The file and the path there.
    file: String,
    target: String,
    above: Above,
    /// How many links to other files led to it.
    depth: usize,
}

/// Describes all groups and data sets of a file, and those of other files that it links to.
pub fn describe(sources: &mut Sources<'_>, described: &mut Described) -> Result<()> {
    let own = sources.open_own()?;
    let root = own.file.root_group().map_err(failed)?.address();
    let mut texts_left = MAX_TEXT_LEN;
    let whole = Start {
        path: String::new(),
        name: String::new(),
        from: own.number,
        file: ".".to_owned(),
        target: "/".to_owned(),
        above: Vec::new(),
        depth: 0,
    };
    let away = describe_tree(&own, root, &whole, sources, described, &mut texts_left)?;
    let mut waiting = VecDeque::from(away);
    let mut count = 0_usize;
    while let Some(start) = waiting.pop_front() {
        count = count.saturating_add(1);
        let (file, target) = (&start.file, &start.target);
        let found = if count > MAX_AWAY || start.depth > MAX_AWAY_DEPTH {
            let detail = format!(
                "more than {MAX_AWAY} external links, or a chain of more than {MAX_AWAY_DEPTH}"
            );
            Err(Error::unsupported(detail))
        } else {
            follow(&start, sources, described, &mut texts_left)
        };
        match found {
            Ok(away) => waiting.extend(away),
            Err(error) if is_of_object(&error) => {
                let why = error.detail();
                described.omit(
                    &start.path,
                    &format!("a link to {target} in the file {file}, which is not followed: {why}"),
                );
            }
            Err(error) => return Err(error),
        }
    }
    described.lead_into(&own.as_chunk_file())
}

/// Describes what a link to another file leads to, and returns such links in there.
fn follow(
    start: &Start,
    sources: &mut Sources<'_>,
    described: &mut Described,
    texts_left: &mut usize,
) -> Result<Vec<Start>> {
    let from = sources.reopen(start.from)?;
    let missing = || Error::unsupported("it does not exist");
    let opened = sources.open(&from, &start.file)?.ok_or_else(missing)?;
    match opened.find(&start.target)? {
        Some(LinkTarget::Hard { address }) => {
            described.lead_into(&opened.as_chunk_file())?;
            describe_tree(&opened, address, start, sources, described, texts_left)
        }
        Some(LinkTarget::External { filename, path }) => Ok(vec![Start {
            path: start.path.clone(),
            name: start.name.clone(),
            from: opened.number,
            file: filename,
            target: path,
            above: start.above.clone(),
            depth: start.depth.saturating_add(1),
        }]),
        Some(LinkTarget::Soft { .. }) | None => Err(missing()),
    }
}

/// Describes an object of a file with all below it, and returns the links to other files there.
fn describe_tree(
    at: &Rc<OpenSource>,
    address: u64,
    start: &Start,
    sources: &mut Sources<'_>,
    described: &mut Described,
    texts_left: &mut usize,
) -> Result<Vec<Start>> {
    let root = at.file.root_group().map_err(failed)?;
    let mut objects = Objects::default();
    objects.walk(at, &root, address, start, described)?;
    let Objects { groups, data_sets, paths, scales, away } = objects;
    let has = |attributes: &AttributeList, name| {
        dimensions::attribute(&attributes.attributes, name).is_some()
    };
    let is_netcdf = data_sets.iter().any(|found| has(&found.attributes, "_Netcdf4Dimid"))
        || groups.iter().any(|it| it.path.is_empty() && has(&it.attributes, "_NCProperties"));
    let mut values = Values::new(&at.file, root, paths, *texts_left);
    for Found { path, attributes, .. } in &groups {
        let mut left_out = attributes.unread.clone();
        let attributes = &attributes.attributes;
        let shown = attributes::shown(attributes, &values, attributes::is_internal, &mut left_out);
        note_left_out(described, path, &left_out);
        described.group(path, shown)?;
    }
    let mut records = RecordCounts::new();
    for Found { object, attributes, .. } in data_sets.iter().filter(|_| is_netcdf) {
        scales.note_records(object, &attributes.attributes, &values, &mut records);
    }
    for Found { path, object: data_set, attributes, .. } in &data_sets {
        let listed = &attributes.attributes;
        if is_netcdf && dimensions::is_only_length(listed) {
            continue;
        }
        let shape = scales.variable_shape(data_set, listed, &values, &records);
        let array = FoundArray { at, path, data_set, shape, attributes, scales: &scales };
        array.describe(&mut values, sources, described)?;
    }
    *texts_left = values.left();
    Ok(away)
}

fn note_left_out(described: &mut Described, path: &str, left_out: &[String]) {
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        described.omit(path, &format!("attributes of a type that JSON cannot have: {names}"));
    }
}

/// The object that a link leads to.
enum LinkedObject {
    Group(StoredGroup),
    DataSet(Box<StoredDataSet>),
    /// A type, which is no node.
    Type,
}

/// A search of a file.
struct Search<'f> {
    at: &'f OpenSource,
    file: &'f Hdf5File,
    root: &'f Group,
}

impl Objects {
    /// Finds all objects from one on. A group that is in itself is left out there.
    fn walk(
        &mut self,
        at: &OpenSource,
        root: &Group,
        address: u64,
        start: &Start,
        described: &mut Described,
    ) -> Result<()> {
        let mut search = Search { at, file: &at.file, root };
        let (object, attributes) = search.member(address, &start.path, described)?;
        let (path, name) = (start.path.clone(), start.name.clone());
        let object = match object {
            LinkedObject::Type if path.is_empty() => StoredGroup { address, links: Vec::new() },
            LinkedObject::Type => return Ok(()),
            LinkedObject::DataSet(object) => {
                self.note_data_set(path, name, *object, attributes);
                return Ok(());
            }
            LinkedObject::Group(object) => object,
        };
        if start.above.contains(&(at.number, address)) {
            described.omit(&path, "the group is a link to one above it");
            return Ok(());
        }
        let mut open = vec![(Found { path, name, object, attributes }, start.above.clone())];
        let mut count = 0_usize;
        while let Some((found, mut above)) = open.pop() {
            count = count.saturating_add(1);
            if limits::NODES.is_exceeded_by(count) {
                return Err(Error::too_large(format!("groups in the file, {}", limits::NODES)));
            }
            let Found { path, name, object: group, attributes } = found;
            self.paths.entry(group.address).or_insert_with(|| format!("/{path}"));
            above.push((at.number, group.address));
            for link in group.links {
                let within = (&*path, group.address, &above);
                open.extend(self.link(&mut search, (at, start), within, link, described)?);
            }
            self.groups.push(Found { path, name, object: (), attributes });
        }
        Ok(())
    }

    /// Notes what a link of a group leads to, and returns it if it is a group, with those above.
    fn link(
        &mut self,
        search: &mut Search<'_>,
        (at, start): (&OpenSource, &Start),
        (path, group, above): (&str, u64, &Above),
        (name, target): NamedLink,
        described: &mut Described,
    ) -> Result<Option<(Found<StoredGroup>, Above)>> {
        let shown = dimensions::variable_name(&name).to_owned();
        let below = join(path, &shown);
        if !is_node_name(&shown) || below.len() > MAX_KEY_LEN / 2 {
            described.omit(&below, "no node can have this name");
            return Ok(None);
        }
        let address = match search.resolved(group, target) {
            Ok(LinkTarget::External { filename, path }) => {
                self.away.push(Start {
                    path: below,
                    name: shown,
                    from: at.number,
                    file: filename,
                    target: path,
                    above: above.clone(),
                    depth: start.depth.saturating_add(1),
                });
                return Ok(None);
            }
            Ok(LinkTarget::Hard { address }) => address,
            Ok(LinkTarget::Soft { .. }) => return Ok(None),
            Err(error) if is_of_object(&error) => {
                described.omit(&below, error.detail());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        match search.member(address, &below, described) {
            Ok((LinkedObject::Type, _)) => {}
            Ok((LinkedObject::DataSet(object), attributes)) => {
                self.note_data_set(below, shown, *object, attributes);
            }
            Ok((LinkedObject::Group(object), attributes)) => {
                if above.contains(&(at.number, object.address)) || above.len() >= MAX_DEPTH {
                    described.omit(&below, "the group is a link to one above it");
                    return Ok(None);
                }
                let found = Found { path: below, name: shown, object, attributes };
                return Ok(Some((found, above.clone())));
            }
            Err(error) if is_of_object(&error) => {
                described.unread(&below, &DescribedArray::unknown(), error.detail())?;
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn note_data_set(
        &mut self,
        path: String,
        name: String,
        object: StoredDataSet,
        attributes: AttributeList,
    ) {
        let address = object.address;
        self.paths.entry(address).or_insert_with(|| format!("/{path}"));
        self.scales.note(address, &name, &attributes.attributes);
        self.data_sets.push(Found { path, name, object, attributes });
    }
}

/// Whether an error is about one object, so that others can be read.
fn is_of_object(error: &Error) -> bool {
    error.is_of_data() || error.word() == Word::Unsupported
}

impl Search<'_> {
    /// Returns a link of the group at an address as one to an object, or to another file.
    fn resolved(&mut self, group: u64, target: LinkTarget) -> Result<LinkTarget> {
        match target {
            LinkTarget::Soft { path } => self.at.follow(group, &path),
            other => Ok(other),
        }
    }

    /// Returns the object at an address.
    fn member(
        &mut self,
        address: u64,
        path: &str,
        described: &mut Described,
    ) -> Result<(LinkedObject, AttributeList)> {
        let header = ObjectHeader::read(self.file, address)?;
        let has = |is: fn(&HdfMessage) -> bool| header.messages.iter().any(is);
        let is_group = has(|message| {
            matches!(
                message,
                HdfMessage::SymbolTable(_) | HdfMessage::LinkInfo(_) | HdfMessage::Link(_)
            )
        });
        if !is_group && !has(|message| matches!(message, HdfMessage::Dataspace(_))) {
            return Ok((LinkedObject::Type, AttributeList::default()));
        }
        let attributes = self.attributes(&header, path, described)?;
        let member = if is_group {
            let links = links::of_group(self.file, &header).or_else(|error| {
                if path.is_empty() || !error.is_of_data() {
                    return Err(error);
                }
                described.omit(path, error.detail());
                Ok(Vec::new())
            })?;
            LinkedObject::Group(StoredGroup { address, links })
        } else {
            let listed = &attributes.attributes;
            let found = StoredDataSet::of(self.file, address, path, header, listed)?;
            LinkedObject::DataSet(Box::new(found))
        };
        Ok((member, attributes))
    }

    /// Returns the attributes of an object. If they cannot be read, its values can be.
    fn attributes(
        &self,
        header: &ObjectHeader,
        path: &str,
        described: &mut Described,
    ) -> Result<AttributeList> {
        AttributeList::of(self.file, self.root, header).or_else(|error| {
            if !error.is_of_data() {
                return Err(error);
            }
            described.omit(path, &format!("its attributes: {}", error.detail()));
            Ok(AttributeList::default())
        })
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// A data set to describe as an array.
struct FoundArray<'a> {
    at: &'a Rc<OpenSource>,
    path: &'a str,
    data_set: &'a StoredDataSet,
    shape: Vec<u64>,
    attributes: &'a AttributeList,
    scales: &'a Scales,
}

impl FoundArray<'_> {
    fn describe(
        &self,
        values: &mut Values<'_>,
        sources: &mut Sources<'_>,
        described: &mut Described,
    ) -> Result<()> {
        let AttributeList { attributes, unread } = self.attributes;
        let mut left_out = unread.clone();
        let is_scale = dimensions::is_scale(attributes);
        let is_hidden = |name: &str| {
            attributes::is_internal(name) && (is_scale || !matches!(name, "CLASS" | "NAME"))
        };
        let shown = attributes::shown(attributes, values, is_hidden, &mut left_out);
        note_left_out(described, self.path, &left_out);
        let mut array = DescribedArray {
            shape: self.shape.clone(),
            data_type: json!("uint8"),
            fill_value: json!(0),
            chunk_shape: self.shape.iter().map(|len| (*len).max(1)).collect(),
            attributes: shown,
            ..DescribedArray::default()
        };
        match self.fill(&mut array, values, sources, described) {
            // Another array can be read.
            Err(error) if is_of_object(&error) => {
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
        sources: &mut Sources<'_>,
        described: &mut Described,
    ) -> Result<()> {
        let data_set = self.data_set;
        let stored = StoredType::of(&data_set.datatype, self.at.file.superblock().offset_size)?;
        if stored.item_len > u64::from(MAX_ITEM_LEN) {
            let len = stored.item_len;
            return Err(Error::unsupported(format!(
                "HDF5 elements of {len} bytes, the limit is {MAX_ITEM_LEN}"
            )));
        }
        unusual::check(&data_set.encoded_type, stored.has_gaps())?;
        array.data_type = stored.data_type.clone();
        array.shape.extend(&stored.inner_shape);
        array.fill_value = types::fill_value(data_set.fill.as_deref(), &stored);
        data_set.check_filled_up_to(&self.shape)?;
        let names = self.scales.names(data_set, &self.attributes.attributes, values);
        array.dimension_names = names.map(|mut names| {
            names.resize(array.shape.len(), None);
            names
        });
        if stored.kind == StoredKind::Float {
            code_masked(&mut array.attributes, stored.item_len);
        }
        if data_set.mappings.is_some() || data_set.external.is_some() {
            return virtual_set::describe(self.path, self.at, data_set, sources, array, described);
        }
        array.codecs = vec![if stored.is_listed() {
            codec("vlen-utf8", json!({}))
        } else {
            bytes_codec(stored.is_big)
        }];
        if let Some(pipeline) = data_set.pipeline.as_ref().filter(|_| stored.is_in_file()) {
            array.codecs.extend(filters::codecs(pipeline, stored.item_len)?);
        }
        let layout = data_set.layout.as_ref();
        let set = DataSet {
            path: self.path,
            shape: &data_set.shape,
            max_shape: data_set.max_shape.as_deref(),
            stored: &stored,
            layout: layout.ok_or_else(|| Error::corrupt("HDF5: no layout"))?,
            pipeline: data_set.pipeline.as_ref(),
        };
        set.describe(&self.at.file, values, described, array.clone())
    }
}
