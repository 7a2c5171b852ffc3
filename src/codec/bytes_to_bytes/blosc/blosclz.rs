//! Decodes `BloscLZ`, which is `FastLZ` level 2 with another limit on distances.
//!
//! ```text
//! 000n nnnn                          n + 1 literal bytes follow
//! lllh hhhh [255 ..][e] d [d2 d1]    copy l + 2 bytes (l is 1..=7; 7: + e of each byte that follows,
//!                                    the first that is not 255 being the last)
//!                                    from h * 256 + d + 1 bytes back
//!                                    (h 31 and d 255: from d2 * 256 + d1 + 8192 back)
//! ```
//!
//! The first byte always begins literals. C-Blosc's own decoder can be made to write where it should
//! not (c-blosc#405); this one has no way to.

/// The distance that stands for two more bytes, less 1.
const MAX_SHORT_DISTANCE: usize = 8191;

/// Decodes `input` into `output` and returns how many bytes that made. `None` where the input ends
/// too early, refers to what is before the output or does not fit.
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

/// The length of a match and how far back it lies.
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

/// Repeats `count` bytes from `distance` before `len`, where the copy may reach into itself.
fn copy_match(output: &mut [u8], len: usize, distance: usize, count: usize) -> Option<usize> {
    let start = len.checked_sub(distance)?;
    let end = len.checked_add(count).filter(|end| *end <= output.len())?;
    if distance == 1 {
        let byte = *output.get(start)?;
        output.get_mut(len..end)?.fill(byte);
        return Some(end);
    }
    // Each round doubles what lies between `start` and `at`, and may copy all of it.
    let mut at = len;
    while at < end {
        let step = (at - start).min(end - at);
        // Neither can this panic: start + step is at most at, and at + step at most end.
        output.copy_within(start..start + step, at);
        at += step;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut output = vec![0; len];
        let actual = decompress(input, &mut output)?;
        output.truncate(actual);
        Some(output)
    }

    #[test]
    fn literals_and_matches_decode() {
        assert_eq!(decode(&[2, b'a', b'b', b'c'], 9).unwrap(), b"abc");
        // 3 bytes from 3 back, 4 from 1 back, and the control bits of the first byte do not count.
        let input = [0xe2, b'a', b'b', b'c', 0x20, 2, 0x40, 0];
        assert_eq!(decode(&input, 10).unwrap(), b"abcabccccc"[..10]);
        // 9 + 255 + 1 bytes from 2 back, over itself.
        let long = decode(&[1, b'x', b'y', 0xe0, 255, 1, 1], 267).unwrap();
        assert_eq!(long, b"xy".repeat(134)[..267]);
    }

    #[test]
    fn a_far_match_decodes() {
        let mut input = Vec::new();
        let far = 8192 + 300;
        let literals: Vec<u8> = (0..far).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        for run in literals.chunks(32) {
            input.push(u8::try_from(run.len() - 1).unwrap());
            input.extend(run);
        }
        // h 31 and d 255, then 300 beyond 8192.
        input.extend([0x3f, 255, 1, 44]);
        assert_eq!(decode(&input, far + 3).unwrap()[far..], literals[..3]);
        let last = input.len() - 1;
        input[last] += 1;
        assert_eq!(decode(&input, far + 3), None, "one before the start");
    }

    #[test]
    fn what_reaches_out_of_bounds_is_refused() {
        for input in [
            &[][..],
            &[1, b'a'],
            &[0, b'a', 0x20],
            &[0, b'a', 0x20, 1],
            &[0, b'a', 0xe0, 255, 255],
            &[0, b'a', 0xe0, 255, 255, 0, 0],
            &[0, b'a', 0x3f, 255, 0],
            &[0, b'a', 0x3f, 255, 0, 0],
        ] {
            assert_eq!(decode(input, 64), None, "{input:?}");
        }
        assert_eq!(decode(&[2, b'a', b'b', b'c'], 2), None);
    }
}
