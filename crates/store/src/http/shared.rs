//! What all requests to a web server have in common: the client, and what answers have shown.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::Client;
use super::head::Tags;
use super::probe::Missing;
use super::room::Room;
use super::wholes::Wholes;
use crate::remote::Limits;

/// How a server lists a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With a page, in HTML or JSON.
    Page,
    /// As `WebDAV` does.
    Dav,
}

/// The state that all requests to a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub client: Client,
    pub missing: Missing,
    pub wholes: Wholes,
    pub tags: Tags,
    /// How it lists directories, if that is known. A leaf lock.
    pub form: Mutex<Option<Form>>,
    /// For lists, which take memory while they are read and parsed.
    pub long_lists: Room,
    pub has_answered: AtomicBool,
    /// How long names and stats are cached.
    pub ttl: Duration,
}

impl Shared {
    pub fn new(client: Client, limits: Limits) -> Self {
        Self {
            client,
            missing: Missing::default(),
            wholes: Wholes::new(limits.memory, limits.ttl),
            tags: Tags::default(),
            form: Mutex::default(),
            long_lists: Room::for_one(),
            has_answered: AtomicBool::new(false),
            ttl: limits.ttl,
        }
    }
}
