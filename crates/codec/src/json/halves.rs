//! Halves of surrogate pairs, which Python writes into names and strings (`"\udc00"`).
//!
//! They are no characters, so each becomes three that no text has: `U+FDD0` to `U+FDD7` for the
//! first three of its eleven bits, and two of `U+FDE0` to `U+FDEF` for four bits each. When a value
//! is printed as JSON, these become the same escape again ([`escaped`]), so that two names that
//! differ stay two names. Where a text is not JSON, `U+FFFD` stands for them ([`plain`]).

use std::borrow::Cow;

/// The first of all such halves.
const FIRST: u32 = 0xd800;

/// The characters for three and for four bits: Unicode promises that they mean nothing.
const HIGH: u32 = 0xfdd0;
const LOW: u32 = 0xfde0;

/// The first byte of these characters in UTF-8.
const FIRST_BYTE: u8 = 0xef;

/// Appends the half of a pair, a unit from `D800` to `DFFF`.
pub(super) fn push(text: &mut String, unit: u32) {
    let bits = unit.saturating_sub(FIRST);
    let character = |base: u32, bits: u32| char::from_u32(base.saturating_add(bits));
    text.extend(character(HIGH, (bits >> 8) & 0x7));
    text.extend(character(LOW, (bits >> 4) & 0xf));
    text.extend(character(LOW, bits & 0xf));
}

/// Returns JSON with such halves as escapes.
pub(super) fn escaped(json: String) -> String {
    if first_in(&json).is_none() {
        return json;
    }
    replaced(&json, |text, unit| text.extend([format!("\\u{unit:04x}")]))
}

/// Returns a text that is not JSON: `U+FFFD` stands for such halves.
pub fn plain(text: &str) -> Cow<'_, str> {
    if first_in(text).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(replaced(text, |text, _| text.push(char::REPLACEMENT_CHARACTER)))
}

/// Returns the first half in a text, with the text before it and after it.
fn first_in(text: &str) -> Option<(&str, u32, &str)> {
    if !text.as_bytes().contains(&FIRST_BYTE) {
        return None;
    }
    let bits = |c: Option<char>, base: u32, most: u32| {
        u32::from(c?).checked_sub(base).filter(|bits| *bits < most)
    };
    text.char_indices().find_map(|(at, c)| {
        let first = bits(Some(c), HIGH, 8)?;
        let (before, rest) = text.split_at_checked(at)?;
        let mut rest = rest.chars();
        rest.next();
        let (middle, last) = (bits(rest.next(), LOW, 16)?, bits(rest.next(), LOW, 16)?);
        let unit = FIRST.saturating_add(first << 8 | middle << 4 | last);
        Some((before, unit, rest.as_str()))
    })
}

fn replaced(mut text: &str, put: impl Fn(&mut String, u32)) -> String {
    let mut replaced = String::with_capacity(text.len());
    while let Some((before, unit, after)) = first_in(text) {
        replaced.push_str(before);
        put(&mut replaced, unit);
        text = after;
    }
    replaced.push_str(text);
    replaced
}

#[cfg(test)]
mod tests {
    use super::super::{compact, foreign, parse};
    use super::*;

    #[test]
    fn every_half_of_a_pair_is_printed_as_it_was_written() {
        for unit in FIRST..=0xdfff {
            let json = format!("{{\"a\\u{unit:04x}b\":[\"\\u{unit:04x}\"]}}");
            let value = parse(json.as_bytes()).expect("JSON");
            assert_eq!(compact(&value), json);
            let name = value.as_object().and_then(|members| members.keys().next()).expect("a name");
            assert_eq!(plain(name), "a\u{fffd}b");
            assert!(!foreign::has_foreign(name), "{unit:x}");
        }
    }

    #[test]
    fn whole_pairs_and_other_characters_stay() {
        let json = "\"\\ud83d\\ude00 \u{fdd0} \u{fde0}\u{feff} \\ude00\\ud83d\"";
        let value = parse(json.as_bytes()).expect("JSON");
        let printed = "\"\u{1f600} \u{fdd0} \u{fde0}\u{feff} \\ude00\\ud83d\"";
        assert_eq!(compact(&value), printed);
    }
}
