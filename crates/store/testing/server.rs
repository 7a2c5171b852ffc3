//! A server in memory, which counts its requests and takes a while for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_store::disk_cache::DiskCache;
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::remote::server::{Depth, ListingPage, Report, Server, Start};
use zarrfs_store::remote::{RemoteLimits, RemoteStore, ValueCache};
use zarrfs_store::{
    ByteRange, Condition, Key, ListableStore, Prefix, ReadableStore, Stat, Store, StoreEntry,
    Value, ValuePiece, WritableStore,
};

/// A request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MadeRequest {
    Get(String, Option<(u64, u64)>),
    GetEnd(String, u64),
    List(String),
    Put(String),
    Delete(usize),
}

/// A server in memory.
#[derive(Debug)]
pub(crate) struct MemoryServer {
    pub(crate) store: MemoryStore,
    /// The most names of a page.
    pub(crate) page: usize,
    pub(crate) delay: Mutex<Duration>,
    /// Whether it ignores the conditions of puts.
    pub(crate) ignores_conditions: AtomicBool,
    /// Whether no request reaches it.
    pub(crate) is_away: AtomicBool,
    /// Whether it refuses to list keys.
    pub(crate) refuses_lists: AtomicBool,
    /// Whether it lists as web servers do: one directory at a time, without dotted names.
    pub(crate) is_web: AtomicBool,
    /// Whether its values have no versions.
    pub(crate) lacks_versions: AtomicBool,
    made: Mutex<Vec<MadeRequest>>,
    under_way: Arc<AtomicUsize>,
    most: AtomicUsize,
}

impl MemoryServer {
    /// Returns a server, and the store on it.
    pub(crate) fn new(ttl: Duration) -> (Store, Arc<Self>) {
        Self::with_page(ttl, 1000)
    }

    /// Returns a server whose pages have so many names, and the store on it.
    pub(crate) fn with_page(ttl: Duration, page: usize) -> (Store, Arc<Self>) {
        let server = Arc::new(Self {
            store: MemoryStore::new(),
            page,
            delay: Mutex::default(),
            ignores_conditions: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            refuses_lists: AtomicBool::new(false),
            is_web: AtomicBool::new(false),
            lacks_versions: AtomicBool::new(false),
            made: Mutex::default(),
            under_way: Arc::default(),
            most: AtomicUsize::new(0),
        });
        let limits =
            RemoteLimits { ttl, lease: Duration::from_millis(60), ..RemoteLimits::DEFAULT };
        (server.store(limits), server)
    }

    /// Returns another store on the server, as that of another machine.
    pub(crate) fn store(self: &Arc<Self>, limits: RemoteLimits) -> Store {
        let server = Arc::<Self>::clone(self) as Arc<dyn Server>;
        Store::new(Arc::new(RemoteStore::new(server, limits, None).expect("a store")))
    }

    /// Returns another store on the server, whose values are kept in a cache.
    pub(crate) fn cached(self: &Arc<Self>, limits: RemoteLimits, disk: &Arc<DiskCache>) -> Store {
        let server = Arc::<Self>::clone(self) as Arc<dyn Server>;
        let cache = ValueCache { disk: Arc::clone(disk), store: "memory/".to_owned() };
        Store::new(Arc::new(RemoteStore::new(server, limits, Some(cache)).expect("a store")))
    }

    /// Returns the requests since the last `take`.
    pub(crate) fn take(&self) -> Vec<MadeRequest> {
        self.most.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.made.lock())
    }

    /// Returns the most requests that were under way at a time since the last `take`.
    pub(crate) fn most_under_way(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn answer<T: Send + 'static>(&self, made: MadeRequest, answer: Result<T>, report: Report<T>) {
        self.made.lock().push(made);
        let is_away = self.is_away.load(Ordering::Relaxed);
        let away = || Err(Error::new(Kind::Os(libc::EIO), "the server is away"));
        let answer = if is_away { away() } else { answer };
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        let (delay, under_way) = (*self.delay.lock(), Arc::clone(&self.under_way));
        thread::spawn(move || {
            thread::sleep(delay);
            under_way.fetch_sub(1, Ordering::Relaxed);
            report(answer);
        });
    }

    fn page(&self, prefix: &Prefix, depth: Depth, start: &Start) -> Result<ListingPage> {
        let is_web = self.is_web.load(Ordering::Relaxed);
        assert!(!is_web || depth == Depth::Directory, "a web server does not list a subtree");
        let mut entries: Vec<StoreEntry> = match depth {
            Depth::Directory => self.store.list_dir(prefix)?.collect::<Result<_>>()?,
            Depth::All => {
                let keys = self.store.list_prefix(prefix)?.collect::<Result<Vec<_>>>()?;
                let below =
                    |key: Key| key.as_str().strip_prefix(prefix.as_str()).map(str::to_owned);
                keys.into_iter().filter_map(below).map(StoreEntry::Key).collect()
            }
        };
        // Prefixes are listed with their slash.
        let text = |entry: &StoreEntry| match entry {
            StoreEntry::Key(name) => name.clone(),
            StoreEntry::Prefix(name) => format!("{name}/"),
        };
        entries.retain(|entry| !is_web || !entry.name().starts_with('.'));
        entries.sort_by_key(text);
        let after = match start {
            Start::First => "",
            Start::Continue(next) => next,
        };
        entries.retain(|entry| text(entry).as_str() > after);
        let is_more = entries.len() > self.page;
        entries.truncate(self.page);
        let next = entries.last().filter(|_| is_more).map(text);
        let mut page = ListingPage { entries: Vec::new(), next };
        for entry in entries {
            let stat = match &entry {
                StoreEntry::Key(name) => self.store.stat(&[prefix.key(name)?])?.pop().flatten(),
                StoreEntry::Prefix(_) => None,
            };
            page.entries.push((entry, stat));
        }
        Ok(page)
    }
}

impl Server for MemoryServer {
    fn stop(&self) {}

    fn has_version(&self, _: &Stat) -> bool {
        !self.lacks_versions.load(Ordering::Relaxed)
    }

    fn lists_subtrees(&self) -> bool {
        !self.is_web.load(Ordering::Relaxed)
    }

    fn proves_absence(&self) -> bool {
        !self.is_web.load(Ordering::Relaxed)
    }

    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition, report: Report<Stat>) {
        let is_ignored = self.ignores_conditions.load(Ordering::Relaxed);
        let condition = if is_ignored { Condition::Always } else { condition };
        let pieces: Vec<ValuePiece> = bytes.into_iter().map(ValuePiece::New).collect();
        let put = if self.is_away.load(Ordering::Relaxed) {
            Err(Error::new(Kind::Os(libc::EIO), "the server is away"))
        } else {
            self.store.set(key, &pieces, condition)
        };
        self.answer(MadeRequest::Put(key.as_str().to_owned()), put, report);
    }

    fn delete(&self, keys: &[Key], report: Report<()>) {
        self.answer(MadeRequest::Delete(keys.len()), self.store.erase_values(keys), report);
    }

    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>) {
        let name = key.as_str().to_owned();
        let made = match range {
            None => MadeRequest::Get(name, None),
            Some(ByteRange::Span { offset, len }) => MadeRequest::Get(name, Some((offset, len))),
            Some(ByteRange::Suffix(len)) => MadeRequest::GetEnd(name, len),
        };
        let wanted = [(key.clone(), range.unwrap_or(ByteRange::first(u64::MAX)))];
        let values = ReadableStore::get_partial_values(&self.store, &wanted);
        self.answer(made, values.map(|mut values| values.pop().flatten()), report);
    }

    fn list(&self, prefix: &Prefix, depth: Depth, start: Start, report: Report<ListingPage>) {
        let page = if self.refuses_lists.load(Ordering::Relaxed) {
            Err(Error::new(Kind::Os(libc::EACCES), "the server answered 403 Forbidden"))
        } else {
            self.page(prefix, depth, &start)
        };
        self.answer(MadeRequest::List(prefix.as_str().to_owned()), page, report);
    }
}
