//! Arrays over whole stores: the same tests for every form of chunk storage.

mod calls;
mod contention;
mod damage;
mod fill;
mod forms;
mod layout;
mod lengths;
mod operations;
mod random;
