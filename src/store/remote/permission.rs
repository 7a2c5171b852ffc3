//! Whether a server lists keys. Some buckets may be read by all users, but not listed.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

/// The answer of the server to the first listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    /// It was not asked, so every listing is tried.
    #[default]
    Unasked,
    Awaited,
    Given,
    Refused,
}

/// Whether a server lists keys.
#[derive(Debug, Default)]
pub(super) struct Permission {
    /// A leaf lock.
    answer: Mutex<Answer>,
    answered: Condvar,
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
        *self.0.answer.lock() = if is_refused { Answer::Refused } else { Answer::Given };
        self.0.answered.notify_all();
    }
}

impl Permission {
    /// Notes that the server is asked.
    pub(super) fn ask(self: &Arc<Self>) -> Asked {
        *self.answer.lock() = Answer::Awaited;
        Asked(Arc::clone(self))
    }

    /// Whether keys can be listed. Waits for the answer, if it is awaited.
    pub(super) fn is_given(&self) -> bool {
        let mut answer = self.answer.lock();
        while *answer == Answer::Awaited {
            self.answered.wait(&mut answer);
        }
        *answer != Answer::Refused
    }
}
