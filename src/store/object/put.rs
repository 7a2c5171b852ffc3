//! Puts of objects, on a condition or in parts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error as Failure, GetOptions, GetResult, MultipartUpload, ObjectStore,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UpdateVersion,
};
use tokio::task::JoinSet;

use super::failure::{self, SILENCE};
use super::version::{self, stat_of};
use crate::store::{Condition, Stat, Version};

/// The metadata of an object that names the put that stored it.
const WRITE_ID: &str = "zarrfs-write-id";

/// The longest value that is put in one request, if there is no condition, in bytes.
const MOST_IN_ONE: u64 = 64 << 20;

/// The length of a part of a longer one, in bytes.
const PART_LEN: usize = 16 << 20;

/// How many parts are under way at a time.
const PARTS_AT_ONCE: usize = 4;

/// The slowest line through which an object can be put, in bytes per second.
const SLOWEST: u64 = 64 << 10;

/// The pause before the first retry of a put whose result is not clear; each next one is twice as
/// long.
const PAUSE: Duration = Duration::from_millis(50);

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
    let lens = bytes.iter().map(|some| u64::try_from(some.len()).unwrap_or(u64::MAX));
    lens.fold(0, u64::saturating_add)
}

/// Returns how long a put of `len` bytes may take.
pub(super) fn longest(len: u64) -> Duration {
    SILENCE.saturating_add(Duration::from_secs(len / SLOWEST))
}

/// Waits for a put, as long as it takes to send `len` bytes through a slow line that many puts
/// share.
async fn within<T>(len: u64, put: impl Future<Output = Result<T>>) -> Result<T> {
    let most = longest(len);
    tokio::time::timeout(most, put).await.unwrap_or_else(|_| Err(failure::silence(most)))
}

/// Puts an object if the condition holds. Tries again for `retry_for`.
pub(super) async fn put(
    client: &AmazonS3,
    path: &Path,
    bytes: &[Bytes],
    condition: Condition,
    (quoting, id, retry_for): (&Quoting, &str, Duration),
) -> Result<Stat> {
    let len = len_of(bytes);
    if !matches!(condition, Condition::Always) {
        let payload: PutPayload = bytes.iter().cloned().collect();
        let put = Conditional { client, path, payload, len, quoting, id };
        return put.run(condition, retry_for).await;
    }
    if len > MOST_IN_ONE {
        return in_parts(client, path, bytes, (id, len)).await;
    }
    let stored = within(len, client.put(path, bytes.iter().cloned().collect())).await?;
    match stored.e_tag {
        Some(tag) => Ok(stat_of_tag(&tag, len)),
        None => client.head(path).await.map(|object| stat_of(&object)),
    }
}

/// Returns the stat of an object that was just put. The server does not say its time.
fn stat_of_tag(tag: &str, len: u64) -> Stat {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
    Stat { len, modified, version: version::of_tag(Some(tag), len, modified) }
}

/// A put on a condition. It has an id, since its answer may be lost: the next try is then refused,
/// and finds the object that the first one has stored.
struct Conditional<'p> {
    client: &'p AmazonS3,
    path: &'p Path,
    payload: PutPayload,
    len: u64,
    quoting: &'p Quoting,
    id: &'p str,
}

impl Conditional<'_> {
    async fn run(&self, condition: Condition, retry_for: Duration) -> Result<Stat> {
        let (began, mut pause) = (Instant::now(), PAUSE);
        loop {
            let failure = match self.once(condition).await {
                Ok(PutResult { e_tag: Some(tag), .. }) => return Ok(stat_of_tag(&tag, self.len)),
                Ok(PutResult { e_tag: None, .. }) => {
                    return self.client.head(self.path).await.map(|object| stat_of(&object));
                }
                Err(failure) => failure,
            };
            let is_refused =
                matches!(failure, Failure::AlreadyExists { .. } | Failure::Precondition { .. });
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
                return Ok(stat_of(&found.meta));
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
            if began.elapsed() >= retry_for {
                return Err(failure);
            }
            if is_refused && matches!(condition, Condition::Unchanged(_)) {
                // It refuses a condition that holds.
                self.quoting.change();
            }
            log::debug!("{}: {failure}", self.path);
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(Duration::from_secs(5));
        }
    }

    async fn once(&self, condition: Condition) -> Result<PutResult> {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(version) => {
                let tag = self.tag_of(version).await?;
                PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None })
            }
        };
        let id = (Attribute::Metadata(WRITE_ID.into()), self.id.to_owned());
        let attributes = Attributes::from_iter([id]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        within(self.len, self.client.put_opts(self.path, self.payload.clone(), options)).await
    }

    /// Returns the tag of a version as it is sent.
    async fn tag_of(&self, version: Version) -> Result<String> {
        if let Some(tag) = version::tag_of(version) {
            return Ok(self.quoting.of(&tag));
        }
        let found = self.look().await?.map(|found| found.meta);
        match found.filter(|object| version::of_object(object).is_same(version)) {
            Some(object) => match &object.e_tag {
                Some(tag) => Ok(self.quoting.of(version::bare(tag))),
                None => Err(Failure::NotSupported { source: "objects have no ETag".into() }),
            },
            None => Err(Failure::Precondition {
                path: self.path.to_string(),
                source: "the object was replaced".into(),
            }),
        }
    }

    async fn look(&self) -> Result<Option<GetResult>> {
        look(self.client, self.path).await
    }

    fn is_own(&self, found: &GetResult) -> bool {
        has_id(found, self.id)
    }
}

/// Returns what is stored, without its bytes.
async fn look(client: &AmazonS3, path: &Path) -> Result<Option<GetResult>> {
    let options = GetOptions { head: true, ..GetOptions::default() };
    match client.get_opts(path, options).await {
        Ok(found) => Ok(Some(found)),
        Err(Failure::NotFound { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn has_id(found: &GetResult, id: &str) -> bool {
    let stored = found.attributes.get(&Attribute::Metadata(WRITE_ID.into()));
    stored.is_some_and(|stored| **stored == *id)
}

/// Puts an object of `len` bytes in parts. It appears when all of them are there.
async fn in_parts(
    client: &AmazonS3,
    path: &Path,
    bytes: &[Bytes],
    (id, len): (&str, u64),
) -> Result<Stat> {
    let id_of = (Attribute::Metadata(WRITE_ID.into()), id.to_owned());
    let attributes = Attributes::from_iter([id_of]);
    let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
    let mut upload = client.put_multipart_opts(path, options).await?;
    let stored = match put_parts(&mut *upload, bytes).await {
        Ok(()) => upload.complete().await,
        Err(failure) => Err(failure),
    };
    let failure = match stored {
        Ok(PutResult { e_tag: Some(tag), .. }) => return Ok(stat_of_tag(&tag, len)),
        Ok(_) => return client.head(path).await.map(|object| stat_of(&object)),
        Err(failure) => failure,
    };
    // The answer to the last request may have been lost.
    if let Ok(Some(found)) = look(client, path).await
        && has_id(&found, id)
    {
        return Ok(stat_of(&found.meta));
    }
    if let Err(failure) = upload.abort().await {
        log::debug!("{path}: the parts of a failed upload stay: {failure}");
    }
    Err(match failure {
        Failure::NotFound { source, .. } => Failure::Generic { store: "S3", source },
        failure => failure,
    })
}

async fn put_parts(upload: &mut dyn MultipartUpload, bytes: &[Bytes]) -> Result<()> {
    let joined = |done: Option<std::result::Result<Result<()>, tokio::task::JoinError>>| match done
    {
        Some(Ok(stored)) => stored,
        Some(Err(ended)) => Err(Failure::Generic { store: "S3", source: Box::new(ended) }),
        None => Ok(()),
    };
    let mut under_way = JoinSet::new();
    for part in parts_of(bytes) {
        if under_way.len() >= PARTS_AT_ONCE {
            joined(under_way.join_next().await)?;
        }
        let len = u64::try_from(part.content_length()).unwrap_or(u64::MAX);
        under_way.spawn(within(len, upload.put_part(part)));
    }
    while !under_way.is_empty() {
        joined(under_way.join_next().await)?;
    }
    Ok(())
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
