//! Members of a codec's configuration, checked once when the codec is built.
//!
//! A member that is absent or null has its default. Members that nobody asks for are left alone:
//! those that writers add (`acceleration`, `nthreads`) cannot change what is decoded.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::metadata::model::Object;

/// The integer `member`, in `range`; `codec` is for the message.
pub(in crate::codec) fn integer(
    codec: &str,
    configuration: &Object,
    member: &str,
    default: i64,
    range: RangeInclusive<i64>,
) -> Result<i64> {
    let value = match configuration.get(member) {
        None | Some(Value::Null) => return Ok(default),
        Some(value) => value,
    };
    match value.as_i64() {
        Some(number) if range.contains(&number) => Ok(number),
        None if !value.is_number() => {
            Err(Error::invalid(format!("{codec}: {member} {value} is not an integer")))
        }
        _ => Err(Error::invalid(format!(
            "{codec}: {member} {value} is not in {}..={}",
            range.start(),
            range.end()
        ))),
    }
}

/// Like [`integer`], for what is counted from 0 and fits 32 bits.
pub(in crate::codec) fn count(
    codec: &str,
    configuration: &Object,
    member: &str,
    default: u32,
    range: RangeInclusive<u32>,
) -> Result<u32> {
    let range = i64::from(*range.start())..=i64::from(*range.end());
    let number = integer(codec, configuration, member, i64::from(default), range)?;
    u32::try_from(number)
        .map_err(|_| Error::invalid(format!("{codec}: {member} {number} is negative")))
}

/// The boolean `member`, false where it is absent.
pub(in crate::codec) fn flag(codec: &str, configuration: &Object, member: &str) -> Result<bool> {
    match configuration.get(member) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(value) => {
            Err(Error::invalid(format!("{codec}: {member} {value} is not true or false")))
        }
    }
}
