//! A variable: an array in a type of netCDF.

use std::collections::HashSet;

use super::attributes;
use super::attributes::{Attribute, AttributeValues, Many, Origin, cleaned};
use super::dimensions::Dimensions;
use super::exact::exactly;
use super::names::{clean, unused};
use crate::array::Array;
use crate::dtype::{DType, Time};
use crate::error::{Error, Result};
use crate::metadata::FILL;
use crate::view::layout::{Layout, NumberForm};
use crate::view::source::ViewSource;
use crate::width::{ToU64, ToUsize};

/// The attribute for a second missing value, beside [`FILL`].
const MISSING: &str = "missing_value";

/// The attribute with the encoding of strings that are stored as characters.
pub(crate) const ENCODING: &str = "_Encoding";

/// Returns the form of an array in a file format; fails if the format has none.
pub(crate) type FormOf<'f, 's> = dyn FnMut(&ViewSource<'s>) -> Result<FileElements> + 'f;

/// Attributes by which readers decode numbers to other numbers or times.
const OF_TIMES: [&str; 5] = ["units", "calendar", "scale_factor", "add_offset", "_Unsigned"];

/// The most bytes of an array to convert to another type.
const MAX_LEN: u64 = 4 << 20;

/// The most chunks of an array to read for a conversion.
const MAX_CHUNKS: u64 = 1024;

/// The most bytes of converted values in a file.
const MAX_ROOM: u64 = 32 << 20;

/// The number of bytes of converted values that a file can still take.
#[derive(Debug)]
pub(crate) struct ConversionBudget(u64);

impl Default for ConversionBudget {
    fn default() -> Self {
        Self(MAX_ROOM)
    }
}

impl ConversionBudget {
    fn take(&mut self, len: usize) -> Result<()> {
        let left = u64::try_from(len).ok().and_then(|len| self.0.checked_sub(len));
        self.0 = left.ok_or_else(|| {
            let what = "of values whose types the format lacks";
            Error::unsupported(format!("the file would have more than {MAX_ROOM} bytes {what}"))
        })?;
        Ok(())
    }
}

/// A variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'s> {
    /// The name.
    pub name: String,
    /// The type of its elements in the file: integers and floats, or `Bytes(1)`, a character.
    pub dtype: DType,
    /// The numbers of the dimensions.
    pub dimensions: Vec<usize>,
    /// The attributes.
    pub attributes: Vec<Attribute>,
    /// The elements.
    pub data: Data,
    /// The array.
    pub source: ViewSource<'s>,
    /// The properties that the variable has in another form than the array.
    pub changes: Vec<String>,
}

/// The elements of a variable.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    /// The elements of the array.
    Elements,
    /// Converted values, little endian and in C order.
    Values(Vec<u8>),
}

/// The form in which a file format holds the elements of an array.
#[derive(Debug, Clone)]
pub(crate) struct FileElements {
    /// The type of the elements.
    pub dtype: DType,
    /// The elements.
    pub data: Data,
    /// The attributes that describe the conversion.
    pub added: Vec<Attribute>,
    /// The length of the dimension for the characters of strings, if the variable has one.
    pub chars: Option<u64>,
    /// The form of the elements, if it is not that of the array.
    pub change: Option<&'static str>,
}

impl FileElements {
    /// Returns the form in netCDF. Fails if netCDF has no type for it.
    pub fn of(source: &ViewSource<'_>, room: &mut ConversionBudget) -> Result<Self> {
        let model = source.array()?.model();
        let mut form = Self::elements(model.dtype.clone());
        match &model.dtype {
            // A single byte is a character, as in the netCDF files that such arrays come from.
            DType::Int(_) | DType::Uint(_) | DType::Float(4 | 8) | DType::Bytes(1) => {}
            DType::Bool => {
                form.added.push(Attribute::text("dtype", "bool"));
                form.dtype = DType::Int(1);
                form.change = Some("as int8, with the attribute dtype");
            }
            DType::Float(2) => {
                let (from, to) = (DType::Float(2), DType::Float(4));
                let values = exactly(&small_values(source, room)?, &from, &to);
                form.data = Data::Values(values.ok_or_else(|| Error::unsupported("no singles"))?);
                form.dtype = to;
                form.change = Some("as float32");
            }
            DType::Time(time) => {
                form.added.extend(time_attributes(*time)?);
                form.dtype = DType::Int(8);
                form.change = Some("as int64, with the attribute units");
            }
            DType::Bytes(len) => {
                form.chars = Some(u64::from(*len));
                form.dtype = DType::Bytes(1);
                form.change = Some("as characters, along one more dimension");
            }
            DType::Utf32(_) | DType::String => {
                let (values, len) = characters(source, room)?;
                form.data = Data::Values(values);
                form.chars = Some(len);
                form.added.push(Attribute::text(ENCODING, "utf-8"));
                form.dtype = DType::Bytes(1);
                form.change = Some("as characters, along one more dimension");
            }
            other => {
                return Err(Error::unsupported(format!("netCDF has no type for {}", other.name())));
            }
        }
        if let Data::Elements = form.data {
            // Fails if the array has no file of elements.
            source.elements(Layout::Linear, NumberForm::default())?;
        }
        Ok(form)
    }

    /// Returns the form of elements that are not converted.
    pub fn elements(dtype: DType) -> Self {
        Self { dtype, data: Data::Elements, added: Vec::new(), chars: None, change: None }
    }
}

impl<'s> Variable<'s> {
    /// Returns an array as a variable. Fails if `form_of` does.
    pub fn of(
        source: &ViewSource<'s>,
        dimensions: &mut Dimensions,
        form_of: &mut FormOf<'_, 's>,
    ) -> Result<Self> {
        let array = source.array()?;
        if let Some(error) = array.not_understood() {
            return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
        }
        let model = array.model();
        let FileElements { dtype, data, added, chars, change } = form_of(source)?;
        if model.shape.iter().any(|len| i64::try_from(*len).is_err()) {
            return Err(Error::unsupported("it has more elements than netCDF can count"));
        }
        let mut numbers = dimensions.claim(source)?;
        if let Some(len) = chars {
            numbers.push(dimensions.number(format!("string{len}"), len));
        }
        let has_type = match dtype {
            DType::Bytes(_) => chars.is_none(),
            DType::String => false,
            _ => true,
        };
        let all = attributes(source.attributes(), Some(&model.dtype).filter(|_| has_type));
        let mut all = cleaned(all);
        for attribute in &mut all {
            if attribute.is_of_the_type {
                attribute.retype(&model.dtype, &dtype)?;
            }
        }
        add_converted(&mut all, added, &model.dtype);
        let (name, source) = (clean(source.name()), source.clone());
        let change = change.map(|form| format!("type {} ({form})", model.dtype.name()));
        let changes = change.into_iter().collect();
        Ok(Self { name, dtype, dimensions: numbers, attributes: all, data, source, changes })
    }

    /// Returns the values of a variable that is small enough for a header.
    pub fn values(&self, room: &mut ConversionBudget) -> Result<Vec<u8>> {
        match &self.data {
            Data::Values(values) => Ok(values.clone()),
            Data::Elements => small_values(&self.source, room),
        }
    }

    /// Returns the variable with elements and attributes converted to the type `to`; `None` if one
    /// would change.
    pub fn exactly(&self, values: &[u8], to: &DType) -> Option<Self> {
        let data = Data::Values(exactly(values, &self.dtype, to)?);
        let mut changes = self.changes.clone();
        changes.push(format!("type {} (as {})", self.dtype.name(), to.name()));
        let mut attributes = self.attributes.clone();
        for attribute in attributes.iter_mut().filter(|attribute| attribute.is_of_the_type) {
            attribute.retype(&self.dtype, to).ok()?;
        }
        Some(Self { dtype: to.clone(), attributes, data, changes, ..self.clone() })
    }
}

impl Attribute {
    /// Converts the elements, and those in attributes, to another type.
    fn retype(&mut self, from: &DType, to: &DType) -> Result<()> {
        let AttributeValues::Numbers(dtype, bytes, _) = &mut self.values else { return Ok(()) };
        // Booleans become bytes, and times integers.
        if !matches!(from, DType::Bool | DType::Time(_)) {
            let changed = exactly(bytes, from, to);
            let error = || {
                let text = format!("{} is not a valid {} in it", self.name, to.name());
                Error::unsupported(text)
            };
            *bytes = changed.ok_or_else(error)?;
        }
        *dtype = to.clone();
        Ok(())
    }
}

/// Adds the attributes that describe converted elements.
fn add_converted(all: &mut Vec<Attribute>, mut added: Vec<Attribute>, dtype: &DType) {
    let has = |all: &[Attribute], name: &str| all.iter().any(|own| own.name == name);
    // The array may already have another missing value; then the file has both.
    if has(all, FILL) {
        added.iter_mut().filter(|new| new.name == FILL).for_each(|new| {
            MISSING.clone_into(&mut new.name);
        });
    }
    if has(all, MISSING) {
        added.retain(|new| new.name != MISSING);
    }
    set_aside(all, &added, dtype);
    added.retain(|new| !has(all, &new.name));
    all.extend(added);
}

/// Appends an underscore to the names of attributes of an array that would be wrong in the file,
/// because elements were converted: those that differ from the attributes in `added` and, for
/// times, those by which readers decode numbers.
pub(crate) fn set_aside(all: &mut [Attribute], added: &[Attribute], dtype: &DType) {
    let of_times: &[&str] = match dtype {
        // Time spans without a unit are numbers.
        DType::Time(time) if time.unit != "generic" => &OF_TIMES,
        _ => &[],
    };
    let mut names: HashSet<String> = all.iter().map(|own| own.name.clone()).collect();
    names.extend(added.iter().map(|new| new.name.clone()));
    for own in all {
        let is_wrong = match added.iter().find(|new| new.name == own.name) {
            Some(new) => new.values != own.values,
            None => of_times.contains(&own.name.as_str()),
        };
        if is_wrong {
            own.rename(unused(&mut names, format!("{}_", own.name)));
        }
    }
}

/// Returns the attributes that describe integers as times.
fn time_attributes(time: Time) -> Result<Vec<Attribute>> {
    let unit = match (time.unit, time.scale) {
        ("D", 1) => "days",
        ("h", 1) => "hours",
        ("m", 1) => "minutes",
        ("s", 1) => "seconds",
        ("ms", 1) => "milliseconds",
        ("us", 1) => "microseconds",
        ("ns", 1) => "nanoseconds",
        ("generic", 1) if time.is_span => return Ok(Vec::new()),
        (unit, scale) => {
            let detail = format!("netCDF cannot express times in steps of {scale} {unit}");
            return Err(Error::unsupported(detail));
        }
    };
    let none = AttributeValues::Numbers(DType::Int(8), i64::MIN.to_le_bytes().to_vec(), Many::Yes);
    let origin = Origin::default();
    let fill = Attribute { name: FILL.to_owned(), values: none, is_of_the_type: true, origin };
    Ok(if time.is_span {
        vec![Attribute::text("units", unit), fill]
    } else {
        let since = format!("{unit} since 1970-01-01");
        let calendar = Attribute::text("calendar", "proleptic_gregorian");
        vec![Attribute::text("units", since), calendar, fill]
    })
}

/// Returns the strings of an array as characters in UTF-8, padded with NUL to the longest, and the
/// length of the longest.
pub(crate) fn characters(
    source: &ViewSource<'_>,
    room: &mut ConversionBudget,
) -> Result<(Vec<u8>, u64)> {
    check_small(source)?;
    let texts = source.texts()?;
    let longest = texts.iter().map(Vec::len).max().unwrap_or_default().max(1);
    let len = texts.len().checked_mul(longest).and_then(|len| u64::try_from(len).ok());
    if len.is_none_or(|len| len > MAX_LEN) {
        return Err(Error::unsupported("its strings are too long for a character array"));
    }
    room.take(texts.len().saturating_mul(longest))?;
    let mut values = Vec::new();
    for text in texts {
        let end = values.len().saturating_add(longest);
        values.extend(text);
        values.resize(end, 0);
    }
    Ok((values, longest.to_u64()))
}

/// Returns the values of a small array, little endian and in C order.
fn small_values(source: &ViewSource<'_>, room: &mut ConversionBudget) -> Result<Vec<u8>> {
    check_small(source)?;
    let len = source.elements(Layout::Linear, NumberForm::default())?.len();
    room.take(len.to_usize())?;
    source.values()
}

fn check_small(source: &ViewSource<'_>) -> Result<()> {
    let array: &Array = source.array()?;
    let model = array.model();
    let item_len = model.dtype.item_len().to_u64().max(1);
    let product =
        |lens: &[u64], first| lens.iter().try_fold(first, |all: u64, n| all.checked_mul(*n));
    let is_small = model.shape.contains(&0)
        || product(&model.shape, item_len).is_some_and(|len| len <= MAX_LEN)
            && product(array.grid().counts(), 1).is_some_and(|count| count <= MAX_CHUNKS);
    if is_small {
        return Ok(());
    }
    let name = model.dtype.name();
    Err(Error::unsupported(format!(
        "netCDF has no type for {name}, and it is too large to convert to another"
    )))
}
