//! How a server answers for names that cannot exist, as far as it was asked.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::client::Answer;
use super::head::{is_html, kind_of, part_of, tag_of};
use crate::store::Key;

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
    Page(Arc<Page>),
    Unclear,
}

/// The properties that all pages for missing names share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    kind: Option<String>,
    len: Option<u64>,
    tag: Option<String>,
    pub is_html: bool,
}

impl Page {
    pub fn of(answer: &Answer) -> Self {
        let headers = answer.response.headers();
        let len = match part_of(headers) {
            Some(part) => Some(part.len),
            None => answer.response.content_length(),
        };
        Self {
            kind: kind_of(headers).map(str::to_owned),
            len,
            tag: tag_of(headers).map(str::to_owned),
            is_html: is_html(headers),
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
