//! Parses the values of options, and says what is wrong with invalid ones.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::array::ShardOrder;
use crate::codec::CodecSpec;
use crate::json::Object;
use crate::metadata::ome::OmeVersion;
use crate::metadata::{Dialect, NodePath, Policy, Shards, policy, wanted};
use crate::vfs::{ListedViews, Presentation};
use crate::view::region::Region;
use crate::view::table::TableForm;
use crate::view::{FORMATS, Format};

/// The codecs of one `--codecs`. clap would read a plain `Vec` as an option that can be repeated.
pub type Codecs = Vec<CodecSpec>;

/// Lengths along each dimension; a type alias for the same reason.
pub type Lengths = Vec<u64>;

/// Returns the names of all dialects.
pub fn dialects() -> impl TypedValueParser<Value = Dialect> {
    let mut all = Dialect::all();
    // The drafts by date, after the others.
    all.sort_by_key(|dialect| Some(dialect.name()).filter(|name| name.starts_with('d')));
    PossibleValuesParser::new(all.iter().map(Dialect::name)).try_map(|name| dialect(&name))
}

/// Returns the names of the dialects that a new hierarchy can have. The others are parsed as well,
/// so that the command can say why it refuses them.
pub fn new_dialects() -> impl TypedValueParser<Value = Dialect> {
    let value = |dialect: &Dialect| {
        PossibleValue::new(dialect.name()).hide(dialect.check_makes_nodes().is_err())
    };
    PossibleValuesParser::new(Dialect::all().iter().map(value)).try_map(|name| dialect(&name))
}

/// The versions of OME-Zarr for `--ome-zarr`.
pub fn ome_versions() -> impl TypedValueParser<Value = OmeVersion> {
    let names = OmeVersion::ALL.map(|version| PossibleValue::new(version.name()));
    PossibleValuesParser::new(names).try_map(|name| {
        let found = OmeVersion::ALL.into_iter().find(|version| version.name() == name);
        found.ok_or_else(|| format!("unknown version {name:?}"))
    })
}

pub fn dialect(name: &str) -> Result<Dialect, String> {
    Dialect::parse_name(name).ok_or_else(|| format!("unknown dialect {name:?}"))
}

/// The form of a mount.
pub fn form_values() -> impl TypedValueParser<Value = Presentation> {
    let zarr = [("zarr", "the hierarchy as Zarr 3"), ("zarr2", "the hierarchy as Zarr 2")];
    let formats = FORMATS.iter().map(|format| (format.extension, format.what));
    let value = |(name, what): (&'static str, &'static str)| PossibleValue::new(name).help(what);
    PossibleValuesParser::new(zarr.into_iter().chain(formats).map(value)).try_map(|name| match name
        .as_str()
    {
        "zarr" => Ok(Presentation::Zarr3),
        "zarr2" => Ok(Presentation::Zarr2),
        name => view_format(name).map(Presentation::View),
    })
}

/// The formats of tables, with their names and descriptions.
const TABLES: [(&str, TableForm, &str); 2] = [
    ("csv", TableForm::Csv, "comma-separated values, a row for each element"),
    ("json", TableForm::Json, "a JSON list of an object for each element"),
];

/// What `zarrfs cat` writes.
#[derive(Debug, Clone, Copy)]
pub enum CatFormat {
    /// A file of another format.
    View(&'static Format),
    /// A table.
    Table(TableForm),
}

pub fn cat_formats() -> impl TypedValueParser<Value = CatFormat> {
    let tables = TABLES.iter().map(|(name, _, what)| PossibleValue::new(*name).help(*what));
    let is_table = |format: &&Format| TABLES.iter().any(|(name, ..)| *name == format.extension);
    let views = FORMATS.iter().filter(|format| !is_table(format));
    let views = views.map(|format| PossibleValue::new(format.extension).help(format.what));
    PossibleValuesParser::new(views.chain(tables)).try_map(|name| {
        match TABLES.iter().find(|(table, ..)| *table == name) {
            Some((_, form, _)) => Ok(CatFormat::Table(*form)),
            None => view_format(&name).map(CatFormat::View),
        }
    })
}

pub fn shard_orders() -> impl TypedValueParser<Value = ShardOrder> {
    PossibleValuesParser::new(["c", "f", "morton", "arrival"])
        .try_map(|name| ShardOrder::parse(&name).map_err(|error| error.to_string()))
}

pub fn listed_views(list: &str) -> Result<ListedViews, String> {
    match list {
        "none" => Ok(ListedViews::None),
        "all" => Ok(ListedViews::All),
        list => {
            list.split([',', '+']).map(view_format).collect::<Result<_, _>>().map(ListedViews::Of)
        }
    }
}

pub fn view_format(name: &str) -> Result<&'static Format, String> {
    Format::of_extension(name).ok_or_else(|| {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.extension).collect();
        format!("unknown format {name:?}: expected none, all, or a list of {}", names.join(", "))
    })
}

pub fn codecs(text: &str) -> Result<Codecs, String> {
    Policy::parse_codecs(text).map_err(|error| error.to_string())
}

/// Parses `--shards` as in a mount, and also a shape without brackets.
pub fn shards(text: &str) -> Result<Shards, String> {
    let shape = if text.contains(',') && !text.starts_with('[') {
        format!("[{text}]")
    } else {
        text.to_owned()
    };
    Policy::parse_shards(&shape).map_err(|error| error.to_string())
}

/// Parses lengths along each dimension, `365,721,1440`, or `scalar`.
pub fn lengths(text: &str) -> Result<Lengths, String> {
    if matches!(text, "scalar" | "[]") {
        return Ok(Vec::new());
    }
    let wrong = || "expected integers such as 365,721,1440, or `scalar`".to_owned();
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    plain.split(',').map(|len| len.trim().parse().map_err(|_| wrong())).collect()
}

pub fn region(text: &str) -> Result<Region, String> {
    Region::parse(text).map_err(|error| error.to_string())
}

pub fn node_path(text: &str) -> Result<NodePath, String> {
    if text.is_empty() {
        return Err("expected the path of a node, such as climate/t2m".to_owned());
    }
    NodePath::parse(text.trim_matches('/')).map_err(|error| error.to_string())
}

pub fn attributes(text: &str) -> Result<Object, String> {
    wanted::attributes(text).map_err(|error| error.to_string())
}

/// Returns a number of bytes: `64M`, `2G`, `1000`.
pub fn size(text: &str) -> Result<u64, String> {
    policy::size(text).map_err(|error| error.to_string())
}

/// Returns a time: `1s`, `500ms`, `2m`, `0.5`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 500ms, 5s, 2m or 1h".to_owned()),
    };
    let number: f64 =
        digits.parse().map_err(|_| "expected a time such as 500ms, 5s, 2m or 1h".to_owned())?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        assert_eq!((size("64M"), size("2GiB"), size("10")), (Ok(64 << 20), Ok(2 << 30), Ok(10)));
        assert!(size("lots").is_err() && size("").is_err() && size("99999999T").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("soon").is_err() && duration("-1s").is_err());
    }
}
