//! TIFF 6 and BigTIFF, for `tif` and `ome.tif`: directories of entries, followed by the elements
//! that they refer to.

mod directory;
mod geo;
mod hyperstack;
mod ome;
mod ome_xml;
mod page;

pub(super) use hyperstack::build as tif;
pub(super) use ome::build as ome_tif;
