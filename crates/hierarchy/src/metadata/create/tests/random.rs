//! Random arrays, created in every dialect with every policy.

use proptest::prelude::*;
use serde_json::json;

use super::super::*;
use crate::metadata::policy::Shards;
use crate::metadata::shown::ShownChunks;
use zarrfs_base::width::ToU64;

const TYPES: [&str; 16] = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "r8",
    "r24",
];

/// Values of `--codecs`, and whether the draft can express each in two dimensions or fewer.
const CODECS: [(&str, bool); 12] = [
    ("none", true),
    ("zstd", true),
    ("blosc", true),
    ("lz4", true),
    ("lzma", true),
    ("bz2", true),
    ("zlib", true),
    ("gzip", true),
    ("shuffle,gzip", false),
    ("crc32c", false),
    (r#"[{"name": "transpose", "configuration": {"order": "F"}}, "zstd"]"#, true),
    (
        r#"[{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "gzip", "configuration": {"level": 1}}]"#,
        true,
    ),
];

fn fill(dtype: &str) -> BoxedStrategy<Value> {
    let float = || {
        prop_oneof![
            any::<i16>().prop_map(|number| json!(number)),
            any::<f32>()
                .prop_filter("finite", |number| number.is_finite())
                .prop_map(|number| json!(number)),
            prop::sample::select(vec![
                json!("NaN"),
                json!("Infinity"),
                json!("-Infinity"),
                json!(-0.0),
                json!("0x0001")
            ]),
        ]
    };
    let values = match dtype {
        "bool" => any::<bool>().prop_map(|value| json!(value)).boxed(),
        "complex64" | "complex128" => {
            (float(), float()).prop_map(|(real, imaginary)| json!([real, imaginary])).boxed()
        }
        "r8" => any::<[u8; 1]>().prop_map(|bytes| json!(bytes)).boxed(),
        "r24" => any::<[u8; 3]>().prop_map(|bytes| json!(bytes)).boxed(),
        float_type if float_type.starts_with('f') => float().boxed(),
        unsigned if unsigned.starts_with('u') => any::<u8>().prop_map(|value| json!(value)).boxed(),
        _ => any::<i8>().prop_map(|value| json!(value)).boxed(),
    };
    prop_oneof![8 => values, 1 => Just(Value::Null)].boxed()
}

/// The members of an array that depend on its rank and type, with the shape of shards.
#[derive(Debug, Clone)]
struct ArrayMembers {
    dtype: &'static str,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
    counts: Vec<u64>,
    names: Option<Vec<Option<String>>>,
    fill: Value,
}

fn sample() -> impl Strategy<Value = ArrayMembers> {
    let of_rank = |rank: usize| {
        let name = prop::option::weighted(0.8, "[a-z]{0,3}");
        let dimension = (0..20_u64, 1..6_u64, 1..5_u64);
        let dtype = prop::sample::select(TYPES.to_vec());
        (
            prop::collection::vec(dimension, rank),
            prop::option::of(prop::collection::vec(name, rank)),
            dtype.prop_flat_map(|dtype| (Just(dtype), fill(dtype))),
        )
    };
    (0..4_usize).prop_flat_map(of_rank).prop_map(|(dimensions, names, (dtype, fill))| {
        ArrayMembers {
            dtype,
            shape: dimensions.iter().map(|(len, _, _)| *len).collect(),
            chunk_shape: dimensions.iter().map(|(_, chunk, _)| *chunk).collect(),
            counts: dimensions.iter().map(|(_, _, count)| *count).collect(),
            names,
            fill,
        }
    })
}

fn document(sample: &ArrayMembers, own: Option<&Value>, attributes: &Value) -> Value {
    let mut codecs = vec![json!({"name": "bytes", "configuration": {"endian": "little"}})];
    codecs.extend(own.cloned());
    let mut document = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": sample.shape,
        "data_type": sample.dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": sample.chunk_shape}},
        "fill_value": sample.fill,
        "codecs": codecs,
        "attributes": attributes,
    });
    if let Some(names) = &sample.names {
        document["dimension_names"] = json!(names);
    }
    document
}

fn attributes() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({"units": "K", "nested": {"a": [1, {"b": null}]}}),
        json!({"_ARRAY_DIMENSIONS": "none"}),
        json!({"filters": ["mine"], "long": "é\n\"\\"}),
    ])
}

/// Returns the shape of the chunks that are decoded, and the names of the codecs that make them.
fn inner(array: &ArrayMetadata) -> (Vec<u64>, Vec<String>) {
    let names = |codecs: &[CodecSpec]| codecs.iter().map(|codec| codec.name.clone()).collect();
    match array.codecs.as_slice() {
        [codec] if codec.name == "sharding_indexed" => {
            let list = |member| codec.configuration[member].as_array().expect("a list").clone();
            let codecs: Vec<_> = list("codecs")
                .iter()
                .map(|codec| CodecSpec::from_json(codec).expect("codec"))
                .collect();
            (list("chunk_shape").iter().filter_map(Value::as_u64).collect(), names(&codecs))
        }
        codecs => (array.chunk_shape.clone(), names(codecs)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_new_array_has_the_requested_properties(
        sample in sample(),
        attributes in attributes(),
        (codecs, in_draft) in prop::sample::select(CODECS.to_vec()),
        own in prop::option::weighted(0.2, Just(json!({"name": "gzip", "configuration": {"level": 2}}))),
        kind in 0..4,
        target in 0..5000_u64,
    ) {
        let written = document(&sample, own.as_ref(), &attributes);
        let whole: Vec<u64> =
            sample.chunk_shape.iter().zip(&sample.counts).map(|(chunk, count)| chunk * count).collect();
        let shards = match kind {
            0 => Shards::None,
            1 => Shards::Shape(whole.clone()),
            _ => Shards::Target(target),
        };
        let policy = Policy { codecs: Policy::parse_codecs(codecs).expect("codecs"), shards };
        let shown = Dialect::V3.lower(None, written.to_string().as_bytes()).node;
        let Ok(NodeMetadata::Array(shown)) = shown else {
            return Err(TestCaseError::reject("no array"));
        };
        let draft = Dialect::draft(crate::metadata::Era::D2020_10, ".json");
        for (dialect, text) in [
            (&Dialect::V3, written.to_string()),
            (&draft, written.to_string()),
            (&draft, format!("{written:#}")),
        ] {
            let made = dialect.new_document(&NodePath::root(), text.as_bytes(), &policy);
            let made = match made {
                Ok(made) => made,
                Err(error) => {
                    prop_assert_eq!(error.kind(), Kind::Invalid, "{}", error);
                    let nan = error.detail().contains("NaN of its own bits");
                    let in_shards = own.is_some() && error.detail().contains("sharding_indexed");
                    prop_assert!(
                        *dialect == draft && (nan || in_shards || (!in_draft && own.is_none())),
                        "{}",
                        error
                    );
                    continue;
                }
            };
            let NodeMetadata::Array(array) = made.node else {
                panic!("{} is a group", made.text);
            };
            prop_assert!(serde_json::from_str::<Value>(&made.text).is_ok(), "{}", made.text);
            prop_assert_eq!(&array.shape, &shown.shape);
            prop_assert_eq!(&array.dtype, &shown.dtype);
            prop_assert_eq!(array.fill.item(&array.dtype), shown.fill.item(&array.dtype));
            prop_assert!(array.fill.is_defined());
            prop_assert_eq!(&array.attributes, &shown.attributes);
            if *dialect == Dialect::V3 || shown.dimension_names.iter().any(Option::is_some) {
                prop_assert_eq!(&array.dimension_names, &shown.dimension_names);
            }
            let (chunk_shape, names) = inner(&array);
            prop_assert_eq!(&chunk_shape, &shown.chunk_shape);
            let compressors: Vec<_> = names
                .iter()
                .filter(|name| *name != "bytes" && *name != "transpose")
                .cloned()
                .collect();
            let asked: Vec<_> = match &own {
                Some(_) => vec!["gzip".to_owned()],
                None => policy.codecs.iter().map(|codec| codec.name.clone()).collect(),
            };
            let asked: Vec<_> =
                asked.into_iter().filter(|name| name != "bytes" && name != "transpose").collect();
            prop_assert_eq!(compressors, asked);
            let len: u64 = array.chunk_shape.iter().product::<u64>()
                * array.dtype.item_len().to_u64();
            let sharded = array.chunk_shape != chunk_shape;
            prop_assert!(array.chunk_shape.iter().zip(&chunk_shape).all(|(shard, chunk)| shard % chunk == 0));
            match policy.shards {
                Shards::None => prop_assert!(!sharded),
                Shards::Shape(_) => prop_assert_eq!(&array.chunk_shape, &whole),
                Shards::Target(target) => prop_assert!(!sharded || len <= target),
                Shards::Rectilinear(_) => prop_assert!(false, "none of these"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn an_array_of_any_dialect_can_be_created_again_from_its_shown_metadata(
        sample in sample(),
        attributes in attributes(),
        codecs in prop::sample::select(vec!["none", "gzip", "zstd", "blosc", "lz4,crc32c"]),
        dialect in prop::sample::select(Dialect::all()),
    ) {
        let written = document(&sample, None, &attributes).to_string();
        let policy =
            Policy { codecs: Policy::parse_codecs(codecs).expect("codecs"), shards: Shards::None };
        let Ok(NodeMetadata::Array(shown)) = Dialect::V3.lower(None, written.as_bytes()).node else {
            return Err(TestCaseError::reject("no array"));
        };
        let made = match dialect.new_document(&NodePath::root(), written.as_bytes(), &policy) {
            Ok(NewDocument { node: NodeMetadata::Array(made), .. }) => made,
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                let refused = matches!(error.kind(), Kind::Invalid | Kind::NotPermitted);
                prop_assert!(refused, "{}: {}", dialect.name(), error);
                return Ok(());
            }
        };
        prop_assert_eq!(&made.shape, &shown.shape);
        prop_assert_eq!(&made.dtype, &shown.dtype);
        // Zarr 2 has none if xarray would mask it: then a mount refuses the array unless it is
        // zero, and `convert` stores every chunk.
        let is_named = shown.shape.is_empty() || shown.dimension_names.iter().any(Option::is_some);
        let is_masked = is_named
            && !crate::metadata::conventions::is_masked_by_itself(&shown.fill, &shown.dtype);
        let has_none = dialect == Dialect::V2 && (is_masked || !shown.fill.is_defined());
        prop_assert_eq!(made.fill.is_defined(), !has_none);
        if !has_none {
            prop_assert_eq!(made.fill.item(&made.dtype), shown.fill.item(&made.dtype));
        }
        prop_assert_eq!(&made.chunk_shape, &shown.chunk_shape);
        let text = crate::metadata::shown::array(&made, &ShownChunks::decoded(&made, &made.chunk_shape));
        let again = dialect.new_document(&NodePath::root(), text.as_bytes(), &policy);
        let Ok(NewDocument { node: NodeMetadata::Array(mut again), .. }) = again else {
            panic!("{}: {again:?}", dialect.name());
        };
        // Only Zarr 2 stores that there was none.
        prop_assert_eq!(again.fill.item(&made.dtype), made.fill.item(&made.dtype));
        again.fill = made.fill.clone();
        prop_assert_eq!(&again, &made, "{}: {}", dialect.name(), text);
        // Zarr 2 has the same array if all dimensions have names or none has.
        let extras = crate::metadata::zarr2::ArrayExtras { is_null: false, names_none: true };
        let documents = crate::metadata::zarr2::array(&made, &ShownChunks::decoded(&made, &made.chunk_shape), extras).expect("shown");
        let v3 = crate::metadata::zarr2::to_v3(
            NodeKind::Array,
            &documents.document,
            Some(&documents.attributes),
        );
        let v3 = v3.expect("understood");
        let Ok(NodeMetadata::Array(found)) = Dialect::V3.lower(None, v3.as_bytes()).node else {
            panic!("{v3}");
        };
        prop_assert_eq!(&found.shape, &made.shape);
        prop_assert_eq!(&found.chunk_shape, &made.chunk_shape);
        prop_assert_eq!(found.dtype.item_len(), made.dtype.item_len());
        if made.dimension_names.iter().all(Option::is_some) {
            prop_assert_eq!(&found.dimension_names, &made.dimension_names);
        }
    }
}

/// Returns the array that a dialect stores for a metadata file of Zarr 3, and what it shows of it.
fn stored(dialect: &Dialect, written: &str) -> Result<(Box<ArrayMetadata>, String)> {
    let policy = Policy { codecs: Vec::new(), shards: Shards::None };
    let made = dialect.new_document(&NodePath::root(), written.as_bytes(), &policy)?;
    let NodeMetadata::Array(array) = made.node else { panic!("{} is a group", made.text) };
    let shown = shown(&array);
    Ok((array, shown))
}

fn shown(array: &ArrayMetadata) -> String {
    crate::metadata::shown::array(array, &ShownChunks::decoded(array, &array.chunk_shape))
}

/// Returns the array without a `_FillValue` that changes no element. Zarr 2 has no way to say that
/// a fill value of NaN is not masked.
fn without_idle_mask(mut array: ArrayMetadata) -> ArrayMetadata {
    use crate::metadata::conventions::{FILL, coded_fill, is_masked_by_itself};
    let is_idle = is_masked_by_itself(&array.fill, &array.dtype);
    if is_idle && array.attributes.get(FILL) == coded_fill(&array.fill, &array.dtype).as_ref() {
        array.attributes.shift_remove(FILL);
    }
    array
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_array_is_the_same_after_a_way_over_any_other_dialect(
        sample in sample(),
        attributes in attributes(),
        is_masked in any::<bool>(),
        one in prop::sample::select(Dialect::all()),
        other in prop::sample::select(Dialect::all()),
    ) {
        // A scalar with an attribute of this name that is no list loses `_FillValue` on the way.
        prop_assume!(attributes.get("_ARRAY_DIMENSIONS").is_none());
        let mut sample = sample;
        // Names that are all null mean the same as no names, and only Zarr 3 has both forms.
        if sample.names.iter().flatten().all(Option::is_none) && !sample.shape.is_empty() {
            sample.names = None;
        }
        let mut written = document(&sample, None, &attributes);
        let Ok(NodeMetadata::Array(asked)) = Dialect::V3.lower(None, written.to_string().as_bytes()).node
        else {
            return Err(TestCaseError::reject("no array"));
        };
        let coded = crate::metadata::conventions::coded_fill(&asked.fill, &asked.dtype);
        if let Some(coded) = coded.filter(|_| is_masked) {
            written["attributes"]["_FillValue"] = coded;
        }
        // Each may refuse what it cannot say.
        let Ok((first, shown)) = stored(&one, &written.to_string()) else { return Ok(()) };
        let Ok((between, shown_between)) = stored(&other, &shown) else { return Ok(()) };
        let back = match stored(&one, &shown_between) {
            Ok((back, _)) => without_idle_mask(*back),
            Err(error) => panic!("{} to {}: {error}: {shown_between}", one.name(), other.name()),
        };
        let first = without_idle_mask(*first);
        // Zarr 2 has no fill value that xarray would mask. `convert` then stores every chunk.
        if between.fill.is_defined() && first.fill.is_defined() {
            prop_assert_eq!(self::shown(&back), self::shown(&first), "{} to {}", one.name(), other.name());
        }
        let expected = ArrayMetadata { fill: back.fill.clone(), ..first };
        prop_assert_eq!(back, expected, "{} to {}: {}", one.name(), other.name(), shown_between);
    }
}
