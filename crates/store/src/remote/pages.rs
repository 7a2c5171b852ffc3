//! The entries directly below a prefix, page by page.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::listing::{ListedName, RemoteListing};
use super::names::{KnownPresence, NameCache};
use super::paging::Paging;
use super::server::{Depth, Server, Start, wait};
use crate::{ByteRange, Key, Prefix, StoreEntry};
use zarrfs_base::error::{Error, Kind, Result, WithSubject, Word};

/// Lists the entries directly below a prefix.
pub(super) struct Directory {
    server: Arc<dyn Server>,
    names: Arc<NameCache>,
    prefix: Prefix,
    listing: RemoteListing,
    /// Where it continues; `None` at its end, or after an error.
    next: Option<Start>,
    paging: Paging,
    /// The names that come next.
    rest: VecDeque<ListedName>,
    /// Whether it was listed a second time.
    is_second: bool,
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
            None => (RemoteListing::new(), Some(Start::First)),
        };
        Self {
            server: Arc::clone(server),
            names: Arc::clone(names),
            prefix: prefix.clone(),
            rest: listing.names().collect(),
            listing,
            next,
            paging: Paging::default(),
            is_second: false,
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
            if self.next.is_none()
                && let Some(key) = self.lacks_document()?
            {
                return self.doubt(&start, &key);
            }
        }
        Ok(())
    }

    /// Returns a metadata file that is there, although the server's whole list lacks it.
    fn lacks_document(&self) -> Result<Option<Key>> {
        let Some(key) = self.names.contradicted(&self.prefix) else { return Ok(None) };
        let (began, first) = (Instant::now(), ByteRange::Span { offset: 0, len: 1 });
        if wait(|report| self.server.get(&key, Some(first), report))?.is_some() {
            return Ok(Some(key));
        }
        self.names.keep_stat(&key, began, None);
        Ok(None)
    }

    /// Lists once more, since another program may have made the node meanwhile. Then fails: the
    /// list may lack anything. Web servers that hide metadata files may show all others.
    fn doubt(&mut self, start: &Start, key: &Key) -> Result<()> {
        let detail = format!("the server's list lacks {}, which is there", key.name());
        if !self.names.proves_absence() {
            self.names.omissions.note(self.prefix.as_str(), Word::Missing, &detail);
            return Ok(());
        }
        self.names.forget_listing(&self.prefix);
        if *start == Start::First && !self.is_second {
            self.is_second = true;
            (self.listing, self.paging) = (RemoteListing::new(), Paging::default());
            (self.next, self.rest) = (Some(Start::First), VecDeque::new());
            return self.read_next();
        }
        Err(Error::new(Kind::Os(libc::EIO), detail).by_server().at(&self.prefix))
    }

    /// Whether a directory is known to be empty. Some servers list it in the one above.
    fn is_empty(&self, entry: &StoreEntry) -> bool {
        let StoreEntry::Prefix(name) = entry else { return false };
        let directory = self.prefix.join(name);
        directory.is_ok_and(|it| matches!(self.names.prefix(&it), KnownPresence::Absent))
    }
}

impl Iterator for Directory {
    type Item = Result<StoreEntry>;

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
