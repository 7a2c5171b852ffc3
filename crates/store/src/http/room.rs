//! The memory for long answers.
//!
//! Many requests may be under way, and a server decides how long its answers are. So a request
//! whose answer is long waits until there is room for it. Short answers need none.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Room is counted in pieces of this many bytes.
const PIECE: u64 = 64 << 10;

/// Room for some bytes of answers.
#[derive(Debug)]
pub(super) struct AnswerMemory {
    free: Semaphore,
    pieces: u32,
}

/// Room that is taken. It is free again when this is dropped.
#[derive(Debug)]
#[must_use = "the room is free again when it is dropped"]
pub(super) struct Reserved<'r> {
    _pieces: SemaphorePermit<'r>,
}

impl AnswerMemory {
    /// Returns room for `len` bytes.
    pub fn of(len: u64) -> Self {
        let pieces = pieces_of(len).min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let free = Semaphore::new(usize::try_from(pieces).unwrap_or(Semaphore::MAX_PERMITS));
        Self { free, pieces }
    }

    /// Returns room for one long answer at a time.
    pub fn for_one() -> Self {
        Self::of(1)
    }

    /// Waits until there is room for `len` bytes, or all of it is free. Requests get room in the
    /// order in which they ask. One that has a place must not take a second one.
    pub async fn take(&self, len: u64) -> Option<Reserved<'_>> {
        let pieces = pieces_of(len).min(self.pieces);
        // It is never closed.
        self.free.acquire_many(pieces).await.ok().map(|pieces| Reserved { _pieces: pieces })
    }
}

fn pieces_of(len: u64) -> u32 {
    u32::try_from(len.div_ceil(PIECE)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn answers_wait_for_room_and_one_that_is_longer_than_all_of_it_for_all_others() {
        let room = AnswerMemory::of(3 * PIECE);
        let (one, two) = (room.take(PIECE).await, room.take(PIECE + 1).await);
        assert!(one.is_some() && two.is_some());
        let most = Duration::from_millis(20);
        assert!(timeout(most, room.take(1)).await.is_err(), "no room is free");
        drop(one);
        assert!(timeout(most, room.take(u64::MAX)).await.is_err(), "another has room");
        assert!(timeout(most, room.take(1)).await.is_ok(), "a request that was given up waits");
        drop(two);
        assert!(timeout(most, room.take(u64::MAX)).await.is_ok());
    }

    #[tokio::test]
    async fn there_is_room_for_one_answer_of_any_length() {
        for room in [AnswerMemory::for_one(), AnswerMemory::of(0)] {
            let one = room.take(0).await;
            assert!(timeout(Duration::from_millis(20), room.take(0)).await.is_err());
            drop(one);
            assert!(room.take(u64::MAX).await.is_some());
        }
    }
}
