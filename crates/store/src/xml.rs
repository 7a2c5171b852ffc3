//! Reads the XML that servers answer.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::BytesRef;

/// Returns the character that a reference such as `&amp;` or `&#38;` names.
pub(super) fn char_of(name: &BytesRef<'_>) -> Option<String> {
    match name.resolve_char_ref() {
        Ok(Some(char)) => Some(char.to_string()),
        Ok(None) => resolve_predefined_entity(&String::from_utf8_lossy(name)).map(str::to_owned),
        Err(_) => None,
    }
}
