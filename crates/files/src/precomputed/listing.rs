//! The names of nodes and chunks.
//!
//! Nodes are known. A volume may have billions of chunks, and those in shards have no names. So the
//! directories of chunks are not listed: a caller that goes through them asks for each chunk, as it
//! does where a server lists nothing. Only a list of all chunks of a scale comes from the names in
//! its directory, if they are there.

use super::scale::VolumeScale;
use super::volume::VolumeStore;
use crate::described::DOCUMENT;
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_store::{Entries, Key, Keys, ListableStore, ListedEntry, Omissions, Prefix, StoreEntry};

/// The most chunks that a caller asks for one by one, as where a server lists nothing.
const MOST_ASKED: u64 = 1 << 20;

/// An entry, or the error for a directory that is not listed.
type Listed = Box<dyn Iterator<Item = Result<ListedEntry>> + Send>;

/// The error for a directory of chunks.
fn unlisted() -> Error {
    Error::unsupported("the places of these chunks are computed, and not listed")
}

impl VolumeStore {
    /// Returns the index of the scale at the start of a prefix, and what follows it.
    fn split<'p>(&self, prefix: &'p str) -> Option<(usize, &'p str)> {
        let (index, rest) = prefix.split_once('/')?;
        let index = usize::try_from(super::scale::number(index)?).ok()?;
        (index < self.scales.len()).then_some((index, rest))
    }

    /// Lists the chunks of a scale, in no order.
    fn chunks(&self, index: usize) -> Listed {
        let Some(scale) = self.scales.get(index).and_then(Option::as_ref) else {
            let known = self.texts.keys().filter(|key| key.starts_with(&format!("{index}/c/")));
            let keys: Vec<_> = known.map(|key| Key::parse(key).map(ListedEntry::Key)).collect();
            return Box::new(keys.into_iter());
        };
        let directory = Prefix::parse(&format!("{index}/c"));
        match self.names(index, scale) {
            Some(Ok(keys)) => Box::new(keys.map(|key| key.map(ListedEntry::Key))),
            Some(Err(error)) => Box::new(std::iter::once(Err(error))),
            None if scale.count().is_none_or(|count| count > MOST_ASKED) => {
                let detail = format!(
                    "the places of these chunks are computed and not listed, and more than \
                     {MOST_ASKED} are too many to ask for each"
                );
                let error = directory.and_then(|it| Err(Error::unsupported(detail).at(it)));
                Box::new(std::iter::once(error))
            }
            None => {
                let entry = directory.map(|it| ListedEntry::Unlisted(it, unlisted()));
                Box::new(std::iter::once(entry))
            }
        }
    }

    /// Lists the chunks of a scale by the names in its directory, if they are there.
    fn names(&self, index: usize, scale: &VolumeScale) -> Option<Result<Keys>> {
        let list = self.own.list().filter(|_| scale.sharding.is_none())?;
        let names = list.list_dir(&scale.directory);
        let scale = scale.clone();
        let key = move |entry: Result<StoreEntry>| match entry {
            Ok(entry) => {
                let cell = scale.cell(entry.name())?;
                Some(Key::parse(&format!("{index}/{}", scale.key_of(cell))))
            }
            Err(error) => Some(Err(error)),
        };
        Some(names.map(|names| -> Keys { Box::new(names.filter_map(key)) }))
    }

    /// Lists what is below a prefix.
    fn below(&self, prefix: &Prefix) -> Listed {
        let text = prefix.as_str().to_owned();
        let within = self.split(&text);
        let is_wanted = |index: &usize| match within {
            Some((of, rest)) => of == *index && (rest.is_empty() || rest.starts_with("c/")),
            None => text.is_empty(),
        };
        let documents = self.texts.keys().filter(|key| key.ends_with(DOCUMENT));
        let documents = documents.filter(|key| key.starts_with(&text));
        let documents: Vec<_> =
            documents.map(|key| Key::parse(key).map(ListedEntry::Key)).collect();
        let mut all: Listed = Box::new(documents.into_iter());
        for index in (0..self.scales.len()).filter(is_wanted) {
            let start = text.clone();
            let is_below = move |entry: &Result<ListedEntry>| match entry {
                Ok(ListedEntry::Key(key)) => key.as_str().starts_with(&start),
                Ok(ListedEntry::Unlisted(..)) | Err(_) => true,
            };
            all = Box::new(all.chain(self.chunks(index).filter(is_below)));
        }
        all
    }
}

impl ListableStore for VolumeStore {
    fn omissions(&self) -> Omissions {
        Omissions::default()
    }

    fn may_have(&self, prefix: &Prefix) -> bool {
        prefix.is_root() || self.split(prefix.as_str()).is_some()
    }

    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let document = || Ok(StoreEntry::Key(DOCUMENT.to_owned()));
        if prefix.is_root() {
            let indices =
                (0..self.scales.len()).map(|index| Ok(StoreEntry::Prefix(index.to_string())));
            return Ok(Box::new(std::iter::once(document()).chain(indices)));
        }
        match self.split(prefix.as_str()) {
            Some((_, "")) => {
                let chunks = Ok(StoreEntry::Prefix("c".to_owned()));
                Ok(Box::new([document(), chunks].into_iter()))
            }
            Some((_, rest)) if rest.starts_with("c/") => {
                Ok(Box::new(std::iter::once(Err(unlisted().at(prefix)))))
            }
            _ => Ok(Box::new(std::iter::empty())),
        }
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        Ok(Box::new(self.below(prefix).map(|entry| match entry? {
            ListedEntry::Key(key) => Ok(key),
            ListedEntry::Unlisted(directory, error) => Err(error.at(directory)),
        })))
    }

    fn list_known(&self, prefix: &Prefix, start: &str) -> Result<Listed> {
        let start = format!("{prefix}{start}");
        let is_wanted = move |entry: &Result<ListedEntry>| match entry {
            Ok(ListedEntry::Key(key)) => key.as_str().starts_with(&start),
            Ok(ListedEntry::Unlisted(..)) | Err(_) => true,
        };
        Ok(Box::new(self.below(prefix).filter(is_wanted)))
    }
}
