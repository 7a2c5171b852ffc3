//! Real locks that wait for a random time before and after each call.
//!
//! `ZARRFS_DELAYS=SEED:ONE_IN:MICROSECONDS` [1:20:300]: one of `ONE_IN` calls sleeps for up to that
//! time, and as many only let another thread run.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

struct Delays {
    seed: u64,
    one_in: u64,
    most: u64,
}

fn delays() -> &'static Delays {
    static DELAYS: OnceLock<Delays> = OnceLock::new();
    DELAYS.get_or_init(|| {
        let text = std::env::var("ZARRFS_DELAYS").unwrap_or_default();
        let mut numbers = text.split(':').map(|number| number.parse().ok());
        let mut next = |or| numbers.next().flatten().unwrap_or(or);
        Delays { seed: next(1), one_in: next(20).max(1), most: next(300) }
    })
}

/// Waits, or does not.
fn pause() {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let delays = delays();
    // A lock may be taken while a thread ends.
    let Ok(random) = STATE.try_with(|state| {
        if state.get() == 0 {
            let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
            state.set((delays.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        }
        // xorshift64
        let mut random = state.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        state.set(random);
        random
    }) else {
        return;
    };
    match random % delays.one_in.saturating_mul(2) {
        0 => thread::sleep(Duration::from_micros((random >> 32) % delays.most.max(1))),
        1 => thread::yield_now(),
        _ => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct State {
    readers: usize,
    is_written: bool,
    waiting_writers: usize,
}

/// A lock for one writer or several readers.
#[derive(Debug)]
pub struct RawRwLock {
    state: Mutex<State>,
    changed: Condvar,
}

impl RawRwLock {
    const NEW: Self = Self {
        state: Mutex::new(State { readers: 0, is_written: false, waiting_writers: 0 }),
        changed: Condvar::new(),
    };

    /// Takes the lock if it is free.
    fn try_take(&self, is_free: impl Fn(&State) -> bool, take: impl Fn(&mut State)) -> bool {
        pause();
        let mut state = lock(&self.state);
        let is_taken = is_free(&state);
        if is_taken {
            take(&mut state);
        }
        drop(state);
        pause();
        is_taken
    }

    fn change(&self, change: impl Fn(&mut State)) {
        pause();
        change(&mut lock(&self.state));
        self.changed.notify_all();
        pause();
    }

    fn is_free_to_read(state: &State) -> bool {
        !state.is_written && state.waiting_writers == 0
    }

    fn is_free(state: &State) -> bool {
        !state.is_written && state.readers == 0
    }
}

// SAFETY: `State` says which threads have the lock, and is changed under a lock.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[expect(clippy::declare_interior_mutable_const, reason = "lock_api copies it for each lock")]
    const INIT: Self = Self::NEW;
    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        pause();
        let mut state = lock(&self.state);
        while !Self::is_free_to_read(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.readers += 1;
        drop(state);
        pause();
    }

    fn try_lock_shared(&self) -> bool {
        self.try_take(Self::is_free_to_read, |state| state.readers += 1)
    }

    unsafe fn unlock_shared(&self) {
        self.change(|state| state.readers -= 1);
    }

    fn lock_exclusive(&self) {
        pause();
        let mut state = lock(&self.state);
        state.waiting_writers += 1;
        while !Self::is_free(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting_writers -= 1;
        state.is_written = true;
        drop(state);
        pause();
    }

    fn try_lock_exclusive(&self) -> bool {
        self.try_take(Self::is_free, |state| state.is_written = true)
    }

    unsafe fn unlock_exclusive(&self) {
        self.change(|state| state.is_written = false);
    }

    fn is_locked(&self) -> bool {
        !Self::is_free(&lock(&self.state))
    }

    fn is_locked_exclusive(&self) -> bool {
        lock(&self.state).is_written
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
        let is_free = |state: &State| state.readers > 0 || Self::is_free_to_read(state);
        self.try_take(is_free, |state| state.readers += 1)
    }
}

/// A lock for one thread at a time.
#[derive(Debug)]
pub struct RawMutex(RawRwLock);

// SAFETY: as above.
unsafe impl lock_api::RawMutex for RawMutex {
    #[expect(clippy::declare_interior_mutable_const, reason = "lock_api copies it for each lock")]
    const INIT: Self = Self(RawRwLock::NEW);
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        lock_api::RawRwLock::lock_exclusive(&self.0);
    }

    fn try_lock(&self) -> bool {
        lock_api::RawRwLock::try_lock_exclusive(&self.0)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller has the lock.
        unsafe { lock_api::RawRwLock::unlock_exclusive(&self.0) }
    }

    fn is_locked(&self) -> bool {
        lock_api::RawRwLock::is_locked(&self.0)
    }
}

/// The threads that wait for a condition variable, in the order of their arrival.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Turn>>);

/// A thread that waits.
#[derive(Debug, Clone)]
pub struct Turn(Arc<(Mutex<bool>, Condvar)>);

impl Waiters {
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub fn enter(&self) -> Turn {
        let turn = Turn(Arc::new((Mutex::new(false), Condvar::new())));
        lock(&self.0).push(turn.clone());
        turn
    }

    /// Whether the thread was woken before its time was over.
    pub fn wait_for(&self, turn: Turn, timeout: Duration) -> bool {
        pause();
        let end = Instant::now() + timeout;
        let (is_woken, changed) = &*turn.0;
        let mut woken = lock(is_woken);
        while !*woken {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            woken = changed.wait_timeout(woken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(woken);
        let mut waiting = lock(&self.0);
        let before = waiting.len();
        waiting.retain(|other| !Arc::ptr_eq(&other.0, &turn.0));
        waiting.len() == before
    }

    /// Wakes up to `most` threads, and returns how many.
    pub fn wake(&self, most: usize) -> usize {
        pause();
        let mut waiting = lock(&self.0);
        let count = waiting.len().min(most);
        let woken: Vec<Turn> = waiting.drain(..count).collect();
        drop(waiting);
        for turn in woken {
            *lock(&turn.0.0) = true;
            turn.0.1.notify_one();
        }
        pause();
        count
    }
}

impl Turn {
    pub fn wait(self) {
        pause();
        let (is_woken, changed) = &*self.0;
        let mut woken = lock(is_woken);
        while !*woken {
            woken = changed.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        drop(woken);
        pause();
    }
}
