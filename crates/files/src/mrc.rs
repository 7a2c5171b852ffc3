//! MRC and CCP4: a header of 1024 bytes, an extended header, and the elements.
//!
//! The array has sections, rows and columns, and volumes before them if the file has several.
//!
//! <https://www.ccpem.ac.uk/mrc-format/mrc2014/>

use serde_json::{Value, json};

use crate::cursor::FixedFields;
use crate::described::{Described, DescribedArray, bytes_codec, zero_of};
use crate::image::{self, ImageAxis};
use crate::json::single;
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;
use zarrfs_codec::json::Object;

/// The length of the header.
const LEN: usize = 1024;

/// Describes the image of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let fields = FixedFields::new(file.read(0, LEN)?, false);
    let fields = FixedFields::new(file.read(0, LEN)?, is_big(&fields));
    let path = file.stem();
    let (shape, axes) = shape(&fields)?;
    described.group("", image::attributes(path, &axes))?;
    let extended = u64::try_from(fields.i32(92)).unwrap_or_default();
    let array = DescribedArray {
        chunk_shape: shape.iter().map(|len| (*len).max(1)).collect(),
        shape: shape.clone(),
        data_type: json!("uint8"),
        fill_value: json!(0),
        dimension_names: Some(image::names(&axes)),
        attributes: shown(&fields),
        ..DescribedArray::default()
    };
    let describe = |(name, item_len): (&'static str, u64)| {
        let array = DescribedArray {
            data_type: json!(name),
            fill_value: zero_of(name),
            codecs: vec![bytes_codec(fields.is_big())],
            ..array.clone()
        };
        let offset = LEN.to_u64().saturating_add(extended);
        let place = Stored { shape: &shape, item_len, offset, is_reversed: false };
        pieces::check_end(place, file)?;
        pieces::describe(described, path, array, place)
    };
    let result = element(fields.i32(12)).and_then(describe);
    described.or_unread(path, array, result)
}

/// Whether numbers are in big-endian order, as the machine stamp says, or else the mode.
fn is_big(little: &FixedFields) -> bool {
    match little.bytes(212, 2) {
        [0x11, 0x11] => true,
        [0x44, 0x44 | 0x41] => false,
        _ => !(0..=127).contains(&little.i32(12)),
    }
}

/// Whether these first bytes may be those of a file without a signature.
pub fn may_be(first: &[u8]) -> bool {
    let little = FixedFields::new(first.to_vec().into(), false);
    let fields = FixedFields::new(first.to_vec().into(), is_big(&little));
    let has_lens = [0, 4, 8].into_iter().all(|at| (1..1 << 20).contains(&fields.i32(at)));
    let axes = [64, 68, 72].map(|at| fields.i32(at));
    let has_axes = axes == [0; 3] || axes.iter().all(|axis| (1..=3).contains(axis));
    has_lens && has_axes && matches!(fields.i32(12), 0..=4 | 6 | 12 | 101)
}

/// Returns the shape and the axes, the slowest first.
fn shape(fields: &FixedFields) -> Result<(Vec<u64>, Vec<ImageAxis>)> {
    let len = |at: usize| {
        let len = fields.i32(at);
        let wrong = |_| Error::corrupt(format!("the header of MRC has the length {len}"));
        u64::try_from(len).map_err(wrong)
    };
    let (x, y, z, depth) = (len(0)?, len(4)?, len(8)?, fields.i32(36));
    let group = fields.i32(88);
    // The columns, rows and sections may run along any of the axes.
    let names = [64, 68, 72].map(|at| match fields.i32(at) {
        1 => "x",
        2 => "y",
        3 => "z",
        _ => "",
    });
    let names = if names.contains(&"") { ["x", "y", "z"] } else { names };
    let axis = |index: usize| {
        let name = names.get(index).copied().unwrap_or("x");
        let along = match name {
            "x" => 0,
            "y" => 4,
            _ => 8_usize,
        };
        let cell = f64::from(fields.f32(along.saturating_add(40)));
        let count = fields.i32(along.saturating_add(28));
        let step = (count > 0 && cell > 0.0).then(|| cell / f64::from(count));
        let start = f64::from(fields.f32(along.saturating_add(196)));
        let unit = step.map(|_| "angstrom".to_owned());
        ImageAxis { unit, step, start, ..ImageAxis::space(name) }
    };
    let other = |name: &str| ImageAxis { name: name.to_owned(), ..ImageAxis::default() };
    let (columns, rows, sections) = (axis(0), axis(1), axis(2));
    Ok(if (401..=630).contains(&group) {
        let depth = u64::try_from(depth).ok().filter(|depth| *depth > 0);
        let depth = depth.ok_or_else(|| Error::corrupt("the header of MRC has no depth"))?;
        let volumes = z.checked_div(depth).unwrap_or_default();
        (vec![volumes, depth, y, x], vec![other("volume"), sections, rows, columns])
    } else if group == 0 && z == 1 {
        (vec![y, x], vec![rows, columns])
    } else if group == 0 && depth == 1 {
        (vec![z, y, x], vec![other("image"), rows, columns])
    } else {
        (vec![z, y, x], vec![sections, rows, columns])
    })
}

/// Returns the type of elements of a mode, and its length in bytes.
fn element(mode: i32) -> Result<(&'static str, u64)> {
    Ok(match mode {
        0 => ("int8", 1),
        1 => ("int16", 2),
        2 => ("float32", 4),
        4 => ("complex64", 8),
        6 => ("uint16", 2),
        12 => ("float16", 2),
        3 => return Err(Error::unsupported("MRC mode 3, complex numbers of two 16-bit integers")),
        101 => return Err(Error::unsupported("MRC mode 101, integers of 4 bits")),
        other => return Err(Error::unsupported(format!("MRC mode {other}"))),
    })
}

/// Returns what the header says beside the shape.
fn shown(fields: &FixedFields) -> Object {
    let mut shown = Object::new();
    let floats = |from: usize| -> Value {
        [0, 4, 8].iter().map(|at| single(fields.f32(from.saturating_add(*at)))).collect()
    };
    let ints = |from: usize| -> Value {
        [0, 4, 8].iter().map(|at| json!(fields.i32(from.saturating_add(*at)))).collect()
    };
    let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    add("nstart", ints(16));
    add("cella", floats(40));
    add("cellb", floats(52));
    add("origin", floats(196));
    for (name, at) in [("dmin", 76), ("dmax", 80), ("dmean", 84), ("rms", 216)] {
        add(name, single(fields.f32(at)));
    }
    if fields.i32(92) > 0 {
        let (kind, len) = (fields.text(104, 4), fields.i32(92));
        add("extended_header", json!({"type": kind, "length": len}));
    }
    add("ispg", json!(fields.i32(88)));
    let count = usize::try_from(fields.i32(220)).unwrap_or_default().min(10);
    let label = |index: usize| fields.text(index.saturating_mul(80).saturating_add(224), 80);
    add("labels", (0..count).map(label).collect());
    shown
}
