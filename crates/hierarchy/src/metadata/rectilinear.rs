//! The rectilinear chunk grid of Zarr 3.1: the metadata file lists the lengths of chunks along each
//! dimension.
//!
//! ```text
//! {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [
//!     4,                     every chunk has 4 elements
//!     [[2, 3], 5],           2, 2, 2, 5: a length, or a length and its repeat count
//! ]}}
//! ```
//!
//! The lengths reach to the end of the array or beyond: a library that shrinks an array leaves them
//! unchanged. Repeats are never expanded, since a few bytes may describe any number of chunks.
//!
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/chunk-grids/rectilinear>

use serde_json::{Value, json};

use super::model::Runs;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::integer;
use zarrfs_codec::json::describe;

/// The name of the grid.
pub(super) const NAME: &str = "rectilinear";

/// The most runs of chunks in a metadata file.
const MAX_RUNS: usize = 1 << 20;

/// Parses the lengths along each of `rank` dimensions from the configuration of a grid.
pub(super) fn parse(configuration: &Value, rank: usize) -> Result<Vec<Runs>> {
    let kind = configuration.get("kind").unwrap_or(&Value::Null);
    if kind != "inline" {
        let detail = format!("a rectilinear chunk grid of kind {} is not known", describe(kind));
        return Err(Error::unsupported(detail));
    }
    let shapes = configuration.get("chunk_shapes").and_then(Value::as_array);
    let shapes = shapes.filter(|shapes| shapes.len() == rank).ok_or_else(|| {
        Error::corrupt(format!("chunk_grid: chunk_shapes does not describe {rank} dimensions"))
    })?;
    let listed: usize = shapes.iter().filter_map(Value::as_array).map(Vec::len).sum();
    if listed > MAX_RUNS {
        return Err(Error::unsupported(format!(
            "chunk_grid: chunk_shapes list {listed} lengths, the limit is {MAX_RUNS}"
        )));
    }
    shapes.iter().map(runs).collect()
}

/// Parses the lengths along one dimension, and merges equal neighbours into runs.
fn runs(lens: &Value) -> Result<Runs> {
    let Some(items) = lens.as_array() else {
        return Ok(vec![(positive(lens)?, u64::MAX)]);
    };
    let mut runs = Runs::new();
    for item in items {
        let (len, count) = match item.as_array().map(Vec::as_slice) {
            Some([len, count]) => (positive(len)?, positive(count)?),
            Some(_) => return Err(wrong(item)),
            None => (positive(item)?, 1),
        };
        match runs.last_mut() {
            Some((last, total)) if *last == len => {
                *total = total.checked_add(count).ok_or_else(|| wrong(item))?;
            }
            _ => runs.push((len, count)),
        }
    }
    total(&runs).map(|_| runs)
}

fn positive(value: &Value) -> Result<u64> {
    let number = value.as_number().and_then(|number| integer(number.as_str()));
    number.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| wrong(value))
}

fn wrong(value: &Value) -> Error {
    let what = "is neither an integer of at least 1 nor such an integer with a repeat count";
    Error::corrupt(format!("chunk_grid: {} {what}", describe(value)))
}

/// Returns the length of the chunks if all have the same, without a limit.
fn is_step(runs: &Runs) -> Option<u64> {
    match runs.as_slice() {
        [(len, u64::MAX)] => Some(*len),
        _ => None,
    }
}

/// Returns the number of elements in all chunks, `None` if there is no limit.
fn total(runs: &Runs) -> Result<Option<u64>> {
    if is_step(runs).is_some() {
        return Ok(None);
    }
    let sum =
        runs.iter().try_fold(0_u64, |sum, (len, count)| sum.checked_add(len.checked_mul(*count)?));
    sum.map(Some).ok_or_else(|| Error::unsupported("chunk_grid: chunks of more than 2^64 elements"))
}

/// Fails unless the chunks cover an array of `shape`.
pub(super) fn check(grid: &[Runs], shape: &[u64]) -> Result<()> {
    for (axis, (runs, len)) in grid.iter().zip(shape).enumerate() {
        if let Some(total) = total(runs)?.filter(|total| total < len) {
            return Err(Error::corrupt(format!(
                "chunk_grid: the chunks along dimension {axis} have {total} elements in all, the array has {len}"
            )));
        }
    }
    Ok(())
}

/// Returns the longest chunk along each dimension, at least 1.
pub(super) fn longest(grid: &[Runs]) -> Vec<u64> {
    grid.iter().map(|runs| runs.iter().map(|(len, _)| *len).max().unwrap_or(1)).collect()
}

/// Returns the lengths along each dimension in the form of metadata files.
pub fn chunk_shapes(grid: &[Runs]) -> Value {
    let run = |(len, count): &(u64, u64)| match count {
        1 => json!(len),
        _ => json!([len, count]),
    };
    let along = |runs: &Runs| match is_step(runs) {
        Some(len) => json!(len),
        None => runs.iter().map(run).collect(),
    };
    grid.iter().map(along).collect()
}

/// Returns the grid in the form of a metadata file.
pub(super) fn to_json(grid: &[Runs]) -> Value {
    json!({
        "name": NAME,
        "configuration": {"kind": "inline", "chunk_shapes": chunk_shapes(grid)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(chunk_shapes: Value) -> Result<Vec<Runs>> {
        let rank = chunk_shapes.as_array().map_or(1, Vec::len);
        parse(&json!({"kind": "inline", "chunk_shapes": chunk_shapes}), rank)
    }

    #[test]
    fn lengths_are_read_in_every_form_and_shown_in_the_shortest() {
        for (listed, runs, shown) in [
            (json!([[[2, 3]]]), vec![vec![(2, 3)]], json!([[[2, 3]]])),
            (json!([[1, [2, 1], 3]]), vec![vec![(1, 1), (2, 1), (3, 1)]], json!([[1, 2, 3]])),
            (json!([[2, 2, [2, 2], 3]]), vec![vec![(2, 4), (3, 1)]], json!([[[2, 4], 3]])),
            (json!([4, [6]]), vec![vec![(4, u64::MAX)], vec![(6, 1)]], json!([4, [6]])),
            (json!([[]]), vec![vec![]], json!([[]])),
            (json!([]), vec![], json!([])),
        ] {
            let found = parsed(listed.clone()).unwrap_or_else(|error| panic!("{listed}: {error}"));
            assert_eq!(found, runs, "{listed}");
            assert_eq!(chunk_shapes(&found), shown, "{listed}");
            assert_eq!(parsed(shown).expect("its own form"), runs, "{listed}");
        }
    }

    #[test]
    fn invalid_lengths_are_refused() {
        let ones: Vec<u64> = (0..=MAX_RUNS as u64).map(|i| i % 2 + 1).collect();
        for (listed, reason) in [
            (json!([0]), "0 is neither an integer of at least 1"),
            (json!([[3, 0]]), "0 is neither an integer of at least 1"),
            (json!([[[3, 0]]]), "0 is neither an integer of at least 1"),
            (json!([[[3]]]), "is neither an integer of at least 1"),
            (json!([[-1]]), "-1 is neither an integer of at least 1"),
            (json!([["a"]]), "is neither an integer of at least 1"),
            (json!([null]), "is neither an integer of at least 1"),
            (json!([[[u64::MAX, 2]]]), "more than 2^64 elements"),
            (json!([[[1, u64::MAX], 1]]), "is neither an integer of at least 1"),
            (json!([[[2, u64::MAX], 3]]), "more than 2^64 elements"),
            (json!([ones]), "list 1048577 lengths"),
        ] {
            let error = parsed(listed).expect_err(reason).to_string();
            assert!(error.contains(reason), "{reason}: {error}");
        }
        assert!(parse(&json!({"chunk_shapes": [3]}), 1).is_err(), "of no kind");
        assert!(parse(&json!({"kind": "inline", "chunk_shapes": [3]}), 2).is_err());
    }

    #[test]
    fn chunks_reach_to_the_end_of_the_array_or_past_it() {
        let grid = parsed(json!([[[2, 3], 3], 4])).expect("a grid");
        assert_eq!(longest(&grid), [3, 4]);
        for (len, fits) in [(0, true), (9, true), (10, false)] {
            assert_eq!(check(&grid, &[len, 1000]).is_ok(), fits, "{len}");
        }
    }
}
