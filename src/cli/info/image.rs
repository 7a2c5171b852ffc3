//! The facts about an image or a plate, by OME-Zarr, and about a map.

use serde_json::{Value, json};

use crate::json::Object;
use crate::view::map::{Crs, CrsKind, MapPlace};
use crate::view::{Axis, Image, ViewSource, levels};

/// The most channels, levels and coordinate systems to name.
const MOST: usize = 64;

/// Adds the axes of an image with the size of a pixel, its channels, its levels, and its place on a
/// map; for a plate its wells.
pub fn facts(source: &ViewSource<'_>, add: &mut dyn FnMut(&str, Value)) {
    let own = source.attributes();
    let ome = own.get("ome").and_then(Value::as_object).unwrap_or(own);
    if let Some(plate) = ome.get("plate").and_then(Value::as_object) {
        add("plate", plate_facts(plate));
    }
    let arrays = match source.array() {
        Ok(_) => vec![source.clone()],
        Err(_) => levels(source).unwrap_or_default(),
    };
    let Some(image) = arrays.first().and_then(|array| Image::of(array).ok()) else { return };
    let place = arrays.first().and_then(|array| MapPlace::of(array, &image));
    if let Some(place) = place {
        add("map", map_facts(&place));
    } else if image.axes.iter().any(|axis| axis.scale.is_some()) {
        add("axes", image.axes.iter().map(axis_facts).collect());
    }
    if source.array().is_ok() {
        return;
    }
    let channels = image.channels.iter().take(MOST).map(|channel| {
        let color = channel.color.map(|color| format!("#{color:06X}"));
        json!({"label": channel.label, "color": color})
    });
    let channels: Vec<Value> = channels.collect();
    if !channels.is_empty() {
        add("channels", Value::Array(channels));
    }
    let level = |array: &ViewSource<'_>| {
        let shape = array.array().ok().map(|array| array.model().shape.clone());
        json!({"path": array.path().relative_to(source.path()), "shape": shape})
    };
    add("levels", arrays.iter().take(MOST).map(level).collect());
    let systems = ome.get("multiscales").and_then(|images| images.get(0)?.get("coordinateSystems"));
    let systems = systems.and_then(Value::as_array).into_iter().flatten().take(MOST);
    let systems: Vec<&Value> = systems.filter_map(|system| system.get("name")).collect();
    if !systems.is_empty() {
        add("coordinate_systems", json!(systems));
    }
}

fn axis_facts(axis: &Axis) -> Value {
    let scale = axis.scale.as_ref();
    let unit = scale.and_then(|scale| scale.unit.as_ref()).map(|unit| &unit.name);
    json!({
        "name": axis.label(),
        "len": axis.len,
        "step": scale.map(|scale| scale.step),
        "start": scale.map(|scale| scale.start),
        "unit": unit,
    })
}

fn plate_facts(plate: &Object) -> Value {
    let count = |member: &str| plate.get(member).and_then(Value::as_array).map_or(0, Vec::len);
    json!({
        "name": plate.get("name"),
        "rows": count("rows"),
        "columns": count("columns"),
        "wells": count("wells"),
        "fields": plate.get("field_count"),
        "acquisitions": count("acquisitions"),
    })
}

fn map_facts(place: &MapPlace) -> Value {
    let [a, b, c, d, e, f] = place.transform;
    json!({"crs": place.crs.as_ref().map(crs_name), "transform": [a, b, c, d, e, f]})
}

fn crs_name(crs: &Crs) -> String {
    match (crs.code, &crs.projection) {
        (Some(code), _) => format!("EPSG:{code}"),
        (None, Some(projection)) => projection.method.wkt.replace('_', " "),
        (None, None) if crs.kind == CrsKind::Geographic => "longitude and latitude".to_owned(),
        (None, None) => "projected".to_owned(),
    }
}

/// Formats one of these facts in a line; `None` if it is another fact.
pub fn line(name: &str, value: &Value) -> Option<String> {
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value, member: &str| match value.get(member) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(number(other)),
    };
    let joined =
        |words: [Option<String>; 2]| words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let list = |of: &dyn Fn(&Value) -> String| all.iter().map(of).collect::<Vec<_>>().join(", ");
    Some(match name {
        "axes" => list(&|axis| {
            let name = text(axis, "name").filter(|name| !name.is_empty());
            let step = text(axis, "step").map(|step| joined([Some(step), text(axis, "unit")]));
            let words = joined([name, step]);
            if words.is_empty() { "-".to_owned() } else { words }
        }),
        "channels" => {
            let color = |channel: &Value| text(channel, "color").map(|color| format!("({color})"));
            list(&|channel| joined([text(channel, "label"), color(channel)]))
        }
        "levels" => list(&|level| {
            let lens = level.get("shape").and_then(Value::as_array);
            let shape = lens.map(|lens| super::describe::shape(lens));
            joined([text(level, "path").map(|path| format!("{path}:")), shape])
        }),
        "coordinate_systems" => list(&|system| system.as_str().unwrap_or_default().to_owned()),
        "plate" => {
            let number = |member: &str| text(value, member).unwrap_or_else(|| "?".to_owned());
            let grid = format!("{} rows, {} columns", number("rows"), number("columns"));
            let fields =
                text(value, "fields").map(|fields| format!(", at most {fields} fields each"));
            let wells = format!("{} wells{}", number("wells"), fields.unwrap_or_default());
            joined([
                text(value, "name").map(|name| format!("{name}:")),
                Some(format!("{grid}, {wells}")),
            ])
        }
        "map" => {
            let crs = text(value, "crs").unwrap_or_else(|| "unknown system".to_owned());
            let numbers = value.get("transform").and_then(Value::as_array);
            let at =
                |at: usize| numbers.and_then(|all| all.get(at)).map(number).unwrap_or_default();
            let parts = numbers.map(Vec::as_slice).unwrap_or_default();
            let is_turned = [1, 3]
                .iter()
                .any(|at| parts.get(*at).and_then(Value::as_f64).is_some_and(|part| part != 0.0));
            let pixels = if is_turned {
                let rows = format!("{}, {}", at(1), at(4));
                format!("one column {}, {}, one row {rows}", at(0), at(3))
            } else {
                format!("pixels of {} x {}", at(0), at(4))
            };
            format!("{crs}, {pixels}, corner at {}, {}", at(2), at(5))
        }
        _ => return None,
    })
}

/// Formats a number without the fraction of an integer.
fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |float| float.to_string())
}
