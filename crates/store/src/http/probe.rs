//! How a server answers for names that cannot exist, as far as it was asked.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::body::{Received, body, decoded};
use super::client::HttpAnswer;
use super::failure::Failure;
use super::head::{encoding_of, is_html, kind_of, part_of, tag_of};
use crate::Key;

/// The longest page that is read to compare values with it, in bytes.
const LONGEST_TEXT: u64 = 64 << 10;

/// The answers of a server for names that cannot exist.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub plain: OnceCell<Answered>,
    /// For a name that begins with a dot.
    pub dotted: OnceCell<Answered>,
    /// A value that is there. A leaf lock.
    pub known: Mutex<Option<Key>>,
    /// When the last request began that has shown that. Held during such a request.
    pub checked: tokio::sync::Mutex<Option<Instant>>,
    /// Whether the log has said it. A leaf lock.
    pub is_said: Mutex<bool>,
}

/// The answer for a name that cannot exist.
#[derive(Debug, Clone)]
pub(super) enum Answered {
    Missing,
    Refused,
    Page(Arc<MissingPage>),
    Unclear,
}

/// The page for missing names.
#[derive(Debug)]
pub(super) struct MissingPage {
    head: Head,
    /// Its bytes, decoded; `None` if they are too many to compare.
    text: Option<Bytes>,
}

/// The properties of an answer in which the page for missing names differs from other answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    kind: Option<String>,
    len: Option<u64>,
    tag: Option<String>,
    is_encoded: bool,
    pub is_html: bool,
}

/// Whether an answer is the page for missing names, as far as its head says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Likeness {
    Same,
    /// Its bytes decide.
    Possible,
    /// They would decide, but the page is too long to compare them.
    Unclear,
    /// It is another web page.
    OtherPage,
    None,
}

impl Head {
    pub fn of(answer: &HttpAnswer) -> Self {
        let headers = answer.response.headers();
        let len = match part_of(headers) {
            Some(part) => Some(part.len),
            None => answer.response.content_length(),
        };
        Self {
            kind: kind_of(headers).map(str::to_owned),
            len,
            tag: tag_of(headers).map(str::to_owned),
            is_encoded: encoding_of(headers).is_some(),
            is_html: is_html(headers),
        }
    }
}

impl MissingPage {
    /// Reads the page, if it is short.
    pub async fn read(answer: HttpAnswer) -> Result<Self, Failure> {
        let head = Head::of(&answer);
        let encoding = encoding_of(answer.response.headers()).map(str::to_owned);
        let body = body(answer.response, LONGEST_TEXT, &Received::default()).await?;
        let text = match encoding {
            _ if body.is_cut => None,
            None => Some(body.bytes),
            Some(encoding) => decoded(&body.bytes, &encoding, LONGEST_TEXT).ok(),
        };
        Ok(Self { head, text })
    }

    /// Compares the head of an answer with that of the page.
    pub fn likeness(&self, found: &Head) -> Likeness {
        let are_pages = self.head.is_html && found.is_html;
        let may_be_of_len = match (self.head.len, found.len) {
            (Some(one), Some(other)) => one == other || self.head.is_encoded != found.is_encoded,
            _ => true,
        };
        let may_be_same = self.head.kind == found.kind && may_be_of_len;
        match &self.text {
            Some(_) if may_be_same => Likeness::Possible,
            None if may_be_same && found.tag.is_some() && *found == self.head => Likeness::Same,
            None if may_be_same => Likeness::Unclear,
            _ if are_pages => Likeness::OtherPage,
            _ => Likeness::None,
        }
    }

    /// Compares the bytes of an answer with those of the page, if its head leaves that open.
    pub fn likeness_of_bytes(&self, found: &Head, bytes: &Bytes) -> Likeness {
        match self.likeness(found) {
            Likeness::Possible if self.text.as_ref() == Some(bytes) => Likeness::Same,
            Likeness::Possible if self.head.is_html && found.is_html => Likeness::OtherPage,
            Likeness::Possible => Likeness::None,
            decided => decided,
        }
    }
}

impl Missing {
    /// Notes that a value was read.
    pub fn note_read(&self, key: &Key) {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = Some(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: &str, len: Option<u64>, tag: Option<&str>) -> Head {
        Head {
            kind: Some(kind.to_owned()),
            len,
            tag: tag.map(str::to_owned),
            is_encoded: false,
            is_html: kind == "text/html",
        }
    }

    #[test]
    fn only_the_bytes_of_the_page_are_the_page() {
        let bytes = "application/octet-stream";
        let page = MissingPage { head: head(bytes, None, None), text: Some("none".into()) };
        let found = head(bytes, None, None);
        assert_eq!(page.likeness(&found), Likeness::Possible, "neither has a length");
        assert_eq!(page.likeness_of_bytes(&found, &"none".into()), Likeness::Same);
        assert_eq!(page.likeness_of_bytes(&found, &"some".into()), Likeness::None);
        let page = MissingPage { head: head(bytes, Some(4), Some("x")), text: Some("none".into()) };
        let found = head(bytes, Some(4), Some("x"));
        assert_eq!(page.likeness_of_bytes(&found, &"some".into()), Likeness::None, "equal tags");
        assert_eq!(page.likeness(&head(bytes, Some(5), Some("x"))), Likeness::None);
        assert_eq!(page.likeness(&head("image/png", Some(4), None)), Likeness::None);
    }

    #[test]
    fn another_web_page_is_no_value() {
        let page =
            MissingPage { head: head("text/html", Some(6), None), text: Some("<html>".into()) };
        let found = head("text/html", Some(6), None);
        assert_eq!(page.likeness_of_bytes(&found, &"<HTML>".into()), Likeness::OtherPage);
        assert_eq!(page.likeness(&head("text/html", Some(7), None)), Likeness::OtherPage);
    }

    #[test]
    fn a_long_page_is_known_by_its_tag_alone() {
        let page = MissingPage { head: head("text/plain", Some(1 << 20), Some("x")), text: None };
        assert_eq!(page.likeness(&head("text/plain", Some(1 << 20), Some("x"))), Likeness::Same);
        assert_eq!(page.likeness(&head("text/plain", Some(1 << 20), None)), Likeness::Unclear);
        assert_eq!(page.likeness(&head("text/plain", Some(1 << 19), None)), Likeness::None);
    }
}
