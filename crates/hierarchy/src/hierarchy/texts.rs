//! Caches texts that combine many nodes: consolidated metadata.
//!
//! Each is cached as long as nodes are, and concurrent requests share one. Making one takes as long
//! as reading all nodes below the group. `stat` only needs the length; if making a new text is
//! slow, `stat` uses the length of an older one, so that listing a directory repeatedly does not
//! read everything each time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::metadata::NodePath;
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::resources;
use zarrfs_base::width::ToU64;

/// The most bytes of all cached texts.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// The bytes of an entry besides its text.
const ENTRY_LEN: u64 = 256;

/// An outdated length is used for this many times the duration of making the text.
const PATIENCE: u32 = 10;

/// The most reasons to keep until the caller takes them.
const MAX_NOTES: usize = 16;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPurpose {
    /// The text itself.
    Text,
    /// Only its length.
    Len,
}

/// The sources of a text; if any of them differs, the text is outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sources {
    /// The generation of the hierarchy.
    pub generation: u64,
    /// The version of the group's own document.
    pub version: Option<[u64; 4]>,
}

/// A text, perhaps without the consolidated metadata.
#[derive(Debug, Clone)]
pub struct Text {
    /// The text itself.
    pub text: Arc<str>,
    /// Why the consolidated metadata are missing; `None` if they are included.
    pub left_out: Option<Error>,
}

#[derive(Clone)]
struct MadeText {
    text: Text,
    of: Sources,
    at: Instant,
    took: Duration,
}

/// A text, `None` if making it failed. Locked while it is made.
type TextSlot = Arc<Mutex<Option<MadeText>>>;

/// The cached texts by the path of their group.
pub struct TextCache {
    /// A leaf lock. The lock of a text is held while it is made, and no other lock is.
    slots: Mutex<Bounded<NodePath, TextSlot>>,
    /// Why texts lack the consolidated metadata. A leaf lock.
    notes: Mutex<Vec<Error>>,
}

impl Default for TextCache {
    fn default() -> Self {
        let limits = MapLimits::bytes(resources::within_memory(MAX_KEPT_LEN, 12));
        Self { slots: Mutex::new(Bounded::new(limits)), notes: Mutex::default() }
    }
}

impl fmt::Debug for TextCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextCache").field("slots", &*self.slots.lock()).finish_non_exhaustive()
    }
}

impl TextCache {
    /// Returns the text of `path`. Calls `make` unless a text from the same sources, at most `ttl`
    /// old, is cached.
    pub fn get(
        &self,
        path: &NodePath,
        of: Sources,
        ttl: Duration,
        wanted: TextPurpose,
        make: impl FnOnce() -> Result<Text>,
    ) -> Result<Text> {
        let slot = Arc::clone(self.slots.lock().get_or_insert(path.clone(), TextSlot::default));
        let mut known = slot.lock();
        if let Some(made) = known.as_ref().filter(|made| made.of == of) {
            let longest = match wanted {
                TextPurpose::Text => ttl,
                TextPurpose::Len => ttl.max(made.took.saturating_mul(PATIENCE)),
            };
            if made.at.elapsed() < longest {
                return Ok(made.text.clone());
            }
        }
        let begun = Instant::now();
        let text = make();
        let Ok(text) = text else {
            *known = None;
            self.count(path, &slot, 0);
            return text;
        };
        let made = MadeText { text: text.clone(), of, at: Instant::now(), took: begun.elapsed() };
        let was_known = known.replace(made);
        self.count(path, &slot, text.text.len());
        drop(known);
        let had_all = was_known.is_none_or(|known| known.text.left_out.is_none());
        if let Some(error) = text.left_out.clone().filter(|_| had_all) {
            let mut notes = self.notes.lock();
            notes.truncate(MAX_NOTES);
            notes.push(error);
        }
        Ok(text)
    }

    /// Returns the length of the last text of `path`; `None` if unknown or being made.
    pub fn last_len(&self, path: &NodePath) -> Option<usize> {
        let slot = Arc::clone(self.slots.lock().peek(path)?);
        let made = slot.try_lock()?;
        made.as_ref().map(|made| made.text.text.len())
    }

    /// Drops all texts because their sources have changed.
    pub fn forget(&self) {
        self.slots.lock().clear();
    }

    /// Takes the reasons why texts lack the consolidated metadata.
    pub fn take_notes(&self) -> Vec<Error> {
        std::mem::take(&mut *self.notes.lock())
    }

    /// Counts the bytes of the text in a slot, and drops the texts that were used longest ago until
    /// the rest fits.
    fn count(&self, path: &NodePath, slot: &TextSlot, len: usize) {
        let len = len.to_u64().saturating_add(ENTRY_LEN);
        let mut slots = self.slots.lock();
        // Another slot may have taken its place.
        let is_kept = slots.peek(path).is_some_and(|known| Arc::ptr_eq(known, slot));
        let evicted = if is_kept { slots.set_len(path, len) } else { Vec::new() };
        drop(slots);
        drop(evicted); // Freeing memory takes time: not under the lock.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(generation: u64) -> Sources {
        Sources { generation, version: None }
    }

    fn text(text: &str) -> Result<Text> {
        Ok(Text { text: text.into(), left_out: None })
    }

    #[test]
    fn a_text_that_takes_long_to_make_gives_its_length_for_longer() {
        let (texts, path, ttl) = (TextCache::default(), NodePath::root(), Duration::from_millis(1));
        let slow = || {
            std::thread::sleep(Duration::from_millis(50));
            text("slow")
        };
        let get = |generation, wanted, make: &dyn Fn() -> Result<Text>| {
            texts.get(&path, of(generation), ttl, wanted, make).expect("made").text
        };
        assert_eq!(&*get(0, TextPurpose::Len, &slow), "slow");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(&*get(0, TextPurpose::Len, &|| text("new")), "slow");
        assert_eq!(&*get(1, TextPurpose::Len, &|| text("changed here")), "changed here");
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(&*get(1, TextPurpose::Text, &|| text("read again")), "read again");
    }

    #[test]
    fn texts_are_cached_within_a_limit_and_made_again_after_an_error() {
        let (texts, long) = (TextCache::default(), "x".repeat(16 << 20));
        let ttl = Duration::from_secs(3600);
        for number in 0..10 {
            let path = NodePath::root().child(&number.to_string()).expect("a path");
            texts.get(&path, of(0), ttl, TextPurpose::Text, || text(&long)).expect("made");
        }
        assert!(texts.slots.lock().count() <= 4);
        let failed = || Err(Error::corrupt("no"));
        let root = NodePath::root();
        texts.get(&root, of(0), ttl, TextPurpose::Text, failed).expect_err("it failed");
        let again = texts.get(&root, of(0), ttl, TextPurpose::Text, || text("y")).expect("made");
        assert_eq!(&*again.text, "y");
    }
}
