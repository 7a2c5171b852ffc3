//! What all requests to a web server have in common: the client, and what answers have shown.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::HttpClient;
use super::head::Tags;
use super::probe::Missing;
use super::room::AnswerMemory;
use super::wholes::Wholes;
use crate::remote::RemoteLimits;

/// How a server lists a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingKind {
    /// With a page, in HTML or JSON.
    Page,
    /// As `WebDAV` does.
    Dav,
}

/// The state that all requests to a server share.
#[derive(Debug)]
pub(super) struct ServerState {
    pub client: HttpClient,
    pub missing: Missing,
    pub wholes: Wholes,
    pub tags: Tags,
    /// How it lists directories, if that is known. A leaf lock.
    pub form: Mutex<Option<ListingKind>>,
    /// For lists, which take memory while they are read and parsed.
    pub long_lists: AnswerMemory,
    pub has_answered: AtomicBool,
    /// How long names and stats are cached.
    pub ttl: Duration,
}

impl ServerState {
    pub fn new(client: HttpClient, limits: RemoteLimits) -> Self {
        Self {
            client,
            missing: Missing::default(),
            wholes: Wholes::new(limits.memory, limits.ttl),
            tags: Tags::default(),
            form: Mutex::default(),
            long_lists: AnswerMemory::for_one(),
            has_answered: AtomicBool::new(false),
            ttl: limits.ttl,
        }
    }
}
