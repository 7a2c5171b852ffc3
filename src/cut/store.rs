//! The store of a part: metadata files, and chunks that are made when they are read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::array::ArrayPart;
use crate::array::assembled::ElementBox;
use crate::cache::ChunkCache;
use crate::error::Result;
use crate::metadata::NodePath;
use crate::store::{
    ByteRange, Capacity, Entries, Key, Keys, ListableStore, Prefix, ReadableStore, Stat,
    StoreEntry, Value, Version,
};
use crate::width::{ToU64, ToUsize};

/// The name of a metadata file.
const DOCUMENT: &str = "zarr.json";

/// The directory of the chunks of an array.
const CHUNKS: &str = "c";

/// The values of a part by the keys of Zarr 3.
#[derive(Debug)]
pub(super) struct PartStore {
    documents: BTreeMap<String, Bytes>,
    arrays: Arc<PartArrays>,
    opened: SystemTime,
}

/// The arrays, and the decoded chunks of their sources.
#[derive(Debug)]
struct PartArrays {
    by_path: HashMap<NodePath, ArrayPart>,
    cache: ChunkCache,
}

/// A key of a chunk: the array, and the coordinates.
struct ChunkTarget<'s> {
    part: &'s ArrayPart,
    coords: Vec<u64>,
}

impl PartStore {
    /// Returns the store of these nodes.
    pub fn new(
        documents: BTreeMap<NodePath, String>,
        arrays: HashMap<NodePath, ArrayPart>,
        cache: ChunkCache,
    ) -> Self {
        let key = |path: &NodePath| match path.as_str() {
            "" => DOCUMENT.to_owned(),
            path => format!("{path}/{DOCUMENT}"),
        };
        Self {
            documents: documents
                .into_iter()
                .map(|(path, text)| (key(&path), Bytes::from(text)))
                .collect(),
            arrays: Arc::new(PartArrays { by_path: arrays, cache }),
            opened: SystemTime::now(),
        }
    }

    fn document_stat(&self, text: &Bytes) -> Stat {
        let version = Version::settled([0, 0, 0, text.len().to_u64()]);
        Stat { len: text.len().to_u64(), modified: self.opened, version }
    }
}

impl PartArrays {
    /// Returns the chunk that has this key.
    fn target(&self, key: &str) -> Option<ChunkTarget<'_>> {
        let names: Vec<&str> = key.split('/').collect();
        let is_number = |name: &&str| {
            !name.is_empty()
                && (*name == "0" || !name.starts_with('0'))
                && name.bytes().all(|byte| byte.is_ascii_digit())
        };
        let rank = names.iter().rev().take_while(|name| is_number(name)).count();
        // The names of groups may be numbers, too.
        let split = names.len().checked_sub(rank)?.checked_sub(1)?;
        if *names.get(split)? != CHUNKS {
            return None;
        }
        let path = NodePath::parse(&names.get(..split)?.join("/")).ok()?;
        let part = self.by_path.get(&path)?;
        let coords = names.get(split.saturating_add(1)..)?.iter().map(|name| name.parse().ok());
        let coords: Vec<u64> = coords.collect::<Option<_>>()?;
        part.has(&coords).then_some(ChunkTarget { part, coords })
    }

    /// Returns the array in whose directory of chunks a prefix is, and the coordinates there.
    fn directory(&self, prefix: &str) -> Option<ChunkTarget<'_>> {
        let names: Vec<&str> = prefix.trim_end_matches('/').split('/').collect();
        for (split, _) in names.iter().enumerate().filter(|(_, name)| **name == CHUNKS).rev() {
            let path = NodePath::parse(&names.get(..split)?.join("/")).ok();
            let part = path.and_then(|path| self.by_path.get(&path));
            let coords = names.get(split.saturating_add(1)..)?.iter().map(|name| name.parse().ok());
            if let (Some(part), Some(coords)) = (part, coords.collect::<Option<Vec<u64>>>()) {
                return Some(ChunkTarget { part, coords });
            }
        }
        None
    }

    fn stat(&self, key: &str) -> Result<Option<Stat>> {
        match self.target(key) {
            Some(ChunkTarget { part, coords }) => part.stat(&self.cache, &coords),
            None => Ok(None),
        }
    }
}

impl ReadableStore for PartStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let read = |(key, range): &(Key, ByteRange)| {
            let found = match self.documents.get(key.as_str()) {
                Some(text) => Some((text.clone(), self.document_stat(text))),
                None => match self.arrays.target(key.as_str()) {
                    Some(ChunkTarget { part, coords }) => part
                        .chunk(&self.arrays.cache, &coords)?
                        .map(|(bytes, stat)| (Bytes::from(bytes), stat)),
                    None => None,
                },
            };
            Ok(found.map(|(bytes, stat)| {
                let (offset, len) = range.within(stat.len);
                let place = |at: u64| at.to_usize().min(bytes.len());
                let bytes = bytes.slice(place(offset)..place(offset.saturating_add(len)));
                Value { bytes, stat }
            }))
        };
        ranges.iter().map(read).collect()
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let stat = |key: &Key| match self.documents.get(key.as_str()) {
            Some(text) => Ok(Some(self.document_stat(text))),
            None => self.arrays.stat(key.as_str()),
        };
        keys.iter().map(stat).collect()
    }

    fn room(&self) -> Result<Option<Capacity>> {
        Ok(None)
    }
}

impl ListableStore for PartStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let start = prefix.as_str().to_owned();
        if let Some(ChunkTarget { part, coords }) = self.arrays.directory(&start) {
            let counts = part.counts();
            let Some(count) = counts.get(coords.len()).copied() else {
                return Ok(Box::new(std::iter::empty()));
            };
            let is_last = counts.len() == coords.len().saturating_add(1);
            let arrays = Arc::clone(&self.arrays);
            return Ok(Box::new((0..count).filter_map(move |at| {
                if !is_last {
                    return Some(Ok(StoreEntry::Prefix(at.to_string())));
                }
                let found = arrays.stat(&format!("{start}{at}")).transpose()?;
                Some(found.map(|_| StoreEntry::Key(at.to_string())))
            })));
        }
        let below = self.documents.keys().filter_map(|key| key.strip_prefix(&start));
        let entries: BTreeSet<(&str, bool)> = below
            .map(|rest| rest.split_once('/').map_or((rest, false), |(name, _)| (name, true)))
            .collect();
        let mut entries: Vec<_> = entries
            .into_iter()
            .map(|(name, is_prefix)| {
                let entry = if is_prefix { StoreEntry::Prefix } else { StoreEntry::Key };
                Ok(entry(name.to_owned()))
            })
            .collect();
        let path = NodePath::parse(start.trim_end_matches('/'));
        if let Some(part) = path.ok().and_then(|path| self.arrays.by_path.get(&path)) {
            if !part.counts().is_empty() {
                entries.push(Ok(StoreEntry::Prefix(CHUNKS.to_owned())));
            } else if self.arrays.stat(&format!("{start}{CHUNKS}"))?.is_some() {
                entries.push(Ok(StoreEntry::Key(CHUNKS.to_owned())));
            }
        }
        Ok(Box::new(entries.into_iter()))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        let start = prefix.as_str().to_owned();
        let documents = self.documents.keys().filter(|key| key.starts_with(&start));
        let documents: Vec<_> = documents.map(|key| Key::parse(key)).collect();
        let mut all: Keys = Box::new(documents.into_iter());
        for (path, part) in &self.arrays.by_path {
            let directory = match path.as_str() {
                "" => CHUNKS.to_owned(),
                path => format!("{path}/{CHUNKS}"),
            };
            if !directory.starts_with(&start) && !start.starts_with(&directory) {
                continue;
            }
            let (arrays, start) = (Arc::clone(&self.arrays), start.clone());
            let places = ElementBox::whole(&part.counts()).places();
            let keys = places.filter_map(move |coords| {
                let coords = coords.indices().iter().map(|at| format!("/{at}"));
                let key = format!("{directory}{}", coords.collect::<String>());
                if !key.starts_with(&start) {
                    return None;
                }
                let found = arrays.stat(&key).transpose()?;
                Some(found.and_then(|_| Key::parse(&key)))
            });
            all = Box::new(all.chain(keys));
        }
        Ok(all)
    }
}
