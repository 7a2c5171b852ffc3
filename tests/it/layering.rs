//! Imports point one way, and outside things have one owner.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{imports, sources};

/// Each module and the modules that it may name.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("width", &[]),
    ("printable", &[]),
    ("error", &["printable"]),
    ("sys", &["error"]),
    ("waiting", &["error", "sys"]),
    ("bounded", &[]),
    ("budget", &[]),
    ("buffer", &["error"]),
    ("resources", &["sys"]),
    ("limits", &["resources"]),
    ("pool", &[]),
    ("admission", &["resources"]),
    ("parallel", &["error", "waiting", "admission"]),
    ("store", &["error", "limits", "bounded", "buffer", "resources", "pool", "sys", "waiting"]),
    ("backing", &["error", "budget", "buffer", "resources", "store", "sys"]),
    ("shard", &["error"]),
    ("json", &["error", "limits", "resources"]),
    ("dtype", &["error", "json"]),
    ("codec", &["error", "limits", "buffer", "admission", "parallel", "dtype", "shard", "json"]),
    (
        "files",
        &["error", "limits", "width", "bounded", "resources", "dtype", "store", "json", "codec"],
    ),
    ("metadata", &["error", "limits", "resources", "dtype", "store", "json", "codec"]),
    (
        "array",
        &[
            "error",
            "limits",
            "json",
            "bounded",
            "buffer",
            "resources",
            "admission",
            "parallel",
            "dtype",
            "store",
            "shard",
            "metadata",
            "codec",
        ],
    ),
    (
        "hierarchy",
        &["error", "limits", "json", "dtype", "bounded", "resources", "store", "metadata", "array"],
    ),
    (
        "cache",
        &["error", "bounded", "budget", "buffer", "store", "metadata", "codec", "array", "waiting"],
    ),
    ("times", &["dtype"]),
    (
        "convert",
        &[
            "error",
            "json",
            "buffer",
            "parallel",
            "resources",
            "dtype",
            "store",
            "metadata",
            "codec",
            "array",
            "hierarchy",
            "cache",
            "waiting",
        ],
    ),
    (
        "check",
        &[
            "error",
            "limits",
            "json",
            "sys",
            "parallel",
            "store",
            "shard",
            "metadata",
            "array",
            "hierarchy",
            "convert",
        ],
    ),
    (
        "import",
        &[
            "error",
            "json",
            "buffer",
            "parallel",
            "dtype",
            "store",
            "metadata",
            "array",
            "hierarchy",
            "cache",
            "convert",
            "times",
            "width",
        ],
    ),
    (
        "diff",
        &[
            "error",
            "limits",
            "json",
            "parallel",
            "buffer",
            "dtype",
            "metadata",
            "codec",
            "array",
            "hierarchy",
            "cache",
        ],
    ),
    (
        "view",
        &[
            "error",
            "json",
            "budget",
            "buffer",
            "resources",
            "dtype",
            "metadata",
            "codec",
            "array",
            "hierarchy",
            "times",
        ],
    ),
    ("selection", &["error", "json", "dtype", "metadata", "times", "view", "width"]),
    (
        "cut",
        &[
            "selection",
            "error",
            "json",
            "dtype",
            "store",
            "metadata",
            "array",
            "hierarchy",
            "cache",
            "view",
            "width",
        ],
    ),
    (
        "rewrite",
        &[
            "error",
            "json",
            "buffer",
            "resources",
            "parallel",
            "store",
            "dtype",
            "codec",
            "files",
            "metadata",
            "array",
            "hierarchy",
            "cache",
            "view",
            "width",
        ],
    ),
    (
        "vfs",
        &[
            "printable",
            "error",
            "waiting",
            "limits",
            "json",
            "sys",
            "bounded",
            "budget",
            "buffer",
            "store",
            "metadata",
            "codec",
            "array",
            "hierarchy",
            "cache",
            "view",
            "rewrite",
            "convert",
            "files",
            "pool",
            "backing",
            "resources",
        ],
    ),
    ("dap", &["error", "buffer", "dtype", "metadata", "codec", "array", "view"]),
    ("fuse", &["error", "sys", "vfs", "pool", "backing", "waiting"]),
    (
        "serve",
        &[
            "printable",
            "error",
            "json",
            "pool",
            "metadata",
            "array",
            "hierarchy",
            "cache",
            "view",
            "vfs",
            "dap",
            "raster",
            "picture",
        ],
    ),
    ("stats", &["error", "buffer", "dtype", "metadata", "codec", "array"]),
    (
        "raster",
        &[
            "error",
            "json",
            "buffer",
            "parallel",
            "dtype",
            "metadata",
            "array",
            "view",
            "selection",
            "stats",
        ],
    ),
    ("picture", &["dtype"]),
    (
        "cli",
        &[
            "printable",
            "error",
            "cut",
            "limits",
            "json",
            "sys",
            "store",
            "files",
            "metadata",
            "array",
            "hierarchy",
            "resources",
            "vfs",
            "fuse",
            "cache",
            "codec",
            "convert",
            "import",
            "check",
            "diff",
            "view",
            "dtype",
            "stats",
            "raster",
            "picture",
            "serve",
        ],
    ),
];

/// The rooms of `src/vfs`: each may import only those before it in this list. A file that is not
/// in a folder is a room of its own; a `mod.rs` belongs to its folder.
const ROOMS: &[&str] = &[
    "authors",
    "view_writers",
    "refused",
    "access",
    "options",
    "journal",
    "core",
    "kernel",
    "inodes",
    "reader",
    "names",
    "contents",
    "opening",
    "changes",
    "attr_writer",
    "xattrs",
    "versions",
    "mod",
    "file_calls",
    "name_calls",
];

/// Words that only one place may say, and that place.
const OWNED: &[(&str, &[&str])] = &[
    ("fuser::", &["src/fuse/"]),
    ("rayon::", &["src/parallel.rs"]),
    ("object_store::", &["src/store/object"]),
    ("reqwest::", &["src/store/http", "src/store/object"]),
    ("tokio::", &["src/store/http", "src/store/object", "src/store/runner.rs", "src/serve/"]),
    ("hyper::", &["src/serve/"]),
    (
        "std::fs",
        &[
            "src/store/directory",
            "src/store/disk_cache",
            "src/store/new_file",
            "src/store/open_file",
            "src/store/unnamed",
            "src/store/object/credentials",
            "src/store/object/environment",
            "src/sys/",
            "src/cli/",
        ],
    ),
    ("rustix::fs", &["src/store/directory", "src/store/open_file", "src/sys/"]),
    ("openat", &["src/sys/"]),
    ("unsafe {", &["src/sys/"]),
    // Icechunk stores Zarr 3 only, and files of other formats are shown as that.
    (
        "zarr_format",
        &[
            "src/metadata/",
            "src/cli/demo.rs",
            "src/files/described.rs",
            "src/store/icechunk/states.rs",
        ],
    ),
    ("storage_transformers", &["src/metadata/", "src/cli/demo.rs"]),
    // Only the guard may say that an array is as the store has it now. The others store chunks
    // before any other program can know the array.
    ("Current::compared", &["src/hierarchy/guard.rs"]),
    (
        "Current::made_here",
        &[
            "src/cli/demo.rs",
            "src/convert/chunks.rs",
            "src/vfs/contents/convert.rs",
            "src/rewrite/values.rs",
        ],
    ),
];

/// The files with changes of nodes. They follow from what the store has now, so they may not look
/// at cached nodes (`hierarchy/guard.rs`); the exception decides over no change.
const CHANGES: &[(&str, &[&str])] = &[
    ("src/hierarchy/change.rs", &[]),
    ("src/hierarchy/edit.rs", &[]),
    ("src/hierarchy/conversion.rs", &[]),
    // Nothing is moved; it only decides which error says so.
    ("src/hierarchy/moving.rs", &["if self.hierarchy.existing(from)?.is_bare() {"]),
    // A group that has a metadata file stays as it is.
    (
        "src/hierarchy/groups.rs",
        &[
            "let known = self.hierarchy.node(path)?;",
            // Keeping a directory destroys nothing, and what is removed is compared afterwards.
            "let Some(node) = self.hierarchy.node(path)? else { return Ok(()) };",
        ],
    ),
    // `check` reads what is there.
    ("src/hierarchy/consolidated.rs", &["let node = self.hierarchy.node(group)?;"]),
];

/// The lines of every source file that are code, without tests and comments.
fn code() -> Vec<(String, usize, String)> {
    let lines = |source: sources::Source| {
        let name = source.name;
        source.lines.into_iter().map(move |(at, line)| (name.clone(), at, line))
    };
    sources::all().into_iter().flat_map(lines).collect()
}

fn module_of(file: &str) -> &str {
    let below = file.strip_prefix("src/").expect("below src");
    below.split(['/', '.']).next().expect("a module")
}

#[test]
fn every_module_names_only_those_before_it() {
    let mut wrong = Vec::new();
    for (file, at, line) in code() {
        let module = module_of(&file);
        if matches!(module, "lib" | "main" | "testing") {
            continue;
        }
        let (_, allowed) = MAY_NAME
            .iter()
            .find(|(name, _)| *name == module)
            .unwrap_or_else(|| panic!("{file}: module {module} is not in the table"));
        for named in line.split("crate::").skip(1) {
            let named =
                named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
            let is_module = MAY_NAME.iter().any(|(name, _)| *name == named);
            // Like what `std` has.
            let is_of_all = named == "width";
            if is_module && named != module && !is_of_all && !allowed.contains(&named) {
                wrong.push(format!("{file}:{at}: {module} may not name {named}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_of_modules_has_each_one_after_those_that_it_may_name() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let text = fs::read_to_string(path).expect("src/lib.rs");
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | ")?.split('`').nth(1));
    let rows: Vec<&str> = rows.filter(|row| !row.starts_with("zarrfs-")).collect();
    let place = |name: &str| rows.iter().position(|row| *row == name);
    for (name, allowed) in MAY_NAME {
        let own = place(name).unwrap_or_else(|| panic!("src/lib.rs has no row for {name}"));
        for before in *allowed {
            assert!(place(before) < Some(own), "src/lib.rs: {name} is above {before}");
        }
    }
    assert_eq!(rows.len(), MAY_NAME.len(), "{rows:?}");
}

#[test]
fn every_crate_of_the_program_is_looked_at() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let found: BTreeSet<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let known = sources::MEMBERS.map(|(name, _)| name.to_owned());
    assert_eq!(found, BTreeSet::from(known));
}

#[test]
fn outside_things_have_one_owner() {
    let mut wrong = Vec::new();
    for (file, at, line) in code() {
        for (word, owners) in OWNED {
            if line.contains(word) && !owners.iter().any(|owner| file.starts_with(owner)) {
                wrong.push(format!("{file}:{at}: only {} may say {word}", owners.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_change_follows_from_a_cached_node() {
    let mut wrong = Vec::new();
    for (file, at, line) in code() {
        let Some((_, allowed)) = CHANGES.iter().find(|(name, _)| *name == file) else { continue };
        let looks = ["hierarchy.node(", "hierarchy.existing(", "hierarchy.child_node("];
        let is_allowed = allowed.contains(&line.trim());
        if looks.iter().any(|look| line.contains(look)) && !is_allowed {
            wrong.push(format!("{file}:{at}: a change looks at a cached node: {}", line.trim()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_of_the_file_tree_imports_only_those_before_it() {
    let room = |file: &str| -> Option<usize> {
        let name = file.strip_prefix("vfs/")?.split(['/', '.']).next()?;
        let at = ROOMS.iter().position(|room| *room == name);
        Some(at.unwrap_or_else(|| panic!("{file}: the room {name} is not in the list")))
    };
    let graph = imports::graph(&imports::code());
    let imports = graph.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let wrong = imports
        .filter(|(from, to)| matches!((room(from), room(to)), (Some(from), Some(to)) if from < to));
    let wrong: Vec<_> =
        wrong.map(|(from, to)| format!("src/{from} may not import src/{to}")).collect();
    assert!(room("vfs/core.rs").is_some() && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The most lines of a module of tests in the file that it tests, and in a file of its own.
const LONGEST_TESTS: (usize, usize) = (160, 800);

#[test]
fn unit_tests_are_at_the_end_of_their_file_or_in_the_tests_of_their_folder() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (file, name) in sources::files() {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        if name.ends_with("tests.rs") && lines.len() > LONGEST_TESTS.1 {
            wrong.push(format!("{name}: {} lines of tests", lines.len()));
        }
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[cfg(test)]") {
            let mut item = lines[at + 1..].iter().skip_while(|line| line.starts_with("#["));
            let attributes = lines[at + 1..].iter().take_while(|line| line.starts_with("#["));
            let is_support = attributes.into_iter().any(|line| line.starts_with("#[path = \""));
            let Some((_, module)) = item.next().and_then(|line| line.split_once("mod ")) else {
                continue;
            };
            count += 1;
            let (len, is_inline) = (lines.len() - at, module.ends_with('{'));
            let is_right = match module.trim_end_matches([';', ' ', '{']) {
                "tests" if is_inline => len <= LONGEST_TESTS.0 && lines[lines.len() - 1] == "}",
                "tests" => true,
                _ => is_support,
            };
            if !is_right {
                wrong.push(format!("{name}:{}: mod {module} ({len} lines)", at + 1));
            }
        }
    }
    assert!(count > 190 && wrong.is_empty(), "{count} modules\n{}", wrong.join("\n"));
}
