use std::sync::Arc;

use fuser::Errno;

use super::answer::answer;
use crate::error::Result;
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::Dialect;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::vfs::Vfs;

fn vfs() -> Vfs {
    let store = Store::new(Arc::new(MemoryStore::new()));
    let hierarchy =
        Hierarchy::open(store, Some(Dialect::V3), HierarchyOptions::default()).expect("opens");
    Vfs::new(hierarchy, crate::vfs::VfsOptions::default())
}

#[test]
fn a_panic_fails_one_request_and_is_reported() {
    let vfs = vfs();
    let answered: Result<(), Errno> = answer(&vfs, "read", || panic!("broken invariant"));
    assert_eq!(i32::from(answered.expect_err("it panicked")), libc::EIO);
    assert!(
        vfs.errors().contains("read: EIO: a bug in zarrfs, please report it: broken invariant")
    );
    assert_eq!(answer(&vfs, "read", || Ok(1)).ok(), Some(1));
}
