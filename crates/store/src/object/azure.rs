//! Clients for Azure Blob Storage, with the settings of the user and of the tools of Azure.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::environment::{denied, firmware, variable};
use super::place::BucketPrefix;
use super::settings::{BucketClient, ObjectOptions, Provided, client_options};
use zarrfs_base::error::{Error, Result};

/// Variables that name credentials.
const CREDENTIALS: [&str; 10] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
];

/// The asset tag in the firmware of each virtual machine of Azure.
const TAG_OF_MACHINE: &str = "7783-7084-3265-9085-8269-3286-77";

/// Returns how to make clients for a container.
pub(super) fn provide(place: &BucketPrefix, options: &ObjectOptions) -> Result<Provided> {
    if options.requester_pays {
        return Err(Error::unsupported("--requester-pays works with s3:// only"));
    }
    let connection = variable("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default();
    let connection = Connection::parse(&connection);
    let account = place.account.clone().or_else(|| variable("AZURE_STORAGE_ACCOUNT_NAME"));
    let account = account.or_else(|| variable("AZURE_STORAGE_ACCOUNT"));
    let Some(account) = account.or_else(|| connection.get("AccountName")) else {
        return Err(Error::invalid(
            "the URL names no account: set AZURE_STORAGE_ACCOUNT, or write \
             az://CONTAINER@ACCOUNT/PREFIX",
        ));
    };
    let of_connection =
        Some(&connection).filter(|it| it.get("AccountName").as_ref() == Some(&account));
    let mut builder =
        environment(options.anonymous).with_account(&account).with_container_name(&place.bucket);
    let endpoint = options.endpoint.clone().or_else(|| variable("AZURE_STORAGE_ENDPOINT"));
    let endpoint = endpoint.or_else(|| of_connection.and_then(Connection::endpoint));
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    } else if let Some(key) = of_connection.and_then(|it| it.get("AccountKey")) {
        builder = builder.with_access_key(key);
    } else if let Some(token) = of_connection.and_then(|it| it.get("SharedAccessSignature")) {
        builder = builder.with_config(AzureConfigKey::SasKey, token);
    } else {
        match AzureCredentials::find()? {
            AzureCredentials::Environment => {}
            AzureCredentials::Cli => builder = builder.with_use_azure_cli(true),
        }
    }
    let server = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
    let name = format!("{server}/{}", place.bucket);
    let make = move |connector, retries| {
        let builder = builder.clone().with_client_options(client_options());
        let builder = builder.with_http_connector(connector).with_retry(retries);
        let client: Arc<dyn BucketClient> = Arc::new(builder.build()?);
        Ok(client)
    };
    Ok(Provided { name, make: Box::new(make), credentials: None })
}

/// Returns the settings of the environment. An empty variable counts as not set.
fn environment(is_anonymous: bool) -> MicrosoftAzureBuilder {
    let setting = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_of_identity = matches!(&*name, "IDENTITY_ENDPOINT" | "MSI_ENDPOINT");
        if !(name.starts_with("AZURE_") || is_of_identity) || value.is_empty() {
            return None;
        }
        if is_anonymous && CREDENTIALS.contains(&&*name) {
            return None;
        }
        // The program `az` reads this one.
        let name = if name == "AZURE_STORAGE_KEY" { "AZURE_STORAGE_ACCOUNT_KEY" } else { &name };
        Some((name.to_ascii_lowercase().parse::<AzureConfigKey>().ok()?, value))
    };
    let settings = env::vars_os().filter_map(setting);
    let new = MicrosoftAzureBuilder::new();
    settings.fold(new, |builder, (key, value)| builder.with_config(key, value))
}

/// Where credentials come from.
#[derive(Debug, PartialEq, Eq)]
enum AzureCredentials {
    /// The environment, or the machine: the client finds them.
    Environment,
    /// The program `az`, in which the user has logged in.
    Cli,
}

impl AzureCredentials {
    fn find() -> Result<Self> {
        if CREDENTIALS.iter().any(|name| variable(name).is_some()) || is_machine_of_azure() {
            return Ok(Self::Environment);
        }
        let directory = variable("AZURE_CONFIG_DIR").map(PathBuf::from);
        let directory =
            directory.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".azure")));
        if directory.is_some_and(|directory| directory.join("azureProfile.json").exists()) {
            return Ok(Self::Cli);
        }
        Err(denied(
            "no credentials: run az login, or set AZURE_STORAGE_ACCOUNT_KEY, \
             AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING; a container that all \
             users may read needs none with --anonymous",
        ))
    }
}

fn is_machine_of_azure() -> bool {
    let tag = firmware("chassis_asset_tag");
    tag.trim() == TAG_OF_MACHINE
}

/// The parts of a connection string, which the portal of Azure shows.
#[derive(Debug, Default)]
struct Connection(BTreeMap<String, String>);

impl Connection {
    fn parse(text: &str) -> Self {
        let parts = text.split(';').filter_map(|part| part.trim().split_once('='));
        let parts = parts.filter(|(_, value)| !value.is_empty());
        Self(parts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// Returns the URL of the server, unless it is the usual one.
    fn endpoint(&self) -> Option<String> {
        let of_parts = || {
            let (account, suffix) = (self.get("AccountName")?, self.get("EndpointSuffix")?);
            let protocol = self.get("DefaultEndpointsProtocol");
            Some(format!("{}://{account}.blob.{suffix}", protocol.as_deref().unwrap_or("https")))
        };
        self.get("BlobEndpoint").or_else(of_parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_names_the_server_and_the_key() {
        let text = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=k==;\
                    EndpointSuffix=core.windows.net";
        let connection = Connection::parse(text);
        assert_eq!(connection.get("AccountKey").as_deref(), Some("k=="));
        let want = "https://a.blob.core.windows.net";
        assert_eq!(connection.endpoint().as_deref(), Some(want));
        let text = "AccountName=a;BlobEndpoint=http://127.0.0.1:10000/a;";
        assert_eq!(Connection::parse(text).endpoint().as_deref(), Some("http://127.0.0.1:10000/a"));
        assert_eq!(Connection::parse("").endpoint(), None);
    }
}
