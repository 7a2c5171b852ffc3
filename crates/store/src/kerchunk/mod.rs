//! References as kerchunk and `VirtualiZarr` write them and fsspec reads them: a read-only store
//! ([`open`]). They are a JSON file, or a directory with Parquet files: see `parquet`.
//!
//! ```text
//! version 0   {KEY: VALUE, ...}
//! version 1   {"version": 1, "templates": {NAME: TEXT}, "gen": [...], "refs": {KEY: VALUE, ...}}
//! VALUE       "text" | "base64:..." | {JSON} | [URL] | [URL, OFFSET, LENGTH]
//! ```
//!
//! Such files have hundreds of megabytes. They are read in blocks and never parsed as a whole:
//! `Lexer` returns one token after the other, and each reference goes into the compact
//! `ReferenceTable`. `templates` has the places in URLs that are replaced, and `generate` makes the
//! references of `gen`.

mod expression;
mod generate;
mod lexer;
#[cfg(feature = "parquet")]
mod parquet;
mod templates;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::refs::table::{Added, Builder, ReferenceTable};
use super::refs::{RefStore, SourceStores};
use super::{ByteRange, Key, Prefix, Store, Value};
use generate::Generator;
use lexer::{FileBlocks, Lexer};
use templates::Templates;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::width::ToU64;

/// How many bytes of the file are read at a time.
const BLOCK_LEN: u64 = 4 << 20;

/// The name of the metadata of references in Parquet files.
const METADATA: &str = ".zmetadata";

/// Returns the store of the references below `base` in `own`: in the JSON file at `place`, or in
/// the Parquet files of this directory. They may lead to `places`, and take about `most` bytes of
/// memory. Also returns errors of locations that are in none of the places, at most a few; those in
/// Parquet files are not known yet.
pub fn open(
    own: &Store,
    place: &Prefix,
    base: Prefix,
    places: SourceStores,
    most: u64,
) -> Result<(Store, Vec<Error>)> {
    match place.as_key() {
        Some(key) if !is_directory(own, place)? => {
            let table = read(own, &key, most)?;
            let refused = places.refused(table.locations());
            Ok((RefStore::open(table, places, base), refused))
        }
        _ => Ok((open_parquet(own, place, base, places, most)?, Vec::new())),
    }
}

/// Whether a place is a directory with Parquet files. That of a file `.json` is not looked for.
fn is_directory(own: &Store, place: &Prefix) -> Result<bool> {
    let name = place.as_str().trim_end_matches('/').as_bytes();
    let is_json = name.last_chunk::<5>().is_some_and(|end| end.eq_ignore_ascii_case(b".json"));
    if is_json {
        return Ok(false);
    }
    Ok(own.stat(&place.key(METADATA)?)?.is_some())
}

#[cfg(feature = "parquet")]
fn open_parquet(
    own: &Store,
    place: &Prefix,
    base: Prefix,
    places: SourceStores,
    most: u64,
) -> Result<Store> {
    parquet::open(own, place.clone(), base, places, most)
}

#[cfg(not(feature = "parquet"))]
fn open_parquet(
    _own: &Store,
    _place: &Prefix,
    _base: Prefix,
    _places: SourceStores,
    _most: u64,
) -> Result<Store> {
    Err(Error::unsupported(
        "references of kerchunk in Parquet files, and this zarrfs was built without the feature \
         `parquet`; write them as one JSON file, and name that",
    ))
}

/// Reads the references in a file.
fn read(own: &Store, key: &Key, most: u64) -> Result<ReferenceTable> {
    let (file, found) = StoredFile::open(own, key)?;
    let modified = found.stat.modified;
    let mut parser = ReferencesParser { lexer: Lexer::new(file), builder: Builder::new(most) };
    parser.read().at(key)?;
    parser.builder.build(modified)
}

/// A value that is read in blocks.
#[derive(Debug)]
struct StoredFile<'s> {
    store: &'s Store,
    key: &'s Key,
    first: Value,
    offset: u64,
}

impl<'s> StoredFile<'s> {
    fn open(store: &'s Store, key: &'s Key) -> Result<(Self, Value)> {
        let range = ByteRange::first(BLOCK_LEN);
        let first = store.read().get_partial_values(&[(key.clone(), range)])?.pop().flatten();
        let first = first.ok_or_else(Error::not_found).at(key)?;
        Ok((Self { store, key, first: first.clone(), offset: 0 }, first))
    }
}

impl FileBlocks for StoredFile<'_> {
    fn next(&mut self) -> Result<Bytes> {
        let block = if self.offset == 0 {
            self.first.bytes.clone()
        } else if self.offset >= self.first.stat.len {
            return Ok(Bytes::new());
        } else {
            let range = ByteRange::Span { offset: self.offset, len: BLOCK_LEN };
            let found = self.store.read().get_partial_values(&[(self.key.clone(), range)])?;
            let version = self.first.stat.version;
            match found.into_iter().next().flatten() {
                Some(value) if version.is_same(value.stat.version) => value.bytes,
                _ => return Err(Error::new(Kind::Stale, "changed while it was read; try again")),
            }
        };
        let len = block.len().to_u64();
        self.offset = self.offset.saturating_add(len);
        Ok(block)
    }
}

/// Reads the references of a file into a table.
#[derive(Debug)]
struct ReferencesParser<B> {
    lexer: Lexer<B>,
    builder: Builder,
}

/// The members of the outermost object that were read so far.
#[derive(Debug, Default)]
struct MembersRead {
    version: Option<u64>,
    templates: Templates,
    generators: Vec<Generator>,
    has_refs: bool,
    /// The key of a reference that lies beside them.
    beside: Option<String>,
}

impl<B: FileBlocks> ReferencesParser<B> {
    fn read(&mut self) -> Result<()> {
        if self.lexer.peek()? != Some(b'{') {
            return Err(Error::invalid("not kerchunk references: it is not a JSON object"));
        }
        let mut seen = MembersRead::default();
        self.lexer.begin(b'{')?;
        let mut is_first = true;
        while self.lexer.has_next(b'}', &mut is_first)? {
            let key = self.lexer.key()?.to_owned();
            self.member(&key, &mut seen)?;
        }
        self.lexer.end()?;
        match seen {
            MembersRead {
                version: Some(1),
                has_refs: true,
                beside: None,
                templates,
                generators,
            } => {
                if !templates.is_empty() {
                    self.builder.change_locations(|location| templates.render(location))?;
                }
                generators.iter().try_for_each(|it| it.make(&templates, &mut self.builder))
            }
            MembersRead { version: None, has_refs: false, .. } => Ok(()),
            MembersRead { version: Some(1), beside: Some(key), .. } => {
                Err(Error::corrupt(format!("unknown member {key:?} beside `refs`")))
            }
            MembersRead { version: Some(1), has_refs: false, .. } => {
                Err(Error::corrupt("it has no member `refs`"))
            }
            MembersRead { version: Some(0), .. } => Err(Error::corrupt(
                "`version` is 0, but references of version 0 have no member `version`: they are \
                 the only members",
            )),
            MembersRead { version: Some(other), .. } => Err(Error::unsupported(format!(
                "version {other} of kerchunk references; zarrfs reads version 1, and those without \
                 a version"
            ))),
            MembersRead { version: None, .. } => {
                Err(Error::corrupt("it has `refs` but no `version`"))
            }
        }
    }

    /// Reads the value of a member of the outermost object.
    fn member(&mut self, key: &str, seen: &mut MembersRead) -> Result<()> {
        let first = self.lexer.peek()?;
        match (key, first) {
            ("version", Some(b'0'..=b'9')) => seen.version = Some(self.lexer.number()?),
            ("refs", Some(b'{')) => {
                seen.has_refs = true;
                self.references()?;
            }
            // Without a version, this could be the key of a reference.
            ("refs", _) if seen.version == Some(1) => {
                return Err(Error::corrupt("`refs` is not an object"));
            }
            ("templates", Some(b'{')) => {
                self.lexer.begin(b'{')?;
                let mut is_first = true;
                while self.lexer.has_next(b'}', &mut is_first)? {
                    let name = self.lexer.key()?.to_owned();
                    seen.templates.add(name, self.lexer.string()?)?;
                }
            }
            ("gen", Some(b'[')) => seen.generators = Generator::parse_all(self.lexer.raw()?)?,
            _ => {
                seen.beside.get_or_insert_with(|| key.to_owned());
                self.reference(key)?;
            }
        }
        Ok(())
    }

    fn references(&mut self) -> Result<()> {
        self.lexer.begin(b'{')?;
        let (mut is_first, mut key) = (true, String::new());
        while self.lexer.has_next(b'}', &mut is_first)? {
            key.clear();
            key.push_str(self.lexer.key()?);
            self.reference(&key)?;
        }
        Ok(())
    }

    /// Reads the value of a reference, and adds it.
    fn reference(&mut self, key: &str) -> Result<()> {
        match self.lexer.peek()? {
            Some(b'"') => {
                let text = self.lexer.string()?;
                let bytes = inline(text).at(key)?;
                self.builder.add(key, Added::Inline(bytes))
            }
            Some(b'{') => {
                // Not checked: Python writes and reads `NaN`, as metadata files have it.
                let text = Bytes::copy_from_slice(self.lexer.bracketed()?);
                self.builder.add(key, Added::Inline(text))
            }
            Some(b'[') => self.place(key).at(key),
            _ => Err(Error::corrupt("a reference is a string, an object or a list").at(key)),
        }
    }

    /// Reads `[URL]` or `[URL, OFFSET, LENGTH]`.
    fn place(&mut self, key: &str) -> Result<()> {
        let wrong = || Error::corrupt("expected [URL] or [URL, OFFSET, LENGTH] as a reference");
        self.lexer.begin(b'[')?;
        let mut is_first = true;
        if !self.lexer.has_next(b']', &mut is_first)? {
            return Err(wrong());
        }
        match self.lexer.peek()? {
            Some(b'"') => {}
            Some(b'n') => {
                return Err(Error::unsupported(
                    "the reference has no URL; zarrfs has no option for the file that it means",
                ));
            }
            _ => return Err(Error::corrupt("the URL of the reference is not a string")),
        }
        let location = self.lexer.string()?.to_owned();
        if !self.lexer.has_next(b']', &mut is_first)? {
            return self.builder.add(key, Added::Whole { location: &location });
        }
        let offset = self.lexer.number()?;
        if !self.lexer.has_next(b']', &mut is_first)? {
            return Err(wrong());
        }
        let len = self.lexer.number()?;
        if self.lexer.has_next(b']', &mut is_first)? {
            return Err(wrong());
        }
        self.builder.add(key, Added::Part { location: &location, offset, len })
    }
}

/// Returns the bytes of a value that is a string.
fn inline(text: &str) -> Result<Bytes> {
    match text.strip_prefix("base64:") {
        Some(encoded) => match STANDARD.decode(encoded.trim_end()) {
            Ok(bytes) => Ok(bytes.into()),
            Err(error) => Err(Error::corrupt(format!("base64: {error}"))),
        },
        None => Ok(Bytes::copy_from_slice(text.as_bytes())),
    }
}

#[cfg(test)]
mod tests;
