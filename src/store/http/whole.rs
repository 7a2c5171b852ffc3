//! Values that can only be read as a whole, since the server sends no ranges of them, or encodes
//! them.
//!
//! Such a value is read once for all who want parts of it at about the same time, up to a limit.

use reqwest::StatusCode;

use super::body::{Received, body, decoded};
use super::client::{Answer, Request};
use super::failure::Failure;
use super::get::Got;
use super::head::encoding_of;
use super::probe::{Head, Likeness};
use super::shared::Shared;
use crate::error::Error;
use crate::store::{ByteRange, Key, Value};

/// A longer value is not read for its stat, in bytes.
const SHORT: u64 = 1 << 20;

impl Shared {
    /// Reads a value as a whole, and returns a range of it. `answer` is one with the value, if it
    /// was asked for already.
    pub(super) async fn whole(
        &self,
        key: &Key,
        range: Option<ByteRange>,
        answer: Option<Answer>,
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
        let value = self.read_whole(answer, received).await?;
        if self.is_page(key, &head, &value.bytes).await? {
            return Ok(Got::Absent);
        }
        if range.is_some_and(|range| range.within(value.stat.len) != (0, value.stat.len)) {
            self.wholes.keep(key, &value);
        }
        Ok(Got::Value(cut(&value, range)))
    }

    /// Reads and decodes all of an answer.
    async fn read_whole(&self, answer: Answer, received: &Received) -> Result<Value, Failure> {
        let longest = self.wholes.longest();
        let too_long = |len: &str| {
            Failure::Final(Error::too_large(format!(
                "the server sends only the whole value{len}, and no ranges of it, which needs more \
                 than the {longest} bytes of --fetch-memory"
            )))
        };
        if let Some(len) = answer.response.content_length().filter(|len| *len > longest) {
            return Err(too_long(&format!(" of {len} bytes")));
        }
        let headers = answer.response.headers().clone();
        let body = body(answer.response, longest, received).await?;
        if body.is_cut {
            // The server has not said how long it is.
            return Err(too_long(""));
        }
        let bytes = match encoding_of(&headers) {
            None => body.bytes,
            Some(encoding) => decoded(&body.bytes, encoding, longest)?,
        };
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(Value { bytes, stat: self.tags.of_value(&headers, len, self.ttl) })
    }
}

/// Returns a range of a value.
pub(super) fn cut(value: &Value, range: Option<ByteRange>) -> Value {
    let (offset, len) = range.map_or((0, u64::MAX), |range| range.within(value.stat.len));
    let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(value.bytes.len());
    let bytes = value.bytes.slice(at(offset)..at(offset.saturating_add(len)));
    Value { bytes, stat: value.stat }
}
