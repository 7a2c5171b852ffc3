//! New values of arrays that could not all be stored.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::intent::ReplacedValues;
use crate::metadata::NodePath;
use zarrfs_base::error::Result;
use zarrfs_store::Aside;

/// Changes that were declared and then failed. Each is finished before anything else changes its
/// arrays, because it would replace newer values later.
#[derive(Debug, Default)]
pub struct UnfinishedValues {
    /// Whether there are any.
    is_any: AtomicBool,
    /// Held while one is finished.
    all: Mutex<Vec<(ReplacedValues, Aside)>>,
}

impl UnfinishedValues {
    /// Adds one.
    pub(super) fn add(&self, values: ReplacedValues, aside: Aside) {
        self.all.lock().push((values, aside));
        self.is_any.store(true, Ordering::Release);
    }

    /// Calls `settle` for each that has an array for which `is_wanted` is true, and forgets those.
    pub(super) fn finish(
        &self,
        is_wanted: &dyn Fn(&NodePath) -> bool,
        mut settle: impl FnMut(&ReplacedValues, &Aside) -> Result<()>,
    ) -> Result<()> {
        if !self.is_any.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut all = self.all.lock();
        while let Some(at) = all.iter().position(|(values, _)| values.arrays.iter().any(is_wanted))
        {
            let Some((values, aside)) = all.get(at) else { break };
            settle(values, aside)?;
            all.remove(at);
        }
        self.is_any.store(!all.is_empty(), Ordering::Release);
        Ok(())
    }
}
