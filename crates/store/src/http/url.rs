//! URLs of web servers: where a hierarchy is, and where its values are.
//!
//! ```text
//! https://user:password@host/data/x.zarr?token=abc     typed
//! https://host/data/x.zarr/t2m/c/0?token=abc           the value t2m/c/0
//! https://host/data/x.zarr?...                         shown, in tables of mounts and in the log
//! ```

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::Url;
use twox_hash::XxHash3_128;

use crate::{Key, Prefix};
use zarrfs_base::error::{Error, Result};

/// The bytes of a component that are encoded: all but those that mean themselves in every URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Metadata files that users take for the hierarchy.
const METADATA_FILES: [&str; 6] =
    ["zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata", "attributes.json"];

/// A URL below which keys lie.
#[derive(Clone)]
pub(super) struct BaseUrl {
    /// Without a slash at the end, a user and a fragment. It has the query.
    url: Url,
    /// The name and the password.
    pub user: Option<(String, Option<String>)>,
}

impl BaseUrl {
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |why: &dyn std::fmt::Display| Error::invalid(format!("not a URL: {why}"));
        let mut url = Url::parse(text).map_err(|error| invalid(&error))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid(&"expected http:// or https://"));
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = (!url.username().is_empty() || url.password().is_some())
            .then(|| (decoded(url.username()), url.password().map(decoded)));
        // A URL with a host takes all of these.
        let _never = url.set_username("").and_then(|()| url.set_password(None));
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/').to_owned();
        let name = path.rsplit('/').next().unwrap_or_default();
        if METADATA_FILES.contains(&name) {
            let above = path.strip_suffix(name).unwrap_or_default().trim_end_matches('/');
            url.set_path(above);
            return Err(Error::invalid(format!(
                "this is a metadata file; name the group or array that it describes: {}",
                shown(url.as_str())
            )));
        }
        url.set_path(&path);
        Ok(Self { url, user })
    }

    /// Returns the URL of a value.
    pub fn of_key(&self, key: &Key) -> Url {
        self.below(key.as_str())
    }

    /// Returns the URL of a directory, which ends with a slash.
    pub fn of_prefix(&self, prefix: &Prefix) -> Url {
        if prefix.is_root() { self.below("") } else { self.below(prefix.as_str()) }
    }

    /// Returns what tells the values below this URL from all others: the URL with its query, the
    /// user, and the headers that are sent, but for the one that only proves who asks. What may be
    /// secret is hashed, since the disk cache stores it.
    pub fn identity(&self, headers: &[(String, String)]) -> String {
        let root = self.below("");
        let mut identity = format!("{}{}", root.origin().ascii_serialization(), root.path());
        let mut asked = Vec::new();
        asked.extend(root.query().map(|query| format!("?{query}")));
        asked.extend(self.user.as_ref().map(|(name, _)| format!("@{name}")));
        let others = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        asked.extend(others.map(|(name, value)| format!("{}: {value}", name.to_lowercase())));
        if !asked.is_empty() {
            let digest = XxHash3_128::oneshot(asked.join("\n").as_bytes());
            identity = format!("{identity}?{digest:032x}/");
        }
        identity
    }

    /// Whether a URL is on the same server, so that it may get credentials.
    pub fn is_same_server(&self, other: &Url) -> bool {
        self.url.origin() == other.origin()
    }

    /// Returns the name of the server.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    fn below(&self, path: &str) -> Url {
        let names: Vec<String> =
            path.split('/').map(|name| utf8_percent_encode(name, ENCODED).to_string()).collect();
        let mut url = self.url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{}", names.join("/")));
        url
    }
}

impl std::fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(self.url.as_str()))
    }
}

/// Whether two URLs are on the same server.
pub fn are_on_one_server(one: &str, other: &str) -> bool {
    match (Url::parse(one), Url::parse(other)) {
        (Ok(one), Ok(other)) => {
            matches!(one.scheme(), "http" | "https") && one.origin() == other.origin()
        }
        _ => false,
    }
}

/// Returns a name in a URL with its escapes decoded; `None` if it then is not UTF-8.
pub fn decoded(name: &str) -> Option<String> {
    percent_decode_str(name).decode_utf8().ok().map(Into::into)
}

/// Returns a URL without what may be secret: the user and the query.
pub fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, fragment)) => (rest, format!("#{fragment}")),
        None => (rest, String::new()),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?..."),
        None => (rest, ""),
    };
    let (host, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}{query}{fragment}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> BaseUrl {
        BaseUrl::parse(text).expect("a URL")
    }

    #[test]
    fn keys_are_encoded_and_the_query_stays() {
        let base = base("https://me:p%40ss@host/data/x%20y.zarr/?token=a%2Fb#g");
        let key = Key::parse("a b/c/0#1?ü%").expect("a key");
        assert_eq!(
            base.of_key(&key).as_str(),
            "https://host/data/x%20y.zarr/a%20b/c/0%231%3F%C3%BC%25?token=a%2Fb"
        );
        assert_eq!(base.user, Some(("me".to_owned(), Some("p@ss".to_owned()))));
        let root = base.of_prefix(&Prefix::root());
        assert_eq!(root.as_str(), "https://host/data/x%20y.zarr/?token=a%2Fb");
        let prefix = Prefix::parse("a/c").expect("a prefix");
        assert_eq!(base.of_prefix(&prefix).path(), "/data/x%20y.zarr/a/c/");
        assert_eq!(format!("{base:?}"), "https://host/data/x%20y.zarr?...");
    }

    #[test]
    fn a_url_without_a_path_is_the_root_of_the_server() {
        for text in ["http://host:81", "http://host:81/"] {
            let key = Key::parse("zarr.json").expect("a key");
            assert_eq!(base(text).of_key(&key).as_str(), "http://host:81/zarr.json");
            assert_eq!(base(text).of_prefix(&Prefix::root()).as_str(), "http://host:81/");
        }
    }

    #[test]
    fn the_url_of_a_metadata_file_is_refused_with_that_of_its_node() {
        let error = BaseUrl::parse("https://host/x.zarr/.zmetadata").expect_err("refused");
        assert!(error.detail().ends_with("describes: https://host/x.zarr"), "{error}");
        assert!(BaseUrl::parse("ftp://host/x").is_err() && BaseUrl::parse("https://").is_err());
    }

    #[test]
    fn a_server_is_a_scheme_a_name_and_a_port() {
        assert!(are_on_one_server("https://h/a?t=1", "https://u:p@H:443/b/"));
        for other in ["http://h/a", "https://h:444/a", "https://h.org/a", "s3://h/a", "/h/a"] {
            assert!(!are_on_one_server("https://h/a", other), "{other}");
        }
        assert!(!are_on_one_server("s3://h/a", "s3://h/a"), "not a web server");
    }

    #[test]
    fn all_that_may_change_the_bytes_of_a_value_tells_stores_apart() {
        let none: &[(String, String)] = &[];
        let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let plain = base("https://h/x.zarr").identity(none);
        assert_eq!(plain, "https://h/x.zarr/");
        assert_eq!(base("https://h/x.zarr/").identity(&header("Authorization", "a")), plain);
        let mut all = vec![
            plain,
            base("https://h/x.zarr?u=1").identity(none),
            base("https://h/x.zarr?u=2").identity(none),
            base("https://h/x.zarr?").identity(none),
            base("https://one@h/x.zarr").identity(none),
            base("https://two@h/x.zarr").identity(none),
            base("https://h:444/x.zarr").identity(none),
            base("https://h/x.zarr").identity(&header("X-Tenant", "1")),
            base("https://h/x.zarr").identity(&header("X-Tenant", "2")),
        ];
        assert!(all.iter().all(|it| it.ends_with('/') && !it.contains("u=1")));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 9, "{all:?}");
    }

    #[test]
    fn secrets_are_not_shown() {
        for (url, want) in [
            ("https://u:p@h/x?t=1#a/b", "https://h/x?...#a/b"),
            ("http://h:1/x@y", "http://h:1/x@y"),
            ("http://h?t=/@x", "http://h?..."),
            ("s3://bucket/a", "s3://bucket/a"),
        ] {
            assert_eq!(shown(url), want);
        }
    }
}
