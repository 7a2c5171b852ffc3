//! The threads that make requests to a server.
//!
//! Requests are futures, which run on the threads of a runtime and report to the threads that wait
//! for them. These never run one.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// Runs requests, some at a time.
#[derive(Debug)]
pub(super) struct Runner {
    /// A permit for each request that runs.
    permits: Arc<Semaphore>,
    /// `None` when all requests were ended. A leaf lock.
    runtime: Mutex<Option<Runtime>>,
}

impl Runner {
    /// Starts threads that run at most `most` requests at a time.
    pub fn new(most: usize) -> io::Result<Self> {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads((processors / 4).clamp(1, 4))
            .thread_name("requests")
            .enable_all()
            .build()?;
        Ok(Self { permits: Arc::new(Semaphore::new(most)), runtime: Mutex::new(Some(runtime)) })
    }

    /// Runs a request. Drops it if all were ended.
    pub fn run(&self, request: impl Future<Output = ()> + Send + 'static) {
        let permits = Arc::clone(&self.permits);
        let task = async move {
            let _permit = permits.acquire_owned().await;
            request.await;
        };
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }

    /// Ends all requests, and drops those that come.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
    }
}
