//! A model of views of every format that stay open while their nodes change: a view is read and
//! written as it was opened, or it is gone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};

use crate::support::{Mount, sequences, set_xattr};

/// Elements of `x`, each of two bytes.
const COUNT: usize = 300;
const PIECE: usize = 97;

/// Files of other formats that hold the elements of `x` one after another.
const NAMES: [&str; 17] = [
    "m/x.npy",
    "m/x.raw",
    "m/x.nc",
    "m/x.nc4",
    "m/x.h5",
    "m/x.nrrd",
    "m/x.mha",
    "m/x.tif",
    "m/x.ome.tif",
    "m/x.nii",
    "m/x.mrc",
    "m/x.fits",
    "m/x.vti",
    "m.nc",
    "m.nc4",
    "m.h5",
    "m.safetensors",
];

#[derive(Debug, Clone)]
enum Step {
    /// Opens a view, and maps it or not.
    Open {
        name: usize,
        is_mapped: bool,
    },
    /// Writes an element through an open view.
    Write {
        view: usize,
        at: usize,
    },
    /// Writes an element to its chunk.
    WriteChunk(usize),
    /// Reads an open view.
    Read(usize),
    Close(usize),
    /// Opens every view anew: it shows what is stored.
    ReadAll,
    Change(Change),
}

/// What is done to the nodes.
#[derive(Debug, Clone)]
enum Change {
    /// An attribute of so many bytes through the mount, of `x` or of its group.
    Attribute {
        of_group: bool,
        len: usize,
    },
    /// One of `x` in the store.
    AttributeOutside(usize),
    /// The name of its dimension, in the store.
    Dimension(bool),
    /// An array beside it.
    Add,
    Remove,
    Rename,
    /// Another array takes the name of `x`: of another type, or with other chunks, or of another
    /// shape.
    Replace {
        with: usize,
        is_outside: bool,
    },
    Resize(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![
        2 => (any::<bool>(), 0..3000_usize)
            .prop_map(|(of_group, len)| Change::Attribute { of_group, len }),
        2 => (0..3000_usize).prop_map(Change::AttributeOutside),
        1 => any::<bool>().prop_map(Change::Dimension),
        1 => Just(Change::Add),
        1 => Just(Change::Remove),
        1 => Just(Change::Rename),
        1 => (0..3_usize, any::<bool>())
            .prop_map(|(with, is_outside)| Change::Replace { with, is_outside }),
        1 => any::<bool>().prop_map(Change::Resize),
    ];
    prop_oneof![
        6 => (0..NAMES.len(), any::<bool>())
            .prop_map(|(name, is_mapped)| Step::Open { name, is_mapped }),
        6 => (0..8_usize, 0..COUNT).prop_map(|(view, at)| Step::Write { view, at }),
        2 => (0..COUNT).prop_map(Step::WriteChunk),
        6 => (0..8_usize).prop_map(Step::Read),
        2 => (0..8_usize).prop_map(Step::Close),
        1 => Just(Step::ReadAll),
        6 => change.prop_map(Step::Change),
    ]
}

/// How `x` is made: its elements are those of the model if it has the first of these.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    dtype: &'static str,
    shape: usize,
    chunk: usize,
}

const KINDS: [Kind; 4] = [
    Kind { dtype: "int16", shape: COUNT, chunk: 30 },
    Kind { dtype: "int16", shape: COUNT, chunk: 60 },
    Kind { dtype: "uint16", shape: COUNT, chunk: 30 },
    Kind { dtype: "int16", shape: COUNT - 30, chunk: 30 },
];

fn document(kind: Kind) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [kind.shape], "data_type": kind.dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [kind.chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {}
    })
}

/// Memory that a file is mapped to, to be read.
struct Mapped(*mut u8, usize);

impl Mapped {
    fn new(file: &File, len: usize) -> Self {
        // SAFETY: the kernel chooses the place; the descriptor is open.
        let address = unsafe {
            let null = std::ptr::null_mut();
            libc::mmap(null, len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(address, libc::MAP_FAILED);
        Self(address.cast(), len)
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: so many bytes are mapped there until this is dropped.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.to_vec()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// A view that is open.
struct View {
    name: &'static str,
    file: File,
    mapped: Option<Mapped>,
    /// What it was when it was opened.
    whole: Vec<u8>,
    /// Where its elements are, and whether they are big endian.
    elements: Range<usize>,
    is_big: bool,
    /// What the array `x` was, and how many there had been of the name.
    kind: Kind,
    epoch: usize,
    /// How often another array of the view had gone.
    gone: usize,
    /// How many values each element had had.
    seen: Vec<usize>,
}

impl View {
    fn element(&self, bytes: &[u8], at: usize) -> u16 {
        let start = self.elements.start + 2 * at;
        let bytes = [bytes[start], bytes[start + 1]];
        if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

fn serialized(elements: &[u16], is_big: bool) -> Vec<u8> {
    let bytes = |at: &u16| if is_big { at.to_be_bytes() } else { at.to_le_bytes() };
    elements.iter().flat_map(bytes).collect()
}

/// Where `part` is in `whole`.
fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    whole.windows(part.len()).position(|window| window == part)
}

struct Model {
    mount: Mount,
    kind: Kind,
    epoch: usize,
    /// All values that each element of the array has had, the last one last.
    values: Vec<Vec<u16>>,
    views: Vec<View>,
    has_other: Option<&'static str>,
    /// How often it was removed or renamed.
    gone: usize,
    next: u16,
}

impl Model {
    fn new(codecs: &str) -> Self {
        let mut mount = Mount::new(&["--create", "--codecs", codecs]);
        mount.expect("the array has changed since the file was opened");
        fs::create_dir(mount.at("m")).unwrap();
        fs::create_dir_all(mount.at("m/x")).unwrap();
        fs::write(mount.at("m/x/zarr.json"), document(KINDS[0]).to_string()).unwrap();
        mount.remount(&["--metadata-ttl=0s", "--writeback=sync"]);
        let mut model = Self {
            mount,
            kind: KINDS[0],
            epoch: 0,
            values: Vec::new(),
            views: Vec::new(),
            has_other: None,
            gone: 0,
            next: 0x101,
        };
        model.fill();
        model
    }

    fn value(&mut self) -> u16 {
        self.next = if self.next > 0x7eff { 0x101 } else { self.next + 1 };
        self.next
    }

    fn current(&self) -> Vec<u16> {
        self.values.iter().map(|values| *values.last().unwrap()).collect()
    }

    /// Writes all elements of the array that is there now.
    fn fill(&mut self) {
        // A program that knows an older array stores no chunks of it in this one.
        fs::read(self.mount.at("m/x/zarr.json")).unwrap();
        let elements: Vec<u16> = (0..self.kind.shape).map(|_| self.value()).collect();
        fs::create_dir_all(self.mount.at("m/x/c")).unwrap();
        for (number, chunk) in elements.chunks(self.kind.chunk).enumerate() {
            let path = self.mount.at(&format!("m/x/c/{number}"));
            fs::write(path, serialized(chunk, false)).unwrap();
        }
        self.values = elements.into_iter().map(|value| vec![value]).collect();
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Open { name, is_mapped } if self.views.len() < 8 => {
                let view = self.open(NAMES[*name], *is_mapped);
                self.views.extend(view);
            }
            Step::Write { view, at } => self.write(*view, *at),
            Step::WriteChunk(at) => self.write_chunk(*at % self.kind.shape),
            Step::Read(view) => self.read(*view),
            Step::Close(view) if *view < self.views.len() => drop(self.views.remove(*view)),
            Step::Open { .. } | Step::Close(_) => {}
            Step::ReadAll => self.read_all(),
            Step::Change(change) => self.change(change),
        }
    }

    /// Opens a view, which shows what is stored; none where the array has no such view.
    fn open(&self, name: &'static str, is_mapped: bool) -> Option<View> {
        let file = match OpenOptions::new().read(true).write(true).open(self.mount.at(name)) {
            Ok(file) => file,
            Err(error) => {
                // Some formats have no unsigned numbers.
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}: {error}");
                assert!(self.kind.dtype == "uint16", "{name} is missing");
                return None;
            }
        };
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let mut whole = vec![0; len];
        file.read_exact_at(&mut whole, 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        let current = self.current();
        let found = [false, true].into_iter().find_map(|is_big| {
            let part = serialized(&current, is_big);
            Some((is_big, find(&whole, &part)?))
        });
        if found.is_none() && self.kind.dtype == "uint16" {
            return None; // Some store them as signed numbers and an offset.
        }
        let (is_big, start) = found.unwrap_or_else(|| panic!("{name} shows other elements"));
        Some(View {
            name,
            mapped: is_mapped.then(|| Mapped::new(&file, len)),
            file,
            whole,
            elements: start..start + 2 * current.len(),
            is_big,
            kind: self.kind,
            epoch: self.epoch,
            gone: if name.starts_with("m/") { usize::MAX } else { self.gone },
            seen: self.values.iter().map(Vec::len).collect(),
        })
    }

    fn write(&mut self, view: usize, at: usize) {
        let new = self.value();
        let Some(view) = self.views.get(view) else { return };
        let at = at % (view.elements.len() / 2);
        let bytes = if view.is_big { new.to_be_bytes() } else { new.to_le_bytes() };
        let offset = u64::try_from(view.elements.start + 2 * at).unwrap();
        let written = view.file.write_all_at(&bytes, offset).and_then(|()| view.file.sync_all());
        match written {
            // One that is again what it was is as good as the old one.
            Ok(()) => {
                assert_eq!(
                    view.kind, self.kind,
                    "{}: written to an array that has gone",
                    view.name
                );
                self.values[at].push(new);
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{}: {error}", view.name);
                assert!(view.epoch != self.epoch, "{}: {error}", view.name);
            }
        }
    }

    fn write_chunk(&mut self, at: usize) {
        let new = self.value();
        let chunk = self.mount.at(&format!("m/x/c/{}", at / self.kind.chunk));
        let file = OpenOptions::new().write(true).open(chunk).unwrap();
        let offset = u64::try_from(2 * (at % self.kind.chunk)).unwrap();
        file.write_all_at(&new.to_le_bytes(), offset).unwrap();
        self.values[at].push(new);
    }

    /// What is read of an open view is what it was when it was opened, with elements that have been
    /// written since; of one that has gone nothing else is read.
    fn read(&self, view: usize) {
        let Some(view) = self.views.get(view) else { return };
        let mut found = view.whole.clone();
        for start in (0..found.len()).step_by(PIECE) {
            let end = found.len().min(start + PIECE);
            let piece = &mut found[start..end];
            let read = view.file.read_exact_at(piece, u64::try_from(start).unwrap());
            if let Err(error) = read {
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{}: {error}", view.name);
                assert!(self.has_gone(view), "{} has gone", view.name);
                // The kernel may have read a part of it.
                piece.copy_from_slice(&view.whole[start..end]);
            }
        }
        self.check(view, &found);
        if let Some(mapped) = &view.mapped
            && !self.has_gone(view)
        {
            self.check(view, &mapped.bytes());
        }
    }

    /// Whether some of its pages cannot be read any more.
    fn has_gone(&self, view: &View) -> bool {
        view.epoch != self.epoch || view.gone < self.gone
    }

    fn check(&self, view: &View, found: &[u8]) {
        let (header, rest) = (..view.elements.start, view.elements.end..);
        assert!(found[header] == view.whole[header], "{}: another header", view.name);
        assert!(found[rest.clone()] == view.whole[rest], "{}: another end", view.name);
        for at in 0..view.elements.len() / 2 {
            let element = view.element(found, at);
            let was = view.element(&view.whole, at);
            let since = (view.epoch == self.epoch).then(|| &self.values[at][view.seen[at] - 1..]);
            let again = (view.kind == self.kind).then(|| &self.values[at][..]);
            let since = since.or(again);
            // Of an array that has gone the model does not know what was written.
            let is_right = since.is_none_or(|since| since.contains(&element)) || element == was;
            assert!(is_right, "{}: element {at} is {element}, was {was}", view.name);
        }
    }

    fn read_all(&self) {
        for name in NAMES {
            drop(self.open(name, false));
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Attribute { of_group, len } => {
                let node = self.mount.at(if *of_group { "m" } else { "m/x" });
                set_xattr(&node, "user.attrs.note", &json!("y".repeat(*len)).to_string()).unwrap();
            }
            Change::AttributeOutside(len) => {
                self.edit_stored(|stored| stored["attributes"] = json!({"note": "y".repeat(*len)}));
            }
            Change::Dimension(is_long) => {
                let name = if *is_long { "a long name of a dimension" } else { "d" };
                self.edit_stored(|stored| stored["dimension_names"] = json!([name]));
            }
            Change::Add | Change::Remove | Change::Rename => self.change_other(change),
            Change::Replace { with, is_outside } => self.replace(*with, *is_outside),
            Change::Resize(is_outside) => self.resize(*is_outside),
        }
    }

    /// Changes the metadata file in the store, as another program does.
    fn edit_stored(&self, edit: impl FnOnce(&mut Value)) {
        let path = self.mount.store().join("m/x/zarr.json");
        let mut stored: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        edit(&mut stored);
        put(&path, &stored);
    }

    fn change_other(&mut self, change: &Change) {
        let m = self.mount.at("m");
        let at = |name: &str| m.join(name);
        self.has_other = match (change, self.has_other) {
            (Change::Add, None) => {
                fs::create_dir_all(at("other/c")).unwrap();
                let kind = Kind { shape: 70, ..KINDS[0] };
                fs::write(at("other/zarr.json"), document(kind).to_string()).unwrap();
                Some("other")
            }
            (Change::Remove, Some(name)) => {
                self.gone += 1;
                fs::remove_dir_all(at(name)).unwrap();
                None
            }
            (Change::Rename, Some(name)) => {
                self.gone += 1;
                let new = if name == "other" { "another" } else { "other" };
                fs::rename(at(name), at(new)).unwrap();
                Some(new)
            }
            (_, unchanged) => unchanged,
        };
    }

    fn replace(&mut self, with: usize, is_outside: bool) {
        let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| *kind != self.kind).collect();
        self.kind = kinds[with % kinds.len()];
        self.epoch += 1;
        if is_outside {
            let path = self.mount.store().join("m/x");
            fs::remove_dir_all(&path).unwrap();
            fs::create_dir(&path).unwrap();
            put(&path.join("zarr.json"), &document(self.kind));
        } else {
            fs::remove_dir_all(self.mount.at("m/x")).unwrap();
            fs::create_dir_all(self.mount.at("m/x")).unwrap();
            let text = document(self.kind).to_string();
            fs::write(self.mount.at("m/x/zarr.json"), text).unwrap();
        }
        self.fill();
    }

    /// Gives the array a chunk more or less.
    fn resize(&mut self, is_outside: bool) {
        if self.kind.chunk != 30 {
            return;
        }
        self.kind.shape = if self.kind.shape == COUNT { COUNT - 30 } else { COUNT };
        self.epoch += 1;
        let shape = json!([self.kind.shape]);
        if is_outside {
            self.edit_stored(|stored| stored["shape"] = shape);
        } else {
            let path = self.mount.at("m/x/zarr.json");
            let mut shown: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            shown["shape"] = shape;
            fs::write(&path, shown.to_string()).unwrap();
        }
        self.fill();
    }
}

/// Replaces a file of the store.
fn put(path: &Path, value: &Value) {
    let new = path.with_extension("partial");
    fs::write(&new, value.to_string()).unwrap();
    fs::rename(&new, path).unwrap();
}

fn config() -> Config {
    Config {
        cases: sequences(6, 200),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_open_view_of_any_format_stays_the_same_or_fails(
        is_compressed in any::<bool>(),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        let mut model = Model::new(if is_compressed { "gzip" } else { "none" });
        for step in &steps {
            model.run(step);
        }
        for view in 0..model.views.len() {
            model.read(view);
        }
        model.views.clear();
        model.mount.remount(&[]);
        model.read_all();
    }
}
