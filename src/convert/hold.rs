//! A value that one process at a time holds: the record of a change that goes on.
//!
//! It names a temporary place in the store, which belongs to the process and counts as abandoned
//! after that process dies. So only one process at a time works on a target, and another one can
//! continue after it was killed.

use bytes::Bytes;
use serde_json::Value;

use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::{Aside, Condition, Key, Prefix, Stat, Store};

/// The most bytes of a record.
const LIMIT: u64 = 16 << 20;

/// The number of attempts if other processes change the record at the same time.
const ATTEMPTS: usize = 100;

/// The member with the temporary place.
const HOLDER: &str = "holder";

/// The hold of this process on a record.
#[derive(Debug)]
pub struct Hold<'s> {
    store: &'s Store,
    key: Key,
    aside: Aside,
}

/// A record that is stored.
#[derive(Debug)]
pub struct Held {
    /// What it says.
    pub members: Value,
    /// Its stat.
    pub stat: Stat,
}

impl Held {
    /// Returns the text of a member.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.members.get(name).and_then(Value::as_str)
    }
}

impl<'s> Hold<'s> {
    /// Returns a hold for the record at `key`, which is not taken yet.
    pub fn new(store: &'s Store, key: &str) -> Result<Self> {
        let write = store.write()?;
        let aside = write.aside()?;
        let own = place_of(aside.prefix())?;
        write.set(&own, &[Bytes::new().into()], Condition::Always).at(&own)?;
        Ok(Self { store, key: Key::parse(key)?, aside })
    }

    /// Calls `take` until it has stored the record: it returns `None` if another process changed
    /// that in the meantime.
    pub fn take<T>(&self, take: impl Fn() -> Result<Option<T>>) -> Result<T> {
        for _ in 0..ATTEMPTS {
            if let Some(taken) = take()? {
                self.sync()?;
                return Ok(taken);
            }
        }
        let detail = "gave up after repeated conflicts: other programs keep changing it";
        Err(Error::new(Kind::Busy, detail).at(&self.key))
    }

    /// Returns the record that is stored.
    pub fn found(&self) -> Result<Option<Held>> {
        let found = self.store.get(&self.key, LIMIT)?;
        Ok(found.map(|value| Held {
            members: serde_json::from_slice(&value.bytes).unwrap_or_default(),
            stat: value.stat,
        }))
    }

    /// Whether another process that is still running holds the record. `abandoned` are the
    /// temporary places of dead ones.
    pub fn is_of_another(&self, found: &Held, abandoned: &[Aside]) -> Result<bool> {
        let Some(holder) = found.text(HOLDER).and_then(|text| Prefix::parse(text).ok()) else {
            return Ok(false);
        };
        let is_dead = abandoned.iter().any(|aside| *aside.prefix() == holder);
        let is_own = holder == *self.aside.prefix();
        Ok(!is_dead && !is_own && self.store.stat(&place_of(&holder)?)?.is_some())
    }

    /// Stores the record, held by this process; `None` if another process was faster.
    pub fn put(&self, mut members: Value, condition: Condition) -> Result<Option<Stat>> {
        if let Some(members) = members.as_object_mut() {
            members.insert(HOLDER.to_owned(), self.aside.prefix().as_str().into());
        }
        let text = Bytes::from(format!("{members:#}\n"));
        match self.store.write()?.set(&self.key, &[text.into()], condition) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if matches!(error.kind(), Kind::Exists | Kind::Stale) => Ok(None),
            Err(error) => Err(error.at(&self.key)),
        }
    }

    /// Erases the record.
    pub fn erase(&self) -> Result<()> {
        self.store.write()?.erase_values(std::slice::from_ref(&self.key))
    }

    /// Writes the record to disk.
    pub fn sync(&self) -> Result<()> {
        self.store.write()?.sync(std::slice::from_ref(&self.key))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let erased = self.store.write().and_then(|write| write.erase_prefix(self.aside.prefix()));
        if let Err(error) = erased {
            log::debug!("{}: {error}", self.aside.prefix());
        }
    }
}

/// Returns the key of the value that a running process has in its temporary place.
fn place_of(holder: &Prefix) -> Result<Key> {
    holder.key("convert")
}
