//! The state that the kernel holds: its pages of views, and the backing files that it reads itself.

pub mod backing_files;
pub mod view_pages;
