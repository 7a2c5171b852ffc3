//! A new file in the place of a view.
//!
//! A program that writes a whole file lays it out in its own way: CDO and NCO add to the attribute
//! `history`, the netCDF library sorts variables as it likes, nibabel leaves another gap behind the
//! header. Such a file is read like any file of its format (`file`), and compared with the view,
//! which is read in the same way: so both say everything in the same words, and only what differs
//! has changed. The values of the same variables go into the arrays (`values`), and changed
//! attributes into the nodes (`attributes`), all at once
//! ([`NewValues`](crate::hierarchy::NewValues)). If anything does not fit, nothing changes, and the
//! error says why.
//!
//! New values are written as if through the view. The view is also opened as a file: that gives the
//! range of bytes of each array, and the view knows the elements of these bytes. So the order of
//! axes and of bytes is that of the format, and no format is treated by itself.

mod attributes;
mod encoded;
mod file;
mod place;
mod values;

pub use encoded::{EncodedFile, can_read, encode};
pub use file::{as_hierarchy, check_seen};
pub use place::RewrittenView;
