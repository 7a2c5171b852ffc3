//! Signs that a server works: its answers, and the bytes that it takes or sends.
//!
//! A mount that ends gives a server up that shows none for a few seconds. A long value on a slow
//! line has no answer for minutes, but the server takes its bytes meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http_body_util::BodyExt as _;
use object_store::client::{HttpError, HttpRequestBody};
use object_store::{PutPayload, Result};

/// The bytes of a request that count as one sign when the connection has taken them.
const PIECE: usize = 64 << 10;

/// The signs of one server, which all its clients note.
#[derive(Debug, Default)]
pub(super) struct Signs {
    count: AtomicU64,
    /// Whether the last answer was a failure of the server, or there was none. It may take the
    /// bytes of any number of tries, and store nothing.
    has_failed: AtomicBool,
}

impl Signs {
    /// Returns how many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes the end of a try: whether the server has answered, and does its work.
    pub fn note_answer(&self, works: bool) {
        self.has_failed.store(!works, Ordering::Relaxed);
        self.note_bytes();
    }

    /// Notes that the server has taken or sent bytes.
    pub fn note_bytes(&self) {
        if !self.has_failed.load(Ordering::Relaxed) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a body that notes its pieces while they are sent. One without a payload is short.
    pub async fn noted_by(
        self: &Arc<Self>,
        body: HttpRequestBody,
    ) -> Result<HttpRequestBody, HttpError> {
        if body.as_bytes().is_some() {
            return Ok(body);
        }
        let payload: Vec<Bytes> = body.into_data_stream().try_collect().await?;
        let pieces = payload.into_iter().flat_map(|mut bytes| {
            std::iter::from_fn(move || {
                (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(PIECE)))
            })
        });
        let sent = |bytes| Bytes::from_owner(Piece { bytes, signs: Arc::clone(self) });
        Ok(pieces.map(sent).collect::<PutPayload>().into())
    }
}

/// A part of a request. The connection drops it when it was sent.
struct Piece {
    bytes: Bytes,
    signs: Arc<Signs>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.signs.note_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_the_server_fails_and_again_after_an_answer() {
        let signs = Signs::default();
        signs.note_bytes();
        signs.note_answer(true);
        assert_eq!(signs.count(), 2);
        signs.note_answer(false);
        signs.note_bytes();
        assert_eq!(signs.count(), 2, "each try of a server that is away sends bytes");
        signs.note_answer(true);
        signs.note_bytes();
        assert_eq!(signs.count(), 4);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn each_piece_of_a_long_value_is_a_sign_when_it_is_sent() {
        let signs = Arc::<Signs>::default();
        let bytes: Bytes = (0..3 * PIECE + 1).map(|at| at.to_le_bytes()[1]).collect();
        let payload: PutPayload = [bytes.slice(..9), bytes.slice(9..)].into_iter().collect();
        let body = signs.noted_by(payload.into()).await.expect("noted");
        assert_eq!((body.content_length(), signs.count()), (bytes.len(), 0));
        let pieces: Vec<Bytes> = body.into_data_stream().try_collect().await.expect("pieces");
        assert_eq!((pieces.len(), signs.count()), (5, 0));
        assert!(pieces.concat() == bytes);
        drop(pieces);
        assert_eq!(signs.count(), 5);
    }
}
