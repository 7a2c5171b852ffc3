//! Threads for slow work: requests that wait for an answer come first, then prefetching.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

/// The urgency of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// A program waits for it.
    Request,
    /// A program will wait for it soon.
    Soon,
    /// No program waits for it.
    Prefetch,
}

/// A fixed number of threads, and a queue of tasks, first in first out for each urgency.
pub struct Pool {
    shared: Arc<PoolShared>,
    /// A leaf lock.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct PoolShared {
    /// A leaf lock.
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The most threads that may prefetch at a time. The others are for requests that arrive
    /// meanwhile.
    most_ahead: usize,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Task>,
    soon: VecDeque<Task>,
    prefetches: VecDeque<Task>,
    busy_prefetching: usize,
    closed: bool,
}

impl Queue {
    fn next_prefetch(&mut self) -> Option<Task> {
        self.soon.pop_front().or_else(|| self.prefetches.pop_front())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.lock().len()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts `threads` threads. At most `most_ahead` of them prefetch at a time.
    pub fn new(threads: usize, most_ahead: usize) -> std::io::Result<Self> {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(PoolShared { queue, changed, most_ahead });
        let start = |n: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("worker-{n}")).spawn(move || shared.work())
        };
        let mut started = vec![start(0)?];
        for n in 1..threads {
            match start(n) {
                Ok(thread) => started.push(thread),
                // Fewer threads do the same work.
                Err(error) => {
                    log::warn!("started only {n} of {threads} threads: {error}");
                    break;
                }
            }
        }
        Ok(Self { shared, threads: Mutex::new(started) })
    }

    /// Runs `task` on a thread. A panic ends only the task.
    pub fn run(&self, urgency: Urgency, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        match urgency {
            Urgency::Request => queue.requests.push_back(Box::new(task)),
            Urgency::Soon | Urgency::Prefetch if queue.closed => {}
            Urgency::Soon => queue.soon.push_back(Box::new(task)),
            Urgency::Prefetch => queue.prefetches.push_back(Box::new(task)),
        }
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Returns the most threads that may prefetch at a time.
    pub fn most_ahead(&self) -> usize {
        self.shared.most_ahead
    }

    /// Waits until every task that a request waits for is done, and drops the others. A task must
    /// not call this.
    pub fn close(&self) {
        self.shared.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a worker thread has panicked");
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl PoolShared {
    fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let ahead = (std::mem::take(&mut queue.soon), std::mem::take(&mut queue.prefetches));
        drop(queue);
        drop(ahead);
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some((task, urgency)) = self.next() {
            if catch_unwind(AssertUnwindSafe(task)).is_err() {
                log::error!("a task panicked");
            }
            if urgency == Urgency::Prefetch {
                self.queue.lock().busy_prefetching -= 1;
            }
        }
    }

    fn next(&self) -> Option<(Task, Urgency)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.requests.pop_front() {
                return Some((task, Urgency::Request));
            }
            if queue.busy_prefetching < self.most_ahead
                && let Some(task) = queue.next_prefetch()
            {
                queue.busy_prefetching += 1;
                return Some((task, Urgency::Prefetch));
            }
            if queue.closed {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn requests_come_before_prefetching_and_have_a_thread_left() {
        let pool = Pool::new(2, 1).expect("threads");
        let (told, heard) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let begun = told.clone();
        pool.run(Urgency::Prefetch, move || {
            begun.send("ahead begins").expect("heard");
            wait.recv().expect("told");
        });
        assert_eq!(heard.recv(), Ok("ahead begins"));
        let (second, asked) = (told.clone(), told);
        pool.run(Urgency::Prefetch, move || second.send("second ahead").expect("heard"));
        pool.run(Urgency::Request, move || asked.send("asked").expect("heard"));
        assert_eq!(heard.recv(), Ok("asked"));
        go.send(()).expect("waits");
        assert_eq!(heard.recv(), Ok("second ahead"));
        pool.close();
    }

    #[test]
    fn closing_waits_for_all_requests() {
        let pool = Pool::new(3, 1).expect("threads");
        let done = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let done = Arc::clone(&done);
            pool.run(Urgency::Request, move || {
                assert_ne!(number, 50, "a panic costs one task");
                done.lock().push(number);
            });
        }
        pool.close();
        assert_eq!(done.lock().len(), 99);
        pool.run(Urgency::Prefetch, || unreachable!("it is closed"));
    }
}
