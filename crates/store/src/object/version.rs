//! The version of an object: its `ETag`.
//!
//! Most servers have tags of 32 hexadecimal digits, and `-N` after an upload in parts; Azure has
//! `0x` and up to 16 digits. Such a tag fits into a [`Version`] and is sent back in a condition. Of
//! another tag, the version has a hash; a condition asks for the tag again and compares its hash.
//!
//! Google has conditions on generations, which listings do not show, so there too a put first asks
//! for the generation. Two versions with the same tag have the same bytes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;

use crate::{Stat, Version};
use zarrfs_base::width::{ToU64, ToUsize};

/// How the tag of a version is kept, in the low bits of its last part. The bits above have the
/// number of parts of an upload.
const OF_AZURE: u64 = 0;
const DIGITS: u64 = 1;
const HASH: u64 = 2;
const NO_TAG: u64 = 3;

/// How old a value without a tag must be, so that every later change shows in its time.
const SETTLED: Duration = Duration::from_secs(2);

/// Returns the stat of an object.
pub(super) fn stat_of(object: &ObjectMeta) -> Stat {
    // Listings have fractions of a second, and other answers do not.
    let modified = SystemTime::from(object.last_modified);
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
    Stat { len: object.size, modified, version: of_object(object) }
}

/// Returns the version of an object: its tag, or its time and length if it has none.
pub(super) fn of_object(object: &ObjectMeta) -> Version {
    let modified = SystemTime::from(object.last_modified);
    of_tag(object.e_tag.as_deref(), object.size, modified)
}

/// Returns the version of an object with this tag and length, or with this time.
pub(super) fn of_tag(tag: Option<&str>, len: u64, modified: SystemTime) -> Version {
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let Some(tag) = tag.map(bare) else {
        // Another change within the same second would not show.
        let is_settled = modified.elapsed().is_ok_and(|age| age > SETTLED);
        let version = Version::settled([since.as_secs(), 0, len, NO_TAG]);
        return Version { is_settled, ..version };
    };
    if let Some((number, count)) = digits_of_azure(tag) {
        return Version::settled([number, count, len, OF_AZURE]);
    }
    if let Some([high, low, parts]) = digits(tag) {
        return Version::settled([high, low, len, (parts << 2) | DIGITS]);
    }
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    let first = hasher.finish();
    len.hash(&mut hasher);
    Version::settled([first, hasher.finish(), len, HASH])
}

/// Returns the tag of a version without quotes; `None` if only its hash is known.
pub(super) fn tag_of(version: Version) -> Option<String> {
    let [high, low, _, kind] = version.state();
    let parts = kind >> 2;
    match kind & 3 {
        OF_AZURE => Some(format!("0x{high:0width$X}", width = low.to_usize())),
        DIGITS if parts == 0 => Some(format!("{high:016x}{low:016x}")),
        DIGITS => Some(format!("{high:016x}{low:016x}-{parts}")),
        _ => None,
    }
}

/// Returns a tag without its quotes.
pub(super) fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

/// Returns the digits of a tag of Azure as a number, and how many there are. The tag can be made
/// from them again.
fn digits_of_azure(tag: &str) -> Option<(u64, u64)> {
    let digits = tag.strip_prefix("0x")?;
    let is_upper_hex = |c: u8| matches!(c, b'0'..=b'9' | b'A'..=b'F');
    if !(1..=16).contains(&digits.len()) || !digits.bytes().all(is_upper_hex) {
        return None;
    }
    let count = digits.len().to_u64();
    Some((u64::from_str_radix(digits, 16).ok()?, count))
}

/// Returns the digits of a tag as two numbers, and the number of parts, 0 for an upload in one. The
/// tag can be made from them again.
fn digits(tag: &str) -> Option<[u64; 3]> {
    let (digits, parts) = match tag.split_once('-') {
        Some((digits, parts)) => (digits, Some(parts)),
        None => (tag, None),
    };
    let (high, low) = digits.split_at_checked(16)?;
    let is_lower_hex = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if low.len() != 16 || !digits.bytes().all(is_lower_hex) {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    let parts = match parts {
        Some(text) => text.parse().ok().filter(|n: &u64| *n > 0 && n.to_string() == text)?,
        None => 0,
    };
    (parts < 1 << 32).then_some([number(high)?, number(low)?, parts])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tag: &str) -> Version {
        of_tag(Some(tag), 7, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_tag_of_digits_is_in_its_version() {
        let digits = "d41d8cd98f00b204e9800998ecf8427e";
        for tag in [digits, &format!("{digits}-12"), "0x8DEB2F1A3C40E9B", "0x01", "0x0"] {
            for quoted in [tag.to_owned(), format!("\"{tag}\"")] {
                assert_eq!(tag_of(version(&quoted)).as_deref(), Some(tag));
            }
        }
    }

    #[test]
    fn another_tag_has_a_version_of_its_own() {
        let same = "d41d8cd98f00b204e9800998ecf8427";
        for tag in [
            "",
            "0x",
            "0x8d",
            "0x11112222333344445",
            same,
            "D41D8CD98F00B204E9800998ECF8427E",
            &format!("{same}e-01"),
        ] {
            assert_eq!(tag_of(version(tag)), None, "{tag}");
            assert!(version(tag).is_same(version(tag)));
            assert!(!version(tag).is_same(version(&format!("{tag}f"))));
        }
    }
}
