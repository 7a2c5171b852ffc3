//! Bytes in a metadata file that are not UTF-8, as programs from before Unicode write them.
//!
//! They have no character, so each becomes two that no text has, for the high and the low half of
//! the byte ([`text_of`]). An edit of such a text leaves them alone, and when it is stored, they
//! become the same bytes again ([`bytes_of`]). Readers get them as Latin-1, which is what such
//! bytes nearly always are ([`shown`]).

use std::borrow::Cow;

/// The characters for halves of bytes: Unicode promises that they mean nothing.
const HIGH: u32 = 0xfdd0;
const LOW: u32 = 0xfde0;

/// The first byte of these characters in UTF-8.
const FIRST: u8 = 0xef;

/// Returns bytes as a text.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    let mut chunks = bytes.utf8_chunks();
    if let (Some(first), None) = (chunks.next(), chunks.next())
        && first.invalid().is_empty()
    {
        return Cow::Borrowed(first.valid());
    }
    let mut text = String::with_capacity(bytes.len().saturating_add(64));
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let half = |base: u32, half: u8| char::from_u32(base.saturating_add(u32::from(half)));
            text.extend(half(HIGH, byte >> 4));
            text.extend(half(LOW, byte & 0xf));
        }
    }
    Cow::Owned(text)
}

/// Returns the bytes of a text.
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !has_foreign(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    replaced(text, &mut bytes, |bytes, text| bytes.extend_from_slice(text.as_bytes()), Vec::push);
    Cow::Owned(bytes)
}

/// Returns a text with such bytes as the characters that they are in Latin-1.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !has_foreign(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let push = |shown: &mut String, byte: u8| shown.push(char::from(byte));
    replaced(text, &mut shown, String::push_str, push);
    Cow::Owned(shown)
}

/// Returns the first such byte of a text, if there is one.
pub fn first_of(text: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(text).ok().filter(|text| has_foreign(text))?;
    first_foreign(text).map(|(_, byte, _)| byte)
}

/// Whether a text has such bytes.
pub fn has_foreign(text: &str) -> bool {
    text.as_bytes().contains(&FIRST) && first_foreign(text).is_some()
}

/// Returns the first such byte, with the text before it and after it.
fn first_foreign(text: &str) -> Option<(&str, u8, &str)> {
    let half = |c: char, base: u32| {
        let half = u32::from(c).checked_sub(base).filter(|half| *half < 16)?;
        u8::try_from(half).ok()
    };
    text.char_indices().find_map(|(at, c)| {
        let high = half(c, HIGH).filter(|high| *high >= 8)?;
        let (before, rest) = text.split_at_checked(at)?;
        let mut rest = rest.chars();
        rest.next();
        let low = half(rest.next()?, LOW)?;
        Some((before, high << 4 | low, rest.as_str()))
    })
}

/// Passes the parts of a text on: those without such bytes, and each byte.
fn replaced<T>(
    mut text: &str,
    target: &mut T,
    part: impl Fn(&mut T, &str),
    byte: impl Fn(&mut T, u8),
) {
    while let Some((before, found, after)) = first_foreign(text) {
        part(target, before);
        byte(target, found);
        text = after;
    }
    part(target, text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = text_of(&bytes);
            prop_assert_eq!(&*bytes_of(&text), &bytes[..]);
            prop_assert_eq!(has_foreign(&text), std::str::from_utf8(&bytes).is_err());
        }
    }

    #[test]
    fn latin_1_is_read_as_latin_1_and_utf_8_as_utf_8() {
        let text = text_of(b"\xb5m/s\xb2 \xc2\xb5 \xff");
        assert_eq!(shown(&text), "\u{b5}m/s\u{b2} \u{b5} \u{ff}");
        assert_eq!(shown("\u{feff}plain"), "\u{feff}plain");
    }
}
