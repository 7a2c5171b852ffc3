//! Atomic variables: another thread may run before each call.
//!
//! The calls themselves are real, so what weaker orderings allow is not tried.

use ::std::sync::atomic as real;
pub use ::std::sync::atomic::*;

/// Whether models run. Programs have atomic variables that are set before that.
static IS_SCHEDULED: real::AtomicBool = real::AtomicBool::new(false);

/// Lets the scheduler choose a thread before each call from now on.
pub fn schedule() {
    IS_SCHEDULED.store(true, Ordering::SeqCst);
}

/// Whether models run.
pub(crate) fn is_scheduled() -> bool {
    IS_SCHEDULED.load(Ordering::SeqCst)
}

fn switch() {
    if is_scheduled() {
        shuttle::thread::sleep(::std::time::Duration::ZERO);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty, { $($call:ident),* }) => {
        #[doc = concat!("As `", stringify!($name), "` of the standard library.")]
        #[derive(Default)]
        pub struct $name(real::$name);

        impl $name {
            /// Returns a variable with this value.
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            /// Returns the value.
            pub fn load(&self, order: Ordering) -> $value {
                switch();
                self.0.load(order)
            }

            /// Sets the value.
            pub fn store(&self, value: $value, order: Ordering) {
                switch();
                self.0.store(value, order);
            }

            /// Sets the value if it is `current`.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                switch();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Sets the value that `change` returns, if it returns one.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                switch();
                self.0.fetch_update(set, fetch, change)
            }

            /// Returns the value.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            $(
                #[doc = concat!("As `", stringify!($call), "` of the standard library.")]
                pub fn $call(&self, value: $value, order: Ordering) -> $value {
                    switch();
                    self.0.$call(value, order)
                }
            )*
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

atomic!(AtomicBool, bool, { swap, fetch_or, fetch_and });
atomic!(AtomicU32, u32, { swap, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_or, fetch_and });
atomic!(AtomicU64, u64, { swap, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_or, fetch_and });
atomic!(AtomicI64, i64, { swap, fetch_add, fetch_sub, fetch_max, fetch_min });
atomic!(AtomicUsize, usize, { swap, fetch_add, fetch_sub, fetch_max, fetch_min });
