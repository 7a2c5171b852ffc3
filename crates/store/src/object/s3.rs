//! Clients for S3, with the settings of the user, the environment and the profile.

use std::sync::Arc;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};

use super::connection::{CONNECT, Connector};
use super::credentials;
use super::environment::is_set;
use super::failure::{SILENCE, error_of};
use super::place::BucketPrefix;
use super::renewal::Credentials;
use super::settings::{BucketClient, ObjectOptions, Provided, client_options, retries};
use zarrfs_base::error::Result;

/// The most tries of a request for credentials.
const MOST_TRIES_FOR_CREDENTIALS: usize = 2;

/// Returns how to make clients for a bucket.
pub(super) fn provide(place: &BucketPrefix, options: &ObjectOptions) -> Result<Provided> {
    let (builder, credentials) = settings(place, options)?;
    let server = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
    let server = server.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let name = format!("{}/{}", server.as_deref().unwrap_or("s3://"), place.bucket);
    let make = move |connector, retries| {
        let builder = builder.clone().with_client_options(client_options());
        let builder = builder.with_http_connector(connector).with_retry(retries);
        let client: Arc<dyn BucketClient> = Arc::new(builder.build()?);
        Ok(client)
    };
    Ok(Provided { name, make: Box::new(make), credentials })
}

/// Returns a client that signs URLs.
pub(super) fn signing(place: &BucketPrefix, options: &ObjectOptions) -> Result<Arc<AmazonS3>> {
    // It fails if it was done before.
    drop(rustls::crypto::ring::default_provider().install_default());
    let (builder, _) = settings(place, options)?;
    let builder = builder
        .with_client_options(client_options())
        .with_http_connector(Connector::new(SILENCE))
        .with_retry(retries(usize::MAX, options.retry_for));
    builder.build().map(Arc::new).map_err(|error| error_of(&error))
}

/// Returns the settings of all clients for a bucket, and what they sign with, if it must be
/// renewed.
fn settings(
    place: &BucketPrefix,
    options: &ObjectOptions,
) -> Result<(AmazonS3Builder, Option<Arc<Credentials>>)> {
    let mut builder = environment()
        .with_bucket_name(&place.bucket)
        .with_skip_signature(options.anonymous)
        .with_request_payer(options.requester_pays);
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
    let mut credentials = None;
    if !options.anonymous {
        let impatient = builder
            .clone()
            .with_client_options(client_options())
            .with_http_connector(Connector::new(CONNECT))
            .with_retry(retries(MOST_TRIES_FOR_CREDENTIALS, CONNECT));
        credentials = Credentials::find(options.profile.as_deref(), impatient)?;
    }
    if let Some(credentials) = &credentials {
        builder = builder.with_credentials(Arc::<Credentials>::clone(credentials));
    }
    Ok((builder, credentials))
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
