//! `zarrfs create`: what it makes, and what it refuses.

use std::path::Path;

use crate::support::{said, zarrfs};

/// Runs `zarrfs` with these words, `{}` standing for `dir`, and gives what it printed.
fn run(dir: &Path, words: &[&str]) -> String {
    let here = dir.to_str().unwrap();
    let words: Vec<String> = words.iter().map(|word| word.replace("{}", here)).collect();
    let done = zarrfs().args(&words).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {error}");
    String::from_utf8(done.stdout).unwrap().replace(here, "{}")
}

#[test]
fn every_dialect_gets_arrays_and_the_groups_above_them() {
    for format in ["v3", "v2", "n5", "d2020-10", "d2020-09", "d2019-06", "d2019-05"] {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let words = ["create", "{}/a.zarr/g/x", "--shape", "365,721,1440", "--dtype", "float32"];
        let more = ["--dimensions", "time,lat,lon", "--attrs", r#"{"units": "K"}"#];
        let made = run(dir, &[&words[..], &more, &["--format", format]].concat());
        let array = "float32 365 x 721 x 1440, chunks 46 x 46 x 90";
        assert!(made.starts_with(&format!("{{}}/a.zarr/g/x  {array}")), "{format}: {made}");
        assert!(made.ends_with(&format!(" ({format})\n")), "{format}: {made}");
        // In what is there its dialect is known.
        let made = run(dir, &["create", "{}/a.zarr/g/h/y", "--shape", "5", "--dtype", "int16"]);
        assert!(made.contains("int16 5, chunks 5"), "{format}: {made}");
        run(dir, &["create", "{}/a.zarr/k", "--attrs", r#"{"a": 1}"#]);
        let tree = run(dir, &["tree", "{}/a.zarr"]);
        for part in ["g/", "x  ", "h/", "y  ", "k/", format] {
            assert!(tree.contains(part), "{format} {part}: {tree}");
        }
        let found = run(dir, &["info", "--json", "{}/a.zarr/g/x"]);
        assert!(found.contains(r#""units": "K""#) && found.contains(r#""lat""#), "{found}");
        let (code, sentence) = said(&["create", dir.join("a.zarr/g/x").to_str().unwrap()]);
        assert_eq!(code, 1, "{sentence}");
        assert!(sentence.contains("already exists"), "{sentence}");
    }
}

#[test]
fn an_array_has_the_requested_properties() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let words = ["create", "{}/a.zarr", "--shape", "8,8", "--dtype", "float32", "--chunks", "2,4"];
    let more = ["--shards", "4,8", "--codecs", "blosc,crc32c", "--fill", "-Infinity"];
    let made = run(dir, &[&words[..], &more].concat());
    let array = "float32 8 x 8, chunks 2 x 4, shards 4 x 8, blosc(";
    assert!(made.starts_with(&format!("{{}}/a.zarr  {array}")), "{made}");
    assert!(made.ends_with(") + crc32c (v3)\n"), "{made}");
    let found = run(dir, &["info", "--json", "{}/a.zarr"]);
    assert!(found.contains(r#""fill_value": "-Infinity""#), "{found}");
    let made = run(dir, &["create", "{}/s.zarr/s", "--shape", "scalar", "--dtype", "bool"]);
    assert!(made.contains("bool scalar"), "{made}");
    let made = run(dir, &["create", "{}/plain/sub", "--format", "v2"]);
    assert_eq!(made, "{}/plain/sub  group (v2)\n");
    assert!(dir.join("plain/sub/.zgroup").exists() && !dir.join("plain/.zgroup").exists());
}

#[test]
fn no_node_is_created_under_a_reserved_name() {
    for format in ["v3", "v2", "n5", "d2020-10"] {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        run(dir, &["create", "{}/a.zarr", "--format", format]);
        run(dir, &["create", "{}/a.zarr/g"]);
        let before = run(dir, &["tree", "{}/a.zarr"]);
        let here = dir.to_str().unwrap();
        for name in
            ["a.zarr/.zarrfs", "a.zarr/.zarrfs/x", "a.zarr/g/.zarrfs/x/y", "a.zarr/x.__lock"]
        {
            for more in [&[][..], &["--shape", "4", "--dtype", "f4"]] {
                let path = format!("{here}/{name}");
                let (code, sentence) = said(&[&["create", path.as_str()], more].concat());
                assert_eq!(code, 1, "{format} {name}: {sentence}");
                assert!(sentence.contains("reserved for zarrfs"), "{name}: {sentence}");
            }
        }
        assert_eq!(run(dir, &["tree", "{}/a.zarr"]), before);
        assert!(!dir.join("a.zarr/.zarrfs").exists());
        let path = format!("{here}/new.zarr/.zarrfs");
        let (code, sentence) = said(&["create", &path, "--format", format]);
        assert_eq!(code, 1, "{format}: {sentence}");
        assert!(!dir.join("new.zarr").exists(), "{format}: something was made");
    }
}

#[test]
fn several_programs_create_nodes_of_a_new_hierarchy_at_once() {
    for format in ["v3", "v2", "d2020-10"] {
        for _ in 0..5 {
            let place = tempfile::tempdir().unwrap();
            let make = |name: &str| {
                let path = place.path().join("a.zarr").join(name);
                let words = ["create", path.to_str().unwrap(), "--format", format];
                said(&[&words[..], &["--shape", "4", "--dtype", "int8"]].concat())
            };
            let ends: Vec<(i32, String)> = std::thread::scope(|scope| {
                let names = ["g/a", "g/b", "c", "h/d", "same", "same"];
                let threads: Vec<_> = names.iter().map(|name| scope.spawn(|| make(name))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let good = ends.iter().filter(|(code, _)| *code == 0).count();
            assert_eq!(good, 5, "{format}: {ends:?}");
            let refused = ends.iter().find(|(code, _)| *code != 0).unwrap();
            let is_named = refused.1.contains("already exists")
                || refused.1.contains("another program has just created it");
            assert!(refused.0 == 1 && is_named, "{refused:?}");
        }
    }
}

#[test]
fn a_data_type_can_have_its_name_in_numpy() {
    let place = tempfile::tempdir().unwrap();
    let names = [
        ("f2", "float16"),
        ("f4", "float32"),
        ("f8", "float64"),
        ("i1", "int8"),
        ("i8", "int64"),
        ("u1", "uint8"),
        ("u4", "uint32"),
        ("b1", "bool"),
        ("c8", "complex64"),
        ("<f4", "float32"),
        (">i2", "int16"),
    ];
    for (at, (name, dtype)) in names.into_iter().enumerate() {
        let path = format!("{{}}/a.zarr/{at}");
        let made = run(place.path(), &["create", &path, "--shape", "4", "--dtype", name]);
        assert!(made.contains(&format!("  {dtype} 4")), "{name}: {made}");
    }
    for name in ["f3", "<<f4", "x", ""] {
        let path = place.path().join("a.zarr/none");
        let words = ["create", path.to_str().unwrap(), "--shape", "4", "--dtype", name];
        let (code, sentence) = said(&words);
        assert_eq!(code, 1, "{name}: {sentence}");
    }
}

#[test]
fn invalid_arguments_are_refused_and_leave_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    run(dir, &["create", "{}/v2.zarr", "--format", "v2"]);
    std::fs::create_dir(dir.join("files")).unwrap();
    std::fs::write(dir.join("files/notes"), "x").unwrap();
    let array = |path: &'static str, more: &[&'static str]| {
        [&["create", path, "--shape", "4,4", "--dtype", "int8"], more].concat()
    };
    for (words, code, part) in [
        (array("{}/v2.zarr/x", &["--format", "v3"]), 2, "has the dialect v2"),
        (array("{}/v2.zarr/x", &["--shards", "8,8"]), 1, "no shards"),
        (array("{}/n.zarr/x", &["--chunks", "2"]), 1, "do not fit"),
        (array("{}/n.zarr/x", &["--chunks", "0,1"]), 1, "at least 1"),
        (array("{}/n.zarr/x", &["--shards", "[2]"]), 2, "--shards"),
        (array("{}/n.zarr/x", &["--chunks", "3,4", "--shards", "7"]), 1, "--shards 7: shards of 7"),
        (array("{}/n.zarr/x", &["--chunks", "3,4", "--shards", "7"]), 1, "of shape [3, 4], which"),
        (array("{}/n.zarr/x", &["--chunks", "2,2", "--shards", "7"]), 1, "like [4, 4]"),
        (array("{}/n.zarr/x", &["--chunks", ""]), 2, "--chunks"),
        (array("{}/n.zarr/x", &["--fill", "half"]), 1, "fill_value \"half\" is not a valid"),
        (array("{}/n.zarr/x", &["--format", "n5", "--fill", "1"]), 1, "N5"),
        (array("{}/n.zarr/x", &["--format", "d2022-12"]), 1, "no program reads"),
        (array("{}/files", &[]), 1, "neither a hierarchy nor an empty directory"),
        (array("{}/files/notes/x", &[]), 1, "not a directory"),
        (vec!["create", "{}/n.zarr/x", "--shape", "4"], 2, "--dtype"),
        (vec!["create", "{}/n.zarr/x", "--shape", "4", "--dtype", "int7"], 1, "int7"),
        (vec!["create", "{}/n.zarr/x", "--attrs", "[]"], 2, "JSON object"),
        (vec!["create", "s3://bucket/x"], 1, "s3://bucket/x"),
    ] {
        let words: Vec<String> =
            words.iter().map(|word| word.replace("{}", dir.to_str().unwrap())).collect();
        let (found, sentence) = said(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found, code, "{words:?}: {sentence}");
        assert!(sentence.contains(part), "{words:?} says\n  {sentence}\nwithout\n  {part}");
        assert!(!dir.join("n.zarr").exists(), "{words:?} left something");
    }
    assert_eq!(std::fs::read_dir(dir.join("v2.zarr")).unwrap().count(), 1);
}
