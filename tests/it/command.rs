//! What the command says, and its exit codes.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::support::{Mount, Second, Tmpfs, copy, copy_program, errno, names, said, until, zarrfs};

/// A temporary directory with a v3 hierarchy `a.zarr` and an empty directory `mnt`.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a.zarr/sub")).unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;
    fs::write(dir.path().join("a.zarr/zarr.json"), group).unwrap();
    dir
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

/// Runs with these arguments, `{}` standing for the directory, and checks code and sentence.
fn refuses(dir: &Path, args: &[&str], code: i32, parts: &[&str]) {
    let here = dir.to_str().unwrap();
    let args: Vec<String> = args.iter().map(|arg| arg.replace("{}", here)).collect();
    let (found, sentence) = said(&args.iter().map(String::as_str).collect::<Vec<_>>());
    if found == 0 {
        // Mounted though it should have been refused: say so below, and leave no mount behind.
        said(&["umount", &format!("{here}/mnt")]);
    }
    assert_eq!(found, code, "{args:?}: {sentence}");
    for part in parts {
        let part = part.replace("{}", here);
        assert!(sentence.contains(&part), "{args:?} says\n  {sentence}\nwithout\n  {part}");
    }
    if code == 1 {
        assert_eq!(sentence.lines().count(), 1, "more than one sentence: {sentence}");
    }
}

#[test]
fn every_refusal_names_the_path_and_the_remedy() {
    let place = place();
    let dir = place.path();
    fs::write(dir.join("file"), "x").unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::create_dir(dir.join("other")).unwrap();
    fs::write(dir.join("other/notes.txt"), "x").unwrap();
    for (args, parts) in [
        (&["mount", "{}/none", "{}/mnt"][..], &["{}/none: no such directory", "--create"][..]),
        (&["mount", "{}/file", "{}/mnt"], &["{}/file: not a directory"]),
        (&["mount", "{}/empty", "{}/mnt"], &["{}/empty: an empty directory", "--create"]),
        (&["mount", "{}/other", "{}/mnt"], &["{}/other: not a Zarr hierarchy"]),
        (&["mount", "--create", "{}/other", "{}/mnt"], &["{}/other", "empty directory"]),
        (&["mount", "s3://bucket/a.zarr", "{}/mnt"], &["s3://bucket/a.zarr"]),
        (
            &["mount", "{}/a.zarr", "{}/nowhere"],
            &["{}/nowhere: the mountpoint does not exist", "mkdir"],
        ),
        (&["mount", "{}/a.zarr", "{}/file"], &["{}/file: the mountpoint is not a directory"]),
        (
            &["mount", "{}/a.zarr", "{}/other"],
            &["{}/other: the mountpoint is not empty", "nonempty"],
        ),
        (&["mount", "{}/a.zarr", "{}/a.zarr", "-o", "nonempty"], &["its own source"]),
        (&["mount", "{}/a.zarr", "{}/a.zarr/sub"], &["its own source"]),
        (&["mount", "{}/a.zarr", "{}", "-o", "nonempty"], &["its own source"]),
        (&["umount", "{}/mnt"], &["{}/mnt: no hierarchy is mounted there"]),
        (&["umount", "{}/none"], &["{}/none: no such directory"]),
        (&["tree", "{}/none"], &["{}/none: no such directory, group or array"]),
        (&["tree", "{}/other"], &["{}/other: not a Zarr hierarchy"]),
        (
            &["info", "{}/a.zarr/t2m"],
            &[
                "{}/a.zarr/t2m: no group or array /t2m in the hierarchy {}/a.zarr; `zarrfs tree {}/a.zarr`",
            ],
        ),
        (&["tree", "{}/file"], &["{}/file: not a directory; name the directory of a hierarchy"]),
        (
            &["tree", "ftp://x.org/a.zarr"],
            &["ftp://x.org/a.zarr: this form of URL is not supported", "s3://BUCKET"],
        ),
        (&["tree", "{}/a.zarr", "--from", "v2"], &["{}/a.zarr", "dialect v2", "without --from"]),
        (&["convert", "{}/a.zarr", "{}/file"], &["{}/file: not a directory"]),
        (&["demo", "{}/other"], &["{}/other: not empty"]),
    ] {
        refuses(dir, args, 1, parts);
    }
    for (args, parts) in [
        (&["mount", "{}/a.zarr", "{}/mnt", "-o", "frobnicate=1"][..], &["frobnicate"][..]),
        (&["mount", "{}/a.zarr", "{}/mnt", "-o", "cache-size=lots"], &["cache-size", "16M"]),
        (&["mount", "{}/a.zarr"], &["MOUNTPOINT"]),
        (&["{}/a.zarr"], &["MOUNTPOINT"]),
        (&["ls", "{}/a.zarr"], &["unrecognized subcommand 'ls'"]),
        (&["mount", "--from", "v9", "{}/a.zarr", "{}/mnt"], &["v9", "d2020-10"]),
        (&["frobnicate"], &["frobnicate"]),
        (&[], &["Usage"]),
    ] {
        refuses(dir, args, 2, parts);
    }
    assert_eq!(fs::read_dir(dir.join("mnt")).unwrap().count(), 0, "something was mounted");
}

#[test]
fn a_mountpoint_inside_a_group_around_the_source_is_refused_unless_the_mount_is_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let group = serde_json::json!({"zarr_format": 2});
    let copies = serde_json::json!({".zgroup": group, "s/.zgroup": group});
    for name in ["s", "mnt"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(dir.join("s/.zgroup"), group.to_string()).unwrap();
    let around = serde_json::json!({"zarr_consolidated_format": 1, "metadata": copies});
    fs::write(dir.join(".zmetadata"), around.to_string()).unwrap();
    for more in [&[][..], &["--fake"]] {
        let args = [&["mount", "{}/s", "{}/mnt"][..], more].concat();
        refuses(dir, &args, 1, &["{}/mnt: inside the group {}, which contains", "-o ro"]);
    }
    let (source, mountpoint) = (path(dir, "s"), path(dir, "mnt"));
    assert_eq!(said(&["mount", &source, &mountpoint, "-o", "ro"]), (0, String::new()));
    assert_eq!(said(&["umount", &mountpoint]).0, 0);
}

#[test]
fn a_directory_inside_a_draft_names_the_root_to_open() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/z218v3__groups/store");
    copy(&fixture, &dir.path().join("d.zarr"));
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let root = dir.path().join("d.zarr").canonicalize().unwrap();
    for inside in ["meta", "meta/root", "data/root"] {
        let at = format!("{{}}/d.zarr/{inside}");
        let names_root = format!("inside the hierarchy {}", root.display());
        refuses(dir.path(), &["mount", &at, "{}/mnt"], 1, &[&at, &names_root]);
    }
    let none = format!("{}#nothing", root.display());
    refuses(
        dir.path(),
        &["mount", &none, "{}/mnt"],
        1,
        &["no group or array /nothing in the hierarchy"],
    );
}

#[test]
fn a_node_in_a_hierarchy_is_a_hierarchy() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (case, node, inside, below) in [
        ("z218v3__groups", "explicit", "meta/root/explicit", "flags"),
        ("z218v3__groups", "implicit/deep", "data/root/implicit/deep", "arr"),
        ("synth__2019-05_hierarchy", "foo", "", "baz"),
        ("z218v2__consolidated", "g1", "g1", "x"),
        ("z316__groups_consolidated", "g1", "g1", "g2"),
        ("z218n5__fsstore", "g", "g", "x"),
    ] {
        let store = fixtures.join(case).join("store");
        let spelled = format!("{}#{node}", store.display());
        let beside = store.join(inside).display().to_string();
        let sources = [Some(spelled), (!inside.is_empty()).then_some(beside)];
        for source in sources.into_iter().flatten() {
            let output = zarrfs().args(["tree", &source]).output().unwrap();
            let tree = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{source}: {output:?}");
            assert!(tree.contains(below), "{source}: {tree}");
        }
    }
    let store = fixtures.join("z218v3__groups/store");
    let spelled = format!("{}#explicit", store.display());
    let dir = tempfile::tempdir().unwrap();
    let _mount = Second::mount(Path::new(&spelled), dir.path());
    let document = fs::read_to_string(dir.path().join("flags/zarr.json")).unwrap();
    assert!(document.contains("\"bool\""), "{document}");
    assert_eq!(fs::read(dir.path().join("flags/c/0")).unwrap().len(), 2);
}

#[test]
fn a_mountpoint_in_use_is_refused_and_stays_as_it_is() {
    let mount = Mount::fixture("z316__shard_end", &[]);
    let (code, sentence) =
        said(&["mount", mount.store().to_str().unwrap(), mount.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        sentence.contains("something is already mounted there; run zarrfs umount"),
        "{sentence}"
    );
    assert!(mount.at("zarr.json").exists());
}

#[test]
fn umount_of_a_mount_in_use_says_so_and_leaves_it() {
    let mount = Mount::fixture("z316__shard_end", &[]);
    let held = fs::File::open(mount.at("zarr.json")).unwrap();
    let (code, sentence) = said(&["umount", mount.path().to_str().unwrap()]);
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("in use"), "{sentence}");
    drop(held);
    mount.unmount();
}

#[test]
fn create_starts_an_empty_hierarchy_in_either_dialect_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let (mnt, log) = (path(dir.path(), "mnt"), path(dir.path(), "log"));
    for (format, documents) in
        [("v3", &["zarr.json"][..]), ("d2020-10", &["zarr.json", "meta/root.group.json"])]
    {
        let source = path(dir.path(), &format!("new/{format}.zarr"));
        for _ in 0..2 {
            let args = ["mount", "--create", "--format", format, "--log-file", &log, &source, &mnt];
            let (code, sentence) = said(&args);
            assert_eq!(code, 0, "{sentence}");
            assert!(fs::read_to_string(format!("{mnt}/zarr.json")).unwrap().contains("group"));
            assert_eq!(said(&["umount", &mnt]), (0, String::new()));
        }
        for document in documents {
            assert!(Path::new(&source).join(document).is_file(), "{source}/{document}");
        }
    }
}

#[test]
fn a_signal_stores_pending_changes_and_unmounts() {
    for signal in ["-INT", "-TERM"] {
        let mount = Mount::fixture("z316__shard_end", &["--writeback-delay", "1h"]);
        fs::write(mount.at("notes.tmp"), "kept").unwrap();
        assert!(!mount.store().join("notes.tmp").exists(), "a scratch file was stored at once");
        let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
        let process =
            stats.lines().find_map(|line| line.strip_prefix("zarrfs_process_id ")).unwrap();
        let killed = Command::new("kill").args([signal, process]).status().unwrap();
        assert!(killed.success());
        until(signal, || !Path::new(&format!("/proc/{process}/exe")).exists());
        assert_eq!(
            fs::read_to_string(mount.store().join("notes.tmp")).unwrap(),
            "kept",
            "{signal}"
        );
        assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0, "{signal}: still mounted");
    }
}

#[test]
fn a_mount_whose_daemon_was_killed_is_mounted_over_and_unmounted() {
    let mount = Mount::fixture("z316__shard_end", &[]);
    let kill = || {
        let stats = fs::read_to_string(mount.at(".zarrfs/stats")).unwrap();
        let process =
            stats.lines().find_map(|line| line.strip_prefix("zarrfs_process_id ")).unwrap();
        let killed = Command::new("kill").args(["-KILL", process]).status().unwrap();
        assert!(killed.success());
        until("killed", || fs::metadata(mount.path()).is_err());
    };
    kill();
    let (store, mnt) = (mount.store(), mount.path());
    let (code, sentence) = said(&["mount", store.to_str().unwrap(), mnt.to_str().unwrap()]);
    assert_eq!(code, 0, "{sentence}");
    assert!(mount.at("zarr.json").exists());
    kill();
    assert_eq!(said(&["umount", mnt.to_str().unwrap()]), (0, String::new()));
}

#[test]
fn tree_and_info_describe_the_hierarchy() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/z218v3__shard_2x2_gzip/store");
    let output = zarrfs().arg("tree").arg(&fixture).output().unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(tree.contains("└── arr   int32 7 x 10, chunks 3 x 4, shards 6 x 8, gzip"), "{tree}");
    let output = zarrfs().args(["info", "--json"]).arg(fixture.join("arr")).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["dialect"], "d2020-10");
    assert_eq!(info["chunk_shape"], serde_json::json!([3, 4]));
    assert_eq!(info["shard_shape"], serde_json::json!([6, 8]));
    assert_eq!(info["chunks_stored"], 9);
    assert_eq!(info["shards_stored"], 4);
    let output = zarrfs().arg("info").arg(fixture.join("arr")).output().unwrap();
    let info = String::from_utf8(output.stdout).unwrap();
    assert!(info.contains("7 x 10") && info.contains("int32"), "{info}");
}

#[test]
fn names_in_a_hierarchy_do_not_control_the_terminal() {
    let place = place();
    let dir = place.path();
    let evil = "\u{1b}]0;title\u{7}\u{9b}2J";
    let array = r#"{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}],
        "dimension_names": ["x\\u001b[2J"], "attributes": {"note": "\\u001b[2J", "units": "\\u001b[2J"}}"#;
    let unknown = array.replace("int8", "\\u001b[2J");
    for (name, text) in [(evil, array), ("line\nbreak", array), ("unknown", &unknown)] {
        let node = dir.join("a.zarr").join(name);
        fs::create_dir(&node).unwrap();
        fs::write(node.join("zarr.json"), text).unwrap();
    }
    let (all, one) = (path(dir, "a.zarr"), path(dir, &format!("a.zarr/{evil}")));
    let unknown = path(dir, "a.zarr/unknown");
    for args in [
        &["tree", &all, "--color", "always"][..],
        &["tree", &all, "--sizes"],
        &["info", &all],
        &["info", &one],
        &["info", &unknown],
        &["info", &one, "--stats"],
        &["info", &one, "--chunks"],
        &["check", &all],
        &["diff", &all, &one],
        &["convert", &all, &path(dir, "b.zarr")],
        &["convert", &all, &path(dir, "c.zarr"), "--skip-unsupported"],
        &["create", &path(dir, &format!("a.zarr/{evil}2")), "--shape", "1", "--dtype", "i1"],
    ] {
        let done = zarrfs().args(args).output().unwrap();
        let printed =
            [done.stdout, done.stderr].map(|out| String::from_utf8(out).unwrap()).concat();
        let without_colors = ["1;34", "1", "0"]
            .iter()
            .fold(printed.clone(), |text, color| text.replace(&format!("\u{1b}[{color}m"), ""));
        let found = without_colors.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(found, None, "{args:?}: {printed:?}");
        assert!(!printed.contains("\nbreak"), "{args:?}: {printed:?}");
    }
}

#[test]
fn a_file_with_the_name_of_a_command_does_not_hide_the_command() {
    let place = place();
    for command in ["status", "tree", "man"] {
        fs::write(place.path().join(command), "").unwrap();
        let done = zarrfs().args([command, "--help"]).current_dir(place.path()).output().unwrap();
        let help = String::from_utf8(done.stdout).unwrap();
        assert!(help.contains(&format!("Usage: zarrfs {command} ")), "{help}");
    }
}

#[test]
fn help_lists_commands_and_exit_codes() {
    let output = zarrfs().arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for word in ["mount", "umount", "tree", "info", "demo", "Exit codes"] {
        assert!(help.contains(word), "--help says nothing of {word}");
    }
    assert_eq!(zarrfs().arg("--version").output().unwrap().status.code(), Some(0));
}

/// Shows: view-without.
#[test]
fn info_lists_what_a_file_of_another_format_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let array = path(dir.path(), "a.zarr/x");
    let create = ["create", &array, "--shape", "4", "--dtype", "int8", "--dimensions", "x"];
    assert_eq!(said(&create), (0, String::new()));
    let output = zarrfs().args(["info", &array]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let without = text.lines().find(|line| line.starts_with("without")).unwrap_or(&text);
    assert!(without.contains("raw") && without.contains("dimensions (x)"), "{without}");
    assert!(!without.contains("nc4"), "netCDF names dimensions: {without}");
}

#[test]
fn the_demo_can_be_repeated_and_reads_back_what_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let demo = path(dir.path(), "demo");
    let mnt = format!("{demo}/mnt");
    let run = || {
        let output = zarrfs().args(["demo", &demo]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("without the mount: 273.15, 274.15,"), "{text}");
        assert!(text.contains("/t2m.npy") && text.contains("/__root__.nc"), "{text}");
        text
    };
    assert!(run().contains("$ zarrfs mount "));
    assert!(run().contains("It is mounted already"));
    assert_eq!(said(&["umount", &mnt]).0, 0);
    assert!(run().contains("$ zarrfs mount "));
    // The sample was changed, so that it cannot be shown.
    fs::remove_dir_all(format!("{mnt}/t2m")).unwrap();
    let (code, sentence) = said(&["demo", &demo]);
    assert_eq!(code, 1);
    assert!(sentence.contains(&format!("rm -r {demo}")), "{sentence}");
    assert_eq!(said(&["umount", &mnt]).0, 0);
    // A hierarchy of the user is not the sample.
    let document = r#"{"zarr_format": 3, "node_type": "group"}"#;
    fs::write(format!("{demo}/climate.zarr/zarr.json"), document).unwrap();
    let (code, sentence) = said(&["demo", &demo]);
    assert_eq!(code, 1);
    assert!(sentence.contains("climate.zarr: not the sample of zarrfs demo"), "{sentence}");
}

#[test]
fn the_field_mean_of_the_sample_differs_from_month_to_month() {
    let dir = tempfile::tempdir().unwrap();
    let demo = path(dir.path(), "demo");
    assert!(zarrfs().args(["demo", &demo]).output().unwrap().status.success());
    let raw = fs::read(format!("{demo}/mnt/t2m.raw")).unwrap();
    let header = fs::read(format!("{demo}/mnt/t2m.nc")).unwrap();
    assert_eq!(said(&["umount", &format!("{demo}/mnt")]).0, 0);
    assert!(header.windows(10).any(|bytes| bytes == b"_FillValue"), "NaN is not marked as missing");
    let floats: Vec<f32> =
        raw.as_chunks::<4>().0.iter().map(|float| f32::from_le_bytes(*float)).collect();
    let mut means: Vec<f64> = Vec::new();
    for month in floats.chunks(36 * 72) {
        let there: Vec<f64> =
            month.iter().copied().filter(|value| !value.is_nan()).map(f64::from).collect();
        means.push(there.iter().sum::<f64>() / f64::from(u32::try_from(there.len()).unwrap()));
    }
    means.sort_by(f64::total_cmp);
    assert_eq!(means.len(), 12);
    for pair in means.windows(2) {
        assert!(pair[1] - pair[0] > 0.05, "two months are alike: {means:?}");
    }
}

#[test]
fn unmounting_a_mount_in_use_names_the_programs_that_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let demo = path(dir.path(), "demo");
    assert!(zarrfs().args(["demo", &demo]).output().unwrap().status.success());
    let mnt = format!("{demo}/mnt");
    let mut reader = Command::new("sleep").arg("60").current_dir(&mnt).spawn().unwrap();
    let (code, sentence) = said(&["umount", &mnt]);
    let own = zarrfs().args(["umount", "."]).current_dir(&mnt).output().unwrap();
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(code, 1);
    assert!(sentence.contains(&format!("in use by {} (sleep):", reader.id())), "{sentence}");
    let own = String::from_utf8(own.stderr).unwrap();
    assert!(own.contains("this command, which was started in it"), "{own}");
    assert_eq!(said(&["umount", &mnt]).0, 0);
}

/// Shows: rescue.
#[test]
fn unmount_names_files_that_cannot_be_stored_and_rescues_them_if_requested() {
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: no small file system can be mounted, so this shows nothing");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (disk, mnt, saved) = (path("disk"), path("mnt"), path("saved"));
    for name in [&disk, &mnt] {
        fs::create_dir(name).unwrap();
    }
    let small = Tmpfs::mount(Path::new(&disk), "64k");
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/z316__shard_end/store");
    copy(&fixture, &dir.path().join("disk/store"));
    fs::write(dir.path().join("disk/ballast"), vec![0; 1 << 20]).expect_err("a small disk");
    let store = path("disk/store");
    assert_eq!(said(&["mount", &store, &mnt, "--rescue", &path("by-daemon")]).0, 0);
    fs::write(path("mnt/c/0/0"), [1; 48]).unwrap();
    fs::write(path("mnt/c/2/1"), [2; 48]).unwrap();
    let (code, sentence) = said(&["umount", &mnt]);
    assert_eq!(code, 1);
    assert!(sentence.contains("so it stays mounted: No space left"), "{sentence}");
    assert!(sentence.contains(": c/0/0, c/2/1; free some space"), "{sentence}");
    let unstored = fs::read_to_string(path("mnt/.zarrfs/unstored")).unwrap();
    assert!(unstored.starts_with(r#"{"path":"c/0/0","reason":"#), "{unstored}");
    assert!(unstored.contains("No space left"), "{unstored}");
    let (code, sentence) = said(&["umount", &mnt, "--rescue", &saved]);
    assert_eq!(code, 3, "{sentence}");
    assert!(sentence.ends_with(&format!("saved in {saved}: c/0/0, c/2/1")), "{sentence}");
    assert!(names(Path::new(&mnt)).is_empty(), "it is still mounted");
    for at in ["saved", "by-daemon"] {
        assert_eq!(fs::read(path(&format!("{at}/c/0/0"))).unwrap(), [1; 48]);
        assert_eq!(fs::read(path(&format!("{at}/c/2/1"))).unwrap(), [2; 48]);
    }
    fs::remove_file(dir.path().join("disk/ballast")).unwrap();
    assert_eq!(said(&["mount", &store, &mnt]).0, 0);
    fs::copy(path("saved/c/0/0"), path("mnt/c/0/0")).unwrap();
    assert_eq!(said(&["umount", &mnt]), (0, String::new()));
    drop(small);
}

/// Shows: rescue.
#[test]
fn unmount_names_a_directory_that_cannot_be_stored_and_rescues_it_if_requested() {
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: no small file system can be mounted, so this shows nothing");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (disk, mnt, saved) = (path("disk"), path("mnt"), path("saved"));
    for name in [&disk, &mnt] {
        fs::create_dir(name).unwrap();
    }
    let small = Tmpfs::mount(Path::new(&disk), "1m,nr_inodes=16");
    let store = path("disk/store");
    assert_eq!(said(&["create", &store]).0, 0);
    let delay = ["--writeback-delay", "1h"];
    let mount = ["mount", &store, &mnt, "--rescue", &path("by-daemon")];
    assert_eq!(said(&[&mount[..], &delay].concat()).0, 0);
    fs::create_dir_all(path("mnt/new/below")).unwrap();
    let mut ballast = 0;
    while fs::write(path(&format!("disk/{ballast}")), "").is_ok() {
        ballast += 1;
    }
    let status = || {
        let output = zarrfs().args(["status", &mnt]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(status().contains("; 2 pending directories; no errors"), "{}", status());
    let (code, sentence) = said(&["umount", &mnt]);
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("so it stays mounted: No space left"), "{sentence}");
    assert!(sentence.contains(": new, new/below; free some space"), "{sentence}");
    let unstored = fs::read_to_string(path("mnt/.zarrfs/unstored")).unwrap();
    let first = unstored.lines().next().unwrap();
    assert_eq!(
        first, r#"{"path":"new","reason":"No space left on device","directory":true}"#,
        "{unstored}"
    );
    let (code, sentence) = said(&["umount", &mnt, "--rescue", &saved]);
    assert_eq!(code, 3, "{sentence}");
    assert!(sentence.ends_with(&format!("saved in {saved}: new, new/below")), "{sentence}");
    for at in ["saved", "by-daemon"] {
        assert!(dir.path().join(at).join("new/below").is_dir(), "{at}");
    }
    drop(small);
}

/// The program, for a user who may not read everything: not even root, who may otherwise.
fn unprivileged() -> Command {
    let bound = ["--bounding-set", "-dac_override,-dac_read_search"];
    let mut command = Command::new("setpriv");
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 {
        return zarrfs();
    }
    command.args(bound).arg(env!("CARGO_BIN_EXE_zarrfs"));
    command
}

/// Mounts by a user who may not write everything, and returns the message on standard error.
fn mounted_by_user(args: &[&str]) -> String {
    let output = unprivileged().arg("mount").args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

#[test]
fn a_file_of_a_group_says_that_a_node_in_it_may_not_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("g");
    for node in ["seen", "closed"] {
        let words = ["create", "--shape", "2", "--chunks", "2", "--dtype", "int8"];
        let made = zarrfs().args(words).arg(group.join(node)).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    fs::write(group.join("zarr.json"), r#"{"zarr_format":3,"node_type":"group"}"#).unwrap();
    let mode = PermissionsExt::from_mode;
    for closed in ["closed", "closed/zarr.json"] {
        let path = group.join(closed);
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, mode(0)).unwrap();
        let done = unprivileged().args(["cat", "--as", "h5"]).arg(&group).output().unwrap();
        fs::set_permissions(&path, before).unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{closed}: {said}");
        assert!(said.contains("left out: closed: ") && said.contains("incomplete"), "{said}");
    }
}

/// Shows: read-only.
#[test]
fn a_store_that_the_user_may_not_write_is_mounted_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (disk, mnt, log) = (path("disk"), path("mnt"), path("log"));
    for name in [&disk, &mnt] {
        fs::create_dir(name).unwrap();
    }
    // SAFETY: the call cannot fail or touch memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    let _small = is_root.then(|| Tmpfs::mount(Path::new(&disk), "1m"));
    let store = path("disk/store");
    assert_eq!(said(&["create", &format!("{store}/a"), "--shape", "2", "--dtype", "i1"]).0, 0);
    let check = |sentence: &str, why: &str| {
        assert_eq!(sentence, format!("zarrfs: {store}: mounted read-only, because {why}"));
        let line = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = line.lines().find(|line| line.contains(&mnt)).unwrap().to_owned();
        assert!(line.contains(" fuse.zarrfs ro,"), "{line}");
        assert_eq!(errno(fs::write(path("mnt/a/notes"), "a note")), libc::EROFS);
        let logged = fs::read_to_string(&log).unwrap();
        assert!(logged.contains(&format!("{store}: mounted read-only, because {why}")), "{logged}");
        assert_eq!(said(&["umount", &mnt]), (0, String::new()));
    };
    fs::set_permissions(&store, fs::Permissions::from_mode(0o555)).unwrap();
    for options in ["rw", "defaults"] {
        let sentence = mounted_by_user(&[&store, &mnt, "--log-file", &log, "-o", options]);
        check(&sentence, "this user may not write to it");
        fs::remove_file(&log).unwrap();
    }
    assert_eq!(mounted_by_user(&[&store, &mnt, "-o", "ro"]), "", "the user asked for it");
    assert_eq!(said(&["umount", &mnt]), (0, String::new()));
    // A node below it that the user may write can be mounted by itself.
    let node = format!("{store}/a");
    assert_eq!(mounted_by_user(&[&node, &mnt]), "");
    fs::write(path("mnt/notes"), "a note").unwrap();
    assert_eq!(said(&["umount", &mnt]), (0, String::new()));
    if !is_root {
        eprintln!("not root: no file system can be made read-only, so that is not shown");
        return;
    }
    // Root may write anything, except on a read-only file system.
    assert_eq!(said(&["mount", &store, &mnt]), (0, String::new()));
    fs::write(path("mnt/notes"), "a note").unwrap();
    assert_eq!(said(&["umount", &mnt]), (0, String::new()));
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how, &disk]).status().unwrap();
        assert!(done.success(), "{how}");
    };
    remount("remount,ro");
    let (code, sentence) = said(&["mount", &store, &mnt, "--log-file", &log]);
    assert_eq!(code, 0, "{sentence}");
    check(&sentence, "its file system is read-only");
}

/// Shows: rescue.
#[test]
fn the_advice_of_umount_depends_on_the_error_of_the_store() {
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: no file system can be made read-only, so this shows nothing");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (disk, mnt) = (path("disk"), path("mnt"));
    for name in [&disk, &mnt] {
        fs::create_dir(name).unwrap();
    }
    let _small = Tmpfs::mount(Path::new(&disk), "1m");
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/z316__shard_end/store");
    copy(&fixture, &dir.path().join("disk/store"));
    let store = path("disk/store");
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how, &disk]).status().unwrap();
        assert!(done.success(), "{how}");
    };
    let chunks = path("disk/store/c/0");
    let set_mode = |mode| fs::set_permissions(&chunks, fs::Permissions::from_mode(mode)).unwrap();
    let check = |refuse: &dyn Fn(), permit: &dyn Fn(), advice: &str| {
        assert_eq!(mounted_by_user(&[&store, &mnt, "--writeback-delay", "1h"]), "");
        fs::write(path("mnt/c/0/0"), [1; 48]).unwrap();
        refuse();
        let (code, sentence) = said(&["umount", &mnt]);
        assert_eq!(code, 1, "{sentence}");
        let end = format!(": c/0/0; {advice}, or save these changes elsewhere with --rescue DIR");
        assert!(sentence.ends_with(&end), "{sentence}");
        permit();
        assert_eq!(said(&["umount", &mnt]), (0, String::new()));
    };
    check(
        &|| set_mode(0o555),
        &|| set_mode(0o755),
        "give the user of the mount permission to write to the store and unmount again",
    );
    check(
        &|| remount("remount,ro"),
        &|| remount("remount,rw"),
        "make the file system of the store writable and unmount again",
    );
}

#[test]
fn an_unreadable_node_hides_no_other_node() {
    let place = place();
    let dir = place.path();
    for name in ["a", "b/x", "c", "d"] {
        let at = path(dir, &format!("a.zarr/{name}"));
        let (code, sentence) = said(&["create", &at, "--shape", "4", "--dtype", "int8"]);
        assert_eq!(code, 0, "{sentence}");
    }
    let closed = ["a.zarr/a/zarr.json", "a.zarr/b", "a.zarr/c"];
    for (name, mode) in closed.into_iter().zip([0o000, 0o000, 0o600]) {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let source = path(dir, "a.zarr");
    let run = |words: &[&str]| {
        let output = unprivileged().args(words).output().unwrap();
        let [out, error] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        (output.status.code(), out.into_owned(), error.into_owned())
    };
    let (code, tree, error) = run(&["tree", &source]);
    // As of `ls`: what can be shown is, and the exit status says that something is missing.
    assert_eq!(code, Some(1), "{error}");
    for part in ["a/zarr.json: Permission denied", "b/zarr.json: ", "c/zarr.json: ", "int8"] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
    let (code, info, error) = run(&["info", "--json", &source]);
    assert_eq!(code, Some(0), "{error}");
    assert!(info.contains("\"d\""), "{info}");
    let (code, _, error) = run(&["cat", "--as", "h5", &source]);
    assert_eq!(code, Some(1), "{error}");
    let dest = path(dir, "copy.zarr");
    let (code, _, error) = run(&["convert", &source, &dest]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("/a: cannot be read: ") && error.contains("3 nodes"), "{error}");
    assert!(!Path::new(&dest).exists());
    let (code, said, error) = run(&["convert", &source, &dest, "--skip-unsupported"]);
    // The user has asked to leave out what is not supported, not what cannot be read.
    assert_eq!(code, Some(1), "{error}");
    assert!(said.contains("/d  int8") && !said.contains("/a  int8"), "{said}");
    for name in closed {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn output_that_cannot_be_printed_is_an_error() {
    let place = place();
    let dir = place.path();
    let array = path(dir, "a.zarr/x");
    assert_eq!(said(&["create", &array, "--shape", "4", "--dtype", "int8"]).0, 0);
    let (new, copy) = (path(dir, "a.zarr/new"), path(dir, "copy.zarr"));
    for (words, changes) in [
        (&["tree", &array][..], false),
        (&["info", &array], false),
        (&["cat", "--as", "npy", &array], false),
        (&["create", &new], true),
        (&["convert", &array, &copy], true),
        (&["--help"], false),
        (&["--version"], false),
        (&["cat", "--help"], false),
    ] {
        let run = |redirect: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirect}")]);
            let output = shell.arg(env!("CARGO_BIN_EXE_zarrfs")).args(words).output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, sentence) = run(">&-");
        assert_eq!(code, Some(1), "{words:?} >&-: {sentence}");
        assert!(sentence.contains("standard output is closed"), "{words:?}: {sentence}");
        assert!(!Path::new(&new).exists() && !Path::new(&copy).exists(), "{words:?} has begun");
        for redirect in [">/dev/null", "1<>/dev/null", "| head -c 0"] {
            if !changes {
                let (code, sentence) = run(redirect);
                assert_eq!(code, Some(0), "{words:?} {redirect}: {sentence}");
            }
        }
        let (code, sentence) = run(">/dev/full");
        assert_eq!(code, Some(1), "{words:?} >/dev/full: {sentence}");
        assert!(sentence.contains("standard output: No space left"), "{words:?}: {sentence}");
        drop(fs::remove_dir_all(&new));
        drop(fs::remove_dir_all(&copy));
    }
    // For diff, 1 means that the hierarchies differ.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" diff \"$1\" \"$1\" >&-", env!("CARGO_BIN_EXE_zarrfs"), &array]);
    assert_eq!(shell.output().unwrap().status.code(), Some(2));
}

/// Shows: rescue.
#[test]
fn pending_changes_are_rescued_after_the_store_was_removed() {
    for (case, shown) in
        [("z316__shard_end", "c/0/0"), ("z316__groups_consolidated", "g1/g2/x/c/0/0")]
    {
        let mut mount = Mount::fixture(case, &["--writeback-delay", "1h"]);
        for operation in ["write back", "fsync", "close", "unmount", "not everything is stored"] {
            mount.expect(operation);
        }
        let saved = tempfile::tempdir().unwrap();
        let mut bytes = fs::read(mount.at(shown)).unwrap();
        bytes.reverse();
        bytes.push(bytes[0] ^ 1);
        bytes.remove(0);
        // The one waits for its shard already, the other for a store that takes it.
        let is_before = case == "z316__shard_end";
        if is_before {
            fs::write(mount.at(shown), &bytes).unwrap();
        }
        let late = fs::OpenOptions::new().write(true).open(mount.at(shown)).unwrap();
        until("the store is removed", || fs::remove_dir_all(mount.store()).is_ok());
        if !is_before {
            late.write_all_at(&bytes, 0).unwrap();
        }
        drop(late);
        // Longer than anything is taken to be as it was.
        std::thread::sleep(std::time::Duration::from_millis(1200));
        let (mnt, dir) = (mount.path(), saved.path().to_str().unwrap().to_owned());
        let words = ["umount", mnt.to_str().unwrap(), "--rescue", &dir];
        let mut ended = (0, String::new());
        until("unmounted", || {
            ended = said(&words);
            !ended.1.contains("in use")
        });
        let (code, sentence) = ended;
        assert_eq!(code, 3, "{case}: {sentence}");
        assert!(sentence.contains(&format!("saved in {dir}: {shown}")), "{sentence}");
        assert_eq!(fs::read(saved.path().join(shown)).unwrap(), bytes, "{case}");
        assert!(names(&mnt).is_empty(), "it is still mounted");
    }
}

/// Runs as a user who is not root, in a mount namespace that `setup` changes.
fn by_user(setup: &str, dir: &Path, args: &[&str]) -> String {
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\"";
    let script = format!("set -e; mount --make-rslave /; {setup}; exec {user}");
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "slave", "/bin/sh", "-c", &script, "sh", "./zarrfs"])
        .args(args);
    let output = command.current_dir(dir).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

#[test]
fn a_user_who_may_not_mount_learns_why_and_what_to_do() {
    // SAFETY: the call cannot fail or touch memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: there is no other user, so this shows nothing");
        return;
    }
    // The user can enter this directory and run the program in it, wherever TMPDIR is.
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let dir = place.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(&dir.join("zarrfs"));
    fs::create_dir(dir.join("mnt")).unwrap();
    fs::create_dir(dir.join("a.zarr")).unwrap();
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;
    fs::write(dir.join("a.zarr/zarr.json"), group).unwrap();
    fs::write(dir.join("fuse.conf"), "# user_allow_other\n").unwrap();
    let device = "mkdir dev; mount -t tmpfs none dev; mknod dev/fuse c 10 229; chmod 666 dev/fuse; \
                  mount --bind dev/fuse /dev/fuse; mount --bind fuse.conf /etc/fuse.conf";
    let readable = "mkdir -p dev; mount -t tmpfs none dev; mknod dev/fuse c 10 229; \
                    chmod 600 dev/fuse; mount --bind dev/fuse /dev/fuse";
    let none = "mount -t tmpfs none /dev";
    let other = "mkdir dev; mount -t tmpfs none dev; mknod dev/fuse c 10 250; chmod 666 dev/fuse; \
                 mount --bind dev/fuse /dev/fuse";
    for (name, mode) in [("mine", 0o755), ("sticky", 0o1777)] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(dir.join("mine"), Some(65534), Some(65534)).unwrap();
    fs::write(dir.join("none.conf"), "mount_max = 0\n").unwrap();
    let with = |more: &str| format!("{device}; {more}");
    let without_program = with("mount --bind /dev/null $(command -v fusermount3)");
    let without_bit = with(
        "cp $(command -v fusermount3) plain; chmod 755 plain; \
         mount --bind plain $(command -v fusermount3)",
    );
    let strange =
        with("mkdir -p far; mount -t hugetlbfs none far; mkdir far/mnt; chown 65534 far/mnt");
    let full = with("mount --bind none.conf /etc/fuse.conf");
    let mount = ["mount", "a.zarr", "mnt", "-o", "ro"];
    let mine = ["mount", "a.zarr", "mine", "-o", "ro"];
    let far = ["mount", "a.zarr", "far/mnt", "-o", "ro"];
    let sticky = ["mount", "a.zarr", "sticky", "-o", "ro"];
    let others = ["mount", "a.zarr", "mnt", "-o", "ro,allow_other"];
    for (setup, args, part) in [
        (other, mount, "/dev/fuse: the kernel module fuse is not loaded"),
        (&without_program, mine, "fusermount3: not found, and only root can mount without it"),
        (&without_bit, mine, "mine: mounting is not permitted; fusermount3 must belong to root"),
        (device, sticky, "sticky: the mountpoint belongs to another user, and its sticky bit"),
        (&strange, far, "far/mnt: fusermount3 does not mount over this type of file system"),
        (&full, mine, "mine: the users of this machine have as many FUSE mounts as /etc/fuse.conf"),
        (none, mount, "/dev/fuse: missing, so nothing can be mounted; load the kernel module"),
        (readable, mount, "/dev/fuse: permission denied, so nothing can be mounted; run as root"),
        (device, mount, "mnt: the mountpoint is not writable for this user; use a directory"),
        (device, others, "/etc/fuse.conf: the line user_allow_other is missing, so only root"),
    ] {
        let sentence = by_user(setup, dir, &args);
        assert!(sentence.contains(part), "{sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        if dir.join("dev").exists() {
            fs::remove_dir(dir.join("dev")).unwrap();
        }
    }
}
