//! Sends requests, follows redirects, and reads answers.

use std::fmt;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, Url};

use super::failure::{Failure, SILENCE, denied, of_transfer, wrong};
use super::url::{BaseUrl, shown};
use zarrfs_base::error::{Error, Result};

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The most redirects of a request.
const MOST_REDIRECTS: usize = 10;

/// How to reach a server.
#[derive(Clone, Default)]
pub struct HttpOptions {
    /// Headers of each request, by name. They go to no other server.
    pub headers: Vec<(String, String)>,
    /// How long a request is tried again.
    pub retry_for: Duration,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("retry_for", &self.retry_for).finish_non_exhaustive()
    }
}

/// Sends requests to a server.
#[derive(Debug)]
pub(super) struct HttpClient {
    http: reqwest::Client,
    pub base: BaseUrl,
    /// Headers of the user, which may be secret.
    headers: HeaderMap,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: &'static str,
}

impl Request {
    pub fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), body: "" }
    }

    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// An answer, and where it came from.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub response: Response,
    pub url: Url,
    /// The server that answered, if the first one has sent the request on to another.
    pub elsewhere: Option<String>,
}

impl HttpClient {
    pub fn new(base: BaseUrl, options: &HttpOptions) -> Result<Self> {
        // It fails if it was done before.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let invalid = || Error::invalid(format!("the header {name:?} cannot be sent"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("zarrfs/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .build()
            .map_err(|error| of_transfer(&error).error())?;
        Ok(Self { http, base, headers })
    }

    /// Sends a request, and follows redirects. Secrets go only to the server of the URL.
    pub async fn send(&self, request: Request) -> Result<HttpAnswer, Failure> {
        let mut url = request.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let response = self.send_to(&request, url.clone()).await?;
            let location = response.headers().get(LOCATION);
            let target = location.filter(|_| response.status().is_redirection());
            let Some(target) = target else {
                let is_same = self.base.is_same_server(&url);
                let host = url.host_str().unwrap_or_default().to_owned();
                return Ok(HttpAnswer { response, url, elsewhere: (!is_same).then_some(host) });
            };
            let target = String::from_utf8_lossy(target.as_bytes()).into_owned();
            let next = url.join(&target).map_err(|error| {
                wrong(format!(
                    "the server redirects to {}, which is no URL: {error}",
                    shown(&target)
                ))
            })?;
            if !matches!(next.scheme(), "http" | "https") {
                return Err(denied(format!(
                    "the server redirects to {}, which is no URL of a web server",
                    shown(next.as_str())
                )));
            }
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(denied(format!(
                    "the server redirects from https to {}, which others could read and change; \
                     if that does not matter, give the URL to which it redirects",
                    shown(next.as_str())
                )));
            }
            url = next;
        }
        Err(wrong(format!("the server redirects more than {MOST_REDIRECTS} times")))
    }

    async fn send_to(&self, request: &Request, url: Url) -> Result<Response, Failure> {
        let is_own = self.base.is_same_server(&url);
        let mut builder = self
            .http
            .request(request.method.clone(), url)
            // A part of an encoded value could not be decoded.
            .header(ACCEPT_ENCODING, "identity")
            .headers(request.headers.clone());
        if is_own {
            if let Some((user, password)) = &self.base.user {
                builder = builder.basic_auth(user, password.as_ref());
            }
            builder = builder.headers(self.headers.clone());
        }
        if !request.body.is_empty() {
            builder = builder.body(request.body);
        }
        builder.send().await.map_err(|error| of_transfer(&error))
    }
}
