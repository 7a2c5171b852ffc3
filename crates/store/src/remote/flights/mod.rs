//! Requests for bytes that are under way: a byte is requested once, however many readers want it.
//!
//! A read joins the requests that bring its bytes, and makes requests for the rest. Ranges of one
//! value that lie close together are one request, and a long range is several. All bytes of a read
//! are of one version of their value: if the versions differ, the read begins again.
//!
//! The attributes of a value come with its first bytes (1.1 MiB), in one request, because programs
//! open what they look up.

mod flight;
mod requests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use parking_lot::{Condvar, Mutex};

use super::RemoteLimits;
use super::names::NameCache;
use super::server::{Report, Server, ended};
use crate::{ByteRange, Key, Stat, Value};
use flight::{Flight, Wait};
use requests::{Range, requests_for};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};

/// How often a read begins again because the value was replaced meanwhile.
const ATTEMPTS: usize = 8;

/// How long bytes wait for the reader that they were requested for.
const MOST_AGE: Duration = Duration::from_secs(10);

/// How long bytes wait whose version may stay the same when the value changes: some readers ask
/// until the version is another one.
const MOST_UNSETTLED: Duration = Duration::from_millis(500);

/// Values of this length stay for a while after they were read, in bytes: metadata files are read
/// several times.
const SHORT: u64 = 64 << 10;

/// A reader expects at most `1/PART_OF_MEMORY` of the bytes that may wait.
const PART_OF_MEMORY: u64 = 2;

/// The requests that are under way, and bytes that wait for their reader.
#[derive(Debug)]
pub(super) struct Flights(Arc<FlightsShared>);

#[derive(Debug)]
struct FlightsShared {
    server: Arc<dyn Server>,
    names: Arc<NameCache>,
    limits: RemoteLimits,
    /// A leaf lock.
    table: Mutex<FlightTable>,
}

#[derive(Debug, Default)]
struct FlightTable {
    flights: HashMap<Key, Vec<Arc<Flight>>>,
    /// Answers that wait for a reader, in the order in which they came.
    waiting: BTreeMap<u64, (Key, Arc<Flight>)>,
    /// The bytes that wait.
    waiting_len: u64,
    /// Expected ranges that are not requested yet, with the number of the expectation.
    queue: VecDeque<(u64, Key, Range)>,
    /// The requests under way that were expected, and about how many bytes they bring.
    ahead: usize,
    ahead_len: u64,
    /// The last number of an expectation or a request.
    last: u64,
    /// Whether nothing is requested in advance any more.
    is_stopped: bool,
}

impl FlightTable {
    /// Returns the next number.
    fn number(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// Drops bytes that wait for too long, and the oldest if there are too many.
    fn drop_old(&mut self, limits: RemoteLimits) {
        while let Some((_, (key, flight))) = self.waiting.first_key_value() {
            if flight.age() < most_age(limits) && self.waiting_len <= limits.memory {
                return;
            }
            let (key, flight) = (key.clone(), Arc::clone(flight));
            self.remove(&key, &flight);
        }
    }

    fn remove(&mut self, key: &Key, flight: &Arc<Flight>) {
        if let Some(flights) = self.flights.get_mut(key) {
            flights.retain(|other| other.number != flight.number);
            if flights.is_empty() {
                self.flights.remove(key);
            }
        }
        if let Some((number, _)) = flight.landed.get()
            && self.waiting.remove(number).is_some()
        {
            self.waiting_len = self.waiting_len.saturating_sub(flight.len());
        }
    }

    /// Notes that a request is answered.
    fn note_landed(&mut self, key: &Key, flight: &Arc<Flight>) {
        if flight.is_ahead {
            self.ahead = self.ahead.saturating_sub(1);
            self.ahead_len = self.ahead_len.saturating_sub(flight.range.expected_len());
        }
        // What an earlier request has brought is not read together with this any more.
        let all = self.flights.get(key).cloned().unwrap_or_default();
        let is_known = all.iter().any(|other| other.number == flight.number);
        let (mut is_replaced, others) = (false, all.iter().filter(|other| other.differs(flight)));
        for other in others {
            if other.number < flight.number {
                self.remove(key, other);
            } else {
                is_replaced = true;
            }
        }
        if is_replaced || !is_known || flight.wait == Wait::Never || flight.len() == 0 {
            self.remove(key, flight);
            return;
        }
        let number = self.number();
        if flight.landed.set((number, Instant::now())).is_ok() {
            self.waiting_len = self.waiting_len.saturating_add(flight.len());
            self.waiting.insert(number, (key.clone(), Arc::clone(flight)));
        }
    }
}

/// Ends an expectation: what was not requested yet is not requested.
#[derive(Debug)]
pub(super) struct Expectation {
    number: u64,
    shared: Arc<FlightsShared>,
}

impl Drop for Expectation {
    fn drop(&mut self) {
        self.shared.table.lock().queue.retain(|(number, ..)| *number != self.number);
    }
}

impl Flights {
    /// Returns no requests.
    pub(super) fn new(
        server: Arc<dyn Server>,
        names: Arc<NameCache>,
        limits: RemoteLimits,
    ) -> Self {
        Self(Arc::new(FlightsShared { server, names, limits, table: Mutex::default() }))
    }

    /// Returns how many bytes a reader may expect.
    pub(super) fn most_expected(&self) -> u64 {
        (self.0.limits.memory / PART_OF_MEMORY).max(1)
    }

    /// Drops what is expected, and requests no more in advance.
    pub(super) fn stop(&self) {
        let mut table = self.0.table.lock();
        table.is_stopped = true;
        table.queue.clear();
    }

    /// Requests ranges that will be read soon, as many at a time as the server takes.
    pub(super) fn expect(
        &self,
        ranges: &[(Key, ByteRange)],
        len_of: impl Fn(&Key) -> Option<u64>,
    ) -> Expectation {
        let mut wanted: Vec<(Key, Range)> = Vec::new();
        for (key, wanted_of_key) in by_key(ranges) {
            let len = len_of(key);
            let of_key = wanted_of_key.iter().filter_map(|at| ranges.get(*at));
            let of_key: Vec<Range> = of_key
                .map(|(_, range)| Range::of(*range, len))
                .filter(|range| self.0.find(key, *range).is_none())
                .collect();
            wanted.extend(requests_for(&of_key, len).into_iter().map(|range| (key.clone(), range)));
        }
        let mut table = self.0.table.lock();
        let number = table.number();
        table.queue.extend(wanted.into_iter().map(|(key, range)| (number, key, range)));
        drop(table);
        self.0.request_ahead();
        Expectation { number, shared: Arc::clone(&self.0) }
    }

    /// Requests the first `len` bytes of values, which wait for a reader, and returns their stats.
    pub(super) fn stat(&self, keys: &[Key], len: u64) -> Result<Vec<Option<Stat>>> {
        let wanted = Range::Span { start: 0, end: len };
        let begun: Vec<_> =
            keys.iter().map(|key| (key, self.0.join(key, wanted, Wait::ForReader))).collect();
        let stat_of =
            |(key, flight): (&Key, Arc<Flight>)| Ok(flight.wait().at(key)?.map(|value| value.stat));
        begun.into_iter().map(stat_of).collect()
    }

    /// Returns the bytes of each range; `None` for a key without a value. `len_of` is the length of
    /// a value, if it is known.
    pub(super) fn read(
        &self,
        ranges: &[(Key, ByteRange)],
        len_of: impl Fn(&Key) -> Option<u64>,
    ) -> Result<Vec<Option<Value>>> {
        let mut values = vec![None; ranges.len()];
        let mut left = by_key(ranges);
        for _ in 0..ATTEMPTS {
            let mut begun = Vec::with_capacity(left.len());
            for (key, positions) in std::mem::take(&mut left) {
                let len = len_of(key);
                let wanted: Vec<Range> = positions
                    .iter()
                    .filter_map(|at| ranges.get(*at))
                    .map(|(_, range)| Range::of(*range, len))
                    .collect();
                begun.push((key, positions, len, self.0.request(key, &wanted, len)));
            }
            for (key, positions, len, flights) in begun {
                let parts = Answers::wait(flights).at(key)?;
                let mut wanted = positions.iter().filter_map(|at| ranges.get(*at));
                let is_one_version = |parts: &Answers| {
                    parts.are_of_len(len)
                        && wanted.all(|(_, range)| !self.0.may_be_torn(parts, *range))
                };
                let Some(parts) = parts.filter(is_one_version) else {
                    self.forget(key);
                    left.insert(key, positions);
                    continue;
                };
                for at in positions {
                    if let (Some((_, range)), Some(slot)) = (ranges.get(at), values.get_mut(at)) {
                        *slot = parts.cut(*range).at(key)?;
                    }
                }
                self.0.note_taken(key, &parts);
            }
            if left.is_empty() {
                return Ok(values);
            }
        }
        let key = left.keys().next().map(ToString::to_string).unwrap_or_default();
        Err(Error::new(Kind::Stale, "other programs keep replacing the value").at(key))
    }

    /// Drops what was requested, so that later reads request it again.
    pub(super) fn forget_all(&self) {
        let mut table = self.0.table.lock();
        table.flights.clear();
        table.waiting.clear();
        table.waiting_len = 0;
    }

    /// Drops what was requested of a value, so that later reads request it again.
    pub(super) fn forget(&self, key: &Key) {
        let mut table = self.0.table.lock();
        let flights = table.flights.get(key).cloned().unwrap_or_default();
        for flight in flights {
            table.remove(key, &flight);
        }
    }
}

/// Returns how long bytes wait for a reader.
fn most_age(limits: RemoteLimits) -> Duration {
    limits.ttl.min(MOST_AGE)
}

/// Returns how many requests may be under way without a reader that waits.
fn most_ahead(limits: RemoteLimits) -> usize {
    (limits.requests / 4 * 3).max(1)
}

/// Returns the positions of the ranges of each key.
fn by_key(ranges: &[(Key, ByteRange)]) -> BTreeMap<&Key, Vec<usize>> {
    let mut by_key: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
    for (at, (key, _)) in ranges.iter().enumerate() {
        by_key.entry(key).or_default().push(at);
    }
    by_key
}

impl FlightsShared {
    /// Makes the requests that bring all of `wanted`, or joins some.
    fn request(
        self: &Arc<Self>,
        key: &Key,
        wanted: &[Range],
        len: Option<u64>,
    ) -> Vec<Arc<Flight>> {
        let mut flights: Vec<Arc<Flight>> = Vec::new();
        let mut missing = Vec::new();
        for range in wanted {
            if let Some(flight) = self.find(key, *range) {
                flights.push(flight);
            } else {
                let (parts, rest) = self.find_parts(key, *range);
                flights.extend(parts);
                missing.extend(rest);
            }
        }
        for range in requests_for(&missing, len) {
            flights.push(self.join(key, range, Wait::Never));
        }
        flights
    }

    /// Whether several requests have brought a range of a value whose version is not known.
    fn may_be_torn(&self, parts: &Answers, range: ByteRange) -> bool {
        let Some((_, Some(first))) = parts.0.first() else { return false };
        !self.server.has_version(&first.stat) && !parts.have_in_one(range, first.stat.len)
    }

    fn find(&self, key: &Key, wanted: Range) -> Option<Arc<Flight>> {
        self.find_in(&self.table.lock(), key, wanted)
    }

    fn find_in(&self, table: &FlightTable, key: &Key, wanted: Range) -> Option<Arc<Flight>> {
        let flights = table.flights.get(key)?;
        flights.iter().find(|flight| self.is_young(flight) && flight.brings(wanted)).cloned()
    }

    /// Finds requests that bring parts of `wanted`, and returns them with the parts that none
    /// brings.
    fn find_parts(&self, key: &Key, wanted: Range) -> (Vec<Arc<Flight>>, Vec<Range>) {
        let Range::Span { start, end } = wanted else { return (Vec::new(), vec![wanted]) };
        let table = self.table.lock();
        let spans =
            table.flights.get(key).into_iter().flatten().filter_map(|flight| match flight.range {
                Range::Span { start, end } if self.is_young(flight) => Some((start, end, flight)),
                Range::Span { .. } | Range::Suffix(_) => None,
            });
        let mut spans: Vec<(u64, u64, &Arc<Flight>)> = spans.collect();
        spans.sort_unstable_by_key(|(start, end, _)| (*start, *end));
        let (mut parts, mut rest, mut at) = (Vec::new(), Vec::new(), start);
        for (from, until, flight) in spans {
            if until <= at || from >= end {
                continue;
            }
            if from > at {
                rest.push(Range::Span { start: at, end: from });
            }
            parts.push(Arc::clone(flight));
            at = until;
        }
        if at < end {
            rest.push(Range::Span { start: at, end });
        }
        (parts, rest)
    }

    fn is_young(&self, flight: &Flight) -> bool {
        let is_under_way = flight.landed.get().is_none();
        let most_age = most_age(self.limits);
        let most_age = if flight.is_unsettled() { most_age.min(MOST_UNSETTLED) } else { most_age };
        // A request that is under way brings what was there when it was made.
        !self.limits.ttl.is_zero() && (is_under_way || flight.age() < most_age)
    }

    /// Joins a request that brings `wanted`, or makes one.
    fn join(self: &Arc<Self>, key: &Key, wanted: Range, wait: Wait) -> Arc<Flight> {
        let mut table = self.table.lock();
        if let Some(flight) = self.find_in(&table, key, wanted) {
            return flight;
        }
        table.queue.retain(|(_, queued, range)| queued != key || !wanted.covers(*range));
        let flight = self.add(&mut table, key, wanted, (wait, false));
        drop(table);
        self.send(key, &flight);
        flight
    }

    /// Makes the requests that are expected, as many as may be under way.
    fn request_ahead(self: &Arc<Self>) {
        let mut begun = Vec::new();
        let mut table = self.table.lock();
        table.drop_old(self.limits);
        // The others are for readers that wait.
        while !table.is_stopped
            && table.ahead < most_ahead(self.limits)
            && table.waiting_len.saturating_add(table.ahead_len) < self.limits.memory
            && let Some((_, key, range)) = table.queue.pop_front()
        {
            table.ahead += 1;
            table.ahead_len = table.ahead_len.saturating_add(range.expected_len());
            let flight = self.add(&mut table, &key, range, (Wait::ForReader, true));
            begun.push((key, flight));
        }
        drop(table);
        for (key, flight) in begun {
            self.send(&key, &flight);
        }
    }

    fn add(
        &self,
        table: &mut FlightTable,
        key: &Key,
        range: Range,
        (wait, is_ahead): (Wait, bool),
    ) -> Arc<Flight> {
        let flight = Arc::new(Flight {
            number: table.number(),
            range,
            wait,
            began: Instant::now(),
            landed: OnceLock::new(),
            is_ahead,
            answer: Mutex::default(),
            arrived: Condvar::new(),
            taken: Mutex::default(),
        });
        table.drop_old(self.limits);
        table.flights.entry(key.clone()).or_default().push(Arc::clone(&flight));
        flight
    }

    fn send(self: &Arc<Self>, key: &Key, flight: &Arc<Flight>) {
        let landing = Landing {
            shared: Arc::clone(self),
            key: key.clone(),
            flight: Arc::clone(flight),
            answer: None,
        };
        let report: Report<Option<Value>> = Box::new(move |answer| landing.land(answer));
        self.server.get(key, flight.range.to_request(), report);
    }

    fn note_taken(&self, key: &Key, parts: &Answers) {
        for (flight, value) in &parts.0 {
            let Some(value) = value.as_ref().filter(|_| flight.wait == Wait::ForReader) else {
                continue;
            };
            let len = value.bytes.len().to_u64();
            if len > SHORT && flight.is_taken(len) {
                self.table.lock().remove(key, flight);
            }
        }
    }
}

/// Ends a request when it is answered, or dropped without an answer.
struct Landing {
    shared: Arc<FlightsShared>,
    key: Key,
    flight: Arc<Flight>,
    answer: Option<Result<Option<Value>>>,
}

impl Landing {
    fn land(mut self, answer: Result<Option<Value>>) {
        if let Ok(value) = &answer {
            let stat = value.as_ref().map(|value| value.stat);
            // A listing says otherwise, so the next reader of the value asks again.
            let is_contradicted = stat.is_none() && self.shared.names.is_listed(&self.key);
            if !is_contradicted {
                self.shared.names.keep_stat(&self.key, self.flight.began, stat);
            }
        }
        self.answer = Some(answer);
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let answer = self.answer.take().unwrap_or_else(|| Err(ended()));
        let mut table = self.shared.table.lock();
        *self.flight.answer.lock() = Some(answer);
        table.note_landed(&self.key, &self.flight);
        drop(table);
        self.flight.arrived.notify_all();
        if self.flight.is_ahead {
            self.shared.request_ahead();
        }
    }
}

/// The answers of the requests of a read, all of one version.
struct Answers(Vec<(Arc<Flight>, Option<Value>)>);

impl Answers {
    /// Waits for the answers; `None` if they are of several versions.
    fn wait(flights: Vec<Arc<Flight>>) -> Result<Option<Self>> {
        let mut parts: Vec<(Arc<Flight>, Option<Value>)> = Vec::with_capacity(flights.len());
        for flight in flights {
            let value = flight.wait()?;
            let is_same = match (parts.first().map(|(_, first)| first), &value) {
                (Some(Some(first)), Some(value)) => first.stat.version.is_same(value.stat.version),
                (Some(None), None) | (None, _) => true,
                _ => false,
            };
            if !is_same {
                return Ok(None);
            }
            parts.push((flight, value));
        }
        Ok(Some(Self(parts)))
    }

    /// Whether the value is as long as was known when its ranges were requested.
    fn are_of_len(&self, len: Option<u64>) -> bool {
        match (self.0.first(), len) {
            (Some((_, Some(value))), Some(len)) => value.stat.len == len,
            _ => true,
        }
    }

    /// Whether one answer has all bytes of a range.
    fn have_in_one(&self, range: ByteRange, value_len: u64) -> bool {
        let (at, len) = range.within(value_len);
        let piece = self.piece(at, at.saturating_add(len), value_len);
        len == 0 || piece.is_some_and(|(_, bytes)| u64::try_from(bytes.len()) == Ok(len))
    }

    /// Returns the bytes of a range.
    fn cut(&self, range: ByteRange) -> Result<Option<Value>> {
        let Some((_, Some(first))) = self.0.first() else { return Ok(None) };
        let stat = first.stat;
        let (mut at, len) = range.within(stat.len);
        let end = at.saturating_add(len);
        let mut pieces: Vec<Bytes> = Vec::new();
        while at < end {
            let (flight, bytes) = self.piece(at, end, stat.len).ok_or_else(|| {
                Error::new(Kind::Os(libc::EIO), "the server sent fewer bytes than it said")
            })?;
            let len = bytes.len().to_u64();
            flight.note_taken(at, at.saturating_add(len));
            at = at.saturating_add(len);
            pieces.push(bytes);
        }
        Ok(Some(Value { bytes: joined(pieces), stat }))
    }

    /// Returns bytes from `at` to `end` at most, of an answer that has some.
    fn piece(&self, at: u64, end: u64, value_len: u64) -> Option<(&Flight, Bytes)> {
        self.0.iter().find_map(|(flight, value)| {
            let bytes = &value.as_ref()?.bytes;
            let (start, _) = flight.range.within(value_len);
            let from = at.checked_sub(start)?.to_usize();
            let until = end.checked_sub(start)?.to_usize().min(bytes.len());
            (from < until).then(|| (&**flight, bytes.slice(from..until)))
        })
    }
}

fn joined(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([only]) => only,
        Err(pieces) => {
            let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
            for piece in pieces {
                all.extend_from_slice(&piece);
            }
            all.freeze()
        }
    }
}

#[cfg(test)]
mod tests;
