//! The spellings of data types. Some include the byte order.

use serde_json::{Value, json};

use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::{DType, Field, MAX_ITEM_LEN, OLD_STRUCT, TIME_UNITS, Time, integer};
use zarrfs_codec::json::describe;

/// The byte order of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
    /// The byte orders of a structure with different ones: one for each field that is not itself a
    /// structure.
    Each(Vec<Endian>),
}

impl Endian {
    /// Returns the value for the codec `bytes` of the model.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Little => Value::from("little"),
            Self::Big => Value::from("big"),
            Self::Each(fields) => fields.iter().map(Self::to_json).collect(),
        }
    }
}

/// The types that need a configuration, beside structures.
const CONFIGURED: [&str; 5] = [
    "raw_bytes",
    "null_terminated_bytes",
    "fixed_length_utf32",
    "numpy.datetime64",
    "numpy.timedelta64",
];

/// Parses a type, and its byte order if the name has it (`>i4`).
///
/// Accepts the names of v3 and its registry, the type strings of Zarr 2 and the drafts, and
/// extension objects. For an unknown extension it returns the first known `fallback` (2020 draft,
/// "extension data types"; not in v3 since July 2023).
pub(super) fn data_type(value: &Value) -> Result<(DType, Option<Endian>)> {
    let known = simple(value).or_else(|| first(value.get("fallback")?));
    let fits = |(dtype, _): &(DType, Option<Endian>)| {
        let limit = MAX_ITEM_LEN.to_usize();
        dtype.is_variable() || (1..=limit).contains(&dtype.item_len())
    };
    known.filter(fits).ok_or_else(|| {
        let why = match value.get("name").and_then(Value::as_str) {
            Some("struct" | OLD_STRUCT) => {
                "needs \"fields\" with names of their own and types of a fixed length"
            }
            Some(name) if CONFIGURED.contains(&name) => "has a configuration that is not known",
            _ => "is not known",
        };
        Error::unsupported(format!("data type {} {why}", named(value)))
    })
}

/// Returns the first known type of a fallback, which may be a list.
fn first(fallback: &Value) -> Option<(DType, Option<Endian>)> {
    match fallback.as_array() {
        Some(list) => list.iter().find_map(simple),
        None => simple(fallback),
    }
}

/// Returns the name of the type for messages.
fn named(value: &Value) -> String {
    let inner = value.get("type").or_else(|| value.get("name")).unwrap_or(value);
    match inner.as_array() {
        Some(_) => format!("{inner:.80}").chars().take(80).collect(),
        None => describe(inner),
    }
}

fn simple(value: &Value) -> Option<(DType, Option<Endian>)> {
    match value {
        Value::String(name) => {
            DType::parse(name).map(|dtype| (dtype, None)).or_else(|| type_string(name))
        }
        Value::Array(fields) => fields_of_lists(fields),
        Value::Object(members) => {
            let name = members.get("type").or_else(|| members.get("name"))?;
            let configuration = members.get("configuration").unwrap_or(&Value::Null);
            let configured = name.as_str().and_then(|name| configured(name, configuration));
            configured.map(|dtype| (dtype, None)).or_else(|| simple(name))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns a type, registered or from zarr-python, whose name needs a configuration.
fn configured(name: &str, configuration: &Value) -> Option<DType> {
    let length = || {
        let length = configuration.get("length_bytes")?.as_number()?;
        let length = u32::try_from(integer(length.as_str())?).ok()?;
        (1..=MAX_ITEM_LEN).contains(&length).then_some(length)
    };
    match name {
        "raw_bytes" => length().map(DType::Raw),
        "null_terminated_bytes" => length().map(DType::Bytes),
        "fixed_length_utf32" => length()
            .filter(|length| length.is_multiple_of(4))
            .map(|length| DType::Utf32(length / 4)),
        "numpy.datetime64" | "numpy.timedelta64" => {
            let unit = configuration.get("unit").map_or(Some("generic"), Value::as_str)?;
            let scale = match configuration.get("scale_factor") {
                None | Some(Value::Null) => 1,
                Some(scale) => u32::try_from(integer(scale.as_number()?.as_str())?).ok()?,
            };
            time(name == "numpy.timedelta64", unit, scale)
        }
        "struct" | OLD_STRUCT => {
            let fields = configuration.get("fields")?.as_array()?;
            let field = |field: &Value| {
                let (name, dtype) = match field.as_array().map(Vec::as_slice) {
                    Some([name, dtype]) => (name, dtype),
                    Some(_) => return None,
                    None => (field.get("name")?, field.get("data_type")?),
                };
                // The codec decides their byte order.
                let dtype = simple(dtype).filter(|(dtype, _)| !dtype.is_variable())?.0;
                Some(Field { name: name.as_str()?.to_owned(), dtype, shape: Vec::new() })
            };
            structure(fields.iter().map(field).collect::<Option<_>>()?)
        }
        _ => None,
    }
}

fn time(is_span: bool, unit: &str, scale: u32) -> Option<DType> {
    let unit = if unit == "\u{3bc}s" || unit == "\u{b5}s" { "us" } else { unit };
    let unit = TIME_UNITS.iter().find(|known| **known == unit)?;
    let fits = (1..=i32::MAX.unsigned_abs()).contains(&scale);
    fits.then_some(DType::Time(Time { is_span, unit, scale }))
}

fn structure(fields: Vec<Field>) -> Option<DType> {
    let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    let distinct = names.windows(2).all(|pair| pair.first() != pair.last());
    let fits = !fields.is_empty() && !limits::FIELDS.is_exceeded_by(fields.len());
    (distinct && fits).then(|| DType::Struct(fields.into()))
}

/// Parses a structure of NumPy: `[["x", "<i2"], ["y", "<f4", [2]]]`.
fn fields_of_lists(items: &[Value]) -> Option<(DType, Option<Endian>)> {
    let mut fields = Vec::with_capacity(items.len().min(limits::FIELDS.get_usize()));
    let mut orders = Vec::new();
    for item in items {
        let item = item.as_array()?;
        let name = item.first()?.as_str()?;
        let (dtype, endian) = simple(item.get(1)?).filter(|(dtype, _)| !dtype.is_variable())?;
        let shape = match item.get(2) {
            None => Vec::new(),
            Some(shape) => {
                let one = std::slice::from_ref(shape);
                let lens = shape.as_array().map_or(one, Vec::as_slice);
                let len = |len: &Value| u32::try_from(integer(len.as_number()?.as_str())?).ok();
                lens.iter().map(len).collect::<Option<Vec<_>>>()?
            }
        };
        // zarr-python 2 writes a plain `|V3` as a structure with one unnamed field.
        if name.is_empty() && items.len() == 1 && shape.is_empty() {
            return Some((dtype, endian));
        }
        let leaves = leaves(&dtype);
        match endian {
            Some(Endian::Each(each)) => orders.extend(each),
            Some(one) => orders.extend(std::iter::repeat_n(one, leaves)),
            None => orders.extend(std::iter::repeat_n(Endian::Little, leaves)),
        }
        if orders.len() > limits::FIELDS.get_usize().saturating_pow(2) {
            return None;
        }
        let field = Field { name: name.to_owned(), dtype, shape };
        if field.is_empty() {
            return None;
        }
        fields.push(field);
    }
    let dtype = structure(fields)?;
    let uniform = |endian: &Endian| {
        orders.iter().zip(components(&dtype)).all(|(one, len)| one == endian || len == 1)
    };
    let endian = if uniform(&Endian::Little) {
        Endian::Little
    } else if uniform(&Endian::Big) {
        Endian::Big
    } else {
        Endian::Each(orders)
    };
    let has_order = dtype.component_len() > 1;
    Some((dtype, has_order.then_some(endian)))
}

/// Returns the length of each component of an element in byte order `endian`, and whether it is big
/// endian.
pub(super) fn component_orders(dtype: &DType, endian: &Endian) -> Vec<(usize, bool)> {
    let mut orders: Box<dyn Iterator<Item = Endian>> = match endian {
        Endian::Each(each) => Box::new(each.clone().into_iter()),
        one => Box::new(std::iter::repeat(one.clone())),
    };
    orders_of(dtype, &mut *orders)
}

fn orders_of(dtype: &DType, orders: &mut dyn Iterator<Item = Endian>) -> Vec<(usize, bool)> {
    if let DType::Struct(fields) = dtype {
        let mut all = Vec::new();
        for field in fields.iter() {
            let one = orders_of(&field.dtype, orders);
            all.extend(std::iter::repeat_n(one, field.count()).flatten());
        }
        return all;
    }
    let is_big = orders.next() == Some(Endian::Big);
    let len = dtype.component_len();
    std::iter::repeat_n((len, is_big), dtype.item_len() / len.max(1)).collect()
}

/// Returns the number of fields in a type that are not structures.
fn leaves(dtype: &DType) -> usize {
    components(dtype).len()
}

/// Returns the length of a component for each such field.
fn components(dtype: &DType) -> Vec<usize> {
    match dtype {
        DType::Struct(fields) => fields.iter().flat_map(|field| components(&field.dtype)).collect(),
        other => vec![other.component_len()],
    }
}

/// Parses a type string of NumPy: `<i4`, `|u1`, `|V3`, `<M8[25s]`. `|V5` is raw.
fn type_string(text: &str) -> Option<(DType, Option<Endian>)> {
    let (endian, rest) = match text.chars().next()? {
        '<' => (Some(Endian::Little), text.get(1..)?),
        '>' => (Some(Endian::Big), text.get(1..)?),
        '|' => (None, text.get(1..)?),
        _ => (None, text),
    };
    let kind = rest.chars().next()?;
    let dtype = if let Some(unit) = rest.strip_prefix("M8").or_else(|| rest.strip_prefix("m8")) {
        let unit = match unit {
            "" => "generic",
            _ => unit.strip_prefix('[')?.strip_suffix(']')?,
        };
        let name = unit.trim_start_matches(|c: char| c.is_ascii_digit());
        let scale = unit.get(..unit.len() - name.len())?;
        time(kind == 'm', name, if scale.is_empty() { 1 } else { scale.parse().ok()? })?
    } else {
        let len: u32 = rest.get(1..).filter(|digits| !digits.starts_with('+'))?.parse().ok()?;
        let small = u8::try_from(len).ok();
        match (kind, small) {
            ('b', Some(1)) => DType::Bool,
            ('i', Some(len @ (1 | 2 | 4 | 8))) => DType::Int(len),
            ('u', Some(len @ (1 | 2 | 4 | 8))) => DType::Uint(len),
            ('f', Some(len @ (2 | 4 | 8))) => DType::Float(len),
            ('c', Some(len @ (8 | 16))) => DType::Complex(len),
            ('V', _) if (1..=MAX_ITEM_LEN).contains(&len) => DType::Raw(len),
            ('S', _) if (1..=MAX_ITEM_LEN).contains(&len) => DType::Bytes(len),
            ('U', _) if (1..=MAX_ITEM_LEN / 4).contains(&len) => DType::Utf32(len),
            _ => return None,
        }
    };
    match (dtype.component_len(), endian) {
        (1, _) => Some((dtype, None)),
        (_, Some(endian)) => Some((dtype, Some(endian))),
        // Without a byte order, a number of several bytes depends on the machine that wrote it.
        (_, None) => None,
    }
}

/// Returns the type in the form of NumPy and Zarr 2, with its byte order: a string, or a list of
/// fields. `TensorStore` uses the registered names for some numbers there.
pub(super) fn numpy_type(dtype: &DType, endian: &Endian) -> Value {
    let mut orders: Box<dyn Iterator<Item = Endian>> = match endian {
        Endian::Each(each) => Box::new(each.clone().into_iter()),
        one => Box::new(std::iter::repeat(one.clone())),
    };
    numpy(dtype, &mut *orders)
}

fn numpy(dtype: &DType, orders: &mut dyn Iterator<Item = Endian>) -> Value {
    if let DType::Struct(fields) = dtype {
        let field = |field: &Field| {
            let inner = numpy(&field.dtype, orders);
            if field.shape.is_empty() {
                json!([field.name, inner])
            } else {
                json!([field.name, inner, field.shape])
            }
        };
        return fields.iter().map(field).collect();
    }
    let mark = match orders.next() {
        _ if dtype.component_len() == 1 => '|',
        Some(Endian::Big) => '>',
        Some(_) | None => '<',
    };
    Value::String(match dtype {
        DType::Bool => "|b1".to_owned(),
        DType::Int(len) => format!("{mark}i{len}"),
        DType::Uint(len) => format!("{mark}u{len}"),
        DType::Float(len) => format!("{mark}f{len}"),
        DType::Complex(len) if *len > 4 => format!("{mark}c{len}"),
        DType::Raw(len) => format!("|V{len}"),
        DType::Bytes(len) => format!("|S{len}"),
        DType::Utf32(len) => format!("{mark}U{len}"),
        DType::Time(Time { is_span, unit, scale }) => {
            let kind = if *is_span { 'm' } else { 'M' };
            let scale = if *scale == 1 { String::new() } else { scale.to_string() };
            match *unit {
                "generic" => format!("{mark}{kind}8"),
                unit => format!("{mark}{kind}8[{scale}{unit}]"),
            }
        }
        DType::String | DType::VariableBytes => "|O".to_owned(),
        DType::Complex(_) | DType::Narrow(_) | DType::ComplexNarrow(_) | DType::Struct(_) => {
            dtype.name()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_names_its_type() {
        use Endian::{Big, Little};
        for (value, expected) in [
            (json!("int32"), (DType::Int(4), None)),
            (json!("<i4"), (DType::Int(4), Some(Little))),
            (json!(">f8"), (DType::Float(8), Some(Big))),
            (json!("|u1"), (DType::Uint(1), None)),
            (json!("<u1"), (DType::Uint(1), None)),
            (json!("i1"), (DType::Int(1), None)),
            (json!("b1"), (DType::Bool, None)),
            (json!("r24"), (DType::Raw(3), None)),
            (json!({"name": "float64"}), (DType::Float(8), None)),
            (
                json!({"name": "raw_bytes", "configuration": {"length_bytes": 3}}),
                (DType::Raw(3), None),
            ),
            (
                json!({"extension": "TODO", "type": ">c16", "fallback": null}),
                (DType::Complex(16), Some(Big)),
            ),
            (json!({"extension": "TODO", "type": [["", "|V3"]]}), (DType::Raw(3), None)),
            (json!({"name": "date", "fallback": ["nope", "int32"]}), (DType::Int(4), None)),
            (json!({"type": "<X8[ns]", "fallback": "<i8"}), (DType::Int(8), Some(Little))),
        ] {
            assert_eq!(data_type(&value).expect("understood"), expected, "{value}");
        }
    }

    #[test]
    fn a_type_of_numpy_is_written_as_it_was_read() {
        for text in [
            r#""|b1""#,
            r#""<i4""#,
            r#"">u8""#,
            r#""|S5""#,
            r#"">U4""#,
            r#""|V3""#,
            r#""<M8[25s]""#,
            r#"">m8[ns]""#,
            r#""<M8""#,
            r#""bfloat16""#,
            r#"[["x","<i2"],["y",">f4"],["z","|u1",[2,3]]]"#,
            r#"[["x",[["a",">i2"],["b","<c16"]]],["y",">U2",[4]]]"#,
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            let (dtype, endian) = data_type(&value).expect("understood");
            let endian = endian.unwrap_or(Endian::Little);
            assert_eq!(numpy_type(&dtype, &endian).to_string(), text);
        }
    }

    #[test]
    fn a_type_of_v3_is_read_as_it_is_shown() {
        for name in ["int4", "float8_e5m2", "complex_bfloat16", "complex_float16", "string"] {
            let (dtype, _) = data_type(&json!(name)).expect("understood");
            assert_eq!(dtype.to_json(), json!(name));
        }
        for value in [
            json!({"name": "raw_bytes", "configuration": {"length_bytes": 3}}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 25}}),
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 16}}),
            json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 5}}),
        ] {
            assert_eq!(data_type(&value).expect("understood").0.to_json(), value);
        }
    }

    #[test]
    fn a_structure_has_the_name_of_the_registry_and_is_read_by_the_old_one_too() {
        let inner = json!([{"name": "x", "data_type": "float64"}]);
        let inner = json!({"name": "struct", "configuration": {"fields": inner}});
        let fields =
            json!([{"name": "a", "data_type": "int16"}, {"name": "b", "data_type": inner}]);
        let new = json!({"name": "struct", "configuration": {"fields": fields}});
        let inner = json!({"name": "structured", "configuration": {"fields": [["x", "float64"]]}});
        let fields = json!([["a", "int16"], ["b", inner]]);
        let old = json!({"name": "structured", "configuration": {"fields": fields}});
        for value in [&new, &old] {
            let (dtype, _) = data_type(value).expect("understood");
            assert_eq!((dtype.to_json(), dtype.to_old_json()), (new.clone(), old.clone()));
        }
    }

    #[test]
    fn an_unknown_type_is_named() {
        for (value, named) in [
            (json!("int33"), "\"int33\""),
            (json!("i4"), "\"i4\""),
            (json!("=i4"), "\"=i4\""),
            (json!("|i4"), "\"|i4\""),
            (json!("r7"), "\"r7\""),
            (json!({"type": "<M8[lightyears]", "fallback": null}), "\"<M8[lightyears]\""),
            (json!({"type": [["x", "<i2"], ["x", "<i2"]]}), "[[\"x\",\"<i2\"],[\"x\",\"<i2\"]]"),
        ] {
            let error = data_type(&value).expect_err("unknown");
            assert_eq!(error.to_string(), format!("data type {named} is not known"));
        }
    }

    #[test]
    fn a_known_type_that_cannot_be_understood_is_not_called_unknown() {
        let structure = |fields: Value| json!({"fields": fields});
        let fields = "needs \"fields\" with names of their own and types of a fixed length";
        for (name, configuration, why) in [
            ("structured", structure(json!([["a", "uint8"], ["a", "uint8"]])), fields),
            ("structured", structure(json!([])), fields),
            ("struct", structure(json!([["a", "string"]])), fields),
            ("struct", Value::Null, fields),
            (
                "fixed_length_utf32",
                json!({"length_bytes": 6}),
                "has a configuration that is not known",
            ),
        ] {
            let value = json!({"name": name, "configuration": configuration});
            let error = data_type(&value).expect_err("not understood");
            assert_eq!(error.to_string(), format!("data type \"{name}\" {why}"));
        }
    }
}
