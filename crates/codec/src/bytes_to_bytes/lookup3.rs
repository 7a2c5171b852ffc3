//! Bob Jenkins' `hashlittle` of lookup3.c (May 2006), which HDF5 uses for its metadata.
//!
//! Each twelve bytes are three little-endian words. The last ones, at most twelve, are mixed in
//! another way.
//!
//! <https://www.burtleburtle.net/bob/c/lookup3.c>

/// Returns the hash of `bytes` with the initial value `start`.
pub fn lookup3(bytes: &[u8], start: u32) -> u32 {
    let len = u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or_default();
    let first = 0xdead_beef_u32.wrapping_add(len).wrapping_add(start);
    let mut state = [first; 3];
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        add(&mut state, block);
        state = mixed(state);
        rest = after;
    }
    let [_, _, hash] = state;
    if rest.is_empty() {
        return hash;
    }
    add(&mut state, rest);
    last(state)
}

/// Adds at most twelve bytes as words, padded with zeros.
fn add(state: &mut [u32; 3], block: &[u8]) {
    for (word, bytes) in state.iter_mut().zip(block.chunks(4)) {
        let added = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        *word = word.wrapping_add(added);
    }
}

fn mixed([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for [first, second, third] in [[4, 6, 8], [16, 19, 4]] {
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(third);
        b = b.wrapping_add(a);
    }
    [a, b, c]
}

fn last([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
