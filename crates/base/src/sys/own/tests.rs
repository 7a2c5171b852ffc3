use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::*;

fn place() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused_anywhere_on_the_way() {
    let place = place();
    let below = place.path().join("a/b/c");
    OwnDirectory::on_safe_way(&below).expect("made");
    assert_eq!(fs::metadata(&below).expect("there").mode() & 0o777, 0o700);
    for (part, mode) in [("a", 0o777), ("a/b", 0o772), ("a/b/c", 0o707)] {
        let part = place.path().join(part);
        set_mode(&part, mode);
        let error = OwnDirectory::on_safe_way(&below).expect_err("refused");
        assert_eq!(error.kind(), Kind::NotPermitted);
        assert_eq!(error.subject(), Some(&*part.display().to_string()), "{error}");
        set_mode(&part, mode | 0o1000);
        OwnDirectory::on_safe_way(&below).expect("nobody can rename what is in it");
        set_mode(&part, 0o755);
    }
}

#[test]
fn what_another_user_owns_on_the_way_is_refused() {
    if !geteuid().is_root() {
        return; // Nobody else can give a file away.
    }
    let place = place();
    let (theirs, link) = (place.path().join("theirs"), place.path().join("link"));
    fs::create_dir_all(theirs.join("mine")).expect("made");
    symlink("ours", &link).expect("linked");
    OwnDirectory::on_safe_way(&place.path().join("ours/cache")).expect("made");
    OwnDirectory::on_safe_way(&link.join("cache")).expect("a link of this user is followed");
    chown(&theirs, Some(65534), None).expect("given away");
    std::os::unix::fs::lchown(&link, Some(65534), None).expect("given away");
    for path in [theirs.join("mine"), theirs.clone(), link.join("cache")] {
        let error = OwnDirectory::on_safe_way(&path).expect_err("refused");
        assert!(error.to_string().contains("user 65534"), "{error}");
    }
    let above = OwnDirectory::on_safe_way(place.path()).expect("opened");
    for name in ["theirs", "link"] {
        above.private(name, OthersMay::Read).expect_err("refused");
    }
}

#[test]
fn links_are_resolved_like_the_kernel_does() {
    let place = place();
    fs::create_dir_all(place.path().join("x/y")).expect("made");
    symlink("x/y", place.path().join("relative")).expect("linked");
    symlink(place.path().join("x"), place.path().join("absolute")).expect("linked");
    symlink("../..", place.path().join("x/y/up")).expect("linked");
    symlink("circle", place.path().join("circle")).expect("linked");
    let identity = |path: &str| {
        let opened = OwnDirectory::on_safe_way(&place.path().join(path)).expect("opened");
        opened.metadata(".").map(|found| (found.dev(), found.ino())).expect("known")
    };
    assert_eq!(identity("relative"), identity("x/y"));
    assert_eq!(identity("absolute/y"), identity("x/y"));
    assert_eq!(identity("relative/.."), identity("x"));
    assert_eq!(identity("x/y/up"), identity("."));
    OwnDirectory::on_safe_way(&place.path().join("circle")).expect_err("refused");
}

#[test]
fn only_an_empty_directory_gets_the_mark() {
    let place = place();
    let above = OwnDirectory::on_safe_way(place.path()).expect("opened");
    let is_ours = |name: &str| name.starts_with("new-");
    let dir = above.private("d", OthersMay::Read).expect("made");
    fs::write(place.path().join("d/new-1"), "half").expect("written");
    dir.mark("mark", "text\n", is_ours).expect("marked");
    fs::write(place.path().join("d/other"), "mine").expect("written");
    dir.mark("mark", "text\n", is_ours).expect("it has the mark");
    fs::write(place.path().join("d/mark"), "other").expect("written");
    dir.mark("mark", "text\n", is_ours).expect_err("not the same text");
    fs::remove_file(place.path().join("d/mark")).expect("removed");
    let error = dir.mark("mark", "text\n", is_ours).expect_err("somebody's own");
    assert!(error.to_string().contains("other"), "{error}");
    assert!(!place.path().join("d/mark").exists());
}

#[test]
fn a_directory_is_used_by_its_descriptor_and_not_by_its_path() {
    let place = place();
    let above = OwnDirectory::on_safe_way(place.path()).expect("opened");
    let dir = above.private("d", OthersMay::Nothing).expect("made");
    fs::rename(place.path().join("d"), place.path().join("moved")).expect("moved");
    fs::create_dir(place.path().join("d")).expect("another");
    fs::write(place.path().join("d/x"), "theirs").expect("written");
    dir.create("x").expect("created").write_all(b"ours").expect("written");
    dir.remove("x").expect("removed");
    assert_eq!(fs::read(place.path().join("d/x")).expect("there"), b"theirs");
    assert!(!place.path().join("moved/x").exists());
}

#[test]
fn nothing_is_renamed_over_a_file_that_shall_stay() {
    let place = place();
    let dir = OwnDirectory::on_safe_way(place.path()).expect("opened");
    for name in ["a", "b"] {
        dir.create(name).expect("created").write_all(name.as_bytes()).expect("written");
    }
    let error = dir.rename("a", "b", IfTaken::Stays).expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    dir.rename("a", "c", IfTaken::Stays).expect("free");
    dir.rename("c", "b", IfTaken::Goes).expect("replaced");
    assert_eq!(fs::read(place.path().join("b")).expect("there"), b"a");
}

#[test]
fn a_log_is_not_written_through_a_link_of_another_user() {
    let place = place();
    let (log, link) = (place.path().join("log"), place.path().join("link"));
    symlink("log", &link).expect("linked");
    open_log(&link).expect("a link of this user").write_all(b"1").expect("written");
    open_log(&log).expect("opened").write_all(b"2").expect("written");
    assert_eq!(fs::read(&log).expect("there"), b"12");
    if geteuid().is_root() {
        std::os::unix::fs::lchown(&link, Some(65534), None).expect("given away");
        open_log(&link).expect_err("refused");
    }
}
