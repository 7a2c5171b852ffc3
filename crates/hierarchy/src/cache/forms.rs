//! Keeps the forms of an array in agreement: decoded chunks, and chunks as their maker encodes
//! them.
//!
//! Each form has cached and pending chunks of its own. A change in one form drops what the others
//! have cached, and what is pending in one form is stored before another form is used.

use super::chunk_cache::ChunkCache;
use crate::array::{Array, Coords};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_store::Key;

/// Stores the pending chunks in the value of a key.
pub(super) type StoreValue = Box<dyn Fn(&Key) -> Result<()> + Send + Sync>;

impl ChunkCache {
    /// Sets the function that stores the pending chunks in a value. It is called without any lock
    /// of the cache.
    pub fn store_with(&self, store: impl Fn(&Key) -> Result<()> + Send + Sync + 'static) {
        if self.store_value.set(Box::new(store)).is_err() {
            log::debug!("the cache has a function to store values already");
        }
    }

    /// Whether chunks in the stored value of this one are pending in another form.
    pub(super) fn is_pending_elsewhere(&self, array: &Array, coords: &Coords) -> bool {
        !self.pending.is_empty()
            && array.has_other_forms()
            && array.key(coords).is_ok_and(|key| self.pending.is_of_other_form(&key, array))
    }

    /// Stores what is pending in another form in the stored value of a chunk.
    pub(super) fn settle_forms(&self, array: &Array, coords: &Coords) -> Result<()> {
        while self.is_pending_elsewhere(array, coords) {
            self.store_value_of(&array.key(coords)?)?;
        }
        Ok(())
    }

    /// Stores all that is pending in another form of an array.
    pub(super) fn settle_array(&self, array: &Array) -> Result<()> {
        if self.pending.is_empty() || !array.has_other_forms() {
            return Ok(());
        }
        self.pending.keys_of_other_forms(array).iter().try_for_each(|key| self.store_value_of(key))
    }

    fn store_value_of(&self, key: &Key) -> Result<()> {
        let unset = || Err(Error::new(Kind::Internal, "nothing stores chunks of another form"));
        self.store_value.get().map_or_else(unset, |store| store(key))
    }

    /// Forgets all stored chunks of an array, because they were replaced.
    pub fn forget_stored(&self, array: &Array) {
        self.slots.remove_all(array);
        self.changed(array);
        for other in array.other_forms() {
            self.slots.remove_all(&other);
            self.changed(&other);
        }
    }

    /// Drops what the other forms of an array have cached of a chunk that was stored.
    pub(super) fn changed_in_other_forms(&self, array: &Array, coords: &Coords) {
        if !array.has_other_forms() {
            return;
        }
        for other in array.other_forms() {
            match array.coords_in(&other, coords) {
                Some(coords) => self.slots.remove(&other, &coords),
                None => self.slots.remove_all(&other),
            }
            self.changed(&other);
        }
    }
}
