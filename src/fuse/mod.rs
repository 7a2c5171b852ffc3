//! Kernel requests to the tree, and errors to errno: the only module that names fuser.
//!
//! It does not know Zarr. What may take time (decoding, encoding, storing) goes to a
//! pool and is answered from there, so that look-ups go on meanwhile. Every request
//! goes through `answer`, where a panic costs the request and not the mount.

mod answer;
mod fs;
mod listing;
mod passthrough;
mod requests;
mod session;
mod terms;

pub use session::{MountOptions, Mounted, Others, mount};

/// What the log lines of the protocol library begin their target with.
pub const LOG_TARGET: &str = "fuser";

#[cfg(test)]
mod tests;
