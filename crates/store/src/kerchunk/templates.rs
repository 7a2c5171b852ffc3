//! The places in URLs that are replaced: `{{u}}/a.nc`, or `{{ f(c="t2m") }}` for a template that
//! has places itself.

use std::cell::Cell;
use std::collections::HashMap;

use super::expression::{ExpressionValue, MAX_TEXT_LEN, Variables, check_len, evaluate};
use zarrfs_base::error::{Error, Result};

/// The most templates.
const MAX_COUNT: usize = 1 << 16;

/// The most work of all templates, in bytes that are read and made: some ten seconds. About 2^24
/// references with three places each need it.
const MAX_WORK: u64 = 1 << 34;

/// An expression takes as long as so many bytes of text.
const EXPRESSION_WORK: usize = 256;

/// The templates of a file, by name.
#[derive(Debug)]
pub(super) struct Templates {
    by_name: HashMap<String, String>,
    work: WorkLeft,
}

/// The work that is left: a short file can describe any amount.
#[derive(Debug)]
struct WorkLeft(Cell<u64>);

impl WorkLeft {
    fn take(&self, len: usize) -> Result<()> {
        let left = u64::try_from(len).ok().and_then(|len| self.0.get().checked_sub(len));
        let too_much = || {
            Error::too_large(format!(
                "its templates and `gen` read and make more than {MAX_WORK} bytes"
            ))
        };
        self.0.set(left.ok_or_else(too_much)?);
        Ok(())
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self { by_name: HashMap::new(), work: WorkLeft(Cell::new(MAX_WORK)) }
    }
}

impl Templates {
    /// Adds a template.
    pub fn add(&mut self, name: String, text: &str) -> Result<()> {
        if self.by_name.len() >= MAX_COUNT || text.len() > MAX_TEXT_LEN {
            return Err(Error::too_large("too many templates, or one that is too long"));
        }
        self.by_name.insert(name, text.to_owned());
        Ok(())
    }

    /// Notes work of so many bytes.
    pub fn take_work(&self, len: usize) -> Result<()> {
        self.work.take(len)
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
    pub fn render_with(
        &self,
        text: &str,
        names: &HashMap<String, ExpressionValue>,
    ) -> Result<String> {
        let scope = Scope { templates: Some(self), names, work: &self.work };
        scope.replaced(text)
    }
}

/// The names in an expression.
struct Scope<'s> {
    /// The templates. An argument of a template has none, as in fsspec, so there are no circles.
    templates: Option<&'s Templates>,
    names: &'s HashMap<String, ExpressionValue>,
    work: &'s WorkLeft,
}

impl Variables for Scope<'_> {
    fn value(&self, name: &str) -> Option<ExpressionValue> {
        let template = || {
            let text = self.templates?.by_name.get(name)?;
            (!text.contains("{{")).then(|| ExpressionValue::Text(text.clone()))
        };
        self.names.get(name).cloned().or_else(template)
    }

    fn call(
        &self,
        name: &str,
        arguments: &HashMap<String, ExpressionValue>,
    ) -> Option<Result<ExpressionValue>> {
        let text = self.templates?.by_name.get(name).filter(|text| text.contains("{{"))?;
        let scope = Scope { templates: None, names: arguments, work: self.work };
        Some(scope.replaced(text).map(ExpressionValue::Text))
    }
}

impl Scope<'_> {
    /// Replaces each `{{ expression }}` of a text.
    fn replaced(&self, text: &str) -> Result<String> {
        self.work.take(text.len())?;
        let (mut made, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let unclosed = || Error::corrupt(format!("{text:?}: a {{{{ without }}}}"));
            let (expression, after) = after.split_once("}}").ok_or_else(unclosed)?;
            let value = evaluate(expression, self)?.to_string();
            self.work.take(value.len().saturating_add(EXPRESSION_WORK))?;
            made.push_str(before);
            made.push_str(&value);
            rest = after;
            check_len(made.len())?;
        }
        made.push_str(rest);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_base::error::Kind;

    #[test]
    fn templates_that_make_little_and_take_long_are_refused() {
        let mut templates = Templates::default();
        templates.add("f".to_owned(), &"{{c}}".repeat(1000)).expect("added");
        templates.work.0.set(1 << 20);
        let render = || templates.render("{{f(c='')}}");
        assert_eq!(render().expect("rendered").as_deref(), Some(""));
        let refused = (0..20).find_map(|_| render().err()).expect("refused");
        assert_eq!(refused.kind(), Kind::TooLarge, "{refused}");
    }
}
