//! The tree and the store match a simple model, whatever programs do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::bed::{CHUNK_LEN, VfsBed};
use crate::error::{Error, Kind};
use crate::vfs::{Access, Ownership, Pages, Writeback};
use crate::width::ToU64;

const NAMES: [&str; 10] = [
    "plain/c/0",
    "plain/c/1",
    "sharded/c/0",
    "sharded/c/1",
    "sharded/c/2",
    "plain/one",
    "plain/two",
    "three",
    "encoded/c/0",
    "encoded/c/1",
];

/// What programs do. Numbers wrap: every one of them names a name or a handle.
#[derive(Debug, Clone)]
enum ModelStep {
    Create(usize),
    Open(usize, Access),
    Write(usize, usize, Vec<u8>),
    Truncate(usize, usize),
    Flush(usize),
    Fsync(usize),
    Close(usize),
    Unlink(usize),
    Rename(usize, usize),
    Link(usize, usize),
    /// Another mount stores a chunk, or erases it.
    Behind(usize, Option<u8>),
    /// Something is written to the elements of an array as one file, which is closed then; it may
    /// be cut to nothing before.
    View {
        sharded: bool,
        cut: bool,
        offset: usize,
        data: Vec<u8>,
    },
    SyncAll,
    Tick,
    Forget(usize),
    Remount,
}

fn step() -> impl Strategy<Value = ModelStep> {
    let n = 0_usize..64;
    let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Truncate)];
    prop_oneof![
        4 => n.clone().prop_map(ModelStep::Create),
        4 => (n.clone(), access).prop_map(|(n, access)| ModelStep::Open(n, access)),
        8 => (n.clone(), 0_usize..5, prop::collection::vec(any::<u8>(), 1..5))
            .prop_map(|(n, offset, data)| ModelStep::Write(n, offset, data)),
        3 => (n.clone(), 0_usize..6).prop_map(|(n, len)| ModelStep::Truncate(n, len)),
        1 => n.clone().prop_map(ModelStep::Flush),
        1 => n.clone().prop_map(ModelStep::Fsync),
        6 => n.clone().prop_map(ModelStep::Close),
        2 => n.clone().prop_map(ModelStep::Unlink),
        4 => (n.clone(), n.clone()).prop_map(|(from, to)| ModelStep::Rename(from, to)),
        1 => (n.clone(), n.clone()).prop_map(|(from, to)| ModelStep::Link(from, to)),
        2 => (n.clone(), any::<Option<u8>>()).prop_map(|(n, byte)| ModelStep::Behind(n, byte)),
        4 => (any::<[bool; 2]>(), 0_usize..12, prop::collection::vec(any::<u8>(), 1..13))
            .prop_map(|([sharded, cut], offset, data)| ModelStep::View { sharded, cut, offset, data }),
        1 => Just(ModelStep::SyncAll),
        1 => Just(ModelStep::Tick),
        1 => n.prop_map(ModelStep::Forget),
        1 => Just(ModelStep::Remount),
    ]
}

/// A file of the model: what its openers see, and what the store has.
#[derive(Debug, Default, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one file")]
struct ModelFile {
    name: Option<&'static str>,
    bytes: Vec<u8>,
    changed: bool,
    stored: Option<Vec<u8>>,
    openers: usize,
    writers: usize,
    /// Whether it was an encoded chunk when it was opened last.
    was_encoded: bool,
    /// Whether a close or `fsync` came after the last write.
    settled: bool,
    /// Whether that said that it is no chunk: who comes now sees what is stored.
    refused: bool,
}

impl ModelFile {
    fn cut(&mut self, len: usize) {
        if self.bytes.len() != len || len == 0 && !self.changed {
            self.bytes.resize(len, 0);
            self.touch();
        }
    }

    fn touch(&mut self) {
        (self.changed, self.settled, self.refused) = (true, false, false);
    }

    fn seen_anew(&self) -> &Vec<u8> {
        self.stored.as_ref().filter(|_| self.refused && self.changed).unwrap_or(&self.bytes)
    }
}

#[derive(Debug, Clone)]
struct Open {
    handle: u64,
    number: u64,
    file: usize,
    access: Access,
    /// What it reads whatever others write: of a file that was refused when it was opened, or that
    /// the kernel reads.
    kept: Option<Vec<u8>>,
    /// Whether the kernel reads it by itself.
    uses_passthrough: bool,
    /// Whether it is read through the kernel's pages.
    is_paged: bool,
}

#[derive(Default)]
struct Model {
    /// Chunks that the store may not have as they are here.
    waiting: BTreeSet<&'static str>,
    files: Vec<ModelFile>,
    names: BTreeMap<&'static str, usize>,
    open: Vec<Open>,
    /// Whether chunks that are in no shard wait to be stored, too.
    all_wait: bool,
}

/// The chunks that are stored together with this one.
fn beside(name: &str) -> &'static [&'static str] {
    match name {
        "sharded/c/0" | "sharded/c/1" => &["sharded/c/0", "sharded/c/1"],
        "sharded/c/2" => &["sharded/c/2"],
        "plain/c/0" => &["plain/c/0"],
        "plain/c/1" => &["plain/c/1"],
        "encoded/c/0" => &["encoded/c/0"],
        "encoded/c/1" => &["encoded/c/1"],
        _ => &[],
    }
}

/// Whether a file of so many bytes can be stored under this name: a chunk has its length, and an
/// encoded one any but none.
fn fits(name: Option<&str>, len: usize) -> bool {
    match name {
        Some(name) if name.starts_with("encoded/c/") => len > 0,
        name => !is_chunk(name) || len == CHUNK_LEN,
    }
}

/// Whether no file of this name may have so many bytes.
fn is_too_long(name: Option<&str>, len: usize) -> bool {
    is_chunk(name) && len > CHUNK_LEN && !name.is_some_and(|name| name.starts_with("encoded/"))
}

/// The chunks of an array that have names here.
fn chunks_of(sharded: bool) -> &'static [&'static str] {
    if sharded { &NAMES[2..5] } else { &NAMES[..2] }
}

fn view_of(sharded: bool) -> &'static str {
    if sharded { "sharded.raw" } else { "plain.raw" }
}

fn is_sharded(name: &str) -> bool {
    name.starts_with("sharded/c/")
}

/// Whether it was done; that a broken store did not take something is no mistake.
fn done(broken: bool, result: Result<(), Error>, want: bool) -> Result<bool, TestCaseError> {
    match result {
        Err(error) if broken && error.errno() == libc::ENOSPC => Ok(false),
        result => {
            prop_assert_eq!(result.is_ok(), want, "{:?}", result);
            Ok(true)
        }
    }
}

fn is_chunk(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.contains("/c/"))
}

impl Model {
    fn of(bed: &VfsBed) -> Self {
        bed.put_encoded();
        bed.show_encoded();
        Self { all_wait: bed.writeback == Writeback::All, ..Self::default() }
    }

    /// What storing a file comes to; whether it was possible.
    fn store(&mut self, file: usize) -> bool {
        let file = &mut self.files[file];
        if file.name.is_none() || !file.changed {
            return true;
        }
        if !fits(file.name, file.bytes.len()) {
            return false;
        }
        file.stored = Some(file.bytes.clone());
        file.changed = false;
        // Until it is known that the store has taken it.
        self.waiting.extend(file.name.filter(|name| is_chunk(Some(name))));
        true
    }

    /// The store has what waited for the same value.
    fn settle(&mut self, name: Option<&str>) {
        for name in name.map(beside).unwrap_or_default() {
            self.waiting.remove(name);
        }
    }

    /// The file was stored, if it is none that waits.
    fn settle_at_once(&mut self, name: Option<&str>) {
        if name.is_some_and(|name| !self.waits(name)) {
            self.settle(name);
        }
    }

    /// Whether what is closed under this name may wait to be stored.
    fn waits(&self, name: &str) -> bool {
        is_sharded(name) || self.all_wait && is_chunk(Some(name))
    }

    fn flush(&mut self, open: &Open) -> bool {
        self.files[open.file].settled |= open.access != Access::Read;
        let waits = !is_chunk(self.files[open.file].name);
        open.access == Access::Read || waits || self.store_or_refuse(open.file)
    }

    /// Like [`Self::store`], for a close that reports the error.
    fn store_or_refuse(&mut self, file: usize) -> bool {
        let is_stored = self.store(file);
        self.files[file].refused = !is_stored;
        is_stored
    }

    fn release(&mut self, open: &Open) {
        let file = &mut self.files[open.file];
        file.openers -= usize::from(!open.uses_passthrough);
        file.writers -= usize::from(open.access != Access::Read);
        if file.openers == 0 && is_chunk(file.name) && file.changed {
            file.changed = false;
            match file.stored.clone() {
                Some(stored) => file.bytes = stored,
                None => drop(file.name.take().and_then(|name| self.names.remove(name))),
            }
        }
    }

    fn unname(&mut self, name: &str) {
        if let Some(file) = self.names.remove(name) {
            self.files[file].name = None;
        }
    }
}

fn apply(bed: &mut VfsBed, model: &mut Model, step: &ModelStep) -> Result<(), TestCaseError> {
    let broken = bed.store.broken.load(Ordering::Relaxed) > 0;
    let name = |n: &usize| NAMES[n % NAMES.len()];
    let slot = |model: &Model, n: &usize| match model.open.len() {
        0 => None,
        len => Some((n % len, model.open[n % len].clone())),
    };
    match step {
        ModelStep::Create(n) => {
            let (parent, last) = bed.place(name(n));
            let (attr, opened) = bed
                .vfs
                .create(parent, last, Ownership::of_process(0o644), Access::Truncate, false)
                .expect("made");
            let file = *model.names.entry(name(n)).or_insert_with(|| {
                model.files.push(ModelFile { name: Some(name(n)), ..ModelFile::default() });
                model.files.len() - 1
            });
            let (handle, number, access) = (opened.handle, attr.number, Access::Truncate);
            let known = &mut model.files[file];
            known.was_encoded = name(n).starts_with("encoded/");
            known.openers += 1;
            known.writers += 1;
            known.cut(0);
            let (kept, uses_passthrough, is_paged) = (None, false, opened.pages != Pages::None);
            model.open.push(Open {
                handle,
                number,
                file,
                access,
                kept,
                uses_passthrough,
                is_paged,
            });
        }
        ModelStep::Open(n, access) => {
            let Some(&file) = model.names.get(name(n)) else {
                prop_assert_eq!(bed.find(name(n)).expect_err("no such").kind(), Kind::NotFound);
                return Ok(());
            };
            let (number, opened) = bed.open_found(name(n), *access).expect("opened");
            let uses_passthrough = opened.backing.is_some();
            let known = &mut model.files[file];
            // A handle with passthrough keeps the bytes of its open, and is not one of those that
            // share unstored bytes.
            known.was_encoded = name(n).starts_with("encoded/");
            known.openers += usize::from(!uses_passthrough);
            known.writers += usize::from(*access != Access::Read);
            if *access == Access::Truncate {
                known.cut(0);
            }
            let is_kept =
                uses_passthrough || *access == Access::Read && known.refused && known.changed;
            let kept = is_kept.then(|| known.stored.clone()).flatten();
            let (handle, access) = (opened.handle, *access);
            let is_paged = !uses_passthrough && opened.pages != Pages::None;
            model.open.push(Open {
                handle,
                number,
                file,
                access,
                kept,
                uses_passthrough,
                is_paged,
            });
        }
        ModelStep::Write(n, offset, data) => {
            let Some((_, open)) = slot(model, n).filter(|(_, o)| o.access != Access::Read) else {
                return Ok(());
            };
            let file = &mut model.files[open.file];
            let end = offset + data.len();
            let offset_64 = (*offset).to_u64();
            // The event loop tries it first.
            let written = match bed.vfs.try_write(open.handle, offset_64, data) {
                Ok(true) => Ok(()),
                Ok(false) => bed.vfs.write(open.handle, offset_64, data),
                Err(error) => Err(error),
            };
            if is_too_long(file.name, end) {
                prop_assert_eq!(written.expect_err("too long").kind(), Kind::TooLarge);
                if file.changed {
                    // The rest may be the first part of no chunk: the program begins again.
                    bed.vfs.attr_writer().truncate(open.number, 0).expect("cut");
                    file.cut(0);
                }
                return Ok(());
            }
            written.expect("written");
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[*offset..end].copy_from_slice(data);
            file.touch();
        }
        ModelStep::Truncate(n, len) => {
            let Some((_, open)) = slot(model, n).filter(|(_, o)| o.access != Access::Read) else {
                return Ok(());
            };
            let file = &mut model.files[open.file];
            let cut = bed.vfs.attr_writer().truncate(open.number, (*len).to_u64());
            if is_too_long(file.name, *len) {
                prop_assert_eq!(cut.expect_err("too long").kind(), Kind::TooLarge);
                return Ok(());
            }
            cut.expect("cut");
            file.cut(*len);
        }
        ModelStep::Flush(n) => {
            let Some((_, open)) = slot(model, n) else { return Ok(()) };
            let (flushed, want) = (bed.vfs.flush(open.handle), model.flush(&open));
            if done(broken, flushed, want)? && want && open.access != Access::Read {
                model.settle_at_once(model.files[open.file].name);
            }
        }
        ModelStep::Fsync(n) => {
            let Some((_, open)) = slot(model, n) else { return Ok(()) };
            if open.uses_passthrough {
                // What others write since is another file.
                done(broken, bed.vfs.fsync(open.handle), true)?;
                return Ok(());
            }
            model.files[open.file].settled = true;
            let (synced, want) = (bed.vfs.fsync(open.handle), model.store_or_refuse(open.file));
            if done(broken, synced, want)? && want {
                model.settle(model.files[open.file].name);
            }
        }
        ModelStep::Close(n) => {
            let Some((at, open)) = slot(model, n) else { return Ok(()) };
            model.open.remove(at);
            let (closed, want) = (bed.close(open.handle), model.flush(&open));
            if done(broken, closed, want)? && want && open.access != Access::Read {
                model.settle_at_once(model.files[open.file].name);
            }
            model.release(&open);
        }
        ModelStep::Unlink(n) => {
            let is_stored = model.waits(name(n))
                && (model.waiting.contains(name(n)) || bed.other().find(name(n)).is_ok());
            let removed = bed.unlink(name(n));
            prop_assert_eq!(removed.is_ok(), model.names.contains_key(name(n)));
            model.unname(name(n));
            if removed.is_ok() {
                model.waiting.remove(name(n));
                model.waiting.extend(is_stored.then_some(name(n)));
            }
        }
        ModelStep::Link(from, to) => {
            let (from, to) = (name(from), name(to));
            let Some(file) = model.names.get(from).map(|file| model.files[*file].clone()) else {
                return Ok(());
            };
            let number = bed.find(from).expect("there");
            let (parent, last) = bed.place(to);
            let linked = bed.vfs.link(number, parent, last).map(drop);
            let want = !model.names.contains_key(to) && fits(Some(to), file.bytes.len());
            if done(broken, linked, want)? && want {
                let changed = !is_chunk(Some(to));
                let stored = (!changed).then(|| file.bytes.clone());
                let refused = false;
                let file = ModelFile {
                    name: Some(to),
                    stored,
                    changed,
                    openers: 0,
                    writers: 0,
                    refused,
                    ..file
                };
                model.files.push(file);
                model.names.insert(to, model.files.len() - 1);
                if model.waits(to) {
                    model.waiting.insert(to);
                }
                model.settle_at_once(Some(to));
            }
        }
        ModelStep::Behind(n, byte) => {
            let name = name(n);
            let known = model.names.get(name).copied();
            let is_open = known.is_some_and(|file| model.files[file].openers > 0);
            // What becomes of one that waits depends on how much of it was written:
            // `tests/it/outside_model.rs` has that.
            let waits = model.waiting.contains(name);
            if !is_chunk(Some(name)) || is_open || broken || waits {
                return Ok(());
            }
            let other = bed.other();
            other.show_encoded();
            let bytes = byte.map(|byte| vec![byte; CHUNK_LEN]);
            match &bytes {
                Some(bytes) => other.write(name, bytes).expect("stored"),
                None => other.unlink(name).unwrap_or_default(),
            }
            model.unname(name);
            if let Some(bytes) = bytes {
                let stored = Some(bytes.clone());
                model.files.push(ModelFile {
                    name: Some(name),
                    bytes,
                    stored,
                    ..ModelFile::default()
                });
                model.names.insert(name, model.files.len() - 1);
            }
        }
        ModelStep::View { sharded, cut, offset, data } => {
            let chunks = chunks_of(*sharded);
            let is_open = |name: &&str| {
                model.names.get(*name).is_some_and(|file| model.files[*file].openers > 0)
            };
            let end = offset + data.len();
            if chunks.iter().any(is_open) || end > chunks.len() * CHUNK_LEN {
                return Ok(());
            }
            let number = bed.find(view_of(*sharded)).expect("there");
            let access = if *cut { Access::Truncate } else { Access::Write };
            let handle = bed.vfs.open(number, access).expect("opened").handle;
            // In two pieces: the second one goes on where the first one ended.
            let halves = data.split_at(data.len() / 2);
            for (at, data) in [(*offset, halves.0), (offset + halves.0.len(), halves.1)] {
                bed.vfs.write(handle, at.to_u64(), data).expect("written");
            }
            let closed = bed.close(handle);
            // Skipped bytes are zero.
            let (data, offset) = match cut {
                true => ([vec![0; *offset], data.clone()].concat(), 0),
                false => (data.clone(), *offset),
            };
            for (chunk, name) in chunks.iter().enumerate() {
                let start = chunk * CHUNK_LEN;
                let touched = start.max(offset)..(start + CHUNK_LEN).min(end);
                if touched.is_empty() {
                    continue;
                }
                let file = *model.names.entry(name).or_insert_with(|| {
                    let bytes = vec![0; CHUNK_LEN];
                    model.files.push(ModelFile { name: Some(name), bytes, ..ModelFile::default() });
                    model.files.len() - 1
                });
                let file = &mut model.files[file];
                file.bytes[touched.start - start..touched.end - start]
                    .copy_from_slice(&data[touched.start - offset..touched.end - offset]);
                file.stored = Some(file.bytes.clone());
                model.waiting.insert(name);
            }
            let len = bed.vfs.getattr(number).expect("there").len;
            let is_whole = !cut || end.to_u64() == len;
            if done(broken, closed, is_whole)? {
                for name in chunks {
                    model.settle(Some(name));
                }
            }
        }
        ModelStep::Rename(from, to) => {
            let (from, to) = (name(from), name(to));
            // A program that has a chunk open must open it again when it moves to an array of
            // another form.
            let known = model.names.get(from).map(|file| &model.files[*file]);
            let was_encoded = known.is_some_and(|file| file.openers > 0 && file.was_encoded);
            let is_open = known.is_some_and(|file| file.openers > 0);
            let is_encoded = |name: &str| name.starts_with("encoded/");
            let changes_form = is_encoded(to) != was_encoded;
            if is_open && is_chunk(Some(to)) && changes_form {
                return Ok(());
            }
            let is_stored = model.waits(from)
                && (model.waiting.contains(from) || bed.other().find(from).is_ok());
            let renamed = bed.rename(from, to);
            let Some(&file) = model.names.get(from) else {
                prop_assert_eq!(renamed.expect_err("no such file").kind(), Kind::NotFound);
                return Ok(());
            };
            if from == to {
                renamed.expect("nothing to do");
                return Ok(());
            }
            if !fits(Some(to), model.files[file].bytes.len()) {
                prop_assert_eq!(renamed.expect_err("no chunk").kind(), Kind::Invalid);
                return Ok(());
            }
            if !done(broken, renamed, true)? {
                return Ok(());
            }
            model.unname(to);
            model.names.remove(from);
            if model.waits(to) {
                model.waiting.insert(to);
            }
            let file_was_stored = model.files[file].stored.is_some();
            if file_was_stored || !model.waits(from) {
                model.waiting.remove(from);
                model.waiting.extend(is_stored.then_some(from));
            }
            model.names.insert(to, file);
            let file = &mut model.files[file];
            (file.name, file.refused) = (Some(to), false);
            if is_chunk(Some(to)) || file.stored.is_some() {
                file.stored = Some(file.bytes.clone());
                file.changed = false;
            }
            model.settle_at_once(Some(to));
        }
        ModelStep::SyncAll | ModelStep::Tick => {
            for file in 0..model.files.len() {
                let known = &model.files[file];
                let is_done = known.writers == 0 || known.settled;
                if matches!(step, ModelStep::SyncAll) && is_done || !is_chunk(known.name) {
                    model.store(file);
                }
            }
            match step {
                ModelStep::Tick => bed.vfs.tick(),
                _ => drop(done(broken, bed.vfs.sync(), true)?),
            }
            let keys = bed.vfs.core.cache.due(crate::cache::Due::All);
            if keys.is_empty() {
                model.waiting.clear();
            }
        }
        ModelStep::Forget(n) => {
            let known = model.names.get(name(n)).map(|file| model.files[*file].openers);
            if known == Some(0) {
                bed.vfs.forget(bed.find(name(n)).expect("there"), u64::MAX);
            }
        }
        ModelStep::Remount if broken => {}
        ModelStep::Remount => {
            for open in std::mem::take(&mut model.open) {
                prop_assert_eq!(bed.close(open.handle).is_ok(), model.flush(&open));
                model.release(&open);
            }
            bed.vfs.sync().expect("synced");
            for file in 0..model.files.len() {
                model.store(file);
            }
            prop_assert_eq!(
                bed.vfs.contents.files.memory.unstored_len() + bed.vfs.core.cache.pending_len(),
                0
            );
            model.waiting.clear();
            bed.remount();
            bed.show_encoded();
        }
    }
    Ok(())
}

fn compare(bed: &VfsBed, model: &Model) -> Result<(), TestCaseError> {
    for name in NAMES {
        let file = model.names.get(name).map(|file| &model.files[*file]);
        let want = file.map(ModelFile::seen_anew);
        let found = match bed.open_found(name, Access::Read) {
            Ok((number, opened)) => {
                let uses_passthrough = opened.backing.is_some();
                let is_refused = |open: &Open| {
                    open.number == number
                        && if uses_passthrough { open.is_paged } else { open.uses_passthrough }
                };
                let refused = model.open.iter().find(|open| is_refused(open));
                prop_assert!(refused.is_none(), "{} in two ways: {:?}", name, refused);
                let found = bed.vfs.read(opened.handle, 0, 100).expect("read");
                bed.vfs.release(opened.handle);
                Some(found.to_vec())
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), Kind::NotFound, "{}: {}", name, error);
                None
            }
        };
        prop_assert_eq!(found.as_ref(), want, "{}", name);
        if let Some(file) = file {
            let want = &file.bytes;
            let attr = bed.vfs.getattr(bed.find(name).expect("there")).expect("told");
            prop_assert_eq!(attr.len, want.len().to_u64(), "{}", name);
        }
        // A chunk that is stored by itself is what was stored last.
        if let Some(file) =
            model.names.get(name).filter(|_| is_chunk(Some(name)) && !is_sharded(name))
            && !model.waiting.contains(name)
        {
            prop_assert_eq!(&bed.stored(name), &model.files[*file].stored, "{} in the store", name);
        }
    }
    for sharded in [false, true] {
        let whole = bed.read(view_of(sharded)).expect("read");
        for (name, found) in chunks_of(sharded).iter().zip(whole.chunks(CHUNK_LEN)) {
            let file = model.names.get(name).map(|file| &model.files[*file]);
            let want = file.and_then(|file| file.stored.clone());
            prop_assert_eq!(found, want.unwrap_or(vec![0; CHUNK_LEN]), "{} in the view", name);
        }
    }
    for open in &model.open {
        let read = bed.vfs.read(open.handle, 0, 100).expect("read");
        let want = open.kept.as_ref().unwrap_or(&model.files[open.file].bytes);
        prop_assert_eq!(read.as_ref(), &want[..], "{:?}", open);
    }
    Ok(())
}

/// How many sequences are tried: as many as `PROPTEST_CASES` says, if it says, and a sixth of
/// `most` without `ZARRFS_LONG=1`.
fn cases(most: u32) -> u32 {
    let is_long = std::env::var_os("ZARRFS_LONG").is_some_and(|long| long == "1");
    let usual = if is_long { most } else { most / 6 };
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), ..ProptestConfig::default() })]

    #[test]
    fn files_hold_the_written_bytes_live_and_after_a_remount(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        for mut bed in [VfsBed::new(), VfsBed::passing(), VfsBed::behind()] {
            let mut model = Model::of(&bed);
            for step in steps.iter().chain([&ModelStep::Remount]) {
                apply(&mut bed, &mut model, step)?;
                compare(&bed, &model)?;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100), ..ProptestConfig::default() })]

    #[test]
    fn a_failing_store_loses_nothing_and_continues_after_repair(
        steps in prop::collection::vec(step(), 1..40), good in 2_usize..20,
    ) {
        for mut bed in [VfsBed::new(), VfsBed::behind()] {
            let mut model = Model::of(&bed);
            bed.store.broken.store(good, Ordering::Relaxed);
            for step in &steps {
                apply(&mut bed, &mut model, step)?;
                compare(&bed, &model)?;
            }
            bed.store.broken.store(0, Ordering::Relaxed);
            for step in [ModelStep::SyncAll, ModelStep::Remount] {
                apply(&mut bed, &mut model, &step)?;
                compare(&bed, &model)?;
            }
        }
    }
}

#[test]
fn every_failing_set_is_reported_and_stored_values_stay() {
    for name in ["plain/c/0", "sharded/c/1", "plain/scratch"] {
        for nth in 1..6 {
            let mut bed = VfsBed::new();
            bed.write(name, b"aaaa").expect("stored");
            bed.vfs.sync().expect("stored");
            bed.store.fail_set.store(nth, Ordering::Relaxed);
            let mut want;
            let mut failures = 0;
            for byte in b'b'..b'h' {
                let new = [byte; 4];
                let open = bed.create(name).expect("opened");
                bed.vfs.write(open, 0, &new).expect("written");
                let stored = bed.vfs.fsync(open);
                if let Err(error) = &stored {
                    assert_eq!(error.errno(), libc::ENOSPC);
                    failures += 1;
                    assert_eq!(bed.vfs.read(open, 0, 4).expect("read").as_ref(), new);
                    // Said again, or stored by now: the fault was for once.
                    bed.vfs.fsync(open).expect("there is space again");
                }
                want = new;
                bed.close(open).expect("stored already");
                assert_eq!(bed.read(name).expect("read"), want, "{name}, set {nth}");
            }
            assert_eq!(failures, 1, "{name}, set {nth}: a failure was not told");
            // A chunk that could not be stored is kept, reported and retried.
            let stored = bed.stored("plain/c/0");
            bed.store.fail_set.store(1, Ordering::Relaxed);
            let open = bed.create(name).expect("opened");
            bed.vfs.write(open, 0, b"zzzz").expect("written");
            if name == "plain/c/0" {
                assert_eq!(bed.close(open).expect_err("full").errno(), libc::ENOSPC);
                assert_eq!(bed.stored(name), stored);
            } else {
                bed.close(open).expect("it waits");
                assert_eq!(bed.vfs.sync().expect_err("full").errno(), libc::ENOSPC);
            }
            want = *b"zzzz";
            assert_eq!(bed.read(name).expect("read"), want, "{name}, set {nth}: dropped");
            bed.vfs.sync().expect("there is space again");
            assert_eq!(bed.read(name).expect("read"), want, "{name}, set {nth}");
            assert_eq!(bed.vfs.contents.files.memory.unstored_len(), 0);
            bed.remount();
            assert_eq!(bed.read(name).expect("read"), want, "{name}, set {nth}");
        }
    }
}
