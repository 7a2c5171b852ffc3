//! Gets values, or ranges of them.
//!
//! A part is taken only if the server says that it is the wanted one. A server without ranges
//! answers with the whole value: see `whole`.

use reqwest::StatusCode;
use reqwest::header::RANGE;

use super::body::{Received, body};
use super::client::{HttpAnswer, Request};
use super::failure::{Failure, wrong};
use super::head::{encoding_of, part_of};
use super::probe::{Head, Likeness};
use super::refusal::of_answer;
use super::shared::ServerState;
use super::whole::cut;
use crate::{ByteRange, Key, Value};

/// The answer to a request for a value.
pub(super) enum Got {
    Value(Value),
    Absent,
    /// The server refuses it, which may mean that it is absent.
    Refused(Failure),
}

impl ServerState {
    /// Gets a range of a value, or all of it.
    pub(super) async fn get(
        &self,
        key: &Key,
        range: Option<ByteRange>,
        received: &Received,
    ) -> Result<Option<Value>, Failure> {
        match self.ask(key, range, received).await? {
            Got::Value(value) => {
                self.missing.note_read(key);
                Ok(Some(value))
            }
            Got::Absent => Ok(None),
            Got::Refused(failure) => {
                if self.is_missing(key).await? {
                    Ok(None)
                } else {
                    Err(failure)
                }
            }
        }
    }

    /// Asks for a value.
    pub(super) async fn ask(
        &self,
        key: &Key,
        range: Option<ByteRange>,
        received: &Received,
    ) -> Result<Got, Failure> {
        if range.is_none() || self.wholes.are_needed(key) {
            return self.whole(key, range, None, received).await;
        }
        let mut request = Request::get(self.client.base.of_key(key));
        if let Some(range) = range {
            request = request.with(RANGE, &text_of(range));
        }
        let answer = self.client.send(request).await?;
        if self.is_directory(key, &answer) {
            return Ok(Got::Absent);
        }
        match answer.response.status() {
            StatusCode::PARTIAL_CONTENT => self.part(key, range, answer, received).await,
            StatusCode::RANGE_NOT_SATISFIABLE => self.past_the_end(key, range, received).await,
            StatusCode::OK => self.whole(key, range, Some(answer), received).await,
            _ => self.without_value(answer).await,
        }
    }

    /// Whether a server has sent the request on to a directory of that name.
    pub(super) fn is_directory(&self, key: &Key, answer: &HttpAnswer) -> bool {
        let asked = self.client.base.of_key(key);
        answer.url.path().strip_suffix('/').is_some_and(|path| asked.path() == path)
    }

    /// Returns what an answer without a value means.
    pub(super) async fn without_value(&self, answer: HttpAnswer) -> Result<Got, Failure> {
        match answer.response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Got::Absent),
            StatusCode::FORBIDDEN => Ok(Got::Refused(of_answer(answer.response).await)),
            _ => Err(of_answer(answer.response).await),
        }
    }

    async fn part(
        &self,
        key: &Key,
        range: Option<ByteRange>,
        answer: HttpAnswer,
        received: &Received,
    ) -> Result<Got, Failure> {
        let (likeness, head) = (self.likeness(key, &answer).await?, Head::of(&answer));
        if likeness == Likeness::Same {
            return Ok(Got::Absent);
        }
        if encoding_of(answer.response.headers()).is_some() {
            // A part of it cannot be decoded.
            self.wholes.note_encoded(key);
            return self.whole(key, range, None, received).await;
        }
        let part = part_of(answer.response.headers()).ok_or_else(|| {
            wrong("the server does not say which part of the value it sends".to_owned())
        })?;
        let (offset, len) = range.map_or((0, part.len), |range| range.within(part.len));
        if (part.start, part.end) != (offset, offset.saturating_add(len)) {
            return Err(wrong(format!(
                "the server sends the bytes {} to {} of {} for {offset} to {}",
                part.start,
                part.end,
                part.len,
                offset.saturating_add(len)
            )));
        }
        let is_whole = (offset, len) == (0, part.len);
        if likeness == Likeness::Possible && !is_whole {
            // A part of it is not enough to compare.
            return self.whole(key, range, None, received).await;
        }
        let stat = self.tags.of_value(answer.response.headers(), part.len, self.ttl);
        let body = body(answer.response, len, received).await?;
        if body.is_cut || u64::try_from(body.bytes.len()) != Ok(len) {
            let more = if body.is_cut { " and more" } else { "" };
            let sent = body.bytes.len();
            return Err(wrong(format!("the server sent {sent} bytes{more} for {len}")));
        }
        if is_whole && self.is_page(key, &head, &body.bytes).await? {
            return Ok(Got::Absent);
        }
        Ok(Got::Value(Value { bytes: body.bytes, stat }))
    }

    /// Returns no bytes if a value has none in the range, for which servers send an error.
    async fn past_the_end(
        &self,
        key: &Key,
        range: Option<ByteRange>,
        received: &Received,
    ) -> Result<Got, Failure> {
        // The answer to the range does not have the version.
        let answer = self.client.send(Request::get(self.client.base.of_key(key))).await?;
        let headers = answer.response.headers();
        if answer.response.status() != StatusCode::OK {
            return self.without_value(answer).await;
        }
        let announced = answer.response.content_length();
        let Some(len) = announced.filter(|_| encoding_of(headers).is_none()) else {
            // Only its bytes show how long it is, and whether it has such a range.
            let whole = self.whole(key, None, Some(answer), received).await?;
            return Ok(match whole {
                Got::Value(value) => Got::Value(cut(&value, range)),
                other @ (Got::Absent | Got::Refused(_)) => other,
            });
        };
        match self.likeness(key, &answer).await? {
            Likeness::Same => return Ok(Got::Absent),
            Likeness::Possible => return self.whole(key, range, Some(answer), received).await,
            Likeness::Unclear | Likeness::OtherPage | Likeness::None => {}
        }
        let headers = answer.response.headers();
        if range.is_none_or(|range| range.within(len).1 > 0) {
            return Err(wrong(format!("the server has no such range in {len} bytes")));
        }
        let stat = self.tags.of_value(headers, len, self.ttl);
        Ok(Got::Value(Value { bytes: bytes::Bytes::new(), stat }))
    }
}

/// Returns the text of a range in a request.
fn text_of(range: ByteRange) -> String {
    match range {
        ByteRange::Span { offset, len } => {
            match offset.checked_add(len).and_then(|end| end.checked_sub(1)) {
                Some(last) => format!("bytes={offset}-{last}"),
                None => format!("bytes={offset}-"),
            }
        }
        ByteRange::Suffix(len) => format!("bytes=-{len}"),
    }
}
