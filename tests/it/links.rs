//! The links between the pages lead to pages and headings that exist, and the book has every page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of the pages in `docs`.
fn docs() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md")).collect()
}

/// The lines of a page outside of code blocks.
fn lines(page: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push(line);
        }
    }
    lines
}

/// The anchors of a page, as GitHub and mdBook make them of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in lines(page).into_iter().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        let name: String = kept.map(|char| if char == ' ' { '-' } else { char }).collect();
        let same = count.entry(name.clone()).or_default();
        found.insert(if *same == 0 { name } else { format!("{name}-{same}") });
        *same += 1;
    }
    found
}

/// The targets of the links and pictures in a page.
fn targets(page: &str) -> Vec<String> {
    let text = lines(page).join("\n");
    let parts: Vec<&str> = text.split('`').step_by(2).collect();
    // A link may have code as its text.
    let text = parts.join("x");
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

#[test]
fn headings_and_links_are_found() {
    let page =
        "# A `b` (c), d\n## A b c d\n```\n# no\n[no](no.md)\n```\n[`x`](y.md#z) ![](p.svg)\n";
    let want = ["a-b-c-d", "a-b-c-d-1"].map(str::to_owned);
    assert_eq!(anchors(page), want.into());
    assert_eq!(targets(page), ["y.md#z", "p.svg"]);
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut pages: Vec<PathBuf> = docs().iter().map(|name| Path::new("docs").join(name)).collect();
    let others = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    pages.extend(others.map(PathBuf::from));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for target in targets(&text).into_iter().filter(|target| !target.contains("://")) {
            count += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            // A book has only what lies in its directory.
            let leaves_the_book = page.starts_with("docs") && path.starts_with("../");
            let at = match path {
                "" => root().join(&page),
                path => root().join(&page).parent().unwrap().join(path),
            };
            let leads_somewhere = at.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&at).unwrap()).contains(anchor));
            if leaves_the_book || !leads_somewhere {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(count > 50, "only {count} links are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed = targets(&summary);
    listed.sort();
    let mut pages = docs();
    pages.remove("SUMMARY.md");
    assert_eq!(listed, pages.into_iter().collect::<Vec<_>>());
    // The first page is the front of the book.
    assert!(root().join("docs/book.toml").is_file() && summary.contains("\n[Quick start]("));
}

/// The text of the string literals in a source before its tests, with continued lines joined.
fn sentences(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap();
    let code: Vec<&str> =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let literals = code.join("\n");
    let literals = literals.split('"').skip(1).step_by(2);
    let joined =
        literals.map(|text| text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().concat());
    // A message has several words, and a remedy.
    joined.filter(|text| text.contains("; ")).collect()
}

#[test]
fn the_page_of_troubles_has_every_cause_of_a_failed_mount() {
    let source = fs::read_to_string(root().join("src/cli/mount/obstacles.rs")).unwrap();
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let messages: Vec<String> = sentences(&source);
    let messages: Vec<&String> = messages.iter().filter(|text| text.len() > 20).collect();
    assert!(messages.len() >= 10, "only {messages:?} are found");
    let missing: Vec<_> =
        messages.iter().filter(|message| !page.contains(message.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/troubleshooting.md: {missing:#?}");
    // Each of them has a heading with some of its words.
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("### ")).collect();
    for message in messages {
        let is_of_message = |heading: &&str| message.contains(heading[4..].trim_matches('`'));
        assert!(headings.iter().any(is_of_message), "no heading for {message:?}");
    }
}
