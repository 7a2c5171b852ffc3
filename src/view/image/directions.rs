//! The directions of the axes of an image that is turned or sheared in its coordinate system.

use super::axis::{AxisKind, Scale};
use super::transform::Linear;
use super::unit::Unit;

/// The directions of the axes of an array in space.
#[derive(Debug, Clone, PartialEq)]
pub struct Directions {
    /// For each axis of the array, the step between elements along x, y and z.
    steps: Vec<[f64; 3]>,
    /// The position of the first element along x, y and z.
    origin: [f64; 3],
    /// The units of x, y and z.
    units: [Option<Unit>; 3],
}

impl Directions {
    /// Returns the directions in a system with these axes: the kind of each axis of space, and its
    /// unit.
    pub(super) fn new(map: &Linear, axes: &[Option<(AxisKind, Option<Unit>)>]) -> Self {
        let inputs = map.inputs();
        let mut found =
            Self { steps: vec![[0.0; 3]; inputs], origin: [0.0; 3], units: [const { None }; 3] };
        for (output, axis) in axes.iter().enumerate() {
            let Some((kind, unit)) = axis else { continue };
            let at = place(*kind);
            for (input, step) in found.steps.iter_mut().enumerate() {
                step.get_mut(at).into_iter().for_each(|step| *step = map.factor(output, input));
            }
            found.origin.get_mut(at).into_iter().for_each(|start| *start = map.start(output));
            found.units.get_mut(at).into_iter().for_each(|own| own.clone_from(unit));
        }
        found
    }

    /// Returns the distance between neighbours along an axis of the array, for formats without
    /// directions, with the position of the first element along the axis of its kind. `None` if it
    /// does not run through space, or if the units differ.
    pub(super) fn scale(&self, axis: usize, kind: Option<AxisKind>) -> Option<Scale> {
        let step = self.steps.get(axis)?;
        let kind = kind.filter(|kind| kind.is_space())?;
        let unit = self.has_one_unit().then(|| self.units.iter().flatten().next().cloned())?;
        let len = step.iter().map(|part| part * part).sum::<f64>().sqrt();
        let start = self.origin.get(place(kind)).copied().unwrap_or_default();
        len.is_normal().then_some(Scale { step: len, start, unit })
    }

    /// Whether no two axes of space have different units.
    fn has_one_unit(&self) -> bool {
        let first = self.units.iter().flatten().next();
        self.units.iter().flatten().all(|unit| Some(unit) == first)
    }

    /// Returns the step between elements along an axis of the array in x, y and z.
    pub fn step(&self, axis: usize) -> [f64; 3] {
        self.steps.get(axis).copied().unwrap_or_default()
    }

    /// Returns the position of the first element in x, y and z.
    pub fn origin(&self) -> [f64; 3] {
        self.origin
    }

    /// Returns the units of x, y and z.
    pub fn units(&self) -> &[Option<Unit>; 3] {
        &self.units
    }

    /// Returns steps and origin in ten to the power of `exponent` metres; as they are if their unit
    /// is unknown.
    #[must_use]
    pub fn in_unit(mut self, exponent: Option<i32>) -> Self {
        for at in 0..3 {
            let unit = self.units.get(at).cloned().flatten();
            let convert = |value: f64| {
                let in_unit = || unit.as_ref()?.convert(value, exponent?);
                in_unit().unwrap_or(value)
            };
            for step in &mut self.steps {
                step.get_mut(at).into_iter().for_each(|step| *step = convert(*step));
            }
            self.origin.get_mut(at).into_iter().for_each(|start| *start = convert(*start));
        }
        self
    }
}

/// The place of an axis among x, y and z.
fn place(kind: AxisKind) -> usize {
    match kind {
        AxisKind::Y => 1,
        AxisKind::Z => 2,
        _ => 0,
    }
}
