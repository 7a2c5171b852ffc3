//! A daemon that is killed at any instant leaves a hierarchy that opens, and the next one finishes
//! or undoes what it did.
//!
//! The store stops before the n-th change of a value, for every n, as it does for a daemon that is
//! killed there.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::bed::{CHUNK_LEN, VfsBed, new_array};
use crate::error::Result;
use crate::hierarchy::{Content, Hierarchy};
use crate::metadata::merge::Edit;
use crate::metadata::{Dialect, NodePath};

/// The elements of a new file in the place of a view.
const NEW: [u8; 16] = [9; 16];

/// Something that programs do.
struct ProgramChange {
    name: &'static str,
    /// What there is before.
    prepare: fn(&VfsBed),
    run: fn(&VfsBed) -> Result<()>,
    /// Whether it is one system call, so that there is nothing between before and after.
    is_one: bool,
}

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"units":"m"}}"#;

const CHANGES: &[ProgramChange] = &[
    ProgramChange {
        name: "create an array",
        prepare: |bed| write(bed, "g/zarr.json", GROUP),
        run: |bed| bed.write("g/a/zarr.json", new_array().as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "create a group",
        prepare: |bed| write(bed, "g/zarr.json", GROUP),
        run: |bed| bed.write("g/b/zarr.json", GROUP.as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "make a directory, which becomes a group",
        prepare: |bed| write(bed, "g/zarr.json", GROUP),
        run: |bed| {
            bed.place("g/b/x");
            bed.vfs.sync()
        },
        is_one: true,
    },
    ProgramChange {
        name: "edit the attributes",
        prepare: with_array,
        run: |bed| edit(bed, 8),
        is_one: true,
    },
    ProgramChange {
        name: "edit the attributes and the shape",
        prepare: with_array,
        run: |bed| edit(bed, 3),
        is_one: true,
    },
    ProgramChange {
        name: "remove a document",
        prepare: with_array,
        run: |bed| bed.unlink("g/a/zarr.json"),
        is_one: true,
    },
    ProgramChange {
        name: "remove an array",
        prepare: with_array,
        run: remove_array,
        is_one: false,
    },
    ProgramChange {
        name: "rename an array",
        prepare: with_array,
        run: |bed| bed.rename("g/a", "h/b"),
        is_one: true,
    },
    ProgramChange {
        name: "rename a group",
        prepare: |bed| {
            with_array(bed);
            write(bed, "g/k/l/zarr.json", &new_array());
            write_chunks(bed, "g/k/l");
        },
        run: |bed| bed.rename("g", "h/k"),
        is_one: true,
    },
    ProgramChange {
        name: "make an array of a directory that has its chunks",
        prepare: with_files,
        run: |bed| bed.write("g/x/zarr.json", new_array().as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "make an array of a group whose directories of chunks are groups",
        prepare: |bed| {
            with_files(bed);
            bed.vfs.sync().expect("stored");
            write(bed, "g/x/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
            write(bed, "g/x/y/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
        },
        run: |bed| bed.write("g/x/zarr.json", new_array().as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "create an array with codecs of its maker",
        prepare: |bed| write(bed, "g/zarr.json", GROUP),
        run: |bed| bed.write("g/a/zarr.json", compressed_array().as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "create an array with encoded chunks",
        prepare: |bed| write(bed, "g/zarr.json", GROUP),
        run: |bed| {
            bed.write("g/a/zarr.json", compressed_array().as_bytes())?;
            (0..4).try_for_each(|at| bed.write(&format!("g/a/c/{at}"), &compressed(at)))
        },
        is_one: false,
    },
    ProgramChange {
        name: "make an array of a directory that has its encoded chunks",
        prepare: |bed| {
            write(bed, "g/zarr.json", GROUP);
            for at in 0..4 {
                bed.write(&format!("g/x/c/{at}"), &compressed(at)).expect("stored");
            }
        },
        run: |bed| bed.write("g/x/zarr.json", compressed_array().as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "replace the metadata of an array without chunks by other codecs",
        prepare: |bed| {
            write(bed, "g/zarr.json", GROUP);
            write(bed, "g/a/zarr.json", &new_array());
        },
        run: |bed| bed.write("g/a/zarr.json", compressed_array().as_bytes()),
        is_one: true,
    },
    ProgramChange {
        name: "write a new file in the place of an array",
        prepare: with_array,
        run: |bed| {
            let mut file = bed.read("g/a.npy")?;
            let len = file.len();
            file[len - 16..].copy_from_slice(&NEW);
            let text = b"'fortran_order': False, ";
            let at = file.windows(text.len()).position(|part| part == text).expect("a header");
            file[at..at + text.len()].copy_from_slice(b"'fortran_order':False,  ");
            bed.write("g/a.npy", &file)
        },
        is_one: true,
    },
    ProgramChange {
        name: "write a new file in the place of a group, with other values and attributes",
        prepare: with_array,
        run: |bed| {
            let mut file = bed.read("g.nc")?;
            for (old, new) in [(b"m\0\0\0", b"s\0\0\0"), (b"K\0\0\0", b"C\0\0\0")] {
                let at = file.windows(4).position(|part| part == old).expect("an attribute");
                file[at..at + 4].copy_from_slice(new);
            }
            let last = file.len() - 1;
            file[last] = 77;
            bed.write("g.nc", &file)
        },
        is_one: true,
    },
];

impl ProgramChange {
    /// Whether programs can do it in a dialect: N5 has no encoded chunks.
    fn suits(&self, dialect: &Dialect) -> bool {
        dialect.name() != "n5" || !(self.name.contains("codecs") || self.name.contains("encoded"))
    }
}

fn compressed_array() -> String {
    new_array().replace("}],\n", "},{\"name\":\"gzip\",\"configuration\":{\"level\":1}}],\n")
}

/// The encoded bytes of a chunk.
fn compressed(at: u64) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&chunk(at)).expect("in memory");
    encoder.finish().expect("in memory")
}

fn write(bed: &VfsBed, path: &str, text: &str) {
    bed.write(path, text.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// The bytes of the chunk that begins at element `2 * at`.
fn chunk(at: u64) -> Vec<u8> {
    vec![u8::try_from(at).expect("small") + 1; CHUNK_LEN]
}

fn write_chunks(bed: &VfsBed, array: &str) {
    for at in 0..4 {
        bed.write(&format!("{array}/c/{at}"), &chunk(at)).expect("stored");
    }
}

fn with_array(bed: &VfsBed) {
    for group in ["g", "h"] {
        write(bed, &format!("{group}/zarr.json"), GROUP);
    }
    write(bed, "g/a/zarr.json", &new_array());
    write_chunks(bed, "g/a");
    write(bed, "g/a/notes", "a note");
}

fn with_files(bed: &VfsBed) {
    write(bed, "g/zarr.json", GROUP);
    write_chunks(bed, "g/x");
    write(bed, "g/x/c/notes", "a note");
}

fn edit(bed: &VfsBed, len: u64) -> Result<()> {
    let document = bed.read("g/a/zarr.json")?;
    let mut document: Value = serde_json::from_slice(&document).expect("JSON");
    document["attributes"]["units"] = "s".into();
    document["attributes"]["more"] = 1.into();
    document["shape"] = vec![len].into();
    bed.write("g/a/zarr.json", document.to_string().as_bytes())
}

/// As `rm -r` does it.
fn remove_array(bed: &VfsBed) -> Result<()> {
    bed.vfs.unlink(bed.find("g/a")?, "zarr.json")?;
    for at in 0..4 {
        bed.vfs.unlink(bed.find("g/a/c")?, &at.to_string())?;
    }
    let array = bed.find("g/a")?;
    bed.vfs.unlink(array, "notes")?;
    bed.vfs.rmdir(array, "c")?;
    bed.vfs.rmdir(bed.find("g")?, "a")
}

/// Whether there are copies of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WithCopies {
    None,
    OfAll,
}

fn prepared(dialect: &Dialect, copies: WithCopies, change: &ProgramChange) -> VfsBed {
    let mut bed = VfsBed::empty(dialect, false);
    (change.prepare)(&bed);
    bed.vfs.sync().expect("stored");
    if copies == WithCopies::OfAll {
        consolidate(&bed, dialect);
    }
    bed.remount();
    bed
}

/// Gives the root consolidated metadata, as the libraries of the dialect do.
fn consolidate(bed: &VfsBed, dialect: &Dialect) {
    if dialect.name() == "d2020-10" {
        // Those of zarr-python 2, which are the store's own affair.
        let document = |key: &String| key.starts_with("meta/") || key == "zarr.json";
        let copies: serde_json::Map<String, Value> = bed
            .values()
            .into_iter()
            .filter(|(key, _)| document(key))
            .map(|(key, text)| (key, serde_json::from_slice(&text).expect("JSON")))
            .collect();
        let text = serde_json::json!({"zarr_consolidated_format": 1, "metadata": copies});
        return bed.put("meta/root/consolidated/.zmetadata", text.to_string().into_bytes());
    }
    let edit = Edit { consolidated: Some(true), ..Edit::default() };
    bed.writable().changes().edit(&NodePath::root(), &edit).expect("consolidated");
}

/// The values in the store, in one form for all texts that say the same.
fn said(bed: &VfsBed) -> BTreeMap<String, Result<Value, Vec<u8>>> {
    let say = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).map_err(|_| bytes);
    bed.values().into_iter().map(|(key, bytes)| (key, say(bytes))).collect()
}

/// Refuses a hierarchy in which a node that is found cannot be read.
fn check_opens(hierarchy: &Hierarchy, path: &NodePath, what: &str) {
    let node = hierarchy.existing(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    match node.content() {
        Content::NotUnderstood(_, error) => panic!("{what}: {path}: {error}"),
        Content::Array(array) => {
            for coords in Arc::clone(array.chunks()).list().expect("listed") {
                let coords = coords.unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
                let read = array.read_chunk(&coords);
                let read = read.unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
                let (bytes, _) = read.expect("it was listed");
                let whole = chunk(coords.indices()[0]);
                let is_known = bytes[..2] == whole[..2] || bytes[..2] == NEW[..2];
                assert!(is_known, "{what}: {path} {coords}: {bytes:?}");
            }
        }
        Content::Group(_) => {
            for child in hierarchy.children(path).unwrap_or_else(|error| panic!("{what}: {error}"))
            {
                let child = child.unwrap_or_else(|error| panic!("{what}: {error}"));
                check_opens(hierarchy, child.path(), what);
            }
        }
    }
}

/// Refuses copies that are not those of what is stored, and attributes of nothing.
fn check_true(bed: &VfsBed, what: &str) {
    let said = said(bed);
    let left: Vec<&String> = said.keys().filter(|key| key.starts_with(".zarrfs")).collect();
    assert!(left.is_empty(), "{what}: {left:?}");
    for key in said.keys() {
        if let Some(node) = key.strip_suffix(".zattrs") {
            let is_node = [".zarray", ".zgroup"]
                .iter()
                .any(|name| said.contains_key(&format!("{node}{name}")));
            assert!(is_node, "{what}: {key} is of no node");
        }
    }
    for (key, value) in &said {
        let Ok(value) = value else { continue };
        if key.ends_with(".zmetadata") {
            let copies = value["metadata"].as_object().expect("copies");
            for (name, copy) in copies {
                assert_eq!(said.get(name), Some(&Ok(copy.clone())), "{what}: the copy of {name}");
            }
            let is_document = |name: &str| {
                [".zarray", ".zgroup", ".zattrs", ".array.json", ".group.json"]
                    .iter()
                    .any(|end| name.ends_with(end))
            };
            for name in said.keys().filter(|name| is_document(name)) {
                assert!(copies.contains_key(name), "{what}: no copy of {name}");
            }
        }
        if let Some(copies) = value["consolidated_metadata"]["metadata"].as_object() {
            for (name, copy) in copies {
                let stored = said.get(&format!("{name}/zarr.json"));
                assert_eq!(stored, Some(&Ok(copy.clone())), "{what}: the copy of {name}");
            }
            let nodes = said.keys().filter_map(|key| key.strip_suffix("/zarr.json"));
            for name in nodes {
                assert!(copies.contains_key(name), "{what}: no copy of {name}");
            }
        }
    }
}

/// Every dialect, with and without copies where some library makes them.
fn cases() -> Vec<(Dialect, WithCopies)> {
    let dialect = |name: &str| Dialect::parse_name(name).expect("a dialect");
    let plain =
        ["v3", "v2", "d2020-10", "d2019-06", "n5"].map(|name| (dialect(name), WithCopies::None));
    let consolidated = ["v3", "v2", "d2020-10"].map(|name| (dialect(name), WithCopies::OfAll));
    plain.into_iter().chain(consolidated).collect()
}

#[test]
fn after_a_kill_the_hierarchy_opens_and_the_next_daemon_completes_the_change() {
    for (dialect, copies) in cases() {
        for change in CHANGES.iter().filter(|change| change.suits(&dialect)) {
            let bed = prepared(&dialect, copies, change);
            let before = said(&bed);
            check_true(&bed, change.name);
            (change.run)(&bed).unwrap_or_else(|error| panic!("{}: {error}", change.name));
            let after = said(&bed);
            check_true(&bed, &format!("{} in {}, {copies:?}", change.name, dialect.name()));
            for n in 1.. {
                let what =
                    format!("{} in {}, {copies:?}, killed before {n}", change.name, dialect.name());
                let mut bed = prepared(&dialect, copies, change);
                bed.store.stop_at.store(n, Ordering::Relaxed);
                let changed = (change.run)(&bed);
                if bed.store.stop_at.swap(0, Ordering::Relaxed) > 0 {
                    changed.unwrap_or_else(|error| panic!("{what}: {error}"));
                    break;
                }
                bed.kill();
                check_opens(&bed.hierarchy(), &NodePath::root(), &what);
                bed.recover();
                check_opens(&bed.hierarchy(), &NodePath::root(), &what);
                check_true(&bed, &what);
                let now = said(&bed);
                assert!(
                    !change.is_one || now == before || now == after,
                    "{what}: neither done nor undone: {:#?}, not {:#?} or {:#?}",
                    now.keys().collect::<Vec<_>>(),
                    before.keys().collect::<Vec<_>>(),
                    after.keys().collect::<Vec<_>>()
                );
                assert!(n < 200, "{what}: never ends");
            }
        }
    }
}

#[test]
fn a_recovery_that_is_killed_is_taken_up_by_the_next() {
    for (dialect, copies) in cases() {
        for change in CHANGES.iter().filter(|change| change.is_one && change.suits(&dialect)) {
            let bed = prepared(&dialect, copies, change);
            let before = said(&bed);
            (change.run)(&bed).expect("changed");
            let after = said(&bed);
            for n in (1..30).step_by(2) {
                let what =
                    format!("{} in {}, {copies:?}, killed before {n}", change.name, dialect.name());
                let mut bed = prepared(&dialect, copies, change);
                bed.store.stop_at.store(n, Ordering::Relaxed);
                let _killed = (change.run)(&bed);
                if bed.store.stop_at.swap(0, Ordering::Relaxed) > 0 {
                    break;
                }
                for again in 1..20 {
                    bed.kill();
                    bed.store.stop_at.store(again, Ordering::Relaxed);
                    bed.recover();
                }
                bed.kill();
                bed.recover();
                check_opens(&bed.hierarchy(), &NodePath::root(), &what);
                check_true(&bed, &what);
                let now = said(&bed);
                assert!(now == before || now == after, "{what}: neither done nor undone");
            }
        }
    }
}

#[test]
fn a_change_that_fails_is_undone_at_once() {
    for (dialect, copies) in cases() {
        for change in CHANGES.iter().filter(|change| change.is_one && change.suits(&dialect)) {
            let bed = prepared(&dialect, copies, change);
            let before = said(&bed);
            (change.run)(&bed).expect("changed");
            let after = said(&bed);
            for n in 1.. {
                let what = format!("{} in {}, {copies:?}, {n} fails", change.name, dialect.name());
                let mut bed = prepared(&dialect, copies, change);
                bed.store.stops_once.store(true, Ordering::Relaxed);
                bed.store.stop_at.store(n, Ordering::Relaxed);
                let changed = (change.run)(&bed);
                if bed.store.stop_at.swap(0, Ordering::Relaxed) > 0 {
                    break;
                }
                check_opens(&bed.hierarchy(), &NodePath::root(), &what);
                // The record of a change may stay after the change.
                bed.kill();
                bed.recover();
                check_true(&bed, &what);
                let now = said(&bed);
                assert!(
                    now == before || now == after,
                    "{what}: neither done nor undone: {changed:?}"
                );
                assert!(changed.is_err() || now == after, "{what}: done, but is not");
            }
        }
    }
}
