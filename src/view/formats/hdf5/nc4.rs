//! `nc4`: the data set that [`cf`](crate::view::cf) makes of a group, in HDF5. Each dimension is a
//! scale.
//!
//! [netCDF-4](https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html#netcdf_4_spec)

use std::collections::HashSet;

use super::attributes::{Texts, describe, numbers};
use super::elements::stored;
use super::file::{ElementsLocation, Hdf5Dataset, Hdf5File, Object, ObjectContent};
use super::message;
use super::scales::{add_scale, make_scale, refer};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::view::cf::{self, AttributeValues, Data, Dimension, Many, Variable, distinct};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// The prefix of a variable that has the name of a dimension but is not its coordinates. netCDF
/// removes it from the start of names, and h5netcdf from anywhere in a name.
const NOT_A_COORDINATE: &str = "_nc4_non_coord_";

/// Replaces [`NOT_A_COORDINATE`] in the names of nodes and dimensions.
const FREE: &str = "_nc4_non_coord-";

/// A file under construction.
#[derive(Default)]
struct Netcdf {
    file: Hdf5File,
    /// The number of the next dimension; all groups share the count.
    dimension_count: u32,
    variable_count: usize,
    /// The attributes of variables that differ from those of their arrays.
    changes: Vec<(NodePath, String)>,
}

pub(in crate::view::formats) fn build(source: &ViewSource<'_>) -> Result<View> {
    let mut netcdf = Netcdf::default();
    let mut left_out = LeftOutOfView::default();
    netcdf.group(source, source.path(), &mut left_out, 0)?;
    if netcdf.variable_count == 0 && !left_out.nodes().is_empty() {
        return Err(Error::unsupported(left_out.lines().collect::<Vec<_>>().join("; ")));
    }
    Ok(netcdf.file.into_view()?.with_left_out(left_out))
}

impl Netcdf {
    /// Adds a group and all nodes below it. An array becomes a group that contains it.
    fn group(
        &mut self,
        source: &ViewSource<'_>,
        root: &NodePath,
        left_out: &mut LeftOutOfView,
        depth: usize,
    ) -> Result<usize> {
        let number = self.file.add(Object::group());
        self.file.check_count(depth)?;
        let mut dataset = cf::CfDataset::of(source, &mut self.file.room)?;
        dataset.leave_out(|variable| {
            let fits = message::dataspace(&vec![1; variable.dimensions.len()]);
            fits.err()
        });
        let children = match source.kind() {
            NodeKind::Group => source.children()?.nodes,
            NodeKind::Array => Vec::new(),
        };
        let groups: Vec<_> =
            children.iter().filter(|child| child.kind() == NodeKind::Group).collect();
        let names = groups.iter().map(|group| group.name());
        let names =
            distinct(names, &mut HashSet::new(), &HashSet::new(), |name| free(&cf::clean(name)));
        name_members(&mut dataset, &names.iter().cloned().collect());
        let scales = self.scales(number, &dataset)?;
        for variable in &dataset.variables {
            if coordinate_of(variable, &dataset.dimensions).is_none() {
                let object = self.variable(variable, &dataset.dimensions)?;
                let is_taken = dataset.dimensions.iter().any(|one| one.name == variable.name);
                let before = if is_taken { NOT_A_COORDINATE } else { "" };
                let name = format!("{before}{}", variable.name);
                self.file.link(number, &name, object);
                let of_variable = variable.dimensions.iter();
                let of_variable: Vec<_> =
                    of_variable.filter_map(|number| scales.get(*number).copied()).collect();
                refer(&mut self.file, object, &of_variable)?;
            }
            self.variable_count = self.variable_count.saturating_add(1);
        }
        let all = dataset.global_attributes();
        for what in describe(&mut self.file, number, all, Texts::Fixed)? {
            left_out.add_property(root, source.path(), what);
        }
        for (path, what) in std::mem::take(&mut self.changes) {
            left_out.add_property(root, &path, what);
        }
        for (name, error) in &dataset.left_out {
            left_out.add(root, source.path(), name, error);
        }
        dataset.list_changes(root, source.path(), None, left_out);
        for (name, group) in names.iter().zip(&groups).filter(|(name, group)| *name != group.name())
        {
            left_out.add_property(root, group.path(), format!("name {} (as {name})", group.name()));
        }
        for (name, group) in names.iter().zip(groups) {
            let object = self.group(group, root, left_out, depth.saturating_add(1))?;
            self.file.link(number, name, object);
        }
        Ok(number)
    }

    /// Adds the scale of each dimension of a group. A dimension's coordinates, if it has some, are
    /// its scale.
    fn scales(&mut self, group: usize, dataset: &cf::CfDataset<'_>) -> Result<Vec<usize>> {
        let mut scales = Vec::new();
        for (number, dimension) in dataset.dimensions.iter().enumerate() {
            let own = |variable: &&Variable<'_>| {
                coordinate_of(variable, &dataset.dimensions) == Some(number)
            };
            let object = if let Some(variable) = dataset.variables.iter().find(own) {
                let object = self.variable(variable, &dataset.dimensions)?;
                make_scale(&mut self.file, object, &dimension.name)?;
                object
            } else {
                add_scale(&mut self.file, dimension)?
            };
            self.file.link(group, &dimension.name, object);
            let id = self.dimension_count.to_le_bytes();
            self.dimension_count = self.dimension_count.saturating_add(1);
            self.file.describe(object, numbers("_Netcdf4Dimid", &DType::Int(4), &id, Many::No)?);
            scales.push(object);
        }
        Ok(scales)
    }

    /// Adds a variable, without its dimensions.
    fn variable(&mut self, variable: &Variable<'_>, dimensions: &[Dimension]) -> Result<usize> {
        self.file.check_count(0)?;
        let lens = variable.dimensions.iter().filter_map(|number| dimensions.get(*number));
        let shape: Vec<u64> = lens.map(|dimension| dimension.len).collect();
        let rank = variable.source.array()?.model().shape.len();
        let elements = match &variable.data {
            Data::Values(values) => ElementsLocation::Contiguous(Part::from(values.clone())),
            Data::Elements => stored(&variable.source, shape.get(rank).copied())?,
        };
        let fill = variable.attributes.iter().find_map(|one| match &one.values {
            AttributeValues::Numbers(_, bytes, _) if one.name == crate::metadata::FILL => {
                Some(bytes.clone())
            }
            _ => None,
        });
        let dtype = message::datatype(&variable.dtype)?;
        let content =
            ObjectContent::Dataset(Hdf5Dataset { dtype, shape: Some(shape), fill, elements });
        let number = self.file.add(Object { attributes: Vec::new(), content });
        let all = variable.attributes.clone();
        for what in describe(&mut self.file, number, all, Texts::Fixed)? {
            self.changes.push((variable.source.path().clone(), what));
        }
        Ok(number)
    }
}

/// Returns a name without the prefix that netCDF removes.
fn free(name: &str) -> String {
    name.replace(NOT_A_COORDINATE, FREE)
}

/// Renames dimensions and variables whose names netCDF would change, or that one of the `groups`
/// beside them has.
fn name_members(dataset: &mut cf::CfDataset<'_>, groups: &HashSet<String>) {
    let coordinates: Vec<Option<usize>> =
        dataset.variables.iter().map(|one| coordinate_of(one, &dataset.dimensions)).collect();
    let others = dataset.variables.iter().zip(&coordinates);
    let others = others.filter(|(_, number)| number.is_none()).map(|(one, _)| one.name.clone());
    let names = dataset.dimensions.iter().map(|dimension| dimension.name.as_str());
    let names = distinct(names, &mut groups.clone(), &others.collect(), free);
    for (dimension, name) in dataset.dimensions.iter_mut().zip(names) {
        dimension.name = name;
    }
    let mut taken = groups.clone();
    for (variable, number) in dataset.variables.iter_mut().zip(&coordinates) {
        if let Some(dimension) = number.and_then(|number| dataset.dimensions.get(number)) {
            variable.name.clone_from(&dimension.name);
            taken.insert(variable.name.clone());
        }
    }
    let of_dimensions = dataset.dimensions.iter().map(|one| one.name.clone()).collect();
    let others = dataset.variables.iter_mut().zip(&coordinates);
    let mut others: Vec<_> =
        others.filter(|(_, number)| number.is_none()).map(|(one, _)| one).collect();
    let names = others.iter().map(|variable| variable.name.as_str());
    let names = distinct(names, &mut taken, &of_dimensions, free);
    for (variable, name) in others.iter_mut().zip(names) {
        variable.name = name;
    }
}

/// Returns the number of the dimension whose coordinates a variable is.
fn coordinate_of(variable: &Variable<'_>, dimensions: &[Dimension]) -> Option<usize> {
    let [number] = variable.dimensions.as_slice() else { return None };
    let dimension = dimensions.get(*number)?;
    (dimension.name == variable.name).then_some(*number)
}
