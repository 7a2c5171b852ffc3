//! `docs/semantics.md`, paragraph by paragraph. Each test names those that it shows.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{Mount, close, errno, json_of, names, set_xattr, until};

/// Shards of 2 x 2 chunks of 3 x 4 int32 over 7 x 10, in released v3.
const V3: &str = "z316__shard_end";
/// The same in the draft of October 2020, below a group.
const DRAFT: &str = "z218v3__shard_2x2_gzip";
const CHUNK_LEN: u64 = 48;

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

fn xattr(path: &Path, name: &str) -> Result<String, i32> {
    let (path, name) =
        (CString::new(path.as_os_str().as_bytes()).unwrap(), CString::new(name).unwrap());
    let mut value = vec![0_u8; 65_536];
    // SAFETY: all pointers are to memory of this function, of the lengths given.
    let len = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    usize::try_from(len).map_or_else(
        |_| Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        |len| Ok(String::from_utf8(value[..len].to_vec()).unwrap()),
    )
}

/// Shows: tree, tree-implicit, chunk-missing.
#[test]
fn the_tree_is_the_same_in_every_dialect() {
    let v3 = Mount::fixture(V3, &[]);
    assert_eq!(names(&v3.path()), BTreeSet::from(["c", "zarr.json"].map(str::to_owned)));
    let draft = Mount::fixture(DRAFT, &[]);
    assert_eq!(names(&draft.at("arr")), names(&v3.path()));
    assert_eq!(names(&draft.at("arr/c/2")), BTreeSet::from(["0", "1", "2"].map(str::to_owned)));
    let root = fs::read_to_string(draft.at("zarr.json")).unwrap();
    assert!(root.contains("group"), "an implicit group shows no document");
    for missing in ["c/3", "c/0/3", "c/00", "c/-1", "d"] {
        assert_eq!(errno(fs::metadata(v3.at(missing))), libc::ENOENT, "{missing}");
    }
    let scalar = Mount::fixture("z218v3__zero_d", &[]);
    for array in names(&scalar.path())
        .iter()
        .filter(|name| !name.contains("missing") && *name != "zarr.json")
    {
        assert!(scalar.at(array).join("c").is_file(), "{array}");
    }
    let sparse = Mount::fixture("z218v3__shard_2x2_missing", &[]);
    let there: usize = names(&sparse.at("arr/c"))
        .iter()
        .map(|row| names(&sparse.at("arr/c").join(row)).len())
        .sum();
    assert!((1..9).contains(&there), "{there} of 9 chunks");
}

/// Shows: chunk-size, chunk-time, mode, ino, statfs.
#[test]
fn file_attributes_describe_the_chunk_and_the_stored_value() {
    let mut mount = Mount::fixture(V3, &[]);
    mount.expect("mode ");
    mount.expect("owners cannot change");
    let chunk = mount.at("c/2/2");
    let attr = fs::metadata(&chunk).unwrap();
    assert_eq!(attr.len(), CHUNK_LEN, "a chunk at the edge has its full size");
    assert_eq!(fs::read(&chunk).unwrap().len(), 48);
    assert_eq!(attr.blocks(), 1);
    assert_eq!(attr.mode() & 0o7777, 0o644);
    let shard = fs::metadata(mount.store().join("c/1/1")).unwrap();
    assert_eq!((attr.mtime(), attr.mtime_nsec()), (shard.mtime(), shard.mtime_nsec()));
    assert_eq!(fs::metadata(&chunk).unwrap().ino(), attr.ino());
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
    };
    for mode in [0o600, 0o664, 0o4644] {
        assert_eq!(errno(chmod(&chunk, mode)), libc::EPERM, "{mode:o}");
    }
    for mode in [0o700, 0o1755, 0o755] {
        chmod(&mount.path(), mode).unwrap();
        assert_eq!(fs::metadata(mount.store()).unwrap().mode() & 0o7777, mode);
    }
    for mode in [0o644, 0o755] {
        chmod(&chunk, mode).unwrap();
        assert_eq!(fs::metadata(&chunk).unwrap().mode() & 0o7777, 0o644);
    }
    let owner = (attr.uid(), attr.gid());
    chown(&chunk, Some(owner.0), Some(owner.1)).unwrap();
    assert_eq!(errno(chown(&chunk, Some(owner.0 + 1), None)), libc::EPERM);
    assert_eq!(fs::metadata(&chunk).unwrap().uid(), owner.0);
    let scratch = mount.at("c/2/scratch");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    // What is not stored yet has the mode that its maker gives it.
    let open = OpenOptions::new().write(true).create(true).truncate(true).open(&scratch).unwrap();
    chmod(&scratch, 0o600).unwrap();
    assert_eq!(mode(&scratch), 0o600);
    drop(open);
    let made = mount.at("c/2/private");
    fs::DirBuilder::new().mode(0o700).create(&made).unwrap();
    assert_eq!(mode(&made), 0o700);
    fs::remove_dir(&made).unwrap();
    fs::write(&scratch, [0; 48]).unwrap();
    let (old, new) = (attr.ino(), fs::metadata(&scratch).unwrap().ino());
    assert_ne!(old, new);
    fs::rename(&scratch, &chunk).unwrap();
    assert_eq!(fs::metadata(&chunk).unwrap().ino(), new, "the number did not go with the file");
    let df = |path: &Path| {
        let output = Command::new("stat").args(["-f", "-c", "%S %b"]).arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(df(&mount.path()), df(&mount.store()));
}

/// Shows: control, read-damaged.
#[test]
fn errors_are_explained_in_words() {
    let mut mount = Mount::fixture(V3, &[]);
    mount.expect("c/0/0");
    mount.expect(".zarrfs/stats: read-only");
    assert!(!names(&mount.path()).contains(".zarrfs"));
    assert_eq!(
        names(&mount.at(".zarrfs")),
        BTreeSet::from(
            ["errors", "refused", "stats", "stored", "unstored", "unstored-bytes", "views"]
                .map(str::to_owned)
        )
    );
    let stored = fs::read(mount.at(".zarrfs/stored/zarr.json")).unwrap();
    assert_eq!(stored, fs::read(mount.store().join("zarr.json")).unwrap());
    assert_eq!(mount.errors(), "");
    let shard = mount.store().join("c/0/0");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[10] ^= 0xff; // Inside the first inner chunk: gzip has a checksum.
    bytes[20] ^= 0xff;
    fs::write(&shard, bytes).unwrap();
    assert_eq!(errno(fs::read(mount.at("c/0/0"))), libc::EIO);
    assert_eq!(fs::read(mount.at("c/0/1")).unwrap().len(), 48, "its neighbour cannot be read");
    let errors = mount.errors();
    assert!(errors.contains("read: EIO: c/0/0: gzip"), "{errors}");
    assert_eq!(
        errno(OpenOptions::new().write(true).open(mount.at(".zarrfs/stats"))),
        libc::EACCES.min(libc::EPERM)
    );
    let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
    let count = stats.lines().find_map(|line| line.strip_prefix("zarrfs_errors_total ")).unwrap();
    assert!(count.parse::<u32>().unwrap() > 0, "{stats}");
}

/// Shows: readdir, readdir-bad, open-unsupported.
#[test]
fn one_bad_node_leaves_the_others_alone() {
    let good = r#"{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [CODECS]}"#;
    let mut mount = Mount::of(
        |store| {
            let write = |name: &str, text: String| {
                fs::create_dir_all(store.join(name).join("c")).unwrap();
                fs::write(store.join(name).join("zarr.json"), text).unwrap();
                fs::write(store.join(name).join("c/0"), [1, 2]).unwrap();
            };
            write("good", good.replace("CODECS", r#"{"name": "bytes"}"#));
            write("codec", good.replace("CODECS", r#"{"name": "bytes"}, {"name": "homeopathy"}"#));
            write(
                "type",
                good.replace("CODECS", r#"{"name": "bytes"}"#).replace("uint8", "colour"),
            );
            write("json", "{".to_owned());
        },
        &[],
    );
    mount.expect("homeopathy");
    mount.expect("colour");
    mount.expect("json");
    let all = ["codec", "good", "json", "type", "zarr.json"].map(str::to_owned);
    assert_eq!(names(&mount.path()), BTreeSet::from(all));
    let listed = Command::new("ls").args(["-lR"]).arg(mount.path()).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    assert_eq!(fs::read(mount.at("good/c/0")).unwrap(), [1, 2]);
    assert_eq!(fs::metadata(mount.at("codec/c/0")).unwrap().len(), 2);
    assert_eq!(errno(File::open(mount.at("codec/c/0"))), libc::EOPNOTSUPP);
    assert_eq!(names(&mount.at("type")), BTreeSet::from(["zarr.json".to_owned()]));
    assert_eq!(names(&mount.at("json")), BTreeSet::from(["zarr.json".to_owned()]));
    assert_eq!(errno(fs::metadata(mount.at("json/c"))), libc::EIO);
    assert!(fs::read_to_string(mount.at("type/zarr.json")).unwrap().contains("colour"));
    assert_eq!(errno(fs::metadata(mount.at("type/c"))), libc::EOPNOTSUPP);
    assert!(
        mount.errors().contains("homeopathy") && mount.errors().contains("colour"),
        "{}",
        mount.errors()
    );
}

/// Shows: read-cached.
#[test]
fn changes_of_other_programs_show_at_the_next_open_after_the_ttl() {
    let mount = Mount::fixture("z218v3__plain_raw", &["--metadata-ttl", "0"]);
    let chunk = mount.at("arr/c/0/0");
    let before = fs::read(&chunk).unwrap();
    assert_eq!(fs::read(&chunk).unwrap(), before);
    let new: Vec<u8> = before.iter().map(|byte| byte ^ 0xff).collect();
    fs::write(mount.store().join("data/root/arr/c0/0"), &new).unwrap();
    assert_eq!(fs::read(&chunk).unwrap(), new);
}

/// Shows: document-shown.
#[test]
fn a_metadata_file_describes_the_files_beside_it() {
    let mount = Mount::fixture("z316__attrs_bare_nan", &[]);
    let array =
        names(&mount.path()).into_iter().find(|name| mount.at(name).is_dir() && name != "c");
    let dir = array.map_or_else(|| mount.path(), |name| mount.at(&name));
    let text = fs::read_to_string(dir.join("zarr.json")).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&text).expect("strict JSON");
    assert_eq!(shown["codecs"][0]["name"], "bytes");
    assert_eq!(shown["chunk_key_encoding"]["name"], "default");
    assert!(text.contains("\"NaN\"") && text.contains("\"-Infinity\""), "{text}");
    let stored = fs::read_to_string(
        mount.store().join(dir.strip_prefix(mount.path()).unwrap()).join("zarr.json"),
    )
    .unwrap();
    let long = stored
        .split(|c: char| !c.is_ascii_digit())
        .find(|digits| digits.len() > 20)
        .expect("a long integer");
    assert!(text.contains(long), "{long} is not shown as it is stored");
}

/// Shows: write-in-place, close-stores, shard-write.
#[test]
fn a_chunk_is_updated_in_place_and_stored_at_close() {
    for (name, dir) in [(V3, ""), (DRAFT, "arr/")] {
        let mount = Mount::fixture(name, &["--writeback=sync"]);
        let chunk = mount.at(&format!("{dir}c/0/1"));
        let others: Vec<Vec<u8>> = ["c/0/0", "c/1/0", "c/2/2"]
            .map(|c| fs::read(mount.at(&format!("{dir}{c}"))).unwrap())
            .to_vec();
        let mut want = fs::read(&chunk).unwrap();
        want[5..8].copy_from_slice(b"abc");
        let before = mount.stored();
        let file = rw(&chunk);
        file.write_all_at(b"abc", 5).unwrap();
        assert_eq!(file.metadata().unwrap().len(), CHUNK_LEN);
        assert_eq!(fs::read(&chunk).unwrap(), want, "another opener does not see it");
        assert_eq!(mount.stored(), before, "stored before close");
        drop(file);
        assert_ne!(mount.stored(), before, "not stored at close");
        assert_eq!(mount.stored().len(), before.len(), "something was left over");
        mount.remount(&[]);
        assert_eq!(fs::read(&chunk).unwrap(), want);
        for (c, other) in ["c/0/0", "c/1/0", "c/2/2"].iter().zip(others) {
            assert_eq!(fs::read(mount.at(&format!("{dir}{c}"))).unwrap(), other, "{c} has changed");
        }
    }
}

/// Shows: write-in-place (mapped).
#[test]
fn a_mapping_is_stored_too() {
    let mount = Mount::fixture(V3, &[]);
    let chunk = mount.at("c/1/1");
    let file = rw(&chunk);
    // SAFETY: the file is open for reading and writing and has 48 bytes.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            48,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    drop(file);
    // SAFETY: the mapping is 48 bytes long, shared and writable; it is unmapped after its last use.
    unsafe {
        map.cast::<u8>().add(7).write_volatile(0x5a);
        assert_eq!(libc::munmap(map, 48), 0);
    }
    mount.remount(&[]);
    assert_eq!(fs::read(&chunk).unwrap()[7], 0x5a);
}

/// Shows: write-new, chunk-missing, mkdir, unlink-chunk.
#[test]
fn creating_and_removing_a_file_stores_and_erases_the_chunk() {
    for (name, dir) in [("z218v3__shard_2x2_missing", "arr/"), (V3, "")] {
        let mount = Mount::fixture(name, &[]);
        for c in 0..3 {
            for r in 0..3 {
                let chunk = mount.at(&format!("{dir}c/{r}/{c}"));
                if chunk.exists() {
                    fs::remove_file(&chunk).unwrap();
                }
                assert_eq!(errno(fs::metadata(&chunk)), libc::ENOENT);
            }
        }
        File::open(mount.path()).unwrap().sync_all().unwrap();
        let data: Vec<String> = mount.stored().into_iter().map(|(name, _)| name).collect();
        assert!(data.iter().all(|name| name.contains("json")), "{data:?} are left");
        for r in 0..3 {
            let row = mount.at(&format!("{dir}c/{r}"));
            if row.exists() {
                fs::remove_dir(row).unwrap();
            }
        }
        fs::remove_dir(mount.at(&format!("{dir}c"))).unwrap();
        assert!(!mount.at(&format!("{dir}c")).exists());
        fs::create_dir_all(mount.at(&format!("{dir}c/1"))).unwrap();
        let chunk = mount.at(&format!("{dir}c/1/2"));
        let mut file = File::create_new(&chunk).unwrap();
        assert_eq!(fs::metadata(&chunk).unwrap().len(), 0);
        assert_eq!(names(&mount.at(&format!("{dir}c/1"))), BTreeSet::from(["2".to_owned()]));
        file.seek(SeekFrom::Start(44)).unwrap();
        file.write_all(b"last").unwrap();
        assert_eq!(fs::metadata(&chunk).unwrap().len(), CHUNK_LEN);
        drop(file);
        mount.remount(&[]);
        let bytes = fs::read(&chunk).unwrap();
        assert_eq!((&bytes[..44], &bytes[44..]), (&[0; 44][..], &b"last"[..]));
        assert_eq!(names(&mount.at(&format!("{dir}c"))), BTreeSet::from(["1".to_owned()]));
    }
}

/// Shows: close-inherited.
#[test]
fn the_close_of_an_inherited_descriptor_reports_nothing_and_that_of_the_writer_does() {
    let mut mount = Mount::fixture(V3, &[]);
    let chunk = mount.at("c/0/0");
    // Close-on-exec: the child closes it when it starts.
    let file = File::create(&chunk).unwrap();
    file.write_all_at(&[1; 20], 0).unwrap();
    assert!(Command::new("true").status().unwrap().success());
    assert_eq!(fs::read(&chunk).unwrap(), [1; 20], "readers see what is written so far");
    file.write_all_at(&[2; 28], 20).unwrap();
    close(file).unwrap();
    assert_eq!(fs::read(&chunk).unwrap(), [[1; 20].as_slice(), &[2; 28]].concat());
    // Not close-on-exec: the child closes it when it exits. In a process of its own, since
    // children of other tests would inherit the descriptor too.
    let script =
        "exec > \"$1\"; printf %020d 0; env true; wc -c < \"$1\" >&2; printf %028d 0; exec >&-";
    let shell = Command::new("bash").args(["-ec", script, "bash"]).arg(&chunk).output().unwrap();
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    assert_eq!(shell.stderr, b"20\n", "readers see what is written so far");
    assert_eq!(fs::read(&chunk).unwrap(), [b'0'; 48]);
    // A metadata file, which is not JSON before it is whole.
    let document = fs::read(mount.at("zarr.json")).unwrap();
    let file = File::create(mount.at("zarr.json")).unwrap();
    file.write_all_at(&document[..30], 0).unwrap();
    assert!(Command::new("true").status().unwrap().success());
    file.write_all_at(&document[30..], 30).unwrap();
    close(file).unwrap();
    assert_eq!(mount.errors(), "");
    // The writer is its process: another thread of it closes the file.
    mount.expect("20 bytes written, the chunk has 48");
    let file = File::create(&chunk).unwrap();
    let file = std::thread::spawn(move || file.write_all_at(&[1; 20], 0).map(|()| file));
    let file = file.join().unwrap().unwrap();
    assert!(Command::new("true").status().unwrap().success());
    assert_eq!(errno(close(file)), libc::EINVAL);
    // A child that has written is told, and its parent is not, before it has written itself.
    let file = File::create(&chunk).unwrap();
    let script = "head -c 20 /dev/zero 2> /dev/null || exit 7";
    let output = file.try_clone().unwrap();
    let child = Command::new("bash").args(["-c", script]).stdout(output).status().unwrap();
    assert_eq!(child.code(), Some(7), "head was not told");
    let told = mount.errors().lines().count();
    close(file).unwrap();
    assert_eq!(mount.errors().lines().count(), told, "{}", mount.errors());
}

/// Shows: close-wrong-size, truncate.
#[test]
fn a_wrong_size_is_refused_at_close_and_the_stored_chunk_shows_again() {
    let mut mount = Mount::fixture(V3, &[]);
    mount.expect("c/0/0: ");
    let chunk = mount.at("c/0/0");
    let (old, before) = (fs::read(&chunk).unwrap(), mount.stored());
    for len in [0_usize, 1, 47] {
        let file = OpenOptions::new().write(true).truncate(true).open(&chunk).unwrap();
        file.write_all_at(&vec![1; len], 0).unwrap();
        assert_eq!(errno(file.sync_all()), libc::EINVAL, "{len} bytes");
        assert_eq!(fs::metadata(&chunk).unwrap().len(), len as u64, "dropped while it is open");
        // SAFETY: the descriptor is the file's own, which is forgotten so that it is closed once.
        let closed = unsafe { libc::close(file.as_raw_fd()) };
        std::mem::forget(file);
        assert_eq!(
            (closed, std::io::Error::last_os_error().raw_os_error()),
            (-1, Some(libc::EINVAL))
        );
        until("the stored chunk shows", || fs::metadata(&chunk).unwrap().len() == CHUNK_LEN);
        assert_eq!(fs::read(&chunk).unwrap(), old);
        assert_eq!(mount.stored(), before);
    }
    assert!(
        mount.errors().contains("close: EINVAL: c/0/0: 47 bytes written, the chunk has 48"),
        "{}",
        mount.errors()
    );
    let file = rw(&chunk);
    file.set_len(4).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    file.set_len(CHUNK_LEN).unwrap();
    assert_eq!(errno(file.set_len(CHUNK_LEN + 1)), libc::EFBIG);
    drop(file);
    let bytes = fs::read(&chunk).unwrap();
    assert_eq!((&bytes[..4], &bytes[4..]), (&old[..4], &[0; 44][..]));
    let by_path = |len: i64| {
        let path = CString::new(chunk.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string that outlives the call.
        let done = unsafe { libc::truncate(path.as_ptr(), len) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    assert_eq!(errno(by_path(0)), libc::EINVAL);
    assert_eq!(errno(by_path(5)), libc::EINVAL);
    by_path(48).unwrap();
    assert_eq!(fs::read(&chunk).unwrap(), bytes);
}

/// Shows: write-past-end, fallocate, create-outside.
#[test]
fn nothing_reaches_past_the_end_of_a_chunk_or_of_the_grid() {
    let mut mount = Mount::fixture(V3, &[]);
    for part in ["c/0/0", "c/0/9", "not punch holes"] {
        mount.expect(part);
    }
    let before = mount.stored();
    let file = rw(&mount.at("c/0/0"));
    assert_eq!(errno(file.write_at(&[0; 49], 0)), libc::EFBIG);
    assert_eq!(errno(file.write_at(&[0], CHUNK_LEN)), libc::EFBIG);
    // SAFETY: the descriptor is open.
    let allocate =
        |mode: i32, len: i64| match unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, len) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
    allocate(0, 48).unwrap();
    allocate(libc::FALLOC_FL_KEEP_SIZE, 10).unwrap();
    assert_eq!(errno(allocate(0, 49)), libc::EFBIG);
    assert_eq!(
        errno(allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 10)),
        libc::EOPNOTSUPP
    );
    drop(file);
    assert_eq!(mount.stored(), before);
    assert_eq!(errno(File::create(mount.at("c/0"))), libc::EISDIR);
    // Empty directories count for nothing.
    fs::create_dir(mount.at("c/3")).unwrap();
    fs::remove_dir(mount.at("c/3")).unwrap();
    let outside = File::create(mount.at("c/0/9")).unwrap();
    outside.write_all_at(&[1; 48], 0).unwrap();
    assert_eq!(errno(outside.sync_all()), libc::EINVAL);
    drop(outside);
    assert!(mount.errors().contains("c/0/9: no such chunk"), "{}", mount.errors());
    assert_eq!(fs::read(mount.at("c/0/9")).unwrap(), [1; 48]);
    assert_eq!(mount.stored(), before);
    fs::remove_file(mount.at("c/0/9")).unwrap();
    assert!(!mount.at("c/0/9").exists());
}

/// Shows: create-outside.
#[test]
fn a_chunk_outside_of_the_grid_waits_for_the_metadata_file_that_has_it() {
    let mount = Mount::fixture(V3, &[]);
    let (row, document) = (mount.at("c/9"), mount.at("zarr.json"));
    fs::create_dir(&row).unwrap();
    fs::write(row.join("0"), [3; 48]).unwrap();
    assert_eq!(fs::read(row.join("0")).unwrap(), [3; 48]);
    let mut larger = json_of(&document);
    larger["shape"][0] = 1000.into();
    fs::write(&document, larger.to_string()).unwrap();
    assert_eq!(fs::read(row.join("0")).unwrap(), [3; 48]);
    mount.remount(&[]);
    assert_eq!(fs::read(row.join("0")).unwrap(), [3; 48]);
}

/// Shows: unlink-open.
#[test]
fn an_open_chunk_keeps_its_bytes_after_it_is_removed_or_replaced() {
    let mount = Mount::fixture(V3, &[]);
    let (chunk, scratch) = (mount.at("c/0/0"), mount.at("c/0/new"));
    let old = fs::read(&chunk).unwrap();
    let mut replaced = File::open(&chunk).unwrap();
    fs::write(&scratch, [7; 48]).unwrap();
    fs::rename(&scratch, &chunk).unwrap();
    let removed = rw(&chunk);
    fs::remove_file(&chunk).unwrap();
    removed.write_all_at(&[9], 0).unwrap();
    let mut bytes = Vec::new();
    replaced.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, old);
    let mut bytes = [0; 48];
    removed.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[0], bytes[1]), (9, 7));
    assert_eq!(removed.metadata().unwrap().nlink(), 0);
    drop(removed);
    assert!(!chunk.exists(), "a chunk that was removed is back");
}

/// Shows: shard-gather, shard-failure.
#[test]
fn a_shard_is_stored_when_full_synced_or_old_and_failures_are_reported() {
    let mount = Mount::fixture(V3, &["--writeback-delay=1s"]);
    let shard = mount.store().join("c/0/0");
    let before = fs::read(&shard).unwrap();
    let changed = || fs::read(&shard).unwrap() != before;
    fs::write(mount.at("c/0/0"), [7; 48]).unwrap();
    assert!(!changed(), "stored at close");
    assert_eq!(fs::read(mount.at("c/0/0")).unwrap(), [7; 48]);
    until("old", changed);
    mount.remount(&["--writeback-delay=1h"]);
    assert_eq!(fs::read(mount.at("c/0/0")).unwrap(), [7; 48]);
    let before = fs::read(&shard).unwrap();
    let changed = || fs::read(&shard).unwrap() != before;
    for chunk in ["c/0/0", "c/0/1", "c/1/0"] {
        fs::write(mount.at(chunk), [8; 48]).unwrap();
    }
    assert!(!changed(), "stored before it is full");
    fs::write(mount.at("c/1/1"), [8; 48]).unwrap();
    until("full", changed);
    let before = fs::read(&shard).unwrap();
    fs::write(mount.at("c/0/0"), [9; 48]).unwrap();
    // Something else is in the way of the shard.
    fs::create_dir(mount.store().join("c/0/0.__lock")).unwrap();
    let mut mount = mount;
    mount.expect("c/0/0");
    for _ in 0..2 {
        errno(File::open(mount.at("c/0/0")).unwrap().sync_all());
        let file = rw(&mount.at("c/0/1"));
        file.write_all_at(&[9; 48], 0).unwrap();
        errno(close(file));
    }
    assert_eq!(fs::read(&shard).unwrap(), before);
    fs::remove_dir(mount.store().join("c/0/0.__lock")).unwrap();
    File::open(mount.at("c/0/1")).unwrap().sync_all().unwrap();
    assert_ne!(fs::read(&shard).unwrap(), before);
}

/// Shows: write-behind.
#[test]
fn with_writeback_all_chunks_are_stored_in_the_background() {
    let mut mount =
        Mount::fixture("z218v3__plain_raw", &["--writeback=all", "--writeback-delay=1h"]);
    let of = |byte: u8| vec![byte; fs::read(mount.at("arr/c/0/0")).unwrap().len()];
    let (one, two) = (of(1), of(2));
    let stored = mount.store().join("data/root/arr/c0");
    fs::write(mount.at("arr/c/0/0"), &one).unwrap();
    assert_eq!(fs::read(mount.at("arr/c/0/0")).unwrap(), one);
    until("written", || fs::read(stored.join("0")).unwrap() == one);
    fs::write(mount.at("arr/c/0/new"), &two).unwrap();
    fs::rename(mount.at("arr/c/0/new"), mount.at("arr/c/0/0")).unwrap();
    until("renamed", || fs::read(stored.join("0")).unwrap() == two);
    // Something else is in the way of the chunk.
    fs::remove_file(mount.at("arr/c/0/1")).unwrap();
    until("removed", || !stored.join("1").exists());
    fs::create_dir(stored.join("1")).unwrap();
    mount.expect("c0/1");
    fs::write(mount.at("arr/c/0/1"), &one).unwrap();
    until("told", || {
        let file = rw(&mount.at("arr/c/0/0"));
        file.write_all_at(&one, 0).unwrap();
        close(file).is_err()
    });
    assert_eq!(fs::read(mount.at("arr/c/0/1")).unwrap(), one);
    fs::remove_dir(stored.join("1")).unwrap();
    File::open(mount.path()).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(stored.join("1")).unwrap(), one);
}

/// Shows: shard-turns.
#[test]
fn two_mounts_that_write_one_shard_lose_nothing() {
    let one = Mount::fixture(DRAFT, &[]);
    let dir = tempfile::tempdir().unwrap();
    let two = dir.path().join("mnt");
    fs::create_dir(&two).unwrap();
    let second = crate::support::Second::mount(&one.store(), &two);
    let write = |at: &Path, chunk: &str| {
        for round in 0..40_u8 {
            fs::write(at.join("arr/c").join(chunk), [round; 48]).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for (at, chunk) in
            [(one.path(), "0/0"), (two.clone(), "0/1"), (one.path(), "1/0"), (two.clone(), "1/1")]
        {
            scope.spawn(move || write(&at, chunk));
        }
    });
    drop(second);
    one.remount(&[]);
    for chunk in ["0/0", "0/1", "1/0", "1/1"] {
        assert_eq!(fs::read(one.at("arr/c").join(chunk)).unwrap(), [39; 48], "{chunk}");
    }
}

/// Shows: fill.
#[test]
fn fill_chunks_are_erased_if_requested() {
    let mount = Mount::fixture(DRAFT, &["--skip-fill-chunks"]);
    let chunk = mount.at("arr/c/0/0");
    fs::write(&chunk, [0; 48]).unwrap();
    mount.remount(&[]);
    assert!(!chunk.exists());
    fs::write(&chunk, [0; 48]).unwrap();
    mount.remount(&[]);
    assert!(chunk.exists(), "erased without being asked");
}

/// Shows: fsync, scratch.
#[test]
fn fsync_of_a_file_or_directory_stores_pending_changes() {
    let mount = Mount::fixture(DRAFT, &["--writeback-delay", "1h"]);
    let stored = |name: &str| mount.store().join("data/root/arr").join(name).exists();
    fs::write(mount.at("arr/a.tmp"), "a").unwrap();
    fs::write(mount.at("arr/b.tmp"), "b").unwrap();
    assert!(!stored("a.tmp"));
    File::open(mount.at("arr/a.tmp")).unwrap().sync_all().unwrap();
    assert!(stored("a.tmp") && !stored("b.tmp"));
    File::open(mount.path()).unwrap().sync_all().unwrap();
    assert!(stored("b.tmp"));
    fs::write(mount.at("arr/c.tmp"), "c").unwrap();
    mount.unmount();
    assert!(stored("c.tmp"));
}

/// Shows: scratch.
#[test]
fn a_scratch_file_is_stored_once_it_has_lived_long_enough() {
    let mount = Mount::fixture(V3, &["--writeback-delay", "10ms"]);
    fs::write(mount.at("c/0/notes.tmp"), "x").unwrap();
    until("stored", || mount.store().join("c/0/notes.tmp").exists());
    assert_eq!(fs::read_to_string(mount.at("c/0/notes.tmp")).unwrap(), "x");
    assert!(names(&mount.at("c/0")).contains("notes.tmp"));
    fs::remove_file(mount.at("c/0/notes.tmp")).unwrap();
    assert!(!mount.store().join("c/0/notes.tmp").exists());
}

/// Shows: read-only.
#[test]
fn a_read_only_mount_changes_nothing() {
    let mount = Mount::fixture(V3, &["-o", "ro"]);
    let before = mount.stored();
    assert_eq!(errno(OpenOptions::new().write(true).open(mount.at("c/0/0"))), libc::EROFS);
    assert_eq!(errno(File::create(mount.at("x"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(mount.at("c/0/0"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(mount.at("d"))), libc::EROFS);
    assert_eq!(set_xattr(&mount.path(), "user.attrs.x", "1"), Err(libc::EROFS));
    assert_eq!(fs::read(mount.at("c/0/0")).unwrap().len(), 48);
    assert_eq!(mount.stored(), before);
}

/// Shows: disk-full.
#[test]
fn a_full_disk_is_reported_and_stored_values_stay() {
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: no small file system can be mounted, so this shows nothing");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = crate::support::Tmpfs::mount(dir.path(), "64k");
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(V3).join("store");
    crate::support::copy(&fixture, &dir.path().join("store"));
    let mnt = tempfile::tempdir().unwrap();
    let mount = crate::support::Second::mount(&dir.path().join("store"), mnt.path());
    let old = fs::read(mnt.path().join("c/0/0")).unwrap();
    let shard = fs::read(dir.path().join("store/c/0/0")).unwrap();
    let mut rest = File::create(dir.path().join("ballast")).unwrap();
    while rest.write_all(&[0; 512]).is_ok() {}
    let file = OpenOptions::new().write(true).open(mnt.path().join("c/0/0")).unwrap();
    file.write_all_at(&[1; 48], 0).unwrap();
    assert_eq!(errno(file.sync_all()), libc::ENOSPC);
    assert_eq!(errno(file.sync_all()), libc::ENOSPC, "told once, and then forgotten");
    drop(file);
    assert_eq!(fs::read(mnt.path().join("c/0/0")).unwrap(), [1; 48], "what waits was dropped");
    assert_ne!(fs::read(mnt.path().join("c/0/1")).unwrap(), [1; 48]);
    assert_eq!(fs::read(dir.path().join("store/c/0/0")).unwrap(), shard);
    assert_eq!(names(&dir.path().join("store/c/0")), BTreeSet::from(["0", "1"].map(str::to_owned)));
    rest.set_len(0).unwrap();
    File::open(mnt.path().join("c/0/1")).unwrap().sync_all().expect("there is room again");
    assert_ne!(fs::read(dir.path().join("store/c/0/0")).unwrap(), shard, "not tried again");
    assert_eq!(fs::read(mnt.path().join("c/0/0")).unwrap(), [1; 48]);
    assert_ne!(old, [1; 48]);
    drop(mount);
    drop(small);
}

/// Shows: scratch-rename, reserved, nodes-not-yet, links.
#[test]
fn a_rename_stores_bytes_in_the_form_of_the_new_name() {
    let mut mount = Mount::fixture(DRAFT, &[]);
    for part in ["arr", "short", "dir", "zarr.json", "new"] {
        mount.expect(part);
    }
    let (scratch, chunk) = (mount.at("arr/.c.X8f2"), mount.at("arr/c/0/0"));
    fs::write(&scratch, [5; 48]).unwrap();
    fs::rename(&scratch, &chunk).unwrap();
    assert!(!scratch.exists());
    assert_eq!(fs::read(&chunk).unwrap(), [5; 48]);
    fs::write(&scratch, "short").unwrap();
    assert_eq!(errno(fs::rename(&scratch, &chunk)), libc::EINVAL);
    assert_eq!(fs::read_to_string(&scratch).unwrap(), "short");
    assert_eq!(fs::read(&chunk).unwrap(), [5; 48]);
    fs::rename(&chunk, mount.at("arr/decoded")).unwrap();
    assert!(!chunk.exists());
    assert_eq!(fs::read(mount.at("arr/decoded")).unwrap(), [5; 48]);
    let paths = [&scratch, &mount.at("arr/decoded")]
        .map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    let renamed = |from: &CString, to: &CString, flag| {
        let here = libc::AT_FDCWD;
        // SAFETY: both paths are C strings that outlive the call.
        match unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flag) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    assert_eq!(errno(renamed(&paths[0], &paths[1], libc::RENAME_NOREPLACE)), libc::EEXIST);
    renamed(&paths[0], &paths[1], libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(fs::read(&scratch).unwrap(), [5; 48]);
    assert_eq!(fs::read_to_string(mount.at("arr/decoded")).unwrap(), "short");
    let other = CString::new(mount.at("arr/c/0/1").as_os_str().as_bytes()).unwrap();
    assert_eq!(errno(renamed(&paths[0], &other, libc::RENAME_EXCHANGE)), libc::EINVAL);
    assert_eq!(errno(File::create(mount.at("arr/c0"))), libc::EPERM, "a name of the draft's own");
    assert_eq!(errno(fs::remove_dir(mount.at("arr"))), libc::ENOTEMPTY);
    symlink("x", mount.at("link")).unwrap();
    assert_eq!(fs::read_link(mount.at("link")).unwrap(), Path::new("x"));
    assert_eq!(errno(symlink("x", mount.at("arr/c/2/9"))), libc::EPERM);
    assert_eq!(errno(symlink("x", mount.at("arr/zarr.json"))), libc::EEXIST);
}

/// Shows: ordinary, ordinary-attributes, xattr-other, link, links.
#[test]
fn ordinary_files_are_files_of_the_store() {
    let mount = Mount::fixture(DRAFT, &[]);
    let (file, stored) = (mount.at("arr/notes"), mount.store().join("data/root/arr/notes"));
    fs::write(&file, "text").unwrap();
    let number = fs::metadata(&stored).unwrap().ino();
    OpenOptions::new().append(true).open(&file).unwrap().write_all(b" more").unwrap();
    assert_eq!(fs::read_to_string(&stored).unwrap(), "text more");
    assert_eq!(fs::metadata(&stored).unwrap().ino(), number, "not changed in place");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o2750);
    fs::set_permissions(&file, mode).unwrap();
    assert_eq!(fs::metadata(&stored).unwrap().mode() & 0o7777, 0o2750);
    set_xattr(&file, "user.other", "1").unwrap();
    assert_eq!(xattr(&stored, "user.other").unwrap(), "1");
    fs::hard_link(&file, mount.at("arr/second")).unwrap();
    let (first, second) =
        (fs::metadata(&file).unwrap(), fs::metadata(mount.at("arr/second")).unwrap());
    assert_eq!((first.ino(), second.nlink()), (second.ino(), 2));
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::metadata(mount.at("arr/second")).unwrap().nlink(), 1);
    // A directory moves with a file that has two names in it.
    fs::create_dir(mount.at("d")).unwrap();
    fs::write(mount.at("d/a"), "a").unwrap();
    fs::hard_link(mount.at("d/a"), mount.at("d/b")).unwrap();
    assert_eq!(names(&mount.at("d")).len(), 2);
    fs::rename(mount.at("d"), mount.at("e")).unwrap();
    assert_eq!(fs::read_to_string(mount.at("e/b")).unwrap(), "a");
    assert_eq!(fs::metadata(mount.at("e/a")).unwrap().nlink(), 2);
    // What another program replaces, its openers keep.
    let mut open = rw(&mount.at("arr/second"));
    fs::write(stored.with_file_name("new"), "replaced").unwrap();
    fs::rename(stored.with_file_name("new"), stored.with_file_name("second")).unwrap();
    until("another file", || fs::read(mount.at("arr/second")).unwrap() == b"replaced");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text more");
}

/// Shows: mkdir.
#[test]
fn ordinary_directories_can_be_made_below_an_array() {
    let mount = Mount::fixture(V3, &[]);
    fs::create_dir_all(mount.at("notes/deep")).unwrap();
    fs::write(mount.at("notes/deep/a.txt"), "a").unwrap();
    assert_eq!(errno(fs::remove_dir(mount.at("notes/deep"))), libc::ENOTEMPTY);
    mount.remount(&[]);
    assert_eq!(fs::read_to_string(mount.at("notes/deep/a.txt")).unwrap(), "a");
    fs::remove_file(mount.at("notes/deep/a.txt")).unwrap();
    fs::remove_dir(mount.at("notes/deep")).unwrap();
    fs::remove_dir(mount.at("notes")).unwrap();
    assert!(!names(&mount.path()).contains("notes"));
}

/// Shows: umount, killed.
#[test]
fn changes_that_fsync_confirmed_survive_a_killed_daemon() {
    let mount = Mount::fixture(V3, &[]);
    fs::write(mount.at("c/0/0"), [3; 48]).unwrap();
    File::open(mount.at("c/0/0")).unwrap().sync_all().unwrap();
    let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
    let process = stats.lines().find_map(|line| line.strip_prefix("zarrfs_process_id ")).unwrap();
    assert!(Command::new("kill").args(["-KILL", process]).status().unwrap().success());
    until("killed", || fs::metadata(mount.path()).is_err());
    fs::write(mount.store().join("c/0/0.__lock"), "half of a shard").unwrap();
    mount.remount(&[]);
    assert_eq!(fs::read(mount.at("c/0/0")).unwrap(), [3; 48]);
    fs::write(mount.at("c/0/0"), [4; 48]).unwrap();
    File::open(mount.at("c/0/0")).unwrap().sync_all().unwrap();
    assert_eq!(names(&mount.store().join("c/0")), BTreeSet::from(["0", "1"].map(str::to_owned)));
}

/// Shows: xattr-zarr, xattr-attrs.
#[test]
fn extended_attributes_show_the_model_and_edit_attributes() {
    for (name, dir, document) in [(V3, "", "zarr.json"), (DRAFT, "arr", "meta/root/arr.array.json")]
    {
        let mut mount = Mount::fixture(name, &[]);
        mount.expect("user.");
        let array = mount.at(dir);
        assert_eq!(xattr(&array, "user.zarr.shape").unwrap(), "[7,10]");
        assert_eq!(xattr(&array, "user.zarr.data_type").unwrap(), "int32");
        assert_eq!(xattr(&array, "user.zarr.shard_shape").unwrap(), "[6,8]");
        assert_eq!(xattr(&array, "user.zarr.lossy").unwrap(), "false");
        assert_eq!(xattr(&array.join("c/2/1"), "user.zarr.indices").unwrap(), "[2,1]");
        assert!(xattr(&array.join("c/2/1"), "user.zarr.key").unwrap().ends_with("1/0"));
        assert_eq!(xattr(&array, "security.capability"), Err(libc::ENODATA));
        assert_eq!(xattr(&array, "user.attrs.units"), Err(libc::ENODATA));
        assert_eq!(set_xattr(&array, "user.zarr.shape", "[1]"), Err(libc::EOPNOTSUPP));
        set_xattr(&array, "user.other", "1").unwrap();
        let on_chunk = set_xattr(&array.join("c/2/1"), "user.other", "1");
        assert_eq!(on_chunk, Err(libc::EOPNOTSUPP));
        assert_eq!(set_xattr(&array, "user.attrs.units", "K"), Err(libc::EINVAL));
        let before = fs::read_to_string(mount.store().join(document)).unwrap();
        set_xattr(&array, "user.attrs.units", r#""K""#).unwrap();
        assert_eq!(xattr(&array, "user.attrs.units").unwrap(), r#""K""#);
        assert!(fs::read_to_string(array.join("zarr.json")).unwrap().contains(r#""units": "K""#));
        let after = fs::read_to_string(mount.store().join(document)).unwrap();
        assert!(after.contains(r#""units": "K""#), "{after}");
        let path = CString::new(array.as_os_str().as_bytes()).unwrap();
        // SAFETY: both are C strings that outlive the call.
        assert_eq!(unsafe { libc::removexattr(path.as_ptr(), c"user.attrs.units".as_ptr()) }, 0);
        let values = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let again = fs::read_to_string(mount.store().join(document)).unwrap();
        assert_eq!(values(&again), values(&before));
    }
}

/// Shows: recovery.
#[test]
fn a_mount_completes_changes_of_a_killed_one_and_never_of_a_live_one() {
    let mount = Mount::fixture(DRAFT, &[]);
    let private = mount.store().join(".zarrfs");
    assert!(!private.exists(), "who writes nothing leaves a trace");
    let chunk = fs::read(mount.at("arr/c/0/0")).unwrap();
    mount.unmount();
    // As a daemon leaves it that was killed while it moved a node: its document goes first.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let document = mount.store().join("meta/root/arr.array.json");
    let change = serde_json::json!({
        "zarrfs_change": 1, "dialect": "d2020-10", "base": "", "path": "arr", "to": "moved", "array": true,
        "document": fs::read_to_string(&document).unwrap(),
    });
    fs::create_dir_all(private.join("aside-1-1-1")).unwrap();
    fs::write(private.join("aside-1-1-1/change"), change.to_string()).unwrap();
    fs::remove_file(&document).unwrap();
    let shard = "data/root/arr/c0/0";
    fs::write(private.join("writing-1-1"), format!("{}\n{shard}\0", boot.trim())).unwrap();
    fs::write(mount.store().join(format!("{shard}.__lock")), "half of a shard").unwrap();
    // And a live one, which is another process.
    let live = private.join("writing-2-2");
    let lock = mount.store().join("data/root/arr/c0/1.__lock");
    fs::write(&live, format!("{}\ndata/root/arr/c0/1\0", boot.trim())).unwrap();
    fs::write(&lock, "half of a shard").unwrap();
    let mut holder = Command::new("python3")
        .args(["-c", HOLD, live.to_str().unwrap()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    mount.mount_again(&["-o", "ro"]);
    assert!(mount.store().join(format!("{shard}.__lock")).exists(), "a read-only mount wrote");
    mount.remount(&[]);
    assert_eq!(names(&mount.path()), BTreeSet::from(["moved", "zarr.json"].map(str::to_owned)));
    assert_eq!(fs::read(mount.at("moved/c/0/0")).unwrap(), chunk);
    assert_eq!(names(&private), BTreeSet::from(["writing-2-2".to_owned()]));
    let moved = mount.store().join("data/root/moved/c0");
    assert!(!moved.join("0.__lock").exists());
    assert!(moved.join("1.__lock").exists(), "a live one's file was removed");
    // What a mount says of itself goes when it is at rest.
    fs::write(mount.at("moved/c/0/0"), [7; 48]).unwrap();
    File::open(mount.at("moved/c/0/0")).unwrap().sync_all().unwrap();
    assert_eq!(names(&private).len(), 2);
    until("at rest", || names(&private).len() == 1);
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    mount.remount(&[]);
    assert!(!private.exists());
}

/// Locks a file as its writer does (`F_OFD_SETLK`) until its input ends.
const HOLD: &str = "
import fcntl, struct, sys
file = open(sys.argv[1], 'r+')
fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))
print('.', end='', flush=True)
sys.stdin.read()
";

/// Shows: signals (see `command.rs` and `logs.rs`).
#[test]
fn every_paragraph_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/semantics.md")).unwrap();
    let paragraphs: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("**")?.split_once(".**").map(|(name, _)| name))
        .collect();
    assert!(paragraphs.len() > 30);
    let mut shown = String::new();
    for file in [
        "closes",
        "command",
        "copied",
        "semantics",
        "dialects",
        "documents",
        "encoded",
        "exec",
        "fstab",
        "identity",
        "kernel_writes",
        "lengths",
        "logs",
        "gone",
        "nodes",
        "outdated",
        "outside",
        "outside_model",
        "passthrough",
        "replaced",
        "sweeps",
        "unmount",
        "values",
        "views",
        "waits",
    ] {
        let path = match file {
            "outdated" => "src/vfs/tests/outdated.rs".to_owned(), // It needs a server.
            file => format!("tests/it/{file}.rs"),
        };
        let text = fs::read_to_string(root.join(path)).unwrap();
        shown.extend(
            text.lines()
                .filter(|line| line.starts_with("/// Shows: "))
                .map(|line| format!("{line} ")),
        );
    }
    let words: BTreeSet<&str> =
        shown.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let missing: Vec<&&str> = paragraphs.iter().filter(|name| !words.contains(**name)).collect();
    assert!(missing.is_empty(), "no test shows {missing:?}");
}
