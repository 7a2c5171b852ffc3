//! Calls on a mounted tree, which any bytes choose.

use std::time::Duration;

use zarrfs::hierarchy::Hierarchy;
use zarrfs::vfs::{Access, Ownership, Presence, ROOT, Replace, Vfs, VfsOptions, Writeback};

use super::{BYTES, GROUP, Reading, array, options, read_all, sharded, store};

const NAMES: [&str; 12] =
    ["c", "0", "1", "2", "x", "y", "zarr.json", "x.npy", "tmp", "a", ".zattrs", "0.partial"];

/// The most calls.
const MOST_CALLS: usize = 256;

/// The most inodes that are remembered.
const MOST_NUMBERS: usize = 64;

/// A chunk of 4 zeros of uint16, with its CRC32C.
const CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0x8a, 0xb2, 0x28, 0x8c];

/// A tree, and what a program has of it.
struct Program {
    vfs: Vfs,
    numbers: Vec<u64>,
    handles: Vec<u64>,
}

impl Program {
    fn number(&self, byte: u8) -> u64 {
        self.numbers.get(usize::from(byte) % self.numbers.len()).copied().unwrap_or(ROOT)
    }

    fn handle(&self, byte: u8) -> Option<u64> {
        self.handles.get(usize::from(byte) % self.handles.len().max(1)).copied()
    }

    /// Makes the call that four bytes choose.
    fn call(&mut self, [call, first, second, third]: [u8; 4]) {
        let (number, handle) = (self.number(first), self.handle(first));
        let name = name_of(second);
        let access = [Access::Read, Access::Write, Access::Truncate][usize::from(third) % 3];
        match call % 16 {
            0 | 1 => self.numbers.extend(self.vfs.lookup(number, name).map(|attr| attr.number)),
            2 => self.numbers.extend(
                self.vfs.mkdir(number, name, Ownership::of_process(0o755)).map(|attr| attr.number),
            ),
            3 | 4 => {
                if let Ok((attr, opened)) =
                    self.vfs.create(number, name, Ownership::of_process(0o644), access, third > 200)
                {
                    self.numbers.push(attr.number);
                    self.handles.push(opened.handle);
                }
            }
            5 => self.handles.extend(self.vfs.open(number, access).map(|opened| opened.handle)),
            6..=10 => drop(handle.map(|handle| self.use_handle(handle, call % 16, second, third))),
            11 => {
                if let Some(handle) = handle {
                    self.handles.retain(|other| *other != handle);
                    self.close(handle);
                }
            }
            12 => drop(self.vfs.unlink(number, name)),
            13 => {
                let (to, new_name) = (self.number(third), name_of(third));
                drop(self.vfs.rename(number, name, to, new_name, Replace::Yes));
            }
            14 => drop(self.vfs.attr_writer().truncate(number, u64::from(third % 16))),
            _ => self.call_seldom(number, name, third),
        }
        self.numbers.truncate(MOST_NUMBERS);
    }

    fn use_handle(&self, handle: u64, call: u8, second: u8, third: u8) {
        match call {
            6 | 7 => {
                let bytes = vec![second; usize::from(third) % 9];
                drop(self.vfs.write(handle, u64::from(third / 16), &bytes));
            }
            8 => drop(self.vfs.read(handle, u64::from(third), 16)),
            9 => drop(self.vfs.flush(handle)),
            _ => drop(self.vfs.fsync(handle)),
        }
    }

    fn call_seldom(&self, number: u64, name: &str, third: u8) {
        match third % 5 {
            0 => drop(self.vfs.rmdir(number, name)),
            1 => self.vfs.tick(),
            2 => drop(self.vfs.sync()),
            3 => drop(self.vfs.link(number, self.number(third), name)),
            _ => drop(self.vfs.xattrs().set(number, "user.attrs.a", b"1", Presence::Any)),
        }
    }

    fn close(&self, handle: u64) {
        drop(self.vfs.flush(handle));
        self.vfs.release(handle);
    }
}

fn name_of(byte: u8) -> &'static str {
    NAMES.get(usize::from(byte) % NAMES.len()).copied().unwrap_or_default()
}

/// Makes calls on a tree with a plain and a sharded array, and reads what is stored then.
pub fn operations(data: &[u8]) {
    let (plain, sharded) = (array(&format!("[{BYTES},{{\"name\":\"crc32c\"}}]")), sharded(""));
    let values = [
        ("zarr.json", GROUP),
        ("x/zarr.json", plain.as_bytes()),
        ("y/zarr.json", sharded.as_bytes()),
        ("x/c/0", &CHUNK),
    ];
    let store = store(&values);
    let hierarchy = Hierarchy::open(store.clone(), None, options()).expect("a hierarchy");
    let is_even = data.len().is_multiple_of(2);
    let options = VfsOptions {
        dirty_limit: 1 << 16,
        writeback: if is_even { Writeback::Delay } else { Writeback::Sync },
        writeback_delay: Duration::ZERO,
        ..VfsOptions::default()
    };
    let vfs = Vfs::new(hierarchy, options);
    let mut program = Program { vfs, numbers: vec![ROOT], handles: Vec::new() };
    for bytes in data.chunks_exact(4).take(MOST_CALLS) {
        program.call(bytes.try_into().expect("4 bytes"));
    }
    for handle in std::mem::take(&mut program.handles) {
        program.close(handle);
    }
    drop(program.vfs.sync());
    drop(program);
    read_all(&store, Reading::Checked);
}
