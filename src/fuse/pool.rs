//! Threads that do what may take time, so that the event loops go on with what does not.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

/// A fixed number of threads and the tasks that wait for them, first in first out.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// A leaf.
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closed: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts `threads` threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let start = |n: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("worker-{n}")).spawn(move || shared.work())
        };
        let threads = (0..threads.max(1)).map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { shared, threads })
    }

    /// Runs `task` on one of the threads. It must not panic: requests go through `answer`, which sees to it.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.shared.queue.lock().tasks.push_back(Box::new(task));
        self.shared.changed.notify_one();
    }
}

impl Drop for Pool {
    /// Waits until every task is done.
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a worker thread has panicked");
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(task) = self.next() {
            task();
        }
    }

    fn next(&self) -> Option<Task> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            if queue.closed {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}
