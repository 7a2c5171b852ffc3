//! Filters of HDF5 as codecs, and chunks that some filters have left out.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use hdf5_reader::messages::filter_pipeline::FilterPipelineMessage;
use serde_json::{Value, json};

use super::literal_szip::literal_szip;
use crate::described::codec;
use zarrfs_base::error::{Error, Result};

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const SZIP: u16 = 4;
const NBIT: u16 = 5;
const SCALE_OFFSET: u16 = 6;
const BZIP2: u16 = 307;
const LZF: u16 = 32000;
const BLOSC: u16 = 32001;
const LZ4: u16 = 32004;
const BITSHUFFLE: u16 = 32008;
const ZSTD: u16 = 32015;

/// Returns the codecs after `bytes` for elements of `item_len` bytes.
pub fn codecs(pipeline: &FilterPipelineMessage, item_len: u64) -> Result<Vec<Value>> {
    let mut codecs = Vec::new();
    for filter in &pipeline.filters {
        let parameter = |at: usize| filter.client_data.get(at).copied();
        codecs.push(match filter.id {
            DEFLATE => codec("numcodecs.zlib", json!({"level": parameter(0).unwrap_or(6).min(9)})),
            // What an earlier filter leaves may have some bytes more than whole elements.
            id @ SHUFFLE if !codecs.is_empty() => {
                let len = parameter(0).map_or(item_len, u64::from);
                codec("hdf5_filter", json!({"id": id, "parameters": [len]}))
            }
            SHUFFLE => {
                let len = parameter(0).map_or(item_len, u64::from);
                codec("numcodecs.shuffle", json!({"elementsize": len}))
            }
            FLETCHER32 => codec("numcodecs.fletcher32", json!({})),
            BZIP2 => {
                codec("numcodecs.bz2", json!({"level": parameter(0).unwrap_or(9).clamp(1, 9)}))
            }
            LZF => codec("imagecodecs_lzf", json!({"header": false})),
            BLOSC => blosc(&filter.client_data, item_len),
            LZ4 => codec("imagecodecs_lz4h5", json!({})),
            BITSHUFFLE => bitshuffle(&filter.client_data, item_len)?,
            id @ (SZIP | NBIT | SCALE_OFFSET) => {
                codec("hdf5_filter", json!({"id": id, "parameters": filter.client_data}))
            }
            ZSTD => codec(
                "zstd",
                json!({"level": parameter(0).unwrap_or(3).min(22), "checksum": false}),
            ),
            id => {
                let name = filter.name.as_deref().filter(|name| !name.is_empty());
                return Err(Error::unsupported(match name.or_else(|| known(id)) {
                    Some(name) => format!("the HDF5 filter {id} ({name})"),
                    None => format!("the HDF5 filter {id}"),
                }));
            }
        });
    }
    Ok(codecs)
}

fn known(id: u16) -> Option<&'static str> {
    Some(match id {
        32013 => "zfp",
        32017 => "SZ",
        32019 => "JPEG",
        32026 => "blosc2",
        _ => return None,
    })
}

/// The parameters of bitshuffle are its version, the length of an element, the elements of a block,
/// and how blocks are compressed. Old versions have no more than the first ones.
fn bitshuffle(client_data: &[u32], item_len: u64) -> Result<Value> {
    let parameter = |at: usize| client_data.get(at).copied();
    let compressor = match parameter(4).unwrap_or(0) {
        0 => "none",
        2 => "lz4",
        3 => "zstd",
        other => {
            let detail = format!("the HDF5 filter 32008 (bitshuffle) with the compressor {other}");
            return Err(Error::unsupported(detail));
        }
    };
    let configuration = json!({
        "itemsize": parameter(2).map_or(item_len, u64::from).max(1),
        "blocksize": parameter(3).unwrap_or(0), "compressor": compressor,
    });
    Ok(codec("hdf5_bitshuffle", configuration))
}

/// The configuration of blosc decides nothing about decoding; the chunk says how it was made.
fn blosc(client_data: &[u32], item_len: u64) -> Value {
    let parameter = |at: usize| client_data.get(at).copied();
    let shuffle = match parameter(5) {
        Some(0) => "noshuffle",
        Some(2) => "bitshuffle",
        _ => "shuffle",
    };
    let name = match parameter(6) {
        Some(1) => "lz4",
        Some(2) => "lz4hc",
        Some(3) => "snappy",
        Some(4) => "zlib",
        Some(5) => "zstd",
        _ => "blosclz",
    };
    let configuration = json!({
        "cname": name, "clevel": parameter(4).unwrap_or(5).min(9), "shuffle": shuffle,
        "typesize": parameter(2).map_or(item_len, u64::from).max(1), "blocksize": 0,
    });
    codec("blosc", configuration)
}

/// Whether a chunk went through all filters.
pub fn is_whole(pipeline: &FilterPipelineMessage, mask: u32) -> bool {
    let bits = u32::try_from(pipeline.filters.len()).unwrap_or(32);
    let all = 1_u32.checked_shl(bits).map_or(u32::MAX, |end| end.wrapping_sub(1));
    mask & all == 0
}

/// Returns the stored bytes of a chunk as they would be had no filter been left out. A filter that
/// makes a chunk longer leaves itself out.
pub fn completed(
    pipeline: &FilterPipelineMessage,
    mask: u32,
    item_len: u64,
    stored: &[u8],
) -> Result<Vec<u8>> {
    let is_left_out = |at: usize| {
        mask.checked_shr(u32::try_from(at).unwrap_or(32)).is_some_and(|mask| mask & 1 == 1)
    };
    let first = (0..pipeline.filters.len()).find(|at| is_left_out(*at)).unwrap_or_default();
    let later = pipeline.filters.get(first..).unwrap_or_default();
    let mut bytes = stored.to_vec();
    // Those after the first that was left out are undone, and then all are applied.
    for (at, filter) in later.iter().enumerate().rev() {
        if is_left_out(first.saturating_add(at)) {
            continue;
        }
        match filter.id {
            FLETCHER32 => {
                let len = bytes.len().checked_sub(4);
                bytes.truncate(len.ok_or_else(|| Error::corrupt("a chunk without its checksum"))?);
            }
            id => {
                let detail =
                    format!("a chunk without one filter of HDF5 and then with filter {id}");
                return Err(Error::unsupported(detail));
            }
        }
    }
    for filter in later {
        bytes = match filter.id {
            FLETCHER32 => {
                let sum = fletcher32(&bytes);
                bytes.extend_from_slice(&sum.to_le_bytes());
                bytes
            }
            DEFLATE => stored_zlib(&bytes)?,
            LZF => literal_lzf(&bytes),
            SZIP => literal_szip(&bytes, &filter.client_data)?,
            SHUFFLE => {
                shuffled(&bytes, filter.client_data.first().map_or(item_len, |len| u64::from(*len)))
            }
            id => {
                let detail = format!("a chunk without the filter {id} of HDF5, which others have");
                return Err(Error::unsupported(detail));
            }
        };
    }
    Ok(bytes)
}

fn fletcher32(bytes: &[u8]) -> u32 {
    hdf5_reader::checksum::fletcher32(bytes)
}

/// Returns a zlib stream that holds bytes as they are.
fn stored_zlib(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| Error::os(&error))
}

/// Returns an LZF stream that holds bytes as they are, in runs of at most 32.
fn literal_lzf(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::with_capacity(bytes.len().saturating_add(bytes.len() / 16));
    for run in bytes.chunks(32) {
        stream.extend(u8::try_from(run.len().saturating_sub(1)));
        stream.extend_from_slice(run);
    }
    stream
}

fn shuffled(bytes: &[u8], item_len: u64) -> Vec<u8> {
    let item_len = usize::try_from(item_len).unwrap_or(1).max(1);
    let count = bytes.len() / item_len;
    let mut shuffled = Vec::with_capacity(bytes.len());
    for at in 0..item_len {
        shuffled.extend(bytes.iter().skip(at).step_by(item_len).take(count));
    }
    shuffled.extend_from_slice(bytes.get(count.saturating_mul(item_len)..).unwrap_or_default());
    shuffled
}
