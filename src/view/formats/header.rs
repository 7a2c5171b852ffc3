//! Strings and bytes of headers that several formats need.

use crate::error::{Error, Result};
use crate::view::source::ViewSource;

/// Returns a string without characters that would end its line.
pub(super) fn line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '_' } else { char }).collect()
}

/// Returns the name of the data file for a text header. Fails for names that readers misread, so
/// that they would read another node's elements: they skip leading spaces and separators, treat `%`
/// as the number of a slice, and `\` as `/`.
pub(super) fn data_file(source: &ViewSource<'_>) -> Result<String> {
    let name = source.raw_name();
    let is_skipped = |char: char| char.is_whitespace() || matches!(char, '=' | ':');
    if name.contains(|char: char| char.is_control() || matches!(char, '%' | '\\'))
        || name.starts_with(is_skipped)
        || name.starts_with("LIST")
    {
        return Err(Error::unsupported(format!("readers would misread the file name {name:?}")));
    }
    Ok(name)
}

/// Puts `data` at an offset in a header, which must be long enough.
pub(super) fn put(header: &mut [u8], at: usize, data: &[u8]) {
    let target = at.checked_add(data.len()).and_then(|end| header.get_mut(at..end));
    debug_assert!(target.is_some(), "{at} lies outside of the header");
    if let Some(target) = target {
        target.copy_from_slice(data);
    }
}
