//! Requests of OPeNDAP clients (DAP2): `dap/NODE.dods?t2m[0:9]` below the root.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderName, HeaderValue};
use tokio::sync::OwnedSemaphorePermit;

use super::body::{self, BLOCK, BlockMemory, LARGE, Produce};
use super::paths;
use super::reply::{self, Body, Reply, Sentence, TEXT};
use crate::dap::{self, DapAnswer, DapCode, DapError};
use crate::error::{Kind, Result};
use crate::metadata::NodePath;
use crate::vfs::{ChunkReader, Vfs};
use crate::view::{ROOT_NAME, ViewSource};

/// The first name of the paths of data sets.
const FIRST: &str = "dap";

/// The bytes whose chunks are decoded in advance.
const AHEAD: usize = 32 << 20;

/// The headers of ESE-RFC-004, section 6: the version of the protocol, and the contents.
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("xdods-server"), HeaderValue::from_static("dap/2.0"));
const DESCRIPTION: HeaderName = HeaderName::from_static("content-description");
const ERROR: &str = "dods_error";

/// A request for a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSetRequest {
    path: NodePath,
    kind: dap::AnswerKind,
    /// The query.
    constraint: String,
}

/// An answer, up to its first bytes.
#[derive(Debug)]
pub struct PreparedAnswer {
    answer: Result<DapAnswer, DapError>,
    chunks: ChunkReader,
}

impl DataSetRequest {
    /// Returns the request with this path below the root, whose last name has an extension of DAP2;
    /// `None` if it is none.
    pub fn new(names: &[String], query: &str) -> Option<Self> {
        let (last, above) = names.split_last()?;
        let (stem, extension) = last.rsplit_once('.')?;
        let kind = dap::AnswerKind::of_extension(extension)?;
        let path = path_of(above.iter().map(String::as_str).chain([stem]))?;
        let constraint = query.to_owned();
        Some(Self { path, kind, constraint })
    }

    /// Returns the request of a person who follows the URL of a data set; `None` if it is none.
    pub fn without_extension(names: &[String]) -> Option<Self> {
        let path = path_of(names.iter().map(String::as_str))?;
        Some(Self { path, kind: dap::AnswerKind::Help, constraint: String::new() })
    }

    /// Makes the first bytes of the answer. Waits for the store.
    pub fn prepare(&self, vfs: &Vfs) -> PreparedAnswer {
        let chunks = vfs.chunks();
        let answer = self.answer(vfs, &chunks);
        PreparedAnswer { answer, chunks }
    }

    fn answer(&self, vfs: &Vfs, chunks: &ChunkReader) -> Result<DapAnswer, DapError> {
        let get = &|elements: &_, coords: &_, range: &_| chunks.get(elements, coords, range);
        let source = |path: &NodePath| ViewSource::new(vfs.hierarchy(), path, get);
        let source = source(&self.path).or_else(|error| match self.path.name() {
            // The files of the root have this name, too.
            Some(ROOT_NAME) => source(&self.path.parent().unwrap_or_else(NodePath::root)),
            _ => Err(error),
        });
        let source = source.map_err(|error| match error.kind() {
            Kind::NotFound => {
                let why = format!("there is no array or group {}", self.path);
                DapError::new(DapCode::NoSuchFile, why)
            }
            _ => error.into(),
        })?;
        dap::answer(&source, self.kind, &self.constraint)
    }
}

/// Returns the URL of the data set of the node at `names`, relative to the page of the node.
pub fn url_from_page(names: &[String]) -> String {
    let names_of_url = std::iter::once(FIRST).chain(names.iter().map(String::as_str));
    let names_of_url: Vec<String> = names_of_url.map(paths::encode).collect();
    format!("{}{}", "../".repeat(names.len()), names_of_url.join("/"))
}

/// Returns the path of a node below [`FIRST`].
fn path_of<'n>(names: impl Iterator<Item = &'n str>) -> Option<NodePath> {
    // The URL of the root may end with a slash, before the extension.
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let (first, names) = names.split_first()?;
    (*first == FIRST).then(|| NodePath::parse(&names.join("/")).ok()).flatten()
}

impl PreparedAnswer {
    /// Returns the reply, whose body is made while the client takes it.
    pub fn reply(self, blocks: BlockMemory) -> Reply {
        let Self { answer, chunks } = self;
        let mut reply = match answer {
            Ok(answer) => {
                let (kind, description) = (answer.content_type, answer.content_description);
                let len = answer.len();
                let body = if let Some(whole) = answer.whole() {
                    reply::bytes(whole)
                } else {
                    body::of(Transfer::new(answer, chunks, blocks.clone()), blocks)
                };
                let mut reply = with_description(StatusCode::OK, kind, description, body);
                if let Some(len) = len {
                    reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
                }
                reply
            }
            Err(error) => {
                let status = StatusCode::from_u16(error.http_status());
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let body = reply::bytes(error.document());
                with_description(status, TEXT, ERROR, body)
            }
        };
        let headers = reply.headers_mut();
        headers.insert(VERSION.0, VERSION.1);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        reply
    }
}

/// Makes a document of DAP2 of an error that an OPeNDAP client gets for a URL without `dap/`, or
/// without the token: clients print no other text.
pub fn translate(reply: &mut Reply, path: &str) {
    let is_of_client = [".dds", ".das", ".dods"].iter().any(|extension| path.ends_with(extension));
    let Some(Sentence(why)) = reply.extensions().get().filter(|_| is_of_client) else { return };
    let error = match reply.status() {
        StatusCode::NOT_FOUND => DapError::new(
            DapCode::NoSuchFile,
            "there is no such data set; the URL of a group or array has dap/ before its path, as \
             in http://127.0.0.1:8600/TOKEN/dap/NODE",
        ),
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            DapError::new(DapCode::NotPermitted, why.as_str())
        }
        _ => return,
    };
    *reply.body_mut() = reply::bytes(error.document());
    reply.headers_mut().insert(DESCRIPTION, HeaderValue::from_static(ERROR));
}

fn with_description(
    status: StatusCode,
    kind: &'static str,
    description: &'static str,
    body: Body,
) -> Reply {
    let mut reply = reply::of(status, kind, body);
    reply.headers_mut().insert(DESCRIPTION, HeaderValue::from_static(description));
    reply
}

/// An answer on its way to the client.
struct Transfer {
    answer: DapAnswer,
    chunks: ChunkReader,
    /// The bytes that are made, and not sent yet.
    made: Bytes,
    /// Their place in memory, if they are more than a block.
    place: Option<OwnedSemaphorePermit>,
    of: BlockMemory,
}

impl Produce for Transfer {
    fn next(&mut self, len: usize) -> Result<Option<Bytes>> {
        if self.made.is_empty() {
            self.make(len)?;
        }
        let block = self.made.split_to(self.made.len().min(len));
        Ok((!block.is_empty()).then_some(block))
    }
}

impl Transfer {
    fn new(answer: DapAnswer, chunks: ChunkReader, of: BlockMemory) -> Self {
        Self { answer, chunks, made: Bytes::new(), place: None, of }
    }

    fn make(&mut self, len: usize) -> Result<()> {
        self.place = None;
        let chunks = &self.chunks;
        if self.answer.has_costly_steps(BLOCK, chunks.cache_len()) {
            self.place = self.of.large();
        }
        let step = if self.place.is_some() { LARGE } else { len };
        let get = &|elements: &_, coords: &_, range: &_| chunks.get(elements, coords, range);
        chunks.expect(self.answer.ahead(AHEAD));
        let made = self.answer.next(step, get);
        self.made = made.inspect_err(|error| log::warn!("serve: {error}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_links_to_the_data_set_of_its_node() {
        let names = ["a".to_owned(), "50%".to_owned()];
        assert_eq!(url_from_page(&names), "../../dap/a/50%25");
        assert_eq!(url_from_page(&[]), "dap");
    }

    fn asked(path: &str) -> Option<(String, dap::AnswerKind)> {
        let names: Vec<String> = path.split('/').map(str::to_owned).collect();
        DataSetRequest::new(&names, "").map(|asked| (asked.path.as_str().to_owned(), asked.kind))
    }

    #[test]
    fn the_path_of_a_data_set_ends_with_an_extension() {
        for (path, node, kind) in [
            ("dap.dds", "", dap::AnswerKind::Dds),
            ("dap/.das", "", dap::AnswerKind::Das),
            ("dap/t2m.dods", "t2m", dap::AnswerKind::Dods),
            ("dap/a/b.nc.ascii", "a/b.nc", dap::AnswerKind::Ascii),
            ("dap/a/.ver", "a", dap::AnswerKind::Ver),
        ] {
            assert_eq!(asked(path), Some((node.to_owned(), kind)), "{path}");
        }
        for other in ["dap", "dap/t2m", "dap/t2m.nc", "t2m.dds", "other/t2m.dds", "dapper.dds"] {
            assert_eq!(asked(other), None, "{other}");
        }
    }
}
