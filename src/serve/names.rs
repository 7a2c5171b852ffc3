//! The names of a directory, in the order of the listing or sorted for people.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Result;
use crate::vfs::{DirHandle, DirectoryName, Listings};

/// The most names to sort. A longer listing is sent in the order in which the store lists it.
const MAX_SORTED: usize = 20_000;

/// The names of an open directory, one after another.
pub struct ListedNames {
    dir: Arc<DirHandle>,
    position: usize,
    /// The next names that were read.
    ahead: VecDeque<Arc<DirectoryName>>,
    /// Whether to sort before the first name.
    sorts: bool,
}

impl ListedNames {
    /// Returns the names of a directory.
    pub fn new(dir: DirHandle, sorts: bool) -> Self {
        Self { dir: Arc::new(dir), position: 0, ahead: VecDeque::new(), sorts }
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Arc<DirHandle> {
        &self.dir
    }

    /// Returns the next name; `None` at the end.
    pub fn next(&mut self, listings: &Listings) -> Result<Option<Arc<DirectoryName>>> {
        if self.sorts {
            self.sorts = false;
            // An error is returned again after the names before it.
            while self.ahead.len() < MAX_SORTED
                && let Ok(Some(listed)) = self.read(listings)
            {
                self.ahead.push_back(listed);
            }
            if self.ahead.len() < MAX_SORTED {
                let order = |one: &Arc<DirectoryName>, other: &Arc<DirectoryName>| {
                    let directories_first = other.is_dir.cmp(&one.is_dir);
                    directories_first.then_with(|| compare(&one.name, &other.name))
                };
                self.ahead.make_contiguous().sort_by(order);
            }
        }
        match self.ahead.pop_front() {
            Some(listed) => Ok(Some(listed)),
            None => self.read(listings),
        }
    }

    fn read(&mut self, listings: &Listings) -> Result<Option<Arc<DirectoryName>>> {
        let listed = listings.readdir(&self.dir, self.position)?;
        if listed.is_some() {
            self.position = self.position.saturating_add(1);
        }
        Ok(listed)
    }
}

/// A part of a name. Numbers are compared by their value.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NamePart<'n> {
    /// The number of digits without leading zeros, and the digits.
    Number(usize, &'n str),
    Text(&'n str),
}

/// Compares names as people sort them: `level2` before `level10`.
fn compare(one: &str, other: &str) -> Ordering {
    parts(one).cmp(parts(other)).then_with(|| one.cmp(other))
}

fn parts(name: &str) -> impl Iterator<Item = NamePart<'_>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let is_number = rest.chars().next()?.is_ascii_digit();
        let end = rest.find(|character: char| character.is_ascii_digit() != is_number);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        let digits = part.trim_start_matches('0');
        Some(if is_number { NamePart::Number(digits.len(), digits) } else { NamePart::Text(part) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_sorted_by_their_value() {
        let sorted = ["", "0", "00", "2", "10", "a", "a01b", "a1b", "a2", "a10", "b", "ä"];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|one, other| compare(one, other));
        assert_eq!(names, sorted);
    }
}
