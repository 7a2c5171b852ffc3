//! Removes, renames and creates files and directories, for callers that hold the lock of the tree.

pub mod directories;
pub mod new_files;
pub mod ordinary;
pub mod renames;
