//! References of both versions, in blocks of every length.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use proptest::prelude::*;

use super::*;
use crate::refs::{ReferenceTarget, References};

/// The memory for references.
const MOST: u64 = 1 << 20;

/// A text in blocks of some bytes.
#[derive(Debug)]
struct Pieces(Vec<u8>, usize);

impl FileBlocks for Pieces {
    fn next(&mut self) -> Result<Bytes> {
        let len = self.1.min(self.0.len());
        Ok(self.0.drain(..len).collect::<Vec<u8>>().into())
    }
}

fn parse(text: &[u8], block_len: usize) -> Result<ReferenceTable> {
    let lexer = Lexer::new(Pieces(text.to_vec(), block_len));
    let mut parser = ReferencesParser { lexer, builder: Builder::new(MOST) };
    parser.read()?;
    parser.builder.build(SystemTime::UNIX_EPOCH)
}

fn said(table: &ReferenceTable, key: &str) -> Option<String> {
    let found = table.known(&[Key::parse(key).expect("valid")]).pop().flatten()?;
    Some(match found.target {
        ReferenceTarget::Inline(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        ReferenceTarget::Part { location, offset, len, .. } => format!("{location} {offset} {len}"),
        ReferenceTarget::Whole(location) => format!("{location}"),
    })
}

fn reference() -> impl Strategy<Value = (String, String)> {
    let number = || any::<u64>();
    prop_oneof![
        "[a-z\"\\\\é🧊 ]{0,9}".prop_map(|text| (serde_json::to_string(&text).unwrap(), text)),
        ("[a-z/\\\\\"é]{1,9}", number(), number()).prop_map(|(url, offset, len)| {
            let quoted = serde_json::to_string(&url).unwrap();
            (format!("[ {quoted},{offset} , {len}]"), format!("{url} {offset} {len}"))
        }),
        "[a-z]{1,9}".prop_map(|url| (format!("[\"{url}\"]"), url)),
        "[a-z\\[\\]{}]{0,5}".prop_map(|text| {
            let object = format!("{{\"a\": [NaN, {{\"b\\\\\": {}}}]}}", serde_json::json!(text));
            (object.clone(), object)
        }),
    ]
}

proptest! {
    #[test]
    fn all_references_are_read_whatever_the_length_of_blocks(
        references in prop::collection::btree_map("[a-c]{1,2}(/[a-c0-9.]{1,3}[a-z])?", reference(), 0..12),
        is_second in any::<bool>(),
        block_len in 1_usize..40,
    ) {
        let mut members = String::new();
        for (key, (json, _)) in &references {
            let comma = if members.is_empty() { "" } else { ",\n " };
            write!(members, "{comma}{} : {json}", serde_json::to_string(key).unwrap()).unwrap();
        }
        let text = if is_second {
            format!("{{\"refs\": {{{members}}} , \"version\":1}}")
        } else {
            format!(" {{{members}}}\n")
        };
        let table = parse(text.as_bytes(), block_len).expect("parsed");
        let want: BTreeMap<&str, &str> =
            references.iter().map(|(key, (_, want))| (key.as_str(), want.as_str())).collect();
        for (key, want) in want {
            prop_assert_eq!(said(&table, key), Some(want.to_owned()), "{}", text);
        }
    }

    #[test]
    fn damaged_references_are_an_error_and_never_a_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        block_len in 1_usize..200,
    ) {
        let mut text = br#"{"version": 1, "templates": {"u": "s3://b", "f": "{{c}}.nc"}, "gen": [{"key":
            "x/{{i}}", "url": "{{u}}", "offset": "{{ i*2 }}", "length": 3, "dimensions": {"i": [1, 2]}}],
            "refs": {"a\u00e9": "base64:AAAA", "b/c": ["{{ f(c='\ud83e\uddca') }}", 1, 2], "d": {"e": []}}}"#
            .to_vec();
        let cut = cut.index(text.len());
        let end = if byte % 4 == 0 { cut } else { text.len() };
        let at = at.index(text.len());
        text[at] = byte;
        drop(parse(&text[..end], block_len));
    }

    #[test]
    fn no_expression_panics(text in "[a-c0-9'\"()+*/%, =-]{0,24}") {
        let mut templates = Templates::default();
        templates.add("a".to_owned(), "x").unwrap();
        templates.add("b".to_owned(), "{{c}}").unwrap();
        drop(templates.render(&format!("{{{{{text}}}}}")));
    }
}

#[test]
fn templates_are_replaced_wherever_they_are_defined() {
    let text = br#"{"refs": {"x": ["{{u}}/{{ f(c='t' + 'p', n=2 * (3 + 4) // 5 % 7) }}", 1, 2]},
        "version": 1, "templates": {"f": "{{c}}-{{ n - 1 }}.nc", "u": "s3://bucket"}}"#;
    let table = parse(text, 16).expect("parsed");
    assert_eq!(said(&table, "x").as_deref(), Some("s3://bucket/tp-1.nc 1 2"));
}

#[test]
fn generated_references_are_all_combinations() {
    let text = br#"{"version": 1, "refs": {}, "templates": {"u": "s3://b"}, "gen": [{"key": "x/{{i}}.{{j}}",
        "url": "{{u}}/{{j}}.nc", "offset": "{{ 100 * i }}", "length": "{{ 7 }}",
        "dimensions": {"i": {"start": 1, "stop": 6, "step": 2}, "j": ["a", 5]}}]}"#;
    let table = parse(text, 1000).expect("parsed");
    assert_eq!(said(&table, "x/5.a").as_deref(), Some("s3://b/a.nc 500 7"));
    assert_eq!(said(&table, "x/1.5").as_deref(), Some("s3://b/5.nc 100 7"));
    assert_eq!(said(&table, "x/6.a"), None);
}

#[test]
fn a_template_does_not_lead_in_circles() {
    let text =
        br#"{"version": 1, "templates": {"a": "{{b}}", "b": "{{a}}"}, "refs": {"x": ["{{a()}}"]}}"#;
    let error = parse(text, 1000).expect_err("refused").to_string();
    assert_eq!(error, "no template \"b\", in \"b\"");
}

fn refused(text: &str) -> Error {
    let error = parse(text.as_bytes(), 1 << 16).expect_err("refused");
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    error
}

#[test]
fn references_that_need_too_much_memory_are_refused() {
    let long = "y".repeat(600 << 10);
    refused(&format!(r#"{{"a": "{long}", "b": "{long}"}}"#));
    refused(&format!(r#"{{"a": ["{long}", 1, 2], "b": ["{long}x", 1, 2]}}"#));
    refused(&format!(r#"{{"{}a": "x"}}"#, "a/".repeat(5000)));
    let generated = |key: &str, url: &str, stop: u32| {
        format!(
            r#"{{"version": 1, "refs": {{}}, "templates": {{"a": "{}"}}, "gen": [{{"key": "{key}",
            "url": "{url}", "dimensions": {{"i": {{"stop": {stop}}}}}}}]}}"#,
            "x".repeat(60_000),
        )
    };
    refused(&generated("x/{{i}}", "u", 60_000_000));
    let sum = format!("{{{{{}a}}}}", "a+".repeat(100_000));
    refused(&generated("x", &sum, 1));
}
