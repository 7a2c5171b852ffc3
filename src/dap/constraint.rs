//! Parses constraints: `t2m.t2m[0:2:10][5],time`.
//!
//! ```text
//! constraint  projection "," projection .. ("&" selection)..
//! projection  name slice..
//! slice       "[" index "]" | "[" start ":" stop "]" | "[" start ":" stride ":" stop "]"
//! ```
//!
//! An empty list of projections asks for all variables. Selections are conditions on sequences,
//! and there are no sequences here. Some clients encode names twice, others not at all, so a name
//! may have signs that end names. The known names decide.

use super::error::{DapCode, DapError};
use super::hyperslab::SelectedAxis;
use super::names::decoded;

/// The longest part of a constraint that an error message repeats.
const MAX_SHOWN: usize = 80;

/// A range of indices along a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub start: u64,
    pub stride: u64,
    /// The last index; `None` for the last one of the dimension.
    pub stop: Option<u64>,
}

/// A name with slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Projection<T> {
    pub target: T,
    pub slices: Vec<Slice>,
}

/// All names that a constraint may have, with their meaning.
#[derive(Debug)]
pub(super) struct ConstraintNames<T> {
    /// Those that clients see. A name that could be one of these is one of these.
    pub identifiers: Vec<(String, T)>,
    /// Those that they encode.
    pub decoded: Vec<(String, T)>,
}

impl<T> Default for ConstraintNames<T> {
    fn default() -> Self {
        Self { identifiers: Vec::new(), decoded: Vec::new() }
    }
}

/// Parses a constraint.
pub(super) fn parse<T: Copy>(
    text: &str,
    names: &ConstraintNames<T>,
) -> Result<Vec<Projection<T>>, DapError> {
    let mut projections = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() && !rest.starts_with('&') {
        let (target, after) = name(rest, names)?;
        let (slices, after) = slices(after)?;
        projections.push(Projection { target, slices });
        rest = match after.strip_prefix(',') {
            Some("") => return Err(unexpected("")),
            Some(more) => more.trim_start(),
            None if after.is_empty() || after.starts_with('&') => after,
            None => return Err(unexpected(after)),
        };
    }
    // pydap ends each constraint with "&".
    match rest.split('&').map(str::trim).find(|selection| !selection.is_empty()) {
        Some(selection) => Err(DapError::malformed(format!(
            "{:?} is a selection: it needs a sequence, and this data set has only arrays",
            shown(selection)
        ))),
        None => Ok(projections),
    }
}

/// Returns the meaning of the name at the start, and the rest.
fn name<'t, T: Copy>(text: &'t str, names: &ConstraintNames<T>) -> Result<(T, &'t str), DapError> {
    let ended = |name: &str| {
        let rest = text.strip_prefix(name)?.trim_start();
        (rest.is_empty() || rest.starts_with(['[', ',', '&'])).then_some(rest)
    };
    for names in [&names.identifiers, &names.decoded] {
        let known = names.iter();
        let known = known.filter_map(|(name, target)| Some((name.len(), *target, ended(name)?)));
        if let Some((_, target, rest)) = known.max_by_key(|(len, ..)| *len) {
            return Ok((target, rest));
        }
    }
    let end = text.find(['[', ',', '&', '(']).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    if rest.starts_with('(') {
        let detail = format!("there is no function {:?}", shown(name));
        return Err(DapError::malformed(detail));
    }
    let name = decoded(name.trim());
    // netCDF-C changes names that are words of DAP2, such as `DapCode`, to lower case.
    let same = names.decoded.iter().find(|(known, _)| *known == name);
    let like = || names.decoded.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
    let (_, target) = same.or_else(like).ok_or_else(|| {
        let detail = format!("there is no variable {:?}", shown(&name));
        DapError::new(DapCode::NoSuchVariable, detail)
    })?;
    Ok((*target, rest))
}

/// Parses the slices at the start, and returns the rest.
fn slices(mut text: &str) -> Result<(Vec<Slice>, &str), DapError> {
    let mut slices = Vec::new();
    while let Some(after) = text.strip_prefix('[') {
        let (inside, rest) = after.split_once(']').ok_or_else(|| unexpected(text))?;
        slices.push(slice(inside)?);
        text = rest.trim_start();
    }
    Ok((slices, text))
}

fn slice(text: &str) -> Result<Slice, DapError> {
    let wrong = || {
        DapError::malformed(format!(
            "[{}] is no hyperslab: write [index], [start:stop] or [start:stride:stop]",
            shown(text)
        ))
    };
    let number = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)
    };
    // Hyrax accepts an asterisk for the last index.
    let stop = |text: &str| if text.trim() == "*" { Ok(None) } else { number(text).map(Some) };
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [index] => {
            let index = number(index)?;
            Ok(Slice { start: index, stride: 1, stop: Some(index) })
        }
        [start, last] => Ok(Slice { start: number(start)?, stride: 1, stop: stop(last)? }),
        [start, stride, last] => {
            let stride = number(stride)?;
            if stride == 0 {
                return Err(DapError::malformed(format!("[{text}] has a stride of 0")));
            }
            Ok(Slice { start: number(start)?, stride, stop: stop(last)? })
        }
        _ => Err(wrong()),
    }
}

impl Slice {
    /// Returns the selected elements of a dimension. Fails if the slice goes past the end.
    pub fn of(self, name: &str, len: u64) -> Result<SelectedAxis, DapError> {
        let Self { start, stride, stop } = self;
        // pydap asks for all elements of an empty dimension with a stop at a very large number.
        if len == 0 && start == 0 && stop != Some(0) {
            return Ok(SelectedAxis::all(0));
        }
        let last = len.checked_sub(1);
        let stop = stop.or(last).filter(|stop| Some(*stop) <= last && start <= *stop);
        let stop = stop.ok_or_else(|| {
            let end = self.stop.map_or_else(|| "*".to_owned(), |stop| stop.to_string());
            DapError::malformed(format!(
                "[{start}:{stride}:{end}] selects no elements or goes past the end: the dimension \
                 {name} has {len}"
            ))
        })?;
        let steps = stop.saturating_sub(start).checked_div(stride).unwrap_or_default();
        // A single element has no distance to the next one, and products with it stay small.
        let stride = if steps == 0 { 1 } else { stride };
        Ok(SelectedAxis { start, stride, count: steps.saturating_add(1) })
    }
}

fn unexpected(rest: &str) -> DapError {
    DapError::malformed(if rest.is_empty() {
        "the constraint ends too early".to_owned()
    } else {
        format!("{:?} is not expected here in a constraint", shown(rest))
    })
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
