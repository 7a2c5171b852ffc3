//! The cache, the pending chunks, and open files.

use scheduled::error::Kind;
use scheduled::vfs::Access;

use super::run;
use crate::mount::{CHUNK_LEN, Mount, check_gone, chunk, plain_or_sharded, sharded, value_of};

/// Opens a chunk, writes it, and closes it.
fn write_chunk(mount: &Mount, path: &str, value: u8, is_synced: bool) {
    let handle = mount.open(path, Access::Write).expect("opened");
    mount.vfs.write(handle, 0, &chunk(value)).expect("written");
    if is_synced {
        mount.vfs.fsync(handle).expect("synced");
    }
    mount.close(handle).expect("closed");
}

/// Two programs write different chunks of a shard, another one reads both, and the mount stores
/// them in the background. No change is lost, and a reader sees a whole chunk, never an older one
/// than before.
pub fn shard_writers() {
    let mount = Mount::of(&sharded());
    mount.write_first("x", &chunk(1));
    mount.write("x/c/1", &chunk(1)).expect("written");
    mount.vfs.sync().expect("synced");
    let writer = |path: &'static str| {
        Box::new(move |mount: &Mount| {
            write_chunk(mount, path, 2, false);
            write_chunk(mount, path, 3, true);
        })
    };
    run(
        &mount,
        vec![
            writer("x/c/0"),
            writer("x/c/1"),
            Box::new(|mount| {
                let mut last = [1, 1];
                for at in [0, 1, 0, 1] {
                    let value = value_of(&mount.read(&format!("x/c/{at}")).expect("read"));
                    let before = last[at];
                    assert!((before..=3).contains(&value), "chunk {at}: {before}, then {value}");
                    last[at] = value;
                }
            }),
            Box::new(|mount| {
                mount.vfs.tick();
                mount.vfs.sync().expect("synced");
            }),
        ],
    );
    mount.check_chunks("x", &[3, 3]);
    mount.check_no_errors();
}

/// Two programs write a half of the same chunk each. No half is lost, and a reader sees none that
/// goes back.
pub fn chunk_writers() {
    let mount = Mount::of(&plain_or_sharded());
    mount.write_first("x", &chunk(1));
    let writer = |offset| {
        Box::new(move |mount: &Mount| {
            for value in 2..=3 {
                mount.update("x/c/0", offset, &[value]).expect("written");
            }
        })
    };
    run(
        &mount,
        vec![
            writer(0),
            writer(2),
            Box::new(|mount| {
                let mut last = [1, 1];
                for _ in 0..2 {
                    let bytes = mount.read("x/c/0").expect("read");
                    assert_eq!(bytes.len(), CHUNK_LEN);
                    for (at, before) in last.iter_mut().enumerate() {
                        let value = bytes[2 * at];
                        let range = *before..=3;
                        assert!(range.contains(&value), "half {at}: {before}, then {value}");
                        *before = value;
                    }
                }
            }),
            Box::new(|mount| mount.vfs.tick()),
        ],
    );
    mount.check_chunks("x", &[3]);
    mount.check_no_errors();
}

/// A program truncates a chunk and writes it again, another one updates it, and a third one removes
/// it. In the end it is whole or missing, here and in a new mount, and can be written.
pub fn truncate_and_unlink() {
    let mount = Mount::of(&plain_or_sharded());
    mount.write_first("x", &chunk(1));
    run(
        &mount,
        vec![
            Box::new(|mount| mount.write("x/c/0", &chunk(2)).expect("written")),
            Box::new(|mount| match mount.update("x/c/0", 0, &chunk(3)) {
                // The other program has just truncated it when this one closes it.
                Err(error) if error.errno() == 22 => {}
                updated => check_gone(updated),
            }),
            Box::new(|mount| {
                check_gone(mount.unlink("x/c/0"));
                mount.vfs.tick();
            }),
        ],
    );
    mount.check_idle();
    match (mount.read("x/c/0"), mount.again().read("x/c/0")) {
        (Ok(now), Ok(stored)) => {
            assert_eq!(now, stored);
            assert!([1, 2, 3].contains(&value_of(&now)));
        }
        (Err(now), Err(stored)) => {
            assert_eq!((now.kind(), stored.kind()), (Kind::NotFound, Kind::NotFound));
        }
        (now, stored) => panic!("{now:?} is shown, {stored:?} is stored"),
    }
    mount.write("x/c/0", &chunk(4)).expect("written");
    mount.check_chunks("x", &[4]);
}

/// Programs open, read and close a chunk while another one removes it and writes it again. Each
/// open file can be read until it is closed: a chunk that is whole, or what a new one has so far.
pub fn handles() {
    let mount = Mount::of(&plain_or_sharded());
    mount.write_first("x", &chunk(1));
    let reader = || {
        Box::new(|mount: &Mount| {
            for _ in 0..2 {
                let handle = match mount.open("x/c/0", Access::Read) {
                    Ok(handle) => handle,
                    Err(error) => {
                        check_gone::<()>(Err(error));
                        continue;
                    }
                };
                for _ in 0..2 {
                    let bytes = mount.vfs.read(handle, 0, 16).expect("an open file is read");
                    if bytes.len() == CHUNK_LEN {
                        assert!([1, 2].contains(&value_of(&bytes)));
                    } else {
                        assert!(bytes.is_empty(), "a part of a chunk");
                    }
                }
                mount.close(handle).expect("closed");
            }
        })
    };
    run(
        &mount,
        vec![
            reader(),
            reader(),
            Box::new(|mount| {
                mount.unlink("x/c/0").expect("removed");
                mount.write("x/c/0", &chunk(2)).expect("written");
            }),
            Box::new(|mount| mount.vfs.tick()),
        ],
    );
    mount.check_chunks("x", &[2]);
    mount.check_no_errors();
}
