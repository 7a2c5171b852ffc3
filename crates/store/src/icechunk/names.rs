//! The branches, tags and snapshots of a repository.
//!
//! Version 2 of the specification has all of them in the file `repo`:
//!
//! ```text
//! Repo          version | tags | branches | deleted tags | snapshots | status | ..
//! Ref           name | the index of its snapshot u32
//! SnapshotInfo  id [12] | the index of the one before it i32 | time u64, microseconds | message
//! RepoStatus    0 online, 1 read-only, 2 offline | time | reason
//! ```
//!
//! Version 1 has a file for each: `refs/branch.main/ref.json`, `refs/tag.v1/ref.json`, with
//! `{"snapshot": ID}`. Beside the file of a deleted tag is `ref.json.deleted`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::file::{IcechunkFile, Id, max_len, unpack};
use super::flatbuffer::FlatTable;
use crate::{ByteRange, Key, Prefix, Store, StoreEntry, is_component};
use zarrfs_base::error::{Error, Kind as ErrorKind, Result, WithSubject};

/// The fields of the tables, by their numbers in the schema.
mod field {
    pub const TAGS: usize = 1;
    pub const BRANCHES: usize = 2;
    pub const SNAPSHOTS: usize = 4;
    pub const STATUS: usize = 5;
    pub const NAME: usize = 0;
    pub const SNAPSHOT: usize = 1;
    pub const ID: usize = 0;
    pub const TIME: usize = 2;
    pub const AVAILABILITY: usize = 0;
    pub const REASON: usize = 2;
}

/// The availability of a repository that must not be read.
const OFFLINE: u8 = 2;

/// The branch that is opened if none is named.
pub const MAIN: &str = "main";

/// The most snapshots of a repository.
const MAX_SNAPSHOTS: usize = 1 << 22;

/// The longest file of a branch or tag in version 1, in bytes.
const MAX_REF_LEN: u64 = 1 << 12;

/// The names of the most branches and tags in a message.
const MAX_SAID: usize = 10;

/// The branches, tags and snapshots.
#[derive(Debug, Default)]
pub(super) struct StateNames {
    /// The snapshots of branches.
    pub branches: BTreeMap<String, Id>,
    /// The snapshots of tags.
    pub tags: BTreeMap<String, Id>,
    /// All snapshots with their times, in version 2.
    pub snapshots: Option<BTreeMap<Id, SystemTime>>,
}

/// Returns the file `repo` of a repository; `None` in version 1.
pub(super) fn repository_file(own: &Store) -> Result<Option<Bytes>> {
    let key = Key::parse("repo")?;
    let Some(value) = own.get(&key, max_len())? else { return Ok(None) };
    unpack(&value.bytes, IcechunkFile::Repository).at(&key).map(Some)
}

impl StateNames {
    /// Reads all names.
    pub fn read(own: &Store) -> Result<Self> {
        match repository_file(own)? {
            Some(buffer) => Self::parse(&buffer).at("repo"),
            None => Self::list(own),
        }
    }

    /// Parses the file of version 2.
    fn parse(buffer: &[u8]) -> Result<Self> {
        let root = FlatTable::root(buffer)?;
        if let Some(status) = root.table(field::STATUS)?
            && status.u8(field::AVAILABILITY)? == OFFLINE
        {
            let reason = status.text(field::REASON)?.unwrap_or("no reason is given");
            return Err(Error::new(
                ErrorKind::Os(libc::ENODEV),
                format!("the owner of the repository has taken it offline: {reason}"),
            ));
        }
        let tables = root.tables(field::SNAPSHOTS)?;
        if tables.count() > MAX_SNAPSHOTS {
            return Err(Error::too_large(format!("more than {MAX_SNAPSHOTS} snapshots")));
        }
        let (mut ids, mut snapshots) = (Vec::new(), BTreeMap::new());
        for index in 0..tables.count() {
            let table = tables.table(index)?;
            let id = Id(table.bytes(field::ID)?.ok_or_else(|| Error::corrupt("no ID"))?);
            let time = Duration::from_micros(table.u64(field::TIME)?);
            let time = SystemTime::UNIX_EPOCH.checked_add(time);
            ids.push(id);
            snapshots.insert(id, time.unwrap_or(SystemTime::UNIX_EPOCH));
        }
        // Many entries may have one long name, which would take long to read again and again.
        let mut left = buffer.len();
        let mut named = |field: usize| -> Result<BTreeMap<String, Id>> {
            let tables = root.tables(field)?;
            let mut found = BTreeMap::new();
            for index in 0..tables.count() {
                let table = tables.table(index)?;
                let name = table.text(field::NAME)?.unwrap_or_default();
                let len = name.len().saturating_add(1);
                let repeated = || Error::corrupt("its names are longer than it");
                left = left.checked_sub(len).ok_or_else(repeated)?;
                let at = usize::try_from(table.u32(field::SNAPSHOT)?).ok();
                let unknown = || Error::corrupt("it has no such snapshot").at(name);
                let id = at.and_then(|at| ids.get(at)).ok_or_else(unknown)?;
                found.insert(name.to_owned(), *id);
            }
            Ok(found)
        };
        let (branches, tags) = (named(field::BRANCHES)?, named(field::TAGS)?);
        Ok(Self { branches, tags, snapshots: Some(snapshots) })
    }

    /// Lists the files of version 1, and reads them.
    fn list(own: &Store) -> Result<Self> {
        let mut names = Self::default();
        let Some(list) = own.list() else {
            return Err(Error::unsupported("the store cannot list branches and tags").at("refs"));
        };
        let mut directories = Vec::new();
        for entry in list.list_dir(&Prefix::parse("refs")?)? {
            if let StoreEntry::Prefix(name) = entry? {
                directories.push(name);
            }
        }
        let all = [".deleted", ""].map(|end| {
            let key = |name: &String| Key::parse(&format!("refs/{name}/ref.json{end}"));
            directories.iter().map(key).collect::<Result<Vec<Key>>>()
        });
        let [deleted, files] = all;
        let deleted = own.read().stat(&deleted?)?;
        let ranges = files?.into_iter().map(|key| (key, ByteRange::first(MAX_REF_LEN)));
        let ranges: Vec<(Key, ByteRange)> = ranges.collect();
        let values = own.read().get_partial_values(&ranges)?;
        for ((name, value), (deleted, (key, _))) in
            directories.iter().zip(values).zip(deleted.iter().zip(&ranges))
        {
            let Some(value) = value.filter(|_| deleted.is_none()) else { continue };
            let id = parse_ref(&value.bytes).at(key)?;
            if let Some(branch) = name.strip_prefix("branch.") {
                names.branches.insert(branch.to_owned(), id);
            } else if let Some(tag) = name.strip_prefix("tag.") {
                names.tags.insert(tag.to_owned(), id);
            }
        }
        Ok(names)
    }

    /// Returns the snapshot that a user means by a branch, `tag:NAME`, `branch:NAME` or an ID.
    pub fn resolve(&self, wanted: &str) -> Result<Id> {
        let found = match wanted.split_once(':') {
            Some(("tag", tag)) => self.tags.get(tag).copied(),
            Some(("branch", branch)) => self.branches.get(branch).copied(),
            _ => {
                let id = Id::parse(wanted)
                    .filter(|id| self.snapshots.as_ref().is_none_or(|all| all.contains_key(id)));
                self.branches.get(wanted).copied().or(id)
            }
        };
        found.ok_or_else(|| self.unknown(wanted))
    }

    fn unknown(&self, wanted: &str) -> Error {
        let listed = |names: &BTreeMap<String, Id>, lead: &str| {
            let mut said: Vec<String> =
                names.keys().take(MAX_SAID).map(|name| format!("{lead}{name}")).collect();
            if names.len() > MAX_SAID {
                said.push("...".to_owned());
            }
            if said.is_empty() { "none".to_owned() } else { said.join(", ") }
        };
        let (branches, tags) = (listed(&self.branches, ""), listed(&self.tags, "tag:"));
        Error::new(
            ErrorKind::NotFound,
            format!(
                "the repository has no branch, tag or snapshot {wanted:?}; its branches are: \
                 {branches}; its tags are: {tags}"
            ),
        )
    }
}

/// Returns the snapshot that a user means, as [`StateNames::resolve`] does, without a listing in
/// version 1 if possible.
pub(super) fn resolve(own: &Store, wanted: &str) -> Result<Id> {
    if let Some(buffer) = repository_file(own)? {
        return StateNames::parse(&buffer).at("repo")?.resolve(wanted);
    }
    let (kind, name) = match wanted.split_once(':') {
        Some(("tag", name)) => ("tag", name),
        Some(("branch", name)) => ("branch", name),
        _ => ("branch", wanted),
    };
    if is_component(name) {
        let key = Key::parse(&format!("refs/{kind}.{name}/ref.json"))?;
        let deleted = Key::parse(&format!("{key}.deleted"))?;
        let value = own.get(&key, MAX_REF_LEN)?;
        if let Some(value) = value
            && (kind == "branch" || own.stat(&deleted)?.is_none())
        {
            return parse_ref(&value.bytes).at(&key);
        }
    }
    let names = StateNames::list(own)?;
    if names.branches.is_empty() {
        return Err(Error::invalid(
            "not an Icechunk repository: it has neither a file `repo` nor branches in `refs`",
        ));
    }
    names.resolve(wanted)
}

fn parse_ref(text: &[u8]) -> Result<Id> {
    let id = serde_json::from_slice::<serde_json::Value>(text).ok();
    let id = id.as_ref().and_then(|json| json.get("snapshot")?.as_str());
    let invalid = || Error::corrupt("it is not {\"snapshot\": ID}");
    id.and_then(Id::parse).ok_or_else(invalid)
}
