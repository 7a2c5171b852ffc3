//! What messages do with names and values of a hostile hierarchy.

use std::fs;
use std::path::Path;

use crate::support::{Mount, zarrfs};

/// What hides text, changes the title of a terminal, moves its cursor and turns letters around.
const EVIL: &str = "a\u{1b}[8mb\u{1b}]0;c\u{7}\u{9b}2J\u{202e}d\u{2028}\u{200b}e\nzarrfs: f";

fn array(more: &str) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "fill_value": 0,
            "codecs": [{{"name": "bytes"}}], "attributes": {{}}{more}}}"#
    )
}

/// Writes a hierarchy with such characters in names, codecs, attributes and dimensions.
fn write_evil(store: &Path, shape_of_good: &str) {
    let name = serde_json::to_string(EVIL).unwrap();
    let put = |node: &str, text: &str| {
        fs::create_dir_all(store.join(node)).unwrap();
        fs::write(store.join(node).join("zarr.json"), text).unwrap();
    };
    let group = format!(
        r#"{{"zarr_format": 3, "node_type": "group", "attributes": {{{name}: {shape_of_good}}}}}"#
    );
    put("", &group);
    put(EVIL, &array(&format!(r#", "dimension_names": [{name}]"#)));
    put("good", &array("").replace("[4]", shape_of_good));
    put(
        "codec",
        &array("")
            .replace("bytes", EVIL)
            .replace('\u{1b}', "\\u001b")
            .replace('\u{7}', "\\u0007")
            .replace('\n', "\\n"),
    );
    put("strange", &array(&format!(r", {name}: {name}")));
    put(&format!("group {EVIL}"), "no JSON");
    fs::create_dir_all(store.join(EVIL).join("c")).unwrap();
    fs::write(store.join(EVIL).join("c/0"), "too long").unwrap();
}

/// Fails if a person would be deceived. Colours of our own are allowed if `colored`.
#[track_caller]
fn check_plain(what: &str, text: &str, colored: bool) {
    let mut text = text.to_owned();
    for code in (0..108).filter(|code| colored && *code != 8) {
        text = text.replace(&format!("\u{1b}[{code}m"), "");
    }
    text = text.replace("\u{1b}[1;34m", if colored { "" } else { "\u{1b}" });
    let wrong = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2028}\u{200b}".contains(c);
    assert!(!text.contains(wrong), "{what}: {text:?}");
    assert!(!text.contains("\nzarrfs: f"), "{what}: a name has made a line of its own: {text}");
}

#[test]
fn no_command_prints_characters_that_control_a_terminal_or_deceive_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    write_evil(Path::new(&at("a")), "[4]");
    write_evil(Path::new(&at("b")), "[8]");
    fs::write(dir.path().join("b").join(EVIL).join("c/0"), "four").unwrap();
    let (a, b, evil) = (at("a"), at("b"), at(&format!("a/{EVIL}")));
    for args in [
        &["tree", &a][..],
        &["tree", "--color", "always", "--sizes", &a],
        &["info", &a],
        &["info", "--color", "always", &a],
        &["info", "--json", &a],
        &["info", &at("a/codec")],
        &["info", &at("a/strange")],
        &["info", "--color", "always", &evil],
        &["info", "--json", &evil],
        &["info", "--plot", "--color", "always", &at(&format!("b/{EVIL}"))],
        &["info", "--stats", &evil],
        &["check", &a],
        &["check", "--json", &a],
        &["diff", &a, &b],
        &["diff", "--json", &a, &b],
        &["convert", &a, &at("c"), "--skip-unsupported"],
        &["convert", &a, &at("d"), "--format", "v2", "--keep-going", "--skip-unsupported"],
        &["cat", &a, "--as", "h5"],
    ] {
        let output = zarrfs().args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let colored = args.contains(&"always");
        if args[0] != "cat" {
            check_plain(&format!("{args:?}"), &out, colored);
        }
        check_plain(&format!("{args:?}"), &err, colored);
        if args.contains(&"--json") {
            let is_json = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
            let lines = out.lines().all(is_json) || is_json(&out);
            assert!(lines && out.contains(r"\u202e"), "{args:?}: {out}");
        }
    }
}

/// Shows: errors.
#[test]
fn files_of_messages_in_a_mount_have_only_printable_characters() {
    let mut mount = Mount::of(|store| write_evil(store, "[4]"), &[]);
    for part in ["codec", "strange", "group", "c/0"] {
        mount.expect(part);
    }
    let evil = mount.at(EVIL);
    assert!(evil.join("zarr.json").exists(), "names of files stay as they are");
    fs::read(evil.join("c/0")).expect_err("too long");
    fs::read(mount.at("codec/c/0")).expect_err("an unknown codec");
    fs::read(mount.at(&format!("group {EVIL}/x"))).expect_err("not JSON");
    let errors = mount.errors();
    assert!(errors.contains(r"\u{202e}"), "{errors}");
    for name in ["errors", "views/codec", &format!("views/{EVIL}"), "unstored"] {
        let text = fs::read_to_string(mount.at(".zarrfs").join(name)).unwrap();
        check_plain(name, &text, false);
    }
    mount.unmount();
    let log = fs::read_to_string(mount.path().with_file_name("log")).unwrap();
    check_plain("log", &log, false);
}

#[test]
fn messages_cut_long_names_and_values_and_keep_the_reason() {
    let long = "x".repeat(100_000);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let put = |node: &str, text: &str| {
        fs::create_dir_all(dir.path().join(node)).unwrap();
        fs::write(dir.path().join(node).join("zarr.json"), text).unwrap();
    };
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;
    let bytes = r#"{"name": "bytes"}"#;
    let with = |codec: &str| array("").replace(bytes, &format!("{codec}, {bytes}"));
    let after = |codec: &str| array("").replace(bytes, &format!("{bytes}, {codec}"));
    for (store, value) in [("a", "1"), ("b", "2")] {
        put(store, group);
        let ones = format!("[{}1]", "1,".repeat(30_000));
        let reshape = r#"{"name": "reshape", "configuration": {"shape": ONES}}"#;
        put(&format!("{store}/reshape"), &with(&reshape.replace("ONES", &ones)));
        put(&format!("{store}/name"), &after(&format!(r#"{{"name": "{long}"}}"#)));
        let level = r#"{"name": "gzip", "configuration": {"level": LEVEL}}"#;
        put(&format!("{store}/level"), &after(&level.replace("LEVEL", &"1".repeat(5000))));
        put(&format!("{store}/type"), &array("").replace("uint8", &long));
        put(&format!("{store}/member"), &array(&format!(r#", "{long}": 1"#)));
        let attributes = format!(r#""attributes": {{"long": "{value}{long}"}}"#);
        put(&format!("{store}/good"), &array("").replace(r#""attributes": {}"#, &attributes));
    }
    for args in [&["tree", &at("a")][..], &["check", &at("a")], &["diff", &at("a"), &at("b")]] {
        let output = zarrfs().args(args).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        assert!((100..2500).contains(&longest), "{args:?}: a line of {longest} characters");
    }
    let checked = zarrfs().args(["check", &at("a")]).output().unwrap();
    let checked = String::from_utf8_lossy(&checked.stdout);
    for part in ["xxx\" is not known", "111 is not in ", "cannot become [1,1,1", "must_understand"]
    {
        assert!(checked.contains(part), "{part}: {checked}");
    }
}
