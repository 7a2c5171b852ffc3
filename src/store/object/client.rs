//! Clients for a bucket, with the settings of the user, the environment and the profile.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::credentials;
use super::failure::{SILENCE, error_of};
use super::renewal::Credentials;
use crate::error::Result;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The most tries of a request: what counts is the time.
const MOST_TRIES: usize = 1000;

/// How long to try until the server has answered for the first time.
pub(super) const FIRST: Duration = Duration::from_secs(5);

/// How long to wait between tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The most tries of a request for credentials.
const MOST_TRIES_FOR_CREDENTIALS: usize = 2;

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

/// The clients for a bucket.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    /// The server and the bucket.
    pub name: String,
    /// The client for requests until the server has answered one: its name may be wrong.
    pub first: Arc<AmazonS3>,
    pub reader: Arc<AmazonS3>,
    /// The client for puts. They have no answer while their bytes are sent, so they have a time of
    /// their own, and are tried again by `put`.
    pub writer: Arc<AmazonS3>,
    /// What the clients sign with, if it must be renewed.
    pub credentials: Option<Arc<Credentials>>,
}

impl Clients {
    pub fn new(bucket: &str, options: &Options) -> Result<Self> {
        // It fails if it was done before.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut builder = environment()
            .with_bucket_name(bucket)
            .with_skip_signature(options.anonymous)
            .with_request_payer(options.requester_pays)
            .with_client_options(client_options().with_read_timeout(SILENCE))
            .with_retry(retries(MOST_TRIES, options.retry_for));
        let profile = credentials::profile_name(options.profile.as_deref());
        let settings = credentials::settings(&profile).or_else(|error| {
            if options.anonymous { Ok(credentials::Profile::new()) } else { Err(error) }
        })?;
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
        let server = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
        let server = server.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
        let name = format!("{}/{bucket}", server.as_deref().unwrap_or("s3://"));
        let mut credentials = None;
        if !options.anonymous {
            let impatient = builder
                .clone()
                .with_client_options(client_options().with_read_timeout(CONNECT))
                .with_retry(retries(MOST_TRIES_FOR_CREDENTIALS, CONNECT));
            credentials = Credentials::find(options.profile.as_deref(), impatient)?;
        }
        if let Some(credentials) = &credentials {
            builder = builder.with_credentials(Arc::<Credentials>::clone(credentials));
        }
        let build = |builder: AmazonS3Builder| {
            builder.build().map(Arc::new).map_err(|error| error_of(&error))
        };
        let once = retries(0, options.retry_for);
        let writer = builder.clone().with_client_options(client_options()).with_retry(once);
        let writer = build(writer)?;
        let first = retries(MOST_TRIES, options.retry_for.min(FIRST));
        let first = build(builder.clone().with_retry(first))?;
        Ok(Self { name, first, reader: build(builder)?, writer, credentials })
    }
}

fn client_options() -> ClientOptions {
    ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT).with_allow_http(true)
}

fn retries(max_retries: usize, retry_timeout: Duration) -> RetryConfig {
    let (init_backoff, max_backoff) = PAUSES;
    let backoff = BackoffConfig { init_backoff, max_backoff, ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries, retry_timeout }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Returns the settings of the environment. An empty variable counts as not set.
fn environment() -> AmazonS3Builder {
    let has_keys = is_set("AWS_ACCESS_KEY_ID");
    let setting = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_of_keys = matches!(&*name, "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN");
        if !name.starts_with("AWS_") || value.is_empty() || is_of_keys && !has_keys {
            return None;
        }
        Some((name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>().ok()?, value))
    };
    let settings = std::env::vars_os().filter_map(setting);
    settings.fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
}
