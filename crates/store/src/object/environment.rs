//! Where settings and credentials may be: the environment, and the firmware of the machine.

use std::fs;

use zarrfs_base::error::{Error, Kind};

/// Whether a variable of the environment is set. An empty one counts as not set.
pub(super) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Returns a variable of the environment. An empty one counts as not set.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the error of credentials that are not to be had.
pub(super) fn denied(detail: impl Into<String>) -> Error {
    Error::new(Kind::Os(libc::EACCES), detail.into())
}

/// Returns what the firmware of the machine says under a name of `/sys/class/dmi/id`, which shows
/// whose virtual machine it is.
pub(super) fn firmware(name: &str) -> String {
    fs::read_to_string(format!("/sys/class/dmi/id/{name}")).unwrap_or_default()
}
