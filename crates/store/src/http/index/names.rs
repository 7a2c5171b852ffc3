//! The names in a list, by the links that lead to them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::{StoreEntry, is_component};

/// The length, time and tag of a value, if a list gives them exactly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexEntry {
    pub len: Option<u64>,
    pub modified: Option<SystemTime>,
    pub tag: Option<String>,
}

/// The names in a directory.
pub type IndexNames = BTreeMap<StoreEntry, IndexEntry>;

/// Returns the name that a link on the page at `page` leads to, if that is directly below it.
pub fn name_of(page: &Url, link: &str) -> Option<StoreEntry> {
    let url = page.join(link).ok()?;
    if url.origin() != page.origin() || url.fragment().is_some() {
        return None;
    }
    // A link with a query sorts the page, unless all have that of the page.
    if link.contains('?') && url.query() != page.query() {
        return None;
    }
    let (page, link) = (components(page)?, components(&url)?);
    // A directory ends with an empty component, as the page itself does.
    let (_, above) = page.split_last()?;
    let (name, is_directory) = match link.strip_prefix(above)? {
        [name] => (name.clone(), false),
        [name, last] if last.is_empty() => (name.clone(), true),
        _ => return None,
    };
    let entry = if is_directory { StoreEntry::Prefix } else { StoreEntry::Key };
    is_component(&name).then(|| entry(name))
}

/// Returns the components of a path. Servers differ in what they encode.
fn components(url: &Url) -> Option<Vec<String>> {
    let decoded = |name: &str| Some(percent_decode_str(name).decode_utf8().ok()?.into_owned());
    url.path().split('/').map(decoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_directly_below_a_page_are_names() {
        let page = Url::parse("https://host/a%20b/x.zarr/?t=1").expect("a URL");
        let key = |name: &str| Some(StoreEntry::Key(name.to_owned()));
        let prefix = |name: &str| Some(StoreEntry::Prefix(name.to_owned()));
        for (link, want) in [
            ("zarr.json", key("zarr.json")),
            ("./zarr.json", key("zarr.json")),
            ("c/", prefix("c")),
            ("/a%20b/x.zarr/c/", prefix("c")),
            ("/%61%20b/x%2Ezarr/c(1)/", prefix("c(1)")),
            ("https://host/a%20b/x.zarr/c/", prefix("c")),
            ("x%20y%23", key("x y#")),
            ("zarr.json?t=1", key("zarr.json")),
            ("zarr.json?t=2", None),
            ("?C=N;O=D", None),
            ("../", None),
            ("/", None),
            ("", None),
            ("./", None),
            ("c/0", None),
            ("a%2Fb", None),
            ("%2e%2e/", None),
            ("..%2F", None),
            ("%2e%2e%2fx", None),
            ("https://other/a%20b/x.zarr/c/", None),
            ("http://host/a%20b/x.zarr/c/", None),
            ("//other/c/", None),
            ("javascript:x", None),
            ("#top", None),
            ("%ff", None),
            ("a%00", None),
        ] {
            assert_eq!(name_of(&page, link), want, "{link}");
        }
    }
}
