//! Zarr hierarchies in every dialect: arrays by coordinates, nodes by path.
//!
//! | module | contents |
//! | ------ | ------------ |
//! | [`metadata`] | dialects: from metadata files to one model and back |
//! | [`array`](mod@array) | from coordinates to decoded chunks |
//! | [`hierarchy`] | nodes by path |
//! | [`cache`] | decoded chunks, bounded |
//! | [`stats`] | statistics of the elements of an array |

#![deny(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::let_underscore_must_use,
        clippy::needless_pass_by_value,
        clippy::unnecessary_wraps,
        clippy::too_many_lines,
        reason = "tests compute with small numbers, and may throw results away"
    )
)]

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod array;
pub mod cache;
#[cfg(test)]
#[path = "../../store/testing/counting.rs"]
mod counting;
pub mod hierarchy;
pub mod metadata;
pub mod stats;
#[cfg(test)]
#[path = "../testing/mod.rs"]
mod testing;
