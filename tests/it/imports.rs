//! Which source files import which.
//!
//! An import leads to the file of the innermost module that a path names.
//! `crate::codec::kinds::ArrayToBytes` is an import of `src/codec/kinds.rs`, and
//! `crate::codec::ArrayToBytes` is one of `src/codec/mod.rs`, although `mod.rs` only re-exports the
//! trait. Paths count in `use` and in code, but not in comments, strings and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sources;

/// The name of each file by the path of its module: `codec::table`.
type Files = BTreeMap<String, String>;

/// The files that each file imports.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The length of a literal at the start of `text`, in characters, 0 if there is none.
fn literal_len(text: &[char]) -> usize {
    let until = |start: usize, end: &str| {
        let end: Vec<char> = end.chars().collect();
        let found = text.windows(end.len()).skip(start).position(|window| window == end);
        found.map_or(text.len(), |at| start + at + end.len())
    };
    match text {
        ['r', '#' | '"', ..] => {
            let hashes = text.iter().skip(1).take_while(|found| **found == '#').count();
            if text.get(1 + hashes) != Some(&'"') {
                return 0;
            }
            until(2 + hashes, &format!("\"{}", "#".repeat(hashes)))
        }
        ['\'', '\\', _, ..] => until(3, "'"),
        ['\'', _, '\'', ..] => 3,
        ['"', inside @ ..] => {
            let mut escaped = false;
            let end = inside.iter().position(|found| {
                let ends = *found == '"' && !escaped;
                escaped = *found == '\\' && !escaped;
                ends
            });
            end.map_or(text.len(), |at| at + 2)
        }
        _ => 0,
    }
}

/// The words, `::` and other characters of a source file, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let is_word = |found: &char| found.is_alphanumeric() || *found == '_';
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let literal_len = literal_len(rest);
        let word_len = rest.iter().take_while(|found| is_word(found)).count();
        at += match rest {
            ['/', '/', ..] => rest.iter().take_while(|found| **found != '\n').count(),
            _ if literal_len > 0 => literal_len,
            _ if word_len > 0 => {
                tokens.push(rest[..word_len].iter().collect());
                word_len
            }
            [':', ':', ..] => {
                tokens.push("::".to_owned());
                2
            }
            [found, ..] => {
                if !found.is_whitespace() {
                    tokens.push(found.to_string());
                }
                1
            }
            [] => 0,
        };
    }
    tokens
}

/// How many of `tokens` an item takes, up to its `;` or the end of its first braces.
fn item_len(tokens: &[String]) -> usize {
    let mut depth = 0_usize;
    let end = tokens.iter().position(|token| {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(token.as_str(), ";" | "}")
    });
    end.map_or(tokens.len(), |end| end + 1)
}

/// The paths of a `use` whose tokens follow `before`.
fn used(tokens: &[String], before: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    let mut rest = tokens;
    while let Some((token, behind)) = rest.split_first() {
        match token.as_str() {
            "{" => {
                let inside = behind.split_last().map_or(behind, |(_, inside)| inside);
                let mut depth = 0_i32;
                for part in inside.split(|token| {
                    depth += i32::from(token == "{") - i32::from(token == "}");
                    depth == 0 && token == ","
                }) {
                    used(part, &path, paths);
                }
                return;
            }
            "as" => break,
            "::" => {}
            name => path.push(name.to_owned()),
        }
        rest = behind;
    }
    if path.len() > before.len() {
        paths.push(path);
    }
}

/// All paths of a source file with at least two names, and those of its `use` items.
fn paths(text: &str) -> Vec<Vec<String>> {
    let tokens = tokens(text);
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(rest) = tokens.get(at..).filter(|rest| !rest.is_empty()) {
        let next: Vec<&str> = rest.iter().take(7).map(String::as_str).collect();
        at += match next.as_slice() {
            ["#", "[", "cfg", "(", "test", ")", "]"] => 7 + item_len(&rest[7..]),
            ["pub", "(", ..] => rest.iter().take_while(|token| *token != ")").count() + 1,
            ["use", found, ..] if *found != "<" => {
                let len = rest.iter().take_while(|token| *token != ";").count();
                used(&rest[1..len], &[], &mut paths);
                len + 1
            }
            [_, "::", ..] => {
                let names =
                    rest.chunks(2).take_while(|pair| pair.get(1).is_some_and(|t| t == "::"));
                let len = 2 * names.count();
                let names = rest.iter().take(len + 1).step_by(2);
                paths.push(names.cloned().collect());
                len + 1
            }
            _ => 1,
        };
    }
    paths
}

/// The file that `path` in `module` leads to, `None` if it is not one of `files`.
fn imported(files: &Files, module: &str, path: &[String]) -> Option<String> {
    let child = |module: &str, name: &str| {
        if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
    };
    let parent = |module: &str| module.rsplit_once("::").map_or("", |(outer, _)| outer).to_owned();
    let mut names = path.iter().map(String::as_str).peekable();
    let mut target = match *names.peek()? {
        "crate" => String::new(),
        "self" | "super" => module.to_owned(),
        name if files.contains_key(&child(module, name)) => module.to_owned(),
        _ => return None,
    };
    names.next_if(|name| ["crate", "self"].contains(name));
    while names.next_if_eq(&"super").is_some() {
        target = parent(&target);
    }
    for name in names {
        let inner = child(&target, name);
        if !files.contains_key(&inner) {
            break;
        }
        target = inner;
    }
    files.get(&target).cloned()
}

/// The imports between source files, given as pairs of a name below `src` and a text.
pub fn graph(sources: &[(String, String)]) -> Graph {
    let module = |name: &str| {
        let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
        if path == "lib" { String::new() } else { path.replace('/', "::") }
    };
    let files: Files = sources.iter().map(|(name, _)| (module(name), name.clone())).collect();
    let imports = |name: &String, text: &String| -> BTreeSet<String> {
        let paths = paths(text);
        let found = paths.iter().filter_map(|path| imported(&files, &module(name), path));
        found.filter(|found| found != name).collect()
    };
    sources.iter().map(|(name, text)| (name.clone(), imports(name, text))).collect()
}

/// The source files without tests, by name below `src`.
pub fn code() -> Vec<(String, String)> {
    let is_test = |name: &str| name.contains("tests");
    let named = sources::files().into_iter().map(|(file, name)| (name[4..].to_owned(), file));
    let code = named.filter(|(name, _)| !is_test(name));
    code.map(|(name, file)| {
        let text = fs::read_to_string(&file).unwrap();
        (name, sources::in_program(&file, &text))
    })
    .collect()
}
