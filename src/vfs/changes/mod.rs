//! Removes, renames and creates files and directories, for callers that hold the lock of the tree.

pub mod directories;
mod imports;
mod links;
pub mod new_files;
mod ordinary;
pub mod renames;
