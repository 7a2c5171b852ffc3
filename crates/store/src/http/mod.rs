//! Hierarchies on web servers, which are read-only.
//!
//! Such servers have little in common. Some list directories, and each has another form of list
//! (`index`); some send no ranges of a value (`whole`); some do not say plainly that a value is
//! missing (`missing`). The store above needs to know none of it.
//!
//! Only this module and `store::object` name the HTTP client. Its requests run on the threads of a
//! `Runner`.

mod body;
mod client;
mod failure;
mod get;
mod head;
pub mod index;
mod list;
mod missing;
mod probe;
mod refusal;
mod retry;
mod room;
mod shared;
mod url;
mod whole;
mod wholes;

pub use client::HttpOptions;
pub use url::{are_on_one_server, decoded, shown};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::disk_cache::DiskCache;
use super::remote::server::{Depth, ListingPage, Report, Server, Start};
use super::remote::{RemoteLimits, RemoteStore, ValueCache};
use super::runner::Runner;
use super::{ByteRange, Condition, Key, Prefix, Stat, Value};
use body::Received;
use client::HttpClient;
use failure::Failure;
use retry::retried;
use shared::ServerState;
use url::BaseUrl;
use zarrfs_base::error::{Error, Kind, Result};

/// How long to try until the server has answered for the first time: its name may be wrong.
const FIRST: Duration = Duration::from_secs(5);

/// Opens the store at a URL such as `https://host/path/x.zarr`. Its values are kept in `disk`, if
/// there is such a cache.
pub fn connect(
    url: &str,
    options: &HttpOptions,
    limits: RemoteLimits,
    disk: Option<Arc<DiskCache>>,
) -> Result<RemoteStore> {
    let base = BaseUrl::parse(url)?;
    let store = base.identity(&options.headers);
    let cache = disk.map(|disk| ValueCache { disk, store });
    let server = HttpServer::connect(base, options, limits)?;
    server.probe();
    RemoteStore::new(Arc::new(server), limits, cache)
}

/// A web server, from a URL on.
struct HttpServer {
    shared: Arc<ServerState>,
    runner: Runner,
    /// How long a request is tried again.
    retry_for: Duration,
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpServer({:?})", self.shared.client.base)
    }
}

impl HttpServer {
    fn connect(base: BaseUrl, options: &HttpOptions, limits: RemoteLimits) -> Result<Self> {
        let shared = Arc::new(ServerState::new(HttpClient::new(base, options)?, limits));
        Ok(Self { shared, runner: Runner::new(limits.requests)?, retry_for: options.retry_for })
    }

    /// Asks for a name that cannot exist, beside the first requests, which wait for the answer.
    fn probe(&self) {
        let request = |shared: Arc<ServerState>, _| async move { shared.probe().await };
        // The first request reports its failure.
        self.run(request, Box::new(drop));
    }

    /// Runs a request, and reports its result.
    fn run<T: Send + 'static, F: Future<Output = Result<T, Failure>> + Send>(
        &self,
        request: impl Fn(Arc<ServerState>, Arc<Received>) -> F + Send + Sync + 'static,
        report: Report<T>,
    ) {
        let (shared, retry_for) = (Arc::clone(&self.shared), self.retry_for);
        self.runner.run(async move {
            let is_first = !shared.has_answered.load(Ordering::Relaxed);
            let most = if is_first { retry_for.min(FIRST) } else { retry_for };
            let result = retried(most, |received| request(Arc::clone(&shared), received)).await;
            if result.is_ok() {
                shared.has_answered.store(true, Ordering::Relaxed);
            }
            report(result);
        });
    }
}

impl Server for HttpServer {
    fn stop(&self) {
        self.runner.stop();
    }

    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>) {
        let key = key.clone();
        let request = move |shared: Arc<ServerState>, received: Arc<Received>| {
            let key = key.clone();
            async move { shared.get(&key, range, &received).await }
        };
        self.run(request, report);
    }

    fn has_tag(&self, stat: &Stat, tag: &str) -> Option<bool> {
        head::has_tag(stat, tag)
    }

    fn has_version(&self, stat: &Stat) -> bool {
        head::has_version(stat)
    }

    fn put(&self, _: &Key, _: Vec<Bytes>, _: Condition, report: Report<Stat>) {
        report(Err(read_only()));
    }

    fn delete(&self, _: &[Key], report: Report<()>) {
        report(Err(read_only()));
    }

    fn lists_subtrees(&self) -> bool {
        false
    }

    fn proves_absence(&self) -> bool {
        false
    }

    fn list(&self, prefix: &Prefix, _: Depth, _: Start, report: Report<ListingPage>) {
        let prefix = prefix.clone();
        let request = move |shared: Arc<ServerState>, received: Arc<Received>| {
            let prefix = prefix.clone();
            async move { shared.list(&prefix, &received).await }
        };
        self.run(request, report);
    }
}

fn read_only() -> Error {
    Error::new(Kind::ReadOnly, "zarrfs does not write to web servers")
}
