//! Answers that say why there is no value.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use super::body::{Received, body};
use super::failure::{Failure, denied};
use super::head::kind_of;
use crate::object::failure::sentence;
use zarrfs_base::error::{Error, Kind};

/// The most bytes of an answer that are read for its sentence.
const LONGEST_REASON: u64 = 16 << 10;

/// The most characters of a reason.
const LONGEST_SENTENCE: usize = 200;

/// Returns the failure for an answer without a value.
pub(super) async fn of_answer(answer: Response) -> Failure {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let reason = reason_of(answer).await;
    match status {
        StatusCode::UNAUTHORIZED => denied(format!(
            "{reason}; write the URL as https://USER:PASSWORD@HOST/..., or give a token: --header \
             'Authorization: Bearer TOKEN'"
        )),
        StatusCode::FORBIDDEN => denied(reason),
        StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => {
            Failure::Final(Error::unsupported(reason))
        }
        _ => {
            let error = Error::new(Kind::Os(libc::EIO), reason);
            let may_pass = status.is_server_error() || [408, 425, 429].contains(&status.as_u16());
            if may_pass { Failure::Passing(error, pause(&headers)) } else { Failure::Final(error) }
        }
    }
}

/// Returns what the server answered, in words.
async fn reason_of(answer: Response) -> String {
    let status = answer.status();
    let words = status.canonical_reason().unwrap_or_default();
    let shown = format!("{} {words}", status.as_u16());
    let is_plain = kind_of(answer.headers()).is_some_and(|kind| kind == "text/plain");
    // A page for people has nothing to quote.
    let read = body(answer, LONGEST_REASON, &Received::default()).await;
    let text = read.map(|read| String::from_utf8_lossy(&read.bytes).into_owned());
    let text = text.unwrap_or_default();
    let mut reason = sentence(shown.trim(), &text);
    let is_sentence = is_plain && !text.trim().is_empty() && !text.trim().contains('\n');
    if is_sentence && !text.trim().contains(|c: char| c.is_control()) {
        reason = format!("{reason}: {}", text.trim());
    }
    if let Some((at, _)) = reason.char_indices().nth(LONGEST_SENTENCE) {
        reason.truncate(at);
    }
    reason
}

/// Returns how long the server asks to wait.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}
