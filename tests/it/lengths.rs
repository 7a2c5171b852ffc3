//! Chunks that do not all have the same length: elements of any length, and the rectilinear grid.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Mount, errno, json_of, names, until, zarrfs};

/// Text and bytes of any length, as zarr-python 3.4 writes them.
const ELEMENTS: &str = "z342__dtypes_extension";
/// Chunks of 2, 2 and 3 by 4, 1 and 5 int32 over 7 x 10.
const RECTILINEAR: &str = "z342__rectilinear";
const RECTILINEAR_SHARDS: &str = "z342__rectilinear_shards";

/// What a chunk of text is.
fn text(elements: &[&str]) -> Vec<u8> {
    let number = |number: usize| u32::try_from(number).expect("short").to_le_bytes();
    let mut bytes = number(elements.len()).to_vec();
    for element in elements {
        bytes.extend(number(element.len()));
        bytes.extend(element.as_bytes());
    }
    bytes
}

fn xattr(path: &Path, name: &str) -> String {
    let output =
        Command::new("getfattr").args(["--only-values", "-n", name]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn output(args: &[&str], path: &Path) -> String {
    let output = zarrfs().args(args).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Shows: chunk-variable.
#[test]
fn a_chunk_of_strings_has_a_length_before_each_element() {
    let mount = Mount::fixture(ELEMENTS, &[]);
    let document = json_of(&mount.at("string/zarr.json"));
    assert_eq!(document["codecs"], json!([{"name": "vlen-utf8"}]));
    // The stored file says the same, so it is shown as it is.
    assert_eq!(
        json_of(&mount.at("vlen_bytes/zarr.json"))["codecs"],
        json!([{"name": "vlen-bytes", "configuration": {}}])
    );
    for row in names(&mount.at("string/c")) {
        for column in names(&mount.at("string/c").join(&row)) {
            let chunk = mount.at("string/c").join(&row).join(column);
            let bytes = fs::read(&chunk).unwrap();
            let attr = fs::metadata(&chunk).unwrap();
            assert_eq!(attr.len(), bytes.len() as u64);
            assert!(attr.blocks() >= 1);
            assert_eq!(bytes[..4], [2, 0, 0, 0], "{}", chunk.display());
        }
    }
    let listed = Command::new("ls").arg("-lR").arg(mount.at("string")).output().unwrap();
    assert!(listed.status.success());

    let chunk = mount.at("string/c/0/0");
    for elements in [["", ""], ["a rather longer text than before", "é"], ["a", "b"]] {
        fs::write(&chunk, text(&elements)).unwrap();
        assert_eq!(fs::metadata(&chunk).unwrap().len(), text(&elements).len() as u64);
        assert_eq!(fs::read(&chunk).unwrap(), text(&elements));
        mount.remount(&[]);
        assert_eq!(fs::metadata(&chunk).unwrap().len(), text(&elements).len() as u64);
        assert_eq!(fs::read(&chunk).unwrap(), text(&elements));
    }
    let stored = fs::read(mount.store().join("string/c/0/0")).unwrap();
    assert_eq!(stored[..4], [0x28, 0xb5, 0x2f, 0xfd], "not compressed as its document says");
    // In place, from any place, and longer or shorter: what counts is what is there at the end.
    let file = OpenOptions::new().read(true).write(true).open(&chunk).unwrap();
    file.write_all_at(&text(&["a", "bcd"])[9..], 9).unwrap();
    drop(file);
    assert_eq!(fs::read(&chunk).unwrap(), text(&["a", "bcd"]));
    let file = OpenOptions::new().write(true).open(&chunk).unwrap();
    file.write_all_at(&text(&["a", ""])[9..], 9).unwrap();
    file.set_len(13).unwrap();
    drop(file);
    assert_eq!(fs::read(&chunk).unwrap(), text(&["a", ""]));
    // A gap is zero bytes: elements without anything in them.
    let file = File::create(&chunk).unwrap();
    file.write_all_at(&[2], 0).unwrap();
    file.set_len(12).unwrap();
    drop(file);
    assert_eq!(fs::read(&chunk).unwrap(), text(&["", ""]));
    fs::remove_file(&chunk).unwrap();
    assert!(!mount.store().join("string/c/0/0").exists());
}

/// Shows: chunk-variable, close-wrong-size.
#[test]
fn bytes_that_are_no_chunk_are_refused_and_the_stored_ones_return() {
    let mut mount = Mount::fixture(ELEMENTS, &[]);
    mount.expect("string/c/0/0: ");
    let chunk = mount.at("string/c/0/0");
    let (old, before) = (fs::read(&chunk).unwrap(), mount.stored());
    let whole = text(&["a", "é"]);
    let wrong = [
        (vec![], "vlen-utf8: 0 bytes"),
        (whole[..3].to_vec(), "vlen-utf8: 3 bytes"),
        (whole[..10].to_vec(), "vlen-utf8: truncated in element 1 of 2"),
        (text(&["a"]), "vlen-utf8: 1 elements declared, the chunk has 2"),
        ([&whole[..], b"!"].concat(), "vlen-utf8: 1 bytes follow the last of 2 elements"),
        ([&whole[..14], &[0xff]].concat(), "vlen-utf8: element 1 is not UTF-8"),
    ];
    for (bytes, reason) in wrong {
        let mut file = OpenOptions::new().write(true).truncate(true).open(&chunk).unwrap();
        file.write_all(&bytes).unwrap();
        assert_eq!(errno(file.sync_all()), libc::EINVAL, "{reason}");
        assert_eq!(fs::metadata(&chunk).unwrap().len(), bytes.len() as u64, "dropped while open");
        drop(file);
        until("the stored chunk shows", || fs::metadata(&chunk).unwrap().len() == old.len() as u64);
        assert_eq!(fs::read(&chunk).unwrap(), old);
        assert_eq!(mount.stored(), before);
        assert!(mount.errors().contains(reason), "{reason}: {}", mount.errors());
    }
    let file = File::create(&chunk).unwrap();
    file.write_all_at(&whole, 0).unwrap();
    drop(file);
    assert_eq!(fs::read(&chunk).unwrap(), whole, "the next one is stored");
}

/// Shows: chunk-variable, open-unsupported, write-past-end.
#[test]
fn a_chunk_of_strings_can_be_as_long_as_the_limit() {
    let mut mount = Mount::fixture(ELEMENTS, &["--max-chunk-size", "100"]);
    mount.expect("string/c/0/0: ");
    let chunk = mount.at("string/c/0/0");
    let long = |len: usize| text(&["", &"x".repeat(len - 12)]);
    fs::write(&chunk, long(100)).unwrap();
    assert_eq!(fs::read(&chunk).unwrap(), long(100));
    assert_eq!(errno(fs::write(&chunk, long(101))), libc::EFBIG);
    until("the stored chunk shows", || fs::read(&chunk).is_ok_and(|bytes| bytes == long(100)));
    mount.remount(&["--max-chunk-size", "99"]);
    assert!(fs::metadata(&chunk).unwrap().len() > 0);
    assert_eq!(errno(fs::read(&chunk)), libc::EFBIG);
    fs::remove_file(&chunk).unwrap();
}

/// Shows: chunk-variable, read-damaged.
#[test]
fn a_damaged_chunk_of_strings_is_listed_and_fails_with_a_reason() {
    let mut mount = Mount::fixture(ELEMENTS, &["--metadata-ttl", "0"]);
    mount.expect("string_missing/c/0/0: vlen-utf8: ");
    let dir = mount.store().join("string_missing/c");
    fs::create_dir_all(dir.join("0")).unwrap();
    let chunk = mount.at("string_missing/c/0/0");
    for damage in [&text(&["a"])[..], b"", b"\x02\0\0\0\xff\xff\xff\xff"] {
        fs::write(dir.join("0/0"), damage).unwrap();
        assert!(fs::metadata(&chunk).unwrap().len() > 0, "an empty file would read as nothing");
        assert_eq!(errno(fs::read(&chunk)), libc::EIO);
    }
    // What others store is seen in whole, however long it was before.
    for len in [0, 50, 7] {
        let whole = text(&["", &"x".repeat(len)]);
        fs::write(dir.join("0/0"), &whole).unwrap();
        assert_eq!(fs::read(&chunk).unwrap(), whole);
    }
    fs::write(dir.join("0/0"), b"").unwrap();
    fs::remove_file(&chunk).unwrap();
}

/// Shows: chunk-rectilinear, document-shown.
#[test]
fn chunks_of_a_rectilinear_grid_have_the_lengths_that_are_listed() {
    let mount = Mount::fixture(RECTILINEAR, &[]);
    let stored = json_of(&mount.store().join("zarr.json"));
    let shown = json_of(&mount.at("zarr.json"));
    assert_eq!(shown["chunk_grid"], stored["chunk_grid"]);
    for (row, rows) in [2, 2, 3].iter().enumerate() {
        for (column, columns) in [4, 1, 5].iter().enumerate() {
            let chunk = mount.at(&format!("c/{row}/{column}"));
            assert_eq!(fs::metadata(&chunk).unwrap().len(), rows * columns * 4);
            let bytes = fs::read(&chunk).unwrap();
            assert_eq!(bytes, fs::read(mount.store().join(format!("c/{row}/{column}"))).unwrap());
            assert_eq!(xattr(&chunk, "user.zarr.chunk_shape"), format!("[{rows},{columns}]"));
        }
    }
    assert_eq!(xattr(&mount.path(), "user.zarr.chunk_shape"), "[[[2,2],3],[4,1,5]]");
    assert_eq!(errno(fs::metadata(mount.at("c/3/0"))), libc::ENOENT);
    let tree = output(&["tree"], &mount.store());
    assert!(tree.contains("int32 7 x 10, chunks 2..3 x 1..5"), "{tree}");
    let info = output(&["info"], &mount.store());
    let has_size = |line: &str| line.starts_with("size ") && line.ends_with(" 280 bytes");
    assert!(info.contains("2..3 x 1..5") && info.lines().any(has_size), "{info}");
}

/// Shows: chunk-rectilinear, close-wrong-size, write-past-end, create-outside.
#[test]
fn each_chunk_of_a_rectilinear_grid_takes_its_own_length() {
    let mut mount = Mount::fixture(RECTILINEAR, &[]);
    mount.expect("c/2/1: ");
    mount.expect("c/3");
    let chunk = mount.at("c/2/1");
    fs::write(&chunk, [7; 12]).unwrap();
    mount.remount(&[]);
    assert_eq!(fs::read(&chunk).unwrap(), [7; 12]);
    let file = File::create(&chunk).unwrap();
    file.write_all_at(&[7; 8], 0).unwrap();
    assert_eq!(errno(file.sync_all()), libc::EINVAL);
    assert!(mount.errors().contains("8 bytes written, the chunk has 12"), "{}", mount.errors());
    assert_eq!(errno(file.write_all_at(&[7; 13], 0)), libc::EFBIG);
    drop(file);
    until("the stored chunk shows", || fs::metadata(&chunk).unwrap().len() == 12);
    let outside = mount.at("c/3");
    fs::create_dir(&outside).unwrap();
    let file = File::create(outside.join("0")).unwrap();
    file.write_all_at(&[7; 8], 0).unwrap();
    assert_eq!(errno(file.sync_all()), libc::EINVAL);
    drop(file);
    fs::remove_file(outside.join("0")).unwrap();
}

/// Shows: chunk-rectilinear, resize, document-refused.
#[test]
fn an_array_on_a_rectilinear_grid_shrinks_and_grows_within_its_lengths() {
    let mut mount = Mount::fixture(RECTILINEAR, &[]);
    mount.expect("zarr.json: ");
    let path = mount.at("zarr.json");
    let resize = |shape: [u64; 2], change: &dyn Fn(&mut Value)| {
        let mut document = json_of(&path);
        document["shape"] = json!(shape);
        change(&mut document);
        let mut file = OpenOptions::new().write(true).truncate(true).open(&path)?;
        file.write_all(document.to_string().as_bytes())?;
        file.sync_all()
    };
    resize([4, 4], &|_| {}).unwrap();
    assert_eq!(names(&mount.at("c")), ["0", "1"].map(str::to_owned).into());
    assert_eq!(names(&mount.at("c/0")), ["0"].map(str::to_owned).into());
    let grid = json_of(&mount.store().join("zarr.json"))["chunk_grid"].clone();
    assert_eq!(json_of(&path)["chunk_grid"], grid, "lengths beyond the array stay");
    assert_eq!(errno(resize([8, 4], &|_| {})), libc::EINVAL);
    let reason = "the chunks along dimension 0 have 7 elements in all, the array has 8";
    assert!(mount.errors().contains(reason), "{}", mount.errors());
    until("dropped", || json_of(&path)["shape"] == json!([4, 4]));
    // Another grid would give the stored chunks another meaning; the same in other words does not.
    let lens = |document: &mut Value, lens: Value| {
        document["chunk_grid"]["configuration"]["chunk_shapes"] = lens;
    };
    let other = resize([5, 4], &|document| lens(document, json!([[2, 2, 4], [4, 1, 5]])));
    assert_eq!(errno(other), libc::EINVAL);
    until("dropped", || json_of(&path)["shape"] == json!([4, 4]));
    resize([7, 10], &|document| lens(document, json!([[2, [2, 1], 3], [[4, 1], 1, 5]]))).unwrap();
    assert_eq!(json_of(&mount.store().join("zarr.json"))["chunk_grid"], grid);
    fs::create_dir_all(mount.at("c/2")).unwrap();
    fs::write(mount.at("c/2/2"), [1; 60]).unwrap();
}

/// Shows: shard-rectilinear, document-shown.
#[test]
fn chunks_in_shards_of_a_rectilinear_grid_all_have_one_shape() {
    let mut mount = Mount::fixture(RECTILINEAR_SHARDS, &["--writeback=sync"]);
    mount.expect("zarr.json: ");
    let array = mount.at("start");
    let shown = json_of(&array.join("zarr.json"));
    let grid = json!({"name": "regular", "configuration": {"chunk_shape": [2, 3]}});
    assert_eq!(shown["chunk_grid"], grid);
    assert_eq!(xattr(&array, "user.zarr.chunk_shape"), "[2,3]");
    assert_eq!(xattr(&array, "user.zarr.shard_shape"), "[[4,2,6],[6,9]]");
    let tree = output(&["tree"], &mount.store());
    assert!(tree.contains("float64 12 x 15, chunks 2 x 3, shards 2..6 x 6..9"), "{tree}");
    // The chunks 2/1, 4/0 and 5/0 are missing, and so is 2/2 in the next shard.
    assert_eq!(names(&array.join("c/2")), ["0", "3", "4"].map(str::to_owned).into());
    let shard = mount.store().join("start/c/1/1");
    let before = fs::read(&shard).unwrap();
    let (kept, new) = (fs::read(array.join("c/2/4")).unwrap(), vec![7; 48]);
    fs::write(array.join("c/2/2"), &new).unwrap();
    mount.remount(&["--writeback=sync"]);
    assert_eq!(fs::read(array.join("c/2/2")).unwrap(), new);
    assert_eq!(fs::read(array.join("c/2/4")).unwrap(), kept);
    assert_ne!(fs::read(&shard).unwrap(), before);
    fs::remove_file(array.join("c/2/3")).unwrap();
    fs::remove_file(array.join("c/2/2")).unwrap();
    fs::remove_file(array.join("c/2/4")).unwrap();
    until("the empty shard is gone", || !shard.exists());
    let path = array.join("zarr.json");
    let resize = |shape: [u64; 2]| {
        let mut document = json_of(&path);
        document["shape"] = json!(shape);
        let mut file = OpenOptions::new().write(true).truncate(true).open(&path)?;
        file.write_all(document.to_string().as_bytes())?;
        file.sync_all()
    };
    resize([3, 15]).unwrap();
    // The directory 2 may stay, because its chunks were removed here.
    let rows = names(&array.join("c"));
    assert!(rows.contains("0") && rows.contains("1") && !rows.contains("3"), "{rows:?}");
    let stored = json_of(&mount.store().join("start/zarr.json"));
    assert_eq!(stored["chunk_grid"]["name"], "rectilinear");
    assert_eq!(errno(resize([13, 15])), libc::EINVAL);
    let reason = "the chunks along dimension 0 have 12 elements in all, the array has 13";
    assert!(mount.errors().contains(reason), "{}", mount.errors());
    until("dropped", || json_of(&path)["shape"] == json!([3, 15]));
}

/// Shows: chunk-variable, chunk-rectilinear, document-new, chunks-first.
#[test]
fn arrays_with_chunks_of_different_lengths_can_be_created() {
    let mut mount = Mount::new(&["--create", "--format", "v3", "--shards", "16M"]);
    mount.expect("names/");
    mount.expect("other/zarr.json: bytes: string has no fixed length");
    let document = |dtype: &str, grid: Value, codec: &str| {
        json!({
            "zarr_format": 3, "node_type": "array", "shape": [5], "data_type": dtype,
            "chunk_grid": grid, "fill_value": "", "attributes": {},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": codec}],
        })
    };
    let regular = json!({"name": "regular", "configuration": {"chunk_shape": [3]}});
    let lens = json!({"kind": "inline", "chunk_shapes": [[[1, 2], 3]]});
    let irregular = json!({"name": "rectilinear", "configuration": lens});
    let make = |name: &str, document: &Value| {
        fs::create_dir_all(mount.at(name)).unwrap();
        let mut file = File::create(mount.at(name).join("zarr.json"))?;
        file.write_all(document.to_string().as_bytes())?;
        file.sync_all()
    };
    // Chunks first, as `tar` may bring them; one that is no chunk refuses the document.
    fs::create_dir_all(mount.at("names/c")).unwrap();
    fs::write(mount.at("names/c/0"), text(&["a", "bc", ""])).unwrap();
    fs::write(mount.at("names/c/1"), text(&["d"])).unwrap();
    assert_eq!(
        errno(make("names", &document("string", regular.clone(), "vlen-utf8"))),
        libc::EINVAL
    );
    fs::write(mount.at("names/c/1"), text(&["d", "", ""])).unwrap();
    make("names", &document("string", regular.clone(), "vlen-utf8")).unwrap();
    assert_eq!(fs::read(mount.at("names/c/0")).unwrap(), text(&["a", "bc", ""]));
    let stored = json_of(&mount.store().join("names/zarr.json"));
    assert_eq!(stored["codecs"][0]["name"], "sharding_indexed", "--shards is not heeded");
    // A codec of another type would be one of other files.
    assert_eq!(errno(make("other", &document("string", regular, "bytes"))), libc::EINVAL);

    make("rows", &document("string", irregular.clone(), "vlen-utf8")).unwrap();
    fs::create_dir(mount.at("rows/c")).unwrap();
    for (chunk, elements) in [("0", &["a"][..]), ("1", &["bc"]), ("2", &["d", "e", "f"])] {
        fs::write(mount.at("rows/c").join(chunk), text(elements)).unwrap();
    }
    mount.remount(&[]);
    assert_eq!(fs::read(mount.at("rows/c/2")).unwrap(), text(&["d", "e", "f"]));
    assert_eq!(fs::read(mount.at("names/c/1")).unwrap(), text(&["d", "", ""]));
    let stored = json_of(&mount.store().join("rows/zarr.json"));
    assert_eq!(stored["chunk_grid"], irregular);
    assert_eq!(stored["codecs"][0]["name"], "vlen-utf8");
}
