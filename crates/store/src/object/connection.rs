//! How the clients of all providers send requests: no redirect is followed, since requests carry
//! credentials, and the length of answers is limited.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, Result};
use reqwest::header::{CONTENT_RANGE, HeaderMap, LOCATION, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode};

use super::failure::{LONGEST_OBJECT, unusable};
use super::listed::{self, UnlistedNames};
use super::signs::Signs;
use crate::Prefix;
use zarrfs_base::error::Kind;

/// The longest answer to a request that is not one for a range, in bytes: a page of names.
const LONGEST: usize = 16 << 20;

/// The longest error, in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// How long to wait for a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// Makes connections.
#[derive(Debug)]
pub(super) struct Connector {
    /// How long the server may be silent within an answer.
    pub read_timeout: Option<Duration>,
    /// The signs that the server works.
    pub signs: Arc<Signs>,
    /// What lists leave out.
    pub left_out: UnlistedNames,
}

impl Connector {
    /// Makes connections to a server that nobody watches.
    pub fn new(read_timeout: Duration) -> Self {
        let left_out = UnlistedNames::below(Prefix::root());
        Self { read_timeout: Some(read_timeout), signs: Arc::default(), left_out }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("zarrfs/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .redirect(Policy::none())
            .referer(false)
            .connect_timeout(CONNECT);
        if let Some(time) = self.read_timeout {
            builder = builder.read_timeout(time);
        }
        let client = builder.build().map_err(|source| object_store::Error::Generic {
            store: "HTTP",
            source: source.into(),
        })?;
        let (signs, left_out) = (Arc::clone(&self.signs), self.left_out.clone());
        Ok(HttpClient::new(Sender { client, signs, left_out }))
    }
}

/// Sends requests.
#[derive(Debug)]
struct Sender {
    client: reqwest::Client,
    signs: Arc<Signs>,
    left_out: UnlistedNames,
}

#[async_trait]
impl HttpService for Sender {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let has_range = request.headers().contains_key(RANGE);
        let is_list = request.uri().query().is_some_and(listed::is_request);
        // A list of keys to erase is posted, too.
        let stores = !matches!(*request.method(), Method::GET | Method::HEAD);
        let answered = self.client.call(request).await;
        if stores {
            self.signs.note_stored(answered.as_ref().is_ok_and(|answer| works(answer.status())));
        }
        let response = answered?;
        let status = response.status();
        if let Some(target) = response.headers().get(LOCATION)
            && status.is_redirection()
        {
            return Err(redirected(&String::from_utf8_lossy(target.as_bytes())));
        }
        check_range(response.headers())?;
        let (parts, body) = response.into_parts();
        let body = match status.is_success() {
            // The reader of a range knows its length.
            true if has_range => body,
            true if is_list => {
                listed::page(read(body, LONGEST, false).await?, &self.left_out)?.into()
            }
            true => read(body, LONGEST, false).await?.into(),
            false => read(body, LONGEST_ERROR, true).await?.into(),
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// Whether a server with this answer does its work. It may refuse to do more.
fn works(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

/// Reads a body of at most `most` bytes. The rest of an error is left out.
async fn read(body: HttpResponseBody, most: usize, is_error: bool) -> Result<Bytes, HttpError> {
    let (mut bytes, mut pieces) = (Vec::new(), body.bytes_stream());
    while let Some(piece) = pieces.next().await.transpose()? {
        let room = most.saturating_sub(bytes.len());
        if piece.len() > room {
            if is_error {
                break;
            }
            let detail = format!("the server sends more than {most} bytes of names");
            return Err(unusable(Kind::Os(libc::EIO), detail));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.into())
}

fn redirected(target: &str) -> HttpError {
    let host = reqwest::Url::parse(target).ok().and_then(|url| url.host_str().map(str::to_owned));
    let place = host.unwrap_or_else(|| "another place".to_owned());
    unusable(
        Kind::Os(libc::EACCES),
        format!(
            "the server redirects to {place}, which gets no credentials; if you trust it, name it \
             with --endpoint"
        ),
    )
}

/// Refuses a range of an object that is longer than any can be.
fn check_range(headers: &HeaderMap) -> Result<(), HttpError> {
    let Some(range) = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()) else {
        return Ok(());
    };
    let is_possible = |digits: &str| {
        digits.is_empty() || digits.parse::<u64>().is_ok_and(|number| number <= LONGEST_OBJECT)
    };
    if range.split(|it: char| !it.is_ascii_digit()).all(is_possible) {
        return Ok(());
    }
    let detail = "the server names a range that no object can have";
    Err(unusable(Kind::Os(libc::EIO), detail))
}
