//! Buckets that answer "403 Forbidden" for a missing object, since their users may not list it.
//!
//! Credentials that have ended get the same answer, and a chunk must not read as the fill value
//! then. So such an answer means that an object is missing only if the bucket gives it for a name
//! that cannot exist, after that gives an object that is known to be there, and then refuses the
//! missing one again.
//!
//! An object counts as not listed only if a whole page of names around it was read: the client
//! leaves out an object of Azure whose name is the prefix of the listing, and a refused metadata
//! file would look missing.

use std::sync::atomic::{AtomicBool, Ordering};

use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{Error as Failure, ObjectStoreExt as _};
use parking_lot::Mutex;

use super::failure;
use super::settings::BucketClient;
use crate::{Prefix, unique};

/// The most pages that are read to see whether an object is listed.
const MOST_PAGES: usize = 8;

/// Where a hierarchy may have metadata at its root.
const ENTRY_POINTS: [&str; 5] =
    ["zarr.json", ".zgroup", ".zarray", ".zmetadata", "attributes.json"];

/// The facts about a bucket that decide over such an answer.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    /// An object that is there. A leaf lock.
    known: Mutex<Option<Path>>,
    /// Whether the bucket may be listed.
    is_listed: AtomicBool,
    /// Whether the log has said it. A leaf lock.
    is_said: Mutex<bool>,
}

impl Hidden {
    /// Notes that an object was read.
    pub(super) fn note_read(&self, path: &Path) {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = Some(path.clone());
        }
    }

    /// Notes that the bucket was listed.
    pub(super) fn note_listed(&self) {
        self.is_listed.store(true, Ordering::Relaxed);
    }

    /// Whether an object is missing that the bucket has just refused.
    pub(super) async fn is_missing(
        &self,
        client: &dyn BucketClient,
        root: &Prefix,
        path: &Path,
    ) -> bool {
        if self.is_listed.load(Ordering::Relaxed) {
            return is_not_listed(client, path).await;
        }
        let refused =
            |found: &Result<_, Failure>| found.as_ref().is_err_and(failure::is_not_allowed);
        let Ok(none) = Path::parse(format!("{root}.zarrfs/none-{}", unique::text())) else {
            return false;
        };
        if !refused(&client.head(&none).await) {
            return false;
        }
        let known = self.known.lock().clone();
        let is_there = match &known {
            Some(known) => known != path && client.head(known).await.is_ok(),
            None => false,
        };
        let known = match known.filter(|_| is_there) {
            Some(known) => known,
            // It may have been removed.
            None => match Self::find(client, root).await {
                Some(found) if found != *path => found,
                _ => return false,
            },
        };
        *self.known.lock() = None;
        // Until now everything may have been refused for a while.
        if !refused(&client.head(path).await) {
            return false;
        }
        self.note_read(&known);
        if !std::mem::replace(&mut *self.is_said.lock(), true) {
            log::warn!(
                "{root}: the bucket may not be listed and answers 403 for missing objects, so \
                 that answer counts as a missing chunk while {known} can be read"
            );
        }
        true
    }

    /// Finds an object that is there.
    async fn find(client: &dyn BucketClient, root: &Prefix) -> Option<Path> {
        for name in ENTRY_POINTS {
            let path = Path::parse(format!("{root}{name}")).ok()?;
            if client.head(&path).await.is_ok() {
                return Some(path);
            }
        }
        None
    }
}

/// Whether a listing shows that an object is missing.
async fn is_not_listed(client: &dyn BucketClient, path: &Path) -> bool {
    // The client leaves out an object of Azure whose name is the prefix.
    let mut prefix = path.as_ref().to_owned();
    prefix.pop();
    let mut options = PaginatedListOptions::default();
    for _ in 0..MOST_PAGES {
        let Ok(page) = client.list_paginated(Some(&prefix), options.clone()).await else {
            return false;
        };
        if page.result.objects.iter().any(|object| object.location == *path) {
            return false;
        }
        options.page_token = page.page_token;
        if options.page_token.is_none() {
            return true;
        }
    }
    false
}
