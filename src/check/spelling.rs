//! Keys of chunks that are spelled in another way than their array requires.

use crate::array::{Coords, decode_key};
use crate::metadata::model::KeyEncoding;

/// Returns the coordinates of a chunk whose key is not spelled as its array requires.
pub fn spelled_otherwise(own: KeyEncoding, text: &str, rank: usize) -> Option<Coords> {
    let plain = without_zeros(text);
    KeyEncoding::ALL
        .iter()
        .filter(|encoding| **encoding != own || plain != text)
        // In one dimension, a key of N5 is a bare number, which any file may have as its name.
        .filter(|encoding| rank > 1 || !matches!(encoding, KeyEncoding::N5))
        .find_map(|encoding| decode_key(*encoding, &plain, rank))
}

/// Removes leading zeros from the indices in a key.
fn without_zeros(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut in_number = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let leads = c == '0' && !in_number && rest.peek().is_some_and(char::is_ascii_digit);
        in_number = c.is_ascii_digit() && !leads;
        if !leads {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::model::Separator;

    #[test]
    fn a_key_of_a_chunk_is_known_in_every_spelling() {
        let own = KeyEncoding::Default(Separator::Slash);
        for text in ["0/1", "0.1", "c0/1", "c0.1", "c.0.1", "c/00/1", "c/0/01"] {
            let found = spelled_otherwise(own, text, 2);
            assert_eq!(found, Some(Coords::new([0, 1])), "{text}");
        }
        for text in ["zarr.json", "c/0/x", "c/0", "0.1.2", "notes/0/1"] {
            assert_eq!(spelled_otherwise(own, text, 2), None, "{text}");
        }
        assert_eq!(
            spelled_otherwise(KeyEncoding::V2(Separator::Dot), "1/0", 2),
            Some(Coords::new([1, 0]))
        );
    }
}
