//! zarrfs mounts a Zarr hierarchy as a file system.
//!
//! Five members of the workspace have what other programs can use, too. This crate exports their
//! modules beside its own:
//!
//! | member | modules |
//! | ------ | ------- |
//! | `zarrfs-base` | up to [`parallel`] |
//! | `zarrfs-codec` | [`shard`], [`json`], [`dtype`] and [`codec`] |
//! | `zarrfs-store` | [`store`] and [`backing`] |
//! | `zarrfs-files` | [`files`] |
//! | `zarrfs-hierarchy` | [`metadata`], [`array`](mod@array), [`hierarchy`], [`cache`], [`stats`] |
//!
//! The modules form a line: each imports only those before it (`tests/it/layering.rs`):
//!
//! | module | contents |
//! | ------ | ------------ |
//! | [`width`] | exact conversions between `usize` and `u64` |
//! | [`printable`] | text of a hierarchy as a person may read it |
//! | [`error`] | the one error type |
//! | [`sys`] | the only unsafe code: system calls that std does not have |
//! | [`waiting`] | the program that a thread works for, and whether it still waits |
//! | [`bounded`] | maps with a limit in bytes |
//! | [`budget`] | the memory of a mount, which its users share |
//! | [`buffer`] | the bytes of chunks, in reused memory |
//! | [`resources`] | the memory, open files and threads of this process |
//! | [`limits`] | how much a hierarchy may require of this process |
//! | [`pool`] | threads, and the tasks that wait for them |
//! | [`admission`] | the memory that decoding and encoding take while they go on |
//! | [`parallel`] | work on chunks that several processors share |
//! | [`store`] | from keys to bytes: the abstract store interface, directory and memory |
//! | [`backing`] | files that the kernel reads directly (passthrough) |
//! | [`shard`] | the index of a shard and its assembly |
//! | [`json`] | metadata files as they are stored, also if they are not strict JSON |
//! | [`dtype`] | data types and fill values |
//! | [`codec`] | codecs, and pipelines that bind them to one chunk shape |
//! | [`files`] | files of other formats as references |
//! | [`metadata`] | dialects: from metadata files to one model and back |
//! | [`array`](mod@array) | from coordinates to decoded chunks |
//! | [`hierarchy`] | nodes by path |
//! | [`cache`] | decoded chunks, bounded |
//! | [`times`] | times in units since a moment, in all calendars |
//! | [`convert`] | copies of hierarchies in another dialect or form |
//! | [`check`] | damage in metadata, keys and chunks, and its repair |
//! | [`import`] | values of other hierarchies into arrays that exist |
//! | [`diff`] | differences between two hierarchies |
//! | [`view`] | a node as one file in a format other than Zarr, or as rows of a table |
//! | [`selection`] | the elements of each dimension that a region has |
//! | [`cut`] | a part of a hierarchy as a hierarchy of its own |
//! | [`rewrite`] | a new file in the place of such a file |
//! | `dap` | a node as a data set of OPeNDAP, with the feature `serve` |
//! | [`stats`] | statistics of the elements of an array |
//! | [`raster`] | a slice of an array for a picture, with few elements |
//! | [`picture`] | from numbers to pictures on a terminal |
//! | [`vfs`] | the tree: names, inodes, handles, unstored bytes |
//! | [`fuse`] | kernel requests |
//! | `serve` | the tree over HTTP, with the feature of that name |
//! | [`cli`] | the command |

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

pub mod check;
pub mod cli;
pub mod convert;
pub mod cut;
#[cfg(feature = "serve")]
pub mod dap;
pub mod diff;
pub mod fuse;
pub mod import;
pub mod picture;
pub mod raster;
pub mod rewrite;
pub mod selection;
#[cfg(feature = "serve")]
pub mod serve;
pub mod times;
pub mod vfs;
pub mod view;

#[cfg(test)]
#[cfg(feature = "remote")]
#[path = "../crates/store/testing/server.rs"]
#[expect(dead_code, reason = "tests of the store use the rest")]
mod memory_server;

pub use zarrfs_base::{
    admission, bounded, budget, buffer, error, limits, parallel, pool, printable, resources, sys,
    waiting, width,
};
pub use zarrfs_codec as codec;
pub use zarrfs_codec::{dtype, json, shard};
pub use zarrfs_files as files;
pub use zarrfs_hierarchy::{array, cache, hierarchy, metadata, stats};
pub use zarrfs_store as store;
pub use zarrfs_store::backing;
