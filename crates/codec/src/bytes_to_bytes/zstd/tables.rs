//! The memory of Zstandard compressors, which is that of their two tables.
//!
//! The lengths are those of `clevels.h` in zstd 1.5, for inputs of more than 256 KiB; shorter ones
//! have shorter tables. Shorter tables find fewer repetitions, and every decoder reads the result.

use zstd::zstd_safe::CParameter;

use zarrfs_base::admission;
use zarrfs_base::width::ToU64;

/// The highest level whose tables have at most [`SHORT`] bytes.
pub(in super::super) const MAX_SHORT_LEVEL: i32 = 6;

/// The memory of a compressor of such a level, and of others beside their tables.
const SHORT: u64 = 4 << 20;

/// The least length of a table that is worth having, as a binary logarithm of its entries.
const LEAST: u32 = 16;

/// Binary logarithms: of the window, and of the entries of the two tables. For each level after
/// [`MAX_SHORT_LEVEL`].
const LEVELS: [(u32, u32, u32); 16] = [
    (21, 19, 20),
    (21, 19, 20),
    (22, 20, 21),
    (22, 21, 22),
    (22, 21, 22),
    (22, 22, 23),
    (22, 22, 22),
    (22, 22, 23),
    (22, 23, 23),
    (22, 22, 22),
    (23, 23, 22),
    (23, 23, 22),
    (23, 24, 22),
    (25, 25, 23),
    (26, 26, 24),
    (27, 27, 25),
];

/// The tables of a compressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Tables {
    chain_log: u32,
    hash_log: u32,
    /// Whether they are shorter than those of the level.
    is_limited: bool,
}

impl Tables {
    /// Returns the tables for inputs of `len` bytes, as one of several compressors that work at a
    /// time; `None` if they are short.
    pub fn new(level: i32, len: usize, compressors: usize) -> Option<Self> {
        let most = compressors.to_u64().max(1);
        Self::within(level, len, admission::longest_tables() / most)
    }

    fn within(level: i32, len: usize, most: u64) -> Option<Self> {
        let after = level.checked_sub(MAX_SHORT_LEVEL)?.checked_sub(1)?;
        let (window, chain, hash) = LEVELS.get(usize::try_from(after).ok()?)?;
        let window =
            len.max(1).checked_next_power_of_two().map_or(*window, usize::ilog2).min(*window);
        let longest = window.saturating_add(1);
        let mut tables = Self {
            chain_log: longest.min(*chain),
            hash_log: longest.min(*hash),
            is_limited: false,
        };
        while tables.len() > most {
            let longer = if tables.chain_log > tables.hash_log {
                &mut tables.chain_log
            } else {
                &mut tables.hash_log
            };
            if *longer <= LEAST {
                break;
            }
            *longer = longer.saturating_sub(1);
            tables.is_limited = true;
        }
        Some(tables)
    }

    /// Returns their length in bytes.
    fn len(self) -> u64 {
        let bytes = |log: u32| 4_u64.checked_shl(log).unwrap_or(u64::MAX);
        bytes(self.chain_log).saturating_add(bytes(self.hash_log))
    }

    /// Returns the parameters to set: none if the tables are those of the level.
    pub fn parameters(self) -> Vec<CParameter> {
        if self.is_limited {
            vec![CParameter::ChainLog(self.chain_log), CParameter::HashLog(self.hash_log)]
        } else {
            Vec::new()
        }
    }
}

/// Returns the most bytes that a compressor takes for inputs of `len` bytes, as one of several that
/// work at a time.
pub(in super::super) fn memory(level: i32, len: usize, compressors: usize) -> u64 {
    Tables::new(level, len, compressors).map_or(0, Tables::len).saturating_add(SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_long_as_those_of_the_library_and_no_longer_than_memory_allows() {
        let of = |level, len, most| {
            Tables::within(level, len, most).map(|t| (t.chain_log, t.hash_log, t.is_limited))
        };
        assert_eq!(of(3, 1 << 24, 0), None);
        assert_eq!(of(-5, 1 << 24, 0), None);
        assert_eq!(of(7, 1 << 30, u64::MAX), Some((19, 20, false)));
        assert_eq!(of(22, 1 << 30, u64::MAX), Some((27, 25, false)));
        assert_eq!(of(22, 1 << 24, u64::MAX), Some((25, 25, false)), "as long as the input");
        assert_eq!(of(22, 1 << 24, 256 << 20), Some((25, 25, false)));
        assert_eq!(of(22, 1 << 24, 32 << 20), Some((22, 22, true)));
        assert_eq!(of(19, 1 << 30, 32 << 20), Some((22, 22, true)));
        assert_eq!(of(22, 1 << 24, 0), Some((LEAST, LEAST, true)));
        assert_eq!(of(22, 0, 0), Some((1, 1, false)));
        let limited = Tables::within(22, 1 << 24, 32 << 20).expect("they are long");
        assert!(limited.len() <= 32 << 20);
        assert_eq!(limited.parameters(), [CParameter::ChainLog(22), CParameter::HashLog(22)]);
    }

    #[test]
    fn a_limited_compressor_makes_what_every_decompressor_reads() {
        let decoded: Vec<u8> =
            (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7).to_le_bytes()[1]).collect();
        let mut compressor = zstd::bulk::Compressor::new(22).expect("memory");
        for parameter in Tables::within(22, decoded.len(), 1 << 20).expect("long").parameters() {
            compressor.set_parameter(parameter).expect("set");
        }
        let encoded = compressor.compress(&decoded).expect("encoded");
        assert!(encoded.len() < decoded.len());
        assert!(zstd::bulk::decompress(&encoded, decoded.len()).expect("decoded") == decoded);
    }
}
