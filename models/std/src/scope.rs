//! Threads that borrow what is on the stack of the one that starts them.

use ::std::marker::PhantomData;
use ::std::mem::transmute;
use ::std::sync::{Arc, Mutex, PoisonError};

use shuttle::thread::JoinHandle;

type Work<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// A scope that threads end in.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    running: Mutex<Vec<JoinHandle<()>>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// A thread of a scope.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    result: Arc<Mutex<Option<T>>>,
    done: shuttle::sync::mpsc::Receiver<()>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread, and returns its result.
    pub fn join(self) -> ::std::thread::Result<T> {
        self.done.recv().expect("sent before the thread ends");
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        // A panic of a thread ends the schedule.
        Ok(result.take().expect("the thread has ended"))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread, which may borrow what outlives the scope.
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let result = Arc::new(Mutex::new(None));
        let (end, done) = shuttle::sync::mpsc::channel();
        let place = Arc::clone(&result);
        let work: Work<'scope> = Box::new(move || {
            let made = work();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            drop(place);
            // The handle may be gone.
            let _gone = end.send(());
        });
        // SAFETY: `scope` waits for the thread before it returns. If it panics, no thread of the
        // schedule runs any more.
        let work: Work<'static> = unsafe { transmute::<Work<'scope>, Work<'static>>(work) };
        let thread = shuttle::thread::spawn(work);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        ScopedJoinHandle { result, done, scope: PhantomData }
    }
}

/// Runs `work` with a scope, and waits for the threads that it starts there.
pub fn scope<'env, T>(work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let scope = Scope { running: Mutex::default(), scope: PhantomData, env: PhantomData };
    let made = work(&scope);
    loop {
        let thread = scope.running.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(thread) = thread else { return made };
        thread.join().expect("ended");
    }
}
