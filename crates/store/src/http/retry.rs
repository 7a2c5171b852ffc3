//! Requests that are made again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::body::Received;
use super::failure::Failure;
use crate::pace::LEAST;
use zarrfs_base::error::Error;

/// How long to wait between tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Makes a request until it succeeds, for `most` after the last progress: a try that brings more
/// bytes than all before is one, unless they are fewer than [`LEAST`].
pub(super) async fn retried<T, F: Future<Output = Result<T, Failure>>>(
    most: Duration,
    request: impl Fn(Arc<Received>) -> F,
) -> Result<T, Error> {
    let (mut since, mut most_received, mut pause) = (Instant::now(), 0_u64, PAUSES.0);
    let mut was_wrong = false;
    loop {
        let received = Arc::new(Received::default());
        let (error, asked) = match request(Arc::clone(&received)).await {
            Ok(done) => return Ok(done),
            Err(Failure::Passing(error, asked)) => (error, asked),
            Err(Failure::Wrong(error)) if !std::mem::replace(&mut was_wrong, true) => (error, None),
            Err(failure) => return Err(failure.error()),
        };
        let received = received.len();
        if received >= most_received.saturating_add(LEAST) {
            (since, most_received, pause) = (Instant::now(), received, PAUSES.0);
        }
        let wait = asked.unwrap_or_else(|| jittered(pause));
        if since.elapsed().saturating_add(wait) >= most {
            return Err(error.by_server());
        }
        log::debug!("{error}; the request is made again in {} ms", wait.as_millis());
        tokio::time::sleep(wait).await;
        pause = pause.saturating_mul(2).min(PAUSES.1);
    }
}

/// Returns a time between half of `pause` and all of it, so that not all requests come at once.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 512;
    pause / 2 + pause.saturating_mul(u32::try_from(random).unwrap_or(0)) / 1024
}
