//! `h5` and `nc4`: HDF5, as it is or as netCDF-4 lays it out.
//!
//! An array is a dataset, and a group is a group. Chunks that divide more than the first dimension are chunks of the file, one
//! after another and without an index, as HDF5 1.10 and later read them; all else is in C order. What a file holds of a node:
//!
//! - `h5` every type that HDF5 has, attributes as strings of any length and numbers, and where dimensions have names,
//!   these as labels and scales.
//! - `nc4` what [`cf`](crate::view::cf) makes of a group, with dimension scales.

mod attributes;
mod file;
mod message;
mod nc4;
mod scales;

use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodeKind;
use crate::view::cf;
use crate::view::{Children, Items, Layout, Part, Source, View, max_prefix_len};
use attributes::{Texts, describe};
use file::{Content, Dataset, File, Object, Stored};
pub(super) use nc4::build as build_nc4;
use scales::name_dimensions;

/// The most nodes of a file.
const MAX_NODES: usize = 50_000;

/// The most groups in one another.
const MAX_DEPTH: usize = 100;

/// Chunks have less than this.
const MAX_CHUNK_LEN: u64 = 1 << 32;

pub(super) fn build_h5(source: &Source<'_>) -> Result<View> {
    let mut file = File::default();
    match source.kind() {
        NodeKind::Group => {
            group(&mut file, source, 0)?;
        }
        NodeKind::Array => {
            let root = file.add(Object::group());
            let mut arrays = Vec::new();
            for array in cf::with_coordinates(source)?.0 {
                match dataset(&mut file, &array) {
                    Err(error)
                        if error.kind() == Kind::Unsupported && array.path() != source.path() => {}
                    object => arrays.push((array, object?)),
                }
            }
            for (array, object) in &arrays {
                file.link(root, array.name(), *object);
            }
            name_dimensions(&mut file, root, &arrays)?;
        }
    }
    file.into_view()
}

/// Adds a group and all below it.
fn group(file: &mut File, source: &Source<'_>, depth: usize) -> Result<usize> {
    check_count(file, depth)?;
    let number = file.add(Object::group());
    let Children { nodes, mut left_out } = source.children()?;
    let mut arrays = Vec::new();
    for child in &nodes {
        check_count(file, depth)?;
        let object = match child.kind() {
            NodeKind::Group => group(file, child, depth.saturating_add(1))?,
            NodeKind::Array => match dataset(file, child) {
                Err(error) if error.kind() == Kind::Unsupported => {
                    left_out.push((child.name().to_owned(), error));
                    continue;
                }
                object => {
                    let object = object?;
                    arrays.push((child.clone(), object));
                    object
                }
            },
        };
        file.link(number, child.name(), object);
    }
    name_dimensions(file, number, &arrays)?;
    let mut all = cf::attributes(source.attributes(), None);
    all.extend(cf::left_out(&left_out));
    describe(file, number, all, Texts::Any)?;
    Ok(number)
}

/// Adds an array.
fn dataset(file: &mut File, source: &Source<'_>) -> Result<usize> {
    let array = source.array()?;
    if let Some(error) = array.not_understood() {
        return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
    }
    let model = array.model();
    let fill = model.fill.item(&model.dtype).into_owned();
    let (dtype, fill, elements) = match &model.dtype {
        // HDF5 has no UTF-32, and texts of any length would be somewhere else in the file.
        DType::Utf32(_) | DType::String => {
            let (values, len) = cf::characters(source, &mut file.room)?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            (message::string(&values, len)?, None, Stored::Contiguous(Part::from(values)))
        }
        dtype => (message::datatype(dtype)?, Some(fill), stored(source, None)?),
    };
    let content = Dataset { dtype, shape: model.shape.clone(), fill, elements };
    message::dataspace(&content.shape)?;
    let number = file.add(Object { attributes: Vec::new(), content: Content::Dataset(content) });
    let is_number = matches!(model.dtype, DType::Int(_) | DType::Uint(_) | DType::Float(_));
    let mut all = cf::attributes(source.attributes(), Some(&model.dtype).filter(|_| is_number));
    cf::set_aside(&mut all, &[], &model.dtype);
    describe(file, number, all, Texts::Any)?;
    Ok(number)
}

/// The elements of an array: of `characters` where each is as many elements of the file.
fn stored(source: &Source<'_>, characters: Option<u64>) -> Result<Stored> {
    let array = source.array()?;
    let (grid, shape) = (array.grid(), &array.model().shape);
    let item_len = array.model().dtype.item_len();
    let mut chunk = array.chunk_shape().to_vec();
    let chunk_len = chunk.iter().try_fold(u64::try_from(item_len).ok(), |len, n| {
        Some(len.and_then(|len| len.checked_mul(*n)))
    });
    let is_chunked = grid.is_regular()
        && !shape.contains(&0)
        // In C order they are in the file what they are there, if they divide the first dimension alone.
        && grid.counts().iter().skip(1).any(|count| *count > 1)
        // Libraries refuse to make a dataset of chunks that are larger than it, as a copy would.
        && chunk.iter().zip(shape).all(|(chunk, len)| chunk <= len)
        && chunk_len.flatten().is_some_and(|len| len < MAX_CHUNK_LEN);
    if !is_chunked {
        return Ok(Stored::Contiguous(source.elements(Layout::Linear, Items::default())?.into()));
    }
    chunk.extend(characters);
    let part = Part::from(source.elements(Layout::Chunks, Items::default())?);
    Ok(Stored::Chunks(part, chunk, if characters.is_some() { 1 } else { item_len }))
}

/// Refuses more nodes than a file is made of, groups that lie too deep, and attributes that are too long in all.
fn check_count(file: &File, depth: usize) -> Result<()> {
    let refused = |limit: usize, what: &str| {
        Err(Error::unsupported(format!("it has more than {limit} {what}")))
    };
    if file.objects.len() > MAX_NODES {
        return refused(MAX_NODES, "nodes");
    }
    if depth > MAX_DEPTH {
        return refused(MAX_DEPTH, "nested groups");
    }
    if u64::try_from(file.attributes_len).is_ok_and(|len| len > max_prefix_len()) {
        let detail = format!("its attributes have more than {} bytes", max_prefix_len());
        return Err(Error::unsupported(detail));
    }
    Ok(())
}

impl Object {
    fn group() -> Self {
        Self { attributes: Vec::new(), content: Content::Group(Vec::new()) }
    }
}

impl File {
    /// The names in a group.
    fn names(&self, group: usize) -> impl Iterator<Item = &str> {
        let links = match self.objects.get(group).map(|group| &group.content) {
            Some(Content::Group(links)) => links.as_slice(),
            _ => &[],
        };
        links.iter().map(|(name, _)| name.as_str())
    }

    /// Gives an object a name in a group.
    fn link(&mut self, group: usize, name: &str, object: usize) {
        let group = self.objects.get_mut(group).map(|group| &mut group.content);
        if let Some(Content::Group(links)) = group {
            links.push((name.to_owned(), object));
        }
    }

    /// Gives an object an attribute.
    fn describe(&mut self, object: usize, attribute: file::Attribute) {
        self.attributes_len = self.attributes_len.saturating_add(attribute.len());
        if let Some(object) = self.objects.get_mut(object) {
            object.attributes.push(attribute);
        }
    }
}
