//! The cards of a header: 80 characters each, in blocks of 2880 bytes.
//!
//! ```text
//! NAXIS1  =                  100 / comment
//! OBJECT  = 'a ''name'''
//! LONGSTR = 'goes on&'
//! CONTINUE  ' here'
//! HIERARCH ESO DET NAME = 1.5
//! COMMENT and HISTORY, and blank ones, have a text
//! ```

use serde_json::{Value, json};

use crate::json::{self, double};
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::json::Object;

/// The length of a block, and of a card.
pub const BLOCK_LEN: u64 = 2880;
const CARD_LEN: usize = 80;

/// The most cards of a header.
const MAX_CARDS: usize = 1 << 17;

/// The cards of a header.
#[derive(Debug, Default)]
pub struct Cards {
    values: Object,
    texts: Vec<(&'static str, String)>,
    /// Where the header ends.
    pub end: u64,
}

impl Cards {
    /// Reads the header at a byte of the file.
    pub fn read(file: &SourceFile, start: u64) -> Result<Self> {
        let mut cards = Self::default();
        let (mut at, mut last) = (start, None::<String>);
        let mut count = 0_usize;
        loop {
            let block = file.read(at, 2880)?;
            at = at.saturating_add(BLOCK_LEN);
            for card in block.chunks_exact(CARD_LEN) {
                if card.starts_with(b"END") && card.iter().skip(3).all(|byte| *byte == b' ') {
                    cards.end = at;
                    return Ok(cards);
                }
                count = count.saturating_add(1);
                if count > MAX_CARDS {
                    return Err(Error::too_large(format!("more than {MAX_CARDS} cards of FITS")));
                }
                cards.add(&json::text(card), &mut last);
            }
        }
    }

    /// Adds a card. `last` is the name of the string that the next one may continue.
    fn add(&mut self, card: &str, last: &mut Option<String>) {
        let (name, rest) = card.split_at_checked(8).unwrap_or((card, ""));
        let name = name.trim_end();
        if name == "CONTINUE" {
            if let (Some(own), Some((more, _))) = (last.as_ref(), string(rest.trim_start()))
                && let Some(Value::String(text)) = self.values.get_mut(own)
                && text.ends_with('&')
            {
                text.pop();
                text.push_str(&more);
            }
            return;
        }
        *last = None;
        for kept in ["COMMENT", "HISTORY"] {
            if name == kept {
                self.texts.push((kept, rest.trim_end().to_owned()));
                return;
            }
        }
        let (name, text) = if name == "HIERARCH" {
            let Some((name, text)) = rest.split_once('=') else { return };
            (name.trim(), text)
        } else {
            let Some(text) = rest.strip_prefix("= ") else { return };
            (name, text)
        };
        let value = value(text.trim_start());
        if value.as_str().is_some_and(|text| text.ends_with('&')) {
            *last = Some(name.to_owned());
        }
        self.values.insert(name.to_owned(), value);
    }

    /// Returns a value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Returns an integer.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    /// Returns a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// Returns a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Whether a value is true.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    /// Returns the lengths of axes by the beginning of their names, the fastest first.
    pub fn lens(&self, count: &str, axis: &str) -> Result<Vec<u64>> {
        let wrong = |name: &str| Error::corrupt(format!("a header of FITS has no valid {name}"));
        let rank = self.integer(count).filter(|rank| (0..=999).contains(rank));
        let rank = rank.ok_or_else(|| wrong(count))?;
        let len = |number: i64| {
            let name = format!("{axis}{number}");
            self.integer(&name).and_then(|len| u64::try_from(len).ok()).ok_or_else(|| wrong(&name))
        };
        (1..=rank).map(len).collect()
    }

    /// Returns the values as attributes, without those that say how elements are stored.
    pub fn shown(&self) -> Object {
        let is_shown = |name: &str| !is_of_storage(name);
        let mut shown: Object = self
            .values
            .iter()
            .filter(|(name, _)| is_shown(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for kept in ["COMMENT", "HISTORY"] {
            let texts = self.texts.iter().filter(|(name, _)| *name == kept).map(|(_, text)| text);
            let texts: Vec<&String> = texts.collect();
            if !texts.is_empty() {
                shown.insert(kept.to_owned(), json!(texts));
            }
        }
        shown
    }
}

/// Whether a card says how elements are stored.
fn is_of_storage(name: &str) -> bool {
    let axis = name.strip_prefix("NAXIS");
    let names = [
        "SIMPLE", "XTENSION", "BITPIX", "EXTEND", "PCOUNT", "GCOUNT", "GROUPS", "BSCALE", "BZERO",
        "BLANK", "CHECKSUM", "DATASUM", "END",
    ];
    names.contains(&name) || axis.is_some_and(|rest| rest.bytes().all(|it| it.is_ascii_digit()))
}

/// Returns the string that a text begins with, and what comes after it.
fn string(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('\'')?;
    let mut found = String::new();
    loop {
        let (part, after) = rest.split_once('\'')?;
        found.push_str(part);
        let Some(more) = after.strip_prefix('\'') else {
            return Some((found.trim_end().to_owned(), after));
        };
        found.push('\'');
        rest = more;
    }
}

/// Returns the value of a card; null if it has none.
fn value(text: &str) -> Value {
    if let Some((found, _)) = string(text) {
        return Value::from(found);
    }
    let word = text.split('/').next().unwrap_or_default().trim();
    if let Some((real, imaginary)) =
        word.strip_prefix('(').and_then(|it| it.strip_suffix(')')?.split_once(','))
    {
        let parts = [real, imaginary].map(|part| number(part.trim()));
        return json!(parts);
    }
    match word {
        "T" => Value::Bool(true),
        "F" => Value::Bool(false),
        word => number(word),
    }
}

fn number(word: &str) -> Value {
    if let Ok(integer) = word.parse::<i64>() {
        return Value::from(integer);
    }
    let decimal = word.replace(['D', 'd'], "E");
    let is_number = decimal.starts_with(|char: char| char.is_ascii_digit() || "+-.".contains(char));
    match decimal.parse::<f64>() {
        Ok(number) if is_number && number.is_finite() => double(number),
        _ => Value::Null,
    }
}

/// Returns a length rounded up to whole blocks.
pub fn in_blocks(len: u64) -> u64 {
    len.checked_next_multiple_of(BLOCK_LEN).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_cards_are_read() {
        for (text, expected) in [
            ("'it''s'  / a comment", json!("it's")),
            ("''", json!("")),
            ("'a/b     '", json!("a/b")),
            ("                   T / true", json!(true)),
            ("100", json!(100)),
            ("(1, 2)", json!([1, 2])),
            ("", Value::Null),
            ("'never ends", Value::Null),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert_eq!(value("1.5D+03").as_f64(), Some(1500.0));
        assert_eq!(value("-1.5E-2").as_f64(), Some(-0.015));
    }
}
