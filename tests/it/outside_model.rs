//! A model of two programs that change parts of the same chunks: one through the mount, one in the
//! store. What either has stored stays, unless the other one stores the same element later. A third
//! program is started by the first, again and again, with copies of all its descriptors. It closes
//! them at once or later, which changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;

use crate::support::{Mount, Second, sequences};

const CHUNKS: usize = 4;
/// Elements of two bytes in a chunk.
const COUNT: usize = 48;

/// Elements of the array, by their number.
type Changes = BTreeMap<usize, u16>;

/// How the other program puts a value into the store.
#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    /// A new file takes the name.
    Rename,
    /// The old file goes first, so that the new one may get its inode number.
    Again,
    /// Into the old file.
    InPlace,
}

#[derive(Debug, Clone)]
enum Step {
    /// Opens a chunk, or the view where there is none of that number.
    Open(usize),
    /// Writes elements through one of the open files.
    Write {
        file: usize,
        at: usize,
        count: usize,
    },
    /// Has what was written through an open file stored.
    Sync(usize),
    Close(usize),
    /// The other program changes elements of a stored value.
    Change {
        value: usize,
        at: Vec<usize>,
        how: How,
        keeps_time: bool,
    },
    /// It removes the value.
    Remove(usize),
    /// The third program starts, and closes all files that are open here.
    Start,
    /// It starts and keeps them open, also when they were closed here.
    Keep,
    /// The one that has kept them for the longest time ends.
    End,
    /// What is in a chunk of which nothing waits is what is stored.
    Look(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![Just(How::Rename), Just(How::Again), Just(How::InPlace)];
    let elements = prop::collection::vec(0..COUNT * CHUNKS, 1..6);
    prop_oneof![
        3 => (0..CHUNKS + 2).prop_map(Step::Open),
        8 => (0..6_usize, 0..COUNT * CHUNKS, 1..5_usize)
            .prop_map(|(file, at, count)| Step::Write { file, at, count }),
        2 => (0..6_usize).prop_map(Step::Sync),
        2 => (0..6_usize).prop_map(Step::Close),
        6 => (0..CHUNKS, elements, how, any::<bool>())
            .prop_map(|(value, at, how, keeps_time)| Step::Change { value, at, how, keeps_time }),
        1 => (0..CHUNKS).prop_map(Step::Remove),
        3 => Just(Step::Start),
        1 => Just(Step::Keep),
        1 => Just(Step::End),
        4 => (0..CHUNKS).prop_map(Step::Look),
    ]
}

/// How the array is stored, and when.
#[derive(Debug, Clone, Copy)]
struct Way {
    codecs: &'static str,
    /// Chunks in a stored value.
    shard: usize,
    writeback: &'static str,
}

impl Way {
    /// Whether what is closed is stored at once, so that the model knows what comes later.
    fn is_ordered(self) -> bool {
        self.writeback == "sync"
    }
}

fn mount(way: Way) -> Mount {
    let shards =
        if way.shard == 1 { "none".to_owned() } else { format!("[{}]", way.shard * COUNT) };
    let mount = Mount::new(&["--create", "--codecs", way.codecs, "--shards", &shards]);
    let document = json!({
        "zarr_format": 3, "node_type": "array",
        "shape": [CHUNKS * COUNT], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [COUNT]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {}
    });
    fs::create_dir_all(mount.at("x/c")).unwrap();
    fs::write(mount.at("x/zarr.json"), document.to_string()).unwrap();
    mount.remount(&[
        "--metadata-ttl=0s",
        "--writeback-delay=1h",
        &format!("--writeback={}", way.writeback),
    ]);
    mount
}

/// A file that is open to write.
struct Open {
    file: File,
    /// Its chunk; none for the view.
    chunk: Option<usize>,
}

struct Model {
    way: Way,
    mount: Mount,
    /// Where the other program makes what it stores.
    other: Mount,
    /// The elements that are stored.
    stored: Vec<u16>,
    /// What was written to the view, or closed, and may not be stored yet, of each chunk.
    waiting: Vec<Changes>,
    /// What was written to each chunk file since it was stored last.
    written: Vec<Changes>,
    open: Vec<Open>,
    /// The third program, each time that it was started and has kept copies.
    kept: VecDeque<Child>,
    header_len: u64,
    next: u16,
}

impl Model {
    fn new(way: Way) -> Self {
        let (mount, other) = (mount(way), mount(Way { writeback: "sync", ..way }));
        let mut model = Self {
            way,
            mount,
            other,
            stored: vec![0; CHUNKS * COUNT],
            waiting: vec![Changes::new(); CHUNKS],
            written: vec![Changes::new(); CHUNKS],
            open: Vec::new(),
            kept: VecDeque::new(),
            header_len: 0,
            next: 1,
        };
        for value in 0..CHUNKS / way.shard {
            let all: Vec<usize> = (0..COUNT * CHUNKS).collect();
            model.change(value, &all, How::Rename, false);
        }
        let len = fs::metadata(model.mount.at("x.npy")).unwrap().len();
        model.header_len = len - u64::try_from(2 * CHUNKS * COUNT).unwrap();
        model
    }

    fn element(&mut self) -> u16 {
        self.next += 1;
        self.next
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Open(number) => self.open(*number),
            Step::Write { file, at, count } => self.write(*file, *at, *count),
            Step::Sync(file) => self.end(*file, Some),
            // The last close of a view has everything stored that was written to it, and if that
            // were one of the third program, the model would not know when.
            Step::Close(file) if self.may_be_kept_view(*file) => self.end(*file, Some),
            Step::Close(file) => self.end(*file, |_| None),
            Step::Change { value, at, how, keeps_time } => {
                let value = value % (CHUNKS / self.way.shard);
                let how = if self.way.is_ordered() { *how } else { How::Rename };
                // Where nobody knows what is stored later, each has elements of its own.
                let parity = !self.way.is_ordered();
                let at: Vec<usize> =
                    at.iter().map(|at| if parity { at | 1 } else { *at }).collect();
                self.change(value, &at, how, *keeps_time);
            }
            Step::Remove(value) if self.way.is_ordered() => {
                self.remove(value % (CHUNKS / self.way.shard));
            }
            Step::Start => assert!(Command::new("true").status().unwrap().success()),
            Step::Keep if self.kept.len() < 3 => self.keep(),
            Step::Remove(_) | Step::Keep => {}
            Step::End => self.kept.pop_front().into_iter().for_each(end_child),
            Step::Look(chunk) => self.look(*chunk),
        }
    }

    fn open(&mut self, number: usize) {
        // One that is closed at once has everything stored that was written to the same chunk.
        if self.open.len() == 6 {
            return;
        }
        let chunk = (number < CHUNKS).then_some(number);
        let name = chunk.map_or_else(|| "x.npy".to_owned(), |chunk| format!("x/c/{chunk}"));
        let opened = OpenOptions::new().read(true).write(true).open(self.mount.at(&name));
        match opened {
            Ok(file) => self.open.push(Open { file, chunk }),
            // The other program has removed it.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}: {error}"),
        }
    }

    /// Starts the third program, which keeps copies of all open files until its standard input
    /// ends.
    fn keep(&mut self) {
        let files: Vec<_> = self.open.iter().map(|open| open.file.as_raw_fd()).collect();
        let mut program = Command::new("cat");
        program.stdin(Stdio::piped()).stdout(Stdio::null());
        let inherit = move || {
            for file in &files {
                // SAFETY: it changes a flag of the child's own descriptor.
                if unsafe { libc::fcntl(*file, libc::F_SETFD, 0) } != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec the child only makes system calls.
        let started = unsafe { program.pre_exec(inherit) }.spawn();
        self.kept.push_back(started.unwrap());
    }

    /// Whether the third program may have a copy of an open file, which is a view.
    fn may_be_kept_view(&self, file: usize) -> bool {
        !self.kept.is_empty() && self.open.get(file).is_some_and(|open| open.chunk.is_none())
    }

    fn write(&mut self, file: usize, at: usize, count: usize) {
        let (parity, new) = (!self.way.is_ordered(), self.element());
        let Some(open) = self.open.get(file) else { return };
        // Through a chunk file, elements of its chunk.
        let at = open.chunk.map_or(at, |chunk| chunk * COUNT + at % COUNT);
        let end = open.chunk.map_or(CHUNKS, |chunk| chunk + 1) * COUNT;
        let (at, count) = if parity { (at & !1, 1) } else { (at, count.min(end - at)) };
        let bytes = new.to_le_bytes().repeat(count);
        let first = open.chunk.map_or(0, |chunk| chunk * COUNT);
        let header = if open.chunk.is_none() { self.header_len } else { 0 };
        let offset = header + u64::try_from(2 * (at - first)).unwrap();
        if let Err(error) = open.file.write_all_at(&bytes, offset) {
            // Nothing of the chunk was here yet, and the other program has removed it.
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            return;
        }
        let is_view = open.chunk.is_none();
        for at in at..at + count {
            let changes = if is_view { &mut self.waiting } else { &mut self.written };
            changes[at / COUNT].insert(at, new);
        }
    }

    /// Stores what was written through a file, which is closed unless it is kept.
    fn end(&mut self, file: usize, keep: impl Fn(Open) -> Option<Open>) {
        if file >= self.open.len() {
            return;
        }
        let open = self.open.remove(file);
        open.file.sync_all().unwrap();
        let mut stored = 0..CHUNKS;
        if let Some(chunk) = open.chunk {
            let written = std::mem::take(&mut self.written[chunk]);
            self.waiting[chunk].extend(written);
            // With all that waits for the same shard.
            let first = chunk / self.way.shard * self.way.shard;
            stored = first..first + self.way.shard;
        }
        for changes in &mut self.waiting[stored] {
            for (at, new) in std::mem::take(changes) {
                self.stored[at] = new;
            }
        }
        self.open.extend(keep(open));
    }

    fn change(&mut self, value: usize, at: &[usize], how: How, keeps_time: bool) {
        fs::create_dir_all(self.other.at("x/c")).unwrap();
        let elements = value * self.way.shard * COUNT..(value + 1) * self.way.shard * COUNT;
        let new: Vec<(usize, u16)> =
            at.iter().filter(|at| elements.contains(at)).map(|at| (*at, self.element())).collect();
        let (from, to) = (value_path(&self.other, value), value_path(&self.mount, value));
        loop {
            let before = identity(&to);
            if !self.way.is_ordered() {
                self.read_stored(value);
            }
            for (at, element) in &new {
                self.stored[*at] = *element;
            }
            for chunk in value * self.way.shard..(value + 1) * self.way.shard {
                let elements = &self.stored[chunk * COUNT..(chunk + 1) * COUNT];
                let bytes: Vec<u8> = elements.iter().flat_map(|at| at.to_le_bytes()).collect();
                fs::write(self.other.at(&format!("x/c/{chunk}")), bytes).unwrap();
            }
            // The mount may have stored something meanwhile, which this must not undo.
            if identity(&to) == before {
                break;
            }
            for (at, _) in &new {
                self.stored[*at] = 0;
            }
        }
        match fs::read(&from) {
            Ok(bytes) => put(&to, &bytes, how, keeps_time),
            // All of it is the fill value.
            Err(_) => drop(fs::remove_file(&to)),
        }
    }

    /// Reads what the mount has stored in a value so far, which may be any part of what waits: a
    /// child of another test may have closed the last copy of a file.
    fn read_stored(&mut self, value: usize) {
        let (from, to) = (value_path(&self.mount, value), value_path(&self.other, value));
        if fs::copy(from, &to).is_err() {
            drop(fs::remove_file(to));
        }
        for chunk in value * self.way.shard..(value + 1) * self.way.shard {
            let bytes = fs::read(self.other.at(&format!("x/c/{chunk}"))).unwrap_or_default();
            let mut found = bytes.chunks_exact(2).map(|at| u16::from_le_bytes([at[0], at[1]]));
            for at in chunk * COUNT..(chunk + 1) * COUNT {
                let (found, stored) = (found.next().unwrap_or_default(), self.stored[at]);
                let waiting = [&self.waiting[chunk], &self.written[chunk]];
                let newest = waiting.into_iter().filter_map(|changes| changes.get(&at)).max();
                assert!(
                    (stored..=*newest.unwrap_or(&stored)).contains(&found),
                    "element {at}: {found} is stored, not {stored} or what waits ({newest:?})"
                );
                self.stored[at] = found;
            }
        }
    }

    fn remove(&mut self, value: usize) {
        drop(fs::remove_file(value_path(&self.mount, value)));
        for at in value * self.way.shard * COUNT..(value + 1) * self.way.shard * COUNT {
            self.stored[at] = 0;
        }
    }

    fn look(&self, chunk: usize) {
        if !self.waiting[chunk].is_empty() || !self.written[chunk].is_empty() {
            return;
        }
        let elements = &self.stored[chunk * COUNT..(chunk + 1) * COUNT];
        let wanted: Vec<u8> = elements.iter().flat_map(|at| at.to_le_bytes()).collect();
        match fs::read(self.mount.at(&format!("x/c/{chunk}"))) {
            Ok(found) => assert_eq!(found, wanted, "chunk {chunk}"),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                assert!(elements.iter().all(|at| *at == 0), "chunk {chunk} is missing");
            }
        }
        let view = fs::read(self.mount.at("x.npy")).unwrap();
        let start = usize::try_from(self.header_len).unwrap() + 2 * chunk * COUNT;
        assert_eq!(view[start..start + 2 * COUNT], wanted, "chunk {chunk} of the view");
    }

    /// Closes everything; what is stored then is what the model has.
    fn finish(mut self) {
        while !self.open.is_empty() {
            self.end(0, |_| None);
        }
        self.kept.drain(..).for_each(end_child);
        self.mount.remount(&[]);
        let mut found: Vec<u16> = Vec::new();
        let view = fs::read(self.mount.at("x.npy")).unwrap();
        let header = usize::try_from(self.header_len).unwrap();
        found.extend(view[header..].chunks_exact(2).map(|at| u16::from_le_bytes([at[0], at[1]])));
        let pairs = found.iter().zip(&self.stored).enumerate();
        let wrong: Vec<_> = pairs.filter(|(_, (found, stored))| found != stored).collect();
        assert!(wrong.is_empty(), "number, (element found, element wanted): {wrong:?}");
    }
}

/// Tells a file from one that has replaced it.
fn identity(path: &Path) -> Option<(u64, SystemTime)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.modified().unwrap()))
}

fn end_child(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

fn value_path(mount: &Mount, value: usize) -> PathBuf {
    mount.store().join("x/c").join(value.to_string())
}

/// Puts `bytes` into the file at `path`.
fn put(path: &Path, bytes: &[u8], how: How, keeps_time: bool) {
    let time = fs::metadata(path).and_then(|found| found.modified());
    let time = time.unwrap_or(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = path.with_extension("partial");
    match how {
        How::InPlace if path.exists() => {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(bytes, 0).unwrap();
            file.set_len(u64::try_from(bytes.len()).unwrap()).unwrap();
        }
        How::Again if path.exists() => {
            fs::remove_file(path).unwrap();
            fs::write(path, bytes).unwrap();
        }
        _ => {
            fs::write(&new, bytes).unwrap();
            fs::rename(&new, path).unwrap();
        }
    }
    if keeps_time {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}

fn check(way: Way, steps: &[Step]) {
    let mut model = Model::new(way);
    for step in steps {
        model.run(step);
    }
    model.finish();
}

fn config() -> Config {
    Config {
        cases: sequences(8, 300),
        max_shrink_iters: 100,
        failure_persistence: None,
        ..Config::default()
    }
}

/// Shows: outside-part.
#[test]
fn two_programs_that_change_one_chunk_lose_no_elements() {
    for (shard, writeback) in [(1, "sync"), (2, "sync"), (1, "all"), (2, "delay")] {
        for name in ["x/c/0", "x.npy"] {
            let mut model = Model::new(Way { codecs: "gzip", shard, writeback });
            model.open(if name == "x.npy" { CHUNKS } else { 0 });
            model.write(0, 6, 1);
            model.change(0, &[1, 7, 9], How::Again, true);
            model.write(0, 20, 2);
            model.finish();
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn two_programs_do_not_undo_changes_of_each_other(
        is_compressed in any::<bool>(),
        shard in prop_oneof![Just(1_usize), Just(2)],
        steps in prop::collection::vec(step(), 20..80),
    ) {
        let codecs = if is_compressed { "gzip" } else { "none" };
        check(Way { codecs, shard, writeback: "sync" }, &steps);
    }

    #[test]
    fn two_programs_do_not_undo_changes_of_each_other_with_writeback(
        is_sharded in any::<bool>(),
        steps in prop::collection::vec(step(), 20..80),
    ) {
        let (shard, writeback) = if is_sharded { (2, "delay") } else { (1, "all") };
        check(Way { codecs: "gzip", shard, writeback }, &steps);
    }
}

/// Shows: outside-part.
#[test]
fn two_mounts_that_write_elements_of_the_same_chunks_at_once_lose_none() {
    for (shard, writeback) in [(1, "sync"), (2, "sync"), (1, "all"), (2, "delay")] {
        let way = Way { codecs: "gzip", shard, writeback };
        let mount = mount(way);
        let place = tempfile::tempdir().unwrap();
        let second = Second::mount(&mount.store(), place.path());
        let header = fs::metadata(mount.at("x.npy")).unwrap().len();
        let header = header - u64::try_from(2 * CHUNKS * COUNT).unwrap();
        let rounds: u16 = if std::env::var_os("ZARRFS_LONG").is_some() { 300 } else { 25 };
        thread::scope(|scope| {
            for (own, root) in [(0, mount.path()), (1, place.path().to_owned())] {
                scope.spawn(move || {
                    for round in 1..=rounds {
                        // Through the view in turn with all elements of this mount, some of each
                        // chunk at a time.
                        let path = root.join("x.npy");
                        let file = OpenOptions::new().write(true).open(path).unwrap();
                        for at in (own..CHUNKS * COUNT).step_by(2) {
                            let offset = header + u64::try_from(2 * at).unwrap();
                            file.write_all_at(&round.to_le_bytes(), offset).unwrap();
                        }
                        file.sync_all().unwrap();
                    }
                });
            }
        });
        drop(second);
        mount.remount(&[]);
        let view = fs::read(mount.at("x.npy")).unwrap();
        let found = view[usize::try_from(header).unwrap()..].chunks_exact(2);
        let wrong = found.filter(|at| **at != rounds.to_le_bytes()).count();
        assert_eq!(wrong, 0, "{way:?}: elements that were lost");
    }
}
