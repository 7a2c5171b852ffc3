use super::*;
use crate::metadata::model::NodeMetadata;
use crate::metadata::shown::ShownChunks;
use crate::metadata::{policy, shown};
use zarrfs_base::error::Kind;

const STORED: &str = r#"{
    "zarr_format": 3,
    "node_type": "array",
    "shape": [7.0, 10],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [6, 8]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
    "fill_value": 1e0,
    "codecs": [{"name": "endian", "configuration": {"endian": "big"}}, {"name": "gzip", "configuration": {"level": 1}}],
    "attributes": {
        "nan": NaN,
        "big": 1180591620717411303424,
        "units": "K"
    },
    "x": {"must_understand": false}
}
"#;

const DRAFT: &str = r#"{
    "attributes": {
        "_ARRAY_DIMENSIONS": ["y", "x"],
        "nan": NaN
    },
    "chunk_grid": {"chunk_shape": [3, 4], "separator": "/", "type": "regular"},
    "chunk_memory_layout": "C",
    "data_type": "<i4",
    "extensions": [],
    "fill_value": 0,
    "shape": [7, 10]
}"#;

const CHUNKS: [u64; 2] = [3, 4];

fn decoded(node: &NodeMetadata) -> ShownChunks {
    match node {
        NodeMetadata::Array(array) => ShownChunks::decoded(array, &CHUNKS),
        NodeMetadata::Group(_) => ShownChunks::default(),
    }
}

fn draft() -> Dialect {
    Dialect::draft(crate::metadata::Era::D2020_10, ".json")
}

fn node(dialect: &Dialect, stored: &str) -> NodeMetadata {
    dialect.lower(Some(NodeKind::Array), stored.as_bytes()).node.expect("understood")
}

fn base(node: &NodeMetadata) -> String {
    match node {
        NodeMetadata::Array(array) => shown::array(array, &ShownChunks::decoded(array, &CHUNKS)),
        NodeMetadata::Group(group) => shown::group(group, None),
    }
}

/// Applies `change` to the shown form of `STORED`, and returns the difference as an edit.
fn edit_of(change: impl FnOnce(&mut Value)) -> Result<Edit> {
    let node = node(&Dialect::V3, STORED);
    let base = base(&node);
    let mut new: Value = serde_json::from_str(&base).expect("strict JSON");
    change(&mut new);
    diff(&base, new.to_string().as_bytes(), &node, &decoded(&node))
}

#[test]
fn a_library_that_only_spells_otherwise_changes_nothing() {
    let edit = edit_of(|new| {
        new["fill_value"] = json!(1.0);
        new["shape"] = json!([7.0, 10.0]);
        new["data_type"] = json!({"name": "int32"});
        new["dimension_names"] = json!([null, null]);
        new["consolidated_metadata"] = json!(null);
        new["codecs"] = json!(["bytes"]);
        let members = new.as_object_mut().expect("an object");
        members.shift_remove("storage_transformers");
        members.shift_remove("chunk_key_encoding");
        members.sort_keys();
    });
    assert_eq!(edit, Ok(Edit::default()));
    assert!(edit.expect("an edit").is_empty());
    let node = node(&Dialect::V3, STORED);
    let bare = base(&node).replace("\"NaN\"", "NaN");
    assert_eq!(diff(&base(&node), bare.as_bytes(), &node, &decoded(&node)), Ok(Edit::default()));
}

#[test]
fn each_change_is_detected() {
    let edit = edit_of(|new| {
        new["shape"] = json!([9, 10]);
        new["attributes"]["units"] = json!("C");
        new["attributes"]["new"] = json!([1]);
        new["attributes"].as_object_mut().expect("an object").shift_remove("big");
        new["dimension_names"] = json!(["y", null]);
        new["note"] = json!({"must_understand": false});
    });
    let expected = Edit {
        consolidated: None,
        attributes: vec![
            ("units".to_owned(), Some(json!("C"))),
            ("new".to_owned(), Some(json!([1]))),
            ("big".to_owned(), None),
        ],
        shape: Some(vec![9, 10]),
        shape_before: vec![7, 10],
        dimension_names: Some(vec![Some("y".to_owned()), None]),
        members: vec![("note".to_owned(), Some(json!({"must_understand": false})))],
        has_no_chunks: false,
    };
    assert_eq!(edit, Ok(expected));
    let edit = edit_of(|new| {
        new.as_object_mut().expect("an object").shift_remove("attributes");
    });
    let removed = ["nan", "big", "units"].map(|name| (name.to_owned(), None)).to_vec();
    assert_eq!(edit.expect("an edit").attributes, removed);
}

#[test]
fn changes_that_would_alter_chunks_are_refused_by_name() {
    let change = |member: &'static str, value: Value| {
        edit_of(move |new| new[member] = value).expect_err("refused")
    };
    for (member, value) in [
        ("zarr_format", json!(2)),
        ("node_type", json!("group")),
        ("data_type", json!("int64")),
        ("data_type", json!(null)),
        ("chunk_grid", json!({"name": "regular", "configuration": {"chunk_shape": [6, 8]}})),
        ("chunk_key_encoding", json!({"name": "v2"})),
        ("chunk_key_encoding", json!({"name": "default", "configuration": {"separator": "."}})),
        ("codecs", json!([{"name": "bytes", "configuration": {"endian": "big"}}])),
        ("codecs", json!(["bytes", "gzip"])),
        ("codecs", json!(null)),
        ("fill_value", json!(2)),
        ("fill_value", json!("one")),
        ("storage_transformers", json!([{}])),
        ("shape", json!([7])),
        ("shape", json!("x")),
        ("attributes", json!(1)),
        ("dimension_names", json!(["x"])),
        ("strange", json!(1)),
    ] {
        let error = change(member, value.clone());
        assert_eq!(error.kind(), Kind::Invalid, "{member}: {value}");
        assert!(error.to_string().contains(member), "{member}: {value}: {error}");
    }
    let error = change("codecs", json!([{"name": "bytes", "configuration": {"endian": "big"}}]));
    assert!(error.to_string().contains("\"endian\":\"little\""), "{error}");
    assert_eq!(
        change("fill_value", json!(2)).to_string(),
        "fill_value cannot become 2: missing chunks would change their values; create a new array"
    );
    let node = node(&Dialect::V3, STORED);
    let error = diff(&base(&node), b"{", &node, &decoded(&node)).expect_err("not JSON");
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn an_edit_of_v3_leaves_all_other_text() {
    let edit = Edit {
        consolidated: None,
        attributes: vec![
            ("units".to_owned(), Some(json!("C"))),
            ("_FillValue".to_owned(), Some(json!("NaN"))),
        ],
        shape: Some(vec![7, 12]),
        shape_before: vec![7, 10],
        dimension_names: Some(vec![Some("y".to_owned()), None]),
        members: vec![("x".to_owned(), None)],
        has_no_chunks: false,
    };
    let edited = Dialect::V3.edit(NodeKind::Array, STORED, &edit).expect("edited");
    let expected = STORED
        .replace("\"K\"", "\"C\",\n        \"_FillValue\": \"NaN\"")
        .replace("[7.0, 10]", "[7.0, 12]")
        .replace(
            ",\n    \"x\": {\"must_understand\": false}",
            ",\n    \"dimension_names\": [\n        \"y\",\n        null\n    ]",
        );
    assert_eq!(edited, expected);
    let NodeMetadata::Array(array) = node(&Dialect::V3, &edited) else { panic!("an array") };
    assert_eq!((array.shape, array.dimension_names.len()), (vec![7, 12], 2));
}

#[test]
fn an_edit_that_would_not_be_understood_is_refused() {
    let edit = Edit { members: vec![("x".to_owned(), Some(json!(1)))], ..Edit::default() };
    let error = Dialect::V3.edit(NodeKind::Array, STORED, &edit).expect_err("refused");
    assert_eq!(error.kind(), Kind::Invalid);
    let edit = Edit { shape: Some(vec![7]), ..Edit::default() };
    assert!(Dialect::V3.edit(NodeKind::Array, STORED, &edit).is_err());
    let edit = Edit { shape: Some(vec![u64::MAX, 2]), ..Edit::default() };
    assert!(Dialect::V3.edit(NodeKind::Array, STORED, &edit).is_err());
}

#[test]
fn attributes_are_made_where_a_document_has_none() {
    let edit = Edit::attribute("a", Some(json!(1)));
    for (stored, expected) in [
        (
            r#"{"zarr_format":3,"node_type":"group"}"#,
            r#"{"zarr_format":3,"node_type":"group","attributes":{"a":1}}"#,
        ),
        (
            "{\n  \"zarr_format\": 3,\n  \"attributes\": null,\n  \"node_type\": \"group\"\n}",
            "{\n  \"zarr_format\": 3,\n  \"attributes\": {\n    \"a\": 1\n  },\n  \"node_type\": \"group\"\n}",
        ),
    ] {
        assert_eq!(Dialect::V3.edit(NodeKind::Group, stored, &edit).expect("edited"), expected);
    }
    let removed = Edit::attribute("a", None);
    let stored = r#"{"zarr_format":3,"node_type":"group"}"#;
    assert_eq!(Dialect::V3.edit(NodeKind::Group, stored, &removed).expect("nothing"), stored);
}

#[test]
fn names_of_dimensions_go_where_a_draft_keeps_them() {
    let names = |names: &[Option<&str>]| Edit {
        consolidated: None,
        dimension_names: Some(names.iter().map(|name| name.map(str::to_owned)).collect()),
        ..Edit::default()
    };
    let edited = draft().edit(NodeKind::Array, DRAFT, &names(&[Some("lat"), Some("lon")]));
    assert_eq!(edited.expect("edited"), DRAFT.replace(r#"["y", "x"]"#, r#"["lat", "lon"]"#));
    let edited = draft().edit(NodeKind::Array, DRAFT, &names(&[]));
    let without = DRAFT.replace("\"_ARRAY_DIMENSIONS\": [\"y\", \"x\"],\n        ", "");
    assert_eq!(edited.expect("edited"), without);
    let error = draft().edit(NodeKind::Array, DRAFT, &names(&[Some("lat"), None]));
    assert_eq!(error.expect_err("no way to say it").kind(), Kind::Invalid);
}

#[test]
fn a_draft_is_edited_through_its_shown_metadata() {
    let node = node(&draft(), DRAFT);
    let base = base(&node);
    assert!(base.contains("dimension_names") && !base.contains("_ARRAY_DIMENSIONS"));
    let new =
        base.replace("    \"nan\": \"NaN\"", "    \"a\": 1, \"nan\": NaN").replace("  7,", "  8,");
    let edit = diff(&base, new.as_bytes(), &node, &decoded(&node)).expect("an edit");
    let edited = draft().edit(NodeKind::Array, DRAFT, &edit).expect("edited");
    let expected = DRAFT.replace("NaN", "NaN,\n        \"a\": 1").replace("[7, 10]", "[8, 10]");
    assert_eq!(edited, expected);
}

#[test]
fn an_attribute_never_becomes_a_codec() {
    let edit = Edit::attribute("filters", Some(json!([{"id": "delta"}])));
    assert!(draft().edit(NodeKind::Array, DRAFT, &edit).is_err());
    let hidden = DRAFT.replace("\"nan\": NaN", "\"filters\": [{\"id\": \"delta\"}]");
    for value in [None, Some(json!(1))] {
        let edit = Edit::attribute("filters", value);
        assert!(draft().edit(NodeKind::Array, &hidden, &edit).is_err());
    }
    let edit = Edit::attribute("filters", Some(json!("a word")));
    assert!(draft().edit(NodeKind::Array, DRAFT, &edit).is_ok());
}

#[test]
fn a_group_takes_attributes_and_nothing_else() {
    let stored = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"a": 1.0}}"#;
    let node = Dialect::V3.lower(None, stored.as_bytes()).node.expect("a group");
    let base = base(&node);
    let new = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"a": 1.00, "b": 2}, "consolidated_metadata": {}}"#;
    let edit = diff(&base, new.as_bytes(), &node, &ShownChunks::default()).expect("an edit");
    assert_eq!(edit, Edit::attribute("b", Some(json!(2))));
    let integer = new.replace("1.00, \"b\": 2", "1");
    let edit = diff(&base, integer.as_bytes(), &node, &ShownChunks::default()).expect("an edit");
    assert_eq!(edit, Edit::attribute("a", Some(json!(1))));
    let array = r#"{"zarr_format": 3, "node_type": "array"}"#;
    assert!(diff(&base, array.as_bytes(), &node, &ShownChunks::default()).is_err());
}

#[test]
fn attributes_by_the_thousand_are_made_and_changed_in_every_dialect() {
    let object = |value: i32| -> Object {
        (0..20_000).map(|number| (format!("a{number}"), json!(value))).collect()
    };
    let written = json!({"zarr_format": 3, "node_type": "group", "attributes": object(1)});
    let written = written.to_string();
    let spelled = crate::metadata::wanted::with_stored_attributes(&written, written.as_bytes());
    assert_eq!(spelled.expect("the same"), written);
    let attributes = object(2).into_iter().map(|(name, value)| (name, Some(value))).collect();
    let edit = Edit { attributes, ..Edit::default() };
    let path = crate::metadata::NodePath::parse("g").expect("a path");
    // One by one, each of these would scan half a megabyte 20,000 times.
    for dialect in [Dialect::V3, Dialect::V2, Dialect::N5, draft()] {
        let made = dialect.new_document(&path, written.as_bytes(), &policy::Policy::default());
        let text = made.expect("a group").text;
        let edited = dialect.edit(NodeKind::Group, &text, &edit).expect("edited");
        let NodeMetadata::Group(group) =
            dialect.lower(Some(NodeKind::Group), edited.as_bytes()).node.expect("a group")
        else {
            panic!("a group")
        };
        assert!(group.attributes.values().filter(|value| **value == 2).count() == 20_000);
    }
}
