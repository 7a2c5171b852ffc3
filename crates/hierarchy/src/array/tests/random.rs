//! Random arrays and sequences of operations, compared with a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::forms::{StoredAs, bytes, encodings, places, prefix, sharding, transpose};
use crate::array::{Array, ArrayOptions, Coords, FillChunks, ShardLayout, ShardOrder, ShardWrite};
use crate::metadata::model;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{Prefix, Store};

/// One dimension: elements of an inner chunk, inner chunks of each shard (innermost first),
/// elements of the array.
#[derive(Debug, Clone)]
struct Dimension {
    chunk: u64,
    per_shard: Vec<u64>,
    len: u64,
    /// The chunks along it on a rectilinear grid, which reach beyond any array here.
    runs: model::Runs,
}

/// Codecs of one level: those before its array-to-bytes codec and those after it.
#[derive(Debug, Clone)]
struct LevelCodecs {
    order: Vec<usize>,
    around: Vec<Json>,
    index: Json,
    location: &'static str,
}

fn compressors() -> impl Strategy<Value = Vec<Json>> {
    let one = prop::sample::select(vec![
        json!({"name": "gzip"}),
        json!({"name": "zstd"}),
        json!({"name": "crc32c"}),
        json!({"name": "numcodecs.lz4"}),
    ]);
    prop_oneof![2 => Just(Vec::new()), 3 => prop::collection::vec(one, 1..3)]
}

fn level(rank: usize, shards: bool) -> impl Strategy<Value = LevelCodecs> {
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let turned: Vec<usize> = (0..=rank).rev().collect();
    let index = prop::sample::select(vec![
        json!([bytes("little")]),
        json!([bytes("little"), {"name": "crc32c"}]),
        json!([bytes("big"), {"name": "crc32c"}]),
        json!([transpose(&turned), bytes("big")]),
        Json::Null,
    ]);
    let around = if shards {
        prop_oneof![4 => Just(Vec::new()), 1 => compressors()].boxed()
    } else {
        compressors().boxed()
    };
    let location = prop::sample::select(vec!["start", "end"]);
    (order, around, index, location).prop_map(|(order, around, index, location)| LevelCodecs {
        order,
        around,
        index,
        location,
    })
}

/// Returns the codecs of `levels`, outermost first; the last level has the inner chunks.
fn codecs(levels: &[LevelCodecs], shapes: &[Vec<u64>], order: &[usize], plain: &Json) -> Json {
    let (level, inner) = levels.split_first().expect("at least the innermost");
    let order: Vec<usize> = level.order.iter().map(|axis| order[*axis]).collect();
    let mut codecs = vec![transpose(&level.order)];
    codecs.push(match shapes.split_first() {
        Some((shape, shapes)) => {
            let encoded: Vec<u64> = order.iter().map(|axis| shape[*axis]).collect();
            let below = self::codecs(inner, shapes, &order, plain);
            let mut codec = sharding(&encoded, below, level.index.clone(), level.location);
            if level.index.is_null() {
                codec["configuration"].as_object_mut().expect("an object").remove("index_codecs");
            }
            codec
        }
        None => plain.clone(),
    });
    codecs.extend(level.around.clone());
    codecs.into()
}

fn form() -> impl Strategy<Value = StoredAs> {
    (0_usize..4, 0_usize..3).prop_flat_map(|(rank, depth)| {
        let runs = prop::collection::vec((1_u64..5, 1_u64..3), 0..4);
        let dimension = (1_u64..4, prop::collection::vec(1_u64..4, depth), 0_u64..12, runs)
            .prop_map(|(chunk, per_shard, len, mut runs)| {
                runs.push((chunk, 12));
                Dimension { chunk, per_shard, len, runs }
            });
        let levels: Vec<_> = (0..=depth).map(|i| level(rank, i < depth)).collect();
        let dtypes = vec![
            DType::Bool,
            DType::Int(2),
            DType::Float(8),
            DType::Complex(8),
            DType::Raw(3),
            DType::String,
            DType::VariableBytes,
        ];
        (
            prop::collection::vec(dimension, rank),
            levels,
            prop::sample::select(dtypes),
            prop::sample::select(vec!["little", "big"]),
            prop::sample::select(encodings().collect::<Vec<_>>()),
            prop::sample::select(vec![json!(null), json!(0), json!(1)]),
            any::<bool>(),
        )
            .prop_map(
                move |(dimensions, levels, dtype, endian, encoding, fill, regular)| {
                    // The shape of the chunks inside each level, outermost first.
                    let len = |dimension: &Dimension, levels: usize| {
                        dimension.per_shard.iter().take(levels).product::<u64>() * dimension.chunk
                    };
                    let shape = |levels: usize| dimensions.iter().map(|d| len(d, levels)).collect();
                    let shapes: Vec<Vec<u64>> = (0..depth).rev().map(shape).collect();
                    let stored: Vec<u64> = dimensions.iter().map(|d| len(d, depth)).collect();
                    let lens: Vec<u64> = dimensions.iter().map(|d| d.len).collect();
                    let identity: Vec<usize> = (0..rank).collect();
                    let plain = match dtype {
                        DType::String => json!({"name": "vlen-utf8"}),
                        DType::VariableBytes => json!({"name": "vlen-bytes"}),
                        _ => bytes(endian),
                    };
                    let codecs = codecs(&levels, &shapes, &identity, &plain);
                    let mut form = StoredAs::new("random", &lens, &stored, codecs).keys(encoding);
                    form.model.dtype = dtype.clone();
                    let fill = if dtype == DType::Bool && fill == 1 { json!(true) } else { fill };
                    let fill = match &dtype {
                        DType::Raw(_) | DType::VariableBytes if fill == 1 => json!([1, 0, 0]),
                        DType::String if fill == 1 => json!("\u{e9}"),
                        _ => fill,
                    };
                    if !regular {
                        // Shards have whole chunks of the level below.
                        let unit = |d: &Dimension| if depth == 0 { 1 } else { len(d, depth - 1) };
                        let runs = |d: &Dimension| {
                            d.runs.iter().map(|(len, count)| (len * unit(d), *count)).collect()
                        };
                        let runs: Vec<model::Runs> = dimensions.iter().map(runs).collect();
                        let longest =
                            runs.iter().map(|runs| runs.iter().map(|(len, _)| *len).max());
                        form.model.chunk_shape = longest.map(|len| len.expect("a run")).collect();
                        form.model.rectilinear = Some(runs);
                    }
                    form.model.fill = FillValue::parse(&fill, &dtype).expect("a fill value");
                    form
                },
            )
    })
}

/// An operation. Places and lengths are taken modulo the valid ones.
#[derive(Debug, Clone)]
enum Operation {
    /// Chunks, each with a byte to fill it with, or `None` to erase it.
    Write(Vec<(usize, Option<u8>)>),
    WriteAll(u8),
    Fill(usize),
    ErasePrefix(usize, usize),
    Resize(Vec<u64>),
    /// Opens the array again, with another layout of shards.
    Reopen(ShardLayout),
}

fn layout() -> impl Strategy<Value = ShardLayout> {
    let order = prop_oneof![
        Just(ShardOrder::C),
        Just(ShardOrder::F),
        Just(ShardOrder::Morton),
        Just(ShardOrder::Arrival)
    ];
    let write = prop_oneof![Just(ShardWrite::Rewrite), Just(ShardWrite::Append)];
    (order, write).prop_map(|(order, write)| ShardLayout { order, write })
}

fn operation() -> impl Strategy<Value = Operation> {
    let byte = prop_oneof![4 => any::<u8>().prop_map(Some), 1 => Just(None)];
    let chunks = prop::collection::vec((any::<usize>(), byte), 1..6);
    prop_oneof![
        8 => chunks.prop_map(Operation::Write),
        1 => any::<u8>().prop_map(Operation::WriteAll),
        1 => any::<usize>().prop_map(Operation::Fill),
        1 => (any::<usize>(), 0_usize..4).prop_map(|(at, depth)| Operation::ErasePrefix(at, depth)),
        1 => prop::collection::vec(0_u64..12, 3).prop_map(Operation::Resize),
        1 => layout().prop_map(Operation::Reopen),
    ]
}

/// An array and its expected contents: decoded chunks by place.
struct Tested {
    store: Store,
    model: model::ArrayMetadata,
    array: Array,
    layout: ShardLayout,
    want: BTreeMap<Coords, Vec<u8>>,
}

impl Tested {
    fn new(form: &StoredAs) -> Self {
        let store = Store::new(Arc::new(MemoryStore::new()));
        let layout = ShardLayout::default();
        let array = Self::open(&store, &form.model, layout);
        Self { store, model: form.model.clone(), array, layout, want: BTreeMap::new() }
    }

    fn open(store: &Store, model: &model::ArrayMetadata, layout: ShardLayout) -> Array {
        let options = ArrayOptions { layout, ..ArrayOptions::new(1 << 20) };
        let array = Array::open(model.clone(), store, prefix(), options).expect("opened");
        assert_eq!(array.not_understood(), None);
        array
    }

    /// Returns a chunk whose bytes differ from each other, and from those of another `byte`.
    /// Elements of variable length differ in length.
    fn chunk(&self, coords: &Coords, byte: u8) -> Vec<u8> {
        let bytes = |len: u64| (0..len).map(|i| (i * 31 % 253) as u8 ^ byte).collect::<Vec<u8>>();
        if let Some(len) = self.array.chunk_len(coords).expect("a chunk").exactly() {
            return bytes(len);
        }
        let shape = self.array.chunk_shape_at(coords).expect("a chunk");
        let count = shape.iter().product::<u64>() as u32;
        let lens = (0..count).map(|i| (i * 7 + u32::from(byte)) % 5);
        let ascii = |len: u32| bytes(u64::from(len)).into_iter().map(|byte| byte & 0x7f);
        let element = |len: u32| [len.to_le_bytes().to_vec(), ascii(len).collect()].concat();
        let elements: Vec<u8> = lens.flat_map(element).collect();
        [&count.to_le_bytes()[..], &elements].concat()
    }

    fn write(&mut self, chunks: Vec<(Coords, Option<Vec<u8>>)>, fill: FillChunks) {
        for (coords, chunk) in &chunks {
            let is_fill =
                || **chunk.as_ref().expect("some") == *self.array.fill_chunk(coords).expect("fill");
            let skipped = fill == FillChunks::Skip
                && self.model.fill.is_defined()
                && chunk.is_some()
                && is_fill();
            match chunk.as_ref().filter(|_| !skipped) {
                Some(chunk) => drop(self.want.insert(coords.clone(), chunk.clone())),
                None => drop(self.want.remove(coords)),
            }
        }
        let chunks = chunks.into_iter().map(|(coords, chunk)| (coords, chunk.map(Into::into)));
        self.array.write_chunks(chunks.collect(), fill).expect("written");
    }

    fn run(&mut self, operation: &Operation) {
        let all = places(self.array.grid().counts());
        let place = |at: usize| all.get(at % all.len().max(1)).cloned();
        match operation {
            Operation::Write(chunks) => {
                let chunk = |(at, byte): &(usize, Option<u8>)| {
                    let coords = place(*at)?;
                    let chunk = byte.map(|byte| self.chunk(&coords, byte));
                    Some((coords, chunk))
                };
                let chunks = chunks.iter().filter_map(chunk).collect();
                self.write(chunks, FillChunks::Store);
            }
            Operation::WriteAll(byte) => {
                let chunk = |coords: Coords| {
                    let chunk = self.chunk(&coords, *byte);
                    (coords, Some(chunk))
                };
                let chunks = all.into_iter().map(chunk).collect();
                self.write(chunks, FillChunks::Skip);
            }
            Operation::Fill(at) => {
                let fill = |coords: Coords| {
                    let fill = self.array.fill_chunk(&coords).expect("fill").to_vec();
                    (coords, Some(fill))
                };
                let chunks = place(*at).into_iter().map(fill).collect();
                self.write(chunks, FillChunks::Skip);
            }
            Operation::ErasePrefix(at, depth) => {
                if let Some(coords) = place(*at) {
                    let prefix = &coords.indices()[..(*depth).min(coords.indices().len())];
                    self.array.chunks().erase_prefix(prefix).expect("erased");
                    self.want.retain(|coords, _| !coords.starts_with(prefix));
                }
            }
            Operation::Resize(shape) => {
                self.model.shape.iter_mut().zip(shape).for_each(|(len, new)| *len = *new);
                let inside = self.array.grid().resized(&self.model.shape);
                for coords in self.want.keys().filter(|coords| !inside.contains(coords)) {
                    self.array.chunks().erase_values(std::slice::from_ref(coords)).expect("erased");
                }
                self.want.retain(|coords, _| inside.contains(coords));
                self.array = Self::open(&self.store, &self.model, self.layout);
            }
            Operation::Reopen(layout) => {
                self.layout = *layout;
                self.array = Self::open(&self.store, &self.model, self.layout);
            }
        }
    }

    fn check(&self) {
        for coords in places(self.array.grid().counts()) {
            let found = self.array.read_chunk(&coords).expect("read");
            let found = found.map(|(bytes, _)| bytes.to_vec());
            assert_eq!(found.as_ref(), self.want.get(&coords), "{coords}");
        }
        let list = Arc::clone(self.array.chunks()).list().expect("listed");
        let mut list: Vec<Coords> = list.map(|coords| coords.expect("coords")).collect();
        list.sort();
        assert!(list.iter().eq(self.want.keys()), "{list:?}, wanted {:?}", self.want.keys());
        let keys = self.store.list().expect("listable").list_prefix(&Prefix::root());
        let stored = keys.expect("listed").count();
        assert_eq!(stored == 0, self.want.is_empty(), "{stored} chunks and shards stored");
    }
}

proptest! {
    #[test]
    fn an_array_of_any_form_holds_the_written_chunks(
        form in form(), operations in prop::collection::vec(operation(), 1..12),
    ) {
        let mut tested = Tested::new(&form);
        for operation in &operations {
            tested.run(operation);
            tested.check();
        }
        tested.run(&Operation::Reopen(ShardLayout::default()));
        tested.check();
    }
}
