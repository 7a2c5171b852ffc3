//! The bits of a stream, from the least significant bit of each byte.

/// The bits that are left. Beyond the end, all are 0.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next bits, the first one lowest.
    next: u64,
    /// The number of bits in `next`.
    count: u32,
    /// The number of bits in `next` that are beyond the end, and come last.
    beyond: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, next: 0, count: 0, beyond: 0 }
    }

    /// Whether bits beyond the end were read.
    pub(super) fn is_overrun(&self) -> bool {
        self.count < self.beyond
    }

    /// Makes at least `count` bits available, at most 33.
    #[inline]
    fn fill(&mut self, count: u32) {
        while self.count < count {
            let word = match self.bytes.split_first_chunk::<4>() {
                Some((word, rest)) => {
                    self.bytes = rest;
                    u32::from_le_bytes(*word)
                }
                None => self.last_word(),
            };
            self.next |= u64::from(word) << self.count;
            self.count += 32;
        }
    }

    #[cold]
    fn last_word(&mut self) -> u32 {
        let mut word = [0; 4];
        for (to, from) in word.iter_mut().zip(self.bytes) {
            *to = *from;
        }
        let present = u32::try_from(self.bytes.len()).unwrap_or_default() * 8;
        self.bytes = &[];
        // A decoder may read on and on, and only the first bit too many matters.
        self.beyond = self.beyond.saturating_add(32 - present);
        u32::from_le_bytes(word)
    }

    #[inline]
    fn skip(&mut self, count: u32) {
        self.next >>= count;
        self.count -= count;
    }

    /// Returns the next bits as a number, at most 32.
    #[inline]
    pub(super) fn number(&mut self, count: u32) -> u32 {
        self.fill(count);
        let number = self.next & ((1 << count) - 1);
        self.skip(count);
        u32::try_from(number).unwrap_or_default()
    }

    #[inline]
    pub(super) fn bit(&mut self) -> bool {
        self.number(1) != 0
    }

    /// Returns a number of few bits if it is small: a run of ones says how many bits follow.
    fn gamma(&mut self) -> Option<u32> {
        self.fill(33);
        let ones = self.next.trailing_ones();
        if ones > 32 {
            return None;
        }
        self.skip(ones + 1);
        if ones < 2 {
            return Some(ones);
        }
        let high = 1 << (ones - 1);
        Some(self.number(ones - 1) | high)
    }

    /// Returns the length of a run of zeros among the samples.
    pub(super) fn zeros(&mut self) -> Option<u32> {
        self.gamma()
    }

    /// Returns the length of a run of ones. After 16 of them, a number says how many more there
    /// would be.
    #[inline]
    pub(super) fn ones(&mut self) -> Option<u32> {
        self.fill(17);
        let ones = self.next.trailing_ones();
        if ones < 16 {
            self.skip(ones + 1);
            return Some(ones);
        }
        if ones > 16 {
            return None;
        }
        self.skip(17);
        self.gamma()?.checked_add(16)
    }

    /// Returns a number up to `most`, in as few bits as possible.
    #[inline]
    pub(super) fn up_to(&mut self, most: u32) -> u32 {
        if most == 0 {
            return 0;
        }
        let bits = most.ilog2();
        let short = (2_u64 << bits) - 1 - u64::from(most);
        let code = u64::from(self.number(bits));
        let code = if code < short { code } else { code * 2 - short + u64::from(self.bit()) };
        u32::try_from(code).unwrap_or_default()
    }
}
