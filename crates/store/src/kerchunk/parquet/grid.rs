//! The chunk grid of an array by its `.zarray`: the one place that knows which row is which chunk.

use std::ops::Range;

use bytes::Bytes;

use crate::kerchunk::lexer::{FileBlocks, Lexer};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The most dimensions of an array: as many as a key has room for.
const MAX_RANK: usize = 512;

/// The number of chunks along each dimension. An array without dimensions has one chunk, `0`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChunkGrid {
    counts: Vec<u64>,
    /// The number of all chunks.
    len: u64,
}

/// A text as a file.
struct Whole<'t>(&'t [u8]);

impl FileBlocks for Whole<'_> {
    fn next(&mut self) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(std::mem::take(&mut self.0)))
    }
}

impl ChunkGrid {
    /// Parses a `.zarray`. Other members than those of the grid may be anything.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut lexer = Lexer::new(Whole(text));
        let (mut shape, mut chunks) = (None, None);
        lexer.begin(b'{')?;
        let mut is_first = true;
        while lexer.has_next(b'}', &mut is_first)? {
            let name = lexer.key()?.to_owned();
            match (name.as_str(), lexer.peek()?) {
                ("shape", _) => shape = Some(numbers(&mut lexer)?),
                ("chunks", _) => chunks = Some(numbers(&mut lexer)?),
                ("dimension_separator", Some(b'"')) => check_separator(lexer.string()?)?,
                _ => lexer.skip()?,
            }
        }
        let missing = |name: &str| Error::corrupt(format!("it has no member `{name}`"));
        let shape = shape.ok_or_else(|| missing("shape"))?;
        Self::new(&shape, &chunks.ok_or_else(|| missing("chunks"))?)
    }

    fn new(shape: &[u64], chunks: &[u64]) -> Result<Self> {
        if shape.len() != chunks.len() {
            return Err(Error::corrupt(format!(
                "`shape` has {} dimensions, and `chunks` has {}",
                shape.len(),
                chunks.len()
            )));
        }
        let count = |(size, chunk): (&u64, &u64)| match chunk {
            0 if *size > 0 => Err(Error::corrupt("a chunk of length 0")),
            chunk => Ok(size.div_ceil((*chunk).max(1))),
        };
        let mut counts: Vec<u64> = shape.iter().zip(chunks).map(count).collect::<Result<_>>()?;
        if counts.is_empty() {
            counts.push(1);
        }
        let product = if counts.contains(&0) {
            Some(0)
        } else {
            counts.iter().try_fold(1_u64, |product, count| product.checked_mul(*count))
        };
        let len = product.ok_or_else(|| Error::too_large("more than 2^64 chunks"))?;
        Ok(Self { counts, len })
    }

    /// Returns the place of a chunk in C order by the last part of its key; `None` if it is none.
    pub fn index_of(&self, name: &str) -> Option<u64> {
        let mut parts = name.split('.');
        let mut index = 0_u64;
        for count in &self.counts {
            let along = number(parts.next()?).filter(|along| along < count)?;
            index = index.checked_mul(*count)?.checked_add(along)?;
        }
        parts.next().is_none().then_some(index)
    }

    /// Returns the last part of the key of a chunk.
    pub fn name_of(&self, index: u64) -> String {
        let (mut rest, mut parts) = (index, Vec::with_capacity(self.counts.len()));
        for count in self.counts.iter().rev() {
            parts.push(rest.checked_rem(*count).unwrap_or(0).to_string());
            rest = rest.checked_div(*count).unwrap_or(0);
        }
        parts.reverse();
        parts.join(".")
    }

    /// Returns a range of places that has all chunks whose names begin with `start`: those with the
    /// same first indices.
    pub fn starting(&self, start: &str) -> Range<u64> {
        let (mut places, mut counts) = (0..self.len, self.counts.iter());
        let whole = start.rsplit_once('.').map(|(whole, _)| whole);
        for part in whole.into_iter().flat_map(|whole| whole.split('.')) {
            let found = counts.next().zip(number(part)).filter(|(count, along)| along < count);
            let Some((count, along)) = found.filter(|_| !places.is_empty()) else { return 0..0 };
            let len = places.end.saturating_sub(places.start).checked_div(*count).unwrap_or(0);
            let first = places.start.saturating_add(len.saturating_mul(along));
            places = first..first.saturating_add(len);
        }
        places
    }
}

fn check_separator(separator: &str) -> Result<()> {
    if separator == "." {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "references in Parquet files to chunks whose keys have {separator:?} between their \
         indices; fsspec does not read them either"
    )))
}

/// Returns an index. There is one spelling of each.
fn number(text: &str) -> Option<u64> {
    let is_short = text == "0" || !text.starts_with('0');
    let is_number = is_short && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn numbers(lexer: &mut Lexer<Whole<'_>>) -> Result<Vec<u64>> {
    let (mut numbers, mut is_first) = (Vec::new(), true);
    lexer.begin(b'[')?;
    while lexer.has_next(b']', &mut is_first)? {
        if numbers.len() >= MAX_RANK {
            let detail = format!("more than {} dimensions", MAX_RANK.to_u64());
            return Err(Error::too_large(detail));
        }
        numbers.push(lexer.number()?);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_metadata_file_has_a_grid_whatever_else_is_in_it() {
        let grid = |text: &str| ChunkGrid::parse(text.as_bytes());
        let text = r#"{"dtype": [["a", "<f4"]], "fill_value": NaN, "chunks": [3, 1], "order": "C",
            "compressor": null, "dimension_separator": ".", "shape": [7, 2], "x": -Infinity}"#;
        assert_eq!(grid(text).unwrap(), ChunkGrid { counts: vec![3, 2], len: 6 });
        let zero = grid(r#"{"shape": [0, 5], "chunks": [0, 5]}"#).unwrap();
        assert_eq!((zero.len, zero.index_of("0.0")), (0, None));
        let scalar = grid(r#"{"shape": [], "chunks": []}"#).unwrap();
        assert_eq!((scalar.len, scalar.index_of("0"), scalar.name_of(0)), (1, Some(0), "0".into()));
        for text in [
            "",
            "[]",
            r#"{"shape": [1]}"#,
            r#"{"shape": [1], "chunks": [1, 1]}"#,
            r#"{"shape": [1], "chunks": [0]}"#,
            r#"{"shape": [1], "chunks": [-1]}"#,
            r#"{"shape": [9999999999999, 9999999999999], "chunks": [1, 1]}"#,
            r#"{"shape": [1, 1], "chunks": [1, 1], "dimension_separator": "/"}"#,
        ] {
            assert!(grid(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn each_chunk_has_one_place_and_one_name(
            counts in prop::collection::vec(1_u64..14, 1..4),
            start in "[0-9]{0,2}(\\.[0-9]{0,2}){0,3}",
        ) {
            let ones = vec![1; counts.len()];
            let grid = ChunkGrid::new(&counts, &ones).unwrap();
            let names: Vec<String> = (0..grid.len).map(|index| grid.name_of(index)).collect();
            for (index, name) in names.iter().enumerate() {
                prop_assert_eq!(grid.index_of(name), Some(index as u64));
            }
            let below = grid.starting(&start);
            let want: Vec<&String> = names.iter().filter(|name| name.starts_with(&start)).collect();
            let found: Vec<&String> = names[below.start as usize..below.end as usize]
                .iter()
                .filter(|name| name.starts_with(&start))
                .collect();
            prop_assert_eq!(found, want);
        }
    }

    #[test]
    fn an_index_has_one_spelling() {
        let grid = ChunkGrid::new(&[20, 20], &[1, 1]).unwrap();
        for name in ["", "1", "1.", ".1", "01.1", "+1.1", "1.20", "1.1.1", "1 .1", "1/1"] {
            assert_eq!(grid.index_of(name), None, "{name:?}");
        }
        assert_eq!(grid.index_of("1.19"), Some(39));
    }
}
