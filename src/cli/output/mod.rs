//! Output on a terminal and elsewhere: lines, progress, sizes, and the log.

pub mod logger;
pub mod print;
pub mod progress;
pub mod size;
pub mod terminal;
