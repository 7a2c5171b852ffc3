//! Finds the hierarchies in a plain directory.

use std::collections::VecDeque;
use std::path::Path;

use crate::cli::open;
use crate::metadata::{Dialect, NodePath, declared};
use crate::store::directory::Durability;

/// The most directories to look into.
const MAX_DIRECTORIES: usize = 10_000;

/// The most levels of directories above a hierarchy.
const MAX_DEPTH: usize = 3;

/// The metadata file of N5. That of a group says nothing of N5 unless it is the root.
const N5_ATTRIBUTES: &str = "attributes.json";

/// Returns the hierarchies in `root`, which is none itself, if no single dialect can show them all.
pub fn parts(root: &Path) -> Vec<(NodePath, Dialect)> {
    let mut parts: Vec<(NodePath, Dialect)> = Vec::new();
    let mut with_attributes = Vec::new();
    let mut waiting = VecDeque::from([(root.to_owned(), NodePath::root(), 0)]);
    let mut seen = 0_usize;
    while let Some((directory, path, depth)) = waiting.pop_front() {
        // What cannot be read is not shown.
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(child) = name.to_str().and_then(|name| path.child(name).ok()) else {
                continue;
            };
            if !entry.file_type().is_ok_and(|found| found.is_dir()) {
                continue;
            }
            seen = seen.saturating_add(1);
            if seen > MAX_DIRECTORIES {
                return Vec::new();
            }
            let directory = entry.path();
            match open::store(&directory, Durability::Buffered).map(|store| declared(&store)) {
                Ok(Ok(Some(dialect))) => parts.push((child, dialect)),
                Ok(Ok(None)) if depth < MAX_DEPTH => {
                    if directory.join(N5_ATTRIBUTES).is_file() {
                        with_attributes.push(child.clone());
                    }
                    waiting.push_back((directory, child, depth.saturating_add(1)));
                }
                _ => {}
            }
        }
    }
    for group in with_attributes {
        join_n5(&group, &mut parts);
    }
    let is_draft = |dialect: &Dialect| matches!(dialect, Dialect::Draft(_));
    let are_alike =
        parts.windows(2).all(|pair| matches!(pair, [(_, one), (_, other)] if one == other));
    if are_alike && !parts.iter().any(|(_, dialect)| is_draft(dialect)) {
        parts.clear();
    }
    parts
}

/// Puts a group with attributes in the place of the hierarchies below it, if all are of N5.
fn join_n5(group: &NodePath, parts: &mut Vec<(NodePath, Dialect)>) {
    let is_below = |path: &NodePath| path.relative_to(group).is_some_and(|below| !below.is_empty());
    let mut below = parts.iter().filter(|(path, _)| is_below(path)).peekable();
    if below.peek().is_none() || below.any(|(_, dialect)| *dialect != Dialect::N5) {
        return;
    }
    parts.retain(|(path, _)| !is_below(path));
    parts.push((group.clone(), Dialect::N5));
}
