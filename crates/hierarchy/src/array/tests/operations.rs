//! The operations of the abstract store interface on chunks, the same for every form.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::forms::{self, EncodedByChunk, StoredAs, bytes, key, places, sharding, transformer};
use crate::array::{Array, ChunkChange, Coords};
use crate::metadata::model::{KeyEncoding, Separator};
use crate::testing::text;
use zarrfs_base::error::Kind;
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{ByteRange, Condition, Key, Prefix, Store};

fn memory() -> Store {
    Store::new(Arc::new(MemoryStore::new()))
}

/// Returns a value whose length and bytes differ for each chunk.
fn value(coords: &Coords, salt: usize) -> Vec<u8> {
    let len = coords.indices().iter().sum::<u64>() as usize + salt;
    format!("{coords} {salt} {}", "x".repeat(len)).into_bytes()
}

fn set(array: &Array, chunks: &EncodedByChunk) {
    let change = |(coords, bytes): (&Coords, &Vec<u8>)| {
        ChunkChange::set(coords.clone(), Bytes::from(bytes.clone()))
    };
    array.chunks().update(chunks.iter().map(change).collect()).expect("updated");
}

/// Checks by every operation that exactly the chunks in `want` are stored.
fn check(form: &StoredAs, array: &Arc<Array>, want: &EncodedByChunk) {
    let (name, chunks) = (&form.name, array.chunks());
    let all = places(array.grid().counts());
    let whole: Vec<(Coords, ByteRange)> =
        all.iter().map(|coords| (coords.clone(), ByteRange::first(1 << 20))).collect();
    let values = chunks.get_partial_values(&whole).expect("read");
    let stats = chunks.stat(&all).expect("stat");
    for ((coords, value), stat) in all.iter().zip(&values).zip(&stats) {
        let found = value.as_ref().map(|value| value.bytes.to_vec());
        assert_eq!(found.as_ref(), want.get(coords), "{name}: {coords}");
        let of_value = value.as_ref().map(|value| value.stat);
        assert_eq!(text(stat), text(&of_value), "{name}: {coords}");
        let len = stat.map(|stat| stat.len);
        assert_eq!(len, want.get(coords).map(|bytes| bytes.len() as u64), "{name}: {coords}");
    }
    for depth in 0..=array.grid().rank() {
        let begins: BTreeSet<&[u64]> = all.iter().map(|c| &c.indices()[..depth]).collect();
        for prefix in begins {
            let below = |c: &&Coords| c.starts_with(prefix);
            let list = Arc::clone(chunks).list_prefix(prefix).expect("listed");
            let mut list: Vec<Coords> = list.map(|c| c.expect("coords")).collect();
            list.sort();
            let wanted: Vec<Coords> = want.keys().filter(below).cloned().collect();
            assert_eq!(list, wanted, "{name}: list_prefix {prefix:?}");
            if depth < array.grid().rank() {
                let dir = Arc::clone(chunks).list_dir(prefix).expect("listed");
                let mut dir: Vec<u64> = dir.map(|index| index.expect("an index")).collect();
                dir.sort_unstable();
                let wanted: BTreeSet<u64> = wanted.iter().map(|c| c.indices()[depth]).collect();
                assert!(dir.iter().eq(&wanted), "{name}: list_dir {prefix:?}: {dir:?}, {wanted:?}");
            }
        }
    }
    let list = Arc::clone(chunks).list().expect("listed");
    assert_eq!(list.count(), want.len(), "{name}");
}

/// Returns some chunks of the grid: a few in every shard, and all of the last one.
fn some_chunks(array: &Array) -> EncodedByChunk {
    let all = places(array.grid().counts());
    let last_half = all.len() / 2;
    let chosen = all.iter().enumerate().filter(|(i, _)| i % 3 == 0 || *i >= last_half);
    chosen.map(|(_, coords)| (coords.clone(), value(coords, 0))).collect()
}

#[test]
fn chunks_are_there_as_they_were_set_in_every_form() {
    for form in forms::all() {
        let store = memory();
        let array = form.open(&store);
        check(&form, &array, &EncodedByChunk::new());
        let mut want = some_chunks(&array);
        set(&array, &want);
        check(&form, &array, &want);
        check(&form, &form.open(&store), &want);
        // Replaces some by longer or shorter ones and adds some, one by one.
        for (i, coords) in places(array.grid().counts()).into_iter().enumerate().skip(1).step_by(4)
        {
            let new = EncodedByChunk::from([(coords.clone(), value(&coords, i % 9))]);
            set(&array, &new);
            want.extend(new);
        }
        check(&form, &array, &want);
        check(&form, &form.open(&store), &want);
    }
}

#[test]
fn a_range_of_a_chunk_counts_from_its_own_start_and_ends_at_its_own_end() {
    for form in forms::all() {
        let array = form.open(&memory());
        let want = some_chunks(&array);
        set(&array, &want);
        let ranges = [
            ByteRange::first(0),
            ByteRange::first(3),
            ByteRange::Span { offset: 2, len: 2 },
            ByteRange::Span { offset: 3, len: u64::MAX },
            ByteRange::Span { offset: u64::MAX, len: u64::MAX },
            ByteRange::Suffix(4),
            ByteRange::Suffix(u64::MAX),
        ];
        for (coords, bytes) in &want {
            let asked: Vec<_> = ranges.iter().map(|range| (coords.clone(), *range)).collect();
            let values = array.chunks().get_partial_values(&asked).expect("read");
            for (range, value) in ranges.iter().zip(values) {
                let (offset, len) = range.within(bytes.len() as u64);
                let wanted = &bytes[offset as usize..(offset + len) as usize];
                let value = value.expect("it is there");
                assert_eq!(value.bytes, wanted, "{}: {coords} {range:?}", form.name);
                assert_eq!(value.stat.len, bytes.len() as u64, "{}: {coords}", form.name);
            }
        }
    }
}

#[test]
fn parts_of_chunks_are_replaced_and_nothing_else_changes() {
    for form in forms::all() {
        let store = memory();
        let array = form.open(&store);
        let mut want = some_chunks(&array);
        set(&array, &want);
        let mut parts = Vec::new();
        for (i, (coords, bytes)) in want.iter_mut().enumerate().filter(|(i, _)| i % 2 == 0) {
            let start = i % (bytes.len() - 2);
            bytes[start..start + 2].copy_from_slice(b"##");
            bytes[1] = b'!';
            parts.push((coords.clone(), start as u64, Bytes::from_static(b"##")));
            parts.push((coords.clone(), 1, Bytes::from_static(b"!")));
        }
        array.chunks().set_partial_values(&parts).expect("set");
        check(&form, &array, &want);
        let (coords, bytes) = want.first_key_value().expect("one");
        for start in [bytes.len() as u64, u64::MAX] {
            let part = [(coords.clone(), start, Bytes::from_static(b"x"))];
            let error = array.chunks().set_partial_values(&part).expect_err("past the end");
            assert_eq!(error.kind(), Kind::TooLarge, "{}", form.name);
        }
        let missing = places(array.grid().counts()).into_iter().find(|c| !want.contains_key(c));
        if let Some(missing) = missing {
            let part = [(missing, 0, Bytes::new())];
            let error = array.chunks().set_partial_values(&part).expect_err("it is not there");
            assert_eq!(error.kind(), Kind::NotFound, "{}", form.name);
        }
        check(&form, &form.open(&store), &want);
    }
}

#[test]
fn erased_chunks_are_gone_and_no_empty_shard_stays() {
    for form in forms::all() {
        let store = memory();
        let array = form.open(&store);
        let mut want = some_chunks(&array);
        set(&array, &want);
        let all = places(array.grid().counts());
        let erased: Vec<Coords> = all.iter().step_by(2).cloned().collect();
        array.chunks().erase_values(&erased).expect("erased, whether there or not");
        want.retain(|coords, _| !erased.contains(coords));
        check(&form, &array, &want);
        check(&form, &form.open(&store), &want);
        for coords in all {
            array.chunks().erase_values(std::slice::from_ref(&coords)).expect("erased");
            want.remove(&coords);
        }
        check(&form, &array, &want);
        assert_eq!(keys(&store), Vec::<String>::new(), "{}", form.name);
    }
}

#[test]
fn erasing_a_prefix_erases_the_chunks_below_it_and_no_others() {
    for form in forms::all() {
        for depth in 0..=form.model.shape.len() {
            for last in [false, true] {
                let store = memory();
                let beside = Bytes::from_static(b"beside the chunks");
                let write = store.write().expect("writable");
                write.set(&key("zarr.json"), &[beside.into()], Condition::Always).expect("set");
                let array = form.open(&store);
                let mut want = some_chunks(&array);
                set(&array, &want);
                let all = places(array.grid().counts());
                let place = if last { all.last() } else { all.get(all.len() / 3) };
                let prefix = &place.expect("a chunk").indices()[..depth];
                array.chunks().erase_prefix(prefix).expect("erased");
                want.retain(|coords, _| !coords.starts_with(prefix));
                check(&form, &array, &want);
                check(&form, &form.open(&store), &want);
                assert!(
                    keys(&store).contains(&"data/root/a/zarr.json".to_owned()),
                    "{}",
                    form.name
                );
            }
        }
    }
}

#[test]
fn of_two_changes_of_one_chunk_the_later_counts() {
    for form in forms::all() {
        let array = form.open(&memory());
        let coords = places(array.grid().counts()).pop().expect("a chunk");
        let set = || ChunkChange::set(coords.clone(), Bytes::from_static(b"set"));
        let erase = || ChunkChange::erase(coords.clone());
        let update = |changes| array.chunks().update(changes).expect("updated");
        update(vec![erase(), set()]);
        assert!(array.stat(&coords).expect("stat").is_some(), "{}: erased, then set", form.name);
        update(vec![set(), erase()]);
        assert!(array.stat(&coords).expect("stat").is_none(), "{}: set, then erased", form.name);
    }
}

#[test]
fn an_update_says_what_it_stored() {
    for form in forms::all() {
        let array = form.open(&memory());
        for (i, coords) in places(array.grid().counts()).into_iter().enumerate() {
            let change = ChunkChange::set(coords.clone(), Bytes::from(value(&coords, i % 5)));
            let stored = array.chunks().update(vec![change]).expect("updated");
            let stat = array.stat(&coords).expect("stat");
            assert_eq!(text(&stored), text(&[stat]), "{}: {coords}", form.name);
            assert!(stored[0].is_some(), "{}: {coords}", form.name);
        }
        let coords = places(array.grid().counts()).pop().expect("a chunk");
        for _ in 0..2 {
            let stored = array.chunks().update(vec![ChunkChange::erase(coords.clone())]);
            assert!(matches!(stored.expect("updated")[..], [None]), "{}", form.name);
        }
    }
}

#[test]
fn a_condition_on_a_chunk_that_does_not_hold_changes_nothing() {
    for form in forms::all() {
        let store = memory();
        let array = form.open(&store);
        let want = some_chunks(&array);
        set(&array, &want);
        let (coords, _) = want.first_key_value().expect("one");
        let known = array.stat(coords).expect("stat").expect("there").version;
        let new = |condition| {
            let change = ChunkChange::set(coords.clone(), Bytes::from_static(b"new"));
            array.chunks().update(vec![ChunkChange { condition, ..change }])
        };
        assert_eq!(
            new(Condition::Absent).expect_err("there").kind(),
            Kind::Exists,
            "{}",
            form.name
        );
        check(&form, &array, &want);
        new(Condition::Unchanged(known)).expect("unchanged");
        let stale = new(Condition::Unchanged(known)).expect_err("changed");
        assert_eq!(stale.kind(), Kind::Stale, "{}", form.name);
        let erase = ChunkChange {
            condition: Condition::Unchanged(known),
            ..ChunkChange::erase(coords.clone())
        };
        let stale = array.chunks().update(vec![erase]).expect_err("changed");
        assert_eq!(stale.kind(), Kind::Stale, "{}", form.name);
    }
}

#[test]
fn outside_of_the_grid_there_is_nothing_to_ask_for() {
    for form in forms::all() {
        let store = memory();
        let array = form.open(&store);
        set(&array, &some_chunks(&array));
        let counts = array.grid().counts().to_vec();
        let mut outside: Vec<Vec<u64>> = (0..counts.len())
            .flat_map(|axis| [counts[axis], u64::MAX].map(|index| (axis, index)))
            .map(|(axis, index)| {
                let mut indices = vec![0; counts.len()];
                indices[axis] = index;
                indices
            })
            .collect();
        outside.push([&counts[..], &[0]].concat());
        for coords in outside.into_iter().map(Coords::new) {
            let (name, chunks) = (&form.name, array.chunks());
            let range = [(coords.clone(), ByteRange::first(9))];
            let before = keys(&store);
            let errors = [
                chunks.get_partial_values(&range).err(),
                chunks.stat(std::slice::from_ref(&coords)).err(),
                chunks.update(vec![ChunkChange::set(coords.clone(), Bytes::new())]).err(),
                chunks.erase_values(std::slice::from_ref(&coords)).err(),
                chunks.key(&coords).err(),
            ];
            for (i, error) in errors.into_iter().enumerate() {
                let error = error.unwrap_or_else(|| panic!("{name}: {coords}, operation {i}"));
                assert_eq!(error.kind(), Kind::Invalid, "{name}: {coords}, operation {i}");
            }
            assert_eq!(keys(&store), before, "{name}");
        }
    }
}

#[test]
fn chunks_of_a_document_of_the_draft_are_the_bytes_of_the_released_codec() {
    let transformers = json!({"storage_transformers": [transformer(&[2, 3])]});
    let draft = StoredAs::draft("draft", &[10, 14], &[2, 2], transformers);
    let codec = sharding(&[2, 2], json!([bytes("little")]), json!([bytes("little")]), "end");
    let released = StoredAs::new("released", &[10, 14], &[4, 6], json!([codec]))
        .keys(KeyEncoding::Draft(Separator::Slash));
    let stored = [&draft, &released].map(|form| {
        let store = memory();
        let array = form.open(&store);
        set(&array, &some_chunks(&array));
        let get = |key: String| {
            let key = Key::parse(&key).expect("a key");
            (key.clone(), store.get(&key, 1 << 20).expect("read").expect("there").bytes)
        };
        keys(&store).into_iter().map(get).collect::<Vec<_>>()
    });
    assert_eq!(stored[0], stored[1]);
    assert_eq!(stored[0][0].0.as_str(), "data/root/a/c0/0");
}

#[test]
fn a_shard_has_the_bytes_that_the_dialects_spell_out() {
    // Sections 7.1 and 7.3: chunk 0 holds `abc`, chunk 1 is absent.
    let absent = [0xff_u8; 16];
    let entry = |offset: u64, len: u64| [offset.to_le_bytes(), len.to_le_bytes()].concat();
    let end = [&b"abc"[..], &entry(0, 3), &absent].concat();
    let end_checked = [&end[..], &[0x33, 0xd1, 0xf2, 0xec]].concat();
    let start_checked = [&entry(0x24, 3)[..], &absent, &[0xa8, 0xcb, 0x36, 0xb7], b"abc"].concat();
    let codec = |location| sharding(&[1], json!([bytes("little")]), forms::checked(), location);
    let transformers = json!({"storage_transformers": [transformer(&[2])]});
    for (form, name, want) in [
        (StoredAs::draft("draft", &[2], &[1], transformers), "c0", end),
        (StoredAs::new("end", &[2], &[2], json!([codec("end")])), "c/0", end_checked),
        (StoredAs::new("start", &[2], &[2], json!([codec("start")])), "c/0", start_checked),
    ] {
        let store = memory();
        set(&form.open(&store), &EncodedByChunk::from([(Coords::new([0]), b"abc".to_vec())]));
        let stored = store.get(&key(name), 100).expect("read").expect("there").bytes;
        assert_eq!(stored, want, "{}", form.name);
    }
}

#[test]
fn of_a_draft_without_dimensions_both_spellings_of_the_key_are_read_and_one_is_listed() {
    for form in forms::scalars() {
        if !matches!(form.model.key_encoding, KeyEncoding::Draft(_)) {
            continue;
        }
        let store = memory();
        let array = form.open(&store);
        let chunk =
            |text: &str| EncodedByChunk::from([(Coords::new([]), text.as_bytes().to_vec())]);
        set(&array, &chunk("as zarr-python 2 has it"));
        assert_eq!(keys(&store), ["data/root/a/c0"], "{}", form.name);
        // The key that the draft specifies takes precedence, and is the one that is replaced.
        let value = store.get(&key("c0"), 1 << 20).expect("read").expect("there").bytes;
        let write = store.write().expect("writable");
        write.set(&key("c"), &[value.into()], Condition::Always).expect("set");
        check(&form, &form.open(&store), &chunk("as zarr-python 2 has it"));
        set(&array, &chunk("new"));
        check(&form, &array, &chunk("new"));
        write.erase_values(&[key("c0")]).expect("erased");
        check(&form, &array, &chunk("new"));
    }
}

fn keys(store: &Store) -> Vec<String> {
    let list = store.list().expect("listable").list_prefix(&Prefix::root()).expect("listed");
    list.map(|key| key.expect("a key").to_string()).collect()
}
