//! Views of an array that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use scheduled::pool::Pool;
use scheduled::vfs::Access;

use super::run;
use crate::mount::{
    CHUNK_LEN, Mount, check_gone, chunk, one_of_two, plain, plain_or_sharded, sharded, value_of,
};

/// The number of chunks of an array.
const CHUNKS: usize = 4;

/// Returns the values of the chunks in the last bytes of a view.
fn values(view: &[u8]) -> Vec<u8> {
    let elements = &view[view.len() - CHUNKS * CHUNK_LEN..];
    elements.chunks(CHUNK_LEN).map(value_of).collect()
}

/// Fills the array `x`.
fn fill(mount: &Mount) {
    mount.write_first("x", &chunk(1));
    for at in 1..CHUNKS {
        mount.write(&format!("x/c/{at}"), &chunk(1)).expect("written");
    }
    mount.vfs.sync().expect("synced");
}

/// The last value of each chunk whose writer has closed it.
type Closed = Arc<[AtomicU8; CHUNKS]>;

fn all_closed() -> Closed {
    Arc::new(std::array::from_fn(|_| AtomicU8::new(1)))
}

/// Reads a view several times through one handle, and checks that no chunk of it goes back, and
/// that each has at least the value that was `closed` before the read. Whether the view was there
/// to the end.
fn read_view(mount: &Mount, path: &str, most: u8, closed: &Closed) -> bool {
    let handle = match mount.open(path, Access::Read) {
        Ok(handle) => handle,
        Err(error) => {
            check_gone::<()>(Err(error));
            return false;
        }
    };
    let mut last = vec![1; CHUNKS];
    let mut is_there = true;
    for _ in 0..3 {
        for (before, closed) in last.iter_mut().zip(&**closed) {
            *before = closed.load(Ordering::SeqCst).max(*before);
        }
        let bytes = match mount.vfs.read(handle, 0, 1 << 20) {
            Ok(bytes) => bytes,
            Err(error) => {
                check_gone::<()>(Err(error));
                is_there = false;
                break;
            }
        };
        for (at, (value, before)) in values(&bytes).into_iter().zip(&mut last).enumerate() {
            assert!((*before..=most).contains(&value), "chunk {at}: {before}, then {value}");
            *before = value;
        }
    }
    mount.vfs.release(handle);
    is_there
}

/// A program that writes a chunk twice.
fn writer(at: usize, closed: &Closed) -> Box<dyn FnOnce(&Mount) + Send> {
    let closed = Arc::clone(closed);
    Box::new(move |mount: &Mount| {
        for value in 2..=3 {
            let handle = mount.open(&format!("x/c/{at}"), Access::Write).expect("opened");
            mount.vfs.write(handle, 0, &chunk(value)).expect("written");
            if one_of_two() {
                mount.vfs.fsync(handle).expect("synced");
            }
            mount.close(handle).expect("closed");
            closed[at].store(value, Ordering::SeqCst);
        }
    })
}

/// Programs write chunks while others read a view of the array. Each chunk in it is whole and never
/// goes back, and is the new one once its writer has closed it.
pub fn views() {
    let mount = Mount::of(&plain_or_sharded());
    fill(&mount);
    // Its cache is empty.
    let mount = mount.again();
    let closed = all_closed();
    let seen = Arc::clone(&closed);
    run(
        &mount,
        vec![
            writer(0, &closed),
            writer(1, &closed),
            Box::new(move |mount| assert!(read_view(mount, "x.npy", 3, &seen))),
            Box::new(|mount| mount.vfs.tick()),
        ],
    );
    mount.check_chunks("x", &[3, 3, 1, 1]);
    assert_eq!(values(&mount.read("x.npy").expect("read")), [3, 3, 1, 1]);
    mount.check_no_errors();
}

/// The same while another program changes the attributes of the array.
pub fn edited_views() {
    let mount = Mount::of(&sharded());
    fill(&mount);
    let closed = all_closed();
    let seen = Arc::clone(&closed);
    run(
        &mount,
        vec![
            writer(0, &closed),
            Box::new(move |mount| assert!(read_view(mount, "x.npy", 3, &seen))),
            Box::new(|mount| {
                let text = mount.read("x/zarr.json").expect("read");
                let text = String::from_utf8(text).expect("text").replace("\"K\"", "\"C\"");
                mount.write("x/zarr.json", text.as_bytes()).expect("edited");
            }),
        ],
    );
    mount.check_chunks("x", &[3, 1, 1, 1]);
    let text = mount.again().read("x/zarr.json").expect("read");
    assert!(String::from_utf8(text).expect("text").contains("\"C\""), "the edit is lost");
    mount.check_no_errors();
}

/// A program reads a view, another one writes a chunk, and a third one moves the array away. A
/// reader gets whole chunks or an error, never the fill value.
pub fn moved_views() {
    let mount = Mount::of(&plain());
    fill(&mount);
    run(
        &mount,
        vec![
            Box::new(|mount| check_gone(mount.update("x/c/0", 0, &chunk(2)))),
            Box::new(|mount| {
                read_view(mount, "x.npy", 2, &all_closed());
            }),
            Box::new(|mount| {
                read_view(mount, "y.npy", 2, &all_closed());
            }),
            Box::new(|mount| mount.rename("x", "y").expect("renamed")),
        ],
    );
    mount.check_idle();
    let first = value_of(&mount.read("y/c/0").expect("read"));
    mount.check_chunks("y", &[first, 1, 1, 1]);
    assert!(mount.read("x/c/0").is_err(), "a chunk is left behind");
    mount.check_no_errors();
}

/// A program reads the chunks of an array one after the other while the pool reads ahead, and
/// others write them. When it reads them again, those that were closed are new.
pub fn prefetch() {
    let mount = Mount::of(&sharded());
    fill(&mount);
    let mount = mount.again();
    let pool = Arc::new(Pool::new(2, 1).expect("threads"));
    mount.vfs.use_pool(Arc::clone(&pool));
    let closed = all_closed();
    let seen = Arc::clone(&closed);
    run(
        &mount,
        vec![
            Box::new(move |mount| {
                let handle = mount.open("x.npy", Access::Read).expect("opened");
                let len = 128 + CHUNKS * CHUNK_LEN;
                let mut bytes = Vec::new();
                while bytes.len() < len {
                    let at = u64::try_from(bytes.len()).expect("fits");
                    let read = mount.vfs.read(handle, at, CHUNK_LEN * 4).expect("read");
                    assert!(!read.is_empty(), "the view ends at {at}");
                    bytes.extend_from_slice(&read);
                }
                assert!(values(&bytes).into_iter().all(|value| (1..=3).contains(&value)));
                let closed: Vec<u8> =
                    seen.iter().map(|value| value.load(Ordering::SeqCst)).collect();
                let again = values(&mount.vfs.read(handle, 0, len).expect("read"));
                for (at, (value, before)) in again.into_iter().zip(closed).enumerate() {
                    assert!((before..=3).contains(&value), "chunk {at}: {before}, then {value}");
                }
                mount.vfs.release(handle);
            }),
            Box::new(|mount| {
                for at in 0..CHUNKS {
                    let value = value_of(&mount.read(&format!("x/c/{at}")).expect("read"));
                    assert!((1..=3).contains(&value), "chunk {at} has {value}");
                }
            }),
            writer(2, &closed),
            writer(3, &closed),
            Box::new(|mount| mount.vfs.tick()),
        ],
    );
    pool.close();
    mount.check_chunks("x", &[1, 1, 3, 3]);
    mount.check_no_errors();
}
