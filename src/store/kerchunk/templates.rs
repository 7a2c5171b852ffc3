//! The places in URLs that are replaced: `{{u}}/a.nc`, or `{{ f(c="t2m") }}` for a template that
//! has places itself.

use std::collections::HashMap;

use super::expression::{Names, Value, evaluate};
use crate::error::{Error, Result};

/// The longest URL or key that templates make.
const MAX_LEN: usize = 1 << 16;

/// The most templates.
const MAX_COUNT: usize = 1 << 16;

/// The templates of a file, by name.
#[derive(Debug, Default)]
pub(super) struct Templates {
    by_name: HashMap<String, String>,
}

impl Templates {
    /// Adds a template.
    pub fn add(&mut self, name: String, text: &str) -> Result<()> {
        if self.by_name.len() >= MAX_COUNT || text.len() > MAX_LEN {
            return Err(Error::too_large("too many templates, or one that is too long"));
        }
        self.by_name.insert(name, text.to_owned());
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns a text with its places replaced; `None` if it has none.
    pub fn render(&self, text: &str) -> Result<Option<String>> {
        if !text.contains("{{") {
            return Ok(None);
        }
        self.render_with(text, &HashMap::new()).map(Some)
    }

    /// Returns a text with its places replaced by values of the templates and of `names`.
    pub fn render_with(&self, text: &str, names: &HashMap<String, Value>) -> Result<String> {
        replaced(text, &|expression| evaluate(expression, &Scope { templates: Some(self), names }))
    }
}

/// The names in an expression.
struct Scope<'s> {
    /// The templates. An argument of a template has none, as in fsspec, so there are no circles.
    templates: Option<&'s Templates>,
    names: &'s HashMap<String, Value>,
}

impl Names for Scope<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        let template = || {
            let text = self.templates?.by_name.get(name)?;
            (!text.contains("{{")).then(|| Value::Text(text.clone()))
        };
        self.names.get(name).cloned().or_else(template)
    }

    fn call(&self, name: &str, arguments: &HashMap<String, Value>) -> Option<Result<Value>> {
        let text = self.templates?.by_name.get(name).filter(|text| text.contains("{{"))?;
        let scope = Scope { templates: None, names: arguments };
        Some(replaced(text, &|expression| evaluate(expression, &scope)).map(Value::Text))
    }
}

/// Replaces each `{{ expression }}` of a text.
fn replaced(text: &str, value: &dyn Fn(&str) -> Result<Value>) -> Result<String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let unclosed = || Error::corrupt(format!("{text:?}: a {{{{ without }}}}"));
        let (expression, after) = after.split_once("}}").ok_or_else(unclosed)?;
        made.push_str(before);
        made.push_str(&value(expression)?.to_string());
        rest = after;
        if made.len() > MAX_LEN {
            return Err(Error::too_large(format!("a template makes more than {MAX_LEN} bytes")));
        }
    }
    made.push_str(rest);
    Ok(made)
}
