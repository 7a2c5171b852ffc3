//! The budget of a mount, small caches, and the pool of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scheduled::budget::{Budget, Purpose};
use scheduled::pool::{Pool, Urgency};
use scheduled::vfs::{Access, VfsOptions};
use shuttle::thread;

use super::run;
use crate::mount::{Mount, chunk, options, sharded, value_of};

/// Users of the memory draw and give back, and the chunks give way. What can be refused never
/// exceeds its limit, and all is given back.
pub fn budget() {
    let budget = Budget::new(1000, 100);
    let chunks = Arc::new(budget.lease(Purpose::Chunks));
    let unstored = Arc::new(budget.lease(Purpose::Unstored));
    let threads: Vec<_> = [Purpose::LongParts, Purpose::MemoryFiles]
        .into_iter()
        .map(|purpose| {
            let (budget, unstored) = (Arc::clone(&budget), Arc::clone(&unstored));
            thread::spawn(move || {
                for len in [300, 400] {
                    let part = budget.try_draw(purpose, len);
                    assert!(budget.drawn(purpose) <= budget.limit(purpose));
                    let both =
                        budget.drawn(Purpose::LongParts) + budget.drawn(Purpose::MemoryFiles);
                    assert!(both <= 1000, "{both} of 1000 bytes are drawn");
                    if unstored.try_grow(60) {
                        let drawn = budget.drawn(Purpose::Unstored);
                        assert!(drawn <= 100, "{drawn} of 100 bytes are drawn");
                        unstored.shrink(60);
                    }
                    drop(part);
                }
            })
        })
        .collect();
    let cached = Arc::clone(&chunks);
    let of_chunks = Arc::clone(&budget);
    let filler = thread::spawn(move || {
        for len in [200, 900, 0] {
            cached.set_len(len.min(of_chunks.room_for_chunks()));
        }
    });
    for thread in threads {
        thread.join().expect("ended");
    }
    filler.join().expect("ended");
    for purpose in [Purpose::LongParts, Purpose::MemoryFiles, Purpose::Unstored, Purpose::Chunks] {
        assert_eq!(budget.drawn(purpose), 0, "{purpose:?}");
    }
    assert_eq!(budget.room_for_chunks(), 1000);
}

/// Programs write chunks of several shards where only two may wait, and read them where one fits
/// into the cache. Nothing is lost, and the memory is given back.
pub fn small_memory() {
    let small = VfsOptions { cache_len: 600, dirty_limit: 8, ..options() };
    let mount = Mount::with(&[("x/zarr.json", &sharded())], small);
    mount.write_first("x", &chunk(1));
    let writer = |numbers: [u8; 2]| {
        Box::new(move |mount: &Mount| {
            for number in numbers {
                for value in [20, 10] {
                    let bytes = chunk(value + number);
                    mount.write(&format!("x/c/{number}"), &bytes).expect("written");
                }
            }
        })
    };
    run(
        &mount,
        vec![
            writer([0, 2]),
            writer([3, 1]),
            Box::new(|mount| {
                for _ in 0..2 {
                    let handle = mount.open("x/c/0", Access::Read).expect("opened");
                    let bytes = mount.vfs.read(handle, 0, 16).expect("read");
                    // A file that was just truncated is empty.
                    assert!(bytes.is_empty() || [1, 10, 20].contains(&value_of(&bytes)));
                    mount.vfs.release(handle);
                }
            }),
        ],
    );
    mount.check_chunks("x", &[10, 11, 12, 13]);
    mount.check_no_errors();
    assert_eq!(mount.stat("unstored_bytes"), 0);
}

/// Threads give tasks to a pool that another one closes. Each request is answered once, prefetching
/// has a thread at most, and the pool ends.
pub fn pool() {
    let pool = Arc::new(Pool::new(2, 1).expect("threads"));
    let (done, ahead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // A panic would end only the task.
    let most = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (pool, done, ahead) = (Arc::clone(&pool), Arc::clone(&done), Arc::clone(&ahead));
            let most = Arc::clone(&most);
            thread::spawn(move || {
                for urgency in [Urgency::Request, Urgency::Prefetch, Urgency::Soon] {
                    let (done, ahead) = (Arc::clone(&done), Arc::clone(&ahead));
                    let most = Arc::clone(&most);
                    pool.run(urgency, move || {
                        if urgency == Urgency::Request {
                            done.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                        let before = ahead.fetch_add(1, Ordering::SeqCst);
                        most.fetch_max(before + 1, Ordering::SeqCst);
                        thread::sleep(std::time::Duration::ZERO);
                        ahead.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("ended");
    }
    pool.close();
    assert_eq!(done.load(Ordering::SeqCst), 2, "requests that were answered");
    assert!(most.load(Ordering::SeqCst) <= 1, "two threads prefetch");
}
