//! Conversions between `usize` and `u64`, which lose nothing where zarrfs runs.
//!
//! Lengths in memory are `usize`, lengths of files and of values in a store `u64`.

const _: () = assert!(usize::BITS == u64::BITS, "zarrfs needs a platform of 64 bits");

/// A length or an index in memory.
pub trait ToU64 {
    /// Returns the same number as `u64`.
    fn to_u64(self) -> u64;
}

impl ToU64 for usize {
    #[expect(clippy::as_conversions, reason = "both have 64 bits")]
    fn to_u64(self) -> u64 {
        self as u64
    }
}

/// A length or an offset in a file or a stored value.
pub trait ToUsize {
    /// Returns the same number as `usize`.
    fn to_usize(self) -> usize;
}

impl ToUsize for u32 {
    #[expect(clippy::as_conversions, reason = "it has half of the bits")]
    fn to_usize(self) -> usize {
        self as usize
    }
}

impl ToUsize for u64 {
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        reason = "both have 64 bits"
    )]
    fn to_usize(self) -> usize {
        self as usize
    }
}
