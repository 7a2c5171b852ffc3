use proptest::prelude::*;
use serde_json::json;

use super::*;

fn bits(value: &Value, dtype: &DType) -> Option<u64> {
    let fill = FillValue::parse(value, dtype).ok()?;
    fill.is_defined().then(|| bits_of(&fill.item(dtype)))
}

const TIME: DType = DType::Time(crate::dtype::Time { is_span: false, unit: "s", scale: 1 });

fn narrow(name: &str) -> DType {
    DType::Narrow(Narrow::parse(name).expect("known"))
}

/// A structure of a 32-bit integer and an array of two 16-bit integers.
fn pair() -> DType {
    let field = |name: &str, len, shape: &[u32]| Field {
        name: name.to_owned(),
        dtype: DType::Int(len),
        shape: shape.to_vec(),
    };
    DType::Struct([field("x", 4, &[]), field("y", 2, &[2])].into())
}

fn number(text: &str) -> Value {
    Value::Number(Number::from_string_unchecked(text.to_owned()))
}

#[test]
fn every_spelling_of_a_float_has_its_bits() {
    for (value, len, expected) in [
        (json!("NaN"), 4, 0x7fc0_0000),
        (json!("nan"), 8, 0x7ff8_0000_0000_0000),
        (json!("NaN"), 2, 0x7e00),
        (json!("-nan"), 4, 0xffc0_0000),
        (json!("+Infinity"), 8, 0x7ff0_0000_0000_0000),
        (json!("inf"), 4, 0x7f80_0000),
        (json!("-Infinity"), 2, 0xfc00),
        (json!("0x7fc00abc"), 4, 0x7fc0_0abc),
        (json!("0x4045200000000000"), 8, 0x4045_2000_0000_0000),
        (json!("0b0011110000000000"), 2, 0x3c00),
        (json!("nan(0x1)"), 4, 0x7fc0_0000),
        (json!("nan(0x3)"), 4, 0x7fe0_0000),
        (json!("-nan(0x1)"), 8, 0xfff8_0000_0000_0000),
        (json!("1.5"), 4, 0x3fc0_0000),
        (number("-0.0"), 8, 0x8000_0000_0000_0000),
        (number("0.3333333432674408"), 4, 0x3eaa_aaab),
        (number("5e-324"), 8, 1),
        (json!([1.5]), 4, 0x3fc0_0000),
    ] {
        assert_eq!(bits(&value, &DType::Float(len)), Some(expected), "{value} in {len} bytes");
    }
}

#[test]
fn every_spelling_of_an_integer_has_its_bits() {
    for (value, dtype, expected) in [
        (json!(42), DType::Int(4), 42),
        (number("42.0"), DType::Uint(2), 42),
        (json!("0x2a"), DType::Int(1), 42),
        (json!("0b101"), DType::Uint(1), 5),
        (json!("-7"), DType::Int(2), 0xfff9),
        (json!("0xdeadbeef"), DType::Uint(4), 0xdead_beef),
        (number("18446744073709551615"), DType::Uint(8), u64::MAX),
        (number("-9223372036854775808"), DType::Int(8), 1 << 63),
        (json!(true), DType::Bool, 1),
        (json!(0), DType::Bool, 0),
        (json!("true"), DType::Bool, 1),
        (json!([-999]), DType::Int(2), 0xfc19),
    ] {
        assert_eq!(bits(&value, &dtype), Some(expected), "{value} as {}", dtype.name());
    }
}

#[test]
fn a_value_outside_the_type_is_an_error() {
    for (value, dtype) in [
        (json!(256), DType::Uint(1)),
        (json!(-1), DType::Uint(8)),
        (json!(128), DType::Int(1)),
        (number("18446744073709551616"), DType::Uint(8)),
        (number("9223372036854775808"), DType::Int(8)),
        (json!(0.5), DType::Int(4)),
        (json!(2), DType::Bool),
        (json!("0x+1"), DType::Int(4)),
        (json!("--1"), DType::Int(4)),
        (json!("0x1ffffffff"), DType::Float(4)),
        (json!("nan(0x0)"), DType::Float(4)),
        (json!("nan(0x800000)"), DType::Float(4)),
        (json!("none"), DType::Float(8)),
        (json!({}), DType::Float(8)),
        (json!([1, 2, 3]), DType::Complex(8)),
        (json!([1, 2]), DType::Raw(3)),
        (json!([1, 2, 256]), DType::Raw(3)),
        (json!("AAAAAAAA"), DType::Raw(3)),
        (json!(1), DType::Raw(3)),
    ] {
        assert!(FillValue::parse(&value, &dtype).is_err(), "{value} was taken as {}", dtype.name());
    }
}

#[test]
fn raw_and_complex_values_take_lists_and_text() {
    let item = |value: Value, dtype: DType| {
        FillValue::parse(&value, &dtype).expect("understood").item(&dtype).to_vec()
    };
    assert_eq!(item(json!([1, 2, 3]), DType::Raw(3)), [1, 2, 3]);
    assert_eq!(item(json!("0x010203"), DType::Raw(3)), [1, 2, 3]);
    assert_eq!(item(json!("AQI="), DType::Raw(3)), [1, 2, 0]);
    assert_eq!(item(json!(""), DType::Raw(3)), [0, 0, 0]);
    assert_eq!(item(json!(0), DType::Raw(3)), [0, 0, 0]);
    let one = 1f32.to_le_bytes();
    let nan = 0x7fc0_0000u32.to_le_bytes();
    assert_eq!(item(json!([1, "NaN"]), DType::Complex(8)), [one, nan].concat());
    assert_eq!(item(json!(1), DType::Complex(8)), [one, [0; 4]].concat());
    assert_eq!(item(json!("AACAPwAAAAA="), DType::Complex(8)), [one, [0; 4]].concat());
}

#[test]
fn the_shown_form_is_that_of_released_v3() {
    for (value, dtype, shown) in [
        (json!("0x7fc00abc"), DType::Float(4), json!("0x7fc00abc")),
        (json!("0x7fc00000"), DType::Float(4), json!("NaN")),
        (json!("+Infinity"), DType::Float(8), json!("Infinity")),
        (json!("-inf"), DType::Float(2), json!("-Infinity")),
        (json!("0xfe00"), DType::Float(2), json!("0xfe00")),
        (number("0.10000000149011612"), DType::Float(4), number("0.1")),
        (json!(0), DType::Float(4), number("0.0")),
        (json!("0x2a"), DType::Int(1), json!(42)),
        (json!(-7), DType::Int(2), json!(-7)),
        (json!(null), DType::Raw(2), json!("AAA=")),
        (json!(null), DType::Bool, json!(false)),
        (json!(1), DType::Complex(8), Value::Array(vec![number("1.0"), number("0.0")])),
        (json!(null), TIME, json!(0)),
        (json!(i64::MIN), TIME, json!("NaT")),
        (json!("NaT"), TIME, json!("NaT")),
        (json!("YWI="), DType::Bytes(3), json!("YWIA")),
        (json!("\u{e9}x"), DType::Utf32(3), json!("\u{e9}x")),
        (json!(0), DType::Utf32(3), json!("")),
        (json!("text"), DType::String, json!("text")),
        (json!([97, 98]), DType::VariableBytes, json!("YWI=")),
        (json!(0.1), narrow("bfloat16"), number("0.10009765625")),
        (json!("NaN"), narrow("float8_e4m3"), json!("NaN")),
        (json!("0x7d"), narrow("float8_e4m3"), json!("0x7d")),
        (json!(-8), narrow("int4"), json!(-8)),
        (json!({"y": [1, 2]}), pair(), json!({"x": 0, "y": "AQACAA=="})),
        (json!([7, 1]), pair(), json!({"x": 7, "y": "AQABAA=="})),
        (json!("BwAAAAEAAQA="), pair(), json!({"x": 7, "y": "AQABAA=="})),
        (json!({"x": 7, "y": "AQABAA=="}), pair(), json!({"x": 7, "y": "AQABAA=="})),
    ] {
        let fill = FillValue::parse(&value, &dtype).expect("understood");
        assert_eq!(fill.to_json(&dtype).to_string(), shown.to_string(), "{value}");
    }
}

proptest! {
    #[test]
    fn any_bits_survive_the_shown_form(bits: u128, which in 0..20usize) {
        let dtype = [
            DType::Int(1), DType::Int(2), DType::Int(4), DType::Int(8), DType::Uint(1), DType::Uint(4),
            DType::Uint(8), DType::Float(2), DType::Float(4), DType::Float(8), DType::Complex(8),
            DType::Complex(16), DType::Raw(5), TIME, DType::Bytes(6), pair(), narrow("bfloat16"),
            narrow("float8_e5m2"), narrow("float8_e8m0fnu"), DType::ComplexNarrow(Narrow::parse("bfloat16").expect("known")),
        ][which].clone();
        let item: Vec<u8> = bits.to_le_bytes().into_iter().take(dtype.item_len()).collect();
        let fill = FillValue(Some(item.into()));
        let text = fill.to_json(&dtype).to_string();
        let value: Value = serde_json::from_str(&text).expect("strict JSON");
        prop_assert_eq!(FillValue::parse(&value, &dtype).expect("understood"), fill, "{}", text);
    }
}
