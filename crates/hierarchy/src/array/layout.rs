//! The layout of inner chunks in shards that zarrfs writes; readers work with any.
//!
//! `ShardLayout` either orders the parts of a new shard, or leaves unchanged parts where they were.
//! The result is always the pieces of a new value: no shard is ever changed in place.
//!
//! `--shard-write=append` does not append in place, either, since no reader could be safe from
//! that. Unchanged parts keep their places in a new file, which shares blocks with the old one if
//! the file system can.

use std::cmp::Ordering;

use zarrfs_base::error::{Error, Result};

/// The order of inner chunks in shards, and how shards are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardLayout {
    /// The order of inner chunks.
    pub order: ShardOrder,
    /// How unchanged inner chunks are treated.
    pub write: ShardWrite,
}

/// The order of inner chunks in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardOrder {
    /// The last index changes fastest.
    #[default]
    C,
    /// The first index changes fastest.
    F,
    /// Along the Z-order curve: neighbours in all dimensions lie close together.
    Morton,
    /// In the order of writes: unchanged inner chunks come first, in their old order.
    Arrival,
}

/// How unchanged inner chunks are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardWrite {
    /// They are written again together with the new ones.
    #[default]
    Rewrite,
    /// They stay where they were, and the new ones follow: a file system with reflinks shares the
    /// bytes. Dead bytes stay, too, until they are more than half of the shard.
    Append,
}

impl ShardOrder {
    /// Compares two inner chunks by their indices in the shard. In [`Self::Arrival`] all are equal.
    pub(super) fn compare(self, one: &[u64], other: &[u64]) -> Ordering {
        match self {
            Self::C => one.cmp(other),
            Self::F => one.iter().rev().cmp(other.iter().rev()),
            Self::Morton => morton(one, other),
            Self::Arrival => Ordering::Equal,
        }
    }

    /// Parses the name of an order.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "c" => Ok(Self::C),
            "f" => Ok(Self::F),
            "morton" => Ok(Self::Morton),
            "arrival" => Ok(Self::Arrival),
            _ => Err(Error::invalid("unknown order: expected c, f, morton or arrival")),
        }
    }
}

/// Compares by the interleaved bits of the indices, the highest first: the dimension with the
/// highest differing bit decides.
fn morton(one: &[u64], other: &[u64]) -> Ordering {
    let mut decides = (0_u64, Ordering::Equal);
    for (a, b) in one.iter().zip(other) {
        let difference = a ^ b;
        // Whether its highest bit is above that of the previous one.
        if decides.0 < difference && decides.0 < (decides.0 ^ difference) {
            decides = (difference, a.cmp(b));
        }
    }
    decides.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_sorts_as_its_name_says() {
        let mut all: Vec<[u64; 2]> = (0..2).flat_map(|i| (0..4).map(move |j| [i, j])).collect();
        let mut sorted = |order: ShardOrder| {
            all.sort_by(|one, other| order.compare(one, other));
            all.iter().map(|[i, j]| format!("{i}{j}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sorted(ShardOrder::F), "00 10 01 11 02 12 03 13");
        assert_eq!(sorted(ShardOrder::C), "00 01 02 03 10 11 12 13");
        assert_eq!(sorted(ShardOrder::Morton), "00 01 10 11 02 03 12 13");
        assert_eq!(sorted(ShardOrder::Arrival), "00 01 10 11 02 03 12 13");
    }
}
