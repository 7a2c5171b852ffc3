//! A request for a range of a value, and its answer.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::requests::Range;
use crate::Value;
use zarrfs_base::error::Result;
use zarrfs_base::waiting;
use zarrfs_base::width::ToU64;

/// Whether the bytes of a request wait for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    ForReader,
    Never,
}

/// A request, and its answer when it is there.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) range: Range,
    pub(super) wait: Wait,
    pub(super) began: Instant,
    /// When it was answered, and its number among those that wait for a reader.
    pub(super) landed: OnceLock<(u64, Instant)>,
    /// Whether it was made before a reader asked for it.
    pub(super) is_ahead: bool,
    /// A leaf lock.
    pub(super) answer: Mutex<Option<Result<Option<Value>>>>,
    pub(super) arrived: Condvar,
    /// The ranges that readers took, sorted and apart. A leaf lock.
    pub(super) taken: Mutex<Vec<(u64, u64)>>,
}

impl Flight {
    /// Whether it brings `wanted`, as far as that is known by now.
    pub(super) fn brings(&self, wanted: Range) -> bool {
        if self.range.covers(wanted) {
            return true;
        }
        match &*self.answer.lock() {
            Some(Ok(Some(value))) => {
                let (start, end) = self.range.within(value.stat.len);
                let (first, last) = wanted.within(value.stat.len);
                start <= first && last <= end
            }
            Some(Ok(None)) => true,
            Some(Err(_)) | None => false,
        }
    }

    /// Waits for the answer, as long as the program lives for which this thread works.
    pub(super) fn wait(&self) -> Result<Option<Value>> {
        let mut answer = self.answer.lock();
        loop {
            if let Some(answer) = &*answer {
                return answer.clone();
            }
            waiting::wait(&self.arrived, &mut answer)?;
        }
    }

    /// Notes that a reader took a range of the value.
    pub(super) fn note_taken(&self, start: u64, end: u64) {
        let mut taken = self.taken.lock();
        let first = taken.partition_point(|(_, until)| *until < start);
        let last = taken.partition_point(|(from, _)| *from <= end);
        let joined = taken.get(first..last).unwrap_or_default().iter();
        let joined = joined
            .fold((start, end), |(start, end), (from, until)| (start.min(*from), end.max(*until)));
        drop(taken.splice(first..last.max(first), [joined]));
    }

    /// Whether readers took all of its `len` bytes.
    pub(super) fn is_taken(&self, len: u64) -> bool {
        self.taken.lock().iter().map(|(start, end)| end.saturating_sub(*start)).sum::<u64>() >= len
    }

    /// How long its answer has been there.
    pub(super) fn age(&self) -> Duration {
        self.landed.get().map_or(Duration::ZERO, |(_, at)| at.elapsed())
    }

    /// Whether its bytes may be those of a later version, too.
    pub(super) fn is_unsettled(&self) -> bool {
        match &*self.answer.lock() {
            Some(Ok(Some(value))) => !value.stat.version.is_settled,
            _ => false,
        }
    }

    /// Whether two requests have brought different versions of a value.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let version = |flight: &Self| match &*flight.answer.lock() {
            Some(Ok(value)) => Ok(value.as_ref().map(|value| value.stat.version)),
            Some(Err(_)) | None => Err(()),
        };
        match (version(self), version(other)) {
            (Ok(Some(one)), Ok(Some(other))) => !one.is_same(other),
            (Ok(one), Ok(other)) => one.is_some() != other.is_some(),
            _ => false,
        }
    }

    /// The bytes that it has brought.
    pub(super) fn len(&self) -> u64 {
        match &*self.answer.lock() {
            Some(Ok(Some(value))) => value.bytes.len().to_u64(),
            _ => 0,
        }
    }
}
