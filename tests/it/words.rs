//! Unsupported, refused, missing and damaged are four things, and zarrfs removes only what it made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Mount, copy, set_xattr, zarrfs};

/// What a run of the program said.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

fn run(args: &[&str]) -> Said {
    let output = zarrfs().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap();
    Said { code, out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs `check` on a path.
fn check(path: &Path, options: &[&str]) -> Said {
    run(&[&["check", path.to_str().unwrap()], options].concat())
}

fn put(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Every file below a directory, with its bytes.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

fn array(codecs: &[&str]) -> Value {
    let codecs: Vec<Value> = codecs.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": codecs,
        "attributes": {},
    })
}

fn zarray() -> Value {
    json!({
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "fill_value": 0,
        "order": "C", "compressor": null, "filters": null,
    })
}

/// References to the four bytes at `url`.
fn references(url: &str) -> String {
    let zarray = zarray().to_string();
    let refs = json!({".zgroup": "{\"zarr_format\":2}", "v/.zarray": zarray, "v/0": [url, 0, 4]});
    json!({ "version": 1, "refs": refs }).to_string()
}

/// A dataset of N5 with one block in a mode that zarrfs does not read, after `mode`.
fn n5(dir: &Path, block: &[u8]) {
    put(dir, "attributes.json", json!({"n5": "2.5.1"}).to_string());
    let attributes = json!({
        "dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"},
    });
    put(dir, "lbl/attributes.json", attributes.to_string());
    put(dir, "lbl/0", block);
}

#[test]
fn a_form_that_zarrfs_does_not_read_is_not_damage_and_is_not_moved_away() {
    let dir = tempfile::tempdir().unwrap();
    let (store, quarantine) = (dir.path().join("a.n5"), dir.path().join("q"));
    // Six bytes in varlength mode.
    n5(&store, &[0, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 6, 1, 2, 3, 4, 5, 6]);
    let before = files(&store);
    let said = check(&store, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("unchecked unsupported lbl/0"), "{said:?}");
    assert!(said.err.contains("0 checked") && said.err.contains("1 not checked: 1 unsupported"));
    assert_eq!(check(&store, &["--strict"]).code, 3);
    let options = ["--repair", "--yes", "--quarantine", quarantine.to_str().unwrap()];
    assert_eq!(check(&store, &options).code, 0);
    assert_eq!(files(&store), before);
    // The same mode with what does not fit it is damage.
    n5(&store, &[0, 1, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4]);
    let said = check(&store, &[]);
    assert!(said.code == 3 && said.out.contains("damaged undecodable lbl/0"), "{said:?}");
}

#[test]
fn label_multisets_are_known_by_their_attributes() {
    let dir = tempfile::tempdir().unwrap();
    n5(dir.path(), &[0, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 6, 1, 2, 3, 4, 5, 6]);
    let path = dir.path().join("lbl/attributes.json");
    let mut attributes: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    attributes["isLabelMultiset"] = true.into();
    fs::write(&path, attributes.to_string()).unwrap();
    let said = check(dir.path(), &[]);
    assert!(said.code == 0 && said.out.contains("label multisets"), "{said:?}");
    assert!(said.err.contains("1 not checked: 1 unsupported"), "{said:?}");
    assert_eq!(check(dir.path(), &["--strict"]).code, 3);
}

#[test]
fn chunks_of_a_data_type_that_is_not_known_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut unknown = array(&["bytes"]);
    unknown["data_type"] = "hexadecimal".into();
    put(dir.path(), "zarr.json", unknown.to_string());
    for chunk in ["c/0", "c/1"] {
        put(dir.path(), chunk, [1, 2]);
    }
    let said = check(dir.path(), &[]);
    assert!(said.code == 0 && said.out.starts_with("note unknown zarr.json"), "{said:?}");
    assert!(said.err.contains("2 not checked: 2 unsupported"), "{said:?}");
    assert_eq!(check(dir.path(), &["--strict"]).code, 3);
}

#[test]
fn what_may_not_be_read_is_refused_and_what_is_not_there_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let data = put(dir.path(), "data/a.bin", [1, 2, 3, 4]);
    let refs = put(dir.path(), "refs/r.json", references(data.to_str().unwrap()));
    let said = check(&refs, &[]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.starts_with("unchecked refused v/0"), "{said:?}");
    let remedy = format!("r.json --allow-virtual {}`", data.parent().unwrap().display());
    assert!(said.out.contains("`zarrfs check ") && said.out.contains(&remedy), "{said:?}");
    assert!(said.err.contains("1 not checked: 1 refused") && !said.err.contains("mount with"));
    let allow = ["--allow-virtual", data.parent().unwrap().to_str().unwrap()];
    assert_eq!(check(&refs, &allow).code, 0);
    fs::remove_file(&data).unwrap();
    let said = check(&refs, &allow);
    assert!(said.code == 1 && said.out.starts_with("unchecked missing-target v/0"), "{said:?}");
    assert_eq!(check(&refs, &[&allow[..], &["--strict"]].concat()).code, 3);
}

#[test]
fn links_that_lead_out_are_refused_and_links_that_lead_nowhere_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("a");
    put(&store, "zarr.json", array(&["bytes"]).to_string());
    fs::create_dir(store.join("c")).unwrap();
    let outside = put(dir.path(), "outside", [1, 2]);
    symlink(&outside, store.join("c/0")).unwrap();
    symlink("nowhere", store.join("c/1")).unwrap();
    let said = check(&store, &[]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("unchecked refused c/0: a symbolic link that leads out"), "{said:?}");
    assert!(said.out.contains("unchecked missing-target c/1"), "{said:?}");
    assert!(said.err.contains("2 not checked: 1 refused, 1 missing"), "{said:?}");
}

#[test]
fn every_spelling_of_a_path_below_the_references_is_read_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "data/a.bin", [1, 2, 3, 4]);
    put(dir.path(), "secret.bin", [9, 9, 9, 9]);
    fs::create_dir(dir.path().join("data/sub")).unwrap();
    let root = dir.path().to_str().unwrap();
    let absolute = |path: &str| format!("{root}/{path}");
    for url in [
        "a.bin",
        "./a.bin",
        ".//a.bin",
        "sub/../a.bin",
        "../data/a.bin",
        &absolute("data//./a.bin"),
        &absolute("other/../data/a.bin"),
        &format!("file://{root}/data/./a.bin"),
        &format!("file://localhost{root}/data/a.bin"),
    ] {
        let refs = put(dir.path(), "data/r.json", references(url));
        let cat = run(&["cat", &format!("{}#v", refs.display()), "--as", "raw"]);
        assert_eq!((cat.code, cat.out.as_bytes()), (0, &[1, 2, 3, 4][..]), "{url}: {cat:?}");
    }
    for url in ["../secret.bin", "sub/../../secret.bin", &absolute("data/../secret.bin")] {
        let refs = put(dir.path(), "data/r.json", references(url));
        assert_eq!(check(&refs, &[]).code, 1, "{url}");
        let output = zarrfs()
            .current_dir(dir.path().join("data"))
            .args(["cat", "r.json#v", "--as", "raw", "--allow-virtual", ".."])
            .output()
            .unwrap();
        assert_eq!(output.stdout, [9, 9, 9, 9], "{url}");
    }
}

#[test]
fn sources_are_recognised_without_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a.bin", [1, 2, 3, 4]);
    let refs = put(dir.path(), "r.json", references("a.bin"));
    let only = dir.path().join("only copies");
    let copies = json!({".zgroup": {"zarr_format": 2}, "a/.zarray": zarray(), "a/.zattrs": {"k": 1},
        "empty/.zarray": zarray()});
    let copies = json!({"zarr_consolidated_format": 1, "metadata": copies});
    put(&only, ".zmetadata", copies.to_string());
    put(&only, "a/0", [1, 2, 3, 4]);
    let url = format!("file://{}", only.display().to_string().replace(' ', "%20"));
    for (source, node) in [
        (refs.to_str().unwrap().to_owned(), "v"),
        (format!("file://{}", refs.display()), "v"),
        (only.to_str().unwrap().to_owned(), "a"),
        (url, "a"),
    ] {
        let tree = run(&["tree", &source]);
        assert!(tree.code == 0 && tree.out.contains(&format!(" {node} ")), "{source}: {tree:?}");
        let said = run(&["check", &source]);
        assert!(said.code == 0 && said.err.contains("1 checked"), "{source}: {said:?}");
    }
    assert!(run(&["tree", only.to_str().unwrap()]).out.contains("empty"));
    let cat = run(&["cat", only.join("a").to_str().unwrap(), "--as", "raw"]);
    assert_eq!(cat.out.as_bytes(), [1, 2, 3, 4], "{cat:?}");
}

#[test]
#[cfg(feature = "parquet")]
fn references_in_parquet_files_are_recognised() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kerchunk");
    let path = fixtures.join("fastparquet_3/refs.parq").display().to_string();
    let (named, bare) = (run(&["tree", &format!("kerchunk+{path}")]), run(&["tree", &path]));
    assert_eq!((bare.code, named.code), (0, 0), "{bare:?} {named:?}");
    assert_eq!(
        bare.out.lines().skip(1).collect::<Vec<_>>(),
        named.out.lines().skip(1).collect::<Vec<_>>()
    );
    assert!(bare.out.contains("deep") && bare.out.contains("7 x 4"), "{bare:?}");
    let checked = run(&["check", &path]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let value = zarrfs().args(["cat", &format!("{path}#a"), "--as", "raw"]).output().unwrap();
    assert_eq!((value.stdout.len(), value.stderr.as_slice()), (28, &b""[..]));
    // Consolidated metadata is not enough.
    let dir = tempfile::tempdir().unwrap();
    put(
        dir.path(),
        ".zmetadata",
        json!({"metadata": {}, "zarr_consolidated_format": 1}).to_string(),
    );
    let said = run(&["tree", &format!("kerchunk+{}", dir.path().display())]);
    assert!(said.code == 1 && said.err.contains("record_size"), "{said:?}");
}

#[test]
fn a_repository_of_icechunk_is_recognised() {
    for library in ["library1_spec1", "library2_spec2"] {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/icechunk");
        let repository = fixtures.join(library).join("repo");
        for state in ["", "@tag:v1"] {
            let path = format!("{}{state}", repository.display());
            let named = run(&["tree", &format!("icechunk+{path}")]);
            let bare = run(&["tree", &path]);
            assert_eq!((bare.code, named.code), (0, 0), "{path}: {bare:?}");
            let nodes =
                |said: &Said| said.out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(nodes(&bare), nodes(&named), "{path}");
        }
    }
}

#[test]
fn attributes_that_are_not_utf_8_are_a_finding_are_shown_and_keep_their_bytes() {
    let make = |store: &Path| {
        put(store, ".zarray", zarray().to_string());
        put(store, ".zattrs", b"{\"units\": \"\xb5m/s\xb2\", \"n\": 1}");
        put(store, "0", [1, 2, 3, 4]);
    };
    let mount = Mount::of(make, &[]);
    let said = check(&mount.store(), &[]);
    assert_eq!((said.code, &said.out[..24]), (3, "damaged not-json .zattrs"), "{said:?}");
    let shown = crate::support::json_of(&mount.at("zarr.json"));
    assert_eq!(shown["attributes"]["units"], "\u{b5}m/s\u{b2}");
    set_xattr(&mount.path(), "user.attrs.n", "2").unwrap();
    mount.unmount();
    let stored = fs::read(mount.store().join(".zattrs")).unwrap();
    let has = |part: &[u8]| stored.windows(part.len()).any(|window| window == part);
    assert!(has(b"\"\xb5m/s\xb2\"") && has(b"2}"), "{stored:?}");
}

#[test]
fn files_of_other_programs_are_removed_only_if_the_user_says_so() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "zarr.json", array(&["bytes"]).to_string());
    let uuid = "0123456789abcdef0123456789abcdef";
    let names = [
        ".zarr.json.backup".to_owned(),
        ".zarr.json.201124".to_owned(),
        format!("zarr.{uuid}.partial"),
        "poetry.__lock".to_owned(),
        "notes/a.txt.__lock".to_owned(),
    ];
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(1 << 20);
    for name in &names {
        let path = put(dir.path(), name, "mine");
        fs::File::open(path).unwrap().set_modified(long_ago).unwrap();
    }
    let before = files(dir.path());
    let said = check(dir.path(), &["--repair", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(files(dir.path()), before, "{said:?}");
    put(dir.path(), "c/0.__lock", "half");
    let said = check(dir.path(), &["--repair", "--yes", "--remove-leftovers"]);
    assert_eq!(said.code, 0, "{said:?}");
    let left: Vec<_> = files(dir.path()).into_iter().map(|(path, _)| path).collect();
    let want = ["notes/a.txt.__lock", "poetry.__lock", "zarr.json"].map(|it| dir.path().join(it));
    assert_eq!(left, want);
}

#[test]
fn a_damaged_chunk_is_never_moved_onto_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("s.zarr");
    // No metadata file at the root.
    put(&store, "g/a/zarr.json", array(&["bytes", "crc32c"]).to_string());
    put(&store, "g/a/c/0", b"\x01\x02bad!");
    fs::create_dir(store.join("q")).unwrap();
    symlink(&store, dir.path().join("link")).unwrap();
    let before = files(&store);
    let inside = [store.clone(), store.join("q"), store.join("new/q"), dir.path().join("link/q")];
    for quarantine in inside {
        let options = ["--repair", "--yes", "--quarantine", quarantine.to_str().unwrap()];
        let said = check(&store, &options);
        assert!(said.code == 1 && said.err.contains("lies in the hierarchy"), "{said:?}");
        assert_eq!(files(&store), before);
    }
    // A hard link to the chunk is the chunk.
    let outside = dir.path().join("outside");
    fs::create_dir_all(outside.join("g/a/c")).unwrap();
    fs::hard_link(store.join("g/a/c/0"), outside.join("g/a/c/0")).unwrap();
    let options = ["--repair", "--yes", "--quarantine", outside.to_str().unwrap()];
    let said = check(&store, &options);
    assert!(said.code == 1 && said.err.contains("the hierarchy itself"), "{said:?}");
    assert_eq!(files(&store), before);
    // What the user has there stays.
    fs::remove_file(outside.join("g/a/c/0")).unwrap();
    put(&outside, "g/a/c/0", "mine");
    put(&outside, "g/a/c/0.part", "mine");
    assert_eq!(check(&store, &options).code, 0);
    let kept = files(&outside.join("g/a/c"));
    let bytes: Vec<&[u8]> = kept.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert_eq!(bytes, [&b"mine"[..], b"\x01\x02bad!", b"mine"], "{kept:?}");
    assert!(!store.join("g/a/c/0").exists());
}

#[test]
fn chunks_of_a_shard_that_cannot_be_read_are_not_called_missing() {
    for case in ["z316__shard_end", "z316__shard_nested", "z316__shard_missing"] {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(case);
        let counts = |dir: &Path| -> (i32, [u64; 3]) {
            let Said { code, err, .. } = check(dir, &["--json"]);
            let line = err.lines().find(|line| line.contains("\"summary\"")).unwrap();
            let summary: Value = serde_json::from_str(line).unwrap();
            let count = |name: &str| summary["summary"][name].as_u64().unwrap();
            (code, ["chunks_stored", "chunks_missing", "chunks_in_unread_shards"].map(count))
        };
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("a.zarr");
        copy(&fixture.join("store"), &store);
        let (code, [stored, missing, unread]) = counts(&store);
        assert_eq!((code, unread), (0, 0), "{case}");
        put(place.path(), "outside", "x");
        let shards: Vec<PathBuf> =
            files(&store.join("c")).into_iter().map(|(path, _)| path).collect();
        for shard in shards {
            let bytes = fs::read(&shard).unwrap();
            for (target, want) in [(None, 3), (Some("outside"), 1), (Some("nowhere"), 1)] {
                fs::remove_file(&shard).unwrap();
                match target {
                    None => fs::write(&shard, &bytes[..3]).unwrap(),
                    Some(name) => symlink(place.path().join(name), &shard).unwrap(),
                }
                let (code, [left, absent, unread]) = counts(&store);
                let shown = format!("{case} {} {target:?}", shard.display());
                assert_eq!(code, want, "{shown}");
                assert!(absent <= missing && unread > 0, "{shown}: {absent} missing");
                assert_eq!(left + absent + unread, stored + missing, "{shown}");
                fs::remove_file(&shard).unwrap();
                fs::write(&shard, &bytes).unwrap();
            }
        }
    }
}
