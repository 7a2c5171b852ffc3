//! TIFF 6 and BigTIFF: directories of entries, before the elements that they point to. `tif` and
//! `ome.tif` are made of it.

mod directory;
mod hyperstack;
mod ome;
mod ome_xml;
mod page;

pub(super) use hyperstack::build as tif;
pub(super) use ome::build as ome_tif;
