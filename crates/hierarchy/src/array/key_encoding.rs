//! Converts coordinates to the last part of a key, and back.

use super::coords::Coords;
use crate::metadata::model::{KeyEncoding, Separator};

/// Returns the key of the chunk at `coords` relative to the array.
pub fn encode(encoding: KeyEncoding, coords: &[u64]) -> String {
    let join = |separator: Separator| {
        coords.iter().map(u64::to_string).collect::<Vec<_>>().join(separator.as_str())
    };
    match encoding {
        KeyEncoding::N5 if !coords.is_empty() => {
            coords.iter().rev().map(u64::to_string).collect::<Vec<_>>().join("/")
        }
        KeyEncoding::Default(_) if coords.is_empty() => "c".to_owned(),
        KeyEncoding::Default(separator) => format!("c{}{}", separator.as_str(), join(separator)),
        KeyEncoding::V2(_) | KeyEncoding::V2Undeclared | KeyEncoding::N5 if coords.is_empty() => {
            "0".to_owned()
        }
        KeyEncoding::V2(separator) => join(separator),
        KeyEncoding::V2Undeclared | KeyEncoding::N5 => join(Separator::Dot),
        // zarr-python 2, GDAL and xtensor-zarr write this; the specification says `c`.
        KeyEncoding::Draft(_) if coords.is_empty() => "c0".to_owned(),
        KeyEncoding::Draft(separator) => format!("c{}", join(separator)),
    }
}

/// Returns a second relative key that writers may use for the chunk.
pub fn alternative(encoding: KeyEncoding, coords: &[u64]) -> Option<&'static str> {
    (matches!(encoding, KeyEncoding::Draft(_)) && coords.is_empty()).then_some("c")
}

/// Parses the relative key `text` in a grid of `rank` dimensions.
pub fn decode(encoding: KeyEncoding, text: &str, rank: usize) -> Option<Coords> {
    if rank == 0 {
        let names =
            [encode(encoding, &[]), alternative(encoding, &[]).unwrap_or_default().to_owned()];
        return (!text.is_empty() && names.iter().any(|name| name == text))
            .then(|| Coords::new(Vec::new()));
    }
    let (separator, rest) = match encoding {
        KeyEncoding::Default(separator) => {
            (separator, text.strip_prefix('c')?.strip_prefix(separator.as_str())?)
        }
        KeyEncoding::V2(separator) => (separator, text),
        KeyEncoding::V2Undeclared => (Separator::Dot, text),
        KeyEncoding::N5 => (Separator::Slash, text),
        KeyEncoding::Draft(separator) => (separator, text.strip_prefix('c')?),
    };
    let indices: Option<Vec<u64>> = rest.split(separator.as_str()).map(index).collect();
    let indices = indices.map(|mut indices| {
        if encoding == KeyEncoding::N5 {
            indices.reverse();
        }
        indices
    });
    indices.filter(|indices| indices.len() == rank).map(Coords::new)
}

/// Parses a chunk index: decimal, without sign or leading zeros.
pub fn index(text: &str) -> Option<u64> {
    let canonical = text == "0" || (text.starts_with(|c: char| ('1'..='9').contains(&c)));
    (canonical && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Whether `text` is a prefix of chunk keys in N5, whose levels of prefixes are not levels of
/// coordinates.
pub fn is_level_of_n5(encoding: KeyEncoding, text: &str, rank: usize) -> bool {
    let count = text.split('/').count();
    encoding == KeyEncoding::N5 && count < rank && text.split('/').all(|part| index(part).is_some())
}

/// Returns, for encodings without levels of prefixes, the start of the keys of all chunks whose
/// first indices are `coords`.
pub fn start(encoding: KeyEncoding, coords: &[u64]) -> Option<String> {
    Some(match (encoding, coords) {
        (KeyEncoding::V2(Separator::Dot) | KeyEncoding::V2Undeclared, []) => String::new(),
        (KeyEncoding::Default(Separator::Dot), []) => "c.".to_owned(),
        (KeyEncoding::Draft(Separator::Dot), []) => "c".to_owned(),
        (
            KeyEncoding::V2(Separator::Dot)
            | KeyEncoding::V2Undeclared
            | KeyEncoding::Default(Separator::Dot)
            | KeyEncoding::Draft(Separator::Dot),
            coords,
        ) => format!("{}.", encode(encoding, coords)),
        _ => return None,
    })
}

/// Returns, for encodings with levels of prefixes, the prefix of all chunks whose first indices are
/// `coords`, without the last slash, and the separator before the next index in the names below it.
pub fn level(encoding: KeyEncoding, coords: &[u64]) -> Option<(String, &'static str)> {
    let separator = match encoding {
        KeyEncoding::Default(separator)
        | KeyEncoding::V2(separator)
        | KeyEncoding::Draft(separator) => separator,
        KeyEncoding::V2Undeclared => Separator::Dot,
        // The first dimension is the last level.
        KeyEncoding::N5 => return None,
    };
    if separator == Separator::Dot {
        return None;
    }
    Some(match (encoding, coords) {
        (KeyEncoding::Draft(_), []) => (String::new(), "c"),
        (KeyEncoding::V2(_), []) => (String::new(), ""),
        (KeyEncoding::Default(_), []) => ("c".to_owned(), ""),
        (_, coords) => (encode(encoding, coords), ""),
    })
}

/// Returns the first indices that all chunks in a directory have; `None` if it can have no chunks.
/// `text` is its path below the array.
pub fn level_of(encoding: KeyEncoding, text: &str, rank: usize) -> Option<Vec<u64>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    if encoding == KeyEncoding::N5 {
        return is_level_of_n5(encoding, text, rank).then(Vec::new);
    }
    level(encoding, &[])?;
    let rest = match encoding {
        KeyEncoding::Default(_) if text == "c" => return Some(Vec::new()),
        KeyEncoding::Default(_) => text.strip_prefix("c/")?,
        KeyEncoding::Draft(_) => text.strip_prefix('c')?,
        KeyEncoding::V2(_) | KeyEncoding::V2Undeclared | KeyEncoding::N5 => text,
    };
    let indices: Option<Vec<u64>> = rest.split('/').map(index).collect();
    indices.filter(|indices| indices.len() < rank)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All encodings, including that of a metadata file that names none.
    fn all() -> Vec<KeyEncoding> {
        KeyEncoding::ALL.into_iter().chain([KeyEncoding::V2Undeclared]).collect()
    }

    #[test]
    fn keys_are_spelled_as_each_specification_has_them() {
        let spelled =
            all().into_iter().map(|encoding| encode(encoding, &[1, 23])).collect::<Vec<_>>();
        assert_eq!(spelled, ["c/1/23", "c.1.23", "1/23", "1.23", "c1/23", "c1.23", "23/1", "1.23"]);
        let scalar = all().into_iter().map(|encoding| encode(encoding, &[])).collect::<Vec<_>>();
        assert_eq!(scalar, ["c", "c", "0", "0", "c0", "c0", "0", "0"]);
        assert_eq!(decode(KeyEncoding::ALL[4], "c", 0), Some(Coords::new([])));
    }

    #[test]
    fn other_keys_are_not_parsed_as_chunk_keys() {
        for text in ["c/1", "c/1/2/3", "c/01/2", "c/+1/2", "c/1/", "c/-1/2", "c1/2", "1/2", "c/1/x"]
        {
            assert_eq!(decode(all()[0], text, 2), None, "{text}");
        }
        assert_eq!(index("18446744073709551616"), None);
    }

    proptest! {
        #[test]
        fn decoding_gives_the_coordinates_that_were_encoded(
            coords in prop::collection::vec(any::<u64>(), 0..4), which in 0_usize..8,
        ) {
            let text = encode(all()[which], &coords);
            prop_assert_eq!(decode(all()[which], &text, coords.len()), Some(Coords::new(coords)));
        }

        #[test]
        fn the_start_of_keys_is_that_of_exactly_the_chunks_below(
            coords in prop::collection::vec(0_u64..30, 3),
            other in prop::collection::vec(0_u64..30, 3),
            depth in 0_usize..3,
            which in 0_usize..8,
        ) {
            if let Some(start) = start(all()[which], &coords[..depth]) {
                let is_below = other[..depth] == coords[..depth];
                prop_assert!(encode(all()[which], &coords).starts_with(&start));
                prop_assert_eq!(encode(all()[which], &other).starts_with(&start), is_below);
            }
        }

        #[test]
        fn a_directory_has_the_chunks_that_its_path_says(
            coords in prop::collection::vec(0_u64..30, 3),
            other in prop::collection::vec(0_u64..30, 3),
            which in 0_usize..8,
        ) {
            let (one, two) = (encode(all()[which], &coords), encode(all()[which], &other));
            let above = one.match_indices('/').map(|(at, _)| one.get(..at).unwrap_or_default());
            for directory in above.chain([""]) {
                let first = level_of(all()[which], directory, 3).expect("a directory of chunks");
                prop_assert!(coords.starts_with(&first));
                let is_there = directory.is_empty() || two.starts_with(&format!("{directory}/"));
                prop_assert!(!is_there || other.starts_with(&first));
            }
            prop_assert_eq!(level_of(all()[which], "notes", 3), None);
        }

        #[test]
        fn no_text_is_more_than_it_spells(text in "[c0-9./x]{0,8}", which in 0_usize..8) {
            for rank in 1..4 {
                if let Some(coords) = decode(all()[which], &text, rank) {
                    prop_assert_eq!(encode(all()[which], coords.indices()), text.clone());
                }
            }
        }
    }
}
