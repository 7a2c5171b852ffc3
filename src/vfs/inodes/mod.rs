//! Files as the kernel knows them: by number, whatever their names are.
//!
//! An inode (`inode`) has places (`place`), and with them its meaning. Its bytes belong to it until
//! they are stored (`file`, `held`), so all who have the file open see the same. `attr` is what
//! `stat` says of it, `chunk_names` are the names of places of chunks in each chunk key encoding,
//! `seen_texts` and `seen_versions` what programs have read, with which their changes are compared.

pub mod attr;
pub mod chunk_names;
pub mod file;
pub mod held;
pub mod inode;
pub mod place;
pub mod seen_texts;
pub mod seen_versions;
