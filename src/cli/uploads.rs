//! `zarrfs uploads`: lists uploads that were not completed, and ends them.

use super::args::Uploads;
use super::failure::{Failure, failed};
use super::{print, remote};

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
    for upload in uploads.list().map_err(refused)? {
        let is_old = upload.began.elapsed().is_ok_and(|age| age >= args.older_than);
        if args.end && is_old {
            uploads.end(&upload).map_err(refused)?;
        }
        let word = if args.end && is_old { "ended" } else { "unfinished" };
        let (began, key) = (upload.began_text(), &upload.key);
        print::output(&format!("{word}  {began}  s3://{bucket}/{key}\n"))?;
    }
    Ok(())
}
