//! Values that were read as a whole, and stay for a while for programs that read more of them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::head::YOUNG;
use super::room::AnswerMemory;
use crate::{Key, Value};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::width::{ToU64, ToUsize};

/// How long a value is kept for programs that read more of it.
const MOST_AGE: Duration = Duration::from_secs(10);

/// Values with the same gate are read one after another.
const GATES: usize = 256;

/// The most values that are known to be encoded.
const MOST_ENCODED: usize = 1 << 12;

/// Values that were read as a whole.
#[derive(Debug)]
pub(super) struct Wholes {
    /// Whether the server has sent a value for a part of it.
    has_no_ranges: AtomicBool,
    /// The values that the server encodes. A leaf lock.
    encoded: Mutex<Bounded<Key, ()>>,
    /// The values and when they came. A leaf lock.
    kept: Mutex<Bounded<Key, (Instant, Value)>>,
    /// Held while a value is read.
    gates: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    /// For values while they are read.
    pub room: AnswerMemory,
    longest: u64,
    age: Duration,
}

impl Wholes {
    /// Returns none. Values of up to `longest` bytes are read, and stay for `ttl` at most.
    pub fn new(longest: u64, ttl: Duration) -> Self {
        Self {
            has_no_ranges: AtomicBool::new(false),
            encoded: Mutex::new(Bounded::new(MapLimits::entries(MOST_ENCODED))),
            kept: Mutex::new(Bounded::new(MapLimits::bytes(longest))),
            gates: (0..GATES).map(|_| tokio::sync::Mutex::new(())).collect(),
            hasher: RandomState::new(),
            room: AnswerMemory::of(longest),
            longest,
            age: ttl.min(MOST_AGE),
        }
    }

    /// Whether to ask for all of a value.
    pub fn are_needed(&self, key: &Key) -> bool {
        self.has_no_ranges.load(Ordering::Relaxed) || self.encoded.lock().get(key).is_some()
    }

    pub fn note_encoded(&self, key: &Key) {
        drop(self.encoded.lock().put(key.clone(), (), 0));
    }

    pub fn note_no_ranges(&self, host: &str) {
        if !self.has_no_ranges.swap(true, Ordering::Relaxed) {
            log::info!("{host}: this server sends no ranges, so each value is read as a whole");
        }
    }

    pub fn kept(&self, key: &Key) -> Option<Value> {
        let mut kept = self.kept.lock();
        let (at, value) = kept.get(key)?;
        // By then, a value that changes gets another version.
        let age = if value.stat.version.is_settled { self.age } else { self.age.min(YOUNG) };
        (at.elapsed() < age).then(|| value.clone())
    }

    pub fn keep(&self, key: &Key, value: &Value) {
        if !self.age.is_zero() {
            let len = value.bytes.len().to_u64();
            let gone = self.kept.lock().put(key.clone(), (Instant::now(), value.clone()), len);
            drop(gone); // Freeing memory takes time: not under the lock.
        }
    }

    /// Waits for the right to read a value as a whole.
    pub async fn gate(&self, key: &Key) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let count = u64::try_from(self.gates.len()).ok().filter(|count| *count > 0)?;
        let at = (self.hasher.hash_one(key) % count).to_usize();
        Some(self.gates.get(at)?.lock().await)
    }

    /// Returns the length of the longest value that is read.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Drops the values that are too old.
    pub fn drop_old(&self) {
        let mut kept = self.kept.lock();
        let is_old = |(_, (at, _)): &(&Key, &(Instant, Value))| at.elapsed() >= self.age;
        let old: Vec<Key> = kept.iter().filter(is_old).map(|(key, _)| key.clone()).collect();
        let gone: Vec<_> = old.iter().map(|key| kept.remove(key)).collect();
        drop(kept);
        drop(gone);
    }
}
