//! Programs that go on in a directory of the store that another program has moved or removed.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Mount, array, group, json_of, said, set_xattr, umount};

/// A group of a mount.
struct Group<'m> {
    mount: &'m Mount,
    name: String,
}

impl Group<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.mount.at(&self.name).join(path)
    }

    /// Fills the group: an array `a` with a chunk, an array `b`, a directory `d`, and ordinary files.
    /// Beside it are a file and an empty group.
    fn make(&self) {
        let beside = [self.beside("file"), self.beside("group")];
        for (path, document) in [
            (self.at(""), group()),
            (self.at("a"), array()),
            (self.at("b"), array()),
            (beside[1].clone(), group()),
        ] {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("zarr.json"), document.to_string()).unwrap();
        }
        for path in ["a/c/0", "d"] {
            fs::create_dir_all(self.at(path)).unwrap();
        }
        fs::write(self.at("a/c/0/0"), [1; 8]).unwrap();
        for path in [self.at("note"), self.at("a/note"), self.at("d/note"), beside[0].clone()] {
            fs::write(path, "old\n").unwrap();
        }
    }

    fn beside(&self, kind: &str) -> PathBuf {
        self.mount.at(&format!("{kind}_{}", self.name))
    }

    /// Lets the kernel and the mount know all names, and makes scratch files, which are in memory.
    fn look(&self) {
        for path in ["x.tmp", "a/c/0/x.tmp", "d/x.tmp"] {
            fs::write(self.at(path), "scratch").unwrap();
        }
        for path in
            ["note", "a/note", "d/note", "a/c/0/0", "a/zarr.json", "b/zarr.json", "zarr.json"]
        {
            fs::metadata(self.at(path)).unwrap();
        }
        fs::metadata(self.beside("file")).unwrap();
        fs::metadata(self.beside("group")).unwrap();
    }

    /// What the store has of the group, in all trees of the dialect.
    fn in_store(&self) -> Vec<PathBuf> {
        let store = self.mount.store();
        let trees = ["", "meta/root", "data/root"].map(|tree| fs::read_dir(store.join(tree)));
        let entries = trees.into_iter().flatten().flatten().map(|entry| entry.unwrap().path());
        let is_of_it = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.strip_prefix(&self.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        entries.filter(is_of_it).collect()
    }

    fn take_away(&self, is_moved: bool) {
        for path in self.in_store() {
            let name = path.file_name().unwrap().to_str().unwrap();
            if is_moved {
                fs::rename(&path, path.with_file_name(format!("moved_{name}"))).unwrap();
            } else if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
        }
    }
}

fn append(path: &Path) -> Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(b"new\n")
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn attribute(path: &Path) -> Result<()> {
    set_xattr(path, "user.attrs.x", "1").map_err(Error::from_raw_os_error)
}

type Step = fn(&Group<'_>) -> Result<()>;

/// What a program may do in a group.
const STEPS: [(&str, Step); 19] = [
    ("a new ordinary file", |g| fs::write(g.at("new"), "new")),
    ("a new ordinary file in an array", |g| fs::write(g.at("a/new"), "new")),
    ("a new ordinary file beside chunks", |g| fs::write(g.at("a/c/0/new"), "new")),
    ("a new ordinary file in a directory", |g| fs::write(g.at("d/new"), "new")),
    ("more of an ordinary file", |g| append(&g.at("a/note"))),
    ("a directory", |g| fs::create_dir(g.at("new"))),
    ("a directory in an array", |g| fs::create_dir(g.at("a/new"))),
    ("a directory in a directory", |g| fs::create_dir(g.at("d/new"))),
    ("a link", |g| symlink("note", g.at("link"))),
    ("a second name", |g| fs::hard_link(g.beside("file"), g.at("name"))),
    ("an ordinary file from elsewhere", |g| fs::rename(g.beside("file"), g.at("name"))),
    ("an ordinary file to elsewhere", |g| fs::rename(g.at("note"), g.beside("file"))),
    ("a node from elsewhere", |g| fs::rename(g.beside("group"), g.at("name"))),
    ("a node to elsewhere", |g| fs::rename(g.at("b"), g.beside("group").join("name"))),
    ("a chunk", |g| write(&g.at("a/c/0/0"), &[7; 8])),
    ("a chunk that was missing", |g| write(&g.at("a/c/0/1"), &[7; 8])),
    ("no chunk", |g| fs::remove_file(g.at("a/c/0/0"))),
    ("metadata", |g| write(&g.at("a/zarr.json"), array().to_string().as_bytes())),
    ("an attribute", |g| attribute(&g.at("a"))),
];

/// Shows: store-decides-gone.
#[test]
fn no_call_recreates_a_directory_that_another_program_has_moved_or_removed() {
    let cases = [("v3", true), ("v3", false), ("v2", true), ("n5", false), ("d2020-10", true)];
    for (format, is_moved) in cases {
        let mut mount = Mount::new(&["--create", "--format", format]);
        mount.expect("");
        let mount = &mount;
        let groups: Vec<Group<'_>> =
            (0..STEPS.len()).map(|number| Group { mount, name: format!("g{number}_") }).collect();
        groups.iter().for_each(Group::make);
        mount.remount(&["--metadata-ttl", "1h", "--writeback-delay", "1h"]);
        groups.iter().for_each(Group::look);
        for group in &groups {
            group.take_away(is_moved);
        }
        for (group, (what, step)) in groups.iter().zip(STEPS) {
            let said = step(group);
            assert!(said.is_err(), "{what}, {format}, moved: {is_moved}: all went well");
        }
        let rescued = tempfile::tempdir().unwrap();
        let rescue = rescued.path().join("rescued");
        let ended = umount(&[Path::new("--rescue"), &rescue, &mount.path()]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("not everything is stored"), "{format}: {said}");
        for (group, (what, _)) in groups.iter().zip(STEPS) {
            let found = group.in_store();
            assert!(found.is_empty(), "{what}, {format}, moved: {is_moved}: {found:?}");
        }
        for group in &groups {
            let scratch = fs::read_to_string(rescue.join(&group.name).join("a/c/0/x.tmp"));
            assert_eq!(scratch.unwrap(), "scratch", "{format}, moved: {is_moved}");
        }
    }
}

/// Shows: document-merge.
#[test]
fn attributes_that_a_program_has_read_of_another_array_are_not_stored() {
    for read in [&["a/.zarray", "a/.zattrs"][..], &["a/.zattrs"]] {
        let mut mount = Mount::new(&["--create", "--as", "zarr2", "--metadata-ttl", "1h"]);
        mount.expect("another program has replaced the array");
        for (name, dtype) in [("a", "<i4"), ("b", "<i2")] {
            let array = json!({
                "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": dtype, "fill_value": 0,
                "order": "C", "filters": null, "compressor": null,
            });
            fs::create_dir(mount.at(name)).unwrap();
            fs::write(mount.at(name).join(".zarray"), array.to_string()).unwrap();
            fs::write(mount.at(name).join(".zattrs"), json!({"name": name}).to_string()).unwrap();
        }
        File::open(mount.path()).unwrap().sync_all().unwrap();
        for name in read {
            fs::read(mount.at(name)).unwrap();
        }
        for (from, to) in [("a", "c"), ("b", "a")] {
            fs::rename(mount.store().join(from), mount.store().join(to)).unwrap();
        }
        let written =
            write(&mount.at("a/.zattrs"), json!({"name": "a", "new": 1}).to_string().as_bytes());
        assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::ESTALE));
        let stored = fs::read_to_string(mount.store().join("a/zarr.json")).unwrap();
        assert!(!stored.contains("new"), "{stored}");
    }
}

/// Shows: store-decides.
#[test]
fn a_refused_attribute_makes_no_group_of_the_directory_that_another_program_has_made() {
    let mut mount = Mount::new(&["--create", "--metadata-ttl", "1h"]);
    mount.expect("another program has replaced the node");
    fs::create_dir(mount.at("a")).unwrap();
    fs::write(mount.at("a/zarr.json"), array().to_string()).unwrap();
    File::open(mount.path()).unwrap().sync_all().unwrap();
    fs::metadata(mount.at("a/zarr.json")).unwrap();
    fs::rename(mount.store().join("a"), mount.store().join("b")).unwrap();
    fs::create_dir(mount.store().join("a")).unwrap();
    assert_eq!(attribute(&mount.at("a")).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    mount.unmount();
    assert!(!mount.store().join("a/zarr.json").exists(), "it has become a group");
}

/// Makes nodes in the group that is at either of two names.
fn make_nodes(mount: &Mount, is_over: &AtomicBool) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let group = mount.at(if number % 3 == 0 { "q/g" } else { "p/g" });
        let new = group.join(format!("n{number}"));
        // Each may fail, since the group may have the other name.
        let _made = fs::create_dir(&new)
            .and_then(|()| attribute(&new))
            .and_then(|()| fs::write(new.join("x.tmp"), "scratch"))
            .and_then(|()| fs::create_dir(new.join("c")))
            .and_then(|()| fs::create_dir(new.join("c/0")))
            .and_then(|()| fs::write(new.join("c/0/0"), [1; 8]))
            .and_then(|()| fs::write(new.join("zarr.json"), array().to_string()));
        let _removed = fs::write(group.join("x/zarr.json"), group_with(number))
            .and_then(|()| fs::remove_file(group.join("x/zarr.json")));
    }
}

fn group_with(number: u32) -> String {
    let attributes = json!({"number": number});
    json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}).to_string()
}

/// Shows: store-decides-gone.
#[test]
fn no_new_node_recreates_a_directory_that_another_program_moves_meanwhile() {
    for format in ["v3", "v2", "n5"] {
        let mut mount = Mount::new(&["--create", "--format", format]);
        mount.expect("");
        for path in ["p", "p/g", "p/g/x"] {
            fs::create_dir(mount.at(path)).unwrap();
            fs::write(mount.at(path).join("zarr.json"), group_with(0)).unwrap();
        }
        mount.remount(&["--metadata-ttl", "20ms", "--writeback-delay", "50ms"]);
        let is_over = AtomicBool::new(false);
        let rounds = if std::env::var_os("ZARRFS_LONG").is_some() { 4000 } else { 400 };
        thread::scope(|scope| {
            let makes = scope.spawn(|| make_nodes(&mount, &is_over));
            let (mut here, mut there) = (mount.store().join("p"), mount.store().join("q"));
            for round in 0..rounds {
                thread::sleep(Duration::from_micros(300 * (round % 9)));
                if there.exists() {
                    break;
                }
                fs::rename(&here, &there).unwrap();
                std::mem::swap(&mut here, &mut there);
            }
            is_over.store(true, Ordering::Relaxed);
            makes.join().unwrap();
        });
        let place = tempfile::tempdir().unwrap();
        let words = ["--rescue".into(), place.path().join("rescued"), mount.path()];
        umount(&words);
        let names = ["p", "q"].map(|name| mount.store().join(name).exists());
        assert_eq!(
            names.into_iter().filter(|is_there| *is_there).count(),
            1,
            "{format}: {names:?}"
        );
    }
}

/// Shows: store-decides-gone.
#[test]
fn a_scratch_file_does_not_go_into_another_directory_of_the_same_name() {
    for path in ["g/x.tmp", "g/a/x.tmp", "g/a/c/0/x.tmp"] {
        let mut mount = Mount::new(&["--create"]);
        mount.expect("");
        for (path, document) in [("g", group()), ("g/a", array())] {
            fs::create_dir(mount.at(path)).unwrap();
            fs::write(mount.at(path).join("zarr.json"), document.to_string()).unwrap();
        }
        fs::create_dir_all(mount.at("g/a/c/0")).unwrap();
        fs::write(mount.at("g/a/c/0/0"), [1; 8]).unwrap();
        mount.remount(&["--writeback-delay", "1h"]);
        fs::write(mount.at(path), "scratch").unwrap();
        let store = mount.store();
        let replaced = store.join(if path == "g/x.tmp" { "g" } else { "g/a" });
        fs::rename(&replaced, store.join("moved")).unwrap();
        fs::create_dir(&replaced).unwrap();
        let (code, sentence) = said(&["umount", mount.path().to_str().unwrap()]);
        assert_eq!(code, 1, "{path}: {sentence}");
        assert!(sentence.contains(path), "{path}: {sentence}");
        let place = tempfile::tempdir().unwrap();
        let rescued = place.path().join("rescued");
        umount(&["--rescue".into(), rescued.clone(), mount.path()]);
        assert_eq!(fs::read(rescued.join(path)).unwrap(), b"scratch");
        assert_eq!(fs::read_dir(&replaced).unwrap().count(), 0, "{path}");
    }
}

/// Shows: document-merge.
#[test]
fn metadata_of_a_node_that_another_program_has_replaced_by_a_directory_make_no_node() {
    for presentation in ["zarr3", "zarr2"] {
        let mut mount = Mount::new(&["--create"]);
        mount.expect("another program has removed the node");
        fs::create_dir(mount.at("a")).unwrap();
        fs::write(mount.at("a/zarr.json"), array().to_string()).unwrap();
        let shown = if presentation == "zarr2" { &["--as", "zarr2"][..] } else { &[] };
        mount.remount(&[shown, &["--metadata-ttl", "0s"]].concat());
        let name = if presentation == "zarr2" { "a/.zattrs" } else { "a/zarr.json" };
        fs::create_dir(mount.store().join("b")).unwrap();
        if presentation == "zarr2" {
            fs::write(mount.at(name), r#"{"units": "K"}"#).unwrap();
        }
        let text = fs::read(mount.at(name)).unwrap();
        let mut open = OpenOptions::new().write(true).open(mount.at(name)).unwrap();
        fs::rename(mount.store().join("a"), mount.store().join("moved")).unwrap();
        fs::rename(mount.store().join("b"), mount.store().join("a")).unwrap();
        let written = open.write_all(&text).and_then(|()| open.sync_all());
        assert!(written.is_err(), "{name}");
        drop(open);
        mount.unmount();
        assert_eq!(fs::read_dir(mount.store().join("a")).unwrap().count(), 0, "{name}");
    }
}

/// Shows: as-zarr2.
#[test]
fn a_directory_of_the_store_that_gets_attributes_becomes_a_group() {
    for format in ["v3", "v2"] {
        let mount = Mount::new(&["--create", "--format", format]);
        for name in ["empty", "files"] {
            fs::create_dir(mount.store().join(name)).unwrap();
        }
        fs::write(mount.store().join("files/note"), "text").unwrap();
        mount.remount(&["--as", "zarr2"]);
        for name in ["empty", "files"] {
            fs::write(mount.at(name).join(".zattrs"), r#"{"units": "K"}"#).unwrap();
        }
        mount.remount(&[]);
        for name in ["empty", "files"] {
            let shown = json_of(&mount.at(name).join("zarr.json"));
            assert_eq!(shown["attributes"]["units"], "K", "{format}: {name}");
        }
    }
}

/// Shows: close-refused.
#[test]
fn umount_names_a_mapped_chunk_that_could_not_be_stored() {
    let mut mount = Mount::new(&["--create"]);
    mount.expect("");
    fs::create_dir(mount.at("a")).unwrap();
    fs::write(mount.at("a/zarr.json"), array().to_string()).unwrap();
    fs::create_dir_all(mount.at("a/c/0")).unwrap();
    fs::write(mount.at("a/c/0/0"), [1; 8]).unwrap();
    mount.remount(&["--metadata-ttl", "0s"]);
    let file = OpenOptions::new().read(true).write(true).open(mount.at("a/c/0/0")).unwrap();
    let (null, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the kernel chooses the address, and the file stays open.
    let mapped = unsafe { libc::mmap(null, 8, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED, "{}", Error::last_os_error());
    // SAFETY: the first byte of the mapping, which nothing else uses.
    unsafe { mapped.cast::<u8>().write_volatile(7) };
    fs::rename(mount.store().join("a"), mount.store().join("b")).unwrap();
    // SAFETY: nothing uses the mapping any more.
    assert_eq!(unsafe { libc::munmap(mapped, 8) }, 0);
    drop(file);
    let (code, sentence) = said(&["umount", mount.path().to_str().unwrap()]);
    assert!(sentence.contains("a/c/0/0"), "{code}: {sentence}");
    let place = tempfile::tempdir().unwrap();
    umount(&["--rescue".into(), place.path().join("rescued"), mount.path()]);
}
