//! Translates kernel requests to calls of the tree, and errors to errno: the only module that uses
//! fuser.
//!
//! It does not know Zarr. Slow work (decoding, encoding, storing) goes to a pool that answers the
//! request, so that look-ups continue meanwhile. Every request goes through `answer`, so a panic
//! fails only the request.

mod answer;
mod attributes;
mod device;
mod fs;
mod listing;
mod passthrough;
mod read_log;
mod requests;
mod session;
mod terms;

pub use device::mount_device;
pub use read_log::{Answered, AnsweredRead, ReadLog};
pub use session::{MountEntry, MountOptions, MountPlace, MountUsers, Mounted, Stopper, mount};
pub use terms::{ModeChanges, Owner};

#[cfg(test)]
mod tests;
