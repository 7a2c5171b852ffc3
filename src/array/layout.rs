//! How the inner chunks of a shard that is written lie in it: a choice of the writer, which no
//! reader need know.
//!
//! `ShardLayout` orders the parts of a new shard, or leaves unchanged parts where they were. Both
//! make the pieces of a new value: no shard is ever changed in place.

use std::cmp::Ordering;

use crate::error::{Error, Result};

/// The order and the way in which shards are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardLayout {
    /// The order of inner chunks.
    pub order: ShardOrder,
    /// What becomes of those that do not change.
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
    /// Along the Z-order curve: those that are near one another along all dimensions.
    Morton,
    /// As they were written: what was there before comes first, as it was.
    Arrival,
}

/// What becomes of the inner chunks that do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardWrite {
    /// They are written one after another with the new ones.
    #[default]
    Rewrite,
    /// They stay where they were, and the new ones come behind: a file system with reflinks shares
    /// the bytes. What is no longer of use stays, too, until it is more than half of the shard.
    Append,
}

impl ShardOrder {
    /// The order of two inner chunks by their indices in the shard. Those of [`Self::Arrival`] are
    /// equal.
    pub(super) fn compare(self, one: &[u64], other: &[u64]) -> Ordering {
        match self {
            Self::C => one.cmp(other),
            Self::F => one.iter().rev().cmp(other.iter().rev()),
            Self::Morton => morton(one, other),
            Self::Arrival => Ordering::Equal,
        }
    }

    /// The order of this name.
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

/// By the bits of the indices in turn, the highest first, of the last dimension last: the dimension
/// whose difference has the highest bit decides.
fn morton(one: &[u64], other: &[u64]) -> Ordering {
    let mut decides = (0_u64, Ordering::Equal);
    for (a, b) in one.iter().zip(other) {
        let difference = a ^ b;
        // Whether its highest bit is above that of the one before.
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
    fn each_order_is_the_one_that_its_name_says() {
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
