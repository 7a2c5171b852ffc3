//! Object stores: S3 and servers that speak its protocol, Google Cloud Storage, and Azure Blob
//! Storage. `place` parses their URLs, and `s3`, `google` and `azure` have the settings of each.
//!
//! Only this module names the crate `object_store`. Its requests run on the threads of a `Runner`.

mod azure;
mod client;
mod connection;
mod credentials;
mod environment;
pub(super) mod failure;
mod google;
mod hidden;
mod listed;
mod place;
mod progress;
mod put;
mod renewal;
mod s3;
mod settings;
mod signs;
mod uploads;
mod version;

pub use settings::ObjectOptions;
pub use uploads::{Upload, Uploads};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt as _};

use super::disk_cache::DiskCache;
use super::pace::Pace;
use super::remote::server::{Depth, ListingPage, Report, Server, Start};
use super::remote::{RemoteLimits, RemoteStore, ValueCache};
use super::runner::Runner;
use super::{
    ByteRange, Condition, Key, Omissions, Prefix, Stat, StoreEntry, Value, is_component, unique,
};
use client::{Clients, FIRST};
use failure::error_of;
use hidden::Hidden;
use listed::UnlistedNames;
use place::{BucketPrefix, Provider};
use progress::LastArrival;
use put::Quoting;
use settings::BucketClient;
use version::stat_of;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToUsize;

/// How long to wait before a request is made again whose answer was cut.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2)];

/// The status of an answer to a request for a range that the value does not have.
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// How often a read begins again because its object was replaced between two requests.
const MOST_REPLACED: usize = 8;

/// The length of an answer with 1,000 names, in bytes.
const PAGE_LEN: u64 = 1 << 20;

/// The longest value that is read as a whole: only small ones of zarrfs itself are.
const LONGEST: u64 = 1 << 20;

/// Opens the store at a URL such as `s3://bucket/prefix`, and makes no request. Its values are kept
/// in `disk`, if there is such a cache.
pub fn connect(
    url: &str,
    options: &ObjectOptions,
    limits: RemoteLimits,
    disk: Option<Arc<DiskCache>>,
) -> Result<RemoteStore> {
    let server = ObjectServer::connect(BucketPrefix::parse(url)?, options, limits)?;
    let store = format!("{}/{}", server.clients.name, server.root);
    let cache = disk.map(|disk| ValueCache { disk, store });
    RemoteStore::new(Arc::new(server), limits, cache)
}

/// Returns the uploads to a URL.
pub fn uploads(url: &str, options: &ObjectOptions) -> Result<Uploads> {
    Uploads::open(BucketPrefix::parse(url)?, options)
}

/// A bucket, from a prefix on.
struct ObjectServer {
    clients: Clients,
    root: Prefix,
    runner: Runner,
    /// How long a request is tried again.
    retry_for: Duration,
    quoting: Arc<Quoting>,
    hidden: Arc<Hidden>,
    /// Whether the server has answered.
    has_answered: Arc<AtomicBool>,
}

impl fmt::Debug for ObjectServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectServer({}/{})", self.clients.name, self.root)
    }
}

impl ObjectServer {
    fn connect(place: BucketPrefix, options: &ObjectOptions, limits: RemoteLimits) -> Result<Self> {
        let clients = Clients::new(&place, options)?;
        Ok(Self {
            clients,
            root: place.root,
            runner: Runner::new(limits.requests)?,
            retry_for: options.retry_for,
            quoting: Arc::default(),
            hidden: Arc::default(),
            has_answered: Arc::default(),
        })
    }

    fn reader(&self) -> Arc<dyn BucketClient> {
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        Arc::clone(if has_answered { &self.clients.reader } else { &self.clients.first })
    }

    /// Runs a request that stores `len` bytes, and reports its result. A refusal is tried again
    /// with new credentials, if there may be some.
    fn run<T: Send + 'static, F: Future<Output = object_store::Result<T>> + Send>(
        &self,
        len: u64,
        request: impl Fn(Arc<LastArrival>) -> F + Send + Sync + 'static,
        report: Report<T>,
    ) {
        let (credentials, signs) =
            (self.clients.credentials.clone(), Arc::clone(&self.clients.signs));
        let has_answered = Arc::clone(&self.has_answered);
        let is_first = !has_answered.load(Ordering::Relaxed);
        let retry_for = if is_first { self.retry_for.min(FIRST) } else { self.retry_for };
        self.runner.run(async move {
            let _under_way = signs.begin(len);
            let noted = Arc::clone(&signs);
            let progress = Arc::new(LastArrival::begin(signs));
            let tries = || {
                progress
                    .until_silent(retried(|| request(Arc::clone(&progress)), retry_for), retry_for)
            };
            let began = SystemTime::now();
            let result = tries().await;
            if result.is_ok() {
                noted.note();
                has_answered.store(true, Ordering::Relaxed);
            }
            report(match (result, credentials) {
                (Err(failure), Some(credentials)) if failure::is_mended_by_renewal(&failure) => {
                    credentials.forget(began).await;
                    progress.note();
                    tries().await.map_err(|failure| error_of(&failure))
                }
                (result, _) => result.map_err(|failure| error_of(&failure)),
            });
        });
    }
}

impl Server for ObjectServer {
    fn has_tag(&self, stat: &Stat, tag: &str) -> Option<bool> {
        Some(version::of_tag(Some(tag), stat.len, stat.modified).is_same(stat.version))
    }

    fn stop(&self) {
        self.runner.stop();
    }

    fn silence(&self) -> Duration {
        self.clients.signs.silence()
    }

    fn omissions(&self) -> Omissions {
        self.clients.left_out.omissions.clone()
    }

    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>) {
        let (client, text) = (self.reader(), format!("{}{key}", self.root));
        let (hidden, root) = (Arc::clone(&self.hidden), self.root.clone());
        let provider = self.clients.provider;
        let request = move |progress: Arc<LastArrival>| {
            let (client, path) = (Arc::clone(&client), Path::parse(&text));
            let (hidden, root) = (Arc::clone(&hidden), root.clone());
            async move {
                let path = path?;
                let get = Get { client: &*client, provider, path: &path, progress: &progress };
                match get.run(range).await {
                    Err(failure)
                        if failure::is_not_allowed(&failure)
                            && hidden.is_missing(&*client, &root, &path).await =>
                    {
                        Ok(None)
                    }
                    got => {
                        if let Ok(Some(_)) = &got {
                            hidden.note_read(&path);
                        }
                        got
                    }
                }
            }
        };
        self.run(0, request, report);
    }

    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition, report: Report<Stat>) {
        let (clients, text) = (self.clients.clone(), format!("{}{key}", self.root));
        let (bytes, quoting) = (Arc::new(bytes), Arc::clone(&self.quoting));
        let retry_for = self.retry_for;
        // All tries have this name.
        let id: Arc<str> = unique::text().into();
        let len = put::len_of(&bytes);
        let request = move |progress: Arc<LastArrival>| {
            progress.allow(put::longest(len));
            let (clients, path) = (clients.clone(), Path::parse(&text));
            let (bytes, quoting, id) = (Arc::clone(&bytes), Arc::clone(&quoting), Arc::clone(&id));
            async move {
                let put = put::Put {
                    clients: &clients,
                    path: &path?,
                    bytes: &bytes,
                    quoting: &quoting,
                    id: &id,
                    patience: put::Patience { retry_for, progress: &progress },
                };
                put.run(condition).await
            }
        };
        self.run(len, request, report);
    }

    fn delete(&self, keys: &[Key], report: Report<()>) {
        let client = self.reader();
        let paths: Vec<String> = keys.iter().map(|key| format!("{}{key}", self.root)).collect();
        let request = move |progress: Arc<LastArrival>| {
            let client = Arc::clone(&client);
            let paths: Vec<_> = paths.iter().map(|path| Ok(Path::parse(path)?)).collect();
            async move {
                let mut deleted = client.delete_stream(stream::iter(paths).boxed());
                while let Some(done) = deleted.next().await {
                    progress.note();
                    match done {
                        Ok(_) => {}
                        Err(failure) if failure::is_absent(&failure) => {}
                        Err(failure) => return Err(failure),
                    }
                }
                Ok(())
            }
        };
        self.run(0, request, report);
    }

    fn list(&self, prefix: &Prefix, depth: Depth, start: Start, report: Report<ListingPage>) {
        let (client, hidden) = (self.reader(), Arc::clone(&self.hidden));
        let left_out = self.clients.left_out.clone();
        let prefix = format!("{}{prefix}", self.root);
        let page_token = match start {
            Start::First => None,
            Start::Continue(next) => Some(next),
        };
        let options = PaginatedListOptions {
            delimiter: (depth == Depth::Directory).then_some("/".into()),
            page_token,
            ..PaginatedListOptions::default()
        };
        let request = move |progress: Arc<LastArrival>| {
            progress.allow(put::longest(PAGE_LEN));
            let (client, prefix, options) = (Arc::clone(&client), prefix.clone(), options.clone());
            let (hidden, left_out) = (Arc::clone(&hidden), left_out.clone());
            async move {
                let listed = client.list_paginated(Some(&prefix), options).await?;
                hidden.note_listed();
                Ok(page_of(&prefix, depth, listed, &left_out))
            }
        };
        self.run(0, request, report);
    }
}

/// Returns the names in a part of a listing, without those that are no keys, which it notes.
fn page_of(
    prefix: &str,
    depth: Depth,
    listed: PaginatedListResult,
    left_out: &UnlistedNames,
) -> ListingPage {
    let is_valid = |name: &str| match depth {
        Depth::Directory => is_component(name),
        Depth::All => Key::parse(name).is_ok(),
    };
    let name_of = |path: &Path| {
        let name = path.as_ref().strip_prefix(prefix);
        if name.is_some_and(is_valid) {
            return name.map(str::to_owned);
        }
        // An object with the name of the prefix shows this as a directory.
        if path.as_ref() != prefix.trim_end_matches('/') {
            left_out.note(path.as_ref());
        }
        None
    };
    let prefixes = listed.result.common_prefixes.iter().filter_map(name_of);
    let prefixes: Vec<StoreEntry> = prefixes.map(StoreEntry::Prefix).collect();
    // A program that shows a bucket as directories may have stored an empty object for one.
    let objects = &listed.result.objects;
    let is_directory = |at: usize, name: &str| {
        let is_above = |object: &ObjectMeta| {
            let below = object.location.as_ref().strip_prefix(prefix);
            below.and_then(|below| below.strip_prefix(name)).is_some_and(|it| it.starts_with('/'))
        };
        prefixes.iter().any(|prefix| prefix.name() == name)
            || objects.get(at.saturating_add(1)).is_some_and(is_above)
    };
    let keys = objects.iter().enumerate().filter_map(|(at, object)| {
        let name = name_of(&object.location)?;
        let is_marker = object.size == 0 && is_directory(at, &name);
        (!is_marker).then(|| (StoreEntry::Key(name), Some(stat_of(object))))
    });
    let mut entries: Vec<_> = keys.collect();
    entries.extend(prefixes.into_iter().map(|prefix| (prefix, None)));
    ListingPage { entries, next: listed.page_token }
}

/// Tries a request again whose answer was cut. The client does so only for requests without an
/// answer.
async fn retried<T, F: Future<Output = object_store::Result<T>>>(
    request: impl Fn() -> F,
    retry_for: Duration,
) -> object_store::Result<T> {
    let began = Instant::now();
    for pause in PAUSES {
        match request().await {
            Err(failure) if failure::is_of_transfer(&failure) && began.elapsed() < retry_for => {
                log::debug!("{failure}");
                tokio::time::sleep(pause).await;
            }
            done => return done,
        }
    }
    request().await
}

/// Returns the failure for an answer that is not the one to the request.
fn failed(detail: String) -> object_store::Error {
    let source = Box::new(Error::new(Kind::Os(libc::EIO), detail));
    object_store::Error::Generic { store: "S3", source }
}

/// A request for bytes of an object.
#[derive(Clone, Copy)]
struct Get<'g> {
    client: &'g dyn BucketClient,
    provider: Provider,
    path: &'g Path,
    progress: &'g LastArrival,
}

impl Get<'_> {
    /// Returns the bytes of a range, or of the whole object; `None` if there is no object.
    async fn run(self, range: Option<ByteRange>) -> object_store::Result<Option<Value>> {
        match range {
            Some(ByteRange::Suffix(len)) if !self.provider.has_suffix_ranges() => {
                self.suffix(len).await
            }
            range => self.get(range, None).await,
        }
    }

    /// Returns the last bytes of an object from a server that must know where they begin.
    async fn suffix(self, len: u64) -> object_store::Result<Option<Value>> {
        let mut tries = 0;
        loop {
            let object = match self.client.head(self.path).await {
                Ok(object) => object,
                Err(failure) if failure::is_absent(&failure) => return Ok(None),
                Err(failure) => return Err(failure),
            };
            if object.size == 0 || len == 0 {
                return Ok(Some(Value { bytes: Bytes::new(), stat: stat_of(&object) }));
            }
            let (offset, len) = ByteRange::Suffix(len).within(object.size);
            match self.get(Some(ByteRange::Span { offset, len }), object.e_tag).await {
                // It was replaced meanwhile.
                Err(object_store::Error::Precondition { .. }) if tries < MOST_REPLACED => {
                    tries += 1;
                }
                // One of the two answers was wrong, and these may not be the last bytes.
                Ok(Some(value)) if value.stat.len != object.size => {
                    if tries >= MOST_REPLACED {
                        let (one, other) = (object.size, value.stat.len);
                        return Err(failed(format!(
                            "the server says that the value has {one} bytes, and then {other}"
                        )));
                    }
                    tries += 1;
                }
                got => return got,
            }
        }
    }

    /// Returns the bytes of a range, of the object with this tag if one is given.
    async fn get(
        self,
        range: Option<ByteRange>,
        if_match: Option<String>,
    ) -> object_store::Result<Option<Value>> {
        let wanted = range.map(|range| match range {
            ByteRange::Span { offset, len } => {
                GetRange::Bounded(offset..offset.saturating_add(len))
            }
            ByteRange::Suffix(len) => GetRange::Suffix(len),
        });
        let options = GetOptions { range: wanted, if_match, ..GetOptions::default() };
        let got = match self.client.get_opts(self.path, options).await {
            Ok(got) => got,
            Err(failure) if failure::is_absent(&failure) => return Ok(None),
            Err(failure) => return self.past_the_end(range, failure).await,
        };
        let (stat, expected) = (stat_of(&got.meta), got.range.end.saturating_sub(got.range.start));
        let longest = match range {
            Some(ByteRange::Span { len, .. } | ByteRange::Suffix(len)) => len,
            None => LONGEST,
        };
        if expected > longest {
            return Err(failed(format!("the server sends {expected} bytes for {longest}")));
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(expected.to_usize())
            .map_err(|_| failed(format!("there is no memory for {expected} bytes")))?;
        let (mut pieces, mut pace) = (got.into_stream(), Pace::begin());
        while let Some(piece) = pieces.next().await.transpose()? {
            self.progress.note();
            if !pace.note(piece.len()) {
                return Err(failure::too_slow());
            }
            if piece.len() > bytes.capacity().saturating_sub(bytes.len()) {
                return Err(failed(format!("the server sends more than {expected} bytes")));
            }
            bytes.extend_from_slice(&piece);
        }
        if u64::try_from(bytes.len()) != Ok(expected) {
            return Err(failed(format!("the server sent {} of {expected} bytes", bytes.len())));
        }
        Ok(Some(Value { bytes: bytes.into(), stat }))
    }

    /// Returns no bytes if a value has none in the range, for which servers send an error; else
    /// that error.
    async fn past_the_end(
        self,
        range: Option<ByteRange>,
        failure: object_store::Error,
    ) -> object_store::Result<Option<Value>> {
        let first = match range {
            Some(ByteRange::Span { offset, .. }) => offset,
            Some(ByteRange::Suffix(_)) => 0,
            None => return Err(failure),
        };
        if failure::status_of(&failure) != Some(RANGE_NOT_SATISFIABLE) {
            return Err(failure);
        }
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.client.get_opts(self.path, options).await {
            Ok(got) if got.meta.size <= first => {
                Ok(Some(Value { bytes: Bytes::new(), stat: stat_of(&got.meta) }))
            }
            Err(missing) if failure::is_absent(&missing) => Ok(None),
            Ok(_) | Err(_) => Err(failure),
        }
    }
}
