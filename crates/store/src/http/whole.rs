//! Values that can only be read as a whole, since the server sends no ranges of them, or encodes
//! them.
//!
//! Such a value is read once for all who want parts of it at about the same time, up to a limit.

use bytes::Bytes;
use reqwest::StatusCode;

use super::body::{Received, body, body_in_room, decoded};
use super::client::{HttpAnswer, Request};
use super::failure::Failure;
use super::get::Got;
use super::head::encoding_of;
use super::probe::{Head, Likeness};
use super::room::Reserved;
use super::shared::ServerState;
use crate::{ByteRange, Key, Value};
use zarrfs_base::error::Error;
use zarrfs_base::width::{ToU64, ToUsize};

/// A longer value is not read for its stat, in bytes.
const SHORT: u64 = 1 << 20;

/// A byte in gzip holds at most this many (RFC 1951: 258 bytes take two bits).
const MOST_GZIP: u64 = 1032;

impl ServerState {
    /// Reads a value as a whole, and returns a range of it. `answer` is one with the value, if it
    /// was asked for already.
    pub(super) async fn whole(
        &self,
        key: &Key,
        range: Option<ByteRange>,
        answer: Option<HttpAnswer>,
        received: &Received,
    ) -> Result<Got, Failure> {
        let was_range_asked_for = answer.is_some() && range.is_some();
        let _gate = match &answer {
            Some(_) => None,
            None => self.wholes.gate(key).await,
        };
        self.wholes.drop_old();
        if let Some(value) = self.wholes.kept(key) {
            return Ok(Got::Value(cut(&value, range)));
        }
        let answer = match answer {
            Some(answer) => answer,
            None => self.client.send(Request::get(self.client.base.of_key(key))).await?,
        };
        if self.is_directory(key, &answer) {
            return Ok(Got::Absent);
        }
        if answer.response.status() != StatusCode::OK {
            return self.without_value(answer).await;
        }
        let likeness = self.likeness(key, &answer).await?;
        if likeness == Likeness::Same {
            return Ok(Got::Absent);
        }
        let (headers, head) = (answer.response.headers(), Head::of(&answer));
        let announced = answer.response.content_length();
        if let Some(range) = range
            && likeness == Likeness::None
            && encoding_of(headers).is_none()
        {
            if was_range_asked_for && announced.is_none_or(|len| range.within(len) != (0, len)) {
                self.wholes.note_no_ranges(self.client.base.host());
            }
            if let (ByteRange::Span { offset: 0, len: 1 }, Some(len)) = (range, announced)
                && len > SHORT
            {
                // Only its stat is of interest.
                let stat = self.tags.of_value(headers, len, self.ttl);
                let bytes = body(answer.response, 1, received).await?.bytes;
                return Ok(Got::Value(Value { bytes, stat }));
            }
        }
        let (value, _place) = self.read_whole(answer, received).await?;
        if self.is_page(key, &head, &value.bytes).await? {
            return Ok(Got::Absent);
        }
        if range.is_some_and(|range| range.within(value.stat.len) != (0, value.stat.len)) {
            self.wholes.keep(key, &value);
        }
        Ok(Got::Value(cut(&value, range)))
    }

    /// Reads and decodes all of an answer, and returns it with the room that it takes.
    async fn read_whole(
        &self,
        answer: HttpAnswer,
        received: &Received,
    ) -> Result<(Value, Option<Reserved<'_>>), Failure> {
        let longest = self.wholes.longest();
        let too_long = |len: &str| {
            Failure::Final(Error::too_large(format!(
                "the server sends only the whole value{len}, and no ranges of it, which needs more \
                 than the {longest} bytes of --fetch-memory"
            )))
        };
        let announced = answer.response.content_length();
        if let Some(len) = announced.filter(|len| *len > longest) {
            return Err(too_long(&format!(" of {len} bytes")));
        }
        let (headers, room) = (answer.response.headers().clone(), &self.wholes.room);
        let (body, place) = if encoding_of(&headers).is_some() {
            let place = room.take(longest_decoded(announced)).await;
            (body(answer.response, longest, received).await?, place)
        } else {
            body_in_room(answer.response, longest, received, room).await?
        };
        if body.is_cut {
            // The server has not said how long it is.
            return Err(too_long(""));
        }
        let bytes = match encoding_of(&headers) {
            None => body.bytes,
            Some(encoding) => decoded(&body.bytes, encoding, longest)?,
        };
        let len = bytes.len().to_u64();
        Ok((Value { bytes, stat: self.tags.of_value(&headers, len, self.ttl) }, place))
    }
}

/// Returns the most bytes of a value that is encoded, with the length of its encoded form if the
/// server announces that.
fn longest_decoded(announced: Option<u64>) -> u64 {
    announced.map_or(u64::MAX, |len| len.saturating_mul(1 + MOST_GZIP))
}

/// Returns a range of a value. A short one does not keep the rest in memory.
pub(super) fn cut(value: &Value, range: Option<ByteRange>) -> Value {
    let (offset, len) = range.map_or((0, u64::MAX), |range| range.within(value.stat.len));
    let at = |at: u64| at.to_usize().min(value.bytes.len());
    let mut bytes = value.bytes.slice(at(offset)..at(offset.saturating_add(len)));
    if bytes.len() < value.bytes.len() / 2 {
        bytes = Bytes::copy_from_slice(&bytes);
    }
    Value { bytes, stat: value.stat }
}
