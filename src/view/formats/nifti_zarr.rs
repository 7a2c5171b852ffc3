//! NIfTI-Zarr (<https://github.com/neuroscales/nifti-zarr>): an OME-Zarr image made from a NIfTI
//! file, whose header is stored as an array `nifti` of bytes beside the levels. The view of the
//! largest level has that header again.

use crate::view::image::levels;
use crate::view::source::ViewSource;

/// The name of the array.
const NAME: &str = "nifti";

/// The fields of version 1: offset, bytes of a number, and count. All others are single bytes.
const FIELDS_1: &[(usize, usize, usize)] = &[
    (0, 4, 1),
    (32, 4, 1),
    (36, 2, 1),
    (40, 2, 8),
    (56, 4, 3),
    (68, 2, 4),
    (76, 4, 8),
    (108, 4, 3),
    (120, 2, 1),
    (124, 4, 6),
    (252, 2, 2),
    (256, 4, 6),
    (280, 4, 12),
];

/// The fields of version 2.
const FIELDS_2: &[(usize, usize, usize)] = &[
    (0, 4, 1),
    (12, 2, 2),
    (16, 8, 8),
    (80, 8, 3),
    (104, 8, 8),
    (168, 8, 9),
    (344, 4, 2),
    (352, 8, 6),
    (400, 8, 12),
    (496, 4, 3),
];

/// Returns the header of an array, little endian: of version 1 if it has 348 bytes, of version 2 if
/// it has 540; `None` if there is none.
pub(super) fn header(source: &ViewSource<'_>) -> Option<Vec<u8>> {
    let is_largest = |group: &ViewSource<'_>| {
        levels(group).ok()?.first().filter(|level| level.path() == source.path()).map(|_| ())
    };
    let group = source.above().find(|group| is_largest(group).is_some())?;
    let mut bytes = group.other(&group.path().child(NAME).ok()?).ok()?.values().ok()?;
    let size: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let (len, big_endian) = match (i32::from_le_bytes(size), i32::from_be_bytes(size)) {
        (348, _) => (348, false),
        (540, _) => (540, false),
        (_, 348) => (348, true),
        (_, 540) => (540, true),
        _ => return None,
    };
    if bytes.len() < len {
        return None;
    }
    bytes.truncate(len);
    if big_endian {
        for (offset, width, count) in if len == 348 { FIELDS_1 } else { FIELDS_2 } {
            let end = offset.saturating_add(width.saturating_mul(*count));
            bytes.get_mut(*offset..end)?.chunks_exact_mut(*width).for_each(<[u8]>::reverse);
        }
    }
    Some(bytes)
}
