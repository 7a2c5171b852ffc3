use super::*;
use crate::metadata::model::{Group, NodeKind, NodeMetadata};

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"x":NaN}}"#;

fn made(documents: &[(&str, &str)]) -> String {
    let documents: Vec<_> =
        documents.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Dialect::V3.consolidate(GROUP, &documents).expect("consolidated")
}

#[test]
fn copies_are_the_stored_text_in_the_order_of_paths() {
    let text = made(&[
        (
            "b",
            "{\n  \"a\": [ NaN, 123456789012345678901234567890 ],\n  \"e\": { }, \"s\": \" \\\", {\"\n}\n",
        ),
        ("a-b", "{}"),
        ("a/c", "{\"x\":1.50e0}"),
        ("a", "{\"zarr_format\":3, \"consolidated_metadata\": {\"kind\": \"inline\"}}"),
    ]);
    let expected = concat!(
        r#"{"zarr_format":3,"node_type":"group","attributes":{"x":NaN},"#,
        r#""consolidated_metadata":{"kind":"inline","must_understand":false,"metadata":"#,
        r#"{"a":{"zarr_format":3},"a/c":{"x":1.50e0},"a-b":{},"#,
        r#""b":{"a":[NaN,123456789012345678901234567890],"e":{},"s":" \", {"}}}}"#
    );
    assert_eq!(text, expected);
    assert_eq!(Dialect::V3.consolidate(&text, &[]).expect("anew"), made(&[]));
}

#[test]
fn one_copy_is_set_or_removed_with_those_below_it() {
    let text = made(&[("a", "{}"), ("a/b", "{}"), ("ab", "{}")]);
    let set = |text: &str, relative: &str, document: Option<&str>| {
        let set = Dialect::V3.set_consolidated(text, relative, document).expect("set");
        set.expect("it has consolidated metadata")
    };
    assert_eq!(set(&text, "a", None), made(&[("ab", "{}")]));
    assert_eq!(set(&text, "c", None), text);
    let again = set(&text, "a/b", Some("{\"x\": NaN, \"consolidated_metadata\": null}"));
    assert_eq!(again, made(&[("a", "{}"), ("a/b", "{\"x\":NaN}"), ("ab", "{}")]));
    assert_eq!(set(&made(&[]), "z", Some("{}")), made(&[("z", "{}")]));
    let empty = set(&made(&[("a", "{}")]), "a", None);
    assert_eq!(empty, made(&[]));
    let bare = r#"{"consolidated_metadata": {"kind": "inline"}}"#;
    assert_eq!(
        set(bare, "a", Some("{}")),
        r#"{"consolidated_metadata": {"kind": "inline", "metadata": {"a": {}}}}"#
    );
}

#[test]
fn a_group_without_a_document_has_the_copy_of_an_empty_one() {
    let empty = empty_group().to_string();
    let expected = made(&[("a", &empty), ("a/b", &empty), ("a/b/c", "{}"), ("a/d", "{}")]);
    assert_eq!(made(&[("a/d", "{}"), ("a/b/c", "{}")]), expected);
    let set = Dialect::V3.set_consolidated(&made(&[("a", "{}")]), "a/b/c", Some("{}"));
    let expected = made(&[("a", "{}"), ("a/b", &empty), ("a/b/c", "{}")]);
    assert_eq!(set, Ok(Some(expected)));
}

#[test]
fn a_group_without_copies_gets_none() {
    for group in
        [GROUP, r#"{"consolidated_metadata": null}"#, r#"{"consolidated_metadata": {"kind": "x"}}"#]
    {
        assert_eq!(Dialect::V3.set_consolidated(group, "a", Some("{}")), Ok(None), "{group}");
    }
    let draft = Dialect::draft(Era::D2020_10, ".json");
    assert_eq!(draft.set_consolidated(&made(&[]), "a", None), Ok(None));
}

#[test]
fn a_draft_keeps_the_request_without_copies_and_the_copies_of_zarr_python_2() {
    let draft = Dialect::draft(Era::D2020_10, ".json");
    let documents = [("a".to_owned(), "{}".to_owned())];
    let wished = draft.consolidate(r#"{"attributes":{}}"#, &documents).expect("a wish");
    let lowered = draft.lower(Some(NodeKind::Group), wished.as_bytes()).node.expect("a group");
    assert!(matches!(lowered, NodeMetadata::Group(Group { consolidated: true, .. })));
    assert!(!wished.contains("\"a\""), "{wished}");
    let (path, other) =
        (NodePath::parse("g").expect("a path"), NodePath::parse("g2").expect("a path"));
    let key = |path: &NodePath| draft.new_group(path).expect("a key").0;
    let set = |copies: &str, path: &NodePath, document| {
        draft.set_shared_copy(copies, &NodePath::root(), path, &key(path), document).expect("set")
    };
    let none = r#"{"zarr_consolidated_format": 1, "metadata": {"zarr.json": {}}}"#;
    let below = path.child("b").expect("a path");
    let both = set(&set(none, &path, Some(r#"{"x":NaN}"#)), &below, Some("{}"));
    let all = set(&both, &other, Some("{}"));
    assert!(all.contains("NaN") && all.contains("meta/root/g/b.group.json"), "{all}");
    let left = set(&all, &path, None);
    assert!(!left.contains("root/g.") && !left.contains("root/g/"), "{left}");
    assert!(left.contains("root/g2.group.json") && left.contains("zarr.json"), "{left}");
}

#[test]
fn copies_set_at_once_are_those_set_one_by_one() {
    let (root, text) = (NodePath::root(), |n: usize| format!("{{\"n\": {n}}}"));
    let paths = ["a", "a/b", "x/y/z", "c"];
    let documents: Vec<Copied> = (0..)
        .zip(paths)
        .map(|(n, path)| {
            let path = NodePath::parse(path).expect("a path");
            let key = Dialect::V2.new_group(&path).expect("a key").0;
            Copied { path, key, document: text(n) }
        })
        .collect();
    let none = Dialect::V2.no_shared_copies();
    let one_by_one = documents.iter().fold(none.clone(), |text, Copied { path, key, document }| {
        let set = Dialect::V2.set_shared_copy(&text, &root, path, key, Some(document));
        set.expect("set")
    });
    let at_once = Dialect::V2.replace_shared_copies(&none, &root, &root, &documents);
    assert_eq!(at_once.as_deref(), Ok(one_by_one.as_str()));
    let again =
        Dialect::V2.replace_shared_copies(&one_by_one, &root, &documents[0].path, &documents);
    let again = again.expect("set");
    assert_eq!(again.len(), one_by_one.len());
    let group = made(&[("a", "{}"), ("a/old", "{}"), ("b", "{}")]);
    let below = [("a".to_owned(), text(1)), ("a/n/m".to_owned(), text(2))];
    let replaced = Dialect::V3.replace_consolidated(&group, "a", &below).expect("replaced");
    let replaced = replaced.expect("inline");
    assert!(replaced.contains(r#"{"b":{},"a":{"n":1},"a/n":{"zarr_format":3,"#), "{replaced}");
    assert!(replaced.ends_with(r#""a/n/m":{"n":2}}}}"#), "{replaced}");
}

#[test]
fn copies_of_nodes_keep_their_spelling_and_get_their_attributes() {
    let v3 = br#"{"consolidated_metadata":{"kind":"inline","metadata":{"g":{"node_type":"group",
        "consolidated_metadata":{"kind":"inline","metadata":{}}},
        "g/a":{"node_type":"array","fill_value":1.50,"x":NaN}}}}"#;
    let array = r#"{"node_type":"array","fill_value":1.50,"x":NaN}"#.to_owned();
    let group = r#"{"node_type":"group"}"#.to_owned();
    assert_eq!(
        Dialect::V3.copied_nodes(v3),
        Ok(vec![
            ("g".to_owned(), NodeKind::Group, group),
            ("g/a".to_owned(), NodeKind::Array, array)
        ])
    );
    let v2 = br#"{"metadata":{".zgroup":{},"g/.zgroup":{"zarr_format":2},"g/a/.zarray":{"fill_value":1.50},
        "g/a/.zattrs":{"x":NaN},"g/.zattrs":{}},"zarr_consolidated_format":1}"#;
    let mut found = Dialect::V2.copied_nodes(v2).expect("copies");
    found.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let text = |text: &str| text.replace(", ", ",").replace(": ", ":");
    let found: Vec<_> =
        found.iter().map(|(path, kind, it)| (path.as_str(), *kind, text(it))).collect();
    let group = r#"{"zarr_format":2,"attributes":{}}"#.to_owned();
    let array = r#"{"fill_value":1.50,"attributes":{"x":NaN}}"#.to_owned();
    let root = ("", NodeKind::Group, "{}".to_owned());
    assert_eq!(found, [root, ("g", NodeKind::Group, group), ("g/a", NodeKind::Array, array)]);
    for text in [&b"{}"[..], br#"{"consolidated_metadata":null}"#, br#"{"metadata":3}"#] {
        assert_eq!(Dialect::V3.copied_nodes(text), Ok(Vec::new()));
        assert_eq!(Dialect::V2.copied_nodes(text), Ok(Vec::new()));
    }
    assert!(Dialect::V2.copied_nodes(b"{").is_err());
}

#[test]
fn a_document_on_lines_stays_on_lines() {
    let group = "{\n  \"attributes\": {}\n}\n";
    let document = "{\"a\":[1,{}],\n\"b\":{\"c\":null}}";
    let documents = [("x".to_owned(), document.to_owned())];
    let text = Dialect::V3.consolidate(group, &documents).expect("consolidated");
    let parsed = json::parse(text.as_bytes()).expect("JSON");
    assert_eq!(text, format!("{parsed:#}\n"));
}

#[test]
fn copies_that_no_library_could_read_are_refused() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(125), "]".repeat(125));
    let error = Dialect::V3.consolidate(GROUP, &[("a".to_owned(), deep)]).expect_err("too deep");
    assert!(error.to_string().contains("the limit is 127"), "{error}");
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(60 << 20));
    let many: Vec<_> = (0..5).map(|number| (number.to_string(), long.clone())).collect();
    let error = Dialect::V3.consolidate(GROUP, &many).expect_err("too long");
    assert_eq!(error.kind(), zarrfs_base::error::Kind::TooLarge);
    assert!(Dialect::V3.consolidate(GROUP, &[("a".to_owned(), "{".to_owned())]).is_err());
}

#[test]
fn copies_of_the_members_of_a_group_stay_together_among_those_of_their_depth() {
    let names = |text: &str, at: &[&str]| -> Vec<String> {
        let text = Text::parse(text.as_bytes()).expect("JSON");
        text.texts(at).expect("copies").into_iter().map(|(name, _)| name).collect()
    };
    // As zarr-python writes them: one depth after the other.
    let group = r#"{"consolidated_metadata": {"kind": "inline", "metadata": {
        "m": {}, "d": {}, "m/c": {}, "d/c": {}}}}"#;
    let set = |text: &str, relative: &str| {
        let set = Dialect::V3.set_consolidated(text, relative, Some("{}")).expect("set");
        set.expect("it has consolidated metadata")
    };
    let last = set(group, "d/new");
    assert_eq!(names(&last, &METADATA), ["m", "d", "m/c", "d/c", "d/new"], "it is right already");
    let sorted = set(&last, "m/new");
    assert_eq!(names(&sorted, &METADATA), ["d", "d/c", "d/new", "m", "m/c", "m/new"]);
    assert!(
        sorted.contains(
            r#""metadata": {
        "d": {}, "d/c": {}, "d/new": {}, "m""#
        ),
        "{sorted}"
    );

    let text = r#"{"metadata": {"d/.zgroup": {}, "d/c/.zarray": {}, "m/.zgroup": {},
        "m/c/.zarray": {}}, "zarr_consolidated_format": 1}"#;
    let path = NodePath::parse("d/new").expect("a path");
    let key = Key::parse("d/new/.zarray").expect("a key");
    let document = r#"{"zarr_format": 2, "attributes": {"a": 1}}"#;
    let set = Dialect::V2.set_shared_copy(text, &NodePath::root(), &path, &key, Some(document));
    let names = names(&set.expect("set"), &["metadata"]);
    let new: Vec<_> = names.iter().map(String::as_str).filter(|name| name.contains('c')).collect();
    assert_eq!(new, ["d/c/.zarray", "m/c/.zarray"]);
    let at = |name: &str| names.iter().position(|found| found == name);
    assert!(at("d/new/.zarray") > at("d/c/.zarray") && at("d/new/.zarray") < at("m/c/.zarray"));
}
