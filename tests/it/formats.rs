//! `docs/formats.md` says what the code does.

use std::fs;
use std::path::Path;

use zarrfs::codec::registry::CodecChain;
use zarrfs::codec::{CodecSpec, table};
use zarrfs::dtype::{DType, Narrow};
use zarrfs::json::Object;
use zarrfs::metadata::Dialect;
use zarrfs::view::FORMATS;

fn rows(heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let names = |row: &str| -> Vec<String> {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    section.lines().filter(|line| line.starts_with("| `")).flat_map(names).collect()
}

#[test]
fn every_codec_that_the_page_names_is_built() {
    let names = rows("Codecs");
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let mut configuration = Object::new();
        configuration.insert("order".to_owned(), serde_json::json!([0]));
        configuration.insert("elementsize".to_owned(), serde_json::json!(4));
        configuration.insert("codecs".to_owned(), serde_json::json!([]));
        let spec = CodecSpec::new(&name, configuration);
        assert!(CodecChain::sort(&[spec]).is_ok(), "{name} is not built");
    }
    assert!(CodecChain::sort(&[CodecSpec::new("homeopathy", Object::new())]).is_err());
}

#[test]
fn every_codec_of_the_table_is_on_the_page() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md"));
    let page = page.unwrap();
    let missing: Vec<&str> = table::ROWS
        .iter()
        .map(|row| row.name)
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_view_of_the_table_is_on_the_page() {
    let names = rows("Views");
    for format in FORMATS {
        let is_named = names.iter().any(|name| name == format.extension);
        assert!(is_named, "docs/formats.md, section Views, has no row for {}", format.extension);
    }
}

#[test]
fn every_data_type_that_the_page_names_is_known() {
    let names = rows("Data types");
    assert!(names.len() > 14, "{names:?}");
    for name in names {
        assert!(DType::parse(&name).is_some(), "{name} is not known");
    }
    let names = rows("Data types");
    for number in Narrow::all() {
        assert!(names.iter().any(|name| name == number.name), "{} is not on the page", number.name);
    }
}

#[test]
fn every_dialect_that_the_command_takes_is_on_the_page() {
    let names = rows("Dialects");
    for dialect in Dialect::all() {
        let name = dialect.name();
        assert!(names.iter().any(|named| named == name), "{name} is not on the page");
        assert_eq!(Dialect::parse_name(name), Some(dialect));
    }
    let makes = |name: &str| Dialect::parse_name(name).unwrap().check_makes_nodes().is_ok();
    let made: Vec<&String> =
        names.iter().filter(|name| name.as_str() != "attributes.json").collect();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md"));
    for line in page.unwrap().lines().filter(|line| line.starts_with("| `d20")) {
        let name = line.split('`').nth(1).unwrap();
        assert!(made.iter().any(|made| *made == name));
        assert_eq!(!line.contains("refused: no program reads them"), makes(name), "{line}");
    }
}
