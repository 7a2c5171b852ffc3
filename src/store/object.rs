//! Object stores: S3 and servers that speak its protocol.
//!
//! Only this module names the crate `object_store` and the runtime that it needs. Requests run on
//! the threads of the runtime, and report to the threads that wait for them; these never run one.

mod credentials;
mod failure;
mod hidden;
mod put;
mod version;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, CredentialProvider, GetOptions, GetRange, ObjectMeta,
    ObjectStore as _, RetryConfig,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use super::remote::server::{Depth, Page, Report, Server, Start};
use super::remote::{Limits, RemoteStore};
use super::{ByteRange, Condition, Entry, Key, Prefix, Stat, Value, is_component, unique};
use crate::error::{Error, Kind, Result};
use failure::{SILENCE, error_of};
use hidden::Hidden;
use put::Quoting;
use version::stat_of;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long before they end credentials are renewed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// How often credentials without an end are read again.
const REREAD: Duration = Duration::from_secs(60);

/// How long to wait before a request is made again whose answer was cut.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2)];

/// The status of an answer to a request for a range that the value does not have.
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// The most tries of a request.
const MOST_TRIES: usize = 10;

/// How to reach a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Requests are not signed.
    pub anonymous: bool,
    /// The URL of the server, if it is not that of Amazon.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// The requester pays for the requests.
    pub requester_pays: bool,
    /// The profile with the credentials, if it is not that of the environment.
    pub profile: Option<String>,
    /// How long a request is tried again.
    pub retry_for: Duration,
}

/// Opens the store at a URL such as `s3://bucket/prefix`.
pub fn open(url: &str, options: &Options, limits: Limits) -> Result<RemoteStore> {
    let (bucket, root) = parse(url)?;
    let server = ObjectServer::connect(bucket, root, options, limits)?;
    let store = RemoteStore::new(Arc::new(server), limits);
    store.try_listing();
    Ok(store)
}

/// Returns the bucket of a URL and the prefix in it.
fn parse(url: &str) -> Result<(&str, Prefix)> {
    let invalid = |reason: String| Error::invalid(reason);
    let rest = url.strip_prefix("s3://").ok_or_else(|| {
        invalid("only URLs of the form s3://BUCKET/PREFIX are supported so far".to_owned())
    })?;
    let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(invalid("the URL names no bucket; write s3://BUCKET/PREFIX".to_owned()));
    }
    Ok((bucket, Prefix::parse(path.trim_end_matches('/'))?))
}

/// A bucket, from a prefix on.
struct ObjectServer {
    client: Arc<AmazonS3>,
    /// The client for puts.
    writer: Arc<AmazonS3>,
    root: Prefix,
    /// A permit for each request.
    permits: Arc<Semaphore>,
    /// How long a request is tried again.
    retry_for: Duration,
    /// The credentials, if they are of a profile.
    profile: Option<Arc<Profile>>,
    quoting: Arc<Quoting>,
    hidden: Arc<Hidden>,
    /// `None` when all requests were ended. A leaf lock.
    runtime: Mutex<Option<Runtime>>,
}

impl fmt::Debug for ObjectServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectServer({}/{})", self.client, self.root)
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ObjectServer {
    fn connect(bucket: &str, root: Prefix, options: &Options, limits: Limits) -> Result<Self> {
        // It fails if it was done before.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_skip_signature(options.anonymous)
            .with_request_payer(options.requester_pays)
            .with_client_options(client_options().with_read_timeout(SILENCE))
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: MOST_TRIES,
                retry_timeout: options.retry_for,
            });
        let profile = if options.anonymous { None } else { Profile::find(options)? };
        if let Some(profile) = &profile {
            builder = builder.with_credentials(Arc::<Profile>::clone(profile));
        }
        let settings =
            credentials::settings(&credentials::profile_name(options.profile.as_deref()))?;
        let is_in_environment = |names: &[&str]| names.iter().any(|name| is_set(name));
        let region = settings.get("region");
        let region = region.filter(|_| !is_in_environment(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        if let Some(region) = options.region.as_ref().or(region) {
            builder = builder.with_region(region);
        }
        let endpoint = settings.get("endpoint_url");
        let endpoint =
            endpoint.filter(|_| !is_in_environment(&["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]));
        if let Some(endpoint) = options.endpoint.as_ref().or(endpoint) {
            // This key comes before all others.
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        // A put has no answer while its bytes are sent, so it has a time of its own.
        let writer = builder.clone().with_client_options(client_options());
        let writer = writer.build().map_err(|error| error_of(&error))?;
        let client = builder.build().map_err(|error| error_of(&error))?;
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let runtime = Builder::new_multi_thread()
            .worker_threads((processors / 4).clamp(1, 4))
            .thread_name("requests")
            .enable_all()
            .build()?;
        let permits = Arc::new(Semaphore::new(limits.requests));
        Ok(Self {
            client: Arc::new(client),
            writer: Arc::new(writer),
            root,
            permits,
            retry_for: options.retry_for,
            profile,
            quoting: Arc::default(),
            hidden: Arc::default(),
            runtime: Mutex::new(Some(runtime)),
        })
    }

    /// Runs a request, and reports its result. A refusal is tried again with new credentials, if
    /// there may be some.
    fn run<T: Send + 'static, F: Future<Output = object_store::Result<T>> + Send>(
        &self,
        request: impl Fn() -> F + Send + Sync + 'static,
        report: Report<T>,
    ) {
        let (permits, profile) = (Arc::clone(&self.permits), self.profile.clone());
        let retry_for = self.retry_for;
        let task = async move {
            let _permit = permits.acquire_owned().await;
            let result = retried(&request, retry_for).await;
            report(match (result, profile) {
                (Err(failure), Some(profile)) if failure::is_refusal(&failure) => {
                    profile.forget();
                    retried(&request, retry_for).await.map_err(|failure| error_of(&failure))
                }
                (result, _) => result.map_err(|failure| error_of(&failure)),
            });
        };
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// The credentials of a profile, which are read again before they end.
#[derive(Debug)]
struct Profile {
    name: String,
    /// A leaf lock.
    keys: Mutex<Option<(Arc<AwsCredential>, SystemTime)>>,
}

impl Profile {
    /// Returns the profile that has the credentials, or `None` if the client knows where they are.
    fn find(options: &Options) -> Result<Option<Arc<Self>>> {
        match credentials::find(options.profile.as_deref())? {
            credentials::Source::Environment | credentials::Source::Machine => Ok(None),
            credentials::Source::Profile(name) => {
                let profile = Self { name, keys: Mutex::default() };
                // If something is missing, this is the time to report it.
                profile.read()?;
                Ok(Some(Arc::new(profile)))
            }
        }
    }

    /// Has the credentials read again before the next request.
    fn forget(&self) {
        *self.keys.lock() = None;
    }

    /// Reads the credentials, which may run a program.
    fn read(&self) -> Result<Arc<AwsCredential>> {
        let keys = credentials::keys_of(&self.name)?;
        let now = SystemTime::now();
        // Another program may change those without an end.
        let until = keys.until.unwrap_or_else(|| now + RENEWAL + REREAD);
        let credential =
            AwsCredential { key_id: keys.id, secret_key: keys.secret, token: keys.token };
        let credential = Arc::new(credential);
        *self.keys.lock() = Some((Arc::clone(&credential), until));
        Ok(credential)
    }
}

#[async_trait::async_trait]
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let kept = self.keys.lock().clone();
        if let Some((credential, until)) = kept
            && SystemTime::now() + RENEWAL < until
        {
            return Ok(credential);
        }
        tokio::task::block_in_place(|| self.read()).map_err(|error| {
            object_store::Error::Unauthenticated { path: String::new(), source: Box::new(error) }
        })
    }
}

fn client_options() -> ClientOptions {
    ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT).with_allow_http(true)
}

impl Server for ObjectServer {
    fn stop(&self) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }

    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>) {
        let (client, text) = (Arc::clone(&self.client), format!("{}{key}", self.root));
        let (hidden, root) = (Arc::clone(&self.hidden), self.root.clone());
        let request = move || {
            let (client, path) = (Arc::clone(&client), Path::parse(&text));
            let (hidden, root) = (Arc::clone(&hidden), root.clone());
            async move {
                let path = path?;
                match get(&client, &path, range).await {
                    Err(object_store::Error::PermissionDenied { .. })
                        if hidden.is_missing(&client, &root, &path).await =>
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
        self.run(request, report);
    }

    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition, report: Report<Stat>) {
        let (client, text) = (Arc::clone(&self.writer), format!("{}{key}", self.root));
        let (bytes, quoting) = (Arc::new(bytes), Arc::clone(&self.quoting));
        let retry_for = self.retry_for;
        // All tries have this name.
        let id: Arc<str> = unique::text().into();
        let request = move || {
            let (client, path) = (Arc::clone(&client), Path::parse(&text));
            let (bytes, quoting, id) = (Arc::clone(&bytes), Arc::clone(&quoting), Arc::clone(&id));
            async move {
                let how = (&*quoting, &*id, retry_for);
                put::put(&client, &path?, &bytes, condition, how).await
            }
        };
        self.run(request, report);
    }

    fn delete(&self, keys: &[Key], report: Report<()>) {
        let client = Arc::clone(&self.client);
        let paths: Vec<String> = keys.iter().map(|key| format!("{}{key}", self.root)).collect();
        let request = move || {
            let client = Arc::clone(&client);
            let paths: Vec<_> = paths.iter().map(|path| Ok(Path::parse(path)?)).collect();
            async move {
                let mut deleted = client.delete_stream(stream::iter(paths).boxed());
                while let Some(done) = deleted.next().await {
                    match done {
                        Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                        Err(failure) => return Err(failure),
                    }
                }
                Ok(())
            }
        };
        self.run(request, report);
    }

    fn list(&self, prefix: &Prefix, depth: Depth, start: Start, report: Report<Page>) {
        let client = Arc::clone(&self.client);
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
        let request = move || {
            let (client, prefix, options) = (Arc::clone(&client), prefix.clone(), options.clone());
            async move {
                let listed = client.list_paginated(Some(&prefix), options).await?;
                Ok(page_of(&prefix, depth, listed))
            }
        };
        self.run(request, report);
    }
}

/// Returns the names in a part of a listing, without those that are no keys of Zarr.
fn page_of(prefix: &str, depth: Depth, listed: PaginatedListResult) -> Page {
    let is_valid = |name: &str| match depth {
        Depth::Directory => is_component(name),
        Depth::All => Key::parse(name).is_ok(),
    };
    let name_of = |path: &Path| {
        let name = path.as_ref().strip_prefix(prefix).filter(|name| is_valid(name));
        if name.is_none() {
            log::debug!("{path}: left out, since it is no key of Zarr");
        }
        name.map(str::to_owned)
    };
    let prefixes = listed.result.common_prefixes.iter().filter_map(name_of);
    let prefixes: Vec<Entry> = prefixes.map(Entry::Prefix).collect();
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
        (!is_marker).then(|| (Entry::Key(name), Some(stat_of(object))))
    });
    let mut entries: Vec<_> = keys.collect();
    entries.extend(prefixes.into_iter().map(|prefix| (prefix, None)));
    Page { entries, next: listed.page_token }
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

async fn get(
    client: &AmazonS3,
    path: &Path,
    range: Option<ByteRange>,
) -> object_store::Result<Option<Value>> {
    let wanted = range.map(|range| match range {
        ByteRange::Span { offset, len } => GetRange::Bounded(offset..offset.saturating_add(len)),
        ByteRange::Suffix(len) => GetRange::Suffix(len),
    });
    let options = GetOptions { range: wanted, ..GetOptions::default() };
    let got = match client.get_opts(path, options).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(failure) => return past_the_end(client, path, range, failure).await,
    };
    let (stat, expected) = (stat_of(&got.meta), got.range.end.saturating_sub(got.range.start));
    let bytes = got.bytes().await?;
    if u64::try_from(bytes.len()) != Ok(expected) {
        let detail = format!("the server sent {} of {expected} bytes", bytes.len());
        let source = Box::new(Error::new(Kind::Os(libc::EIO), detail));
        return Err(object_store::Error::Generic { store: "S3", source });
    }
    Ok(Some(Value { bytes, stat }))
}

/// Returns no bytes if a value has none in the range, for which servers send an error; else that
/// error.
async fn past_the_end(
    client: &AmazonS3,
    path: &Path,
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
    match client.get_opts(path, options).await {
        Ok(got) if got.meta.size <= first => {
            Ok(Some(Value { bytes: Bytes::new(), stat: stat_of(&got.meta) }))
        }
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Ok(_) | Err(_) => Err(failure),
    }
}
