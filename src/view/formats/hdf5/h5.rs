//! `h5`: plain HDF5. An array is a dataset, and a group is a group.
//!
//! It keeps every type that HDF5 has, and attributes as strings of variable length and as numbers.
//! Named dimensions become labels and scales.

use super::attributes::{Texts, describe};
use super::elements::stored;
use super::file::{ElementsLocation, Hdf5Dataset, Hdf5File, Object, ObjectContent};
use super::message;
use super::record::FileElement;
use super::scales::{name_dimensions, unnamed};
use super::strings::Strings;
use crate::dtype::{DType, Time};
use crate::error::{Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::view::cf;
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::View;
use crate::view::source::{Children, ViewSource};

/// The list of properties that a file lacks, and its node.
struct Lacks<'p> {
    top: &'p NodePath,
    list: LeftOutOfView,
}

impl Lacks<'_> {
    fn add(&mut self, source: &ViewSource<'_>, what: &str) {
        self.list.add_property(self.top, source.path(), what);
    }

    fn add_all(&mut self, source: &ViewSource<'_>, all: &[String]) {
        for what in all {
            self.add(source, what);
        }
    }
}

/// The attribute with the kind of an element of `AnnData`, and its value for `None` and for a whole
/// data set.
const ENCODING: &str = "encoding-type";
const NULL: &str = "null";
const ANNDATA: &str = "anndata";

pub(in crate::view::formats) fn build(source: &ViewSource<'_>) -> Result<View> {
    let mut file = Hdf5File::default();
    let mut lacks = Lacks { top: source.path(), list: LeftOutOfView::default() };
    match source.kind() {
        NodeKind::Group => {
            group(&mut file, source, &mut lacks, 0)?;
        }
        NodeKind::Array => {
            let root = file.add(Object::group());
            let mut arrays = Vec::new();
            for array in cf::with_coordinates(source)?.0 {
                match dataset(&mut file, &array, &mut lacks) {
                    Err(error)
                        if error.kind() == Kind::Unsupported && array.path() != source.path() => {}
                    object => arrays.push((array, object?)),
                }
            }
            for (array, object) in &arrays {
                file.link(root, array.name(), *object);
            }
            name_dimensions(&mut file, root, &arrays)?;
            for (array, _) in &arrays {
                list_dimensions(array, &mut lacks);
            }
        }
    }
    Ok(file.into_view()?.with_left_out(lacks.list))
}

/// Adds a group and all nodes below it.
fn group(
    file: &mut Hdf5File,
    source: &ViewSource<'_>,
    lacks: &mut Lacks<'_>,
    depth: usize,
) -> Result<usize> {
    file.check_count(depth)?;
    let number = file.add(Object::group());
    let Children { nodes, mut left_out } = source.children()?;
    let mut arrays = Vec::new();
    for child in &nodes {
        file.check_count(depth)?;
        if has_encoding(child, NULL) && has_encoding(source, ANNDATA) {
            // AnnData stores `None` as an array in Zarr, and as nothing in HDF5.
            continue;
        }
        let object = match child.kind() {
            NodeKind::Group => group(file, child, lacks, depth.saturating_add(1))?,
            NodeKind::Array => match dataset(file, child, lacks) {
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
    for (array, _) in &arrays {
        list_dimensions(array, lacks);
    }
    let mut all = cf::attributes(source.attributes(), None);
    all.extend(cf::left_out(&left_out));
    for (name, error) in &left_out {
        lacks.list.add(lacks.top, source.path(), name, error);
    }
    let changes = describe(file, number, all, Texts::Any)?;
    lacks.add_all(source, &changes);
    Ok(number)
}

fn has_encoding(source: &ViewSource<'_>, kind: &str) -> bool {
    source.attributes().get(ENCODING).is_some_and(|own| own == kind)
}

/// Lists the names of dimensions that HDF5 has in another form.
fn list_dimensions(source: &ViewSource<'_>, lacks: &mut Lacks<'_>) {
    for name in unnamed(source) {
        lacks.add(source, &format!("dimension {name} (only as a label)"));
    }
}

/// Adds an array.
fn dataset(file: &mut Hdf5File, source: &ViewSource<'_>, lacks: &mut Lacks<'_>) -> Result<usize> {
    let array = source.array()?;
    if let Some(error) = array.not_understood() {
        return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
    }
    let model = array.model();
    let fill = model.fill.item(&model.dtype).into_owned();
    message::dataspace(&model.shape)?;
    let (dtype, fill, elements) = match &model.dtype {
        dtype if FileElement::is_for(dtype) => {
            let strings = Strings::new(source)?;
            if strings.are_lists() {
                lacks.add(source, "strings with a NUL (all strings as lists of bytes)");
            }
            (strings.dtype()?, None, ElementsLocation::Strings(Box::new(strings)))
        }
        dtype => (message::datatype(dtype)?, Some(fill), stored(source, None)?),
    };
    let content = if has_encoding(source, NULL) && model.shape.is_empty() {
        // `h5py.Empty("f")`, as which AnnData stores `None` in HDF5.
        let (dtype, elements) =
            (message::datatype(&DType::Float(4))?, ElementsLocation::Nowhere(0));
        Hdf5Dataset { dtype, shape: None, fill: None, elements }
    } else {
        Hdf5Dataset { dtype, shape: Some(model.shape.clone()), fill, elements }
    };
    let number =
        file.add(Object { attributes: Vec::new(), content: ObjectContent::Dataset(content) });
    list_types(source, &model.dtype, lacks);
    let has_type = matches!(
        model.dtype,
        DType::Int(_) | DType::Uint(_) | DType::Float(_) | DType::Complex(_) | DType::Bytes(_)
    );
    let mut all = cf::attributes(source.attributes(), Some(&model.dtype).filter(|_| has_type));
    cf::set_aside(&mut all, &[], &model.dtype);
    let changes = describe(file, number, all, Texts::Any)?;
    lacks.add_all(source, &changes);
    Ok(number)
}

/// Lists the types in an element that HDF5 has only in another form.
fn list_types(source: &ViewSource<'_>, dtype: &DType, lacks: &mut Lacks<'_>) {
    match dtype {
        DType::Time(Time { unit, scale, .. }) => {
            let step = format!("{scale} {unit}");
            lacks.add(source, &format!("type {} (as int64, in steps of {step})", dtype.name()));
        }
        DType::Struct(fields) => {
            fields.iter().for_each(|field| list_types(source, &field.dtype, lacks));
        }
        _ => {}
    }
}
