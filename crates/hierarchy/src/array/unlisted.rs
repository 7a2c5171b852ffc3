//! Finds the chunks of an array in a store that cannot list: it asks for each chunk of the grid.

use std::collections::VecDeque;

use super::chunk_store::CoordsList;
use super::coords::{Coords, Grid};
use zarrfs_base::error::{Error, Result};

/// How many chunks are asked for at a time.
const AT_ONCE: usize = 256;

/// The most chunks that are asked for.
const MOST: u64 = 1 << 20;

/// Lists the chunks of a grid whose first indices are `prefix`. `are_there` says which chunks the
/// store has.
pub(super) fn list(
    grid: &Grid,
    prefix: &[u64],
    are_there: impl Fn(&[Coords]) -> Result<Vec<bool>> + Send + 'static,
) -> Result<CoordsList> {
    let rest = grid.counts().get(prefix.len()..).unwrap_or_default().to_vec();
    check(rest.iter().try_fold(1_u64, |all, count| all.checked_mul(*count)))?;
    let prefix = prefix.to_vec();
    let mut next = (!rest.contains(&0)).then(|| vec![0_u64; rest.len()]);
    let mut found: VecDeque<Result<Coords>> = VecDeque::new();
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(coords) = found.pop_front() {
                return Some(coords);
            }
            let mut wanted = Vec::new();
            while wanted.len() < AT_ONCE
                && let Some(indices) = next.take()
            {
                wanted.push(Coords::new([&prefix[..], &indices[..]].concat()));
                next = following(indices, &rest);
            }
            if wanted.is_empty() {
                return None;
            }
            match are_there(&wanted) {
                Ok(there) => {
                    let there = wanted.into_iter().zip(there).filter(|(_, is_there)| *is_there);
                    found.extend(there.map(|(coords, _)| Ok(coords)));
                }
                Err(error) => {
                    next = None;
                    found.push_back(Err(error));
                }
            }
        }
    })))
}

/// The most chunks of a grid that are asked for in addition to those that a store lists, if its
/// lists do not prove absence.
const FEW: u64 = 1024;

/// Returns the chunks of a grid whose first indices are `prefix`, if they are few.
pub(super) fn few(grid: &Grid, prefix: &[u64]) -> Option<Vec<Coords>> {
    let rest = grid.counts().get(prefix.len()..)?;
    let count = rest.iter().try_fold(1_u64, |all, count| all.checked_mul(*count));
    count.filter(|count| (1..=FEW).contains(count))?;
    let mut next = Some(vec![0_u64; rest.len()]);
    let all = std::iter::from_fn(move || {
        let indices = next.take()?;
        let coords = Coords::new([prefix, &indices[..]].concat());
        next = following(indices, rest);
        Some(coords)
    });
    Some(all.collect())
}

/// Fails if there are too many chunks to ask for each.
pub(super) fn check(count: Option<u64>) -> Result<()> {
    match count.filter(|count| *count <= MOST) {
        Some(_) => Ok(()),
        None => Err(Error::unsupported(format!(
            "the store cannot list its keys, and more than {MOST} chunks are too many to ask for \
             each"
        ))),
    }
}

/// Returns the indices after these; `None` at the end of the grid.
fn following(mut indices: Vec<u64>, counts: &[u64]) -> Option<Vec<u64>> {
    for (index, count) in indices.iter_mut().zip(counts).rev() {
        *index = index.saturating_add(1);
        if *index < *count {
            return Some(indices);
        }
        *index = 0;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(shape: &[u64], prefix: &[u64]) -> Vec<String> {
        let grid = Grid::regular(shape, &vec![1; shape.len()]);
        let is_even = |coords: &Coords| coords.indices().iter().sum::<u64>() % 2 == 0;
        let found = list(&grid, prefix, move |coords| Ok(coords.iter().map(is_even).collect()))
            .expect("listed");
        found.map(|coords| coords.expect("there").to_string()).collect()
    }

    #[test]
    fn each_chunk_of_the_grid_is_asked_for_once() {
        assert_eq!(listed(&[3, 2], &[]), ["c/0/0", "c/1/1", "c/2/0"]);
        assert_eq!(listed(&[3, 2], &[1]), ["c/1/1"]);
        assert_eq!(listed(&[3, 0], &[]), [""; 0]);
        assert_eq!(listed(&[1000], &[]).len(), 500);
    }

    #[test]
    fn a_grid_of_too_many_chunks_is_refused_and_an_error_ends_the_list() {
        let grid = Grid::regular(&[1 << 40, 1 << 40], &[1, 1]);
        assert!(list(&grid, &[], |_| Ok(Vec::new())).is_err());
        assert!(list(&grid, &[0], |_| Ok(Vec::new())).is_err());
        let grid = Grid::regular(&[10_000], &[1]);
        let failed = list(&grid, &[], |_| Err(Error::unsupported("no"))).expect("listed");
        assert_eq!(failed.map(|coords| coords.is_err()).collect::<Vec<_>>(), [true]);
    }
}
