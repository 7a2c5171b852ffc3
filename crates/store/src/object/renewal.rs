//! Credentials that are renewed before they end, and when the server refuses them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use tokio::sync::Mutex;

use super::credentials::{self, CredentialSource, SigningKeys};
use super::failure::error_of;
use zarrfs_base::error::{Error, Kind, Result};

/// How long before they end credentials are renewed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// How often credentials without an end are read again.
const REREAD: Duration = Duration::from_secs(60);

/// How long the last credentials are used before others are asked for again, if that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Where credentials are asked for.
#[derive(Debug)]
enum CredentialServer {
    /// A profile, by its name.
    Profile(String),
    /// A server, by what it belongs to, with the settings of a client that knows it.
    Server(&'static str, Box<AmazonS3Builder>),
}

/// Credentials from a profile, or from the server of a container, a machine or a web identity.
#[derive(Debug)]
pub(super) struct Credentials(Arc<RenewalShared>);

#[derive(Debug)]
struct RenewalShared {
    place: CredentialServer,
    /// A leaf lock.
    kept: parking_lot::Mutex<Option<Kept>>,
    /// Held while credentials are renewed, so that all requests wait for one renewal. It has what
    /// asks a server, and keeps what that gave until shortly before it ends.
    renewing: Mutex<Option<AwsCredentialProvider>>,
}

/// The last credentials.
#[derive(Debug, Clone)]
struct Kept {
    credential: Arc<AwsCredential>,
    came: SystemTime,
    /// When to ask for others.
    next: SystemTime,
    /// When they end, if that is known.
    until: Option<SystemTime>,
}

impl Kept {
    /// Returns what signs requests. It is renewed before it ends, or half way if it ends soon.
    fn of(keys: SigningKeys) -> Self {
        let came = SystemTime::now();
        let pause = keys.until.map_or(REREAD, |until| {
            let left = until.duration_since(came).unwrap_or_default();
            if left > RENEWAL { left.saturating_sub(RENEWAL) } else { left / 2 }
        });
        let until = keys.until;
        let credential =
            AwsCredential { key_id: keys.id, secret_key: keys.secret, token: keys.token };
        let next = came.checked_add(pause).unwrap_or(came);
        Self { credential: Arc::new(credential), came, next, until }
    }

    /// Whether they can be used while others are asked for.
    fn is_good(&self) -> bool {
        self.until.is_some_and(|until| SystemTime::now() < until)
    }
}

impl Credentials {
    /// Returns the credentials that must be asked for, with a `builder` for clients that give up
    /// soon. `None` if the keys are in the environment.
    pub fn find(profile: Option<&str>, builder: AmazonS3Builder) -> Result<Option<Arc<Self>>> {
        let (place, kept) = match credentials::find(profile)? {
            CredentialSource::Environment => return Ok(None),
            CredentialSource::Profile(name) => {
                // If something is missing, this is the time to report it.
                let kept = Kept::of(credentials::keys_of(&name)?);
                (CredentialServer::Profile(name), Some(kept))
            }
            CredentialSource::Server(name) => {
                (CredentialServer::Server(name, Box::new(builder)), None)
            }
        };
        let shared = RenewalShared {
            place,
            kept: parking_lot::Mutex::new(kept),
            renewing: Mutex::default(),
        };
        Ok(Some(Arc::new(Self(Arc::new(shared)))))
    }

    /// Has credentials asked for before the next request, unless others came after `began`, when
    /// the request began that was refused.
    pub async fn forget(&self, began: SystemTime) {
        let mut provider = self.0.renewing.lock().await;
        let mut kept = self.0.kept.lock();
        if kept.as_ref().is_some_and(|kept| kept.came <= began) {
            (*kept, *provider) = (None, None);
        }
    }
}

impl RenewalShared {
    fn current(&self) -> Option<Arc<AwsCredential>> {
        let kept = self.kept.lock();
        let current = kept.as_ref().filter(|kept| SystemTime::now() < kept.next);
        current.map(|kept| Arc::clone(&kept.credential))
    }

    /// Asks for credentials, unless that was done meanwhile.
    async fn renew(&self) -> Result<Arc<AwsCredential>> {
        let mut provider = self.renewing.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let asked = self.ask(&mut provider).await;
        let old = self.kept.lock().take();
        let kept = match (asked, old) {
            (Ok(new), Some(old)) if Arc::ptr_eq(&new.credential, &old.credential) => {
                Kept { came: old.came, ..new }
            }
            (Ok(new), _) => new,
            (Err(error), Some(old)) => {
                // They may be good for minutes. If they are not, the server says so.
                log::debug!("{error}");
                let now = SystemTime::now();
                Kept { next: now.checked_add(PAUSE).unwrap_or(now), ..old }
            }
            (Err(error), None) => return Err(error),
        };
        let credential = Arc::clone(&kept.credential);
        *self.kept.lock() = Some(kept);
        Ok(credential)
    }

    async fn ask(&self, provider: &mut Option<AwsCredentialProvider>) -> Result<Kept> {
        match &self.place {
            CredentialServer::Profile(name) => {
                let name = name.clone();
                // A program may take long. Nothing waits for this thread when the mount ends.
                let read = tokio::task::spawn_blocking(move || credentials::keys_of(&name)).await;
                read.map_err(|error| ended(&error))?.map(Kept::of)
            }
            CredentialServer::Server(name, builder) => {
                let provider = if let Some(provider) = provider {
                    Arc::clone(provider)
                } else {
                    let client = builder.clone().build().map_err(|error| error_of(&error))?;
                    Arc::clone(provider.insert(Arc::clone(client.credentials())))
                };
                let credential = provider.get_credential().await.map_err(|failure| {
                    let reason = error_of(&failure);
                    let detail = format!("no credentials from {name}: {}", reason.detail());
                    Error::new(Kind::Os(libc::EACCES), detail)
                })?;
                // The provider knows when they end.
                let now = SystemTime::now();
                Ok(Kept { credential, came: now, next: now, until: None })
            }
        }
    }
}

fn ended(error: &tokio::task::JoinError) -> Error {
    Error::new(Kind::Os(libc::EIO), error.to_string())
}

#[async_trait::async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        if let Some(current) = self.0.current() {
            return Ok(current);
        }
        let good = self.0.kept.lock().clone().filter(Kept::is_good);
        if let Some(good) = &good
            && self.0.renewing.try_lock().is_err()
        {
            // Another request has begun to renew them.
            return Ok(Arc::clone(&good.credential));
        }
        // The request that waits for it may be given up before it is done.
        let shared = Arc::clone(&self.0);
        let renewal = tokio::spawn(async move { shared.renew().await });
        if let Some(good) = good {
            return Ok(good.credential);
        }
        let renewed = renewal.await.unwrap_or_else(|error| Err(ended(&error)));
        renewed.map_err(|error| object_store::Error::Unauthenticated {
            path: String::new(),
            source: Box::new(error),
        })
    }
}
