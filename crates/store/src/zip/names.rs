//! The names of entries, as keys.
//!
//! A name is UTF-8 if its flag says so, or if an extra field repeats it in UTF-8 (Info-ZIP). Old
//! programs write names without either. Such a name is taken as UTF-8 if it is valid UTF-8, as all
//! names of ASCII are, and else as code page 437. Windows programs before 2016 separate directories
//! with backslashes. If no entry of an archive has a slash, backslashes separate them whatever the
//! archive says of its maker.

use std::borrow::Cow;

use libdeflater::crc32;

use crate::{MAX_KEY_LEN, PRIVATE, is_component};

/// The characters of code page 437 from 0x80.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// The directory of macOS for attributes of files.
const MACOS: &str = "__MACOSX/";

/// The name of an entry in the archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether a flag says that it is UTF-8.
    pub(super) is_utf8: bool,
    /// The name in the extra field of Info-ZIP, with what stands before it.
    pub(super) extra: Option<&'a [u8]>,
    /// Whether a program of DOS or Windows made the entry.
    pub(super) is_dos: bool,
    /// Whether all backslashes separate directories.
    pub(super) has_backslashes: bool,
}

/// How the key of an entry follows from its name in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// It has the same bytes.
    Same,
    /// It has other bytes, which stand for the key.
    Other,
    /// It is in an extra field, which has a checksum of the name. The local header need not have
    /// that field.
    InExtra,
}

/// What an entry is, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryName<'a> {
    /// A value, or a directory if the name ends with a slash.
    Key(Cow<'a, str>),
    /// Something of another program, or of zarrfs, which is no part of a hierarchy.
    Ignored,
    /// No key has such a name.
    Invalid,
}

impl<'a> Raw<'a> {
    /// Returns the key that the name stands for.
    pub(super) fn named(self) -> EntryName<'a> {
        let Some(mut name) = self.text() else { return EntryName::Invalid };
        if (self.is_dos || self.has_backslashes) && name.contains('\\') {
            name = Cow::Owned(name.replace('\\', "/"));
        }
        while let Some(rest) = name.strip_prefix("./") {
            name = Cow::Owned(rest.to_owned());
        }
        let is_private = name.strip_prefix(PRIVATE).is_some_and(|rest| rest.starts_with('/'));
        if name.is_empty() || name == "." || name.starts_with(MACOS) || is_private {
            return EntryName::Ignored;
        }
        let path = name.strip_suffix('/').unwrap_or(&name);
        let is_valid = path.len() <= MAX_KEY_LEN && path.split('/').all(is_component);
        if is_valid { EntryName::Key(name) } else { EntryName::Invalid }
    }

    /// Returns what the bytes of the name say of the key, which is `key`.
    pub(super) fn spelling(self, key: &str) -> Spelling {
        match self.bytes == key.as_bytes() {
            true => Spelling::Same,
            false if self.in_extra().is_some() => Spelling::InExtra,
            false => Spelling::Other,
        }
    }

    fn text(self) -> Option<Cow<'a, str>> {
        if self.is_utf8 || self.bytes.is_ascii() {
            return std::str::from_utf8(self.bytes).ok().map(Cow::Borrowed);
        }
        if let Some(name) = self.in_extra() {
            return Some(Cow::Borrowed(name));
        }
        let valid = std::str::from_utf8(self.bytes).ok().map(Cow::Borrowed);
        Some(
            valid.unwrap_or_else(|| {
                Cow::Owned(self.bytes.iter().map(|byte| cp437(*byte)).collect())
            }),
        )
    }

    /// Returns the name in the extra field, if it was made for these bytes, which have no other
    /// encoding.
    fn in_extra(self) -> Option<&'a str> {
        let extra = self.extra.filter(|_| !self.is_utf8 && !self.bytes.is_ascii())?;
        in_extra(extra, self.bytes)
    }
}

/// Whether the name in a local header may stand for `key`. The header may say otherwise than the
/// directory which encoding the name has, and who made the entry.
pub(super) fn is_name_of(local: &[u8], key: &[u8]) -> bool {
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    kinds.into_iter().any(|(is_utf8, has_backslashes)| {
        let raw = Raw { bytes: local, is_utf8, extra: None, is_dos: false, has_backslashes };
        matches!(raw.named(), EntryName::Key(name) if name.as_bytes() == key)
    })
}

/// Returns the name in an extra field of Info-ZIP, if it was made for `bytes`.
fn in_extra<'a>(extra: &'a [u8], bytes: &[u8]) -> Option<&'a str> {
    let (version, rest) = extra.split_first()?;
    let (sum, name) = rest.split_first_chunk::<4>()?;
    let is_current = *version == 1 && u32::from_le_bytes(*sum) == crc32(bytes);
    std::str::from_utf8(name).ok().filter(|_| is_current)
}

fn cp437(byte: u8) -> char {
    match byte.checked_sub(0x80) {
        None => char::from(byte),
        Some(at) => CP437.chars().nth(usize::from(at)).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(bytes: &[u8]) -> Raw<'_> {
        Raw { bytes, is_utf8: false, extra: None, is_dos: false, has_backslashes: false }
    }

    fn key(name: &str) -> EntryName<'_> {
        EntryName::Key(Cow::Borrowed(name))
    }

    #[test]
    fn a_name_without_a_flag_is_utf_8_or_else_code_page_437() {
        assert_eq!(CP437.chars().count(), 128);
        assert_eq!(raw("größe/0".as_bytes()).named(), key("größe/0"));
        assert_eq!(raw(b"gr\x94\xe1e/0").named(), key("größe/0"));
        assert_eq!(Raw { is_utf8: true, ..raw(b"gr\x94\xe1e/0") }.named(), EntryName::Invalid);
        let mut extra = vec![1];
        extra.extend(crc32(b"gr?e").to_le_bytes());
        extra.extend("größe".as_bytes());
        assert_eq!(in_extra(&extra, b"gr?e"), Some("größe"));
        assert_eq!(in_extra(&extra, b"gr?f"), None, "a name for another one");
    }

    #[test]
    fn only_names_of_keys_are_keys() {
        let long = "a/".repeat(MAX_KEY_LEN / 2) + "b";
        for name in ["../a", "a/../b", "/a", "a//b", "a/./b", "a\0b", "/", &long] {
            assert_eq!(raw(name.as_bytes()).named(), EntryName::Invalid, "{name:?}");
        }
        for name in ["__MACOSX/._a", "./", "", ".zarrfs/convert"] {
            assert_eq!(raw(name.as_bytes()).named(), EntryName::Ignored, "{name:?}");
        }
        assert_eq!(raw(b"./a/0.0").named(), key("a/0.0"));
        assert_eq!(raw(b"a/").named(), key("a/"));
        assert_eq!(raw(b"a\\b").named(), key("a\\b"));
        assert_eq!(Raw { is_dos: true, ..raw(b"a\\b") }.named(), key("a/b"));
        assert_eq!(Raw { is_dos: true, ..raw(b"..\\b") }.named(), EntryName::Invalid);
        assert_eq!(Raw { has_backslashes: true, ..raw(b"a\\b") }.named(), key("a/b"));
    }
}
