//! Limits the memory for unstored bytes of all files together.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Vfs;
use super::commit::StoreReason;
use super::file::Content;
use super::place::Place;
use crate::cache::Due;
use crate::error::{Error, Kind, Result};

/// How long a write waits for memory.
const PATIENCE: Duration = Duration::from_secs(2);

impl Vfs {
    /// Reserves `more` bytes for unstored data, or fails. Stores files early to free memory. The
    /// caller may hold the lock of one file.
    pub(super) fn reserve(&self, more: usize) -> Result<()> {
        let started = Instant::now();
        let fits = u64::try_from(more).is_ok_and(|more| more <= self.core.options.dirty_limit);
        loop {
            if self.try_reserve(more).is_ok() {
                return Ok(());
            }
            self.store_idle_files();
            let stored = self.store_shards(Due::All);
            match (self.try_reserve(more), stored) {
                (Ok(()), _) => return Ok(()),
                // Memory cannot be freed because the store fails, so report that error.
                (Err(_), Err(error)) => return Err(error),
                (Err(error), Ok(())) if !fits || started.elapsed() > PATIENCE => return Err(error),
                // Other writers take the memory as it is freed, or have not closed their files.
                (Err(_), Ok(())) => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    pub(super) fn try_reserve(&self, more: usize) -> Result<()> {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let limit = self.core.options.dirty_limit.saturating_sub(self.core.cache.pending_len());
        let fits = |now: u64| now.checked_add(more).filter(|after| more == 0 || *after <= limit);
        match self.unstored_len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(now) => Err(Error::new(
                Kind::NoMemory,
                format!(
                    "{} bytes are not stored yet, the limit is {} (--dirty-limit)",
                    now.saturating_add(self.core.cache.pending_len()),
                    self.core.options.dirty_limit
                ),
            )),
        }
    }

    /// Stores ordinary files that no program is writing. Skips locked files: a thread that holds
    /// the lock of one file must not wait for that of another.
    fn store_idle_files(&self) {
        for inode in self.overlay.files() {
            let Some(mut file) = inode.file().try_lock() else { continue };
            let is_ordinary = matches!(inode.place(), Some(Place::Ordinary(..)));
            if is_ordinary && file.writers == 0 && matches!(file.content, Content::Unstored(_)) {
                // The next request to store the file reports the error.
                let stored = self.store_locked(&inode, &mut file, StoreReason::Asked);
                stored.unwrap_or_else(|error| log::debug!("{error}"));
            }
        }
    }

    pub(super) fn unreserve(&self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        let less = |now: u64| Some(now.saturating_sub(len));
        let _always = self.unstored_len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the unstored bytes of all files.
    pub(super) fn unstored_len(&self) -> u64 {
        self.unstored_len.load(Ordering::Relaxed)
    }
}
