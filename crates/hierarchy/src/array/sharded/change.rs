//! Changes inner chunks by writing a new shard, which keeps the unchanged ones.
//!
//! If all chunks of a shard are set, nothing is read. Otherwise its index is read, unless it is
//! cached and current, and the new shard is stored only if the old one has not changed since. A
//! shard with a damaged index cannot be changed in part, because the unchanged chunks are unknown.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::times::ShardChanged;
use super::{Loaded, Sharded};
use crate::array::chunk_store::ChunkChange;
use crate::array::coords::Coords;
use crate::array::layout::{ShardOrder, ShardWrite};
use crate::array::shard_form::ShardForm;
use zarrfs_base::buffer::reserve;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_codec::shard::{ByteSpan, InnerChunk, ShardIndex, assemble};
use zarrfs_store::{Condition, Stat, ValuePiece};

/// The changes of one shard, by slot.
type Slots = BTreeMap<usize, Given>;

/// A new value for an inner chunk, or its removal.
struct Given {
    /// The number of earlier changes.
    arrival: usize,
    value: Option<Vec<ValuePiece>>,
}

/// The inner chunks of a new shard.
struct NewChunks {
    /// The unchanged ones, with their place in the old shard.
    kept: BTreeMap<usize, ByteSpan>,
    /// The new ones, with the number of earlier changes.
    new: Vec<(usize, usize, Vec<ValuePiece>)>,
}

/// Decides the order of inner chunks if the layout does not: unchanged ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChunkOrder {
    /// Unchanged, at this offset in the old shard.
    Kept(u64),
    /// New, after this many changes.
    Arrival(usize),
}

/// A change of a shard, and its new index.
struct Planned {
    change: ChunkChange,
    /// `None` if the shard is erased.
    index: Option<NewIndex>,
    changed: ShardChanged,
}

struct NewIndex {
    index: ShardIndex,
    at: Range<u64>,
    /// The length of the shard inside the codecs around it.
    shard_len: u64,
}

/// Returns the condition under which a shard is replaced as a whole; `None` if its index must be
/// read for that.
fn condition_of_all(conditions: &[(usize, Condition)]) -> Option<Condition> {
    if conditions.iter().all(|(_, it)| matches!(it, Condition::Always)) {
        return Some(Condition::Always);
    }
    let are_new = conditions.iter().all(|(_, it)| matches!(it, Condition::Absent));
    are_new.then_some(Condition::Absent)
}

impl Sharded {
    /// Applies `changes` once; [`Kind::Stale`] or [`Kind::Exists`] if another program changes a
    /// shard in the meantime.
    pub(super) fn try_update(&self, changes: Vec<ChunkChange>) -> Result<Vec<Option<Stat>>> {
        let mut asked = Vec::with_capacity(changes.len());
        for change in &changes {
            if !self.grid.contains(&change.coords) {
                return Err(self.grid.outside(&change.coords));
            }
            let len =
                change.value.as_ref().map(|pieces| ValuePiece::total_len(pieces)).transpose()?;
            asked.push((self.level.shard_of(&change.coords), len));
        }
        let planned = self.plan(changes)?;
        if planned.is_empty() {
            return Ok(vec![None; asked.len()]);
        }
        let (mut changes, mut rest) = (Vec::new(), Vec::new());
        for Planned { change, index, changed } in planned {
            rest.push((change.coords.clone(), index, changed));
            changes.push(change);
        }
        let mut stored: BTreeMap<Coords, Option<Stat>> = BTreeMap::new();
        for ((shard, index, changed), stat) in rest.into_iter().zip(self.below.update(changes)?) {
            self.keep_times(&shard, changed, stat);
            if let (Some(new), Some(stat)) = (index, stat) {
                let stat = Stat { len: new.shard_len, ..stat };
                self.keep(&shard, &Arc::new(Loaded { index: new.index, stat, at: new.at }));
            }
            stored.insert(shard, stat);
        }
        let stat_of = |(shard, len): (Coords, Option<u64>)| {
            let stat = stored.get(&shard).copied().flatten()?;
            len.map(|len| Stat { len, ..stat })
        };
        Ok(asked.into_iter().map(stat_of).collect())
    }

    /// Groups changes by shard and slot, and checks their conditions.
    fn plan(&self, changes: Vec<ChunkChange>) -> Result<Vec<Planned>> {
        let mut by_shard: BTreeMap<Coords, Vec<ChunkChange>> = BTreeMap::new();
        for change in changes {
            by_shard.entry(self.level.shard_of(&change.coords)).or_default().push(change);
        }
        let mut planned = Vec::new();
        let mut partial = Vec::new();
        for (shard, changes) in by_shard {
            let conditions: Vec<(usize, Condition)> =
                changes.iter().map(|c| (self.level.slot_of(&c.coords), c.condition)).collect();
            let given = changes.into_iter().enumerate().map(|(arrival, change)| {
                (self.level.slot_of(&change.coords), Given { arrival, value: change.value })
            });
            let slots: Slots = given.collect();
            if let Some(condition) = condition_of_all(&conditions)
                && self.replaces_all(&shard, &slots)
            {
                let mut whole = self.changed_shard(&shard, slots, None)?;
                whole.change.condition = condition;
                planned.push(whole);
            } else {
                partial.push((shard, slots, conditions));
            }
        }
        let shards: Vec<Coords> = partial.iter().map(|(shard, ..)| shard.clone()).collect();
        let is_erased = |given: &Given| given.value.is_none();
        // Nothing is put to erase a chunk that is absent, so no condition would show that another
        // program has stored it: a cached index is not enough.
        let mut indexes = if partial.iter().any(|(_, slots, _)| slots.values().any(is_erased)) {
            let read = self.read_indexes(&shards)?;
            shards.into_iter().zip(read).collect()
        } else {
            self.indexes_now(shards)?
        };
        for (shard, slots, conditions) in partial {
            let old = indexes.remove(&shard).flatten();
            for (slot, condition) in conditions {
                let there = old.as_ref().filter(|old| old.index.is_present(slot));
                condition
                    .check(there.map(|old| old.stat.version))
                    .map_err(|error| self.at_key_of(&shard, error))?;
            }
            let present =
                |slot: &usize| old.as_ref().is_some_and(|old| old.index.is_present(*slot));
            if slots.iter().all(|(slot, given)| given.value.is_none() && !present(slot)) {
                continue; // Erasing what is not there.
            }
            planned.push(self.changed_shard(&shard, slots, old.as_deref())?);
        }
        Ok(planned)
    }

    /// Rewrites a shard with the same inner chunks and nothing else.
    pub(super) fn rewrite(&self, shard: &Coords) -> Result<()> {
        let Some(old) = self.read_indexes(std::slice::from_ref(shard))?.pop().flatten() else {
            return Ok(());
        };
        let planned = self.changed_shard(shard, Slots::new(), Some(&*old))?;
        self.below.update(vec![planned.change]).map(drop)
    }

    /// Whether the changes replace the whole shard.
    fn replaces_all(&self, shard: &Coords, changes: &Slots) -> bool {
        let all = self.level.chunks_of(shard, &self.grid);
        u64::try_from(changes.len()).is_ok_and(|changed| changed >= all)
            && changes
                .values()
                .filter_map(|given| given.value.as_ref())
                .flatten()
                .all(|piece| matches!(piece, ValuePiece::New(_)))
    }

    /// Plans the new value of one shard from its changes and its unchanged inner chunks.
    fn changed_shard(
        &self,
        shard: &Coords,
        changes: Slots,
        old: Option<&Loaded>,
    ) -> Result<Planned> {
        let form = self.form(shard)?;
        let mut parts = NewChunks { kept: BTreeMap::new(), new: Vec::new() };
        let slots = changes.iter().map(|(slot, given)| (*slot, given.value.is_some())).collect();
        let changed = ShardChanged { old: old.map(|old| old.stat), slots };
        if let Some(old) = old {
            let kept = kept(old, &changes, form.most_kept(old.stat.len));
            parts.kept = kept.map_err(|error| self.at_key_of(shard, error))?;
        }
        for (slot, Given { arrival, value }) in changes {
            if let Some(pieces) = value {
                let rebased = rebase(pieces, || old.map_or(Ok(None), |old| old.span(slot)));
                parts.new.push((
                    arrival,
                    slot,
                    rebased.map_err(|error| self.at_key_of(shard, error))?,
                ));
            }
        }
        let condition = match old {
            Some(old) => Condition::Unchanged(old.stat.version),
            None => Condition::Absent,
        };
        // Where a shard cannot be erased on a condition, one without inner chunks is stored.
        if parts.kept.is_empty() && parts.new.is_empty() && self.below.erases_unchanged() {
            let change = ChunkChange { coords: shard.clone(), value: None, condition };
            return Ok(Planned { change, index: None, changed });
        }
        let (index, mut pieces) = self.lay_out(shard, &form, parts)?;
        let encoded_index = form.encode_index(&index, old.map(|old| &old.at))?;
        let index_len = ValuePiece::New(encoded_index.clone()).len();
        form.place_index(&mut pieces, encoded_index.into());
        let shard_len = ValuePiece::total_len(&pieces)?;
        let at = form.index_at(index_len, shard_len);
        let value = Some(self.wrap(shard, merge_kept(pieces), old)?);
        let change = ChunkChange { coords: shard.clone(), value, condition };
        Ok(Planned { change, index: Some(NewIndex { index, at, shard_len }), changed })
    }

    /// Lays out a new shard: returns its index, and the inner chunks one after another.
    fn lay_out(
        &self,
        shard: &Coords,
        form: &ShardForm,
        NewChunks { kept, new }: NewChunks,
    ) -> Result<(ShardIndex, Vec<ValuePiece>)> {
        let start = form.index_first_len();
        let mut sorted: Vec<(usize, ChunkOrder, Vec<ValuePiece>)> = Vec::with_capacity(new.len());
        for (arrival, slot, pieces) in new {
            sorted.push((slot, ChunkOrder::Arrival(arrival), pieces));
        }
        let stays = self.stays(start, &kept, &sorted);
        if stays.is_none() {
            sorted.extend(kept.iter().map(|(slot, span)| {
                let piece = ValuePiece::Kept { offset: span.offset, len: span.len };
                (*slot, ChunkOrder::Kept(span.offset), vec![piece])
            }));
        }
        sorted.sort_by(|(one, one_order, _), (other, other_order, _)| {
            let by_layout = self.compare(shard, *one, *other);
            by_layout.then_with(|| one_order.cmp(other_order)).then(one.cmp(other))
        });
        let mut lens = Vec::with_capacity(sorted.len());
        for (slot, _, pieces) in &sorted {
            lens.push(InnerChunk { slot: *slot, len: ValuePiece::total_len(pieces)? });
        }
        let new = sorted.into_iter().flat_map(|(_, _, pieces)| pieces);
        let slots = form.slots();
        Ok(match stays {
            Some(range) => {
                let index = assemble(slots, kept, lens, range.end)?;
                let old = ValuePiece::Kept { offset: range.start, len: range.end - range.start };
                (index, std::iter::once(old).chain(new).collect())
            }
            None => (assemble(slots, [], lens, start)?, new.collect()),
        })
    }

    /// Compares two slots of a shard by the order of the layout.
    fn compare(&self, shard: &Coords, one: usize, other: usize) -> Ordering {
        match self.layout.order {
            // In a transposed shard, the order of the stored dimensions.
            ShardOrder::C => one.cmp(&other),
            order => {
                let within = |slot| self.level.place_in(shard, slot);
                order.compare(&within(one), &within(other))
            }
        }
    }

    /// Returns the bytes of the old shard that stay in place, including dead ones, if the layout
    /// appends; `None` if more than half of the new shard would be dead.
    fn stays(
        &self,
        start: u64,
        kept: &BTreeMap<usize, ByteSpan>,
        new: &[(usize, ChunkOrder, Vec<ValuePiece>)],
    ) -> Option<Range<u64>> {
        if self.layout.write != ShardWrite::Append || !self.level.around.is_empty() {
            return None;
        }
        let end = kept.values().map(|span| span.offset.saturating_add(span.len)).max()?;
        if kept.values().any(|span| span.offset < start) {
            return None; // The old index was shorter.
        }
        let live: u64 = kept.values().map(|span| span.len).fold(0, u64::saturating_add);
        let added = new.iter().flat_map(|(_, _, pieces)| pieces).map(ValuePiece::len);
        let added = added.fold(0, u64::saturating_add);
        let dead = end.checked_sub(start)?.saturating_sub(live);
        (dead <= live.saturating_add(added)).then_some(start..end)
    }

    /// Applies the codecs around the shard, if there are any.
    fn wrap(
        &self,
        shard: &Coords,
        pieces: Vec<ValuePiece>,
        old: Option<&Loaded>,
    ) -> Result<Vec<ValuePiece>> {
        if self.level.around.is_empty() {
            return Ok(pieces);
        }
        let is_kept = |piece: &ValuePiece| matches!(piece, ValuePiece::Kept { .. });
        let old_bytes = match old.filter(|_| pieces.iter().any(is_kept)) {
            Some(old) => {
                let now = self.decoded_shard(shard)?;
                now.filter(|now| now.stat.version.is_same(old.stat.version))
                    .ok_or_else(stale)?
                    .bytes
            }
            None => bytes::Bytes::new(),
        };
        let len = ValuePiece::total_len(&pieces)?;
        let limit = self.form(shard)?.longest();
        let room = usize::try_from(len).ok().filter(|_| len <= limit).ok_or_else(|| {
            let detail = format!("the new shard would have {len} bytes, the limit is {limit}");
            self.at_key_of(shard, Error::too_large(detail))
        })?;
        let mut whole = reserve(room)?;
        for piece in pieces {
            match piece {
                ValuePiece::New(bytes) => whole.extend_from_slice(&bytes),
                ValuePiece::Kept { offset, len } => {
                    let start = usize::try_from(offset).ok();
                    let end = usize::try_from(len).ok().and_then(|len| start?.checked_add(len));
                    let kept = start.zip(end).and_then(|(start, end)| old_bytes.get(start..end));
                    whole.extend_from_slice(kept.ok_or_else(stale)?);
                }
            }
        }
        Ok(vec![self.level.encode_around(whole).at(shard)?.into()])
    }
}

fn stale() -> Error {
    Error::new(Kind::Stale, "another program changed the shard in the meantime")
}

/// Returns the unchanged inner chunks of a shard. A damaged entry can be replaced, but not
/// kept, because that would spread the damage. They have at most `most` bytes.
fn kept(old: &Loaded, changes: &Slots, most: u64) -> Result<BTreeMap<usize, ByteSpan>> {
    let mut parts = BTreeMap::new();
    let mut kept_len: u64 = 0;
    for slot in (0..old.index.slots()).filter(|slot| !changes.contains_key(slot)) {
        let Some(span) = old.span(slot)? else { continue };
        kept_len = kept_len.saturating_add(span.len);
        if kept_len > most {
            return Err(Error::corrupt(format!(
                "inner chunks overlap: they have at least {kept_len} bytes in a shard of {}",
                old.stat.len
            )));
        }
        parts.insert(slot, span);
    }
    Ok(parts)
}

/// Converts offsets of kept pieces from the inner chunk to its shard. Asks for the place of the old
/// inner chunk only if some of it is kept, because its entry may be damaged.
fn rebase(
    pieces: Vec<ValuePiece>,
    base: impl FnOnce() -> Result<Option<ByteSpan>>,
) -> Result<Vec<ValuePiece>> {
    let is_kept = |piece: &ValuePiece| matches!(piece, ValuePiece::Kept { .. });
    let base = if pieces.iter().any(is_kept) { base()? } else { None };
    let rebase = |piece| match (piece, base) {
        (ValuePiece::New(bytes), _) => Ok(ValuePiece::New(bytes)),
        (ValuePiece::Kept { offset, len }, Some(base))
            if offset.checked_add(len).is_some_and(|end| end <= base.len) =>
        {
            Ok(ValuePiece::Kept { offset: base.offset + offset, len })
        }
        (ValuePiece::Kept { .. }, _) => Err(stale()),
    };
    pieces.into_iter().map(rebase).collect()
}

/// Joins adjacent kept pieces, so that they are copied together.
fn merge_kept(pieces: Vec<ValuePiece>) -> Vec<ValuePiece> {
    let mut merged: Vec<ValuePiece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (merged.last_mut(), &piece) {
            (
                Some(ValuePiece::Kept { offset, len }),
                ValuePiece::Kept { offset: next, len: more },
            ) if offset.checked_add(*len) == Some(*next) => {
                *len += more;
            }
            _ => merged.push(piece),
        }
    }
    merged
}
