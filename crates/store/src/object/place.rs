//! The URL of an object store: its provider, the bucket and the prefix in it.

use crate::Prefix;
use zarrfs_base::error::{Error, Result};

/// A service that stores objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    /// Amazon S3, and servers that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// The schemes of URLs, and the form of their URLs.
const SCHEMES: [(&str, Provider); 5] = [
    ("s3", Provider::S3),
    ("gs", Provider::Google),
    ("az", Provider::Azure),
    ("abfs", Provider::Azure),
    ("abfss", Provider::Azure),
];

impl Provider {
    /// Whether a request can ask for the last bytes of an object without knowing its length.
    pub fn has_suffix_ranges(self) -> bool {
        match self {
            Self::S3 | Self::Google => true,
            Self::Azure => false,
        }
    }

    fn form(self) -> &'static str {
        match self {
            Self::S3 => "s3://BUCKET/PREFIX",
            Self::Google => "gs://BUCKET/PREFIX",
            Self::Azure => "az://CONTAINER/PREFIX",
        }
    }
}

/// A prefix in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BucketPrefix {
    pub provider: Provider,
    /// The bucket; for Azure the container.
    pub bucket: String,
    /// The account, if the URL names it.
    pub account: Option<String>,
    pub root: Prefix,
}

impl BucketPrefix {
    /// Parses `s3://bucket/prefix`, `gs://..`, `az://container/prefix`, or
    /// `abfss://container@account.dfs.core.windows.net/prefix`.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let scheme = scheme.to_ascii_lowercase();
        let found = SCHEMES.iter().find(|(name, _)| *name == scheme);
        let Some((_, provider)) = found else {
            return Err(Error::invalid(
                "this form of URL is not supported; write s3://BUCKET/PREFIX, \
                 gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
            ));
        };
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (bucket, account) = match bucket.split_once('@') {
            Some((bucket, host)) if *provider == Provider::Azure => {
                (bucket, host.split('.').next().map(str::to_owned))
            }
            _ => (bucket, None),
        };
        if bucket.is_empty() {
            let form = provider.form();
            return Err(Error::invalid(format!("the URL names no bucket; write {form}")));
        }
        let root = Prefix::parse(path.trim_end_matches('/'))?;
        Ok(Self { provider: *provider, bucket: bucket.to_owned(), account, root })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_provider_a_bucket_and_a_prefix() {
        let parsed = |url: &str| {
            let place = BucketPrefix::parse(url).expect("valid");
            (place.provider, place.bucket, place.account, place.root.as_str().to_owned())
        };
        let of = |provider, bucket: &str, account: Option<&str>, root: &str| {
            (provider, bucket.to_owned(), account.map(str::to_owned), root.to_owned())
        };
        assert_eq!(parsed("s3://b"), of(Provider::S3, "b", None, ""));
        assert_eq!(parsed("gs://b/a/c/"), of(Provider::Google, "b", None, "a/c/"));
        assert_eq!(parsed("AZ://c/a"), of(Provider::Azure, "c", None, "a/"));
        let url = "abfss://c@acc.dfs.core.windows.net/a";
        assert_eq!(parsed(url), of(Provider::Azure, "c", Some("acc"), "a/"));
        for url in ["ftp://a/b", "s3://", "s3:///a", "gs:///", "az://@acc/a", "s3://b/../a"] {
            assert!(BucketPrefix::parse(url).is_err(), "{url}");
        }
    }
}
