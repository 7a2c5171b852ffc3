//! Places for values that are on their way: below `.zarrfs`, where no dialect has nodes or chunks.
//!
//! A change that takes several values has one of its own. What is stored there at [`Aside::declaration`] says what is
//! being changed, so that whoever finds it after its writer was killed can finish or undo it.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::store::{Key, Prefix};

/// Where what belongs to zarrfs, and not to the hierarchy, lies in a store.
pub const PRIVATE: &str = ".zarrfs";

/// A place in the store that nobody else touches until this is dropped. What lies there then is
/// [abandoned](super::WritableStore::abandoned).
#[derive(Clone)]
pub struct Aside {
    prefix: Prefix,
    /// What keeps others away.
    _held: Arc<dyn fmt::Debug + Send + Sync>,
}

impl Aside {
    /// A place that is its holder's for as long as `held` is there.
    pub fn new(prefix: Prefix, held: Box<dyn fmt::Debug + Send + Sync>) -> Self {
        Self { prefix, _held: Arc::from(held) }
    }

    /// Where its values lie.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Where it is stored what it is for.
    pub fn declaration(&self) -> Result<Key> {
        self.prefix.key("change")
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aside({})", self.prefix)
    }
}
