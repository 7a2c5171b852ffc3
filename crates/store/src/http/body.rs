//! Reads the bytes of an answer.

use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use reqwest::Response;

use super::failure::{Failure, of_transfer};
use super::room::{AnswerMemory, Reserved};
use crate::pace::{Pace, too_slow};
use zarrfs_base::error::{Error, Kind};
use zarrfs_base::width::{ToU64, ToUsize};

/// A body is allocated at once up to this length, in bytes: a server may announce any.
const MOST_AT_ONCE: u64 = 16 << 20;

/// An answer up to this length needs no room, in bytes.
const SHORT: u64 = 256 << 10;

/// How many bytes of the answer to a request have arrived.
#[derive(Debug, Default)]
pub(super) struct Received(AtomicU64);

impl Received {
    pub fn len(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self, len: usize) {
        self.0.fetch_add(len.to_u64(), Ordering::Relaxed);
    }
}

/// The bytes of an answer.
#[derive(Debug)]
pub(super) struct Body {
    pub bytes: Bytes,
    /// Whether there are more.
    pub is_cut: bool,
}

/// Reads an answer, but not more than `most` bytes, which are few, were asked for, or have
/// room.
pub(super) async fn body(
    response: Response,
    most: u64,
    received: &Received,
) -> Result<Body, Failure> {
    Ok(body_within(response, most, received, None).await?.0)
}

/// Reads an answer, but not more than `most` bytes. If it is long, waits for room first, and
/// returns that with the answer.
pub(super) async fn body_in_room<'r>(
    response: Response,
    most: u64,
    received: &Received,
    room: &'r AnswerMemory,
) -> Result<(Body, Option<Reserved<'r>>), Failure> {
    body_within(response, most, received, Some(room)).await
}

async fn body_within<'r>(
    mut response: Response,
    most: u64,
    received: &Received,
    room: Option<&'r AnswerMemory>,
) -> Result<(Body, Option<Reserved<'r>>), Failure> {
    let announced = response.content_length();
    // It can be any if it is not announced.
    let longest = announced.unwrap_or(u64::MAX).min(most);
    let at_once = announced.unwrap_or(0).min(most).min(MOST_AT_ONCE);
    let most = most.to_usize();
    let no_memory = |_| {
        let detail = format!("there is no memory for the {longest} bytes of an answer");
        Failure::Final(Error::new(Kind::NoMemory, detail))
    };
    let mut place = match room {
        Some(room) if announced.is_some() && longest > SHORT => room.take(longest).await,
        _ => None,
    };
    let (mut bytes, mut pace) = (Vec::new(), Pace::begin());
    bytes.try_reserve(at_once.to_usize()).map_err(no_memory)?;
    while let Some(piece) = response.chunk().await.map_err(|error| of_transfer(&error))? {
        received.note(piece.len());
        let free = most.saturating_sub(bytes.len());
        if let Some(piece) = piece.get(..free).filter(|_| piece.len() > free) {
            bytes.extend_from_slice(piece);
            return Ok((Body { bytes: bytes.into(), is_cut: true }, place));
        }
        if !pace.note(piece.len()) {
            return Err(Failure::Passing(Error::new(Kind::Os(libc::ETIMEDOUT), too_slow()), None));
        }
        bytes.try_reserve(piece.len()).map_err(no_memory)?;
        bytes.extend_from_slice(&piece);
        if let Some(room) = room.filter(|_| place.is_none() && is_long(bytes.len())) {
            place = room.take(longest).await;
            pace = Pace::begin();
        }
    }
    Ok((Body { bytes: bytes.into(), is_cut: false }, place))
}

fn is_long(len: usize) -> bool {
    u64::try_from(len).map_or(true, |len| len > SHORT)
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
