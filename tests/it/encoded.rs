//! Arrays whose maker chose the codecs: their chunk files hold encoded chunks.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Mount, errno, json_of, names, set_xattr, until};

fn array(codecs: &Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": codecs, "attributes": {},
    })
}

fn gzipped() -> Value {
    json!([{"name": "bytes", "configuration": {"endian": "big"}},
        {"name": "gzip", "configuration": {"level": 1}}])
}

/// The elements from `first` on, as two bytes each, compressed.
fn gzip(first: i16, big: bool) -> Vec<u8> {
    let elements = (first..first + 8)
        .flat_map(|element| if big { element.to_be_bytes() } else { element.to_le_bytes() });
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&elements.collect::<Vec<u8>>()).unwrap();
    encoder.finish().unwrap()
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn create(mount: &Mount, document: &Value) -> std::io::Result<()> {
    fs::create_dir_all(mount.at("a")).unwrap();
    write(&mount.at("a/zarr.json"), document.to_string().as_bytes())?;
    fs::create_dir_all(mount.at("a/c/0")).unwrap();
    fs::create_dir_all(mount.at("a/c/1")).unwrap();
    Ok(())
}

/// The elements of the view `raw`.
fn elements(mount: &Mount) -> Vec<i16> {
    let raw = fs::read(mount.at("a.raw")).unwrap();
    raw.chunks_exact(2).map(|item| i16::from_le_bytes([item[0], item[1]])).collect()
}

/// Shows: encoded-array, encoded-next-mount, encoded-shards.
#[test]
fn an_array_with_codecs_of_its_maker_shows_encoded_chunks_until_the_next_mount() {
    for options in [&[][..], &["--shards", "[4,4]"], &["--writeback=all"], &["--trust-encoded"]] {
        let mount = Mount::new(&[&["--create"], options].concat());
        create(&mount, &array(&gzipped())).unwrap();
        let shown = json_of(&mount.at("a/zarr.json"));
        assert_eq!(shown, array(&gzipped()), "{options:?}");
        for (chunk, first) in [("a/c/0/0", 0), ("a/c/1/0", 8)] {
            fs::write(mount.at(chunk), gzip(first, true)).unwrap();
            assert_eq!(fs::read(mount.at(chunk)).unwrap(), gzip(first, true));
        }
        assert_eq!(elements(&mount), (0..16).collect::<Vec<i16>>(), "{options:?}");
        // A view changes the array, and the chunk files show it.
        let new: Vec<u8> = (0..16_i16).flat_map(|element| (-element).to_le_bytes()).collect();
        fs::write(mount.at("a.raw"), new).unwrap();
        let chunk = fs::read(mount.at("a/c/1/0")).unwrap();
        assert_ne!(chunk, gzip(8, true), "{options:?}");
        fs::write(mount.at("a/c/0/0"), gzip(100, true)).unwrap();
        assert_eq!(elements(&mount)[7..10], [107, -8, -9], "{options:?}");
        assert_eq!(fs::read(mount.at("a/c/1/0")).unwrap(), chunk);
        let is_sharded = options.contains(&"--shards");
        mount.remount(&[]);
        assert_eq!(mount.store().join("a/c/1/0").exists(), !is_sharded);
        assert_eq!(
            json_of(&mount.at("a/zarr.json"))["codecs"][0]["configuration"]["endian"],
            "little"
        );
        assert_eq!(fs::metadata(mount.at("a/c/0/0")).unwrap().len(), 16);
        assert_eq!(elements(&mount)[7..10], [107, -8, -9]);
    }
}

/// Shows: encoded-check.
#[test]
fn bytes_that_do_not_decode_are_refused_and_nothing_is_stored() {
    let mut mount = Mount::new(&["--create"]);
    mount.expect("a/c/0/0");
    create(&mount, &array(&gzipped())).unwrap();
    let whole = gzip(0, true);
    let mut long = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    long.write_all(&vec![0; 1 << 24]).unwrap();
    for (bytes, what) in [
        (&whole[..whole.len() - 9], "truncated"),
        (b"\x28\xb5\x2f\xfd\x20\x08", "another codec"),
        (&[7; 16], "decoded"),
        (&long.finish().unwrap(), "a bomb"),
    ] {
        assert_eq!(errno(write(&mount.at("a/c/0/0"), bytes)), libc::EINVAL, "{what}");
        assert!(!mount.store().join("a/c/0/0").exists(), "{what}");
    }
    assert!(mount.errors().contains("not a chunk as the codecs of the array encode it"));
    write(&mount.at("a/c/0/0"), &whole).unwrap();
    assert_eq!(fs::read(mount.store().join("a/c/0/0")).unwrap(), whole);
}

/// Shows: encoded-switch.
#[test]
fn a_program_can_switch_between_decoded_and_encoded_chunks() {
    let mut mount = Mount::new(&["--create"]);
    mount.expect("a program has this file open");
    mount.expect("it must be `decoded` or `stored`");
    create(&mount, &array(&gzipped())).unwrap();
    fs::write(mount.at("a/c/0/0"), gzip(0, true)).unwrap();
    let shown = |path: &str| {
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(mount.at(path), "user.zarr.shown", &mut value).unwrap();
        String::from_utf8(value[..len].to_vec()).unwrap()
    };
    assert_eq!(shown("a"), "stored");
    let chunk = fs::File::open(mount.at("a/c/0/0")).unwrap();
    assert_eq!(set_xattr(&mount.path(), "user.zarr.shown", "decoded"), Err(libc::EBUSY));
    drop(chunk);
    until("the file is closed", || {
        set_xattr(&mount.path(), "user.zarr.shown", "decoded") != Err(libc::EBUSY)
    });
    assert_eq!(shown("a/zarr.json"), "decoded");
    let decoded: Vec<u8> = (0..8_i16).flat_map(i16::to_le_bytes).collect();
    until("the kernel has dropped its pages", || fs::read(mount.at("a/c/0/0")).unwrap() == decoded);
    assert_eq!(json_of(&mount.at("a/zarr.json"))["codecs"].as_array().unwrap().len(), 1);
    until("the file is closed", || {
        set_xattr(&mount.at("a"), "user.zarr.shown", "stored") != Err(libc::EBUSY)
    });
    until("the kernel has dropped its pages", || {
        fs::read(mount.at("a/c/0/0")).unwrap() == gzip(0, true)
    });
    assert_eq!(json_of(&mount.at("a/zarr.json")), array(&gzipped()));
    assert_eq!(set_xattr(&mount.at("a"), "user.zarr.shown", "encoded"), Err(libc::EINVAL));
}

/// Shows: encoded-replace.
#[test]
fn other_codecs_are_taken_while_the_array_has_no_chunk() {
    let mut mount = Mount::new(&["--create"]);
    mount.expect("a/zarr.json");
    let plain = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    create(&mount, &array(&plain)).unwrap();
    create(&mount, &array(&gzipped())).unwrap();
    assert_eq!(json_of(&mount.at("a/zarr.json")), array(&gzipped()));
    fs::write(mount.at("a/c/0/0"), gzip(0, true)).unwrap();
    assert_eq!(errno(create(&mount, &array(&plain))), libc::EINVAL);
    assert_eq!(elements(&mount)[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
    // The array moves with its form.
    fs::rename(mount.at("a"), mount.at("b")).unwrap();
    assert_eq!(fs::read(mount.at("b/c/0/0")).unwrap(), gzip(0, true));
    fs::remove_dir_all(mount.at("b")).unwrap();
    fs::create_dir(mount.at("b")).unwrap();
    write(&mount.at("b/zarr.json"), array(&plain).to_string().as_bytes()).unwrap();
    fs::create_dir_all(mount.at("b/c/0")).unwrap();
    fs::write(mount.at("b/c/0/0"), [1; 16]).unwrap();
}

#[test]
fn metadata_with_every_default_spelled_out_are_no_other_codecs() {
    let codecs = json!([{"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 0, "checksum": false}}]);
    for format in ["v2", "d2020-10", "v3"] {
        let mut mount = Mount::new(&["--create", "--format", format]);
        mount.expect("a program has this file open");
        create(&mount, &array(&codecs)).unwrap();
        fs::write(mount.at("a.raw"), [1; 32]).unwrap();
        for shown in ["decoded", "stored"] {
            until("all files are closed", || {
                set_xattr(&mount.at("a"), "user.zarr.shown", shown).is_ok()
            });
        }
        let mut longer = array(&codecs);
        longer["shape"] = json!([6, 4]);
        write(&mount.at("a/zarr.json"), longer.to_string().as_bytes()).unwrap();
        assert_eq!(json_of(&mount.at("a/zarr.json"))["shape"], json!([6, 4]), "{format}");
        assert_eq!(elements(&mount)[..16], [0x0101; 16], "{format}");
    }
}

/// Shows: document-keys.
#[test]
fn chunks_have_the_names_of_the_metadata_until_the_next_mount() {
    for codecs in [gzipped(), json!([{"name": "bytes", "configuration": {"endian": "little"}}])] {
        for (name, separator, first) in
            [("default", ".", "c.0.0"), ("v2", ".", "0.0"), ("v2", "/", "0/0")]
        {
            let mount = Mount::new(&["--create", "--codecs", "none"]);
            let mut document = array(&codecs);
            document["chunk_key_encoding"] =
                json!({"name": name, "configuration": {"separator": separator}});
            fs::create_dir(mount.at("a")).unwrap();
            write(&mount.at("a/zarr.json"), document.to_string().as_bytes()).unwrap();
            let bytes = if codecs == gzipped() { gzip(5, true) } else { vec![1; 16] };
            if separator == "/" {
                fs::create_dir(mount.at("a/0")).unwrap();
            }
            write(&mount.at("a").join(first), &bytes).unwrap();
            assert_eq!(fs::read(mount.at("a").join(first)).unwrap(), bytes);
            let top = first.split('/').next().unwrap();
            assert!(mount.at("a").join(top).exists(), "{first}");
            assert_eq!(names(&mount.at("a")).len(), 2, "{first}");
            assert_eq!(json_of(&mount.at("a/zarr.json")), document);
            assert!(mount.store().join("a").join(first).exists(), "{first}");
            assert!(!mount.at("a/c/0/0").exists());
            mount.remount(&[]);
            assert!(mount.at("a/c").is_dir(), "{first}");
            assert_eq!(fs::read(mount.at("a/c/0/0")).unwrap().len(), 16);
            assert!(!mount.at("a").join(first).exists());
        }
    }
}

#[test]
fn an_array_that_another_program_has_replaced_shows_its_own_chunks() {
    let codecs = |endian: &str| json!([{"name": "bytes", "configuration": {"endian": endian}}]);
    let mount = Mount::new(&["--create", "--metadata-ttl=0s"]);
    create(&mount, &array(&codecs("big"))).unwrap();
    let items = |first: i16| first..first + 8;
    let big: Vec<u8> = items(0).flat_map(i16::to_be_bytes).collect();
    fs::write(mount.at("a/c/0/0"), &big).unwrap();
    assert_eq!(fs::read(mount.at("a/c/0/0")).unwrap(), big);
    let little: Vec<u8> = items(100).flat_map(i16::to_le_bytes).collect();
    let store = mount.store().join("a");
    fs::write(store.join("zarr.json"), array(&codecs("little")).to_string()).unwrap();
    fs::write(store.join("c/0/0"), &little).unwrap();
    until("another array is shown", || {
        json_of(&mount.at("a/zarr.json"))["codecs"] == codecs("little")
    });
    assert_eq!(fs::read(mount.at("a/c/0/0")).unwrap(), little);
    assert_eq!(elements(&mount)[..8], items(100).collect::<Vec<i16>>());
}

/// `rsync` looks for each new shard before it copies the metadata file that has it.
#[test]
fn a_shard_that_the_array_does_not_have_yet_is_missing_and_can_be_copied() {
    let sharded = |rows: u64| {
        let mut document = array(&json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [1, 2], "index_location": "end",
            "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }}]));
        document["shape"] = json!([rows, 4]);
        document
    };
    for options in [&["--create"][..], &["--create", "--shards", "[4,8]"]] {
        let mount = Mount::new(options);
        create(&mount, &sharded(4)).unwrap();
        for shard in 2..12 {
            let looked = fs::metadata(mount.at("a/c").join(shard.to_string()).join("0"));
            assert_eq!(errno(looked), libc::ENOENT, "{options:?} {shard}");
        }
        let index = |slot: u64| [slot * 4, 4].map(u64::to_le_bytes).concat();
        let mut shard: Vec<u8> = (0..8_i16).flat_map(i16::to_be_bytes).collect();
        shard.extend((0..4).flat_map(index));
        fs::create_dir_all(mount.at("a/c/5")).unwrap();
        fs::write(mount.at("a/c/5/0"), &shard).unwrap();
        write(&mount.at("a/zarr.json"), sharded(12).to_string().as_bytes()).unwrap();
        assert_eq!(fs::read(mount.at("a/c/5/0")).unwrap(), shard, "{options:?}");
        mount.remount(&[]);
        // Two rows of the shard, with two inner chunks of two elements each.
        assert_eq!(elements(&mount)[40..], [0, 1, 2, 3, 4, 5, 6, 7], "{options:?}");
    }
}
