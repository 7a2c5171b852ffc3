//! Clients for a bucket of any provider.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Connector;
use super::failure::{SILENCE, error_of};
use super::listed::UnlistedNames;
use super::place::{BucketPrefix, Provider};
use super::renewal::Credentials;
use super::settings::{BucketClient, ObjectOptions, retries};
use super::signs::Signs;
use super::{azure, google, s3};
use zarrfs_base::error::Result;

/// The most tries of a request: what counts is the time.
const MOST_TRIES: usize = 1000;

/// How long to try until the server has answered for the first time.
pub(super) const FIRST: Duration = Duration::from_secs(5);

/// The clients for a bucket.
#[derive(Clone)]
pub(super) struct Clients {
    pub provider: Provider,
    /// The server and the bucket.
    pub name: String,
    /// The client for requests until the server has answered one: its name may be wrong.
    pub first: Arc<dyn BucketClient>,
    pub reader: Arc<dyn BucketClient>,
    /// The client for puts. They have no answer while their bytes are sent, so they have a time of
    /// their own, and are tried again by `put`.
    pub writer: Arc<dyn BucketClient>,
    /// The credentials that the clients sign with, if they must be renewed.
    pub credentials: Option<Arc<Credentials>>,
    /// The signs that the server works.
    pub signs: Arc<Signs>,
    /// What lists leave out.
    pub left_out: UnlistedNames,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clients({})", self.name)
    }
}

impl Clients {
    pub fn new(place: &BucketPrefix, options: &ObjectOptions) -> Result<Self> {
        // It fails if it was done before.
        drop(rustls::crypto::ring::default_provider().install_default());
        let provided = match place.provider {
            Provider::S3 => s3::provide(place, options)?,
            Provider::Google => google::provide(place, options)?,
            Provider::Azure => azure::provide(place, options)?,
        };
        let make = |connector, most, time| {
            (provided.make)(connector, retries(most, time)).map_err(|error| error_of(&error))
        };
        let signs = Arc::<Signs>::default();
        let left_out = UnlistedNames::below(place.root.clone());
        let connector = |read_timeout| Connector {
            read_timeout,
            signs: Arc::clone(&signs),
            left_out: left_out.clone(),
        };
        let reading = || connector(Some(SILENCE));
        Ok(Self {
            provider: place.provider,
            first: make(reading(), MOST_TRIES, options.retry_for.min(FIRST))?,
            reader: make(reading(), MOST_TRIES, options.retry_for)?,
            writer: make(connector(None), 0, options.retry_for)?,
            name: provided.name,
            credentials: provided.credentials,
            signs,
            left_out,
        })
    }
}
