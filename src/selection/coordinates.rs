//! The coordinates along a dimension, and the elements that have certain ones.

use crate::dtype::{DType, Element, to_float, to_single};
use crate::error::{Error, Result};
use crate::json::Object;
use crate::metadata::Packing;
use crate::times::{Calendar, TimeUnits, is_since};
use crate::view::ViewSource;
use crate::view::region::{Selected, TURN, Turns};
use crate::width::{ToU64, ToUsize};

/// The most elements along a dimension that has a step instead of coordinates.
const MAX_COUNT: u64 = 1 << 24;

/// The values of `units` of a longitude (CF, section 4.2).
const DEGREES_EAST: [&str; 6] =
    ["degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"];

/// Coordinates along a dimension, in the order of their elements. Some may be missing.
#[derive(Debug)]
pub enum Coordinates {
    /// Numbers.
    Numbers {
        /// As CF decodes them.
        values: Vec<Option<f64>>,
        /// Whether they are stored with single precision, which what is wanted then has, too.
        is_single: bool,
        /// Whether they are longitudes, which repeat after a turn.
        is_longitude: bool,
    },
    /// Times, in nanoseconds.
    Times(Vec<Option<i128>>, Calendar),
    /// Names.
    Texts(Vec<String>),
}

impl Coordinates {
    /// Reads the coordinates that an array of one dimension has.
    pub fn read(source: &ViewSource<'_>, name: &str) -> Result<Self> {
        let model = source.array()?.model();
        let (dtype, attributes) = (&model.dtype, &model.attributes);
        if matches!(dtype, DType::String | DType::Utf32(_)) {
            let texts = source.texts()?.into_iter();
            return Ok(Self::Texts(texts.map(|text| text_of(&text)).collect()));
        }
        let text = |name: &str| attributes.get(name).and_then(|value| value.as_str());
        let units = match dtype {
            DType::Time(time) => TimeUnits::of_type(*time),
            _ => text("units")
                .filter(|units| is_since(units))
                .and_then(|units| TimeUnits::parse(units, text("calendar"))),
        };
        if units.is_none()
            && let Some(units) = text("units").filter(|units| is_since(units))
        {
            return Err(Error::unsupported(format!("zarrfs does not know its units {units:?}")));
        }
        let bytes = source.values()?;
        let items = bytes.chunks_exact(dtype.item_len().max(1));
        if let DType::Bytes(_) = dtype {
            return Ok(Self::Texts(items.map(text_of).collect()));
        }
        let packing = Packing::of(dtype, attributes);
        let values = items.map(|item| packing.value(Element::of(dtype, item)));
        match (dtype, units) {
            (_, Some(units)) => {
                let is_time = matches!(dtype, DType::Time(_));
                let is_none = |value| is_time && value == Element::Int(i64::MIN.into());
                let moments = values.map(|value| units.moment(value.filter(|one| !is_none(*one))?));
                Ok(Self::Times(moments.collect(), units.calendar))
            }
            (
                DType::Bool | DType::Int(_) | DType::Uint(_) | DType::Float(_) | DType::Time(_),
                _,
            ) => {
                let is_single = *dtype == DType::Float(4) && packing.changes_nothing();
                let is_longitude = is_longitude(name, attributes);
                let values = values.map(|value| number(value?)).collect();
                Ok(Self::Numbers { values, is_single, is_longitude })
            }
            (other, _) => {
                let detail = format!("its coordinates are of the type {}", other.name());
                Err(Error::unsupported(detail))
            }
        }
    }

    /// Returns the positions of elements at equal distances.
    pub fn regular(start: f64, step: f64, len: u64) -> Result<Self> {
        if len > MAX_COUNT {
            return Err(Error::unsupported(format!("it has more than {MAX_COUNT} elements")));
        }
        let values = (0..len).map(|at| Some(start + step * to_float(at.into()))).collect();
        Ok(Self::Numbers { values, is_single: false, is_longitude: false })
    }

    /// Returns the elements with coordinates that `wanted` names.
    pub fn find(&self, name: &str, wanted: &str) -> Result<Selected> {
        match self {
            Self::Texts(texts) => find_text(texts, name, wanted),
            Self::Times(values, calendar) => find_time(values, *calendar, name, wanted),
            Self::Numbers { values, is_single, is_longitude } => {
                let numbers = Numbers { values, is_longitude: *is_longitude };
                numbers.find(name, wanted, *is_single)
            }
        }
    }
}

/// Returns a name without the NULs that fill it up.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

fn number(element: Element) -> Option<f64> {
    match element {
        Element::Int(int) => Some(to_float(int)),
        Element::Float(float) => Some(float).filter(|float| float.is_finite()),
        Element::Complex(..) | Element::Bytes => None,
    }
}

fn is_longitude(name: &str, attributes: &Object) -> bool {
    let text = |name: &str| attributes.get(name).and_then(|value| value.as_str());
    match (text("units"), text("standard_name")) {
        (Some(units), _) if DEGREES_EAST.contains(&units) => true,
        (_, Some(name)) => name == "longitude",
        (None | Some("degrees" | "degree"), None) => {
            ["lon", "longitude"].iter().any(|known| name.eq_ignore_ascii_case(known))
        }
        _ => false,
    }
}

fn find_text(texts: &[String], name: &str, wanted: &str) -> Result<Selected> {
    let place = |wanted: &str| -> Result<Option<u64>> {
        let mut found = texts.iter().enumerate().filter(|(_, text)| *text == wanted);
        let first = found.next().map(|(at, _)| at.to_u64());
        match found.next() {
            Some(_) => Err(Error::invalid(format!(
                "{name}={wanted}: several elements have that name; select by indices, as in \
                 {name}=@0:10"
            ))),
            None => Ok(first),
        }
    };
    if let Some(at) = place(wanted)? {
        return Ok(Selected::one(at));
    }
    for (at, _) in wanted.match_indices(':') {
        let (from, until) =
            (wanted.get(..at).unwrap_or_default(), wanted.get(at + 1..).unwrap_or_default());
        if let (Some(from), Some(until)) = (place(from)?, place(until)?)
            && let Some(len) = until.checked_sub(from)
        {
            return Ok(Selected { start: from, len: len.saturating_add(1), ..Selected::all(0) });
        }
    }
    let known: Vec<&str> = texts.iter().take(5).map(String::as_str).collect();
    let more = if texts.len() > known.len() { ", ..." } else { "" };
    Err(Error::invalid(format!(
        "{name}={wanted} selects no element: the names are {}{more}",
        known.join(", ")
    )))
}

fn find_time(
    values: &[Option<i128>],
    calendar: Calendar,
    name: &str,
    wanted: &str,
) -> Result<Selected> {
    let wrong = || {
        Error::invalid(format!(
            "{name}={wanted}: write a time such as 2020, 2020-01-31 or 2020-01-31T06:00, or two with \
             a colon between; indices are {name}=@0:10"
        ))
    };
    let period = |text: &str| calendar.period(text);
    if let Some((start, end)) = period(wanted) {
        // The first one in the period, or else the nearest to its start.
        let within = |time: i128| (start..end).contains(&time);
        let first = values.iter().enumerate().filter_map(|(at, time)| Some((at, (*time)?)));
        let first = first.filter(|(_, time)| within(*time)).min_by_key(|(_, time)| *time);
        if let Some((at, _)) = first {
            return Ok(Selected::one(at.to_u64()));
        }
        let distances = values.iter().map(|time| Some(to_float((*time)?.saturating_sub(start))));
        let found = nearest(distances);
        return found.map(Selected::one).ok_or_else(|| outside(name, wanted));
    }
    // A time may have colons, and a range may have a slash, as in ISO 8601.
    let ends = wanted.match_indices([':', '/']).find_map(|(at, _)| {
        let end = |text: &str, which: fn((i128, i128)) -> i128| match text.trim() {
            "" => Some(None),
            text => period(text).map(|found| Some(which(found))),
        };
        let (from, until) = (wanted.get(..at)?, wanted.get(at + 1..)?);
        Some((end(from, |(start, _)| start)?, end(until, |(_, end)| end)?, from, until))
    });
    let (mut from, mut until, one, other) = ends.ok_or_else(wrong)?;
    // Axes may go backwards, and then the range may, too.
    if let (Some(start), Some(end)) = (from, until)
        && end <= start
    {
        (from, until) = (period(other).map(|found| found.0), period(one).map(|found| found.1));
    }
    let is_wanted =
        |time: i128| from.is_none_or(|from| time >= from) && until.is_none_or(|until| time < until);
    let matches = values.iter().map(|time| time.filter(|time| is_wanted(*time)).map(|_| 0));
    match runs_of(matches).as_slice() {
        [] => Err(outside(name, wanted)),
        [one] => Ok(one.with(None)),
        _ => Err(in_no_order(name, wanted)),
    }
}

fn outside(name: &str, wanted: &str) -> Error {
    Error::invalid(format!("{name}={wanted} selects no element: it is before or after all of them"))
}

/// Numbers along a dimension.
struct Numbers<'c> {
    values: &'c [Option<f64>],
    is_longitude: bool,
}

impl Numbers<'_> {
    fn find(&self, name: &str, wanted: &str, is_single: bool) -> Result<Selected> {
        let wrong = || {
            Error::invalid(format!(
                "{name}={wanted}: write a number, or two with a colon between, as in {name}=40:50; \
                 indices are {name}=@0:10"
            ))
        };
        let number = |text: &str| -> Result<Option<f64>> {
            if text.trim().is_empty() {
                return Ok(None);
            }
            let found: f64 = text.trim().parse().map_err(|_| wrong())?;
            let found = if is_single { to_single(found).into() } else { found };
            if found.is_finite() { Ok(Some(found)) } else { Err(wrong()) }
        };
        let no_element = || {
            let known = || self.values.iter().flatten().copied();
            let (least, most) =
                (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
            Error::invalid(format!(
                "{name}={wanted} selects no element: {name} goes from {least} to {most}"
            ))
        };
        match wanted.split(':').collect::<Vec<_>>().as_slice() {
            [one] => {
                let one = number(one)?.ok_or_else(wrong)?;
                self.nearest(one).ok_or_else(no_element)
            }
            [from, until] => {
                let (from, until) = (number(from)?, number(until)?);
                let runs = self.runs(from, until);
                match runs.as_slice() {
                    [] => Err(no_element()),
                    [one] => Ok(one.with(None)),
                    [one, other] => {
                        self.joined(*one, *other).ok_or_else(|| in_no_order(name, wanted))
                    }
                    _ => Err(in_no_order(name, wanted)),
                }
            }
            _ => Err(wrong()),
        }
    }

    fn nearest(&self, wanted: f64) -> Option<Selected> {
        if !self.is_longitude {
            let distances = self.values.iter().map(|value| Some((*value)? - wanted));
            return nearest(distances).map(Selected::one);
        }
        let turns = |value: f64| ((wanted - value) / TURN).round();
        let distance = |value: f64| value + TURN * turns(value) - wanted;
        let all = (0_u64..).zip(self.values).filter_map(|(at, value)| Some((at, (*value)?)));
        let order = |one: &(u64, f64), other: &(u64, f64)| {
            let (one, other) = (distance(one.1), distance(other.1));
            one.abs().total_cmp(&other.abs()).then(other.total_cmp(&one))
        };
        let (at, value) = all.min_by(order)?;
        // A map of a part of the Earth has an end.
        let is_near = distance(value).abs() <= self.widest_step().max(self.slack());
        let turns = Turns { count: 1, first: whole(turns(value)), rest: 0 };
        is_near.then_some(Selected { turns, ..Selected::one(at) })
    }

    /// Returns the largest distance between neighbours.
    fn widest_step(&self) -> f64 {
        let mut all: Vec<f64> = self.values.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        let steps = all.iter().zip(all.iter().skip(1)).map(|(one, next)| next - one);
        steps.fold(0.0, f64::max)
    }

    /// Returns how far numbers that mean the same may be from each other: sums with turns, and
    /// steps, are rounded.
    fn slack(&self) -> f64 {
        let known = || self.values.iter().flatten().copied();
        let (least, most) =
            (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
        let steps = to_float(known().count().saturating_sub(1).to_u64().into());
        let slack = if steps > 0.0 { (most - least) / steps } else { most.abs() * 1e-3 };
        if slack.is_finite() { slack * 1e-6 } else { 0.0 }
    }

    fn runs(&self, from: Option<f64>, until: Option<f64>) -> Vec<Run> {
        let (from, until) = match (from, until) {
            // A range of longitudes goes on after a turn.
            (Some(from), Some(until)) if until < from && self.is_longitude => {
                (Some(from), Some(until + TURN * ((from - until) / TURN).ceil()))
            }
            // Axes may go backwards, and then the range may, too.
            (Some(from), Some(until)) if until < from => (Some(until), Some(from)),
            ends => ends,
        };
        let slack = self.slack();
        let is_within = |value: f64| {
            from.is_none_or(|from| value >= from - slack)
                && until.is_none_or(|until| value <= until + slack)
        };
        let turns = |value: f64| {
            if is_within(value) {
                return Some(0.0);
            }
            let from = from.filter(|_| self.is_longitude && until.is_some())?;
            let turns = ((from - slack - value) / TURN).ceil();
            is_within(value + TURN * turns).then_some(turns)
        };
        let matches = self.values.iter().map(|value| Some(whole(turns((*value)?)?)));
        runs_of(matches)
    }

    /// Returns two runs of longitudes as one: one after the other, or the one at the end before
    /// that at the beginning. If both can be, the one whose coordinates go on.
    fn joined(&self, one: Run, other: Run) -> Option<Selected> {
        let can_wrap = one.start == 0 && other.end() == self.values.len().to_u64();
        let can_follow = one.end() == other.start;
        let step = |last: Run, first: Run| {
            let value = |at: u64, turns: i32| {
                let value = self.values.get(at.to_usize()).copied().flatten();
                value.map(|value| value + TURN * f64::from(turns))
            };
            let last = value(last.end().saturating_sub(1), last.turns);
            let first = value(first.start, first.turns);
            last.zip(first).map_or(f64::INFINITY, |(last, first)| (first - last).abs())
        };
        let wraps = can_wrap && (!can_follow || step(other, one) < step(one, other));
        match (self.is_longitude, wraps, can_follow) {
            (true, true, _) => Some(other.with(Some(one))),
            (true, false, true) => Some(one.with(Some(other))),
            _ => None,
        }
    }
}

fn in_no_order(name: &str, wanted: &str) -> Error {
    Error::invalid(format!(
        "{name}={wanted}: the coordinates are in no order, and these elements do not follow one \
         another; select by indices, as in {name}=@0:10"
    ))
}

/// Elements that follow one another, with one number of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: u64,
    len: u64,
    turns: i32,
}

impl Run {
    fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Returns this run with another one after it.
    fn with(self, rest: Option<Self>) -> Selected {
        let rest = rest.unwrap_or(Self { start: 0, len: 0, turns: 0 });
        Selected {
            start: self.start,
            len: self.len.saturating_add(rest.len),
            is_kept: true,
            turns: Turns { count: self.len, first: self.turns, rest: rest.turns },
        }
    }
}

/// Returns the runs of elements for which `matches` has a number of turns.
fn runs_of(matches: impl Iterator<Item = Option<i32>>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, turns) in (0_u64..).zip(matches) {
        let Some(turns) = turns else { continue };
        match runs.last_mut() {
            Some(run) if run.end() == at && run.turns == turns => {
                run.len = run.len.saturating_add(1);
            }
            _ => runs.push(Run { start: at, len: 1, turns }),
        }
    }
    runs
}

/// Returns the element with the smallest distance; the larger coordinate of two. `None` if what is
/// wanted lies further outside of all coordinates than the last two lie apart.
fn nearest(distances: impl Iterator<Item = Option<f64>>) -> Option<u64> {
    let mut all: Vec<(f64, u64)> =
        (0_u64..).zip(distances).filter_map(|(at, distance)| Some((distance?, at))).collect();
    let is_outside = all.iter().all(|(distance, _)| *distance > 0.0)
        || all.iter().all(|(distance, _)| *distance < 0.0);
    let order = |one: &(f64, u64), other: &(f64, u64)| {
        one.0
            .abs()
            .total_cmp(&other.0.abs())
            .then(other.0.total_cmp(&one.0))
            .then(one.1.cmp(&other.1))
    };
    let (distance, at) = all.iter().copied().min_by(order)?;
    if !is_outside {
        return Some(at);
    }
    all.retain(|(other, _)| other.total_cmp(&distance).is_ne());
    let (second, _) = all.iter().copied().min_by(order)?;
    (distance.abs() <= (second - distance).abs()).then_some(at)
}

fn whole(turns: f64) -> i32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::as_conversions,
        reason = "it saturates, and longitudes have few turns"
    )]
    let whole = turns as i32;
    whole
}
