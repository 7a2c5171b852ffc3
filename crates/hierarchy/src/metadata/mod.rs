//! Dialects: metadata files in all their forms, translated to one model and back.
//!
//! A dialect determines where metadata files and chunks lie ([`Dialect::document_keys`],
//! [`Dialect::chunk_prefix`]), what metadata files mean ([`Dialect::lower`]), and how they are
//! created ([`Dialect::new_document`]) and changed in their own spelling ([`Dialect::edit`]). No
//! module above this one can tell dialects apart. Only [`detect`] and [`skim`] read a store here.
//!
//! Each dialect has two files: `v3`, `v2`, `n5`, `draft` and `d2023` lower metadata files to the
//! model, and the files in `create` make new ones. An `Era` of the drafts only knows where metadata
//! files and chunks lie. `conventions` has what depends on the version of the format and not on the
//! syntax of a dialect.
//!
//! Zarr 2 splits the metadata of a node into two files, with the attributes in `.zattrs`. `join`
//! makes one string of both and keeps every byte; `split` undoes it. So reading, editing and
//! creating work on one string with a member `attributes`.

pub mod merge;
pub mod model;
pub mod ome;
pub mod path;
pub mod policy;
pub mod shown;
pub mod wanted;
pub mod zarr2;

mod beside_bytes;
mod codecs;
pub mod consolidated;
mod conventions;
mod create;
mod d2023;
mod detect;
mod dialect;
mod draft;
mod era;
mod hints;
mod joined;
mod members;
mod n5;
mod others;
mod packing;
mod rectilinear;
pub mod skim;
mod types;
mod v2;
mod v3;

/// The names of metadata files, but for those of the drafts, which have the names of their nodes.
pub const DOCUMENT_NAMES: [&str; 6] =
    [v3::DOCUMENT, v2::ZGROUP, v2::ZARRAY, v2::ZATTRS, v2::ZMETADATA, n5::DOCUMENT];

pub use conventions::{DIMENSIONS, FILL, coded_fill, decoded_fill as masked_value, masks_nothing};
pub use create::NewDocument;
pub use detect::{declared, detect, draft_root_marker, states_version};
pub use dialect::{Child, Dialect};
pub use era::{Draft, Era};
pub use hints::{Hints, hints};
pub use joined::{join, split};
pub use model::{Lowered, NodeKind};
pub use ome::{axes_of, image_axes, system_name};
pub use others::OtherFile;
pub use packing::{Packing, shown_attribute, shown_attributes};
pub use path::NodePath;
pub use policy::{Policy, Shards};
pub use rectilinear::chunk_shapes;
pub use v3::Departure;

/// Parses a typestring of NumPy or a list of fields. Returns the type, and its byte order in the
/// form of the codec `bytes`.
#[cfg(test)]
pub(crate) fn numpy_type(
    value: &serde_json::Value,
) -> (zarrfs_codec::dtype::DType, serde_json::Value) {
    let (dtype, endian) = types::data_type(value).expect("a type of numpy");
    (dtype, endian.unwrap_or(types::Endian::Little).to_json())
}

#[cfg(test)]
mod tests;
