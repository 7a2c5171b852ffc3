//! Neuroglancer's "precomputed" volumes as read-only hierarchies.
//!
//! ```text
//! info                           JSON: data type, channels, and a list of scales
//! 8_8_40/0-64_0-64_128-192       a chunk of the scale with the key 8_8_40, by its elements
//! 8_8_40/1f.shard                or many chunks, with two levels of indexes
//! ```
//!
//! Such a volume is neither a dialect of Zarr nor a file. It has one metadata file for all arrays,
//! its nodes have no directories of their own, and its keys have no chunk coordinates: so it does
//! not fit `metadata`. A table of references, which the other formats here make, has a row for each
//! chunk; a volume may have billions, and does not list them. So this is a store of its own: it
//! translates keys of Zarr 3 to those of the volume when they are asked for, and keeps no more than
//! the metadata files and some indexes of shards.
//!
//! | module | contents |
//! | ------ | -------- |
//! | `info` | the metadata file of the volume, as a metadata file of Zarr for each node |
//! | `scale` | the places of chunks, which follow from their coordinates |
//! | `sharding` | which shard a chunk is in: hashes and bits |
//! | `indexes` | where in its shard, by indexes that are read when they are needed |
//! | `minishard` | the index of a part of a shard |
//! | `volume` | what a key of Zarr stands for |
//! | `chunk_names` | the endings of the names of compressed chunks |
//! | `chunks` | the bytes of chunks |
//! | `listing` | the names of nodes and chunks |
//!
//! A scale is an array named by its index, as OME-Zarr does: keys of scales may be paths, and two
//! may be equal. Its dimensions are z, y, x, after c if there are several channels, since the
//! stored elements are in that order. Chunks at the end have only the elements in the array; the
//! store puts their shape in front of each chunk, and the codec `precomputed_chunk` fills the rest.
//! A grid of different chunks (`rectilinear`) would have the same bytes without that, but few
//! programs read it.
//!
//! <https://github.com/google/neuroglancer/tree/master/src/datasource/precomputed>

mod chunk_names;
mod chunks;
mod indexes;
mod info;
mod listing;
mod minishard;
mod scale;
mod sharding;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use indexes::ShardIndexes;
use info::Volume;
use volume::VolumeStore;
use zarrfs_base::error::Result;
use zarrfs_base::limits;
use zarrfs_codec::json::{self, Object};
use zarrfs_store::{Key, Stat, Store, Version};

/// The metadata file of a volume.
pub const INFO: &str = "info";

/// Returns the store of the volume in `own`; `None` if no volume is there. It takes indexes of
/// shards to be as they were for `ttl`.
///
/// # Errors
///
/// - The volume has no list of scales, or too many.
/// - It cannot be read.
pub fn open(own: &Store, ttl: Duration) -> Result<Option<Store>> {
    let value = own.get(&Key::parse(INFO)?, limits::METADATA.get())?;
    let Some(value) = value else { return Ok(None) };
    let Some(info) = parse(&value.bytes) else { return Ok(None) };
    let volume = Volume::parse(&info)?;
    let own = own.clone().read_only();
    let store = VolumeStore {
        stat: Stat { version: Version::settled(value.stat.version.state()), ..value.stat },
        texts: volume.texts,
        scales: volume.scales,
        indexes: ShardIndexes::new(own.clone(), ttl),
        own,
    };
    Ok(Some(Store::reading(Arc::new(store))))
}

/// Whether these are the bytes of the file `info` of a volume.
pub fn is_info(text: &[u8]) -> bool {
    parse(text).is_some()
}

fn parse(text: &[u8]) -> Option<Object> {
    json::parse_object(text).ok().filter(info::is_volume)
}
