//! Identifiers of DAP2: letters, digits and a few signs. All other bytes are percent-encoded.

use std::collections::{HashMap, HashSet};

use crate::view::cf::unused;

/// Returns the identifier of a dimension, a variable or a data set.
pub(super) fn encoded(name: &str) -> String {
    encode(name, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Returns the identifier of an attribute. Constraints have no attributes, so it may have dots and
/// colons, which libraries would not decode.
pub(super) fn encoded_attribute(name: &str) -> String {
    encode(name, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':'))
}

/// Names in a `das` that are not those of variables.
const RESERVED: [&str; 4] = ["NC_GLOBAL", "DODS_EXTRA", "DODS", "HDF_GLOBAL"];

/// Returns a unique identifier for each name.
pub(super) fn identifiers<'n>(names: impl Iterator<Item = &'n str>) -> HashMap<String, String> {
    let mut taken: HashSet<String> = RESERVED.map(str::to_owned).into();
    let mut identifiers = HashMap::new();
    for name in names {
        if !identifiers.contains_key(name) {
            identifiers.insert(name.to_owned(), unused(&mut taken, encoded(name)));
        }
    }
    identifiers
}

fn encode(name: &str, is_plain: impl Fn(u8) -> bool) -> String {
    // netCDF-C opens no data set with a name that begins with a percent sign.
    let is_first = |first: char| first.is_ascii_alphanumeric() || first == '_';
    let prefix = if name.starts_with(is_first) { "" } else { "_" };
    let of = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    let encoded: Vec<String> = name.bytes().map(of).collect();
    format!("{prefix}{}", encoded.concat())
}

/// Returns the name of an identifier. An invalid sequence stays as it is.
pub(super) fn decoded(identifier: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = identifier.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let value = digit(0).zip(digit(1)).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok()).filter(|_| *first == b'%');
        bytes.push(value.unwrap_or(*first));
        let used = if value.is_some() { 2 } else { 0 };
        rest = after.get(used..).unwrap_or_default();
    }
    String::from_utf8(bytes).unwrap_or_else(|_| identifier.to_owned())
}
