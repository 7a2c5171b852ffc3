//! Errors as DAP2 reports them: a number and a message.

use crate::error::{Error, Kind};

/// The kind of a failure. The numbers are those that libdap gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DapCode {
    /// A failure on the side of the server.
    Internal,
    /// There is no such node, or it has no data set.
    NoSuchFile,
    /// The data set has no such variable.
    NoSuchVariable,
    /// The client may not read it.
    NotPermitted,
    /// The constraint is wrong, or DAP2 cannot express what it asks for.
    Malformed,
    /// The stored data cannot be read, or DAP2 cannot express an element.
    CannotRead,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DapError {
    /// The kind of failure.
    pub code: DapCode,
    /// The reason.
    pub message: String,
}

impl DapError {
    /// Returns an error.
    pub fn new(code: DapCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns an error about the constraint.
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(DapCode::Malformed, message)
    }

    /// Returns the body of the response, whose `Content-Description` is `dods_error`.
    pub fn document(&self) -> String {
        let message = quoted(&self.message.replace(['\n', '\r', '\0'], " "));
        format!("Error {{\n    code = {};\n    message = {message};\n}};\n", self.number())
    }

    /// Returns the status of the HTTP response.
    pub fn http_status(&self) -> u16 {
        match self.code {
            DapCode::Internal | DapCode::CannotRead => 500,
            DapCode::NoSuchFile | DapCode::NoSuchVariable => 404,
            DapCode::Malformed => 400,
            DapCode::NotPermitted => 403,
        }
    }

    fn number(&self) -> u16 {
        match self.code {
            DapCode::Internal => 1002,
            DapCode::NoSuchFile => 1003,
            DapCode::NoSuchVariable => 1004,
            DapCode::Malformed => 1005,
            DapCode::NotPermitted => 1006,
            DapCode::CannotRead => 1007,
        }
    }
}

impl From<Error> for DapError {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            Kind::NotFound | Kind::NotDirectory | Kind::IsDirectory => DapCode::NoSuchFile,
            Kind::Internal | Kind::NoMemory | Kind::Busy => DapCode::Internal,
            _ => DapCode::CannotRead,
        };
        Self::new(code, error.to_string())
    }
}

/// Returns a string in double quotes. A backslash comes before each backslash and double quote.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
