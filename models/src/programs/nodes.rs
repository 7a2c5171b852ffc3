//! Nodes that are made and moved while programs use them.

use scheduled::vfs::{Access, Ownership, ROOT};

use super::run;
use crate::mount::{Mount, check_gone, chunk, plain, plain_or_sharded, value_of};

/// A program moves a group, another one writes a chunk below it through an open file, a third one
/// writes by name, and the mount stores. What was closed without an error is in the place that the
/// group has in the end.
pub fn moves() {
    let mount = Mount::of_group(&plain_or_sharded());
    mount.write_first("g/x", &chunk(1));
    mount.write("g/x/c/1", &chunk(1)).expect("written");
    run(
        &mount,
        vec![
            Box::new(|mount| mount.rename("g", "h").expect("renamed")),
            Box::new(|mount| {
                let opened = mount.open("g/x/c/0", Access::Write);
                let handle = match opened.or_else(|_| mount.open("h/x/c/0", Access::Write)) {
                    Ok(handle) => handle,
                    Err(error) => panic!("under neither name: {error}"),
                };
                mount.vfs.write(handle, 0, &chunk(2)).expect("written");
                mount.close(handle).expect("closed");
            }),
            Box::new(|mount| check_gone(mount.update("h/x/c/1", 0, &chunk(3)))),
            Box::new(|mount| mount.vfs.tick()),
        ],
    );
    mount.check_idle();
    let second = value_of(&mount.read("h/x/c/1").expect("read"));
    assert!([1, 3].contains(&second));
    mount.check_chunks("h/x", &[2, second]);
    mount.check_no_errors();
    assert!(mount.find("g").is_err() && mount.again().find("g").is_err(), "the old name is left");
}

/// A program makes an array as a library does, another one copies a chunk into it before its
/// metadata are there, a third one lists and looks up, and the mount stores directories as groups.
pub fn new_nodes() {
    let mount = Mount::with(&[], crate::mount::options());
    let owner = || Ownership::of_process(0o755);
    let array = mount.vfs.mkdir(ROOT, "x", owner()).expect("made").number;
    mount.vfs.mkdir(array, "c", owner()).expect("made");
    run(
        &mount,
        vec![
            Box::new(|mount| mount.write("x/zarr.json", plain().as_bytes()).expect("an array")),
            Box::new(|mount| mount.write("x/c/0", &chunk(2)).expect("a chunk")),
            Box::new(|mount| {
                for path in ["x/zarr.json", "x/c/0"] {
                    check_gone(mount.find(path).and_then(|number| mount.vfs.getattr(number)));
                }
            }),
        ],
    );
    mount.check_chunks("x", &[2]);
    mount.check_no_errors();
}
