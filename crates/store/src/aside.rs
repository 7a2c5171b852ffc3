//! Places for temporary values: below `.zarrfs`, where no dialect has nodes or chunks.
//!
//! Every change of several values has its own place. The value at [`Aside::declaration`] describes
//! the change, so that another mount can finish or undo it if its writer was killed.

use std::fmt;
use std::sync::Arc;

use crate::key::{Key, Prefix};
use zarrfs_base::error::Result;

/// The directory of a store for files of zarrfs that are no part of the hierarchy.
pub const PRIVATE: &str = ".zarrfs";

/// A place in the store that no other writer touches until this is dropped. Values that are still
/// there afterwards count as [abandoned](super::WritableStore::abandoned).
#[derive(Clone)]
pub struct Aside {
    prefix: Prefix,
    /// The lock that keeps other writers away.
    _guard: Arc<dyn fmt::Debug + Send + Sync>,
}

impl Aside {
    /// Returns a place that stays reserved until `guard` is dropped.
    pub fn new(prefix: Prefix, guard: Box<dyn fmt::Debug + Send + Sync>) -> Self {
        Self { prefix, _guard: Arc::from(guard) }
    }

    /// Returns the prefix of its values.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Returns the key of the declaration.
    pub fn declaration(&self) -> Result<Key> {
        self.prefix.key("change")
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aside({})", self.prefix)
    }
}
