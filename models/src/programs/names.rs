//! Inodes: their numbers, their names, and how long they are known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use scheduled::vfs::{Access, Attr, ROOT, Replace};

use super::run;
use crate::mount::{Mount, check_gone};

/// The files that the kernel knows by their numbers: how often they were looked up, and what they
/// contain if that was read.
#[derive(Debug, Default, Clone)]
struct Kernel(Arc<Mutex<HashMap<u64, (u64, Option<Vec<u8>>)>>>);

impl Kernel {
    fn note(&self, attr: &Attr) {
        self.0.lock().expect("locked").entry(attr.number).or_default().0 += 1;
    }

    /// The file that has this number contains these bytes, as long as the kernel knows it.
    fn check(&self, number: u64, bytes: &[u8]) {
        let mut known = self.0.lock().expect("locked");
        let (_, before) = known.get_mut(&number).expect("known");
        let before = before.get_or_insert_with(|| bytes.to_vec());
        assert_eq!(before, bytes, "two files have the number {number}");
    }

    /// Forgets all that this thread knows of a file.
    fn forget(&self, mount: &Mount, number: u64) {
        let mut known = self.0.lock().expect("locked");
        let (count, _) = known.get_mut(&number).expect("known");
        *count -= 1;
        if *count == 0 {
            known.remove(&number);
        }
        drop(known);
        mount.vfs.forget(number, 1);
    }
}

/// Creates a file in the root with these bytes, as long as the kernel knows it.
fn create(mount: &Mount, kernel: &Kernel, name: &str, bytes: &[u8]) {
    let owner = scheduled::vfs::Ownership::of_process(0o644);
    let (attr, opened) =
        mount.vfs.create(ROOT, name, owner, Access::Truncate, false).expect("created");
    kernel.note(&attr);
    mount.vfs.write(opened.handle, 0, bytes).expect("written");
    mount.close(opened.handle).expect("closed");
    kernel.forget(mount, attr.number);
}

/// Looks a name of the root up, opens the file, reads it twice, and forgets it.
fn look(mount: &Mount, kernel: &Kernel, name: &str) {
    let attr = match mount.vfs.lookup(ROOT, name) {
        Ok(attr) => attr,
        Err(error) => return check_gone::<()>(Err(error)),
    };
    kernel.note(&attr);
    check_gone(mount.vfs.getattr(attr.number));
    match mount.vfs.open(attr.number, Access::Read) {
        Ok(opened) => {
            let first = mount.vfs.read(opened.handle, 0, 16).expect("read");
            let second = mount.vfs.read(opened.handle, 0, 16).expect("read");
            // A file that is being created grows.
            assert!(second.starts_with(&first), "{first:?} became {second:?}");
            if !second.is_empty() {
                kernel.check(attr.number, &second);
            }
            mount.vfs.release(opened.handle);
        }
        Err(error) => check_gone::<()>(Err(error)),
    }
    kernel.forget(mount, attr.number);
}

/// All is forgotten that was looked up.
fn check_forgotten(mount: &Mount, inodes: u64) {
    mount.check_idle();
    assert_eq!(mount.stat("inodes"), inodes, "inodes that nobody knows are kept");
    mount.check_no_errors();
}

/// A program creates files under the same name and removes them, and others look them up and read
/// them. A number belongs to one file as long as it is known, and all are forgotten in the end.
pub fn names() {
    let mount = Mount::with(&[], crate::mount::options());
    let (kernel, inodes) = (Kernel::default(), mount.stat("inodes"));
    let maker = || {
        let kernel = kernel.clone();
        Box::new(move |mount: &Mount| {
            for bytes in [b"first", b"other"] {
                create(mount, &kernel, "a", bytes);
                mount.vfs.unlink(ROOT, "a").expect("removed");
            }
        })
    };
    let looker = || {
        let kernel = kernel.clone();
        Box::new(move |mount: &Mount| {
            look(mount, &kernel, "a");
            look(mount, &kernel, "a");
        })
    };
    // Two makers of one name would share a file: the second one opens what the first one creates.
    run(&mount, vec![maker(), looker(), looker(), Box::new(|mount| mount.vfs.tick())]);
    check_forgotten(&mount, inodes);
}

/// Programs create files and rename them onto each other's names, and others look them up.
pub fn renames() {
    let mount = Mount::with(&[], crate::mount::options());
    let (kernel, inodes) = (Kernel::default(), mount.stat("inodes"));
    let renamer = |from: &'static str, to: &'static str, bytes: &'static [u8]| {
        let kernel = kernel.clone();
        Box::new(move |mount: &Mount| {
            create(mount, &kernel, from, bytes);
            mount.vfs.rename(ROOT, from, ROOT, to, Replace::Yes).expect("renamed");
            check_gone(mount.vfs.unlink(ROOT, to));
        })
    };
    let looker = {
        let kernel = kernel.clone();
        move |mount: &Mount| {
            for name in ["a", "c", "b"] {
                look(mount, &kernel, name);
            }
        }
    };
    run(
        &mount,
        vec![
            renamer("a", "c", b"first"),
            renamer("b", "c", b"second"),
            Box::new(looker),
            Box::new(|mount| mount.vfs.tick()),
        ],
    );
    check_forgotten(&mount, inodes);
}

/// Programs rename two files onto each other. One of them is left, and nothing waits for ever.
pub fn opposite_renames() {
    let mount = Mount::with(&[], crate::mount::options());
    let (kernel, inodes) = (Kernel::default(), mount.stat("inodes"));
    create(&mount, &kernel, "a", b"first");
    create(&mount, &kernel, "b", b"second");
    let renamer = |from: &'static str, to: &'static str| {
        Box::new(move |mount: &Mount| {
            check_gone(mount.vfs.rename(ROOT, from, ROOT, to, Replace::Yes));
        })
    };
    let looker = {
        let kernel = kernel.clone();
        move |mount: &Mount| {
            look(mount, &kernel, "a");
            look(mount, &kernel, "b");
        }
    };
    run(&mount, vec![renamer("a", "b"), renamer("b", "a"), Box::new(looker)]);
    let left = ["a", "b"].map(|name| mount.read(name).is_ok());
    assert!(left[0] != left[1], "there are {left:?} of a and b");
    for name in ["a", "b"] {
        check_gone(mount.vfs.unlink(ROOT, name));
    }
    mount.vfs.tick();
    mount.check_no_errors();
    let known = mount.stat("inodes");
    // `read` has looked up the one that was there.
    assert!(known <= inodes + 1, "{known} inodes are kept");
}

/// In a directory: programs give a file more names, rename and remove them, and others look them
/// up. All names lead to one number.
pub fn links() {
    let mount = Mount::of_directory();
    let (kernel, inodes) = (Kernel::default(), mount.stat("inodes"));
    create(&mount, &kernel, "a", b"linked");
    let attr = mount.vfs.lookup(ROOT, "a").expect("there");
    kernel.note(&attr);
    // The kernel lets no other program link a file while its last name is removed.
    let second = mount.vfs.link(attr.number, ROOT, "z").expect("linked");
    mount.vfs.forget(second.number, 1);
    let linker = |name: &'static str, to: &'static str| {
        let kernel = kernel.clone();
        Box::new(move |mount: &Mount| {
            let linked = mount.vfs.link(attr.number, ROOT, name).expect("linked");
            kernel.note(&linked);
            assert_eq!(linked.number, attr.number, "{name}");
            mount.vfs.rename(ROOT, name, ROOT, to, Replace::Yes).expect("renamed");
            kernel.forget(mount, attr.number);
        })
    };
    let looker = {
        let kernel = kernel.clone();
        move |mount: &Mount| {
            // Another program has made these.
            let numbers = ["p", "q"].map(|name| {
                let attr = mount.vfs.lookup(ROOT, name).expect("there");
                kernel.note(&attr);
                attr.number
            });
            assert_eq!(numbers[0], numbers[1], "the numbers of two names of one file");
            for name in ["b", "d", "c"] {
                look(mount, &kernel, name);
            }
            for number in numbers {
                kernel.forget(mount, number);
            }
        }
    };
    run(
        &mount,
        vec![
            linker("b", "d"),
            linker("c", "e"),
            Box::new(looker),
            Box::new(|mount| mount.vfs.unlink(ROOT, "z").expect("removed")),
        ],
    );
    for name in ["d", "e"] {
        let found = mount.vfs.lookup(ROOT, name).expect("there");
        assert_eq!((found.number, found.links), (attr.number, 3), "{name}");
        mount.vfs.forget(found.number, 1);
    }
    kernel.forget(&mount, attr.number);
    check_forgotten(&mount, inodes);
}
