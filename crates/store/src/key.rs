//! Keys and prefixes: the names in a store, validated once.
//!
//! As in the abstract store interface, a key has components joined by `/`. No component is empty,
//! `.` or `..`, and none contains a NUL, so a key never leads out of the store, whatever the
//! metadata contain.

use std::fmt;
use std::sync::Arc;

use zarrfs_base::error::{Error, Kind, Result};

/// The longest key in bytes, as the longest path of Linux: no program could name a longer one in a
/// mount. Archives and files of references may have names of any length, with a slash in every
/// second byte.
pub const MAX_KEY_LEN: usize = 4096;

/// Whether `name` is valid as one component of a key.
pub fn is_component(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// The name of a value in a store: `data/root/t2m/c0/3`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Parses a key and checks every component. A double slash is an error.
    pub fn parse(text: &str) -> Result<Self> {
        check_len(text.len())?;
        if text.split('/').all(is_component) {
            Ok(Self(text.into()))
        } else {
            Err(Error::new(Kind::Invalid, format!("{text:?} is not a valid key")))
        }
    }

    /// Returns the key as text, without a leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last component.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the prefix of all but the last component.
    pub fn parent(&self) -> Prefix {
        match self.0.rfind('/') {
            Some(slash) => Prefix(self.0.get(..=slash).unwrap_or_default().into()),
            None => Prefix::root(),
        }
    }
}

fn check_len(len: usize) -> Result<()> {
    if len > MAX_KEY_LEN {
        return Err(Error::new(
            Kind::Os(libc::ENAMETOOLONG),
            format!("a key of {len} bytes; zarrfs reads keys of up to {MAX_KEY_LEN} bytes"),
        ));
    }
    Ok(())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

/// A prefix of keys: empty, or components that each end with `/`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// Returns the prefix of every key.
    pub fn root() -> Self {
        Self("".into())
    }

    /// Parses `""`, `"a/b/"`, or `"a/b"` with the same meaning.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.strip_suffix('/').unwrap_or(text);
        if text.is_empty() {
            return Ok(Self::root());
        }
        Key::parse(text).map(|key| Self(format!("{key}/").into()))
    }

    /// Returns the prefix as text: empty, or ending with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the prefix of every key.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key `relative` below this prefix; `relative` may have several components.
    pub fn key(&self, relative: &str) -> Result<Key> {
        Key::parse(relative)?;
        check_len(self.0.len().saturating_add(relative.len()))?;
        Ok(Key(format!("{}{relative}", self.0).into()))
    }

    /// Returns the prefix `relative` below this one.
    pub fn join(&self, relative: &str) -> Result<Self> {
        let below = Self::parse(relative)?;
        check_len(self.0.len().saturating_add(relative.len()))?;
        Ok(Self(format!("{}{below}", self.0).into()))
    }

    /// Returns the prefix as a key, which names a directory in a file system; `None` for the root.
    pub fn as_key(&self) -> Option<Key> {
        self.0.strip_suffix('/').map(|text| Key(text.into()))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leads_out_of_the_store() {
        for text in ["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a\0b"] {
            assert!(Key::parse(text).is_err(), "{text:?} was taken as a key");
        }
        assert!(Prefix::root().key("../x").is_err());
    }

    #[test]
    fn no_key_is_longer_than_a_path() {
        let long = "a/".repeat(MAX_KEY_LEN / 2 - 1);
        let prefix = Prefix::parse(&long).expect("valid");
        assert!(prefix.key("bc").is_ok() && prefix.join("b").is_ok());
        for error in [
            Key::parse(&format!("{long}bcd")).expect_err("too long"),
            prefix.key("bcd").expect_err("too long"),
            prefix.join("bcd").expect_err("too long"),
        ] {
            assert_eq!(error.errno(), libc::ENAMETOOLONG, "{error}");
        }
    }

    #[test]
    fn a_key_knows_its_name_and_its_parent() {
        let key = Key::parse("data/root/c0/1").expect("valid");
        assert_eq!((key.name(), key.parent().as_str()), ("1", "data/root/c0/"));
        assert!(Key::parse("zarr.json").expect("valid").parent().is_root());
    }
}
