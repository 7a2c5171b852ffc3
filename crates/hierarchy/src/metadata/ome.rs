//! The versions of OME-Zarr, translated to each other as far as they say the same.
//!
//! - 0.4, of Zarr 2, has its members directly in the attributes, each with a version.
//! - 0.5, of Zarr 3, has them in `ome`, with one version (<https://ngff.openmicroscopy.org/0.5/>).
//! - 0.6 gives an image named coordinate systems with the axes, and the transformations of its
//!   arrays lead to the first of these (<https://ngff.openmicroscopy.org/0.6/>). An image with
//!   further systems, and a scene of several images, have no equivalent in 0.5.

use serde_json::{Value, json};

use zarrfs_codec::json::Object;

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

/// Converts attributes of OME-Zarr 0.4 to 0.5; leaves any others unchanged.
pub(super) fn ome_to_v3(mut attributes: Object) -> Object {
    if !is_ome_0_4(&attributes) {
        return attributes;
    }
    let mut ome = Object::from_iter([("version".to_owned(), json!("0.5"))]);
    for member in OME_MEMBERS {
        let Some(value) = attributes.shift_remove(member) else { continue };
        ome.insert(member.to_owned(), value);
    }
    drop_versions(&mut ome);
    attributes.insert(OME.to_owned(), Value::Object(ome));
    attributes
}

/// Removes the versions of members: from 0.5 on, there is one for all. Some programs repeat it.
fn drop_versions(ome: &mut Object) {
    for member in WITH_VERSION {
        let Some(value) = ome.get_mut(member) else { continue };
        each(value, |object| {
            object.shift_remove("version");
        });
    }
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

/// Returns the axes of an OME-Zarr image: `axes`, or since 0.6 those of its intrinsic coordinate
/// system, to which the transformations of all arrays lead. `None` if it lists none.
pub fn image_axes(image: &Value) -> Option<&[Value]> {
    if let Some(axes) = image.get("axes") {
        return axes.as_array().map(Vec::as_slice);
    }
    let systems = image.get("coordinateSystems")?.as_array()?;
    let transform = image.get("datasets")?.get(0)?.get("coordinateTransformations")?.get(0)?;
    let intrinsic = system_name(transform.get("output")?)?;
    let is_this = |system: &&Value| system.get("name").and_then(Value::as_str) == Some(&intrinsic);
    Some(systems.iter().find(is_this)?.get("axes")?.as_array()?.as_slice())
}

/// Returns the name of a coordinate system that is the input or output of a transformation. In
/// drafts of 0.6 that was the name alone.
pub fn system_name(end: &Value) -> Option<String> {
    end.as_str().or_else(|| end.get("name")?.as_str()).map(str::to_owned)
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
    let axes = image_axes(images.iter().find(has_array)?)?;
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

/// A version of OME-Zarr that a copy can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmeVersion {
    /// 0.4, of Zarr 2.
    V0_4,
    /// 0.5, of Zarr 3.
    V0_5,
    /// 0.6, of Zarr 3.
    V0_6,
}

impl OmeVersion {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V0_4, Self::V0_5, Self::V0_6];

    /// Returns its number.
    pub fn name(self) -> &'static str {
        match self {
            Self::V0_4 => "0.4",
            Self::V0_5 => "0.5",
            Self::V0_6 => "0.6",
        }
    }

    /// Returns the attributes of a group of Zarr 3 with OME-Zarr metadata of this version, of 0.5
    /// for 0.4; `None` if they have none, or are of that version. The error says that the version
    /// cannot say the same.
    pub fn translate(self, attributes: &Object) -> Option<Result<Object, &'static str>> {
        let ome = attributes.get(OME)?.as_object()?;
        let version = ome.get("version").and_then(Value::as_str);
        let is_newer = version.is_some_and(is_0_6);
        let new = match self {
            Self::V0_6 if is_newer => return None,
            Self::V0_6 => {
                to_0_6(ome).ok_or("it has transformations that are not a scale or translation")
            }
            _ if matches!(version, None | Some("0.5")) => return None,
            _ => to_0_5(ome).ok_or(
                "it has several coordinate systems, a scene, or transformations that are not a \
                 scale and a translation",
            ),
        };
        Some(new.map(|new| {
            let mut attributes = attributes.clone();
            attributes.insert(OME.to_owned(), Value::Object(new));
            attributes
        }))
    }
}

/// Whether this is a version of OME-Zarr 0.6, also one before its release.
fn is_0_6(version: &str) -> bool {
    version.strip_prefix("0.6").is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The name of the coordinate system that an image of 0.5 gets.
const INTRINSIC: &str = "physical";

/// Returns `ome` of version 0.6 as that of 0.5; `None` if it is of another version, or if 0.5
/// cannot say the same.
pub fn to_0_5(ome: &Object) -> Option<Object> {
    ome.get("version").and_then(Value::as_str).filter(|version| is_0_6(version))?;
    let mut old = ome.clone();
    old.insert("version".to_owned(), json!("0.5"));
    drop_versions(&mut old);
    if ome.contains_key("scene") {
        return None;
    }
    if let Some(images) = old.get_mut("multiscales") {
        for image in images.as_array_mut()? {
            *image = image_to_0_5(image)?;
        }
    }
    Some(old)
}

fn image_to_0_5(image: &Value) -> Option<Value> {
    let systems = image.get("coordinateSystems")?.as_array()?;
    if systems.len() != 1 || image.get("coordinateTransformations").is_some() {
        return None;
    }
    let axes = image_axes(image)?;
    let mut old = Object::new();
    for (name, value) in image.as_object()? {
        match name.as_str() {
            "coordinateSystems" => old.insert("axes".to_owned(), json!(axes)),
            "datasets" => {
                let datasets =
                    value.as_array()?.iter().map(|dataset| dataset_to_0_5(dataset, axes));
                old.insert(name.clone(), Value::Array(datasets.collect::<Option<_>>()?))
            }
            _ => old.insert(name.clone(), value.clone()),
        };
    }
    Some(Value::Object(old))
}

fn dataset_to_0_5(dataset: &Value, axes: &[Value]) -> Option<Value> {
    let [transform] = dataset.get("coordinateTransformations")?.as_array()?.as_slice() else {
        return None;
    };
    let listed = |steps: &[Value]| -> Option<Vec<Value>> {
        let kinds = steps.iter().map(|step| step.get("type")?.as_str());
        let kinds: Vec<&str> = kinds.collect::<Option<_>>()?;
        let old = |step: &Value| {
            let kind = step.get("type")?.as_str()?;
            let numbers = step.get(kind)?.as_array().filter(|list| list.len() == axes.len())?;
            Some(json!({"type": kind, kind: numbers}))
        };
        matches!(kinds.as_slice(), ["scale"] | ["scale", "translation"])
            .then(|| steps.iter().map(old).collect::<Option<_>>())?
    };
    let steps = match transform.get("type")?.as_str()? {
        "identity" => vec![json!({"type": "scale", "scale": vec![1.0; axes.len()]})],
        "sequence" => listed(transform.get("transformations")?.as_array()?)?,
        _ => listed(std::slice::from_ref(transform))?,
    };
    let mut old = dataset.as_object()?.clone();
    old.insert("coordinateTransformations".to_owned(), Value::Array(steps));
    Some(Value::Object(old))
}

/// Returns `ome` of version 0.5 as that of 0.6; `None` if it is of another version, or if it has
/// transformations that are not a scale and a translation with numbers.
pub fn to_0_6(ome: &Object) -> Option<Object> {
    if ome.get("version").is_some_and(|version| version != "0.5") {
        return None;
    }
    let mut new = ome.clone();
    new.insert("version".to_owned(), json!("0.6"));
    drop_versions(&mut new);
    if let Some(images) = new.get_mut("multiscales") {
        for image in images.as_array_mut()? {
            *image = image_to_0_6(image)?;
        }
    }
    Some(new)
}

fn image_to_0_6(image: &Value) -> Option<Value> {
    let axes = image.get("axes")?.as_array()?;
    let after = steps_of(image, axes.len())?;
    let mut new = Object::new();
    for (name, value) in image.as_object()? {
        match name.as_str() {
            "axes" => {
                let systems = json!([{"name": INTRINSIC, "axes": axes}]);
                new.insert("coordinateSystems".to_owned(), systems)
            }
            "datasets" => {
                let datasets = value.as_array()?.iter();
                let datasets = datasets.map(|dataset| dataset_to_0_6(dataset, axes.len(), &after));
                new.insert(name.clone(), Value::Array(datasets.collect::<Option<_>>()?))
            }
            "coordinateTransformations" => None,
            _ => new.insert(name.clone(), value.clone()),
        };
    }
    Some(Value::Object(new))
}

fn dataset_to_0_6(dataset: &Value, rank: usize, after: &[(f64, f64)]) -> Option<Value> {
    let steps = steps_of(dataset, rank)?;
    let all = steps.iter().zip(after);
    let all: Vec<(f64, f64)> =
        all.map(|((scale, start), (by, moved))| (scale * by, start * by + moved)).collect();
    let scale: Vec<f64> = all.iter().map(|(scale, _)| *scale).collect();
    let start: Vec<f64> = all.iter().map(|(_, start)| *start).collect();
    let scale = json!({"type": "scale", "scale": scale});
    let mut transform = if start.iter().all(|start| *start == 0.0) {
        scale
    } else {
        let translation = json!({"type": "translation", "translation": start});
        json!({"type": "sequence", "transformations": [scale, translation]})
    };
    let ends = transform.as_object_mut()?;
    ends.insert("input".to_owned(), json!({"path": dataset.get("path")?}));
    ends.insert("output".to_owned(), json!({"name": INTRINSIC}));
    let mut new = dataset.as_object()?.clone();
    new.insert("coordinateTransformations".to_owned(), json!([transform]));
    Some(Value::Object(new))
}

/// Returns the scale and the position of the first element along each axis that the
/// transformations of an image or of one of its arrays mean in 0.5.
fn steps_of(object: &Value, rank: usize) -> Option<Vec<(f64, f64)>> {
    let mut steps = vec![(1.0, 0.0); rank];
    let Some(listed) = object.get("coordinateTransformations") else { return Some(steps) };
    for transform in listed.as_array()? {
        let kind = transform.get("type")?.as_str()?;
        if kind == "identity" {
            continue;
        }
        let numbers = transform.get(kind)?.as_array().filter(|list| list.len() == rank)?;
        for ((scale, start), by) in steps.iter_mut().zip(numbers) {
            let by = by.as_f64()?;
            match kind {
                "scale" => (*scale, *start) = (*scale * by, *start * by),
                "translation" => *start += by,
                _ => return None,
            }
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_image_of_0_6_with_one_coordinate_system_is_one_of_0_5_and_back() {
        let new = json!({
            "version": "0.6rc0",
            "multiscales": [{
                "coordinateSystems": [{"name": "physical", "axes": [
                    {"name": "y", "type": "space", "unit": "micrometer"},
                    {"name": "x", "type": "space", "unit": "micrometer"},
                ]}],
                "datasets": [
                    {"path": "s0", "coordinateTransformations": [
                        {"type": "scale", "scale": [0.5, 0.25],
                         "input": {"path": "s0"}, "output": {"name": "physical"}},
                    ]},
                    {"path": "s1", "coordinateTransformations": [
                        {"type": "sequence", "transformations": [
                            {"type": "scale", "scale": [1.0, 0.5]},
                            {"type": "translation", "translation": [0.25, 0.125]},
                        ], "input": {"path": "s1"}, "output": {"name": "physical"}},
                    ]},
                ],
                "name": "x",
            }],
            "omero": {"channels": []},
        });
        let old = to_0_5(new.as_object().expect("an object")).expect("0.5 can say it");
        let image = old.get("multiscales").and_then(|images| images.get(0)).expect("an image");
        assert_eq!(image.get("axes").and_then(Value::as_array).map(Vec::len), Some(2));
        assert_eq!(
            image["datasets"][1]["coordinateTransformations"],
            json!([
                {"type": "scale", "scale": [1.0, 0.5]},
                {"type": "translation", "translation": [0.25, 0.125]},
            ])
        );
        let mut again = to_0_6(&old).expect("0.6 can say it");
        again.insert("version".to_owned(), json!("0.6rc0"));
        // The members of an object have no order.
        assert_eq!(Value::Object(again), new);
    }

    #[test]
    fn no_member_keeps_a_version_of_its_own() {
        let ome = |version: &str, own: &str| {
            let plate = json!({"wells": [], "version": own});
            let ome = json!({"version": version, "plate": plate, "image-label": {"version": own}});
            ome.as_object().expect("an object").clone()
        };
        let bare =
            |version: &str| json!({"version": version, "plate": {"wells": []}, "image-label": {}});
        let new = to_0_6(&ome("0.5", "0.5")).expect("the same");
        assert_eq!(Value::Object(new), bare("0.6"));
        let old = to_0_5(&ome("0.6", "0.6")).expect("the same");
        assert_eq!(Value::Object(old), bare("0.5"));
    }

    #[test]
    fn an_image_with_more_coordinate_systems_stays_in_0_6() {
        let image = |more: Value| {
            let mut image = json!({
                "coordinateSystems": [{"name": "a", "axes": [{"name": "y"}, {"name": "x"}]}],
                "datasets": [{"path": "0", "coordinateTransformations": [
                    {"type": "identity", "input": {"path": "0"}, "output": {"name": "a"}},
                ]}],
            });
            let members = image.as_object_mut().expect("an object");
            members.extend(more.as_object().expect("an object").clone());
            json!({"version": "0.6", "multiscales": [image]}).as_object().expect("one").clone()
        };
        assert!(to_0_5(&image(json!({}))).is_some());
        for more in [
            json!({"coordinateTransformations": []}),
            json!({"coordinateSystems": [{"name": "a", "axes": []}, {"name": "b", "axes": []}]}),
            json!({"datasets": [{"path": "0", "coordinateTransformations": [
                {"type": "translation", "translation": [1, 2], "output": {"name": "a"}},
            ]}]}),
        ] {
            assert_eq!(to_0_5(&image(more.clone())), None, "{more}");
        }
    }
}
