//! Answers with the bytes of a file.

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderValue, LAST_MODIFIED,
    RANGE,
};
use hyper::{HeaderMap, Response, StatusCode};

use super::body::{self, BLOCK, BlockMemory, Produce, SMALL};
use super::conditions::{self, ConditionalAnswer, ServedVersion};
use super::range::{self, AskedRange};
use super::reply::{self, Body, Reply};
use super::tree::Open;
use crate::error::Result;
use crate::vfs::FileVersion;
use crate::width::{ToU64, ToUsize};

/// The answer to a request for a file, up to its first bytes.
#[derive(Debug)]
pub struct FileAnswer {
    open: Open,
    version: ServedVersion,
    status: StatusCode,
    part: Range<u64>,
    first: Bytes,
}

/// The number of times that a part is read, because it may have another version than the rest of
/// its file.
const ATTEMPTS: usize = 3;

impl FileAnswer {
    /// Reads what is needed before the first header can be sent: if it fails, the client gets an
    /// error and not a file. Waits for the store.
    pub fn prepare(mut open: Open, headers: &HeaderMap, is_head: bool) -> Result<Self> {
        // Only a part is compared with a version that was read before. Conditions need the current
        // one, and so do longer bodies: they are read while the client takes them, and have the
        // version of their beginning.
        if !is_head
            && !conditions::are_given(headers)
            && let Some(version) = open.last_version()
        {
            let mut answer = Self::plan(open, &version, headers);
            if answer.status == StatusCode::PARTIAL_CONTENT && answer.is_one_block() {
                answer.read_first()?;
                if answer.is_of(&version)? {
                    return Ok(answer);
                }
            }
            open = answer.open;
        }
        for _ in 0..ATTEMPTS {
            let version = open.version()?;
            let mut answer = Self::plan(open, &version, headers);
            if is_head {
                return Ok(answer);
            }
            let is_checked = version.has_parts() && answer.is_one_block();
            if is_checked {
                answer.open.again()?;
            }
            answer.read_first()?;
            if !is_checked || answer.is_of(&version)? {
                return Ok(answer);
            }
            open = answer.open;
        }
        // It changes all the time. Parts with a weak version are not combined.
        let mut answer = Self::plan(open, &FileVersion::default(), headers);
        answer.read_first()?;
        Ok(answer)
    }

    /// Decides what to answer.
    fn plan(open: Open, version: &FileVersion, headers: &HeaderMap) -> Self {
        let version = tagged(&open, version.number);
        let whole = 0..open.attr().len;
        let (status, part) = match conditions::wanted(headers, &version) {
            ConditionalAnswer::Nothing => (StatusCode::NOT_MODIFIED, 0..0),
            ConditionalAnswer::Another => (StatusCode::PRECONDITION_FAILED, 0..0),
            ConditionalAnswer::File => match asked(headers, &version, whole.end) {
                AskedRange::Whole => (StatusCode::OK, whole),
                AskedRange::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
                AskedRange::Beyond => (StatusCode::RANGE_NOT_SATISFIABLE, 0..0),
            },
        };
        Self { open, version, status, part, first: Bytes::new() }
    }

    /// Reads the first bytes of the body.
    fn read_first(&mut self) -> Result<()> {
        let mut rest = Rest { open: &self.open, part: self.part.clone() };
        // Others wait for their first bytes, too: the rest of a longer body is read in its turn.
        let len = if self.is_one_block() { BLOCK } else { SMALL };
        self.first = rest.next(len)?.unwrap_or_default();
        Ok(())
    }

    /// Whether the part that was read has this version.
    fn is_of(&self, version: &FileVersion) -> Result<bool> {
        let is_same_file = tagged(&self.open, version.number) == self.version;
        Ok(is_same_file && self.open.is_part_of(version, self.part.clone())?)
    }

    /// Whether the first bytes are the whole body, and there are any.
    fn is_one_block(&self) -> bool {
        let len = self.part.end.saturating_sub(self.part.start);
        len > 0 && usize::try_from(len).is_ok_and(|len| len <= BLOCK)
    }

    /// Returns the reply, whose body is read while the client takes it.
    pub fn reply(self, kind: &'static str, is_head: bool, blocks: BlockMemory) -> Reply {
        let len = self.part.end.saturating_sub(self.part.start);
        let total = self.open.attr().len;
        let mut reply = match self.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                let mut reply = reply::of(self.status, kind, Body::default());
                reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
                if self.status == StatusCode::PARTIAL_CONTENT {
                    let last = self.part.end.saturating_sub(1);
                    insert(
                        reply.headers_mut(),
                        CONTENT_RANGE,
                        &format!("bytes {}-{last}/{total}", self.part.start),
                    );
                }
                reply
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let why = format!("the file has {total} bytes, and the range begins past its end");
                let mut reply = reply::sentence(self.status, &why);
                insert(reply.headers_mut(), CONTENT_RANGE, &format!("bytes */{total}"));
                reply
            }
            StatusCode::PRECONDITION_FAILED => {
                reply::sentence(self.status, "the file has changed, or has no version to compare")
            }
            status => {
                let mut reply = Response::new(Body::default());
                *reply.status_mut() = status;
                reply
            }
        };
        let headers = reply.headers_mut();
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        // A client may keep the file, but has to ask whether it has changed.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Some(tag) = &self.version.tag {
            insert(headers, ETAG, tag);
            insert(headers, LAST_MODIFIED, &httpdate::fmt_http_date(self.version.modified));
        }
        if !is_head && matches!(self.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            let first = (!self.first.is_empty()).then_some(self.first);
            *reply.body_mut() =
                body::of(Transfer { open: self.open, part: self.part, first }, blocks);
        }
        reply
    }
}

fn asked(headers: &HeaderMap, version: &ServedVersion, len: u64) -> AskedRange {
    match headers.get(RANGE).and_then(|range| range.to_str().ok()) {
        Some(range) if conditions::allows_part(headers, version) => range::asked(range, len),
        _ => AskedRange::Whole,
    }
}

/// Returns the version of a file for headers.
fn tagged(open: &Open, version: Option<u64>) -> ServedVersion {
    let attr = open.attr();
    let since = attr.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (time, len) = (since.as_nanos(), attr.len);
    let tag = match version {
        Some(version) => format!("\"{time:x}-{len:x}-{version:x}\""),
        None => format!("W/\"{time:x}-{len:x}\""),
    };
    ServedVersion { tag: Some(tag), modified: attr.modified }
}

fn insert(headers: &mut HeaderMap, name: hyper::header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The bytes of a file that are not read yet.
struct Rest<'o> {
    open: &'o Open,
    part: Range<u64>,
}

impl Rest<'_> {
    fn next(&mut self, most: usize) -> Result<Option<Bytes>> {
        let left = self.part.end.saturating_sub(self.part.start);
        let len = left.to_usize().min(most);
        if len == 0 {
            return Ok(None);
        }
        let bytes = self.open.read(self.part.start, len)?;
        self.part.start = self.part.start.saturating_add(len.to_u64());
        Ok(Some(bytes))
    }
}

/// A file on its way to the client.
struct Transfer {
    open: Open,
    part: Range<u64>,
    first: Option<Bytes>,
}

impl Produce for Transfer {
    fn next(&mut self, most: usize) -> Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            let len = first.len().to_u64();
            self.part.start = self.part.start.saturating_add(len);
            return Ok(Some(first));
        }
        let mut rest = Rest { open: &self.open, part: self.part.clone() };
        let next = rest.next(most);
        self.part.start = rest.part.start;
        next
    }
}
