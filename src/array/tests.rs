//! Arrays over whole stores: every form of chunk storage against the same claims.

mod calls;
mod contention;
mod damage;
mod fill;
mod forms;
mod layout;
mod lengths;
mod operations;
mod random;
mod resize;
