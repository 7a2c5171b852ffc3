//! The memory that decoding and encoding take while they go on.
//!
//! A chunk near the limit of its length, many codecs, or a compressor with large tables take a
//! large part of little memory, and every thread may work on such a chunk. So a thread enters with
//! the most bytes that its work may take ([`enter`]). It waits while all that are inside take more
//! than a quarter of the memory together, and threads go in as they have come. If nobody is
//! inside, any work goes in. Work on the usual chunks takes far less, and never waits.
//!
//! A thread that is inside may not wait for one that waits here. So a thread that enters again does
//! not wait, and neither does a helper thread of [`parallel`](crate::parallel), because one that is
//! inside may wait for it.

use std::cell::Cell;

use parking_lot::{Condvar, Mutex};

use crate::resources;
use crate::width::ToU64;

/// All that are inside together may take `1/PART` of the memory.
const PART: u64 = 4;

/// The tables of one compressor may take `1/PART_OF_TABLES` of the memory.
const PART_OF_TABLES: u64 = 8;

/// Less is not counted, in bytes.
const LEAST: u64 = 64 << 10;

static GATE: Gate = Gate::new();

std::thread_local! {
    /// Whether this thread does not wait, because it is inside or others may wait for it.
    static MAY_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Lets threads in by the memory that they will take.
#[derive(Debug)]
struct Gate {
    inside: Mutex<Inside>,
    /// Notified when a thread goes in or leaves.
    changed: Condvar,
}

#[derive(Debug)]
struct Inside {
    /// The bytes of all that are inside.
    len: u64,
    /// The number of the next thread that waits, and of the next one that goes in.
    next_to_come: u64,
    next_to_go_in: u64,
}

/// The memory of a thread that is inside. The thread leaves when this is dropped.
#[derive(Debug)]
#[must_use = "the thread leaves when it is dropped"]
pub struct Admission {
    len: u64,
    _inside: Option<NoWaiting>,
}

/// A thread does not wait as long as it has this.
#[derive(Debug)]
pub struct NoWaiting {
    before: bool,
}

/// Returns the most bytes for the tables of a compressor.
pub fn longest_tables() -> u64 {
    resources::memory_limit() / PART_OF_TABLES
}

/// Returns how many bytes each of some threads may take without waiting for the others.
pub fn share_of(threads: usize) -> u64 {
    limit() / threads.to_u64().max(1)
}

/// Waits until there is room for work that takes at most `len` bytes.
pub fn enter(len: u64) -> Admission {
    if len < LEAST {
        return Admission { len: 0, _inside: None };
    }
    if MAY_NOT_WAIT.get() {
        GATE.add(len);
    } else {
        GATE.enter(len, limit());
    }
    Admission { len, _inside: Some(without_waiting()) }
}

/// Like [`enter`], but returns `None` instead of waiting.
pub fn try_enter(len: u64) -> Option<Admission> {
    if len < LEAST {
        return Some(Admission { len: 0, _inside: None });
    }
    let is_in = GATE.try_enter(len, limit());
    is_in.then(|| Admission { len, _inside: Some(without_waiting()) })
}

/// Has this thread not wait, because another one that is inside may wait for it.
pub fn without_waiting() -> NoWaiting {
    NoWaiting { before: MAY_NOT_WAIT.replace(true) }
}

fn limit() -> u64 {
    resources::memory_limit() / PART
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.len > 0 {
            GATE.leave(self.len);
        }
    }
}

impl Drop for NoWaiting {
    fn drop(&mut self) {
        MAY_NOT_WAIT.set(self.before);
    }
}

impl Gate {
    const fn new() -> Self {
        let inside = Inside { len: 0, next_to_come: 0, next_to_go_in: 0 };
        Self { inside: Mutex::new(inside), changed: Condvar::new() }
    }

    fn enter(&self, len: u64, limit: u64) {
        let mut inside = self.inside.lock();
        let number = inside.next_to_come;
        inside.next_to_come = number.wrapping_add(1);
        while inside.next_to_go_in != number || !inside.has_room(len, limit) {
            self.changed.wait(&mut inside);
        }
        inside.next_to_go_in = number.wrapping_add(1);
        inside.len = inside.len.saturating_add(len);
        drop(inside);
        self.changed.notify_all();
    }

    fn try_enter(&self, len: u64, limit: u64) -> bool {
        let mut inside = self.inside.lock();
        let is_first = inside.next_to_go_in == inside.next_to_come;
        let may_enter = is_first && inside.has_room(len, limit);
        if may_enter {
            inside.len = inside.len.saturating_add(len);
        }
        may_enter
    }

    fn add(&self, len: u64) {
        let mut inside = self.inside.lock();
        inside.len = inside.len.saturating_add(len);
    }

    fn leave(&self, len: u64) {
        let mut inside = self.inside.lock();
        inside.len = inside.len.saturating_sub(len);
        drop(inside);
        self.changed.notify_all();
    }
}

impl Inside {
    fn has_room(&self, len: u64, limit: u64) -> bool {
        self.len == 0 || self.len.saturating_add(len) <= limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_together_stay_within_the_limit_unless_one_alone_exceeds_it() {
        let (gate, now) = (Gate::new(), AtomicU64::new(0));
        thread::scope(|threads| {
            for number in 0..8_u64 {
                let (gate, now) = (&gate, &now);
                threads.spawn(move || {
                    for turn in 0..200 {
                        let len = [10, 40, 60, 500][usize::try_from(number * turn % 4).expect("4")];
                        gate.enter(len, 100);
                        let before = now.fetch_add(len, Ordering::SeqCst);
                        assert!(before == 0 || before + len <= 100, "{before} and {len}");
                        thread::yield_now();
                        now.fetch_sub(len, Ordering::SeqCst);
                        gate.leave(len);
                    }
                });
            }
        });
        let inside = gate.inside.lock();
        assert_eq!((inside.len, inside.next_to_come), (0, 1600));
        assert_eq!(inside.next_to_go_in, 1600);
    }

    #[test]
    fn long_work_is_not_overtaken_by_short_work() {
        let (gate, order) = (Gate::new(), Mutex::new(Vec::new()));
        gate.enter(60, 100);
        thread::scope(|threads| {
            for len in [95, 10] {
                let (gate, order) = (&gate, &order);
                threads.spawn(move || {
                    gate.enter(len, 100);
                    order.lock().push(len);
                    gate.leave(len);
                });
                while gate.inside.lock().next_to_come < if len == 95 { 2 } else { 3 } {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            assert!(order.lock().is_empty() && !gate.try_enter(1, 100), "others wait");
            gate.leave(60);
        });
        assert_eq!(*order.lock(), [95, 10]);
        assert!(gate.try_enter(100, 100) && !gate.try_enter(1, 100));
    }

    #[test]
    fn a_thread_that_is_inside_does_not_wait_again() {
        let first = enter(u64::MAX / 2);
        let second = enter(u64::MAX / 4);
        assert!(try_enter(LEAST).is_none());
        assert!(try_enter(LEAST - 1).is_some(), "not counted");
        drop(second);
        assert!(MAY_NOT_WAIT.get());
        drop(first);
        assert!(!MAY_NOT_WAIT.get());
        drop(without_waiting());
        assert!(!MAY_NOT_WAIT.get());
    }
}
