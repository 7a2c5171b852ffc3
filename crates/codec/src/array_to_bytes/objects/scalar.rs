//! The scalars in such a list, in either notation, and objects as strings.

use std::io;

use serde_json::Value;

/// A scalar: an element, or a part of the type and shape that follow the elements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar<'t> {
    Text(&'t str),
    Bool(bool),
    Int(i128),
    Float(f64),
}

/// Returns an object as JSON; `None` if that has more than `limit` bytes.
pub(super) fn written(value: &Value, limit: usize) -> Option<String> {
    let mut room = LimitedBytes { bytes: Vec::new(), limit };
    serde_json::to_writer(&mut room, value).ok()?;
    String::from_utf8(room.bytes).ok()
}

/// Bytes up to a limit.
struct LimitedBytes {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for LimitedBytes {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if part.len() > self.limit.saturating_sub(self.bytes.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
