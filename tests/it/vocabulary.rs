//! The words of the code: a name of a type stands for one thing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::sources;

/// What each member needs under the same name: the examples of its README are tests.
const ALLOWED: [&str; 1] = ["Readme"];

/// The name of the type that a line defines, if it defines one.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let name = rest.get(..end)?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn definitions_of_types_are_recognised() {
    let lines = [
        ("pub(super) struct ShardIndex<'s> {", Some("ShardIndex")),
        ("    enum Kind { A }", Some("Kind")),
        ("pub(in crate::vfs) struct Handles(Vec<u8>);", Some("Handles")),
        ("pub struct Pair(pub u8, pub u8);", Some("Pair")),
        ("pub type ReadStream<'s> = Vec<&'s str>;", Some("ReadStream")),
        ("trait Walk: Send {", Some("Walk")),
        ("pub fn kind() {", None),
        ("// struct Kind", None),
        ("let structure = 1;", None),
    ];
    for (line, expected) in lines {
        assert_eq!(defined(line), expected, "{line}");
    }
}

/// The places of the definitions of types in the workspace, by their names.
fn definitions() -> BTreeMap<String, Vec<String>> {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for (file, name) in sources::files() {
        let text = fs::read_to_string(&file).unwrap();
        // Types that an implementation names are those of its trait.
        let of_traits = text.lines().enumerate().filter(|(_, line)| !line.starts_with("    type "));
        for (number, line) in of_traits {
            if let Some(defined) = defined(line) {
                let place = format!("{name}:{}", number + 1);
                places.entry(defined.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(places.len() > 1000, "{} names", places.len());
    places
}

#[test]
fn every_type_of_the_glossary_exists() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let page = fs::read_to_string(page).unwrap();
    let words = page.split("## Words").nth(1).and_then(|rest| rest.split("## ").next()).unwrap();
    let mut named = Vec::new();
    for line in words.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        for cell in [cells[1], cells[3]] {
            named.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let definitions = definitions();
    let missing: Vec<_> = named.iter().filter(|name| !definitions.contains_key(*name)).collect();
    assert!(missing.is_empty(), "no type has these names of the glossary: {missing:?}");
    assert!(named.len() >= 40, "{} names", named.len());
}

#[test]
fn at_most_two_types_of_the_workspace_have_the_same_name() {
    let mut places = definitions();
    places.retain(|name, places| places.len() > 2 && !ALLOWED.contains(&name.as_str()));
    assert!(places.is_empty(), "give all but two of these names of their own: {places:#?}");
}
