//! Reads the chunks of an array with several threads. Each thread holds one chunk at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::array::{Array, Coords, CoordsList};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::width::ToUsize;

/// A chunk to visit.
#[derive(Debug)]
pub struct Visited {
    /// The coordinates.
    pub coords: Coords,
    /// The shape.
    pub shape: Vec<u64>,
    /// The number of its elements that lie in the array, along each dimension.
    pub extent: Vec<u64>,
    /// The decoded elements; `None` if it is not stored.
    pub bytes: Option<Buffer>,
}

impl Visited {
    /// Returns the number of its elements that lie in the array.
    pub fn count(&self) -> u64 {
        self.extent.iter().copied().fold(1, u64::saturating_mul)
    }

    /// Returns the ranges of its elements that lie in the array, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let lens = self.shape.iter().zip(&self.extent).rev();
        // Inner dimensions that lie in the array as a whole form one range with the next outer one.
        let whole = lens.clone().take_while(|(shape, extent)| shape == extent).count();
        let index = |len: u64| len.to_usize();
        let mut run = lens.clone().take(whole).map(|(len, _)| index(*len)).product::<usize>();
        let mut stride = run;
        let mut outer: Vec<(usize, usize)> = Vec::new();
        for (at, (len, extent)) in lens.skip(whole).enumerate() {
            if at == 0 {
                run = run.saturating_mul(index(*extent));
            } else {
                outer.push((index(*extent), stride));
            }
            stride = stride.saturating_mul(index(*len));
        }
        let count = outer.iter().map(|(count, _)| *count).product::<usize>();
        (0..count).map(move |number| {
            let mut left = number;
            let start = outer.iter().fold(0_usize, |start, (count, stride)| {
                let at = left.checked_rem(*count).unwrap_or_default();
                left = left.checked_div(*count).unwrap_or_default();
                start.saturating_add(at.saturating_mul(*stride))
            });
            start..start.saturating_add(run)
        })
    }
}

/// Visits the chunks of a list. Returns the state of each thread.
pub fn chunks<S: Send>(
    array: &Arc<Array>,
    list: CoordsList,
    threads: usize,
    state: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, Visited) -> Result<()> + Sync,
) -> Result<Vec<S>> {
    // The lock is held only to take the next coordinates, which may list a directory.
    let list = Mutex::new(list);
    let has_failed = AtomicBool::new(false);
    let work = || -> Result<S> {
        let mut state = state();
        while !has_failed.load(Ordering::Relaxed) {
            let Some(coords) = list.lock().next() else { break };
            let visited = coords
                .and_then(|coords| visit(&mut state, read(array, coords.clone())?).at(&coords));
            if let Err(error) = visited {
                has_failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(state)
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = vec![work()];
        let panicked = || Err(Error::new(Kind::Internal, "a thread ended early"));
        all.extend(others.into_iter().map(|other| other.join().unwrap_or_else(|_| panicked())));
        all.into_iter().collect()
    })
}

fn read(array: &Array, coords: Coords) -> Result<Visited> {
    let grid = array.grid();
    Ok(Visited {
        shape: grid.chunk_shape_at(&coords)?,
        extent: grid.extent(&coords, &array.model().shape)?,
        bytes: array.read_chunk(&coords)?.map(|(bytes, _)| bytes),
        coords,
    })
}

/// Returns `count` of the chunks of an array, spread over the whole grid: one from each of `count`
/// equal parts. Equal arguments give equal chunks.
pub fn sample(array: &Array, count: u64) -> CoordsList {
    let counts = array.grid().counts().to_vec();
    let all = counts.iter().fold(1_u128, |all, len| all.saturating_mul(u128::from(*len)));
    let count = u128::from(count).min(all);
    let start = move |part: u128| (all / count) * part + (all % count) * part / count;
    let coords = move |part: u64| {
        let (from, until) = (start(part.into()), start(u128::from(part) + 1));
        let mut left = from + u128::from(scattered(part)) % (until - from).max(1);
        let mut indices: Vec<u64> = Vec::with_capacity(counts.len());
        for len in counts.iter().rev() {
            let len = u128::from((*len).max(1));
            indices.push(u64::try_from(left % len).unwrap_or_default());
            left /= len;
        }
        indices.reverse();
        Ok(Coords::new(indices))
    };
    Box::new((0..u64::try_from(count).unwrap_or(u64::MAX)).map(coords))
}

/// Returns a pseudorandom number that depends only on the argument (splitmix64).
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_elements_inside_of_the_array_are_in_the_ranges() {
        let ranges = |shape: &[u64], extent: &[u64]| {
            let coords = Coords::new(vec![0; shape.len()]);
            let chunk = Visited { coords, shape: shape.into(), extent: extent.into(), bytes: None };
            let mut ranges: Vec<_> = chunk.ranges().map(|one| (one.start, one.end)).collect();
            ranges.sort_unstable();
            ranges
        };
        assert_eq!(ranges(&[], &[]), [(0, 1)]);
        assert_eq!(ranges(&[3, 4], &[3, 4]), [(0, 12)]);
        assert_eq!(ranges(&[3, 4], &[2, 4]), [(0, 8)]);
        assert_eq!(ranges(&[3, 4], &[2, 3]), [(0, 3), (4, 7)]);
        assert_eq!(ranges(&[2, 3, 2], &[2, 2, 2]), [(0, 4), (6, 10)]);
        assert_eq!(ranges(&[2, 2, 3], &[1, 2, 1]), [(0, 1), (3, 4)]);
        assert_eq!(ranges(&[2, 2], &[0, 2]), [(0, 0)]);
    }
}
