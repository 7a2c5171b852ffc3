//! The same type, value and attribute in every presentation of a hierarchy: what a metadata file
//! says is kept by `convert`, by copies within a mount and by writing back what was read, or there
//! is an error.

use std::fs;
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Mount, json_of, set_xattr, zarrfs};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes a file, and returns the error of its close, which `fs::write` drops.
fn write_and_close(path: &Path, text: &[u8]) -> Result<(), i32> {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(text).unwrap();
    // SAFETY: the descriptor is ours, and nobody uses it after this.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

fn zarray(dtype: &Value, more: &Value) -> String {
    let mut document = json!({
        "zarr_format": 2, "shape": [2], "chunks": [2], "order": "C", "fill_value": null, "compressor": null,
        "filters": null, "dtype": dtype,
    });
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    document.to_string()
}

/// Types with arrays in fields, with structures in structures, with text and with both.
fn structures() -> Vec<(Value, usize)> {
    vec![
        (json!([["x", "<i4"], ["y", "<f8", [2]]]), 20),
        (json!([["x", "<i4"], ["s", [["t", "|S3", [2, 2]], ["u", "<U2"]]]]), 24),
        (json!([["a", "|u1", [1]], ["b", [["c", "<i2", [3]]], [2]]]), 13),
    ]
}

fn with_structures(store: &Path) {
    write(&store.join(".zgroup"), "{\"zarr_format\": 2}");
    for (index, (dtype, len)) in structures().iter().enumerate() {
        write(&store.join(format!("a{index}/.zarray")), &zarray(dtype, &json!({})));
        let bytes: Vec<u8> = (0..2 * len).map(|at| u8::try_from(at).unwrap()).collect();
        fs::write(store.join(format!("a{index}/0")), bytes).unwrap();
    }
}

fn copy_all(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").args([from, to]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn fields_that_are_arrays_stay_arrays_in_copies() {
    for options in [&["--as", "zarr2"][..], &[]] {
        let mount = Mount::of(with_structures, options);
        for (index, (dtype, _)) in structures().iter().enumerate() {
            let (name, copied) = (format!("a{index}"), format!("copy{index}"));
            copy_all(&mount.at(&name), &mount.at(&copied));
            let stored = json_of(&mount.store().join(copied).join(".zarray"));
            assert_eq!(stored["dtype"], *dtype, "{options:?}");
        }
        mount.unmount();
    }
}

#[test]
fn fields_that_are_arrays_stay_arrays_in_other_dialects() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    with_structures(&at("a.zarr"));
    let text = |name: &str| at(name).display().to_string();
    for (from, to, format) in
        [("a.zarr", "b.zarr", "v2"), ("a.zarr", "c.zarr", "v3"), ("c.zarr", "d.zarr", "v2")]
    {
        let (code, said) =
            crate::support::said(&["convert", &text(from), &text(to), "--format", format]);
        assert_eq!(code, 0, "{said}");
    }
    for (index, (dtype, _)) in structures().iter().enumerate() {
        for copy in ["b.zarr", "d.zarr"] {
            let stored = json_of(&at(copy).join(format!("a{index}/.zarray")));
            assert_eq!(stored["dtype"], *dtype, "{copy}");
        }
    }
    for copy in ["b.zarr", "c.zarr", "d.zarr"] {
        let (code, said) = crate::support::said(&["diff", &text("a.zarr"), &text(copy)]);
        assert_eq!(code, 0, "{said}");
    }
}

#[test]
fn diff_tells_raw_bytes_from_fields_that_are_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let array = |dtype: &Value| zarray(dtype, &json!({}));
    write(&one.join(".zarray"), &array(&json!([["x", "<i4"], ["y", "<f8", [2]]])));
    write(&two.join(".zarray"), &array(&json!([["x", "<i4"], ["y", "|V16"]])));
    let done = zarrfs().arg("diff").args([&one, &two]).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stdout).contains("data_type"), "{done:?}");
}

#[test]
fn diff_compares_the_parts_of_complex_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, number: [f64; 2]| {
        let array = dir.path().join(name);
        write(
            &array.join(".zarray"),
            &zarray(&json!("<c16"), &json!({"shape": [1], "chunks": [1]})),
        );
        fs::write(array.join("0"), number.map(f64::to_le_bytes).concat()).unwrap();
        array.to_str().unwrap().to_owned()
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (one, two, more, code) in [
        ([nan, 2.0], [nan, 3.0], None, 1),
        ([2.0, nan], [3.0, nan], None, 1),
        ([nan, 2.0], [2.0, nan], None, 1),
        ([nan, nan], [nan, 0.0], None, 1),
        ([nan, 2.0], [-nan, 2.0], None, 0),
        ([inf, nan], [inf, nan], None, 0),
        ([nan, 2.0], [nan, 3.0], Some("--tolerance=1"), 0),
        ([nan, 2.0], [nan, 4.0], Some("--tolerance=1"), 1),
        ([inf, 2.0], [1.0, 2.0], Some("--tolerance=1"), 1),
        ([1.0, 2.0], [1.5, 2.5], Some("--tolerance=1"), 0),
    ] {
        let paths = [at("one", one), at("two", two)];
        let [first, second] = paths.each_ref().map(String::as_str);
        let args: Vec<&str> = ["diff", first, second].into_iter().chain(more).collect();
        let (found, said) = crate::support::said(&args);
        assert_eq!(found, code, "{one:?} {two:?} {more:?}: {said}");
    }
}

#[test]
fn a_copy_in_zarr_2_whose_fill_value_masks_nothing_equals_its_source() {
    for (more, names) in [(json!({}), json!(["x"])), (json!({"shape": []}), json!([]))] {
        let dir = tempfile::tempdir().unwrap();
        let [source, copy] = ["a", "b"].map(|name| dir.path().join(name));
        let shape = more.get("shape").cloned().unwrap_or_else(|| json!([2]));
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": shape,
            "data_type": "float32", "fill_value": "NaN", "dimension_names": names,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": {"name": "default"}, "attributes": {}});
        write(&source.join("zarr.json"), &document.to_string());
        let [one, two] = [&source, &copy].map(|path| path.to_str().unwrap());
        let (code, said) = crate::support::said(&["convert", one, two, "--format", "v2"]);
        assert_eq!(code, 0, "{said}");
        let (code, said) = crate::support::said(&["diff", one, two]);
        assert_eq!(code, 0, "{said}");
        // Of two arrays in one version of Zarr, one states it.
        let mut stated = document.clone();
        stated["attributes"] = json!({"_FillValue": "AAAAAAAA+H8="});
        write(&copy.join("zarr.json"), &stated.to_string());
        fs::remove_file(copy.join(".zarray")).unwrap();
        fs::remove_file(copy.join(".zattrs")).unwrap();
        let (code, said) = crate::support::said(&["diff", one, two]);
        assert_eq!(code, 1, "{said}");
    }
}

#[test]
fn objects_that_are_written_back_unchanged_stay_as_they_are() {
    let list = json!([1, "1", null, {"x": [1, 2]}, [], 1.5, true, "", "|O", [8]]);
    let make = |store: &Path| {
        let more =
            json!({"shape": [8], "chunks": [8], "filters": [{"id": "json2", "encoding": "utf-8"}]});
        write(&store.join(".zarray"), &zarray(&json!("|O"), &more));
        write(&store.join("0"), &list.to_string());
    };
    let mount = Mount::of(make, &[]);
    let shown = fs::read(mount.at("c/0")).unwrap();
    fs::write(mount.at("c/0"), &shown).unwrap();
    assert_eq!(json_of(&mount.store().join("0")), list);
    // Another element becomes a string, and the rest stays.
    let mut changed = shown.clone();
    let at = changed.windows(4).position(|window| window == b"true").unwrap();
    changed[at..at + 4].copy_from_slice(b"TRUE");
    fs::write(mount.at("c/0"), &changed).unwrap();
    let mut expected = list.clone();
    expected[6] = json!("TRUE");
    assert_eq!(json_of(&mount.store().join("0")), expected);
    mount.unmount();
}

#[test]
fn an_array_that_is_not_understood_keeps_its_attributes_as_zarr_2() {
    let attributes = json!({"kind": "reference", "columns": ["start", "target"]});
    let make = |store: &Path| {
        write(&store.join(".zgroup"), "{\"zarr_format\": 2}");
        let more = json!({"filters": [{"id": "pickle", "protocol": 5}]});
        let dtype = json!([["start", "<i4"], ["target", "|O"]]);
        write(&store.join("a/.zarray"), &zarray(&dtype, &more));
        write(&store.join("a/.zattrs"), &attributes.to_string());
    };
    let mut mount = Mount::of(make, &["--as", "zarr2"]);
    mount.expect("is not known");
    assert_eq!(json_of(&mount.at("a/.zattrs")), attributes);
    assert!(json_of(&mount.at("a/.zarray")).get("attributes").is_none());
    let copies = json_of(&mount.at(".zmetadata"));
    assert_eq!(copies["metadata"]["a/.zattrs"], attributes);
    mount.unmount();
}

/// A Zarr 3 array with the chunk 0 of 2, whose fill value masks nothing.
fn unmasked(store: &Path, dtype: &str, fill: &Value) {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": fill, "dimension_names": ["x"],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
    });
    write(&store.join("zarr.json"), &document.to_string());
    let len = if dtype == "float64" { 16 } else { 4 };
    fs::create_dir(store.join("c")).unwrap();
    fs::write(store.join("c/0"), vec![0; len]).unwrap();
}

#[test]
fn a_fill_value_that_masks_nothing_masks_nothing_in_zarr_2() {
    for (dtype, fill, item) in [
        ("float64", json!(5.0), 5_f64.to_le_bytes().to_vec()),
        ("float64", json!(-0.0), (-0_f64).to_le_bytes().to_vec()),
        ("float64", json!("Infinity"), f64::INFINITY.to_le_bytes().to_vec()),
        ("int16", json!(-1), vec![255, 255]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.zarr"), dir.path().join("b.zarr"));
        unmasked(&from, dtype, &fill);
        let paths = [&from, &to].map(|path| path.display().to_string());
        let (code, said) =
            crate::support::said(&["convert", &paths[0], &paths[1], "--format", "v2", "--verify"]);
        assert_eq!(code, 0, "{said}");
        let stored = json_of(&to.join(".zarray"));
        assert_eq!(stored["fill_value"], Value::Null, "xarray masks any other value");
        assert_eq!(stored["compressor"], Value::Null);
        // The chunk that was missing.
        assert_eq!(fs::read(to.join("1")).unwrap(), item.repeat(2), "{fill}");
    }
}

#[test]
fn a_new_array_is_refused_if_zarr_2_would_change_its_missing_chunks() {
    let mut mount = Mount::of(|s| write(&s.join(".zgroup"), "{\"zarr_format\": 2}"), &[]);
    mount.expect("cannot be expressed");
    let other = tempfile::tempdir().unwrap();
    unmasked(other.path(), "int16", &json!(-1));
    let document = fs::read(other.path().join("zarr.json")).unwrap();
    fs::create_dir(mount.at("a")).unwrap();
    assert_eq!(write_and_close(&mount.at("a/zarr.json"), &document), Err(libc::EINVAL));
    assert!(mount.errors().contains("fill_value"), "{}", mount.errors());
    mount.unmount();
}

fn named(store: &Path) {
    let more = json!({"dtype": "<f8", "fill_value": -9999.0});
    write(&store.join(".zarray"), &zarray(&json!("<f8"), &more));
    write(&store.join(".zattrs"), "{\"_ARRAY_DIMENSIONS\": [\"x\"]}");
    fs::write(store.join("0"), [0; 16]).unwrap();
}

#[test]
fn an_attribute_that_cannot_be_stored_is_refused_and_changes_nothing() {
    let mut mount = Mount::of(named, &[]);
    mount.expect("cannot");
    mount.expect("_FillValue");
    let before = (mount.stored(), json_of(&mount.at("zarr.json")));
    for (name, value) in [
        ("_FillValue", "\"NaN\""),
        ("_FillValue", "-1"),
        ("_FillValue", "[1]"),
        ("_ARRAY_DIMENSIONS", "1"),
        ("_ARRAY_DIMENSIONS", "null"),
        ("_ARRAY_DIMENSIONS", "[\"x\", \"y\"]"),
    ] {
        let set = set_xattr(&mount.path(), &format!("user.attrs.{name}"), value);
        assert_eq!(set, Err(libc::EINVAL), "{name} {value}");
        assert_eq!((mount.stored(), json_of(&mount.at("zarr.json"))), before, "{name} {value}");
    }
    mount.unmount();
}

fn image(store: &Path) {
    let axes = json!([{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]);
    let datasets = json!([{"path": "0"}, {"path": "deep/1"}]);
    let ome = json!({"multiscales": [{"version": "0.4", "axes": axes, "datasets": datasets}]});
    write(&store.join(".zgroup"), "{\"zarr_format\": 2}");
    write(&store.join(".zattrs"), &ome.to_string());
    write(&store.join("deep/.zgroup"), "{\"zarr_format\": 2}");
    for name in ["0", "deep/1", "other"] {
        let more = json!({"shape": [2, 2], "chunks": [2, 2], "fill_value": 0});
        write(&store.join(name).join(".zarray"), &zarray(&json!("|u1"), &more));
        fs::write(store.join(name).join("0.0"), [1, 2, 3, 4]).unwrap();
    }
}

#[test]
fn an_image_of_ome_zarr_0_4_names_its_dimensions_in_0_5() {
    let mount = Mount::of(image, &[]);
    let names = |document: &Value| document.get("dimension_names").cloned();
    for name in ["0", "deep/1"] {
        assert_eq!(names(&json_of(&mount.at(name).join("zarr.json"))), Some(json!(["y", "x"])));
    }
    assert_eq!(names(&json_of(&mount.at("other/zarr.json"))), None);
    mount.unmount();
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new.zarr"), dir.path().join("old.zarr"));
    let (store, new, old) = (mount.store(), new.as_path(), old.as_path());
    for (from, to, format) in [(store.as_path(), new, "v3"), (new, old, "v2")] {
        let paths = [from, to].map(|path| path.display().to_string());
        let (code, said) =
            crate::support::said(&["convert", &paths[0], &paths[1], "--format", format]);
        assert_eq!(code, 0, "{said}");
        let (code, said) = crate::support::said(&["diff", &paths[0], &paths[1]]);
        assert_eq!(code, 0, "{said}");
    }
    assert_eq!(names(&json_of(&new.join("0/zarr.json"))), Some(json!(["y", "x"])));
    // There and back leaves no attribute of xarray.
    assert!(!old.join("0/.zattrs").exists());
}

#[test]
fn a_copy_out_of_zarr_2_has_the_fill_value_where_chunks_are_missing() {
    let mount = Mount::of(|store| unmasked(store, "int16", &json!(-1)), &["--as", "zarr2"]);
    let dir = tempfile::tempdir().unwrap();
    copy_all(&mount.path(), &dir.path().join("copy"));
    let copy = dir.path().join("copy");
    assert_eq!(json_of(&copy.join(".zarray"))["fill_value"], Value::Null);
    assert_eq!(fs::read(copy.join("0")).unwrap(), [0; 4]);
    assert_eq!(fs::read(copy.join("1")).unwrap(), [255; 4]);
    mount.unmount();
}

#[test]
fn names_that_come_later_mask_nothing_in_zarr_2() {
    let make = |store: &Path| {
        write(&store.join(".zgroup"), "{\"zarr_format\": 2}");
        for (name, fill) in [("zero", 0), ("one", 1)] {
            let path = store.join(name).join(".zarray");
            write(&path, &zarray(&json!("<i4"), &json!({"fill_value": fill})));
            fs::write(store.join(name).join("0"), [0; 8]).unwrap();
        }
    };
    let mut mount = Mount::of(make, &[]);
    mount.expect("cannot get names");
    for (name, result) in [("zero", Ok(())), ("one", Err(libc::EINVAL))] {
        let path = mount.at(name).join("zarr.json");
        let mut document = json_of(&path);
        document["dimension_names"] = json!(["x"]);
        assert_eq!(write_and_close(&path, document.to_string().as_bytes()), result, "{name}");
        assert_eq!(json_of(&path)["attributes"], json!({}), "{name} is masked");
    }
    assert_eq!(json_of(&mount.store().join("zero/.zarray"))["fill_value"], Value::Null);
    mount.unmount();
}

/// Shows: document-copy.
#[test]
fn a_copy_within_a_mount_is_stored_like_its_source() {
    for (fixture, array) in [
        ("z218v3__shard_2x2_gzip", "arr"),
        ("z218v2__filters", "delta"),
        ("gdal36v3__compressors", "gzip"),
    ] {
        let mount = Mount::fixture(fixture, &[]);
        copy_all(&mount.at(array), &mount.at("copy"));
        let texts = |name: &str| -> Vec<Vec<u8>> {
            let is_of_it = |key: &str| {
                key.contains(&format!("{name}.array")) || key.contains(&format!("{name}/.z"))
            };
            mount
                .stored()
                .into_iter()
                .filter(|(key, _)| is_of_it(key))
                .map(|(_, text)| text)
                .collect()
        };
        assert!(!texts(array).is_empty() && texts(array) == texts("copy"), "{fixture}/{array}");
        mount.unmount();
        let store = mount.store();
        let paths = [array, "copy"].map(|name| store.join(name).display().to_string());
        let (code, said) = crate::support::said(&["diff", &paths[0], &paths[1]]);
        assert_eq!(code, 0, "{said}");
    }
    // What a user asks for decides.
    let mount = Mount::fixture("z218v3__shard_2x2_gzip", &["--codecs", "none"]);
    copy_all(&mount.at("arr"), &mount.at("copy"));
    let keys = mount.stored().into_iter().map(|(key, _)| key);
    assert_eq!(keys.filter(|key| key.starts_with("data/root/copy/c")).count(), 9, "no shards");
    mount.unmount();
}

#[test]
fn a_message_names_a_codec_as_the_metadata_file_does() {
    let make = |store: &Path| {
        let more = json!({"compressor": {"id": "lab_codec"}});
        write(&store.join(".zarray"), &zarray(&json!("|u1"), &more));
    };
    let mut mount = Mount::of(make, &[]);
    mount.expect("is not known");
    let shown = zarrfs().arg("info").arg(mount.store()).output().unwrap();
    let said = String::from_utf8_lossy(&shown.stdout);
    assert!(said.contains("codec \"lab_codec\" is not known"), "{said}");
    mount.unmount();
}
