//! The options of a mount.

use std::time::Duration;

use crate::array::FillChunks;
use crate::error::{Error, Kind, Result};
use crate::view::{FORMATS, Format};

/// The form of the mounted tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presentation {
    /// A hierarchy of Zarr 3.
    #[default]
    Zarr3,
    /// A hierarchy of Zarr 2.
    Zarr2,
    /// Directories for groups, each node as a file of this format, and nothing else.
    View(&'static Format),
}

impl Presentation {
    /// Returns its name as a value of `--as`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zarr3 => "zarr",
            Self::Zarr2 => "zarr2",
            Self::View(format) => format.extension,
        }
    }
}

/// Which chunks become pending when they are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writeback {
    /// None: each is stored at `close`.
    Sync,
    /// Chunks of a shard, until the others arrive.
    #[default]
    Delay,
    /// All chunks; they are stored in the background.
    All,
}

/// The options of a mount.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the mount")]
pub struct VfsOptions {
    /// The limit of the chunk cache, in bytes.
    pub cache_len: u64,
    /// Whether the kernel keeps pages, so that views need not be cached here.
    pub kernel_keeps: bool,
    /// Whether links of the store are followed, as far as they stay in it, because no kernel does
    /// that. Then no file has its own owner either.
    pub follows_links: bool,
    /// Whether several users may access the mount, and the modes of the store count for what it
    /// generates.
    pub has_others: bool,
    /// The limit for unstored bytes.
    pub dirty_limit: u64,
    /// What to do with a chunk that equals the fill value.
    pub fill_chunks: FillChunks,
    /// Which chunks become pending when they are closed.
    pub writeback: Writeback,
    /// How long scratch files and pending chunks may stay unstored.
    pub writeback_delay: Duration,
    /// The form of the tree.
    pub form: Presentation,
    /// The mounted hierarchy as the user typed it, for reports.
    pub source: String,
    /// Which views are listed.
    pub listed_views: ListedViews,
    /// Whether a new file with the name of a view becomes a node.
    pub imports: bool,
    /// When to use kernel passthrough for chunks and views; `None` for never.
    pub passthrough: Option<PassthroughOptions>,
    /// How many files this process may have open.
    pub descriptors: usize,
}

impl Default for VfsOptions {
    fn default() -> Self {
        Self {
            cache_len: 256 << 20,
            kernel_keeps: true,
            follows_links: false,
            has_others: false,
            dirty_limit: 1 << 30,
            fill_chunks: FillChunks::Store,
            writeback: Writeback::default(),
            writeback_delay: Duration::from_secs(5),
            form: Presentation::default(),
            source: String::new(),
            listed_views: ListedViews::default(),
            imports: false,
            passthrough: None,
            descriptors: 1024,
        }
    }
}

impl VfsOptions {
    /// Whether listings include views, which generates them.
    pub(super) fn lists_views(&self) -> bool {
        matches!(self.form, Presentation::View(_)) || self.listed_views != ListedViews::None
    }

    /// Refuses to create or rename anything in a mount with `--as FORMAT`.
    pub(super) fn check_names_change(&self) -> Result<()> {
        match self.form {
            Presentation::View(format) => Err(Error::new(
                Kind::NotPermitted,
                format!(
                    "nothing can be created, renamed or removed in a mount with --as {}",
                    format.extension
                ),
            )),
            Presentation::Zarr3 | Presentation::Zarr2 => Ok(()),
        }
    }
}

/// When to use passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassthroughOptions {
    /// The least bytes of a chunk: shorter ones are faster through the page cache.
    pub shortest: u64,
    /// How long an array is read through the page cache after a write interrupted passthrough.
    pub calm: Duration,
}

impl Default for PassthroughOptions {
    fn default() -> Self {
        Self { shortest: 64 << 10, calm: Duration::from_secs(5) }
    }
}

/// Which views appear in listings. All views can be opened by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListedViews {
    /// No views.
    #[default]
    None,
    /// All views.
    All,
    /// The views of these formats.
    Of(Vec<&'static Format>),
}

impl ListedViews {
    pub(super) fn formats(&self) -> Vec<&'static Format> {
        match self {
            Self::None => Vec::new(),
            Self::All => FORMATS.iter().collect(),
            Self::Of(formats) => formats.clone(),
        }
    }
}
