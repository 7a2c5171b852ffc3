//! The file `info` of a volume, translated to a metadata file for each node.
//!
//! The root is an image of OME-Zarr. Its levels have the scale `resolution`, in nanometers.
//! OME-Zarr gives the coordinates of a voxel's center, Neuroglancer those of its corner. The
//! translation of a level is therefore `voxel_offset` times `resolution` plus half the difference
//! between its voxel size and that of the first level. This keeps the levels aligned. The members
//! of `info` are kept as the attribute `precomputed`.
//!
//! A scale that is not read is an array whose codecs say why.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::scale::{VolumeScale, morton_bits};
use super::sharding::Sharding;
use crate::described::{self, DescribedArray, codec};
use crate::json::double;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::{Object, describe};
use zarrfs_store::Prefix;

/// The type of a volume.
const TYPE: &str = "neuroglancer_multiscale_volume";

/// The attribute with the members of `info`.
const ATTRIBUTE: &str = "precomputed";

/// The most scales of a volume.
const MAX_SCALES: usize = 256;

/// The types of elements.
const DATA_TYPES: [&str; 9] =
    ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32"];

/// A volume as nodes of Zarr.
#[derive(Debug, Default)]
pub struct Volume {
    /// The metadata files of nodes, and chunks that stand for what is not read, by their keys.
    pub texts: BTreeMap<String, Bytes>,
    /// The scales, `None` for those that are not read.
    pub scales: Vec<Option<VolumeScale>>,
}

/// What all scales share.
struct Elements {
    data_type: String,
    channels: u64,
}

/// Where the elements of a scale are: the length of one in nanometers, and the place of the first,
/// along x, y, z.
struct Level {
    index: usize,
    resolution: [f64; 3],
    offset: [i64; 3],
}

/// Whether a file `info` is that of a volume. Those of meshes and skeletons have the same name.
pub fn is_volume(info: &Object) -> bool {
    if let Some(kind) = info.get("@type") {
        return kind == TYPE;
    }
    let kind = info.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_known = ["image", "segmentation"].iter().any(|it| kind.eq_ignore_ascii_case(it));
    is_known && info.contains_key("scales")
}

impl Volume {
    /// Parses the file `info` of a volume.
    pub fn parse(info: &Object) -> Result<Self> {
        let scales = info.get("scales").and_then(Value::as_array);
        let scales = scales.ok_or_else(|| Error::corrupt("info: scales is not a list"))?;
        if scales.len() > MAX_SCALES {
            let detail = format!("info: {} scales, the limit is {MAX_SCALES}", scales.len());
            return Err(Error::unsupported(detail));
        }
        let elements = Elements::parse(info);
        let mut volume = Self::default();
        let mut levels = Vec::new();
        for (index, value) in scales.iter().enumerate() {
            levels.extend(volume.add(index, &elements, value));
        }
        let has_channels = elements.is_ok_and(|elements| elements.channels > 1);
        let mut attributes = image(&levels, has_channels);
        let mut rest = info.clone();
        rest.shift_remove("scales");
        attributes.insert(ATTRIBUTE.to_owned(), rest.into());
        volume.note(described::DOCUMENT, described::group_text(attributes));
        Ok(volume)
    }

    fn note(&mut self, key: &str, text: impl Into<Bytes>) {
        self.texts.insert(key.to_owned(), text.into());
    }

    /// Adds the array of a scale. Returns the level that it is, if it is read.
    fn add(&mut self, index: usize, elements: &Result<Elements>, value: &Value) -> Option<Level> {
        let mut array = DescribedArray::unknown();
        array.attributes.insert(ATTRIBUTE.to_owned(), value.clone());
        let read = elements.as_ref().map_err(Error::clone).and_then(|elements| {
            let object = value.as_object().ok_or_else(|| Error::corrupt("no object"))?;
            described_as(&mut array, elements, object)?;
            Ok((scale(&mut array, elements, object)?, resolution(object)?))
        });
        let (scale, resolution) = match read {
            Ok(read) => read,
            Err(error) => {
                array.codecs.clear();
                array.make_unread(error.detail());
                let zeros = "/0".repeat(array.shape.len());
                self.note(&format!("{index}/c{zeros}"), vec![0]);
                self.note(&format!("{index}/{}", described::DOCUMENT), described::text(&array));
                self.scales.push(None);
                return None;
            }
        };
        self.note(&format!("{index}/{}", described::DOCUMENT), described::text(&array));
        let level = Level { index, resolution, offset: scale.offset };
        self.scales.push(Some(scale));
        Some(level)
    }
}

impl Elements {
    fn parse(info: &Object) -> Result<Self> {
        let value = info.get("data_type").unwrap_or(&Value::Null);
        let name = value.as_str().unwrap_or_default().to_ascii_lowercase();
        if !DATA_TYPES.contains(&name.as_str()) {
            return Err(Error::unsupported(format!("data type {}", describe(value))));
        }
        let channels = info.get("num_channels").unwrap_or(&Value::Null);
        match integer(channels).and_then(|count| u32::try_from(count).ok()) {
            Some(channels @ 1..) => Ok(Self { data_type: name, channels: channels.into() }),
            _ => Err(Error::corrupt(format!("num_channels is {}", describe(channels)))),
        }
    }
}

/// Adds to an array what it has whatever the encoding of its chunks is.
fn described_as(array: &mut DescribedArray, elements: &Elements, object: &Object) -> Result<()> {
    let [x, y, z] = lengths("size", object.get("size"))?;
    let with_channels = |first: &[u64], rest: [u64; 3]| [first, &rest[..]].concat();
    let is_single = elements.channels == 1;
    let channels = if is_single { &[][..] } else { &[elements.channels] };
    array.shape = with_channels(channels, [z, y, x]);
    array.data_type = json!(elements.data_type);
    array.fill_value = described::zero_of(&elements.data_type);
    let names = ["c", "z", "y", "x"].into_iter().skip(usize::from(is_single));
    array.dimension_names = Some(names.map(|name| Some(name.to_owned())).collect());
    let sizes = object.get("chunk_sizes").and_then(Value::as_array);
    let first = sizes.and_then(|sizes| sizes.first());
    let mut chunk = lengths("chunk_sizes", first)?;
    for (len, size) in chunk.iter_mut().zip([x, y, z]) {
        if *len == 0 {
            return Err(Error::corrupt("chunk_sizes has a length of 0"));
        }
        // A chunk has no more elements than the array.
        *len = (*len).min(size.max(1));
        u32::try_from(*len).map_err(|_| Error::too_large(format!("chunks of {len} elements")))?;
    }
    let [x, y, z] = chunk;
    array.chunk_shape = with_channels(channels, [z, y, x]);
    Ok(())
}

/// Returns the chunks of a scale, and adds their codecs to its array.
fn scale(array: &mut DescribedArray, elements: &Elements, object: &Object) -> Result<VolumeScale> {
    let inner = codecs(elements, object)?;
    array.codecs.push(codec("precomputed_chunk", json!({"codecs": inner})));
    let last_three = |lens: &[u64]| match *lens {
        [.., z, y, x] => [x, y, z],
        _ => [0; 3],
    };
    let sharding = object.get("sharding").filter(|value| !value.is_null());
    let scale = VolumeScale {
        directory: directory(object)?,
        size: last_three(&array.shape),
        offset: offset(object)?,
        chunk: last_three(&array.chunk_shape),
        channels: elements.channels,
        sharding: sharding.map(Sharding::parse).transpose()?,
    };
    let bits = morton_bits(scale.grid());
    if scale.sharding.is_some() && bits > u64::BITS {
        return Err(Error::corrupt(format!("shards of chunks with numbers of {bits} bits")));
    }
    Ok(scale)
}

/// Returns the codecs of a chunk of a scale.
fn codecs(elements: &Elements, object: &Object) -> Result<Vec<Value>> {
    let value = object.get("encoding").unwrap_or(&Value::Null);
    let encoding = value.as_str().unwrap_or_default().to_ascii_lowercase();
    let Elements { data_type, channels } = elements;
    let image = |codec_name: &str, types: &[&str], counts: &[u64]| {
        if !types.contains(&data_type.as_str()) || !counts.contains(channels) {
            return Err(Error::corrupt(format!(
                "{encoding} of {channels} channels of {data_type}"
            )));
        }
        // The channels of a pixel are together.
        let order = codec("transpose", json!({"order": [1, 2, 3, 0]}));
        let image = codec(codec_name, json!({"flat_samples": channels}));
        Ok((*channels > 1).then_some(order).into_iter().chain([image]).collect())
    };
    match encoding.as_str() {
        "raw" => Ok(vec![described::bytes_codec(false)]),
        "compressed_segmentation" => {
            let member = "compressed_segmentation_block_size";
            let size = lengths(member, object.get(member))?;
            if size.contains(&0) || !["uint32", "uint64"].contains(&data_type.as_str()) {
                let detail = format!("{encoding} of {data_type} in blocks of {size:?}");
                return Err(Error::corrupt(detail));
            }
            Ok(vec![codec("compressed_segmentation", json!({"block_size": size}))])
        }
        "jpeg" => image("imagecodecs_jpeg", &["uint8"], &[1, 3]),
        "png" => image("imagecodecs_png", &["uint8", "uint16"], &[1, 2, 3, 4]),
        "jxl" => image("imagecodecs_jpegxl", &["uint8"], &[1, 3, 4]),
        _ => Err(Error::unsupported(format!("encoding {}", describe(value)))),
    }
}

/// Returns the directory of a scale. It may begin above that of the volume.
fn directory(object: &Object) -> Result<Prefix> {
    let value = object.get("key").unwrap_or(&Value::Null);
    let key =
        value.as_str().ok_or_else(|| Error::corrupt(format!("key is {}", describe(value))))?;
    if key.starts_with('/') || key.contains("://") {
        return Err(Error::unsupported(format!("chunks in another place: {key:?}")));
    }
    let mut names: Vec<&str> = Vec::new();
    for name in key.split('/').filter(|name| !matches!(*name, "" | ".")) {
        if name == ".." {
            let outside = || Error::unsupported(format!("chunks outside of the volume: {key:?}"));
            names.pop().ok_or_else(outside)?;
        } else {
            names.push(name);
        }
    }
    Prefix::parse(&names.join("/"))
}

fn offset(object: &Object) -> Result<[i64; 3]> {
    let value = match object.get("voxel_offset") {
        None | Some(Value::Null) => return Ok([0; 3]),
        Some(value) => value,
    };
    let places = value.as_array().map(|places| places.iter().map(integer).collect());
    let places: Option<Vec<i64>> = places.flatten();
    let wrong = || Error::corrupt(format!("voxel_offset is {}", describe(value)));
    places.and_then(|places| places.try_into().ok()).ok_or_else(wrong)
}

fn resolution(object: &Object) -> Result<[f64; 3]> {
    let value = object.get("resolution").unwrap_or(&Value::Null);
    let number = |value: &Value| value.as_f64().filter(|n| n.is_finite() && *n > 0.0);
    let numbers = value.as_array().map(|numbers| numbers.iter().map(number).collect());
    let numbers: Option<Vec<f64>> = numbers.flatten();
    let wrong = || Error::corrupt(format!("resolution is {}", describe(value)));
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(wrong)
}

/// Returns three lengths. `value` is their list.
fn lengths(member: &str, value: Option<&Value>) -> Result<[u64; 3]> {
    let value = value.unwrap_or(&Value::Null);
    let len = |value: &Value| value.as_u64().or_else(|| integer(value)?.try_into().ok());
    let lens = value.as_array().map(|lens| lens.iter().map(len).collect());
    let lens: Option<Vec<u64>> = lens.flatten();
    let wrong = || Error::corrupt(format!("{member} has {}", describe(value)));
    lens.and_then(|lens| lens.try_into().ok()).ok_or_else(wrong)
}

/// Returns an integer. Some programs write it as a float.
fn integer(value: &Value) -> Option<i64> {
    let float = || {
        let text = value.as_f64().filter(|number| number.fract() == 0.0)?;
        format!("{text:.0}").parse().ok()
    };
    value.as_i64().or_else(float)
}

/// Returns the attributes of an image of OME-Zarr 0.5 with these levels.
fn image(levels: &[Level], has_channels: bool) -> Object {
    let Some(first) = levels.first() else { return Map::new() };
    let space = |name: &str| json!({"name": name, "type": "space", "unit": "nanometer"});
    let channel = has_channels.then(|| json!({"name": "c", "type": "channel"}));
    let axes: Vec<Value> = channel.into_iter().chain(["z", "y", "x"].map(space)).collect();
    let of_axes = |channel: f64, [x, y, z]: [f64; 3]| -> Vec<Value> {
        let channel = has_channels.then_some(channel);
        channel.into_iter().chain([z, y, x]).map(double).collect()
    };
    let datasets = levels.iter().map(|level| {
        let mut starts = [0.0; 3];
        let lens = level.resolution.iter().zip(first.resolution).zip(level.offset);
        for (start, ((len, finest), offset)) in starts.iter_mut().zip(lens) {
            *start = to_float(offset) * len + (len - finest) / 2.0;
        }
        let mut places = vec![json!({"type": "scale", "scale": of_axes(1.0, level.resolution)})];
        let are_finite = starts.iter().all(|start| start.is_finite());
        if are_finite && starts.iter().any(|start| start.abs() > 0.0) {
            let starts = of_axes(0.0, starts);
            places.push(json!({"type": "translation", "translation": starts}));
        }
        json!({"path": level.index.to_string(), "coordinateTransformations": places})
    });
    let datasets: Vec<Value> = datasets.collect();
    let image = json!({"name": "volume", "axes": axes, "datasets": datasets});
    Map::from_iter([("ome".to_owned(), json!({"version": "0.5", "multiscales": [image]}))])
}

/// Returns an integer as a float, rounded.
fn to_float(number: i64) -> f64 {
    number.to_string().parse().unwrap_or_default()
}
