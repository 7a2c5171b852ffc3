//! Detects the dialect of a store.
//!
//! The `zarr_format` in the entry point `zarr.json` decides before any other file beside it,
//! because zarr-python 2 adds a stray `.zgroup` to drafts, and a v3 hierarchy may have groups
//! called `meta` and `data`.

use std::collections::VecDeque;

use serde_json::Value;

use super::dialect::Dialect;
use super::era::Era;
use super::members::check_extensions;
use super::{skim, v3};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_codec::dtype::integer;
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe};
use zarrfs_store::{ByteRange, Expected, Key, Prefix, Store, StoreEntry};

/// The most names to search for a first node if the root has no metadata file.
const MAX_ENTRIES: usize = 10_000;

/// The longest valid suffix of metadata files.
const MAX_SUFFIX_LEN: usize = 64;

/// The kind of a `zarr.json` at the root.
enum EntryPoint {
    V3,
    /// The draft of February 2023, which names nodes by URIs.
    Uris,
    /// The draft of June 2019.
    Early,
    /// The draft of October 2020.
    Suffix(String),
    /// The draft of September 2020. It has no suffix, but zarrita wrote one.
    NoSuffix,
    /// The drafts of November and December 2022, which differ in where metadata files lie.
    Late2022(String),
}

/// Detects the dialect of the hierarchy in `store`. An error is a sentence for the user.
///
/// [`Kind::NotFound`] means that the store is empty, [`Kind::Invalid`] that it is not a hierarchy,
/// [`Kind::Unsupported`] that the dialect is unknown, and [`Kind::Corrupt`] that the entry point is
/// damaged.
pub fn detect(store: &Store) -> Result<Dialect> {
    declared(store)?.map_or_else(|| search(store), Ok)
}

/// Returns the dialect of the hierarchy in `store` if its root has a metadata file, `None` if only
/// nodes below it could tell.
pub fn declared(store: &Store) -> Result<Option<Dialect>> {
    let entry = Key::parse(v3::DOCUMENT)?;
    let _expected =
        store.read().expect(&[(entry.clone(), ByteRange::first(limits::METADATA.get()))]);
    if let Some(found) = skim::get(store, &entry)? {
        let text = skim::without_copies(&found.text);
        return Ok(Some(match entry_point(&text).at(&entry)? {
            EntryPoint::V3 => Dialect::V3,
            EntryPoint::Uris => Dialect::D2023_02,
            EntryPoint::Early => Dialect::draft(Era::D2019_06, ""),
            EntryPoint::Suffix(suffix) => Dialect::draft(Era::D2020_10, &suffix),
            EntryPoint::NoSuffix => Dialect::draft(Era::D2020_09, &suffix_in_use(store)?),
            EntryPoint::Late2022(suffix) if has_meta_root(store, &suffix)? => {
                Dialect::draft(Era::D2022_11, &suffix)
            }
            EntryPoint::Late2022(suffix) => Dialect::draft(Era::D2022_12, &suffix),
        }));
    }
    let _expected = expect_entry_points(store)?;
    let has = |names: &[&str]| -> Result<bool> {
        let keys: Vec<Key> = names.iter().map(|name| Key::parse(name)).collect::<Result<_>>()?;
        Ok(store.read().stat(&keys)?.iter().any(Option::is_some))
    };
    if has(&[".zarray", ".zgroup", ".zattrs", ".zmetadata"])? {
        return Ok(Some(Dialect::V2));
    }
    if is_n5(store, &Prefix::root())? {
        return Ok(Some(Dialect::N5));
    }
    let may_2019 = ["root.group.json", "root.array.json"].iter().find_map(|name| {
        states_format(store, &Prefix::root(), name).map(|says| says.then_some(())).transpose()
    });
    if may_2019.transpose()?.is_some() {
        return Ok(Some(Dialect::draft(Era::D2019_05, ".json")));
    }
    Ok(None)
}

/// Has the store bring what tells the dialect of a root without `zarr.json`.
fn expect_entry_points(store: &Store) -> Result<Expected> {
    let names = [
        ".zarray",
        ".zgroup",
        ".zattrs",
        ".zmetadata",
        "attributes.json",
        "root.group.json",
        "root.array.json",
    ];
    let range = ByteRange::first(limits::METADATA.get());
    let ranges: Result<Vec<_>> = names.iter().map(|name| Ok((Key::parse(name)?, range))).collect();
    Ok(store.read().expect(&ranges?))
}

/// Returns the draft if `zarr_json` is the entry point of one. Paths to directories inside such a
/// hierarchy cannot be opened; a user must name its root.
pub fn draft_root_marker(zarr_json: &[u8]) -> Option<Dialect> {
    match entry_point(zarr_json).ok()? {
        EntryPoint::V3 | EntryPoint::Uris => None,
        EntryPoint::Early => Some(Dialect::draft(Era::D2019_06, "")),
        EntryPoint::Suffix(suffix) => Some(Dialect::draft(Era::D2020_10, &suffix)),
        EntryPoint::Late2022(suffix) => Some(Dialect::draft(Era::D2022_12, &suffix)),
        EntryPoint::NoSuffix => Some(Dialect::draft(Era::D2020_09, "")),
    }
}

/// Whether a `zarr.json` is JSON and states any version of Zarr.
pub fn states_version(zarr_json: &[u8]) -> bool {
    json::parse_object(zarr_json).is_ok_and(|members| members.contains_key("zarr_format"))
}

fn entry_point(text: &[u8]) -> Result<EntryPoint> {
    let document = json::parse_object(text)?;
    let format = document.get("zarr_format").unwrap_or(&Value::Null);
    if let Some(number) = format.as_number() {
        return match integer(number.as_str()) {
            Some(3) => Ok(EntryPoint::V3),
            Some(_) | None => Err(Error::unsupported(format!("zarr_format {number} is not known"))),
        };
    }
    let Some(uri) = format.as_str() else {
        return Err(Error::invalid(format!(
            "not Zarr metadata: zarr_format is {}",
            describe(format)
        )));
    };
    if uri.contains("#array") || uri.contains("#group") {
        return Ok(EntryPoint::Uris);
    }
    match core_version(uri) {
        Some(version) if version.split('.').next() == Some("3") => {}
        Some(version) => {
            return Err(Error::unsupported(format!(
                "version {version} of the Zarr core protocol is not supported, only 3"
            )));
        }
        None => return Err(Error::unsupported(format!("zarr_format {uri:?} is not known"))),
    }
    check_extensions(&document)?;
    encoding(&document)
}

/// Returns the version in the URI of the core protocol, in the spellings of 2019 to 2022.
fn core_version(uri: &str) -> Option<&str> {
    let path = uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://"))?;
    let path = path.strip_prefix("purl.org/zarr/spec/")?;
    path.strip_prefix("protocol/").unwrap_or(path).strip_prefix("core/")?.split('/').next()
}

/// Returns the encoding and the suffix of metadata files ("entry point metadata" of the drafts).
fn encoding(document: &Object) -> Result<EntryPoint> {
    let suffix_of = |value: Option<&Value>| match value {
        None => Ok(".json".to_owned()),
        Some(Value::String(suffix))
            if suffix.len() <= MAX_SUFFIX_LEN && !suffix.contains(['/', '\0']) =>
        {
            Ok(suffix.clone())
        }
        Some(other) => Err(Error::unsupported(format!(
            "metadata_key_suffix {} cannot end the name of a file",
            describe(other)
        ))),
    };
    let encoding = document.get("metadata_encoding").unwrap_or(&Value::Null);
    let not_json = || {
        Error::unsupported(format!(
            "metadata_encoding is {}, only JSON is supported",
            describe(encoding)
        ))
    };
    if let Some(members) = encoding.as_object() {
        return match members.get("type").and_then(Value::as_str) {
            Some("json") => suffix_of(members.get("metadata_key_suffix")).map(EntryPoint::Late2022),
            Some(_) | None => Err(not_json()),
        };
    }
    let known =
        encoding.as_str().filter(|uri| *uri == "application/json" || core_version(uri).is_some());
    if known.is_none() && !encoding.is_null() {
        return Err(not_json());
    }
    match document.get("metadata_key_suffix") {
        Some(suffix) => suffix_of(Some(suffix)).map(EntryPoint::Suffix),
        None if known == Some("application/json") => Ok(EntryPoint::Early),
        None => Ok(EntryPoint::NoSuffix),
    }
}

fn has_meta_root(store: &Store, suffix: &str) -> Result<bool> {
    let keys = ["group", "array"].map(|kind| Key::parse(&format!("meta/root.{kind}{suffix}")));
    let keys: Vec<Key> = keys.into_iter().collect::<Result<_>>()?;
    if store.read().stat(&keys)?.iter().any(Option::is_some) {
        return Ok(true);
    }
    let Some(list) = store.list() else {
        return Ok(false);
    };
    Ok(list.list_dir(&Prefix::parse("meta/root/")?)?.next().transpose()?.is_some())
}

/// Returns `.json` if the first metadata file has that suffix, otherwise the empty string.
fn suffix_in_use(store: &Store) -> Result<String> {
    let mut suffix = String::new();
    walk(store, &Prefix::parse("meta/")?, |_, entry| {
        let name = entry.name();
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let is_document = [".array", ".group"].iter().any(|ending| stem.ends_with(ending));
        if matches!(entry, StoreEntry::Prefix(_)) || !is_document {
            return Ok(None);
        }
        if stem != name {
            ".json".clone_into(&mut suffix);
        }
        Ok(Some(()))
    })?;
    Ok(suffix)
}

/// Searches for a first node below a root without a metadata file.
fn search(store: &Store) -> Result<Dialect> {
    let Some(list) = store.list() else {
        return Err(Error::invalid(
            "no zarr.json, .zgroup, .zarray or attributes.json is there, and the server does not \
             list names; check the URL, or name the dialect with --from",
        ));
    };
    let hides_v2 = !list.proves_absence();
    let mut empty = true;
    let found = walk(store, &Prefix::root(), |prefix, entry| {
        empty = false;
        let name = match entry {
            StoreEntry::Key(name) => name,
            StoreEntry::Prefix(name) if hides_v2 => {
                let below = prefix.join(name)?;
                let keys = [below.key(".zgroup")?, below.key(".zarray")?];
                let is_v2 = store.read().stat(&keys)?.iter().any(Option::is_some);
                return Ok(is_v2.then_some(Ok(Dialect::V2)));
            }
            StoreEntry::Prefix(_) => return Ok(None),
        };
        Ok(match name.as_str() {
            v3::DOCUMENT => node_below(store, prefix)?,
            ".zarray" | ".zgroup" => Some(Ok(Dialect::V2)),
            "attributes.json" if is_n5(store, prefix)? => Some(Ok(Dialect::N5)),
            _ if prefix.as_str().starts_with("meta/")
                && (name.ends_with(".array.json") || name.ends_with(".group.json")) =>
            {
                Some(lost_document(store, prefix, name)?)
            }
            _ => None,
        })
    })?;
    match found {
        WalkEnd::Found(dialect) => dialect,
        WalkEnd::End if empty => Err(Error::new(Kind::NotFound, "nothing is stored there")),
        WalkEnd::End => Err(Error::invalid(
            "not a Zarr hierarchy: no zarr.json, .zgroup, .zarray or N5 attributes.json there or below",
        )),
        WalkEnd::Limit => Err(Error::invalid(format!(
            "not a Zarr hierarchy: no metadata file at the root or among {MAX_ENTRIES} names below"
        ))),
    }
}

/// Returns what a `zarr.json` below the root implies for the root.
fn node_below(store: &Store, prefix: &Prefix) -> Result<Option<Result<Dialect>>> {
    let key = prefix.key(v3::DOCUMENT)?;
    let Some(value) = store.get(&key, limits::METADATA.get())? else {
        return Ok(None);
    };
    Ok(match entry_point(&value.bytes) {
        Ok(EntryPoint::V3) => Some(Ok(Dialect::V3)),
        Ok(EntryPoint::Uris) => Some(Ok(Dialect::D2023_02)),
        Ok(_) => Some(Err(Error::invalid(format!(
            "not the root of a hierarchy: the root of a Zarr draft lies below it, in {}",
            prefix.as_str().trim_end_matches('/')
        )))),
        // A damaged metadata file says nothing about its neighbours.
        Err(_) => None,
    })
}

/// Returns the error for a draft's metadata file whose entry point is missing. The draft of May
/// 2019 has no entry point and states the format in each metadata file.
fn lost_document(store: &Store, prefix: &Prefix, name: &str) -> Result<Result<Dialect>> {
    Ok(if states_format(store, prefix, name)? {
        Ok(Dialect::draft(Era::D2019_05, ".json"))
    } else {
        Err(Error::corrupt(
            "metadata files of a Zarr draft, but its entry point zarr.json is \
             missing",
        ))
    })
}

/// Whether a metadata file states its format as a URI, as those of May 2019 do.
fn states_format(store: &Store, prefix: &Prefix, name: &str) -> Result<bool> {
    let value = store.get(&prefix.key(name)?, limits::METADATA.get())?;
    let document = value.and_then(|value| json::parse_object(&value.bytes).ok());
    Ok(document.is_some_and(|found| found.get("zarr_format").is_some_and(Value::is_string)))
}

fn is_n5(store: &Store, prefix: &Prefix) -> Result<bool> {
    let value = store.get(&prefix.key("attributes.json")?, limits::METADATA.get())?;
    let document = value.and_then(|value| json::parse_object(&value.bytes).ok());
    Ok(document.is_some_and(|found| found.contains_key("n5") || found.contains_key("dimensions")))
}

/// The end of a walk.
enum WalkEnd<T> {
    Found(T),
    End,
    Limit,
}

/// Calls `visit` for the entries below `prefix`, upper levels first, until it returns a result.
fn walk<T>(
    store: &Store,
    prefix: &Prefix,
    mut visit: impl FnMut(&Prefix, &StoreEntry) -> Result<Option<T>>,
) -> Result<WalkEnd<T>> {
    let Some(list) = store.list() else {
        return Ok(WalkEnd::End);
    };
    let mut seen = 0;
    let mut prefixes = VecDeque::from([prefix.clone()]);
    while let Some(prefix) = prefixes.pop_front() {
        for entry in list.list_dir(&prefix)? {
            let entry = entry?;
            seen += 1;
            if seen > MAX_ENTRIES {
                return Ok(WalkEnd::Limit);
            }
            if let Some(found) = visit(&prefix, &entry)? {
                return Ok(WalkEnd::Found(found));
            }
            if let StoreEntry::Prefix(name) = &entry {
                prefixes.push_back(prefix.join(name)?);
            }
        }
    }
    Ok(WalkEnd::End)
}

#[cfg(test)]
mod tests;
