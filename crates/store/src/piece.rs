//! The parts of a new value.

use bytes::Bytes;

use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// A part of a new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePiece {
    /// New bytes.
    New(Bytes),
    /// Bytes of the replaced value, so that a shard's unchanged inner chunks need not pass through
    /// memory. Requires [`Condition::Unchanged`](super::Condition::Unchanged).
    Kept {
        /// The offset from the start of the old value.
        offset: u64,
        /// The number of bytes, which must all exist.
        len: u64,
    },
}

impl ValuePiece {
    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::New(bytes) => bytes.len().to_u64(),
            Self::Kept { len, .. } => *len,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total length of `pieces`; an error above 2^64 bytes.
    pub fn total_len(pieces: &[Self]) -> Result<u64> {
        let total = pieces.iter().try_fold(0_u64, |total, piece| total.checked_add(piece.len()));
        total.ok_or_else(|| Error::too_large("a value of more than 2^64 bytes"))
    }

    /// Returns the pieces for replacing each of `parts`, from its offset, in a value of `len`
    /// bytes. The length stays: a part that ends past it is an error.
    pub fn overlay(len: u64, parts: &[(u64, Bytes)]) -> Result<Vec<Self>> {
        let mut pieces = vec![Self::Kept { offset: 0, len }];
        for (start, bytes) in parts {
            let new = Self::New(bytes.clone());
            if start.checked_add(new.len()).is_none_or(|end| end > len) {
                return Err(Error::too_large(format!(
                    "{len} bytes stored, the requested range ends past them"
                )));
            }
            let (mut all, rest) = Self::cut(pieces, *start);
            let (_, after) = Self::cut(rest, new.len());
            all.push(new);
            all.extend(after);
            pieces = all;
        }
        pieces.retain(|piece| !piece.is_empty());
        Ok(pieces)
    }

    /// Splits pieces at the byte `at`.
    fn cut(pieces: Vec<Self>, at: u64) -> (Vec<Self>, Vec<Self>) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut room = at;
        for piece in pieces {
            let head_len = room.min(piece.len());
            room -= head_len;
            let (head, tail) = match piece {
                Self::New(mut bytes) => {
                    // The length fits because the bytes are in memory.
                    let head = bytes.split_to(usize::try_from(head_len).unwrap_or(bytes.len()));
                    (Self::New(head), Self::New(bytes))
                }
                Self::Kept { offset, len } => (
                    Self::Kept { offset, len: head_len },
                    Self::Kept { offset: offset + head_len, len: len - head_len },
                ),
            };
            before.push(head);
            after.push(tail);
        }
        (before, after)
    }
}

impl From<Bytes> for ValuePiece {
    fn from(bytes: Bytes) -> Self {
        Self::New(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_overlay_is_what_writing_the_parts_one_after_another_makes(
            old in prop::collection::vec(any::<u8>(), 0..20),
            parts in prop::collection::vec((0_u64..22, prop::collection::vec(any::<u8>(), 0..8)), 0..5),
        ) {
            let mut want = old.clone();
            let mut fits = true;
            for (start, bytes) in &parts {
                let start = *start as usize;
                match want.get_mut(start..start + bytes.len()) {
                    Some(place) => place.copy_from_slice(bytes),
                    None => fits = false,
                }
            }
            let parts: Vec<(u64, Bytes)> =
                parts.into_iter().map(|(start, bytes)| (start, bytes.into())).collect();
            let pieces = ValuePiece::overlay(old.len() as u64, &parts);
            prop_assert_eq!(pieces.is_ok(), fits);
            if let Ok(pieces) = pieces {
                let mut found = Vec::new();
                for piece in pieces {
                    match piece {
                        ValuePiece::New(bytes) => found.extend_from_slice(&bytes),
                        ValuePiece::Kept { offset, len } => {
                            found.extend_from_slice(&old[offset as usize..][..len as usize]);
                        }
                    }
                }
                prop_assert_eq!(found, want);
            }
        }
    }
}
