//! The table of references, against a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::refs::ReferenceTarget;

fn table(references: &[(String, u64)]) -> Arc<ReferenceTable> {
    let mut builder = Builder::new(1 << 20);
    for (key, number) in references {
        let added = match number % 3 {
            0 => Added::Inline(number.to_le_bytes().to_vec().into()),
            1 => Added::Part { location: "s3://b/a.nc", offset: *number, len: 1 << number },
            _ => Added::Whole { location: "a.nc" },
        };
        builder.add(key, added).expect("added");
    }
    Arc::new(builder.build(SystemTime::UNIX_EPOCH).expect("built"))
}

fn number_of(table: &ReferenceTable, key: &str) -> Option<u64> {
    let key = Key::parse(key).expect("valid");
    let found = table.find(&[key]).expect("found").pop().flatten()?;
    Some(match found.target {
        ReferenceTarget::Inline(bytes) => u64::from_le_bytes(bytes.first_chunk().copied().unwrap()),
        ReferenceTarget::Part { offset, len, .. } => {
            assert_eq!(len, 1 << offset);
            offset
        }
        ReferenceTarget::Whole(_) => 2,
    })
}

proptest! {
    #[test]
    fn the_table_has_the_last_reference_of_each_key(
        paths in prop::collection::vec(("([ab]/){0,3}[a-c]{1,2}", 0_u64..40), 0..60),
    ) {
        let table = table(&paths);
        let want: BTreeMap<&str, u64> =
            paths.iter().map(|(key, n)| (key.as_str(), if n % 3 == 2 { 2 } else { *n })).collect();
        for (key, number) in &want {
            prop_assert_eq!(number_of(&table, key), Some(*number), "{}", key);
        }
        prop_assert_eq!(number_of(&table, "x/y"), None);
        for prefix in ["", "a/", "a/b/", "c/"] {
            let mut entries: BTreeSet<StoreEntry> = BTreeSet::new();
            for entry in Arc::clone(&table).list_dir(&Prefix::parse(prefix).unwrap()).unwrap() {
                prop_assert!(entries.insert(entry.unwrap()), "twice");
            }
            let below = want.keys().filter_map(|key| key.strip_prefix(prefix));
            let mut wanted: BTreeSet<StoreEntry> = below
                .map(|rest| match rest.split_once('/') {
                    Some((name, _)) => StoreEntry::Prefix(name.to_owned()),
                    None => StoreEntry::Key(rest.to_owned()),
                })
                .collect();
            let directories: Vec<StoreEntry> =
                wanted.iter().filter(|it| matches!(it, StoreEntry::Prefix(_))).cloned().collect();
            for directory in directories {
                wanted.remove(&StoreEntry::Key(directory.name().to_owned()));
            }
            prop_assert_eq!(entries, wanted, "{}", prefix);
            for start in ["", "a", "ab", "d"] {
                let below = Prefix::parse(prefix).unwrap();
                let names = Arc::clone(&table).names_starting(&below, start);
                let names: Vec<String> = names.into_iter().flatten().map(Result::unwrap).collect();
                let wanted = want.keys().filter_map(|key| key.strip_prefix(prefix));
                let wanted: Vec<&str> =
                    wanted.filter(|it| !it.contains('/') && it.starts_with(start)).collect();
                prop_assert_eq!(names, wanted);
            }
        }
    }
}

#[test]
fn a_key_that_leads_elsewhere_is_refused() {
    for key in ["", "/", "..", "a/../b", "a//b", "/a", "a/", "a/.", "a\0"] {
        let added = Builder::new(1 << 20).add(key, Added::Inline(Bytes::new()));
        assert!(added.is_err(), "{key:?} was taken");
    }
}

#[test]
fn long_names_and_many_names_are_found() {
    let mut builder = Builder::new(1 << 20);
    let long = "n".repeat(MAX_KEY_LEN);
    for key in (0..5000).map(|n| format!("a/{n}")).chain([long.clone()]) {
        let part = Added::Part { location: "x", offset: key.len() as u64, len: 1 };
        builder.add(&key, part).expect("added");
    }
    let table = builder.build(SystemTime::UNIX_EPOCH).expect("built");
    let offset = |key: &str| match table.known(&[Key::parse(key).unwrap()]).pop().flatten() {
        Some(Reference { target: ReferenceTarget::Part { offset, .. }, .. }) => Some(offset),
        _ => None,
    };
    assert_eq!(offset(&long), Some(MAX_KEY_LEN as u64));
    assert!((0..5000).all(|n| offset(&format!("a/{n}")) == Some(format!("a/{n}").len() as u64)));
    assert_eq!(offset("a/5000"), None);
}
