//! The `Range` header: one range of bytes in each of its three forms (RFC 9110, section 14.1.2).

use std::ops::Range;

/// The bytes that a `Range` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedRange {
    /// The whole file: there is no range, or one that the server may ignore.
    Whole,
    /// These bytes, which exist.
    Part(Range<u64>),
    /// Bytes past the end.
    Beyond,
}

/// Parses the header for a file of `len` bytes. Several ranges, other units and wrong syntax are
/// ignored, as the specification permits.
pub fn asked(header: &str, len: u64) -> AskedRange {
    let Some(range) = header.trim().strip_prefix("bytes=") else { return AskedRange::Whole };
    let Some((first, last)) = range.trim().split_once('-') else { return AskedRange::Whole };
    match (number(first), number(last)) {
        (RangeNumber::None, RangeNumber::Of(suffix)) => {
            let start = len.saturating_sub(suffix);
            if suffix == 0 || len == 0 { AskedRange::Beyond } else { AskedRange::Part(start..len) }
        }
        (RangeNumber::Of(start), _)
            if start >= len && !matches!(number(last), RangeNumber::Wrong) =>
        {
            AskedRange::Beyond
        }
        (RangeNumber::Of(start), RangeNumber::None) => AskedRange::Part(start..len),
        (RangeNumber::Of(start), RangeNumber::Of(last)) if start <= last => {
            AskedRange::Part(start..last.saturating_add(1).min(len))
        }
        _ => AskedRange::Whole,
    }
}

enum RangeNumber {
    None,
    Of(u64),
    Wrong,
}

fn number(text: &str) -> RangeNumber {
    if text.is_empty() {
        return RangeNumber::None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return RangeNumber::Wrong;
    }
    // A longer number is past the end of every file.
    RangeNumber::Of(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_one_range_is_understood_and_anything_else_is_ignored() {
        let part = |range: Range<u64>| AskedRange::Part(range);
        for (header, expected) in [
            ("bytes=0-9", part(0..10)),
            ("bytes=5-5", part(5..6)),
            ("bytes=90-200", part(90..100)),
            ("bytes=90-", part(90..100)),
            ("bytes=-10", part(90..100)),
            ("bytes=-200", part(0..100)),
            ("bytes=0-18446744073709551616", part(0..100)),
            ("bytes=100-", AskedRange::Beyond),
            ("bytes=100-200", AskedRange::Beyond),
            ("bytes=99999999999999999999-", AskedRange::Beyond),
            ("bytes=-0", AskedRange::Beyond),
            ("bytes=9-5", AskedRange::Whole),
            ("bytes=0-1,5-6", AskedRange::Whole),
            ("bytes=-", AskedRange::Whole),
            ("bytes=a-b", AskedRange::Whole),
            ("bytes=1", AskedRange::Whole),
            ("bytes=+1-2", AskedRange::Whole),
            ("items=0-9", AskedRange::Whole),
            ("", AskedRange::Whole),
        ] {
            assert_eq!(asked(header, 100), expected, "{header}");
        }
        assert_eq!(asked("bytes=-5", 0), AskedRange::Beyond);
        assert_eq!(asked("bytes=0-", 0), AskedRange::Beyond);
    }
}
