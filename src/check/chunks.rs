//! Reads chunks and the indexes of shards, and reports those that are damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::finding::{Code, Finding, FindingPlace, Repair, Severity};
use super::options::{CheckWatch, ChunkSample};
use super::queue::{CheckUnit, NextWork, Queue, ShardChunks};
use crate::array::ChunkStore;
use crate::error::{Error, Fault, Word};
use crate::shard::Usage;
use crate::store::{Store, StoreEntry};
use crate::width::ToU64;

/// The number of unused bytes in a shard that is not worth reporting: writers may align chunks.
const SLACK: u64 = 64;

/// Counters of all threads.
#[derive(Debug, Default)]
pub struct Counters {
    /// The chunks that were decoded.
    pub read: AtomicU64,
    /// The chunks that a sample left out.
    pub skipped: AtomicU64,
    /// The chunks and shards of arrays that zarrfs cannot decode.
    pub unknown: AtomicU64,
    /// The decoded bytes.
    pub decoded_len: AtomicU64,
}

/// The state that all threads share.
pub struct CheckReader<'c> {
    pub queue: &'c Queue,
    pub counters: &'c Counters,
    pub watch: &'c dyn CheckWatch,
    pub store: &'c Store,
    pub sample: Option<ChunkSample>,
    pub expects_all: bool,
}

impl CheckReader<'_> {
    /// Takes work from the queue and checks it, until none is left.
    pub fn work(&self) {
        while let Some(work) = self.queue.next() {
            match work {
                _ if self.watch.is_stopped() => {
                    // Take the rest of the shard, too, so that the queue drops it.
                    if let NextWork::Part(part) = work {
                        while !part.take().is_empty() {}
                    }
                }
                NextWork::Units(units) => {
                    for unit in units {
                        if self.watch.is_stopped() {
                            break;
                        }
                        self.check(unit);
                        self.watch.advance();
                    }
                }
                NextWork::Part(part) => {
                    for slot in part.take() {
                        if self.watch.is_stopped() {
                            break;
                        }
                        let (shard, level) = (&part.shard, part.shard.level.saturating_add(1));
                        let Some(chunks) = shard.target.array.levels().get(level) else { break };
                        let coords = chunks.in_slot(&shard.coords, *slot);
                        self.check(CheckUnit { target: Arc::clone(&shard.target), level, coords });
                    }
                }
            }
            self.queue.done();
        }
    }

    fn check(&self, unit: CheckUnit) {
        let levels = unit.target.array.levels().len();
        if unit.target.array.not_understood().is_some() {
            count(&self.counters.unknown, 1);
        } else if unit.level.saturating_add(1) < levels {
            self.check_shard(unit);
        } else {
            self.check_chunk(&unit);
        }
    }

    /// Returns how the bytes of a shard are used. Reports a shard that cannot be read.
    fn usage_of(&self, unit: &CheckUnit, chunks: &dyn ChunkStore) -> Option<Usage> {
        match chunks.shard_usage(&unit.coords) {
            Ok(Some(usage)) => Some(usage),
            Ok(None) if unit.level == 0 && self.is_listed(unit) => {
                self.report_dangling(unit);
                None
            }
            Ok(None) => None,
            Err(error) => {
                unit.target.note_unread(unit.level, &unit.coords);
                let code = match code_of(&error, Code::ShardIndex) {
                    Code::ShardIndex if is_empty(unit) => Code::Empty,
                    Code::Unknown => Code::Unsupported,
                    code => code,
                };
                self.report(unit, code, &error);
                None
            }
        }
    }

    fn check_shard(&self, unit: CheckUnit) {
        let array = Arc::clone(&unit.target.array);
        let Some(chunks) = array.levels().get(unit.level.saturating_add(1)) else { return };
        let Some(usage) = self.usage_of(&unit, chunks.as_ref()) else { return };
        let Usage { present, outside, overlapping, unused_len } = usage;
        for (slot, error) in outside {
            let inner = chunks.in_slot(&unit.coords, slot);
            if chunks.grid().contains(&inner) {
                let level = unit.level.saturating_add(1);
                let damaged = CheckUnit { target: Arc::clone(&unit.target), level, coords: inner };
                self.report(&damaged, Code::ShardRange, &error);
            }
        }
        for (one, other) in overlapping {
            let [one, other] = [one, other].map(|slot| chunks.in_slot(&unit.coords, slot));
            self.find(&unit, Code::ShardOverlap, format!("{one} and {other} share bytes"), None);
        }
        if unused_len > SLACK {
            let reason = format!("{unused_len} bytes belong to no chunk");
            let repair = Repair::Compact(place(&unit));
            self.find(&unit, Code::ShardUnused, reason, Some(repair));
        }
        if unit.level == 0
            && self.sample.is_none()
            && array.has_checked_shards()
            && let Err(error) = array.check_shard(&unit.coords)
        {
            self.report(&unit, code_of(&error, Code::Unreadable), &error);
        }
        let is_inside = |slot: &usize| chunks.grid().contains(&chunks.in_slot(&unit.coords, *slot));
        let (inside, beyond): (Vec<usize>, Vec<usize>) = present.into_iter().partition(is_inside);
        if !beyond.is_empty() {
            let reason = format!("{} of its chunks lie outside the array", beyond.len());
            self.find(&unit, Code::ShardOutside, reason, None);
        }
        let is_innermost = unit.level.saturating_add(2) == array.levels().len();
        if is_innermost {
            count(&unit.target.chunk_count, len(&inside));
        }
        if self.expects_all {
            self.report_missing(&unit, &inside);
        }
        let all = len(&inside);
        let chosen: Vec<usize> = match self.sample.filter(|_| is_innermost) {
            Some(sample) => {
                let path = &unit.target.path;
                let is_chosen =
                    |slot: &usize| sample.has(path, &chunks.in_slot(&unit.coords, *slot));
                inside.into_iter().filter(is_chosen).collect()
            }
            None => inside,
        };
        count(&self.counters.skipped, all.saturating_sub(len(&chosen)));
        if !chosen.is_empty() {
            self.queue.open(ShardChunks::new(unit, chosen));
        }
    }

    /// Reports a key that the store lists and cannot open.
    fn report_dangling(&self, unit: &CheckUnit) {
        if unit.level.saturating_add(1) < unit.target.array.levels().len() {
            unit.target.note_unread(unit.level, &unit.coords);
        }
        let reason = "listed in its directory, but cannot be opened: a dangling link";
        self.find(unit, Code::MissingTarget, reason.to_owned(), None);
    }

    /// Whether the store lists the key of a chunk that it cannot open.
    fn is_listed(&self, unit: &CheckUnit) -> bool {
        let Ok(key) = unit.target.array.key(&unit.coords) else { return false };
        let Some(list) = self.store.list() else { return false };
        let entries = list.list_dir(&key.parent());
        entries.is_ok_and(|mut entries| {
            entries.any(|entry| {
                entry.is_ok_and(|entry| entry == StoreEntry::Key(key.name().to_owned()))
            })
        })
    }

    /// Reports the chunks of a shard that are not among the `present` slots.
    fn report_missing(&self, unit: &CheckUnit, present: &[usize]) {
        let level = unit.level.saturating_add(1);
        let Some(chunks) = unit.target.array.levels().get(level) else { return };
        for slot in 0..chunks.slots_in_shard(&unit.coords) {
            let coords = chunks.in_slot(&unit.coords, slot);
            if present.binary_search(&slot).is_err() && chunks.grid().contains(&coords) {
                self.find(unit, Code::Missing, format!("{coords} is not in the shard"), None);
            }
        }
    }

    fn check_chunk(&self, unit: &CheckUnit) {
        let array = &unit.target.array;
        if unit.level == 0 {
            count(&unit.target.chunk_count, 1);
            if let Some(sample) = &self.sample
                && !sample.has(&unit.target.path, &unit.coords)
            {
                return count(&self.counters.skipped, 1);
            }
        }
        match array.read_chunk(&unit.coords) {
            Ok(Some((decoded, _))) => {
                count(&self.counters.decoded_len, len(&decoded));
                count(&self.counters.read, 1);
            }
            // Another program removed it after it was listed, or it is a dangling link.
            Ok(None) if unit.level == 0 && self.is_listed(unit) => {
                self.report_dangling(unit);
            }
            Ok(None) => {}
            Err(error) => {
                let code = match code_of(&error, Code::Undecodable) {
                    Code::Undecodable | Code::Length | Code::Checksum if is_empty(unit) => {
                        Code::Empty
                    }
                    // The codecs of this array are known, but not this form of their bytes.
                    Code::Unknown => Code::Unsupported,
                    code => code,
                };
                if code.severity() != Severity::Unchecked {
                    count(&self.counters.read, 1);
                }
                self.report(unit, code, &error);
            }
        }
    }

    /// Reports a damaged chunk or shard.
    fn report(&self, unit: &CheckUnit, code: Code, error: &Error) {
        let is_of_codecs = matches!(code, Code::Length | Code::Undecodable);
        if let Some(key) = unit.target.lacks_codecs.as_ref().filter(|_| is_of_codecs) {
            // The chunk is probably good: it must not be moved away.
            if !unit.target.is_misread.swap(true, Ordering::Relaxed) {
                let reason = format!("codecs are missing, but chunks are encoded: {error}");
                self.watch.find(Finding::new(Code::Metadata, key, reason));
            }
            return;
        }
        let is_inner = unit.level > 0;
        let reason = if is_inner {
            format!("{}: {}", unit.coords, error.detail())
        } else {
            error.detail().to_owned()
        };
        let can_move = matches!(
            code,
            Code::Empty
                | Code::Length
                | Code::Checksum
                | Code::Undecodable
                | Code::ShardIndex
                | Code::ShardRange
        );
        let repair = can_move.then(|| Repair::Quarantine(place(unit)));
        self.find(unit, code, reason, repair);
    }

    fn find(&self, unit: &CheckUnit, code: Code, reason: String, repair: Option<Repair>) {
        let key = unit.target.array.key_of_level(unit.level, &unit.coords);
        let key = key.map_or_else(|_| unit.coords.to_string(), |key| key.to_string());
        self.watch.find(Finding { repair, ..Finding::new(code, key, reason) });
    }
}

/// Returns the code for an error of reading a chunk: `damage` if the bytes cannot be decoded.
pub fn code_of(error: &Error, damage: Code) -> Code {
    match (error.word(), error.fault_of_bytes()) {
        (_, Some(Fault::Checksum)) => Code::Checksum,
        (_, Some(Fault::Length)) => Code::Length,
        (_, Some(Fault::Away)) => Code::NoAnswer,
        (_, Some(Fault::File)) | (Word::Failed, _) => Code::Unreadable,
        (Word::Damaged, _) => damage,
        (Word::Unsupported, _) => Code::Unknown,
        (Word::Limited, _) => Code::TooLarge,
        (Word::Refused, _) => Code::Refused,
        (Word::Missing, _) => Code::MissingTarget,
    }
}

/// Whether the file of a chunk or shard has no bytes.
fn is_empty(unit: &CheckUnit) -> bool {
    let direct = unit.target.array.levels().first().filter(|_| unit.level == 0);
    let stat = direct.and_then(|direct| direct.stat(std::slice::from_ref(&unit.coords)).ok());
    stat.is_some_and(|stats| stats.iter().flatten().any(|stat| stat.len == 0))
}

fn place(unit: &CheckUnit) -> FindingPlace {
    let CheckUnit { target, level, coords } = unit;
    FindingPlace { array: Arc::clone(&target.array), level: *level, coords: coords.clone() }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn len<T>(items: &[T]) -> u64 {
    items.len().to_u64()
}
