//! The parts that all members of zarrfs share. Nothing here knows Zarr.
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

pub mod admission;
pub mod bounded;
pub mod budget;
pub mod buffer;
pub mod error;
pub mod limits;
pub mod parallel;
pub mod pool;
pub mod printable;
pub mod resources;
pub mod sys;
pub mod waiting;
pub mod width;
