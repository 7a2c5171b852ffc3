//! HDF5, as it is (`h5`) or as netCDF-4 lays it out (`nc4`).

mod attributes;
mod elements;
mod file;
mod h5;
mod message;
mod nc4;
mod scales;

pub(super) use h5::build as build_h5;
pub(super) use nc4::build as build_nc4;
