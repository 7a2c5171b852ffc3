//! The types of NumPy as data types of Zarr 3.

use serde_json::{Value, json};

use zarrfs_base::error::{Error, Result};

/// A type, as it is stored.
#[derive(Debug, Clone)]
pub struct StoredType {
    /// The data type, as in a metadata file.
    pub data_type: Value,
    /// The fill value that is all zero.
    pub zero: Value,
    /// The bytes of an element.
    pub item_len: u64,
    /// Whether elements are in big-endian order.
    pub is_big: bool,
}

impl StoredType {
    /// Parses a `descr`: a string, or a list of fields.
    pub fn parse(descr: &Value) -> Result<Self> {
        match descr {
            Value::String(text) => Self::plain(text),
            Value::Array(fields) => Self::structure(fields),
            _ => Err(unknown(descr)),
        }
    }

    fn plain(text: &str) -> Result<Self> {
        let unknown = || unknown(&Value::from(text));
        let is_big = text.starts_with('>');
        let rest = text.trim_start_matches(['<', '>', '|', '=']);
        let kind = rest.chars().next().ok_or_else(unknown)?;
        let rest = rest.get(kind.len_utf8()..).unwrap_or_default();
        let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        let (len, unit) = rest.split_at_checked(digits).ok_or_else(unknown)?;
        let len: u64 = len.parse().map_err(|_| unknown())?;
        let bits = len.checked_mul(8).ok_or_else(unknown)?;
        let named = |name: String, zero: Value| (Value::from(name), zero);
        let with = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
        let (data_type, zero) = match (kind, len) {
            ('b' | '?', 1) => named("bool".to_owned(), json!(false)),
            ('i', 1 | 2 | 4 | 8) => named(format!("int{bits}"), json!(0)),
            ('u', 1 | 2 | 4 | 8) => named(format!("uint{bits}"), json!(0)),
            ('f', 2 | 4 | 8) => named(format!("float{bits}"), json!(0.0)),
            ('c', 8 | 16) => named(format!("complex{bits}"), json!([0.0, 0.0])),
            ('S' | 'a', 1..) => {
                (with("null_terminated_bytes", json!({"length_bytes": len})), json!(""))
            }
            ('V', 1..) => (with("raw_bytes", json!({"length_bytes": len})), json!("")),
            ('U', 1..) => {
                let len = len.checked_mul(4).ok_or_else(unknown)?;
                (with("fixed_length_utf32", json!({"length_bytes": len})), json!(""))
            }
            ('M' | 'm', 8) => {
                let name = if kind == 'M' { "numpy.datetime64" } else { "numpy.timedelta64" };
                let unit = unit.trim_matches(['[', ']']);
                let digits = unit.find(|char: char| !char.is_ascii_digit()).unwrap_or(unit.len());
                let (scale, unit) = unit.split_at_checked(digits).ok_or_else(unknown)?;
                let scale: u64 =
                    if scale.is_empty() { 1 } else { scale.parse().map_err(|_| unknown())? };
                let unit = if unit.is_empty() { "generic" } else { unit };
                (with(name, json!({"unit": unit, "scale_factor": scale})), json!(0))
            }
            _ => return Err(unknown()),
        };
        let item_len = if kind == 'U' { len.saturating_mul(4) } else { len };
        Ok(Self { data_type, zero, item_len, is_big })
    }

    fn structure(fields: &[Value]) -> Result<Self> {
        let mut described = Vec::new();
        let (mut item_len, mut is_big) = (0_u64, None);
        for field in fields {
            let parts = field.as_array().map(Vec::as_slice).unwrap_or_default();
            let [name, descr, shape @ ..] = parts else { return Err(unknown(field)) };
            // A title may stand beside the name.
            let name = name.as_array().and_then(|both| both.last()).unwrap_or(name);
            let name = name.as_str().ok_or_else(|| unknown(field))?;
            let mut stored = Self::parse(descr)?;
            if let [shape] = shape {
                let lens = shape.as_array().ok_or_else(|| unknown(field))?;
                let count =
                    lens.iter().try_fold(1_u64, |count, len| count.checked_mul(len.as_u64()?));
                let len = count.and_then(|count| count.checked_mul(stored.item_len));
                let len = len.filter(|len| *len > 0).ok_or_else(|| unknown(field))?;
                // Zarr 3 has no arrays in fields: their bytes are shown.
                if stored.is_big && stored.item_len > 1 {
                    return Err(Error::unsupported(format!(
                        "arrays in the field {name:?} in big-endian order"
                    )));
                }
                stored.data_type =
                    json!({"name": "raw_bytes", "configuration": {"length_bytes": len}});
                stored.item_len = len;
            }
            // Padding has no name.
            let name = if name.is_empty() {
                format!("padding{}", described.len())
            } else {
                name.to_owned()
            };
            if stored.item_len > 1 && !stored.data_type.to_string().contains("bytes") {
                if is_big.is_some_and(|big| big != stored.is_big) {
                    return Err(Error::unsupported("fields of both byte orders"));
                }
                is_big = Some(stored.is_big);
            }
            item_len = item_len.saturating_add(stored.item_len);
            described.push(json!({"name": name, "data_type": stored.data_type}));
        }
        let data_type = json!({"name": "struct", "configuration": {"fields": described}});
        let zero = Value::Object(serde_json::Map::new());
        Ok(Self { data_type, zero, item_len, is_big: is_big.unwrap_or_default() })
    }
}

fn unknown(descr: &Value) -> Error {
    Error::unsupported(format!("the NumPy type {descr} is not supported"))
}
