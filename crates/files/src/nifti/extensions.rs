//! Extensions of a header: `size i32 | code i32 | bytes`, between the header and the elements.

use serde_json::{Value, json};

use super::header::NiftiHeader;
use crate::cursor::FixedFields;
use crate::json;
use crate::source::SourceFile;
use zarrfs_base::error::Result;
use zarrfs_base::width::{ToU64, ToUsize};

/// The most extensions, and the longest that is shown.
const MAX_COUNT: usize = 256;
const MAX_LEN: u64 = 64 << 10;

/// Returns the extensions: the texts, and of others the code and the length.
pub fn read(file: &SourceFile, header: &NiftiHeader) -> Result<Vec<Value>> {
    let mut shown = Vec::new();
    let mut at = header.len().to_u64();
    if file.read_up_to(at, 4)?.first().is_none_or(|first| *first == 0) {
        return Ok(shown);
    }
    at = at.saturating_add(4);
    let end = if header.is_single { header.offset().min(file.len()) } else { file.len() };
    for _ in 0..MAX_COUNT {
        let fields = FixedFields::new(file.read_up_to(at, 8)?, header.is_big());
        let len = u64::try_from(fields.i32(0)).unwrap_or_default();
        let next = at.saturating_add(len);
        if len < 16 || next > end {
            break;
        }
        let code = fields.i32(4);
        // Those of AFNI, comments, XCEDE, JIM, of CIFTI, and of MATLAB's and Python's programs.
        let is_text = matches!(code, 4 | 6 | 8 | 10 | 32 | 44);
        let bytes = file.read_up_to(at.saturating_add(8), (len - 8).min(MAX_LEN).to_usize())?;
        if is_text && len <= MAX_LEN {
            shown.push(json!({"code": code, "text": json::text_to_nul(&bytes).trim_end()}));
        } else {
            shown.push(json!({"code": code, "length": len}));
        }
        at = next;
    }
    Ok(shown)
}
