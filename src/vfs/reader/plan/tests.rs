//! Plans of a file of rows of chunks, as tables of the chunks that are decoded.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const MIB: u64 = 1 << 20;

/// A chunk of the file: its row, and its place in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RowChunk(u64, u64, Compression);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Compression {
    Gzip,
    Blosc,
    Uncompressed,
}

impl PlannedChunk for RowChunk {
    fn len(&self) -> Option<u64> {
        Some(CHUNK)
    }

    fn longest(&self) -> u64 {
        CHUNK
    }

    fn ranges(&self) -> Ranges {
        match self.2 {
            Compression::Gzip => Ranges::None,
            Compression::Blosc => Ranges::Blocks,
            Compression::Uncompressed => Ranges::Exact,
        }
    }
}

/// Bytes of a chunk.
const CHUNK: u64 = 2 * MIB;

/// An array of so many rows of chunks, with so many chunks in each, in C order: every MiB of a row
/// of chunks has a part of each of its chunks.
#[derive(Debug, Clone, Copy)]
struct TestGrid {
    rows: u64,
    chunks: u64,
    kind: Compression,
}

impl TestGrid {
    fn row_len(&self) -> u64 {
        self.chunks * CHUNK
    }

    /// The chunks between two offsets.
    fn wanted(
        &self,
        (from, until): (u64, u64),
        cached: &BTreeSet<RowChunk>,
    ) -> Vec<ChunkNeed<RowChunk>> {
        let mut wanted = Vec::new();
        for row in from / self.row_len()..until.div_ceil(self.row_len()) {
            let (start, end) = (row * self.row_len(), (row + 1) * self.row_len());
            let len = (until.min(end) - from.max(start)) / self.chunks;
            let reach = if until >= end { Reach::End } else { Reach::Within };
            for chunk in 0..self.chunks {
                let chunk = RowChunk(row, chunk, self.kind);
                let is_absent = !cached.contains(&chunk);
                wanted.push(ChunkNeed { chunk, len, reach, is_absent });
            }
        }
        wanted
    }
}

impl PlannedFile for TestGrid {
    fn len(&self) -> u64 {
        self.rows * self.row_len()
    }

    fn slab_at(&self, _: u64) -> Option<Slab> {
        Some(if self.chunks > 1 { Slab::Row(self.row_len()) } else { Slab::Chunk(CHUNK) })
    }

    fn rows_until(&self, _: u64, until: u64) -> u64 {
        until
    }

    fn has_parts(&self, most: usize) -> bool {
        most >= 1
    }
}

/// What reads of a file have cost.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    /// How often each chunk was decoded as a whole.
    decoded: BTreeMap<RowChunk, u64>,
    /// How many of these before they were asked for.
    ahead: u64,
    /// Ranges that were read without the rest of their chunk.
    ranges: u64,
    long_parts: u64,
    /// The most bytes of chunks that were in the cache.
    most_cached: u64,
}

/// Reads the ranges, and does all that is planned at once.
fn cost(grid: TestGrid, cache_len: u64, reads: impl IntoIterator<Item = (u64, u64)>) -> Cost {
    let limits = ReadLimits { cache_len, at_once: 2, fetched_ahead: 0, has_long_parts: true };
    let (mut state, mut cached, mut cost) = (Reads::default(), BTreeSet::new(), Cost::default());
    let mut assembled: Option<(u64, u64)> = None;
    for (offset, len) in reads {
        let range = (offset, (offset + len).min(grid.len()));
        let outlook = state.note(range, &grid, limits);
        if outlook.is_for_long_part {
            if assembled.is_none_or(|(start, end)| range.0 < start || range.1 > end) {
                let part = state.long_part(range, assembled, &grid, limits);
                assert!(part.start <= range.0.max(part.start) && part.end > part.start);
                assembled = Some((part.start, part.end));
                cost.long_parts += 1;
                let wanted = grid.wanted((part.start, part.end), &cached);
                for (wanted, fetch) in wanted.iter().zip(plan_long_part(&wanted).0) {
                    match fetch {
                        Fetch::Whole => *cost.decoded.entry(wanted.chunk).or_default() += 1,
                        Fetch::Range => cost.ranges += 1,
                    }
                }
            }
            continue;
        }
        let wanted = grid.wanted(range, &cached);
        let soon = outlook.soon.iter().flat_map(|soon| {
            let chunks = grid.wanted(*soon, &cached);
            chunks.into_iter().map(|wanted| (wanted.chunk, soon.1))
        });
        let plan = state.plan(
            (range.1, outlook.is_sequential),
            &wanted,
            (soon.collect(), Vec::new()),
            limits,
        );
        for (wanted, fetch) in wanted.iter().zip(&plan.fetches) {
            match fetch {
                Fetch::Whole if cached.insert(wanted.chunk) => {
                    *cost.decoded.entry(wanted.chunk).or_default() += 1;
                }
                Fetch::Whole => {}
                Fetch::Range => cost.ranges += 1,
            }
        }
        for (chunk, ticket) in plan.soon {
            if ticket.is_wanted() && cached.insert(chunk) {
                *cost.decoded.entry(chunk).or_default() += 1;
                cost.ahead += 1;
            }
        }
        cost.most_cached = cost.most_cached.max(cached.len() as u64 * CHUNK);
        for chunk in plan.passed {
            cached.remove(&chunk);
        }
        // The oldest go, as from a real cache.
        while cached.len() as u64 * CHUNK > cache_len {
            cached.pop_first();
        }
    }
    cost
}

impl Cost {
    /// How often a chunk was decoded at the most, and how many different ones were.
    fn of_chunks(&self) -> (u64, usize) {
        (self.decoded.values().copied().max().unwrap_or_default(), self.decoded.len())
    }
}

fn every_mib(count: u64) -> Vec<(u64, u64)> {
    (0..count).map(|at| (at * MIB, MIB)).collect()
}

const GZIP: TestGrid = TestGrid { rows: 8, chunks: 4, kind: Compression::Gzip };

#[test]
fn a_sequential_read_decodes_each_chunk_once_in_advance_and_keeps_few() {
    for kind in [Compression::Gzip, Compression::Blosc, Compression::Uncompressed] {
        let grid = TestGrid { rows: 40, kind, ..GZIP };
        let cost = cost(grid, 128 * MIB, every_mib(grid.len() / MIB));
        assert_eq!(cost.of_chunks(), (1, 160), "{kind:?}");
        // The first read may be the only one: it takes ranges, if there are any.
        assert!(cost.ahead >= 150 && cost.ranges <= 4 && cost.long_parts == 0, "{kind:?}");
        assert!(cost.most_cached <= 40 * MIB, "{} bytes", cost.most_cached);
    }
}

#[test]
fn a_sequential_read_in_small_requests_or_out_of_order_is_one_too() {
    let small = (0..512).map(|at| (at * MIB / 8, MIB / 8));
    assert_eq!(cost(GZIP, 128 * MIB, small).of_chunks(), (1, 32));
    let swapped = (0..64).map(|at: u64| ((at ^ 1) * MIB, MIB));
    assert_eq!(cost(GZIP, 128 * MIB, swapped).of_chunks(), (1, 32));
}

#[test]
fn reading_backwards_or_with_wide_strides_decodes_nothing_that_is_not_read() {
    let backwards = every_mib(64).into_iter().rev();
    let back = cost(GZIP, 128 * MIB, backwards);
    assert_eq!((back.of_chunks(), back.ahead), ((1, 32), 0));
    let grid = TestGrid { rows: 100, ..GZIP };
    let strides = cost(grid, 128 * MIB, (0..10).map(|at| (at * 80 * MIB, MIB)));
    assert_eq!((strides.of_chunks(), strides.ahead), ((1, 40), 0));
}

#[test]
fn random_reads_take_ranges_where_there_are_any_and_whole_chunks_from_the_second_quarter_on() {
    let places = [3, 41, 17, 58, 9, 33, 25, 50];
    let read = |kind, len| {
        let reads = places.map(|at| (at * MIB, len));
        cost(TestGrid { kind, ..GZIP }, 128 * MIB, reads)
    };
    for kind in [Compression::Blosc, Compression::Uncompressed] {
        let cost = read(kind, MIB);
        assert_eq!((cost.decoded.len(), cost.ranges), (0, 32), "{kind:?}");
    }
    assert_eq!(
        (read(Compression::Gzip, MIB).of_chunks(), read(Compression::Gzip, MIB).ranges),
        ((1, 32), 0)
    );
    // All of a row of chunks, one MiB after another, with jumps to another row between them.
    let grid = TestGrid { rows: 100, kind: Compression::Uncompressed, ..GZIP };
    let jumps = (0..8).flat_map(|at| [(at * MIB, MIB), ((80 + 8 * at) * 8 * MIB, MIB)]);
    let cost = cost(grid, 128 * MIB, jumps);
    let of_first_row = cost.decoded.keys().filter(|at| at.0 == 0).count();
    assert_eq!(of_first_row, 4, "{cost:?}");
}

#[test]
fn two_readers_of_one_handle_both_read_sequentially() {
    let grid = TestGrid { rows: 100, ..GZIP };
    let both = (0..64).flat_map(|at| [(at * MIB, MIB), ((400 + at) * MIB, MIB)]);
    let cost = cost(grid, 256 * MIB, both);
    assert_eq!(cost.of_chunks().0, 1);
    assert!(cost.ahead >= 40, "{}", cost.ahead);
}

#[test]
fn after_a_jump_the_old_position_is_not_prefetched() {
    let grid = TestGrid { rows: 100, ..GZIP };
    let limits =
        ReadLimits { cache_len: 128 * MIB, at_once: 2, fetched_ahead: 0, has_long_parts: true };
    let mut state = Reads::<RowChunk>::default();
    for at in 0..3 {
        state.note((at * MIB, (at + 1) * MIB), &grid, limits);
    }
    let chunk = RowChunk(1, 0, Compression::Gzip);
    let plan = state.plan((3 * MIB, true), &[], (vec![(chunk, 16 * MIB)], Vec::new()), limits);
    let (_, ticket) = plan.soon.first().expect("planned");
    assert!(ticket.is_wanted());
    state.note((700 * MIB, 701 * MIB), &grid, limits);
    assert!(!ticket.is_wanted());
    let ticket = state.note((701 * MIB, 702 * MIB), &grid, limits).now;
    state.end();
    assert!(!ticket.is_wanted(), "the file is closed");
}

#[test]
fn a_row_that_exceeds_the_cache_is_read_in_long_parts_that_double() {
    let grid = TestGrid { rows: 2, chunks: 128, kind: Compression::Gzip };
    let gzip = cost(grid, 128 * MIB, every_mib(512));
    // 512 MiB in parts of 4, 8 and then 16 MiB, and the requests before the first of them.
    assert!((30..=36).contains(&gzip.long_parts), "{}", gzip.long_parts);
    assert!(gzip.of_chunks().0 <= 20, "{:?}", gzip.of_chunks());
    assert_eq!(gzip.ahead, 0);
    let kind = Compression::Uncompressed;
    let uncompressed = cost(TestGrid { kind, ..grid }, 128 * MIB, every_mib(512));
    let decoded: u64 = uncompressed.decoded.values().sum();
    assert!(decoded <= 256, "{decoded}: before the first part");
}

#[test]
fn where_nothing_may_be_old_or_the_cache_is_small_there_are_no_long_parts() {
    let grid = TestGrid { rows: 2, chunks: 128, kind: Compression::Gzip };
    let limits = |cache_len, has_long_parts| ReadLimits {
        cache_len,
        at_once: 2,
        fetched_ahead: 0,
        has_long_parts,
    };
    assert_eq!(longest_part(&grid, limits(128 * MIB, true)), 16 * MIB);
    assert_eq!(longest_part(&grid, limits(128 * MIB, false)), 0);
    assert_eq!(longest_part(&grid, limits(16 * MIB, true)), 0);
}

#[test]
fn a_cache_that_is_too_small_gets_no_prefetched_chunks() {
    let cost = cost(GZIP, 16 * MIB, every_mib(64));
    assert_eq!((cost.ahead, cost.of_chunks().1), (0, 32));
}

#[test]
fn more_chunks_than_the_cache_holds_are_decoded_by_their_reader() {
    let grid = TestGrid { rows: 1, chunks: 64, kind: Compression::Gzip };
    let limits =
        |cache_len| ReadLimits { cache_len, at_once: 2, fetched_ahead: 0, has_long_parts: false };
    let wanted = grid.wanted((0, MIB), &BTreeSet::new());
    let mut state = Reads::default();
    state.note((0, MIB), &grid, limits(512 * MIB));
    let beside = |cache_len, state: &mut Reads<RowChunk>| {
        state.plan((MIB, false), &wanted, (Vec::new(), Vec::new()), limits(cache_len)).beside
    };
    assert_eq!((beside(512 * MIB, &mut state), beside(64 * MIB, &mut state)), (64, 0));
}
