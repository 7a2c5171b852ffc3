//! Bits of a byte string, most significant first.

/// Reads numbers of any width up to 32 bits.
use zarrfs_base::width::ToUsize;

#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The number of bits before the next one.
    offset: usize,
}

impl<'a> Bits<'a> {
    /// Starts at the first bit of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Returns the next 57 bits or more, at the top of a number. Bits past the end are 0.
    fn window(&self) -> u64 {
        let tail = self.bytes.get(self.offset / 8..).unwrap_or_default();
        let word = if let Some(word) = tail.first_chunk::<8>() {
            u64::from_be_bytes(*word)
        } else {
            let mut word = [0; 8];
            for (target, byte) in word.iter_mut().zip(tail) {
                *target = *byte;
            }
            u64::from_be_bytes(word)
        };
        word << (self.offset % 8)
    }

    /// Returns the number of bits that follow.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_mul(8).saturating_sub(self.offset)
    }

    /// Skips `count` bits, `None` if they are not there.
    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.offset = self.offset.checked_add(count).filter(|_| count <= self.left())?;
        Some(())
    }

    /// Returns the next number of `width` bits, at most 32.
    pub fn number(&mut self, width: u32) -> Option<u32> {
        let number = self.window().checked_shr(64_u32.checked_sub(width)?).unwrap_or_default();
        self.skip(width.to_usize())?;
        u32::try_from(number).ok()
    }

    /// Returns the number of 0 bits before the next 1 bit, and skips all of them. Not more than
    /// `most`.
    pub fn zeros(&mut self, most: u32) -> Option<u32> {
        let mut count = 0_u32;
        loop {
            let zeros = self.window().leading_zeros();
            if zeros < 57 {
                self.skip(zeros.to_usize().checked_add(1)?)?;
                return count.checked_add(zeros).filter(|count| *count <= most);
            }
            self.skip(57)?;
            count = count.checked_add(57).filter(|count| *count <= most)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_runs_of_zeros_cross_bytes() {
        let mut bits = Bits::new(&[0b1010_0000, 0, 0b0000_0110, 0xff, 0xff, 0xff, 0xff, 0x80]);
        assert_eq!(bits.number(3), Some(5));
        assert_eq!(bits.number(0), Some(0));
        assert_eq!(bits.zeros(100), Some(18));
        assert_eq!(bits.number(2), Some(0b10));
        assert_eq!(bits.number(32), Some(u32::MAX));
        assert_eq!(bits.left(), 8);
        assert_eq!(bits.number(1), Some(1));
        assert_eq!(bits.number(8), None);
        assert_eq!(bits.number(7), Some(0));
        assert_eq!(bits.zeros(100), None);
        let zeros = [0; 100];
        assert_eq!(Bits::new(&zeros).zeros(90), None);
        assert_eq!(Bits::new(&zeros).zeros(u32::MAX), None);
    }
}
