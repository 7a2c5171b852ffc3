//! Listings, and which inodes are known.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::bed::VfsBed;
use super::tree::{collect, remove_all};
use crate::error::Kind;
use crate::metadata::{Dialect, NodePath};
use crate::vfs::{Access, Ownership, Presence, ROOT};
use crate::width::ToUsize;

#[test]
fn a_damaged_shard_hides_only_its_own_chunks_and_ends_the_listing_with_an_error() {
    let mut bed = VfsBed::new();
    for chunk in 0..4 {
        bed.write(&format!("sharded/c/{chunk}"), b"abcd").expect("stored");
    }
    bed.vfs.sync().expect("stored");
    bed.put("sharded/c/0", b"garbage, and not a shard at all".to_vec());
    bed.remount();
    assert_eq!(bed.names("sharded"), ["zarr.json", "c"]);
    let dir = bed.vfs.listings().opendir(bed.find("sharded/c").expect("there")).expect("opened");
    let listed = |at| bed.vfs.listings().readdir(&dir, at);
    for (at, name) in ["2", "3"].into_iter().enumerate() {
        assert_eq!(listed(at).expect("read").map(|it| it.name.clone()).as_deref(), Some(name));
    }
    assert_eq!(listed(2).expect_err("not all").kind(), Kind::Corrupt);
    assert_eq!(bed.read("sharded/c/2").expect("read"), b"abcd");
}

#[test]
fn a_directory_with_the_name_of_a_metadata_file_is_not_listed_beside_it() {
    let mut bed = VfsBed::new();
    bed.put("zarr.json/a", b"x".to_vec());
    bed.remount();
    let names = bed.names("");
    assert_eq!(names.iter().filter(|name| *name == "zarr.json").count(), 1, "{names:?}");
}

#[test]
fn inodes_are_dropped_when_the_kernel_forgets_them() {
    let bed = VfsBed::new();
    assert_eq!(bed.vfs.names.inodes.len(), 1);
    // The kernel forgets it while it is still open, and before it is stored.
    let open = bed.create("scratch").expect("created");
    bed.vfs.write(open, 0, b"abcd").expect("written");
    bed.vfs.forget(bed.find("scratch").expect("there"), 2);
    bed.close(open).expect("closed");
    bed.vfs.tick();
    bed.vfs.tick();
    assert_eq!(bed.vfs.names.inodes.len(), 1, "the inode of a scratch file is kept for ever");
    // The kernel looked the name up in a listing, and did not use it.
    let dir = bed.vfs.listings().opendir(ROOT).expect("opened");
    let first = bed.vfs.listings().readdir(&dir, 0).expect("read").expect("there");
    let attr = bed.vfs.listings().lookup_listed(&dir, &first).expect("told").expect("there");
    bed.vfs.forget(attr.number, 1);
    assert_eq!(bed.vfs.names.inodes.len(), 1);
    let attr = bed.vfs.listings().lookup_listed_name(&first);
    assert_eq!(bed.vfs.getattr(attr.number).expect("known").number, attr.number);
    bed.vfs.forget(attr.number, 1);
    assert_eq!(bed.vfs.names.inodes.len(), 1);
    bed.vfs.lookup(ROOT, "missing").expect_err("not there");
    assert_eq!(bed.vfs.names.inodes.len(), 1);
}

#[test]
fn a_chunk_outside_of_a_smaller_shape_is_not_listed_and_can_be_removed() {
    let bed = VfsBed::new();
    bed.write("plain/c/3", b"abcd").expect("stored");
    let number = bed.find("plain/c/3").expect("there");
    let document = String::from_utf8(bed.read("plain/zarr.json").expect("read")).expect("text");
    let smaller = document.replacen('8', "4", 1);
    assert!(smaller.contains("\"shape\": [\n    4") || smaller.contains("[4]"), "{smaller}");
    bed.write("plain/zarr.json", smaller.as_bytes()).expect("merged");
    assert!(bed.stored("plain/c/3").is_some(), "its writer may not know of it");
    assert_eq!(bed.vfs.getattr(number).expect("still there").len, 4);
    assert!(bed.find("plain/c").is_err(), "the array has no chunk");
    let c = crate::vfs::inodes::place::Place::ChunkDir(
        NodePath::parse("plain").expect("a path"),
        vec![],
    );
    let c = bed.vfs.names.lookup_place(&c).expect("looked up").number;
    assert!(bed.vfs.lookup(c, "2").is_err(), "nothing was stored there");
    bed.vfs.unlink(c, "3").expect("removed");
    assert_eq!(bed.stored("plain/c/3"), None);
    assert_eq!(bed.vfs.getattr(number).expect_err("gone").kind(), Kind::NotFound);
    assert_eq!(bed.vfs.open(number, Access::Read).expect_err("gone").kind(), Kind::NotFound);
}

#[test]
fn reads_from_before_an_edit_are_not_cached() {
    let bed = VfsBed::new();
    let plain = NodePath::parse("plain").expect("a path");
    bed.vfs.hierarchy().invalidate(&plain);
    let number = bed.find("plain").expect("there");
    bed.vfs.hierarchy().invalidate(&plain);
    let vfs = Arc::clone(&bed.vfs);
    *bed.store.after_get.lock() = Some(Box::new(move || {
        vfs.xattrs().set(number, "user.attrs.units", b"\"degC\"", Presence::Any).expect("set");
    }));
    // Reads the document, and then it is edited.
    bed.vfs.hierarchy().node(&plain).expect("read");
    let units = bed.vfs.xattrs().get(number, "user.attrs.units").expect("there");
    assert_eq!(String::from_utf8_lossy(&units), "\"degC\"");
}

#[test]
fn attributes_of_bytes_that_may_be_merged_or_dropped_are_not_kept() {
    let bed = VfsBed::new();
    let (parent, name) = bed.place("plain/c/0");
    let (attr, opened) = bed
        .vfs
        .create(parent, name, Ownership::of_process(0o644), Access::Truncate, false)
        .expect("created");
    assert!(bed.vfs.ttl(&attr).is_zero());
    bed.vfs.write(opened.handle, 0, b"abcd").expect("written");
    bed.close(opened.handle).expect("stored");
    assert!(!bed.vfs.ttl(&bed.vfs.getattr(attr.number).expect("there")).is_zero());
}

/// An array of 2 by 3 by 4 chunks of two elements. Shards, where it has any, are two chunks long
/// along the last two dimensions.
fn array_of_three_dimensions(keys: &str, separator: &str, sharded: bool) -> String {
    let bytes = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;
    let inner = format!(
        r#"{{"name":"sharding_indexed","configuration":{{"chunk_shape":[1,1,2],"codecs":[{bytes}],
        "index_codecs":[{bytes},{{"name":"crc32c"}}]}}}}"#
    );
    let (codecs, shape) = if sharded { (&inner[..], "1,2,4") } else { (bytes, "1,1,2") };
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[2,3,8],"data_type":"uint16",
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[{shape}]}}}},
        "chunk_key_encoding":{{"name":"{keys}","configuration":{{"separator":"{separator}"}}}},
        "fill_value":0,"codecs":[{codecs}]}}"#
    )
}

#[test]
fn a_directory_of_chunks_that_has_only_other_files_is_listed_once() {
    for keys in ["default", "v2"] {
        for separator in ["/", "."] {
            for sharded in [false, true] {
                let of = format!("{keys} {separator} sharded: {sharded}");
                let mut bed = VfsBed::new();
                let document = array_of_three_dimensions(keys, separator, sharded);
                bed.put("x/zarr.json", document.into_bytes());
                bed.write("x/c/0/0/0", b"abcd").expect("stored");
                for file in ["x/c/0/0/note", "x/c/0/2/note", "x/c/1/2/note", "x/c/1/2/sub/note"] {
                    bed.write(file, b"note").expect("stored");
                }
                bed.vfs.sync().expect("stored");
                bed.remount();
                let names = |path: &str| {
                    let mut names = bed.names(path);
                    names.sort();
                    names
                };
                assert_eq!(names("x"), ["c", "zarr.json"], "{of}");
                assert_eq!(names("x/c"), ["0", "1"], "{of}");
                assert_eq!(names("x/c/0"), ["0", "2"], "{of}");
                assert_eq!(names("x/c/1"), ["2"], "{of}");
                assert_eq!(names("x/c/0/0"), ["0", "note"], "{of}");
                assert_eq!(names("x/c/1/2"), ["note", "sub"], "{of}");
                assert_eq!(bed.read("x/c/1/2/sub/note").expect("read"), b"note", "{of}");
                // Nothing is left after a program has removed what is listed.
                for file in ["note", "sub/note"] {
                    bed.unlink(&format!("x/c/1/2/{file}")).expect("there");
                }
                for directory in ["x/c/1/2/sub", "x/c/1/2", "x/c/1"] {
                    let (above, name) = bed.place(directory);
                    bed.vfs.rmdir(above, name).expect("empty");
                }
                assert_eq!(names("x/c"), ["0"], "{of}");
                assert!(!bed.keys().iter().any(|key| key.starts_with("x/c/1/")), "{of}");
            }
        }
    }
}

/// Paths of files in the array `x`: chunks, and notes beside chunks or beside directories of
/// chunks, perhaps in directories of their own.
fn files_in_an_array() -> impl Strategy<Value = BTreeSet<String>> {
    let index = (0_u64..2, 0_u64..3, 0_u64..2);
    let file = (index, 0_usize..7).prop_map(|((i, j, k), form)| match form {
        0..2 => format!("x/c/{i}/{j}/{k}"),
        2 => format!("x/c/{i}/{j}/note"),
        3 => format!("x/c/{i}/note"),
        4 => format!("x/c/{i}/{j}/sub/{k}"),
        5 => format!("x/c/{i}/sub/{j}/{k}"),
        _ => ["x/c/note", "x/note", "x/sub/c/0"][j.to_usize()].to_owned(),
    });
    prop::collection::btree_set(file, 0..12)
}

/// Returns the paths of files with those of the directories that they are in.
fn with_directories(files: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = files.clone();
    for file in files {
        all.extend(file.match_indices('/').map(|(at, _)| file[..at].to_owned()));
    }
    all.extend(["x", "x/zarr.json", "zarr.json"].map(str::to_owned));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_file_in_an_array_is_listed_once_in_every_dialect(
        files in files_in_an_array(),
        name in prop::sample::select(&["v3", "d2020-10", "v2", "n5", "d2019-06", "d2019-05"][..]),
        shards in any::<bool>(),
        kept in prop::collection::vec(any::<bool>(), 12),
    ) {
        let shards = shards && matches!(name, "v3" | "d2020-10");
        let mut bed = VfsBed::empty(&Dialect::parse_name(name).expect("a dialect"), shards);
        let first = bed.keys();
        let document = array_of_three_dimensions("default", "/", false);
        bed.write("x/zarr.json", document.as_bytes()).expect("stored");
        for file in &files {
            bed.write(file, b"abcd").expect("stored");
        }
        let is_listed = |bed: &VfsBed, files: &BTreeSet<String>| {
            let mut found = Vec::new();
            collect(bed, "", &mut found);
            found.sort();
            let expected: Vec<String> = with_directories(files).into_iter().collect();
            prop_assert_eq!(found, expected);
            Ok(())
        };
        is_listed(&bed, &files)?;
        bed.vfs.sync().expect("stored");
        bed.remount();
        is_listed(&bed, &files)?;
        let each = files.into_iter().zip(kept);
        let (kept, removed): (Vec<_>, Vec<_>) = each.partition(|(_, is_kept)| *is_kept);
        for (file, _) in removed {
            bed.unlink(&file).expect("there");
        }
        bed.vfs.sync().expect("stored");
        bed.remount();
        is_listed(&bed, &kept.into_iter().map(|(file, _)| file).collect())?;
        remove_all(&bed, "x", false).expect("removed");
        bed.vfs.sync().expect("stored");
        prop_assert_eq!(bed.keys(), first);
    }
}
