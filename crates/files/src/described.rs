//! Nodes and chunks as a scanner describes them: a table of references.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result, Word};
use zarrfs_base::width::ToU64;
use zarrfs_codec::json::Object;
use zarrfs_codec::registry::UNREAD;
use zarrfs_store::refs::table::{Added, Builder, ReferenceTable};
use zarrfs_store::{Omission, Stat, Store, Version, is_component};

/// The metadata file of a node in Zarr 3.
pub const DOCUMENT: &str = "zarr.json";

/// An array in the words of Zarr 3.
#[derive(Debug, Clone, Default)]
pub struct DescribedArray {
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The data type, as in a metadata file.
    pub data_type: Value,
    /// The shape of a chunk.
    pub chunk_shape: Vec<u64>,
    /// The codecs, as in a metadata file.
    pub codecs: Vec<Value>,
    /// The fill value, as in a metadata file.
    pub fill_value: Value,
    /// The names of the dimensions, if they have some.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The attributes.
    pub attributes: Object,
}

impl DescribedArray {
    /// Returns an array about which nothing is known.
    pub fn unknown() -> Self {
        Self { data_type: json!("uint8"), fill_value: json!(0), ..Self::default() }
    }

    /// Makes it an array that cannot be read, for this reason. It has one chunk, which must have a
    /// value: a chunk that is missing would read as the fill value.
    pub fn make_unread(&mut self, why: &str) {
        self.codecs.push(json!({"name": format!("{UNREAD}{why}")}));
        self.chunk_shape = self.shape.iter().map(|len| (*len).max(1)).collect();
    }
}

/// Returns the metadata file of a group.
pub fn group_text(attributes: Object) -> String {
    document([("node_type", json!("group")), ("attributes", attributes.into())])
}

/// Returns the metadata file of an array.
pub fn text(array: &DescribedArray) -> String {
    let grid = json!({"name": "regular", "configuration": {"chunk_shape": array.chunk_shape}});
    let names = array.dimension_names.as_ref().map(|names| ("dimension_names", json!(names)));
    let members = [
        ("node_type", json!("array")),
        ("shape", json!(array.shape)),
        ("data_type", array.data_type.clone()),
        ("chunk_grid", grid),
        ("chunk_key_encoding", json!({"name": "default"})),
        ("fill_value", array.fill_value.clone()),
        ("codecs", array.codecs.clone().into()),
        ("attributes", array.attributes.clone().into()),
    ];
    document(members.into_iter().chain(names))
}

fn document<'n>(members: impl IntoIterator<Item = (&'n str, Value)>) -> String {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    let mut document = Map::from_iter([("zarr_format".to_owned(), json!(3))]);
    // The macro `json` fails for numbers that JSON does not have.
    document.extend(members);
    Value::Object(document).to_string()
}

/// The nodes of a file, as a scanner describes them, and the places of their chunks.
#[derive(Debug)]
pub struct Described {
    builder: Builder,
    /// The file that chunks lie in.
    location: String,
    /// Its length.
    len: u64,
    /// The stat of the file that describes the nodes.
    stat: Stat,
    omitted: Vec<Omission>,
    /// Other stores that chunks lie in, each with the beginning of its locations.
    places: Vec<(String, Store)>,
    /// How many more chunks there may be.
    room: u64,
    /// The locations of other files that made room for chunks.
    led_to: HashSet<String>,
}

/// A file that chunks lie in.
#[derive(Debug, Clone)]
pub struct ChunkFile {
    /// How references name it.
    pub location: String,
    /// Its length.
    pub len: u64,
    /// The version that it must still have.
    pub version: Version,
}

/// How many chunks any file may have.
const FEW_CHUNKS: u64 = 1 << 16;

/// How many bytes of a file make room for one more chunk: no format says its place in fewer. A file
/// whose arrays share one table of places could otherwise have any number.
const LEN_OF_CHUNK: u64 = 16;

impl Described {
    /// Returns a description without nodes. It may take about `most` bytes of memory.
    pub fn new(file: &SourceFile, most: u64) -> Self {
        let mut builder = Builder::new(most);
        builder.expect_version(file.stat().version);
        Self {
            builder,
            location: file.location().to_owned(),
            len: file.len(),
            stat: *file.stat(),
            omitted: Vec::new(),
            places: Vec::new(),
            room: FEW_CHUNKS.saturating_add(file.len() / LEN_OF_CHUNK),
            led_to: HashSet::from([file.location().to_owned()]),
        }
    }

    /// Notes that there is one more chunk.
    fn take_room(&mut self) -> Result<()> {
        self.room = self.room.checked_sub(1).ok_or_else(|| {
            Error::too_large("the file has more chunks than its length makes room for")
        })?;
        Ok(())
    }

    /// Fails if there is no room for so many more chunks.
    pub fn check_room(&self, count: usize) -> Result<()> {
        if count.to_u64() > self.room {
            let room = self.room;
            return Err(Error::unsupported(format!(
                "{count} chunks, and the lengths of the files make room for {room}"
            )));
        }
        Ok(())
    }

    /// Adds a store that chunks may lie in, and returns how their locations begin.
    pub fn add_place(&mut self, store: Store) -> String {
        let location = format!("place://{}", self.places.len());
        self.places.push((location.clone(), store));
        location
    }

    /// Returns the stores that were added, and how locations in them begin.
    pub fn take_places(&mut self) -> Vec<(String, Store)> {
        std::mem::take(&mut self.places)
    }

    /// Says that the chunks that follow lie in another file.
    pub fn lead_to(&mut self, file: &SourceFile) -> Result<()> {
        self.lead_into(&file.as_chunk_file())
    }

    /// Says that the chunks that follow lie in another file, which makes room for more of them
    /// once.
    pub fn lead_into(&mut self, file: &ChunkFile) -> Result<()> {
        file.location.clone_into(&mut self.location);
        self.len = file.len;
        if self.led_to.insert(file.location.clone()) {
            self.room = self.room.saturating_add(file.len / LEN_OF_CHUNK);
        }
        self.builder.expect_version_of(&self.location, file.version)
    }

    /// Notes that a part of the file is not shown.
    pub fn omit(&mut self, path: &str, why: &str) {
        self.not_seen(path, Word::Unsupported, why);
    }

    fn not_seen(&mut self, path: &str, word: Word, why: &str) {
        let (place, why) = (path.to_owned(), why.to_owned());
        self.omitted.push(Omission { place, word, why });
    }

    /// Notes that values of an array are not there, and read as the fill value.
    pub fn miss(&mut self, path: &str, why: &str) {
        self.not_seen(path, Word::Missing, why);
    }

    /// Adds a group. The path of the root is empty.
    pub fn group(&mut self, path: &str, attributes: Object) -> Result<()> {
        self.document(path, group_text(attributes))
    }

    /// Adds an array without its chunks.
    pub fn array(&mut self, path: &str, array: &DescribedArray) -> Result<()> {
        self.document(path, text(array))
    }

    /// Adds an array that cannot be read, so that its name and the reason are seen.
    pub fn unread(&mut self, path: &str, array: &DescribedArray, why: &str) -> Result<()> {
        let mut array = array.clone();
        array.make_unread(why);
        self.array(path, &array)?;
        if array.shape.contains(&0) {
            return Ok(());
        }
        self.inline(path, &vec![0; array.shape.len()], vec![0])
    }

    /// Adds an array after what came of describing its chunks: if they cannot be read, other arrays
    /// of the file can be, and this one is seen with the reason.
    pub fn or_unread(
        &mut self,
        path: &str,
        mut array: DescribedArray,
        result: Result<()>,
    ) -> Result<()> {
        match result {
            Err(error) if error.is_of_data() || error.word() == Word::Unsupported => {
                array.codecs.clear();
                self.unread(path, &array, error.detail())
            }
            other => other,
        }
    }

    fn document(&mut self, path: &str, text: String) -> Result<()> {
        let key = if path.is_empty() { DOCUMENT.to_owned() } else { format!("{path}/{DOCUMENT}") };
        self.builder.add(&key, Added::Inline(text.into()))
    }

    /// Adds a chunk that lies in the file.
    pub fn chunk(&mut self, path: &str, coords: &[u64], offset: u64, len: u64) -> Result<()> {
        self.part(path, coords, offset, len, len)
    }

    /// Adds a chunk that lies in the file and needs the first `needed` of its bytes: the others are
    /// outside of the array, so they are zero if the file ends before them. If it ends before those
    /// that are needed, this chunk cannot be read, and all others can.
    pub fn part(
        &mut self,
        path: &str,
        coords: &[u64],
        offset: u64,
        len: u64,
        needed: u64,
    ) -> Result<()> {
        self.take_room()?;
        let location = &self.location;
        let stored_len = self.len.saturating_sub(offset);
        let added = if needed <= stored_len && stored_len < len {
            Added::Padded { location, offset, len, stored_len }
        } else {
            Added::Part { location, offset, len }
        };
        self.builder.add(&chunk_key(path, coords), added)
    }

    /// Adds a chunk whose bytes are known.
    pub fn inline(&mut self, path: &str, coords: &[u64], bytes: Vec<u8>) -> Result<()> {
        self.take_room()?;
        self.builder.add(&chunk_key(path, coords), Added::Inline(bytes.into()))
    }

    /// Returns the table of references, and what is not shown.
    pub fn build(self) -> Result<(ReferenceTable, Vec<Omission>)> {
        Ok((self.builder.build(self.stat.modified)?, self.omitted))
    }
}

/// Returns the key of a chunk, in the encoding `default`.
fn chunk_key(path: &str, coords: &[u64]) -> String {
    let mut key = path.to_owned();
    if !key.is_empty() {
        key.push('/');
    }
    key.push('c');
    for coord in coords {
        key.push('/');
        key.push_str(&coord.to_string());
    }
    key
}

/// Whether a node can have this name: it is one component of a key, and no metadata file.
pub fn is_node_name(name: &str) -> bool {
    is_component(name) && !name.contains('/') && name != DOCUMENT && !name.starts_with("__")
}

/// Returns a codec, as in a metadata file.
pub fn codec(name: &str, configuration: Value) -> Value {
    match configuration {
        Value::Object(members) if members.is_empty() => json!({"name": name}),
        other => json!({"name": name, "configuration": other}),
    }
}

/// Returns the codec `bytes` for elements in this order.
pub fn bytes_codec(is_big: bool) -> Value {
    codec("bytes", json!({"endian": if is_big { "big" } else { "little" }}))
}

/// Returns the fill value of zero of a data type that is a name.
pub fn zero_of(data_type: &str) -> Value {
    if data_type.starts_with("complex") {
        json!([0.0, 0.0])
    } else if data_type.starts_with("float") {
        json!(0.0)
    } else {
        json!(0)
    }
}

/// Returns no attributes.
pub fn no_attributes() -> Object {
    Map::new()
}
