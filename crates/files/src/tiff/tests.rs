//! Files that are truncated or damaged are refused or described, never a panic.

use std::sync::Arc;

use proptest::prelude::*;

use crate::described::Described;
use crate::source::SourceFile;
use zarrfs_base::error::Result;
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{Condition, Key, Store, ValuePiece};

/// A directory with these entries of 12 bytes, as tag, type, count and value, and the next one.
fn directory(entries: &[(u16, u16, u32, u32)], next: u32) -> Vec<u8> {
    let mut bytes = u16::try_from(entries.len()).unwrap().to_le_bytes().to_vec();
    for (tag, kind, count, value) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(next.to_le_bytes());
    bytes
}

/// A file of a directory, and what follows it.
fn file(entries: &[(u16, u16, u32, u32)], next: u32, after: &[u8]) -> Vec<u8> {
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    bytes.extend(directory(entries, next));
    bytes.extend(after);
    bytes
}

/// The entries of a page of 4 x 3 bytes whose elements are at `offset`.
fn page(offset: u32) -> Vec<(u16, u16, u32, u32)> {
    vec![
        (256, 3, 1, 3),
        (257, 3, 1, 4),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (273, 4, 1, offset),
        (277, 3, 1, 1),
        (278, 3, 1, 4),
        (279, 4, 1, 12),
    ]
}

/// Describes a file, and returns why parts of it are left out.
fn described(bytes: &[u8]) -> Result<Vec<String>> {
    let store = Store::new(Arc::new(MemoryStore::new()));
    let key = Key::parse("x.tif").expect("a key");
    let pieces = [ValuePiece::New(bytes.to_vec().into())];
    store.write().expect("writable").set(&key, &pieces, Condition::Always).expect("a file");
    let file = SourceFile::open(&store, &key)?;
    let mut described = Described::new(&file, 64 << 20);
    super::scan(&file, &mut described)?;
    let (_, omitted) = described.build()?;
    Ok(omitted.into_iter().map(|omission| omission.why).collect())
}

#[test]
fn a_chain_that_comes_back_ends() {
    let bytes = file(&page(122), 8, &[7; 12]);
    let omitted = described(&bytes).expect("described");
    assert_eq!(omitted.len(), 1);
    assert!(omitted[0].contains("comes twice"), "{omitted:?}");
}

#[test]
fn tiles_of_no_size_and_directories_of_no_tags_are_refused() {
    let mut entries = page(122);
    entries.extend([(322, 3, 1, 0), (323, 3, 1, 0)]);
    described(&file(&entries, 0, &[0; 64])).expect_err("tiles");
    described(&file(&[], 0, &[])).expect_err("no tags");
    described(b"II\x2a\0\0\0\0\0").expect_err("no directory");
}

#[test]
fn an_image_larger_than_its_file_is_described_without_memory() {
    for compression in [1, 5, 7, 8] {
        let mut entries = page(122);
        entries[0] = (256, 4, 1, u32::MAX);
        entries[1] = (257, 4, 1, u32::MAX);
        entries[3] = (259, 3, 1, compression);
        entries[7] = (278, 4, 1, u32::MAX);
        let _ = described(&file(&entries, 0, &[0; 64]));
        entries.extend([(322, 4, 1, 1), (323, 4, 1, 1), (324, 4, 1, 8), (325, 4, 1, 1)]);
        let _ = described(&file(&entries, 0, &[0; 64]));
    }
}

#[test]
fn directories_that_overlap_end_the_chain() {
    // Each entry is a directory, too: the bytes of directories would be more than those of the
    // file.
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    for at in 0..2000_u32 {
        bytes.extend(directory(&[(256, 3, 1, 3), (257, 3, 1, 4)], 8 + 30 * (at + 1) - 12));
    }
    let _ = described(&bytes);
}

fn sample(name: &str) -> Vec<u8> {
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    let mut entries = page(0);
    let (text, kind): (&[u8], u16) = match name {
        "imagej" => (b"ImageJ=1.54\nimages=6\nslices=3\nframes=2\nunit=um\nspacing=0.5\n\0", 270),
        "shaped" => (b"{\"shape\": [2, 3, 4, 3], \"axes\": \"TZYX\", \"truncated\": true}\0", 270),
        "ome" => (
            b"<?xml version=\"1.0\"?><OME><Image Name=\"a\"><Pixels DimensionOrder=\"XYCZT\" \
              SizeX=\"3\" SizeY=\"4\" SizeZ=\"1\" SizeC=\"2\" SizeT=\"1\" PhysicalSizeX=\"0.1\">\
              <Channel Name=\"b\"/><TiffData IFD=\"0\"/></Pixels></Image></OME>\0",
            270,
        ),
        "geo" => (b"<GDALMetadata><Item name=\"A\">b</Item></GDALMetadata>\0", 42_112),
        _ => (b"plain text\0", 270),
    };
    let count = u32::try_from(text.len()).unwrap();
    entries.push((kind, 2, count, 0));
    let geo = name == "geo";
    if geo {
        entries.extend([
            (33_550, 12, 3, 0),
            (33_922, 12, 6, 0),
            (34_735, 3, 8, 0),
            (42_113, 2, 2, 0x39),
        ]);
    }
    entries.sort_by_key(|entry| entry.0);
    let start = 8 + 2 + 12 * u32::try_from(entries.len()).unwrap() + 4;
    let after = start + count;
    for entry in &mut entries {
        match entry.0 {
            273 => entry.3 = after + 128,
            33_550 => entry.3 = after,
            33_922 => entry.3 = after + 24,
            34_735 => entry.3 = after + 72,
            tag if tag == kind => entry.3 = start,
            _ => {}
        }
    }
    bytes.extend(directory(&entries, 0));
    bytes.extend(text);
    let doubles = [10.0, 10.0, 0.0, 0.0, 0.0, 0.0, 500_000.0, 4_000_000.0, 0.0];
    bytes.extend(doubles.iter().flat_map(|double: &f64| double.to_le_bytes()));
    let keys = [1_u16, 1, 0, 1, 3072, 0, 1, 32_633];
    bytes.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
    bytes.extend([0; 40]);
    bytes.extend([5; 72]);
    bytes
}

const SAMPLES: [&str; 5] = ["plain", "imagej", "shaped", "ome", "geo"];

#[test]
fn every_sample_is_described() {
    for name in SAMPLES {
        described(&sample(name)).expect(name);
    }
}

#[test]
fn a_file_truncated_at_any_byte_is_refused_or_described() {
    for name in SAMPLES {
        let bytes = sample(name);
        for len in 0..bytes.len() {
            let _ = described(&bytes[..len]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_files_are_refused_or_described(
        name in 0..SAMPLES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sample(SAMPLES[name]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = described(&bytes);
    }
}
