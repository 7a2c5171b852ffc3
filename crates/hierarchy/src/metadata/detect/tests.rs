use proptest::prelude::*;

use super::*;
use crate::metadata::tests::fixtures::store_of;

const CORE: &str = "https://purl.org/zarr/spec/protocol/core/3.0";

fn entry(members: &str) -> String {
    format!(r#"{{"zarr_format": "{CORE}", {members}, "extensions": []}}"#)
}

#[test]
fn the_entry_point_tells_the_dialect() {
    let draft = |suffix: &str| Dialect::draft(Era::D2020_10, suffix);
    let encoding = format!(r#""metadata_encoding": "{CORE}""#);
    let json = entry(&format!(r#"{encoding}, "metadata_key_suffix": ".json""#));
    let none = entry(&encoding);
    let object = entry(r#""metadata_encoding": {"type": "json", "metadata_key_suffix": ".x"}"#);
    let june = entry(r#""metadata_encoding": "application/json""#);
    let uri = r#"{"zarr_format": "https://purl.org/zarr/spec/v3#group"}"#;
    let may = format!(r#"{{"zarr_format": "{CORE}"}}"#);
    let era = Dialect::draft;
    let short = json.replace("/protocol/", "/");
    for (values, expected) in [
        (vec![("zarr.json", r#"{"zarr_format": 3.0, "node_type": "group"}"#)], Dialect::V3),
        (vec![("zarr.json", r#"{"zarr_format": 3}"#), ("meta/root/x", "")], Dialect::V3),
        (vec![("zarr.json", json.as_str()), (".zgroup", "{}")], draft(".json")),
        (vec![("zarr.json", short.as_str())], draft(".json")),
        (vec![("zarr.json", none.as_str()), ("meta/root/a/b.array", "{}")], era(Era::D2020_09, "")),
        (
            vec![("zarr.json", none.as_str()), ("meta/root/a/b.array.json", "{}")],
            era(Era::D2020_09, ".json"),
        ),
        (vec![("zarr.json", none.as_str())], era(Era::D2020_09, "")),
        (vec![("zarr.json", june.as_str())], era(Era::D2019_06, "")),
        (vec![("zarr.json", object.as_str())], era(Era::D2022_12, ".x")),
        (vec![("zarr.json", uri)], Dialect::D2023_02),
        (vec![(".zarray", "{}"), ("a/zarr.json", "{}")], Dialect::V2),
        (vec![("a/.zgroup", "{}")], Dialect::V2),
        (vec![("attributes.json", r#"{"n5": "2.0.0"}"#)], Dialect::N5),
        (vec![("a/attributes.json", r#"{"dimensions": [1]}"#)], Dialect::N5),
        (vec![("root.group.json", may.as_str())], era(Era::D2019_05, ".json")),
        (vec![("meta/a.array.json", may.as_str())], era(Era::D2019_05, ".json")),
        (
            vec![("zarr.json", object.as_str()), ("meta/root.group.x", "{}")],
            era(Era::D2022_11, ".x"),
        ),
        (
            vec![("zarr.json", object.as_str()), ("meta/root/a.array.x", "{}")],
            era(Era::D2022_11, ".x"),
        ),
    ] {
        assert_eq!(detect(&store_of(&values)).expect("a dialect"), expected, "{values:?}");
    }
    assert_eq!(draft_root_marker(json.as_bytes()), Some(draft(".json")));
    assert_eq!(draft_root_marker(br#"{"zarr_format": 3}"#), None);
    assert_eq!(draft_root_marker(b"{"), None);
}

#[test]
fn a_root_without_a_document_is_found_by_what_lies_below() {
    let values = [("a/b/zarr.json", r#"{"zarr_format": 3}"#), ("a/b/c/0", ""), ("readme", "")];
    assert_eq!(detect(&store_of(&values)), Ok(Dialect::V3));
    let many: Vec<String> = (0..=MAX_ENTRIES).map(|name| format!("{name}.txt")).collect();
    let mut values: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    values.push(("z/zarr.json", r#"{"zarr_format": 3}"#));
    let error = detect(&store_of(&values)).expect_err("not looked at so far");
    assert!(error.to_string().contains("or among 10000 names"), "{error}");
}

#[test]
fn a_directory_that_is_no_hierarchy_is_refused_with_a_reason() {
    let other =
        "not a Zarr hierarchy: no zarr.json, .zgroup, .zarray or N5 attributes.json there or below";
    let bson = entry(r#""metadata_encoding": "https://example.org/bson""#);
    let slash = entry(&format!(r#""metadata_encoding": "{CORE}", "metadata_key_suffix": "/x""#));
    let below = entry(&format!(r#""metadata_encoding": "{CORE}", "metadata_key_suffix": "x""#));
    for (values, kind, sentence) in [
        (vec![], Kind::NotFound, "nothing is stored there".to_owned()),
        (vec![("readme", "")], Kind::Invalid, other.to_owned()),
        (vec![("attributes.json", "{}")], Kind::Invalid, other.to_owned()),
        (
            vec![("meta/root/a.array.json", "{}")],
            Kind::Corrupt,
            "metadata files of a Zarr draft, but its entry point zarr.json is missing".to_owned(),
        ),
        (
            vec![("x/y/zarr.json", below.as_str())],
            Kind::Invalid,
            "not the root of a hierarchy: the root of a Zarr draft lies below it, in x/y"
                .to_owned(),
        ),
        (
            vec![("zarr.json", "nothing")],
            Kind::Corrupt,
            "zarr.json: not JSON: expected a value at line 1, column 1".to_owned(),
        ),
        (
            vec![("zarr.json", "{}")],
            Kind::Invalid,
            "zarr.json: not Zarr metadata: zarr_format is null".to_owned(),
        ),
        (
            vec![("zarr.json", r#"{"zarr_format": 2}"#), (".zgroup", "{}")],
            Kind::Unsupported,
            "zarr.json: zarr_format 2 is not known".to_owned(),
        ),
        (
            vec![("zarr.json", bson.as_str())],
            Kind::Unsupported,
            "zarr.json: metadata_encoding is \"https://example.org/bson\", only JSON is supported"
                .to_owned(),
        ),
        (
            vec![("zarr.json", slash.as_str())],
            Kind::Unsupported,
            "zarr.json: metadata_key_suffix \"/x\" cannot end the name of a file".to_owned(),
        ),
    ] {
        let error = detect(&store_of(&values)).expect_err("no dialect");
        assert_eq!((error.kind(), error.to_string()), (kind, sentence), "{values:?}");
    }
}

#[test]
fn a_store_that_cannot_list_is_taken_by_its_entry_point_alone() {
    let store = store_of(&[("zarr.json", r#"{"zarr_format": 3}"#)]).unlistable();
    assert_eq!(detect(&store), Ok(Dialect::V3));
    let store = store_of(&[("a/zarr.json", r#"{"zarr_format": 3}"#)]).unlistable();
    assert_eq!(detect(&store).expect_err("nothing to see").kind(), Kind::Invalid);
}

#[test]
fn a_new_hierarchy_is_detected_as_its_dialect() {
    for dialect in [Dialect::V3, Dialect::draft(Era::D2020_10, ".meta")] {
        let documents = dialect.new_root().expect("a root");
        let values: Vec<_> =
            documents.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
        assert_eq!(detect(&store_of(&values)), Ok(dialect.clone()));
        let (key, text) = documents.last().expect("a root group");
        let keys = dialect.document_keys(&crate::metadata::NodePath::root()).expect("keys");
        let kind = keys.iter().find(|(_, known)| known == key).expect("a key of the root").0;
        let lowered = dialect.lower(kind, text.as_bytes());
        assert!(lowered.node.is_ok() && lowered.kind == crate::metadata::NodeKind::Group);
    }
}

proptest! {
    #[test]
    fn no_entry_point_panics(text in "[{}\\[\\]\",:a-z0-9./ ]{0,60}") {
        let _ = detect(&store_of(&[("zarr.json", &text)]));
        let _ = draft_root_marker(text.as_bytes());
    }
}
