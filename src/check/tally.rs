//! Counts the findings about what was not checked, on their way to the caller, and remembers their
//! places, so that nothing is reported twice.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::finding::{Code, Finding, Severity};
use super::options::{CheckWatch, Unchecked};
use crate::store::Omissions;

/// The most places to remember.
const MOST_PLACES: usize = 100_000;

/// A watch that counts some findings.
pub struct Tally<'w> {
    inner: &'w dyn CheckWatch,
    omissions: &'w Omissions,
    unknown: AtomicU64,
    unseen: AtomicU64,
    unsupported: AtomicU64,
    refused: AtomicU64,
    missing: AtomicU64,
    limited: AtomicU64,
    /// The places of findings that say that something could not be read. A leaf lock.
    places: Mutex<HashSet<String>>,
}

impl<'w> Tally<'w> {
    pub fn new(inner: &'w dyn CheckWatch, omissions: &'w Omissions) -> Self {
        Self {
            inner,
            omissions,
            unknown: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            unsupported: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            places: Mutex::default(),
        }
    }

    /// Returns the counts so far.
    pub fn unchecked(&self) -> Unchecked {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Unchecked {
            unknown: load(&self.unknown),
            unseen: load(&self.unseen),
            unsupported: load(&self.unsupported),
            refused: load(&self.refused),
            missing: load(&self.missing),
            limited: load(&self.limited),
        }
    }

    /// Whether a finding says that the place could not be read.
    pub fn has_found(&self, place: &str) -> bool {
        self.places.lock().contains(place.trim_matches('/'))
    }
}

impl CheckWatch for Tally<'_> {
    fn find(&self, finding: Finding) {
        // That the place could not be seen is reported at the end, and says more.
        if finding.code == Code::Foreign && self.omissions.has(&finding.key) {
            return;
        }
        let counter = match finding.code {
            Code::Unknown => Some(&self.unknown),
            Code::Unseen | Code::NoAnswer => Some(&self.unseen),
            Code::Unsupported => Some(&self.unsupported),
            Code::Refused => Some(&self.refused),
            Code::MissingTarget => Some(&self.missing),
            Code::TooLarge => Some(&self.limited),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(finding.code.severity(), Severity::Damaged | Severity::Unchecked) {
            let mut places = self.places.lock();
            if places.len() < MOST_PLACES {
                places.insert(finding.key.trim_matches('/').to_owned());
            }
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
