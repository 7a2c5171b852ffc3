//! The length, time and version of a value, from the head of an answer.
//!
//! The version is made of the `ETag`, or of the time and the length if there is none. nginx makes
//! its tags of these two, and its lists have them, so such a tag counts as none: then the version
//! in a list is that of the value.
//!
//! Most web servers make tags of times with seconds or less. A value that is changed twice in that
//! time may keep its tag, so a version is settled only if the value is older than that.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use reqwest::header::{
    CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
};

use super::index::IndexEntry;
use crate::{Stat, Version, WasRead};

/// A version of a value that is younger than this may be that of another value, too.
pub(super) const YOUNG: Duration = Duration::from_secs(2);

/// The last part of a version, which says what the version is made of.
const TIME: u64 = 1;
const TAG: u64 = 2;
const SEEN: u64 = 3;

/// Whether the versions of a server are made of times or tags, as far as answers have shown.
#[derive(Debug, Default)]
pub(super) struct Tags(AtomicU8);

const TIMES: u8 = 1;
const OTHERS: u8 = 2;

impl Tags {
    /// Returns the stat of a value, if a list says enough.
    pub fn stat_of(&self, listed: &IndexEntry) -> Option<Stat> {
        let (len, modified) = (listed.len?, listed.modified?);
        let is_known = listed.tag.is_some() || self.0.load(Ordering::Relaxed) == TIMES;
        is_known.then(|| {
            // The list may have been made in the second in which the value was.
            let version = version_of(listed.tag.as_deref(), Some(modified), len, SystemTime::now());
            Stat { len, modified, version }
        })
    }

    /// Notes the version of a value.
    fn note(&self, version: Version) {
        let [.., kind] = version.state();
        self.0.store(if kind == TIME { TIMES } else { OTHERS }, Ordering::Relaxed);
    }

    /// Returns the stat of a value of `len` bytes. `ttl` is how long a value without a tag and a
    /// time is believed to stay the same.
    pub fn of_value(&self, headers: &HeaderMap, len: u64, ttl: Duration) -> Stat {
        let time = |name| httpdate::parse_http_date(text(headers, name)?).ok();
        let (modified, tag) = (time(LAST_MODIFIED), text(headers, ETAG));
        let now = time(DATE).unwrap_or_else(SystemTime::now);
        let version = match (tag, modified) {
            (None, None) => seen_now(len, ttl),
            _ => version_of(tag, modified, len, now),
        };
        self.note(version);
        Stat { len, modified: modified.unwrap_or(SystemTime::UNIX_EPOCH), version }
    }
}

/// Returns the version of a value without a tag and a time: another one after each `ttl`.
fn seen_now(len: u64, ttl: Duration) -> Version {
    let now = seconds(SystemTime::now());
    match now.checked_div(ttl.as_secs()) {
        Some(period) => Version::settled([period, 0, len, SEEN]),
        None => unsettled([0, 0, len, SEEN]),
    }
}

fn version_of(
    tag: Option<&str>,
    modified: Option<SystemTime>,
    len: u64,
    now: SystemTime,
) -> Version {
    let tag = tag.map(|tag| tag.trim_start_matches("W/").trim_matches('"'));
    let time = modified.map(seconds);
    let is_of_time = |tag: &str| time.is_some_and(|time| tag == format!("{time:x}-{len:x}"));
    let state = match (tag, time) {
        (Some(tag), _) if !is_of_time(tag) => {
            let mut hasher = DefaultHasher::new();
            tag.hash(&mut hasher);
            let first = hasher.finish();
            len.hash(&mut hasher);
            [first, hasher.finish(), len, TAG]
        }
        (_, time) => [time.unwrap_or(0), 0, len, TIME],
    };
    // Object stores have digests.
    let is_digest = |tag: &str| {
        tag.len() >= 32 && tag.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    let is_young = modified
        .is_some_and(|modified| now.duration_since(modified).map_or(true, |age| age < YOUNG));
    if is_young && !tag.is_some_and(is_digest) { unsettled(state) } else { Version::settled(state) }
}

/// Whether a value with this stat has a tag; `None` if the server gave none.
pub(super) fn has_tag(stat: &Stat, tag: &str) -> Option<bool> {
    let wanted = version_of(Some(tag), Some(stat.modified), stat.len, SystemTime::now());
    let ([.., found], [.., kind]) = (stat.version.state(), wanted.state());
    (found == TAG || (found, kind) == (TIME, TIME)).then(|| wanted.is_same(stat.version))
}

/// Whether the server gave a value with this stat a tag or a time.
pub(super) fn has_version(stat: &Stat) -> bool {
    let [.., kind] = stat.version.state();
    kind != SEEN
}

fn unsettled(state: [u64; 4]) -> Version {
    Version { state, is_settled: false, read: WasRead::Nothing }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a value is HTML.
pub(super) fn is_html(headers: &HeaderMap) -> bool {
    kind_of(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"))
}

/// Returns the type of a value without its parameters.
pub(super) fn kind_of(headers: &HeaderMap) -> Option<&str> {
    Some(text(headers, CONTENT_TYPE)?.split(';').next().unwrap_or_default().trim())
}

pub(super) fn tag_of(headers: &HeaderMap) -> Option<&str> {
    text(headers, ETAG)
}

/// Returns how a value is encoded, if it is.
pub(super) fn encoding_of(headers: &HeaderMap) -> Option<&str> {
    text(headers, CONTENT_ENCODING)
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"))
}

/// The range of an answer: its first byte, the one after its last, and the length of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub start: u64,
    pub end: u64,
    pub len: u64,
}

/// Returns the range of an answer; `None` if that is not said exactly.
pub(super) fn part_of(headers: &HeaderMap) -> Option<ContentRange> {
    let range = text(headers, CONTENT_RANGE)?.trim();
    let (unit, range) = range.split_once(' ')?;
    let (range, len) = range.trim().split_once('/')?;
    let (start, last) = range.split_once('-')?;
    let (start, last) = (start.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
    let part = ContentRange { start, end: last.checked_add(1)?, len: len.trim().parse().ok()? };
    let is_valid = unit.eq_ignore_ascii_case("bytes") && start <= last && part.end <= part.len;
    is_valid.then_some(part)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| {
            (name.clone(), HeaderValue::from_str(value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    const OLD: (HeaderName, &str) = (LAST_MODIFIED, "Thu, 01 Jan 1970 00:01:40 GMT");
    const NOW: (HeaderName, &str) = (DATE, "Thu, 01 Jan 1970 00:02:00 GMT");

    #[test]
    fn the_version_in_a_list_of_nginx_is_that_of_the_value() {
        let tags = Tags::default();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let listed = IndexEntry { len: Some(5), modified: Some(modified), tag: None };
        assert_eq!(tags.stat_of(&listed), None, "what the tags are is not known");
        let stat = tags.of_value(&headers(&[OLD, NOW, (ETAG, "\"64-5\"")]), 5, TTL);
        let found = tags.stat_of(&listed).expect("a stat");
        assert!(stat.version.holds(found.version) && stat.len == 5 && stat.modified == modified);
        tags.of_value(&headers(&[OLD, NOW, (ETAG, "\"65-5\"")]), 5, TTL);
        assert_eq!(tags.stat_of(&listed), None, "it has other tags");
        let listed = IndexEntry { tag: Some("\"65-5\"".to_owned()), ..listed };
        assert!(tags.stat_of(&listed).is_some());
    }

    #[test]
    fn a_version_is_settled_if_the_value_is_not_young_or_its_tag_is_a_digest() {
        let young = (DATE, "Thu, 01 Jan 1970 00:01:41 GMT");
        let digest = (ETAG, "\"d41d8cd98f00b204e9800998ecf8427e-3\"");
        for (pairs, want) in [
            (vec![OLD, NOW], true),
            (vec![OLD, NOW, (ETAG, "W/\"x\"")], true),
            (vec![OLD, young.clone()], false),
            (vec![OLD, young.clone(), (ETAG, "\"x\"")], false),
            (vec![OLD, young.clone(), digest], true),
            (vec![NOW, (ETAG, "\"x\"")], true),
            (vec![NOW], true),
        ] {
            let stat = Tags::default().of_value(&headers(&pairs), 5, TTL);
            assert_eq!(stat.version.is_settled, want, "{pairs:?}");
        }
        assert!(!Tags::default().of_value(&headers(&[NOW]), 5, Duration::ZERO).version.is_settled);
    }

    #[test]
    fn only_an_exact_range_is_one() {
        let part = |text| part_of(&headers(&[(CONTENT_RANGE, text)]));
        assert_eq!(part("bytes 0-1/3"), Some(ContentRange { start: 0, end: 2, len: 3 }));
        for text in
            ["bytes 0-1/*", "bytes */3", "0-1/3", "bytes 2-1/3", "bytes 0-3/3", "items 0-1/3", ""]
        {
            assert_eq!(part(text), None, "{text}");
        }
        assert_eq!(part("bytes 0-18446744073709551615/3"), None);
    }
}
