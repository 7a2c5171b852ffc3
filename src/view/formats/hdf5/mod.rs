//! HDF5, either plain (`h5`) or in the layout of netCDF-4 (`nc4`).

mod attributes;
mod elements;
mod file;
mod h5;
mod heap;
mod message;
mod nc4;
mod record;
mod scales;
mod strings;

pub(super) use h5::build as build_h5;
pub(super) use nc4::build as build_nc4;
