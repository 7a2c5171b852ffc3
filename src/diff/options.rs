//! The options of a comparison, and its results.

use serde_json::Value;

use crate::error::Error;
use crate::metadata::NodePath;

/// The options of a comparison.
#[derive(Debug, Clone)]
pub struct DiffOptions {
    /// The largest absolute difference at which two numbers count as equal.
    pub tolerance: f64,
    /// The largest difference at which two numbers count as equal, relative to the number in the
    /// second hierarchy.
    pub relative: f64,
    /// Whether to compare values.
    pub compares_values: bool,
    /// The nodes to compare, relative to the top; all if it is empty.
    pub only: Vec<NodePath>,
    /// The number of threads.
    pub jobs: usize,
    /// The memory for decoded chunks, in bytes.
    pub cache_len: u64,
}

/// A difference.
#[derive(Debug, Clone)]
pub enum Difference {
    /// A node is in only one of the hierarchies: true if that is the first.
    OnlyIn(bool),
    /// A member of the metadata differs, named by its path: `attributes.units`.
    Metadata {
        /// The path of the member.
        member: String,
        /// The values; `None` if it is missing.
        values: [Option<Value>; 2],
    },
    /// Elements differ.
    Values(ValueDifference),
}

/// Receives the differences and the progress of a comparison, and may stop it.
pub trait DiffWatch: Sync {
    /// Reports a difference at the node with this path below the top.
    fn differ(&self, path: &str, difference: Difference);
    /// Reports that a node cannot be compared.
    fn fail(&self, path: &str, error: &Error);
    /// Reports that this many more chunks will be compared.
    fn expect(&self, path: &str, chunks: u64);
    /// Reports that a chunk was compared.
    fn advance(&self);
    /// Whether to stop early.
    fn is_stopped(&self) -> bool;
}

/// Counts of what was compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiffSummary {
    /// The nodes that are in both hierarchies.
    pub nodes: u64,
    /// The arrays whose values were compared.
    pub arrays: u64,
    /// The elements of these arrays.
    pub elements: u64,
    /// Why there may be more in the hierarchies than was compared; `None` if there is not.
    pub not_seen: Option<String>,
}

/// The largest difference of two elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Largest {
    /// Of integers and times.
    Int(u128),
    /// Of floats, and the distance of complex numbers.
    Float(f64),
}

/// Where the elements of two arrays differ.
#[derive(Debug, Clone, Default)]
pub struct ValueDifference {
    /// How many elements differ.
    pub count: u64,
    /// How many elements each array has.
    pub elements: u64,
    /// The index of the first element that differs, in C order, and both elements as JSON.
    pub first: Option<(Vec<u64>, [Value; 2])>,
    /// The largest difference, and its index; `None` if the elements are not numbers, or if one of
    /// each differing pair is NaN.
    pub largest: Option<(Largest, Vec<u64>)>,
}
