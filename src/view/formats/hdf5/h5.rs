//! `h5`: plain HDF5. An array is a dataset, and a group is a group.
//!
//! It keeps every type that HDF5 has, and attributes as strings of variable length and as numbers.
//! Named dimensions become labels and scales.

use super::attributes::{Texts, describe};
use super::elements::stored;
use super::file::{Content, Dataset, File, Object, Stored};
use super::message;
use super::scales::name_dimensions;
use super::strings::Strings;
use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::view::cf;
use crate::view::left_out::LeftOut;
use crate::view::parts::{Part, View};
use crate::view::source::{Children, Source};

pub(in crate::view::formats) fn build(source: &Source<'_>) -> Result<View> {
    let (mut file, mut not_held) = (File::default(), LeftOut::default());
    match source.kind() {
        NodeKind::Group => {
            group(&mut file, source, source.path(), &mut not_held, 0)?;
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
    Ok(file.into_view()?.with_left_out(not_held))
}

/// Adds a group and all nodes below it.
fn group(
    file: &mut File,
    source: &Source<'_>,
    top: &NodePath,
    not_held: &mut LeftOut,
    depth: usize,
) -> Result<usize> {
    file.check_count(depth)?;
    let number = file.add(Object::group());
    let Children { nodes, mut left_out } = source.children()?;
    let mut arrays = Vec::new();
    for child in &nodes {
        file.check_count(depth)?;
        let object = match child.kind() {
            NodeKind::Group => group(file, child, top, not_held, depth.saturating_add(1))?,
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
    for (name, error) in &left_out {
        not_held.add(top, source.path(), name, error);
    }
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
        DType::String | DType::VariableBytes => {
            let strings = Stored::Strings(Box::new(Strings::new(source)?));
            (message::any_string(&model.dtype)?, None, strings)
        }
        // HDF5 has no UTF-32.
        DType::Utf32(_) => {
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
