//! Bodies that are produced while the client takes them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::reply::Body;
use crate::error::{Error, Kind, Result};

/// The bytes that are produced at a time.
pub const BLOCK: usize = 512 << 10;

/// The most blocks in memory.
const BLOCKS: usize = 128;

/// The bytes that are produced at a time where small blocks would cost much more.
pub const LARGE: usize = 16 << 20;

/// The most of these in memory.
const MOST_LARGE: usize = 8;

/// The memory for blocks that clients have not taken yet.
#[derive(Debug, Clone)]
pub struct Blocks(Arc<Semaphore>, Arc<Semaphore>);

impl Default for Blocks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BLOCKS)), Arc::new(Semaphore::new(MOST_LARGE)))
    }
}

impl Blocks {
    /// Returns a place for [`LARGE`] bytes, if one is free.
    pub fn large(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.1).try_acquire_owned().ok()
    }
}

/// Something that is produced in blocks.
pub trait Produce: Send + 'static {
    /// Returns the next block, which has about [`BLOCK`] bytes; `None` at the end. May wait.
    fn next(&mut self) -> Result<Option<Bytes>>;
}

/// A block that holds its place in memory until the client has taken it.
struct Held {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a body of all that is produced. An error ends the connection, so that the client does
/// not take the rest for complete.
pub fn of(produced: impl Produce, blocks: Blocks) -> Body {
    let stream = stream::unfold(Some(produced), move |produced| {
        let blocks = blocks.clone();
        async move {
            let produced = produced?;
            match block(produced, &blocks).await {
                Ok(None) => None,
                Ok(Some((produced, bytes))) => Some((Ok(Frame::data(bytes)), Some(produced))),
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Produces a block on a thread that may wait.
async fn block<P: Produce>(mut produced: P, blocks: &Blocks) -> Result<Option<(P, Bytes)>> {
    let ended = |_| Error::new(Kind::Internal, "the server ends");
    let place = Arc::clone(&blocks.0).acquire_owned().await.map_err(ended)?;
    let next = move || produced.next().map(|block| block.map(|bytes| (produced, bytes)));
    let next = spawn_blocking(next);
    let next = next.await.map_err(|error| Error::new(Kind::Internal, error.to_string()))??;
    Ok(next.map(|(produced, bytes)| (produced, Bytes::from_owner(Held { bytes, _place: place }))))
}
