//! The limits that the user can change: how much a hierarchy, and the programs that use it, may
//! require of this process. `docs/limits.md` lists them, and those that are fixed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::resources;
use crate::width::ToUsize;

/// A limit, with a value for the whole process.
#[derive(Debug)]
pub struct Limit {
    /// Its name for `--limit`.
    pub name: &'static str,
    /// What it limits.
    pub what: &'static str,
    /// What its value counts.
    pub unit: LimitUnit,
    /// Its value unless the user sets one.
    default: u64,
    /// With little memory, the default is at most one for each of this many bytes of memory.
    memory_of_one: Option<u64>,
    /// The highest value that the user can set.
    pub highest: u64,
    /// The value that the user has set, 0 if none.
    set: AtomicU64,
}

/// The unit of the value of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Time,
}

impl Limit {
    const fn new(name: &'static str, what: &'static str, default: u64, highest: u64) -> Self {
        let (unit, set) = (LimitUnit::Count, AtomicU64::new(0));
        Self { name, what, unit, default, memory_of_one: None, highest, set }
    }

    const fn in_unit(self, unit: LimitUnit) -> Self {
        Self { unit, ..self }
    }

    const fn within_memory(self, memory_of_one: u64) -> Self {
        Self { memory_of_one: Some(memory_of_one), ..self }
    }

    /// Returns its value.
    pub fn get(&self) -> u64 {
        match self.set.load(Ordering::Relaxed) {
            0 => self.default(),
            set => set,
        }
    }

    /// Returns its value, or the highest number that fits.
    pub fn get_usize(&self) -> usize {
        self.get().to_usize()
    }

    /// Returns its value unless the user sets one.
    pub fn default(&self) -> u64 {
        match self.memory_of_one {
            Some(one) => self.default.min(resources::memory_limit() / one.max(1)),
            None => self.default,
        }
    }

    /// Sets its value for the whole process.
    pub fn set(&self, value: u64) {
        self.set.store(value.clamp(1, self.highest), Ordering::Relaxed);
    }

    /// Whether `count` is more than it allows.
    pub fn is_exceeded_by(&self, count: usize) -> bool {
        u64::try_from(count).map_or(true, |count| count > self.get())
    }
}

/// The end of a message about something that exceeds the limit.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value) = (self.name, self.get());
        write!(f, "the limit is {}", self.unit.write(value))?;
        match self.unit {
            _ if value >= self.highest => Ok(()),
            LimitUnit::Count => write!(f, " (--limit {name}=N)"),
            LimitUnit::Bytes => write!(f, " (--limit {name}=SIZE)"),
            LimitUnit::Time => write!(f, " (--limit {name}=TIME)"),
        }
    }
}

impl LimitUnit {
    /// Returns a value as a message and the command line have it.
    pub fn write(self, value: u64) -> String {
        let in_larger = |units: &[(u64, &str)]| {
            let exact = units.iter().find(|(len, _)| value >= *len && value.is_multiple_of(*len));
            exact.map(|(len, unit)| format!("{}{unit}", value / len))
        };
        let larger = match self {
            Self::Count => None,
            Self::Bytes => in_larger(&[(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")]),
            Self::Time => in_larger(&[(60_000, "m"), (1000, "s"), (1, "ms")]),
        };
        larger.unwrap_or_else(|| value.to_string())
    }
}

/// The longest metadata file to read, without the consolidated metadata in it.
pub static METADATA: Limit =
    Limit::new("metadata", "bytes of a metadata file, without copies in it", 16 << 20, 1 << 30)
        .in_unit(LimitUnit::Bytes)
        .within_memory(64);

/// The limit of `serde_json`, so that other readers succeed, too. The parser calls itself for each
/// level, so it cannot be raised.
pub static DEPTH: Limit =
    Limit::new("metadata-depth", "nested objects and lists in a metadata file", 127, 127);

/// In memory, a value takes far more than the one or two bytes of its string, an object as much as
/// ten other values, and each of its members as much as four. A thread that parses a file takes
/// about 120 bytes for each, and several threads may do so.
pub static VALUES: Limit =
    Limit::new("metadata-values", "values in a metadata file", 1 << 22, 1 << 32)
        .within_memory(4 << 10);

/// The most dimensions of an array.
pub static DIMENSIONS: Limit = Limit::new("dimensions", "dimensions of an array", 64, 256);

/// The most codecs in a list.
pub static CODECS: Limit = Limit::new("codecs", "codecs of an array, for each level", 16, 256);

/// The most levels of shards.
pub static SHARD_LEVELS: Limit =
    Limit::new("shard-levels", "levels of shards within shards", 4, 16);

/// The index of so many chunks takes 64 MiB. Several threads may read an index, encoded and
/// decoded.
pub static SHARD_CHUNKS: Limit = Limit::new(
    "shard-chunks",
    "inner chunks of a shard; each takes 16 bytes of its index",
    1 << 22,
    1 << 30,
)
.within_memory(1 << 10);

/// The most fields of a structured data type, without those of nested structures.
pub static FIELDS: Limit = Limit::new("fields", "fields of a structured data type", 1024, 1 << 16);

/// The most bytes of all names in one group, where they are kept in memory.
pub static GROUP_NAMES: Limit = Limit::new(
    "group-names",
    "bytes of the names in one group, when they are sorted",
    64 << 20,
    1 << 40,
)
.in_unit(LimitUnit::Bytes);

/// The most nodes of a walk that keeps none of them.
pub static NODES: Limit = Limit::new(
    "nodes",
    "groups and arrays that check, convert and diff walk through",
    10_000_000,
    u64::MAX,
);

/// The most names that the kernel may know; each takes about 500 bytes.
pub static NAMES: Limit = Limit::new(
    "names",
    "files and directories of a mount that the kernel keeps in memory",
    1 << 20,
    1 << 40,
)
.within_memory(2 << 10);

/// The most files that programs may have open in a mount.
pub static OPEN_FILES: Limit =
    Limit::new("open-files", "files that programs have open in a mount", 1 << 16, 1 << 40);

/// The most time to decode one chunk. A program that waits for it cannot be killed meanwhile.
pub static DECODE_TIME: Limit =
    Limit::new("decode-time", "time to decode one chunk", 120_000, 1 << 40)
        .in_unit(LimitUnit::Time);

/// All of them, in the order of the documentation.
pub static ALL: [&Limit; 13] = [
    &METADATA,
    &DEPTH,
    &VALUES,
    &DIMENSIONS,
    &CODECS,
    &SHARD_LEVELS,
    &SHARD_CHUNKS,
    &FIELDS,
    &GROUP_NAMES,
    &NODES,
    &NAMES,
    &OPEN_FILES,
    &DECODE_TIME,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_its_value_and_how_it_is_changed() {
        let limit = Limit::new("fields", "fields", 1024, 4096);
        assert_eq!(limit.to_string(), "the limit is 1024 (--limit fields=N)");
        limit.set(0);
        assert_eq!(
            (limit.get(), limit.is_exceeded_by(1), limit.is_exceeded_by(2)),
            (1, false, true)
        );
        limit.set(u64::MAX);
        assert_eq!(limit.to_string(), "the limit is 4096");
        let len = Limit::new("metadata", "bytes", 16 << 20, 1 << 30).in_unit(LimitUnit::Bytes);
        assert_eq!(len.to_string(), "the limit is 16M (--limit metadata=SIZE)");
        assert_eq!(LimitUnit::Time.write(90_000), "90s");
        assert_eq!(LimitUnit::Bytes.write(1025), "1025");
    }

    #[test]
    fn each_limit_has_a_name_of_its_own_and_a_default_that_can_be_set() {
        let mut names: Vec<&str> = ALL.iter().map(|limit| limit.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|limit| (1..=limit.highest).contains(&limit.default())));
    }
}
