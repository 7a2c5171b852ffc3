//! The clients of the server, and what each keeps others from.
//!
//! A client has a connection, and a place among `--connections`. If all places are taken and
//! another client waits for one, the server closes connections that it waits for itself: those
//! whose request has not come, and those whose client takes no bytes. A connection for which the
//! server is working stays, and so does one that takes its answer.

use std::io::{IoSlice, Result};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long the server waits for a client before it prefers another one that waits for a place.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often to look for a place.
const LOOK: Duration = Duration::from_millis(100);

/// A client that takes fewer bytes than this in [`PATIENCE`] counts as one that takes none.
const LEAST: usize = 16 << 10;

/// At most this part of the places is freed at once.
const PART: usize = 8;

/// A connection.
#[derive(Debug)]
pub struct ClientConnection {
    address: IpAddr,
    /// A leaf lock.
    state: Mutex<Activity>,
    /// Notified when the connection must end.
    pub ended: Notify,
}

#[derive(Debug)]
struct Activity {
    /// How many requests of the client the server works on at this moment.
    working: usize,
    /// Since when the server waits for the client.
    since: Instant,
    /// The bytes that it has taken since then.
    taken: usize,
}

/// The server works for a client until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct WorkGuard(Arc<ClientConnection>);

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.working = state.working.saturating_sub(1);
        (state.since, state.taken) = (Instant::now(), 0);
    }
}

impl ClientConnection {
    /// Notes that the server works for it.
    pub fn work(self: &Arc<Self>) -> WorkGuard {
        let mut state = self.state.lock();
        state.working = state.working.saturating_add(1);
        drop(state);
        WorkGuard(Arc::clone(self))
    }

    fn note_taken(&self, len: usize) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_add(len);
        if state.taken >= LEAST {
            (state.since, state.taken) = (Instant::now(), 0);
        }
    }

    /// Returns since when the server waits for it; `None` if that is not long, or not so.
    fn idle_since(&self, now: Instant) -> Option<Instant> {
        let state = self.state.lock();
        let is_idle = state.working == 0 && now.saturating_duration_since(state.since) >= PATIENCE;
        is_idle.then_some(state.since)
    }
}

/// All clients.
#[derive(Debug)]
pub struct Clients {
    places: Arc<Semaphore>,
    most: usize,
    /// A leaf lock.
    all: Mutex<Vec<Arc<ClientConnection>>>,
}

/// The place of a client, until this is dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    /// The client.
    pub client: Arc<ClientConnection>,
    clients: Arc<Clients>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.clients.all.lock().retain(|client| !Arc::ptr_eq(client, &self.client));
    }
}

impl Clients {
    /// Returns a place for each of `most` clients.
    pub fn new(most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), most, all: Mutex::default() }
    }

    /// Waits for a place. Ends idle connections if none is free; `None` if the server ends.
    pub async fn take(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let permit = loop {
            let place = Arc::clone(&self.places).acquire_owned();
            match timeout(LOOK, place).await {
                Ok(place) => break place.ok()?,
                Err(_late) => self.end_idle(),
            }
        };
        let state = Activity { working: 0, since: Instant::now(), taken: 0 };
        let client =
            Arc::new(ClientConnection { address, state: Mutex::new(state), ended: Notify::new() });
        self.all.lock().push(Arc::clone(&client));
        Some(ConnectionSlot { client, clients: Arc::clone(self), _permit: permit })
    }

    /// Waits until all clients have gone.
    pub async fn until_gone(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        // It only fails when no more places are given.
        drop(self.places.acquire_many(all).await);
    }

    /// Ends idle connections: first those of the address that has the most, then those that have
    /// been idle for the longest time.
    fn end_idle(&self) {
        let (all, now) = (self.all.lock().clone(), Instant::now());
        let mut idle: Vec<(usize, Instant, Arc<ClientConnection>)> = all
            .iter()
            .filter_map(|client| {
                let since = client.idle_since(now)?;
                let is_same = |other: &&Arc<ClientConnection>| other.address == client.address;
                Some((all.iter().filter(is_same).count(), since, Arc::clone(client)))
            })
            .collect();
        idle.sort_by_key(|(count, since, _)| (usize::MAX.saturating_sub(*count), *since));
        for (_, _, client) in idle.iter().take((self.most / PART).max(1)) {
            log::debug!("{}: its connection is closed, since others wait", client.address);
            client.ended.notify_one();
        }
    }
}

/// A stream that notes what the client takes.
#[derive(Debug)]
pub struct Watched<S> {
    /// The stream.
    pub stream: S,
    /// Its client.
    pub client: Arc<ClientConnection>,
}

impl<S: Unpin> Watched<S> {
    fn noted(&self, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if let Poll::Ready(Ok(len)) = &written {
            self.client.note_taken(*len);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
