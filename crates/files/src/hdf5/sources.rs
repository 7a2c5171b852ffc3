//! Data sets that others show parts of: in the same file, or in another one that may be read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::chunks::{self, ChunkPlace, DataSet};
use super::data_set::StoredDataSet;
use super::header::ObjectHeader;
use super::library::{failed, open};
use super::links::Follower;
use super::mappings::MAX_COUNT;
use super::placed::{
    ChunkCount, INLINE, PlacedChunk, SourcePlaces, SourceSet, by_number, grid, number_of,
};
use super::types::StoredType;
use super::values::Values;
use super::{external, filters, placing, types, virtual_set};
use crate::described::ChunkFile;
use crate::source::SourceFile;
use hdf5_reader::Hdf5File;
use hdf5_reader::messages::external_files::ExternalFilesMessage;
use hdf5_reader::messages::layout::DataLayout;
use hdf5_reader::messages::link::LinkTarget;
use zarrfs_base::error::{Error, Result, Word};
use zarrfs_base::width::ToU64;
use zarrfs_store::refs::SourceStores;

/// The most files that are asked for.
const MAX_FILES: usize = 1 << 17;

/// The most data sets that are looked for: for one virtual data set, and for all of a file.
const MAX_SETS: usize = 1 << 18;
const MAX_ALL_SETS: usize = 1 << 20;

/// The most bytes of the paths of sources.
const MAX_PATHS_LEN: usize = 64 << 20;

/// The most bytes of chunks that were read.
const MAX_INLINE_LEN: usize = 64 << 20;

/// How many links to other files are followed in a row, and how many virtual data sets.
const MAX_DEPTH: usize = 8;

/// An open file.
pub struct OpenSource {
    /// The file for the library.
    pub file: Hdf5File,
    /// Its bytes.
    bytes: SourceFile,
    /// Its number.
    pub number: u32,
    /// The links in it that were read.
    follower: RefCell<Follower>,
}

impl OpenSource {
    /// Returns it as a file that chunks lie in.
    pub fn as_chunk_file(&self) -> ChunkFile {
        self.bytes.as_chunk_file()
    }

    /// Returns what a path leads to: the address of an object, or a link to another file. `None`
    /// if there is nothing.
    pub fn find(&self, path: &str) -> Result<Option<LinkTarget>> {
        let root = self.file.root_group().map_err(failed)?.address();
        self.follower.borrow_mut().find(&self.file, root, root, path)
    }

    /// Returns what a soft link of the group at an address leads to.
    pub fn follow(&self, group: u64, path: &str) -> Result<LinkTarget> {
        let root = self.file.root_group().map_err(failed)?.address();
        self.follower.borrow_mut().follow(&self.file, root, group, path)
    }
}

/// Opens data sets in files that may be read.
pub struct Sources<'p> {
    places: &'p SourceStores,
    own: SourceFile,
    /// The file that was opened last. A file keeps some of its bytes.
    last: Option<Rc<OpenSource>>,
    /// All files that chunks lie in, by their numbers.
    files: Vec<ChunkFile>,
    numbers: HashMap<String, u32>,
    /// How references name files, by their stores and keys.
    located: HashMap<(usize, String), String>,
    /// The data sets that were opened, by file and path.
    found: HashMap<(u32, String), Option<Rc<SourceSet>>>,
    /// Chunks that were read.
    pub inline: Vec<Vec<u8>>,
    inline_len: usize,
    /// How many chunks are in memory.
    pub chunk_count: ChunkCount,
    set_count: usize,
    all_set_count: usize,
    paths_len: usize,
    mapping_count: usize,
    /// The virtual data sets that are being put together, by file and address.
    open_sets: Vec<(u32, u64)>,
}

impl<'p> Sources<'p> {
    /// Returns the data sets of a file, and of others that references of it may lead to.
    pub fn new(places: &'p SourceStores, own: &SourceFile) -> Self {
        Self {
            places,
            own: own.clone(),
            last: None,
            files: Vec::new(),
            numbers: HashMap::new(),
            located: HashMap::new(),
            found: HashMap::new(),
            inline: Vec::new(),
            inline_len: 0,
            chunk_count: ChunkCount::default(),
            set_count: 0,
            all_set_count: 0,
            paths_len: 0,
            mapping_count: 0,
            open_sets: Vec::new(),
        }
    }

    /// Forgets the data sets of another virtual one, and their chunks.
    pub fn clear(&mut self) {
        self.found.clear();
        self.inline.clear();
        self.open_sets.clear();
        (self.inline_len, self.paths_len) = (0, 0);
        (self.set_count, self.mapping_count) = (0, 0);
        self.chunk_count.clear();
    }

    /// Returns a file by its number.
    pub fn chunk_file(&self, number: u32) -> Option<&ChunkFile> {
        self.files.get(usize::try_from(number).ok()?)
    }

    /// Calls `work` for a virtual data set that must not be part of itself.
    pub fn within<T>(
        &mut self,
        at: &OpenSource,
        address: u64,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let name = (at.number, address);
        if self.open_sets.contains(&name) {
            return Err(Error::corrupt("HDF5: a virtual data set that is a part of itself"));
        }
        self.open_sets.push(name);
        let found = work(self);
        self.open_sets.pop();
        found
    }

    /// Opens the file itself.
    pub fn open_own(&mut self) -> Result<Rc<OpenSource>> {
        let own = self.own.clone();
        self.opened(&own)
    }

    /// Opens a file again by its number.
    pub fn reopen(&mut self, number: u32) -> Result<Rc<OpenSource>> {
        let location = self.chunk_file(number).map(|file| file.location.clone());
        let location = location.filter(|location| location != self.own.location());
        let Some(location) = location else { return self.open_own() };
        let found = self.locate(&location)?.ok_or_else(Error::not_found)?;
        self.opened(&found)
    }

    /// Opens a file by the name that one beside it has; `None` if there is none.
    pub fn open(&mut self, beside: &OpenSource, name: &str) -> Result<Option<Rc<OpenSource>>> {
        if name == "." {
            return self.opened(&beside.bytes).map(Some);
        }
        let found = self.locate(&beside.bytes.location_beside(name));
        let is_elsewhere = match &found {
            Ok(file) => file.is_none(),
            Err(error) => error.word() == Word::Unsupported,
        };
        let last = name.rsplit_once('/').filter(|_| is_elsewhere && name.starts_with('/'));
        // The library of HDF5 looks for a file that was moved beside the one that names it.
        let moved = last.map(|(_, last)| self.locate(&beside.bytes.location_beside(last)));
        match moved {
            Some(Ok(Some(file))) => self.opened(&file).map(Some),
            Some(Err(error)) if found.is_ok() || error.word() != Word::Unsupported => Err(error),
            _ => found?.map(|file| self.opened(&file)).transpose(),
        }
    }

    /// Returns the file at a location, by the location that it was found at first; `None` if there
    /// is none. A location that may not be read is unsupported.
    fn locate(&mut self, location: &str) -> Result<Option<SourceFile>> {
        let refused = |error: &Error| Error::unsupported(error.detail().to_owned());
        let found = self.places.locate(location);
        let (index, store, key) = found.map_err(|error| refused(&error))?;
        // The file itself is in the first store, unless it is an unpacked copy.
        if index == 0 && key == *self.own.key() {
            return Ok(Some(self.own.clone()));
        }
        if store.stat(&key)?.is_none() {
            return Ok(None);
        }
        let name = (index, key.as_str().to_owned());
        let known = self.located.entry(name).or_insert_with(|| location.to_owned());
        SourceFile::located(&store, &key, known.clone()).map(Some)
    }

    /// Returns the number of a file of any format by the name that one beside it has; `None` if
    /// there is none.
    pub fn raw(&mut self, beside: &OpenSource, name: &str) -> Result<Option<u32>> {
        let location = beside.bytes.location_beside(name);
        let found = self.locate(&location)?;
        found.map(|file| self.number_of(&file)).transpose()
    }

    fn number_of(&mut self, bytes: &SourceFile) -> Result<u32> {
        if let Some(number) = self.numbers.get(bytes.location()) {
            return Ok(*number);
        }
        if self.files.len() >= MAX_FILES {
            let detail = format!("parts in more than {MAX_FILES} other files");
            return Err(Error::unsupported(detail));
        }
        let number = u32::try_from(self.files.len()).unwrap_or(INLINE);
        self.files.push(bytes.as_chunk_file());
        self.numbers.insert(bytes.location().to_owned(), number);
        Ok(number)
    }

    fn opened(&mut self, bytes: &SourceFile) -> Result<Rc<OpenSource>> {
        let location = bytes.location();
        if let Some(last) = self.last.as_ref().filter(|last| last.bytes.location() == location) {
            return Ok(Rc::clone(last));
        }
        let number = self.number_of(bytes)?;
        let file = open(bytes).map_err(|error| in_file(location, &error))?;
        let opened =
            OpenSource { file, bytes: bytes.clone(), number, follower: RefCell::default() };
        let opened = Rc::new(opened);
        self.last = Some(Rc::clone(&opened));
        Ok(opened)
    }

    /// Returns the data set at a path in a file; `None` if there is none. `depth` counts the
    /// virtual data sets and links that led there.
    pub fn find(
        &mut self,
        at: &Rc<OpenSource>,
        path: &str,
        depth: usize,
    ) -> Result<Option<Rc<SourceSet>>> {
        let name = (at.number, path.to_owned());
        if let Some(found) = self.found.get(&name) {
            return Ok(found.clone());
        }
        if depth > MAX_DEPTH {
            let detail = format!("virtual data sets or links nested more than {MAX_DEPTH} deep");
            return Err(Error::unsupported(detail));
        }
        self.take_set(path)?;
        let found = match at.find(path)? {
            None | Some(LinkTarget::Soft { .. }) => None,
            Some(LinkTarget::Hard { address }) => {
                let found = self.read(at, address, path, depth);
                Some(found.map_err(|error| in_file(at.bytes.location(), &error))?)
            }
            Some(LinkTarget::External { filename, path }) => match self.open(at, &filename)? {
                Some(other) => self.find(&other, &path, depth.saturating_add(1))?,
                None => None,
            },
        };
        self.found.insert(name, found.clone());
        Ok(found)
    }

    /// Notes that one more data set is looked for.
    fn take_set(&mut self, path: &str) -> Result<()> {
        self.set_count = self.set_count.saturating_add(1);
        self.all_set_count = self.all_set_count.saturating_add(1);
        self.paths_len = self.paths_len.saturating_add(path.len());
        let detail = if self.set_count > MAX_SETS {
            format!("a virtual data set with more than {MAX_SETS} sources")
        } else if self.all_set_count > MAX_ALL_SETS {
            format!("virtual data sets that together have more than {MAX_ALL_SETS} sources")
        } else if self.paths_len > MAX_PATHS_LEN {
            let most = MAX_PATHS_LEN >> 20;
            format!("a virtual data set with more than {most} MiB of source paths")
        } else {
            return Ok(());
        };
        Err(Error::unsupported(detail))
    }

    fn read(
        &mut self,
        at: &Rc<OpenSource>,
        address: u64,
        path: &str,
        depth: usize,
    ) -> Result<Rc<SourceSet>> {
        let header = ObjectHeader::read(&at.file, address)?;
        let set = StoredDataSet::of(&at.file, address, path, header, &[])?;
        if set.mappings.is_some() {
            let found = virtual_set::assembled(self, at, &set, depth)?;
            return Ok(Rc::new(found.source));
        }
        if let Some(external) = &set.external {
            return self.external(at, &set, external).map(Rc::new);
        }
        let stored = set.element_type(&at.file)?;
        let codecs = match &set.pipeline {
            Some(pipeline) => filters::codecs(pipeline, stored.item_len)?,
            None => Vec::new(),
        };
        let fill = types::fill_value(set.fill.as_deref(), &stored);
        let shape: Vec<u64> = set.shape.iter().chain(&stored.inner_shape).copied().collect();
        let places = self.places_of(at, &set, &stored, &shape)?;
        Ok(Rc::new(SourceSet { shape, stored, filters: codecs, fill, places }))
    }

    /// Returns a data set with values in files of other formats.
    pub fn external(
        &mut self,
        at: &Rc<OpenSource>,
        set: &StoredDataSet,
        listed: &ExternalFilesMessage,
    ) -> Result<SourceSet> {
        let mut number_of = |name: &str| self.raw(at, name);
        let (mut found, parts) = external::parts(&at.file, set, listed, &mut number_of)?;
        found.places = placing::places(&parts, &found, &mut self.chunk_count)?;
        Ok(found)
    }

    fn places_of(
        &mut self,
        at: &Rc<OpenSource>,
        set: &StoredDataSet,
        stored: &StoredType,
        shape: &[u64],
    ) -> Result<SourcePlaces> {
        let layout = set.layout.as_ref();
        let layout = layout.ok_or_else(|| Error::corrupt("HDF5: a data set without a layout"))?;
        let base = at.file.superblock().base_address;
        match layout {
            DataLayout::Contiguous { address, .. } if chunks::is_undefined(&at.file, *address) => {
                Ok(SourcePlaces::Nowhere)
            }
            DataLayout::Contiguous { address, .. } => {
                let offset = base.checked_add(*address);
                let offset = offset.ok_or_else(|| Error::corrupt("an address past the end"))?;
                Ok(SourcePlaces::Contiguous { file: at.number, offset })
            }
            DataLayout::Compact { data } => {
                let shape: Vec<u64> = shape.iter().map(|len| (*len).max(1)).collect();
                let stored = vec![self.placed(at, 0, ChunkPlace::Inline(data.clone()))?];
                Ok(SourcePlaces::Chunks { shape, stored })
            }
            DataLayout::Chunked { dims, .. } => {
                let data_set = DataSet {
                    path: "",
                    shape: &set.shape,
                    max_shape: set.max_shape.as_deref(),
                    stored,
                    layout,
                    pipeline: set.pipeline.as_ref(),
                };
                let lens = data_set.chunk_dims(dims)?.iter().map(|len| u64::from(*len));
                let chunk_shape: Vec<u64> =
                    lens.chain(stored.inner_shape.iter().copied()).collect();
                let counts = grid(shape, &chunk_shape)?;
                let root = at.file.root_group().map_err(failed)?;
                let mut values = Values::new(&at.file, root, HashMap::new(), 0);
                let mut list = Vec::new();
                data_set.for_each_chunk(&at.file, &mut values, &mut |coords, place| {
                    list.push(self.placed(at, number_of(coords, &counts)?, place)?);
                    Ok(())
                })?;
                Ok(SourcePlaces::Chunks { shape: chunk_shape, stored: by_number(list) })
            }
        }
    }

    fn placed(&mut self, at: &OpenSource, number: u64, place: ChunkPlace) -> Result<PlacedChunk> {
        self.chunk_count.add(1)?;
        Ok(match place {
            ChunkPlace::Part { offset, len } => {
                PlacedChunk { number, file: at.number, offset, len, needed: len }
            }
            ChunkPlace::Inline(bytes) => {
                self.inline_len = self.inline_len.saturating_add(bytes.len());
                if self.inline_len > MAX_INLINE_LEN {
                    let most = MAX_INLINE_LEN >> 20;
                    return Err(Error::unsupported(format!(
                        "more than {most} MiB of chunks that must be read when a file is opened"
                    )));
                }
                let offset = u64::try_from(self.inline.len()).unwrap_or(u64::MAX);
                let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.inline.push(bytes);
                PlacedChunk { number, file: INLINE, offset, len, needed: len }
            }
        })
    }

    /// Notes that there are so many more mappings in memory.
    pub fn take_mappings(&mut self, count: usize) -> Result<()> {
        self.chunk_count.step(count.to_u64())?;
        self.mapping_count = self.mapping_count.saturating_add(count);
        if self.mapping_count > MAX_COUNT {
            let detail = format!("virtual data sets of more than {MAX_COUNT} mappings");
            return Err(Error::unsupported(detail));
        }
        Ok(())
    }
}

fn in_file(location: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("in {location}: {}", error.detail()))
}
