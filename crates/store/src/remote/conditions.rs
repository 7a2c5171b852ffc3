//! Whether a server honours the conditions of puts, which some ignore without an error.
//!
//! Changes of shards and of metadata files rely on conditions: without them, one mount would
//! overwrite what another has just stored. So they are tried out before the first such change.
//!
//! That takes four puts of one value: twice if it is absent, twice under its first version. There
//! is no put under an invented version, since a version is not always the text that the server
//! sent. The first change of a shard tries them out while it reads what it keeps.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::server::{Server, wait};
use crate::{ByteRange, Condition, Key, PRIVATE, Stat, unique};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

/// Puts values under conditions.
#[derive(Debug)]
pub(super) struct Puts {
    server: Arc<dyn Server>,
    /// Whether no one else writes, so that this process may check the conditions itself.
    is_single_writer: bool,
    /// Whether they are honoured, when that is known. Held during the requests that try it.
    are_honoured: Mutex<Option<bool>>,
    /// Values of such tries that could not be deleted yet. A leaf lock.
    left: Mutex<Vec<Key>>,
}

impl Puts {
    pub(super) fn new(server: Arc<dyn Server>, is_single_writer: bool) -> Self {
        Self { server, is_single_writer, are_honoured: Mutex::new(None), left: Mutex::default() }
    }

    /// Puts a value. [`Kind::Unsupported`] if there is a condition that the server would ignore.
    pub(super) fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition) -> Result<Stat> {
        let put = |condition| wait(|report| self.server.put(key, bytes, condition, report)).at(key);
        self.delete_left();
        if matches!(condition, Condition::Always) || self.are_honoured()? {
            return put(condition);
        }
        self.check().at(key)?;
        let found = wait(|report| self.server.get(key, Some(ByteRange::first(1)), report));
        condition.check(found.at(key)?.map(|value| value.stat.version)).at(key)?;
        put(Condition::Always)
    }

    /// Fails if conditions can be kept neither by the server nor by this process.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_single_writer || self.are_honoured()? {
            return Ok(());
        }
        Err(Error::unsupported(
            "the server ignores the conditions of changes, so that two writers could undo each \
             other's; if nothing else writes here, mount with --single-writer",
        ))
    }

    /// Whether the conditions were tried out, or another thread is doing that.
    pub(super) fn is_known(&self) -> bool {
        self.are_honoured.try_lock().is_none_or(|known| known.is_some())
    }

    /// Whether the server honours conditions, which is tried out once.
    pub(super) fn are_honoured(&self) -> Result<bool> {
        let mut known = self.are_honoured.lock();
        if let Some(known) = *known {
            return Ok(known);
        }
        // A fault that passes may look as if they were ignored.
        let found = self.try_them()? || self.try_them()?;
        log::debug!("the server {} conditions", if found { "honours" } else { "ignores" });
        Ok(*known.insert(found))
    }

    /// Tries whether the server refuses a put whose condition does not hold, and takes one whose
    /// condition holds.
    fn try_them(&self) -> Result<bool> {
        let key = Key::parse(&format!("{PRIVATE}/probe-{}", unique::text()))?;
        let put = |text: &'static str, condition| {
            let bytes = vec![Bytes::from_static(text.as_bytes())];
            wait(|report| self.server.put(&key, bytes, condition, report))
        };
        let found = tried(put).at(&key);
        self.left.lock().push(key);
        self.delete_left();
        found
    }

    /// Deletes the values of tries. What fails is tried again with the next put.
    fn delete_left(&self) {
        let left = std::mem::take(&mut *self.left.lock());
        if left.is_empty() {
            return;
        }
        if let Err(error) = wait(|report| self.server.delete(&left, report)) {
            log::debug!("what tried the conditions cannot be deleted: {error}");
            self.left.lock().extend(left);
        }
    }
}

fn tried(put: impl Fn(&'static str, Condition) -> Result<Stat>) -> Result<bool> {
    let first = put("one", Condition::Absent)?;
    let is_refused = |put: Result<Stat>| match put {
        Ok(_) => Ok(false),
        Err(error) if matches!(error.kind(), Kind::Exists | Kind::Stale) => Ok(true),
        Err(error) if error.kind() == Kind::Unsupported => Ok(false),
        Err(error) => Err(error),
    };
    // Some servers refuse every version, so one that is there must be taken.
    Ok(is_refused(put("two", Condition::Absent))?
        && !is_refused(put("three", Condition::Unchanged(first.version)))?
        && is_refused(put("four", Condition::Unchanged(first.version)))?)
}
