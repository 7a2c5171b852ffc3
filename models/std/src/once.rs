//! Values that are set once.

use ::std::fmt;
use ::std::ops::Deref;
use ::std::sync::OnceLock as Value;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// A value that the first thread sets. The others wait for it as threads of the model: they
/// share a real thread, which would wait for itself.
pub struct OnceLock<T> {
    value: Value<T>,
    turn: BatchSemaphore,
}

impl<T> OnceLock<T> {
    /// Returns one without a value.
    pub const fn new() -> Self {
        let turn = BatchSemaphore::const_new(1, Fairness::StrictlyFair);
        Self { value: Value::new(), turn }
    }

    /// Returns the value if there is one.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value, or returns the given one if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("set once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value, which `make` makes if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let turn = Turn::take(&self.turn);
        if self.value.get().is_none() {
            // The value is made before it is set: setting it is one step.
            let made = make();
            assert!(self.value.set(made).is_ok(), "two threads had the turn");
        }
        drop(turn);
        self.value.get().expect("set above")
    }

    /// Takes the value out.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

struct Turn<'a>(&'a BatchSemaphore);

impl<'a> Turn<'a> {
    fn take(turn: &'a BatchSemaphore) -> Self {
        assert!(turn.acquire_blocking(1).is_ok() || ::std::thread::panicking(), "closed");
        Self(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A value that is made when it is needed first.
#[derive(Debug)]
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    make: F,
}

impl<T, F: Fn() -> T> LazyLock<T, F> {
    /// Returns one that `make` will make.
    pub const fn new(make: F) -> Self {
        Self { value: OnceLock::new(), make }
    }
}

impl<T, F: Fn() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_or_init(&self.make)
    }
}
