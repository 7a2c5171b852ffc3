//! Every place where zarrfs removes or replaces a file is in a table of `docs/limits.md`, with the
//! reason why it may.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::sources;

/// What removes or replaces a file of a disk, by its name.
const OF_DISK: [&str; 11] = [
    "unlinkat(",
    "renameat(",
    "renameat_with(",
    "fs::remove_",
    "fs::rename(",
    "File::create(",
    ".set_len(0)",
    ".remove_if(",
    ".remove_directory_if(",
    "dir.remove(",
    "above.remove(",
];

/// What removes or moves values of a store.
const OF_STORE: [&str; 9] = [
    ".erase_prefix(",
    ".erase_values(",
    ".erase_unchanged(",
    ".remove_lock(",
    ".move_prefix(",
    ".erase_empty(",
    ".move_to_free(",
    ".move_value(",
    ".delete(",
];

#[test]
fn every_place_that_removes_a_file_is_in_the_table_with_a_reason() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split("## Files that zarrfs removes").nth(1).expect("the section");
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert!(cells.len() == 6 && !cells[3].is_empty() && !cells[4].is_empty(), "{line}");
        let count = if cells[2] == "-" { 0 } else { cells[2].parse().expect("a number") };
        rows.insert(format!("src/{}", cells[1].trim_matches('`')), count);
    }
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources::all() {
        let has = |line: &str, words: &[&str]| {
            !line.contains("fn ") && words.iter().any(|word| line.contains(word))
        };
        let lines = || source.lines.iter().map(|(_, line)| line.as_str());
        let on_disk = lines().filter(|line| has(line, &OF_DISK)).count();
        if on_disk > 0 || lines().any(|line| has(line, &OF_STORE)) {
            found.insert(source.name.clone(), on_disk);
        }
    }
    for (file, count) in &found {
        let said = rows.get(file);
        assert_eq!(
            said,
            Some(count),
            "{file} has {count} lines that remove or replace files, and the table says {said:?}: say \
             there why zarrfs may"
        );
    }
    let gone: Vec<&String> = rows.keys().filter(|file| !found.contains_key(*file)).collect();
    assert!(gone.is_empty(), "in the table, but remove nothing: {gone:?}");
}
