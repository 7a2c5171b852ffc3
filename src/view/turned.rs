//! Copies between a chunk and elements whose axes are in another order than those of the array.

use std::sync::Arc;

use crate::array::region::{self, Offset};
use crate::error::{Error, Kind, Result};
use crate::width::ToUsize;

/// The axes of an array in the order of a file, the slowest first, if it is another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AxisOrder(Option<Arc<[usize]>>);

impl AxisOrder {
    /// Returns the order of `rank` axes. Those that are not in `order` follow unchanged.
    pub fn new(order: &[usize], rank: usize) -> Result<Self> {
        let rest = (0..rank).filter(|axis| !order.contains(axis));
        let order: Vec<usize> = order.iter().copied().chain(rest).collect();
        if order.len() != rank {
            return Err(Error::new(Kind::Internal, "an order of other axes"));
        }
        let is_same = order.iter().enumerate().all(|(place, axis)| place == *axis);
        Ok(Self((!is_same).then(|| order.into())))
    }

    /// Returns the axes, `None` if they have the order of the array.
    pub fn axes(&self) -> Option<&[usize]> {
        self.0.as_deref()
    }

    /// Returns a list of one number for each axis of the array, in the order of the file.
    pub fn in_file(&self, of_array: &[u64]) -> Vec<u64> {
        match self.axes() {
            Some(order) => order.iter().filter_map(|axis| of_array.get(*axis)).copied().collect(),
            None => of_array.to_vec(),
        }
    }

    /// Returns a list of one number for each axis of the file, in the order of the array.
    pub fn in_array(&self, of_file: Vec<u64>) -> Vec<u64> {
        let Some(order) = self.axes() else { return of_file };
        let mut of_array = vec![0; of_file.len()];
        for (axis, number) in order.iter().zip(of_file) {
            of_array.get_mut(*axis).into_iter().for_each(|own| *own = number);
        }
        of_array
    }
}

/// A box of elements in a chunk, and its place in a run of elements in another order of axes. All
/// shapes are in the order of the array.
pub(super) struct Turned<'t> {
    pub in_chunk: Offset<'t>,
    pub in_run: Offset<'t>,
    pub extent: &'t [u64],
    /// The axes of the array in the order of the run, the slowest first.
    pub order: &'t [usize],
    pub item_len: usize,
}

impl Turned<'_> {
    /// Calls `each` for each element of the box, with its offset in the chunk and in the run, in
    /// bytes.
    fn for_each(&self, each: &mut dyn FnMut(usize, usize) -> Option<()>) -> Result<()> {
        if self.extent.contains(&0) {
            return Ok(());
        }
        let axes: Vec<usize> = (0..self.extent.len()).collect();
        let chunk = strides(self.in_chunk.shape, &axes);
        let run = strides(self.in_run.shape, self.order);
        let offset = |at: &[u64], start: &[u64], strides: &[u64]| {
            let steps = at.iter().zip(start).zip(strides);
            let index = steps.fold(0_u64, |all, ((at, start), stride)| {
                all.saturating_add(at.saturating_add(*start).saturating_mul(*stride))
            });
            index.to_usize().checked_mul(self.item_len)
        };
        let mut at = vec![0; self.extent.len()];
        loop {
            let from = offset(&at, self.in_chunk.start, &chunk).ok_or_else(outside)?;
            let to = offset(&at, self.in_run.start, &run).ok_or_else(outside)?;
            each(from, to).ok_or_else(outside)?;
            if !region::step(&mut at, self.extent) {
                return Ok(());
            }
        }
    }

    /// Copies from a chunk, without its first `skipped` bytes, to a run.
    pub fn to_run(&self, (chunk, skipped): (&[u8], usize), run: &mut [u8]) -> Result<()> {
        self.for_each(&mut |from, to| {
            let from = from.checked_sub(skipped)?;
            let item = chunk.get(from..from.checked_add(self.item_len)?)?;
            run.get_mut(to..to.checked_add(self.item_len)?)?.copy_from_slice(item);
            Some(())
        })
    }

    /// Copies from a run to a chunk.
    pub fn to_chunk(&self, run: &[u8], chunk: &mut [u8]) -> Result<()> {
        self.for_each(&mut |to, from| {
            let item = run.get(from..from.checked_add(self.item_len)?)?;
            chunk.get_mut(to..to.checked_add(self.item_len)?)?.copy_from_slice(item);
            Some(())
        })
    }
}

/// Returns the distance between neighbours along each axis in elements, with the axes in memory in
/// the order `order`.
fn strides(shape: &[u64], order: &[usize]) -> Vec<u64> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1_u64;
    for axis in order.iter().rev() {
        strides.get_mut(*axis).into_iter().for_each(|own| *own = stride);
        stride = stride.saturating_mul(shape.get(*axis).copied().unwrap_or(1));
    }
    strides
}

fn outside() -> Error {
    Error::new(Kind::Internal, "a range outside of its elements")
}
