//! The pages with which servers list a directory.
//!
//! A page counts as a list only if it has the form that a server gives one: any other page, such as
//! that of a viewer beside the data, says nothing about what is there. Of a list, only names
//! directly below the directory count, by their links.

mod dav;
mod html;
mod json;
mod names;

pub(super) use dav::{BODY as DAV_BODY, parse as parse_dav};
pub(super) use html::parse as parse_html;
pub(super) use json::parse as parse_json;
pub(super) use names::{IndexEntry, IndexNames};
use reqwest::Url;

use crate::StoreEntry;

/// Returns the names in a page at the URL `page`, in whichever form it is; `None` if it is no list.
pub fn names(page: &str, text: &[u8]) -> Option<Vec<StoreEntry>> {
    let page = Url::parse(page).ok()?;
    let words = String::from_utf8_lossy(text);
    let names = parse_json(&page, text, usize::MAX)
        .or_else(|| parse_dav(&page, &words, usize::MAX))
        .or_else(|| parse_html(&page, &words, usize::MAX))?;
    Some(names.into_keys().collect())
}
