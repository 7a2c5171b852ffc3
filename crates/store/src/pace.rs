//! How fast the bytes of an answer arrive. A server that sends one byte now and then would hold a
//! program, a connection and a thread without end.

use std::time::{Duration, Instant};

use zarrfs_base::width::ToU64;

/// An answer must bring [`LEAST`] bytes in this time, or end.
const WINDOW: Duration = Duration::from_secs(10);

/// Slower connections exist, but no hierarchy is read over them.
pub(super) const LEAST: u64 = 512;

/// The pace of an answer.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    len: u64,
}

impl Pace {
    /// Begins now.
    pub fn begin() -> Self {
        Self { since: Instant::now(), len: 0 }
    }

    /// Notes that bytes have arrived; `false` if the answer is too slow.
    #[must_use]
    pub fn note(&mut self, len: usize) -> bool {
        self.note_at(Instant::now(), len)
    }

    fn note_at(&mut self, now: Instant, len: usize) -> bool {
        self.len = self.len.saturating_add(len.to_u64());
        if self.len >= LEAST {
            *self = Self { since: now, len: 0 };
            return true;
        }
        now.saturating_duration_since(self.since) < WINDOW
    }
}

/// Returns what is wrong with an answer that is too slow.
pub(super) fn too_slow() -> String {
    format!("the server sends less than {LEAST} bytes in {} s", WINDOW.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_drips_is_too_slow_and_one_that_pauses_is_not() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut drips = Pace { since: begin, len: 0 };
        assert!((1..10).all(|second| drips.note_at(at(second), 1)));
        assert!(!drips.note_at(at(11), 1));
        let mut pauses = Pace { since: begin, len: 0 };
        assert!((1..10).all(|n| pauses.note_at(at(n * 20), 512)));
    }
}
