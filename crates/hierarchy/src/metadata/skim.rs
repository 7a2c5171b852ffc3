//! Reads metadata files without the copies of others that they contain.
//!
//! Consolidated metadata may be a thousand times longer than the rest of a group's metadata file,
//! and zarrfs seldom reads them: it generates the ones that it shows. So this module skips them
//! byte by byte without storing them, and parses the rest:
//!
//! ```text
//! {"zarr_format": 3, .., "consolidated_metadata": {"kind": "inline", "metadata": { /* skipped */ }}}
//! ```

use std::borrow::Cow;

use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_base::width::ToU64;
use zarrfs_store::{ByteRange, Key, Stat, Store};

/// The most bytes of a metadata file with the copies in it.
const MAX_LEN: u64 = 256 << 20;

/// The number of bytes to read at a time.
const STEP: u64 = 1 << 20;

/// The number of attempts to read a file that other programs keep replacing.
const ATTEMPTS: usize = 10;

/// The minimum length of a file in which skipping pays.
const MIN_LEN: usize = 64 << 10;

const OUTER: &[u8] = b"consolidated_metadata";
const INNER: &[u8] = b"metadata";

/// A metadata file without copies.
#[derive(Debug)]
pub struct Skimmed {
    /// The text.
    pub text: Vec<u8>,
    /// The stat of the whole file.
    pub stat: Stat,
    /// Whether nothing was skipped.
    pub is_whole: bool,
}

/// Removes copies from a file that arrives in pieces.
#[derive(Debug, Default)]
struct Skim {
    text: Vec<u8>,
    depth: usize,
    string: InString,
    /// The last string, as long as it may be one of the names.
    last: Vec<u8>,
    /// Whether the current member, and the one inside it, have these names.
    in_outer: bool,
    in_inner: bool,
    passing: Passing,
}

/// Whether a byte is in a string.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum InString {
    #[default]
    No,
    Yes,
    /// In a string, after a backslash.
    Escaped,
}

/// Whether copies are being skipped, or were.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Passing {
    #[default]
    Never,
    Now,
    Before,
}

impl Skim {
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        for byte in bytes {
            if self.passing != Passing::Now {
                self.text.push(*byte);
            }
            if self.string == InString::No {
                self.plain(*byte);
            } else {
                self.in_string(*byte);
            }
        }
        if self.text.len().to_u64() > limits::METADATA.get() {
            let detail = format!("a metadata file that is too long, {}", limits::METADATA);
            return Err(Error::too_large(detail));
        }
        Ok(())
    }

    fn in_string(&mut self, byte: u8) {
        self.string = match (self.string, byte) {
            (InString::Yes, b'\\') => InString::Escaped,
            (InString::Yes, b'"') => InString::No,
            _ => InString::Yes,
        };
        if self.string != InString::No && self.last.len() <= OUTER.len() {
            self.last.push(byte);
        }
    }

    fn plain(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.string = InString::Yes;
                self.last.clear();
            }
            b':' if self.depth == 1 => self.in_outer = self.last == OUTER,
            b':' if self.depth == 2 => self.in_inner = self.in_outer && self.last == INNER,
            b',' if self.depth <= 2 => {
                self.in_inner = false;
                self.in_outer &= self.depth == 2;
            }
            b'{' | b'[' => {
                if byte == b'{' && self.depth == 2 && self.in_inner {
                    self.passing = Passing::Now;
                }
                self.in_inner = false;
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.passing == Passing::Now && self.depth == 2 {
                    self.passing = Passing::Before;
                    self.text.push(b'}');
                }
            }
            _ => {}
        }
    }
}

/// Whether a metadata file may have copies in it.
pub fn has_copies(text: &[u8]) -> bool {
    text.windows(OUTER.len()).any(|window| window == OUTER)
}

/// Returns a string without the copies in it if it is long enough to matter.
pub fn without_copies(text: &[u8]) -> Cow<'_, [u8]> {
    if text.len() < MIN_LEN || !has_copies(text) {
        return Cow::Borrowed(text);
    }
    let mut skim = Skim::default();
    match skim.push(text) {
        Ok(()) if skim.passing != Passing::Never => Cow::Owned(skim.text),
        _ => Cow::Borrowed(text),
    }
}

/// Returns the metadata file at a key: whole if it is short enough, else without the copies in it.
pub fn get(store: &Store, key: &Key) -> Result<Option<Skimmed>> {
    match store.get(key, limits::METADATA.get()) {
        Err(error) if error.kind() == Kind::TooLarge => {}
        found => {
            let whole =
                |stat, text: bytes::Bytes| Skimmed { text: text.into(), stat, is_whole: true };
            return Ok(found?.map(|value| whole(value.stat, value.bytes)));
        }
    }
    for _ in 0..ATTEMPTS {
        let Some(stat) = store.stat(key)? else { return Ok(None) };
        if stat.len > MAX_LEN {
            let detail = format!("{} bytes stored, the limit here is {MAX_LEN}", stat.len);
            return Err(Error::too_large(detail).at(key));
        }
        if let Some(text) = skim(store, key, &stat)? {
            return Ok(Some(Skimmed { text, stat, is_whole: false }));
        }
    }
    Err(Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep replacing \
         it",
    )
    .at(key))
}

/// Returns the value without copies, `None` if it has changed meanwhile.
fn skim(store: &Store, key: &Key, stat: &Stat) -> Result<Option<Vec<u8>>> {
    let (mut skim, mut offset) = (Skim::default(), 0);
    while offset < stat.len {
        let range = ByteRange::Span { offset, len: STEP };
        let mut found = store.read().get_partial_values(&[(key.clone(), range)])?;
        let Some(value) = found.pop().flatten() else { return Ok(None) };
        if !stat.version.is_same(value.stat.version) || value.bytes.is_empty() {
            return Ok(None);
        }
        skim.push(&value.bytes).map_err(|error| error.at(key))?;
        offset = offset.saturating_add(value.bytes.len().to_u64());
    }
    Ok(Some(skim.text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use zarrfs_store::Condition;
    use zarrfs_store::memory::MemoryStore;

    fn skimmed(text: &str) -> String {
        let mut skim = Skim::default();
        skim.push(text.as_bytes()).expect("short");
        String::from_utf8(skim.text).expect("UTF-8")
    }

    #[test]
    fn only_copies_are_skipped() {
        for (text, expected) in [
            (
                r#"{"a": 1, "consolidated_metadata": {"kind": "inline", "metadata": {"b": {"c": "}"}}}, "d": {}}"#,
                r#"{"a": 1, "consolidated_metadata": {"kind": "inline", "metadata": {}}, "d": {}}"#,
            ),
            (
                r#"{"consolidated_metadata":{"metadata":{"\"":[{}]},"kind":"inline"}}"#,
                r#"{"consolidated_metadata":{"metadata":{},"kind":"inline"}}"#,
            ),
            // A member of this name elsewhere is kept.
            (r#"{"metadata": {"a": 1}, "attributes": {"metadata": {"b": 1}}}"#, ""),
            (r#"{"attributes": {"consolidated_metadata": {"metadata": {"b": 1}}}}"#, ""),
            (
                r#"{"consolidated_metadata": {"x": {"metadata": {"b": 1}}, "metadata": [{"c": 1}]}}"#,
                "",
            ),
            (
                r#"{"consolidated_metadata": {"metadata": "x", "y": {"z": 1}}, "metadata": {"a": 1}}"#,
                "",
            ),
            (r#"{"x": "consolidated_metadata", "y": {"metadata": {"b": 1}}}"#, ""),
            (r#"{"consolidated_metadata": null, "attributes": {"metadata": {"b": 1}}}"#, ""),
        ] {
            let expected = if expected.is_empty() { text } else { expected };
            assert_eq!(skimmed(text), expected);
        }
    }

    #[test]
    fn a_long_file_is_read_without_its_copies_and_without_end_not_at_all() {
        let store = Store::new(Arc::new(MemoryStore::default()));
        let key = Key::parse("zarr.json").expect("a key");
        let put = |text: String| {
            let write = store.write().expect("writable");
            write.set(&key, &[bytes::Bytes::from(text).into()], Condition::Always).expect("set");
        };
        let copies = "x".repeat(usize::try_from(limits::METADATA.get()).expect("fits"));
        put(format!(r#"{{"consolidated_metadata": {{"metadata": {{"a": "{copies}"}}}}, "b": 1}}"#));
        let found = get(&store, &key).expect("read").expect("there");
        assert!(!found.is_whole && found.stat.len > limits::METADATA.get());
        assert_eq!(found.text, br#"{"consolidated_metadata": {"metadata": {}}, "b": 1}"#);
        put(format!(r#"{{"attributes": {{"metadata": {{"a": "{copies}"}}}}, "b": 1}}"#));
        assert_eq!(get(&store, &key).expect_err("too long").kind(), Kind::TooLarge);
    }
}
