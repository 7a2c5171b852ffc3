//! Base64 in the standard alphabet, in which documents hold bytes (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of base64, with or without padding.
pub fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.as_bytes().chunks(4) {
        let mut bits: u32 = 0;
        for digit in group {
            let digit = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = (bits << 6) | u32::from(digit);
        }
        let missing = u32::try_from(4 - group.len()).ok()?;
        bits <<= 6 * missing;
        bytes.extend(bits.to_be_bytes().into_iter().skip(1).take(group.len() - 1));
    }
    Some(bytes)
}

/// The base64 of bytes, padded.
pub fn base64_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..4 {
            let index = usize::try_from((bits >> (18 - 6 * digit)) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).copied().unwrap_or(b'=');
            let is_needed = usize::try_from(digit).is_ok_and(|digit| digit <= group.len());
            text.push(char::from(if is_needed { letter } else { b'=' }));
        }
    }
    text
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
}
