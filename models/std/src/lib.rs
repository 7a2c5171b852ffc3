//! The standard library, in which the scheduler of shuttle decides which thread runs: after each
//! call of an atomic variable, a channel or a thread, as after each call of the locks beside it.
//!
//! zarrfs is compiled with this crate under the name `std`. All that is not here is that of the real
//! one. The threads of a model share one real thread, so the thread-local variables are here, too:
//! zarrfs declares them with `std::thread_local!`, since `thread_local!` alone is always the macro
//! of the real library.

pub use ::std::*;

mod local;
mod once;
mod scope;

/// Locks, channels and atomic variables.
pub mod sync {
    pub use ::std::sync::*;

    pub use shuttle::sync::{Barrier, Condvar, Mutex, MutexGuard, RwLock, mpsc};

    pub mod atomic;

    pub use crate::once::{LazyLock, OnceLock};
}

/// Threads.
pub mod thread {
    pub use ::std::thread::*;

    pub use shuttle::thread::{JoinHandle, Thread, ThreadId, current, park, spawn, yield_now};

    pub use crate::local::LocalKey;
    pub use crate::scope::{Scope, ScopedJoinHandle, scope};

    /// Lets other threads run. No time passes in a model.
    pub fn sleep(_: ::std::time::Duration) {
        yield_now();
    }

    /// The same: the time is over as soon as others have had the chance to run.
    pub fn park_timeout(_: ::std::time::Duration) {
        yield_now();
    }

    /// Starts threads.
    #[derive(Debug, Default)]
    pub struct Builder;

    impl Builder {
        /// Returns one.
        pub fn new() -> Self {
            Self
        }

        /// Gives threads a name. All threads of zarrfs that work have one.
        #[must_use]
        pub fn name(self, _: String) -> Named {
            Named
        }

        /// Starts a real thread: fuser takes the handle of one in the place of its own.
        pub fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> ::std::io::Result<::std::thread::JoinHandle<T>> {
            ::std::thread::Builder::new().spawn(work)
        }

        /// Starts a thread of a scope.
        pub fn spawn_scoped<'scope, T: Send + 'scope>(
            self,
            scope: &'scope Scope<'scope, '_>,
            work: impl FnOnce() -> T + Send + 'scope,
        ) -> ::std::io::Result<ScopedJoinHandle<'scope, T>> {
            Ok(scope.spawn(work))
        }
    }

    /// Starts threads with a name.
    #[derive(Debug)]
    pub struct Named;

    impl Named {
        /// Starts a thread.
        pub fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> ::std::io::Result<JoinHandle<T>> {
            Ok(spawn(work))
        }
    }
}
