use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::disk_cache::DiskCache;
use crate::memory_server::{MadeRequest, MemoryServer};
use crate::{Condition, Store, ValuePiece, WritableStore, suite, unique};

const TTL: Duration = Duration::from_secs(60);

fn key(text: &str) -> Key {
    Key::parse(text).expect("valid")
}

fn put(server: &MemoryServer, name: &str, len: usize) {
    let pieces = [bytes::Bytes::from(vec![7; len]).into()];
    server.store.set(&key(name), &pieces, Condition::Always).expect("set");
}

fn names(store: &Store, prefix: &str) -> Vec<String> {
    let entries = store.list().expect("lists").list_dir(&Prefix::parse(prefix).expect("valid"));
    let entries: Result<Vec<StoreEntry>> = entries.expect("listed").collect();
    entries.expect("listed").iter().map(|entry| entry.name().to_owned()).collect()
}

#[test]
fn a_listing_answers_what_follows_it() {
    let (store, server) = MemoryServer::new(TTL);
    for name in ["a/zarr.json", "a/c/0", "a/c/1", "b/zarr.json"] {
        put(&server, name, 10);
    }
    assert_eq!(names(&store, "a"), ["zarr.json", "c"]);
    assert_eq!(names(&store, "a"), ["zarr.json", "c"]);
    assert_eq!(store.stat(&key("a/zarr.json")).expect("stat").map(|stat| stat.len), Some(10));
    assert_eq!(store.stat(&key("a/.zarray")).expect("stat"), None);
    assert!(store.get(&key("a/.zgroup"), 100).expect("get").is_none());
    assert!(store.get(&key("a/d/e"), 100).expect("get").is_none());
    assert!(names(&store, "a/d").is_empty());
    assert_eq!(server.take(), [MadeRequest::List("a/".into())]);
}

#[test]
fn the_keys_below_directories_that_were_listed_need_no_request() {
    let (store, server) = MemoryServer::new(TTL);
    for name in ["a/0.0", "a/c/0", "a/c/1/2"] {
        put(&server, name, 10);
    }
    let keys = |prefix: &str| {
        let prefix = Prefix::parse(prefix).expect("valid");
        let keys = store.list().expect("lists").list_prefix(&prefix).expect("listed");
        let mut keys: Vec<String> = keys.map(|key| key.expect("listed").to_string()).collect();
        keys.sort();
        keys
    };
    for _ in 0..2 {
        assert_eq!(keys("a"), ["a/0.0", "a/c/0", "a/c/1/2"]);
        assert_eq!(keys("a/c"), ["a/c/0", "a/c/1/2"]);
        assert_eq!(names(&store, "a/c").len(), 2);
        assert_eq!(names(&store, "a/c/1"), ["2"]);
    }
    assert_eq!(server.take(), [MadeRequest::List("a/".into())]);
}

#[test]
fn a_walk_through_the_directories_of_chunks_is_few_listings() {
    let (store, server) = MemoryServer::new(TTL);
    for (i, j) in (0..40).flat_map(|i| (0..40).map(move |j| (i, j))) {
        put(&server, &format!("a/c/{i}/{j}/0"), 1);
    }
    let mut found = 0;
    for i in names(&store, "a/c") {
        for j in names(&store, &format!("a/c/{i}")) {
            for k in names(&store, &format!("a/c/{i}/{j}")) {
                let key = key(&format!("a/c/{i}/{j}/{k}"));
                found += usize::from(store.stat(&key).expect("stat").is_some());
            }
        }
    }
    assert_eq!(found, 1600);
    let requests = server.take().len();
    assert!(requests <= 12, "{requests} requests for 1641 directories");
}

#[test]
fn groups_of_many_chunks_are_listed_one_by_one() {
    let (store, server) = MemoryServer::new(TTL);
    for (group, chunk) in (0..5).flat_map(|group| (0..1200).map(move |chunk| (group, chunk))) {
        put(&server, &format!("g{group}/a/c/{chunk}"), 1);
    }
    for group in 0..5 {
        assert_eq!(names(&store, &format!("g{group}")), ["a"]);
    }
    assert_eq!(server.take().len(), 7, "two pages of the subtree show that it is too long");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn names_are_those_of_a_store_in_memory_whatever_is_known(
        page in 1_usize..9,
        keys in prop::collection::vec(prop::collection::vec(0_u8..4, 1..5), 0..40),
        calls in prop::collection::vec((0_u8..4, prop::collection::vec(0_u8..4, 0..5)), 1..40),
    ) {
        let (store, server) = MemoryServer::with_page(TTL, page);
        let path = |parts: &[u8]| {
            let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            parts.join("/")
        };
        for key in &keys {
            // A key that is also a prefix.
            put(&server, &path(key), 1 + key.len());
        }
        for (call, parts) in &calls {
            let text = path(parts);
            match (call, Key::parse(&text)) {
                (0, Ok(key)) => {
                    let want = ReadableStore::stat(&server.store, std::slice::from_ref(&key)).expect("stat");
                    prop_assert_eq!(store.stat(&key).expect("stat"), want[0], "stat {}", text);
                }
                (1, Ok(key)) => {
                    let found = store.get(&key, 100).expect("get").map(|value| value.bytes);
                    let range = [(key, ByteRange::first(100))];
                    let want = ReadableStore::get_partial_values(&server.store, &range);
                    let want = want.expect("get").pop().flatten().map(|value| value.bytes);
                    prop_assert_eq!(found, want, "get {}", text);
                }
                (2, _) => {
                    let prefix = Prefix::parse(&text).expect("valid");
                    let all = |list: &dyn ListableStore| {
                        let keys = list.list_prefix(&prefix).expect("listed");
                        let mut keys: Vec<Key> = keys.map(|key| key.expect("listed")).collect();
                        keys.sort();
                        keys
                    };
                    prop_assert_eq!(all(store.list().expect("lists")), all(&server.store));
                }
                _ => {
                    let prefix = Prefix::parse(&text).expect("valid");
                    let all = |list: &dyn ListableStore| {
                        let names = list.list_dir(&prefix).expect("listed");
                        let mut names: Vec<StoreEntry> = names.map(|name| name.expect("listed")).collect();
                        names.sort();
                        names
                    };
                    let found = all(store.list().expect("lists"));
                    prop_assert_eq!(found, all(&server.store), "list {}", text);
                }
            }
        }
    }
}

#[test]
fn a_long_listing_is_one_request_for_each_thousand_names() {
    let (store, server) = MemoryServer::new(TTL);
    for number in 0..2500 {
        put(&server, &format!("c/{number}"), 1);
    }
    assert_eq!(names(&store, "c").len(), 2500);
    for number in 0..2500 {
        assert!(store.stat(&key(&format!("c/{number}"))).expect("stat").is_some());
    }
    assert_eq!(names(&store, "c").len(), 2500);
    assert_eq!(server.take().len(), 3);
}

#[test]
fn a_listing_goes_on_where_another_reader_stopped() {
    let (store, server) = MemoryServer::new(TTL);
    for number in 0..1500 {
        put(&server, &format!("c/{number}"), 1);
    }
    let prefix = Prefix::parse("c").expect("valid");
    let first = store.list().expect("lists").list_dir(&prefix).expect("listed").next();
    assert!(first.is_some());
    assert_eq!(server.take().len(), 1);
    assert_eq!(names(&store, "c").len(), 1500);
    assert_eq!(server.take().len(), 1);
}

#[test]
fn the_stat_of_a_value_brings_its_first_bytes() {
    let (store, server) = MemoryServer::new(TTL);
    put(&server, "c/0", 5000);
    assert!(store.stat(&key("c/0")).expect("stat").is_some());
    assert!(store.get(&key("c/0"), 1 << 20).expect("get").is_some());
    assert!(store.stat(&key("c/0")).expect("stat").is_some());
    assert_eq!(server.take().len(), 1);
}

#[test]
fn what_is_not_there_is_asked_for_once() {
    let (store, server) = MemoryServer::new(TTL);
    for _ in 0..3 {
        assert!(store.get(&key("c/0"), 100).expect("get").is_none());
        assert!(store.stat(&key("c/0")).expect("stat").is_none());
    }
    assert_eq!(server.take().len(), 1);
}

#[test]
fn without_a_lifetime_each_request_is_made() {
    let (store, server) = MemoryServer::new(Duration::ZERO);
    put(&server, "c/0", 10);
    names(&store, "c");
    for _ in 0..3 {
        assert!(store.stat(&key("c/0")).expect("stat").is_some());
        assert!(store.stat(&key("c/1")).expect("stat").is_none());
    }
    assert_eq!(server.take().len(), 7);
    put(&server, "c/0", 20);
    assert_eq!(store.stat(&key("c/0")).expect("stat").map(|stat| stat.len), Some(20));
}

/// Lists `temp-raw/` before `temp/`, as Amazon does, and has pages of 1000 keys.
#[test]
fn a_directory_whose_name_begins_like_that_of_another_is_not_taken_for_absent() {
    for (many, few) in [("temp-raw", "temp"), ("temp", "temp-raw")] {
        let (store, server) = MemoryServer::new(TTL);
        put(&server, "a/c/0", 1);
        put(&server, &format!("{few}/c/0/0"), 7);
        for chunk in 0..1500 {
            put(&server, &format!("{many}/c/{chunk}"), 1);
        }
        assert!(store.stat(&key("a/x")).expect("stat").is_none());
        assert!(store.stat(&key(&format!("{few}/x"))).expect("stat").is_none());
        let chunk = key(&format!("{few}/c/0/0"));
        assert!(store.get(&chunk, 100).expect("get").is_some(), "{few}");
        assert_eq!(names(&store, few), ["c"]);
    }
}

#[test]
fn a_value_that_has_grown_since_it_was_listed_is_read_to_its_end() {
    let (store, server) = MemoryServer::new(TTL);
    put(&server, "c/0", 10);
    names(&store, "c");
    put(&server, "c/0", 5000);
    let value = store.get(&key("c/0"), 1 << 20).expect("get").expect("there");
    assert_eq!((value.bytes.len(), value.stat.len), (5000, 5000));
    let end = [(key("c/0"), ByteRange::Suffix(20))];
    put(&server, "c/0", 100);
    let value = store.read().get_partial_values(&end).expect("get").pop().flatten();
    assert_eq!(value.expect("there").bytes.len(), 20);
}

#[test]
fn without_a_lifetime_a_stat_brings_no_value() {
    let (store, server) = MemoryServer::new(Duration::ZERO);
    put(&server, "c/0", 5000);
    assert_eq!(store.stat(&key("c/0")).expect("stat").map(|stat| stat.len), Some(5000));
    assert_eq!(server.take(), [MadeRequest::Get("c/0".into(), Some((0, 1)))]);
}

#[test]
fn a_store_on_a_server_passes_the_suite() {
    for ttl in [Duration::from_secs(60), Duration::ZERO] {
        suite::run(|| MemoryServer::new(ttl).0);
    }
}

#[test]
fn a_server_that_refuses_to_list_is_found_out_beside_other_requests() {
    for refuses in [false, true] {
        let (_, server) = MemoryServer::new(TTL);
        put(&server, "a/zarr.json", 10);
        server.refuses_lists.store(refuses, Ordering::Relaxed);
        *server.delay.lock() = Duration::from_millis(50);
        let on_server = Arc::<MemoryServer>::clone(&server) as Arc<dyn Server>;
        let remote = RemoteStore::new(on_server, RemoteLimits::DEFAULT, None).expect("a store");
        remote.try_listing();
        let store = Store::new(Arc::new(remote));
        assert_eq!(
            store.get(&key("a/zarr.json"), 100).expect("get").map(|it| it.stat.len),
            Some(10)
        );
        assert_eq!(store.list().is_none(), refuses);
        if !refuses {
            assert_eq!(names(&store, ""), ["a"]);
        }
        let lists = |made: &MadeRequest| matches!(made, MadeRequest::List(_));
        // A refusal may pass, so it is made sure.
        assert_eq!(
            server.take().iter().filter(|made| lists(made)).count(),
            1 + usize::from(refuses)
        );
    }
}

/// A cache on disk.
fn disk() -> (tempfile::TempDir, Arc<DiskCache>) {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = DiskCache::open(directory.path(), 1 << 30).expect("a cache");
    (directory, Arc::new(disk))
}

#[test]
fn what_the_disk_has_is_requested_once_and_confirmed_by_listings() {
    let (_first, server) = MemoryServer::with_page(Duration::from_secs(60), 1000);
    let keys: Vec<Key> = (0..40).map(|at| key(&format!("a/c/{}/{}", at / 10, at % 10))).collect();
    for (at, key) in keys.iter().enumerate() {
        let bytes = vec![ValuePiece::New(vec![at as u8; 5000].into())];
        server.store.set(key, &bytes, Condition::Always).expect("set");
    }
    let (_directory, disk) = disk();
    let read = |store: &Store| {
        for (at, key) in keys.iter().enumerate() {
            let value = store.get(key, 1 << 20).expect("read").expect("there");
            assert_eq!(value.bytes, vec![at as u8; 5000]);
        }
    };
    read(&server.cached(RemoteLimits::DEFAULT, &disk));
    server.take();
    let again = server.cached(RemoteLimits::DEFAULT, &disk);
    read(&again);
    let made = server.take();
    assert!(
        made.len() <= 3 && made.iter().all(|it| matches!(it, MadeRequest::List(_))),
        "{made:?}"
    );
    assert_eq!(again.read().requests().map(|made| made.disk_hits), Some(40));
    // A value that another program replaces is requested again, and nothing else.
    let new = vec![ValuePiece::New(vec![77; 6000].into())];
    server.store.set(&keys[7], &new, Condition::Always).expect("set");
    let third = server.cached(RemoteLimits::DEFAULT, &disk);
    assert_eq!(third.get(&keys[7], 1 << 20).expect("read").expect("there").bytes, vec![77; 6000]);
    assert!(third.get(&keys[8], 1 << 20).expect("read").is_some());
    let gets = server.take().into_iter().filter(|it| !matches!(it, MadeRequest::List(_))).count();
    assert_eq!(gets, 1);
}

#[test]
fn a_server_that_does_not_list_is_asked_for_one_byte() {
    let (_first, server) = MemoryServer::new(Duration::from_secs(60));
    let pieces = vec![ValuePiece::New(vec![7; 5000].into())];
    server.store.set(&key("a"), &pieces, Condition::Always).expect("set");
    server.refuses_lists.store(true, Ordering::Relaxed);
    let (_directory, disk) = disk();
    for _ in 0..2 {
        let store = server.cached(RemoteLimits::DEFAULT, &disk);
        assert_eq!(store.get(&key("a"), 1 << 20).expect("read").expect("there").bytes.len(), 5000);
    }
    let made = server.take();
    let long =
        made.iter().filter(|it| matches!(it, MadeRequest::Get(_, Some((0, len))) if *len > 1));
    assert_eq!(long.count(), 1, "{made:?}");
}

#[test]
fn a_cached_store_is_a_store() {
    let (_directory, disk) = disk();
    suite::run(|| {
        let (_first, server) = MemoryServer::new(Duration::from_secs(60));
        let cache = ValueCache { disk: Arc::clone(&disk), store: unique::text() };
        let server: Arc<dyn Server> = server;
        let limits = RemoteLimits { lease: Duration::from_millis(60), ..RemoteLimits::DEFAULT };
        Store::new(Arc::new(RemoteStore::new(server, limits, Some(cache)).expect("a store")))
    });
}

#[test]
fn a_server_that_lists_no_subtrees_and_no_dotted_names_has_both() {
    let (_, server) = MemoryServer::new(TTL);
    server.is_web.store(true, Ordering::Relaxed);
    let store = server.store(RemoteLimits::DEFAULT);
    for name in ["a/.zarray", "b/c/0/0", "b/c/0/1", "b/c/1/0", "b/c/1/.x", "z"] {
        put(&server, name, 10);
    }
    let list = store.list().expect("lists");
    let keys = list.list_prefix(&Prefix::root()).expect("listed");
    let mut keys: Vec<String> = keys.map(|key| key.expect("listed").to_string()).collect();
    keys.sort();
    assert_eq!(keys, ["b/c/0/0", "b/c/0/1", "b/c/1/0", "z"]);
    let lists = |made: &MadeRequest| matches!(made, MadeRequest::List(_));
    assert_eq!(server.take().iter().filter(|made| lists(made)).count(), 6);
    // A directory that looks empty may be a node.
    assert!(names(&store, "a").is_empty());
    assert!(list.may_have(&Prefix::parse("a/").expect("valid")));
    assert_eq!(store.stat(&key("a/.zarray")).expect("stat").map(|stat| stat.len), Some(10));
    assert!(store.stat(&key("b/c/1/.x")).expect("stat").is_some());
    server.take();
    assert!(store.stat(&key("a/zarr.json")).expect("stat").is_none());
    assert!(store.stat(&key("c/.zarray")).expect("stat").is_none(), "its directory is absent");
    assert_eq!(server.take(), []);
}
