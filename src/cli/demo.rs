//! `zarrfs demo`: creates a sample hierarchy, mounts it, and shows its contents.
//!
//! It can be repeated: a second run shows the sample and the mount that the first one has made.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use serde_json::{Value, json};

use super::args::Demo;
use super::failure::{Failure, failed};
use super::open;
use super::output::print;
use super::umount;
use super::umount::dead;
use crate::array::{Coords, Current, FillChunks};
use crate::hierarchy::{Hierarchy, HierarchyOptions};
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
/// The title of the root group, by which a second run recognizes the sample.
const TITLE: &str = "A sample, computed by zarrfs demo";
/// The attribute `_FillValue` of a float that is NaN, as xarray writes it into Zarr 3: the base64
/// of a float64. Without it, programs for netCDF compute with the elements of the missing chunk.
const NAN: &str = "AAAAAAAA+H8=";
/// The directory of the sample, the mountpoint, and the elements for `dd`.
const NAMES: [&str; 3] = ["climate.zarr", "mnt", "two-floats"];
/// The temperatures that the demo stores in place of the first two.
const WRITTEN: [f32; 2] = [273.15, 274.15];

/// Creates the sample in the directory, or takes the one that is there, mounts it, and shows its
/// contents.
pub fn run(args: &Demo) -> Result<(), Failure> {
    let sample = DemoSample::in_directory(&args.dir)?;
    sample.present().map_err(|failure| match sample.state {
        SampleState::New => failure,
        SampleState::Reused => {
            let (dir, mountpoint) = (args.dir.display(), sample.mountpoint.display());
            failed(format!(
                "{}; an earlier run has made {dir}: if the sample was changed, remove it (zarrfs \
                 umount {mountpoint}; rm -r {dir}) and run zarrfs demo again",
                failure.message()
            ))
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleState {
    New,
    Reused,
}

struct DemoSample {
    source: PathBuf,
    mountpoint: PathBuf,
    state: SampleState,
}

impl DemoSample {
    /// Creates the directories and the sample, unless an earlier run has done so.
    fn in_directory(dir: &Path) -> Result<Self, Failure> {
        let shown = dir.display();
        let unusable = |error: std::io::Error| failed(format!("{shown}: {error}"));
        std::fs::create_dir_all(dir).map_err(unusable)?;
        let [source, mountpoint, new] = NAMES.map(|name| dir.join(name));
        dead::refuse_dead(&mountpoint)?;
        let state = if source.try_exists().map_err(unusable)? {
            if !is_sample(&source) {
                return Err(failed(format!(
                    "{}: not the sample of zarrfs demo; name a directory that is missing or empty",
                    source.display()
                )));
            }
            // The user may have put other files beside it.
            SampleState::Reused
        } else {
            for entry in std::fs::read_dir(dir).map_err(unusable)? {
                let path = dir.join(entry.map_err(unusable)?.file_name());
                if path != mountpoint && path != new {
                    return Err(failed(format!(
                        "{shown}: not empty: it has {}; name a directory that is missing or empty",
                        path.display()
                    )));
                }
            }
            create(&source)?;
            SampleState::New
        };
        if !mountpoint.is_dir() {
            std::fs::create_dir(&mountpoint).map_err(unusable)?;
        }
        let (source, mountpoint) = (source.canonicalize()?, mountpoint.canonicalize()?);
        Ok(Self { source, mountpoint, state })
    }

    /// Mounts the sample and shows its contents.
    fn present(&self) -> Result<(), Failure> {
        let (source, mountpoint) = (&self.source, &self.mountpoint);
        let program = std::env::current_exe()?;
        let program = program.as_path();
        let (source_arg, mount_arg) = (source.as_os_str(), mountpoint.as_os_str());
        say(match self.state {
            SampleState::New => {
                "A climate-like sample hierarchy: coordinates, and a compressed array in shards."
            }
            SampleState::Reused => "The sample hierarchy of an earlier zarrfs demo.",
        })?;
        show("zarrfs", Command::new(program).arg("tree").arg(source_arg))?;
        if umount::daemon_of(mountpoint).is_some() {
            say("It is mounted already. Every node is a directory and every chunk is a file.")?;
        } else {
            say("Mounted, every node is a directory and every chunk is a file.")?;
            show("zarrfs", Command::new(program).arg("mount").args([source_arg, mount_arg]))?;
        }
        let t2m = mountpoint.join("t2m");
        show("ls", Command::new("ls").arg("-l").args([mount_arg, t2m.as_os_str()]))?;
        say("A chunk file holds the elements and nothing else. A chunk that the store lacks is \
             not listed.")?;
        show("ls", Command::new("ls").arg("-l").args([t2m.join("c/0/0"), t2m.join("c/0/1")]))?;
        let chunk = t2m.join("c/0/0/0");
        show("od", Command::new("od").args(["-A", "d", "-t", "f4", "-N", "32"]).arg(&chunk))?;
        say("The metadata describe the files beside them: any Zarr 3 library opens the mount.")?;
        show("cat", Command::new("cat").arg(t2m.join("zarr.json")))?;
        say("Every array and group can also be opened as one file of another format. ls does \
             not list these files.")?;
        let views = ["t2m.npy", "__root__.nc"].map(|name| mountpoint.join(name));
        show("ls", Command::new("ls").arg("-l").args(views))?;
        show("cat", Command::new("cat").arg(mountpoint.join(".zarrfs/views/t2m")))?;
        self.change(&chunk)?;
        print::output(&format!(
            "\nIt stays mounted at {0}. Unmount it with\n\n    zarrfs umount {0}\n",
            mountpoint.display()
        ))
    }

    /// Changes two elements through a chunk file, and reads them from the store.
    fn change(&self, chunk: &Path) -> Result<(), Failure> {
        say("Change the first two elements of that chunk with dd, and store them at once ...")?;
        let new = self.mountpoint.with_file_name(NAMES[2]);
        std::fs::write(&new, WRITTEN.map(f32::to_le_bytes).concat())?;
        let dd = [("if=", new.as_path()), ("of=", chunk)]
            .map(|(what, path)| format!("{what}{}", path.display()));
        let done =
            show("dd", Command::new("dd").args(dd).args(["conv=notrunc,fsync", "status=none"]));
        std::fs::remove_file(&new)?;
        done?;
        let stored = first_elements(&self.source)?;
        say(&format!(
            "... and read them back from the store without the mount: {}, {}, {}, ...",
            stored[0], stored[1], stored[2]
        ))
    }
}

/// Whether the hierarchy has the title of the sample.
fn is_sample(source: &Path) -> bool {
    let text = std::fs::read(source.join("zarr.json")).unwrap_or_default();
    let document = serde_json::from_slice::<Value>(&text).unwrap_or_default();
    document.pointer("/attributes/title").and_then(Value::as_str) == Some(TITLE)
}

/// Creates the sample under another name, so that it has its name only when it is whole.
fn create(source: &Path) -> Result<(), Failure> {
    let new = source.with_extension(format!("new-{}", std::process::id()));
    let shown = |error: std::io::Error| failed(format!("{}: {error}", new.display()));
    std::fs::create_dir(&new).map_err(shown)?;
    let done = make(&new).and_then(|()| std::fs::rename(&new, source).map_err(shown));
    if done.is_err() {
        std::fs::remove_dir_all(&new).map_err(shown)?;
    }
    done
}

fn make(source: &Path) -> Result<(), Failure> {
    let store = open::store(source, Durability::Buffered)?;
    set(
        &store,
        "zarr.json",
        &json!({
            "zarr_format": 3, "node_type": "group",
            "attributes": {"title": TITLE, "Conventions": "CF-1.8"},
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
    let attributes = json!({
        "standard_name": "air_temperature", "long_name": "2 metre temperature", "units": "K",
        "_FillValue": NAN,
    });
    let names = ["time", "lat", "lon"];
    set(
        &store,
        "t2m/zarr.json",
        &array([&SHAPE, &SHARD], ("float32", &json!("NaN")), &codecs, &names, &attributes),
    )?;
    fill(&Hierarchy::open(store, Some(Dialect::V3), HierarchyOptions::default())?)
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
        Current::made_here(array)
            .write_chunks(vec![(Coords::new([0]), Some(bytes.into()))], FillChunks::Store)?;
    }
    let node = hierarchy.existing(&NodePath::parse("t2m")?)?;
    let array = node.array().ok_or_else(|| failed("the sample is not an array"))?;
    let mut chunks = Vec::new();
    for place in places([SHAPE[0] / CHUNK[0], SHAPE[1] / CHUNK[1], SHAPE[2] / CHUNK[2]]) {
        if place != MISSING {
            chunks.push((Coords::new(place), Some(elements(place).into())));
        }
    }
    Current::made_here(array).write_chunks(chunks, FillChunks::Store)?;
    Ok(())
}

/// Returns a temperature: warm at the equator, cold at the poles, with seasons and a wave along the
/// circles of latitude. The seasons are stronger in the north, where the land is, so the mean of
/// the globe differs from month to month.
fn temperature([month, row, column]: [u64; 3]) -> f64 {
    let latitude = (87.5 - 5.0 * float(row)).to_radians();
    let longitude = (2.5 + 5.0 * float(column)).to_radians();
    let season = (std::f64::consts::TAU * (float(month) - 6.3) / 12.0).cos();
    255.0
        + 45.0 * latitude.cos()
        + season * 12.0f64.mul_add(latitude.sin(), 2.0)
        + 2.0 * (3.0 * longitude).sin()
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
        open::hierarchy(store, &open::Source::parse(source)?, None, HierarchyOptions::default())?;
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
