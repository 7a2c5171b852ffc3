//! Base64 in the standard alphabet, for bytes in metadata files (RFC 4648, section 4).

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};

/// Ignores extra bits of the last digit, as Python does.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    NO_PAD
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes base64 with up to two padding characters, whether or not they are needed.
pub fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    LENIENT.decode(digits).ok()
}

/// Decodes base64 as `base64.standard_b64decode` of Python does: characters outside of the alphabet
/// are dropped, and the text ends with its padding. `None` if Python raises an exception.
pub fn base64_decode_as_python(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() {
        return None;
    }
    let mut digits = String::with_capacity(text.len());
    let mut padding = 0;
    for character in text.chars() {
        let place = digits.len() % 4;
        if character == '=' && place >= 2 {
            padding += 1;
            if place + padding == 4 {
                return LENIENT.decode(digits).ok();
            }
        } else if character.is_ascii_alphanumeric() || matches!(character, '+' | '/') {
            digits.push(character);
            padding = 0;
        }
    }
    if digits.len().is_multiple_of(4) { LENIENT.decode(digits).ok() } else { None }
}

/// Encodes bytes as base64, padded.
pub fn base64_encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_survive_their_base64(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let text = base64_encode(&bytes);
            prop_assert!(text.len().is_multiple_of(4));
            prop_assert_eq!(base64_decode(&text), Some(bytes.clone()));
            prop_assert_eq!(base64_decode(text.trim_end_matches('=')), Some(bytes));
        }
    }

    #[test]
    fn the_vectors_of_the_rfc_hold() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foob", "Zm9vYg==")] {
            assert_eq!(base64_encode(bytes.as_bytes()), text);
        }
        for wrong in ["Z", "Zg===", "Z*==", "Zm9vY"] {
            assert_eq!(base64_decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unused_bits_and_superfluous_padding_are_ignored() {
        for (text, bytes) in [("Zh==", "f"), ("Zm9", "fo"), ("Zg=", "f"), ("Zm9v=", "foo")] {
            assert_eq!(base64_decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
    }

    #[test]
    fn python_drops_other_characters_and_demands_the_padding() {
        // What base64.standard_b64decode of Python 3.11 returns, or None if it raises.
        let cases: [(&str, Option<&[u8]>); 18] = [
            ("", Some(b"")),
            ("ab", None),
            ("abc", None),
            ("abcd", Some(b"i\xb7\x1d")),
            ("abcde", None),
            ("YWI=", Some(b"ab")),
            ("YWI", None),
            ("a*bcd", Some(b"i\xb7\x1d")),
            (" Y W I = ", Some(b"ab")),
            ("YQ==YQ==", Some(b"a")),
            ("YQ=", None),
            ("YQ=x=", Some(b"a\x0c")),
            ("YQ=xYg==", None),
            ("YR==", Some(b"a")),
            ("=", Some(b"")),
            ("a===", None),
            ("=abcd", Some(b"i\xb7\x1d")),
            ("YWI\u{e9}=", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(base64_decode_as_python(text).as_deref(), bytes, "{text:?}");
        }
    }
}
