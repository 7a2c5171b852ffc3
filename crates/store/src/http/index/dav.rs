//! Lists of `WebDAV`: the answer to `PROPFIND` with the depth 1.
//!
//! ```text
//! <D:multistatus xmlns:D="DAV:">
//!   <D:response>
//!     <D:href>/x.zarr/zarr.json</D:href>
//!     <D:propstat><D:prop>
//!       <D:resourcetype/>                                <D:collection/> in that of a directory
//!       <D:getcontentlength>10</D:getcontentlength>
//!       <D:getlastmodified>Tue, 01 Jul 2025 10:00:00 GMT</D:getlastmodified>
//!       <D:getetag>"a-638d"</D:getetag>
//!     </D:prop></D:propstat>
//!   </D:response>
//! </D:multistatus>
//! ```
//!
//! <https://www.rfc-editor.org/rfc/rfc4918#section-9.1>

use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::Url;

use super::names::{IndexEntry, IndexNames, name_of};
use crate::StoreEntry;
use crate::xml::char_of;

/// The body of the request.
pub const BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <propfind xmlns=\"DAV:\"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/>\
    </prop></propfind>";

/// The most elements within each other.
const DEEPEST: usize = 32;

/// The parts of a response that were read so far.
#[derive(Debug, Default)]
struct Response {
    link: String,
    len: String,
    modified: String,
    tag: String,
    is_directory: bool,
}

/// Returns the names in a list; `None` if the text is none. Stops when there are more than `most`.
pub fn parse(page: &Url, text: &str, most: usize) -> Option<IndexNames> {
    let mut reader = Reader::from_str(text);
    let (mut names, mut path) = (IndexNames::new(), Vec::<String>::new());
    let mut response = Response::default();
    let (mut is_list, mut is_whole) = (false, false);
    while names.len() <= most {
        match reader.read_event().ok()? {
            Event::Start(_) if path.len() >= DEEPEST => return None,
            Event::Start(tag) => {
                let name = local(tag.local_name().as_ref());
                match (path.len(), &*name) {
                    (0, "multistatus") => is_list = true,
                    (1, "response") => response = Response::default(),
                    (_, "collection") => response.is_directory = true,
                    _ => {}
                }
                path.push(name);
            }
            Event::Empty(tag) => {
                response.is_directory |= local(tag.local_name().as_ref()) == "collection";
            }
            Event::Text(text) => response.put(&path, &text.decode().ok()?),
            Event::CData(text) => response.put(&path, &text.decode().ok()?),
            Event::GeneralRef(name) => response.put(&path, &char_of(&name)?),
            Event::End(_) => {
                path.pop();
                if path.len() == 1
                    && let Some((entry, listed)) = std::mem::take(&mut response).entry(page)
                {
                    names.insert(entry, listed);
                }
                is_whole |= path.is_empty();
            }
            Event::Eof => return (is_list && is_whole).then_some(names),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    Some(names)
}

impl Response {
    /// Adds text to the value that the path of elements names.
    fn put(&mut self, path: &[String], text: &str) {
        let value = match path.last().map(String::as_str) {
            Some("href") if path.len() == 3 => &mut self.link,
            Some("getcontentlength") => &mut self.len,
            Some("getlastmodified") => &mut self.modified,
            Some("getetag") => &mut self.tag,
            _ => return,
        };
        value.push_str(text);
    }

    fn entry(self, page: &Url) -> Option<(StoreEntry, IndexEntry)> {
        let link = self.link.trim();
        // Some servers name directories without a slash.
        let entry = match (name_of(page, link)?, self.is_directory) {
            (StoreEntry::Key(name) | StoreEntry::Prefix(name), true) => StoreEntry::Prefix(name),
            (StoreEntry::Key(name), false) => StoreEntry::Key(name),
            (StoreEntry::Prefix(_), false) => return None,
        };
        if self.is_directory {
            return Some((entry, IndexEntry::default()));
        }
        let len = self.len.trim().parse().ok();
        let modified = httpdate::parse_http_date(self.modified.trim()).ok();
        let tag = Some(self.tag.trim().to_owned()).filter(|tag| !tag.is_empty());
        Some((entry, IndexEntry { len, modified, tag }))
    }
}

fn local(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_answer_of_a_server_is_a_list_with_exact_sizes_times_and_tags() {
        let page = Url::parse("http://host/x.zarr/").expect("a URL");
        let text = r#"<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns0="DAV:">
<D:response xmlns:lp1="DAV:"><D:href>/x.zarr/</D:href><D:propstat><D:prop>
<lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/x.zarr/c</D:href><D:propstat><D:prop>
<lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/x.zarr/a%20&amp;b</D:href><D:propstat><D:prop>
<lp1:resourcetype/><lp1:getcontentlength>10</lp1:getcontentlength>
<lp1:getlastmodified>Thu, 01 Jan 1970 00:01:00 GMT</lp1:getlastmodified>
<lp1:getetag>"a-638"</lp1:getetag></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>
</D:response></D:multistatus>"#;
        let names = parse(&page, text, 9).expect("a list");
        let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        let tag = Some("\"a-638\"".to_owned());
        let value = IndexEntry { len: Some(10), modified: Some(minute), tag };
        let want = [
            (StoreEntry::Key("a &b".to_owned()), value),
            (StoreEntry::Prefix("c".to_owned()), IndexEntry::default()),
        ];
        assert_eq!(names, want.into());
        let cut = text.replace("</D:response></D:multistatus>", "");
        assert_eq!(parse(&page, &cut, 9), None, "the answer was cut");
        assert_eq!(parse(&page, "<html></html>", 9), None);
    }

    #[test]
    fn deep_elements_are_no_list_and_a_long_list_is_not_read_to_its_end() {
        let page = Url::parse("http://host/x.zarr/").expect("a URL");
        assert_eq!(parse(&page, &"<a>".repeat(1 << 20), 9), None);
        let name = |at: usize| format!("<response><href>/x.zarr/{at}</href></response>");
        let all: String = (0..9).map(name).collect();
        let text = format!("<multistatus>{all}</multistatus>");
        assert_eq!(parse(&page, &text, 9).map(|names| names.len()), Some(9));
        assert_eq!(parse(&page, &text, 4).map(|names| names.len()), Some(5));
    }
}
