//! Puts of objects, on a condition or in parts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error as Failure, GetOptions, GetResult, MultipartId, ObjectMeta,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UpdateVersion,
};

use super::client::Clients;
use super::failure::{self, SILENCE};
use super::place::Provider;
use super::progress::LastArrival;
use super::version::{self, stat_of};
use crate::{Condition, Stat, Version};
use zarrfs_base::width::ToU64;

/// The metadata of an object that names the put that stored it. Azure takes no hyphens in it, and
/// some servers no underscores.
const WRITE_ID: &str = "zarrfswriteid";

/// The longest value that is put in one request, if there is no condition, in bytes.
const MOST_IN_ONE: u64 = 64 << 20;

/// The length of a part of a longer one, in bytes.
const PART_LEN: usize = 16 << 20;

/// How many parts are under way at a time.
const PARTS_AT_ONCE: usize = 4;

/// The slowest line through which an object can be put, in bytes per second.
const SLOWEST: u64 = 64 << 10;

/// The pause before the first retry of a put whose result is not clear; each next one is twice as
/// long, up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How the tag of a condition is sent. Some servers refuse the quotes that they put there
/// themselves (Ceph 16).
#[derive(Debug, Default)]
pub(super) struct Quoting {
    is_bare: AtomicBool,
}

impl Quoting {
    fn of(&self, tag: &str) -> String {
        if self.is_bare.load(Ordering::Relaxed) { tag.to_owned() } else { format!("\"{tag}\"") }
    }

    fn change(&self) {
        self.is_bare.fetch_xor(true, Ordering::Relaxed);
    }
}

/// Returns the length of a value in pieces.
pub(super) fn len_of(bytes: &[Bytes]) -> u64 {
    let lens = bytes.iter().map(|some| some.len().to_u64());
    lens.fold(0, u64::saturating_add)
}

/// Returns how long a put of `len` bytes may take.
pub(super) fn longest(len: u64) -> Duration {
    SILENCE.saturating_add(Duration::from_secs(len / SLOWEST))
}

/// How long a put is tried.
#[derive(Clone, Copy)]
pub(super) struct Patience<'p> {
    pub retry_for: Duration,
    pub progress: &'p LastArrival,
}

impl Patience<'_> {
    /// Waits for an answer, as long as it takes to send `len` bytes through a slow line that many
    /// puts share.
    async fn within<T>(self, len: u64, put: impl Future<Output = Result<T>>) -> Result<T> {
        let most = longest(len);
        let done = tokio::time::timeout(most, put).await;
        let done = done.unwrap_or_else(|_| Err(failure::silence(most)));
        self.progress.note();
        done
    }

    /// Makes a request again while its failure may pass. It must not matter how often it is made.
    async fn tried<T, F: Future<Output = Result<T>>>(
        self,
        len: u64,
        request: impl Fn() -> F,
    ) -> Result<T> {
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            let failure = match self.within(len, request()).await {
                Err(failure) if failure::is_unclear(&failure) || is_conflict(&failure) => failure,
                done => return done,
            };
            if began.elapsed() >= self.retry_for {
                // There was no condition.
                return Err(if is_conflict(&failure) { general(failure) } else { failure });
            }
            log::debug!("{failure}");
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }
}

/// Whether the server says that a condition does not hold.
fn is_conflict(failure: &Failure) -> bool {
    matches!(failure, Failure::AlreadyExists { .. } | Failure::Precondition { .. })
}

/// Returns a failure as one that says nothing of what is stored.
fn general(failure: Failure) -> Failure {
    Failure::Generic { store: "S3", source: Box::new(failure) }
}

/// A put of an object. It has an id, since its answer may be lost: if the next try is refused, it
/// finds the object that the first one has stored.
#[derive(Clone, Copy)]
pub(super) struct Put<'p> {
    pub clients: &'p Clients,
    pub path: &'p Path,
    pub bytes: &'p [Bytes],
    pub quoting: &'p Quoting,
    pub id: &'p str,
    pub patience: Patience<'p>,
}

/// Returns the stat of an object that was just put. The server does not say its time.
fn stat_of_tag(tag: &str, len: u64) -> Stat {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
    Stat { len, modified, version: version::of_tag(Some(tag), len, modified) }
}

impl Put<'_> {
    /// Puts the object if the condition holds.
    pub async fn run(self, condition: Condition) -> Result<Stat> {
        let len = len_of(self.bytes);
        let stored = match condition {
            Condition::Always if len > MOST_IN_ONE => return self.in_parts(len).await,
            Condition::Always => {
                let payload: PutPayload = self.bytes.iter().cloned().collect();
                let put = || self.clients.writer.put(self.path, payload.clone());
                self.patience.tried(len, put).await?
            }
            Condition::Absent | Condition::Unchanged(_) => {
                match self.conditionally(condition, len).await? {
                    PutOutcome::Now(stored) => stored,
                    PutOutcome::Before(stat) => return Ok(stat),
                }
            }
        };
        self.stat_of_put(stored, len).await
    }

    async fn stat_of_put(self, stored: PutResult, len: u64) -> Result<Stat> {
        match stored.e_tag {
            Some(tag) => Ok(stat_of_tag(&tag, len)),
            None => self.clients.reader.head(self.path).await.map(|object| stat_of(&object)),
        }
    }

    async fn conditionally(self, condition: Condition, len: u64) -> Result<PutOutcome> {
        let payload: PutPayload = self.bytes.iter().cloned().collect();
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            let failure = match self.once(condition, payload.clone(), len).await {
                Ok(stored) => return Ok(PutOutcome::Now(stored)),
                Err(failure) => failure,
            };
            let is_refused = is_conflict(&failure);
            if !is_refused && !failure::is_unclear(&failure) {
                return Err(failure);
            }
            let found = match self.look().await {
                Ok(found) => found,
                // It may have been refused because an earlier try has stored it.
                Err(unclear) if is_refused => return Err(unclear),
                // The error of the put says more than that of this request.
                Err(_) => return Err(failure),
            };
            if let Some(found) = &found
                && self.is_own(found)
            {
                return Ok(PutOutcome::Before(stat_of(&found.meta)));
            }
            let now = found.map(|found| version::of_object(&found.meta));
            if condition.check(now).is_err() {
                // Another program was faster.
                let path = self.path.to_string();
                return Err(match condition {
                    _ if is_refused => failure,
                    Condition::Absent => Failure::AlreadyExists { path, source: Box::new(failure) },
                    _ => Failure::Precondition { path, source: Box::new(failure) },
                });
            }
            if began.elapsed() >= self.patience.retry_for {
                // It was refused although the condition holds.
                return Err(if is_refused { general(failure) } else { failure });
            }
            if is_refused && matches!(condition, Condition::Unchanged(_)) {
                // It refuses a condition that holds.
                self.quoting.change();
            }
            log::debug!("{}: {failure}", self.path);
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn once(self, condition: Condition, payload: PutPayload, len: u64) -> Result<PutResult> {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(version) => PutMode::Update(self.update_of(version).await?),
        };
        let options = PutOptions { mode, attributes: self.attributes(), ..PutOptions::default() };
        let put = self.clients.writer.put_opts(self.path, payload, options);
        self.patience.within(len, put).await
    }

    /// Returns what is stored with the object, so that it is known as that of this put.
    fn attributes(self) -> Attributes {
        let id = (Attribute::Metadata(WRITE_ID.into()), self.id.to_owned());
        Attributes::from_iter([id])
    }

    /// Returns a version as it is sent: its tag, or for Google its generation, which the tag does
    /// not show.
    async fn update_of(self, version: Version) -> Result<UpdateVersion> {
        let needs_generation = self.clients.provider == Provider::Google;
        if let Some(tag) = version::tag_of(version).filter(|_| !needs_generation) {
            return Ok(UpdateVersion { e_tag: Some(self.quoting.of(&tag)), version: None });
        }
        let found = self.look().await?.map(|found| found.meta);
        match found.filter(|object| version::of_object(object).is_same(version)) {
            Some(ObjectMeta { version: Some(generation), .. }) if needs_generation => {
                Ok(UpdateVersion { e_tag: None, version: Some(generation) })
            }
            Some(ObjectMeta { e_tag: Some(tag), .. }) if !needs_generation => {
                let tag = self.quoting.of(version::bare(&tag));
                Ok(UpdateVersion { e_tag: Some(tag), version: None })
            }
            Some(_) => Err(Failure::NotSupported { source: "objects have no versions".into() }),
            None => Err(Failure::Precondition {
                path: self.path.to_string(),
                source: "the object was replaced".into(),
            }),
        }
    }

    /// Returns what is stored, without its bytes.
    async fn look(self) -> Result<Option<GetResult>> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.clients.reader.get_opts(self.path, options).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure::is_absent(&failure) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn is_own(self, found: &GetResult) -> bool {
        let stored = found.attributes.get(&Attribute::Metadata(WRITE_ID.into()));
        stored.is_some_and(|stored| **stored == *self.id)
    }

    /// Puts an object of `len` bytes in parts. It appears when all of them are there.
    async fn in_parts(self, len: u64) -> Result<Stat> {
        let (reader, writer) = (&self.clients.reader, &self.clients.writer);
        let attributes = match self.clients.provider {
            Provider::S3 | Provider::Google => self.attributes(),
            // The client cannot send them in parts, but the last request can be made again.
            Provider::Azure => Attributes::default(),
        };
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = reader.create_multipart_opts(self.path, options).await?;
        let stored = match self.put_parts(&upload).await {
            Ok(parts) => {
                let complete = || writer.complete_multipart(self.path, &upload, parts.clone());
                self.patience.tried(len, complete).await
            }
            Err(failure) => Err(failure),
        };
        let failure = match stored {
            Ok(stored) => return self.stat_of_put(stored, len).await,
            Err(failure) => failure,
        };
        // The answer to the last request may have been lost.
        if let Ok(Some(found)) = self.look().await
            && self.is_own(&found)
        {
            return Ok(stat_of(&found.meta));
        }
        if let Err(failure) = reader.abort_multipart(self.path, &upload).await {
            log::debug!("{}: the parts of a failed upload stay: {failure}", self.path);
        }
        Err(match failure {
            Failure::NotFound { source, .. } => Failure::Generic { store: "S3", source },
            failure => failure,
        })
    }

    async fn put_parts(self, upload: &MultipartId) -> Result<Vec<PartId>> {
        let put = |(at, part): (usize, PutPayload)| async move {
            let len = part.content_length().to_u64();
            let put = || self.clients.writer.put_part(self.path, upload, at, part.clone());
            self.patience.tried(len, put).await
        };
        let parts = parts_of(self.bytes).into_iter().enumerate();
        stream::iter(parts).map(put).buffered(PARTS_AT_ONCE).try_collect().await
    }
}

/// The result of a put on a condition.
enum PutOutcome {
    Now(PutResult),
    /// By an earlier try, whose answer was lost.
    Before(Stat),
}

/// Cuts bytes into parts of equal length, but for the last.
fn parts_of(bytes: &[Bytes]) -> Vec<PutPayload> {
    let (mut parts, mut part, mut part_len) = (Vec::new(), Vec::new(), 0);
    for piece in bytes {
        let mut rest = piece.clone();
        while !rest.is_empty() {
            let some = rest.split_to(rest.len().min(PART_LEN - part_len));
            part_len += some.len();
            part.push(some);
            if part_len == PART_LEN {
                parts.push(std::mem::take(&mut part).into_iter().collect());
                part_len = 0;
            }
        }
    }
    if !part.is_empty() {
        parts.push(part.into_iter().collect());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_equal_length_but_for_the_last() {
        let lens = |bytes: &[Bytes]| -> Vec<usize> {
            parts_of(bytes).iter().map(PutPayload::content_length).collect()
        };
        let zeros = |len: usize| Bytes::from(vec![0; len]);
        let pieces = [zeros(PART_LEN / 2), zeros(0), zeros(PART_LEN * 2), zeros(1)];
        assert_eq!(lens(&pieces), [PART_LEN, PART_LEN, PART_LEN / 2 + 1]);
        assert_eq!(lens(&[zeros(PART_LEN)]), [PART_LEN]);
        assert_eq!(lens(&[]), [0; 0]);
    }
}
