//! How a server says that a value is missing, if not with "404 Not Found".
//!
//! A web application answers with its page for every name, so answers are compared with that for a
//! name that cannot exist, byte by byte. Any other web page in place of a value is an error: it may
//! be that of a login, or say that the server is down.
//!
//! Buckets that may not be listed answer "403 Forbidden", and so do servers that hide all names
//! with a dot. But credentials that have ended get the same answer, and a chunk must not read as
//! the fill value then. So a refusal means that a value is missing only if the server refuses a
//! name that cannot exist, then gives a value that is known to be there, and then refuses the
//! missing one again.

use std::time::Instant;

use bytes::Bytes;
use reqwest::StatusCode;

use super::body::Received;
use super::client::{HttpAnswer, Request};
use super::failure::{Failure, denied};
use super::get::Got;
use super::head::is_html;
use super::probe::{Answered, Head, Likeness, MissingPage};
use super::refusal::of_answer;
use super::shared::ServerState;
use crate::{ByteRange, Key, unique};
use zarrfs_base::error::{Error, Kind};

/// Where a hierarchy may have metadata at its root.
const ENTRY_POINTS: [&str; 5] =
    ["zarr.json", ".zgroup", ".zarray", ".zmetadata", "attributes.json"];

impl ServerState {
    /// Asks for a name that cannot exist, if that was not done.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        self.answer_for(false).await.map(drop)
    }

    async fn answer_for(&self, is_dotted: bool) -> Result<&Answered, Failure> {
        let dot = if is_dotted { "." } else { "" };
        let cell = if is_dotted { &self.missing.dotted } else { &self.missing.plain };
        cell.get_or_try_init(async || {
            let key = Key::parse(&format!("{dot}zarrfs-none-{}", unique::text()));
            let key = key.map_err(Failure::Final)?;
            let request = Request::get(self.client.base.of_key(&key));
            let answer = self.client.send(request).await?;
            let answered = match answer.response.status() {
                StatusCode::NOT_FOUND | StatusCode::GONE => Answered::Missing,
                StatusCode::FORBIDDEN => Answered::Refused,
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                    Answered::Page(MissingPage::read(answer).await?.into())
                }
                _ => match of_answer(answer.response).await {
                    Failure::Passing(error, pause) => return Err(Failure::Passing(error, pause)),
                    Failure::Wrong(_) | Failure::Final(_) => Answered::Unclear,
                },
            };
            log::debug!("{:?}: the answer for missing names: {answered:?}", self.client.base);
            Ok(answered)
        })
        .await
    }

    /// Whether an answer with a value may be the page of a web application for missing names, so
    /// that its bytes must be compared. Fails if it is another web page, as for a login.
    pub(super) async fn likeness(
        &self,
        key: &Key,
        answer: &HttpAnswer,
    ) -> Result<Likeness, Failure> {
        let is_expected = is_page_expected(key);
        if let Some(host) = &answer.elsewhere
            && is_html(answer.response.headers())
            && !is_expected
        {
            return Err(denied(format!(
                "the server redirects to {host}, which sends a web page; if that is for a login, give \
             a token: --header 'Authorization: Bearer TOKEN'"
            )));
        }
        let Answered::Page(page) = self.answer_for(false).await? else {
            return Ok(Likeness::None);
        };
        decided(page.likeness(&Head::of(answer)), is_expected)
    }

    /// Whether a value is the page of a web application for missing names. Fails if it is another
    /// web page.
    pub(super) async fn is_page(
        &self,
        key: &Key,
        head: &Head,
        bytes: &Bytes,
    ) -> Result<bool, Failure> {
        let is_expected = is_page_expected(key);
        if let Answered::Page(page) = self.answer_for(false).await? {
            let likeness = decided(page.likeness_of_bytes(head, bytes), is_expected)?;
            return Ok(likeness == Likeness::Same);
        }
        if head.is_html && !is_expected && begins_as_html(bytes) {
            return Err(unexpected("the server sends a web page in place of this value"));
        }
        Ok(false)
    }

    /// Whether a value is missing that the server has just refused.
    pub(super) async fn is_missing(&self, key: &Key) -> Result<bool, Failure> {
        let refused = Instant::now();
        let missing = &self.missing;
        let answered = self.answer_for(key.name().starts_with('.')).await?;
        if !matches!(answered, Answered::Refused) {
            return Ok(false);
        }
        let Some(known) = self.readable(key, refused).await? else { return Ok(false) };
        // Until now everything may have been refused for a while.
        if !matches!(self.first_byte(key).await?, Got::Refused(_)) {
            return Ok(false);
        }
        if !std::mem::replace(&mut *missing.is_said.lock(), true) {
            log::warn!(
                "{:?}: the server answers 403 for missing names, so that answer counts as a missing \
             chunk while {known} can be read",
                self.client.base
            );
        }
        Ok(true)
    }

    /// Returns a value other than `key` that could be read after the time `refused`.
    async fn readable(&self, key: &Key, refused: Instant) -> Result<Option<Key>, Failure> {
        let mut checked = self.missing.checked.lock().await;
        let known = self.missing.known.lock().clone().filter(|known| known != key);
        if let Some(known) = &known
            && checked.is_some_and(|checked| checked > refused)
        {
            return Ok(Some(known.clone()));
        }
        let entry_points = ENTRY_POINTS.iter().filter_map(|name| Key::parse(name).ok());
        for known in known.into_iter().chain(entry_points).filter(|known| known != key) {
            let began = Instant::now();
            if let Got::Value(_) = self.first_byte(&known).await? {
                *self.missing.known.lock() = Some(known.clone());
                *checked = Some(began);
                return Ok(Some(known));
            }
        }
        Ok(None)
    }

    async fn first_byte(&self, key: &Key) -> Result<Got, Failure> {
        self.ask(key, Some(ByteRange::first(1)), &Received::default()).await
    }
}

/// Whether a value is a web page by its name.
fn is_page_expected(key: &Key) -> bool {
    let name = key.name().to_ascii_lowercase();
    [".html", ".htm"].iter().any(|ending| name.ends_with(ending))
}

/// Whether a value begins as web pages do. Some servers call every value HTML.
fn begins_as_html(bytes: &Bytes) -> bool {
    let text = bytes.trim_ascii_start();
    ["<!doctype", "<html"].iter().any(|begin| {
        text.get(..begin.len()).is_some_and(|found| found.eq_ignore_ascii_case(begin.as_bytes()))
    })
}

/// Fails if a value must not be used, because it is a web page or may be one.
fn decided(likeness: Likeness, is_page_expected: bool) -> Result<Likeness, Failure> {
    match likeness {
        Likeness::OtherPage if is_page_expected => Ok(Likeness::None),
        Likeness::OtherPage => Err(unexpected(
            "the server sends a web page that is not its page for missing names, perhaps for a \
             login, or because of an error",
        )),
        Likeness::Unclear => Err(unexpected(
            "this may be the page of the server for missing names, which is too long to compare",
        )),
        Likeness::Same | Likeness::Possible | Likeness::None => Ok(likeness),
    }
}

fn unexpected(detail: &'static str) -> Failure {
    Failure::Final(Error::new(Kind::Os(libc::EIO), detail))
}
