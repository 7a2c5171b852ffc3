use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::lists::Lists;
use super::*;
use crate::configuration::NumpyType;
use zarrfs_base::error::Kind;
use zarrfs_base::limits;

fn bytes(hexadecimal: &Value) -> Vec<u8> {
    let digits = hexadecimal.as_str().unwrap().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// The records of lists of objects in `filters.json`; see `filters.py` next to it.
fn records() -> Vec<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/numcodecs/filters.json");
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    all.into_iter().filter(|record| record.get("exact").is_some()).collect()
}

fn bound(name: &str, configuration: &Value, dtype: DType, shape: Vec<u64>) -> Objects {
    let elements = ChunkType { shape, dtype };
    match name {
        "numcodecs.json2" => Objects::json(configuration.as_object().unwrap(), &elements, 100_000),
        _ => Objects::message_pack(&elements, 100_000),
    }
    .unwrap()
}

#[test]
fn lists_of_objects_are_those_of_numcodecs() {
    let records = records();
    assert!(records.len() > 30, "{} records", records.len());
    for record in records {
        let name = record["name"].as_str().unwrap();
        let dtype = NumpyType::parse(record["dtype"].as_str().unwrap()).unwrap().dtype;
        let shape = serde_json::from_value(record["shape"].clone()).unwrap();
        let codec = bound(name, &record["configuration"], dtype, shape);
        let (elements, encoded) = (bytes(&record["elements"]), bytes(&record["encoded"]));
        let what = format!("{name} {} {}", record["dtype"], String::from_utf8_lossy(&encoded));
        let decoded = codec.decode(encoded.clone().into());
        assert_eq!(*decoded.expect(&what), *elements, "{what}: decoded");
        let again = codec.encode(elements.clone().into(), &[]).unwrap();
        assert_eq!(*codec.decode(again.clone()).unwrap(), *elements, "{what}: encoded");
        if record["exact"] == true {
            assert_eq!(again, encoded, "{what}");
        }
    }
}

#[test]
fn a_list_that_does_not_fit_is_refused() {
    let codec = bound("numcodecs.json2", &json!({}), DType::String, vec![2, 2]);
    let decode = |text: &str| codec.decode(Bytes::copy_from_slice(text.as_bytes()));
    let flat = decode(r#"["a","b","c","d","|O",[4]]"#).unwrap();
    assert_eq!(decode(r#" [ ["a", "b"] , ["c","d"],"|O" ,[2,2] ] "#).unwrap(), flat);
    for wrong in [
        "",
        "[]",
        "[[2,2]]",
        r#"["a","b","c","d",7,[4]]"#,
        r#"["a","b","c","|O",[3]]"#,
        r#"["a","b","c","d","|O",[5]]"#,
        r#"[["a","b"],["c","d"],"|O",[2,3]]"#,
        r#"["ab","cd","|O",[2,2]]"#,
        r#"[["a","b"],["c","d"],"|O",[2,2]"#,
        r#"[["a","b"],["c","d],"|O",[2,2]]"#,
        r#"[["a","b"],["c",d],"|O",[2,2]]"#,
        r#"[["a","b"],["c","d",],"|O",[2,2]]"#,
        r#"["a","b","c","d","|O",4]"#,
    ] {
        assert!(decode(wrong).is_err(), "{wrong}");
    }
    let numbers = bound("numcodecs.json2", &json!({}), DType::Int(1), vec![1]);
    let decode = |text: &str| numbers.decode(Bytes::copy_from_slice(text.as_bytes()));
    assert_eq!(*decode("[-7,\"|i1\",[1]]").unwrap(), [249]);
    for wrong in ["[300,\"|i1\",[1]]", "[null,\"|i1\",[1]]", "[{},\"|i1\",[1]]"] {
        assert!(decode(wrong).is_err(), "{wrong}");
    }
    let elements = ChunkType { shape: vec![1], dtype: DType::String };
    let short = Objects::json(&Object::new(), &elements, 11).unwrap();
    assert!(short.decode(Bytes::from_static(br#"["abc","|O",[1]]"#)).is_ok());
    assert!(short.decode(Bytes::from_static(br#"["abcd","|O",[1]]"#)).is_err());
}

#[test]
fn lists_in_lists_have_a_limit() {
    let codec = bound("numcodecs.msgpack2", &json!({}), DType::String, vec![1]);
    let nested = |depth| [&[0x93][..], &vec![0x91; depth], &[0xc0, 0xa1, 79, 0x91, 1]].concat();
    assert!(codec.decode(nested(60).into()).is_ok());
    assert!(codec.decode(nested(100_000).into()).is_err());
    let codec = bound("numcodecs.json2", &json!({}), DType::String, vec![1]);
    let nested = format!("[{}{},\"|O\",[1]]", "[".repeat(100_000), "]".repeat(100_000));
    assert!(codec.decode(nested.into_bytes().into()).is_err());
}

#[test]
fn an_object_that_takes_much_memory_is_refused() {
    let codec = bound("numcodecs.msgpack2", &json!({}), DType::String, vec![1]);
    let decode = |object: &[u8]| {
        let list = [&[0x93][..], object, &[0xa2, b'|', b'O', 0x91, 1]].concat();
        codec.decode(list.into())
    };
    let list = |count: u32, item: &[u8]| {
        [&[0xdd][..], &count.to_be_bytes(), &item.repeat(count as usize)].concat()
    };
    assert_eq!(decode(&list(3, &[7])).unwrap()[8..], *b"[7,7,7]");
    let most = u32::try_from(limits::VALUES.get()).unwrap();
    let error = decode(&list(most, &[0])).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert!(error.detail().contains("--limit metadata-values=N"), "{error}");
    let error = decode(&list(60_000, &[0xa1, 1])).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "each string has six characters in JSON");
    let text = [&[0xdb][..], &100_001_u32.to_be_bytes(), &b"x".repeat(100_001)].concat();
    let error = decode(&text).unwrap_err();
    assert!(error.detail().ends_with("(its length, or --max-chunk-size)"), "{error}");
}

#[test]
fn a_message_about_an_object_of_a_chunk_does_not_name_a_metadata_file() {
    let codec = bound("numcodecs.json2", &json!({}), DType::String, vec![1]);
    let error = |object: &str| {
        let list = format!("[{object},\"|O\",[1]]");
        codec.decode(list.into_bytes().into()).unwrap_err()
    };
    let values = limits::VALUES.get_usize() + 1;
    let many = error(&format!("[{}0]", "0,".repeat(100_000)));
    assert_eq!(many.kind(), Kind::TooLarge);
    assert!(many.detail().contains("--max-chunk-size"), "{many}");
    let long = error(&format!("\"{}\"", "x".repeat(600_001)));
    assert_eq!(long.detail(), "json2: an object of 600003 bytes, the limit is 600000 bytes");
    let damaged = error("[1 2]");
    let wanted = "json2: an object is not JSON: `,` or `]` is missing at line 1, column 4";
    assert_eq!(damaged.detail(), wanted);
    let elements = ChunkType { shape: vec![1], dtype: DType::String };
    let codec = Objects::json(&Object::new(), &elements, 1 << 30).unwrap();
    let list = format!("[[{}0],\"|O\",[1]]", "0,".repeat(values));
    let error = codec.decode(list.into_bytes().into()).unwrap_err();
    assert!(error.detail().starts_with("json2: an object of more than "), "{error}");
}

/// Counts the bytes of the items that it returns.
struct CountedItems<L> {
    list: L,
    len: usize,
}

impl<'b, L: Lists<'b>> Lists<'b> for CountedItems<L> {
    fn begin(&mut self) -> Result<()> {
        self.list.begin()
    }

    fn has_next(&mut self) -> Result<bool> {
        self.list.has_next()
    }

    fn item(&mut self) -> Result<&'b [u8]> {
        self.list.item().inspect(|item| self.len += item.len())
    }

    fn end(&self) -> Result<()> {
        self.list.end()
    }
}

#[test]
fn the_bytes_of_nested_lists_are_read_once() {
    fn read<'b>(list: impl Lists<'b>, shape: &[u64]) -> usize {
        let mut counted = CountedItems { list, len: 0 };
        lists::for_each_leaf(&mut counted, shape, 2, &mut |_| Ok(())).unwrap();
        counted.len
    }
    let shape = vec![1; 60];
    let mut writer = texts::TextWriter::new(1, 100_000).unwrap();
    writer.push("x".repeat(10_000).as_bytes()).unwrap();
    let chunk = writer.into_chunk();
    for name in ["numcodecs.json2", "numcodecs.msgpack2"] {
        let codec = bound(name, &json!({}), DType::String, shape.clone());
        let encoded = codec.encode(chunk.clone().into(), &[]).unwrap();
        let len = match codec.notation {
            Notation::Json { .. } => read(json::List::new(&encoded), &shape),
            Notation::MessagePack => read(message_pack::List::new(&encoded), &shape),
        };
        assert!(len <= encoded.len(), "{name}: {len} bytes of {}", encoded.len());
        assert_eq!(*codec.decode(encoded).unwrap(), *chunk, "{name}");
    }
}

#[test]
fn names_in_names_do_not_double_the_memory_with_each_level() {
    let codec = bound("numcodecs.msgpack2", &json!({}), DType::String, vec![1]);
    let decode = |depth: usize| {
        let object = [vec![0x81; depth], b"\xa1a".to_vec(), vec![0; depth]].concat();
        let list = [&[0x93][..], &object, &[0xa2, b'|', b'O', 0x91, 1]].concat();
        codec.decode(list.into())
    };
    assert_eq!(decode(2).unwrap()[8..], *br#"{"{\"a\":0}":0}"#);
    assert_eq!(decode(24).unwrap_err().kind(), Kind::TooLarge);
    assert_eq!(decode(60).unwrap_err().kind(), Kind::TooLarge);
}

#[test]
fn a_list_for_more_strings_than_fit_is_not_read() {
    for name in ["numcodecs.json2", "numcodecs.msgpack2"] {
        let codec = bound(name, &json!({}), DType::String, vec![25_000]);
        assert_eq!(codec.decode(Bytes::from_static(b"!")).unwrap_err().kind(), Kind::TooLarge);
        let codec = bound(name, &json!({}), DType::String, vec![24_999]);
        assert_eq!(codec.decode(Bytes::from_static(b"!")).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn the_shape_of_a_list_is_compared_before_its_elements_are_read() {
    let codec = bound("numcodecs.json2", &json!({}), DType::String, vec![4]);
    let error = codec.decode(Bytes::from_static(br#"[!,!,!,"|O",[3]]"#)).unwrap_err();
    assert_eq!(error.detail(), "objects of shape [3], the chunk needs 4");
    let error = codec.decode(Bytes::from_static(b"[!,!,!,!,!,!,!]")).unwrap_err();
    assert_eq!(error.detail(), "more objects than the 4 of the chunk");
    let codec = bound("numcodecs.msgpack2", &json!({}), DType::String, vec![4]);
    let error =
        codec.decode(Bytes::from_static(b"\xdd\xff\xff\xff\xff\0\0\0\0\0\0\0")).unwrap_err();
    assert_eq!(error.detail(), "more objects than the 4 of the chunk");
}

proptest! {
    #[test]
    fn texts_survive(texts in prop::collection::vec(any::<String>(), 1..12), ascii in any::<bool>()) {
        let mut writer = texts::TextWriter::new(texts.len(), 100_000).unwrap();
        for text in &texts {
            writer.push(text.as_bytes()).unwrap();
        }
        let chunk = writer.into_chunk();
        for name in ["numcodecs.json2", "numcodecs.msgpack2"] {
            let shape = vec![1, texts.len() as u64];
            let codec = bound(name, &json!({"ensure_ascii": ascii}), DType::String, shape);
            let encoded = codec.encode(chunk.clone().into(), &[]).unwrap();
            prop_assert_eq!(&*codec.decode(encoded).unwrap(), &*chunk);
        }
    }

    #[test]
    fn any_bytes_are_a_list_or_not(
        mut encoded in prop::collection::vec(any::<u8>(), 0..40),
        record in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let records = records();
        let stored = bytes(&record.get(&records)["encoded"]);
        for name in ["numcodecs.json2", "numcodecs.msgpack2"] {
            let codec = bound(name, &json!({}), DType::String, vec![2, 3]);
            let _ = codec.decode(encoded.clone().into());
            let mut changed = stored.clone();
            let at = at.index(changed.len());
            changed.splice(at..at, encoded.drain(..encoded.len().min(2)));
            let _ = codec.decode(changed.into());
        }
    }
}
