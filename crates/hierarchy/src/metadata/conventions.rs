//! Conventions that depend on the version of the format, translated from Zarr 2 to Zarr 3 and back.
//!
//! - Names of dimensions: xarray's attribute `_ARRAY_DIMENSIONS`, and the member `dimension_names`.
//! - The value that xarray masks: in Zarr 2 the fill value itself, in Zarr 3 the attribute
//!   `_FillValue`, where a float is the base64 of its eight bytes (`FillValueCoder` in
//!   xarray/backends/zarr.py).
//! - OME-Zarr: 0.4 has its members directly in the attributes, each with a version; 0.5 has them in
//!   `ome`, with one version (<https://ngff.openmicroscopy.org/0.5/>).

use serde_json::{Value, json};

use zarrfs_codec::dtype::{DType, FillValue, base64_decode, base64_encode, half_value};
use zarrfs_codec::json::Object;

/// The attribute in which xarray and GDAL keep the names of dimensions.
pub const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// The attribute of the value that xarray masks.
pub const FILL: &str = "_FillValue";

/// The attribute of OME-Zarr 0.5.
pub(super) const OME: &str = "ome";

/// The members of OME-Zarr 0.4 among the attributes.
const OME_MEMBERS: [&str; 8] = [
    "multiscales",
    "omero",
    "plate",
    "well",
    "labels",
    "image-label",
    "bioformats2raw.layout",
    "series",
];

/// The members with a version.
const WITH_VERSION: [&str; 4] = ["multiscales", "plate", "well", "image-label"];

/// Returns the names in `_ARRAY_DIMENSIONS` if it is a list of `rank` strings.
pub(super) fn names_of(value: &Value, rank: usize) -> Option<Vec<Option<String>>> {
    let items = value.as_array().filter(|items| items.len() == rank)?;
    items.iter().map(|item| item.as_str().map(|name| Some(name.to_owned()))).collect()
}

/// Removes the names of dimensions from attributes, and returns them.
pub(super) fn take_names(attributes: &mut Object, rank: usize) -> Vec<Option<String>> {
    let names = attributes.get(DIMENSIONS).and_then(|value| names_of(value, rank));
    if names.is_some() {
        attributes.shift_remove(DIMENSIONS);
    }
    names.unwrap_or_default()
}

/// Returns a value as the `_FillValue` of a Zarr 3 array; `None` for types that xarray does not
/// encode.
pub(super) fn coded_fill(fill: &FillValue, dtype: &DType) -> Option<Value> {
    let item = fill.item(dtype);
    let double = |bytes: &[u8], len| Some(base64_encode(&as_double(bytes, len)?.to_le_bytes()));
    match dtype {
        DType::Bool
        | DType::Int(_)
        | DType::Uint(_)
        | DType::Bytes(_)
        | DType::Utf32(_)
        | DType::String
        | DType::VariableBytes => {
            let value = fill.to_json(dtype);
            // Padding is not part of the value.
            let text = value.as_str().filter(|_| matches!(dtype, DType::Bytes(_)));
            let bytes = text.and_then(base64_decode).map(|mut bytes| {
                while bytes.last() == Some(&0) {
                    bytes.pop();
                }
                bytes
            });
            Some(bytes.map_or(value, |bytes| Value::from(base64_encode(&bytes))))
        }
        DType::Float(len) => double(&item, *len).map(Value::from),
        DType::Complex(len) => {
            let (real, imaginary) = item.split_at(item.len() / 2);
            Some(json!([double(real, len / 2)?, double(imaginary, len / 2)?]))
        }
        _ => None,
    }
}

/// Returns the value of a `_FillValue` attribute as a fill value.
pub fn decoded_fill(value: &Value, dtype: &DType) -> Option<FillValue> {
    let double = |value: &Value| -> Option<Value> {
        let bytes: [u8; 8] = base64_decode(value.as_str()?)?.try_into().ok()?;
        let float = f64::from_le_bytes(bytes);
        let number = serde_json::Number::from_f64(float).map(Value::Number);
        Some(number.unwrap_or_else(|| {
            Value::from(if float.is_nan() {
                "NaN"
            } else if float > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            })
        }))
    };
    let plain = match dtype {
        DType::Float(_) => double(value),
        DType::Complex(_) => match value.as_array().map(Vec::as_slice) {
            Some([real, imaginary]) => double(real)
                .zip(double(imaginary))
                .map(|(real, imaginary)| json!([real, imaginary])),
            _ => None,
        },
        _ => None,
    };
    FillValue::parse(plain.as_ref().unwrap_or(value), dtype).ok().filter(FillValue::is_defined)
}

/// Whether elements mean the same to xarray if it masks this value: no element equals NaN or
/// not-a-time, and a masked element becomes that.
pub(super) fn is_masked_by_itself(fill: &FillValue, dtype: &DType) -> bool {
    let value = fill.to_json(dtype);
    match dtype {
        DType::Float(_) => value == "NaN",
        DType::Complex(_) => value == json!(["NaN", "NaN"]),
        DType::Time(_) => value == "NaT",
        _ => false,
    }
}

/// Whether a `_FillValue` attribute means the same to xarray as none at all.
pub fn masks_nothing(value: &Value, dtype: &DType) -> bool {
    decoded_fill(value, dtype).is_some_and(|fill| is_masked_by_itself(&fill, dtype))
}

/// Returns exactly this float, with which xarray compares elements: not the double of its shortest
/// decimal number.
fn as_double(bytes: &[u8], len: u8) -> Option<f64> {
    let double = match len {
        2 => half_value(u16::from_le_bytes(bytes.try_into().ok()?)),
        4 => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        8 => f64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    Some(if double.is_nan() { f64::NAN } else { double })
}

/// Converts attributes of OME-Zarr 0.4 to 0.5; leaves any others unchanged.
pub(super) fn ome_to_v3(mut attributes: Object) -> Object {
    if !is_ome_0_4(&attributes) {
        return attributes;
    }
    let mut ome = Object::from_iter([("version".to_owned(), json!("0.5"))]);
    for member in OME_MEMBERS {
        let Some(mut value) = attributes.shift_remove(member) else { continue };
        if WITH_VERSION.contains(&member) {
            each(&mut value, |object| {
                object.shift_remove("version");
            });
        }
        ome.insert(member.to_owned(), value);
    }
    attributes.insert(OME.to_owned(), Value::Object(ome));
    attributes
}

fn is_ome_0_4(attributes: &Object) -> bool {
    if attributes.contains_key(OME) {
        return false;
    }
    let mut versions = true;
    let mut any = false;
    for member in WITH_VERSION {
        let Some(value) = attributes.get(member) else { continue };
        let objects = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let has = |object: &Value, name: &str| object.get(name).is_some();
        any |= !objects.is_empty()
            && objects.iter().all(|object| match member {
                "multiscales" => has(object, "datasets"),
                "plate" => has(object, "wells"),
                "well" => has(object, "images"),
                _ => object.is_object(),
            });
        let version = |object: &Value| object.get("version").is_none_or(|found| found == "0.4");
        versions &= objects.iter().all(version);
    }
    // A group of labels has only a list, and a collection has its layout.
    let is_list = |value: &Value| {
        value
            .as_array()
            .is_some_and(|items| !items.is_empty() && items.iter().all(Value::is_string))
    };
    any |= attributes.len() == 1 && attributes.get("labels").is_some_and(is_list);
    any |= attributes.get("bioformats2raw.layout").is_some_and(Value::is_number);
    any && versions
}

/// Returns `ome` of OME-Zarr 0.5 as attributes of 0.4, `None` if it is something else.
pub(super) fn ome_to_v2(ome: &Value) -> Option<Object> {
    let ome = ome.as_object()?;
    let is_ours = |name: &String| name == "version" || OME_MEMBERS.contains(&name.as_str());
    // A group of labels needs no version, and some programs repeat it in each member.
    if ome.get("version").is_some_and(|version| version != "0.5") || !ome.keys().all(is_ours) {
        return None;
    }
    let mut attributes = ome.clone();
    attributes.shift_remove("version");
    for member in WITH_VERSION {
        if let Some(value) = attributes.get_mut(member) {
            each(value, |object| {
                object.insert("version".to_owned(), json!("0.4"));
            });
        }
    }
    (!attributes.is_empty()).then_some(attributes)
}

/// Returns the names of the axes that a group with OME-Zarr metadata, as in Zarr 3, gives the array
/// at `path` below it. OME-Zarr 0.5 requires that the array has the same `dimension_names`.
pub fn axes_of(attributes: &Object, path: &str) -> Option<Vec<Option<String>>> {
    let images = attributes.get(OME)?.get("multiscales")?.as_array()?;
    let has_array = |image: &&Value| {
        let datasets = image.get("datasets").and_then(Value::as_array);
        let is_this = |dataset: &Value| {
            let found = dataset.get("path").and_then(Value::as_str);
            found.is_some_and(|found| found.trim_matches('/') == path)
        };
        datasets.is_some_and(|datasets| datasets.iter().any(is_this))
    };
    let axes = images.iter().find(has_array)?.get("axes")?.as_array()?;
    let name = |axis: &Value| axis.get("name")?.as_str().map(|name| Some(name.to_owned()));
    axes.iter().map(name).collect()
}

/// Whether the attributes of a node have OME-Zarr metadata of a version that does not fit Zarr 2,
/// or Zarr 3.
pub(super) fn is_other_ome(attributes: &Object, is_v2: bool) -> bool {
    let has_any = |names: &[&str]| names.iter().any(|name| attributes.contains_key(*name));
    if is_v2 { has_any(&[OME]) } else { has_any(&["multiscales", "plate", "well"]) }
}

/// Returns the names of the attributes of OME-Zarr 0.4 that are in `ome` in 0.5.
pub(super) fn ome_members() -> &'static [&'static str] {
    &OME_MEMBERS
}

fn each(value: &mut Value, change: impl Fn(&mut Object)) {
    match value {
        Value::Object(object) => change(object),
        Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(change),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masked_value_is_coded_as_xarray_does() {
        // FillValueCoder.encode of xarray 2025.
        for (value, dtype, coded) in [
            (json!("NaN"), DType::Float(4), json!("AAAAAAAA+H8=")),
            (json!(-999.5), DType::Float(8), json!("AAAAAAA8j8A=")),
            (json!(1e20), DType::Float(4), json!("AAAAgB2vFUQ=")),
            (json!(1e20), DType::Float(8), json!("QIy1eB2vFUQ=")),
            (json!(-20832), DType::Float(2), json!("AAAAAABY1MA=")),
            (json!(-7), DType::Int(2), json!(-7)),
            (json!("x"), DType::String, json!("x")),
            (json!("YWIA"), DType::Bytes(3), json!("YWI=")),
            (json!([1, 0]), DType::Complex(8), json!(["AAAAAAAA8D8=", "AAAAAAAAAAA="])),
        ] {
            let fill = FillValue::parse(&value, &dtype).expect("a value");
            assert_eq!(coded_fill(&fill, &dtype), Some(coded.clone()), "{value}");
            assert_eq!(decoded_fill(&coded, &dtype), Some(fill), "{value}");
        }
    }

    #[test]
    fn an_image_of_0_4_is_one_of_0_5_and_back() {
        let old = json!({
            "x": 1,
            "multiscales": [{"axes": [], "datasets": [{"path": "0"}], "version": "0.4"}],
            "omero": {"channels": []},
        });
        let old = old.as_object().expect("an object").clone();
        let new = ome_to_v3(old.clone());
        let ome = json!({
            "version": "0.5",
            "multiscales": [{"axes": [], "datasets": [{"path": "0"}]}],
            "omero": {"channels": []},
        });
        assert_eq!(new, *json!({"x": 1, "ome": ome}).as_object().expect("an object"));
        let mut again = ome_to_v2(&ome).expect("ours");
        again.insert("x".to_owned(), json!(1));
        assert_eq!(again, old);
        for (ome, old) in [
            (
                json!({"version": "0.5", "plate": {"wells": [], "version": "0.5"}}),
                json!({"plate": {"wells": [], "version": "0.4"}}),
            ),
            (json!({"labels": ["cells"]}), json!({"labels": ["cells"]})),
            (
                json!({"version": "0.5", "image-label": {"version": "0.5", "colors": []}}),
                json!({"image-label": {"version": "0.4", "colors": []}}),
            ),
        ] {
            let found = ome_to_v2(&ome).expect("ours");
            assert_eq!(Value::Object(found.clone()), old);
            assert!(ome_to_v3(found).contains_key(OME), "{ome}");
        }
        assert_eq!(ome_to_v2(&json!({"version": "0.6", "labels": []})), None);
        for other in [
            json!({"multiscales": "many"}),
            json!({"multiscales": [{"datasets": [], "version": "0.3"}]}),
            json!({"labels": ["a"], "mine": 1}),
            json!({"well": {"depth": 3}}),
        ] {
            let other = other.as_object().expect("an object").clone();
            assert_eq!(ome_to_v3(other.clone()), other);
        }
    }
}
