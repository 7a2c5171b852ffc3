//! Whether a listing goes on: a server may repeat pages, or send empty ones without end.

use std::collections::HashSet;
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use super::server::{ListingPage, Start};
use crate::StoreEntry;
use zarrfs_base::error::{Error, Kind, Result};

/// The most pages without names that follow one another. Servers send some for removed values.
const MOST_EMPTY: usize = 1000;

/// The pages of a listing so far.
#[derive(Debug, Default)]
pub(super) struct Paging {
    /// The hashes of the first names of the pages.
    firsts: HashSet<u64>,
    hasher: RandomState,
    /// How many pages without names came last.
    empty: usize,
}

impl Paging {
    /// Notes a page that was requested at `start`. Fails if the listing would not end.
    pub(super) fn note(&mut self, start: &Start, page: &ListingPage) -> Result<()> {
        let Some(next) = &page.next else { return Ok(()) };
        let is_new = if let Some((entry, _)) = page.entries.first() {
            self.empty = 0;
            let is_directory = matches!(entry, StoreEntry::Prefix(_));
            self.firsts.insert(self.hasher.hash_one((entry.name(), is_directory)))
        } else {
            self.empty = self.empty.saturating_add(1);
            self.empty < MOST_EMPTY
        };
        let stays = matches!(start, Start::Continue(at) if at == next);
        if stays || !is_new {
            return Err(Error::new(Kind::Os(libc::EIO), "the server repeats a page of a listing"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether each of the pages is accepted: its first name and where it continues.
    fn accepted(pages: &[(&str, &str)]) -> Vec<bool> {
        let (mut paging, mut start) = (Paging::default(), Start::First);
        let mut note = |(name, next): &(&str, &str)| {
            let entries = (!name.is_empty()).then(|| (StoreEntry::Key((*name).to_owned()), None));
            let next = (!next.is_empty()).then(|| (*next).to_owned());
            let page = ListingPage { entries: entries.into_iter().collect(), next };
            let noted = paging.note(&start, &page).is_ok();
            start = page.next.map_or(Start::First, Start::Continue);
            noted
        };
        pages.iter().map(&mut note).collect()
    }

    #[test]
    fn a_listing_that_does_not_go_on_is_noticed() {
        assert_eq!(accepted(&[("a", "1"), ("b", "2"), ("c", "")]), [true; 3]);
        assert_eq!(accepted(&[("a", "1"), ("b", "1")]), [true, false], "the same place");
        assert_eq!(accepted(&[("a", "1"), ("b", "2"), ("a", "3")]), [true, true, false]);
        assert_eq!(accepted(&[("a", "1"), ("b", "2"), ("a", "1")]), [true, true, false]);
        assert_eq!(accepted(&[("", "1"), ("", "2"), ("a", "")]), [true; 3], "some are empty");
        let endless: Vec<String> = (0..MOST_EMPTY).map(|place| place.to_string()).collect();
        let endless: Vec<_> = endless.iter().map(|place| ("", place.as_str())).collect();
        assert_eq!(accepted(&endless).iter().filter(|is_accepted| !**is_accepted).count(), 1);
    }
}
