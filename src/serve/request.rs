//! A request, from its line to the answer.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use tokio::task::spawn_blocking;

use super::body::{self, BlockMemory};
use super::client::ClientConnection;
use super::file::FileAnswer;
use super::listing::{Listing, ListingFormat};
use super::opendap;
use super::paths::{self, Path};
use super::preview;
use super::reply::{self, Body, Reply, TEXT};
use super::server::ServeOptions;
use super::tree::TreeEntry;
use crate::error::{Error, Kind, Result};
use crate::vfs::{CONTROL, Vfs};

/// The answer to other methods.
const READ_ONLY: &str = "zarrfs serve is read-only; zarrfs mount can change data";

/// The methods that are answered.
const METHODS: &str = "GET, HEAD, OPTIONS";

/// The headers that programs of other origins may send and read (Fetch Standard, CORS): those that
/// reading in ranges needs.
const REQUEST_HEADERS: &str =
    "Range, If-Range, If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, Accept";
const RESPONSE_HEADERS: &str = "Accept-Ranges, Content-Description, Content-Encoding, \
    Content-Length, Content-Range, Date, ETag, Last-Modified, XDODS-Server";

/// Neither the pages nor files of the tree that a browser shows run scripts or load anything.
const POLICY: &str =
    "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; base-uri 'none'";

/// How long a browser may keep the answer to OPTIONS, in seconds.
const MAX_AGE: &str = "86400";

/// What all requests share.
#[derive(Debug)]
pub struct Context {
    /// The tree.
    pub vfs: Arc<Vfs>,
    /// The options.
    pub options: ServeOptions,
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The memory for bodies.
    pub blocks: BlockMemory,
}

impl Context {
    /// Answers a request.
    pub async fn answer(
        self: Arc<Self>,
        request: Request<hyper::body::Incoming>,
        client: Arc<ClientConnection>,
    ) -> Reply {
        let _work = client.work();
        let blocks = self.blocks.of(&client);
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let mut reply = match self.refusal(&request) {
            Some(refusal) => refusal,
            None if method == Method::OPTIONS => options(),
            None => {
                let is_head = method == Method::HEAD;
                let query = request.uri().query().unwrap_or_default().to_owned();
                match self.path_of(request.uri().path()) {
                    Some(path) => self.get((path, query), headers, is_head, blocks).await,
                    None => reply::error(&Error::not_found()),
                }
            }
        };
        opendap::translate(&mut reply, request.uri().path());
        if method == Method::HEAD {
            *reply.body_mut() = Body::default();
        }
        let headers = reply.headers_mut();
        let set = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        set(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_HEADERS);
        // Programs of other origins may use the data in pages that are isolated from others.
        set(headers, HeaderName::from_static("cross-origin-resource-policy"), "cross-origin");
        set(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        // The URL has the token.
        set(headers, header::REFERRER_POLICY, "no-referrer");
        set(headers, header::CONTENT_SECURITY_POLICY, POLICY);
        reply
    }

    /// Returns the answer to a request that is not permitted.
    fn refusal<B>(&self, request: &Request<B>) -> Option<Reply> {
        let host = request.uri().host().or_else(|| {
            request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).map(bare)
        });
        if !host.is_some_and(|host| self.is_own(host)) {
            let shown = host.unwrap_or_default().escape_default();
            let why = format!(
                "the request is for the host \"{shown}\", which may be another site that poses as \
                 this one; permit it with --allow-host"
            );
            return Some(reply::sentence(StatusCode::MISDIRECTED_REQUEST, &why));
        }
        if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
            let mut reply = reply::sentence(StatusCode::METHOD_NOT_ALLOWED, READ_ONLY);
            reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(METHODS));
            return Some(reply);
        }
        // A browser sends OPTIONS before it sends the request with the token.
        if request.method() != Method::OPTIONS && !self.has_token(request.uri().path()) {
            let why = "the URL needs the token that zarrfs serve has printed";
            return Some(reply::sentence(StatusCode::FORBIDDEN, why));
        }
        None
    }

    /// Whether a name of a host is one of this server. A page of another site can reach a server on
    /// this machine by a name that it lets point here (DNS rebinding); the name shows that.
    fn is_own(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = ["localhost", "127.0.0.1", "::1"].contains(&host);
        let is_address = host.parse() == Ok(self.address.ip());
        is_loopback || is_address || self.options.hosts.iter().any(|own| own == host || own == "*")
    }

    fn below_base<'p>(&self, path: &'p str) -> &'p str {
        let base = self.options.base.trim_end_matches('/');
        // A proxy may have removed it.
        path.strip_prefix(base).filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }

    fn has_token(&self, path: &str) -> bool {
        let Some(token) = &self.options.token else { return true };
        let typed = self.below_base(path).trim_start_matches('/');
        let typed = typed.split('/').next().unwrap_or_default();
        // The time does not depend on how much of it is right.
        let differs = typed.bytes().zip(token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        typed.len() == token.len() && differs == 0
    }

    /// Returns the path in the tree.
    fn path_of(&self, path: &str) -> Option<Path> {
        let mut path = paths::decode(self.below_base(path))?;
        if self.options.token.is_some() {
            if path.names.len() == 1 && !path.is_closed {
                // The links of the page need the slash.
                return Some(Path { names: Vec::new(), is_closed: false });
            }
            path.names = path.names.split_off(1.min(path.names.len()));
        }
        Some(path)
    }

    async fn get(
        self: Arc<Self>,
        (path, query): (Path, String),
        headers: HeaderMap,
        is_head: bool,
        blocks: BlockMemory,
    ) -> Reply {
        let context = Arc::clone(&self);
        let prepare = move || {
            let prepared = context.prepare(&path, &query, &headers, is_head);
            prepared.inspect_err(|error| context.vfs.note("serve", error))
        };
        let prepared = spawn_blocking(prepare).await;
        let prepared = prepared.unwrap_or_else(|error| {
            Err(Error::new(Kind::Internal, format!("a bug in zarrfs, please report it: {error}")))
        });
        match prepared {
            Err(error) => reply::error(&error),
            Ok(PreparedReply::Reply(reply)) => reply,
            Ok(PreparedReply::DataSet(prepared)) => prepared.reply(blocks),
            Ok(PreparedReply::File(answer, kind)) => answer.reply(kind, is_head, blocks),
            Ok(PreparedReply::Listing(listing, form)) => {
                let body = body::of(*listing, blocks);
                let mut reply = reply::of(StatusCode::OK, form.kind(), body);
                let headers = reply.headers_mut();
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                headers.insert(header::VARY, HeaderValue::from_static("Accept"));
                reply
            }
        }
    }

    /// Finds a file or directory, or a data set of OPeNDAP, and reads what must be known before the
    /// answer begins.
    fn prepare(
        &self,
        path: &Path,
        query: &str,
        headers: &HeaderMap,
        is_head: bool,
    ) -> Result<PreparedReply> {
        // A group with the name `dap` has no files with such extensions.
        if let Some(asked) = opendap::DataSetRequest::new(&path.names, query) {
            return Ok(PreparedReply::DataSet(Box::new(asked.prepare(&self.vfs))));
        }
        let found = match TreeEntry::new(&self.vfs, &path.names) {
            Err(error) if error.kind() == Kind::NotFound => {
                let asked = opendap::DataSetRequest::without_extension(&path.names).ok_or(error)?;
                return Ok(PreparedReply::DataSet(Box::new(asked.prepare(&self.vfs))));
            }
            found => found?,
        };
        if !found.attr.is_dir() {
            let kind = kind_of(&path.names);
            let answer = FileAnswer::prepare(found.open()?, headers, is_head)?;
            return Ok(PreparedReply::File(Box::new(answer), kind));
        }
        if query == "preview" {
            let png = preview::png(&self.vfs, &path.names)?;
            let reply = reply::of(StatusCode::OK, "image/png", reply::bytes(png));
            return Ok(PreparedReply::Reply(reply));
        }
        if !path.is_closed {
            return Ok(PreparedReply::Reply(self.with_slash(&path.names)));
        }
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let form = ListingFormat::of(accept);
        let listing = Listing::new(found, &self.options.title, &path.names, form)?;
        Ok(PreparedReply::Listing(Box::new(listing), form))
    }

    /// Returns a redirection to the URL of a directory with a slash, which relative links need.
    fn with_slash(&self, names: &[String]) -> Reply {
        let last = names.last().map(|name| paths::encode(name)).or(self.options.token.clone());
        // The dot keeps a colon from looking like a scheme.
        let location = format!("./{}/", last.unwrap_or_default());
        let mut reply = reply::sentence(StatusCode::MOVED_PERMANENTLY, &location);
        if let Ok(location) = HeaderValue::from_str(&location) {
            reply.headers_mut().insert(header::LOCATION, location);
        }
        reply
    }
}

enum PreparedReply {
    Reply(Reply),
    DataSet(Box<opendap::PreparedAnswer>),
    File(Box<FileAnswer>, &'static str),
    Listing(Box<Listing>, ListingFormat),
}

/// Answers the question of a browser what programs of other origins may do.
fn options() -> Reply {
    let mut reply = Reply::new(Body::default());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    let headers = reply.headers_mut();
    let set = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(headers, header::ALLOW, METHODS);
    set(headers, header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    set(headers, header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
    set(headers, header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    // A page of a public site may use a server in a private network.
    set(headers, HeaderName::from_static("access-control-allow-private-network"), "true");
    reply
}

/// Returns the host without its port.
fn bare(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

/// Returns the type of a file, by its name.
fn kind_of(names: &[String]) -> &'static str {
    if names.first().is_some_and(|first| first == CONTROL) {
        return TEXT;
    }
    let name = names.last().map_or("", String::as_str);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "json" | "zarray" | "zgroup" | "zattrs" | "zmetadata" => "application/json",
        "txt" | "md" | "csv" => TEXT,
        "nc" | "nc4" => "application/x-netcdf",
        "h5" | "h5ad" => "application/x-hdf5",
        "tif" => "image/tiff",
        "fits" => "image/fits",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
