//! `docs/formats.md` says what the code does.

use std::fs;
use std::path::Path;

use zarrfs::codec::registry::CodecChain;
use zarrfs::codec::{CodecSpec, foreign, table};
use zarrfs::dtype::{DType, Narrow};
use zarrfs::json::Object;
use zarrfs::metadata::Dialect;
use zarrfs::view::FORMATS;

/// The lines of the table in a section.
fn lines(heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

fn rows(heading: &str) -> Vec<String> {
    let names = |row: &str| -> Vec<String> {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    lines(heading).iter().flat_map(|line| names(line)).collect()
}

/// A codec in the table of the page, and whether it is read and written.
struct Named {
    name: String,
    is_read: bool,
    is_written: bool,
}

fn codecs() -> Vec<Named> {
    let word = |cell: Option<&str>| match cell.map(str::trim) {
        Some("yes") => true,
        Some("no") => false,
        other => panic!("{other:?} is neither yes nor no"),
    };
    let named = |line: &str| {
        let mut cells = line.split('|').skip(1);
        let names = cells.next().unwrap_or_default().split('`').skip(1).step_by(2);
        let names: Vec<String> = names.map(str::to_owned).collect();
        let (is_read, is_written) = (word(cells.next()), word(cells.next()));
        names.into_iter().map(move |name| Named { name, is_read, is_written })
    };
    lines("Codecs").iter().flat_map(|line| named(line)).collect()
}

#[test]
fn every_codec_that_the_page_names_is_built_or_known_to_be_foreign() {
    let codecs = codecs();
    assert!(codecs.len() > 100, "{} codecs", codecs.len());
    for Named { name, is_read, is_written } in codecs {
        let mut configuration = Object::new();
        configuration.insert("order".to_owned(), serde_json::json!([0]));
        configuration.insert("elementsize".to_owned(), serde_json::json!(4));
        configuration.insert("codecs".to_owned(), serde_json::json!([]));
        configuration.insert("id".to_owned(), serde_json::json!(4));
        configuration.insert("parameters".to_owned(), serde_json::json!([0, 8, 8, 8]));
        let sorted = CodecChain::sort(&[CodecSpec::new(&name, configuration)]);
        if name == "numcodecs.pickle" {
            assert!(!is_read && !is_written);
        } else if is_read {
            assert!(sorted.is_ok(), "{name} is not built");
            let row = table::find(&name).unwrap();
            assert_eq!(is_written, !row.is_read_only, "{name}");
        } else {
            let foreign = foreign::find(&name).unwrap_or_else(|| panic!("{name} is not known"));
            assert!(!is_written, "{name}");
            let error = sorted.unwrap_err();
            assert!(error.detail().contains(foreign.library), "{name}: {error}");
            assert!(error.detail().contains(foreign.reason), "{name}: {error}");
            let page = lines("Codecs");
            let line = page.iter().find(|line| line.contains(&format!("`{name}`"))).unwrap();
            assert!(line.contains(foreign.reason), "{line}");
        }
    }
    assert!(CodecChain::sort(&[CodecSpec::new("homeopathy", Object::new())]).is_err());
}

#[test]
fn every_codec_of_the_table_is_on_the_page() {
    // A codec that takes elements in Zarr 3 has one line for both versions.
    let names = table::ROWS.iter().filter(|row| !row.is_zarr2_only).map(|row| row.name);
    let zarr2 = table::ROWS.iter().filter(|row| row.is_zarr2_only).filter_map(|row| row.id);
    let codecs = codecs();
    let page = lines("Codecs").concat();
    let is_missing = |name: &&str| !page.contains(&format!("`{name}`"));
    let missing: Vec<&str> = names.chain(zarr2).filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for codec in foreign::FOREIGN {
        let is_named =
            |named: &&Named| foreign::find(&named.name).is_some_and(|f| f.id == codec.id);
        assert_eq!(codecs.iter().filter(is_named).count(), 1, "{}", codec.id);
    }
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
