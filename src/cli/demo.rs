//! `zarrfs demo`: creates a sample hierarchy, mounts it, and shows its contents.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use serde_json::{Value, json};

use super::args::Demo;
use super::failure::{Failure, failed};
use super::{open, print};
use crate::array::{Coords, FillChunks};
use crate::hierarchy::{Hierarchy, Options};
use crate::metadata::{Dialect, NodePath};
use crate::store::directory::Durability;
use crate::store::{Condition, Key, Store};

/// Months, latitudes and longitudes of the sample.
const SHAPE: [u64; 3] = [12, 36, 72];
/// The chunk shape: one month of a quarter of the globe.
const CHUNK: [u64; 3] = [1, 18, 36];
/// The shard shape: half a year of the globe.
const SHARD: [u64; 3] = [6, 36, 72];
/// A chunk that is not stored, to show that a missing chunk is a missing file.
const MISSING: [u64; 3] = [0, 1, 1];

/// Creates the sample in the directory, mounts it, and shows its contents.
pub fn run(args: &Demo) -> Result<(), Failure> {
    let (source, mountpoint) = directories(&args.dir)?;
    make(&source)?;
    let program = std::env::current_exe()?;
    let program = program.as_path();
    let (source_arg, mount_arg) = (source.as_os_str(), mountpoint.as_os_str());
    say("A climate-like sample hierarchy: coordinates, and a compressed array in shards.")?;
    show("zarrfs", Command::new(program).arg("tree").arg(source_arg))?;
    say("Mounted, every node is a directory and every chunk is a file.")?;
    show("zarrfs", Command::new(program).arg("mount").args([source_arg, mount_arg]))?;
    let t2m = mountpoint.join("t2m");
    show("ls", Command::new("ls").arg("-l").args([mount_arg, t2m.as_os_str()]))?;
    say("A chunk file holds the elements and nothing else. A chunk that the store lacks is not \
         listed.")?;
    show("ls", Command::new("ls").arg("-l").args([t2m.join("c/0/0"), t2m.join("c/0/1")]))?;
    let chunk = t2m.join("c/0/0/0");
    show("od", Command::new("od").args(["-A", "d", "-t", "f4", "-N", "32"]).arg(&chunk))?;
    say("The metadata describe the files beside them: any Zarr 3 library opens the mount.")?;
    show("cat", Command::new("cat").arg(t2m.join("zarr.json")))?;
    say("Every array and group can also be opened as one file of another format. ls does not \
         list these files.")?;
    show(
        "ls",
        Command::new("ls")
            .arg("-l")
            .args(["t2m.npy", "__root__.nc"].map(|name| mountpoint.join(name))),
    )?;
    show("cat", Command::new("cat").arg(mountpoint.join(".zarrfs/views/t2m")))?;
    say("Change the first two elements of that chunk with dd, and store them at once ...")?;
    let new = args.dir.join("two-floats");
    std::fs::write(&new, [1.5_f32.to_le_bytes(), (-2.5_f32).to_le_bytes()].concat())?;
    let dd =
        [("if=", &new), ("of=", &chunk)].map(|(what, path)| format!("{what}{}", path.display()));
    show("dd", Command::new("dd").args(dd).args(["conv=notrunc,fsync", "status=none"]))?;
    std::fs::remove_file(&new)?;
    let stored = first_elements(&source)?;
    say(&format!(
        "... and read them back from the store without the mount: {}, {}, {}, ...",
        stored[0], stored[1], stored[2]
    ))?;
    print::output(&format!(
        "\nIt stays mounted at {0}. Unmount it with\n\n    zarrfs umount {0}\n",
        mountpoint.display()
    ))
}

/// Creates and returns the directories of the hierarchy and of the mountpoint.
fn directories(dir: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let shown = dir.display();
    std::fs::create_dir_all(dir).map_err(|error| failed(format!("{shown}: {error}")))?;
    let mut entries =
        std::fs::read_dir(dir).map_err(|error| failed(format!("{shown}: {error}")))?;
    if entries.next().is_some() {
        return Err(failed(format!(
            "{shown}: not empty; unmount and remove an earlier demo (zarrfs umount {shown}/mnt; rm -r {shown}), \
             or name another directory"
        )));
    }
    let dir = dir.canonicalize()?;
    let (source, mountpoint) = (dir.join("climate.zarr"), dir.join("mnt"));
    std::fs::create_dir(&source)?;
    std::fs::create_dir(&mountpoint)?;
    Ok((source, mountpoint))
}

fn make(source: &Path) -> Result<(), Failure> {
    let store = open::store(source, Durability::Buffered)?;
    set(
        &store,
        "zarr.json",
        &json!({
            "zarr_format": 3, "node_type": "group",
            "attributes": {"title": "A sample, computed by zarrfs demo", "Conventions": "CF-1.8"},
        }),
    )?;
    let degrees = |name: &str, units: &str| json!({"standard_name": name, "units": units});
    let axes = [
        ("time", SHAPE[0], json!({"units": "days since 2026-01-01", "calendar": "standard"})),
        ("lat", SHAPE[1], degrees("latitude", "degrees_north")),
        ("lon", SHAPE[2], degrees("longitude", "degrees_east")),
    ];
    for (name, len, attributes) in axes {
        let codecs = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
        let document = array([&[len]; 2], ("float64", &json!(0.0)), &codecs, &[name], &attributes);
        set(&store, &format!("{name}/zarr.json"), &document)?;
    }
    let codecs = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": CHUNK,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                   {"name": "zstd", "configuration": {"level": 3, "checksum": false}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }}]);
    let attributes = json!({"long_name": "2 metre temperature", "units": "K"});
    let names = ["time", "lat", "lon"];
    set(
        &store,
        "t2m/zarr.json",
        &array([&SHAPE, &SHARD], ("float32", &json!("NaN")), &codecs, &names, &attributes),
    )?;
    fill(&Hierarchy::open(store, Some(Dialect::V3), Options::default())?)
}

fn array(
    [shape, chunk_shape]: [&[u64]; 2],
    (data_type, fill_value): (&str, &Value),
    codecs: &Value,
    names: &[&str],
    attributes: &Value,
) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value, "codecs": codecs, "dimension_names": names, "attributes": attributes,
        "storage_transformers": [],
    })
}

fn set(store: &Store, key: &str, document: &Value) -> Result<(), Failure> {
    let text = Bytes::from(format!("{document:#}\n"));
    store.write()?.set(&Key::parse(key)?, &[text.into()], Condition::Absent)?;
    Ok(())
}

fn fill(hierarchy: &Hierarchy) -> Result<(), Failure> {
    // Name, number of values, the first one, and the step to the next.
    let axes = [
        ("time", SHAPE[0], 15.0, 30.0),
        ("lat", SHAPE[1], 87.5, -5.0),
        ("lon", SHAPE[2], 2.5, 5.0),
    ];
    for (name, len, first, step) in axes {
        let node = hierarchy.existing(&NodePath::parse(name)?)?;
        let array = node.array().ok_or_else(|| failed("the sample is not an array"))?;
        let bytes: Vec<u8> =
            (0..len).flat_map(|i| f64::mul_add(step, float(i), first).to_le_bytes()).collect();
        array.write_chunks(vec![(Coords::new([0]), Some(bytes.into()))], FillChunks::Store)?;
    }
    let node = hierarchy.existing(&NodePath::parse("t2m")?)?;
    let array = node.array().ok_or_else(|| failed("the sample is not an array"))?;
    let mut chunks = Vec::new();
    for place in places([SHAPE[0] / CHUNK[0], SHAPE[1] / CHUNK[1], SHAPE[2] / CHUNK[2]]) {
        if place != MISSING {
            chunks.push((Coords::new(place), Some(elements(place).into())));
        }
    }
    array.write_chunks(chunks, FillChunks::Store)?;
    Ok(())
}

/// Returns a temperature: warm at the equator, cold at the poles, with seasons and a wave along the
/// circles of latitude.
fn temperature([month, row, column]: [u64; 3]) -> f64 {
    let latitude = (87.5 - 5.0 * float(row)).to_radians();
    let longitude = (2.5 + 5.0 * float(column)).to_radians();
    let season = (std::f64::consts::TAU * (float(month) - 6.0) / 12.0).cos();
    255.0 + 45.0 * latitude.cos() + 12.0 * season * latitude.sin() + 2.0 * (3.0 * longitude).sin()
}

fn elements(chunk: [u64; 3]) -> Vec<u8> {
    let element = |within: [u64; 3]| {
        let at = std::array::from_fn(|axis| chunk[axis] * CHUNK[axis] + within[axis]);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::as_conversions,
            reason = "a sample of float32"
        )]
        let value = temperature(at) as f32;
        value.to_le_bytes()
    };
    places(CHUNK).flat_map(element).collect()
}

/// Returns every place in a box of these lengths, the last index fastest.
fn places(lens: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
    (0..lens.iter().product())
        .map(move |flat| [flat / (lens[1] * lens[2]), flat / lens[2] % lens[1], flat % lens[2]])
}

fn float(n: u64) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Returns the first elements of the first chunk as the store has them.
fn first_elements(source: &Path) -> Result<[f32; 3], Failure> {
    let store = open::store(source, Durability::Buffered)?.read_only();
    let hierarchy =
        open::hierarchy(store, &open::Source::parse(source)?, None, Options::default())?;
    let node = hierarchy.existing(&NodePath::parse("t2m")?)?;
    let array = node.array().ok_or_else(|| failed("the sample is not an array"))?;
    let chunk = array.read_chunk(&Coords::new([0, 0, 0]))?;
    let (bytes, _) =
        chunk.ok_or_else(|| failed("the chunk that was written is not in the store"))?;
    let mut floats = bytes.as_chunks::<4>().0.iter().map(|float| f32::from_le_bytes(*float));
    Ok(std::array::from_fn(|_| floats.next().unwrap_or(f32::NAN)))
}

fn say(text: &str) -> Result<(), Failure> {
    print::output(&format!("\n# {text}\n"))
}

/// Prints a command as a user would type it, and runs it.
fn show(name: &str, command: &mut Command) -> Result<(), Failure> {
    let typed: Vec<String> = std::iter::once(name.to_owned())
        .chain(command.get_args().map(|arg| arg.to_string_lossy().into_owned()))
        .collect();
    print::output(&format!("$ {}\n", typed.join(" ")))?;
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|error| failed(format!("{name}: {error}")))?;
    if status.success() { Ok(()) } else { Err(failed(format!("{name}: {status}"))) }
}
