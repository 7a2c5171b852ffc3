use proptest::prelude::*;
use serde_json::json;

use super::*;
use zarrfs_base::width::ToUsize;

fn text(of: &str) -> Text {
    Text::parse(of.as_bytes()).expect("a document")
}

#[test]
fn bare_words_are_read_as_strings_but_not_inside_strings() {
    let value = parse(br#"{"a": NaN, "b": [1, -Infinity, {"c": Infinity}], "d": "x NaN"}"#);
    let expected = json!({"a": "NaN", "b": [1, "-Infinity", {"c": "Infinity"}], "d": "x NaN"});
    assert_eq!(value.expect("lenient"), expected);
}

#[test]
fn numbers_keep_their_text() {
    let stored = "[1180591620717411303424,1.0,1E5,-0,-0.0,0.30000000000000004,1e-400]";
    assert_eq!(parse(stored.as_bytes()).expect("numbers").to_string(), stored);
}

#[test]
fn the_last_of_several_members_counts() {
    assert_eq!(parse(br#"{"a": 1, "b": 2, "a": 3}"#).expect("an object"), json!({"a": 3, "b": 2}));
}

#[test]
fn a_byte_order_mark_and_odd_strings_are_taken() {
    let value =
        parse("\u{feff}{\"\\u00e9\\/\": \"\\ud83d\\ude00 \\ud800 \\udc00x\\n\"}".as_bytes());
    let value = value.expect("taken");
    assert_eq!(compact(&value), "{\"é/\":\"😀 \\ud800 \\udc00x\\n\"}");
    assert_eq!(plain(value["é/"].as_str().expect("a string")), "😀 \u{fffd} \u{fffd}x\n");
}

#[test]
fn a_member_that_looks_like_a_number_of_serde_json_is_an_object() {
    let stored = r#"{"$serde_json::private::Number":"1e"}"#;
    assert_eq!(parse(stored.as_bytes()).expect("an object").to_string(), stored);
}

#[test]
fn invalid_json_is_refused_with_its_position() {
    for (wrong, sentence) in [
        ("{} \0", "not JSON: unexpected characters after the end at line 1, column 4"),
        ("{}{}", "not JSON: unexpected characters after the end at line 1, column 3"),
        ("", "not JSON: a value is missing at line 1, column 1"),
        ("{\n\"a\": 01}", "not JSON: expected a value at line 2, column 6"),
        ("[1,]", "not JSON: expected a value at line 1, column 4"),
        ("[nan]", "not JSON: expected a value at line 1, column 2"),
        ("{\"a\" 1}", "not JSON: `:` is missing at line 1, column 6"),
        ("{a: 1}", "not JSON: the name of a member is missing at line 1, column 2"),
        ("[\"\u{1}\"]", "not JSON: a control character inside a string at line 1, column 3"),
        ("[\"a", "not JSON: a string does not end at line 1, column 4"),
        ("\"\\x\"", "not JSON: an unknown escape at line 1, column 3"),
        ("\"\\u12\"", "not JSON: four hexadecimal digits are missing at line 1, column 4"),
        ("[1 2]", "not JSON: `,` or `]` is missing at line 1, column 4"),
    ] {
        assert_eq!(parse(wrong.as_bytes()).expect_err(wrong).to_string(), sentence);
    }
    let error = parse(b"{\"a\": \xff}").expect_err("not text");
    assert_eq!(error.to_string(), "not JSON: invalid UTF-8 at byte 6");
    assert!(parse_object(b"[]").is_err());
}

#[test]
fn depth_and_size_are_limited() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(nested(127).as_bytes()).is_ok());
    assert!(serde_json::from_str::<Value>(&nested(127)).is_ok());
    assert!(parse(nested(128).as_bytes()).is_err());
    assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
    let many = format!("[{}0]", "0,".repeat(limits::VALUES.get_usize()));
    assert_eq!(
        parse(many.as_bytes()).expect_err("too many").kind(),
        zarrfs_base::error::Kind::TooLarge
    );
    let members: Vec<String> =
        (0..limits::VALUES.get() / 4).map(|number| format!("\"{number}\":0")).collect();
    let many = format!("{{{}}}", members.join(","));
    assert_eq!(
        parse(many.as_bytes()).expect_err("too many").kind(),
        zarrfs_base::error::Kind::TooLarge
    );
    let long = vec![b' '; limits::METADATA.get().to_usize() + 1];
    assert_eq!(parse(&long).expect_err("too long").kind(), zarrfs_base::error::Kind::TooLarge);
}

#[test]
fn an_edit_keeps_every_other_byte() {
    let stored = "{\n    \"attributes\": {\n        \"nan\": NaN,\n        \"a\": 1.0e0\n    },\n    \"shape\": [7.0,  10]\n}\n";
    let mut edited = text(stored);
    edited.set(&["attributes", "a"], &json!(2)).expect("set");
    assert_eq!(edited.as_str(), stored.replace("1.0e0", "2"));
    let mut edited = text(stored);
    edited.set_item(&["shape"], 1, &json!(20)).expect("set");
    assert_eq!(edited.as_str(), stored.replace("10]", "20]"));
    let mut edited = text(stored);
    edited.remove(&["attributes", "a"]).expect("remove");
    assert_eq!(edited.as_str(), stored.replace(",\n        \"a\": 1.0e0", ""));
    let mut edited = text(stored);
    edited.remove(&["attributes", "nan"]).expect("remove");
    assert_eq!(edited.as_str(), stored.replace("\"nan\": NaN,\n        ", ""));
    let mut edited = text(stored);
    edited.remove(&["attributes", "none"]).expect("nothing");
    assert_eq!(edited.as_str(), stored);
}

#[test]
fn inserted_members_follow_the_layout() {
    let insert = |stored: &str, path: &[&str]| {
        let mut text = text(stored);
        text.set(path, &json!({"x": [1, "two"]})).expect("set");
        text.into_string()
    };
    assert_eq!(
        insert("{\n  \"a\": {\n    \"b\": 1\n  }\n}", &["a", "c"]),
        "{\n  \"a\": {\n    \"b\": 1,\n    \"c\": {\n      \"x\": [\n        1,\n        \"two\"\n      ]\n    }\n  }\n}"
    );
    assert_eq!(
        insert("{\n\t\"a\":{}\n}", &["a", "c"]),
        "{\n\t\"a\":{\n\t\t\"c\":{\n\t\t\t\"x\":[\n\t\t\t\t1,\n\t\t\t\t\"two\"\n\t\t\t]\n\t\t}\n\t}\n}"
    );
    assert_eq!(insert("{\"a\":1}", &["c"]), "{\"a\":1,\"c\":{\"x\":[1,\"two\"]}}");
    assert_eq!(insert("{\"a\": 1}", &["c"]), "{\"a\": 1, \"c\": {\"x\": [1, \"two\"]}}");
    assert_eq!(
        insert("\u{feff} {} ", &["c", "d"]),
        "\u{feff} {\"c\": {\"d\": {\"x\": [1, \"two\"]}}} "
    );
    assert_eq!(insert("{\"a\": null}", &["a", "c"]), "{\"a\": {\"c\": {\"x\": [1, \"two\"]}}}");
    assert_eq!(
        insert("{\r\n \"a\": 1\r\n}", &["c"]),
        "{\r\n \"a\": 1,\r\n \"c\": {\r\n  \"x\": [\r\n   1,\r\n   \"two\"\r\n  ]\r\n }\r\n}"
    );
}

#[test]
fn duplicate_members_are_all_removed_and_the_last_one_is_set() {
    let stored = r#"{"a": 1, "b": 2, "a": 3}"#;
    let mut edited = text(stored);
    edited.set(&["a"], &json!(4)).expect("set");
    assert_eq!(edited.as_str(), r#"{"a": 1, "b": 2, "a": 4}"#);
    edited.remove(&["a"]).expect("remove");
    assert_eq!(edited.as_str(), r#"{"b": 2}"#);
    edited.remove(&["b"]).expect("remove");
    assert_eq!(edited.as_str(), "{}");
    for (stored, expected) in [
        (r#"{"a":1,"a":2,"b":3,"a":4,"a":5}"#, r#"{"b":3}"#),
        (r#"{"b":3, "a":1 ,"a":2, "c":4}"#, r#"{"b":3, "c":4}"#),
        (r#"{ "a":1, "a":2 }"#, "{}"),
        ("{}", "{}"),
    ] {
        let mut edited = text(stored);
        edited.remove(&["a"]).expect("remove");
        assert_eq!(edited.as_str(), expected);
    }
}

#[test]
fn a_document_of_nothing_but_one_name_is_edited_in_one_pass() {
    let many = format!("{{{}\"b\":1}}", "\"a\":1,".repeat(300_000));
    let mut edited = text(&many);
    edited.remove(&["a"]).expect("remove");
    assert_eq!(edited.as_str(), "{\"b\":1}");
}

#[test]
fn many_members_are_changed_in_one_pass() {
    let names: Vec<String> = (0..100_000).map(|n| format!("a{n}")).collect();
    let old: Vec<String> = names.iter().map(|name| format!("\"{name}\":1")).collect();
    let mut edited = text(&format!("{{\"x\":0,\"y\":{{{}}}}}", old.join(",")));
    let (two, new) = (json!(2), json!("new"));
    let more = ["b", "c"];
    let changes = names.iter().enumerate().map(|(n, name)| {
        let value = if n % 2 == 0 { Some(NewValue::Value(&two)) } else { None };
        (name.as_str(), value)
    });
    let more = more.iter().map(|name| (*name, Some(NewValue::Value(&new))));
    // One by one, this would scan a file of a megabyte 100,000 times.
    edited.edit(&["y"], &changes.chain(more).collect::<Vec<_>>()).expect("an edit");
    assert!(edited.as_str().starts_with(r#"{"x":0,"y":{"a0":2,"a2":2,"#));
    assert!(edited.as_str().ends_with(r#""a99998":2,"b":"new","c":"new"}}"#));
}

#[test]
fn changes_keep_their_places_and_the_layout() {
    let mut edited = text("{\n  \"a\": 1,\n  \"b\": {\n    \"c\": 2,\n    \"d\": NaN\n  }\n}\n");
    let (one, list) = (json!(1.5), json!([1]));
    let copy = text("{\"z\": NaN, \"y\": 1.50}");
    let changes = [
        ("d", Some(NewValue::Text(&copy))),
        ("e", Some(NewValue::Value(&one))),
        ("c", None),
        ("none", None),
        ("e", Some(NewValue::Value(&list))),
    ];
    edited.edit(&["b"], &changes).expect("an edit");
    let expected = "{\n  \"a\": 1,\n  \"b\": {\n    \"d\": {\n      \"z\": NaN,\n      \"y\": 1.50\n    \
                    },\n    \"e\": [\n      1\n    ]\n  }\n}\n";
    assert_eq!(edited.as_str(), expected);
    let mut edited = text("{}");
    edited.edit(&["b"], &[("c", None)]).expect("nothing to remove");
    edited.edit(&["b"], &changes).expect("a new object");
    assert_eq!(edited.as_str(), r#"{"b": {"d": {"z": NaN, "y": 1.50}, "e": [1]}}"#);
    assert!(text(r#"{"b": [1]}"#).edit(&["b"], &changes).is_err());
}

#[test]
fn a_member_of_a_value_that_is_no_object_is_refused() {
    let mut edited = text(r#"{"a": [1]}"#);
    assert!(edited.set(&["a", "b"], &json!(1)).is_err());
    assert!(edited.set_item(&["a"], 1, &json!(1)).is_err());
    assert!(edited.set_item(&["b"], 0, &json!(1)).is_err());
    edited.remove(&["a", "b"]).expect("nothing to remove");
    assert_eq!(edited.as_str(), r#"{"a": [1]}"#);
}

#[test]
fn values_are_the_same_by_meaning() {
    let same_text = |one: &str, other: &str| {
        same(&parse(one.as_bytes()).expect("one"), &parse(other.as_bytes()).expect("other"))
    };
    for (one, other) in [
        ("1", "1.0"),
        ("1e2", "100"),
        ("0.1", "0.1000000000000000055"),
        ("9007199254740993", "9007199254740992.0"),
        ("NaN", "\"NaN\""),
        (r#"{"a": 1, "b": [2]}"#, r#"{"b": [2.0], "a": 1}"#),
    ] {
        assert!(same_text(one, other), "{one} is not {other}");
    }
    for (one, other) in [
        ("9007199254740993", "9007199254740992"),
        ("1", "true"),
        ("1", "\"1\""),
        ("0.0", "-0.0"),
        ("[1, 2]", "[2, 1]"),
        (r#"{"a": 1}"#, r#"{"a": 1, "b": null}"#),
        ("1e999", "1e998"),
    ] {
        assert!(!same_text(one, other), "{one} is {other}");
    }
}

#[test]
fn an_integer_and_a_number_with_a_fraction_are_of_two_types() {
    let of_one_type = |one: &str, other: &str| {
        let parsed = [one, other].map(|text| parse(text.as_bytes()).expect("JSON"));
        same_and_of_one_type(&parsed[0], &parsed[1])
    };
    assert!(of_one_type("[1.0, 1]", "[1.00, 1]") && of_one_type("1e2", "100.0"));
    assert!(!of_one_type("1", "1.0") && !of_one_type(r#"{"a": [1e2]}"#, r#"{"a": [100]}"#));
}

/// Any value, including the words that Python writes bare.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter_map("finite", |float| { float.is_finite().then(|| Value::from(float)) }),
        "[a-z\"\\\\\u{e9}\u{1f600}]{0,6}".prop_map(Value::from),
        prop_oneof![Just("NaN"), Just("-Infinity")].prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-d]{1,2}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Prints the value in some layout, with bare words.
fn written(value: &Value, layout: u8) -> String {
    let text = match layout {
        0 => value.to_string(),
        1 => format!("{value:#}\n"),
        2 => format!("\u{feff}{value:#}").replace('\n', "\r\n").replace("  ", "\t"),
        _ => format!(" {value} "),
    };
    text.replace("\"NaN\"", "NaN").replace("\"-Infinity\"", "-Infinity")
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::vec(("[a-d]{1,2}", value()), 0..6)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in value(), layout in 0..4u8) {
        prop_assert_eq!(parse(written(&value, layout).as_bytes()).expect("a document"), value);
    }

    #[test]
    fn skipping_a_value_ends_where_reading_it_does(value in value(), layout in 0..4u8) {
        let text = format!("[{},1]", written(&value, layout).trim_start_matches('\u{feff}'));
        let (mut read, mut skipped) = (Scanner::new(&text, 1), Scanner::new(&text, 1));
        read.value().expect("a value");
        skipped.skip();
        prop_assert_eq!(read.at, skipped.at, "{}", text);
    }

    #[test]
    fn a_set_member_is_set_and_the_others_keep_their_bytes(
        stored in object(), layout in 0..4u8, name in "[a-e]{1,2}", new in value(),
    ) {
        let before = written(&stored, layout);
        let mut edited = text(&before);
        edited.set(&[&name], &new).expect("set");
        let mut expected = stored.clone();
        expected[&name] = new;
        prop_assert_eq!(parse(edited.as_str().as_bytes()).expect("still a document"), expected);
        check_splice(&before, edited.as_str(), &stored, &name)?;
    }

    #[test]
    fn changes_in_one_pass_are_those_made_one_by_one(
        stored in object(),
        layout in 0..4u8,
        is_nested: bool,
        changes in prop::collection::vec(("[a-e]{1,2}", prop::option::of(value())), 0..6),
    ) {
        let path: &[&str] = if is_nested { &["a"] } else { &[] };
        let mut one_by_one = text(&written(&stored, layout));
        let mut in_one_pass = one_by_one.clone();
        let mut expected = Ok(());
        for (name, value) in &changes {
            let path = [path, &[name]].concat();
            expected = expected.and(match value {
                Some(value) => one_by_one.set(&path, value),
                None => one_by_one.remove(&path),
            });
        }
        let changes: Vec<MemberEdit<'_>> = changes
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref().map(NewValue::Value)))
            .collect();
        prop_assert_eq!(in_one_pass.edit(path, &changes).is_ok(), expected.is_ok());
        if expected.is_ok() {
            let value = |text: &Text| parse(text.as_str().as_bytes()).expect("a document");
            let (one_by_one, in_one_pass) = (value(&one_by_one), value(&in_one_pass));
            prop_assert!(same(&one_by_one, &in_one_pass), "{one_by_one} {in_one_pass}");
        }
    }

    #[test]
    fn a_nested_member_is_set(stored in object(), layout in 0..4u8, new in value()) {
        let mut edited = text(&written(&stored, layout));
        let mut expected = stored.clone();
        let inside = &mut expected["a"];
        let fits = inside.is_null() || inside.is_object();
        prop_assert_eq!(edited.set(&["a", "b"], &new).is_ok(), fits);
        if fits {
            inside["b"] = new;
        }
        if fits {
            prop_assert_eq!(parse(edited.as_str().as_bytes()).expect("still a document"), expected);
        }
    }

    #[test]
    fn a_removed_member_is_gone_and_the_others_keep_their_bytes(
        stored in object(), layout in 0..4u8, name in "[a-e]{1,2}",
    ) {
        let before = written(&stored, layout);
        let mut edited = text(&before);
        edited.remove(&[&name]).expect("remove");
        let mut expected = stored.clone();
        expected.as_object_mut().expect("an object").shift_remove(&name);
        prop_assert_eq!(parse(edited.as_str().as_bytes()).expect("still a document"), expected);
        check_splice(&before, edited.as_str(), &stored, &name)?;
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_damage_makes_the_parser_panic(stored in object(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = written(&stored, 1).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(mut text) = Text::parse(&bytes) {
            let _ = text.set(&["a", "b"], &json!([1, {}]));
            let _ = text.set_item(&["a"], 0, &json!(1));
            let _ = text.remove(&["b"]);
            parse(text.as_str().as_bytes()).expect("an edit leaves a document");
        } else {
            let _ = parse(&bytes);
        }
    }
}

/// Checks that the edit kept the string of every other member, in the same order.
fn check_splice(
    before: &str,
    after: &str,
    stored: &Value,
    name: &str,
) -> Result<(), TestCaseError> {
    let source = text(before);
    let members = source.members_for_test();
    let mut rest = after;
    for key in stored.as_object().expect("an object").keys().filter(|key| *key != name) {
        let kept = members.iter().find(|(found, _)| found == key).map(|(_, text)| text.as_str());
        let kept = kept.expect("a member");
        let at = rest.find(kept);
        prop_assert!(at.is_some(), "{kept:?} is not in {rest:?}");
        rest = &rest[at.expect("found") + kept.len()..];
    }
    Ok(())
}
