use std::time::SystemTime;

use super::*;
use crate::Version;

fn stat(len: u64) -> Stat {
    Stat { len, modified: SystemTime::UNIX_EPOCH, version: Version::settled([len, 0, 0, 0]) }
}

fn page(keys: &[(&str, u64)], prefixes: &[&str], next: Option<&str>) -> ListingPage {
    let keys = keys.iter().map(|(name, len)| (StoreEntry::Key((*name).into()), Some(stat(*len))));
    let prefixes = prefixes.iter().map(|name| (StoreEntry::Prefix((*name).into()), None));
    ListingPage { entries: keys.chain(prefixes).collect(), next: next.map(str::to_owned) }
}

fn key(text: &str) -> Key {
    Key::parse(text).expect("valid")
}

fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).expect("valid")
}

#[test]
fn a_whole_listing_tells_what_is_there_and_what_is_not() {
    let names = NameCache::new(Duration::from_secs(60), true);
    assert_eq!(names.key(&key("a/zarr.json")), KnownPresence::Unknown);
    let mut listing = RemoteListing::new();
    listing.add(page(&[("zarr.json", 7)], &["c", "zarr.json"], None));
    names.keep(&prefix("a/"), &listing);
    assert_eq!(names.key(&key("a/zarr.json")), KnownPresence::Present(stat(7)));
    assert_eq!(names.key(&key("a/.zarray")), KnownPresence::Absent);
    assert_eq!(names.key(&key("a/c")), KnownPresence::Absent, "it is a prefix, not a key");
    assert_eq!(names.prefix(&prefix("a/c/")), KnownPresence::Present(()));
    assert_eq!(names.prefix(&prefix("a/")), KnownPresence::Present(()));
    assert_eq!(names.key(&key("a/c/0")), KnownPresence::Unknown);
    assert_eq!(names.key(&key("a/d/e/f")), KnownPresence::Absent, "nothing is below a/d/");
    assert_eq!(names.key(&key("b")), KnownPresence::Unknown);
}

#[test]
fn a_list_that_proves_no_absence_says_nothing_of_names_that_are_hidden_or_in_doubt() {
    for proves_absence in [false, true] {
        let names = NameCache::new(Duration::from_secs(60), proves_absence);
        let mut listing = RemoteListing::new();
        listing.add(page(&[("zarr.json", 7)], &["a"], None));
        names.keep(&Prefix::root(), &listing);
        let doubtful = if proves_absence { KnownPresence::Absent } else { KnownPresence::Unknown };
        for hidden in ["HEADER/zarr.json", "README", "RCS", "x~", ".zattrs", "HEADER/c/0"] {
            assert_eq!(names.key(&key(hidden)), doubtful, "{hidden}");
        }
        assert_eq!(names.key(&key("secret/c/0")), KnownPresence::Absent);
        names.doubt(&[key("secret/zarr.json")]);
        assert_eq!(names.key(&key("secret/zarr.json")), doubtful);
        assert_eq!(names.key(&key("secret/c/0")), doubtful);
        assert_eq!(names.key(&key("other/zarr.json")), KnownPresence::Absent);
        assert!(names.is_listed(&key("zarr.json")) && !names.is_listed(&key("x")));
    }
}

#[test]
fn the_beginning_of_a_listing_tells_only_what_is_there() {
    let names = NameCache::new(Duration::from_secs(60), true);
    let mut listing = RemoteListing::new();
    listing.add(page(&[("0", 1), ("1", 2)], &[], Some("more")));
    names.keep(&prefix("c/"), &listing);
    assert_eq!(names.key(&key("c/1")), KnownPresence::Present(stat(2)));
    assert_eq!(names.key(&key("c/2")), KnownPresence::Unknown);
    listing.add(page(&[("2", 3)], &[], None));
    names.keep(&prefix("c/"), &listing);
    assert_eq!(names.key(&key("c/2")), KnownPresence::Present(stat(3)));
    assert_eq!(names.key(&key("c/3")), KnownPresence::Absent);
}

#[test]
fn an_old_listing_tells_nothing() {
    let names = NameCache::new(Duration::ZERO, true);
    let mut listing = RemoteListing::new();
    listing.add(page(&[("0", 1)], &[], None));
    names.keep(&prefix("c/"), &listing);
    assert_eq!(names.key(&key("c/0")), KnownPresence::Unknown);
    assert_eq!(names.prefix(&prefix("c/")), KnownPresence::Unknown);
    assert!(names.listing(&prefix("c/")).is_none());
}

fn listed(names: &NameCache, at: &str) -> Vec<String> {
    let listing = names.listing(&prefix(at)).expect("kept");
    let mut listed: Vec<String> =
        listing.names().map(|(entry, _)| entry.name().to_owned()).collect();
    listed.sort();
    listed
}

#[test]
fn own_changes_show_at_once_in_what_was_listed_before() {
    let names = NameCache::new(Duration::from_secs(60), true);
    let mut root = RemoteListing::new();
    root.add(page(&[("zarr.json", 7)], &["b"], None));
    names.keep(&Prefix::root(), &root);
    assert_eq!(names.key(&key("a/c/0")), KnownPresence::Absent);
    names.note_change(&key("a/c/0"), Some(stat(5)));
    assert_eq!(names.key(&key("a/c/0")), KnownPresence::Present(stat(5)));
    assert_eq!(names.prefix(&prefix("a/")), KnownPresence::Present(()));
    assert_eq!(listed(&names, ""), ["a", "b", "zarr.json"]);
    assert_eq!(names.key(&key("a/c/1")), KnownPresence::Absent, "the directory is new");
    assert_eq!(names.prefix(&prefix("a/d/")), KnownPresence::Absent);
    let mut chunks = RemoteListing::new();
    chunks.add(page(&[("0", 5)], &[], None));
    names.keep(&prefix("a/c/"), &chunks);
    names.note_change(&key("a/c/0"), None);
    assert_eq!(names.key(&key("a/c/0")), KnownPresence::Absent);
    assert_eq!(names.prefix(&prefix("a/c/")), KnownPresence::Absent, "its last key was erased");
    names.note_erased(&prefix("b/"));
    assert_eq!(listed(&names, ""), ["zarr.json"]);
    assert_eq!(names.key(&key("b/zarr.json")), KnownPresence::Absent);
}

#[test]
fn own_changes_show_in_listings_that_were_requested_before_them() {
    let names = NameCache::new(Duration::from_secs(60), true);
    let mut listing = RemoteListing::new();
    listing.add(page(&[("0", 1), ("1", 1)], &[], None));
    names.note_change(&key("c/1"), None);
    names.note_change(&key("c/2"), Some(stat(3)));
    names.note_change(&key("c/3/4"), Some(stat(3)));
    names.keep(&prefix("c/"), &listing);
    assert_eq!(listed(&names, "c/"), ["0", "2", "3"]);
    assert_eq!(names.key(&key("c/1")), KnownPresence::Absent);
}

#[test]
fn nothing_is_known_of_a_key_that_was_forgotten() {
    let names = NameCache::new(Duration::from_secs(60), true);
    let mut listing = RemoteListing::new();
    listing.add(page(&[("0", 1)], &[], None));
    names.keep(&prefix("c/"), &listing);
    names.forget(&key("c/0"));
    assert_eq!(names.key(&key("c/0")), KnownPresence::Unknown);
    let mut listing = RemoteListing::new();
    listing.add(page(&[("0", 2)], &[], None));
    names.keep(&prefix("c/"), &listing);
    assert_eq!(names.key(&key("c/0")), KnownPresence::Present(stat(2)), "a newer listing counts");
}

#[test]
fn a_listing_that_is_too_old_does_not_tell_that_a_directory_is_gone() {
    let names = NameCache::new(Duration::from_millis(200), true);
    let mut chunks = RemoteListing::new();
    chunks.add(page(&[("0", 5)], &[], None));
    names.keep(&prefix("c/"), &chunks);
    std::thread::sleep(Duration::from_millis(250));
    let mut root = RemoteListing::new();
    root.add(page(&[], &["c"], None));
    names.keep(&Prefix::root(), &root);
    names.note_change(&key("c/0"), None);
    assert_eq!(names.key(&key("c/1")), KnownPresence::Unknown, "another mount may have stored it");
}

#[test]
fn a_listing_that_was_requested_before_an_erasure_does_not_bring_names_back() {
    let names = NameCache::new(Duration::from_secs(60), true);
    let (mut root, mut below) = (RemoteListing::new(), RemoteListing::new());
    names.note_erased(&prefix("a/"));
    root.add(page(&[("zarr.json", 1)], &["a"], None));
    names.keep(&Prefix::root(), &root);
    assert_eq!(listed(&names, ""), ["zarr.json"]);
    below.add(page(&[("0", 1)], &[], None));
    names.keep(&prefix("a/c/"), &below);
    assert_eq!(names.key(&key("a/c/0")), KnownPresence::Absent);
}

#[test]
fn nothing_is_known_below_a_directory_that_was_forgotten() {
    let names = NameCache::new(Duration::from_secs(60), true);
    let mut root = RemoteListing::new();
    root.add(page(&[], &[], None));
    names.keep(&Prefix::root(), &root);
    names.note_change(&key("a/0"), Some(stat(1)));
    names.forget_below(&prefix("a/"));
    assert_eq!(names.key(&key("a/0")), KnownPresence::Unknown);
    assert_eq!(names.key(&key("b/c/0")), KnownPresence::Absent);
    names.forget_below(&prefix("b/c/"));
    assert_eq!(names.key(&key("b/c/0")), KnownPresence::Unknown, "it may have been stored since");
    assert_eq!(names.key(&key("b/d")), KnownPresence::Unknown);
    assert_eq!(names.key(&key("e")), KnownPresence::Absent);
}
