//! The option `--limit`, which each command has.

use std::ffi::OsString;
use std::fmt::Write as _;

use super::values::{duration, size};
use crate::cli::failure::Failure;
use crate::cli::output::print;
use crate::limits::{ALL, Limit, LimitUnit};

/// A limit, and the value that the user wants.
#[derive(Debug, Clone)]
pub struct NewLimit {
    limit: &'static Limit,
    value: u64,
}

/// Parses `NAME=VALUE`.
pub fn limit(text: &str) -> Result<NewLimit, String> {
    let names = || ALL.map(|limit| limit.name).join(", ");
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("expected NAME=VALUE, or help; the names are {}", names()));
    };
    let limit = ALL.into_iter().find(|limit| limit.name == name);
    let limit = limit.ok_or_else(|| format!("unknown limit {name:?}: expected {}", names()))?;
    let value = match limit.unit {
        LimitUnit::Count => value.parse().map_err(|_| "expected a whole number".to_owned())?,
        LimitUnit::Bytes => size(value)?,
        LimitUnit::Time => {
            duration(value).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))?
        }
    };
    if !(1..=limit.highest).contains(&value) {
        let highest = limit.unit.write(limit.highest);
        return Err(format!("{name} is from 1 to {highest}"));
    }
    Ok(NewLimit { limit, value })
}

/// Sets the limits of this process.
pub fn apply(limits: &[NewLimit]) {
    for NewLimit { limit, value } in limits {
        limit.set(*value);
    }
}

/// Whether the user asks for the names of the limits. No command is needed then.
pub fn are_asked_for(typed: &[OsString]) -> bool {
    let own = typed.split(|word| word == "--").next().unwrap_or_default();
    let is_pair = |pair: &[OsString]| matches!(pair, [option, value] if option == "--limit" && value == "help");
    own.iter().any(|word| word == "--limit=help") || own.windows(2).any(is_pair)
}

/// Prints each limit with its default.
pub fn print_all() -> Result<(), Failure> {
    let mut text = String::new();
    for limit in ALL {
        let default = limit.unit.write(limit.default());
        // Writing to a string cannot fail.
        let _written = writeln!(text, "{:<16} {default:>9}  {}", limit.name, limit.what);
    }
    print::check()?;
    print::output(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_name_and_a_value_in_its_unit_and_range() {
        let set = |text: &str| limit(text).map(|new| (new.limit.name, new.value));
        assert_eq!(set("dimensions=100"), Ok(("dimensions", 100)));
        assert_eq!(set("metadata=64M"), Ok(("metadata", 64 << 20)));
        assert_eq!(set("decode-time=500ms"), Ok(("decode-time", 500)));
        assert_eq!(set("metadata-depth=128"), Err("metadata-depth is from 1 to 127".to_owned()));
        for wrong in ["dimensions=0", "dimensions=-1", "dimensions=many", "metadata=1T"] {
            assert!(set(wrong).is_err(), "{wrong} was accepted");
        }
        for wrong in ["rank=3", "dimensions", ""] {
            let why = set(wrong).expect_err("no limit");
            assert!(why.contains("shard-levels"), "{why} names no limit");
        }
    }
}
