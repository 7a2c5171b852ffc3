//! Views: nodes as files of other formats.
//!
//! A view is generated from metadata and cached for `--metadata-ttl`; its elements come from the
//! chunk cache.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;

use crate::array::Array;
use crate::bounded::{Bounded, MapLimits};
use crate::budget::Purpose;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Node;
use crate::metadata::NodePath;
use crate::printable::escaped;
use crate::vfs::access::{Access, Pages};
use crate::vfs::core::Core;
use crate::vfs::inodes::place::{Place, view_name};
use crate::vfs::kernel::view_pages::{Generations, KernelPages, ReadVersions};
use crate::vfs::options::Presentation;
use crate::vfs::reader::open_view::OpenView;
use crate::vfs::reader::stored_versions::LastVersions;
use crate::vfs::reader::{ReadState, Reader};
use crate::vfs::view_writers::ViewWriters;
use crate::view::{FORMATS, Format, GetChunk, Glance, ROOT_NAME, View, ViewSource};
use crate::waiting;

/// The most views to cache.
const MAX_KEPT: usize = 256;

/// The most bytes of their headers.
const MAX_KEPT_LEN: u64 = 128 << 20;

/// The most views to remember a warning or an error of.
const MAX_NOTED: usize = 4096;

/// A node and the file extension of a format.
type Name = (NodePath, &'static str);

/// The cached views, and the state that handles of a view share.
pub(in crate::vfs) struct Views {
    core: Arc<Core>,
    reader: Arc<Reader>,
    /// The cached views. A leaf lock.
    kept: Mutex<Bounded<Name, Kept>>,
    /// The chunks read through each view that is open or has pages in the kernel. A leaf lock.
    seen: Mutex<HashMap<Name, Weak<ReadVersions>>>,
    /// The state of the writers of each view. A leaf lock.
    writing: Mutex<HashMap<Name, Weak<ViewWriters>>>,
    /// The views with a logged warning about slow sequential reads. A leaf lock.
    warned: Mutex<Bounded<Name, ()>>,
    /// The views that do not exist, although programs looked them up. A leaf lock.
    refused: Mutex<Bounded<Name, ()>>,
}

/// A cached view.
#[derive(Debug, Clone)]
pub(in crate::vfs) struct Kept {
    pub view: Arc<View>,
    made: Instant,
    /// `Hierarchy::moves` before it was generated.
    pub moves: u64,
    /// The generations of the hierarchy and of its chunks.
    generations: Generations,
    /// The arrays with values in the header.
    used: Vec<Arc<Array>>,
    modified: SystemTime,
    /// The versions of its stored values that were read last.
    versions: LastVersions,
    /// The kernel's pages.
    pages: Option<KernelPages>,
}

impl Views {
    /// Returns the views of the nodes in `core`. `reader` knows how much it assembles at once.
    pub fn new(core: Arc<Core>, reader: Arc<Reader>) -> Self {
        let len = MAX_KEPT_LEN.min(core.budget.limit(Purpose::ViewHeaders));
        let kept = MapLimits { len, count: MAX_KEPT };
        Self {
            core,
            reader,
            kept: Mutex::new(Bounded::new(kept)),
            seen: Mutex::default(),
            writing: Mutex::default(),
            warned: Mutex::new(Bounded::new(MapLimits::entries(MAX_NOTED))),
            refused: Mutex::new(Bounded::new(MapLimits::entries(MAX_NOTED))),
        }
    }

    fn get(&self, path: &NodePath, format: &Format) -> Option<Kept> {
        self.kept.lock().get(&(path.clone(), format.extension)).cloned()
    }

    /// Caches a view. Keeps the current state of the kernel's pages, which may be newer than the
    /// view.
    fn keep(&self, path: &NodePath, format: &'static Format, mut kept: Kept) -> Kept {
        let (key, len) = ((path.clone(), format.extension), kept.view.memory_len());
        let mut all = self.kept.lock();
        kept.pages = all.peek(&key).and_then(|known| known.pages.clone());
        let evicted = all.put(key, kept.clone(), len);
        drop(all);
        drop(evicted); // Freeing memory takes time: not under the lock.
        kept
    }

    /// Returns the chunks read through a view by all of its handles, which share the kernel's
    /// pages.
    fn seen(&self, path: &NodePath, format: &'static Format) -> Arc<ReadVersions> {
        shared(&self.seen, (path.clone(), format.extension))
    }

    /// Returns the state that all writers of a view share.
    fn writing(&self, path: &NodePath, format: &'static Format) -> Arc<ViewWriters> {
        shared(&self.writing, (path.clone(), format.extension))
    }

    /// Separates the current handles of a view from later ones, which show another file.
    pub fn forget_openers(&self, path: &NodePath, format: &'static Format) {
        let name = (path.clone(), format.extension);
        self.seen.lock().remove(&name);
        self.writing.lock().remove(&name);
        if let Some(kept) = self.kept.lock().peek_mut(&name) {
            kept.pages = None;
        }
    }

    fn set_pages(&self, path: &NodePath, format: &'static Format, pages: KernelPages) {
        if !Arc::ptr_eq(&pages.seen, &self.seen(path, format)) {
            return; // Of an inode that has lost the name.
        }
        if let Some(kept) = self.kept.lock().peek_mut(&(path.clone(), format.extension)) {
            kept.pages = Some(pages);
        }
    }
}

/// Returns the state that all handles of a view share, a new one for the first of them.
fn shared<T: Default>(all: &Mutex<HashMap<Name, Weak<T>>>, name: Name) -> Arc<T> {
    let mut all = all.lock();
    if all.len() > MAX_KEPT {
        all.retain(|_, known| known.strong_count() > 0);
    }
    let known = all.entry(name).or_default();
    known.upgrade().unwrap_or_else(|| {
        let new = Arc::default();
        *known = Arc::downgrade(&new);
        new
    })
}

/// Notes a view, and whether it was not noted before.
fn is_first(noted: &Mutex<Bounded<Name, ()>>, name: Name) -> bool {
    let mut noted = noted.lock();
    let is_first = noted.get(&name).is_none();
    let evicted = if is_first { noted.put(name, (), 0) } else { Vec::new() };
    drop(noted);
    drop(evicted);
    is_first
}

impl Views {
    /// Returns the view called `name` in the directory of a group, if it is one.
    pub fn resolve_view(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
        let Place::Node(group) = directory else { return Ok(None) };
        for (stem, format) in Format::split(name) {
            let path = match stem {
                ROOT_NAME if group.is_root() => NodePath::root(),
                // Names that no node can have.
                stem => match group.child(stem) {
                    Ok(path) => path,
                    Err(_) => continue,
                },
            };
            if self.has_view(&path, format)? {
                return Ok(Some(Place::View(path, format)));
            }
        }
        Ok(None)
    }

    /// Returns why the file that a program looked up does not exist although its node does, if
    /// that is the reason. Records it, once for each name.
    pub fn refusal(&self, directory: &Place, name: &str) -> Option<Error> {
        let Place::Node(group) = directory else { return None };
        let mut found = None;
        for (stem, format) in Format::split(name) {
            let path = match stem {
                ROOT_NAME if group.is_root() => Ok(NodePath::root()),
                stem => group.child(stem),
            };
            let Ok(path) = path else { continue };
            let Ok(Some(node)) = self.core.hierarchy.node(&path) else { continue };
            if node.is_bare() || !format.is_for(node.kind()) {
                continue;
            }
            let Err(error) = self.view(&path, format) else { continue };
            if error.kind() != Kind::Unsupported {
                continue;
            }
            let name = (path.clone(), format.extension);
            let refusal = error.of_kind(Kind::NotFound).at(Place::View(path, format).shown());
            if is_first(&self.refused, name) {
                self.core.journal.note("lookup", &refusal);
            }
            found = found.or(Some(refusal));
        }
        found
    }

    /// Whether the tree has views of this format.
    pub fn shows(&self, format: &Format) -> bool {
        match self.core.options.form {
            Presentation::View(only) => only == format,
            Presentation::Zarr3 | Presentation::Zarr2 => true,
        }
    }

    fn has_view(&self, path: &NodePath, format: &'static Format) -> Result<bool> {
        let node = self.core.hierarchy.node(path)?;
        let is_for = |node: &Arc<Node>| !node.is_bare() && format.is_for(node.kind());
        if !self.shows(format) || !node.as_ref().is_some_and(is_for) {
            return Ok(false);
        }
        match self.view(path, format) {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the view of a node in a format.
    pub fn view(&self, path: &NodePath, format: &'static Format) -> Result<Arc<View>> {
        self.kept_view(path, format).map(|kept| kept.view)
    }

    pub fn kept_view(&self, path: &NodePath, format: &'static Format) -> Result<Kept> {
        let age = self.core.hierarchy.options().metadata_ttl;
        let generation = self.core.hierarchy.generation();
        let known = self.get(path, format);
        if let Some(kept) = &known
            && kept.made.elapsed() < age
            && kept.generations == (generation, self.core.generation_of(&kept.view, &kept.used))
        {
            return Ok(kept.clone());
        }
        let moves = self.core.hierarchy.moves();
        let (view, used, of_values) = self.make_view(path, format, None)?;
        let modified = self.modified_of(path)?;
        let generations = (generation, of_values.wrapping_add(self.core.generation_of(&view, &[])));
        let arrays = view.sources().map(|elements| &elements.array).chain(&used);
        let changed = arrays.filter_map(|array| self.core.cache.modified(array)).max();
        let modified = changed.map_or(modified, |changed| changed.max(modified));
        let versions = LastVersions::default();
        // A program looks up, opens and reads a file: one that takes long to make is made once.
        let made = Instant::now();
        let kept = Kept { view, made, moves, generations, used, modified, versions, pages: None };
        Ok(self.keep(path, format, kept))
    }

    /// Logs once if a sequential read of a view decodes each chunk many times.
    fn warn_of_slabs(&self, path: &NodePath, format: &Format, view: &View) {
        let at_once = self.reader.assembled_at_once(view);
        for elements in view.elements() {
            if let Some(warning) = elements.warning(self.core.options.cache_len, at_once) {
                log::warn!("{}: {warning}", view_name(path, format));
            }
        }
    }

    /// Generates a view, or only describes it. Returns it with the arrays whose values are in its
    /// header, and the sum of their generations.
    fn make_view(
        &self,
        path: &NodePath,
        format: &'static Format,
        glance: Option<&Glance>,
    ) -> Result<(Arc<View>, Vec<Arc<Array>>, u64)> {
        let (since, moves) = (self.core.fresh_since(None), self.core.hierarchy.moves());
        let used = RefCell::new((Vec::<Arc<Array>>::new(), 0_u64));
        let get: &GetChunk<'_> = &|elements, coords, _| {
            waiting::check()?; // The values of all chunks may decide what the file looks like.
            let array = &elements.array;
            let (arrays, generation) = &mut *used.borrow_mut();
            if !arrays.iter().any(|known| Arc::ptr_eq(known, array)) {
                // Read the generation first, so that every later change counts.
                *generation = generation.wrapping_add(self.core.cache.generation(array));
                arrays.push(Arc::clone(array));
            }
            let array = self.core.array_of(elements, moves)?;
            let chunk = self.core.cache.get_fresh(&array, coords, since).at(&elements.path)?;
            if let Some(glance) = glance {
                glance.count(chunk.as_ref().map(|chunk| chunk.bytes.len()))?;
            }
            Ok(chunk.map(|chunk| chunk.bytes.into()))
        };
        let source = ViewSource::new(&self.core.hierarchy, path, get)?;
        let view = format.view(&source)?;
        // It keeps its arrays, with their attributes.
        let len = view.prefix_len().saturating_add(source.memory_len());
        let memory = self.core.budget.draw(Purpose::ViewHeaders, len);
        drop(source);
        let (arrays, generation) = used.into_inner();
        Ok((Arc::new(view.with_memory(memory)), arrays, generation))
    }

    fn modified_of(&self, path: &NodePath) -> Result<SystemTime> {
        let node = self.core.hierarchy.existing(path)?;
        Ok(node.document().map_or(self.core.mounted, |document| document.total().modified))
    }

    /// Returns the length and the modification time of a view.
    pub fn stat_view(&self, path: &NodePath, format: &'static Format) -> Result<(u64, SystemTime)> {
        let kept = self.kept_view(path, format).map_err(as_gone)?;
        let len = self.new_len(path, format).unwrap_or(kept.view.len());
        Ok((len, kept.modified))
    }

    /// Returns the length of the new file that a program writes in the place of a view, if that
    /// program asks.
    pub fn new_len(&self, path: &NodePath, format: &'static Format) -> Option<u64> {
        let writers = self.writing.lock().get(&(path.clone(), format.extension)).cloned();
        let writers = writers?.upgrade()?;
        let len = writers.new_len()?;
        let program = waiting::program()?;
        writers.users.lock().may_include(Some(program.thread())).then_some(len)
    }

    /// Opens the view in `kept`, and decides what the kernel may do with its pages.
    pub fn open(
        &self,
        number: u64,
        (path, format): (&NodePath, &'static Format),
        kept: Kept,
        access: Access,
    ) -> (Arc<OpenView>, Pages) {
        let opened = Instant::now();
        let held = kept.pages.as_ref().and_then(|pages| {
            let since = self.stored_since(pages, &kept.view, kept.generations, opened)?;
            Some((pages, since))
        });
        let are_kept = held.is_some();
        let seen = self.seen(path, format);
        match held {
            Some((pages, since)) if since != pages.since => {
                self.set_pages(path, format, KernelPages { since, ..pages.clone() });
            }
            Some(_) => {}
            None => seen.forget(),
        }
        if is_first(&self.warned, (path.clone(), format.extension)) {
            self.warn_of_slabs(path, format, &kept.view);
        }
        let writing = (access != Access::Read).then(|| self.writing(path, format));
        if let (Some(writing), Access::Truncate) = (&writing, access) {
            writing.cut();
        }
        let Kept { view, moves, generations, modified, versions, .. } = kept;
        // The kernel keeps pages for all programs, and only the writer sees a new file.
        let is_direct = access == Access::Truncate && view.header_len() > 0;
        let view = Arc::new(OpenView {
            view,
            number,
            path: path.clone(),
            format,
            opened,
            generations,
            modified,
            moves,
            pages: (!are_kept).then_some(generations),
            seen,
            writing,
            is_cut: access == Access::Truncate,
            new_file: Mutex::default(),
            versions,
            reads: ReadState::default(),
        });
        if is_direct {
            // A library looks at the length of the file that it has emptied.
            view.set_new_len(Some(0));
        }
        let pages = match (is_direct, are_kept) {
            (true, _) => Pages::None,
            (false, true) => Pages::Keep,
            (false, false) => Pages::Drop,
        };
        (view, pages)
    }

    /// Returns when bytes of a view were last known to match the store; `None` if they may not.
    /// Checks the store for changes of other programs after `--metadata-ttl`.
    fn stored_since(
        &self,
        pages: &KernelPages,
        view: &View,
        generations: Generations,
        opened: Instant,
    ) -> Option<Instant> {
        if pages.generations != generations {
            return None;
        }
        if opened.duration_since(pages.since) < self.core.hierarchy.options().metadata_ttl {
            return Some(pages.since);
        }
        pages.hold(&self.core, view).then_some(opened)
    }

    /// Like [`Self::stored_since`], for a view that is being opened.
    pub fn known_since(&self, pages: &KernelPages, open: &OpenView) -> Option<Instant> {
        self.stored_since(pages, &open.view, open.generations, open.opened)
    }

    /// Records that the kernel has dropped its old pages, which a read proves.
    pub fn note_pages(&self, open: &OpenView) {
        if let Some(generations) = open.pages {
            let (view, seen) = (Arc::clone(&open.view), Arc::clone(&open.seen));
            let pages = KernelPages { generations, since: open.opened, view, seen };
            self.set_pages(&open.path, open.format, pages);
        }
    }

    /// Returns the text of `.zarrfs/views/NODE`: a line for each format, with the length of the
    /// file or the reason why there is none.
    pub fn text(&self, path: &NodePath) -> Result<String> {
        let node = self.core.hierarchy.existing(path)?;
        let width = FORMATS.iter().map(|format| format.extension.len()).max().unwrap_or_default();
        let mut text = String::new();
        for format in FORMATS.iter().filter(|format| format.is_for(node.kind())) {
            let (name, glance) = (view_name(path, format), Glance::default());
            let view = self.make_view(path, format, Some(&glance)).map(|(view, ..)| view);
            let said = match &view {
                Ok(view) => format!("{}  {} bytes", escaped(&name), view.len()),
                Err(_) if glance.is_over() => {
                    format!("{}  has a length once it is opened", escaped(&name))
                }
                Err(error) => format!("-  {}", error.detail()),
            };
            // Writing to a string does not fail.
            let _never = writeln!(text, "{:width$}  {said}", format.extension);
            for line in view.iter().flat_map(|view| view.left_out().lines()) {
                let _never = writeln!(text, "{:width$}  left out: {}", "", escaped(&line));
            }
            for line in view.iter().flat_map(|view| view.left_out().properties()) {
                let _never = writeln!(text, "{:width$}  without: {}", "", escaped(&line));
            }
        }
        Ok(text)
    }
}

/// Whether a name may belong to a view.
pub fn is_view_name(name: &str) -> bool {
    !Format::split(name).is_empty()
}

/// Whether an error means that the format cannot hold the node.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unsupported | Kind::NotFound)
}

/// Converts the error for a view that the kernel knows but the node no longer has.
pub fn as_gone(error: Error) -> Error {
    if is_refusal(&error) { error.of_kind(Kind::NotFound) } else { error }
}
