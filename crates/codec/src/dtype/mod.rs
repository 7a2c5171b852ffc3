//! Data types and fill values.
//!
//! A type knows the length of an element and its units of byte order; codecs do their own
//! arithmetic. Names are those of released v3 and its registered extensions; `metadata` translates
//! the spellings of other dialects.

mod base64;
mod element;
mod fill;
mod narrow;
mod number;
mod time;
mod types;

pub use base64::{base64_decode, base64_decode_as_python, base64_encode};
pub use element::Element;
pub use fill::FillValue;
pub use narrow::Narrow;
pub use number::{half_bits, half_value, integer, to_float, to_index, to_single};
pub use time::{TIME_UNITS, Time, time_text};
pub use types::{DType, Field, MAX_ITEM_LEN, OLD_STRUCT};
