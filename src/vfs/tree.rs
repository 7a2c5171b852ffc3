//! Finds names in the tree, and returns the attributes of files and directories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Vfs;
use super::access::{Access, Pages, Prepared};
use super::attr::Attr;
use super::file::{Content, File, OpenedAs};
use super::inode::Inode;
use super::options::Form;
use super::overlay::Shown;
use super::place::{
    CHUNKS, CONTROL, DOCUMENT, Found, GROUP, Place, Report, STORED, VIEWS, below_shown, new_chunk,
};
use super::zarr2::Named;
use crate::array::{Array, Coords, parse_index};
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::{Content as NodeContent, Document, Node, Wanted};
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Key, Stat, Version};
use crate::view::{Format, ROOT_NAME};

impl Vfs {
    /// Returns the place of `name` in `directory`; `None` if it does not exist.
    pub(super) fn resolve(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
        Ok(self.find(directory, name)?.map(|found| found.place))
    }

    /// Like [`Self::resolve`], with the stat of the stored value if it was needed.
    pub(super) fn find(&self, directory: &Place, name: &str) -> Result<Option<Found>> {
        let found = match self.core.options.form {
            Form::View(_) => self.find_among_views(directory, name)?,
            Form::Zarr3 | Form::Zarr2 => self.find_in_form(directory, name)?,
        };
        match found {
            None => Ok(self.views.resolve_view(directory, name)?.map(Found::from)),
            found => Ok(found),
        }
    }

    /// With `--as FORMAT`, only groups and views have names.
    fn find_among_views(&self, directory: &Place, name: &str) -> Result<Option<Found>> {
        let Place::Node(_) = directory else { return self.find_in_zarr3(directory, name) };
        Ok(match self.find_in_zarr3(directory, name)? {
            Some(Found { place: Place::Node(path), .. }) => {
                let node = self.core.hierarchy.existing(&path)?;
                (node.kind() == NodeKind::Group).then(|| Place::Node(path).into())
            }
            found => found.filter(|found| found.place == Place::Control),
        })
    }

    fn find_in_form(&self, directory: &Place, name: &str) -> Result<Option<Found>> {
        match self.translate(directory, name)? {
            Named::Same => self.find_in_zarr3(directory, name),
            Named::As(parent, alias) => match self.find_in_zarr3(&parent, &alias)? {
                None if self.is_bare(directory)? => self.find_in_zarr3(directory, name),
                None => Ok(self.unlisted_chunk(directory, name)?.map(Found::from)),
                found => Ok(found),
            },
            Named::Beside(place) => Ok(self.beside(place)?.map(Found::from)),
            Named::Nothing => Ok(None),
        }
    }

    fn is_bare(&self, directory: &Place) -> Result<bool> {
        let Place::Node(path) = directory else { return Ok(false) };
        Ok(self.core.hierarchy.node(path)?.is_some_and(|node| node.is_bare()))
    }

    fn find_in_zarr3(&self, directory: &Place, name: &str) -> Result<Option<Found>> {
        if let Some(shown) = self.overlay.get(directory, name) {
            if self.is_current(&shown)? {
                return Ok(Some(shown.place().clone().into()));
            }
            self.overlay.remove(directory, name);
        }
        match directory {
            Place::Node(path) => self.find_in_node(path, name),
            Place::ChunkDir(path, prefix) => self.find_in_chunks(path, prefix, name),
            Place::OrdinaryDir(path, _) => self.find_ordinary(path, directory, name),
            Place::Control => Ok(match name {
                STORED => Some(Place::StoredDir(NodePath::root()).into()),
                VIEWS => Some(Place::ViewsDir(NodePath::root()).into()),
                name => Report::of_name(name).map(|report| Place::Report(report).into()),
            }),
            Place::StoredDir(path) => Ok(self.resolve_stored(path, name)?.map(Found::from)),
            Place::ViewsDir(path) => Ok(self.resolve_views_of(path, name)?.map(Found::from)),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    /// Whether a name that only this mount has is still valid: a directory in an array needs the
    /// array.
    pub(super) fn is_current(&self, shown: &Shown) -> Result<bool> {
        let Shown::Directory(place) = shown else { return Ok(true) };
        let depth = match place {
            Place::ChunkDir(_, prefix) => Some(prefix.len()),
            Place::OrdinaryDir(..) => None,
            _ => return Ok(true),
        };
        let node = place.node().map_or(Ok(None), |path| self.core.hierarchy.node(path))?;
        let array = node.as_ref().and_then(|node| node.array());
        Ok(array.is_some_and(|array| depth.is_none_or(|depth| depth < array.grid().rank())))
    }

    fn find_in_node(&self, path: &NodePath, name: &str) -> Result<Option<Found>> {
        if path.is_root() && name == CONTROL {
            return Ok(Some(Place::Control.into()));
        }
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if name == DOCUMENT {
            return Ok((!node.is_bare()).then(|| Place::Document(path.clone()).into()));
        }
        match node.content() {
            NodeContent::Array(array) if name == CHUNKS => self.chunks_of(path, array),
            NodeContent::NotUnderstood(NodeKind::Array, error) => {
                let found = self.find_ordinary(path, &Place::Node(path.clone()), name)?;
                // An encoded chunk must not appear as an ordinary file with the name of a decoded
                // one.
                let is_safe = found.is_none() && !may_be_chunk(name);
                if is_safe { Ok(None) } else { Err(error.clone()) }
            }
            NodeContent::Array(_) => self.find_ordinary(path, &Place::Node(path.clone()), name),
            NodeContent::Group(_) | NodeContent::NotUnderstood(NodeKind::Group, _) => {
                let child = path.child(name)?;
                let found = self.core.hierarchy.node(&child)?;
                if let NodeContent::NotUnderstood(_, error) = node.content()
                    && found.as_ref().is_none_or(|found| found.is_bare())
                {
                    // The node may be an array, and its encoded chunks must not appear as decoded
                    // ones.
                    return Err(error.clone());
                }
                if found.is_some() {
                    return Ok(Some(Place::Node(child).into()));
                }
                self.find_ordinary(path, &Place::Node(path.clone()), name)
            }
        }
    }

    /// Returns the place of an array's chunks, if it has any: a directory, or the only chunk of an
    /// array without dimensions.
    pub(super) fn chunks_of(&self, path: &NodePath, array: &Arc<Array>) -> Result<Option<Found>> {
        if array.grid().rank() == 0 {
            let coords = Coords::new([]);
            let stat = self.core.cache.stat(array, &coords)?;
            return Ok(stat.map(|stat| Found::stored(Place::Chunk(path.clone(), coords), stat)));
        }
        let place = Place::ChunkDir(path.clone(), Vec::new());
        let is_there = self.has_chunks(array, &[])?
            || self.overlay.has_chunks(path, &[])
            || self.holds_ordinary(&place)?;
        Ok(is_there.then(|| place.into()))
    }

    fn find_in_chunks(&self, path: &NodePath, prefix: &[u64], name: &str) -> Result<Option<Found>> {
        let array = self.core.array(path)?;
        if let Some(index) = parse_index(name) {
            let indices = [prefix, &[index]].concat();
            if !array.grid().contains_prefix(&indices) {
                return Ok(None);
            }
            return Ok(if indices.len() == array.grid().rank() {
                let coords = Coords::new(indices);
                let stat = self.core.cache.stat(&array, &coords)?;
                stat.map(|stat| Found::stored(Place::Chunk(path.clone(), coords), stat))
            } else {
                let is_there =
                    self.has_chunks(&array, &indices)? || self.overlay.has_chunks(path, &indices);
                let place = Place::ChunkDir(path.clone(), indices);
                (is_there || self.holds_ordinary(&place)?).then(|| place.into())
            });
        }
        self.find_ordinary(path, &Place::ChunkDir(path.clone(), prefix.to_vec()), name)
    }

    /// Finds an ordinary file or directory in the store, by its path below a node.
    fn find_ordinary(
        &self,
        path: &NodePath,
        directory: &Place,
        name: &str,
    ) -> Result<Option<Found>> {
        let relative = below(directory, name);
        if self.is_reserved(path, &relative)? {
            return Ok(None);
        }
        let store = self.core.hierarchy.store();
        let prefix = self.core.hierarchy.ordinary_prefix(path)?;
        if let Some(stat) = store.stat(&prefix.key(&relative)?)? {
            return Ok(Some(Found::stored(Place::Ordinary(path.clone(), relative), stat)));
        }
        let Some(list) = store.list() else { return Ok(None) };
        let is_dir = list.list_dir(&prefix.join(&relative)?)?.next().transpose()?.is_some();
        Ok(is_dir.then(|| Place::OrdinaryDir(path.clone(), relative).into()))
    }

    /// Whether the stored dialect itself uses the path `relative` below a node, for metadata or
    /// chunks.
    pub(super) fn is_reserved(&self, path: &NodePath, relative: &str) -> Result<bool> {
        if self.core.hierarchy.dialect().is_reserved(path, relative) {
            return Ok(true);
        }
        let node = self.core.hierarchy.node(path)?;
        Ok(node.is_some_and(|node| node.array().is_some_and(|array| array.owns(relative))))
    }

    fn resolve_stored(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if let Some(key) = self.stored_documents(&node)?.into_iter().find(|key| key.name() == name)
        {
            return Ok(Some(Place::StoredDocument(path.clone(), key)));
        }
        if node.kind() == NodeKind::Array {
            return Ok(None);
        }
        let child = path.child(name)?;
        Ok(self.core.hierarchy.node(&child)?.map(|_| Place::StoredDir(child)))
    }

    fn resolve_views_of(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if name == GROUP || (name == ROOT_NAME && path.is_root()) {
            return Ok(Some(Place::ViewsOf(path.clone(), node.kind())).filter(|_| !node.is_bare()));
        }
        let Ok(child) = path.child(name) else { return Ok(None) };
        if node.kind() == NodeKind::Array {
            return Ok(None);
        }
        if let Some(node) = self.core.hierarchy.node(&child)?.filter(|node| !node.is_bare()) {
            return Ok(Some(match node.kind() {
                NodeKind::Array => Place::ViewsOf(child, NodeKind::Array),
                NodeKind::Group => Place::ViewsDir(child),
            }));
        }
        // Name the file that a user misses, such as `t2m.txt`.
        for (stem, _) in Format::split(name) {
            let Ok(child) = path.child(stem) else { continue };
            if let Some(node) = self.core.hierarchy.node(&child)?.filter(|node| !node.is_bare()) {
                return Ok(Some(Place::ViewsOf(child, node.kind())));
            }
        }
        Ok(None)
    }

    /// Returns the keys of a node's stored metadata files; for the root, also of the entry point.
    pub(super) fn stored_documents(&self, node: &Node) -> Result<Vec<Key>> {
        let mut keys: Vec<Key> = node.document().map(Document::keys).unwrap_or_default();
        if node.path().is_root() {
            let entry = Key::parse(DOCUMENT)?;
            if !keys.contains(&entry) && self.core.hierarchy.store().stat(&entry)?.is_some() {
                keys.push(entry);
            }
        }
        Ok(keys)
    }

    /// Returns the keys at which the dialect may store the metadata of a node.
    pub(super) fn stored_keys(&self, path: &NodePath) -> Result<Vec<Key>> {
        let dialect = self.core.hierarchy.dialect();
        let keys = dialect.document_keys(path)?.into_iter().map(|(_, key)| key);
        Ok(keys.chain(dialect.attributes_key(path)?).collect())
    }

    /// Returns the attributes of an inode.
    pub(super) fn attr(&self, inode: &Inode) -> Result<Attr> {
        self.attr_with_stat(inode, None)
    }

    /// Like [`Self::attr`], with the stat of a stored chunk if the caller knows it.
    pub(super) fn attr_with_stat(&self, inode: &Inode, stored: Option<&Stat>) -> Result<Attr> {
        let place = inode.place();
        if place.as_ref().is_none_or(|place| !place.is_dir())
            && let Some(attr) = Self::attr_of_content(inode)
        {
            return Ok(Attr { links: u32::from(place.is_some()), ..attr });
        }
        if let Some(attr) = self.attr_of_open_view(inode) {
            return Ok(attr);
        }
        let Some(place) = place else {
            // A program that has a removed directory open sees it empty.
            let removed =
                Attr { number: inode.number(), links: 0, ..Attr::directory(self.core.mounted) };
            return if inode.is_dir() { Ok(removed) } else { Err(Error::not_found()) };
        };
        Ok(Attr { number: inode.number(), ..self.attr_at(&place, stored)? })
    }

    /// Returns the attributes of a place, without its inode number.
    pub(super) fn attr_at(&self, place: &Place, stored: Option<&Stat>) -> Result<Attr> {
        let attr = match (place, stored) {
            (Place::Chunk(path, coords), Some(stat)) => {
                self.attr_of_chunk(path, coords, self.attr_of_file(place), Some(stat))
            }
            (Place::Ordinary(..), Some(stat)) => {
                Ok(self.attr_of_file(place).of_value(stat.len, stat))
            }
            _ => self.attr_of_stored(place),
        };
        attr.map_err(|error| error.at(place.shown()))
    }

    /// Returns the attributes that all files share.
    fn attr_of_file(&self, place: &Place) -> Attr {
        Attr {
            number: 0,
            is_dir: place.is_dir(),
            len: 0,
            blocks: 0,
            modified: self.core.mounted,
            links: if place.is_dir() { 2 } else { 1 },
            mode: None,
            is_writable: true,
            may_change: place.is_document(),
        }
    }

    /// Returns the attributes of unstored or detached bytes.
    fn attr_of_content(inode: &Inode) -> Option<Attr> {
        let file = inode.known_file()?.lock();
        let (bytes, modified) = match &file.content {
            Content::Unstored(unstored) if unstored.changed => (&unstored.bytes, unstored.modified),
            Content::Detached(unstored) => (&unstored.bytes, unstored.modified),
            Content::Stored | Content::Unstored(_) => return None,
        };
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (number, blocks) = (inode.number(), Attr::blocks_of(len, len));
        let (is_writable, may_change) = (true, true);
        Some(Attr {
            number,
            is_dir: false,
            len,
            blocks,
            modified,
            links: 1,
            mode: file.mode,
            is_writable,
            may_change,
        })
    }

    pub(super) fn attr_of_stored(&self, place: &Place) -> Result<Attr> {
        let attr = self.attr_of_file(place);
        Ok(match place {
            Place::Node(path) => {
                let node = self.core.hierarchy.existing(path)?;
                let modified =
                    node.document().map_or(self.core.mounted, |document| document.total().modified);
                Attr { modified, ..attr }
            }
            Place::Document(path) | Place::Attributes(path) | Place::Copies(path) => {
                let node = self.core.hierarchy.existing(path)?;
                let len =
                    u64::try_from(self.shown_at(place, Wanted::Len)?.len()).unwrap_or(u64::MAX);
                match node.document() {
                    Some(document) => attr.of_value(len, &document.total()),
                    None => Attr { len, blocks: Attr::blocks_of(0, len), ..attr },
                }
            }
            Place::Chunk(path, coords) => self.attr_of_chunk(path, coords, attr, None)?,
            Place::Ordinary(path, relative) => {
                let stat = self.stat_ordinary(path, relative)?;
                attr.of_value(stat.len, &stat)
            }
            Place::StoredDocument(_, key) => {
                let stat = self.core.hierarchy.store().stat(key)?.ok_or_else(Error::not_found)?;
                attr.of_value(stat.len, &stat)
            }
            Place::View(path, format) => {
                let (len, modified) = self.views.stat_view(path, format)?;
                // All blocks count, so that programs find no holes. The name and the length may
                // change with the node, without notice to the kernel.
                let blocks = Attr::blocks_of(len, len);
                Attr { len, blocks, modified, may_change: true, ..attr }
            }
            Place::Report(_) | Place::Control | Place::ViewsDir(_) | Place::ViewsOf(..) => {
                Attr { is_writable: false, ..attr }
            }
            Place::ChunkDir(..) | Place::OrdinaryDir(..) | Place::StoredDir(_) => attr,
        })
    }

    fn attr_of_chunk(
        &self,
        path: &NodePath,
        coords: &Coords,
        attr: Attr,
        stored: Option<&Stat>,
    ) -> Result<Attr> {
        let array = self.core.array(path)?;
        let stat = stored.map_or_else(|| self.stat_chunk(&array, coords), |stat| Ok(*stat));
        let stat = match stat {
            Err(error) if error.kind() == Kind::NotFound && self.shows_fill(path, &array) => {
                let len = array.fill_chunk(coords)?.len();
                let len = u64::try_from(len).unwrap_or(u64::MAX);
                return Ok(Attr { len, blocks: 0, may_change: true, ..attr });
            }
            found => found?,
        };
        if let Some(len) = array.chunk_len(coords)?.exactly() {
            return Ok(attr.of_value(len, &stat));
        }
        // The kernel must ask for the length each time, or it would truncate longer bytes that
        // another program stores.
        let len = self.len_of_elements(&array, coords, &stat)?;
        Ok(Attr { may_change: true, ..attr.of_value(len, &stat) })
    }

    /// Returns the decoded length of a chunk with elements of variable length, which requires
    /// decoding it. A damaged chunk gets its stored length, so that it can be listed and removed,
    /// and a read reports the damage.
    fn len_of_elements(&self, array: &Arc<Array>, coords: &Coords, stat: &Stat) -> Result<u64> {
        self.has_variable.store(true, Ordering::Relaxed);
        self.core.cache.keep_only(array, coords, Some(stat.version));
        match self.core.cache.get(array, coords) {
            Ok(Some(chunk)) => Ok(u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX)),
            Ok(None) => Err(Error::not_found()),
            Err(error) if error.is_of_data() => Ok(stat.len.max(1)),
            Err(error) => Err(error),
        }
    }

    /// Whether the attributes of `number`, or of a name in it, may require decoding a chunk.
    pub(super) fn may_decode(&self, number: u64) -> bool {
        // Most hierarchies have no such arrays, so the flag avoids looking up the place.
        let place = || self.inodes.get(number).and_then(|inode| inode.place());
        if matches!(place(), Some(Place::View(..) | Place::ViewsDir(_))) {
            return true;
        }
        self.has_variable.load(Ordering::Relaxed)
            && match place() {
                Some(Place::Chunk(path, _) | Place::ChunkDir(path, _)) => {
                    self.core.array(&path).is_ok_and(|array| array.model().dtype.is_variable())
                }
                _ => false,
            }
    }

    fn stat_ordinary(&self, path: &NodePath, relative: &str) -> Result<Stat> {
        let key = self.core.hierarchy.ordinary_prefix(path)?.key(relative)?;
        self.core.hierarchy.store().stat(&key)?.ok_or_else(Error::not_found)
    }

    /// Prepares the bytes of a file for an open, and decides what the kernel may do with its pages.
    pub(super) fn open_content(
        &self,
        inode: &Arc<Inode>,
        place: &Place,
        access: Access,
    ) -> Result<Prepared> {
        let array = match place {
            Place::Chunk(path, _) => Some(self.core.array(path)?),
            _ => None,
        };
        if let (Some(array), Place::Chunk(_, coords)) = (&array, place) {
            array.check_readable(coords)?;
            self.share(inode, OpenedAs::Chunk(Arc::clone(array)))?;
        }
        if let (Some(array), Place::Chunk(path, coords), Access::Read) = (&array, place, access) {
            self.reader.before_chunk(path, array, coords);
        }
        let mut file = inode.file().lock();
        if inode.place().is_none() {
            // The file has lost its name meanwhile.
            drop(file);
            return self.prepare_unnamed(inode, access).map(Prepared::from);
        }
        if file.passthrough.openers > 0 && access != Access::Read {
            return Err(self.detach_from_name(inode, &mut file));
        }
        // This open may make the kernel drop pages that another program is just writing.
        file.is_shared = file.openers > 1;
        if access == Access::Truncate {
            drop(file);
            self.truncate_content(inode, 0)?;
            inode.file().lock().settle();
            return Ok(Pages::Drop.into());
        }
        if let Content::Unstored(unstored) = &file.content
            && unstored.changed
        {
            if file.passthrough.openers > 0 {
                return Err(self.detach_from_name(inode, &mut file));
            }
            // The kernel may have old pages of parts that were stored since and not written.
            file.settle();
            return Ok(Pages::Drop.into());
        }
        let version = self.version_for_opener(place, array.as_ref(), &mut file)?;
        if let (Access::Read, Place::Chunk(path, coords)) = (access, place)
            && let (Some(array), Some(version)) = (&array, version)
            && inode.place().as_ref() == Some(place)
        {
            let backing = self.backing_for_chunk(&mut file, path, (array, coords), version);
            self.reader.note_passthrough(path, backing.is_some());
            if backing.is_some() {
                return Ok(Prepared { pages: Pages::Drop, backing, drops: None });
            }
        }
        if file.passthrough.openers > 0 {
            return Err(self.detach_from_name(inode, &mut file));
        }
        let drops = file.open_pages(version);
        file.passthrough.has_pages |= access == Access::Read;
        file.settle();
        let pages = if drops.is_some() { Pages::Drop } else { Pages::Keep };
        Ok(Prepared { pages, backing: None, drops })
    }

    /// Returns the stored version of a file that is being opened; `None` if there is none, or if
    /// the contents may change without it.
    fn version_for_opener(
        &self,
        place: &Place,
        array: Option<&Arc<Array>>,
        file: &mut File,
    ) -> Result<Option<Version>> {
        match place {
            Place::Chunk(path, coords) => {
                let array = array.ok_or_else(Error::not_found)?;
                match self.stat_chunk(array, coords) {
                    Err(error)
                        if error.kind() == Kind::NotFound && self.shows_fill(path, array) =>
                    {
                        self.core.cache.keep_only(array, coords, None);
                        Ok(None)
                    }
                    found => {
                        let version = found?.version;
                        self.core.cache.keep_only(array, coords, Some(version));
                        Ok(Some(version))
                    }
                }
            }
            Place::Ordinary(path, relative) => {
                Ok(Some(self.stat_ordinary(path, relative)?.version))
            }
            Place::Document(path) | Place::Attributes(path) | Place::Copies(path) => {
                let node = self.core.hierarchy.existing(path)?;
                if let NodeContent::NotUnderstood(_, error) = node.content() {
                    // The text is shown as it is stored, if it can be read.
                    node.document().ok_or_else(|| error.clone())?;
                    self.core.note("open", error);
                }
                file.shown = Some(self.shown_at(place, Wanted::Text)?);
                // The contents also depend on other nodes and on the options of the mount.
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Returns the place of a new file `name` in `directory`, or the reason why it cannot be
    /// created.
    pub(super) fn place_for_new(&self, directory: &Place, name: &str) -> Result<Place> {
        let refused = |why: &str| {
            let path = below_shown(directory, name);
            Err(Error::new(Kind::NotPermitted, why.to_owned()).at(path))
        };
        match directory {
            _ if matches!(self.core.options.form, Form::View(_)) => {
                refused("nothing can be created in a mount that shows one format (--as)")
            }
            Place::Control | Place::ViewsDir(_) => refused("nothing can be created here"),
            Place::StoredDir(path) => {
                let key = self.stored_keys(path)?.into_iter().find(|key| key.name() == name);
                match key {
                    Some(key) => Ok(Place::StoredDocument(path.clone(), key)),
                    None => refused("only the metadata file of a node can be created here"),
                }
            }
            Place::ChunkDir(path, prefix) => {
                let array = self.core.array(path)?;
                let Some(index) = parse_index(name) else {
                    return self.new_ordinary(path, directory, name);
                };
                let coords = [&prefix[..], &[index]].concat();
                let within = array.grid().contains_prefix(&coords);
                if within && coords.len() < array.grid().rank() {
                    return refused("chunks are stored below it: it must be a directory");
                }
                new_chunk(path, &array, coords)
            }
            Place::Node(path) => {
                if self.core.options.form == Form::Zarr2
                    && let Some(place) =
                        self.place_for_new_of_zarr2(path, name).at(below_shown(directory, name))?
                {
                    return Ok(place);
                }
                if name == DOCUMENT {
                    return Ok(Place::Document(path.clone()));
                }
                if path.is_root() && name == CONTROL {
                    return refused("this name is reserved for zarrfs");
                }
                let node = self.core.hierarchy.existing(path)?;
                match node.content() {
                    NodeContent::Array(array) if name == CHUNKS && array.grid().rank() == 0 => {
                        new_chunk(path, array, Vec::new())
                    }
                    NodeContent::Array(_) if name == CHUNKS => {
                        refused("chunks are stored below it: it must be a directory")
                    }
                    NodeContent::NotUnderstood(NodeKind::Array, error) => Err(error.clone()),
                    _ => self.new_ordinary(path, directory, name),
                }
            }
            Place::OrdinaryDir(path, _) => self.new_ordinary(path, directory, name),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    fn new_ordinary(&self, path: &NodePath, directory: &Place, name: &str) -> Result<Place> {
        let relative = below(directory, name);
        if name == DOCUMENT {
            let detail = "the name of a metadata file: an array cannot contain nodes";
            return Err(Error::new(Kind::NotPermitted, detail).at(below_shown(directory, name)));
        }
        if self.is_reserved(path, &relative)? {
            let detail = "the store has the array's chunks under this name; write to c/...";
            return Err(Error::new(Kind::NotPermitted, detail).at(below_shown(directory, name)));
        }
        if name.len() > 255 {
            return Err(Error::new(
                Kind::Os(libc::ENAMETOOLONG),
                "the name is longer than 255 bytes",
            ));
        }
        self.core.hierarchy.ordinary_prefix(path)?.key(&relative)?;
        Ok(Place::Ordinary(path.clone(), relative))
    }

    /// Whether there is a chunk with the first indices `prefix`. `true` if the store cannot list.
    pub(super) fn has_chunks(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<bool> {
        if array.grid().rank() == 0 || !array.grid().contains_prefix(prefix) {
            return Ok(false);
        }
        match self.core.cache.has_chunks(array, prefix) {
            // The first shard is damaged, but later chunks may be readable; or the store cannot
            // list.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => Ok(true),
            found => found,
        }
    }

    /// Returns the stat of a chunk. The kernel may know chunks that are now outside the grid.
    fn stat_chunk(&self, array: &Array, coords: &Coords) -> Result<Stat> {
        let stat =
            if array.grid().contains(coords) { self.core.cache.stat(array, coords)? } else { None };
        stat.ok_or_else(Error::not_found)
    }
}

/// Whether a name can begin a chunk key in any dialect: `c`, `c.0.1`, `c0`, `0`, `0.1`, `0_1`.
fn may_be_chunk(name: &str) -> bool {
    let is_index = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    match name.strip_prefix('c') {
        Some("") => true,
        Some(rest) => is_index(rest.trim_start_matches(['.', '_', '-'])),
        None => is_index(name),
    }
}

/// Returns the path of `name` in `directory` relative to its node.
fn below(directory: &Place, name: &str) -> String {
    match directory.relative() {
        relative if relative.is_empty() => name.to_owned(),
        relative => format!("{relative}/{name}"),
    }
}
