//! What fails leaves what was there: a change that the store refuses at any of its steps is not to
//! be seen in the mount.
//!
//! One change of a value fails, for every one that there is, and the store goes on after it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use super::bed::{VfsBed, new_array};
use crate::error::Result;
use crate::metadata::merge::Edit;
use crate::metadata::{Dialect, NodePath};
use crate::vfs::{Ownership, ROOT, Writeback};

/// Something that a program does with one call.
struct Call {
    name: &'static str,
    /// What it does before, in the same mount.
    prepare: fn(&VfsBed),
    run: fn(&VfsBed) -> Result<()>,
}

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"units":"m"}}"#;

const CALLS: &[Call] = &[
    Call {
        name: "rename an array onto an empty directory",
        prepare: |bed| {
            bed.vfs
                .mkdir(bed.find("h").expect("there"), "b", Ownership::of_process(0o755))
                .expect("made");
        },
        run: |bed| bed.rename("g/a", "h/b"),
    },
    Call {
        name: "rename a group onto an array whose document was removed",
        prepare: |bed| {
            bed.write("h/b/zarr.json", new_array().as_bytes()).expect("stored");
            bed.vfs.sync().expect("stored");
            bed.unlink("h/b/zarr.json").expect("removed");
        },
        run: |bed| bed.rename("g", "h/b"),
    },
    Call {
        name: "remove an empty directory that the store knows as a group",
        prepare: |bed| {
            bed.write("h/b/k/zarr.json", GROUP.as_bytes()).expect("stored");
            bed.unlink("h/b/k/zarr.json").expect("removed");
            bed.vfs.rmdir(bed.find("h/b").expect("there"), "k").expect("removed");
        },
        run: |bed| bed.vfs.rmdir(bed.find("h").expect("there"), "b"),
    },
    Call { name: "rename an array", prepare: |_| {}, run: |bed| bed.rename("g/a", "h/b") },
    Call {
        name: "remove the document of an array",
        prepare: |_| {},
        run: |bed| bed.unlink("g/a/zarr.json"),
    },
    Call { name: "remove a chunk", prepare: |_| {}, run: |bed| bed.unlink("g/a/c/1") },
    Call { name: "remove a file", prepare: |_| {}, run: |bed| bed.unlink("g/a/notes") },
    Call {
        name: "rename a chunk onto another",
        prepare: |_| {},
        run: |bed| bed.rename("g/a/c/0", "g/a/c/1"),
    },
    Call {
        name: "rename a chunk to where there is none",
        prepare: |bed| bed.unlink("g/a/c/1").expect("removed"),
        run: |bed| bed.rename("g/a/c/0", "g/a/c/1"),
    },
    Call {
        name: "rename a chunk to an ordinary file",
        prepare: |_| {},
        run: |bed| bed.rename("g/a/c/0", "g/a/new"),
    },
    Call {
        name: "rename an ordinary file onto a chunk",
        prepare: |bed| bed.put_file("g/a/four", b"four"),
        run: |bed| bed.rename("g/a/four", "g/a/c/1"),
    },
    Call {
        name: "rename an ordinary file onto another",
        prepare: |bed| bed.put_file("h/other", b"other"),
        run: |bed| bed.rename("g/a/notes", "h/other"),
    },
    Call {
        name: "rename a new file onto a chunk",
        prepare: |bed| bed.write("g/a/new", b"four").expect("kept"),
        run: |bed| bed.rename("g/a/new", "g/a/c/1"),
    },
    Call {
        name: "rename a new file onto a document",
        prepare: |bed| {
            let text = new_array().replace("\"K\"", "\"s\"");
            bed.write("g/a/new", text.as_bytes()).expect("kept");
        },
        run: |bed| bed.rename("g/a/new", "g/a/zarr.json"),
    },
    Call {
        name: "rename a document to an ordinary file",
        prepare: |_| {},
        run: |bed| bed.rename("g/a/zarr.json", "g/a/new"),
    },
    Call {
        name: "link a chunk",
        prepare: |bed| bed.unlink("g/a/c/1").expect("removed"),
        run: |bed| {
            let (from, parent) = (bed.find("g/a/c/0")?, bed.find("g/a/c")?);
            bed.vfs.link(from, parent, "1").map(drop)
        },
    },
    Call {
        name: "make another array where one was removed",
        prepare: |bed| {
            bed.unlink("g/a/zarr.json").expect("removed");
            for at in 0..4 {
                bed.unlink(&format!("g/a/c/{at}")).expect("removed");
            }
        },
        run: |bed| {
            let text = new_array().replace("uint16", "uint32");
            bed.write("g/a/zarr.json", text.as_bytes())
        },
    },
];

impl VfsBed {
    /// An ordinary file that is stored.
    pub(super) fn put_file(&self, path: &str, bytes: &[u8]) {
        self.write(path, bytes).expect("kept");
        self.vfs.sync().expect("stored");
    }
}

/// Every name in the mount, and the bytes of each file.
fn seen(bed: &VfsBed) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for name in bed.names(&directory) {
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let number = bed.find(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            if bed.vfs.getattr(number).expect("there").is_dir() {
                all.insert(path.clone(), None);
                directories.push(path);
            } else {
                let bytes = bed.read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
                all.insert(path, Some(bytes));
            }
        }
    }
    all
}

fn prepared(dialect: &Dialect, (shards, copies): (bool, bool), call: &Call) -> VfsBed {
    let mut bed = VfsBed::empty(dialect, shards);
    for group in ["g", "h"] {
        bed.write(&format!("{group}/zarr.json"), GROUP.as_bytes()).expect("stored");
    }
    bed.write("g/a/zarr.json", new_array().as_bytes()).expect("stored");
    for at in 0..4_u8 {
        bed.write(&format!("g/a/c/{at}"), &[at + 1; 4]).expect("stored");
    }
    bed.write("g/a/notes", b"a note").expect("kept");
    bed.vfs.sync().expect("stored");
    if copies {
        let edit = Edit { consolidated: Some(true), ..Edit::default() };
        bed.writable().changes().edit(&NodePath::root(), &edit).expect("consolidated");
    }
    bed.writeback = Writeback::Sync;
    bed.remount();
    (call.prepare)(&bed);
    bed
}

#[test]
fn a_failed_call_changes_nothing() {
    let cases = ["v3", "v2", "d2020-10", "n5"].into_iter();
    let cases = cases.flat_map(|name| [false, true].map(|copies| (name, copies)));
    for (name, copies) in cases {
        let dialect = Dialect::parse_name(name).expect("a dialect");
        let how = (copies && name == "v3", copies);
        for call in CALLS {
            for n in 1.. {
                let what = format!("{} in {name}, copies {copies}, {n} fails", call.name);
                let bed = prepared(&dialect, how, call);
                let before = seen(&bed);
                bed.store.stops_once.store(true, Ordering::Relaxed);
                bed.store.stop_at.store(n, Ordering::Relaxed);
                let done = (call.run)(&bed);
                if bed.store.stop_at.swap(0, Ordering::Relaxed) > 0 {
                    done.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(n > 1, "{what}: it changes nothing");
                    break;
                }
                let now = seen(&bed);
                let is_same = now == before;
                let differs = || {
                    let all: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
                    let differs =
                        all.into_iter().filter(|path| before.get(*path) != now.get(*path));
                    let text = |bytes: Option<&Option<Vec<u8>>>| {
                        bytes.map(|bytes| {
                            bytes.as_deref().map(String::from_utf8_lossy).map(Cow::into_owned)
                        })
                    };
                    differs
                        .map(|path| (path.clone(), text(before.get(path)), text(now.get(path))))
                        .collect::<Vec<_>>()
                };
                assert!(done.is_ok() || is_same, "{what}: {done:?}, but {:#?}", differs());
                assert!(done.is_err() || !is_same, "{what}: done, but is not");
                assert!(bed.vfs.lookup(ROOT, "g").is_ok() || done.is_ok(), "{what}");
            }
        }
    }
}
