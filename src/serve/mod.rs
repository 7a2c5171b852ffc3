//! The tree of files over HTTP, read-only (RFC 9110 and 9112). Like `fuse`, it translates requests
//! to calls of `vfs`; it is the only module that uses hyper.
//!
//! A request goes through `request`, which checks the token, the host and the method, and finds
//! the file. `file` answers for a file, with ranges and conditions; `listing` and `page` answer for
//! a directory (`names` has the order, `offers` the formats of a node), `preview` draws an array,
//! and `opendap` answers for a data set. Calls that may read the store run on threads of their own
//! (`tree`). A body is produced block by block while the client takes it (`body`), so memory does
//! not depend on the length of a file. No client waits for another one that does not ask, or does
//! not take its answer (`client`).
//!
//! The cargo feature `serve` is a part of the default build, although it needs an async runtime:
//! that is there already for object stores.

mod body;
mod client;
mod conditions;
mod file;
mod listing;
mod names;
mod offers;
mod opendap;
mod page;
mod paths;
mod preview;
mod range;
mod reply;
mod request;
mod server;
mod tree;

pub use server::{Bound, ServeOptions, Stopper};
