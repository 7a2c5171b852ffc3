//! Whether a server lists keys. Some buckets may be read by all users, but not listed, and many web
//! servers list nothing.
//!
//! Credentials that have ended are refused, too, and a hierarchy must not look empty then. So a
//! refusal counts only if after it a value can be read and the next listing is refused again, and
//! only for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Key;
use zarrfs_base::error::{Error, Kind, Result};

/// How long a refusal counts.
const REASK: Duration = Duration::from_secs(60);

/// The answer of the server to the first listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FirstAnswer {
    /// It was not asked, so every listing is tried.
    #[default]
    Unasked,
    Awaited,
    Given,
    /// It was refused once.
    Doubtful,
    Refused(Instant),
    /// It lists nothing, for any user.
    Unsupported(Instant),
}

impl FirstAnswer {
    fn to(listed: Result<(), &Error>) -> Self {
        match listed {
            Err(error) if error.kind() == Kind::Unsupported => Self::Unsupported(Instant::now()),
            Err(error) if is_refusal(error) => Self::Doubtful,
            // Other errors may pass.
            Ok(()) | Err(_) => Self::Given,
        }
    }
}

/// Whether a server lists keys.
#[derive(Debug, Default)]
pub(super) struct Permission {
    /// A leaf lock.
    answer: Mutex<FirstAnswer>,
    answered: Condvar,
    /// A value that could be read. A leaf lock.
    known: Mutex<Option<Key>>,
}

/// Stops awaiting an answer that does not come.
#[derive(Debug)]
pub(super) struct AwaitedAnswer(Arc<Permission>);

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        let mut answer = self.0.answer.lock();
        if *answer == FirstAnswer::Awaited {
            *answer = FirstAnswer::Unasked;
            self.0.answered.notify_all();
        }
    }
}

impl AwaitedAnswer {
    /// Notes the answer.
    pub(super) fn note(&self, listed: Result<(), &Error>) {
        *self.0.answer.lock() = FirstAnswer::to(listed);
        self.0.answered.notify_all();
    }
}

impl Permission {
    /// Notes that the server is asked.
    pub(super) fn ask(self: &Arc<Self>) -> AwaitedAnswer {
        *self.answer.lock() = FirstAnswer::Awaited;
        AwaitedAnswer(Arc::clone(self))
    }

    /// Notes that a value was read.
    pub(super) fn note_read(&self, key: &Key) {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = Some(key.clone());
        }
    }

    /// Whether keys can be listed. Waits for the answer, if it is awaited. After a refusal, `read`
    /// reads a value, and `list` lists again.
    pub(super) fn is_given(
        &self,
        read: impl FnOnce(&Key) -> Result<()>,
        list: impl FnOnce() -> Result<()>,
    ) -> bool {
        let mut answer = self.answer.lock();
        while *answer == FirstAnswer::Awaited {
            self.answered.wait(&mut answer);
        }
        match *answer {
            FirstAnswer::Unasked | FirstAnswer::Awaited | FirstAnswer::Given => return true,
            FirstAnswer::Refused(at) | FirstAnswer::Unsupported(at) if at.elapsed() < REASK => {
                return false;
            }
            FirstAnswer::Unsupported(_) => {
                drop(answer);
                let listed = list();
                let answer = FirstAnswer::to(listed.as_ref().copied());
                let is_given = !matches!(answer, FirstAnswer::Unsupported(_));
                *self.answer.lock() = answer;
                return is_given;
            }
            FirstAnswer::Refused(_) | FirstAnswer::Doubtful => {}
        }
        drop(answer);
        let Some(known) = self.known.lock().clone() else { return true };
        if read(&known).is_err() {
            return true;
        }
        match list() {
            Ok(()) => *self.answer.lock() = FirstAnswer::Given,
            Err(error) if is_refusal(&error) => {
                *self.answer.lock() = FirstAnswer::Refused(Instant::now());
                return false;
            }
            Err(_) => {}
        }
        true
    }
}

/// Whether the server says that the user may not do something.
fn is_refusal(error: &Error) -> bool {
    error.errno() == libc::EACCES && !error.detail().contains("Expired")
}
