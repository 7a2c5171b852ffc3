//! Whether a server lists keys. Some buckets may be read by all users, but not listed.
//!
//! Credentials that have ended are refused, too, and a hierarchy must not look empty then. So a
//! refusal counts only if a value could be read after it, and the next listing is refused again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// The answer of the server to the first listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    /// It was not asked, so every listing is tried.
    #[default]
    Unasked,
    Awaited,
    Given,
    /// It was refused once.
    Doubtful,
    Refused,
}

/// Whether a server lists keys.
#[derive(Debug, Default)]
pub(super) struct Permission {
    /// A leaf lock.
    answer: Mutex<Answer>,
    answered: Condvar,
    /// Whether a value could be read.
    has_read: AtomicBool,
}

/// Stops awaiting an answer that does not come.
#[derive(Debug)]
pub(super) struct Asked(Arc<Permission>);

impl Drop for Asked {
    fn drop(&mut self) {
        let mut answer = self.0.answer.lock();
        if *answer == Answer::Awaited {
            *answer = Answer::Unasked;
            self.0.answered.notify_all();
        }
    }
}

impl Asked {
    /// Notes the answer. Errors other than a refusal may pass.
    pub(super) fn note(&self, listed: Result<(), &Error>) {
        let is_refused = listed.is_err_and(|error| error.errno() == libc::EACCES);
        *self.0.answer.lock() = if is_refused { Answer::Doubtful } else { Answer::Given };
        self.0.answered.notify_all();
    }
}

impl Permission {
    /// Notes that the server is asked.
    pub(super) fn ask(self: &Arc<Self>) -> Asked {
        *self.answer.lock() = Answer::Awaited;
        Asked(Arc::clone(self))
    }

    /// Notes that a value was read.
    pub(super) fn note_read(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    /// Whether keys can be listed. Waits for the answer, if it is awaited. Calls `list_again` to
    /// see whether a refusal stays.
    pub(super) fn is_given(&self, list_again: impl FnOnce() -> Result<()>) -> bool {
        let mut answer = self.answer.lock();
        while *answer == Answer::Awaited {
            self.answered.wait(&mut answer);
        }
        if *answer == Answer::Doubtful && self.has_read.load(Ordering::Relaxed) {
            drop(answer);
            let again = list_again();
            answer = self.answer.lock();
            match again {
                Ok(()) => *answer = Answer::Given,
                Err(error) if error.errno() == libc::EACCES => *answer = Answer::Refused,
                Err(_) => {}
            }
        }
        *answer != Answer::Refused
    }
}
