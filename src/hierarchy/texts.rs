//! Texts that are made of many nodes: consolidated metadata.
//!
//! Each is kept for as long as what was read of a node is, and made once however many ask. To make one takes as long as it
//! takes to read all that is below a group: `stat`, which wants its length alone, gets that of an older one if making it
//! takes long, so that a program that looks at a directory again and again does not read everything each time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::metadata::NodePath;
use crate::resources;

/// How many bytes all of them may have.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// How many times as long as it took to make a text its length is taken to be right.
const PATIENCE: u32 = 10;

/// Reasons that are kept until somebody takes them.
const MAX_NOTES: usize = 16;

/// What a text is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// To be read.
    Text,
    /// For its length.
    Len,
}

/// What a text is made of: it is another one when this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Of {
    /// The generation of the hierarchy.
    pub generation: u64,
    /// The state of the group's own document.
    pub version: Option<[u64; 4]>,
}

/// A text, and what it lacks.
#[derive(Debug, Clone)]
pub struct Text {
    /// The text.
    pub text: Arc<str>,
    /// Why consolidated metadata are not in it, where they should be.
    pub left_out: Option<Error>,
}

#[derive(Clone)]
struct Made {
    text: Text,
    of: Of,
    at: Instant,
    took: Duration,
}

/// Texts by the path of their group.
#[derive(Default)]
pub struct Texts {
    /// A leaf. Each text is locked while it is made; nothing else is then.
    slots: Mutex<HashMap<NodePath, Arc<Mutex<Option<Made>>>>>,
    /// Why texts lack what they should have. A leaf.
    notes: Mutex<Vec<Error>>,
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").field("len", &self.slots.lock().len()).finish_non_exhaustive()
    }
}

impl Texts {
    /// The text of `path`, made by `make` unless one is known that was made of the same no longer than `ttl` ago.
    pub fn get(
        &self,
        path: &NodePath,
        (of, ttl): (Of, Duration),
        wanted: Wanted,
        make: impl FnOnce() -> Result<Text>,
    ) -> Result<Text> {
        let slot = Arc::clone(self.slots.lock().entry(path.clone()).or_default());
        let mut known = slot.lock();
        if let Some(made) = known.as_ref().filter(|made| made.of == of) {
            let longest = match wanted {
                Wanted::Text => ttl,
                Wanted::Len => ttl.max(made.took.saturating_mul(PATIENCE)),
            };
            if made.at.elapsed() < longest {
                return Ok(made.text.clone());
            }
        }
        let begun = Instant::now();
        let text = make();
        let Ok(text) = text else {
            *known = None;
            return text;
        };
        let made = Made { text: text.clone(), of, at: Instant::now(), took: begun.elapsed() };
        let was_known = known.replace(made);
        drop(known);
        self.shrink(path);
        let had_all = was_known.is_none_or(|known| known.text.left_out.is_none());
        if let Some(error) = text.left_out.clone().filter(|_| had_all) {
            let mut notes = self.notes.lock();
            notes.truncate(MAX_NOTES);
            notes.push(error);
        }
        Ok(text)
    }

    /// How long the text of `path` was when it was made last; none where that is not known, or being made.
    pub fn last_len(&self, path: &NodePath) -> Option<usize> {
        let slot = Arc::clone(self.slots.lock().get(path)?);
        let made = slot.try_lock()?;
        made.as_ref().map(|made| made.text.text.len())
    }

    /// Forgets all texts: something that they are made of has changed.
    pub fn forget(&self) {
        self.slots.lock().clear();
    }

    /// Why texts lack what they should have, once for each.
    pub fn take_notes(&self) -> Vec<Error> {
        std::mem::take(&mut *self.notes.lock())
    }

    /// Forgets the oldest texts, if there are too many bytes of them; not the one of `path`.
    fn shrink(&self, path: &NodePath) {
        let mut slots = self.slots.lock();
        let known = |(path, slot): (&NodePath, &Arc<Mutex<Option<Made>>>)| {
            let slot = slot.try_lock()?;
            Some((path.clone(), slot.as_ref().map(|made| (made.at, made.text.text.len()))))
        };
        let mut all: Vec<_> = slots.iter().filter_map(known).collect();
        let limit = resources::within_memory(MAX_KEPT_LEN, 12);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut len = all.iter().filter_map(|(_, made)| Some(made.as_ref()?.1)).sum::<usize>();
        all.retain(|(known, _)| known != path);
        all.sort_by_key(|(_, made)| made.as_ref().map(|(at, _)| *at));
        for (path, made) in all {
            if len <= limit && made.is_some() {
                break;
            }
            len = len.saturating_sub(made.map_or(0, |(_, len)| len));
            slots.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(generation: u64) -> Of {
        Of { generation, version: None }
    }

    fn text(text: &str) -> Result<Text> {
        Ok(Text { text: text.into(), left_out: None })
    }

    #[test]
    fn a_text_that_takes_long_to_make_gives_its_length_for_longer() {
        let (texts, path, ttl) = (Texts::default(), NodePath::root(), Duration::from_millis(1));
        let slow = || {
            std::thread::sleep(Duration::from_millis(50));
            text("slow")
        };
        let get = |generation, wanted, make: &dyn Fn() -> Result<Text>| {
            texts.get(&path, (of(generation), ttl), wanted, make).expect("made").text
        };
        assert_eq!(&*get(0, Wanted::Len, &slow), "slow");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(&*get(0, Wanted::Len, &|| text("new")), "slow");
        assert_eq!(&*get(1, Wanted::Len, &|| text("changed here")), "changed here");
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(&*get(1, Wanted::Text, &|| text("read again")), "read again");
    }

    #[test]
    fn texts_are_kept_within_a_limit_and_made_anew_after_an_error() {
        let (texts, long) = (Texts::default(), "x".repeat(16 << 20));
        let ttl = Duration::from_secs(3600);
        for number in 0..10 {
            let path = NodePath::root().child(&number.to_string()).expect("a path");
            texts.get(&path, (of(0), ttl), Wanted::Text, || text(&long)).expect("made");
        }
        assert!(texts.slots.lock().len() <= 4);
        let failed = || Err(Error::corrupt("no"));
        let root = NodePath::root();
        texts.get(&root, (of(0), ttl), Wanted::Text, failed).expect_err("it failed");
        let again = texts.get(&root, (of(0), ttl), Wanted::Text, || text("y")).expect("made");
        assert_eq!(&*again.text, "y");
    }
}
