//! zarrfs mounts a Zarr hierarchy as a file system.
//!
//! The modules form a line: each imports only those before it (`tests/it/layering.rs`):
//!
//! | module | contents |
//! | ------ | ------------ |
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
//! | [`metadata`] | dialects: from metadata files to one model and back |
//! | [`array`](mod@array) | from coordinates to decoded chunks |
//! | [`hierarchy`] | nodes by path |
//! | [`cache`] | decoded chunks, bounded |
//! | [`convert`] | copies of hierarchies in another dialect or form |
//! | [`check`] | damage in metadata, keys and chunks, and its repair |
//! | [`diff`] | differences between two hierarchies |
//! | [`view`] | a node as one file in a format other than Zarr |
//! | [`dap`] | a node as a data set of OPeNDAP, for a server |
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

pub mod admission;
pub mod array;
pub mod backing;
pub mod bounded;
pub mod budget;
pub mod buffer;
pub mod cache;
pub mod check;
pub mod cli;
pub mod codec;
pub mod convert;
pub mod dap;
pub mod diff;
pub mod dtype;
pub mod error;
pub mod fuse;
pub mod hierarchy;
pub mod json;
pub mod limits;
pub mod metadata;
pub mod parallel;
pub mod picture;
pub mod pool;
pub mod printable;
pub mod raster;
pub mod resources;
#[cfg(feature = "serve")]
pub mod serve;
pub mod shard;
pub mod stats;
pub mod store;
pub mod sys;
pub mod vfs;
pub mod view;
pub mod waiting;
