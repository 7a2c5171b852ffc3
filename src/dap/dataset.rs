//! A node as a data set of DAP2: the variables of the `nc` view, in types of DAP2.

use std::collections::HashMap;

use super::hyperslab::{Hyperslab, SelectedAxis};
use super::names::identifiers;
use super::xdr::{Wire, double};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::metadata::NodeKind;
use crate::view::cf::{
    self, Attribute, AttributeValues, ConversionBudget, ENCODING, FileElements, UNSIGNED,
};
use crate::view::{ElementRange, ViewSource};

/// The most elements of an array that netCDF-C may read together with those of others.
const MAX_SMALL: u64 = 1 << 17;

/// A variable.
#[derive(Debug)]
pub(super) struct Variable<'s> {
    /// The name in the `nc` view.
    pub name: String,
    /// The name that clients see.
    pub identifier: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The type that clients see.
    pub wire: Wire,
    /// The numbers of its dimensions.
    pub dimensions: Vec<usize>,
    /// The numbers of the variables with its coordinates, one for each dimension; empty unless all
    /// dimensions have one. Then clients see a Grid.
    pub maps: Vec<usize>,
    pub attributes: Vec<Attribute>,
    /// The array.
    pub source: ViewSource<'s>,
}

/// A data set.
#[derive(Debug)]
pub(super) struct DataSet<'s> {
    pub name: String,
    pub dimensions: Vec<cf::Dimension>,
    /// The names of the dimensions that clients see.
    pub dimension_identifiers: Vec<String>,
    pub variables: Vec<Variable<'s>>,
    /// The attributes of the group.
    pub attributes: Vec<Attribute>,
}

/// The arrays that a data set has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrays {
    /// All that DAP2 has a type for.
    All,
    /// Only those that clients can read. netCDF-C reads all small variables in one request, so a
    /// single element that DAP2 cannot express would cost it all of them.
    Readable,
}

impl<'s> DataSet<'s> {
    /// Returns the data set of a node.
    pub fn of(source: &ViewSource<'s>, arrays: Arrays) -> Result<Self> {
        let mut dataset = cf::CfDataset::with_forms(source, &mut form)?;
        let other = |variable: &cf::Variable<'s>| variable.source.path() != source.path();
        let found = dataset.variables.iter().filter(|variable| other(variable));
        let found = found.filter_map(|one| Some((one.name.clone(), unfit(one)?)));
        let unfit: HashMap<String, Error> = found.collect();
        if arrays == Arrays::Readable {
            dataset.leave_out(|variable| {
                other(variable).then(|| unfit.get(&variable.name).cloned()).flatten()
            });
            leave_out_empty(&mut dataset, other);
        }
        if source.kind() == NodeKind::Group {
            for group in source.children()?.nodes {
                if group.kind() == NodeKind::Group {
                    let reason = "it is a group, and a DAP2 data set holds the arrays of one group";
                    dataset.left_out.push((group.name().to_owned(), Error::unsupported(reason)));
                }
            }
        }
        let attributes = dataset.global_attributes();
        let cf::CfDataset { dimensions, variables, .. } = dataset;
        let variables = variables.into_iter().map(Variable::of).collect::<Result<Vec<_>>>()?;
        let dimension_identifiers = Vec::new();
        let name = source.name().to_owned();
        let mut dataset = Self { name, dimensions, dimension_identifiers, variables, attributes };
        dataset.find_maps(|variable| !unfit.contains_key(&variable.name));
        dataset.find_identifiers();
        Ok(dataset)
    }

    /// Finds the coordinates of each variable among those that `may_be` maps: a Grid with one that
    /// cannot be read could not be read, either.
    fn find_maps(&mut self, may_be: impl Fn(&Variable<'_>) -> bool) {
        let mut coordinates = HashMap::new();
        for (number, variable) in self.variables.iter().enumerate() {
            if let [dimension] = variable.dimensions.as_slice()
                && self.dimensions.get(*dimension).is_some_and(|one| one.name == variable.name)
                && may_be(variable)
            {
                coordinates.insert(*dimension, number);
            }
        }
        for (number, variable) in self.variables.iter_mut().enumerate() {
            let maps = variable.dimensions.iter().map(|dimension| coordinates.get(dimension));
            let maps: Option<Vec<usize>> = maps.map(Option::<&usize>::copied).collect();
            let mut maps = maps.unwrap_or_default();
            // The maps of a Grid have different names.
            let mut sorted = maps.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if sorted.len() != maps.len() || maps == [number] {
                maps.clear();
            }
            variable.maps = maps;
        }
    }

    /// Gives each variable and dimension an identifier. A dimension and its coordinates share one.
    fn find_identifiers(&mut self) {
        let variables = self.variables.iter().map(|variable| variable.name.as_str());
        let dimensions = self.dimensions.iter().map(|dimension| dimension.name.as_str());
        let found = identifiers(variables.chain(dimensions));
        let of = |name: &str| found.get(name).cloned().unwrap_or_default();
        self.dimension_identifiers = self.dimensions.iter().map(|one| of(&one.name)).collect();
        for variable in &mut self.variables {
            variable.identifier = of(&variable.name);
        }
    }
}

impl<'s> Variable<'s> {
    fn of(variable: cf::Variable<'s>) -> Result<Self> {
        let cf::Variable { name, dimensions, mut attributes, source, .. } = variable;
        let stored = source.array()?.model().dtype.clone();
        let dtype = with_sign(&stored, &attributes);
        if dtype != stored {
            attributes.retain(|one| one.name != UNSIGNED || dtype == DType::Uint(1));
            for attribute in attributes.iter_mut().filter(|one| one.is_of_the_type) {
                if let AttributeValues::Numbers(of, ..) = &mut attribute.values {
                    *of = dtype.clone();
                }
            }
        }
        let wire = Wire::of(&dtype).ok_or_else(|| no_type(&dtype))?;
        // netCDF-C reads unsigned numbers as signed ones, and then needs the attribute.
        let is_unsigned = matches!(dtype, DType::Uint(1 | 2 | 4));
        if is_unsigned && attributes.iter().all(|one| one.name != UNSIGNED) {
            attributes.push(Attribute::text(UNSIGNED, "true"));
        }
        let (identifier, maps) = (String::new(), Vec::new());
        Ok(Self { name, identifier, dtype, wire, dimensions, maps, attributes, source })
    }

    /// Returns the elements, to read chunks.
    pub fn elements(&self) -> Result<ElementRange> {
        Ok(ElementRange::of_chunks(self.source.path(), self.source.array()?))
    }
}

/// Returns the type of elements with the sign that the attribute [`UNSIGNED`] gives them, if their
/// width is not that of the type in DAP2: the attribute would not be about that one.
fn with_sign(dtype: &DType, attributes: &[Attribute]) -> DType {
    let sign = attributes.iter().find(|one| one.name == UNSIGNED).map(|one| &one.values);
    let Some(AttributeValues::Text(sign)) = sign else { return dtype.clone() };
    match (dtype, sign.as_str()) {
        (DType::Int(len @ (1 | 8)), "true") => DType::Uint(*len),
        (DType::Uint(8), "false") => DType::Int(8),
        _ => dtype.clone(),
    }
}

/// Returns the error of the first element that DAP2 cannot express, or that cannot be read. Reads
/// only small arrays: clients read each of the others by itself, and get its error.
fn unfit(variable: &cf::Variable<'_>) -> Option<Error> {
    let array = variable.source.array().ok()?;
    let dtype = with_sign(&array.model().dtype, &variable.attributes);
    if !matches!(dtype, DType::Int(8) | DType::Uint(8) | DType::Time(_)) {
        return None;
    }
    let axes = array.model().shape.iter().map(|len| SelectedAxis::all(*len)).collect();
    let elements = ElementRange::of_chunks(variable.source.path(), array);
    let slab = Hyperslab::new(elements, axes);
    let count = slab.count().filter(|count| *count <= MAX_SMALL)?;
    match slab.items(0, count, variable.source.get_chunk()) {
        Ok(items) => items.chunks_exact(8).find_map(|item| double(&dtype, item).err()),
        Err(error) => Some(error),
    }
}

/// Leaves out variables without elements: netCDF-C does not show them, and reads others wrongly.
fn leave_out_empty<'s>(
    dataset: &mut cf::CfDataset<'s>,
    may_leave_out: impl Fn(&cf::Variable<'s>) -> bool,
) {
    let empty: Vec<bool> = dataset.dimensions.iter().map(|dimension| dimension.len == 0).collect();
    let is_empty = |number: &usize| empty.get(*number).copied().unwrap_or_default();
    dataset.leave_out(|variable| {
        let reason = "it has no elements, which clients of DAP2 cannot read beside others";
        let is_out = may_leave_out(variable) && variable.dimensions.iter().any(is_empty);
        is_out.then(|| Error::unsupported(reason))
    });
}

/// Returns the form of an array in DAP2.
fn form(source: &ViewSource<'_>) -> Result<FileElements> {
    let dtype = &source.array()?.model().dtype;
    let with_utf8 = || {
        let mut form = FileElements::elements(DType::String);
        form.added.push(Attribute::text(ENCODING, "utf-8"));
        form
    };
    match dtype {
        DType::Utf32(_) | DType::String => Ok(with_utf8()),
        DType::Bytes(_) => Ok(FileElements::elements(DType::String)),
        DType::Float(2) => Ok(FileElements::elements(DType::Float(4))),
        DType::Bool => {
            let form = FileElements::of(source, &mut ConversionBudget::default())?;
            Ok(FileElements { dtype: DType::Uint(1), ..form })
        }
        DType::Int(_) | DType::Uint(_) | DType::Float(_) | DType::Time(_) => {
            FileElements::of(source, &mut ConversionBudget::default())
        }
        other => Err(no_type(other)),
    }
}

fn no_type(dtype: &DType) -> Error {
    Error::unsupported(format!("DAP2 has no type for {}", dtype.name()))
}
