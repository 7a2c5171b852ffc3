//! Values of other hierarchies, mostly files of other formats, go into arrays that exist.
//!
//! [`plan`] pairs each array of the sources with one of the target, and says where its elements go:
//! over those that are there, into a region, or behind the last ones along a dimension. It refuses
//! all that would change the meaning of a value in silence: another type, other units, another
//! packing. Times in other units since another moment are the exception: they are converted
//! (`times`). Nothing is stored before the whole plan is known.
//!
//! [`run`] stores chunks first. Those behind the last element are outside of the array's shape, so
//! no program sees them, and the shapes change at the end: an import that ends before that has
//! changed nothing. [`ImportRecord`] is held meanwhile, so that only one import at a time writes to
//! a hierarchy, and says which shapes are still to be set if a process dies between two of them.

mod copy;
mod part;
mod plan;
mod record;
mod times;

pub use copy::{ImportOptions, Imported, run};
pub use part::ArrayImport;
pub use plan::{ImportPlan, ImportSource, Placement, plan};
pub use record::{ImportRecord, Started};
