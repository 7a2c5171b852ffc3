//! The entries directly below a prefix, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use super::listing::{Listed, Listing};
use super::names::{Known, NameCache};
use super::paging::Paging;
use super::server::{Depth, Server, Start, wait};
use crate::error::{At, Error, Kind, Result};
use crate::store::{ByteRange, Entry, Prefix};

/// Lists the entries directly below a prefix.
pub(super) struct Directory {
    server: Arc<dyn Server>,
    names: Arc<NameCache>,
    prefix: Prefix,
    listing: Listing,
    /// Where it continues; `None` at its end, or after an error.
    next: Option<Start>,
    paging: Paging,
    /// The names that come next.
    rest: VecDeque<Listed>,
}

impl Directory {
    /// Returns all entries: those that are known, and then those of the pages that are not.
    pub(super) fn continued(
        server: &Arc<dyn Server>,
        names: &Arc<NameCache>,
        prefix: &Prefix,
    ) -> Self {
        let (listing, next) = match names.listing(prefix) {
            Some(listing) => {
                let next = listing.next().map(|next| Start::Continue(next.clone()));
                (listing, next)
            }
            None => (Listing::new(), Some(Start::First)),
        };
        Self {
            server: Arc::clone(server),
            names: Arc::clone(names),
            prefix: prefix.clone(),
            rest: listing.names().collect(),
            listing,
            next,
            paging: Paging::default(),
        }
    }

    /// Reads the next page, unless all were read.
    pub(super) fn read_next(&mut self) -> Result<()> {
        let Some(start) = self.next.take() else { return Ok(()) };
        let from = start.clone();
        let page = wait(|report| self.server.list(&self.prefix, Depth::Directory, from, report))?;
        self.paging.note(&start, &page)?;
        self.next = page.next.clone().map(Start::Continue);
        if NameCache::is_long(&self.listing) {
            self.rest.extend(page.entries);
        } else {
            self.rest.extend(self.listing.add(page));
            self.names.keep(&self.prefix, &self.listing);
            if self.next.is_none() {
                self.check_has_document()?;
            }
        }
        Ok(())
    }

    /// Fails if the server's list lacks a metadata file that is there: it may lack anything.
    fn check_has_document(&self) -> Result<()> {
        let Some(key) = self.names.contradicted(&self.prefix) else { return Ok(()) };
        let first = ByteRange::Span { offset: 0, len: 1 };
        if wait(|report| self.server.get(&key, Some(first), report))?.is_none() {
            return Ok(());
        }
        self.names.forget_listing(&self.prefix);
        let detail = format!("the server's list lacks {}, which is there", key.name());
        Err(Error::new(Kind::Os(libc::EIO), detail).by_server().at(&self.prefix))
    }

    /// Whether a directory is known to be empty. Some servers list it in the one above.
    fn is_empty(&self, entry: &Entry) -> bool {
        let Entry::Prefix(name) = entry else { return false };
        let directory = self.prefix.join(name);
        directory.is_ok_and(|it| matches!(self.names.prefix(&it), Known::Absent))
    }
}

impl Iterator for Directory {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((entry, _)) = self.rest.pop_front() {
                if self.is_empty(&entry) {
                    continue;
                }
                return Some(Ok(entry));
            }
            self.next.as_ref()?;
            if let Err(error) = self.read_next().at(&self.prefix) {
                return Some(Err(error));
            }
        }
    }
}
