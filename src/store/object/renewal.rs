//! Credentials that are renewed before they end, and when the server refuses them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use tokio::sync::Mutex;

use super::credentials::{self, Keys, Source};
use super::failure::error_of;
use crate::error::{Error, Kind, Result};

/// How long before they end credentials are renewed.
const RENEWAL: Duration = Duration::from_secs(5 * 60);

/// How often credentials without an end are read again.
const REREAD: Duration = Duration::from_secs(60);

/// How long the last credentials are used before others are asked for again, if that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Where credentials are asked for.
#[derive(Debug)]
enum Place {
    /// A profile, by its name.
    Profile(String),
    /// A server, by what it belongs to, with the settings of a client that knows it.
    Server(&'static str, Box<AmazonS3Builder>),
}

/// Credentials from a profile, or from the server of a container, a machine or a web identity.
#[derive(Debug)]
pub(super) struct Credentials {
    place: Place,
    /// Held while credentials are renewed, so that all requests wait for one renewal.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last credentials, and when they came.
    kept: Option<(Arc<AwsCredential>, SystemTime)>,
    /// When to ask for others.
    next: Option<SystemTime>,
    /// It asks a server, and keeps what that gave until shortly before it ends.
    provider: Option<AwsCredentialProvider>,
}

impl Credentials {
    /// Returns the credentials that must be asked for, with a `builder` for clients that give up
    /// soon. `None` if the keys are in the environment.
    pub fn find(profile: Option<&str>, builder: AmazonS3Builder) -> Result<Option<Arc<Self>>> {
        let (place, state) = match credentials::find(profile)? {
            Source::Environment => return Ok(None),
            Source::Profile(name) => {
                // If something is missing, this is the time to report it.
                let (credential, next) = signing(credentials::keys_of(&name)?);
                let kept = Some((credential, SystemTime::now()));
                (Place::Profile(name), State { kept, next: Some(next), provider: None })
            }
            Source::Server(name) => (Place::Server(name, Box::new(builder)), State::default()),
        };
        Ok(Some(Arc::new(Self { place, state: Mutex::new(state) })))
    }

    /// Has credentials asked for before the next request, unless others came after `began`, when
    /// the request began that was refused.
    pub async fn forget(&self, began: SystemTime) {
        let mut state = self.state.lock().await;
        if state.kept.as_ref().is_some_and(|(_, came)| *came <= began) {
            *state = State::default();
        }
    }

    /// Asks for credentials, and returns when to ask again.
    async fn ask(&self, state: &mut State) -> Result<(Arc<AwsCredential>, SystemTime)> {
        match &self.place {
            Place::Profile(name) => {
                let name = name.clone();
                // A program may take long. Nothing waits for this thread when the mount ends.
                let read = tokio::task::spawn_blocking(move || credentials::keys_of(&name)).await;
                let ended = |error: tokio::task::JoinError| {
                    Error::new(Kind::Os(libc::EIO), error.to_string())
                };
                read.map_err(ended)?.map(signing)
            }
            Place::Server(name, builder) => {
                let provider = if let Some(provider) = &state.provider {
                    Arc::clone(provider)
                } else {
                    let client = builder.clone().build().map_err(|error| error_of(&error))?;
                    Arc::clone(state.provider.insert(Arc::clone(client.credentials())))
                };
                let credential = provider.get_credential().await.map_err(|failure| {
                    let reason = error_of(&failure);
                    let detail = format!("no credentials from {name}: {}", reason.detail());
                    Error::new(Kind::Os(libc::EACCES), detail)
                })?;
                Ok((credential, SystemTime::now()))
            }
        }
    }
}

/// Returns what signs requests, and when to renew it: before it ends, or half way if it ends soon.
fn signing(keys: Keys) -> (Arc<AwsCredential>, SystemTime) {
    let now = SystemTime::now();
    let pause = keys.until.map_or(REREAD, |until| {
        let left = until.duration_since(now).unwrap_or_default();
        if left > RENEWAL { left.saturating_sub(RENEWAL) } else { left / 2 }
    });
    let credential = AwsCredential { key_id: keys.id, secret_key: keys.secret, token: keys.token };
    (Arc::new(credential), now.checked_add(pause).unwrap_or(now))
}

#[async_trait::async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut state = self.state.lock().await;
        if let (Some((credential, _)), Some(next)) = (&state.kept, state.next)
            && SystemTime::now() < next
        {
            return Ok(Arc::clone(credential));
        }
        let asked = self.ask(&mut state).await;
        let now = SystemTime::now();
        let (credential, came, next) = match (asked, state.kept.take()) {
            (Ok((new, next)), Some((old, came))) if Arc::ptr_eq(&new, &old) => (new, came, next),
            (Ok((new, next)), _) => (new, now, next),
            (Err(error), Some((old, came))) => {
                // They may be good for minutes. If they are not, the server says so.
                log::debug!("{error}");
                (old, came, now.checked_add(PAUSE).unwrap_or(now))
            }
            (Err(error), None) => {
                return Err(object_store::Error::Unauthenticated {
                    path: String::new(),
                    source: Box::new(error),
                });
            }
        };
        state.kept = Some((Arc::clone(&credential), came));
        state.next = Some(next);
        Ok(credential)
    }
}
