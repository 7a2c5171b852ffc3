//! Elements of XML and their attributes.

use std::collections::HashMap;

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart};

/// The most attributes of an element.
const MAX_ATTRIBUTES: usize = 256;

/// Returns a name without its prefix.
pub fn local(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the attributes of an element; `None` if they are damaged.
pub fn attributes(tag: &BytesStart<'_>) -> Option<HashMap<String, String>> {
    let mut found = HashMap::new();
    for attribute in tag.attributes().with_checks(false).take(MAX_ATTRIBUTES) {
        let attribute = attribute.ok()?;
        let name = local(attribute.key.local_name().as_ref());
        let value = attribute.normalized_value(XmlVersion::Explicit1_0).ok()?;
        found.insert(name, value.into_owned());
    }
    Some(found)
}

/// Returns the character that a reference such as `&amp;` or `&#38;` names.
pub fn resolved(name: &BytesRef<'_>) -> Option<String> {
    match name.resolve_char_ref() {
        Ok(Some(char)) => Some(char.to_string()),
        Ok(None) => resolve_predefined_entity(&String::from_utf8_lossy(name)).map(str::to_owned),
        Err(_) => None,
    }
}
