//! The requests to a server of objects, one method for each.
//!
//! A request returns at once and reports later, so that a few threads can have many requests under
//! way. What reports is any thread of the server's client: it must not wait.

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use bytes::Bytes;

use crate::{ByteRange, Condition, Key, Omissions, Prefix, Stat, StoreEntry, Value};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::waiting;

/// Receives the result of a request.
pub type Report<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// A part of a listing.
#[derive(Debug, Clone, Default)]
pub struct ListingPage {
    /// The entries directly below the prefix. A value has its stat.
    pub entries: Vec<(StoreEntry, Option<Stat>)>,
    /// Where the listing continues; `None` at its end.
    pub next: Option<Continuation>,
}

/// Where a listing continues: a name that only the server understands.
pub type Continuation = String;

/// Where a listing starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// With the first key.
    First,
    /// Where a page ended.
    Continue(Continuation),
}

/// How deep a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The entries directly below the prefix.
    Directory,
    /// Every key, as the part after the prefix.
    All,
}

/// A server of objects. Keys are relative to the root of the store.
pub trait Server: Send + Sync + fmt::Debug {
    /// Gets the bytes of a range, or of the whole value; `None` if the key has no value.
    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>);

    /// Puts the concatenated `bytes` as a value, and reports its stat. [`Kind::Exists`] or
    /// [`Kind::Stale`] if the condition does not hold.
    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition, report: Report<Stat>);

    /// Deletes values, and skips keys without one.
    fn delete(&self, keys: &[Key], report: Report<()>);

    /// Whether it lists all keys below a prefix ([`Depth::All`]).
    fn lists_subtrees(&self) -> bool {
        true
    }

    /// Whether a name that its listings do not have is not there. Web servers hide some.
    fn proves_absence(&self) -> bool {
        true
    }

    /// Returns how long it has shown no sign of its work while requests were under way.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the account of what its listings leave out.
    fn omissions(&self) -> Omissions {
        Omissions::default()
    }

    /// Ends all requests: those under way are not answered, and no more are made.
    fn stop(&self);

    /// Lists keys below `prefix`, in the order of their text, as many as one answer has.
    fn list(&self, prefix: &Prefix, depth: Depth, start: Start, report: Report<ListingPage>);

    /// Whether a value with this stat has an entity tag; `None` if values have none.
    fn has_tag(&self, _stat: &Stat, _tag: &str) -> Option<bool> {
        None
    }

    /// Whether the version in a stat changes with the value. Otherwise two requests for parts of a
    /// value may bring those of different ones.
    fn has_version(&self, _stat: &Stat) -> bool {
        true
    }
}

/// Waits for one request.
pub(crate) fn wait<T: Send + 'static>(request: impl FnOnce(Report<T>)) -> Result<T> {
    let (tell, told) = mpsc::sync_channel(1);
    // If the channel is closed, its reader has gone.
    request(Box::new(move |result| drop(tell.send(result))));
    receive(&told)
}

/// Waits for what a request reports, as long as the program lives for which this thread works.
pub(super) fn receive<T>(told: &Receiver<Result<T>>) -> Result<T> {
    loop {
        match told.recv_timeout(waiting::INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => waiting::check()?,
            Err(RecvTimeoutError::Disconnected) => return Err(ended()),
        }
    }
}

/// Returns the error of a request that was dropped.
pub(super) fn ended() -> Error {
    Error::new(Kind::Os(libc::EIO), "the request was given up, since the mount ends")
}
