//! Lists all keys below a prefix on a server that lists one directory at a time.
//!
//! A web server may list most directories, but not all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use super::listing::RemoteListing;
use super::names::NameCache;
use super::paging::Paging;
use super::server::{Depth, ListingPage, Server, Start, receive, wait};
use crate::{ListedEntry, Prefix, StoreEntry};
use zarrfs_base::error::{Kind, Result, WithSubject};
use zarrfs_base::resources;

/// Returns the most directories that are listed at a time. Each list may be long.
fn most() -> usize {
    usize::try_from(resources::within_memory(16, 64 << 20)).unwrap_or(1).max(1)
}

/// The keys below a prefix.
pub(super) struct Descent {
    server: Arc<dyn Server>,
    names: Arc<NameCache>,
    /// The directories that were not listed yet.
    open: VecDeque<Prefix>,
    /// The most listings under way.
    most: usize,
    /// The listings under way.
    awaited: VecDeque<Awaited>,
    /// The entries that come next.
    rest: VecDeque<ListedEntry>,
}

struct Awaited {
    prefix: Prefix,
    listing: RemoteListing,
    page: Receiver<Result<ListingPage>>,
}

impl Descent {
    pub(super) fn new(server: Arc<dyn Server>, names: Arc<NameCache>, prefix: Prefix) -> Self {
        let open = VecDeque::from([prefix]);
        let (awaited, rest) = (VecDeque::new(), VecDeque::new());
        Self { server, names, open, most: most(), awaited, rest }
    }

    /// Requests the listings of the next directories, and takes those that are known.
    fn begin(&mut self) -> Result<()> {
        while self.awaited.len() < self.most
            && let Some(prefix) = self.open.pop_front()
        {
            let known = self.names.listing(&prefix).filter(|listing| listing.next().is_none());
            if let Some(listing) = known {
                self.take(&prefix, &listing)?;
                continue;
            }
            let (listing, (tell, page)) = (RemoteListing::new(), mpsc::sync_channel(1));
            // If the channel is closed, its reader has gone.
            let report = Box::new(move |result| drop(tell.send(result)));
            self.server.list(&prefix, Depth::Directory, Start::First, report);
            self.awaited.push_back(Awaited { prefix, listing, page });
        }
        Ok(())
    }

    /// Waits for a listing.
    fn end(&mut self, awaited: Awaited) -> Result<()> {
        let Awaited { prefix, mut listing, page } = awaited;
        let mut page = match receive(&page) {
            Err(error) if error.kind() == Kind::Unsupported => {
                self.rest.push_back(ListedEntry::Unlisted(prefix, error));
                return Ok(());
            }
            page => page.at(&prefix)?,
        };
        let (mut start, mut paging) = (Start::First, Paging::default());
        loop {
            paging.note(&start, &page).at(&prefix)?;
            let next = page.next.clone().map(Start::Continue);
            listing.add(page);
            let Some(next) = next else { break };
            start = next.clone();
            let list = |report| self.server.list(&prefix, Depth::Directory, next, report);
            page = wait(list).at(&prefix)?;
        }
        self.names.keep(&prefix, &listing);
        self.take(&prefix, &listing)
    }

    fn take(&mut self, prefix: &Prefix, listing: &RemoteListing) -> Result<()> {
        for (entry, _) in listing.names() {
            match entry {
                StoreEntry::Key(name) => self.rest.push_back(ListedEntry::Key(prefix.key(&name)?)),
                StoreEntry::Prefix(name) => self.open.push_back(prefix.join(&name)?),
            }
        }
        Ok(())
    }
}

impl Iterator for Descent {
    type Item = Result<ListedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let begun = self.begin();
            if let Some(known) = self.rest.pop_front() {
                return Some(Ok(known));
            }
            let ended = match (begun, self.awaited.pop_front()) {
                (Ok(()), Some(awaited)) => self.end(awaited),
                (Ok(()), None) => return None,
                (Err(error), _) => Err(error),
            };
            if let Err(error) = ended {
                self.open.clear();
                self.awaited.clear();
                return Some(Err(error));
            }
        }
    }
}
