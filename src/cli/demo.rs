//! `zarrfs demo`.
use super::args::Demo;
use super::{Failure, failed};
pub fn run(_: &Demo) -> Result<(), Failure> {
    Err(failed("not yet"))
}
