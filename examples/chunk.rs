//! Reads one chunk of an array, which may be sharded, from an object store, without a mount:
//!
//! ```console
//! $ cargo run --example chunk s3://bucket/era5.zarr t2m 0 3 1 > chunk.raw
//! ```
//!
//! The chunk is written decoded: little endian, in C order. Credentials come from the environment,
//! as for other programs; `AWS_ENDPOINT_URL` names another server than Amazon's.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use zarrfs_base::error::{Error, Result};
use zarrfs_hierarchy::array::Coords;
use zarrfs_hierarchy::hierarchy::{Hierarchy, HierarchyOptions};
use zarrfs_hierarchy::metadata::NodePath;
use zarrfs_store::remote::RemoteLimits;
use zarrfs_store::{Store, object};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, path, indices @ ..] = words.as_slice() else {
        return Err(Error::invalid("usage: chunk URL ARRAY [INDEX..]"));
    };
    let options = object::ObjectOptions {
        anonymous: false,
        endpoint: std::env::var("AWS_ENDPOINT_URL").ok(),
        region: std::env::var("AWS_REGION").ok(),
        requester_pays: false,
        profile: None,
        retry_for: Duration::from_secs(60),
    };
    let server = object::connect(url, &options, RemoteLimits::DEFAULT, None)?;
    let store = Store::new(Arc::new(server)).read_only();
    let hierarchy = Hierarchy::open(store, None, HierarchyOptions::default())?;
    let node = hierarchy.existing(&NodePath::parse(path)?)?;
    let array = node.array().ok_or_else(|| Error::invalid("not an array"))?;
    let index = |text: &String| text.parse().map_err(|_| Error::invalid("an index is a number"));
    let coords = Coords::new(indices.iter().map(index).collect::<Result<Vec<u64>>>()?);
    match array.read_chunk(&coords)? {
        Some((chunk, _)) => Ok(std::io::stdout().write_all(&chunk)?),
        None => Err(Error::invalid("the chunk is not stored: all of it is the fill value")),
    }
}
