//! Nodes as files of other formats.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::time::Duration;

use serde_json::json;

use crate::support::{Mount, close, errno, names, said, set_xattr, until, zarrfs};

/// A group `a` with an array `x` of 4 x 4 `uint16` in chunks of 2 x 2, of which three are there.
fn mount(options: &[&str]) -> Mount {
    let mount = Mount::new(&["--create", "--codecs", "none"]);
    fs::create_dir(mount.at("a")).unwrap();
    fs::create_dir_all(mount.at("a/x/c/0")).unwrap();
    fs::create_dir_all(mount.at("a/x/c/1")).unwrap();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {}
    });
    fs::write(mount.at("a/x/zarr.json"), document.to_string()).unwrap();
    for (chunk, value) in [("0/0", 1), ("0/1", 2), ("1/0", 3)] {
        fs::write(mount.at("a/x/c").join(chunk), elements(&[value; 4])).unwrap();
    }
    mount.remount(options);
    mount
}

fn elements(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const WHOLE: [u16; 16] = [1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 7, 7, 3, 3, 7, 7];

/// Shows: view-names, view-read.
#[test]
fn a_view_is_found_by_name_beside_its_node_and_listed_nowhere() {
    let mount = mount(&[]);
    assert_eq!(names(&mount.at("a")), ["x", "zarr.json"].map(str::to_owned).into());
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    let attr = fs::metadata(mount.at("a/x.raw")).unwrap();
    assert_eq!((attr.len(), attr.blocks()), (32, 1));
    assert_eq!(attr.ino(), fs::metadata(mount.at("a/x.raw")).unwrap().ino());
    for none in ["a/y.raw", "a/x.none", "a/x/x.raw", "x.raw", "__root__.raw", "a/a.raw"] {
        assert_eq!(errno(fs::read(mount.at(none))), libc::ENOENT, "{none}");
    }
    for alias in ["a/x.bin", "a/x.dat"] {
        assert_eq!(fs::read(mount.at(alias)).unwrap(), elements(&WHOLE), "{alias}");
    }
    let [h5, h5ad] = ["a/x.h5", "a/x.h5ad"].map(|name| fs::read(mount.at(name)).unwrap());
    assert_eq!(h5, h5ad);
    let mut part = [0; 5];
    File::open(mount.at("a/x.raw")).unwrap().read_exact_at(&mut part, 9).unwrap();
    assert_eq!(part, elements(&WHOLE)[9..14]);
    // A file of that name wins.
    fs::write(mount.at("a/y.raw"), "mine").unwrap();
    fs::rename(mount.at("a/x"), mount.at("a/y")).unwrap();
    assert_eq!(fs::read(mount.at("a/y.raw")).unwrap(), b"mine");
    fs::remove_file(mount.at("a/y.raw")).unwrap();
    assert_eq!(fs::read(mount.at("a/y.raw")).unwrap(), elements(&WHOLE));
    assert_eq!(errno(fs::read(mount.at("a/x.raw"))), libc::ENOENT);
}

/// Shows: view-listed, view-as.
#[test]
fn views_are_listed_if_requested_and_alone_with_as() {
    let mut mount = mount(&["--views", "raw"]);
    mount.expect("in a mount with --as raw");
    mount.expect("a mount that shows one format");
    assert_eq!(names(&mount.at("a")), ["x", "x.raw", "zarr.json"].map(str::to_owned).into());
    mount.remount(&["-o", "views=raw+npy"]);
    assert!(names(&mount.at("a")).is_superset(&["x.npy", "x.raw"].map(str::to_owned).into()));
    mount.remount(&["--as", "raw"]);
    assert_eq!(names(&mount.path()), ["a".to_owned()].into());
    assert_eq!(names(&mount.at("a")), ["x.raw".to_owned()].into());
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    for none in ["zarr.json", "a/x", "a/x.npy", "a/x/zarr.json"] {
        assert_eq!(errno(fs::metadata(mount.at(none))), libc::ENOENT, "{none}");
    }
    for refused in [
        fs::create_dir(mount.at("b")),
        fs::write(mount.at("b"), ""),
        fs::remove_dir(mount.at("a")),
        fs::rename(mount.at("a"), mount.at("b")),
    ] {
        assert_eq!(errno(refused), libc::EPERM);
    }
    assert_eq!(set_xattr(&mount.at("a"), "user.attrs.a", "1"), Err(libc::EPERM));
    OpenOptions::new().write(true).open(mount.at("a/x.raw")).unwrap().write_all(&[9, 0]).unwrap();
    mount.remount(&[]);
    assert_eq!(fs::read(mount.at("a/x/c/0/0")).unwrap(), elements(&[9, 1, 1, 1]));
    let (code, sentence) = said(&["mount", "a", "b", "--views", "no"]);
    assert!(code == 2 && sentence.contains("npy, raw"), "{sentence}");
}

/// Shows: view-as, view-unreadable.
#[test]
fn an_unreadable_node_hides_no_other_node_from_views_of_its_group() {
    let mut mount = mount(&[]);
    for part in ["a/json", "a/link", "a/type", "safetensors"] {
        mount.expect(part);
    }
    let at = |name: &str| mount.store().join("a").join(name);
    for name in ["codec", "json", "link", "type"] {
        fs::create_dir(at(name)).unwrap();
    }
    let good = fs::read_to_string(at("x/zarr.json")).unwrap();
    let codecs = r#""codecs": [{"name": "homeopathy"}, "#;
    let of_codec = good.replacen(r#""codecs":["#, codecs, 1).replacen(r#""codecs": ["#, codecs, 1);
    fs::write(at("codec/zarr.json"), of_codec).unwrap();
    fs::write(at("json/zarr.json"), "{").unwrap();
    symlink("zarr.json", at("link/zarr.json")).unwrap();
    fs::write(at("type/zarr.json"), good.replace("uint16", "colour")).unwrap();
    for format in ["nc", "nc4", "h5"] {
        mount.remount(&["--as", format]);
        let file = fs::read(mount.at(&format!("a.{format}"))).unwrap();
        for said in ["zarrfs_left_out", "homeopathy", "json: ", "link: ", "colour"] {
            assert!(holds(&file, said), "{format}: {said}");
        }
        // The listing has everything else, and ends with the error, as that of any directory.
        let (found, errors) = listed(&mount, "a");
        // What is not understood may have nodes below it.
        assert_eq!((found, errors), (vec!["json".into(), format!("x.{format}").into()], 1));
    }
    mount.remount(&["--views", "raw"]);
    assert!(names(&mount.at("a")).contains("x.raw"));
    let others = ["__group__", "codec", "json", "type", "x"].map(OsString::from);
    assert_eq!(listed(&mount, ".zarrfs/views/a"), (others.into(), 1));
    let said = fs::read_to_string(mount.at(".zarrfs/views/a/__group__")).unwrap();
    for part in ["left out: json: ", "left out: link: ", "left out: type: ", "a.h5  "] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(errno(fs::read(mount.at("a.safetensors"))), libc::ENOENT);
}

/// The names in a directory, sorted, and the number of errors.
fn listed(mount: &Mount, name: &str) -> (Vec<OsString>, usize) {
    let all: Vec<_> = fs::read_dir(mount.at(name)).unwrap().collect();
    let mut found: Vec<_> = all.iter().flatten().map(fs::DirEntry::file_name).collect();
    found.sort();
    let errors = all.len() - found.len();
    (found, errors)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Shows: view-write, view-length, view-header, view-remove.
#[test]
fn a_view_is_written_in_place_and_keeps_its_length_and_header() {
    let mut mount = mount(&[]);
    for part in ["a/x.raw: ", "a/x.npy: "] {
        mount.expect(part);
    }
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(mount.at(name)).unwrap();
    let file = open("a/x.raw");
    file.write_all_at(&elements(&[20, 21]), 2 * 2 + 8 * 2).unwrap();
    drop(file);
    let mut whole = WHOLE;
    (whole[10], whole[11]) = (20, 21);
    assert_eq!(fs::read(mount.at("a/x/c/1/1")).unwrap(), elements(&[20, 21, 7, 7]));
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole));
    // Cut to nothing it is what it was; written again it is what is written.
    drop(File::create(mount.at("a/x.raw")).unwrap());
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole));
    fs::write(mount.at("a/x.raw"), elements(&WHOLE)).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    for len in [1, 31, 33, 1 << 40] {
        assert_eq!(errno(open("a/x.raw").set_len(len)), libc::EFBIG, "{len}");
    }
    assert_eq!(errno(open("a/x.raw").write_all_at(&[0; 4], 30)), libc::EFBIG);
    let mut npy = open("a/x.npy");
    let mut before = Vec::new();
    npy.read_to_end(&mut before).unwrap();
    let mut other = before.clone();
    let at = before.windows(2).position(|pair| pair == b"u2").unwrap();
    other[at + 1] = b'4';
    other[130] = 99;
    npy.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(errno(npy.write_all(&other)), libc::EPERM);
    npy.seek(SeekFrom::Start(0)).unwrap();
    npy.write_all(&before).unwrap();
    drop(npy);
    assert_eq!(fs::read(mount.at("a/x.npy")).unwrap(), before);
    assert_eq!(errno(fs::remove_file(mount.at("a/x.raw"))), libc::EPERM);
    assert_eq!(errno(fs::rename(mount.at("a/x.raw"), mount.at("b"))), libc::EPERM);
    assert_eq!(errno(fs::hard_link(mount.at("a/x.raw"), mount.at("b"))), libc::EPERM);
    mount.remount(&["-o", "ro"]);
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    assert_eq!(errno(OpenOptions::new().write(true).open(mount.at("a/x.raw"))), libc::EROFS);
}

/// Shows: view-new.
#[test]
fn a_new_file_on_the_name_of_a_view_changes_the_array_when_it_is_closed() {
    let mut mount = mount(&[]);
    mount.expect("a/x.npy: ");
    let view = mount.at("a/x.npy");
    let new: Vec<u16> = (100..116).collect();
    let mut file = fs::read(&view).unwrap();
    let header_len = file.len() - 32;
    let text = b"'fortran_order': False, ";
    let at = file.windows(text.len()).position(|part| part == text).unwrap();
    file[at..at + text.len()].copy_from_slice(b"'fortran_order':False,  ");
    file[header_len..].copy_from_slice(&elements(&new));
    // A part of it is no file.
    for len in [1, header_len - 1, header_len, file.len() - 1] {
        let mut writer = OpenOptions::new().write(true).truncate(true).open(&view).unwrap();
        writer.write_all(&file[..len]).unwrap();
        assert_eq!(close(writer).map_err(|error| error.raw_os_error()), Err(Some(libc::EINVAL)));
        assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE), "{len}");
    }
    let mut writer = OpenOptions::new().write(true).truncate(true).open(&view).unwrap();
    writer.write_all(&file).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE), "not closed yet");
    close(writer).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&new));
    assert_eq!(fs::read(mount.at("a/x/c/1/0")).unwrap(), elements(&[108, 109, 112, 113]));
    assert_eq!(fs::read(&view).unwrap()[header_len..], elements(&new));
}

/// Shows: view-replace.
#[test]
fn a_file_renamed_onto_a_view_becomes_its_contents() {
    let mut mount = mount(&[]);
    for part in ["a/x.raw: ", "a/x.npy: ", "x.raw: only an ordinary file"] {
        mount.expect(part);
    }
    let new: Vec<u16> = (0..16).collect();
    fs::write(mount.at("a/scratch"), elements(&new)).unwrap();
    fs::rename(mount.at("a/scratch"), mount.at("a/x.raw")).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&new));
    assert_eq!(fs::read(mount.at("a/x/c/1/0")).unwrap(), elements(&[8, 9, 12, 13]));
    fs::write(mount.at("a/scratch"), elements(&new[1..])).unwrap();
    let renamed = fs::rename(mount.at("a/scratch"), mount.at("a/x.raw"));
    assert_eq!(errno(renamed), libc::EFBIG);
    let mut other = fs::read(mount.at("a/x.npy")).unwrap();
    other[20] ^= 1;
    fs::write(mount.at("a/scratch"), &other).unwrap();
    let renamed = fs::rename(mount.at("a/scratch"), mount.at("a/x.npy"));
    assert_eq!(errno(renamed), libc::EINVAL);
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&new));
    fs::remove_file(mount.at("a/scratch")).unwrap();
    // What is no ordinary file stays what it is, and nobody waits for himself.
    let document = fs::read(mount.at("a/x/zarr.json")).unwrap();
    assert_eq!(errno(fs::rename(mount.at("a/x/zarr.json"), mount.at("a/x.raw"))), libc::EPERM);
    assert_eq!(errno(fs::rename(mount.at("a/x/c/0/0"), mount.at("a/x.raw"))), libc::EPERM);
    assert_eq!(fs::read(mount.at("a/x/zarr.json")).unwrap(), document);
    assert_eq!(fs::read(mount.at("a/x/c/1/0")).unwrap(), elements(&[8, 9, 12, 13]));
    assert_eq!(names(&mount.at("a")), ["x", "zarr.json"].map(str::to_owned).into());
}

/// Shows: view-import.
#[test]
fn a_new_file_with_the_name_of_a_view_becomes_its_node_with_import() {
    let mut mount = mount(&["--import"]);
    mount.expect("a/new.npy: ");
    let file = fs::read(mount.at("a/x.npy")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let mut writer = File::create(mount.at(name)).unwrap();
        writer.write_all(bytes).unwrap();
        close(writer).map_err(|error| error.raw_os_error().unwrap())
    };
    assert_eq!(write("a/new.npy", &file[..file.len() - 1]), Err(libc::EINVAL));
    assert_eq!(fs::read(mount.at("a/new.npy")).unwrap(), file[..file.len() - 1]);
    assert_eq!(write("a/new.npy", &file), Ok(()));
    assert_eq!(fs::read(mount.at("a/new.raw")).unwrap(), elements(&WHOLE));
    assert_eq!(names(&mount.at("a")), ["new", "x", "zarr.json"].map(str::to_owned).into());
    fs::write(mount.at("a/scratch"), &file).unwrap();
    fs::rename(mount.at("a/scratch"), mount.at("a/other.npy")).unwrap();
    assert_eq!(
        fs::read(mount.at("a/other/c/0/0")).unwrap(),
        fs::read(mount.at("a/new/c/0/0")).unwrap()
    );
    assert_eq!(names(&mount.at("a")), ["new", "other", "x", "zarr.json"].map(str::to_owned).into());
    mount.remount(&[]);
    assert_eq!(fs::read(mount.at("a/new.npy")).unwrap(), file);
    fs::write(mount.at("a/plain.npy"), &file).unwrap();
    assert!(!names(&mount.at("a")).contains("plain"));
}

/// Shows: view-length.
#[test]
fn close_reports_a_copy_onto_a_view_that_is_too_short() {
    let mut mount = mount(&[]);
    mount.expect("4 of 32 bytes were written");
    fs::write(mount.at("short"), elements(&[50, 51])).unwrap();
    let cp = std::process::Command::new("cp")
        .args([mount.at("short"), mount.at("a/x.raw")])
        .output()
        .unwrap();
    assert!(!cp.status.success(), "{cp:?}");
    let mut whole = WHOLE;
    (whole[0], whole[1]) = (50, 51);
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole));
}

/// Shows: view-length.
#[test]
fn bytes_that_a_writer_skips_after_truncating_a_view_are_zero() {
    let mount = mount(&[]);
    let at = mount.at("a/x.raw");
    let (big, sparse) = (mount.at("big.raw"), mount.path().with_file_name("sparse"));
    // A hole in the middle, and one at the end: `cp` reads neither.
    let document = fs::read(mount.at("a/x/zarr.json")).unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    document["shape"] = json!([1024, 1024]);
    document["chunk_grid"]["configuration"]["chunk_shape"] = json!([100, 100]);
    fs::create_dir(mount.at("big")).unwrap();
    fs::write(mount.at("big/zarr.json"), document.to_string()).unwrap();
    let file = File::create(&sparse).unwrap();
    file.set_len(2 << 20).unwrap();
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    for _ in 0..2 {
        fs::write(&big, vec![9; 2 << 20]).unwrap();
        let cp = std::process::Command::new("cp").args([&sparse, &big]).status().unwrap();
        assert!(cp.success());
        assert!(fs::read(&big).unwrap() == fs::read(&sparse).unwrap());
        mount.remount(&[]);
        assert!(fs::read(&big).unwrap() == fs::read(&sparse).unwrap());
    }
    fs::remove_file(&sparse).unwrap();
    // As numpy begins a file that it maps then.
    let file = File::create(&at).unwrap();
    file.write_all_at(&[0], 31).unwrap();
    drop(file);
    assert_eq!(fs::read(&at).unwrap(), [0; 32]);
    // Who has not cut it makes nothing zero, whoever has: one who gave up, too.
    fs::write(&at, elements(&WHOLE)).unwrap();
    let other = OpenOptions::new().write(true).open(&at).unwrap();
    let file = File::create(&at).unwrap();
    other.write_all_at(&elements(&[50]), 30).unwrap();
    drop(file);
    File::create(&at).unwrap();
    other.write_all_at(&elements(&[51]), 28).unwrap();
    drop(other);
    assert_eq!(fs::read(&at).unwrap(), [&elements(&WHOLE)[..28], &elements(&[51, 50])].concat());
    // The end first: what comes before it is written, not made zero again.
    fs::write(&at, [0; 32]).unwrap();
    let (first, second) =
        (File::create(&at).unwrap(), OpenOptions::new().write(true).open(&at).unwrap());
    second.write_all_at(&elements(&WHOLE)[8..], 8).unwrap();
    first.write_all_at(&elements(&WHOLE)[..4], 0).unwrap();
    drop((first, second));
    let whole = elements(&WHOLE);
    assert_eq!(fs::read(&at).unwrap(), [&whole[..4], &[0; 4], &whole[8..]].concat());
    // What the kernel had of it before is not what is there now.
    let mut file = File::options().read(true).write(true).truncate(true).open(&at).unwrap();
    assert_eq!(fs::read(&at).unwrap()[..4], whole[..4]);
    file.write_all_at(&whole[8..], 8).unwrap();
    let mut part = [1; 8];
    file.rewind().unwrap();
    until("zero bytes are seen", || file.read_at(&mut part, 0).unwrap() == 8 && part == [0; 8]);
    file.write_all_at(&whole[..4], 0).unwrap();
    drop(file);
    // Who does not cut it changes what he writes and nothing else.
    OpenOptions::new().write(true).open(&at).unwrap().write_all_at(&whole[4..8], 4).unwrap();
    assert_eq!(fs::read(&at).unwrap(), whole);
}

/// Shows: view-write.
#[test]
fn concurrent_writers_of_parts_of_one_chunk_lose_nothing() {
    const WRITERS: u8 = 4;
    let mount = mount(&["--threads", "4", "--cache-size", "1K", "--writeback-delay", "1ms"]);
    for round in 0..40 {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let at = mount.at("a/x.raw");
                scope.spawn(move || {
                    let file = OpenOptions::new().write(true).open(at).unwrap();
                    // Bytes of elements that another writes the other byte of.
                    for byte in (writer..32).step_by(WRITERS.into()) {
                        file.write_all_at(&[round + byte], byte.into()).unwrap();
                    }
                });
            }
        });
        let expected: Vec<u8> = (0..32).map(|byte| round + byte).collect();
        assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), expected);
        if round % 10 == 9 {
            mount.remount(&["--threads", "4"]);
            assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), expected);
        }
    }
}

/// Shows: view-remove.
#[test]
fn an_open_view_does_not_switch_to_another_array_of_its_name() {
    let mut mount = mount(&[]);
    mount.expect("/a/x: the array has changed since the file was opened");
    let other = mount.path().join("b");
    assert!(
        std::process::Command::new("cp")
            .args(["-r".into(), mount.at("a"), other.clone()])
            .status()
            .unwrap()
            .success()
    );
    let open = OpenOptions::new().read(true).write(true).open(mount.at("a/x.raw")).unwrap();
    fs::rename(mount.at("a/x"), mount.at("a/y")).unwrap();
    fs::rename(other.join("x"), mount.at("a/x")).unwrap();
    assert_eq!(errno(open.write_all_at(&[99; 4], 0)), libc::ESTALE);
    assert_eq!(errno(open.read_exact_at(&mut [0; 4], 0)), libc::ESTALE);
    drop(open);
    for array in ["a/x.raw", "a/y.raw"] {
        assert_eq!(fs::read(mount.at(array)).unwrap(), elements(&WHOLE));
    }
}

/// Shows: view-write.
#[test]
fn a_chunk_that_is_written_whole_need_not_be_readable() {
    let mut mount = mount(&[]);
    mount.expect("a/x");
    mount.unmount();
    fs::write(mount.store().join("a/x/c/0/1"), b"damaged").unwrap();
    mount.mount_again(&[]);
    assert_eq!(errno(fs::read(mount.at("a/x.raw"))), libc::EIO);
    fs::write(mount.at("a/x.raw"), elements(&WHOLE)).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
}

/// Shows: view-coherence.
#[test]
fn views_and_chunk_files_show_writes_to_each_other() {
    let mut mount = mount(&[]);
    mount.expect("/a/x: the array has changed since the file was opened");
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    let before = fs::metadata(mount.at("a/x.raw")).unwrap().modified().unwrap();
    let mut whole = WHOLE;
    for value in 10..20 {
        fs::write(mount.at("a/x/c/0/0"), elements(&[value; 4])).unwrap();
        for at in [0, 1, 4, 5] {
            whole[at] = value;
        }
        assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole));
        let npy = OpenOptions::new().write(true).open(mount.at("a/x.npy")).unwrap();
        npy.write_all_at(&elements(&[value + 100]), 128).unwrap();
        drop(npy);
        whole[0] = value + 100;
        assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole));
        let chunk = elements(&[value + 100, value, value, value]);
        assert_eq!(fs::read(mount.at("a/x/c/0/0")).unwrap(), chunk);
    }
    assert!(fs::metadata(mount.at("a/x.raw")).unwrap().modified().unwrap() > before);
    let document = fs::read_to_string(mount.at("a/x/zarr.json")).unwrap();
    let document = document.replacen('4', "2", 1);
    fs::write(mount.at("a/x/zarr.json"), document).unwrap();
    let open = File::open(mount.at("a/x.npy")).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole[..8]));
    // Never the fill value in the place of what has moved.
    fs::rename(mount.at("a/x"), mount.at("a/moved")).unwrap();
    let read = open.read_exact_at(&mut [0; 2], 128);
    assert!([libc::ESTALE, libc::ENOENT].contains(&errno(read)));
    assert_eq!(fs::read(mount.at("a/moved.raw")).unwrap(), elements(&whole[..8]));
}

/// Shows: view-coherence.
#[test]
fn the_attributes_of_a_chunk_file_follow_writes_to_a_view() {
    let mount = mount(&["--metadata-ttl", "1h", "--skip-fill-chunks"]);
    let modified = |name: &str| fs::metadata(mount.at(name)).unwrap().modified().unwrap();
    let [written, other, erased] = ["a/x/c/0/0", "a/x/c/0/1", "a/x/c/1/0"];
    let [before, of_other, _] = [written, other, erased].map(modified);
    let raw = OpenOptions::new().write(true).open(mount.at("a/x.raw")).unwrap();
    raw.write_all_at(&elements(&[10]), 0).unwrap();
    raw.sync_all().unwrap();
    until("the new time", || modified(written) > before);
    let synced = modified(written);
    raw.write_all_at(&elements(&[11]), 0).unwrap();
    raw.write_all_at(&elements(&[7; 2]), 16).unwrap();
    raw.write_all_at(&elements(&[7; 2]), 24).unwrap();
    drop(raw);
    until("the time of the close", || modified(written) > synced);
    until("the chunk with the fill value has gone", || !mount.at(erased).exists());
    assert_eq!(modified(other), of_other);
}

/// Shows: view-none.
#[test]
fn a_view_that_cannot_exist_is_absent_and_the_reason_is_shown() {
    let mount = mount(&[]);
    let document = fs::read_to_string(mount.at("a/x/zarr.json")).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&document).unwrap();
    document["data_type"] = "bfloat16".into();
    document["fill_value"] = "0x0000".into();
    fs::create_dir(mount.at("a/b")).unwrap();
    fs::write(mount.at("a/b/zarr.json"), document.to_string()).unwrap();
    assert_eq!(errno(fs::metadata(mount.at("a/b.npy"))), libc::ENOENT);
    assert_eq!(fs::read(mount.at("a/b.raw")).unwrap().len(), 32);
    let mut told = String::new();
    File::open(mount.at(".zarrfs/views/a/b")).unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("NumPy has no type for bfloat16") && told.contains("b.raw"), "{told}");
    let listed = names(&mount.at(".zarrfs/views/a"));
    assert_eq!(listed, ["__group__", "b", "x"].map(str::to_owned).into());
    // The reason is reported once, with the other errors.
    assert_eq!(errno(fs::metadata(mount.at("a/b.npy"))), libc::ENOENT);
    let errors = mount.errors();
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains("b.npy")).collect();
    assert_eq!(lines.len(), 1, "{errors}");
    assert!(lines[0].ends_with("lookup: ENOENT: a/b.npy: NumPy has no type for bfloat16"));
    let of_group = fs::read(mount.at(".zarrfs/views/a/__group__")).unwrap();
    let in_group = String::from_utf8(of_group.clone()).unwrap();
    assert!(in_group.contains("left out: b: netCDF has no type for bfloat16"), "{in_group}");
    let in_root = fs::read_to_string(mount.at(".zarrfs/views/__group__")).unwrap();
    for part in
        ["nc holds one group; open a.nc, or __root__.nc4, which", "left out: a/b: netCDF has no"]
    {
        assert!(in_root.contains(part), "{in_root}");
    }
    // The names of the files themselves work too: a user looks for the one that is missing.
    assert_eq!(fs::read(mount.at(".zarrfs/views/a.nc")).unwrap(), of_group);
    assert_eq!(fs::read_to_string(mount.at(".zarrfs/views/a/b.npy")).unwrap(), told);
    let of_root = fs::read(mount.at(".zarrfs/views/__group__")).unwrap();
    assert_eq!(fs::read(mount.at(".zarrfs/views/__root__")).unwrap(), of_root);
    assert_eq!(errno(fs::read(mount.at(".zarrfs/views/a/c.npy"))), libc::ENOENT);
    mount.unmount();
    let node = mount.store().join("a/b").display().to_string();
    let (code, sentence) = said(&["cat", &node, "--as", "npy"]);
    assert!(code == 1 && sentence.contains("NumPy has no type"), "{sentence}");
    let group = mount.store().join("a").display().to_string();
    let (code, sentence) = said(&["cat", &group, "--as", "nc"]);
    assert!(code == 0 && sentence.contains("left out: b: netCDF has no type"), "{sentence}");
    // A node that could not be read may be one that the format has.
    let broken = mount.store().join("a/broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("zarr.json"), "{").unwrap();
    let (code, sentence) = said(&["cat", &group, "--as", "nc"]);
    assert!(code == 1 && sentence.contains("incomplete: 1 node could not be read"), "{sentence}");
    fs::remove_dir_all(&broken).unwrap();
    let output = zarrfs().args(["info", &group, "--json"]).output().unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["left_out"]["nc4"], json!("b: netCDF has no type for bfloat16"));
    let node = mount.store().join("a/x").display().to_string();
    let output = zarrfs().args(["cat", &node, "--as", "raw"]).output().unwrap();
    assert_eq!(output.stdout, elements(&WHOLE));
    let output = zarrfs().args(["info", &node, "--json"]).output().unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&facts["views"]["raw"], &facts["chunk_row_size"]), (&json!(32), &json!(16)));
    mount.mount_again(&[]);
}

#[test]
fn a_description_of_a_node_does_not_make_the_long_texts_of_its_values() {
    let mount = Mount::new(&["--create", "--codecs", "none"]);
    for (name, chunk_len) in [("short", 1 << 10), ("long", 1 << 16)] {
        fs::create_dir_all(mount.at(name).join("c")).unwrap();
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [16 * chunk_len],
            "data_type": "uint64", "fill_value": 0, "attributes": {},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_len]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]
        });
        fs::write(mount.at(name).join("zarr.json"), document.to_string()).unwrap();
        for chunk in 0..16 {
            let chunk = mount.at(name).join("c").join(chunk.to_string());
            fs::write(chunk, vec![7; 8 * chunk_len]).unwrap();
        }
        let text = fs::read_to_string(mount.at(".zarrfs/views").join(name)).unwrap();
        let line = text.lines().find(|line| line.starts_with("csv")).unwrap();
        let node = mount.store().join(name).display().to_string();
        let output = zarrfs().args(["info", &node, "--json"]).output().unwrap();
        let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = fs::read_to_string(mount.at(&format!("{name}.csv"))).unwrap();
        assert_eq!(file.lines().count(), 16 * chunk_len + 1, "the file has all rows");
        if name == "short" {
            assert!(line.ends_with(&format!("short.csv  {} bytes", file.len())), "{line}");
            assert_eq!(facts["views"]["csv"], json!(file.len()));
        } else {
            assert!(line.ends_with("long.csv  has a length once it is opened"), "{line}");
            assert_eq!(facts["views"]["csv"], serde_json::Value::Null);
        }
    }
}

/// Shows: view-write.
#[test]
fn a_copy_onto_a_view_stores_each_value_once_in_the_background() {
    const ROWS: usize = 64;
    for shards in ["none", "[16,64,64]"] {
        let mount = Mount::new(&["--create", "--shards", shards, "--writeback-delay", "1h"]);
        fs::create_dir(mount.at("x")).unwrap();
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [ROWS, 64, 64], "data_type": "uint16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 32, 32]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 7, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {}
        });
        fs::write(mount.at("x/zarr.json"), document.to_string()).unwrap();
        let values: Vec<u16> =
            (0..ROWS * 64 * 64).map(|n| u16::try_from(n * 7 % 60_013).unwrap()).collect();
        let bytes = elements(&values);
        let view = OpenOptions::new().write(true).truncate(true).open(mount.at("x.raw")).unwrap();
        for (at, part) in (0..).zip(bytes.chunks(64 << 10)) {
            view.write_all_at(part, at * (64 << 10)).unwrap();
        }
        let count = |name: &str| {
            let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
            let line = stats.lines().find(|line| line.starts_with(name));
            line.unwrap().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
        };
        let stored = || count("zarrfs_chunks_stored_total");
        // Not because somebody closes it.
        until("all chunks are stored", || stored() >= 8 * 4);
        drop(view);
        assert_eq!(stored(), 8 * 4, "{shards}");
        assert_eq!(fs::read(mount.at("x.raw")).unwrap(), bytes);
        // Again, and what is there is not decoded for it.
        mount.remount(&[]);
        fs::write(mount.at("x.raw"), &bytes).unwrap();
        assert_eq!(count("zarrfs_chunks_decoded_total"), 0, "{shards}");
        assert_eq!(fs::read(mount.at("x.raw")).unwrap(), bytes);
    }
}

/// Shows: close-inherited.
#[test]
fn the_writer_of_a_view_gets_its_error_and_not_a_child_process() {
    let mut mount = mount(&[]);
    let at = mount.at("a/x.raw");
    let file = File::create(&at).unwrap();
    file.write_all_at(&elements(&WHOLE)[..10], 0).unwrap();
    assert!(std::process::Command::new("true").status().unwrap().success());
    file.write_all_at(&elements(&WHOLE)[10..], 10).unwrap();
    drop(file);
    assert_eq!(mount.errors(), "");
    assert_eq!(fs::read(&at).unwrap(), elements(&WHOLE));
    mount.expect("10 of 32 bytes were written");
    let script = format!("head -c 10 /dev/zero 2> /dev/null > {} || exit 7", at.display());
    let bash = std::process::Command::new("bash").args(["-c", &script]).status().unwrap();
    assert_eq!(bash.code(), Some(7), "head was not told");
}

/// Shows: view-coherence.
#[test]
fn pages_of_a_view_are_kept_while_the_store_is_unchanged() {
    let mount = mount(&["--metadata-ttl", "50ms"]);
    let hits = || {
        let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
        let count = |name: &str| {
            let line = stats.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        count("zarrfs_cache_hits_total") + count("zarrfs_chunks_decoded_total")
    };
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    // Bytes that were on their way to the kernel when it dropped what it had are gone by now.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    }
    let before = hits();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&WHOLE));
    }
    assert_eq!(hits(), before, "the kernel has asked for nothing");
    // Another program replaces a chunk, and makes one that was missing.
    let other = mount.store().join("a/x/c/0/other");
    for (to, value) in [("0/0", 50), ("1/1", 60)] {
        let from = mount.store().join("a/x/c/0/1");
        fs::copy(&from, &other).unwrap();
        let stored = fs::read(&from).unwrap();
        assert_eq!(stored.len(), 8, "stored without a compressor");
        fs::write(&other, elements(&[value; 4])).unwrap();
        fs::rename(&other, mount.store().join("a/x/c").join(to)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(60));
    let mut whole = WHOLE;
    for at in [0, 1, 4, 5] {
        whole[at] = 50;
        whole[at + 10] = 60;
    }
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&whole));
}

/// Shows: view-coherence.
#[test]
fn an_open_view_does_not_keep_others_from_seeing_changes() {
    let mount = mount(&["--metadata-ttl", "50ms"]);
    let rows = |file: &File, row: u64| {
        let mut bytes = vec![0; 8];
        file.read_exact_at(&mut bytes, row * 8).unwrap();
        bytes
    };
    let open = || File::open(mount.at("a/x.raw")).unwrap();
    let replace = |chunk: &str, value: u16| {
        let (new, old) = (mount.store().join("a/x/new"), mount.store().join("a/x/c").join(chunk));
        fs::write(&new, elements(&[value; 4])).unwrap();
        fs::rename(&new, old).unwrap();
    };
    // Both are told to drop the pages before either reads; one reads what the other does not.
    let (one, other) = (open(), open());
    assert_eq!(rows(&one, 0).len(), rows(&other, 2).len());
    for round in 0..4 {
        std::thread::sleep(Duration::from_millis(150));
        replace("1/0", 100 + round);
        std::thread::sleep(Duration::from_millis(60));
        let late = open();
        assert_eq!(rows(&late, 2)[..4], elements(&[100 + round; 2]), "round {round}");
        // Through an old descriptor others get pages, too.
        rows(&one, 3);
    }
}

/// Shows: view-remove.
#[test]
fn moves_of_other_nodes_do_not_end_an_open_view() {
    let mount = mount(&[]);
    let open = File::open(mount.at("a/x.raw")).unwrap();
    for _ in 0..1100 {
        fs::create_dir(mount.at("b")).unwrap();
        fs::remove_dir(mount.at("b")).unwrap();
    }
    let mut bytes = [0; 32];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..], elements(&WHOLE));
}

/// Shows: view-replace.
#[test]
fn a_file_whose_rename_onto_a_view_fails_stays() {
    let mut mount = mount(&[]);
    mount.expect("x.raw");
    mount.expect("a/x");
    let new: Vec<u16> = (0..16).collect();
    fs::write(mount.at("scratch"), elements(&new)).unwrap();
    // A directory of chunks is a file there.
    let rows = mount.store().join("a/x/c/1");
    let aside = mount.store().join("aside");
    fs::rename(&rows, &aside).unwrap();
    fs::write(&rows, "").unwrap();
    fs::rename(mount.at("scratch"), mount.at("a/x.raw")).unwrap_err();
    assert_eq!(fs::read(mount.at("scratch")).unwrap(), elements(&new));
    fs::remove_file(&rows).unwrap();
    fs::rename(&aside, &rows).unwrap();
    fs::rename(mount.at("scratch"), mount.at("a/x.raw")).unwrap();
    assert_eq!(fs::read(mount.at("a/x.raw")).unwrap(), elements(&new));
}

/// Shows: view-mapped.
#[test]
fn a_mapped_view_does_not_undo_writes_to_other_files_of_the_array() {
    let mount = mount(&[]);
    let mapped = OpenOptions::new().read(true).write(true).open(mount.at("a/x.raw")).unwrap();
    // SAFETY: the kernel chooses the place; the descriptor is open.
    let address = unsafe {
        let (null, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        libc::mmap(null, 32, access, libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(&mapped), 0)
    };
    assert_ne!(address, libc::MAP_FAILED);
    // SAFETY: so many bytes are mapped there until the end of the test.
    let bytes = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), 32) };
    let read = |bytes: &[u8], at: usize| {
        // SAFETY: the byte is there; the kernel may change it at any time.
        unsafe { std::ptr::read_volatile(&raw const bytes[at]) }
    };
    assert_eq!(*bytes, elements(&WHOLE));
    for (path, value) in [("a/x.npy", 50), ("a/x/c/0/0", 51)] {
        let other = OpenOptions::new().write(true).open(mount.at(path)).unwrap();
        let start = other.metadata().unwrap().len() - if path.ends_with("npy") { 32 } else { 8 };
        other.write_all_at(&[value], start).unwrap();
        drop(other);
        until("the mapping has what was closed", || read(bytes, 0) == value);
        bytes[31] = value;
        // SAFETY: it is mapped there.
        assert_eq!(unsafe { libc::msync(address, 32, libc::MS_SYNC) }, 0);
        let found = fs::read(mount.at("a/x.npy")).unwrap();
        let found = &found[found.len() - 32..];
        assert_eq!((found[0], found[31]), (value, value), "{path}: a byte was undone");
    }
    // SAFETY: it was mapped so.
    unsafe { libc::munmap(address, 32) };
}
