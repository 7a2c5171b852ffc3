//! Which requests bring some ranges of a value.

use crate::ByteRange;

/// Ranges of a value with a smaller gap between them are one request, in bytes.
const MOST_GAP: u64 = 64 << 10;

/// A request has at most `MOST_READ.0 / MOST_READ.1` times the wanted bytes.
const MOST_READ: (u64, u64) = (3, 2);

/// Longer ranges are several requests of this length, in bytes.
const PART_LEN: u64 = 8 << 20;

/// If more than half of a value of at most this length is wanted, it is requested as a whole.
pub(super) const MOST_WHOLE: u64 = 16 << 20;

/// A longer value of at most this length is requested as a whole if at most `1/REST` of it is not
/// wanted. A change of a shard keeps what lies before and after the changed inner chunks.
const MOST_NEARLY_WHOLE: u64 = 64 << 20;
const REST: u64 = 8;

/// A range of a value. The end may lie past that of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Range {
    Span { start: u64, end: u64 },
    Suffix(u64),
}

impl Range {
    pub(super) fn of(range: ByteRange, len: Option<u64>) -> Self {
        match (range, len) {
            // A request has at least one byte, and does not go past a known end.
            (ByteRange::Span { offset, len: wanted }, len) => {
                let end = offset.saturating_add(wanted.max(1));
                let least = offset.saturating_add(1);
                Self::Span { start: offset, end: len.map_or(end, |len| end.min(len.max(least))) }
            }
            (ByteRange::Suffix(suffix), Some(len)) if len > 0 => {
                Self::Span { start: len.saturating_sub(suffix.max(1)), end: len }
            }
            (ByteRange::Suffix(suffix), _) => Self::Suffix(suffix.max(1)),
        }
    }

    pub(super) fn to_request(self) -> Option<ByteRange> {
        match self {
            Self::Span { start: 0, end: u64::MAX } => None,
            Self::Span { start, end } => {
                Some(ByteRange::Span { offset: start, len: end.saturating_sub(start) })
            }
            Self::Suffix(len) => Some(ByteRange::Suffix(len)),
        }
    }

    /// Whether a request for this range brings the bytes of `wanted`, whatever the value is.
    pub(super) fn covers(self, wanted: Self) -> bool {
        match (self, wanted) {
            (Self::Span { start, end }, Self::Span { start: first, end: last }) => {
                start <= first && last <= end
            }
            (Self::Suffix(len), Self::Suffix(wanted)) => wanted <= len,
            (Self::Span { start, end }, Self::Suffix(_)) => start == 0 && end == u64::MAX,
            (Self::Suffix(_), Self::Span { .. }) => false,
        }
    }

    /// About how many bytes it brings: the end of a value may come before that of the range.
    pub(super) fn expected_len(self) -> u64 {
        match self {
            Self::Span { start, end } => end.saturating_sub(start).min(PART_LEN),
            Self::Suffix(len) => len,
        }
    }

    /// The first byte of the range, and the one after the last, in a value of `len` bytes.
    pub(super) fn within(self, len: u64) -> (u64, u64) {
        match self {
            Self::Span { start, end } => (start.min(len), end.min(len)),
            Self::Suffix(suffix) => (len.saturating_sub(suffix), len),
        }
    }
}

/// Returns the requests for some ranges of a value of `len` bytes, if its length is known.
pub(super) fn requests_for(wanted: &[Range], len: Option<u64>) -> Vec<Range> {
    let mut requests: Vec<Range> = Vec::new();
    let mut spans = Vec::new();
    for range in wanted {
        match *range {
            Range::Span { start, end } => {
                spans.push((start, end));
            }
            Range::Suffix(_) => requests.push(*range),
        }
    }
    spans.sort_unstable();
    // The span so far, and how many of its bytes are wanted.
    let mut joined: Vec<((u64, u64), u64)> = Vec::new();
    for (start, end) in spans {
        if let Some(((first, last), bytes)) = joined.last_mut() {
            let more = end.saturating_sub(start.max(*last));
            let all = end.max(*last).saturating_sub(*first);
            let is_near = start.saturating_sub(*last) <= MOST_GAP;
            let most = bytes.saturating_add(more).saturating_mul(MOST_READ.0) / MOST_READ.1;
            if is_near && all <= most {
                *last = end.max(*last);
                *bytes = bytes.saturating_add(more);
                continue;
            }
        }
        joined.push(((start, end), end.saturating_sub(start)));
    }
    let bytes = joined.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if let Some(len) = len
        && joined.len() > 1
        && (len <= MOST_WHOLE && bytes > len / 2
            || len <= MOST_NEARLY_WHOLE && len.saturating_sub(bytes) <= len / REST)
    {
        joined = vec![((0, len), len)];
    }
    for ((start, end), _) in joined {
        let mut at = start;
        // The end of a value of unknown length may be anywhere.
        if len.is_some() {
            while end.saturating_sub(at) > PART_LEN + PART_LEN / 2 {
                requests.push(Range::Span { start: at, end: at + PART_LEN });
                at += PART_LEN;
            }
        }
        requests.push(Range::Span { start: at, end });
    }
    requests
}
