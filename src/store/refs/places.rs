//! The stores that references may lead to, and the locations in them.
//!
//! References come from anyone, so a location is read only below a prefix that the user has
//! allowed. A location is a path, or a URL: `/data/a.nc`, `file:///data/a.nc`, `s3://bucket/a.nc`,
//! or a path below the references themselves, `a.nc`.

use std::collections::BTreeMap;

use super::Location;
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Store};

/// The most errors that are reported when references are opened.
const MAX_REFUSED: usize = 4;

/// How the names in a location are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As they are.
    Plain,
    /// As in a URL, with `%20` for a space.
    Encoded,
}

/// The stores that references may lead to.
#[derive(Debug)]
pub struct Places {
    /// The first one has the references, or the repository.
    stores: Vec<Store>,
    /// Prefixes of locations without a slash at the end, with the indices of their stores. The
    /// longest is the first.
    allowed: Vec<(String, usize)>,
    spelling: Spelling,
}

impl Places {
    /// Returns a single place: the store that the references came from.
    pub fn new(own: Store, spelling: Spelling) -> Self {
        Self { stores: vec![own], allowed: Vec::new(), spelling }
    }

    /// Allows locations below each of `prefixes`, which are in `store`.
    pub fn allow<'p>(&mut self, prefixes: impl IntoIterator<Item = &'p str>, store: Store) {
        let index = self.stores.len();
        self.stores.push(store);
        self.add(prefixes, index);
    }

    /// Allows locations below `prefixes`, which are the place of the references themselves.
    pub fn allow_own<'p>(&mut self, prefixes: impl IntoIterator<Item = &'p str>) {
        self.add(prefixes, 0);
    }

    fn add<'p>(&mut self, prefixes: impl IntoIterator<Item = &'p str>, index: usize) {
        for prefix in prefixes {
            let prefix = without_escapes(normal(prefix));
            // The current directory by its relative path. `/` has its slash here.
            if prefix.is_empty() {
                continue;
            }
            self.allowed.push((prefix.trim_end_matches('/').to_owned(), index));
        }
        self.allowed.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    }

    /// Returns all stores.
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter()
    }

    /// Returns a store by the index that `find` returned.
    pub fn store(&self, index: usize) -> Option<&Store> {
        self.stores.get(index)
    }

    /// Returns errors of locations that are in no place, one for each remedy and only a few.
    pub fn refused<'l>(&self, locations: impl Iterator<Item = &'l str>) -> Vec<Error> {
        let mut refused: BTreeMap<String, Error> = BTreeMap::new();
        for location in locations {
            if refused.len() >= MAX_REFUSED {
                break;
            }
            if let Err(error) = self.find_other(location) {
                refused.entry(remedy(&normal(location))).or_insert(error);
            }
        }
        refused.into_values().collect()
    }

    /// Returns the store of a location and the key in it.
    pub(super) fn find(&self, location: &Location) -> Result<(usize, Key)> {
        match location {
            Location::Own(key) => Ok((0, key.clone())),
            Location::Other(location) => self.find_other(location),
        }
    }

    fn find_other(&self, location: &str) -> Result<(usize, Key)> {
        let whole = match self.spelling {
            Spelling::Plain => without_escapes(normal(location)),
            Spelling::Encoded => normal(&decoded(location)),
        };
        if !whole.contains("://") && !whole.starts_with('/') {
            return Ok((0, key(location, &whole)?));
        }
        for (prefix, store) in &self.allowed {
            let below = whole.strip_prefix(prefix.as_str()).and_then(|it| it.strip_prefix('/'));
            if let Some(below) = below {
                return Ok((*store, key(location, below)?));
            }
        }
        Err(refused(location, &format!("if it may be read, mount with {}", remedy(&whole))))
    }
}

/// Returns the key of a path below a prefix, which must not lead out of it.
fn key(location: &str, below: &str) -> Result<Key> {
    let valid = Key::parse(below).ok();
    valid.ok_or_else(|| refused(location, "it has an empty name, `.` or `..` in it"))
}

fn refused(location: &str, why: &str) -> Error {
    Error::new(Kind::Os(libc::EACCES), format!("the reference leads to {location}: {why}"))
}

/// Returns the option that allows a location.
fn remedy(location: &str) -> String {
    let prefix = match location.split_once("://") {
        Some(("vcc", rest)) => {
            let name = rest.split('/').next().unwrap_or(rest);
            return format!("--allow-virtual vcc://{name}=URL, where URL is that of the container");
        }
        Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or(rest)),
        None => location.rsplit_once('/').map_or("/", |(above, _)| above).to_owned(),
    };
    format!("--allow-virtual {prefix}")
}

/// Returns a location in one of its spellings: a path without `file://` and double slashes, or a
/// URL with its scheme in lower case.
fn normal(location: &str) -> String {
    let (scheme, rest) = match location.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => (String::new(), location),
    };
    match scheme.as_str() {
        "" | "file" | "local" => {
            let lead = if rest.starts_with('/') { "/" } else { "" };
            let names = rest.split('/').filter(|name| !name.is_empty() && *name != ".");
            format!("{lead}{}", names.collect::<Vec<&str>>().join("/"))
        }
        "gcs" => format!("gs://{rest}"),
        _ => format!("{scheme}://{rest}"),
    }
}

/// Returns a normal location with the escapes decoded if it is the URL of a web server: those have
/// escapes everywhere.
fn without_escapes(location: String) -> String {
    let is_web = ["http://", "https://"].iter().any(|scheme| location.starts_with(scheme));
    if is_web { decoded(&location) } else { location }
}

/// Returns a location with its escapes decoded. A location that is not UTF-8 then is left as it is.
fn decoded(location: &str) -> String {
    let mut bytes = Vec::with_capacity(location.len());
    let mut rest = location.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = after.split_at_checked(2).filter(|_| *first == b'%');
        let byte = escape.and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            Some((u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?, after))
        });
        let (byte, after) = byte.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| location.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;
    use std::sync::Arc;

    fn store() -> Store {
        Store::new(Arc::new(MemoryStore::new()))
    }

    fn places(spelling: Spelling) -> Places {
        let mut places = Places::new(store(), spelling);
        places.allow_own(["/data/refs"]);
        places.allow(["s3://bucket/era5/", "s3://mirror"], store());
        places.allow(["file:///data/nc", "/mnt/nc"], store());
        places
    }

    fn find(places: &Places, location: &str) -> Option<(usize, String)> {
        let found = places.find(&Location::Other(location.into()));
        let errno = found.as_ref().err().map_or(libc::EACCES, Error::errno);
        assert_eq!(errno, libc::EACCES, "{location}");
        found.ok().map(|(store, key)| (store, key.to_string()))
    }

    #[test]
    fn a_location_is_found_below_an_allowed_prefix() {
        let places = places(Spelling::Plain);
        let some = |store, key: &str| Some((store, key.to_owned()));
        assert_eq!(find(&places, "a.nc"), some(0, "a.nc"));
        assert_eq!(find(&places, "./b/a.nc"), some(0, "b/a.nc"));
        assert_eq!(find(&places, "/data/refs/a.nc"), some(0, "a.nc"));
        assert_eq!(find(&places, "s3://bucket/era5/2020/a.nc"), some(1, "2020/a.nc"));
        assert_eq!(find(&places, "S3://mirror/a%20b"), some(1, "a%20b"));
        assert_eq!(find(&places, "file:///data/nc/a.nc"), some(2, "a.nc"));
        assert_eq!(find(&places, "/data//nc/./a.nc"), some(2, "a.nc"));
        assert_eq!(find(&places, "local:///mnt/nc/a.nc"), some(2, "a.nc"));
    }

    #[test]
    fn escapes_of_web_servers_are_decoded_in_locations_and_in_prefixes() {
        for spelling in [Spelling::Plain, Spelling::Encoded] {
            let mut places = Places::new(store(), spelling);
            places.allow(["https://host/a%20b"], store());
            let some = |key: &str| Some((1, key.to_owned()));
            assert_eq!(find(&places, "https://host/a%20b/c%20d.nc"), some("c d.nc"));
            assert_eq!(find(&places, "HTTPS://host/a b/c d.nc"), some("c d.nc"));
            for location in [
                "https://host/a%20b/%2e%2e/x.nc",
                "https://host/a%20b%2f..%2f..%2fx.nc",
                "https://host/a%20bc/x.nc",
                "https://host/a%2520b/x.nc",
            ] {
                assert_eq!(find(&places, location), None, "{location}");
            }
        }
    }

    #[test]
    fn nothing_else_is_found() {
        for spelling in [Spelling::Plain, Spelling::Encoded] {
            let places = places(spelling);
            for location in [
                "",
                "..",
                "../a.nc",
                "a/../../b",
                "/etc/passwd",
                "file:///etc/passwd",
                "file://etc/../../passwd",
                "/data/ncx/a.nc",
                "/data/nc",
                "/data/nc/../refs/a.nc",
                "/data/nc/..",
                "file:///data/nc/../../etc/passwd",
                "s3://bucket/a.nc",
                "s3://bucket/era5/../a.nc",
                "s3://bucket/era5x/a.nc",
                "s3://bucket/era5//a.nc",
                "s3://other/a.nc",
                "http://bucket/era5/a.nc",
                "https://127.0.0.1/a.nc",
                "vcc://name/a.nc",
            ] {
                assert_eq!(find(&places, location), None, "{location}");
            }
        }
        let encoded = places(Spelling::Encoded);
        assert_eq!(find(&encoded, "file:///data/nc/%2e%2e/%2E%2E/etc/passwd"), None);
        assert_eq!(find(&encoded, "s3://bucket/era5/%2e%2e/a.nc"), None);
        let found = find(&encoded, "file:///data/nc/a%20b%zz.nc");
        assert_eq!(found, Some((2, "a b%zz.nc".to_owned())));
    }

    #[test]
    fn the_current_directory_is_not_the_root() {
        let mut places = Places::new(store(), Spelling::Plain);
        places.allow([".", "", "/data"], store());
        assert_eq!(find(&places, "/etc/passwd"), None);
        places.allow(["/"], store());
        assert_eq!(find(&places, "/etc/passwd"), Some((2, "etc/passwd".to_owned())));
        assert_eq!(find(&places, "/data/a.nc"), Some((1, "a.nc".to_owned())));
    }

    #[test]
    fn an_error_names_the_option() {
        let said = |location: &str| {
            let found = places(Spelling::Plain).find(&Location::Other(location.into()));
            found.expect_err("refused").to_string()
        };
        assert!(said("s3://noaa/x/a.nc").ends_with("mount with --allow-virtual s3://noaa"));
        assert!(said("/tmp/x/a.nc").ends_with("mount with --allow-virtual /tmp/x"));
    }
}
