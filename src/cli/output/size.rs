//! Formats sizes and counts for output.

use std::fmt::Display;

use crate::dtype::to_float;

/// The units above bytes, each 1024 times the one before.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// How to print sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// Rounded, with a binary prefix: `1.5 MiB`.
    Rounded,
    /// The number of bytes: `1572864 bytes`.
    Exact,
}

impl Sizes {
    /// Returns exact sizes if the user asked for them with `--bytes`.
    pub fn of(bytes: bool) -> Self {
        if bytes { Self::Exact } else { Self::Rounded }
    }

    /// Formats a size in bytes.
    pub fn text(self, len: u64) -> String {
        match self {
            Self::Rounded => human(len),
            Self::Exact => bytes(len),
        }
    }
}

fn bytes(len: u64) -> String {
    format!("{len} byte{}", if len == 1 { "" } else { "s" })
}

/// Formats a size with three digits and a binary prefix: `1.50 MiB`, `12.3 GiB`, `280 bytes`.
pub fn human(len: u64) -> String {
    if len < 1024 {
        return bytes(len);
    }
    let mut size = to_float(len.into());
    for (at, unit) in UNITS.iter().enumerate() {
        size /= 1024.0;
        // A size that rounds to 1024 is 1 of the next unit.
        if size < 1023.5 || at + 1 == UNITS.len() {
            return format!("{} {unit}", three_digits(size));
        }
    }
    bytes(len)
}

/// Formats a number below 1024 with three digits, without zeros at the end of a fraction.
fn three_digits(size: f64) -> String {
    let decimals = match size {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{size:.decimals$}");
    if decimals == 0 {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats the first size as a multiple of the second: `3.9x`; `None` if the second is 0.
pub fn ratio(decoded: u64, stored: u64) -> Option<String> {
    if stored == 0 {
        return None;
    }
    let ratio = to_float(decoded.into()) / to_float(stored.into());
    Some(if ratio < 1000.0 { format!("{}x", three_digits(ratio)) } else { format!("{ratio:.0}x") })
}

/// Formats a part of a whole: `12 of 16 (75%)`. Rounding never gives 100% or 0%.
pub fn part(part: u64, whole: u64) -> String {
    if whole == 0 {
        return format!("{part} of {whole}");
    }
    let percent = 100.0 * to_float(part.into()) / to_float(whole.into());
    let percent = match percent {
        _ if part == whole => "100%".to_owned(),
        _ if part == 0 => "0%".to_owned(),
        percent if percent > 99.9 => "99.9%".to_owned(),
        percent if percent < 0.1 => "<0.1%".to_owned(),
        percent => format!("{}%", three_digits(percent)),
    };
    format!("{part} of {whole} ({percent})")
}

/// Returns a count with its noun, in the plural unless the count is 1.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_the_largest_unit_that_fits() {
        for (len, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10_240, "10 KiB"),
            (12_595, "12.3 KiB"),
            (1_048_575, "1 MiB"),
            (3 << 30, "3 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(len), text, "{len}");
        }
        assert_eq!(Sizes::of(true).text(1536), "1536 bytes");
    }

    #[test]
    fn a_part_is_all_or_none_only_if_it_is() {
        assert_eq!(part(9_999_999, 10_000_000), "9999999 of 10000000 (99.9%)");
        assert_eq!(part(1, 10_000_000), "1 of 10000000 (<0.1%)");
        assert_eq!(part(3, 3), "3 of 3 (100%)");
        assert_eq!(part(0, 0), "0 of 0");
        assert_eq!(ratio(1024, 256).as_deref(), Some("4x"));
        assert_eq!(ratio(1024, 0), None);
    }
}
