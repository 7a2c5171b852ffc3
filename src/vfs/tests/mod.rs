//! The tree without a mount, over a store in memory that can be told to fail.

mod bed;
mod crash;
mod failing;
mod gather;
mod listing;
mod model;
mod names;
mod opening;
mod outdated;
#[cfg(feature = "remote")]
mod replaced;
mod storing;
mod taken;
mod tree;
