//! The endings of the names of compressed chunks.

/// The endings of names of compressed chunks, and how the header names their compressors; `None`
/// for those that are not read.
pub const ENDINGS: [(&str, Option<u8>); 5] =
    [(".gz", Some(1)), (".br", Some(2)), (".zstd", None), (".xz", None), (".bz2", None)];

/// Returns the name of a chunk without the ending of a compressor.
pub fn unpacked_name(name: &str) -> &str {
    ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(name)
}
