//! The coordinate transformations of OME-Zarr that are linear
//! (<https://ngff.openmicroscopy.org/0.6/#coordinatetransformations-metadata>).
//!
//! A transformation maps points of an input system to points of an output system. Those that are
//! not linear, `displacements` and `coordinates`, are refused by name.

use serde_json::Value;

/// The most axes of a coordinate system.
const MOST_AXES: usize = 16;

/// The most transformations in one, and how deep they may be nested.
const MOST_STEPS: usize = 256;
const DEEPEST: usize = 8;

/// The names of the members with numbers, which are those of the types.
const SCALE: &str = "scale";
const TRANSLATION: &str = "translation";
const AFFINE: &str = "affine";
const ROTATION: &str = "rotation";

/// A linear map of points: a row for each axis of the output, with a factor for each axis of the
/// input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Linear {
    /// The number of axes of the input.
    inputs: usize,
    rows: Vec<Row>,
}

/// The position along an axis of the output.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    factors: Vec<f64>,
    start: f64,
}

/// Reads the numbers of an array of one or two dimensions, by its path in the metadata: its shape
/// and its elements in C order.
pub(super) type ReadNumbers<'r> = &'r dyn Fn(&str) -> Option<(Vec<u64>, Vec<f64>)>;

impl Linear {
    /// Returns the map that changes nothing.
    pub fn identity(rank: usize) -> Self {
        let row = |own: usize| Row {
            factors: (0..rank).map(|at| f64::from(u8::from(at == own))).collect(),
            start: 0.0,
        };
        Self { inputs: rank, rows: (0..rank).map(row).collect() }
    }

    /// Reads a transformation of points with `inputs` coordinates. The error names the type of
    /// transformation that has no linear form, or what is wrong.
    pub fn parse(
        transform: &Value,
        inputs: usize,
        numbers: ReadNumbers<'_>,
    ) -> Result<Self, String> {
        Self::parse_at(transform, inputs, numbers, 0)
    }

    fn parse_at(
        transform: &Value,
        inputs: usize,
        numbers: ReadNumbers<'_>,
        depth: usize,
    ) -> Result<Self, String> {
        if inputs > MOST_AXES || depth > DEEPEST {
            return Err("too many axes, or too deeply nested transformations".to_owned());
        }
        let kind = transform.get("type").and_then(Value::as_str).unwrap_or_default();
        let vector = |name: &str| {
            let found = matrix(transform, name, numbers).map(|rows| rows.concat());
            found.filter(|list| list.len() == inputs).ok_or_else(|| wrong(kind))
        };
        let mut map = Self::identity(inputs);
        match kind {
            "identity" => {}
            SCALE => map.scale_by(&vector(SCALE)?),
            TRANSLATION => {
                for (row, by) in map.rows.iter_mut().zip(vector(TRANSLATION)?) {
                    row.start = by;
                }
            }
            AFFINE | ROTATION => {
                let columns = inputs.saturating_add(usize::from(kind == AFFINE));
                let rows = matrix(transform, kind, numbers).ok_or_else(|| wrong(kind))?;
                if rows.len() > MOST_AXES || rows.iter().any(|row| row.len() != columns) {
                    return Err(wrong(kind));
                }
                let row = |mut factors: Vec<f64>| {
                    let start = if kind == AFFINE { factors.pop() } else { None };
                    Row { factors, start: start.unwrap_or_default() }
                };
                map.rows = rows.into_iter().map(row).collect();
            }
            "mapAxis" => {
                let order = indices(transform.get("mapAxis")).ok_or_else(|| wrong(kind))?;
                map.rows = pick(&map.rows, &order).ok_or_else(|| wrong(kind))?;
                if !is_permutation(&order, inputs) {
                    return Err(wrong(kind));
                }
            }
            "projectAxis" => {
                let dropped = indices(transform.get("droppedInputs")).unwrap_or_default();
                let created = indices(transform.get("createdOutputs")).unwrap_or_default();
                map.project(&dropped, &created).ok_or_else(|| wrong(kind))?;
            }
            "sequence" => {
                for step in list(transform, "transformations") {
                    let next = Self::parse_at(step, map.rows.len(), numbers, depth + 1)?;
                    map = map.then(&next).ok_or_else(|| wrong(kind))?;
                }
            }
            "bijection" => {
                let forward = transform.get("forward").ok_or_else(|| wrong(kind))?;
                return Self::parse_at(forward, inputs, numbers, depth + 1);
            }
            "byDimension" => return Self::by_dimension(transform, inputs, numbers, depth),
            other => return Err(format!("a transformation of type {other:?}")),
        }
        let is_finite =
            |row: &Row| row.start.is_finite() && row.factors.iter().all(|f| f.is_finite());
        if map.rows.iter().all(is_finite) { Ok(map) } else { Err(wrong(kind)) }
    }

    /// Reads a transformation that consists of others, each of some axes.
    fn by_dimension(
        transform: &Value,
        inputs: usize,
        numbers: ReadNumbers<'_>,
        depth: usize,
    ) -> Result<Self, String> {
        let bad = || wrong("byDimension");
        let mut rows: Vec<Option<Row>> = vec![None; MOST_AXES];
        for part in list(transform, "transformations") {
            let axes = |name: &str, old: &str| indices(part.get(name).or_else(|| part.get(old)));
            let from = axes("inputAxes", "input_axes").ok_or_else(bad)?;
            let to = axes("outputAxes", "output_axes").ok_or_else(bad)?;
            let own = part.get("transformation").unwrap_or(part);
            let map = Self::parse_at(own, from.len(), numbers, depth + 1)?;
            if map.rows.len() != to.len() {
                return Err(bad());
            }
            for (row, at) in map.rows.into_iter().zip(to) {
                let mut factors = vec![0.0; inputs];
                for (factor, axis) in row.factors.into_iter().zip(&from) {
                    *factors.get_mut(*axis).ok_or_else(bad)? = factor;
                }
                let place = rows.get_mut(at).filter(|place| place.is_none()).ok_or_else(bad)?;
                *place = Some(Row { factors, start: row.start });
            }
        }
        let count = rows.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        rows.truncate(count);
        let rows: Option<Vec<Row>> = rows.into_iter().collect();
        Ok(Self { inputs, rows: rows.ok_or_else(bad)? })
    }

    fn scale_by(&mut self, scale: &[f64]) {
        for (row, by) in self.rows.iter_mut().zip(scale) {
            row.factors.iter_mut().for_each(|factor| *factor *= by);
        }
    }

    /// Removes axes of the input, and adds axes of the output that are 0. `None` if there are no
    /// such axes.
    fn project(&mut self, dropped: &[usize], created: &[usize]) -> Option<()> {
        if dropped.iter().any(|at| *at >= self.inputs) {
            return None;
        }
        let mut at = 0_usize;
        self.rows.retain(|_| {
            at = at.saturating_add(1);
            !dropped.contains(&(at - 1))
        });
        let mut created = created.to_vec();
        created.sort_unstable();
        for place in created {
            if place > self.rows.len() || self.rows.len() >= MOST_AXES {
                return None;
            }
            self.rows.insert(place, Row { factors: vec![0.0; self.inputs], start: 0.0 });
        }
        Some(())
    }

    /// Returns the map that applies this one and then `next`.
    pub fn then(&self, next: &Self) -> Option<Self> {
        if next.inputs != self.rows.len() {
            return None;
        }
        let row = |row: &Row| {
            let mut combined = Row { factors: vec![0.0; self.inputs], start: row.start };
            for (by, own) in row.factors.iter().zip(&self.rows) {
                // A factor of 0 must not make NaN of anything.
                if *by == 0.0 {
                    continue;
                }
                combined.start += by * own.start;
                for (factor, own) in combined.factors.iter_mut().zip(&own.factors) {
                    *factor += by * own;
                }
            }
            combined
        };
        Some(Self { inputs: self.inputs, rows: next.rows.iter().map(row).collect() })
    }

    /// Returns the map of the other direction, `None` if there is none.
    pub fn inverse(&self) -> Option<Self> {
        let rank = self.inputs;
        if self.rows.len() != rank {
            return None;
        }
        let mut left: Vec<Vec<f64>> = self.rows.iter().map(|row| row.factors.clone()).collect();
        let mut right = Self::identity(rank);
        for column in 0..rank {
            let largest =
                |at: &usize| left.get(*at).and_then(|row| row.get(column)).map_or(0.0, |f| f.abs());
            let pivot = (column..rank).max_by(|a, b| largest(a).total_cmp(&largest(b)))?;
            left.swap(column, pivot);
            right.rows.swap(column, pivot);
            let by = *left.get(column)?.get(column)?;
            if !by.is_normal() {
                return None;
            }
            left.get_mut(column)?.iter_mut().for_each(|factor| *factor /= by);
            right.rows.get_mut(column)?.factors.iter_mut().for_each(|factor| *factor /= by);
            let (own, own_right) =
                (left.get(column)?.clone(), right.rows.get(column)?.factors.clone());
            for at in (0..rank).filter(|at| *at != column) {
                let by = *left.get(at)?.get(column)?;
                let subtract = |(factor, own): (&mut f64, &f64)| *factor -= by * own;
                left.get_mut(at)?.iter_mut().zip(&own).for_each(subtract);
                right.rows.get_mut(at)?.factors.iter_mut().zip(&own_right).for_each(subtract);
            }
        }
        for row in &mut right.rows {
            let moved: f64 = row.factors.iter().zip(&self.rows).map(|(f, own)| f * own.start).sum();
            row.start = 0.0 - moved;
        }
        Some(right)
    }

    /// Returns the number of axes of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of axes of the output.
    pub fn outputs(&self) -> usize {
        self.rows.len()
    }

    /// Returns the factor of an axis of the input in the position along an axis of the output.
    pub fn factor(&self, output: usize, input: usize) -> f64 {
        self.rows.get(output).and_then(|row| row.factors.get(input)).copied().unwrap_or_default()
    }

    /// Returns the position of the first element along an axis of the output.
    pub fn start(&self, output: usize) -> f64 {
        self.rows.get(output).map_or(0.0, |row| row.start)
    }

    /// Returns the one axis of the output along which an axis of the input runs, if the position
    /// along that depends on no other.
    pub fn axis_of(&self, input: usize) -> Option<usize> {
        let uses = |input: usize| {
            (0..self.rows.len()).filter(move |output| self.factor(*output, input) != 0.0)
        };
        let output = uses(input).next().filter(|_| uses(input).count() == 1)?;
        let is_alone =
            (0..self.inputs).all(|other| other == input || self.factor(output, other) == 0.0);
        is_alone.then_some(output)
    }
}

fn wrong(kind: &str) -> String {
    format!("a transformation of type {kind:?} whose numbers do not fit its axes")
}

fn list<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    value.get(member).and_then(Value::as_array).into_iter().flatten().take(MOST_STEPS)
}

fn indices(value: Option<&Value>) -> Option<Vec<usize>> {
    let index = |index: &Value| index.as_u64().and_then(|index| usize::try_from(index).ok());
    let items = value?.as_array()?.iter().take(MOST_AXES.saturating_add(1));
    items.map(index).collect::<Option<Vec<_>>>().filter(|list| list.len() <= MOST_AXES)
}

fn pick(rows: &[Row], order: &[usize]) -> Option<Vec<Row>> {
    order.iter().map(|at| rows.get(*at).cloned()).collect()
}

fn is_permutation(order: &[usize], len: usize) -> bool {
    order.len() == len && (0..len).all(|at| order.contains(&at))
}

/// Returns the rows of a member with numbers, or of the array at `path`. A list is one row.
fn matrix(transform: &Value, member: &str, numbers: ReadNumbers<'_>) -> Option<Vec<Vec<f64>>> {
    if let Some(rows) = transform.get(member).and_then(Value::as_array) {
        let floats = |list: &[Value]| list.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
        return match floats(rows) {
            Some(list) => Some(vec![list]),
            None => rows.iter().map(|row| floats(row.as_array()?)).collect(),
        };
    }
    let (shape, values) = numbers(transform.get("path")?.as_str()?)?;
    match shape.as_slice() {
        [_] => Some(vec![values]),
        [_, columns] => {
            let columns = usize::try_from(*columns).ok().filter(|columns| *columns > 0)?;
            Some(values.chunks(columns).map(<[f64]>::to_vec).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(transform: &Value, inputs: usize) -> Result<Linear, String> {
        Linear::parse(transform, inputs, &|path| {
            (path == "affine").then(|| (vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        })
    }

    fn apply(map: &Linear, point: &[f64]) -> Vec<f64> {
        let row =
            |row: &Row| row.start + row.factors.iter().zip(point).map(|(f, x)| f * x).sum::<f64>();
        map.rows.iter().map(row).collect()
    }

    #[test]
    fn each_transformation_maps_points_as_the_specification_says() {
        // The functions beside the examples of the specification.
        for (transform, point, expected) in [
            (json!({"type": "identity"}), vec![3.0, 4.0], vec![3.0, 4.0]),
            (json!({"type": "mapAxis", "mapAxis": [1, 0]}), vec![3.0, 4.0], vec![4.0, 3.0]),
            (
                json!({"type": "projectAxis", "createdOutputs": [0, 1]}),
                vec![3.0, 4.0],
                vec![0.0, 0.0, 3.0, 4.0],
            ),
            (
                json!({"type": "projectAxis", "createdOutputs": [0], "droppedInputs": [0]}),
                vec![9.0, 3.0, 4.0],
                vec![0.0, 3.0, 4.0],
            ),
            (
                json!({"type": "translation", "translation": [9, -1.42]}),
                vec![1.0, 1.0],
                vec![10.0, -0.42],
            ),
            (json!({"type": "scale", "scale": [3.12, 2]}), vec![1.0, 2.0], vec![3.12, 4.0]),
            (
                json!({"type": "affine", "affine": [[1, 2, 3], [4, 5, 6]]}),
                vec![1.0, 10.0],
                vec![24.0, 60.0],
            ),
            (json!({"type": "affine", "path": "affine"}), vec![1.0, 10.0], vec![24.0, 60.0]),
            (
                json!({"type": "affine", "affine": [[0, 0, 1], [3, 4, 2], [6, 7, 5]]}),
                vec![1.0, 1.0],
                vec![1.0, 9.0, 18.0],
            ),
            (
                json!({"type": "rotation", "rotation": [[0, -1], [1, 0]]}),
                vec![3.0, 4.0],
                vec![-4.0, 3.0],
            ),
            (
                json!({"type": "sequence", "transformations": [
                    {"type": "translation", "translation": [0.1, 0.9]},
                    {"type": "scale", "scale": [2, 3]},
                ]}),
                vec![0.0, 0.0],
                vec![0.2, 2.7],
            ),
            (
                json!({"type": "byDimension", "transformations": [
                    {"transformation": {"type": "translation", "translation": [-1.0]},
                     "inputAxes": [1], "outputAxes": [1]},
                    {"transformation": {"type": "scale", "scale": [2.0]},
                     "inputAxes": [0], "outputAxes": [0]},
                ]}),
                vec![3.0, 4.0],
                vec![6.0, 3.0],
            ),
            (
                json!({"type": "bijection", "forward": {"type": "scale", "scale": [2, 2]},
                       "inverse": {"type": "displacements", "path": "x"}}),
                vec![1.0, 2.0],
                vec![2.0, 4.0],
            ),
        ] {
            let map = parse(&transform, point.len()).expect("linear");
            let found = apply(&map, &point);
            let is_near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12);
            assert!(is_near && found.len() == expected.len(), "{transform}: {found:?}");
        }
    }

    #[test]
    fn a_transformation_that_is_not_linear_or_does_not_fit_is_an_error_that_names_it() {
        for transform in [
            json!({"type": "displacements", "path": "field"}),
            json!({"type": "coordinates", "path": "field"}),
            json!({"type": "scale", "scale": [1, 2, 3]}),
            json!({"type": "scale", "scale": [1, "x"]}),
            json!({"type": "mapAxis", "mapAxis": [0, 0]}),
            json!({"type": "mapAxis", "mapAxis": [0, 7]}),
            json!({"type": "affine", "affine": [[1, 2], [3, 4]]}),
            json!({"type": "affine", "path": "nowhere"}),
            json!({"type": "projectAxis", "createdOutputs": [9]}),
            json!({"type": "sequence", "transformations": [{"type": "displacements"}]}),
            json!({"type": "byDimension", "transformations": [
                {"transformation": {"type": "scale", "scale": [1]}, "inputAxes": [0], "outputAxes": [2]},
                {"transformation": {"type": "scale", "scale": [1]}, "inputAxes": [1], "outputAxes": [1]},
            ]}),
            json!({"type": 5}),
            json!([]),
        ] {
            let error = parse(&transform, 2).expect_err("not linear");
            assert!(error.starts_with("a transformation of type"), "{transform}: {error}");
        }
        let mut deep = json!({"type": "identity"});
        for _ in 0..100 {
            deep = json!({"type": "sequence", "transformations": [deep]});
        }
        parse(&deep, 2).expect_err("too deep");
    }

    proptest! {
        #[test]
        fn the_inverse_of_a_map_leads_back(
            numbers in prop::collection::vec(-9.0..9.0_f64, 12),
            point in prop::collection::vec(-100.0..100.0_f64, 3),
        ) {
            let rows: Vec<&[f64]> = numbers.chunks(4).collect();
            let map = parse(&json!({"type": "affine", "affine": rows}), 3).expect("linear");
            if let Some(inverse) = map.inverse() {
                let there = apply(&map, &point);
                let again = apply(&inverse, &there);
                let size = inverse.rows.iter().flat_map(|row| &row.factors).fold(1.0, |a: f64, f| a.max(f.abs()));
                for (one, two) in point.iter().zip(again) {
                    prop_assert!((one - two).abs() < 1e-8 * size * 1000.0, "{one} {two}");
                }
            }
        }
    }
}
