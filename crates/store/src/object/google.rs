//! Clients for Google Cloud Storage, with the settings of the user and of the tools of Google.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};

use super::environment::{denied, firmware, variable};
use super::place::BucketPrefix;
use super::settings::{BucketClient, ObjectOptions, Provided, client_options};
use zarrfs_base::error::{Error, Result};

/// The server without an option.
const SERVER: &str = "https://storage.googleapis.com";

/// Variables that name credentials.
const CREDENTIALS: [&str; 6] = [
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "SERVICE_ACCOUNT",
    "GOOGLE_BEARER_TOKEN",
];

/// Where `gcloud auth application-default login` stores credentials, below the home directory.
const OF_GCLOUD: &str = ".config/gcloud/application_default_credentials.json";

/// Returns how to make clients for a bucket.
pub(super) fn provide(place: &BucketPrefix, options: &ObjectOptions) -> Result<Provided> {
    if options.requester_pays {
        return Err(Error::unsupported("--requester-pays works with s3:// only"));
    }
    let emulator = variable("STORAGE_EMULATOR_HOST")
        .map(|host| if host.contains("://") { host } else { format!("http://{host}") });
    let is_anonymous = options.anonymous || emulator.is_some();
    let server = options.endpoint.clone().or(emulator);
    let mut builder = environment(is_anonymous).with_bucket_name(&place.bucket);
    if let Some(server) = &server {
        builder = builder.with_base_url(server.trim_end_matches('/'));
    }
    if is_anonymous {
        // The client asks for a token for each put, although it does not sign.
        let none = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
        builder = builder.with_skip_signature(true).with_credentials(Arc::new(none));
    } else {
        check_credentials()?;
    }
    let name = format!("{}/{}", server.as_deref().unwrap_or(SERVER), place.bucket);
    let make = move |connector, retries| {
        let builder = builder.clone().with_client_options(client_options());
        let builder = builder.with_http_connector(connector).with_retry(retries);
        let client: Arc<dyn BucketClient> = Arc::new(builder.build()?);
        Ok(client)
    };
    Ok(Provided { name, make: Box::new(make), credentials: None })
}

/// Returns the settings of the environment. An empty variable counts as not set. Without
/// signatures, files with credentials are not read: they may be broken.
fn environment(is_anonymous: bool) -> GoogleCloudStorageBuilder {
    let setting = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_of_credentials = CREDENTIALS.contains(&name.as_str());
        if !name.starts_with("GOOGLE_") || value.is_empty() || is_anonymous && is_of_credentials {
            return None;
        }
        Some((name.to_ascii_lowercase().parse::<GoogleConfigKey>().ok()?, value))
    };
    let settings = env::vars_os().filter_map(setting);
    let new = GoogleCloudStorageBuilder::new();
    settings.fold(new, |builder, (key, value)| builder.with_config(key, value))
}

/// Fails if there are no credentials. The client would ask the machine, which elsewhere than at
/// Google ends after seconds of silence.
fn check_credentials() -> Result<()> {
    if CREDENTIALS.iter().any(|name| variable(name).is_some()) {
        return Ok(());
    }
    let file = variable("HOME").map(|home| PathBuf::from(home).join(OF_GCLOUD));
    if file.is_some_and(|file| file.exists()) || is_machine_of_google() {
        return Ok(());
    }
    Err(denied(
        "no credentials: run gcloud auth application-default login, or set \
         GOOGLE_APPLICATION_CREDENTIALS; a bucket that all users may read needs none with \
         --anonymous",
    ))
}

fn is_machine_of_google() -> bool {
    let product = firmware("product_name");
    product.starts_with("Google") || variable("GCE_METADATA_HOST").is_some()
}
