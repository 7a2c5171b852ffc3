//! Listings of directories: JSON in the form that nginx has, or HTML.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::json;

use super::body::Produce;
use super::names::ListedNames;
use super::page;
use super::tree::TreeEntry;
use crate::error::Result;
use crate::metadata::NodeKind;
use crate::vfs::Attr;

/// The most omissions on a page.
const MOST_NOT_SEEN: usize = 100;

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingFormat {
    /// `[{"name": ..., "type": "directory", "mtime": ...}, ...]`.
    Json,
    /// Links, in HTML. It lists the files that a mount lists, because programs follow all of them.
    Links,
    /// The same as a page for people, with the metadata and further files of a node.
    Page,
}

impl ListingFormat {
    /// Returns the form that a client prefers, by its `Accept` header. Browsers name HTML there;
    /// programs that list by links (fsspec, GDAL, wget) accept everything.
    pub fn of(accept: Option<&str>) -> Self {
        let quality = |kind: &str| {
            let listed = accept.unwrap_or_default().split(',').find_map(|entry| {
                let mut parts = entry.split(';').map(str::trim);
                let is_kind = parts.next()?.eq_ignore_ascii_case(kind);
                let quality = parts.find_map(|part| part.strip_prefix("q="));
                is_kind.then(|| quality.and_then(|text| text.parse().ok()).unwrap_or(1.0_f32))
            });
            listed.unwrap_or(0.0)
        };
        let json = quality("application/json");
        let html = quality("text/html");
        match (json > 0.0 && json >= html, html > 0.0) {
            (true, _) => Self::Json,
            (false, true) => Self::Page,
            (false, false) => Self::Links,
        }
    }

    /// Returns the type of the body.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Links | Self::Page => "text/html; charset=utf-8",
        }
    }
}

/// A listing that is being sent.
pub struct Listing {
    found: TreeEntry,
    entries: ListedNames,
    /// The path of the directory.
    path: String,
    form: ListingFormat,
    /// The beginning of the page, before it is sent.
    head: Option<String>,
    /// Whether an entry was sent.
    is_begun: bool,
    is_complete: bool,
}

impl Listing {
    /// Opens a directory. `names` is its path, below a root with the name `root`.
    pub fn new(
        found: TreeEntry,
        root: &str,
        names: &[String],
        form: ListingFormat,
    ) -> Result<Self> {
        let dir = found.vfs().listings().opendir(found.attr.number)?;
        let node =
            (form == ListingFormat::Page).then(|| page::node_at(found.vfs(), names)).flatten();
        // Chunks are listed in the order of the grid.
        let sorts = node.as_ref().is_some_and(|node| node.kind() == NodeKind::Group);
        let head = match form {
            ListingFormat::Json => "[".to_owned(),
            ListingFormat::Links => page::head(root, names, None),
            ListingFormat::Page => page::head(root, names, Some((found.vfs(), node))),
        };
        let entries = ListedNames::new(dir, sorts);
        let path = names.join("/");
        let head = Some(head);
        Ok(Self { found, entries, path, form, head, is_begun: false, is_complete: false })
    }

    fn entry(&self, name: &str, attr: &Attr) -> String {
        match self.form {
            ListingFormat::Links | ListingFormat::Page => page::entry(name, attr),
            ListingFormat::Json => {
                let comma = if self.is_begun { ",\n" } else { "\n" };
                let kind = if attr.is_dir() { "directory" } else { "file" };
                let time = httpdate::fmt_http_date(at_least_epoch(attr.modified));
                let mut entry = json!({"name": name, "type": kind, "mtime": time});
                if !attr.is_dir() {
                    entry["size"] = attr.len.into();
                }
                format!("{comma}{entry}")
            }
        }
    }
}

impl Listing {
    /// Returns what was not seen in the directory. In JSON each is an entry of the type "other", as
    /// nginx has for what is neither a file nor a directory.
    fn not_seen(&self) -> String {
        let omissions = self.found.vfs().hierarchy().store().omissions().below(&self.path);
        let places = omissions.into_iter().take(MOST_NOT_SEEN);
        let places = places.map(|(name, omission)| (name, omission.why));
        match self.form {
            ListingFormat::Links | ListingFormat::Page => {
                page::not_seen(&places.collect::<Vec<_>>())
            }
            ListingFormat::Json => {
                let mut is_begun = self.is_begun;
                let time = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH);
                let entry = |(name, why): (String, String)| {
                    let comma = if std::mem::replace(&mut is_begun, true) { ",\n" } else { "\n" };
                    let entry =
                        json!({"name": name, "type": "other", "mtime": time, "not_seen": why});
                    format!("{comma}{entry}")
                };
                // Names of other directories are no names in this one.
                places.filter(|(name, _)| !name.contains('/')).map(entry).collect()
            }
        }
    }
}

impl Produce for Listing {
    fn next(&mut self, len: usize) -> Result<Option<Bytes>> {
        if self.is_complete {
            return Ok(None);
        }
        let mut text = self.head.take().unwrap_or_default();
        let listings = Arc::clone(self.found.vfs().listings());
        while text.len() < len {
            let Some(listed) = self.entries.next(&listings)? else {
                self.is_complete = true;
                text.push_str(&self.not_seen());
                text.push_str(match self.form {
                    ListingFormat::Json => "\n]\n",
                    ListingFormat::Links | ListingFormat::Page => page::END,
                });
                break;
            };
            let vfs = self.found.vfs();
            let attr = match listings.lookup_listed(self.entries.dir(), &listed) {
                // A listing does not generate metadata files, which their length needs.
                Ok(Some(attr)) if attr.may_change => vfs.getattr(attr.number).unwrap_or(attr),
                Ok(Some(attr)) => attr,
                Ok(None) => continue,
                Err(error) => {
                    // A bad entry does not hide the others.
                    vfs.note("list", &error);
                    listings.lookup_listed_name(&listed)
                }
            };
            vfs.forget(attr.number, 1);
            text.push_str(&self.entry(&listed.name, &attr));
            self.is_begun = true;
        }
        Ok(Some(text.into()))
    }
}

/// Returns a time that a header can have.
fn at_least_epoch(time: SystemTime) -> SystemTime {
    time.max(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_json_for_clients_that_ask_for_it() {
        for (accept, form) in [
            (None, ListingFormat::Links),
            (Some("*/*"), ListingFormat::Links),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), ListingFormat::Page),
            (Some("application/json"), ListingFormat::Json),
            (Some("application/json, text/plain, */*"), ListingFormat::Json),
            (Some("text/html, application/json;q=0.5"), ListingFormat::Page),
            (Some("text/html;q=0.1, application/json"), ListingFormat::Json),
            (Some("application/json;q=0"), ListingFormat::Links),
        ] {
            assert_eq!(ListingFormat::of(accept), form, "{accept:?}");
        }
    }
}
