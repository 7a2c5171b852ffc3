//! The targets of the fuzzers, on their corpora and on changed copies. `scripts/fuzz.sh` runs the
//! fuzzers themselves.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// How long the changed copies of one corpus are tried.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// Bytes that mean something in metadata.
const SPECIAL: &[u8] = b"0129-\"{}[],:.eE\\\0\xff";

/// A sequence of numbers that is the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(most.max(1)).expect("small")).expect("small")
    }
}

/// Changes, removes, repeats or joins some bytes.
fn changed(bytes: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len() + 1);
        match numbers.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => {
                bytes[at] = SPECIAL[numbers.below(SPECIAL.len())];
            }
            2 => bytes.truncate(at),
            3 => {
                let end = (at + numbers.below(16)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            4 => {
                let end = (at + numbers.below(64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, part));
            }
            _ => {
                let from = numbers.below(other.len() + 1);
                let end = (from + numbers.below(64)).min(other.len());
                drop(bytes.splice(at..at, other[from..end].iter().copied()));
            }
        }
    }
    bytes
}

/// Runs a target on its corpus, and then for a while on changed copies.
fn run(name: &str) {
    let target = targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target").1;
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = fs::read_dir(&corpus).expect("a corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("read")).collect();
    assert!(!inputs.is_empty(), "there is no corpus");
    for input in &inputs {
        target(input);
    }
    let (mut numbers, began) = (Numbers(0x5eed), Instant::now());
    while began.elapsed() < LONG_ENOUGH {
        let (one, other) = (numbers.below(inputs.len()), numbers.below(inputs.len()));
        target(&changed(&inputs[one], &inputs[other], &mut numbers));
    }
}

/// One test for each target.
macro_rules! tests {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(targets::TARGETS.map(|(name, _)| name), tested);
        }
    };
}

tests!(
    zarr_json,
    zarr2,
    draft,
    n5,
    consolidated,
    edit,
    shard,
    codecs,
    shaped_codecs,
    grib,
    views,
    operations,
    zip_archive,
    kerchunk_references,
    file_formats,
    icechunk_repository,
    web_list,
    mount_options
);
