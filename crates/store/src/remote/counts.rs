//! Counts the requests to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::server::{Depth, ListingPage, Report, Server, Start};
use crate::{ByteRange, Condition, Key, Prefix, Requests, Stat, Value};
use zarrfs_base::width::ToU64;

/// A server whose requests are counted. One that the client makes again counts once.
#[derive(Debug)]
pub(super) struct CountedServer {
    server: Arc<dyn Server>,
    gets: AtomicU64,
    lists: AtomicU64,
    puts: AtomicU64,
    deletes: AtomicU64,
    received_len: Arc<AtomicU64>,
    sent_len: AtomicU64,
}

impl CountedServer {
    pub(super) fn new(server: Arc<dyn Server>) -> Self {
        Self {
            server,
            gets: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            puts: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            received_len: Arc::default(),
            sent_len: AtomicU64::new(0),
        }
    }

    /// Returns the requests since the start.
    pub(super) fn requests(&self) -> Requests {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            gets: count(&self.gets),
            lists: count(&self.lists),
            puts: count(&self.puts),
            deletes: count(&self.deletes),
            received_len: count(&self.received_len),
            sent_len: count(&self.sent_len),
            silence: self.server.silence(),
            disk_hits: 0,
            disk_len: 0,
        }
    }
}

fn len_of(bytes: &[u8]) -> u64 {
    bytes.len().to_u64()
}

impl Server for CountedServer {
    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let received = Arc::clone(&self.received_len);
        let counted: Report<Option<Value>> = Box::new(move |answer| {
            if let Ok(Some(value)) = &answer {
                received.fetch_add(len_of(&value.bytes), Ordering::Relaxed);
            }
            report(answer);
        });
        self.server.get(key, range, counted);
    }

    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition, report: Report<Stat>) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        let len = bytes.iter().map(|some| len_of(some)).fold(0, u64::saturating_add);
        self.sent_len.fetch_add(len, Ordering::Relaxed);
        self.server.put(key, bytes, condition, report);
    }

    fn delete(&self, keys: &[Key], report: Report<()>) {
        self.deletes.fetch_add(1, Ordering::Relaxed);
        self.server.delete(keys, report);
    }

    fn stop(&self) {
        self.server.stop();
    }

    fn lists_subtrees(&self) -> bool {
        self.server.lists_subtrees()
    }

    fn proves_absence(&self) -> bool {
        self.server.proves_absence()
    }

    fn list(&self, prefix: &Prefix, depth: Depth, start: Start, report: Report<ListingPage>) {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.server.list(prefix, depth, start, report);
    }

    fn has_tag(&self, stat: &Stat, tag: &str) -> Option<bool> {
        self.server.has_tag(stat, tag)
    }

    fn has_version(&self, stat: &Stat) -> bool {
        self.server.has_version(stat)
    }
}
