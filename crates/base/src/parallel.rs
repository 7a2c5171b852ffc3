//! Work on chunks that several processors share if they are idle: the inner chunks of a shard, and
//! the blocks of a chunk.
//!
//! All threads that encode or decode are counted. If there is one for each processor, more threads
//! would only compete with them.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::admission;
use crate::error::Result;
use crate::waiting;

/// The number of threads that work on chunks.
static BUSY: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    /// Whether this thread is counted.
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
}

/// A thread that works on the items of [`map`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The thread that called it.
    Caller,
    /// One that shares the work.
    Helper,
}

/// Counts this thread as working on chunks until it is dropped.
#[derive(Debug)]
pub struct Busy {
    /// Whether the thread was not counted before.
    is_first: bool,
}

/// Counts this thread as working on chunks.
pub fn busy() -> Busy {
    let is_first = !IS_BUSY.replace(true);
    if is_first {
        BUSY.fetch_add(1, Ordering::Relaxed);
    }
    Busy { is_first }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.is_first {
            IS_BUSY.set(false);
            BUSY.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Returns the number of processors.
pub fn processors() -> usize {
    static ALL: OnceLock<usize> = OnceLock::new();
    // Counting processors reads several files.
    *ALL.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns the number of processors without work, not counting this thread's.
fn idle() -> usize {
    processors().saturating_sub(BUSY.load(Ordering::Relaxed))
}

/// Returns the helper threads, `None` if no more can be started.
fn helpers() -> Option<&'static ThreadPool> {
    static HELPERS: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = || {
        let named = ThreadPoolBuilder::new().thread_name(|n| format!("helper-{n}"));
        named.build().inspect_err(|error| log::debug!("cannot start worker threads: {error}")).ok()
    };
    HELPERS.get_or_init(start).as_ref()
}

/// Runs `work` on `count` threads of `scope`, or on fewer if the system allows no more.
pub fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    count: usize,
    work: impl Fn() + Copy + Send + 'scope,
) {
    let program = waiting::program();
    let work = move || {
        let _work = waiting::work_for(program);
        work();
    };
    for number in 0..count {
        if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
            log::debug!("{number} threads of {count}: {error}");
            return;
        }
    }
}

/// Applies `make` to each of `items`, in order, and returns the results or the first error. Each
/// thread has its own `state`.
///
/// `make` must hold no lock if it calls this recursively: a thread that waits for others runs other
/// work meanwhile.
pub fn map<T: Send, U: Send, S>(
    items: Vec<T>,
    state: impl Fn() -> Result<S> + Sync,
    make: impl Fn(&mut S, T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    map_within(items, |_| 0, state, make)
}

/// Like [`map`], for items that take memory: `memory` returns the most bytes for each (see
/// [`admission`]). Helper threads leave the items to this one if there is no room for them.
pub fn map_within<T: Send, U: Send, S>(
    items: Vec<T>,
    memory: impl Fn(&T) -> u64 + Sync,
    state: impl Fn() -> Result<S> + Sync,
    make: impl Fn(&mut S, T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    let _busy = busy();
    let others = idle().min(items.len().saturating_sub(1));
    let mut made: Vec<Option<Result<U>>> = items.iter().map(|_| None).collect();
    // The lock is held only to take the next item.
    let rest = Mutex::new(items.into_iter().zip(&mut made).peekable());
    let has_failed = AtomicBool::new(false);
    let program = waiting::program();
    let work = |by: By| {
        let (_busy, _work) = (busy(), waiting::work_for(program));
        let mut known = None;
        while !has_failed.load(Ordering::Relaxed) {
            let mut rest = rest.lock();
            let Some((item, _)) = rest.peek() else { return };
            let len = memory(item);
            let admission = admission::try_enter(len);
            if by == By::Helper && admission.is_none() {
                return;
            }
            let Some((item, place)) = rest.next() else { return };
            drop(rest);
            let _admission = admission.unwrap_or_else(|| admission::enter(len));
            let state = match &mut known {
                Some(state) => Ok(state),
                none => state().map(|state| none.insert(state)),
            };
            let one = state.and_then(|state| make(state, item));
            has_failed.fetch_or(one.is_err(), Ordering::Relaxed);
            *place = Some(one);
        }
    };
    match helpers().filter(|_| others > 0) {
        Some(helpers) => helpers.in_place_scope(|scope| {
            for _ in 0..others {
                scope.spawn(|_| {
                    let _without_waiting = admission::without_waiting();
                    work(By::Helper);
                });
            }
            work(By::Caller);
        }),
        None => work(By::Caller),
    }
    drop(rest);
    made.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn results_come_in_the_order_of_the_items_and_the_first_error_counts() {
        let all = map((0..100).collect(), || Ok(2), |two, n: u32| Ok(n * *two)).expect("made");
        assert_eq!(all, (0..100).map(|n| n * 2).collect::<Vec<_>>());
        let failed = map(
            (0..100).collect(),
            || Ok(()),
            |(), n: u32| match n {
                7 | 50 => Err(Error::invalid(n.to_string())),
                _ => Ok(n),
            },
        );
        assert_eq!(failed.expect_err("two failed").detail(), "7");
        let failed = map(vec![1], || Err::<(), _>(Error::invalid("none")), |(), n: u32| Ok(n));
        assert_eq!(failed.expect_err("no state").detail(), "none");
    }

    #[test]
    fn each_thread_is_counted_once_and_busy_ones_do_not_help() {
        let first = busy();
        let again = busy();
        assert!(first.is_first && !again.is_first);
        drop(again);
        assert!(IS_BUSY.get());
        drop(first);
        assert!(!IS_BUSY.get());
        BUSY.fetch_add(1 << 20, Ordering::Relaxed);
        let me = thread::current().id();
        let by = map((0..50).collect(), || Ok(()), |(), _: u32| Ok(thread::current().id()));
        assert!(by.expect("made").into_iter().all(|id| id == me));
        BUSY.fetch_sub(1 << 20, Ordering::Relaxed);
    }
}
