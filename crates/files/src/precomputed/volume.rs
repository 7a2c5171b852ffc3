//! The values of a volume by the keys of Zarr.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::indexes::ShardIndexes;
use super::scale::{self, ChunkPlace, VolumeScale};
use zarrfs_base::width::ToU64;
use zarrfs_store::{Key, Stat, Store};

/// The values of a volume by the keys of Zarr.
#[derive(Debug)]
pub struct VolumeStore {
    pub own: Store,
    /// The stat of the file `info`.
    pub stat: Stat,
    /// The metadata files of nodes, and chunks that stand for what is not read, by their keys.
    pub texts: BTreeMap<String, Bytes>,
    /// The scales, `None` for those that are not read.
    pub scales: Vec<Option<VolumeScale>>,
    pub indexes: ShardIndexes,
}

/// A key of Zarr, as the volume has it.
pub enum KeyTarget<'v> {
    /// Bytes that are known.
    Text(&'v Bytes),
    Chunk(ChunkPlace<'v>),
    Nothing,
}

impl VolumeStore {
    /// Returns what a key stands for.
    pub fn target(&self, key: &Key) -> KeyTarget<'_> {
        if let Some(text) = self.texts.get(key.as_str()) {
            return KeyTarget::Text(text);
        }
        let place = || {
            let (index, rest) = key.as_str().split_once('/')?;
            let index: usize = scale::number(index)?.try_into().ok()?;
            self.scales.get(index)?.as_ref()?.place(index, rest.strip_prefix("c/")?)
        };
        place().map_or(KeyTarget::Nothing, KeyTarget::Chunk)
    }

    /// Returns the stat of bytes that are known.
    pub fn text_stat(&self, text: &Bytes) -> Stat {
        Stat { len: text.len().to_u64(), ..self.stat }
    }
}
