//! Variables that each thread of a model has for itself.

use ::std::any::Any;
use ::std::cell::{Cell, RefCell};
use ::std::collections::HashMap;

use crate::sync::atomic::is_scheduled;

/// Declares variables of threads.
#[macro_export]
macro_rules! thread_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = const $value:block $(; $($rest:tt)*)?) => {
        $(#[$attr])*
        $vis static $name: $crate::thread::LocalKey<$type> = $crate::thread::LocalKey::new(|| $value);
        $($crate::thread_local!($($rest)*);)?
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $value:expr $(; $($rest:tt)*)?) => {
        $(#[$attr])*
        $vis static $name: $crate::thread::LocalKey<$type> = $crate::thread::LocalKey::new(|| $value);
        $($crate::thread_local!($($rest)*);)?
    };
}

::std::thread_local! {
    /// The values by variable and thread of the model. They stay until the process ends: a thread
    /// of a later schedule has the same number, and goes on with them as another one would.
    static VALUES: RefCell<HashMap<(usize, usize), &'static dyn Any>> = RefCell::default();
}

/// A variable of threads.
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
}

impl<T> LocalKey<T> {
    /// Returns a variable that begins with what `make` makes.
    pub const fn new(make: fn() -> T) -> Self {
        Self { make }
    }

    /// Uses the variable.
    pub fn with<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        let thread = if is_scheduled() { usize::from(shuttle::current::me()) } else { usize::MAX };
        let key = (::std::ptr::from_ref(self).addr(), thread);
        let known = VALUES.with_borrow(|values| values.get(&key).copied());
        let value = known.unwrap_or_else(|| {
            let made: &'static dyn Any = Box::leak(Box::new((self.make)()));
            VALUES.with_borrow_mut(|values| values.insert(key, made));
            made
        });
        work(value.downcast_ref().expect("its type"))
    }
}

impl<T> LocalKey<Cell<T>> {
    /// Sets the value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Returns the value.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Returns the value, and leaves the default.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Sets the value, and returns the one before.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T> LocalKey<RefCell<T>> {
    /// Uses the value.
    pub fn with_borrow<R>(&'static self, work: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| work(&cell.borrow()))
    }

    /// Changes the value.
    pub fn with_borrow_mut<R>(&'static self, work: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| work(&mut cell.borrow_mut()))
    }
}
