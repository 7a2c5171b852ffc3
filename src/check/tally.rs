//! Counts the findings about what was not checked, on their way to the caller.

use std::sync::atomic::{AtomicU64, Ordering};

use super::finding::{Code, Finding};
use super::options::{Unchecked, Watch};

/// A watch that counts some findings.
pub struct Tally<'w> {
    inner: &'w dyn Watch,
    unknown: AtomicU64,
    unsupported: AtomicU64,
    refused: AtomicU64,
    missing: AtomicU64,
    limited: AtomicU64,
}

impl<'w> Tally<'w> {
    pub fn new(inner: &'w dyn Watch) -> Self {
        Self {
            inner,
            unknown: AtomicU64::new(0),
            unsupported: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            limited: AtomicU64::new(0),
        }
    }

    /// Returns the counts so far.
    pub fn unchecked(&self) -> Unchecked {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Unchecked {
            unknown: load(&self.unknown),
            unsupported: load(&self.unsupported),
            refused: load(&self.refused),
            missing: load(&self.missing),
            limited: load(&self.limited),
        }
    }
}

impl Watch for Tally<'_> {
    fn find(&self, finding: Finding) {
        let counter = match finding.code {
            Code::Unknown => Some(&self.unknown),
            Code::Unsupported => Some(&self.unsupported),
            Code::Refused => Some(&self.refused),
            Code::MissingTarget => Some(&self.missing),
            Code::TooLarge => Some(&self.limited),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.find(finding);
    }

    fn expect(&self, values: u64) {
        self.inner.expect(values);
    }

    fn advance(&self) {
        self.inner.advance();
    }

    fn is_stopped(&self) -> bool {
        self.inner.is_stopped()
    }
}
