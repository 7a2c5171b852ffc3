//! The sources of the library without tests and comments, for tests of how they are written.

use std::fs;
use std::path::{Path, PathBuf};

/// A file below `src`, and its lines of code with their numbers.
pub struct Source {
    /// The path from the root of the repository.
    pub name: String,
    /// The lines that are neither comments nor part of a test module.
    pub lines: Vec<(usize, String)>,
}

/// Every source file that is compiled without `cfg(test)`, ordered by name.
pub fn all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut files, mut of_tests) = (Vec::new(), Vec::new());
    find(&root.join("src"), &mut files);
    files.sort();
    let texts: Vec<(PathBuf, String)> =
        files.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect();
    for (file, text) in &texts {
        of_tests.extend(test_modules(text).into_iter().map(|module| below(file).join(module)));
    }
    let is_of_tests =
        |file: &Path| of_tests.iter().any(|module| file.with_extension("").starts_with(module));
    let name = |file: &Path| file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    texts
        .iter()
        .filter(|(file, _)| !is_of_tests(file))
        .map(|(file, text)| Source { name: name(file), lines: code(text) })
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
