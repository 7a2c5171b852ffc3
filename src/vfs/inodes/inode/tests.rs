use super::*;

fn place(name: &str) -> Place {
    Place::Ordinary(NodePath::root(), name.to_owned())
}

#[test]
fn a_rename_keeps_both_inode_numbers() {
    let inodes = Inodes::new();
    let (a, b) = (inodes.at(&place("a")), inodes.at(&place("b")));
    inodes.looked_up(&a);
    inodes.looked_up(&b);
    let replaced = inodes.rename(&a, &place("a"), &place("b")).expect("b was there");
    assert_eq!((replaced.number(), replaced.place()), (b.number(), None));
    assert_eq!(inodes.at(&place("b")).number(), a.number());
    assert_ne!(inodes.at(&place("a")).number(), a.number(), "a new file got a number in use");
}

#[test]
fn the_names_of_a_linked_file_share_one_inode_until_the_last_one_is_unlinked() {
    let inodes = Inodes::new();
    let id = FileId { device: 1, number: 7 };
    let a = inodes.at(&place("a"));
    inodes.link(&a, &place("b"), id);
    assert_eq!(inodes.at_linked(&place("c"), id).number(), a.number());
    assert_eq!(inodes.unlink(&place("a")).map(|inode| inode.number()), Some(a.number()));
    assert!(a.place().is_some(), "two names are left");
    inodes.rename(&a, &place("b"), &place("d"));
    assert!(a.is_at(&place("d")) && a.is_at(&place("c")) && !a.is_at(&place("b")));
    inodes.unlink(&place("c"));
    inodes.unlink(&place("d"));
    assert_eq!(a.place(), None);
    inodes.looked_up(&a);
    inodes.forget(a.number(), 1);
    let number = a.number();
    drop(a);
    inodes.sweep();
    assert!(inodes.get(number).is_none(), "kept though nobody knows it");
    let again = inodes.at_linked(&place("e"), id);
    assert_eq!(inodes.at_linked(&place("f"), id).number(), again.number());
    let (e, f) = (inodes.alone_at(&place("e")), inodes.alone_at(&place("f")));
    assert!(e.number() != f.number() && again.place().is_none());
}

#[test]
fn the_names_that_are_known_longest_and_not_in_use_are_surplus_once() {
    let inodes = Inodes::new();
    let look_up = |name: &str| {
        let inode = inodes.at(&place(name));
        inodes.looked_up(&inode);
        inode
    };
    let (a, b, c, d) = (look_up("a"), look_up("b"), look_up("c"), look_up("d"));
    assert_eq!(inodes.surplus(5), vec![], "the root and four files");
    drop((a, c, d));
    assert_eq!(inodes.surplus(3), vec![place("a"), place("c")], "b is open");
    assert_eq!(inodes.surplus(3), vec![], "the kernel was asked to forget them already");
    look_up("a");
    inodes.forget(inodes.number_at(&place("c")), 1);
    drop(b);
    assert_eq!(inodes.surplus(2), vec![place("d"), place("b")], "a came last");
}

#[test]
fn directories_are_surplus_only_if_they_alone_are_too_many_and_no_program_looks_into_them() {
    let inodes = Inodes::new();
    let directory = |name: &str| Place::OrdinaryDir(NodePath::root(), name.to_owned());
    for at in [directory("a"), directory("b"), place("c"), directory("d")] {
        inodes.looked_up(&inodes.at(&at));
    }
    assert_eq!(inodes.surplus(4), vec![place("c")]);
    inodes.at(&directory("a")).mark_used();
    assert_eq!(inodes.surplus(2), vec![directory("d"), directory("b")]);
}

#[test]
fn a_queue_of_names_that_are_looked_up_again_and_again_stays_short() {
    let inodes = Inodes::new();
    for _ in 0..100 {
        let inode = inodes.at(&place("a"));
        inodes.looked_up(&inode);
        let number = inode.number();
        drop(inode);
        inodes.forget(number, 1);
    }
    assert!(inodes.table.read().queue.len() < 10);
}

#[test]
fn a_forgotten_file_gets_the_same_number_again() {
    let inodes = Inodes::new();
    let inode = inodes.at(&place("a"));
    let number = inode.number();
    inodes.looked_up(&inode);
    inodes.looked_up(&inode);
    drop(inode);
    inodes.forget(number, 1);
    assert!(inodes.get(number).is_some(), "forgotten before the kernel forgot it");
    inodes.forget(number, 1);
    assert!(inodes.get(number).is_none(), "kept though nobody knows it");
    assert_eq!(inodes.len(), 1, "only the root is left");
    assert_eq!(inodes.at(&place("a")).number(), number);
}
