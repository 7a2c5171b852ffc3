//! Inodes: numbers for files and directories, as long as the kernel or a program uses them.
//!
//! A number belongs to a file, not to its name: a rename keeps it, and a replaced file keeps its
//! own while it is open. Until a file is renamed, its number is derived from its place, so that the
//! number is the same after the kernel has forgotten it.
//!
//! An ordinary file of a store of files may have several names (hard links). They share one inode,
//! which is found by the identity of the file.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};

use super::file::{InodeFile, OpenedAs};
use super::place::{Place, number_of};
use crate::metadata::NodePath;
use crate::store::FileId;
use crate::view::View;

/// The inode number of the root.
pub const ROOT: u64 = 1;

/// A file or directory that the kernel, an open handle or the overlay refers to.
#[derive(Debug)]
pub struct Inode {
    number: u64,
    is_dir: bool,
    /// Its places; none once it was unlinked or replaced, several with hard links. A leaf lock.
    places: RwLock<Vec<Place>>,
    /// The file of the store with several names that it is. A leaf lock.
    linked: RwLock<Option<FileId>>,
    /// Its place before another file replaced it; `None` if that never happened. A leaf lock.
    replaced_at: RwLock<Option<Box<Place>>>,
    /// The inode that took its place while this one is open with another meaning. A leaf lock.
    successor: RwLock<Option<Weak<Inode>>>,
    /// The state of its bytes, created at the first open; most files are never opened.
    file: OnceLock<Box<Mutex<InodeFile>>>,
    /// Whether a program has looked a name up in this directory since [`Inodes::surplus`] saw it.
    is_used: AtomicBool,
}

impl Inode {
    /// Returns its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is a directory, even after its removal.
    pub fn is_dir(&self) -> bool {
        self.is_dir
    }

    /// Returns its place, or one of them; `None` once it was unlinked or replaced.
    pub fn place(&self) -> Option<Place> {
        self.places.read().first().cloned()
    }

    /// Returns all of its places.
    pub fn all_places(&self) -> Vec<Place> {
        self.places.read().clone()
    }

    /// Notes that a program looks a name up in it.
    pub fn mark_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Whether it has more than one place.
    pub fn has_several_places(&self) -> bool {
        self.places.read().len() > 1
    }

    /// Whether it has this place.
    pub fn is_at(&self, place: &Place) -> bool {
        self.places.read().contains(place)
    }

    /// Whether it had several places at some time, which are names of one file of the store.
    pub fn is_linked(&self) -> bool {
        self.linked.read().is_some()
    }

    /// Whether it is another file of the store than the one with this identity.
    pub fn is_other_than(&self, id: FileId) -> bool {
        self.linked.read().is_some_and(|linked| linked != id)
    }

    /// Makes one of its places the one that [`Self::place`] returns.
    pub fn prefer(&self, place: &Place) {
        let mut places = self.places.write();
        if let Some(at) = places.iter().position(|known| known == place) {
            places.swap(0, at);
        }
    }

    /// Gives it the place `to` instead of `from`.
    fn move_place(&self, from: &Place, to: &Place) {
        let mut places = self.places.write();
        places.retain(|place| place != from && place != to);
        places.push(to.clone());
    }

    /// Returns the inode that took its place, wherever that is now; `None` if there is none, or no
    /// longer.
    pub fn successor(&self) -> Option<Arc<Inode>> {
        self.successor.read().as_ref().and_then(Weak::upgrade)
    }

    /// Whether another inode took its place while programs keep this one open.
    pub fn was_renewed(&self) -> bool {
        self.successor.read().is_some() && self.place().is_none()
    }

    /// Whether programs have it open and its name has another meaning now, so that its number
    /// cannot be opened again.
    pub fn is_orphaned(&self) -> bool {
        self.was_renewed() && self.known_file().is_some_and(|file| file.lock().opened.is_some())
    }

    /// Returns the view that all its opens share.
    pub fn open_view(&self) -> Option<Arc<View>> {
        match &self.known_file()?.lock().opened {
            Some(OpenedAs::View(view)) => Some(Arc::clone(view)),
            _ => None,
        }
    }

    /// Whether another inode has its place now.
    pub fn is_replaced(&self) -> bool {
        self.place().is_none() && (self.replaced_at().is_some() || self.successor().is_some())
    }

    /// Returns the state of its bytes. See [`InodeFile`] for what may be done under this lock.
    pub fn file(&self) -> &Mutex<InodeFile> {
        self.file.get_or_init(Box::default)
    }

    /// Like [`Self::file`], but `None` if the file was never opened and all of its bytes are
    /// stored.
    pub fn known_file(&self) -> Option<&Mutex<InodeFile>> {
        self.file.get().map(|file| &**file)
    }

    /// Returns its place before another file replaced it.
    pub fn replaced_at(&self) -> Option<Place> {
        self.replaced_at.read().as_deref().cloned()
    }
}

/// All inodes in use.
#[derive(Debug)]
pub struct Inodes {
    /// A leaf lock: copy the `Arc` out, unlock, then work.
    table: RwLock<InodeTable>,
}

#[derive(Debug, Default)]
struct InodeTable {
    by_number: HashMap<u64, InodeEntry, RandomState>,
    by_place: HashMap<Place, u64, RandomState>,
    /// The inodes of files with several names.
    by_file: HashMap<FileId, u64, RandomState>,
    /// Inodes that the kernel forgot while a thread still used them. `sweep` drops them.
    unclaimed: HashSet<u64>,
    /// The numbers of the inodes with their turns, the longest known first. Some are gone, or have
    /// a later turn.
    queue: VecDeque<(u64, u64)>,
    last_turn: u64,
    directories: usize,
    /// How many inodes have no turn: the kernel was asked to forget them, and has not yet.
    asked: usize,
}

#[derive(Debug)]
struct InodeEntry {
    inode: Arc<Inode>,
    /// The lookup count: answers that gave the inode to the kernel, minus those it forgot.
    lookups: u64,
    /// The turn of its entry in the queue; `None` if the kernel was asked to forget it.
    turn: Option<u64>,
}

impl Inodes {
    /// Returns a table with only the root.
    pub fn new() -> Self {
        let mut table = InodeTable::default();
        table.insert(ROOT, Place::root(), 1);
        Self { table: RwLock::new(table) }
    }

    /// Returns the inode of a number.
    pub fn get(&self, number: u64) -> Option<Arc<Inode>> {
        self.table.read().by_number.get(&number).map(|known| Arc::clone(&known.inode))
    }

    /// Returns the inode at `place`, a new one if there is none.
    pub fn at(&self, place: &Place) -> Arc<Inode> {
        if let Some(inode) = self.known_at(place) {
            return inode;
        }
        self.table.write().at(place)
    }

    /// Returns the inode at `place` if there is one.
    pub fn known_at(&self, place: &Place) -> Option<Arc<Inode>> {
        let table = self.table.read();
        let number = table.by_place.get(place)?;
        table.by_number.get(number).map(|known| Arc::clone(&known.inode))
    }

    /// Whether there is an inode at `place`.
    pub fn is_known(&self, place: &Place) -> bool {
        self.table.read().by_place.contains_key(place)
    }

    /// Returns the number that the inode at `place` has or would have.
    pub fn number_at(&self, place: &Place) -> u64 {
        let table = self.table.read();
        table.by_place.get(place).copied().unwrap_or_else(|| table.free_number(place.number()))
    }

    /// Adds one to the lookup count of an inode.
    pub fn looked_up(&self, inode: &Arc<Inode>) {
        let mut table = self.table.write();
        // The inode is in the table, because the caller holds a reference to it.
        if let Some(known) = table.by_number.get_mut(&inode.number) {
            known.lookups = known.lookups.saturating_add(1);
            let has_turn = known.turn.is_some();
            table.unclaimed.remove(&inode.number);
            if !has_turn {
                table.asked = table.asked.saturating_sub(1);
                table.give_turn(inode.number);
            }
        }
    }

    /// Creates the inode at `place` with a lookup count of one, and returns its number; `None` if
    /// there is one already.
    pub fn insert_looked_up(&self, place: &Place) -> Option<u64> {
        let mut table = self.table.write();
        if table.by_place.contains_key(place) {
            return None;
        }
        let number = table.free_number(place.number());
        table.insert(number, place.clone(), 1);
        Some(number)
    }

    /// Drops inodes that were still in use when the kernel forgot them. Call this now and then.
    pub fn sweep(&self) {
        let mut table = self.table.write();
        for number in std::mem::take(&mut table.unclaimed) {
            table.drop_unknown(number);
        }
    }

    /// Returns the places of inodes that exceed `most`, those that the kernel has known for the
    /// longest time first. It can forget them, because no program has them open. Directories are
    /// among them only if they alone exceed `most`: the kernel does not say which of them are the
    /// working directory of a program. Each inode is returned once, until the kernel looks it up
    /// again.
    pub fn surplus(&self, most: usize) -> Vec<Place> {
        self.table.write().surplus(most)
    }

    /// Subtracts `count` from the lookup count of an inode.
    pub fn forget(&self, number: u64, count: u64) {
        let mut table = self.table.write();
        if let Some(known) = table.by_number.get_mut(&number) {
            known.lookups = known.lookups.saturating_sub(count);
        }
        table.drop_unknown(number);
    }

    /// Drops an inode unless the kernel, or another thread, still refers to it.
    pub fn release(&self, inode: Arc<Inode>) {
        let number = inode.number;
        drop(inode);
        self.table.write().drop_unknown(number);
    }

    /// Moves an inode from one place to another. Returns the inode that was there, which has one
    /// place less now.
    pub fn rename(&self, inode: &Arc<Inode>, from: &Place, to: &Place) -> Option<Arc<Inode>> {
        let mut table = self.table.write();
        let replaced = table.detach_at(to);
        if let Some(replaced) = replaced.as_ref().filter(|replaced| replaced.place().is_none()) {
            *replaced.replaced_at.write() = Some(Box::new(to.clone()));
        }
        if table.by_place.get(from) == Some(&inode.number) {
            table.by_place.remove(from);
        }
        inode.move_place(from, to);
        table.by_place.insert(to.clone(), inode.number);
        replaced
    }

    /// Lets two inodes take each other's place.
    pub fn exchange(&self, (one, at): (&Inode, &Place), (other, other_at): (&Inode, &Place)) {
        let mut table = self.table.write();
        one.move_place(at, other_at);
        other.move_place(other_at, at);
        table.by_place.insert(other_at.clone(), one.number);
        table.by_place.insert(at.clone(), other.number);
    }

    /// Returns the inode at `place`, which is one of the names of the file `id`.
    pub fn at_linked(&self, place: &Place, id: FileId) -> Arc<Inode> {
        let mut table = self.table.write();
        let known = |table: &InodeTable, number| {
            table.by_number.get(number).map(|known: &InodeEntry| Arc::clone(&known.inode))
        };
        if let Some(inode) = table.by_place.get(place).and_then(|number| known(&table, number)) {
            return inode;
        }
        if let Some(inode) = table.by_file.get(&id).and_then(|number| known(&table, number)) {
            inode.places.write().push(place.clone());
            table.by_place.insert(place.clone(), inode.number);
            return inode;
        }
        // The number must not depend on the name.
        let number = table.free_number(number_of(&id));
        table.unclaimed.insert(number);
        let inode = table.insert(number, place.clone(), 0);
        table.note_linked(&inode, id);
        inode
    }

    /// Returns the inode at `place`, which has no other place: if names of one file become
    /// different things, each gets an inode of its own.
    pub fn alone_at(&self, place: &Place) -> Arc<Inode> {
        let mut table = self.table.write();
        let inode = table.at(place);
        if inode.has_several_places() {
            for place in inode.all_places() {
                table.detach_at(&place);
            }
            return table.at(place);
        }
        inode
    }

    /// Gives the inode of the file `id` the additional name `place`.
    pub fn link(&self, inode: &Arc<Inode>, place: &Place, id: FileId) {
        let mut table = self.table.write();
        table.detach_at(place);
        inode.places.write().push(place.clone());
        table.by_place.insert(place.clone(), inode.number);
        table.note_linked(inode, id);
    }

    /// Gives the place of an inode to a new one; `None` if it has no place.
    pub fn renew(&self, inode: &Inode) -> Option<Arc<Inode>> {
        let mut table = self.table.write();
        let place = inode.place()?;
        table.detach_at(&place)?;
        let new = table.at(&place);
        *inode.successor.write() = Some(Arc::downgrade(&new));
        Some(new)
    }

    /// Moves all inodes for whose place `new_place` returns another one, because a node was moved
    /// or has become an array.
    pub fn replace(&self, new_place: impl Fn(&Place) -> Option<Place>) {
        let mut table = self.table.write();
        let moved: Vec<(Place, Place, u64)> = table
            .by_place
            .iter()
            .filter_map(|(place, number)| Some((place.clone(), new_place(place)?, *number)))
            .collect();
        for (old, _, _) in &moved {
            table.by_place.remove(old);
        }
        for (old, new, number) in moved {
            table.detach_at(&new);
            if let Some(known) = table.by_number.get(&number) {
                known.inode.move_place(&old, &new);
            }
            table.by_place.insert(new, number);
        }
    }

    /// Returns the inodes in and below a node, ordered by number.
    pub fn below(&self, path: &NodePath) -> Vec<Arc<Inode>> {
        let table = self.table.read();
        let is_below =
            |place: &Place| place.node().is_some_and(|node| node.relative_to(path).is_some());
        let mut below: Vec<Arc<Inode>> = table
            .by_place
            .iter()
            .filter(|(place, _)| is_below(place))
            .filter_map(|(_, number)| table.by_number.get(number))
            .map(|known| Arc::clone(&known.inode))
            .collect();
        below.sort_by_key(|inode| inode.number);
        // A file with several names has one inode, and its lock is taken once.
        below.dedup_by_key(|inode| inode.number);
        below
    }

    /// Takes the place from the inode at `place`, and returns it.
    pub fn unlink(&self, place: &Place) -> Option<Arc<Inode>> {
        self.table.write().detach_at(place)
    }

    /// Returns the number of inodes.
    pub fn len(&self) -> usize {
        self.table.read().by_number.len()
    }
}

impl InodeTable {
    fn insert(&mut self, number: u64, place: Place, lookups: u64) -> Arc<Inode> {
        let inode = Arc::new(Inode {
            number,
            is_dir: place.is_dir(),
            places: RwLock::new(vec![place.clone()]),
            linked: RwLock::new(None),
            replaced_at: RwLock::new(None),
            successor: RwLock::new(None),
            file: OnceLock::new(),
            is_used: AtomicBool::new(false),
        });
        self.by_number
            .insert(number, InodeEntry { inode: Arc::clone(&inode), lookups, turn: None });
        self.by_place.insert(place, number);
        self.give_turn(number);
        self.directories = self.directories.saturating_add(usize::from(inode.is_dir));
        inode
    }

    /// Puts an inode at the end of the queue.
    fn give_turn(&mut self, number: u64) {
        self.last_turn = self.last_turn.wrapping_add(1);
        let turn = self.last_turn;
        let Some(known) = self.by_number.get_mut(&number) else { return };
        known.turn = Some(turn);
        self.queue.push_back((number, turn));
        if self.queue.len() / 2 > self.by_number.len() {
            let by_number = &self.by_number;
            self.queue.retain(|(number, turn)| {
                by_number.get(number).is_some_and(|known| known.turn == Some(*turn))
            });
        }
    }

    fn surplus(&mut self, most: usize) -> Vec<Place> {
        let mut left = self.by_number.len().saturating_sub(self.asked).saturating_sub(most);
        let mut directories_left = self.directories.saturating_sub(most);
        let mut places = Vec::new();
        // Those that stay come to the end of the queue again, so each is seen once.
        for _ in 0..self.queue.len() {
            if left == 0 {
                break;
            }
            let Some((number, turn)) = self.queue.pop_front() else { break };
            let known = self.by_number.get_mut(&number).filter(|known| known.turn == Some(turn));
            let Some(known) = known else { continue };
            let inode = &known.inode;
            let is_used = Arc::strong_count(inode) > 1
                || (inode.is_dir && inode.is_used.swap(false, Ordering::Relaxed));
            if is_used || number == ROOT || (inode.is_dir && directories_left == 0) {
                self.give_turn(number);
                continue;
            }
            places.extend(inode.places.read().iter().cloned());
            left = left.saturating_sub(1);
            directories_left = directories_left.saturating_sub(usize::from(inode.is_dir));
            known.turn = None;
            self.asked = self.asked.saturating_add(1);
        }
        places
    }

    fn at(&mut self, place: &Place) -> Arc<Inode> {
        if let Some(known) = self.by_place.get(place).and_then(|number| self.by_number.get(number))
        {
            return Arc::clone(&known.inode);
        }
        let number = self.free_number(place.number());
        self.unclaimed.insert(number);
        self.insert(number, place.clone(), 0)
    }

    /// Returns the first free number from this one on.
    fn free_number(&self, first: u64) -> u64 {
        let mut number = first.max(2);
        while self.by_number.contains_key(&number) {
            number = number.wrapping_add(1).max(2);
        }
        number
    }

    fn detach_at(&mut self, place: &Place) -> Option<Arc<Inode>> {
        let number = self.by_place.remove(place)?;
        let inode = Arc::clone(&self.by_number.get(&number)?.inode);
        let mut places = inode.places.write();
        places.retain(|known| known != place);
        if places.is_empty()
            && let Some(id) = inode.linked.write().take()
        {
            // The file system may give its number to another file.
            self.by_file.remove(&id);
        }
        drop(places);
        Some(inode)
    }

    fn note_linked(&mut self, inode: &Inode, id: FileId) {
        *inode.linked.write() = Some(id);
        self.by_file.insert(id, inode.number);
    }

    fn drop_unknown(&mut self, number: u64) {
        if number == ROOT {
            return;
        }
        let Some(known) = self.by_number.get(&number).filter(|known| known.lookups == 0) else {
            return;
        };
        if Arc::strong_count(&known.inode) > 1 {
            self.unclaimed.insert(number);
            return;
        }
        self.unclaimed.remove(&number);
        let Some(known) = self.by_number.remove(&number) else { return };
        self.directories = self.directories.saturating_sub(usize::from(known.inode.is_dir));
        self.asked = self.asked.saturating_sub(usize::from(known.turn.is_none()));
        for place in &*known.inode.places.read() {
            if self.by_place.get(place) == Some(&number) {
                self.by_place.remove(place);
            }
        }
        if let Some(id) = *known.inode.linked.read()
            && self.by_file.get(&id) == Some(&number)
        {
            self.by_file.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
