//! The expressions between `{{` and `}}`: names, integers, strings, `+ - * // %`, brackets, and
//! templates as functions, `f(c="t2m", i=i + 1)`.
//!
//! fsspec has the whole language Jinja here. Files that use more of it are refused with a sentence.
//! The crate `minijinja` (3.1) is not used: it has the filters of Jinja, but neither `'%05d' % i`
//! nor the methods of Python's strings, and makes the program larger by a megabyte.

use std::collections::HashMap;
use std::fmt;

use zarrfs_base::error::{Error, Result};

/// The deepest nesting of brackets.
const MAX_DEPTH: usize = 16;

/// The longest string that an expression or a template makes.
pub(super) const MAX_TEXT_LEN: usize = 1 << 16;

/// A value of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpressionValue {
    /// An integer.
    Number(i64),
    /// A string.
    Text(String),
}

impl fmt::Display for ExpressionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The names that an expression may contain.
pub(super) trait Variables {
    /// Returns the value of a name.
    fn value(&self, name: &str) -> Option<ExpressionValue>;

    /// Returns the value of a template with these arguments.
    fn call(
        &self,
        name: &str,
        arguments: &HashMap<String, ExpressionValue>,
    ) -> Option<Result<ExpressionValue>>;
}

/// Returns the value of an expression.
pub(super) fn evaluate(expression: &str, names: &dyn Variables) -> Result<ExpressionValue> {
    let mut parser = ExpressionParser { expression, rest: expression, names, depth: 0 };
    let value = parser.sum()?;
    parser.skip_spaces();
    if parser.rest.is_empty() { Ok(value) } else { Err(parser.unknown()) }
}

/// Fails for a string that is too long.
pub(super) fn check_len(len: usize) -> Result<()> {
    if len > MAX_TEXT_LEN {
        return Err(Error::too_large(format!("a template makes more than {MAX_TEXT_LEN} bytes")));
    }
    Ok(())
}

struct ExpressionParser<'e> {
    expression: &'e str,
    rest: &'e str,
    names: &'e dyn Variables,
    depth: usize,
}

impl<'e> ExpressionParser<'e> {
    fn unknown(&self) -> Error {
        Error::unsupported(format!(
            "the expression {:?} in a template; zarrfs knows names, integers, strings, + - * // %, \
             brackets, and templates as functions",
            self.expression
        ))
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Reads an operator or a bracket, if it is the next.
    fn take(&mut self, token: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Result<ExpressionValue> {
        let mut value = self.product()?;
        loop {
            value = if self.take("+") {
                match (value, self.product()?) {
                    (ExpressionValue::Number(a), ExpressionValue::Number(b)) => {
                        self.number(a.checked_add(b))?
                    }
                    (ExpressionValue::Text(a), ExpressionValue::Text(b)) => {
                        check_len(a.len().saturating_add(b.len()))?;
                        ExpressionValue::Text(a + &b)
                    }
                    _ => return Err(self.unknown()),
                }
            } else if self.take("-") {
                let (a, b) = self.numbers(value)?;
                self.number(a.checked_sub(b))?
            } else {
                return Ok(value);
            };
        }
    }

    fn product(&mut self) -> Result<ExpressionValue> {
        let mut value = self.factor()?;
        loop {
            value = if self.take("//") {
                let (a, b) = self.factors(value)?;
                self.number(a.checked_div_euclid(b).filter(|_| b > 0))?
            } else if self.take("*") {
                let (a, b) = self.factors(value)?;
                self.number(a.checked_mul(b))?
            } else if self.take("%") {
                let (a, b) = self.factors(value)?;
                self.number(a.checked_rem_euclid(b).filter(|_| b > 0))?
            } else {
                return Ok(value);
            };
        }
    }

    fn numbers(&mut self, left: ExpressionValue) -> Result<(i64, i64)> {
        match (left, self.product()?) {
            (ExpressionValue::Number(left), ExpressionValue::Number(right)) => Ok((left, right)),
            _ => Err(self.unknown()),
        }
    }

    fn factors(&mut self, left: ExpressionValue) -> Result<(i64, i64)> {
        match (left, self.factor()?) {
            (ExpressionValue::Number(left), ExpressionValue::Number(right)) => Ok((left, right)),
            _ => Err(self.unknown()),
        }
    }

    fn number(&self, number: Option<i64>) -> Result<ExpressionValue> {
        number.map(ExpressionValue::Number).ok_or_else(|| {
            Error::corrupt(format!("{:?} in a template has no value", self.expression))
        })
    }

    fn factor(&mut self) -> Result<ExpressionValue> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(self.unknown());
        }
        let value = self.factor_below();
        self.depth = self.depth.saturating_sub(1);
        value
    }

    fn factor_below(&mut self) -> Result<ExpressionValue> {
        if self.take("(") {
            let value = self.sum()?;
            return if self.take(")") { Ok(value) } else { Err(self.unknown()) };
        }
        if self.take("-") {
            return match self.factor()? {
                ExpressionValue::Number(number) => self.number(number.checked_neg()),
                ExpressionValue::Text(_) => Err(self.unknown()),
            };
        }
        for quote in ["'", "\""] {
            if self.take(quote) {
                let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.unknown())?;
                self.rest = rest;
                return Ok(ExpressionValue::Text(text.to_owned()));
            }
        }
        let word = self.word();
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            return self.number(word.parse().ok());
        }
        if word.is_empty() {
            return Err(self.unknown());
        }
        if self.take("(") {
            let arguments = self.arguments()?;
            let called = self.names.call(word, &arguments);
            return called.unwrap_or_else(|| Err(self.no_name(word)));
        }
        self.names.value(word).ok_or_else(|| self.no_name(word))
    }

    fn no_name(&self, name: &str) -> Error {
        Error::corrupt(format!("no template {name:?}, in {:?}", self.expression))
    }

    fn word(&mut self) -> &'e str {
        self.skip_spaces();
        let is_part = |char: char| char.is_alphanumeric() || char == '_';
        let end = self.rest.find(|char| !is_part(char)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        word
    }

    /// Reads `name=value, ...` and the bracket after it.
    fn arguments(&mut self) -> Result<HashMap<String, ExpressionValue>> {
        let mut arguments = HashMap::new();
        while !self.take(")") {
            if !arguments.is_empty() && !self.take(",") {
                return Err(self.unknown());
            }
            let name = self.word();
            if name.is_empty() || !self.take("=") {
                return Err(self.unknown());
            }
            let value = self.sum()?;
            arguments.insert(name.to_owned(), value);
        }
        Ok(arguments)
    }
}
