//! TIFF 6 and BigTIFF: directories of entries, before the elements that they refer to. `tif` and
//! `ome.tif` use them.

mod directory;
mod hyperstack;
mod ome;
mod ome_xml;
mod page;

pub(super) use hyperstack::build as tif;
pub(super) use ome::build as ome_tif;
