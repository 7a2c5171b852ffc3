//! `docs/check.md` lists every code that `zarrfs check` reports.

use std::fs;
use std::path::Path;

use zarrfs::check::Code;

#[test]
fn every_code_is_on_the_page_with_its_severity_and_meaning() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/check.md");
    let page = fs::read_to_string(page).unwrap();
    let page = page.split("### Codes").nth(1).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| {
            ["| damaged |", "| unchecked |", "| suspect |", "| note |"]
                .iter()
                .any(|s| line.starts_with(s))
        })
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let found: Vec<[String; 3]> =
        rows.iter().map(|row| [1, 2, 3].map(|at| row[at].replace('`', ""))).collect();
    let expected: Vec<[String; 3]> = Code::ALL
        .iter()
        .map(|code| [code.severity().name().to_owned(), code.name().to_owned(), code.meaning()])
        .collect();
    assert_eq!(found, expected);
}
