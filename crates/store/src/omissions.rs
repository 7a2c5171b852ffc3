//! Omissions: nodes and chunks that a list did not show, so that nobody takes those that it showed
//! for all.
//!
//! Each store has one account. A list notes there what it leaves out if that may be a node or a
//! chunk, or hold one: a name that no key can have, an entry of an archive, a directory that the
//! server does not list. A list that *fails* is an error of its reader, not an omission. A command
//! asks for the account when its walk has ended; with omissions its result is not whole, and its
//! exit code says so. The first ones are logged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use zarrfs_base::error::Word;
use zarrfs_base::width::ToU64;

/// The target of the log lines: `check` prints omissions itself.
pub const OMISSIONS_TARGET: &str = "zarrfs::omissions";

/// The most omissions that are kept. The others are counted.
const MOST_KEPT: usize = 1000;

/// The most omissions that are logged.
const MOST_LOGGED: usize = 100;

/// Something that was not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// The key, or the directory, as far as it can be written as text.
    pub place: String,
    /// What that means for it.
    pub word: Word,
    /// The reason, as the end of a sentence about the place.
    pub why: String,
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "/" } else { &self.place };
        write!(f, "{place}: {}", self.why)
    }
}

/// The account of what was not seen in a store. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Omissions(Arc<Mutex<Account>>);

#[derive(Debug, Default)]
struct Account {
    /// The omissions by place.
    kept: BTreeMap<String, Omission>,
    /// How many more there are, some perhaps several times.
    others: u64,
}

impl Omissions {
    /// Notes that what is at `place` was not seen.
    pub fn note(&self, place: &str, word: Word, why: &str) {
        let omission = Omission { place: place.to_owned(), word, why: why.to_owned() };
        let count = {
            let mut account = self.0.lock();
            if account.kept.contains_key(place) {
                return;
            }
            if account.kept.len() >= MOST_KEPT {
                account.others = account.others.saturating_add(1);
                return;
            }
            account.kept.insert(place.to_owned(), omission.clone());
            account.kept.len()
        };
        if count <= MOST_LOGGED {
            log::warn!(target: OMISSIONS_TARGET, "{omission}");
        }
    }

    /// Returns what was not seen, in order. Directories around all of `tops` do not count: a walk
    /// that begins at these needs no list of what else is in those.
    pub fn around<'t>(&self, tops: impl IntoIterator<Item = &'t str>) -> NotSeen {
        let account = self.0.lock();
        let tops: Vec<&str> = tops.into_iter().collect();
        let is_above = |place: &str| {
            let place = place.trim_end_matches('/');
            let is_below = |top: &&str| match top.strip_prefix(place) {
                Some(rest) if place.is_empty() => !rest.is_empty(),
                Some(rest) => rest.starts_with('/'),
                None => false,
            };
            !tops.is_empty() && tops.iter().all(is_below)
        };
        let kept = account.kept.iter().filter(|(place, _)| !is_above(place));
        let omissions = kept.map(|(_, omission)| omission.clone()).collect();
        NotSeen { omissions, others: account.others }
    }

    /// Whether it is known that a place was not seen.
    pub fn has(&self, place: &str) -> bool {
        self.0.lock().kept.contains_key(place)
    }

    /// Returns how many omissions are kept.
    pub fn kept_count(&self) -> usize {
        self.0.lock().kept.len()
    }

    /// Returns what was not seen at a path and below it, each with its path from there, which is
    /// empty for the path itself.
    pub fn below(&self, path: &str) -> Vec<(String, Omission)> {
        let relative = |place: &str| {
            let rest = place.strip_prefix(path)?;
            let is_below = path.is_empty() || rest.is_empty() || rest.starts_with('/');
            is_below.then(|| rest.trim_matches('/').to_owned())
        };
        let account = self.0.lock();
        let all = account.kept.values();
        all.filter_map(|omission| Some((relative(&omission.place)?, omission.clone()))).collect()
    }

    /// Returns everything that was not seen.
    pub fn all(&self) -> NotSeen {
        self.around([])
    }

    /// Notes what was not seen in the same store when it was opened another time.
    pub fn add(&self, others: &Self) {
        for Omission { place, word, why } in others.all().omissions {
            self.note(&place, word, &why);
        }
    }
}

/// The omissions of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotSeen {
    /// The first omissions, by place.
    pub omissions: Vec<Omission>,
    /// How many more there are.
    pub others: u64,
}

impl NotSeen {
    /// Whether the walk saw everything.
    pub fn is_nothing(&self) -> bool {
        self.count() == 0
    }

    /// Returns that the result of a walk is not whole, as a part of a sentence; `None` if it is.
    pub fn in_words(&self) -> Option<String> {
        match self.count() {
            0 => None,
            1 => Some("one place in it could not be seen".to_owned()),
            count => Some(format!("{count} places in it could not be seen")),
        }
    }

    /// Returns the number of omissions.
    pub fn count(&self) -> u64 {
        self.omissions.len().to_u64().saturating_add(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_each_place_once_and_counts_what_it_does_not_keep() {
        let omissions = Omissions::default();
        for _ in 0..2 {
            omissions.clone().note("a/b", Word::Refused, "not listed");
            omissions.note("ab", Word::Refused, "not listed");
        }
        assert_eq!(omissions.all().count(), 2);
        let not_seen = |tops: &[&str]| {
            let not_seen = omissions.around(tops.iter().copied()).omissions;
            not_seen.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(not_seen(&["a/b/c", "a/b/d"]), ["ab: not listed"]);
        assert_eq!(not_seen(&["a/b", "a/b/c"]).len(), 2);
        let below = |path: &str| omissions.below(path).into_iter().map(|(rest, _)| rest);
        assert_eq!(below("a").collect::<Vec<_>>(), ["b"]);
        assert_eq!(below("a/b").collect::<Vec<_>>(), [""]);
        assert_eq!(below("").collect::<Vec<_>>(), ["a/b", "ab"]);
        omissions.note("", Word::Refused, "not listed");
        assert_eq!(not_seen(&[""]).len(), 3);
        assert_eq!(not_seen(&["c"]).len(), 2);
        for number in 0..MOST_KEPT {
            omissions.note(&number.to_string(), Word::Unsupported, "no key");
        }
        assert_eq!(omissions.all().others, 3);
    }
}
