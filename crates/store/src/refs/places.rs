//! The stores that references may lead to, and the locations in them.
//!
//! References come from anyone, so a location is read only below a prefix that the user has
//! allowed. A location is a path, or a URL: `/data/a.nc`, `file:///data/a.nc`, `s3://bucket/a.nc`,
//! or a path that begins at the references themselves, `a.nc` or `../nc/a.nc`. Before anything is
//! compared, each is brought into one spelling, without `.` and `..`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use super::ReferencedValue;
use crate::{Key, Store};
use zarrfs_base::error::{Error, Kind, Result};

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
pub struct SourceStores {
    /// The first one has the references, or the repository.
    stores: Vec<Store>,
    /// Prefixes of locations without a slash at the end, with the indices of their stores. The
    /// longest is the first.
    allowed: Vec<(String, usize)>,
    /// The place of the references themselves, to which relative locations belong.
    own: Option<String>,
    spelling: Spelling,
    /// The command that the user typed, to which an option can be added.
    command: String,
}

impl SourceStores {
    /// Returns a single place: the store that the references came from.
    pub fn new(own: Store, spelling: Spelling) -> Self {
        let command = "the command".to_owned();
        Self { stores: vec![own], allowed: Vec::new(), own: None, spelling, command }
    }

    /// Sets the command that errors tell the user to type with another option.
    pub fn name_command(&mut self, command: String) {
        self.command = command;
    }

    /// Allows locations below each of `prefixes`, which are in `store`.
    pub fn allow<'p>(&mut self, prefixes: impl IntoIterator<Item = &'p str>, store: Store) {
        let index = self.stores.len();
        self.stores.push(store);
        self.add(prefixes, index);
    }

    /// Allows locations below `prefixes`, which are the place of the references themselves.
    /// Relative locations begin at the first one.
    pub fn allow_own<'p>(&mut self, prefixes: impl IntoIterator<Item = &'p str>) {
        let prefixes: Vec<&str> = prefixes.into_iter().collect();
        self.own = prefixes.first().map(|own| normal_plain(own));
        self.add(prefixes, 0);
    }

    fn add<'p>(&mut self, prefixes: impl IntoIterator<Item = &'p str>, index: usize) {
        for prefix in prefixes {
            let Some(whole) = self.absolute(&normal_plain(prefix)) else { continue };
            self.allowed.push((whole.trim_end_matches('/').to_owned(), index));
        }
        // A place that the user has named comes before that of the references.
        self.allowed.sort_by_key(|(prefix, index)| Reverse((prefix.len(), *index)));
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
    pub(super) fn find(&self, location: &ReferencedValue) -> Result<(usize, Key)> {
        match location {
            ReferencedValue::Own(key) => Ok((0, key.clone())),
            ReferencedValue::Other(location) => self.find_other(location),
        }
    }

    /// Returns the store of a location with its index, and the key in it, as for a reference.
    ///
    /// # Errors
    ///
    /// The user has not allowed it, and it is not below the references.
    pub fn locate(&self, location: &str) -> Result<(usize, Store, Key)> {
        let (index, key) = self.find_other(location)?;
        let store = self.store(index).ok_or_else(Error::not_found)?;
        Ok((index, store.clone(), key))
    }

    fn find_other(&self, location: &str) -> Result<(usize, Key)> {
        let whole = match self.spelling {
            Spelling::Plain => normal_plain(location),
            Spelling::Encoded => normal(&decoded(location)),
        };
        let whole = self.absolute(&whole).unwrap_or(whole);
        for (prefix, store) in &self.allowed {
            let below = whole.strip_prefix(prefix.as_str()).and_then(|it| it.strip_prefix('/'));
            if let Some(below) = below {
                return Ok((*store, key(location, below)?));
            }
        }
        if is_relative(&whole) {
            return Ok((0, key(location, &whole)?));
        }
        let (command, option) = (&self.command, remedy(&whole));
        Err(refused(location, &format!("if it may be read, type `{command} {option}`")))
    }

    /// Returns a normal location as one from the root on: a relative one begins at the references.
    /// `None` if it is not known where these are.
    fn absolute(&self, location: &str) -> Option<String> {
        if !is_relative(location) {
            return Some(location.to_owned());
        }
        let own = self.own.as_ref()?;
        let path_at = own.find("://").map_or(0, |at| {
            let host_at = at.saturating_add(3);
            let path = own.get(host_at..).and_then(|rest| rest.find('/'));
            path.map_or(own.len(), |path| host_at.saturating_add(path))
        });
        let (root, path) = own.split_at_checked(path_at)?;
        Some(format!("{root}{}", resolved(&format!("{path}/{location}"))))
    }
}

/// Whether a location begins at the references themselves.
fn is_relative(location: &str) -> bool {
    !location.contains("://") && !location.starts_with('/')
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
            // URL is that of the container.
            return format!("--allow-virtual vcc://{name}=URL");
        }
        Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or(rest)),
        None => match location.rsplit_once('/') {
            Some(("", _)) | None => "/".to_owned(),
            Some((above, _)) => above.to_owned(),
        },
    };
    format!("--allow-virtual {prefix}")
}

/// Returns a location in one of its spellings: a path without `file://`, or a URL with its scheme
/// in lower case. Paths, and those of web servers, are without empty names, `.` and `..`; a name of
/// an object may have such parts.
fn normal(location: &str) -> String {
    let (scheme, rest) = match location.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => (String::new(), location),
    };
    match scheme.as_str() {
        "" => resolved(rest),
        "file" | "local" => match rest.strip_prefix("localhost/") {
            Some(path) => resolved(&format!("/{path}")),
            None => resolved(rest),
        },
        "http" | "https" => {
            let (host, path) =
                rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""));
            let path = if path.is_empty() { String::new() } else { resolved(path) };
            format!("{scheme}://{host}{path}")
        }
        "gcs" => format!("gs://{rest}"),
        _ => format!("{scheme}://{rest}"),
    }
}

/// Returns a location in one of its spellings. The URL of a web server has escapes everywhere, and
/// is without them.
fn normal_plain(location: &str) -> String {
    let is_web = location.split_once("://").is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    });
    if is_web { normal(&decoded(location)) } else { normal(location) }
}

/// Returns a path without empty names, `.` and `..`, as far as these have a name before them. An
/// absolute one leads nowhere above the root.
fn resolved(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match (name, names.last()) {
            ("" | ".", _) => {}
            ("..", Some(last)) if *last != ".." => drop(names.pop()),
            ("..", None) if is_absolute => {}
            (name, _) => names.push(name),
        }
    }
    let lead = if is_absolute { "/" } else { "" };
    format!("{lead}{}", names.join("/"))
}

/// Returns a location with its escapes decoded. A location that is not UTF-8 then is left as it is.
fn decoded(location: &str) -> String {
    let decoded = percent_decode_str(location).decode_utf8();
    decoded.map_or_else(|_| location.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use std::sync::Arc;

    fn store() -> Store {
        Store::new(Arc::new(MemoryStore::new()))
    }

    fn places(spelling: Spelling) -> SourceStores {
        let mut places = SourceStores::new(store(), spelling);
        places.allow_own(["/data/refs"]);
        places.allow(["s3://bucket/era5/", "s3://mirror"], store());
        places.allow(["file:///data/nc", "/mnt/nc"], store());
        places
    }

    fn find(places: &SourceStores, location: &str) -> Option<(usize, String)> {
        let found = places.find(&ReferencedValue::Other(location.into()));
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
        assert_eq!(find(&places, "file://localhost/data/nc/a.nc"), some(2, "a.nc"));
        // Each spelling of a path leads to the same file.
        assert_eq!(find(&places, "b/../a.nc"), some(0, "a.nc"));
        assert_eq!(find(&places, "../refs/a.nc"), some(0, "a.nc"));
        assert_eq!(find(&places, "../nc/./b//a.nc"), some(2, "b/a.nc"));
        assert_eq!(find(&places, "/data/nc/../refs/a.nc"), some(0, "a.nc"));
        assert_eq!(find(&places, "/../../data/nc/a.nc"), some(2, "a.nc"));
    }

    #[test]
    fn escapes_of_web_servers_are_decoded_in_locations_and_in_prefixes() {
        for spelling in [Spelling::Plain, Spelling::Encoded] {
            let mut places = SourceStores::new(store(), spelling);
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
        let mut places = SourceStores::new(store(), Spelling::Plain);
        places.allow([".", "", "/data"], store());
        assert_eq!(find(&places, "/etc/passwd"), None);
        places.allow(["/"], store());
        assert_eq!(find(&places, "/etc/passwd"), Some((2, "etc/passwd".to_owned())));
        assert_eq!(find(&places, "/data/a.nc"), Some((1, "a.nc".to_owned())));
    }

    #[test]
    fn relative_prefixes_begin_at_the_references() {
        let mut places = SourceStores::new(store(), Spelling::Plain);
        places.allow_own(["/data/refs"]);
        places.allow(["..", "sub/../nc"], store());
        let some = |store, key: &str| Some((store, key.to_owned()));
        assert_eq!(find(&places, "../a.nc"), some(1, "a.nc"));
        assert_eq!(find(&places, "nc/a.nc"), some(1, "a.nc"));
        assert_eq!(find(&places, "nc/../../a.nc"), some(1, "a.nc"));
        assert_eq!(find(&places, "b.nc"), some(0, "b.nc"));
        assert_eq!(find(&places, "../../b.nc"), None);
        let mut remote = SourceStores::new(store(), Spelling::Plain);
        remote.allow_own(["https://host/data/refs"]);
        remote.allow(["https://host/data"], store());
        assert_eq!(find(&remote, "../a.nc"), some(1, "a.nc"));
        assert_eq!(find(&remote, "../../../other/a.nc"), None, "nor above the host");
        let mut bucket = SourceStores::new(store(), Spelling::Plain);
        bucket.allow_own(["s3://bucket/refs"]);
        assert_eq!(find(&bucket, "a.nc"), some(0, "a.nc"));
        assert_eq!(find(&bucket, "./b/../a.nc"), some(0, "a.nc"));
        assert_eq!(find(&bucket, "../a.nc"), None);
        bucket.allow(["s3://bucket"], store());
        assert_eq!(find(&bucket, "../nc/a.nc"), some(1, "nc/a.nc"));
    }

    #[test]
    fn an_error_names_the_option() {
        let said = |location: &str| {
            let found = places(Spelling::Plain).find(&ReferencedValue::Other(location.into()));
            found.expect_err("refused").to_string()
        };
        assert!(said("s3://noaa/x/a.nc").ends_with("`the command --allow-virtual s3://noaa`"));
        assert!(said("/tmp/x/a.nc").ends_with("`the command --allow-virtual /tmp/x`"));
        assert!(said("../a.nc").ends_with("--allow-virtual /data`"));
        let mut places = places(Spelling::Plain);
        places.name_command("zarrfs check r.json".to_owned());
        let said =
            places.find(&ReferencedValue::Other("/a.nc".into())).expect_err("refused").to_string();
        assert!(said.ends_with("type `zarrfs check r.json --allow-virtual /`"), "{said}");
    }
}
