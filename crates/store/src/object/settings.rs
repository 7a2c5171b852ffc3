//! The options that the clients of all providers share, and how a client is made.

use std::sync::Arc;
use std::time::Duration;

use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::connection::Connector;
use super::renewal::Credentials;

/// How long to wait between tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How to reach a server.
#[derive(Debug, Clone)]
pub struct ObjectOptions {
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

/// The requests to a bucket.
pub(super) trait BucketClient: ObjectStore + PaginatedListStore + MultipartStore {}

impl<C: ObjectStore + PaginatedListStore + MultipartStore> BucketClient for C {}

/// Makes a client with these connections.
pub(super) type Make =
    Box<dyn Fn(Connector, RetryConfig) -> object_store::Result<Arc<dyn BucketClient>>>;

/// The parts from which the clients of a provider are made.
pub(super) struct Provided {
    /// The server and the bucket.
    pub name: String,
    pub make: Make,
    /// The credentials that the clients sign with, if they must be renewed.
    pub credentials: Option<Arc<Credentials>>,
}

/// Returns the options of a client. Its [`Connector`] has the times.
pub(super) fn client_options() -> ClientOptions {
    ClientOptions::new().with_allow_http(true)
}

pub(super) fn retries(max_retries: usize, retry_timeout: Duration) -> RetryConfig {
    let (init_backoff, max_backoff) = PAUSES;
    let backoff = BackoffConfig { init_backoff, max_backoff, ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries, retry_timeout }
}
