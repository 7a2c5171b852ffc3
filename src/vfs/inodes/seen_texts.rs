//! The metadata files as each process has seen them.
//!
//! A program changes a metadata file by writing all of it again, and what it has not changed it
//! writes as it once read it. So a merge must know what *this* program has read or written last:
//! with the newest text that any program saw as the base, a program that sets an attribute would
//! undo the growth of an array that it does not know about.
//!
//! The kernel names the thread of each request. A text is remembered with the thread that opened
//! the file, which costs nothing, and only a program that writes the file is looked up in `/proc`:
//! the last text that one of its threads has seen is the base. Programs that share a process (two
//! open arrays in one Python) cannot be told apart, and neither can threads that have ended.
//!
//! On servers a removal is compared, too ([`SeenTexts::check_known`]): `mv` of an array copies what
//! it knows, and then removes everything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::place::Place;
use crate::bounded::{Bounded, MapLimits};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::json;
use crate::metadata::NodePath;
use crate::sys;
use crate::vfs::authors::{Processes, Thread};
use crate::width::ToU64;

/// The most bytes of all texts. One that several threads have seen one after another counts once.
const MAX_LEN: u64 = 16 << 20;

/// The most threads whose last text of one file is remembered.
const MAX_THREADS: usize = 64;

/// What an entry takes besides its text, in bytes.
const ENTRY_LEN: usize = 64;

/// The member of a group's metadata file with copies of those below it.
const COPIES: &str = "consolidated_metadata";

/// The clock of `/proc` has ticks of at most this length.
const TICK: Duration = Duration::from_millis(20);

/// A text that a thread has seen.
#[derive(Debug)]
struct SeenText {
    thread: u32,
    at: Instant,
    text: Arc<str>,
    /// Whether it has written the text. The file may then be shown in other words.
    is_written: bool,
    /// For the attributes of Zarr 2, the metadata file beside them.
    beside: Option<Arc<str>>,
}

impl SeenText {
    /// Whether the thread that saw it belongs to this process. A process that began later has only
    /// got the number.
    fn is_of(&self, process: u32) -> bool {
        let is_old_enough =
            || sys::age_of(process).is_none_or(|age| age.saturating_add(TICK) >= self.at.elapsed());
        (self.thread == process || sys::is_thread_of(process, self.thread)) && is_old_enough()
    }
}

/// The last texts of metadata files that threads have seen.
#[derive(Debug)]
pub struct SeenTexts {
    /// A leaf lock.
    files: Mutex<Bounded<Place, Vec<SeenText>>>,
}

impl Default for SeenTexts {
    fn default() -> Self {
        Self { files: Mutex::new(Bounded::new(MapLimits::bytes(MAX_LEN))) }
    }
}

impl SeenTexts {
    /// Notes that a thread has read a metadata file.
    pub fn note(&self, place: &Place, thread: Thread, text: &Arc<str>) {
        self.put(place, thread, (text, false), None);
    }

    /// Notes that a thread has read the attributes of a node, whose metadata file is `beside`.
    pub fn note_attributes(&self, path: &NodePath, thread: Thread, text: &Arc<str>, beside: &str) {
        let place = Place::Attributes(path.clone());
        self.put(&place, thread, (text, false), Some(beside.into()));
    }

    fn put(
        &self,
        place: &Place,
        thread: Thread,
        (text, is_written): (&Arc<str>, bool),
        beside: Option<Arc<str>>,
    ) {
        let Some(thread) = thread else { return };
        let mut files = self.files.lock();
        if !files.contains(place) {
            drop(files.put(place.clone(), Vec::new(), 0));
        }
        let Some(seen) = files.get_mut(place) else { return };
        // Most threads see the same text.
        let same = seen.last().filter(|last| last.text == *text).map(|last| Arc::clone(&last.text));
        let text = same.unwrap_or_else(|| Arc::clone(text));
        let before = seen.iter().find(|known| known.thread == thread);
        let beside = beside.or_else(|| before?.beside.clone());
        seen.retain(|known| known.thread != thread);
        if seen.len() >= MAX_THREADS {
            seen.remove(0);
        }
        seen.push(SeenText { thread, at: Instant::now(), text, is_written, beside });
        let texts = seen.chunk_by(|one, next| Arc::ptr_eq(&one.text, &next.text));
        let texts: usize = texts.filter_map(|same| Some(same.first()?.text.len())).sum();
        let len = texts.saturating_add(seen.len().saturating_mul(ENTRY_LEN));
        let evicted = files.set_len(place, len.to_u64());
        drop(files);
        drop(evicted); // Freeing memory takes time: not under the lock.
    }

    /// Notes that these programs have written a metadata file.
    pub fn note_written(&self, place: &Place, by: &Processes, written: &[u8]) {
        let text: Arc<str> = String::from_utf8_lossy(written).into();
        for process in by.known().unwrap_or_default() {
            self.put(place, Some(*process), (&text, true), None);
        }
    }

    /// Notes that a program of this mount has changed a metadata file, which was `before`, in
    /// another way than by writing it: programs that have read that may still remove it.
    pub fn note_changed(&self, place: &Place, before: &str) {
        let mut files = self.files.lock();
        let all = files.get_mut(place).into_iter().flatten();
        for seen in all.filter(|seen| *seen.text == *before) {
            seen.is_written = true;
        }
    }

    /// Whether these programs have read another text of a metadata file than `now`.
    pub fn is_outdated(&self, place: &Place, by: &Processes, now: &str) -> bool {
        let seen = self.last_seen(place, by);
        seen.is_some_and(|seen| !seen.is_written && !is_same(&seen.text, now))
    }

    /// Fails, once, if these programs have read another text of a metadata file than `now`: it
    /// changed since, and they would remove what they do not know.
    pub fn check_known(&self, place: &Place, by: &Processes, now: &Arc<str>) -> Result<()> {
        if !self.is_outdated(place, by, now) {
            return Ok(());
        }
        for process in by.known().unwrap_or_default() {
            self.note(place, Some(*process), now);
        }
        let detail = "another program has changed it since this program has read it, so it is not \
                      removed: look again before you remove it";
        Err(Error::new(Kind::Busy, detail).at(place.shown()))
    }

    /// Returns the text of a metadata file that the programs which have written `by` saw last;
    /// `None` if that is not known.
    pub fn last(&self, place: &Place, by: &Processes) -> Option<Arc<str>> {
        self.last_seen(place, by).map(|seen| seen.text)
    }

    /// Returns the metadata file from which these programs know the node at `path`; `None` if that
    /// is not known, or if they know it from consolidated metadata.
    pub fn known_node(&self, path: &NodePath, by: &Processes) -> Option<Arc<str>> {
        let beside = || {
            let attributes = self.last_seen(&Place::Attributes(path.clone()), by)?;
            Some(SeenText { text: attributes.beside.clone()?, ..attributes })
        };
        let seen = self.last_seen(&Place::Document(path.clone()), by).or_else(beside)?;
        let has_copy = |group: NodePath| {
            self.last_seen(&Place::Document(group), by)
                .is_some_and(|above| above.at > seen.at && above.text.contains(COPIES))
        };
        (!path.ancestors().into_iter().any(has_copy)).then_some(seen.text)
    }

    fn last_seen(&self, place: &Place, by: &Processes) -> Option<SeenText> {
        let processes = by.known()?;
        // `/proc` is read without the lock.
        let seen: Vec<SeenText> = {
            let files = self.files.lock();
            let copy = |seen: &SeenText| SeenText {
                text: Arc::clone(&seen.text),
                beside: seen.beside.clone(),
                ..*seen
            };
            files.peek(place)?.iter().rev().map(copy).collect()
        };
        let is_theirs = |seen: &SeenText| processes.iter().any(|process| seen.is_of(*process));
        seen.into_iter().find(is_theirs)
    }

    /// Returns the other node whose metadata file a program has seen as `text` last: `text` is then
    /// a copy of it. Programs read several files before they write the first, so a node with the
    /// name of the copy comes first.
    pub fn source_of(&self, copy: &NodePath, text: &[u8]) -> Option<NodePath> {
        let files = self.files.lock();
        let has_text = |seen: &Vec<SeenText>| seen.iter().any(|seen| seen.text.as_bytes() == text);
        let sources = || {
            files.iter().filter_map(|(place, seen)| match place {
                Place::Document(path) if path != copy && has_text(seen) => Some(path),
                _ => None,
            })
        };
        let same_name = sources().find(|path| path.name() == copy.name());
        same_name.or_else(|| sources().next()).cloned()
    }

    /// Forgets what programs have seen of a metadata file that was removed: a program that writes
    /// it again writes a new one.
    pub fn forget(&self, place: &Place) {
        self.files.lock().retain(|known, _| known != place);
    }

    /// Forgets what programs have seen below a node that was moved or removed.
    pub fn forget_below(&self, path: &NodePath) {
        let is_below =
            |place: &Place| place.node().is_some_and(|node| node.relative_to(path).is_some());
        self.files.lock().retain(|place, _| !is_below(place));
    }
}

/// Whether two texts of a metadata file differ at most in the copies of those below it, which
/// change when these are removed.
fn is_same(one: &str, other: &str) -> bool {
    let alone = |text: &str| {
        let mut document = json::parse_object(text.as_bytes()).ok()?;
        document.remove(COPIES);
        Some(document)
    };
    one == other || alone(one).zip(alone(other)).is_some_and(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authors(thread: u32) -> Processes {
        let mut processes = Processes::default();
        processes.note(Some(thread));
        processes
    }

    #[test]
    fn a_program_has_seen_what_one_of_its_threads_has_seen_last() {
        let (seen, own) = (SeenTexts::default(), std::process::id());
        let place = Place::Document(NodePath::parse("a").expect("a path"));
        let note = |thread, text: &str| seen.note(&place, Some(thread), &text.into());
        assert_eq!(seen.last(&place, &authors(own)), None, "it has read nothing");
        note(1, "of another program");
        assert_eq!(seen.last(&place, &authors(own)), None);
        note(own, "first");
        std::thread::scope(|scope| {
            let thread = || {
                let link = std::fs::read_link("/proc/thread-self").expect("a link");
                let number = link.file_name().and_then(|name| name.to_str()).expect("a number");
                note(number.parse().expect("a number"), "second");
                assert_eq!(seen.last(&place, &authors(own)).as_deref(), Some("second"));
            };
            scope.spawn(thread).join().expect("no panic");
        });
        note(own, "third");
        note(1, "of another program");
        assert_eq!(seen.last(&place, &authors(own)).as_deref(), Some("third"));
        seen.note_written(&place, &authors(own), b"written");
        assert_eq!(seen.last(&place, &authors(own)).as_deref(), Some("written"));
        assert_eq!(
            seen.last(&place, &Processes::default()),
            None,
            "nobody is known to have written"
        );
        seen.forget_below(&NodePath::root());
        assert_eq!(seen.last(&place, &authors(own)), None);
    }

    #[test]
    fn a_program_that_has_read_another_text_is_told_so_once_before_it_removes_the_file() {
        let (seen, own) = (SeenTexts::default(), std::process::id());
        let place = Place::Document(NodePath::root());
        let is_known = |now: &str| seen.check_known(&place, &authors(own), &now.into()).is_ok();
        assert!(is_known("new"), "it has read nothing");
        seen.note(&place, Some(own), &"old".into());
        assert!(is_known("old") && !is_known("new") && is_known("new"));
        seen.note_written(&place, &authors(own), b"in other words");
        assert!(is_known("new"));
        assert!(seen.check_known(&place, &Processes::default(), &"x".into()).is_ok());
    }

    #[test]
    fn a_copy_is_made_of_the_node_that_was_read_last_or_has_its_name() {
        let (seen, own) = (SeenTexts::default(), std::process::id());
        let path = |path: &str| NodePath::parse(path).expect("a path");
        for name in ["g/b", "a", "g/a", "x"] {
            let text = if name == "x" { "another" } else { "text" };
            seen.note(&Place::Document(path(name)), Some(own), &text.into());
        }
        assert_eq!(seen.source_of(&path("new"), b"text"), Some(path("g/a")));
        assert_eq!(seen.source_of(&path("new/b"), b"text"), Some(path("g/b")));
        assert_eq!(seen.source_of(&path("g/a"), b"text"), Some(path("a")), "not itself");
        assert_eq!(seen.source_of(&path("new"), b"none"), None);
    }

    #[test]
    fn a_file_that_many_threads_have_read_is_remembered_for_the_last_of_them() {
        let (seen, own) = (SeenTexts::default(), std::process::id());
        let place = Place::Document(NodePath::root());
        let text: Arc<str> = "x".repeat(1 << 20).into();
        seen.note(&place, Some(own), &text);
        for thread in 0..1000 {
            seen.note(&place, Some(1 << 30 | thread), &text);
        }
        assert!(seen.files.lock().len() <= MAX_LEN);
        assert_eq!(seen.last(&place, &authors(own)), None);
    }

    #[test]
    fn a_number_that_a_later_process_has_got_tells_nothing() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let at = Instant::now().checked_sub(Duration::from_secs(5)).expect("long ago");
        let seen = |at| SeenText {
            thread: child.id(),
            at,
            text: "".into(),
            is_written: false,
            beside: None,
        };
        assert!(!seen(at).is_of(child.id()), "it did not run then");
        assert!(seen(Instant::now()).is_of(child.id()));
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}
