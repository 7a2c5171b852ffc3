//! A close by another process: a child that starts closes its copies of all descriptors of its
//! parent. That changes nothing for the parent, whatever the file is.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::json;

use crate::support::{Mount, close, errno};

const LEN: usize = 4096;

/// How the writer opens a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Open {
    /// It writes the whole file again.
    New,
    /// It changes parts of the file.
    Part,
}

/// The name of a file in the mount, how it is opened, and whether half of it is an error at close.
const FILES: [(&str, Open, bool); 9] = [
    ("a/c/0", Open::New, true),
    ("a/c/0", Open::Part, false),
    ("s/c/0", Open::New, true),
    ("s/c/0", Open::Part, false),
    ("a.raw", Open::New, true),
    ("a.npy", Open::Part, false),
    ("a/zarr.json", Open::New, true),
    ("a/notes.txt", Open::New, false),
    ("e/c/0", Open::New, true),
];

fn array(codecs: &serde_json::Value) -> String {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [LEN], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [LEN]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": codecs, "attributes": {}
    })
    .to_string()
}

/// The arrays `a` of one chunk, `s` of one chunk in a shard, and `e`, which shows encoded chunks.
fn mount() -> Mount {
    let mount = Mount::new(&["--create", "--codecs", "none", "--metadata-ttl", "0s"]);
    let sharded = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [LEN], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes",
        "configuration": {"endian": "little"}}]}}]);
    for (name, codecs) in [("a", json!([{"name": "bytes"}])), ("s", sharded)] {
        fs::create_dir_all(mount.at(name)).unwrap();
        fs::write(mount.at(&format!("{name}/zarr.json")), array(&codecs)).unwrap();
    }
    fs::write(mount.at("a.raw"), [1; LEN]).unwrap();
    fs::write(mount.at("s.raw"), [1; LEN]).unwrap();
    mount.remount(&["--codecs", "none", "--metadata-ttl", "0s", "--writeback", "sync"]);
    let encoded = json!([{"name": "bytes"}, {"name": "crc32c"}]);
    fs::create_dir_all(mount.at("e/c")).unwrap();
    fs::write(mount.at("e/zarr.json"), array(&encoded)).unwrap();
    mount
}

/// The third program: it has copies of all descriptors, and closes them.
fn start_a_child() {
    assert!(Command::new("true").status().unwrap().success());
}

fn open(mount: &Mount, name: &str, how: Open) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if how == Open::New {
        options.create(true).truncate(true);
    }
    options.open(mount.at(name)).unwrap()
}

/// What the file holds in the end.
fn contents(mount: &Mount, name: &str) -> Vec<u8> {
    match name {
        "a/zarr.json" => {
            let text = fs::read_to_string(mount.at(name)).unwrap();
            let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
            document["attributes"] = json!({"note": "new"});
            document.to_string().into_bytes()
        }
        "a.npy" => {
            let mut bytes = fs::read(mount.at(name)).unwrap();
            let header = bytes.len() - LEN;
            bytes[header..].fill(7);
            bytes
        }
        "e/c/0" => {
            let sum = crc32c::crc32c(&[7; LEN]).to_le_bytes();
            [[7; LEN].as_slice(), &sum].concat()
        }
        _ => vec![7; LEN],
    }
}

/// Shows: close-inherited.
#[test]
fn a_child_that_closes_copies_changes_nothing_that_the_writer_sees() {
    for (name, how, _) in FILES {
        let case = format!("{name}, {how:?}");
        let mount = mount();
        let (bytes, before) = (contents(&mount, name), mount.stored());
        let file = open(&mount, name, how);
        // An ordinary file is in the store at once. All of a view is stored when it is there.
        let is_same = || name == "a/notes.txt" || mount.stored() == before;
        start_a_child();
        assert!(is_same(), "{case}: stored before anything was written");
        let middle = bytes.len() / 2;
        file.write_all_at(&bytes[..middle], 0).unwrap();
        start_a_child();
        assert!(is_same(), "{case}: stored half");
        file.write_all_at(&bytes[middle..], middle as u64).unwrap();
        start_a_child();
        assert!(is_same() || name.starts_with("a."), "{case}: stored before its writer closed it");
        close(file).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(mount.errors(), "", "{case}");
        assert!(mount.stored() != before, "{case}: not stored");
        mount.remount(&["--metadata-ttl", "0s"]);
        match name {
            "a/zarr.json" => {
                let text = fs::read_to_string(mount.at(name)).unwrap();
                assert!(text.contains("note"), "{text}");
            }
            "e/c/0" => assert!(fs::read(mount.at("e.raw")).unwrap() == [7; LEN], "{case}"),
            _ => assert!(fs::read(mount.at(name)).unwrap() == bytes, "{case}"),
        }
    }
}

/// Shows: close-inherited.
#[test]
fn the_error_of_a_half_written_file_is_that_of_its_writer() {
    for (name, how, _) in FILES.into_iter().filter(|(_, _, is_error)| *is_error) {
        let case = format!("{name}, {how:?}");
        let mut mount = mount();
        mount.expect("");
        let (bytes, before) = (contents(&mount, name), mount.stored());
        let file = open(&mount, name, how);
        file.write_all_at(&bytes[..bytes.len() / 2], 0).unwrap();
        start_a_child();
        assert_eq!(mount.errors(), "", "{case}: an error for the child");
        assert_eq!(errno(close(file)), libc::EINVAL, "{case}");
        assert!(mount.errors().contains(name.split('/').next().unwrap()), "{case}");
        if name != "a.raw" {
            assert!(mount.stored() == before, "{case}: stored half");
        }
    }
}

/// Shows: close-inherited.
#[test]
fn a_mapping_and_a_renamed_file_are_stored_by_their_writer() {
    let mount = mount();
    let file = open(&mount, "a/c/0", Open::Part);
    // SAFETY: the kernel chooses the place; the descriptor is open.
    let mapped = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let null = std::ptr::null_mut();
        libc::mmap(null, LEN, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: so many bytes are mapped there.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), LEN) };
    let before = mount.stored();
    bytes[5] = 9;
    start_a_child();
    assert!(mount.stored() == before, "the child has stored what is mapped");
    bytes[6] = 9;
    // SAFETY: it was mapped so.
    unsafe { libc::munmap(mapped, LEN) };
    close(file).unwrap();
    assert_eq!(fs::read(mount.store().join("a/c/0")).unwrap()[4..8], [1, 9, 9, 1]);

    let file = open(&mount, "a/c/part", Open::New);
    file.write_all_at(&[3; LEN / 2], 0).unwrap();
    start_a_child();
    file.write_all_at(&[3; LEN / 2], LEN as u64 / 2).unwrap();
    fs::rename(mount.at("a/c/part"), mount.at("a/c/0")).unwrap();
    assert!(fs::read(mount.store().join("a/c/0")).unwrap() == [3; LEN]);
    file.write_all_at(&[4], 1).unwrap();
    start_a_child();
    assert_eq!(fs::read(mount.store().join("a/c/0")).unwrap()[..3], [3; 3]);
    file.write_all_at(&[4], 2).unwrap();
    close(file).unwrap();
    assert_eq!(fs::read(mount.store().join("a/c/0")).unwrap()[..4], [3, 4, 4, 3]);
    assert_eq!(mount.errors(), "");
}

/// Shows: close-inherited.
#[test]
fn a_child_that_forks_and_exits_takes_no_error_and_one_that_wrote_does() {
    let mut mount = mount();
    mount.expect("");
    let chunk = mount.at("a/c/0");
    // In a process of its own, because other tests would inherit what is not closed at exec.
    let script = "import os, sys
def child(work):
    pid = os.fork()
    if pid == 0:
        try: work(); os._exit(0)
        except OSError as error: os._exit(error.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
file = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
assert child(lambda: os.close(file)) == 0, 'nothing is written'
os.write(file, b'a' * 1000)
assert child(lambda: os.close(file)) == 0, 'a part is written by the parent'
assert child(lambda: (os.write(file, b'b' * 1000), os.close(file))) == 22, 'the child wrote, too'
os.write(file, b'c' * 2096)
os.close(file)";
    let python = Command::new("python3").args(["-c", script]).arg(&chunk).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let bytes = fs::read(mount.store().join("a/c/0")).unwrap();
    assert!(bytes == [[b'a'; 1000].as_slice(), &[b'b'; 1000], &[b'c'; 2096]].concat());
}
