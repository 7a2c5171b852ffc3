//! What packages are made of: the tables of Cargo.toml, the recipes in `packaging`, units and
//! pages.
//!
//! scripts/package.sh builds the packages and scripts/package-test.sh installs them. These tests
//! find what would break them, and take no time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::zarrfs;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The table `package.metadata` of Cargo.toml.
fn metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let output = command.current_dir(root()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let program = packages.iter().find(|package| package["name"] == "zarrfs").expect("zarrfs");
    program["metadata"].clone()
}

/// The files of a package in its table: the place in the installed system, and the source, which is
/// `None` for a link.
fn assets(table: &Value) -> Vec<(String, Option<String>)> {
    let list = table["assets"].as_array().expect("assets");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = |asset: &Value| {
        let source = text(asset.get(0).unwrap_or(&asset["source"]));
        let dest = text(asset.get(1).unwrap_or(&asset["dest"])).expect("a place");
        (dest.trim_start_matches('/').to_owned(), source)
    };
    list.iter().map(one).collect()
}

/// The files that a source with `*` in its last part names below `dir`.
fn named(dir: &Path, source: &str) -> Vec<PathBuf> {
    let path = dir.join(source);
    let Some((before, after)) = source.rsplit('/').next().and_then(|name| name.split_once('*'))
    else {
        return path.is_file().then_some(path).into_iter().collect();
    };
    let entries = fs::read_dir(path.parent().expect("a directory")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_named = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(before) && name.ends_with(after)
    };
    paths.filter(is_named).collect()
}

#[test]
fn every_file_of_the_packages_exists() {
    // What scripts/package.sh makes of the program.
    let made = tempfile::tempdir().unwrap();
    let share = made.path();
    assert!(zarrfs().arg("man").arg(share.join("man")).status().unwrap().success());
    let script = read("scripts/package.sh");
    for name in ["copyright", "third-party-licences.txt", "third-party-licences.txt.gz"] {
        fs::write(share.join(name), "").unwrap();
    }
    for name in ["changelog.gz", "completions/zarrfs."] {
        assert!(script.contains(&format!("$share/{name}")), "scripts/package.sh makes no {name}");
    }
    fs::write(share.join("changelog.gz"), "").unwrap();
    fs::create_dir(share.join("completions")).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        fs::write(share.join(format!("completions/zarrfs.{shell}")), "").unwrap();
    }
    let metadata = metadata();
    for kind in ["deb", "generate-rpm"] {
        let table = &metadata[kind];
        let others = ["license-file", "changelog", "triggers-file", "post_install_script"];
        let others = others.into_iter().filter_map(|key| {
            let value = table.get(key)?;
            value.get(0).unwrap_or(value).as_str().map(str::to_owned)
        });
        let sources = assets(table).into_iter().filter_map(|(_, source)| source);
        let sources: Vec<String> = sources.chain(others).collect();
        assert!(sources.len() > 15, "{kind}: {sources:?}");
        for source in sources {
            let found = match source.strip_prefix("target/packages/share/") {
                Some(below) => named(share, below),
                // Cargo makes it.
                None if source == "target/release/zarrfs" => continue,
                None => named(root(), &source),
            };
            assert!(!found.is_empty(), "{kind}: {source} does not exist");
        }
    }
}

/// Both packages hold the same files, apart from the places that differ between the systems.
#[test]
fn the_rpm_holds_what_the_debian_package_holds() {
    let metadata = metadata();
    let sources = |kind: &str| -> BTreeSet<String> {
        assets(&metadata[kind]).into_iter().filter_map(|(_, source)| source).collect()
    };
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (deb, rpm) = (sources("deb"), sources("generate-rpm"));
    let only_deb: BTreeSet<String> = own(&[
        "packaging/apparmor/zarrfs.apparmor",
        "packaging/debian/lintian-overrides",
        "target/packages/share/changelog.gz",
        "target/packages/share/third-party-licences.txt.gz",
    ]);
    let only_rpm: BTreeSet<String> = own(&[
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "packaging/rpm/mount.zarrfs",
        "target/packages/share/third-party-licences.txt",
    ]);
    assert_eq!(deb.difference(&rpm).cloned().collect::<BTreeSet<_>>(), only_deb);
    assert_eq!(rpm.difference(&deb).cloned().collect::<BTreeSet<_>>(), only_rpm);
    for kind in ["deb", "generate-rpm"] {
        let places: BTreeSet<String> =
            assets(&metadata[kind]).into_iter().map(|(dest, _)| dest).collect();
        for helper in ["usr/sbin/mount.zarrfs", "usr/sbin/mount.fuse.zarrfs"] {
            assert!(places.contains(helper), "{kind} has no {helper}");
        }
    }
    let licences = metadata["generate-rpm"]["license"].as_str().expect("a licence");
    let is_word = |word: &&str| !matches!(*word, "AND" | "OR");
    let licences: BTreeSet<&str> =
        licences.split([' ', '(', ')']).filter(|word| !word.is_empty()).filter(is_word).collect();
    let deny = read("deny.toml");
    let allowed = deny.split_once("allow = [").unwrap().1.split_once(']').unwrap().0;
    let allowed: BTreeSet<&str> = allowed.split('"').skip(1).step_by(2).collect();
    assert_eq!(licences, allowed, "the licence of the rpm, and the licences of deny.toml");
}

/// The glibc that each place names.
#[test]
fn all_places_name_the_same_glibc() {
    let script = read("scripts/package.sh");
    let glibc = script.split_once("\nglibc=").unwrap().1.lines().next().unwrap();
    let depends = metadata()["deb"]["depends"].as_str().expect("depends").to_owned();
    assert_eq!(depends, format!("libc6 (>= {glibc})"));
    for place in ["scripts/package-test.sh", "packaging/README.md"] {
        assert!(read(place).contains(glibc), "{place} does not name glibc {glibc}");
    }
}

#[test]
fn the_recipes_name_the_current_version() {
    let version = env!("CARGO_PKG_VERSION");
    // The file, and what stands before the version in it.
    let recipes = [
        ("packaging/conda/recipe.yaml", "  version: \"", "\""),
        ("packaging/homebrew/zarrfs.rb", "/zarrfs-", ".tar.gz"),
        ("packaging/spack/package.py", "    version(\"", "\""),
        ("packaging/container/Dockerfile", "ARG VERSION=", "\n"),
        ("packaging/container/zarrfs.def", "    Version ", "\n"),
        ("packaging/debian/changelog", "zarrfs (", "-1)"),
        ("CITATION.cff", "\nversion: ", "\n"),
    ];
    for (path, before, after) in recipes {
        let expected = format!("{before}{version}{after}");
        assert!(read(path).contains(&expected), "{path} does not contain {expected:?}");
    }
}

#[test]
fn every_recipe_is_in_the_table_of_packaging() {
    let readme = read("packaging/README.md");
    let mut open = vec![root().join("packaging")];
    let mut count = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(root().join("packaging")).unwrap().display().to_string();
        let dir = name.split_once('/').map(|(dir, _)| format!("`{dir}/`"));
        let is_named = readme.contains(&format!("`{name}`"))
            || dir.is_some_and(|dir| readme.contains(&dir))
            || name == "README.md";
        assert!(is_named, "packaging/README.md does not name {name}");
        count += 1;
    }
    assert!(count > 10, "only {count} files in packaging");
}

/// The programs that are not on every machine. CI has them.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    let has = found.status.success();
    if !has {
        eprintln!("{program} is missing, so this shows nothing");
    }
    has
}

#[test]
fn systemd_accepts_the_units() {
    if !has("systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let service = read("packaging/systemd/zarrfs@.service");
    assert!(service.contains("ExecStart=/usr/bin/zarrfs mount"), "{service}");
    let own = service.replace("/usr/bin/zarrfs", env!("CARGO_BIN_EXE_zarrfs"));
    // systemd-analyze looks for the page, which this machine may lack.
    let own = own.replace("Documentation=man:zarrfs-mount(1)\n", "");
    fs::write(dir.path().join("zarrfs@mnt-climate.service"), own).unwrap();
    for name in ["mnt-climate.mount", "mnt-climate.automount"] {
        fs::write(dir.path().join(name), read(&format!("packaging/systemd/{name}"))).unwrap();
    }
    let verify = |name: &str| {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(dir.path().join(name));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    for name in ["zarrfs@mnt-climate.service", "mnt-climate.mount", "mnt-climate.automount"] {
        let (accepted, said) = verify(name);
        assert!(accepted && !said.contains("zarrfs@") && !said.contains("mnt-"), "{name}: {said}");
    }
    let wrong = "[Service]\nExecStart=/bin/true\nNotAKey=1\n";
    fs::write(dir.path().join("wrong.service"), wrong).unwrap();
    let (_, said) = verify("wrong.service");
    assert!(said.contains("NotAKey"), "systemd-analyze finds no mistakes: {said}");
}

#[test]
fn the_man_pages_have_a_title_and_no_errors() {
    let dir = tempfile::tempdir().unwrap();
    assert!(zarrfs().arg("man").arg(dir.path()).status().unwrap().success());
    let mut pages = BTreeMap::new();
    for section in ["man1", "man5", "man8"] {
        for entry in fs::read_dir(dir.path().join(section)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            pages.insert(path, text);
        }
    }
    assert!(pages.len() > 12, "{:?}", pages.keys());
    let version = format!("\"zarrfs {}\"", env!("CARGO_PKG_VERSION"));
    for (path, text) in &pages {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_ne!(name, "zarrfs-auto-unmount", "a page of a hidden command");
        let title = text.lines().find(|line| line.starts_with(".TH")).unwrap_or("");
        let is_link = text == ".so man8/mount.zarrfs.8\n";
        let is_of_command = path.parent().unwrap().ends_with("man1");
        assert!(is_link || title.starts_with(".TH "), "{name}: no title");
        assert!(!is_of_command || title.contains(&version), "{name}: {title}");
    }
    if !has("mandoc") {
        return;
    }
    for path in pages.keys() {
        let output = Command::new("mandoc")
            .args(["-T", "lint", "-W", "error"])
            .current_dir(dir.path())
            .arg(path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {said}", path.display());
    }
}
