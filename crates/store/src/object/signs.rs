//! Signs that a server works while requests are under way.
//!
//! A mount that ends gives a server up that shows none for a few seconds. A long value on a slow
//! line has no answer for longer than that, so its bytes have a time of their own. A server that
//! refuses to store anything may still answer reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The slowest line that a mount waits for when it ends, in bytes per second.
const SLOWEST: u64 = 1 << 20;

/// The longest time that bytes under way add.
const LONGEST: Duration = Duration::from_secs(60);

/// A failure is forgotten after this time, if nothing is under way.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The signs of one server, which all requests note.
#[derive(Debug)]
pub(super) struct Signs {
    /// A leaf lock.
    seen: Mutex<RequestSigns>,
}

#[derive(Debug)]
struct RequestSigns {
    /// How many requests are under way.
    requests: usize,
    /// The bytes that they store.
    len: u64,
    /// The last sign, or the first request after a time without any.
    last: Instant,
    /// When the last try to store something failed. Until one succeeds, nothing else is a sign.
    failed: Option<Instant>,
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay {
    signs: Arc<Signs>,
    len: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut seen = self.signs.seen.lock();
        seen.requests = seen.requests.saturating_sub(1);
        seen.len = seen.len.saturating_sub(self.len);
    }
}

impl Default for Signs {
    fn default() -> Self {
        let seen = RequestSigns { requests: 0, len: 0, last: Instant::now(), failed: None };
        Self { seen: Mutex::new(seen) }
    }
}

impl Signs {
    /// Begins a request that stores `len` bytes.
    pub fn begin(self: &Arc<Self>, len: u64) -> UnderWay {
        let mut seen = self.seen.lock();
        if seen.requests == 0 && seen.failed.is_none_or(|at| at.elapsed() >= FORGOTTEN) {
            (seen.last, seen.failed) = (Instant::now(), None);
        }
        seen.requests = seen.requests.saturating_add(1);
        seen.len = seen.len.saturating_add(len);
        UnderWay { signs: Arc::clone(self), len }
    }

    /// Returns how long there was none while requests were under way, without the time that their
    /// bytes may take.
    pub fn silence(&self) -> Duration {
        let seen = self.seen.lock();
        let for_bytes = match seen.failed {
            None => Duration::from_secs(seen.len / SLOWEST).min(LONGEST),
            Some(_) => Duration::ZERO,
        };
        match seen.requests {
            0 => Duration::ZERO,
            _ => seen.last.elapsed().saturating_sub(for_bytes),
        }
    }

    /// Notes the end of a try to store something: whether the server has answered, and does its
    /// work.
    pub fn note_stored(&self, works: bool) {
        self.seen.lock().failed = (!works).then(Instant::now);
        self.note();
    }

    /// Notes an answer.
    pub fn note(&self) {
        let mut seen = self.seen.lock();
        if seen.failed.is_none() {
            seen.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(200);

    #[test]
    fn a_server_is_silent_while_requests_are_under_way_without_a_sign() {
        let signs = Arc::<Signs>::default();
        std::thread::sleep(MOMENT);
        assert_eq!(signs.silence(), Duration::ZERO, "nobody has asked");
        let request = signs.begin(0);
        assert!(signs.silence() < MOMENT, "it was asked now");
        std::thread::sleep(MOMENT);
        assert!(signs.silence() >= MOMENT);
        signs.note();
        assert!(signs.silence() < MOMENT);
        signs.note_stored(false);
        std::thread::sleep(MOMENT);
        signs.note();
        assert!(signs.silence() >= MOMENT, "it answers reads, but stores nothing");
        signs.note_stored(true);
        assert!(signs.silence() < MOMENT);
        drop(request);
        assert_eq!(signs.silence(), Duration::ZERO);
    }

    #[test]
    fn the_bytes_of_a_long_value_have_time_until_a_try_fails() {
        let signs = Arc::<Signs>::default();
        let _long = signs.begin(SLOWEST * 3);
        std::thread::sleep(MOMENT);
        assert_eq!(signs.silence(), Duration::ZERO);
        signs.note_stored(false);
        assert!(signs.silence() >= MOMENT);
    }
}
