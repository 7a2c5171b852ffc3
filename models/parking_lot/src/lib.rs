//! Other locks in the place of those of `parking_lot`, with its names.
//!
//! With the feature `shuttle` a scheduler chooses which thread runs after each call, so a model runs
//! in many orders that a processor rarely chooses. With `delays` the locks are real, and wait at
//! random, so programs on a mount meet such orders.
//!
//! The real locks are the same in what counts here: they do not poison, a waiting writer goes before
//! new readers, and a condition variable wakes no thread without a cause.

#[cfg(not(any(feature = "shuttle", feature = "delays")))]
compile_error!("choose the feature shuttle or delays");

#[cfg(feature = "delays")]
mod delayed;
#[cfg(not(feature = "delays"))]
mod scheduled;

#[cfg(feature = "delays")]
use delayed as raw;
#[cfg(not(feature = "delays"))]
use scheduled as raw;

use std::time::{Duration, Instant};

pub use lock_api;
pub use raw::{RawMutex, RawRwLock};
#[cfg(not(feature = "delays"))]
pub use scheduled::{trace, waiting};

// SAFETY: both take the lock as `lock` does.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    /// Waits until it is free: a model has no clock.
    fn try_lock_for(&self, _: Duration) -> bool {
        lock_api::RawMutex::lock(self);
        true
    }

    fn try_lock_until(&self, _: Instant) -> bool {
        lock_api::RawMutex::lock(self);
        true
    }
}

// SAFETY: all take the lock as `lock_shared` and `lock_exclusive` do.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    /// Waits until it is free: a model has no clock.
    fn try_lock_shared_for(&self, _: Duration) -> bool {
        lock_api::RawRwLock::lock_shared(self);
        true
    }

    fn try_lock_shared_until(&self, _: Instant) -> bool {
        lock_api::RawRwLock::lock_shared(self);
        true
    }

    fn try_lock_exclusive_for(&self, _: Duration) -> bool {
        lock_api::RawRwLock::lock_exclusive(self);
        true
    }

    fn try_lock_exclusive_until(&self, _: Instant) -> bool {
        lock_api::RawRwLock::lock_exclusive(self);
        true
    }
}

/// A lock for one thread at a time.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The right to use what a [`Mutex`] has.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// The same of a part of it.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
/// A lock for one writer or several readers.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// The right to read what a [`RwLock`] has.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// The right to change what a [`RwLock`] has.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Whether a wait ended because its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was over.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// Lets threads wait until another one has changed what a [`Mutex`] has.
#[derive(Debug, Default)]
pub struct Condvar(raw::Waiters);

impl Condvar {
    /// Returns one that no thread waits for.
    pub const fn new() -> Self {
        Self(raw::Waiters::new())
    }

    /// Unlocks what `guard` has locked, waits to be notified, and locks it again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        // The thread waits from here on: a notification after the unlocking counts.
        let turn = self.0.enter();
        MutexGuard::unlocked(guard, || turn.wait());
    }

    /// The same, for at most `timeout`.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let turn = self.0.enter();
        WaitTimeoutResult(!MutexGuard::unlocked(guard, || self.0.wait_for(turn, timeout)))
    }

    /// The same, until `end`.
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        end: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, end.saturating_duration_since(Instant::now()))
    }

    /// Wakes the thread that waits longest. Whether there was one.
    pub fn notify_one(&self) -> bool {
        self.0.wake(1) > 0
    }

    /// Wakes all threads that wait, and returns how many there were.
    pub fn notify_all(&self) -> usize {
        self.0.wake(usize::MAX)
    }
}
