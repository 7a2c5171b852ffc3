//! The sources of all members without tests and comments, for tests of how they are written.
//!
//! A source has the name of its module in the program, which exports those of all members:
//! `src/store/key.rs` for `crates/store/src/key.rs`, and `src/dtype/types.rs` for
//! `crates/codec/src/dtype/types.rs`.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of a member, and its lines of code with their numbers.
pub struct Source {
    /// The name: `src/`, and the path of the module.
    pub name: String,
    /// The lines that are neither comments nor part of a test module.
    pub lines: Vec<(usize, String)>,
}

/// The members. The program exports the root of some as a module, and the modules of the others.
pub const MEMBERS: [(&str, Option<&str>); 5] = [
    ("base", None),
    ("codec", Some("codec")),
    ("store", Some("store")),
    ("hierarchy", None),
    ("files", Some("files")),
];

/// Modules of the former that the program exports beside the root, with the name of that.
pub const BESIDE: [(&str, &str); 4] =
    [("store", "backing"), ("codec", "dtype"), ("codec", "json"), ("codec", "shard")];

/// The directory of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory with the sources of each member, and its root if that is a module.
pub fn members() -> Vec<(PathBuf, Option<&'static str>)> {
    let of_member =
        |(name, module): (&str, _)| (root().join("crates").join(name).join("src"), module);
    [(root().join("src"), None)].into_iter().chain(MEMBERS.map(of_member)).collect()
}

/// The path below `src` that a file of a member would have if all members were one.
pub fn module_of_program(of_root: Option<&str>, module: &str) -> String {
    let first = module.split(['/', '.']).next().unwrap_or_default();
    match of_root {
        Some(own) if module == "lib.rs" => format!("{own}/mod.rs"),
        Some(own) if !BESIDE.contains(&(own, first)) => format!("{own}/{module}"),
        _ => module.to_owned(),
    }
}

/// Every file of Rust below the sources of the members, with its name in the program.
pub fn files() -> Vec<(PathBuf, String)> {
    let mut named = Vec::new();
    for (src, of_root) in members() {
        let mut files = Vec::new();
        find(&src, &mut files);
        // The roots of members without a module only declare theirs.
        files.retain(|file| {
            of_root.is_some() || src == root().join("src") || *file != src.join("lib.rs")
        });
        named.extend(files.into_iter().map(|file| {
            let below = file.strip_prefix(&src).unwrap().to_str().unwrap();
            let name = format!("src/{}", module_of_program(of_root, below));
            (file, name)
        }));
    }
    named.sort();
    named
}

/// The text of a source as it would be if all members were one.
pub fn in_program(file: &Path, text: &str) -> String {
    let member = members().into_iter().find(|(src, _)| file.starts_with(src));
    let own = member.and_then(|(_, of_root)| of_root);
    let mut text = match own {
        Some(own) => text.replace("crate::", &format!("crate::{own}::")),
        None => text.to_owned(),
    };
    for (name, of_root) in MEMBERS {
        let root = of_root.map_or("crate::".to_owned(), |own| format!("crate::{own}::"));
        text = text.replace(&format!("zarrfs_{name}::"), &root);
    }
    for (of_root, module) in BESIDE {
        text = text.replace(&format!("crate::{of_root}::{module}"), &format!("crate::{module}"));
    }
    text
}

/// Every source file that is compiled without `cfg(test)`, ordered by name.
pub fn all() -> Vec<Source> {
    let mut of_tests = Vec::new();
    let names: std::collections::BTreeMap<PathBuf, String> = files().into_iter().collect();
    let texts: Vec<(PathBuf, String)> =
        names.keys().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect();
    for (file, text) in &texts {
        of_tests.extend(test_modules(text).into_iter().map(|module| below(file).join(module)));
    }
    let is_of_tests =
        |file: &Path| of_tests.iter().any(|module| file.with_extension("").starts_with(module));
    texts
        .iter()
        .filter(|(file, _)| !is_of_tests(file))
        .map(|(file, text)| Source {
            name: names[file].clone(),
            lines: code(&in_program(file, text)),
        })
        .collect()
}

/// Every file of Rust below a directory.
pub fn find(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The directory that has the modules of a file.
fn below(file: &Path) -> PathBuf {
    let is_dir = ["mod", "lib", "main"].iter().any(|stem| file.file_stem().unwrap() == *stem);
    if is_dir { file.parent().unwrap().to_owned() } else { file.with_extension("") }
}

/// The name of the module that a line declares or opens, and whether its code is in another file.
fn module(line: &str) -> Option<(&str, bool)> {
    let (_, rest) = line.trim_start().split_once("mod ").filter(|(before, _)| {
        before.is_empty() || (before.starts_with("pub") && before.ends_with(' '))
    })?;
    let name = rest.trim_end_matches([' ', '{', ';']);
    Some((name, rest.ends_with(';')))
}

/// The modules in files of their own that a source declares under `cfg(test)`.
fn test_modules(text: &str) -> Vec<&str> {
    let lines = text.lines().collect::<Vec<_>>();
    let declared = lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]");
    declared
        .filter_map(|pair| module(pair[1]))
        .filter_map(|(name, is_file)| is_file.then_some(name))
        .collect()
}

/// The lines of a source without comments, and without the test module in it, which is the last
/// item.
fn code(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_test_module = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && module(pair[1]).is_some_and(|(_, is_file)| !is_file)
    };
    let end = lines.windows(2).position(is_test_module).unwrap_or(lines.len());
    (1..)
        .zip(&lines[..end])
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(number, line)| (number, (*line).to_owned()))
        .collect()
}

#[test]
fn code_goes_on_after_the_declaration_of_a_test_module() {
    let text = "mod a;\n#[cfg(test)]\npub(crate) mod b;\n// c\nfn d() {}\n#[cfg(test)]\nmod e {\n}";
    assert_eq!(test_modules(text), ["b"]);
    let numbers: Vec<usize> = code(text).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [1, 2, 3, 5]);
}
