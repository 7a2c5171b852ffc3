//! A file is what it was when it was opened, or it is gone.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Mount, close, errno, set_xattr};

/// Longer than `--metadata-ttl` of these mounts.
const TTL: Duration = Duration::from_millis(120);
const OPTIONS: [&str; 2] = ["--metadata-ttl", "50ms"];
/// Views of up to 64 KiB, of up to 4 MiB (which the kernel may read by itself), and longer ones.
const LENGTHS: [usize; 3] = [3_000, 50_000, 2_500_000];

/// The group `m` with the array `x` of `len` numbers of two bytes in ten chunks; each number is its
/// index.
fn mount(len: usize, codecs: &str) -> Mount {
    let mount = Mount::new(&["--create", "--codecs", codecs]);
    fs::create_dir(mount.at("m")).unwrap();
    fs::create_dir_all(mount.at("m/x/c")).unwrap();
    fs::write(mount.at("m/x/zarr.json"), document(len, "int16").to_string()).unwrap();
    fs::write(mount.at("m/x.raw"), numbers(len)).unwrap();
    mount.remount(&OPTIONS);
    mount
}

fn document(len: usize, dtype: &str) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [len], "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [len / 10]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {}
    })
}

fn numbers(len: usize) -> Vec<u8> {
    (0..=u16::MAX).cycle().take(len).flat_map(u16::to_le_bytes).collect()
}

fn edit_attribute(mount: &Mount) {
    let note = json!("y".repeat(5000)).to_string();
    set_xattr(&mount.at("m/x"), "user.attrs.note", &note).unwrap();
}

/// Changes the metadata file in the store, as another program does.
fn edit_from_outside(mount: &Mount) {
    let path = mount.store().join("m/x/zarr.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    stored["attributes"] = json!({"note": "y".repeat(5000)});
    fs::write(mount.store().join("new"), stored.to_string()).unwrap();
    fs::rename(mount.store().join("new"), path).unwrap();
    std::thread::sleep(TTL);
}

fn make_array(mount: &Mount) {
    fs::create_dir_all(mount.at("m/another")).unwrap();
    fs::write(mount.at("m/another/zarr.json"), document(70, "uint8").to_string()).unwrap();
}

fn read_from(file: &File, offset: u64) -> Vec<u8> {
    let len = file.metadata().unwrap().len();
    let mut bytes = vec![0; usize::try_from(len - offset).unwrap()];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Shows: view-identity.
#[test]
fn an_open_view_keeps_its_header_and_layout_when_its_node_changes() {
    let edits: [fn(&Mount); 3] = [edit_attribute, edit_from_outside, make_array];
    for (number, edit) in edits.into_iter().enumerate() {
        for len in LENGTHS {
            for format in ["nc", "h5", "nc4"] {
                let mount = mount(len, "gzip");
                let path = mount.at("m").with_extension(format);
                let case = format!("edit {number}, {len} elements, {format}");
                let whole = fs::read(&path).unwrap();
                let old = File::open(&path).unwrap();
                assert!(read_from(&old, whole.len() as u64 - 10) == whole[whole.len() - 10..]);
                edit(&mount);
                let new = fs::read(&path).unwrap();
                assert!(new != whole, "{case}: the edit does not show");
                let shown = fs::metadata(&path).unwrap();
                assert_eq!(shown.len(), new.len() as u64, "{case}");
                assert!(read_from(&old, 0) == whole, "{case}: the old view has other bytes");
                assert_eq!(old.metadata().unwrap().len(), whole.len() as u64, "{case}");
                assert!(fs::read(&path).unwrap() == new, "{case}: the new view has other bytes");
                assert_ne!(old.metadata().unwrap().ino(), shown.ino(), "{case}");
                drop(old);
                assert!(fs::read(&path).unwrap() == new, "{case}: after the last close");
            }
        }
    }
}

/// Memory that a file is mapped to.
struct Mapped(*mut u8, usize);

impl Mapped {
    fn new(file: &File) -> Self {
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place; the descriptor is open.
        let address = unsafe {
            let null = std::ptr::null_mut();
            libc::mmap(null, len, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self(address.cast(), len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes are mapped there until this is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Shows: view-identity.
#[test]
fn writes_through_an_old_view_use_its_old_layout() {
    for len in LENGTHS {
        for format in ["nc", "h5"] {
            let mount = mount(len, "none");
            let path = mount.at("m").with_extension(format);
            let whole = fs::read(&path).unwrap();
            let first_numbers = match format {
                "nc" => [0, 0, 0, 1, 0, 2, 0, 3],
                _ => [0, 0, 1, 0, 2, 0, 3, 0],
            };
            let data_start = whole.windows(8).position(|bytes| bytes == first_numbers).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mut mapped = Mapped::new(&file);
            assert!(mapped.bytes() == whole);
            edit_attribute(&mount);
            fs::read(&path).unwrap();
            let (first, second) = (len / 3, len / 2);
            mapped.bytes()[data_start + 2 * first..][..2].copy_from_slice(&[0xaa; 2]);
            file.write_all_at(&[0xbb; 2], (data_start + 2 * second) as u64).unwrap();
            drop((mapped, file));
            let mut wanted = numbers(len);
            wanted[2 * first..][..2].copy_from_slice(&[0xaa; 2]);
            wanted[2 * second..][..2].copy_from_slice(&[0xbb; 2]);
            crate::support::until("the mapping is stored", || {
                fs::read(mount.at("m/x.raw")).unwrap()[2 * first] == 0xaa
            });
            let found = fs::read(mount.at("m/x.raw")).unwrap();
            let wrong = found.iter().zip(&wanted).filter(|(one, other)| one != other).count();
            assert_eq!(wrong, 0, "{len} elements, {format}: bytes that nobody wrote have changed");
        }
    }
}

/// Puts an array of the same chunk length and another type in the place of `m/x`.
fn replace_array(mount: &Mount, len: usize) {
    let x = mount.store().join("m/x");
    fs::remove_dir_all(&x).unwrap();
    fs::create_dir_all(x.join("c")).unwrap();
    let mut new = document(len, "float16");
    new["shape"] = json!([len / 10 * 3]);
    fs::write(x.join("zarr.json"), new.to_string()).unwrap();
    for number in 0..3 {
        fs::write(x.join("c").join(number.to_string()), vec![0x3c; len / 10 * 2]).unwrap();
    }
    std::thread::sleep(TTL);
}

/// Shows: chunk-identity.
#[test]
fn an_open_chunk_of_an_array_that_was_replaced_is_gone() {
    for len in LENGTHS {
        let mut mount = mount(len, "none");
        mount.expect("replaced the array");
        let path = mount.at("m/x/c/1");
        let chunk_len = len / 10 * 2;
        let reader = File::open(&path).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all_at(&[0xaa; 2], 0).unwrap();
        replace_array(&mount, len);
        assert_eq!(errno(close(writer)), libc::ESTALE, "{len}: the old bytes were stored");
        assert!(fs::read(&path).unwrap() == vec![0x3c; chunk_len], "{len}: not the new chunk");
        let stored = fs::read(mount.store().join("m/x/c/1")).unwrap();
        assert!(stored == vec![0x3c; chunk_len], "{len}: the new array has old bytes");
        // What was read before may still be here. What was not is gone.
        let mut bytes = vec![0; chunk_len];
        match reader.read_exact_at(&mut bytes, 0) {
            // It shares the bytes that the writer could not store.
            Ok(()) => {
                assert!(bytes[2..] == numbers(len)[chunk_len + 2..2 * chunk_len], "{len}: mixed");
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE)),
        }
        assert!(fs::read(&path).unwrap() == vec![0x3c; chunk_len]);
    }
}

/// Shows: chunk-identity.
#[test]
fn pending_inner_chunks_are_not_stored_into_a_replaced_array() {
    let sharded = |dtype| {
        let mut document = document(40, dtype);
        document["chunk_grid"]["configuration"]["chunk_shape"] = json!([8]);
        document["codecs"] = json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [4], "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]
        }}]);
        document.to_string()
    };
    let make = |store: &Path, dtype, value: u8| {
        fs::create_dir_all(store.join("x/c")).unwrap();
        fs::write(store.join("x/zarr.json"), sharded(dtype)).unwrap();
        let entries = [0_u64, 8, 8, 8].map(u64::to_le_bytes).concat();
        fs::write(store.join("x/c/1"), [vec![value; 16], entries].concat()).unwrap();
    };
    let mut mount = Mount::of(
        |store| {
            let group = json!({"zarr_format": 3, "node_type": "group"});
            fs::write(store.join("zarr.json"), group.to_string()).unwrap();
            make(store, "int16", 1);
        },
        &["--metadata-ttl", "50ms", "--writeback-delay", "1s"],
    );
    mount.expect("replaced the array");
    let path = mount.at("x/c/2");
    fs::write(&path, [0xaa; 8]).unwrap();
    assert_eq!(fs::read(mount.at("x/c/3")).unwrap(), [1; 8]);
    assert_eq!(fs::read(mount.store().join("x/c/1")).unwrap()[..8], [1; 8], "it does not wait");
    fs::remove_dir_all(mount.store().join("x")).unwrap();
    make(&mount.store(), "uint16", 7);
    std::thread::sleep(TTL);
    assert_eq!(fs::read(&path).unwrap(), [7; 8], "a chunk of the array before shows");
    crate::support::until("it is tried", || mount.errors().contains("replaced the array"));
    assert_eq!(fs::read(mount.store().join("x/c/1")).unwrap()[..16], [7; 16], "bytes were lost");
    // A program that writes the new array has it stored.
    fs::write(&path, [8; 8]).unwrap();
    mount.unmount();
    assert_eq!(fs::read(mount.store().join("x/c/1")).unwrap()[..16], [[8; 8], [7; 8]].concat());
}

/// Shows: store-gone.
#[test]
fn a_removed_store_does_not_look_empty() {
    let mut mount = mount(3_000, "none");
    mount.expect("the directory of the store was removed");
    mount.expect("not everything is stored");
    assert!(fs::read_dir(mount.path()).unwrap().count() > 0);
    // The chunk is stored, but not synced yet.
    fs::write(mount.at("m/x/c/1"), vec![1; 600]).unwrap();
    fs::remove_dir_all(mount.store()).unwrap();
    fs::create_dir(mount.store()).unwrap();
    std::thread::sleep(TTL);
    let list = |path: &Path| fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    assert_eq!(errno(list(&mount.path())), libc::ESTALE);
    assert_eq!(errno(list(&mount.at("m"))), libc::ESTALE);
    assert_eq!(errno(fs::create_dir(mount.at("new"))), libc::ESTALE);
    assert_eq!(errno(fs::write(mount.at("new"), "bytes")), libc::ESTALE);
    assert_eq!(errno(fs::read(mount.at("m/x/c/0"))), libc::ESTALE);
    assert_eq!(errno(fs::read(mount.at("m/x.npy"))), libc::ESTALE);
    assert!(mount.errors().contains("the directory of the store was removed"));
    assert_eq!(fs::read_dir(mount.store()).unwrap().count(), 0);
    // No changes are pending, so the unmount succeeds.
    mount.unmount();
}
