//! Reads the bytes of an answer.

use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use reqwest::Response;
use tokio::sync::{Mutex, MutexGuard};

use super::failure::{Failure, of_transfer};
use crate::error::{Error, Kind};

/// A body is allocated at once up to this length, in bytes: a server may announce any.
const MOST_AT_ONCE: u64 = 16 << 20;

/// An answer up to this length waits for no other, in bytes.
const SHORT: usize = 256 << 10;

/// How many bytes of the answer to a request have arrived.
#[derive(Debug, Default)]
pub(super) struct Received(AtomicU64);

impl Received {
    pub fn len(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self, len: usize) {
        self.0.fetch_add(u64::try_from(len).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The bytes of an answer.
#[derive(Debug)]
pub(super) struct Body {
    pub bytes: Bytes,
    /// Whether there are more.
    pub is_cut: bool,
}

/// Reads an answer, but not more than `most` bytes.
pub(super) async fn body(
    response: Response,
    most: u64,
    received: &Received,
) -> Result<Body, Failure> {
    Ok(body_within(response, most, received, None).await?.0)
}

/// Reads an answer, but not more than `most` bytes. If it is long, takes the lock first, and
/// returns it with the answer.
pub(super) async fn body_in_turn<'l>(
    response: Response,
    most: u64,
    received: &Received,
    turn: &'l Mutex<()>,
) -> Result<(Body, Option<MutexGuard<'l, ()>>), Failure> {
    body_within(response, most, received, Some(turn)).await
}

async fn body_within<'l>(
    mut response: Response,
    most: u64,
    received: &Received,
    turn: Option<&'l Mutex<()>>,
) -> Result<(Body, Option<MutexGuard<'l, ()>>), Failure> {
    let mut held = None;
    let announced = response.content_length().unwrap_or(0).min(most).min(MOST_AT_ONCE);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let no_memory = |_| {
        let detail = format!("there is no memory for {announced} bytes");
        Failure::Final(Error::new(Kind::NoMemory, detail))
    };
    bytes.try_reserve(usize::try_from(announced).unwrap_or(0)).map_err(no_memory)?;
    while let Some(piece) = response.chunk().await.map_err(|error| of_transfer(&error))? {
        received.note(piece.len());
        let room = most.saturating_sub(bytes.len());
        if let Some(piece) = piece.get(..room).filter(|_| piece.len() > room) {
            bytes.extend_from_slice(piece);
            return Ok((Body { bytes: bytes.into(), is_cut: true }, held));
        }
        if let Some(turn) = turn.filter(|_| held.is_none() && bytes.len() > SHORT) {
            held = Some(turn.lock().await);
        }
        bytes.try_reserve(piece.len()).map_err(no_memory)?;
        bytes.extend_from_slice(&piece);
    }
    Ok((Body { bytes: bytes.into(), is_cut: false }, held))
}

/// Decodes a value, which the server has encoded although it should not.
pub(super) fn decoded(bytes: &Bytes, encoding: &str, most: u64) -> Result<Bytes, Failure> {
    if !["gzip", "x-gzip"].iter().any(|known| encoding.eq_ignore_ascii_case(known)) {
        let detail =
            format!("the server encodes the value with {encoding}, which is not supported");
        return Err(Failure::Final(Error::unsupported(detail)));
    }
    let mut decoded = Vec::new();
    let mut reader = MultiGzDecoder::new(&**bytes).take(most.saturating_add(1));
    let broken = |error: std::io::Error| {
        let detail = format!("what the server has encoded with gzip cannot be decoded: {error}");
        Failure::Wrong(Error::new(Kind::Os(libc::EIO), detail))
    };
    reader.read_to_end(&mut decoded).map_err(broken)?;
    if u64::try_from(decoded.len()).map_or(true, |len| len > most) {
        let detail = format!("the server has encoded more than {most} bytes with gzip");
        return Err(Failure::Final(Error::too_large(detail)));
    }
    Ok(decoded.into())
}
