//! The pages of names that S3 and Google send, before the client reads them: it refuses a whole
//! page because of one key that no path can have, and takes a page without a token for the last.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>

use std::ops::Range;

use bytes::Bytes;
use object_store::client::HttpError;
use object_store::path::Path;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::failure::{LONGEST_OBJECT, sentence, unusable};
use crate::xml::char_of;
use crate::{Omissions, Prefix};
use zarrfs_base::error::{Kind, Word};
use zarrfs_base::width::ToUsize;

/// The most characters of a key that is left out.
const MOST_CHARS: usize = 200;

/// Whether a query is that of a request for a page.
pub(super) fn is_request(query: &str) -> bool {
    query.split('&').any(|setting| setting == "list-type=2" || setting == "comp=list")
}

/// The first elements of pages of S3 and Google, and of Azure.
const PAGES: [&str; 2] = ["ListBucketResult", "EnumerationResults"];

/// The names that lists below the root of a store leave out.
#[derive(Debug, Clone)]
pub(super) struct UnlistedNames {
    root: Prefix,
    pub omissions: Omissions,
}

impl UnlistedNames {
    pub fn below(root: Prefix) -> Self {
        Self { root, omissions: Omissions::default() }
    }

    /// Notes an object or a directory that is left out.
    pub fn note(&self, key: &str) {
        let name = key.strip_prefix(self.root.as_str()).unwrap_or(key);
        let name: String = name.chars().take(MOST_CHARS).collect();
        let why = "this object is left out: zarrfs has no such key in a bucket, or no such length";
        self.omissions.note(&name, Word::Unsupported, why);
    }
}

/// Returns a page without the keys that no path can have, which it notes. Fails if the page does
/// not say how the list goes on.
pub(super) fn page(body: Bytes, left_out: &UnlistedNames) -> Result<Bytes, HttpError> {
    // The client says what is wrong with a page that is no XML.
    let Some(found) = PageFacts::in_page(&body) else { return Ok(body) };
    if !PAGES.contains(&found.kind.as_str()) {
        // To the client, a page without names is an empty list.
        let (kind, said) = (found.kind, String::from_utf8_lossy(&body));
        let said = sentence("200", &said);
        let detail = if kind.is_empty() {
            format!("{said}, but with no list of names")
        } else {
            format!("{said}, but with `{kind}` for a list of names")
        };
        return Err(unusable(Kind::Os(libc::EIO), detail));
    }
    if found.is_truncated && !found.has_token {
        let detail = "the server says that there are more names, but not how to ask for them; \
                      zarrfs needs ListObjectsV2";
        return Err(unusable(Kind::Os(libc::EIO), detail));
    }
    if found.unfit.is_empty() {
        return Ok(body);
    }
    let (mut rest, mut from) = (Vec::with_capacity(body.len()), 0);
    for (unfit, key) in found.unfit {
        left_out.note(&key);
        rest.extend_from_slice(body.get(from..unfit.start).unwrap_or_default());
        from = unfit.end;
    }
    rest.extend_from_slice(body.get(from..).unwrap_or_default());
    Ok(rest.into())
}

/// What matters of a page.
#[derive(Debug, Default)]
struct PageFacts {
    /// The name of the first element.
    kind: String,
    is_truncated: bool,
    has_token: bool,
    /// The keys that no path can have, and the places of their elements.
    unfit: Vec<(Range<usize>, String)>,
}

/// A key or a common prefix.
#[derive(Debug, Default)]
struct ListedObject {
    start: usize,
    key: String,
    size: String,
}

impl ListedObject {
    fn is_fit(&self) -> bool {
        let is_possible = |size: u64| size <= LONGEST_OBJECT;
        let has_size = self.size.is_empty() || self.size.parse().is_ok_and(is_possible);
        has_size && Path::parse(&self.key).is_ok()
    }
}

impl PageFacts {
    /// Looks through a page; `None` if it is no XML.
    fn in_page(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::from_reader(body);
        let (mut found, mut listed) = (Self::default(), ListedObject::default());
        let mut path: Vec<Vec<u8>> = Vec::new();
        loop {
            let start = reader.buffer_position().to_usize();
            match reader.read_event().ok()? {
                Event::Start(tag) => {
                    found.note_kind(&tag);
                    path.push(tag.local_name().as_ref().to_vec());
                    if path.len() == 2 {
                        listed = ListedObject { start, ..ListedObject::default() };
                    }
                }
                Event::End(_) => {
                    let is_entry = path.len() == 2
                        && path.last().is_some_and(|name| is_entry(name))
                        && !listed.is_fit();
                    if is_entry {
                        let end = reader.buffer_position().to_usize();
                        let key = std::mem::take(&mut listed.key);
                        found.unfit.push((listed.start..end, key));
                    }
                    path.pop();
                }
                Event::Text(text) => found.put(&path, &text.decode().ok()?, &mut listed),
                Event::CData(text) => found.put(&path, &text.decode().ok()?, &mut listed),
                Event::GeneralRef(name) => found.put(&path, &char_of(&name)?, &mut listed),
                Event::Empty(tag) => found.note_kind(&tag),
                Event::Eof => return Some(found),
                _ => {}
            }
        }
    }

    fn note_kind(&mut self, tag: &BytesStart<'_>) {
        if self.kind.is_empty() {
            self.kind = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
        }
    }

    /// Adds text to the value that the path of elements names.
    fn put(&mut self, path: &[Vec<u8>], text: &str, listed: &mut ListedObject) {
        let path: Vec<&[u8]> = path.iter().skip(1).map(Vec::as_slice).collect();
        match path[..] {
            [b"IsTruncated"] => self.is_truncated = text.trim() == "true",
            [b"NextContinuationToken"] => self.has_token |= !text.trim().is_empty(),
            [b"Contents", b"Key"] | [b"CommonPrefixes", b"Prefix"] => listed.key.push_str(text),
            [b"Contents", b"Size"] => listed.size.push_str(text.trim()),
            _ => {}
        }
    }
}

fn is_entry(name: &[u8]) -> bool {
    matches!(name, b"Contents" | b"CommonPrefixes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, size: &str) -> String {
        format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>")
    }

    fn left_out() -> UnlistedNames {
        UnlistedNames::below(Prefix::parse("x").expect("a prefix"))
    }

    fn page_of(parts: &[&str]) -> Result<String, HttpError> {
        let body = format!("<ListBucketResult xmlns=\"x\">{}</ListBucketResult>", parts.concat());
        page(body.into(), &left_out()).map(|page| String::from_utf8(page.to_vec()).expect("UTF-8"))
    }

    #[test]
    fn keys_that_no_path_can_have_are_left_out_of_a_page() {
        let (good, other) = (object("x/a &amp; b", "12"), object("y", "0"));
        for (key, size) in [
            ("x//a", "1"),
            ("x/../a", "1"),
            ("x/.", "1"),
            ("x/a&#9;b", "1"),
            ("x/a", "-1"),
            ("x/a", "18446744073709551616"),
            ("x/a", "9223372036854775808"),
        ] {
            let kept = page_of(&[&good, &object(key, size), &other]).expect("a page");
            assert_eq!(kept, page_of(&[&good, &other]).expect("a page"), "{key} {size}");
        }
        let prefix = "<CommonPrefixes><Prefix>x//</Prefix></CommonPrefixes>";
        assert_eq!(page_of(&[prefix]).expect("a page"), page_of(&[]).expect("a page"));
        let marker = object("x/", "0");
        assert!(page_of(&[&marker]).expect("a page").contains(&marker), "a directory as a key");
    }

    #[test]
    fn what_is_left_out_is_noted_by_its_name_in_the_store() {
        let (body, left_out) = (object("x/a/&#9;", "1") + &object("x/b", "1"), left_out());
        page(format!("<ListBucketResult>{body}</ListBucketResult>").into(), &left_out).expect("");
        let places: Vec<_> = left_out.omissions.all().omissions;
        assert_eq!(places.iter().map(|it| it.place.as_str()).collect::<Vec<_>>(), ["a/\t"]);
    }

    #[test]
    fn a_page_that_does_not_say_how_the_list_goes_on_is_refused() {
        let more = "<IsTruncated>true</IsTruncated>";
        let token = "<NextContinuationToken>a</NextContinuationToken>";
        assert!(page_of(&[more, token]).is_ok() && page_of(&[]).is_ok());
        assert!(page_of(&["<IsTruncated>false</IsTruncated>"]).is_ok());
        for without in ["<NextMarker>a</NextMarker>", "<NextContinuationToken/>", ""] {
            let refused = page_of(&[more, without]).expect_err("more, but where");
            let source = std::error::Error::source(&refused).expect("a reason").to_string();
            assert!(source.contains("ListObjectsV2"), "{source}");
        }
    }

    #[test]
    fn an_answer_that_is_no_page_is_refused() {
        for body in [
            "",
            "no",
            "<Error><Code>InternalError</Code></Error>",
            "<html>log in</html>",
            "<Error/>",
            "<?xml version=\"1.0\"?>\n<DeleteResult></DeleteResult>",
        ] {
            let refused = page(body.into(), &left_out()).expect_err(body);
            let source = std::error::Error::source(&refused).expect("a reason").to_string();
            assert!(source.contains("list of names"), "{source}");
        }
        for body in ["<ListBucketResult/>", "<x:ListBucketResult xmlns:x=\"y\"/>"] {
            page(body.into(), &left_out()).expect("a page without names");
        }
        page("<EnumerationResults><Blobs/></EnumerationResults>".into(), &left_out()).expect("");
    }

    #[test]
    fn a_page_that_is_no_xml_is_left_to_the_client() {
        for body in ["<ListBucketResult><a></ListBucketResult>", "<a><b></a>"] {
            assert_eq!(page(body.into(), &left_out()).expect("unchanged"), body);
        }
    }
}
