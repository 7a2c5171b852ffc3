//! `zarrfs uploads`: lists uploads that were not completed, and ends them.

use super::args::Uploads;
use super::failure::{Failure, failed};
use super::open::remote;
use super::output::print;
use crate::printable::escaped;

/// Lists the uploads below a URL that are not complete, or ends the old ones.
pub fn run(args: &Uploads) -> Result<(), Failure> {
    let source = args.source.display().to_string();
    let Some(url) = remote::url(&args.source) else {
        return Err(failed(format!(
            "{source}: a directory has no uploads; write s3://BUCKET/PREFIX"
        )));
    };
    let uploads = args.remote.uploads(url)?;
    let refused = |error: crate::error::Error| failed(format!("{source}: {}", error.detail()));
    let bucket = url.split('/').nth(2).unwrap_or_default();
    let mut left = 0_usize;
    for upload in uploads.list().map_err(refused)? {
        let is_old = upload.began.elapsed().is_ok_and(|age| age >= args.older_than);
        let ended = if args.end && is_old { Some(uploads.end(&upload)) } else { None };
        let word = if matches!(ended, Some(Ok(()))) { "ended" } else { "unfinished" };
        let (began, key) = (upload.began_text(), escaped(&upload.key));
        print::output(&format!("{word}  {began}  s3://{bucket}/{key}\n"))?;
        if let Some(Err(error)) = ended {
            print::error(&format!("zarrfs: s3://{bucket}/{key}: {}", error.detail()));
            left = left.saturating_add(1);
        }
    }
    if left > 0 {
        return Err(failed(format!("{source}: {left} uploads could not be ended")));
    }
    Ok(())
}
