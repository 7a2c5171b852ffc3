//! Why a command ended early, and its exit code.

use std::process::ExitCode;

use crate::error::Error;

/// The exit code for failures.
const FAILED: u8 = 1;

/// Wrong usage.
pub const USAGE: u8 = 2;

/// Some changes were not stored, but all of them were rescued.
const RESCUED: u8 = 3;

/// A check found damage.
const DAMAGED: u8 = 3;

/// Why a command ended early, for the user.
#[derive(Debug)]
pub enum Failure {
    /// The command failed.
    Failed(String),
    /// The arguments are invalid.
    Usage(String),
    /// The mount has ended, and changes that the store rejected were rescued.
    Rescued(String),
    /// A check found damage, and has printed it.
    Damaged,
    /// Two hierarchies differ, and the differences are printed.
    Different,
    /// A command that zarrfs ran ended with this exit code, or could not be run for this reason.
    Command(u8, String),
}

impl Failure {
    /// Returns the exit code of a command that ends with it.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// Returns that exit code as a number.
    pub fn status(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Different => FAILED,
            Self::Usage(_) => USAGE,
            Self::Rescued(_) => RESCUED,
            Self::Damaged => DAMAGED,
            Self::Command(code, _) => *code,
        }
    }

    /// Returns the sentence for the user; empty if the command has printed everything.
    pub fn message(&self) -> &str {
        match self {
            Self::Failed(message)
            | Self::Usage(message)
            | Self::Rescued(message)
            | Self::Command(_, message) => message,
            Self::Damaged | Self::Different => "",
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Returns a failure with this message.
pub fn failed(message: impl Into<String>) -> Failure {
    Failure::Failed(message.into())
}
