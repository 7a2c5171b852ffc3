//! Locks of shuttle: each call is a place where its scheduler may let another thread run.

use std::backtrace::Backtrace;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// The permits of a lock for readers: a writer takes all of them.
const ALL: usize = usize::MAX >> 3;

const fn permits(count: usize) -> BatchSemaphore {
    BatchSemaphore::const_new(count, Fairness::StrictlyFair)
}

/// The places where threads wait, by the name of the thread.
static WAITING: Mutex<BTreeMap<String, Backtrace>> = Mutex::new(BTreeMap::new());

/// Whether these places are noted, which takes time.
static IS_TRACED: AtomicBool = AtomicBool::new(false);

/// Notes from now on where threads wait.
pub fn trace() {
    IS_TRACED.store(true, Ordering::SeqCst);
}

/// Returns where the threads wait that do not run.
pub fn waiting() -> Vec<String> {
    let waiting = std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    waiting.into_iter().map(|(thread, place)| format!("{thread} waits:\n{place}")).collect()
}

fn acquire(permits: &BatchSemaphore, count: usize) {
    let name = || format!("{:?}", shuttle::current::me());
    let is_traced = IS_TRACED.load(Ordering::SeqCst);
    if is_traced {
        let place = Backtrace::force_capture();
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).insert(name(), place);
    }
    // shuttle closes a semaphore only when a schedule has failed, and its threads are ending.
    assert!(permits.acquire_blocking(count).is_ok() || thread::panicking(), "closed");
    if is_traced {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).remove(&name());
    }
}

/// A lock for one thread at a time.
#[derive(Debug)]
pub struct RawMutex(BatchSemaphore);

// SAFETY: there is one permit.
unsafe impl lock_api::RawMutex for RawMutex {
    #[expect(clippy::declare_interior_mutable_const, reason = "lock_api copies it for each lock")]
    const INIT: Self = Self(permits(1));
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        acquire(&self.0, 1);
    }

    fn try_lock(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.release(1);
    }
}

/// A lock for one writer or several readers.
#[derive(Debug)]
pub struct RawRwLock {
    permits: BatchSemaphore,
    readers: AtomicUsize,
    /// Readers without a permit: they came when another one had the lock, past a waiting writer.
    past: AtomicUsize,
}

// SAFETY: a writer has all permits, and readers have one at least.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[expect(clippy::declare_interior_mutable_const, reason = "lock_api copies it for each lock")]
    const INIT: Self =
        Self { permits: permits(ALL), readers: AtomicUsize::new(0), past: AtomicUsize::new(0) };
    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        acquire(&self.permits, 1);
        self.readers.fetch_add(1, Ordering::SeqCst);
    }

    fn try_lock_shared(&self) -> bool {
        let is_locked = self.permits.try_acquire(1).is_ok();
        self.readers.fetch_add(usize::from(is_locked), Ordering::SeqCst);
        is_locked
    }

    unsafe fn unlock_shared(&self) {
        // No other thread runs between these lines.
        self.readers.fetch_sub(1, Ordering::SeqCst);
        if self.past.load(Ordering::SeqCst) > 0 {
            self.past.fetch_sub(1, Ordering::SeqCst);
        } else {
            self.permits.release(1);
        }
    }

    fn lock_exclusive(&self) {
        acquire(&self.permits, ALL);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.permits.try_acquire(ALL).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        self.permits.release(ALL);
    }

    // The provided methods would take the lock for a moment, and another thread would see that.
    fn is_locked(&self) -> bool {
        self.permits.available_permits() < ALL
    }

    fn is_locked_exclusive(&self) -> bool {
        self.permits.available_permits() == 0
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    fn lock_shared_recursive(&self) {
        if !self.try_lock_shared_recursive() {
            lock_api::RawRwLock::lock_shared(self);
        }
    }

    fn try_lock_shared_recursive(&self) -> bool {
        if lock_api::RawRwLock::try_lock_shared(self) {
            return true;
        }
        let is_read = self.readers.load(Ordering::SeqCst) > 0;
        if is_read {
            self.readers.fetch_add(1, Ordering::SeqCst);
            self.past.fetch_add(1, Ordering::SeqCst);
        }
        is_read
    }
}

/// The threads that wait for a condition variable, in the order of their arrival.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<VecDeque<Turn>>);

/// A thread that waits.
#[derive(Debug, Clone)]
pub struct Turn(Arc<BatchSemaphore>);

impl Waiters {
    pub const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self) -> Turn {
        let turn = Turn(Arc::new(permits(0)));
        self.queue().push_back(turn.clone());
        turn
    }

    /// Whether the thread was woken before its time was over. Only the time of the model passes, so
    /// it is over as soon as others have had the chance to run.
    pub fn wait_for(&self, turn: Turn, _: Duration) -> bool {
        shuttle::thread::yield_now();
        let mut queue = self.queue();
        let before = queue.len();
        queue.retain(|other| !Arc::ptr_eq(&other.0, &turn.0));
        queue.len() == before
    }

    /// Wakes up to `most` threads, and returns how many.
    pub fn wake(&self, most: usize) -> usize {
        let mut queue = self.queue();
        let count = queue.len().min(most);
        let woken: Vec<Turn> = queue.drain(..count).collect();
        drop(queue);
        for turn in woken {
            turn.0.release(1);
        }
        count
    }
}

impl Turn {
    pub fn wait(self) {
        acquire(&self.0, 1);
    }
}
