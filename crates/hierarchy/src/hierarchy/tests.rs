//! Reads hierarchies of other programs from disk chunk by chunk, and compares them with the values
//! that were written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use super::*;
use crate::array::{Array, ChunkLen, Coords};
use crate::metadata::{NodePath, numpy_type};
use zarrfs_base::error::Result;
use zarrfs_codec::array_to_bytes::ByteSwap;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::vlen;
use zarrfs_store::Store;
use zarrfs_store::directory::{DirectoryStore, Durability};

/// Arrays that zarrfs cannot read: the case, the path, and a word of the expected reason.
const NOT_UNDERSTOOD: &[(&str, &str, &str)] = &[];

/// A directory of fixtures from another program, with the expected values.
struct Case {
    dir: PathBuf,
    name: String,
    json: Json,
}

impl Case {
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let mut cases = Vec::new();
        for entry in fs::read_dir(root).expect("fixtures") {
            let dir = entry.expect("a fixture").path();
            // The other directories hold bytes of single codecs.
            let Ok(text) = fs::read(dir.join("case.json")) else { continue };
            let name = dir.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            cases.push(Self { dir, name, json: serde_json::from_slice(&text).expect("case.json") });
        }
        cases.sort_by(|one, other| one.name.cmp(&other.name));
        cases
    }

    fn open(&self) -> Result<Hierarchy> {
        let store = DirectoryStore::open(&self.dir.join("store"), Durability::Buffered)?;
        Hierarchy::open(Store::new(Arc::new(store)).read_only(), None, HierarchyOptions::default())
    }

    fn must_reject(&self) -> bool {
        self.json.get("must_reject") == Some(&Json::Bool(true))
    }

    fn arrays(&self) -> BTreeMap<String, Json> {
        let arrays = self.json.get("arrays").and_then(Json::as_object).cloned().unwrap_or_default();
        arrays.into_iter().collect()
    }
}

/// Elements in C order and little endian.
#[derive(Debug, PartialEq, Eq)]
struct FixtureElements {
    shape: Vec<u64>,
    dtype: DType,
    items: Vec<Vec<u8>>,
}

/// Parses an `.npy` file. Its header is the text of a Python dictionary.
fn npy(path: &Path) -> FixtureElements {
    let file = fs::read(path).expect("an npy file");
    assert_eq!(&file[..6], b"\x93NUMPY", "{}", path.display());
    let (len, start) = match file[6] {
        1 => (usize::from(u16::from_le_bytes([file[8], file[9]])), 10),
        _ => (u32::from_le_bytes([file[8], file[9], file[10], file[11]]) as usize, 12),
    };
    let header = std::str::from_utf8(&file[start..start + len]).expect("text");
    let member = |name: &str| {
        let (_, rest) = header.split_once(&format!("'{name}': ")).expect("a member");
        rest
    };
    let (descr, _) = member("descr").split_once(", 'fortran_order'").expect("a type");
    // Python's tuples become JSON lists.
    let descr = descr.replace('\'', "\"").replace('(', "[").replace(')', "]").replace(",]", "]");
    let (dtype, endian) = numpy_type(&serde_json::from_str(&descr).expect("a type"));
    let (list, _) = member("shape")[1..].split_once(')').expect("a shape");
    let lens = list.split(',').map(str::trim).filter(|len| !len.is_empty());
    let shape: Vec<u64> = lens.map(|len| len.parse().expect("a length")).collect();
    let mut bytes = file[start + len..].to_vec();
    ByteSwap::parse(Some(&endian), &dtype).expect("an order").apply(&mut bytes);
    if member("fortran_order").starts_with("True") {
        bytes = from_fortran(&bytes, &shape, dtype.item_len());
    }
    let items = bytes.chunks(dtype.item_len()).map(<[u8]>::to_vec).collect();
    FixtureElements { shape, dtype, items }
}

impl FixtureElements {
    /// Removes the padding of elements of variable length.
    fn unpadded(self, dtype: &DType) -> Self {
        let unpadded = |item: Vec<u8>| -> Vec<u8> {
            if matches!(self.dtype, DType::Utf32(_)) {
                let points = item.as_chunks().0.iter().map(|point| u32::from_le_bytes(*point));
                let text: String = points.filter_map(char::from_u32).collect();
                return text.trim_end_matches('\0').into();
            }
            let len = item.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            item[..len].to_vec()
        };
        let items = self.items.into_iter().map(unpadded).collect();
        Self { items, dtype: dtype.clone(), ..self }
    }
}

fn from_fortran(bytes: &[u8], shape: &[u64], item_len: usize) -> Vec<u8> {
    let mut elements = Vec::with_capacity(bytes.len());
    for place in places(shape) {
        let flat = place.iter().zip(shape).rev().fold(0, |sum, (i, len)| sum * len + i) as usize;
        elements.extend_from_slice(&bytes[flat * item_len..][..item_len]);
    }
    elements
}

/// Returns all coordinates of a grid, in C order.
fn places(counts: &[u64]) -> Vec<Vec<u64>> {
    let mut places = vec![Vec::new()];
    for count in counts {
        let next = |place: &Vec<u64>| {
            let place = place.clone();
            (0..*count).map(move |index| [&place[..], &[index]].concat())
        };
        places = places.iter().flat_map(next).collect();
    }
    places
}

/// Reads a whole array chunk by chunk; the flags mark elements of missing chunks.
fn read(array: &Array) -> Result<(FixtureElements, Vec<bool>)> {
    let model = array.model();
    let (shape, dtype) = (model.shape.clone(), model.dtype.clone());
    let flat = |place: &[u64], shape: &[u64]| {
        place.iter().zip(shape).fold(0, |sum, (i, len)| sum * len + i) as usize
    };
    let count = shape.iter().product::<u64>() as usize;
    let mut items = vec![vec![0xaa]; count];
    let mut missing = vec![false; count];
    for coords in places(array.grid().counts()).into_iter().map(Coords::new) {
        let stored = array.read_chunk(&coords)?;
        let is_missing = stored.is_none();
        let chunk = stored.map_or_else(|| array.fill_chunk(&coords), |(chunk, _)| Ok(chunk))?;
        let elements: Vec<&[u8]> = match array.chunk_len(&coords)? {
            ChunkLen::Exactly(_) => chunk.chunks(dtype.item_len()).collect(),
            ChunkLen::UpTo(_) => vlen::elements(&chunk).map(|element| &element[4..]).collect(),
        };
        let chunk_shape = array.chunk_shape_at(&coords)?;
        let start: Vec<u64> = (0..shape.len()).map(|axis| start(array, &coords, axis)).collect();
        for within in places(&chunk_shape) {
            let place: Vec<u64> = start.iter().zip(&within).map(|(start, i)| start + i).collect();
            if place.iter().zip(&shape).any(|(i, len)| i >= len) {
                continue;
            }
            let to = flat(&place, &shape);
            items[to] = elements[flat(&within, &chunk_shape)].to_vec();
            missing[to] = is_missing;
        }
    }
    Ok((FixtureElements { shape, dtype, items }, missing))
}

/// Returns the first element of a chunk along a dimension, the sum of the chunk lengths before it.
fn start(array: &Array, coords: &Coords, axis: usize) -> u64 {
    let before = (0..coords.indices()[axis]).map(|index| {
        let mut indices = coords.indices().to_vec();
        indices[axis] = index;
        array.chunk_shape_at(&Coords::new(indices)).expect("a chunk")[axis]
    });
    before.sum()
}

/// Sets all NaN payloads to the same value, because producers differ in them.
fn without_payloads(bytes: &mut [u8], dtype: &DType) {
    if !matches!(dtype, DType::Float(_) | DType::Complex(_)) {
        return;
    }
    for number in bytes.chunks_exact_mut(dtype.component_len()) {
        let is_nan = match *number {
            [a, b] => {
                let bits = u16::from_le_bytes([a, b]);
                bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0
            }
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).is_nan(),
            _ => f64::from_le_bytes((&*number).try_into().expect("eight bytes")).is_nan(),
        };
        if is_nan {
            number.fill(0xff);
        }
    }
}

/// Compares an array with the expected values; returns the reason if it cannot be read.
fn compare(case: &Case, path: &str, entry: &Json) -> Result<()> {
    let hierarchy = case.open()?;
    let node = hierarchy.existing(&NodePath::parse(path.trim_start_matches('/'))?)?;
    let array = match node.content() {
        Content::Array(array) => array,
        Content::NotUnderstood(_, error) => return Err(error.clone()),
        Content::Group(_) => panic!("{} {path}: a group", case.name),
    };
    let (mut found, missing) = read(array)?;
    let file = entry.get("file").and_then(Json::as_str).expect("a file");
    let mut want = npy(&case.dir.join(file));
    assert_eq!(found.shape, want.shape, "{} {path}", case.name);
    let dtype = &array.model().dtype;
    if dtype.is_variable() {
        want = want.unpadded(dtype);
    }
    if entry.get("raw_bits_of").is_none() {
        for item in found.items.iter_mut().chain(&mut want.items) {
            without_payloads(item, dtype);
        }
    }
    let undefined = entry.get("undefined_where_missing") == Some(&Json::Bool(true));
    assert_eq!(found.items.len(), want.items.len(), "{} {path}", case.name);
    let elements = found.items.into_iter().zip(want.items).zip(missing);
    for (i, ((found, want), missing)) in elements.enumerate() {
        assert!(
            found == want || missing && undefined,
            "{} {path}, element {i}: {found:x?}, wanted {want:x?}",
            case.name
        );
    }
    Ok(())
}

#[test]
fn every_array_that_another_program_wrote_reads_as_it_was_written() {
    let mut compared = 0;
    let mut refused = BTreeMap::new();
    for case in Case::all().into_iter().filter(|case| !case.must_reject()) {
        for (path, entry) in case.arrays() {
            match compare(&case, &path, &entry) {
                Ok(()) => compared += 1,
                Err(error) => drop(refused.insert((case.name.clone(), path), error.to_string())),
            }
        }
    }
    let listed: BTreeSet<_> = NOT_UNDERSTOOD
        .iter()
        .map(|(case, path, _)| ((*case).to_owned(), (*path).to_owned()))
        .collect();
    let found: BTreeSet<_> = refused.keys().cloned().collect();
    assert_eq!(found, listed, "not read, and listed as such, of {compared}: {refused:#?}");
    for (case, path, reason) in NOT_UNDERSTOOD {
        let error = &refused[&((*case).to_owned(), (*path).to_owned())];
        assert!(error.contains(reason), "{case} {path}: {error}");
    }
    assert!(compared > 200, "{compared} arrays");
}

/// Reads everything below a group, up to the first error.
fn read_all(hierarchy: &Hierarchy, path: &NodePath) -> Result<()> {
    let node = hierarchy.existing(path)?;
    match node.content() {
        Content::NotUnderstood(_, error) => Err(error.clone()),
        Content::Array(array) => read(array).map(drop),
        Content::Group(_) => {
            for child in hierarchy.children(path)? {
                read_all(hierarchy, child?.path())?;
            }
            Ok(())
        }
    }
}

#[test]
fn invalid_hierarchies_are_never_read() {
    let reasons = [
        ("synth__reject_crc32c_bad", "c/0/0: crc32c: checksum"),
        ("synth__reject_dtype", "data type \"int33\" is not known"),
        ("synth__reject_entry_major_4", "version 4.0"),
        ("synth__reject_entry_must_understand", "extension \"http://example.org/x\""),
        ("synth__reject_grid", "chunk grid \"hexagonal\""),
        ("synth__reject_short_chunk", "47 bytes decoded, the chunk needs 48"),
        ("synth__reject_unknown_codec", "codec \"example.codec\""),
        ("synth__reject_unknown_member", "member \"surprise\""),
    ];
    let rejected: Vec<Case> = Case::all().into_iter().filter(Case::must_reject).collect();
    assert_eq!(rejected.len(), reasons.len());
    for (case, (name, reason)) in rejected.into_iter().zip(reasons) {
        assert_eq!(case.name, name);
        let read = case.open().and_then(|hierarchy| read_all(&hierarchy, &NodePath::root()));
        let error = read.expect_err(name).to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
}
