//! The bytes of files, from the first write until they are stored.
//!
//! A file that a program writes has its bytes in memory (`files`). `next_step` decides when they
//! are stored, and its place says how (`store`): a chunk goes through the codecs, now or with the
//! rest of its shard (`chunks`), a metadata file changes the stored one (`documents`, `zarr2`) and
//! may turn a directory into an array (`convert`), and any other file is stored as it is. `forms`
//! switches chunk files between decoded and encoded chunks. Chunk files for which the metadata file
//! is still missing wait (`waiting`). Writes to views become changes of chunks (`view_writes`), and
//! a new file in the place of one changes all of them at once (`new_view_files`).

pub mod chunks;
mod compared;
mod convert;
pub mod documents;
pub mod files;
pub mod forms;
pub mod latest;
pub mod memory;
mod mirrored;
pub mod new_view_files;
pub mod next_step;
pub mod ordinary;
mod removed;
pub mod store;
pub mod stored;
pub mod unsynced;
pub mod view_writes;
mod waiting;
mod zarr2;

use std::sync::Arc;

use parking_lot::Mutex;

use super::core::Core;
use super::names::Names;
use super::names::listing::Listings;
use chunks::ChunkWriter;
use documents::DocumentWriter;
use files::Files;
use latest::Latest;
use memory::UnstoredMemory;
use stored::StoredFiles;
use unsynced::Unsynced;
use view_writes::ViewWriter;

/// All that reads, changes and stores the bytes of files.
#[derive(Clone)]
pub(in crate::vfs) struct Contents {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub stored: Arc<StoredFiles>,
    pub chunks: Arc<ChunkWriter>,
    pub documents: Arc<DocumentWriter>,
    pub files: Arc<Files>,
    pub view_writer: Arc<ViewWriter>,
    pub unsynced: Arc<Unsynced>,
}

impl Contents {
    /// Returns the contents of the files in `names`.
    pub fn new(core: &Arc<Core>, names: &Arc<Names>, listings: &Arc<Listings>) -> Self {
        let (core, names) = (Arc::clone(core), Arc::clone(names));
        let unsynced = Arc::new(Unsynced::default());
        let memory = Arc::new(UnstoredMemory::new(Arc::clone(&core)));
        let stored = Arc::new(StoredFiles {
            core: Arc::clone(&core),
            names: Arc::clone(&names),
            unsynced: Arc::clone(&unsynced),
        });
        let chunks = Arc::new(ChunkWriter {
            core: Arc::clone(&core),
            names: Arc::clone(&names),
            stored: Arc::clone(&stored),
            unsynced: Arc::clone(&unsynced),
            latest: Latest::default(),
            storing: Arc::default(),
        });
        let documents = Arc::new(DocumentWriter {
            core: Arc::clone(&core),
            names: Arc::clone(&names),
            listings: Arc::clone(listings),
            stored: Arc::clone(&stored),
            chunks: Arc::clone(&chunks),
            memory: Arc::clone(&memory),
            unsynced: Arc::clone(&unsynced),
        });
        let files = Arc::new(Files {
            core: Arc::clone(&core),
            names: Arc::clone(&names),
            stored: Arc::clone(&stored),
            chunks: Arc::clone(&chunks),
            documents: Arc::clone(&documents),
            memory,
            unsynced: Arc::clone(&unsynced),
        });
        let view_writer = Arc::new(ViewWriter {
            core: Arc::clone(&core),
            files: Arc::clone(&files),
            chunks: Arc::clone(&chunks),
            names: Arc::clone(&names),
            replacing: Mutex::default(),
        });
        Self { core, names, stored, chunks, documents, files, view_writer, unsynced }
    }
}
