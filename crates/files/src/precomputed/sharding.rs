//! Which shard, and which part of it ("minishard"), has the chunk with a number.
//!
//! ```text
//! number >> preshift_bits -> hash -> .. | shard | minishard     the minishard has the lowest bits
//! ```

use serde_json::Value;

use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;
use zarrfs_codec::json::{Object, describe};

/// The name of this form of shards.
const TYPE: &str = "neuroglancer_uint64_sharded_v1";

/// The most bits of the number of a minishard. TensorStore has the same limit.
const MAX_MINISHARD_BITS: u32 = 32;

/// How chunks are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharding {
    preshift_bits: u32,
    hash: Hash,
    /// The bits of the number of a minishard.
    pub minishard_bits: u32,
    /// The bits of the number of a shard.
    shard_bits: u32,
    /// How the index of a minishard is encoded.
    pub index_encoding: Encoding,
    /// How chunks are encoded.
    pub data_encoding: Encoding,
}

/// The hash of the number of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Identity,
    Murmur,
}

/// Whether bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// They are not.
    Raw,
    /// With gzip.
    Gzip,
}

/// A minishard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Minishard {
    /// The number of its shard.
    pub shard: u64,
    /// Its number in the shard.
    pub number: u64,
}

impl Sharding {
    /// Parses the member `sharding` of a scale.
    pub fn parse(value: &Value) -> Result<Self> {
        let object = value.as_object().ok_or_else(|| wrong("no object", value))?;
        if object.get("@type").and_then(Value::as_str) != Some(TYPE) {
            let found = object.get("@type").unwrap_or(&Value::Null);
            return Err(Error::unsupported(format!("sharding of type {}", describe(found))));
        }
        let hash = match object.get("hash").and_then(Value::as_str) {
            Some("identity") => Hash::Identity,
            Some("murmurhash3_x86_128") => Hash::Murmur,
            _ => {
                let found = object.get("hash").unwrap_or(&Value::Null);
                return Err(Error::unsupported(format!("sharding with hash {}", describe(found))));
            }
        };
        let minishard_bits = bits(object, "minishard_bits", MAX_MINISHARD_BITS)?;
        Ok(Self {
            preshift_bits: bits(object, "preshift_bits", u64::BITS)?,
            hash,
            minishard_bits,
            shard_bits: bits(object, "shard_bits", u64::BITS - minishard_bits)?,
            index_encoding: encoding(object, "minishard_index_encoding")?,
            data_encoding: encoding(object, "data_encoding")?,
        })
    }

    /// Returns the minishard that has the chunk with this number.
    pub fn minishard(&self, id: u64) -> Minishard {
        let shifted = id.checked_shr(self.preshift_bits).unwrap_or(0);
        let hashed = match self.hash {
            Hash::Identity => shifted,
            Hash::Murmur => murmur(shifted),
        };
        let rest = hashed.checked_shr(self.minishard_bits).unwrap_or(0);
        Minishard {
            shard: lowest(rest, self.shard_bits),
            number: lowest(hashed, self.minishard_bits),
        }
    }

    /// Returns the length of the index at the start of each shard.
    pub fn index_len(&self) -> u64 {
        16_u64 << self.minishard_bits
    }

    /// Returns the name of a shard, without its ending.
    pub fn name(&self, shard: u64) -> String {
        format!("{shard:0width$x}", width = self.shard_bits.div_ceil(4).to_usize())
    }
}

/// Returns the lowest bits of a number.
fn lowest(number: u64, bits: u32) -> u64 {
    number & !u64::MAX.checked_shl(bits).unwrap_or(0)
}

fn bits(object: &Object, member: &str, most: u32) -> Result<u32> {
    let value = object.get(member).unwrap_or(&Value::Null);
    let bits = value.as_u64().and_then(|bits| u32::try_from(bits).ok());
    bits.filter(|bits| *bits <= most).ok_or_else(|| {
        Error::corrupt(format!(
            "sharding: {member} is {}, and 0 to {most} bits are possible",
            describe(value)
        ))
    })
}

fn encoding(object: &Object, member: &str) -> Result<Encoding> {
    match object.get(member).map(|value| value.as_str().unwrap_or_default()) {
        None | Some("raw") => Ok(Encoding::Raw),
        Some("gzip") => Ok(Encoding::Gzip),
        Some(other) => Err(Error::unsupported(format!("sharding: {member} {other:?}"))),
    }
}

fn wrong(what: &str, value: &Value) -> Error {
    Error::corrupt(format!("sharding is {what}: {}", describe(value)))
}

/// Returns the lower half of `MurmurHash3_x86_128` of a number in little-endian order, with the
/// seed 0.
fn murmur(number: u64) -> u64 {
    const MULTIPLIERS: [u32; 3] = [0x239b_961b, 0xab0e_9789, 0x38b3_4ae5];
    const LEN: u32 = 8;
    let [b0, b1, b2, b3, b4, b5, b6, b7] = number.to_le_bytes();
    let (low, high) = (u32::from_le_bytes([b0, b1, b2, b3]), u32::from_le_bytes([b4, b5, b6, b7]));
    let [m1, m2, m3] = MULTIPLIERS;
    let h2 = high.wrapping_mul(m2).rotate_left(16).wrapping_mul(m3) ^ LEN;
    let h1 = low.wrapping_mul(m1).rotate_left(15).wrapping_mul(m2) ^ LEN;
    // The other two parts have no bytes, and are the same.
    let (h1, h2, h3) = mixed(h1, h2, LEN);
    let (h1, h2, _) = mixed(final_mix(h1), final_mix(h2), final_mix(h3));
    u64::from(h2) << 32 | u64::from(h1)
}

/// Adds four parts, and two of them are equal: all to the first, and then that to the others.
fn mixed(h1: u32, h2: u32, h3: u32) -> (u32, u32, u32) {
    let h1 = h1.wrapping_add(h2).wrapping_add(h3).wrapping_add(h3);
    (h1, h2.wrapping_add(h1), h3.wrapping_add(h1))
}

fn final_mix(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sharding(preshift: u32, hash: &str, minishard: u32, shard: u32) -> Result<Sharding> {
        Sharding::parse(&json!({
            "@type": TYPE, "hash": hash, "preshift_bits": preshift, "minishard_bits": minishard,
            "shard_bits": shard,
        }))
    }

    #[test]
    fn the_lowest_bits_are_the_minishard_and_the_next_ones_the_shard() {
        let found = sharding(4, "identity", 3, 6).expect("valid").minishard(0xabcd);
        assert_eq!(found, Minishard { shard: 0xabc >> 3 & 0x3f, number: 0xabc & 7 });
        for (shard_bits, name) in [(0, "0"), (1, "0"), (4, "0"), (5, "00"), (12, "000")] {
            assert_eq!(sharding(0, "identity", 0, shard_bits).expect("valid").name(0), name);
        }
        assert_eq!(sharding(0, "identity", 0, 10).expect("valid").name(0x1f), "01f");
    }

    #[test]
    fn every_number_of_bits_up_to_the_most_has_a_meaning() {
        let all = Minishard { shard: u64::MAX, number: 0 };
        assert_eq!(sharding(0, "identity", 0, 64).expect("valid").minishard(u64::MAX), all);
        let none = Minishard { shard: 0, number: 0 };
        assert_eq!(sharding(64, "identity", 32, 32).expect("valid").minishard(u64::MAX), none);
        for (preshift, minishard, shard) in [(65, 0, 0), (0, 33, 0), (0, 1, 64), (0, 32, 33)] {
            sharding(preshift, "identity", minishard, shard).expect_err("too many bits");
        }
        sharding(0, "md5", 1, 1).expect_err("another hash");
    }

    #[test]
    fn the_hash_is_that_of_cloud_volume() {
        // cloud-volume 12.15.2: ShardingSpecification.compute_shard_location.
        for (number, shard, minishard) in [
            (0, 0x4772_b084, 3_760_762_433),
            (1, 0xe8bd_67d6, 383_045_274),
            (0x00ab_cdef, 0xd371_5a6f, 2_743_554_229),
            ((1 << 63) + 5, 0xca28_6505, 1_522_698_557),
            (u64::MAX, 0x574f_66bd, 556_490_010),
        ] {
            assert_eq!(murmur(number), shard << 32 | minishard, "{number:#x}");
        }
    }
}
