//! The columns of a table.

use super::field::TableField;
use super::kind::ColumnKind;
use super::values::Values;
use crate::dtype::{DType, Element, Field, time_text};
use crate::error::{Error, Result, WithSubject};
use crate::metadata::Packing;
use crate::times::{TimeUnits, is_since};
use crate::view::elements::{ElementRange, GetChunk};
use crate::view::layout::{Layout, NumberForm};
use crate::view::source::ViewSource;
use crate::view::texts::{TextRows, text_of};
use crate::width::{ToU64, ToUsize};

/// The most coordinates of a dimension, and the most categories of a column, which are kept in
/// memory.
const MAX_COORDINATES: u64 = 1 << 20;

/// The most strings in a row of an array.
const MAX_TEXTS: u64 = 1 << 20;

/// A column of a table.
#[derive(Debug)]
pub(in crate::view) struct TableColumn {
    pub name: String,
    pub kind: ColumnKind,
    pub source: ColumnSource,
}

/// Where the values of a column are.
#[derive(Debug)]
pub(in crate::view) enum ColumnSource {
    /// The indices of a dimension without coordinates.
    Indices,
    /// Fields in memory.
    Fields(Vec<TableField>),
    /// Elements of an array.
    Elements(Box<ColumnElements>),
    /// Strings of an array.
    Texts(TextRows),
    /// The numbers of categories; a negative one is that of a missing value.
    Codes(Box<ColumnElements>, Vec<TableField>),
    /// Values, and whether each is missing.
    Masked(Box<ColumnSource>, Box<ColumnSource>),
}

/// Elements of an array, or a member of each.
#[derive(Debug)]
pub(in crate::view) struct ColumnElements {
    pub range: ElementRange,
    /// The length of an element in bytes.
    pub item_len: usize,
    /// The offset of the member in an element.
    pub offset: usize,
    pub form: ElementForm,
}

/// How elements become fields.
#[derive(Debug, Clone)]
pub(in crate::view) struct ElementForm {
    pub dtype: DType,
    packing: Packing,
    units: Option<TimeUnits>,
}

impl TableColumn {
    /// Returns the indices of a dimension.
    pub fn of_indices(name: &str) -> Self {
        let kind = ColumnKind::Int(8);
        Self { name: name.to_owned(), kind, source: ColumnSource::Indices }
    }

    /// Returns the coordinates of a dimension of an array, or its indices.
    pub fn of_dimension(source: &ViewSource<'_>, name: &str, len: u64) -> Result<Self> {
        let Some(coordinates) = source.coordinates(name, len)? else {
            return Ok(Self::of_indices(name));
        };
        let column = Self::of_array(&coordinates).at(coordinates.path())?;
        let mut fields = column.fields(len, source.get_chunk())?;
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
        let kind = column.kind;
        Ok(Self { name: name.to_owned(), kind, source: ColumnSource::Fields(fields) })
    }

    /// Returns the values of an array.
    pub fn of_array(source: &ViewSource<'_>) -> Result<Self> {
        let name = source.name().to_owned();
        let model = source.array()?.model();
        if let DType::String | DType::Utf32(_) | DType::Bytes(_) = model.dtype {
            if model.shape.is_empty() && model.dtype == DType::String {
                let texts = source.texts()?.into_iter();
                let fields = texts.map(|text| TableField::Text(text_of(&text, false))).collect();
                let kind = ColumnKind::Text;
                return Ok(Self { name, kind, source: ColumnSource::Fields(fields) });
            }
            if !model.shape.is_empty() {
                let texts = TextRows::new(source)?;
                if texts.width() > MAX_TEXTS {
                    let detail = format!("a row of more than {MAX_TEXTS} strings");
                    return Err(Error::unsupported(detail));
                }
                let kind = ColumnKind::Text;
                return Ok(Self { name, kind, source: ColumnSource::Texts(texts) });
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
        let kind = form.kind();
        let elements = ColumnElements::new(source, 0, form)?;
        Ok(Self { name, kind, source: ColumnSource::Elements(Box::new(elements)) })
    }

    /// Returns a column for each field of an array of structures.
    pub fn of_fields(source: &ViewSource<'_>, fields: &[Field]) -> Result<Vec<Self>> {
        let mut offset = 0_usize;
        let mut columns = Vec::new();
        for field in fields {
            if !field.shape.is_empty() {
                let detail = format!("field {} is an array, which has no text", field.name);
                return Err(Error::unsupported(detail));
            }
            let form =
                ElementForm { dtype: field.dtype.clone(), packing: Packing::none(), units: None };
            let kind = form.kind();
            let elements = ColumnElements::new(source, offset, form)?;
            let source = ColumnSource::Elements(Box::new(elements));
            columns.push(Self { name: field.name.clone(), kind, source });
            offset = offset.saturating_add(field.dtype.item_len());
        }
        Ok(columns)
    }

    /// Returns categories by their numbers.
    pub fn of_codes(
        name: &str,
        codes: &ViewSource<'_>,
        categories: &ViewSource<'_>,
    ) -> Result<Self> {
        let column = Self::of_array(categories)?;
        let count = categories.array()?.model().shape.first().copied().unwrap_or_default();
        let fields = column.fields(count, categories.get_chunk())?;
        let dtype = codes.array()?.model().dtype.clone();
        if !matches!(dtype, DType::Int(_) | DType::Uint(_)) {
            return Err(Error::unsupported("its codes are no integers"));
        }
        let form = ElementForm { dtype, packing: Packing::none(), units: None };
        let codes = Box::new(ColumnElements::new(codes, 0, form)?);
        let (name, kind) = (name.to_owned(), column.kind);
        Ok(Self { name, kind, source: ColumnSource::Codes(codes, fields) })
    }

    /// Returns values without those that a mask has.
    pub fn of_masked(name: &str, values: &ViewSource<'_>, mask: &ViewSource<'_>) -> Result<Self> {
        if mask.array()?.model().dtype != DType::Bool {
            return Err(Error::unsupported("its mask is not Boolean"));
        }
        let (values, mask) = (Self::of_array(values)?, Self::of_array(mask)?.source);
        let source = ColumnSource::Masked(Box::new(values.source), Box::new(mask));
        Ok(Self { name: name.to_owned(), kind: values.kind, source })
    }

    /// Returns all fields. Fails if they are too many.
    fn fields(&self, count: u64, get: &GetChunk<'_>) -> Result<Vec<TableField>> {
        if count > MAX_COORDINATES {
            let detail = format!("more than {MAX_COORDINATES} coordinates or categories");
            return Err(Error::unsupported(detail));
        }
        let mut values = self.values(0, count);
        (0..count).map(|_| values.next(get)).collect()
    }

    /// Returns a field of a dimension.
    pub fn field(&self, index: u64) -> TableField {
        match &self.source {
            ColumnSource::Fields(fields) => {
                fields.get(index.to_usize()).cloned().unwrap_or(TableField::Missing)
            }
            _ => TableField::Number(index.to_string()),
        }
    }

    /// Returns the fields from the row `from` up to `until`, in order.
    pub fn values(&self, from: u64, until: u64) -> Values<'_> {
        Values::new(&self.source, from, until)
    }

    fn has_times(&self) -> bool {
        match &self.source {
            ColumnSource::Elements(elements) => {
                let form = &elements.form;
                form.units.is_some() || matches!(form.dtype, DType::Time(time) if !time.is_span)
            }
            _ => false,
        }
    }
}

impl ColumnSource {
    /// Returns the elements that it is made from.
    pub fn elements(&self) -> Vec<&ElementRange> {
        match self {
            Self::Indices | Self::Fields(_) => Vec::new(),
            Self::Elements(elements) | Self::Codes(elements, _) => vec![&elements.range],
            Self::Texts(texts) => vec![texts.elements()],
            Self::Masked(values, mask) => [values.elements(), mask.elements()].concat(),
        }
    }
}

impl ColumnElements {
    fn new(source: &ViewSource<'_>, offset: usize, form: ElementForm) -> Result<Self> {
        match &form.dtype {
            DType::Bool
            | DType::Int(_)
            | DType::Uint(_)
            | DType::Float(_)
            | DType::Time(_)
            | DType::Utf32(_)
            | DType::Bytes(_) => {}
            other => {
                let detail = format!("elements of type {} are no fields of a table", other.name());
                return Err(Error::unsupported(detail));
            }
        }
        let range = source.elements(Layout::Linear, NumberForm::default())?;
        let item_len = source.array()?.model().dtype.item_len().max(1);
        Ok(Self { range, item_len, offset, form })
    }

    /// Returns the bytes of the field in an element.
    pub fn member<'i>(&self, item: &'i [u8]) -> &'i [u8] {
        let end = self.offset.saturating_add(self.form.dtype.item_len());
        item.get(self.offset..end).unwrap_or_default()
    }

    /// Returns the offset of an element.
    pub fn start(&self, row: u64) -> u64 {
        row.saturating_mul(self.item_len.to_u64())
    }
}

impl ElementForm {
    fn kind(&self) -> ColumnKind {
        ColumnKind::of(&self.packing.value_type(&self.dtype), self.units.as_ref())
    }

    pub fn field(&self, item: &[u8]) -> TableField {
        if let DType::Utf32(_) | DType::Bytes(_) = self.dtype {
            return TableField::Text(text_of(item, matches!(self.dtype, DType::Utf32(_))));
        }
        let Some(value) = self.packing.value(Element::of(&self.dtype, item)) else {
            return TableField::Missing;
        };
        let is_nan = matches!(value, Element::Float(value) if value.is_nan());
        // As xarray stores a time that is missing.
        let is_missing = matches!(value, Element::Int(value) if value == i128::from(i64::MIN));
        if is_missing && self.units.is_some() {
            return TableField::Missing;
        }
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
