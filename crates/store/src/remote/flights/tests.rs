use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;

use proptest::prelude::*;

use super::requests::MOST_WHOLE;
use super::*;
use crate::memory_server::{MadeRequest, MemoryServer};
use crate::{Condition, ReadableStore, Store, WritableStore};

const LIMITS: RemoteLimits = RemoteLimits::DEFAULT;

fn key(text: &str) -> Key {
    Key::parse(text).expect("valid")
}

fn span(offset: u64, len: u64) -> ByteRange {
    ByteRange::Span { offset, len }
}

/// Bytes that differ everywhere.
fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
}

fn put(server: &MemoryServer, name: &str, bytes: &Bytes) {
    server.store.set(&key(name), &[bytes.clone().into()], Condition::Always).expect("set");
}

fn get(store: &Store, ranges: &[(&str, ByteRange)]) -> Vec<Option<Bytes>> {
    let ranges: Vec<_> = ranges.iter().map(|(name, range)| (key(name), *range)).collect();
    let values = store.read().get_partial_values(&ranges).expect("read");
    values.into_iter().map(|value| value.map(|value| value.bytes)).collect()
}

#[test]
fn readers_of_the_same_bytes_share_one_request() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    put(&server, "c/0", &bytes(1000));
    *server.delay.lock() = Duration::from_millis(500); // A busy machine starts some threads late.
    let all = Barrier::new(20);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                all.wait();
                assert_eq!(get(&store, &[("c/0", span(0, 1000))]), [Some(bytes(1000))]);
            });
        }
    });
    assert_eq!(server.take(), [MadeRequest::Get("c/0".into(), Some((0, 1000)))]);
}

#[test]
fn ranges_that_lie_close_together_are_one_request() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    let value = bytes(1 << 20);
    put(&server, "shard", &value);
    let ranges = [("shard", span(0, 100_000)), ("shard", span(150_000, 100_000))];
    let want = [Some(value.slice(..100_000)), Some(value.slice(150_000..250_000))];
    assert_eq!(get(&store, &ranges), want);
    assert_eq!(server.take(), [MadeRequest::Get("shard".into(), Some((0, 250_000)))]);
    // The gap is short, but longer than half of what is wanted.
    get(&store, &[("shard", span(0, 1000)), ("shard", span(31_000, 1000))]);
    assert_eq!(server.take().len(), 2);
    // The gap is long.
    get(&store, &[("shard", span(0, 200_000)), ("shard", span(300_000, 200_000))]);
    assert_eq!(server.take().len(), 2);
}

#[test]
fn most_of_a_short_value_is_requested_as_a_whole() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    put(&server, "shard", &bytes(1 << 20));
    store.stat(&key("shard")).expect("stat");
    // The bytes came with the stat.
    let half = 300_000;
    let ranges = [("shard", span(0, half)), ("shard", span(700_000, half))];
    get(&store, &ranges);
    assert_eq!(server.take().len(), 1);
}

#[test]
fn a_long_value_of_known_length_is_several_requests_at_a_time() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    let value = bytes(40 << 20);
    put(&server, "c/0", &value);
    *server.delay.lock() = Duration::from_millis(100);
    store.list().expect("lists").list_dir(&key("c/0").parent()).expect("list").for_each(drop);
    server.take();
    assert_eq!(get(&store, &[("c/0", span(0, 1 << 30))]), [Some(value)]);
    assert_eq!(server.most_under_way(), 5);
    assert_eq!(server.take().len(), 5);
}

#[test]
fn all_bytes_of_a_read_are_of_one_version() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    let (old, new) = (bytes(1 << 20), Bytes::from(vec![9; 1 << 20]));
    put(&server, "shard", &old);
    *server.delay.lock() = Duration::from_millis(100);
    // The first range is under way while the value is replaced, and the second comes after that.
    let first = thread::scope(|scope| {
        let first = scope.spawn(|| get(&store, &[("shard", span(0, 10))]));
        while server.most_under_way() == 0 {
            thread::yield_now();
        }
        put(&server, "shard", &new);
        let both = get(&store, &[("shard", span(0, 10)), ("shard", span(900_000, 10))]);
        assert_eq!(both, [Some(new.slice(..10)), Some(new.slice(..10))]);
        first.join().expect("reads")
    });
    assert_eq!(first, [Some(old.slice(..10))]);
}

#[test]
fn a_value_without_a_version_is_one_request() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    server.lacks_versions.store(true, Ordering::Relaxed);
    let value = bytes(40 << 20);
    put(&server, "c/0", &value);
    assert!(store.stat(&key("c/0")).expect("asked").is_some());
    server.take();
    assert_eq!(get(&store, &[("c/0", span(0, 1 << 30))]), [Some(value)]);
    let made = server.take();
    let whole = MadeRequest::Get("c/0".into(), Some((0, 1 << 30)));
    assert_eq!(made.last(), Some(&whole), "the first bytes came with the stat: {made:?}");
}

#[test]
fn a_later_answer_of_another_version_drops_the_bytes_that_wait() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    let (old, new) = (bytes(4 << 20), Bytes::from(vec![9; 4 << 20]));
    put(&server, "a.zip", &old);
    let expected = store.read().expect(&[(key("a.zip"), span(500_000, 1000))]);
    thread::sleep(Duration::from_millis(50));
    put(&server, "a.zip", &new);
    // As a zip archive does: the directory is of one version, and so must the entry be.
    assert_eq!(get(&store, &[("a.zip", span(3_000_000, 10))]), [Some(new.slice(..10))]);
    assert_eq!(get(&store, &[("a.zip", span(500_000, 10))]), [Some(new.slice(..10))]);
    assert_eq!(server.take().len(), 3);
    drop(expected);
}

#[test]
fn what_is_expected_is_requested_at_once_and_once() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    for number in 0..10 {
        put(&server, &format!("c/{number}"), &bytes(100));
    }
    *server.delay.lock() = Duration::from_millis(100);
    let ranges: Vec<_> = (0..11).map(|n| (key(&format!("c/{n}")), span(0, 1 << 20))).collect();
    let expected = store.read().expect(&ranges);
    for range in &ranges {
        let value = store.read().get_partial_values(std::slice::from_ref(range)).expect("read");
        assert_eq!(value[0].is_some(), range.0 != key("c/10"));
    }
    drop(expected);
    assert_eq!(server.most_under_way(), 11);
    assert_eq!(server.take().len(), 11);
}

#[test]
fn what_is_not_begun_is_not_requested_when_nobody_expects_it() {
    let (store, server) = MemoryServer::new(LIMITS.ttl);
    *server.delay.lock() = Duration::from_millis(30);
    let ranges: Vec<_> = (0..500).map(|n| (key(&format!("c/{n}")), span(0, 100))).collect();
    drop(store.read().expect(&ranges));
    thread::sleep(Duration::from_millis(100));
    assert!(server.take().len() <= 2 * most_ahead(LIMITS), "a sweep that ends requests no more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_ranges_are_read_as_from_a_store_in_memory(
        len in 0_usize..300_000,
        is_known in any::<bool>(),
        expected in prop::collection::vec((0_u64..310_000, 0_u64..200_000, any::<bool>()), 0..6),
        wanted in prop::collection::vec((0_u64..310_000, 0_u64..200_000, any::<bool>()), 1..6),
    ) {
        let (store, server) = MemoryServer::new(LIMITS.ttl);
        put(&server, "v", &bytes(len));
        if is_known {
            store.stat(&key("v")).expect("stat");
        }
        let range = |(offset, len, is_suffix): &(u64, u64, bool)| {
            (key("v"), if *is_suffix { ByteRange::Suffix(*len) } else { span(*offset, *len) })
        };
        let expected: Vec<_> = expected.iter().map(range).collect();
        let wanted: Vec<_> = wanted.iter().map(range).collect();
        let _expected = store.read().expect(&expected);
        let found = store.read().get_partial_values(&wanted).expect("read");
        let want = ReadableStore::get_partial_values(&server.store, &wanted).expect("read");
        for (found, want) in found.iter().zip(&want) {
            let (found, want) = (found.as_ref().expect("there"), want.as_ref().expect("there"));
            prop_assert_eq!(&found.bytes, &want.bytes);
            prop_assert_eq!(found.stat, want.stat);
        }
    }

    #[test]
    fn requests_bring_all_that_is_wanted_and_at_most_half_as_much_more(
        len in prop::option::of(1_u64..40_000_000),
        wanted in prop::collection::vec((0_u64..30_000_000, 1_u64..3_000_000), 1..20),
    ) {
        let range = |(start, wanted): &(u64, u64)| {
            Range::of(ByteRange::Span { offset: *start, len: *wanted }, len)
        };
        let is_in = |range: &Range| matches!(range, Range::Span { end, .. } if len.is_none_or(|len| *end <= len));
        let wanted: Vec<Range> = wanted.iter().map(range).filter(is_in).collect();
        let requests = requests_for(&wanted, len);
        let spans = |ranges: &[Range]| {
            let mut spans: Vec<(u64, u64)> =
                ranges.iter().map(|range| range.within(len.unwrap_or(u64::MAX))).collect();
            spans.sort_unstable();
            let (mut total, mut until) = (0, 0);
            for (start, end) in &spans {
                total += end.saturating_sub(*start.max(&until));
                until = until.max(*end);
            }
            (spans, total)
        };
        let ((asked, bytes), (needed, useful)) = (spans(&requests), spans(&wanted));
        let is_whole = len.is_some_and(|len| len <= MOST_WHOLE && useful > len / 2);
        prop_assert!(is_whole || bytes <= useful + useful / 2 + 20, "{bytes} for {useful}");
        for (start, end) in needed {
            let mut at = start;
            while at < end {
                let next = asked.iter().filter(|(from, until)| *from <= at && at < *until);
                let next = next.map(|(_, until)| *until).max();
                prop_assert!(next.is_some(), "{at} is not requested");
                at = next.unwrap_or(end);
            }
        }
    }
}
