//! Where the elements of each array of the sources go.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::part::{ArrayImport, ImportPart, check_times, first_difference, values_along};
use super::times::TimeShift;
use crate::array::Array;
use crate::dtype::Element;
use crate::error::{Error, Result, WithSubject, Word};
use crate::hierarchy::{Bounds, Content, Hierarchy, Node};
use crate::json::Object;
use crate::metadata::{Dialect, NodePath, Packing};
use crate::times::is_since;
use crate::width::ToU64;

/// A hierarchy, or a part of one, whose values are imported.
#[derive(Debug)]
pub struct ImportSource {
    /// How the user wrote it.
    pub shown: String,
    /// The name of the array, if the source is an array and not a group.
    pub name: String,
    /// Whether its arrays have no names of their own, but that of the file.
    pub lacks_names: bool,
    /// The hierarchy.
    pub hierarchy: Hierarchy,
    /// The group or array in it.
    pub path: NodePath,
}

/// Where values go in the arrays of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Over all that are there.
    Over,
    /// Over those from the first element on and before the second, along dimensions by name.
    Region(Vec<(String, Option<u64>, Option<u64>)>),
    /// Behind the last ones along a dimension: its name, or its number in arrays without names.
    Append(String),
}

/// All arrays of the target that change.
#[derive(Debug, Default)]
pub struct ImportPlan {
    /// The arrays; one with the coordinates of the dimension that grows comes last.
    pub arrays: Vec<ArrayImport>,
}

/// The arrays at and below a node, by their paths from there.
type Arrays = BTreeMap<String, Arc<Node>>;

/// Plans where everything in `sources` goes at or below `path` of `dest`. Only the nodes `only` of
/// the sources count, if there are some. `in_order` says that a coordinate of the dimension that
/// grows must go on in its order.
pub fn plan(
    sources: &[ImportSource],
    (dest, path): (&Hierarchy, &NodePath),
    placement: &Placement,
    (only, in_order): (&[NodePath], bool),
) -> Result<ImportPlan> {
    let targets = arrays_of(dest, path, &[])?;
    let imports = BTreeMap::new();
    let masks_fill = *dest.dialect() == Dialect::V2;
    let mut planner = Planner { placement, targets: &targets, in_order, masks_fill, imports };
    planner.check_target(dest, path)?;
    for source in sources {
        planner.source(source, path, only).map_err(|error| named(&source.shown, &error))?;
    }
    planner.finish(dest, path)
}

/// Returns an error that begins with the source that it is about.
fn named(shown: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("{shown}: {error}"))
}

/// Fails if values of an array are not there, and read as the fill value.
fn check_has_values(hierarchy: &Hierarchy, node: &Node) -> Result<()> {
    let omissions = hierarchy.store().omissions().below(node.path().as_str());
    let missing = omissions.into_iter().find(|(_, omission)| omission.word == Word::Missing);
    missing.map_or(Ok(()), |(_, omission)| Err(Error::invalid(omission.why)))
}

/// Returns the name of an array for messages.
fn shown(name: &str, node: &Node) -> String {
    if name.is_empty() { node.path().to_string() } else { format!("/{name}") }
}

/// Returns the arrays at and below a node. Only the nodes `only` count, if there are some.
fn arrays_of(hierarchy: &Hierarchy, path: &NodePath, only: &[NodePath]) -> Result<Arrays> {
    let mut arrays = Arrays::new();
    let mut add = |node: Arc<Node>| {
        let name = node.path().relative_to(path).unwrap_or_default().to_owned();
        let is_at = |only: &NodePath| {
            name == only.as_str() || name.starts_with(&format!("{}/", only.as_str()))
        };
        if !matches!(node.content(), Content::Group(_))
            && (only.is_empty() || only.iter().any(is_at))
        {
            arrays.insert(name, node);
        }
    };
    add(hierarchy.existing(path)?);
    for node in hierarchy.walk_below(path, Bounds::stream()) {
        add(node?);
    }
    Ok(arrays)
}

/// Returns the attributes of an array, with units and calendar. The bounds of a coordinate may
/// leave out what that has (CF conventions, section 7.1).
fn units_of(arrays: &Arrays, name: &str) -> Option<Object> {
    let mut own = arrays.get(name)?.attributes()?.clone();
    let (group, last) = name.rsplit_once('/').map_or(("", name), |(group, last)| (group, last));
    let is_beside = |other: &str| other.rsplit_once('/').map_or("", |(group, _)| group) == group;
    let names_it = |attributes: &&Object| {
        let named = ["bounds", "climatology"].map(|bounds| attributes.get(bounds));
        named.into_iter().flatten().any(|bounds| bounds.as_str() == Some(last))
    };
    let beside = arrays.iter().filter(|(other, _)| is_beside(other));
    let coordinate = beside.filter_map(|(_, node)| node.attributes()).find(names_it);
    for member in ["units", "calendar"] {
        if let Some(value) = coordinate.and_then(|coordinate| coordinate.get(member)) {
            own.entry(member.to_owned()).or_insert_with(|| value.clone());
        }
    }
    Some(own)
}

/// Returns the array of a node.
fn array_of(node: &Node) -> Result<&Arc<Array>> {
    let array = match node.content() {
        Content::NotUnderstood(_, error) => return Err(error.clone()),
        content => content.array().ok_or_else(|| Error::invalid("a group, not an array"))?,
    };
    array.not_understood().map_or(Ok(array), |error| Err(error.clone()))
}

/// The parts of one array, and the shape that it gets, while the plan is made.
struct Growing {
    parts: Vec<ImportPart>,
    shape: Vec<u64>,
}

struct Planner<'p> {
    placement: &'p Placement,
    targets: &'p Arrays,
    in_order: bool,
    /// Whether xarray takes the fill values of the target for missing ones, although no attribute
    /// says so.
    masks_fill: bool,
    imports: BTreeMap<String, Growing>,
}

impl Planner<'_> {
    /// Fails if the target cannot be extended in this way, whatever comes.
    fn check_target(&self, dest: &Hierarchy, path: &NodePath) -> Result<()> {
        match self.placement {
            Placement::Over => Ok(()),
            Placement::Region(ranges) => self.check_ranges(ranges).at(path),
            Placement::Append(dimension) => {
                let Some(group) = path.parent().filter(|_| self.targets.contains_key("")) else {
                    return Ok(());
                };
                for node in dest.children(&group)?.flatten() {
                    let named = |array: &Arc<Array>| {
                        let names = &array.model().dimension_names;
                        names.iter().flatten().any(|name| name == dimension)
                    };
                    if node.path() != path && node.array().is_some_and(named) {
                        return Err(Error::invalid(format!(
                            "{} also has the dimension {dimension}, and would be left shorter than \
                             this array: import into the group",
                            node.path()
                        )));
                    }
                }
                Ok(())
            }
        }
    }

    /// Fails if a range is of no dimension, or of the same one as another.
    fn check_ranges(&self, ranges: &[(String, Option<u64>, Option<u64>)]) -> Result<()> {
        for (at, (name, ..)) in ranges.iter().enumerate() {
            let mut arrays = self.targets.values().filter_map(|node| node.array());
            if !arrays.any(|array| axes_of(array, name).next().is_some()) {
                return Err(Error::invalid(format!("no array has a dimension {name:?}")));
            }
            if ranges.iter().take(at).any(|(other, ..)| other == name) {
                return Err(Error::invalid(format!("--region has the dimension {name:?} twice")));
            }
        }
        Ok(())
    }

    /// Adds all arrays of a source.
    fn source(&mut self, source: &ImportSource, path: &NodePath, only: &[NodePath]) -> Result<()> {
        let found =
            self.renamed(arrays_of(&source.hierarchy, &source.path, only)?, source, path)?;
        let shifts = self.shifts(&found)?;
        for (name, node) in &found {
            check_has_values(&source.hierarchy, node).at(shown(name, node))?;
            self.add(source, name, node, shifts.get(name).cloned()).at(shown(name, node))?;
        }
        self.check_all_grew(&found)
    }

    /// Returns the arrays of a source under the names that they have in the target. If one of both
    /// is an array and not a group, it is paired by its name.
    fn renamed(&self, mut found: Arrays, source: &ImportSource, path: &NodePath) -> Result<Arrays> {
        let is_alone = |arrays: &Arrays| arrays.contains_key("");
        let is_nameless = source.lacks_names || is_alone(&found) && is_alone(self.targets);
        if let (Some(name), 1, 1, true) =
            (self.targets.keys().next(), self.targets.len(), found.len(), is_nameless)
        {
            return Ok(found.into_values().map(|node| (name.clone(), node)).collect());
        }
        match (is_alone(&found), is_alone(self.targets)) {
            (true, false) => {
                let node = found.remove("").ok_or_else(Error::not_found)?;
                Ok(Arrays::from([(source.name.clone(), node)]))
            }
            (false, true) => {
                let name = path.name().unwrap_or_default();
                let node = found.remove(name).ok_or_else(|| {
                    let names: Vec<&str> = found.keys().map(String::as_str).collect();
                    Error::invalid(format!(
                        "it has no array named {name:?}: choose one with FILE#NAME, where NAME is one of: {}",
                        names.join(", ")
                    ))
                })?;
                Ok(Arrays::from([(String::new(), node)]))
            }
            _ => Ok(found),
        }
    }

    /// Returns how times of the source become those of the target, by the names of the arrays.
    fn shifts(&self, found: &Arrays) -> Result<BTreeMap<String, TimeShift>> {
        let mut shifts = BTreeMap::new();
        for (name, node) in found {
            let (from, to) = (units_of(found, name), units_of(self.targets, name));
            let Some((from, to)) = from.zip(to) else { continue };
            check_units(&from, &to).at(shown(name, node))?;
            if let Some(shift) = TimeShift::between(&from, &to).at(shown(name, node))? {
                shifts.insert(name.clone(), shift);
            }
        }
        Ok(shifts)
    }

    fn add(
        &mut self,
        from: &ImportSource,
        name: &str,
        node: &Node,
        shift: Option<TimeShift>,
    ) -> Result<()> {
        let target = self.targets.get(name).ok_or_else(|| {
            Error::invalid("the target has no such array: choose others with --only")
        })?;
        let (source, now) = (array_of(node)?, array_of(target)?);
        check_meaning(source, now, self.masks_fill)?;
        let shape =
            self.imports.get(name).map_or(&now.model().shape, |growing| &growing.shape).clone();
        let packing = Packing::of(&source.model().dtype, &source.model().attributes);
        if shift.is_some() && !packing.changes_nothing() {
            return Err(Error::invalid(
                "its times are packed (scale_factor, add_offset or _Unsigned), and in other units \
                 than those of the target: unpack them first",
            ));
        }
        let said = format!("{}: {}", from.shown, shown(name, node)).into();
        let (source, at) = (Arc::clone(source), vec![0; shape.len()]);
        let mut part = ImportPart { shown: said, source, at, shift, packing };
        let Some(shape) = self.place(&mut part, now, shape)? else {
            return match first_difference(&part, now)? {
                None => Ok(()),
                Some(at) => Err(Error::invalid(format!(
                    "its values differ from those of the target, first in the chunk that begins at \
                     {at:?}, and the import would not change them: leave this array out by naming \
                     the others with --only"
                ))),
            };
        };
        let growing = || Growing { parts: Vec::new(), shape: Vec::new() };
        let growing = self.imports.entry(name.to_owned()).or_insert_with(growing);
        let place = part.place();
        if growing.parts.iter().any(|other| other.place().intersection(&place).is_some()) {
            return Err(Error::invalid("another file of this import goes to the same elements"));
        }
        growing.parts.push(part);
        growing.shape = shape;
        Ok(())
    }

    /// Places a part in its array, which has a `shape` by now. Returns the shape that it gets;
    /// `None` if the array must have the same values already.
    fn place(
        &self,
        part: &mut ImportPart,
        now: &Array,
        mut shape: Vec<u64>,
    ) -> Result<Option<Vec<u64>>> {
        let lens = part.source.model().shape.clone();
        let names = &now.model().dimension_names;
        let mut is_placed = matches!(self.placement, Placement::Over);
        if let Placement::Append(dimension) = self.placement
            && axes_of(now, dimension).count() > 1
        {
            let detail = format!("it has the dimension {dimension} more than once");
            return Err(Error::invalid(detail));
        }
        for (axis, (len, all)) in lens.iter().zip(&mut shape).enumerate() {
            let name = names.get(axis).and_then(Option::as_deref);
            let at = match self.placement {
                Placement::Over => None,
                Placement::Append(dimension) => is_dimension(dimension, axis, name).then(|| {
                    let at = *all;
                    *all = all.saturating_add(*len);
                    Ok(at)
                }),
                Placement::Region(ranges) => {
                    let range = ranges.iter().find(|(one, ..)| is_dimension(one, axis, name));
                    range.map(|(one, from, until)| {
                        let start = from.unwrap_or(0);
                        let end = until.unwrap_or(start.saturating_add(*len));
                        if end.checked_sub(start) != Some(*len) || end > *all {
                            return Err(Error::invalid(format!(
                                "it has {len} elements along {one}, and these do not fit {one}={start}:{end}; the \
                                 target has {all}: correct --region"
                            )));
                        }
                        Ok(start)
                    })
                }
            };
            match at.transpose()? {
                Some(at) => {
                    is_placed = true;
                    if let Some(start) = part.at.get_mut(axis) {
                        *start = at;
                    }
                }
                None if len == all => {}
                None => {
                    let name = name.map_or_else(|| axis.to_string(), str::to_owned);
                    return Err(Error::invalid(format!(
                        "it has {len} elements along {name}, and the target has {all}"
                    )));
                }
            }
        }
        Ok(is_placed.then_some(shape))
    }

    /// Fails if an array of the target has the dimension that grows, and the source lacks it: the
    /// arrays would no longer fit together.
    fn check_all_grew(&self, found: &Arrays) -> Result<()> {
        let Placement::Append(dimension) = self.placement else { return Ok(()) };
        for (name, target) in self.targets {
            let Some(array) = target.array() else { continue };
            if !found.contains_key(name) && axes_of(array, dimension).next().is_some() {
                return Err(Error::invalid(format!(
                    "it lacks the array {name:?}, and that of the target has the dimension {dimension} and \
                     must grow as well: add it to the file"
                )));
            }
        }
        Ok(())
    }

    fn finish(self, dest: &Hierarchy, path: &NodePath) -> Result<ImportPlan> {
        let mut arrays = Vec::new();
        let mut coordinates = Vec::new();
        for (name, Growing { parts, shape }) in self.imports {
            let Some(node) = self.targets.get(&name) else { continue };
            let now = array_of(node)?;
            let grown =
                if shape == now.model().shape { Arc::clone(now) } else { now.with_shape(shape)? };
            let path = node.path().clone();
            let import =
                ArrayImport { path, seen: Arc::clone(node), now: Arc::clone(now), grown, parts };
            check_times(&import)?;
            let last = name.rsplit('/').next().unwrap_or_default();
            match self.placement {
                Placement::Append(dimension) if last == dimension => {
                    if self.in_order {
                        check_order(&import)?;
                    }
                    coordinates.push(import);
                }
                _ => arrays.push(import),
            }
        }
        arrays.append(&mut coordinates);
        if arrays.is_empty() {
            let what = match self.placement {
                Placement::Append(dimension) => format!("no array has a dimension {dimension:?}"),
                Placement::Region(_) => "no array has one of these dimensions".to_owned(),
                Placement::Over => "the sources have no array".to_owned(),
            };
            return Err(Error::invalid(what).at(dest.existing(path)?.path()));
        }
        Ok(ImportPlan { arrays })
    }
}

/// Returns the axes of an array that a user means.
fn axes_of(array: &Array, typed: &str) -> impl Iterator<Item = usize> {
    let names = &array.model().dimension_names;
    let name = |axis: usize| names.get(axis).and_then(Option::as_deref);
    (0..array.model().shape.len()).filter(move |axis| is_dimension(typed, *axis, name(*axis)))
}

/// Whether a user means this dimension: by its name, or by its number if it has none.
fn is_dimension(typed: &str, axis: usize, name: Option<&str>) -> bool {
    name.map_or_else(|| typed.parse() == Ok(axis), |name| name == typed)
}

/// Fails if elements of `source` would mean something else in `target`.
fn check_meaning(source: &Array, target: &Array, masks_fill: bool) -> Result<()> {
    let (from, to) = (source.model(), target.model());
    if from.shape.len() != to.shape.len() {
        let detail =
            format!("{} dimensions, and the target has {}", from.shape.len(), to.shape.len());
        return Err(Error::invalid(detail));
    }
    if from.dtype != to.dtype {
        return Err(Error::invalid(format!(
            "its type is {}, and that of the target {}",
            from.dtype.name(),
            to.dtype.name()
        )));
    }
    let named = from.dimension_names.iter().zip(&to.dimension_names);
    for (one, two) in named.filter_map(|(one, two)| Some((one.as_ref()?, two.as_ref()?))) {
        if one != two {
            let detail = format!("a dimension is {one}, and that of the target {two}");
            return Err(Error::invalid(detail));
        }
    }
    let packing = |attributes: &Object| Packing::of(&to.dtype, attributes);
    if packing(&from.attributes).is_like(&packing(&to.attributes), masks_fill) {
        return Ok(());
    }
    let shown = |attributes: &Object, name: &str| {
        attributes.get(name).map_or_else(|| "missing".to_owned(), Value::to_string)
    };
    let differ =
        PACKING.into_iter().filter(|name| from.attributes.get(*name) != to.attributes.get(*name));
    let said = differ.map(|name| {
        let (one, two) = (shown(&from.attributes, name), shown(&to.attributes, name));
        format!("its {name} is {one}, and that of the target {two}")
    });
    let said: Vec<String> = said.collect();
    Err(Error::invalid(format!("its values mean something else: {}", said.join("; "))))
}

/// The attributes that say how values are packed.
const PACKING: [&str; 5] =
    ["scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];

/// Fails if the units of a source and those of the target differ, and are no units of time.
fn check_units(from: &Object, to: &Object) -> Result<()> {
    let units = |attributes: &Object| {
        let units = attributes.get("units").and_then(Value::as_str);
        units.map(|units| units.trim().to_owned())
    };
    let (one, two) = (units(from), units(to));
    let is_time = |units: &Option<String>| units.as_ref().is_some_and(|it| is_since(it));
    if one == two || is_time(&one) && is_time(&two) {
        return Ok(());
    }
    let shown = |units: &Option<String>| {
        units.as_ref().map_or_else(|| "missing".to_owned(), |units| format!("{units:?}"))
    };
    let (one, two) = (shown(&one), shown(&two));
    Err(Error::invalid(format!("its units are {one}, and those of the target {two}")))
}

/// Fails if a coordinate would not go on in its direction: most often, the same files were
/// appended before.
fn check_order(import: &ArrayImport) -> Result<()> {
    if import.now.model().shape.len() != 1 || import.now.model().dtype.is_variable() {
        return Ok(());
    }
    let (before, new) = values_along(import)?;
    let goes = |values: &[Element], order: Ordering| {
        values.windows(2).all(|pair| matches!(pair, [a, b] if compared(*a, *b) == Some(order)))
    };
    let (rises, falls) = (Ordering::Less, Ordering::Greater);
    let all: Vec<Element> = before.iter().chain(&new).copied().collect();
    let had_order = before.len() < 2 || goes(&before, rises) || goes(&before, falls);
    // Two values alone would always be in some order.
    let may_fall = all.len() > 2;
    let can_compare = all.iter().all(|one| !matches!(one, Element::Bytes | Element::Complex(..)));
    if !had_order || !can_compare || goes(&all, rises) || may_fall && goes(&all, falls) {
        return Ok(());
    }
    let order_of = |pair: &[Element]| match pair {
        [a, b] => compared(*a, *b),
        _ => None,
    };
    let falls_first = may_fall && all.windows(2).next().and_then(order_of) == Some(falls);
    let order = if falls_first { falls } else { rises };
    let wrong = all.windows(2).position(|pair| order_of(pair) != Some(order)).unwrap_or_default();
    let shown = |at: usize| match all.get(at) {
        Some(Element::Int(int)) => int.to_string(),
        Some(Element::Float(float)) => float.to_string(),
        Some(Element::Complex(..) | Element::Bytes) | None => "nothing".to_owned(),
    };
    let after = wrong.saturating_add(1);
    let mut rest = after.saturating_sub(before.len()).to_u64();
    let part = import.parts.iter().find(|part| {
        let len = part.source.model().shape.first().copied().unwrap_or_default();
        let is_in = rest < len;
        rest = rest.saturating_sub(len);
        is_in
    });
    Err(Error::invalid(format!(
        "{}: its values would not stay in order: {} would follow {}. If the file was appended before, \
         replace its elements with --region; to append it anyway, use --any-order",
        part.map_or("", |part| &part.shown),
        shown(after),
        shown(wrong)
    )))
}

/// Compares two numbers.
fn compared(one: Element, two: Element) -> Option<Ordering> {
    match (one, two) {
        (Element::Int(one), Element::Int(two)) => Some(one.cmp(&two)),
        (Element::Float(one), Element::Float(two)) => one.partial_cmp(&two),
        _ => None,
    }
}
