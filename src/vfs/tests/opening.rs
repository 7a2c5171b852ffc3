//! How those who open a file read it: through the kernel's pages, or by the kernel itself.

use super::bed::VfsBed;
use crate::vfs::{Access, Pages};

#[test]
fn pages_are_dropped_when_a_replaced_file_is_opened_again() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    let number = bed.find("plain/c/0").expect("there");
    let reader = bed.vfs.open(number, Access::Read).expect("opened");
    assert_eq!(bed.vfs.read(reader.handle, 0, 4).expect("read").as_ref(), b"abcd");
    // Stored past the pages that the kernel has of the chunk.
    let view = bed.open("plain.raw", Access::Write).expect("opened");
    bed.vfs.write(view, 0, b"ABCD").expect("written");
    bed.close(view).expect("stored");
    bed.write("plain/scratch", b"1234").expect("kept");
    bed.rename("plain/scratch", "plain/c/0").expect("replaced");
    // Looked up before that, opened after it.
    let late = bed.vfs.open(number, Access::Read).expect("opened");
    assert_eq!(late.pages, Pages::Drop);
    assert_eq!(bed.vfs.read(late.handle, 0, 4).expect("read").as_ref(), b"ABCD");
}

#[test]
fn the_kernel_is_not_told_to_read_a_chunk_in_two_ways() {
    let bed = VfsBed::passing();
    bed.write("plain/c/0", b"abcd").expect("stored");
    let writer = bed.open("plain/c/0", Access::Write).expect("opened");
    bed.vfs.write(writer, 0, b"ABCD").expect("written");
    let reader = bed.open_found("plain/c/0", Access::Read).expect("opened").1;
    assert!(reader.backing.is_none(), "what is not stored");
    bed.close(writer).expect("stored");
    let other = bed.open_found("plain/c/0", Access::Read).expect("opened").1;
    assert!(other.backing.is_none(), "somebody has it open through the kernel's pages");
    for opened in [reader, other] {
        assert_eq!(bed.vfs.read(opened.handle, 0, 4).expect("read").as_ref(), b"ABCD");
        bed.vfs.release(opened.handle);
    }
    let alone = bed.open_found("plain/c/0", Access::Read).expect("opened").1;
    assert!(alone.backing.is_some() || alone.pages == Pages::Keep);
}

#[test]
fn a_look_up_asks_the_store_for_the_attributes_of_a_value_once() {
    let bed = VfsBed::new();
    bed.write("plain/c/0", b"abcd").expect("stored");
    bed.put_file("plain/notes", b"text");
    bed.vfs.sync().expect("stored");
    for (directory, name, len) in [("plain/c", "0", 4), ("plain", "notes", 4)] {
        let directory = bed.find(directory).expect("there");
        bed.stats();
        assert_eq!(bed.vfs.lookup(directory, name).expect("there").len, len, "{name}");
        assert_eq!(bed.stats(), 1, "{name}");
    }
}

#[test]
fn a_chunk_that_was_erased_elsewhere_is_made_anew_beside_a_reader_of_the_old_one() {
    for name in ["plain/c/0", "sharded/c/0"] {
        for is_looked_up in [false, true] {
            let bed = VfsBed::passing();
            bed.write(name, b"abcd").expect("stored");
            bed.vfs.sync().expect("stored");
            let (_, reader) = bed.open_found(name, Access::Read).expect("opened");
            assert!(reader.backing.is_some(), "{name}: the kernel reads it");
            bed.other().unlink(name).expect("erased");
            if is_looked_up {
                bed.find(name).expect_err("erased");
            }
            let writer = bed.create(name).expect("made");
            bed.vfs.write(writer, 0, b"ABCD").expect("written");
            bed.close(writer).expect("stored");
            assert_eq!(bed.read(name).expect("read"), b"ABCD");
            assert_eq!(bed.vfs.read(reader.handle, 0, 4).expect("read").as_ref(), b"abcd");
        }
    }
}
