//! Files do not import each other in a circle.
//!
//! A circle is a set of files in which each file reaches every other one through imports
//! (`imports`). Two files that belong together may import each other; larger circles may not.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{self, Graph};

/// The files that `from` reaches.
fn reached<'g>(graph: &'g Graph, from: &'g str) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(file) = pending.pop() {
        for next in graph.get(file).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                pending.push(next);
            }
        }
    }
    reached
}

/// The circles of more than two files.
fn circles(graph: &Graph) -> BTreeSet<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reached(graph, file))).collect();
    let circle = |file: &&str| -> Vec<&str> {
        let back = |other: &&str| reach.get(other).is_some_and(|reached| reached.contains(file));
        reach.get(file).into_iter().flatten().copied().filter(back).collect()
    };
    reach.keys().map(circle).filter(|circle| circle.len() > 2).collect()
}

#[test]
fn a_circle_is_found_through_every_form_of_import() {
    let source = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let sources = [
        source("lib.rs", "pub mod codec;"),
        source("codec/mod.rs", "mod row; mod table; mod zstd; pub use table::{self as t, find};"),
        source(
            "codec/table.rs",
            "use super::{row::Row, zstd::{Level, Zstd}}; const Q: char = '\"';",
        ),
        source(
            "codec/zstd.rs",
            "pub(in crate::codec) fn f<'a>(c: char) { c == '\\''; crate::codec::find() }",
        ),
        source(
            "codec/row.rs",
            "// crate::codec::find\nconst A: &str = r#\"\"super::table\"#;\n\
             #[cfg(test)]\nmod tests { use super::super::table; }",
        ),
    ];
    let graph = imports::graph(&sources);
    let expected = vec!["codec/mod.rs", "codec/table.rs", "codec/zstd.rs"];
    assert_eq!(circles(&graph), BTreeSet::from([expected]), "{graph:#?}");
}

#[test]
fn no_more_than_two_files_import_each_other_in_a_circle() {
    let graph = imports::graph(&imports::code());
    assert!(graph.contains_key("codec/table.rs"), "the sources are not found");
    let found = circles(&graph);
    assert!(found.is_empty(), "{found:#?}");
}
