//! DAP2 (OPeNDAP): answers to the requests by which netCDF libraries read arrays from a server.
//!
//! A URL such as `NODE.dods?t2m[0:2:10]` has a [`AnswerKind`] (its extension) and a constraint (its
//! query). [`answer`] returns the [`DapAnswer`], and the server only sends its bytes. The data set
//! is that of the `nc` view: an array with its coordinates, or the arrays of a group.
//!
//! | kind | contents |
//! | ---- | -------- |
//! | `dds` | types, names and dimensions, after the constraint |
//! | `das` | attributes, whatever the constraint |
//! | `dods` | the `dds`, the line `Data:`, and the elements in XDR |
//! | `ascii` | the `dds`, and the elements as decimal numbers |
//!
//! DAP2 has fewer types than Zarr. An element never changes its value:
//!
//! | Zarr | DAP2 |
//! | ---- | ---- |
//! | uint8, bool | Byte |
//! | int8, int16 | Int16 |
//! | uint16, int32, uint32, float32, float64 | the same |
//! | float16 | Float32 |
//! | int64, uint64 | Float64; an element beyond 2^53 is an error |
//! | times and spans | Float64; an element that a double does not hold exactly is an error |
//! | strings, fixed or variable | String |
//!
//! Arrays of other types are left out, and the global attribute `zarrfs_left_out` lists them. A
//! small array of a group is also left out if one of its elements is an error, unless a constraint
//! names it.
//!
//! - [The standard](https://www.earthdata.nasa.gov/s3fs-public/imported/ESE-RFC-004v1.1.pdf):
//!   ESE-RFC-004.
//! - [XDR](https://www.rfc-editor.org/rfc/rfc4506): the encoding of numbers and strings.

mod answer;
mod ascii;
mod constraint;
mod das;
mod dataset;
mod dds;
mod error;
mod hyperslab;
mod names;
mod select;
mod xdr;

pub use answer::{AnswerKind, DapAnswer, answer};
pub use error::{DapCode, DapError};

#[cfg(test)]
mod tests;
