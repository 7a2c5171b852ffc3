//! Bodies that are produced while the client takes them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::client::ClientConnection;
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

/// The bytes that are produced at a time for a client while all places are taken: clients that
/// take nothing must not keep others from what they ask for.
pub const SMALL: usize = 64 << 10;

/// The memory for blocks that a client has not taken yet, which all clients share.
#[derive(Debug, Clone)]
pub struct BlockMemory {
    places: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// A permit for each further block of a body that is produced at a time: a client that begins a
    /// request does not wait for the bodies of others.
    turns: Arc<Semaphore>,
    client: Option<Arc<ClientConnection>>,
}

impl BlockMemory {
    /// Returns the memory of a server that produces `turns` blocks at a time.
    pub fn new(turns: usize) -> Self {
        let semaphore = |count| Arc::new(Semaphore::new(count));
        let (places, large) = (semaphore(BLOCKS), semaphore(MOST_LARGE));
        Self { places, large, turns: semaphore(turns.max(1)), client: None }
    }

    /// Returns the same memory for a client.
    pub fn of(&self, client: &Arc<ClientConnection>) -> Self {
        Self { client: Some(Arc::clone(client)), ..self.clone() }
    }

    /// Returns a place for [`LARGE`] bytes, if one is free.
    pub fn large(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.large).try_acquire_owned().ok()
    }
}

/// Something that is produced in blocks.
pub trait Produce: Send + 'static {
    /// Returns the next block, which has about `len` bytes; `None` at the end. May wait.
    fn next(&mut self, len: usize) -> Result<Option<Bytes>>;
}

/// Which block of a body is produced. A short answer is one block, and waits for no longer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockTurn {
    First,
    Next,
}

/// A block that holds its place in memory until the client has taken it.
struct HeldBlock {
    bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for HeldBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a body of all that is produced. An error ends the connection, so that the client does
/// not take the rest for complete.
pub fn of(produced: impl Produce, blocks: BlockMemory) -> Body {
    let stream = stream::unfold(Some((produced, BlockTurn::First)), move |produced| {
        let blocks = blocks.clone();
        async move {
            let (produced, turn) = produced?;
            match block(produced, turn, &blocks).await {
                Ok(None) => None,
                Ok(Some((produced, bytes))) => {
                    Some((Ok(Frame::data(bytes)), Some((produced, BlockTurn::Next))))
                }
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Produces a block on a thread that may wait.
async fn block<P: Produce>(
    mut produced: P,
    turn: BlockTurn,
    blocks: &BlockMemory,
) -> Result<Option<(P, Bytes)>> {
    let _work = blocks.client.as_ref().map(ClientConnection::work);
    let place = Arc::clone(&blocks.places).try_acquire_owned().ok();
    let len = if place.is_some() { BLOCK } else { SMALL };
    let ended = |_| Error::new(Kind::Internal, "the server ends");
    let turn = match turn {
        BlockTurn::First => None,
        BlockTurn::Next => Some(Arc::clone(&blocks.turns).acquire_owned().await.map_err(ended)?),
    };
    let next = move || {
        let _turn = turn;
        produced.next(len).map(|block| block.map(|bytes| (produced, bytes)))
    };
    let next = spawn_blocking(next);
    let next = next.await.map_err(|error| Error::new(Kind::Internal, error.to_string()))??;
    Ok(next
        .map(|(produced, bytes)| (produced, Bytes::from_owner(HeldBlock { bytes, _place: place }))))
}
