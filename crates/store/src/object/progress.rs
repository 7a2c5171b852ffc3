//! How long requests may take: as long as bytes arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use object_store::Result;

use super::failure::{self, SILENCE};
use super::signs::Signs;

/// When something arrived last for a request, over all its tries.
#[derive(Debug)]
pub(super) struct LastArrival {
    began: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
    /// How long nothing may arrive because bytes are being sent, in milliseconds.
    sending: AtomicU64,
    signs: Arc<Signs>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl LastArrival {
    /// Begins now.
    pub fn begin(signs: Arc<Signs>) -> Self {
        let (last, sending) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { began: Instant::now(), last, sending, signs }
    }

    /// Notes that something has arrived.
    pub fn note(&self) {
        self.last.store(millis(self.began.elapsed()), Ordering::Relaxed);
        self.signs.note();
    }

    /// Allows so much time for bytes that are sent.
    pub fn allow(&self, time: Duration) {
        self.sending.store(millis(time), Ordering::Relaxed);
    }

    /// Returns how long nothing has arrived.
    fn idle(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }

    /// Waits for a request and its tries, until nothing has arrived for `most`.
    pub async fn until_silent<T>(
        &self,
        request: impl Future<Output = Result<T>>,
        most: Duration,
    ) -> Result<T> {
        tokio::pin!(request);
        loop {
            let sending = Duration::from_millis(self.sending.load(Ordering::Relaxed));
            let most = most.max(SILENCE).saturating_add(sending);
            let left = most.saturating_sub(self.idle());
            match tokio::time::timeout(left, &mut request).await {
                Ok(done) => return done,
                Err(_) if self.idle() >= most => return Err(failure::silence(self.idle())),
                Err(_) => {}
            }
        }
    }
}
