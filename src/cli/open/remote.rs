//! Stores at URLs, and the options for reaching them.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::archive;
use crate::cli::args::values::{duration, size};
use crate::cli::failure::{Failure, failed};
use crate::store::{Store, is_component};
#[cfg(feature = "remote")]
use crate::store::{disk_cache::DiskCache, http, object, remote::RemoteStore};

/// How long names and sizes of a store at a URL are cached.
pub const TTL: Duration = Duration::from_secs(60);

/// The fewest threads that read chunks from a server: most of the time they wait.
const THREADS: usize = 16;

/// The most threads that read chunks, whatever the user typed: more only take memory.
const MOST_THREADS: usize = 1024;

/// Returns how many threads read the chunks of these sources, if the user did not type a number.
pub fn reading_threads<'p>(
    typed: Option<usize>,
    sources: impl IntoIterator<Item = &'p Path>,
) -> usize {
    let usual = || {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let any_remote = sources.into_iter().any(|source| url(source).is_some());
        if any_remote { processors.max(THREADS) } else { processors }
    };
    typed.unwrap_or_else(usual).clamp(1, MOST_THREADS)
}

/// How to reach a store at a URL.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options for URLs")]
pub struct Remote {
    /// Do not sign requests, for buckets that all users may read.
    #[arg(long)]
    pub anonymous: bool,
    /// URL of the server, if it is not that of the provider (for S3 by default `AWS_ENDPOINT_URL`).
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of a bucket in S3 (by default `AWS_REGION`, or us-east-1).
    #[arg(long, value_name = "NAME")]
    pub bucket_region: Option<String>,
    /// Pay for the requests, as some buckets in S3 require.
    #[arg(long)]
    pub requester_pays: bool,
    /// Profile with the credentials for S3, in the files of the AWS tools (by default
    /// `AWS_PROFILE`).
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How long to try a request again after an error.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub retry_for: Duration,
    /// Memory for data that is requested in advance, and for long answers of web servers.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub fetch_memory: u64,
    /// Send a header with each request to a web server, as for a token (repeatable).
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    pub headers: Vec<RequestHeader>,
    /// The most requests at a time.
    #[arg(long, value_name = "N", default_value = "64")]
    pub max_requests: usize,
    /// Keep the bytes that are read from URLs in this directory, also for later mounts.
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<PathBuf>,
    /// The most bytes in that directory.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "10G")]
    pub disk_cache_size: u64,
    /// Nothing else writes to this hierarchy, so it may be on a server that ignores conditions.
    #[arg(long)]
    pub single_writer: bool,
    /// The longest shard that is stored again because a part of it changes.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub max_rewrite: u64,
    /// Read the virtual chunks of an Icechunk repository and the references of kerchunk that are
    /// below PREFIX, such as `s3://noaa-goes16` or `/data/nc`; can be repeated. With =PLACE, what
    /// they say is below PREFIX is read from another directory or URL.
    #[arg(long, value_name = "PREFIX[=PLACE]")]
    pub allow_virtual: Vec<String>,
}

/// Returns the URL that was typed, unless it is a path.
pub fn url(source: &Path) -> Option<&str> {
    source.to_str().filter(|text| text.contains("://"))
}

/// Whether a URL is that of a web server.
pub fn is_web(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme))
}

/// Returns the URL of the directory with the file that a URL names, and the name of the file. The
/// query of a web server, which may be a token, is one for all files.
pub fn split_file(url: &str) -> Option<(String, String)> {
    let at = url.find('?').filter(|_| is_web(url)).unwrap_or(url.len());
    let (path, query) = url.split_at_checked(at)?;
    let (above, name) = path.rsplit_once('/')?;
    let name = if is_web(url) { decoded(name)? } else { name.to_owned() };
    (is_component(&name) && !above.ends_with('/')).then(|| (format!("{above}{query}"), name))
}

/// Returns a name in the URL of a web server with its escapes decoded.
fn decoded(name: &str) -> Option<String> {
    #[cfg(feature = "remote")]
    return http::decoded(name);
    #[cfg(not(feature = "remote"))]
    Some(name.to_owned())
}

/// Whether two URLs are on the same web server.
pub fn are_on_one_server(one: &str, other: &str) -> bool {
    #[cfg(feature = "remote")]
    return http::are_on_one_server(one, other);
    #[cfg(not(feature = "remote"))]
    (one == other)
}

/// Returns why no program can write to the store at a URL, as the end of a sentence about it.
pub fn why_read_only(url: &str) -> Option<&'static str> {
    if archive::split_url(url).is_some() {
        return Some(archive::WHY_READ_ONLY);
    }
    is_web(url).then_some("mounted read-only, because zarrfs does not write to web servers")
}

/// Returns a URL as it may be shown: without a password or the query, which may have a token.
pub fn shown(url: &str) -> Cow<'_, str> {
    #[cfg(feature = "remote")]
    if is_web(url) {
        return http::shown(url).into();
    }
    url.into()
}

/// Returns what the user typed as it may be shown.
pub fn typed(source: &Path) -> String {
    url(source).map_or_else(|| source.display().to_string(), |url| shown(url).into_owned())
}

/// Fails if no program can write to the store at a URL.
pub fn check_writable(url: &str) -> Result<(), Failure> {
    if is_web(url) {
        return Err(failed(format!("{}: zarrfs does not write to web servers", shown(url))));
    }
    Ok(())
}

/// A header of requests, which may be secret.
#[derive(Clone)]
pub struct RequestHeader {
    name: String,
    #[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "nothing is sent without it"))]
    value: String,
}

impl fmt::Debug for RequestHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ...", self.name)
    }
}

/// Parses a header as `curl` takes it.
fn header(text: &str) -> Result<RequestHeader, String> {
    let parts = text.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
    match parts.filter(|(name, _)| !name.is_empty()) {
        Some((name, value)) => Ok(RequestHeader { name: name.to_owned(), value: value.to_owned() }),
        None => Err("expected NAME:VALUE, such as Authorization: Bearer TOKEN".to_owned()),
    }
}

/// How the names in a store are needed.
#[cfg(feature = "remote")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamesNeed {
    /// Programs will list them, so the root is listed beside the first request.
    Listed,
    /// One name is known.
    ByName,
}

impl Remote {
    /// Returns the options with directories that zarrfs writes to.
    pub fn outputs(&self) -> [(&'static str, Option<&Path>); 1] {
        [("--disk-cache", self.disk_cache.as_deref())]
    }

    /// Returns these options for another server, which must not get the headers.
    pub fn without_headers(&self) -> Self {
        Self { headers: Vec::new(), ..self.clone() }
    }

    /// Returns the store at a URL, which may be that of a zip archive. It caches names for `ttl`.
    #[cfg(feature = "remote")]
    pub fn store(&self, url: &str, ttl: Duration) -> Result<Store, Failure> {
        use std::sync::Arc;

        let explain = |detail: &str| failed(format!("{}: {detail}", shown(url)));
        if let Some((above, key)) = archive::split_url(url) {
            let below = self.server(&above, ttl, NamesNeed::ByName)?;
            let below = below.map_err(|error| explain(error.detail()))?;
            return archive::store_in(Store::new(Arc::new(below)).read_only(), key, ttl)
                .map_err(|failure| explain(failure.message()));
        }
        let store = self.server(url, ttl, NamesNeed::Listed)?;
        let store = Store::new(Arc::new(store.map_err(|error| explain(error.detail()))?));
        Ok(if is_web(url) { store.read_only() } else { store })
    }

    /// Opens the store on the server of a URL.
    #[cfg(feature = "remote")]
    fn server(
        &self,
        url: &str,
        ttl: Duration,
        names: NamesNeed,
    ) -> Result<crate::error::Result<RemoteStore>, Failure> {
        let (limits, disk) = (self.limits(ttl), self.open_disk_cache()?);
        let store = if is_web(url) {
            let headers = self.headers.iter();
            let headers = headers.map(|it| (it.name.clone(), it.value.clone())).collect();
            let options = http::HttpOptions { headers, retry_for: self.retry_for };
            http::connect(url, &options, limits, disk)
        } else {
            object::connect(url, &self.options(), limits, disk)
        };
        if let Ok(store) = &store
            && names == NamesNeed::Listed
        {
            store.try_listing();
        }
        Ok(store)
    }

    #[cfg(feature = "remote")]
    fn limits(&self, ttl: Duration) -> crate::store::remote::RemoteLimits {
        crate::store::remote::RemoteLimits {
            ttl,
            memory: crate::resources::within_memory(self.fetch_memory, 8),
            requests: self.max_requests.max(1),
            rewrite: self.max_rewrite,
            is_single_writer: self.single_writer,
            ..crate::store::remote::RemoteLimits::DEFAULT
        }
    }

    #[cfg(feature = "remote")]
    fn open_disk_cache(&self) -> Result<Option<std::sync::Arc<DiskCache>>, Failure> {
        let Some(directory) = &self.disk_cache else { return Ok(None) };
        // The daemon changes its working directory.
        let cache = DiskCache::open(&std::path::absolute(directory)?, self.disk_cache_size);
        let cache = cache.map_err(|error| failed(format!("--disk-cache: {error}")))?;
        Ok(Some(std::sync::Arc::new(cache)))
    }

    /// Returns the uploads to a URL.
    #[cfg(feature = "remote")]
    pub fn uploads(&self, url: &str) -> Result<object::Uploads, Failure> {
        object::uploads(url, &self.options())
            .map_err(|error| failed(format!("{url}: {}", error.detail())))
    }

    #[cfg(feature = "remote")]
    fn options(&self) -> object::ObjectOptions {
        object::ObjectOptions {
            anonymous: self.anonymous,
            endpoint: self.endpoint.clone(),
            region: self.bucket_region.clone(),
            requester_pays: self.requester_pays,
            profile: self.profile.clone(),
            retry_for: self.retry_for,
        }
    }

    /// Fails, since this program has no stores at URLs.
    #[cfg(not(feature = "remote"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    pub fn store(&self, url: &str, _ttl: Duration) -> Result<Store, Failure> {
        Err(failed(format!(
            "{url}: this zarrfs was built without support for URLs; install it with the feature \
             `remote`"
        )))
    }
}
