//! `BloscLZ`, which is `FastLZ` level 2 with another limit on distances.
//!
//! ```text
//! 000n nnnn                          n + 1 literal bytes follow
//! lllh hhhh [255 ..][e] d [d2 d1]    copy l + 2 bytes from h * 256 + d + 1 bytes back;
//!                                    l is 1..=7, and 7 adds the bytes that follow, 255 .. e;
//!                                    h 31 with d 255: from d2 * 256 + d1 + 8192 bytes back
//! ```
//!
//! The first byte always begins literals, whatever its upper bits are; C-Blosc sets the lowest of
//! them. A stream also ends with literals: since 1.19 C-Blosc does not copy a match at the end. A
//! crafted stream makes C-Blosc's own decoder write out of bounds (c-blosc#405), but not this one.

/// The longest distance in the short form; a longer one takes two more bytes.
use zarrfs_base::width::ToUsize;

const MAX_SHORT_DISTANCE: usize = 8191;

/// The longest distance that C-Blosc uses. The format allows 3 more.
const MAX_DISTANCE: usize = 65_533 + MAX_SHORT_DISTANCE;

/// The shortest matches to encode, near and far. A match takes 2 or 4 bytes, plus one for the
/// literals after it, and short matches slow decoding down.
const MIN_LEN: usize = 5;
const MIN_FAR_LEN: usize = 8;

/// The length of the sequences in the table of matches.
const SEQUENCE_LEN: usize = 4;

/// The most literals after one control byte.
const MAX_LITERALS: usize = 32;

/// As in C-Blosc, no match begins in the last 12 bytes, and none includes the last 2.
const MATCHLESS_LEN: usize = 12;
const LAST_LITERALS: usize = 2;

/// The minimum and maximum number of positions in a table, as powers of 2.
const MIN_LOG: u32 = 10;
const MAX_LOG: u32 = 14;

/// The last position of each sequence of 4 bytes, by its hash. The memory is reused for the next
/// split.
pub(super) struct MatchTable {
    positions: Vec<u32>,
    /// The search speeds up in data without matches: after 2^n misses in a row it checks every
    /// second position, after 2 * 2^n every third.
    patience_log: u32,
}

impl MatchTable {
    /// Returns a table for the compression level, 1 to 9.
    pub fn new(level: u32) -> Self {
        Self { positions: vec![0; 1 << MAX_LOG], patience_log: 4 + level.min(9) / 2 }
    }

    /// Clears the table and returns positions for an input of `len` bytes.
    fn positions(&mut self, len: usize) -> Option<Positions<'_>> {
        let log = (usize::BITS + 1 - len.leading_zeros()).clamp(MIN_LOG, MAX_LOG);
        let slots = self.positions.get_mut(..1 << log)?;
        slots.fill(0);
        Some(Positions { slots, log })
    }
}

/// Positions by hash. Their number is a power of 2.
struct Positions<'a> {
    slots: &'a mut [u32],
    log: u32,
}

impl Positions<'_> {
    /// Returns the last position of a sequence, and sets it to `at`. The default position is 0.
    fn swap(&mut self, sequence: u32, at: usize) -> Option<usize> {
        let hash = sequence.wrapping_mul(2_654_435_761) >> (u32::BITS - self.log);
        let slot = self.slots.get_mut(hash.to_usize())?;
        usize::try_from(std::mem::replace(slot, u32::try_from(at).ok()?)).ok()
    }
}

/// Encodes `input` to the start of `output` and returns the encoded length. `None` if it does not
/// fit, or if `input` is shorter than any match.
pub(super) fn compress(input: &[u8], output: &mut [u8], table: &mut MatchTable) -> Option<usize> {
    let start_limit = input.len().checked_sub(MATCHLESS_LEN)?;
    let matchable = input.get(..input.len() - LAST_LITERALS)?;
    let first_miss = 1_u32 << table.patience_log;
    let patience_log = table.patience_log;
    let mut positions = table.positions(input.len())?;
    let mut stream = Stream { output, len: 0 };
    let (mut at, mut literals_at, mut miss) = (1, 0, first_miss);
    let mut other = None;
    while at < start_limit {
        let sequence = sequence_at(matchable, at);
        let mut from = positions.swap(sequence, at)?;
        let mut len = 0;
        if at - from <= MAX_DISTANCE && sequence_at(matchable, from) == sequence {
            len = common_len(matchable.get(from..)?, matchable.get(at..)?);
        }
        if let Some(other) = other.take().filter(|other| at - other <= MAX_DISTANCE) {
            let other_len = common_len(matchable.get(other..)?, matchable.get(at..)?);
            if other_len > len {
                (from, len) = (other, other_len);
            }
        }
        if len < SEQUENCE_LEN {
            at += (miss >> patience_log).to_usize();
            miss += 1;
            continue;
        }
        let len_before = common_end_len(input.get(..from)?, input.get(literals_at..at)?);
        let min_len = if at - from > MAX_SHORT_DISTANCE { MIN_FAR_LEN } else { MIN_LEN };
        if len + len_before < min_len {
            at += 1;
            continue;
        }
        stream.put_literals(input.get(literals_at..at - len_before)?)?;
        stream.put_match(at - from, len + len_before)?;
        at += len;
        (literals_at, miss) = (at, first_miss);
        // Data may also repeat after the end of an earlier match. Without this, a search in data
        // with a long period finds only matches that are too near.
        let border = at - SEQUENCE_LEN / 2;
        let before = positions.swap(sequence_at(input, border), border)?;
        other = Some(before + SEQUENCE_LEN / 2);
    }
    stream.put_literals(input.get(literals_at..)?)?;
    *stream.output.first_mut()? |= 0b10_0000;
    Some(stream.len)
}

/// Returns the 4 bytes at `at`.
fn sequence_at(input: &[u8], at: usize) -> u32 {
    input.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns the length of the common prefix in bytes.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks();
    let (b_words, _) = b.as_chunks();
    let mut len = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            return len + (difference.trailing_zeros() / 8).to_usize();
        }
        len += 8;
    }
    len + a.iter().zip(b).skip(len).take_while(|(a, b)| a == b).count()
}

/// Returns the length of the common suffix in bytes.
fn common_end_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// The output. It is discarded if it does not fit.
struct Stream<'a> {
    output: &'a mut [u8],
    len: usize,
}

impl Stream<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.output.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    fn put_literals(&mut self, literals: &[u8]) -> Option<()> {
        for run in literals.chunks(MAX_LITERALS) {
            self.put(&[u8::try_from(run.len() - 1).ok()?])?;
            self.put(run)?;
        }
        Some(())
    }

    /// Writes a match of at least 3 bytes.
    fn put_match(&mut self, distance: usize, len: usize) -> Option<()> {
        let distance = distance.checked_sub(1)?;
        let short_distance = distance.min(MAX_SHORT_DISTANCE);
        let [low, high, ..] = short_distance.to_le_bytes();
        let l = len.checked_sub(2)?;
        if let Some(mut more) = l.checked_sub(7) {
            self.put(&[7 << 5 | high])?;
            while more >= 255 {
                self.put(&[255])?;
                more -= 255;
            }
            self.put(&[u8::try_from(more).ok()?, low])?;
        } else {
            self.put(&[u8::try_from(l).ok()? << 5 | high, low])?;
        }
        if short_distance == MAX_SHORT_DISTANCE {
            let far = u16::try_from(distance - MAX_SHORT_DISTANCE).ok()?;
            self.put(&far.to_be_bytes())?;
        }
        Some(())
    }
}

/// Decodes `input` into `output` and returns the decoded length. `None` if the input ends too
/// early, refers to bytes before the output, or does not fit.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let (first, mut rest) = input.split_first()?;
    let mut control = usize::from(first & 0b1_1111);
    let mut len = 0;
    loop {
        if control < 32 {
            let (literals, after) = rest.split_at_checked(control + 1)?;
            let end = len + literals.len();
            output.get_mut(len..end)?.copy_from_slice(literals);
            len = end;
            rest = after;
        } else {
            let (count, distance) = read_match(control, &mut rest)?;
            len = copy_match(output, len, distance, count)?;
        }
        match rest.split_first() {
            None => return Some(len),
            Some((next, after)) => {
                control = usize::from(*next);
                rest = after;
            }
        }
    }
}

/// Reads the length and the distance of a match.
fn read_match(control: usize, rest: &mut &[u8]) -> Option<(usize, usize)> {
    let mut next = || {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        Some(usize::from(*byte))
    };
    let mut count = (control >> 5) + 2;
    if count == 9 {
        loop {
            let more = next()?;
            count = count.checked_add(more)?;
            if more != 255 {
                break;
            }
        }
    }
    let mut distance = ((control & 0b1_1111) << 8) + next()?;
    if distance == MAX_SHORT_DISTANCE {
        distance = (next()? << 8) + next()? + MAX_SHORT_DISTANCE;
    }
    Some((count, distance + 1))
}

/// Appends `count` bytes from `distance` before `len`. Source and target may overlap.
fn copy_match(output: &mut [u8], len: usize, distance: usize, count: usize) -> Option<usize> {
    let start = len.checked_sub(distance)?;
    let end = len.checked_add(count).filter(|end| *end <= output.len())?;
    if distance == 1 {
        let byte = *output.get(start)?;
        output.get_mut(len..end)?.fill(byte);
        return Some(end);
    }
    // Each round doubles the bytes between `start` and `at`, and may copy all of them.
    let mut at = len;
    while at < end {
        let step = (at - start).min(end - at);
        // This does not panic either: start + step is at most at, and at + step at most end.
        output.copy_within(start..start + step, at);
        at += step;
    }
    Some(end)
}

#[cfg(test)]
mod tests;
