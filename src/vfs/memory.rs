//! Bytes that wait to be stored, all of them together bounded.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Vfs;
use super::commit::When;
use super::file::Content;
use super::place::Place;
use crate::cache::Due;
use crate::error::{Error, Kind, Result};

/// How long a writer waits for room.
const PATIENCE: Duration = Duration::from_secs(2);

impl Vfs {
    /// Counts `more` bytes that are to wait here, or refuses them. Files that wait for their time go to the store
    /// first. The caller may hold the lock of one file.
    pub(super) fn reserve(&self, more: usize) -> Result<()> {
        let started = Instant::now();
        let fits = u64::try_from(more).is_ok_and(|more| more <= self.options.dirty_limit);
        loop {
            if self.try_reserve(more).is_ok() {
                return Ok(());
            }
            self.store_waiting();
            let stored = self.store_shards(Due::All);
            match (self.try_reserve(more), stored) {
                (Ok(()), _) => return Ok(()),
                // Where the store takes no more, that is the reason.
                (Err(_), Err(error)) => return Err(error),
                (Err(error), Ok(())) if !fits || started.elapsed() > PATIENCE => return Err(error),
                // Others take the room as fast as it is made, or have not closed what they write.
                (Err(_), Ok(())) => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    pub(super) fn try_reserve(&self, more: usize) -> Result<()> {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let limit = self.options.dirty_limit.saturating_sub(self.cache.pending_len());
        let fits = |now: u64| now.checked_add(more).filter(|after| more == 0 || *after <= limit);
        match self.unstored_len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(now) => Err(Error::new(
                Kind::NoMemory,
                format!(
                    "{} bytes are not stored yet, the limit is {} (--dirty-limit)",
                    now.saturating_add(self.cache.pending_len()),
                    self.options.dirty_limit
                ),
            )),
        }
    }

    /// Stores ordinary files that nobody is writing. One that somebody else has locked is left out: who holds the lock
    /// of one file never waits for that of another.
    fn store_waiting(&self) {
        for inode in self.overlay.files() {
            let Some(mut file) = inode.file().try_lock() else { continue };
            let is_ordinary = matches!(inode.place(), Some(Place::Ordinary(..)));
            if is_ordinary && file.writers == 0 && matches!(file.content, Content::Unstored(_)) {
                // Whoever asks for it to be stored is told why it cannot be.
                let stored = self.store_locked(&inode, &mut file, When::Asked);
                stored.unwrap_or_else(|error| log::debug!("{error}"));
            }
        }
    }

    pub(super) fn unreserve(&self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        let less = |now: u64| Some(now.saturating_sub(len));
        let _always = self.unstored_len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Bytes that wait to be stored, in all files.
    pub(super) fn unstored_len(&self) -> u64 {
        self.unstored_len.load(Ordering::Relaxed)
    }
}
