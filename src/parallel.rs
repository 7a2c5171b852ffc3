//! Chunks encoded by several threads: a shard has many, and their encoding takes longer than all else.

use std::num::NonZero;
use std::thread;

use parking_lot::Mutex;

use crate::error::Result;

/// What `make` makes of each of `items`, in their order, or the first error.
pub(super) fn map<T: Send, U: Send>(
    items: Vec<T>,
    make: impl Fn(T) -> Result<U> + Sync,
) -> Result<Vec<U>> {
    // How many processors there are takes a look at several files.
    let threads = match items.len() {
        0 | 1 => 1,
        count => thread::available_parallelism().map_or(1, NonZero::get).min(count),
    };
    if threads == 1 {
        return items.into_iter().map(make).collect();
    }
    let mut made: Vec<Option<Result<U>>> = items.iter().map(|_| None).collect();
    // Held for the next item only.
    let rest = Mutex::new(items.into_iter().zip(&mut made));
    let work = || {
        loop {
            let next = rest.lock().next();
            let Some((item, place)) = next else { return };
            *place = Some(make(item));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had, this one does it all.
            let spawned = thread::Builder::new().spawn_scoped(scope, work);
            drop(spawned);
        }
        work();
    });
    drop(rest);
    made.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn results_come_in_the_order_of_the_items_and_the_first_error_counts() {
        let all = map((0..100).collect(), |n: u32| Ok(n * 2)).expect("made");
        assert_eq!(all, (0..100).map(|n| n * 2).collect::<Vec<_>>());
        let failed = map((0..100).collect(), |n: u32| match n {
            7 | 50 => Err(Error::invalid(n.to_string())),
            _ => Ok(n),
        });
        assert_eq!(failed.expect_err("two failed").detail(), "7");
    }
}
