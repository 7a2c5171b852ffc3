use proptest::prelude::*;

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
fn references_out_of_bounds_are_refused() {
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

/// Decodes like C-Blosc 1.19 and later, which need more than one byte after the first byte of a
/// match, and stop at the end of the stream before they copy.
fn decode_as_c_blosc(input: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    let mut at = 1;
    let mut control = usize::from(input.first()? & 31);
    loop {
        if control < 32 {
            output.extend_from_slice(input.get(at..=at + control)?);
            at += control + 1;
            if at >= input.len() {
                return (output.len() <= len).then_some(output);
            }
        } else {
            let (mut count, high) = ((control >> 5) + 2, (control & 31) * 256);
            let mut more = 255;
            while control >> 5 == 7 && more == 255 {
                input.get(at + 1)?;
                more = usize::from(input[at]);
                count += more;
                at += 1;
            }
            if control >> 5 < 7 {
                input.get(at + 1)?;
            }
            let mut distance = high + usize::from(input[at]) + 1;
            at += 1;
            if distance == 8192 {
                let far = [input[at], *input.get(at + 1)?];
                distance = usize::from(u16::from_be_bytes(far)) + 8192;
                at += 2;
            }
            if at >= input.len() || output.len() + count > len {
                return None;
            }
            let start = output.len().checked_sub(distance)?;
            for from in start..start + count {
                output.push(output[from]);
            }
        }
        control = usize::from(input[at]);
        at += 1;
    }
}

/// The stream, which both decoders read; `None` if it would be longer than `input`.
fn encode(input: &[u8], table: &mut MatchTable) -> Option<Vec<u8>> {
    let mut stream = vec![0; input.len()];
    let len = compress(input, &mut stream, table)?;
    stream.truncate(len);
    assert_eq!(stream[0] >> 5, 1);
    assert!(decode(&stream, input.len()).unwrap() == input, "{} bytes", input.len());
    let theirs = decode_as_c_blosc(&stream, input.len());
    assert!(theirs.as_deref() == Some(input), "{} bytes, as C-Blosc reads", input.len());
    Some(stream)
}

fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(len)
    .collect()
}

#[test]
fn a_stream_has_the_bytes_that_the_format_says() {
    let mut input = b"abcde12345abcde67890".to_vec();
    input.extend([b'z'; 40]);
    let mut stream = vec![0x29];
    stream.extend(b"abcde12345");
    // 5 bytes from 10 back; 6 literals; 37 bytes from 1 back; the last 2.
    stream.extend([3 << 5, 9, 5]);
    stream.extend(b"67890z");
    stream.extend([7 << 5, 37 - 9, 0, 1, b'z', b'z']);
    assert_eq!(encode(&input, &mut MatchTable::new(5)).unwrap(), stream);
}

#[test]
fn distances_have_a_short_form_a_long_form_and_a_limit() {
    let needle = noise(40, 1);
    for (distance, code) in [
        (8190, Some(&[0x1f, 0xfd][..])),
        (8191, Some(&[0x1f, 0xfe])),
        (8192, Some(&[0x1f, 0xff, 0, 0])),
        (8193, Some(&[0x1f, 0xff, 0, 1])),
        (MAX_DISTANCE - 1, Some(&[0x1f, 0xff, 0xff, 0xfb])),
        (MAX_DISTANCE, Some(&[0x1f, 0xff, 0xff, 0xfc])),
        (MAX_DISTANCE + 1, None),
    ] {
        let mut input = needle.clone();
        input.resize(distance, 0);
        input.extend(&needle);
        input.resize(distance + 80, 1);
        let stream = encode(&input, &mut MatchTable::new(5)).unwrap();
        let found = code.map(|code| {
            let code = [&[0xe0 | code[0], 40 - 9], &code[1..]].concat();
            stream.windows(code.len()).any(|window| window == code)
        });
        assert_ne!(found, Some(false), "{distance}: {stream:?}");
        let literal = stream.windows(40).filter(|window| needle.starts_with(&window[..6])).count();
        assert_eq!(literal, if code.is_some() { 1 } else { 2 }, "{distance}: {stream:?}");
    }
}

#[test]
fn matches_and_literals_of_all_lengths_are_read() {
    let mut table = MatchTable::new(9);
    let noise = noise(2000, 3);
    for len in 0..700 {
        let run = [&noise[..70], &vec![7; len], &noise[70..100]].concat();
        let again = [&noise[..len], &[1, 2, 3], &noise[..len], &noise[1000..1040]].concat();
        let literals = [&[7; 100][..], &noise[..len], &[7; 100]].concat();
        for input in [run, again, literals] {
            encode(&input, &mut table);
        }
    }
}

#[test]
fn output_that_does_not_fit_is_reported() {
    let mut table = MatchTable::new(5);
    for input in [&noise(5000, 1)[..], &[7; 5000], &b"some text, ".repeat(500)] {
        let mut output = vec![0; input.len() + input.len() / 32 + 1];
        let len = compress(input, &mut output, &mut table).unwrap();
        for room in 0..len {
            assert_eq!(compress(input, &mut output[..room], &mut table), None, "{room} of {len}");
        }
        assert_eq!(compress(input, &mut output[..len], &mut table), Some(len));
        assert_eq!(decode(&output[..len], input.len()).unwrap(), *input);
    }
    assert!(encode(&noise(5000, 1), &mut table).is_none());
    for len in 0..MATCHLESS_LEN {
        assert_eq!(compress(&vec![7; len], &mut [0; 100], &mut table), None);
    }
}

#[test]
fn a_table_that_was_used_changes_nothing() {
    let mut table = MatchTable::new(5);
    for len in [40_000, 100, 3000, 12, 20_000] {
        let input: Vec<u8> = noise(len, 5).iter().map(|byte| byte & 1).collect();
        assert_eq!(
            encode(&input, &mut table),
            encode(&input, &mut MatchTable::new(5)),
            "{len} bytes"
        );
    }
}

/// Parts that may repeat, near and far: how they are made, their length, their seed.
fn parts() -> impl Strategy<Value = Vec<(u8, usize, u32)>> {
    let part = (0..5_u8, prop_oneof![4 => 0..80_usize, 1 => 0..9000_usize], 0..4_u32);
    prop::collection::vec(part, 0..60)
}

fn joined(parts: &[(u8, usize, u32)]) -> Vec<u8> {
    let mut input = Vec::new();
    for (kind, len, seed) in parts {
        match kind {
            0 => input.resize(input.len() + len, 9),
            1 => input.extend(noise(*len, *seed).iter().map(|byte| byte >> 6)),
            2 => input.extend(noise(3, *seed).iter().cycle().take(*len)),
            _ => input.extend(noise(*len, *seed)),
        }
    }
    input
}

proptest! {
    #[test]
    fn both_decoders_read_encoded_streams(parts in parts(), level in 1..10_u32) {
        encode(&joined(&parts), &mut MatchTable::new(level));
    }

    #[test]
    fn any_bytes_are_read_by_both_decoders(input in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut table = MatchTable::new(5);
        encode(&input, &mut table);
        encode(&input.iter().map(|byte| byte & 1).collect::<Vec<u8>>(), &mut table);
        encode(&input.repeat(3), &mut table);
    }
}
