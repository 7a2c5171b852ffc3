//! References that a file does not list, but describes (`gen`): for each combination of the values
//! of some names a key and a place.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::expression::{ExpressionValue, MAX_TEXT_LEN};
use super::templates::Templates;
use crate::refs::table::{Added, Builder, MAX_COUNT};
use zarrfs_base::error::{Error, Result, WithSubject};

/// The longest list `gen`, in bytes: in memory it takes some times that.
const MAX_LEN: usize = 8 << 20;

/// The most names of a generator.
const MAX_DIMENSIONS: usize = 64;

/// References that differ by the values of some names.
#[derive(Debug)]
pub(super) struct Generator {
    key: String,
    url: String,
    /// The offset and the length, unless they are whole values.
    part: Option<(NumberText, NumberText)>,
    dimensions: Vec<(String, NameValues)>,
}

/// A number, or a text that makes one.
#[derive(Debug)]
enum NumberText {
    Fixed(u64),
    Text(String),
}

/// The values of a name.
#[derive(Debug)]
enum NameValues {
    /// Integers: the first, the distance of two, and how many.
    Range { start: i64, step: i64, count: usize },
    /// A list.
    List(Vec<ExpressionValue>),
}

impl NameValues {
    fn parse(json: &Json) -> Option<Self> {
        let as_value = |json: &Json| match json {
            Json::String(text) => {
                (text.len() <= MAX_TEXT_LEN).then(|| ExpressionValue::Text(text.clone()))
            }
            other => other.as_i64().map(ExpressionValue::Number),
        };
        if let Some(list) = json.as_array() {
            return list.iter().map(as_value).collect::<Option<_>>().map(Self::List);
        }
        let object = json.as_object()?;
        let member = |name: &str, or: i64| object.get(name).map_or(Some(or), Json::as_i64);
        let (start, step) = (member("start", 0)?, member("step", 1)?);
        let stop = object.get("stop")?.as_i64()?;
        let count = i128::from(stop).saturating_sub(start.into());
        let step = (step > 0).then_some(step)?;
        let last = i128::from(step).saturating_sub(1);
        let count = count.max(0).saturating_add(last).checked_div(step.into())?;
        Some(Self::Range { start, step, count: usize::try_from(count).ok()? })
    }

    fn count(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(list) => list.len(),
        }
    }

    fn get(&self, index: usize) -> Option<ExpressionValue> {
        match self {
            Self::Range { start, step, .. } => {
                let distance = i64::try_from(index).ok()?.checked_mul(*step)?;
                start.checked_add(distance).map(ExpressionValue::Number)
            }
            Self::List(list) => list.get(index).cloned(),
        }
    }
}

impl Generator {
    /// Parses the list `gen`.
    pub fn parse_all(json: &str) -> Result<Vec<Self>> {
        if json.len() > MAX_LEN {
            let detail = format!("`gen` has {} bytes, the limit is {MAX_LEN}", json.len());
            return Err(Error::too_large(detail));
        }
        let list: Vec<Map<String, Json>> = serde_json::from_str(json)
            .map_err(|error| Error::corrupt(format!("`gen` is not a list of objects: {error}")))?;
        list.iter().map(Self::parse).collect()
    }

    fn parse(object: &Map<String, Json>) -> Result<Self> {
        let wrong = |name: &str| Error::corrupt(format!("`gen`: missing or invalid {name:?}"));
        let text = |name: &str| {
            let text = object.get(name).and_then(Json::as_str);
            text.map(str::to_owned).ok_or_else(|| wrong(name))
        };
        let number = |name: &str| match object.get(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(NumberText::Text(text.clone()))),
            Some(number) => {
                number.as_u64().map(|it| Some(NumberText::Fixed(it))).ok_or_else(|| wrong(name))
            }
        };
        let part = match (number("offset")?, number("length")?) {
            (Some(offset), Some(length)) => Some((offset, length)),
            (None, None) => None,
            _ => return Err(Error::corrupt("`gen` has an offset or a length, but not both")),
        };
        let mut dimensions = Vec::new();
        let named = object.get("dimensions").and_then(Json::as_object);
        for (name, values) in named.ok_or_else(|| wrong("dimensions"))? {
            let values = NameValues::parse(values).ok_or_else(|| wrong(name))?;
            dimensions.push((name.clone(), values));
        }
        if dimensions.len() > MAX_DIMENSIONS {
            return Err(Error::too_large(format!("`gen` has more than {MAX_DIMENSIONS} names")));
        }
        Ok(Self { key: text("key")?, url: text("url")?, part, dimensions })
    }

    /// Adds all references.
    pub fn make(&self, templates: &Templates, builder: &mut Builder) -> Result<()> {
        let counts = self.dimensions.iter().map(|(_, values)| values.count());
        let total = counts.clone().try_fold(1_usize, usize::checked_mul);
        let free = MAX_COUNT.saturating_sub(builder.count());
        let Some(total) = total.filter(|total| *total <= free) else {
            return Err(Error::too_large(format!("`gen` makes more than {MAX_COUNT} references")));
        };
        for index in 0..total {
            let (mut rest, mut names) = (index, HashMap::new());
            for (name, values) in self.dimensions.iter().rev() {
                let count = values.count();
                if let Some(value) = rest.checked_rem(count).and_then(|at| values.get(at)) {
                    let text_len =
                        if let ExpressionValue::Text(text) = &value { text.len() } else { 0 };
                    templates.take_work(name.len().saturating_add(text_len))?;
                    names.insert(name.clone(), value);
                }
                rest = rest.checked_div(count).unwrap_or_default();
            }
            self.make_one(templates, &names, builder)?;
        }
        Ok(())
    }

    fn make_one(
        &self,
        templates: &Templates,
        names: &HashMap<String, ExpressionValue>,
        builder: &mut Builder,
    ) -> Result<()> {
        let key = templates.render_with(&self.key, names)?;
        let location = &templates.render_with(&self.url, names)?;
        let number = |number: &NumberText| match number {
            NumberText::Fixed(number) => Ok(*number),
            NumberText::Text(text) => {
                let text = templates.render_with(text, names)?;
                let wrong = || Error::corrupt(format!("`gen`: {text:?} is no offset or length"));
                text.trim().parse().map_err(|_| wrong())
            }
        };
        match &self.part {
            Some((offset, length)) => {
                let (offset, len) = (number(offset).at(&key)?, number(length).at(&key)?);
                builder.add(&key, Added::Part { location, offset, len })
            }
            None => builder.add(&key, Added::Whole { location }),
        }
    }
}
