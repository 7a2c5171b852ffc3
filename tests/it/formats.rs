//! `docs/formats.md` says what the code does.

use std::fs;
use std::path::Path;

use zarrfs::codec::registry::Chain;
use zarrfs::dtype::DType;
use zarrfs::metadata::Dialect;
use zarrfs::metadata::model::{CodecSpec, Object};

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
        assert!(Chain::sort(&[spec]).is_ok(), "{name} is not built");
    }
    assert!(Chain::sort(&[CodecSpec::new("homeopathy", Object::new())]).is_err());
}

#[test]
fn every_data_type_that_the_page_names_is_known() {
    let names = rows("Data types");
    assert!(names.len() > 14, "{names:?}");
    for name in names {
        assert!(DType::parse(&name).is_some(), "{name} is not known");
    }
}

#[test]
fn every_dialect_that_the_command_takes_is_on_the_page() {
    let names = rows("Dialects");
    for name in ["v3", "d2020-10"] {
        assert!(names.iter().any(|named| named == name), "{name} is not on the page");
        assert!(Dialect::parse_name(name).is_some(), "{name} is not taken");
    }
}
