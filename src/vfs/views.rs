//! Nodes as files of other formats: which there are, and what is read of them.
//!
//! A view is made of metadata and kept for `--metadata-ttl`; its chunks are those of the cache.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;

use super::file::OpenedAs;
use super::inode::Inode;
use super::place::Place;
use super::reader::Reader;
use super::view_pages::{Generations, KernelPages, Seen};
use super::view_writes::Writing;
use super::{Access, Form, Pages, Vfs};
use crate::array::Array;
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::Node;
use crate::metadata::{NodeKind, NodePath};
use crate::view::{FORMATS, Format, GetChunk, Source, View};

/// The most nodes that a text lists which cannot be in a file.
const MAX_REASONS: usize = 100;

/// The name of the root in the name of a file.
pub(super) const ROOT_NAME: &str = "__root__";

/// Views that are kept.
const MAX_KEPT: usize = 256;

/// Bytes of their headers.
const MAX_KEPT_LEN: u64 = 128 << 20;

/// Which views are listed. All can be opened by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListedViews {
    /// None.
    #[default]
    None,
    /// All there are.
    All,
    /// Those of these formats.
    Of(Vec<&'static Format>),
}

impl ListedViews {
    fn formats(&self) -> Vec<&'static Format> {
        match self {
            Self::None => Vec::new(),
            Self::All => FORMATS.iter().collect(),
            Self::Of(formats) => formats.clone(),
        }
    }
}

/// A node, and the extension of a format.
type Name = (NodePath, &'static str);

/// Views that were made.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// A leaf.
    kept: Mutex<HashMap<Name, Kept>>,
    /// What was read of each that somebody has open, or that the kernel has pages of. A leaf.
    seen: Mutex<HashMap<Name, Weak<Seen>>>,
    /// Those that somebody has open to write. A leaf.
    writing: Mutex<HashMap<Name, Weak<Writing>>>,
    /// Those whose slabs somebody was told of. A leaf.
    warned: Mutex<HashSet<Name>>,
}

/// A view that is open: what was opened stays what it is.
#[derive(Debug)]
pub(super) struct OpenView {
    pub view: Arc<View>,
    pub path: NodePath,
    pub format: &'static Format,
    pub opened: Instant,
    /// The generations that it is made of.
    pub generations: Generations,
    /// When what it shows was last changed.
    pub modified: SystemTime,
    /// How many nodes had moved before.
    pub moves: u64,
    /// The generations that the kernel's pages are of from now on, where it was told to drop those
    /// that it has.
    pages: Option<Generations>,
    /// The chunks that are read.
    pub seen: Arc<Seen>,
    /// Of one that is written.
    pub writing: Option<Arc<Writing>>,
    /// Whether it was cut to nothing when it was opened.
    pub is_cut: bool,
    /// How it is being read.
    pub reader: Reader,
}

/// A view that was made.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub view: Arc<View>,
    made: Instant,
    /// How many nodes had moved before.
    pub moves: u64,
    /// The generations of the hierarchy and of the chunks that it is made of.
    generations: Generations,
    /// The arrays that its header has values of.
    used: Vec<Arc<Array>>,
    modified: SystemTime,
    /// What the kernel has pages of.
    pages: Option<KernelPages>,
}

impl Views {
    fn get(&self, path: &NodePath, format: &Format) -> Option<Kept> {
        self.kept.lock().get(&(path.clone(), format.extension)).cloned()
    }

    /// Keeps a view, with the pages that are known now: they may be others than when it was made.
    fn keep(&self, path: &NodePath, format: &'static Format, mut kept: Kept) -> Kept {
        let mut all = self.kept.lock();
        let key = (path.clone(), format.extension);
        kept.pages = all.get(&key).and_then(|known| known.pages.clone());
        all.insert(key, kept.clone());
        let mut len: u64 = all.values().map(|kept| kept.view.prefix_len()).sum();
        while (all.len() > MAX_KEPT || len > MAX_KEPT_LEN)
            && all.len() > 1
            && let Some((oldest, kept)) = all.iter().min_by_key(|(_, kept)| kept.made)
        {
            len = len.saturating_sub(kept.view.prefix_len());
            let oldest = oldest.clone();
            all.remove(&oldest);
        }
        kept
    }

    /// What is read of a view by all who have it open: the kernel's pages are theirs together.
    fn seen(&self, path: &NodePath, format: &'static Format) -> Arc<Seen> {
        shared(&self.seen, (path.clone(), format.extension))
    }

    /// What is known of a view by all who have it open to write.
    fn writing(&self, path: &NodePath, format: &'static Format) -> Arc<Writing> {
        shared(&self.writing, (path.clone(), format.extension))
    }

    /// Notes that those who have a view open have another file than those who open it from now on.
    pub(super) fn forget_openers(&self, path: &NodePath, format: &'static Format) {
        let name = (path.clone(), format.extension);
        self.seen.lock().remove(&name);
        self.writing.lock().remove(&name);
        if let Some(kept) = self.kept.lock().get_mut(&name) {
            kept.pages = None;
        }
    }

    fn set_pages(&self, path: &NodePath, format: &'static Format, pages: KernelPages) {
        if !Arc::ptr_eq(&pages.seen, &self.seen(path, format)) {
            return; // Of an inode that has lost the name.
        }
        if let Some(kept) = self.kept.lock().get_mut(&(path.clone(), format.extension)) {
            kept.pages = Some(pages);
        }
    }
}

/// What all share who have a view open; made for the first of them.
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

/// The name of a file of a node, in the directory of the group that the node is in.
pub(super) fn view_name(path: &NodePath, format: &Format) -> String {
    format!("{}.{}", path.name().unwrap_or(ROOT_NAME), format.extension)
}

impl Vfs {
    /// The view that `name` in the directory of a group is, if it is one.
    pub(super) fn resolve_view(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
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

    fn has_view(&self, path: &NodePath, format: &'static Format) -> Result<bool> {
        let shows = |format| match self.options.form {
            Form::View(only) => only == format,
            Form::Zarr3 | Form::Zarr2 => true,
        };
        let node = self.hierarchy.node(path)?;
        let is_for = |node: &Arc<Node>| !node.is_bare() && format.is_for(node.kind());
        if !shows(format) || !node.as_ref().is_some_and(is_for) {
            return Ok(false);
        }
        match self.view(path, format) {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The file that a node is in a format.
    pub(super) fn view(&self, path: &NodePath, format: &'static Format) -> Result<Arc<View>> {
        self.kept_view(path, format).map(|kept| kept.view)
    }

    pub(super) fn kept_view(&self, path: &NodePath, format: &'static Format) -> Result<Kept> {
        let age = self.hierarchy.options().metadata_ttl;
        let generation = self.hierarchy.generation();
        let known = self.views.get(path, format);
        if let Some(kept) = &known
            && kept.made.elapsed() < age
            && kept.generations == (generation, self.generation_of(&kept.view, &kept.used))
        {
            return Ok(kept.clone());
        }
        let (made, moves) = (Instant::now(), self.hierarchy.moves());
        let (view, used, of_values) = self.make_view(path, format)?;
        let modified = self.modified_of(path)?;
        let generations = (generation, of_values.wrapping_add(self.generation_of(&view, &[])));
        let arrays = view.elements().map(|elements| &elements.array).chain(&used);
        let changed = arrays.filter_map(|array| self.cache.modified(array)).max();
        let modified = changed.map_or(modified, |changed| changed.max(modified));
        let kept = Kept { view, made, moves, generations, used, modified, pages: None };
        Ok(self.views.keep(path, format, kept))
    }

    /// Says once where a sweep through a view decodes each chunk many times.
    fn warn_of_slabs(&self, path: &NodePath, format: &Format, view: &View) {
        let at_once = self.assembled_at_once(view);
        for elements in view.elements() {
            if let Some(warning) = elements.warning(self.options.cache_len, at_once) {
                log::warn!("{}: {warning}", view_name(path, format));
            }
        }
    }

    /// The file that a node is, the arrays that its header has values of, and the generation of
    /// these.
    fn make_view(
        &self,
        path: &NodePath,
        format: &'static Format,
    ) -> Result<(Arc<View>, Vec<Arc<Array>>, u64)> {
        let (since, moves) = (self.fresh_since(None), self.hierarchy.moves());
        let used = RefCell::new((Vec::<Arc<Array>>::new(), 0_u64));
        let get: &GetChunk<'_> = &|elements, coords, _| {
            let array = &elements.array;
            let (arrays, generation) = &mut *used.borrow_mut();
            if !arrays.iter().any(|known| Arc::ptr_eq(known, array)) {
                // Before it is read: what changes meanwhile is newer.
                *generation = generation.wrapping_add(self.cache.generation(array));
                arrays.push(Arc::clone(array));
            }
            let array = self.array_of(elements, moves)?;
            let chunk = self.cache.get_fresh(&array, coords, since).at(&elements.path)?;
            Ok(chunk.map(|chunk| chunk.bytes.into()))
        };
        let view = format.view(&Source::new(&self.hierarchy, path, get)?)?;
        let (arrays, generation) = used.into_inner();
        Ok((Arc::new(view), arrays, generation))
    }

    fn modified_of(&self, path: &NodePath) -> Result<SystemTime> {
        let node = self.hierarchy.existing(path)?;
        Ok(node.document().map_or(self.mounted, |document| document.total().modified))
    }

    /// How often chunks of its arrays were changed here, and those of others that its header has
    /// values of.
    pub(super) fn generation_of(&self, view: &View, used: &[Arc<Array>]) -> u64 {
        let arrays = view.elements().map(|elements| &elements.array).chain(used);
        arrays.map(|array| self.cache.generation(array)).fold(0, u64::wrapping_add)
    }

    /// Length and time of a view.
    pub(super) fn stat_view(
        &self,
        path: &NodePath,
        format: &'static Format,
    ) -> Result<(u64, SystemTime)> {
        let kept = self.kept_view(path, format).map_err(as_gone)?;
        Ok((kept.view.len(), kept.modified))
    }

    /// Opens a view, and says what may be done with the kernel's pages of it.
    pub(super) fn open_view(
        &self,
        inode: &Arc<Inode>,
        path: &NodePath,
        format: &'static Format,
        access: Access,
    ) -> Result<(Arc<OpenView>, Pages)> {
        let mut kept = self.kept_view(path, format).map_err(as_gone)?;
        if let OpenedAs::View(shared) = self.share(inode, OpenedAs::View(Arc::clone(&kept.view)))? {
            kept.view = shared;
        }
        let opened = Instant::now();
        let held = kept.pages.as_ref().and_then(|pages| {
            let since = self.stored_since(pages, &kept.view, kept.generations, opened)?;
            Some((pages, since))
        });
        let are_kept = held.is_some();
        let seen = self.views.seen(path, format);
        match held {
            Some((pages, since)) if since != pages.since => {
                self.views.set_pages(path, format, KernelPages { since, ..pages.clone() });
            }
            Some(_) => {}
            None => seen.forget(),
        }
        if self.views.warned.lock().insert((path.clone(), format.extension)) {
            self.warn_of_slabs(path, format, &kept.view);
        }
        let writing = (access != Access::Read).then(|| self.views.writing(path, format));
        if let (Some(writing), Access::Truncate) = (&writing, access) {
            writing.cut();
        }
        let Kept { view, moves, generations, modified, .. } = kept;
        let view = OpenView {
            view,
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
            reader: Reader::default(),
        };
        Ok((Arc::new(view), if are_kept { Pages::Keep } else { Pages::Drop }))
    }

    /// Since when bytes of a view are known to be what is stored when it is opened; none where they
    /// are not. What others store is looked for once the time is over.
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
        if opened.duration_since(pages.since) < self.hierarchy.options().metadata_ttl {
            return Some(pages.since);
        }
        self.pages_hold(pages, view).then_some(opened)
    }

    /// The same of a view that is being opened.
    pub(super) fn known_since(&self, pages: &KernelPages, open: &OpenView) -> Option<Instant> {
        self.stored_since(pages, &open.view, open.generations, open.opened)
    }

    /// Whether a view is made of so many chunks at the most.
    pub(super) fn is_of_chunks(view: &View, most: usize) -> bool {
        let mut found = 0_usize;
        let walked = view.for_each_chunk((0, view.len()), &mut |_, _, _| {
            found = found.saturating_add(1);
            Ok(if found > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        matches!(walked, Ok(ControlFlow::Continue(())))
    }

    /// The kernel has dropped the pages that it had, where it was told to: it asks.
    pub(super) fn note_pages(&self, open: &OpenView) {
        if let Some(generations) = open.pages {
            let (view, seen) = (Arc::clone(&open.view), Arc::clone(&open.seen));
            let pages = KernelPages { generations, since: open.opened, view, seen };
            self.views.set_pages(&open.path, open.format, pages);
        }
    }

    /// The views that are listed in the directory of a group.
    pub(super) fn listed_views(&self, group: &NodePath) -> Result<Vec<(String, Place)>> {
        let formats = match self.options.form {
            Form::View(only) => vec![only],
            Form::Zarr3 | Form::Zarr2 => self.options.listed_views.formats(),
        };
        if formats.is_empty() {
            return Ok(Vec::new());
        }
        let mut paths: Vec<NodePath> = Vec::new();
        if group.is_root() {
            paths.push(NodePath::root());
        }
        if self.hierarchy.existing(group)?.array().is_none() {
            // What cannot be read is no view.
            let children = self.hierarchy.children(group)?.flatten();
            paths.extend(children.map(|child| child.path().clone()));
        }
        let mut names = Vec::new();
        for path in paths {
            for format in &formats {
                let (name, place) = (view_name(&path, format), Place::View(path.clone(), format));
                // A node or a file of that name wins. What cannot be told is left out.
                let found = self.resolve(&Place::Node(group.clone()), &name);
                if found.is_ok_and(|found| found.as_ref() == Some(&place)) {
                    names.push((name, place));
                }
            }
        }
        Ok(names)
    }

    /// Whether listings have views in them, which are made for that.
    pub fn lists_views(&self) -> bool {
        matches!(self.options.form, Form::View(_)) || self.options.listed_views != ListedViews::None
    }

    /// What `.zarrfs/views/NODE` shows: a line for each format, with the length of the file or why
    /// there is none.
    pub(super) fn views_text(&self, path: &NodePath) -> Result<String> {
        let node = self.hierarchy.existing(path)?;
        let width = FORMATS.iter().map(|format| format.extension.len()).max().unwrap_or_default();
        let mut text = String::new();
        for format in FORMATS.iter().filter(|format| format.is_for(node.kind())) {
            let said = match self.view(path, format) {
                Ok(view) => format!("{}  {} bytes", view_name(path, format), view.len()),
                Err(error) => format!("-  {}", error.detail()),
            };
            // Writing to a string does not fail.
            let _never = writeln!(text, "{:width$}  {said}", format.extension);
        }
        if node.kind() == NodeKind::Group {
            // No chunk is read to list what is in a group.
            let source = Source::new(&self.hierarchy, path, &|_, _, _| Ok(None));
            let left_out = source.and_then(|source| Ok(source.children()?.left_out));
            for (name, error) in left_out.unwrap_or_default().iter().take(MAX_REASONS) {
                let _never = writeln!(text, "left out: {name}: {}", error.detail());
            }
        }
        Ok(text)
    }

    /// Refuses to make names in a mount that shows one format and nothing else.
    pub(super) fn check_names_change(&self) -> Result<()> {
        match self.options.form {
            Form::View(format) => Err(Error::new(
                Kind::NotPermitted,
                format!(
                    "nothing can be created, renamed or removed in a mount with --as {}",
                    format.extension
                ),
            )),
            Form::Zarr3 | Form::Zarr2 => Ok(()),
        }
    }

    /// Whether a name may be that of a view.
    pub(super) fn is_view_name(name: &str) -> bool {
        !Format::split(name).is_empty()
    }
}

/// Whether an error says that the format cannot hold the node.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unsupported | Kind::NotFound)
}

/// A file that the kernel knows, of a node that cannot be shown so any more.
pub(super) fn as_gone(error: Error) -> Error {
    if is_refusal(&error) { error.of_kind(Kind::NotFound) } else { error }
}
