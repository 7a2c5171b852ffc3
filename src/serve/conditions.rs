//! The version of a file, and requests that depend on it (RFC 9110, section 13).

use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};

/// The version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedVersion {
    /// The entity tag, with its quotes, and `W/` if the bytes may differ nevertheless.
    pub tag: Option<String>,
    /// The time of the last change that is known.
    pub modified: SystemTime,
}

/// The answer that the conditions of a request ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalAnswer {
    /// The file.
    File,
    /// Nothing: the client has this version.
    Nothing,
    /// Nothing: it wants another version.
    Another,
}

/// Whether a request has conditions that decide whether it wants the file.
pub fn are_given(headers: &HeaderMap) -> bool {
    let names = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
    names.iter().any(|name| headers.contains_key(name))
}

/// Evaluates the conditions of a request in the order of section 13.2.2.
pub fn wanted(headers: &HeaderMap, version: &ServedVersion) -> ConditionalAnswer {
    let tag = version.tag.as_deref();
    if let Some(tags) = text(headers, &IF_MATCH) {
        if !lists(&tags, tag, true) {
            return ConditionalAnswer::Another;
        }
    } else if let Some(time) = date(headers, &IF_UNMODIFIED_SINCE)
        && seconds(version.modified) > seconds(time)
    {
        return ConditionalAnswer::Another;
    }
    if let Some(tags) = text(headers, &IF_NONE_MATCH) {
        if lists(&tags, tag, false) {
            return ConditionalAnswer::Nothing;
        }
    } else if let Some(time) = date(headers, &IF_MODIFIED_SINCE)
        && seconds(version.modified) <= seconds(time)
        // A date has seconds, so only a tag shows that nothing has changed since.
        && tag.is_none_or(|tag| !tag.starts_with("W/"))
    {
        return ConditionalAnswer::Nothing;
    }
    ConditionalAnswer::File
}

/// Whether a range may be answered with a part of this version.
pub fn allows_part(headers: &HeaderMap, version: &ServedVersion) -> bool {
    match text(headers, &IF_RANGE) {
        None => true,
        Some(tag) if tag.contains('"') => lists(&tag, version.tag.as_deref(), true),
        // A date is too coarse to combine parts.
        Some(_) => false,
    }
}

/// Whether a list of tags has the one of the file. A strong comparison needs tags that are not
/// weak.
fn lists(list: &str, tag: Option<&str>, is_strong: bool) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let Some(tag) = tag else { return false };
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let is_weak = |tag: &str| tag.trim().starts_with("W/");
    list.split(',').any(|listed| {
        bare(listed) == bare(tag) && !(is_strong && (is_weak(listed) || is_weak(tag)))
    })
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter().map(|value| value.to_str().ok());
    let values: Vec<&str> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.join(","))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(&text(headers, name)?).ok()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn conditions_are_evaluated_in_the_order_of_the_specification() {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let strong = ServedVersion { tag: Some("\"a\"".to_owned()), modified };
        let weak = ServedVersion { tag: Some("W/\"a\"".to_owned()), modified };
        let (same, later) = ("Sun, 09 Sep 2001 01:46:40 GMT", "Sun, 09 Sep 2001 01:46:41 GMT");
        let earlier = "Sun, 09 Sep 2001 01:46:39 GMT";
        for (all, of_strong, of_weak) in [
            (&[][..], ConditionalAnswer::File, ConditionalAnswer::File),
            (&[("if-none-match", "\"a\"")], ConditionalAnswer::Nothing, ConditionalAnswer::Nothing),
            (
                &[("if-none-match", "\"b\", W/\"a\"")],
                ConditionalAnswer::Nothing,
                ConditionalAnswer::Nothing,
            ),
            (&[("if-none-match", "\"b\"")], ConditionalAnswer::File, ConditionalAnswer::File),
            (&[("if-none-match", "*")], ConditionalAnswer::Nothing, ConditionalAnswer::Nothing),
            (&[("if-match", "\"a\"")], ConditionalAnswer::File, ConditionalAnswer::Another),
            (&[("if-match", "\"b\"")], ConditionalAnswer::Another, ConditionalAnswer::Another),
            (&[("if-match", "*")], ConditionalAnswer::File, ConditionalAnswer::File),
            (&[("if-modified-since", same)], ConditionalAnswer::Nothing, ConditionalAnswer::File),
            (&[("if-modified-since", later)], ConditionalAnswer::Nothing, ConditionalAnswer::File),
            (&[("if-modified-since", earlier)], ConditionalAnswer::File, ConditionalAnswer::File),
            (
                &[("if-unmodified-since", earlier)],
                ConditionalAnswer::Another,
                ConditionalAnswer::Another,
            ),
            (&[("if-unmodified-since", same)], ConditionalAnswer::File, ConditionalAnswer::File),
            // The date does not count beside a tag.
            (
                &[("if-none-match", "\"b\""), ("if-modified-since", same)],
                ConditionalAnswer::File,
                ConditionalAnswer::File,
            ),
        ] {
            assert_eq!(wanted(&headers(all), &strong), of_strong, "{all:?}");
            assert_eq!(wanted(&headers(all), &weak), of_weak, "{all:?}");
        }
        assert!(allows_part(&headers(&[]), &strong));
        assert!(allows_part(&headers(&[("if-range", "\"a\"")]), &strong));
        assert!(!allows_part(&headers(&[("if-range", "\"b\"")]), &strong));
        assert!(!allows_part(&headers(&[("if-range", "W/\"a\"")]), &weak));
        assert!(!allows_part(&headers(&[("if-range", same)]), &strong));
    }
}
