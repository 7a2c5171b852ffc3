//! The values of a column, one after the other.

use serde_json::Value;

use super::csv_text;
use crate::dtype::{DType, Element, time_text};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::Packing;
use crate::selection::coordinates_of;
use crate::times::{TimeUnits, is_since};
use crate::view::{ElementRange, GetChunk, Layout, NumberForm, ViewSource};
use crate::width::{ToU64, ToUsize};

/// How many bytes of elements are read at a time, if no row of chunks has more.
const STEP: u64 = 1 << 20;

/// The most coordinates of a dimension, which are kept in memory.
const MAX_COORDINATES: u64 = 1 << 20;

/// The most bytes of elements that are read at a time.
const MAX_STEP: u64 = 64 << 20;

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TableField {
    /// There is none.
    Missing,
    /// A number, as text.
    Number(String),
    /// A Boolean value.
    Bool(bool),
    /// A text, or a time.
    Text(String),
}

impl TableField {
    pub fn in_csv(&self) -> String {
        match self {
            Self::Missing => String::new(),
            Self::Number(text) => text.clone(),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => csv_text(text),
        }
    }

    pub fn in_json(&self) -> String {
        match self {
            Self::Missing => "null".to_owned(),
            // JSON has no infinite numbers.
            Self::Number(text) if text.ends_with("inf") => format!("\"{text}\""),
            Self::Number(text) => text.clone(),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => Value::from(text.as_str()).to_string(),
        }
    }
}

/// A column of a table.
pub(super) struct TableColumn<'s> {
    pub name: String,
    source: ColumnSource<'s>,
}

/// Where the values of a column are.
enum ColumnSource<'s> {
    /// The indices of a dimension without coordinates.
    Indices,
    /// Fields in memory.
    Fields(Vec<TableField>),
    /// Elements of an array.
    Elements(Box<Elements<'s>>),
}

/// Elements of an array, and what reads their chunks.
struct Elements<'s> {
    range: ElementRange,
    get: &'s GetChunk<'s>,
    form: ElementForm,
}

/// How elements become fields.
#[derive(Debug, Clone)]
struct ElementForm {
    dtype: DType,
    packing: Packing,
    units: Option<TimeUnits>,
}

impl<'s> TableColumn<'s> {
    /// Returns the indices of a dimension.
    pub fn of_indices(name: &str) -> Self {
        Self { name: name.to_owned(), source: ColumnSource::Indices }
    }

    /// Returns the coordinates of a dimension of an array, or its indices.
    pub fn of_dimension(source: &ViewSource<'s>, name: &str, len: u64) -> Result<Self> {
        let name = name.to_owned();
        let Some(coordinates) = coordinates_of(source, &name, len)? else {
            return Ok(Self::of_indices(&name));
        };
        if len > MAX_COORDINATES {
            let detail = format!("a dimension of more than {MAX_COORDINATES} coordinates");
            return Err(Error::unsupported(detail));
        }
        let column = Self::of_array(&coordinates).at(coordinates.path())?;
        let mut values = column.values();
        let mut fields = Vec::new();
        for _ in 0..len {
            fields.push(values.next()?);
        }
        // Days without a time of day.
        let midnight = "T00:00:00";
        let is_day = |field: &TableField| match field {
            TableField::Text(text) => text.ends_with(midnight),
            other => *other == TableField::Missing,
        };
        if column.has_times() && fields.iter().all(is_day) {
            for field in &mut fields {
                if let TableField::Text(text) = field {
                    text.truncate(text.len().saturating_sub(midnight.len()));
                }
            }
        }
        Ok(Self { name, source: ColumnSource::Fields(fields) })
    }

    /// Returns the values of an array.
    pub fn of_array(source: &ViewSource<'s>) -> Result<Self> {
        let name = source.name().to_owned();
        let model = source.array()?.model();
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            TableField::Text(text.trim_end_matches('\0').to_owned())
        };
        let fields = |fields| Ok(Self { name: name.clone(), source: ColumnSource::Fields(fields) });
        match &model.dtype {
            DType::String | DType::Utf32(_) => {
                return fields(source.texts()?.iter().map(|one| text(one)).collect());
            }
            DType::Bytes(_) => {
                let bytes = source.values()?;
                return fields(
                    bytes.chunks_exact(model.dtype.item_len().max(1)).map(text).collect(),
                );
            }
            DType::Bool | DType::Int(_) | DType::Uint(_) | DType::Float(_) | DType::Time(_) => {}
            other => {
                let detail = format!("elements of type {} are no fields of a table", other.name());
                return Err(Error::unsupported(detail));
            }
        }
        let attribute = |name: &str| model.attributes.get(name).and_then(|value| value.as_str());
        let units = attribute("units").filter(|units| is_since(units));
        let units = units.and_then(|units| TimeUnits::parse(units, attribute("calendar")));
        let form = ElementForm {
            dtype: model.dtype.clone(),
            packing: Packing::of(&model.dtype, &model.attributes),
            units: units.filter(|_| !matches!(model.dtype, DType::Time(_))),
        };
        let range = source.elements(Layout::Linear, NumberForm::default())?;
        let get = source.get_chunk();
        let elements = Box::new(Elements { range, get, form });
        Ok(Self { name, source: ColumnSource::Elements(elements) })
    }

    /// Returns a field of a dimension.
    pub fn field(&self, index: usize) -> TableField {
        match &self.source {
            ColumnSource::Fields(fields) => {
                fields.get(index).cloned().unwrap_or(TableField::Missing)
            }
            ColumnSource::Indices | ColumnSource::Elements(_) => {
                TableField::Number(index.to_string())
            }
        }
    }

    /// Returns the fields in order.
    pub fn values(&self) -> Values<'_> {
        Values { column: self, at: 0, read: Vec::new(), read_from: 0 }
    }

    fn has_times(&self) -> bool {
        match &self.source {
            ColumnSource::Elements(elements) => {
                let form = &elements.form;
                form.units.is_some() || matches!(form.dtype, DType::Time(time) if !time.is_span)
            }
            ColumnSource::Indices | ColumnSource::Fields(_) => false,
        }
    }
}

/// Reads a column in order.
pub(super) struct Values<'c> {
    column: &'c TableColumn<'c>,
    /// The number of the next element.
    at: usize,
    /// Some elements, and the number of the first.
    read: Vec<u8>,
    read_from: usize,
}

impl Values<'_> {
    /// Returns the next field.
    pub fn next(&mut self) -> Result<TableField> {
        let at = self.at;
        self.at = at.saturating_add(1);
        let ColumnSource::Elements(elements) = &self.column.source else {
            return Ok(self.column.field(at));
        };
        let Elements { range, get, form } = &**elements;
        let item_len = form.dtype.item_len().max(1);
        let place = |from: usize| at.saturating_sub(from).saturating_mul(item_len);
        if self.read.len() <= place(self.read_from) {
            self.read_from = at;
            let start = at.to_u64().saturating_mul(item_len.to_u64());
            let left = range.len().saturating_sub(start).to_usize();
            // Less than a row of chunks would be decoded again for the rest.
            let step = range.slab_len().unwrap_or(MAX_STEP).clamp(STEP, MAX_STEP).to_usize();
            let len = left.min((step / item_len).max(1).saturating_mul(item_len));
            self.read.resize(len, 0);
            range.read(start, &mut self.read, get)?;
        }
        let start = place(self.read_from);
        let item = self.read.get(start..start.saturating_add(item_len));
        item.map(|item| form.field(item))
            .ok_or_else(|| Error::new(Kind::Internal, "a short column"))
    }
}

impl ElementForm {
    fn field(&self, item: &[u8]) -> TableField {
        let Some(value) = self.packing.value(Element::of(&self.dtype, item)) else {
            return TableField::Missing;
        };
        let is_nan = matches!(value, Element::Float(value) if value.is_nan());
        // A time that is too far away for its calendar stays a number.
        if let Some(units) = self.units.as_ref().filter(|_| !is_nan)
            && let Some(text) = units.moment(value).and_then(|it| units.calendar.text(it))
        {
            return TableField::Text(text);
        }
        match (value, &self.dtype, item) {
            (Element::Int(value), DType::Bool, _) => TableField::Bool(value != 0),
            (Element::Int(value), DType::Time(_), _) if value == i128::from(i64::MIN) => {
                TableField::Missing
            }
            (Element::Int(value), DType::Time(time), _) => {
                TableField::Text(time_text(value, *time))
            }
            (Element::Int(value), ..) => TableField::Number(value.to_string()),
            (Element::Float(value), ..) if value.is_nan() => TableField::Missing,
            // The shortest number with this value.
            (Element::Float(_), DType::Float(4), &[a, b, c, d]) if !self.packing.is_scaled() => {
                TableField::Number(format!("{:?}", f32::from_le_bytes([a, b, c, d])))
            }
            (Element::Float(value), ..) => TableField::Number(format!("{value:?}")),
            (Element::Complex(..) | Element::Bytes, ..) => TableField::Missing,
        }
    }
}
