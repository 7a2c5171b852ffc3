//! Tests from outside: the layers, the command, and mounts for real.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::as_conversions,
    reason = "a test that fails panics, and calls what programs call"
)]

mod check;
mod circles;
mod closes;
mod command;
mod convert;
mod copied;
mod copied_model;
mod create;
mod dialects;
mod documents;
mod encoded;
mod english;
mod exec;
mod formats;
mod fstab;
mod fuzzed;
mod gone;
mod identity;
mod identity_model;
mod imports;
mod kernel_writes;
mod layering;
mod lengths;
mod links;
mod locks;
mod logs;
mod memory;
mod messages;
mod nodes;
mod omissions;
mod outside;
mod outside_model;
mod packages;
mod pages;
mod passthrough;
mod pictures;
mod removals;
mod replaced;
mod semantics;
mod sources;
mod status;
mod support;
mod sweeps;
mod times;
mod unmount;
mod values;
mod views;
mod vocabulary;
mod waits;
mod words;
