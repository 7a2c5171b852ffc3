use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::answer::{AnswerKind, DapAnswer, answer};
use super::constraint::{ConstraintNames, Slice, parse};
use super::error::{DapCode, DapError};
use super::hyperslab::Hyperslab;
use super::names::{decoded, encoded, identifiers};
use super::xdr::{double, is_exact};
use crate::array::Coords;
use crate::cache::ChunkCache;
use crate::dtype::DType;
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::NodePath;
use crate::store::memory::MemoryStore;
use crate::store::{Condition, Key, Store};
use crate::view::{ElementRange, Excerpt, GetChunk, ViewSource};

/// A hierarchy in memory.
struct DapBed(Hierarchy, ChunkCache);

/// An array for a [`DapBed`].
struct TestArray<'a> {
    name: &'a str,
    dtype: Value,
    shape: &'a [u64],
    chunks: &'a [u64],
    dimensions: &'a [&'a str],
    attributes: Value,
    fill: Value,
    /// The elements in C order, little endian; none if no chunk is stored.
    items: Vec<u8>,
}

impl Default for TestArray<'_> {
    fn default() -> Self {
        Self {
            name: "a",
            dtype: json!("int32"),
            shape: &[],
            chunks: &[],
            dimensions: &[],
            attributes: json!({}),
            fill: json!(0),
            items: Vec::new(),
        }
    }
}

impl DapBed {
    fn new(arrays: &[TestArray<'_>]) -> Self {
        let store = Store::new(Arc::new(MemoryStore::new()));
        let set = |key: &str, bytes: Vec<u8>| {
            let key = Key::parse(key).expect("a key");
            let bytes = [Bytes::from(bytes).into()];
            store.write().expect("writable").set(&key, &bytes, Condition::Always).expect("set");
        };
        set("zarr.json", br#"{"zarr_format":3,"node_type":"group"}"#.to_vec());
        for array in arrays {
            let codecs = match array.dtype.as_str() {
                Some("string") => json!([{"name": "vlen-utf8"}]),
                _ => json!([{"name": "bytes", "configuration": {"endian": "little"}}]),
            };
            // One chunk for a single value, so that its bytes are the items.
            let grid = if array.items.is_empty() { array.chunks } else { array.shape };
            let mut document = json!({
                "zarr_format": 3, "node_type": "array", "shape": array.shape,
                "data_type": array.dtype, "fill_value": array.fill, "codecs": codecs,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}},
                "chunk_key_encoding": {"name": "default"}, "attributes": array.attributes,
            });
            if !array.dimensions.is_empty() {
                document["dimension_names"] = json!(array.dimensions);
            }
            set(&format!("{}/zarr.json", array.name), document.to_string().into_bytes());
            if !array.items.is_empty() {
                let coords = "/0".repeat(array.shape.len());
                set(&format!("{}/c{coords}", array.name), array.items.clone());
            }
        }
        let hierarchy = Hierarchy::open(store, None, HierarchyOptions::default()).expect("opens");
        Self(hierarchy, ChunkCache::new(64 << 20))
    }

    fn get(
        &self,
        elements: &ElementRange,
        coords: &Coords,
    ) -> crate::error::Result<Option<Excerpt>> {
        Ok(self.1.get(&elements.array, coords)?.map(|chunk| chunk.bytes.into()))
    }

    fn answer(&self, kind: AnswerKind, constraint: &str) -> Result<DapAnswer, DapError> {
        let get: &GetChunk<'_> = &|elements, coords, _| self.get(elements, coords);
        let source = ViewSource::new(&self.0, &NodePath::root(), get)?;
        answer(&source, kind, constraint)
    }

    /// Returns a whole body, which has the announced length.
    fn body(&self, kind: AnswerKind, constraint: &str) -> Result<Vec<u8>, DapError> {
        let mut answer = self.answer(kind, constraint)?;
        let get: &GetChunk<'_> = &|elements, coords, _| self.get(elements, coords);
        let (announced, mut body) = (answer.len(), Vec::new());
        loop {
            let bytes = answer.next(1000, get)?;
            if bytes.is_empty() {
                break;
            }
            assert!(bytes.len() <= 1000, "{} bytes at once", bytes.len());
            body.extend(bytes);
        }
        if let Some(announced) = announced {
            assert_eq!(body.len() as u64, announced);
        }
        Ok(body)
    }

    fn text(&self, kind: AnswerKind, constraint: &str) -> String {
        String::from_utf8(self.body(kind, constraint).expect("an answer")).expect("UTF-8")
    }

    /// Returns the elements of a `dods`.
    fn xdr(&self, constraint: &str) -> Vec<u8> {
        let body = self.body(AnswerKind::Dods, constraint).expect("an answer");
        let mark = b"\nData:\n";
        let at = body.windows(mark.len()).position(|bytes| bytes == mark).expect("a mark");
        body[at + mark.len()..].to_vec()
    }

    fn error(&self, constraint: &str) -> DapError {
        self.body(AnswerKind::Dods, constraint).expect_err("an error")
    }
}

fn grid() -> DapBed {
    let items = (0..24_i32).flat_map(i32::to_le_bytes).collect();
    let time = [0_i32, 10, 20, 30].into_iter().flat_map(i32::to_le_bytes).collect();
    let place = [1.5_f32, 2.5, 3.5].into_iter().flat_map(f32::to_le_bytes).collect();
    DapBed::new(&[
        TestArray {
            name: "t2m",
            shape: &[4, 3],
            dimensions: &["time", "x"],
            attributes: json!({"units": "K", "n": 1_i64 << 60, "m": 1_i64 << 40, "e": "a\"b\\"}),
            items: Vec::clone(&items)[..48].to_vec(),
            ..TestArray::default()
        },
        TestArray {
            name: "time",
            shape: &[4],
            dimensions: &["time"],
            items: time,
            ..TestArray::default()
        },
        TestArray {
            name: "x",
            dtype: json!("float32"),
            shape: &[3],
            dimensions: &["x"],
            fill: json!("NaN"),
            attributes: json!({"_FillValue": "NaN"}),
            items: place,
            ..TestArray::default()
        },
    ])
}

fn numbers(values: &[i32]) -> Vec<u8> {
    let count = u32::try_from(values.len()).expect("few").to_be_bytes();
    let values = values.iter().flat_map(|value| value.to_be_bytes());
    [count, count].concat().into_iter().chain(values).collect()
}

#[test]
fn an_array_with_coordinates_is_a_grid() {
    let expected = "Dataset {\n    Grid {\n      ARRAY:\n        Int32 t2m[time = 4][x = 3];\n      \
                    MAPS:\n        Int32 time[time = 4];\n        Float32 x[x = 3];\n    } t2m;\n    \
                    Int32 time[time = 4];\n    Float32 x[x = 3];\n} root;\n";
    assert_eq!(grid().text(AnswerKind::Dds, ""), expected);
}

#[test]
fn a_hyperslab_of_a_grid_selects_the_same_elements_of_its_maps() {
    let bed = grid();
    let declared = bed.text(AnswerKind::Dds, "t2m[1:2:3][2]");
    assert!(declared.contains("Int32 t2m[time = 2][x = 1];"), "{declared}");
    assert!(declared.contains("Int32 time[time = 2];"), "{declared}");
    let singles = [1, 1].into_iter().flat_map(u32::to_be_bytes).chain(3.5_f32.to_be_bytes());
    let expected = [numbers(&[5, 11]), numbers(&[10, 30]), singles.collect()].concat();
    assert_eq!(bed.xdr("t2m[1:2:3][2]"), expected);
}

#[test]
fn some_members_of_a_grid_are_a_structure() {
    let bed = grid();
    let declared = bed.text(AnswerKind::Dds, "t2m.t2m[0][0:1],time");
    let expected = "Dataset {\n    Structure {\n        Int32 t2m[time = 1][x = 2];\n    } t2m;\n    \
                    Int32 time[time = 4];\n} root;\n";
    assert_eq!(declared, expected);
    let all = bed.text(AnswerKind::Dds, "t2m.x,t2m.t2m,t2m.time");
    assert!(all.contains("Grid"), "{all}");
    assert_eq!(bed.xdr("t2m.time[3]"), numbers(&[30]));
}

#[test]
fn attributes_have_the_types_of_elements() {
    let text = grid().text(AnswerKind::Das, "ignored[");
    for line in [
        "String units \"K\";",
        "String n \"1152921504606846976\";",
        "Float64 m 1099511627776;",
        "String e \"a\\\"b\\\\\";",
        "Float32 _FillValue NaN;",
    ] {
        assert!(text.contains(&format!("        {line}\n")), "no {line} in {text}");
    }
}

#[test]
fn decimal_elements_have_a_line_for_each_row() {
    let text = grid().text(AnswerKind::Ascii, "t2m.t2m[1:2][0:2:2],x");
    let expected = "t2m.t2m[2][2]\n[0], 3, 5\n[1], 6, 8\n\nx[3]\n1.5, 2.5, 3.5\n\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn each_type_has_its_form_in_xdr() {
    let item = |dtype: &str, items: &[u8]| {
        let array =
            TestArray { dtype: json!(dtype), items: items.to_vec(), ..TestArray::default() };
        DapBed::new(&[array]).xdr("")
    };
    let array = |dtype: &str, items: &[u8], count: u64| {
        let array = TestArray {
            dtype: json!(dtype),
            shape: &[count],
            items: items.to_vec(),
            ..TestArray::default()
        };
        DapBed::new(&[array]).xdr("")
    };
    let two = [0, 0, 0, 2, 0, 0, 0, 2];
    for (dtype, items, expected) in [
        ("bool", vec![1, 0], vec![1, 0, 0, 0]),
        ("uint8", vec![200, 7], vec![200, 7, 0, 0]),
        ("int8", vec![0xff, 7], vec![255, 255, 255, 255, 0, 0, 0, 7]),
        ("int16", vec![0xfe, 0xff, 1, 2], vec![255, 255, 255, 254, 0, 0, 2, 1]),
        ("uint16", vec![0xfe, 0xff, 1, 2], vec![0, 0, 255, 254, 0, 0, 2, 1]),
        ("uint32", vec![1, 2, 3, 4, 5, 0, 0, 0], vec![4, 3, 2, 1, 0, 0, 0, 5]),
        ("float16", vec![0, 0x3c, 0, 0x7c], vec![0x3f, 0x80, 0, 0, 0x7f, 0x80, 0, 0]),
        (
            "int64",
            [(-1_i64).to_le_bytes(), (1_i64 << 53).to_le_bytes()].concat(),
            [(-1_f64).to_be_bytes(), 9_007_199_254_740_992_f64.to_be_bytes()].concat(),
        ),
        (
            "float64",
            [1.5_f64.to_le_bytes(), f64::NAN.to_le_bytes()].concat(),
            [1.5_f64.to_be_bytes(), f64::NAN.to_be_bytes()].concat(),
        ),
    ] {
        assert_eq!(array(dtype, &items, 2), [&two[..], &expected].concat(), "{dtype}");
    }
    assert_eq!(item("uint8", &[200]), [200; 4]);
    assert_eq!(item("int8", &[0xff]), [255; 4]);
    assert_eq!(item("float32", &1.5_f32.to_le_bytes()), 1.5_f32.to_be_bytes());
    assert_eq!(item("string", b"\x01\0\0\0\x02\0\0\0ab"), b"\0\0\0\x02ab\0\0");
    let strings = array("string", b"\x02\0\0\0\0\0\0\0\x05\0\0\0abcde", 2);
    assert_eq!(strings, b"\0\0\0\x02\0\0\0\0\0\0\0\x05abcde\0\0\0");
}

#[test]
fn an_integer_beyond_two_to_the_53_is_an_error_and_never_rounded() {
    for (dtype, items) in [
        ("int64", ((1_i64 << 53) + 1).to_le_bytes()),
        ("int64", (1_i64 << 60).to_le_bytes()),
        ("int64", i64::MIN.to_le_bytes()),
        ("uint64", u64::MAX.to_le_bytes()),
    ] {
        let array =
            TestArray { dtype: json!(dtype), items: items.to_vec(), ..TestArray::default() };
        let bed = DapBed::new(&[array]);
        let error = bed.error("a");
        assert_eq!(error.code, DapCode::CannotRead, "{error:?}");
        assert!(error.message.contains("2^53"), "{error:?}");
        assert!(bed.body(AnswerKind::Ascii, "a").is_err());
        let attributes = bed.text(AnswerKind::Das, "");
        assert!(attributes.contains("zarrfs_left_out \"a: the element "), "{attributes}");
        assert!(!bed.text(AnswerKind::Dds, "").contains("Float64 a"));
        assert_eq!(bed.text(AnswerKind::Dds, "a"), "Dataset {\n    Float64 a;\n} root;\n");
        let get: &GetChunk<'_> = &|elements, coords, _| bed.get(elements, coords);
        let path = NodePath::parse("a").expect("a path");
        let source = ViewSource::new(&bed.0, &path, get).expect("an array");
        assert_eq!(answer(&source, AnswerKind::Dods, "").expect_err("an error"), error);
    }
}

#[test]
fn an_answer_that_has_begun_is_cut_before_an_integer_that_does_not_fit() {
    let count = 1_u64 << 18;
    let mut items = vec![0; 8 << 18];
    let end = items.len();
    items[end - 8..].copy_from_slice(&(1_i64 << 60).to_le_bytes());
    let array = TestArray { dtype: json!("int64"), shape: &[count], items, ..TestArray::default() };
    let bed = DapBed::new(&[array]);
    let mut answer = bed.answer(AnswerKind::Dods, "a").expect("begins");
    let get: &GetChunk<'_> = &|elements, coords, _| bed.get(elements, coords);
    let announced = answer.len().expect("known");
    let mut sent = 0;
    let error = loop {
        match answer.next(4096, get) {
            Ok(bytes) => {
                assert!(!bytes.is_empty(), "the end after {sent} bytes");
                sent += bytes.len() as u64;
            }
            Err(error) => break error,
        }
    };
    assert!(sent > 1 << 20 && sent < announced, "{sent} of {announced}: {error}");
}

#[test]
fn a_time_is_exact_or_an_error() {
    let time = json!({"name": "numpy.datetime64", "configuration":
        {"unit": "ns", "scale_factor": 1}});
    let bed = |time_of: i64| {
        let items = time_of.to_le_bytes().to_vec();
        DapBed::new(&[TestArray {
            dtype: time.clone(),
            items,
            fill: json!("NaT"),
            ..TestArray::default()
        }])
    };
    let second = 1_700_000_000_000_000_000;
    assert_eq!(bed(second).xdr(""), 1.7e18_f64.to_be_bytes());
    assert_eq!(bed(i64::MIN).xdr(""), (-9_223_372_036_854_775_808_f64).to_be_bytes());
    assert_eq!(bed(second + 1).error("a").code, DapCode::CannotRead);
    let attributes = bed(second).text(AnswerKind::Das, "");
    assert!(attributes.contains("units \"nanoseconds since 1970-01-01\""), "{attributes}");
    assert!(attributes.contains("Float64 _FillValue -9223372036854775808;"), "{attributes}");
}

#[test]
fn an_array_without_a_type_is_left_out_with_the_reason() {
    let bed = DapBed::new(&[
        TestArray {
            name: "z",
            dtype: json!("complex64"),
            fill: json!([0, 0]),
            ..TestArray::default()
        },
        TestArray { name: "n", items: vec![1, 0, 0, 0], ..TestArray::default() },
    ]);
    assert_eq!(bed.text(AnswerKind::Dds, ""), "Dataset {\n    Int32 n;\n} root;\n");
    let attributes = bed.text(AnswerKind::Das, "");
    let expected = "String zarrfs_left_out \"z: DAP2 has no type for complex64\";";
    assert!(attributes.contains(expected), "{attributes}");
}

#[test]
fn a_corner_of_a_large_array_is_a_small_answer_and_the_whole_is_refused() {
    let array = || TestArray {
        dtype: json!("float32"),
        shape: &[1 << 20, 1 << 20],
        chunks: &[1 << 10, 1 << 10],
        fill: json!(7.5),
        ..TestArray::default()
    };
    let bed = DapBed::new(&[array()]);
    let answer = bed.xdr("a[1048575][1048574:1048575]");
    let expected = [&[0, 0, 0, 2, 0, 0, 0, 2], &7.5_f32.to_be_bytes()[..], &7.5_f32.to_be_bytes()];
    assert_eq!(answer, expected.concat());
    let error = bed.error("");
    assert_eq!(error.code, DapCode::Malformed);
    assert!(error.message.contains("2147483647 bytes"), "{error:?}");
    let bed = DapBed::new(&[TestArray { shape: &[1 << 29, 1], ..array() }]);
    assert_eq!(bed.error("").code, DapCode::Malformed);
    let answer = bed.answer(AnswerKind::Dods, "a[0:536870909][0]").expect("fits");
    assert!(answer.len().is_some_and(|len| len > (1 << 31) - 10), "{:?}", answer.len());
}

#[test]
fn an_empty_dimension_has_no_elements_to_select() {
    let bed = DapBed::new(&[TestArray { shape: &[0, 3], chunks: &[1, 1], ..TestArray::default() }]);
    assert_eq!(bed.xdr("a"), [0; 8]);
    assert_eq!(bed.xdr("a[0:1:9223372036854775806][0:1:2]"), [0; 8]);
    assert_eq!(bed.error("a[0][0]").code, DapCode::Malformed);
    // netCDF-C cannot read others beside it.
    assert!(!bed.text(AnswerKind::Dds, "").contains("Int32 a"));
    assert!(bed.text(AnswerKind::Das, "").contains("a: it has no elements"));
}

#[test]
fn many_long_strings_are_never_in_memory_at_once() {
    let fill = "x".repeat(1 << 20);
    let array = TestArray {
        dtype: json!("string"),
        shape: &[2000],
        chunks: &[1000],
        fill: json!(fill),
        ..TestArray::default()
    };
    let bed = DapBed::new(&[array]);
    let get: &GetChunk<'_> = &|elements, coords, _| bed.get(elements, coords);
    let mut answer = bed.answer(AnswerKind::Dods, "a").expect("an answer");
    let (mut len, mut longest) = (0, 0);
    loop {
        let bytes = answer.next(1 << 20, get).expect("bytes");
        if bytes.is_empty() {
            break;
        }
        len += bytes.len();
        longest = longest.max(bytes.len());
    }
    assert!(len > 2000 << 20 && longest < 32 << 20, "{len} bytes, {longest} at once");
}

#[test]
fn names_with_signs_are_found_in_each_spelling() {
    let bed = DapBed::new(&[
        TestArray { name: "a.b [c],d", items: vec![1, 0, 0, 0], ..TestArray::default() },
        TestArray { name: "é", items: vec![2, 0, 0, 0], ..TestArray::default() },
        TestArray { name: "Code", items: vec![3, 0, 0, 0], ..TestArray::default() },
    ]);
    let declared = bed.text(AnswerKind::Dds, "");
    assert!(declared.contains("Int32 a%2Eb%20%5Bc%5D%2Cd;"), "{declared}");
    for (name, expected) in [
        ("a.b [c],d", 1),
        ("a%2Eb%20%5Bc%5D%2Cd", 1),
        ("a%2eb%20%5bc%5d%2cd", 1),
        ("_%C3%A9", 2),
        ("é", 2),
        ("code", 3),
    ] {
        assert_eq!(bed.xdr(name), [0, 0, 0, expected], "{name}");
    }
    let names = identifiers(["é", "_é", "é"].into_iter());
    assert_eq!(names["é"], "_%C3%A9");
    assert_eq!(names["_é"], "_%C3%A9_");
}

#[test]
fn a_constraint_that_cannot_be_answered_is_an_error_with_the_reason() {
    let bed = grid();
    for (constraint, code, message) in [
        ("t2m[4][0]", DapCode::Malformed, "the dimension time has 4"),
        ("t2m[2:1][0]", DapCode::Malformed, "selects no elements"),
        ("t2m[0:0:1][0]", DapCode::Malformed, "stride of 0"),
        ("t2m[0]", DapCode::Malformed, "2 dimensions"),
        ("t2m[0][0][0]", DapCode::Malformed, "2 dimensions"),
        ("t2m[-1][0]", DapCode::Malformed, "no hyperslab"),
        ("t2m[99999999999999999999][0]", DapCode::Malformed, "no hyperslab"),
        ("t2m[0", DapCode::Malformed, "not expected"),
        ("time,", DapCode::Malformed, "too early"),
        ("time]", DapCode::NoSuchVariable, "no variable"),
        ("time&time>5", DapCode::Malformed, "selection"),
        ("&time>5", DapCode::Malformed, "selection"),
        ("geogrid(t2m,1,2)", DapCode::Malformed, "no function"),
        ("t2m.lat", DapCode::NoSuchVariable, "no variable"),
        ("other", DapCode::NoSuchVariable, "no variable"),
        ("time[0],time[1]", DapCode::Malformed, "two different hyperslabs"),
    ] {
        let error = bed.error(constraint);
        assert_eq!(error.code, code, "{constraint}: {error:?}");
        assert!(error.message.contains(message), "{constraint}: {error:?}");
    }
    assert_eq!(bed.xdr("time[2:*]&"), numbers(&[20, 30]));
}

#[test]
fn an_error_is_text_with_a_code_and_a_quoted_message() {
    let error = DapError::new(DapCode::NoSuchVariable, "no \"x\"\nhere");
    let expected = "Error {\n    code = 1004;\n    message = \"no \\\"x\\\" here\";\n};\n";
    assert_eq!(error.document(), expected);
    assert_eq!(error.http_status(), 404);
}

#[test]
fn a_double_is_exact_up_to_53_bits() {
    assert!(is_exact(0) && is_exact(1 << 53) && is_exact(-(1 << 63)));
    assert!(!is_exact((1 << 53) + 1) && is_exact((1 << 53) + 2));
    assert!(double(&DType::Int(8), &(-(1_i64 << 53)).to_le_bytes()).is_ok());
    assert!(double(&DType::Uint(8), &((1_u64 << 53) + 2).to_le_bytes()).is_err());
}

fn integers(
    name: &'static str,
    values: &[i64],
    dimensions: &'static [&'static str],
) -> TestArray<'static> {
    TestArray {
        name,
        dtype: json!("int64"),
        shape: &[2],
        chunks: &[2],
        dimensions,
        items: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        ..TestArray::default()
    }
}

#[test]
fn a_coordinate_that_clients_cannot_read_does_not_cost_the_array() {
    let bed = DapBed::new(&[
        integers("time", &[1 << 53, (1 << 53) + 1], &["time"]),
        integers("t2m", &[3, 4], &["time"]),
    ]);
    for constraint in ["", "t2m", "t2m[0:1]"] {
        assert!(
            bed.text(AnswerKind::Dds, constraint).contains("    Float64 t2m[time = 2];"),
            "{constraint}"
        );
    }
    assert!(bed.xdr("t2m[1]").ends_with(&4_f64.to_be_bytes()));
    assert_eq!(bed.error("time").code, DapCode::CannotRead);
    // Each kind of answer has the arrays that the constraint names.
    assert!(bed.text(AnswerKind::Das, "time[0]").contains("    time {"));
    assert!(!bed.text(AnswerKind::Das, "").contains("    time {"));
}

#[test]
fn a_group_may_have_more_arrays_than_links_may_repeat() {
    let names: Vec<String> = (0..10_001).map(|number| format!("v{number}")).collect();
    let arrays: Vec<TestArray<'_>> =
        names.iter().map(|name| TestArray { name, ..TestArray::default() }).collect();
    let bed = DapBed::new(&arrays);
    assert_eq!(bed.text(AnswerKind::Dds, "").matches("Int32 v").count(), names.len());
    assert!(bed.xdr("v10000").len() == 4);
}

#[test]
fn signs_of_an_attribute_count_when_a_double_must_hold_the_integers() {
    let unsigned =
        TestArray { attributes: json!({"_Unsigned": "true"}), ..integers("u", &[-1, 2], &["x"]) };
    let bed = DapBed::new(&[unsigned, integers("v", &[1, 2], &["x"])]);
    assert!(!bed.text(AnswerKind::Dds, "").contains("Float64 u"));
    assert_eq!(bed.error("u").code, DapCode::CannotRead);
    assert!(bed.xdr("").ends_with(&2_f64.to_be_bytes()));
}

#[test]
fn a_name_that_looks_like_a_part_of_another_is_only_the_other_one() {
    let bed = DapBed::new(&[
        integers("t", &[1, 2], &["x"]),
        integers("x", &[3, 4], &["x"]),
        integers("t.x", &[5, 6], &["y"]),
        integers("t[0]", &[7, 8], &["z"]),
    ]);
    for (constraint, last) in [
        ("t.x", 4_f64),
        ("t%2Ex", 6_f64),
        ("t%252Ex", 6_f64),
        ("t%5B0%5D", 8_f64),
        ("t.t[0]", 1_f64),
        ("t.t%5B0%5D", 1_f64),
    ] {
        assert!(bed.xdr(constraint).ends_with(&last.to_be_bytes()), "{constraint}");
    }
}

#[test]
fn no_variable_has_the_name_of_the_attributes_of_the_group() {
    let bed = DapBed::new(&[integers("NC_GLOBAL", &[1, 2], &["x"])]);
    assert_eq!(bed.text(AnswerKind::Das, "").matches("NC_GLOBAL {").count(), 1);
    assert!(bed.text(AnswerKind::Dds, "").contains("Float64 NC_GLOBAL_[x = 2]"));
    assert!(bed.xdr("NC_GLOBAL_").ends_with(&2_f64.to_be_bytes()));
}

#[test]
fn damaged_strings_do_not_cost_the_attributes_of_others() {
    let strings = TestArray {
        dtype: json!("string"),
        shape: &[2],
        chunks: &[2],
        fill: json!(""),
        items: vec![2, 0, 0, 0, 99, 0, 0, 0, b'x'],
        ..TestArray::default()
    };
    let other = TestArray { attributes: json!({"units": "K"}), ..integers("t", &[1, 2], &["x"]) };
    let said = DapBed::new(&[strings, other]).text(AnswerKind::Das, "");
    assert!(said.contains("String units \"K\";"), "{said}");
}

proptest! {
    #[test]
    fn every_name_is_decoded_from_its_identifier(name in "[a-z0-9_]\\PC{0,20}") {
        let identifier = encoded(&name);
        prop_assert!(identifier.is_ascii() && !identifier.contains(['.', '[', ',', '&', ' ']));
        prop_assert_eq!(decoded(&identifier), name);
    }

    #[test]
    fn no_constraint_panics(text in "[at\\[\\]:,.&%0-9*(]{0,30}") {
        let names = vec![("a".to_owned(), 1), ("t.a".to_owned(), 2)];
        let names = ConstraintNames { identifiers: names.clone(), decoded: names };
        let parsed = parse(&text, &names);
        prop_assert!(parsed.is_ok_and(|all| all.len() <= 30) || parse(&text, &names).is_err());
    }

    #[test]
    fn a_slice_has_the_elements_that_it_lists(start in 0_u64..9, stride in 1_u64..5, stop in 0_u64..9) {
        let text = format!("a[{start}:{stride}:{stop}]");
        let names = vec![("a".to_owned(), ())];
        let names = ConstraintNames { identifiers: names.clone(), decoded: names };
        let found = parse(&text, &names).expect("valid");
        let slice = Slice { start, stride, stop: Some(stop) };
        prop_assert_eq!(&found[0].slices, &vec![slice]);
        let expected: Vec<u64> = (start..=stop).step_by(stride as usize).collect();
        match slice.of("x", 8) {
            Ok(axis) => {
                let found: Vec<u64> = (0..axis.count).map(|n| axis.start + n * axis.stride).collect();
                prop_assert_eq!(found, expected);
            }
            Err(_) => prop_assert!(expected.is_empty() || stop > 7),
        }
    }

    #[test]
    fn a_hyperslab_is_the_elements_at_its_indices(
        axes in prop::collection::vec((1_u64..7, 1_u64..4, any::<u64>(), 1_u64..4, any::<u64>()), 1..4),
        step in 1_u64..40,
    ) {
        let shape: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
        let chunks: Vec<u64> = axes.iter().map(|axis| axis.1).collect();
        let array = TestArray {
            dtype: json!("int16"), shape: &shape, chunks: &chunks, fill: json!(9), ..TestArray::default()
        };
        let bed = DapBed::new(&[array]);
        let slices: Vec<(u64, u64, u64)> = axes.iter().map(|(len, _, start, stride, stop)| {
            let start = start % len;
            (start, *stride, start + stop % (len - start))
        }).collect();
        // Each element has its own number; those of the first chunk are not stored.
        let number = |at: &[u64]| at.iter().fold(1, |sum, index| sum * 7 + *index as i16);
        let get: &GetChunk<'_> = &|elements, coords, _| {
            if coords.indices().iter().all(|index| *index == 0) {
                return Ok(None);
            }
            let mut at = vec![0; chunks.len()];
            let mut bytes = Vec::new();
            loop {
                let index = at.iter().zip(coords.indices()).zip(&chunks);
                let index: Vec<u64> = index.map(|((at, chunk), len)| chunk * len + at).collect();
                bytes.extend(number(&index).to_le_bytes());
                if !crate::array::region::step(&mut at, &chunks) {
                    break;
                }
            }
            assert_eq!(elements.array.chunk_shape(), chunks);
            Ok(Some(crate::buffer::Buffer::from(bytes).into()))
        };
        let path = NodePath::parse("a").expect("a path");
        let node = bed.0.existing(&path).expect("there");
        let elements = ElementRange::of_chunks(&path, node.array().expect("an array"));
        let axes = slices.iter().map(|(start, stride, stop)| {
            let slice = Slice { start: *start, stride: *stride, stop: Some(*stop) };
            slice.of("x", 8).expect("inside")
        });
        let slab = Hyperslab::new(elements, axes.collect());
        let (mut body, mut first) = (Vec::new(), 0);
        let count = slab.count().expect("few");
        while first < count {
            let last = count.min(first + step);
            body.extend(slab.items(first, last, get).expect("items"));
            first = last;
        }
        let lists: Vec<Vec<u64>> = slices.iter()
            .map(|(start, stride, stop)| (*start..=*stop).step_by(*stride as usize).collect())
            .collect();
        let mut all = vec![vec![]];
        for list in &lists {
            all = all.iter().flat_map(|at: &Vec<u64>| {
                list.iter().map(move |index| [&at[..], &[*index]].concat())
            }).collect();
        }
        let expected: Vec<u8> = all.iter().flat_map(|at| {
            let is_first = at.iter().zip(&chunks).all(|(index, len)| index < len);
            (if is_first { 9 } else { number(at) }).to_le_bytes()
        }).collect();
        prop_assert_eq!(body, expected);
    }
}
