//! The `Range` header: one range of bytes in each of its three forms (RFC 9110, section 14.1.2).

use std::ops::Range;

/// The bytes that a `Range` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The whole file: there is no range, or one that the server may ignore.
    Whole,
    /// These bytes, which exist.
    Part(Range<u64>),
    /// Bytes past the end.
    Beyond,
}

/// Parses the header for a file of `len` bytes. Several ranges, other units and wrong syntax are
/// ignored, as the specification permits.
pub fn asked(header: &str, len: u64) -> Asked {
    let Some(range) = header.trim().strip_prefix("bytes=") else { return Asked::Whole };
    let Some((first, last)) = range.trim().split_once('-') else { return Asked::Whole };
    match (number(first), number(last)) {
        (Number::None, Number::Of(suffix)) => {
            let start = len.saturating_sub(suffix);
            if suffix == 0 || len == 0 { Asked::Beyond } else { Asked::Part(start..len) }
        }
        (Number::Of(start), _) if start >= len && !matches!(number(last), Number::Wrong) => {
            Asked::Beyond
        }
        (Number::Of(start), Number::None) => Asked::Part(start..len),
        (Number::Of(start), Number::Of(last)) if start <= last => {
            Asked::Part(start..last.saturating_add(1).min(len))
        }
        _ => Asked::Whole,
    }
}

enum Number {
    None,
    Of(u64),
    Wrong,
}

fn number(text: &str) -> Number {
    if text.is_empty() {
        return Number::None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Number::Wrong;
    }
    // A longer number is past the end of every file.
    Number::Of(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_one_range_is_understood_and_anything_else_is_ignored() {
        let part = |range: Range<u64>| Asked::Part(range);
        for (header, expected) in [
            ("bytes=0-9", part(0..10)),
            ("bytes=5-5", part(5..6)),
            ("bytes=90-200", part(90..100)),
            ("bytes=90-", part(90..100)),
            ("bytes=-10", part(90..100)),
            ("bytes=-200", part(0..100)),
            ("bytes=0-18446744073709551616", part(0..100)),
            ("bytes=100-", Asked::Beyond),
            ("bytes=100-200", Asked::Beyond),
            ("bytes=99999999999999999999-", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=9-5", Asked::Whole),
            ("bytes=0-1,5-6", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=1", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("items=0-9", Asked::Whole),
            ("", Asked::Whole),
        ] {
            assert_eq!(asked(header, 100), expected, "{header}");
        }
        assert_eq!(asked("bytes=-5", 0), Asked::Beyond);
        assert_eq!(asked("bytes=0-", 0), Asked::Beyond);
    }
}
