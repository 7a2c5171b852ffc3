//! Uploads in parts that were neither completed nor ended: the server keeps their parts, and no
//! program sees them.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html>

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use object_store::aws::AmazonS3;
use object_store::multipart::MultipartStore as _;
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer as _};
use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::redirect::Policy;
use tokio::runtime::{Builder, Runtime};

use super::failure::{self, error_of};
use super::place::{BucketPrefix, Provider};
use super::s3;
use super::settings::ObjectOptions;
use crate::Prefix;
use crate::xml::char_of;
use zarrfs_base::error::{Error, Kind, Result};

/// How long a signed URL is good.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The longest answer that is read, in bytes: it has 1,000 uploads at most.
const LONGEST: usize = 16 << 20;

/// The most uploads that are listed.
const MOST: usize = 100_000;

/// An upload that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The key of the object that it would become, in its bucket.
    pub key: String,
    /// When it began.
    pub began: SystemTime,
    id: String,
}

impl Upload {
    /// Returns when it began as text, in universal time.
    pub fn began_text(&self) -> String {
        DateTime::<Utc>::from(self.began).to_rfc3339_opts(SecondsFormat::Secs, true)
    }
}

/// The uploads to a prefix of a bucket.
#[derive(Debug)]
pub struct Uploads {
    client: Arc<AmazonS3>,
    http: reqwest::Client,
    root: Prefix,
    runtime: Runtime,
}

/// One answer of the server.
#[derive(Debug, Default, PartialEq, Eq)]
struct UploadsPage {
    uploads: Vec<Upload>,
    /// The key and the id after which the next one begins.
    next: Option<(String, String)>,
}

impl Uploads {
    /// Returns the uploads to a prefix of a bucket.
    pub(super) fn open(place: BucketPrefix, options: &ObjectOptions) -> Result<Self> {
        if place.provider != Provider::S3 {
            return Err(Error::unsupported("only s3:// has uploads that stay unfinished"));
        }
        let client = s3::signing(&place, options)?;
        let http = reqwest::Client::builder()
            .timeout(GOOD_FOR)
            .redirect(Policy::none())
            .referer(false)
            .build()
            .map_err(|error| unsent(&error))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { client, http, root: place.root, runtime })
    }

    /// Returns all uploads that are not complete, 100,000 at most.
    pub fn list(&self) -> Result<Vec<Upload>> {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let page = self.runtime.block_on(self.page(next.as_ref()))?;
            all.extend(page.uploads);
            if all.len() > MOST {
                return Err(Error::too_large(format!("there are more than {MOST} uploads")));
            }
            if page.next.is_none() || page.next == next {
                return Ok(all);
            }
            next = page.next;
        }
    }

    async fn page(&self, after: Option<&(String, String)>) -> Result<UploadsPage> {
        let mut query = vec![("uploads", String::new()), ("prefix", self.root.as_str().to_owned())];
        if let Some((key, id)) = after {
            query.push(("key-marker", key.clone()));
            query.push(("upload-id-marker", id.clone()));
        }
        let options = SignedUrlOptions::new().with_query(query);
        let url = self
            .client
            .signed_url_opts(reqwest::Method::GET, &Path::default(), GOOD_FOR, &options)
            .await
            .map_err(|error| error_of(&error))?;
        let mut answer = self.http.get(url).send().await.map_err(|error| unsent(&error))?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| unsent(&error))? {
            body.extend_from_slice(&piece);
            if body.len() > LONGEST {
                return Err(Error::too_large("the server sends too many uploads"));
            }
        }
        let body = String::from_utf8_lossy(&body);
        if !status.is_success() {
            let kind = if matches!(status.as_u16(), 401 | 403) { libc::EACCES } else { libc::EIO };
            return Err(Error::new(Kind::Os(kind), failure::sentence(&status.to_string(), &body)));
        }
        parse(&body)
    }

    /// Ends an upload, and removes its parts.
    pub fn end(&self, upload: &Upload) -> Result<()> {
        let path = Path::parse(&upload.key).ok().filter(|path| path.as_ref() == upload.key);
        let path = path.ok_or_else(|| Error::unsupported("the key has an empty part"))?;
        let ended = self.client.abort_multipart(&path, &upload.id);
        match self.runtime.block_on(ended) {
            // Another program was faster.
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            ended => ended.map_err(|error| error_of(&error)),
        }
    }
}

fn unsent(error: &reqwest::Error) -> Error {
    // Without the URL, which is signed.
    let Some(mut innermost) = std::error::Error::source(error) else {
        return Error::new(Kind::Os(libc::EIO), "the request failed");
    };
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    Error::new(Kind::Os(libc::EIO), innermost.to_string())
}

fn parse(body: &str) -> Result<UploadsPage> {
    let invalid = |what: &dyn Display| Error::corrupt(format!("the list of uploads: {what}"));
    let (mut page, mut path) = (UploadsPage::default(), Vec::new());
    let (mut upload, mut next) = (<[String; 3]>::default(), <[String; 3]>::default());
    let mut reader = Reader::from_str(body);
    loop {
        match reader.read_event().map_err(|error| invalid(&error))? {
            Event::Start(tag) => {
                path.push(String::from_utf8_lossy(tag.local_name().as_ref()).into_owned());
            }
            Event::End(_) => {
                let ended = path.pop();
                if ended.as_deref() == Some("Upload") {
                    let [key, id, began] = std::mem::take(&mut upload);
                    let began =
                        DateTime::parse_from_rfc3339(&began).map_err(|error| invalid(&error))?;
                    page.uploads.push(Upload { key, id, began: began.into() });
                }
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|error| invalid(&error))?;
                put(&path, &text, &mut upload, &mut next);
            }
            Event::GeneralRef(name) => {
                let text = char_of(&name).ok_or_else(|| invalid(&"an unknown character"))?;
                put(&path, &text, &mut upload, &mut next);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let [key, id, is_more] = next;
    page.next = (is_more == "true").then_some((key, id));
    Ok(page)
}

/// Adds text to the value that the path of elements names.
fn put(path: &[String], text: &str, upload: &mut [String; 3], next: &mut [String; 3]) {
    let path: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
    let ([key, id, began], [next_key, next_id, is_more]) = (upload, next);
    let value = match path[..] {
        ["Upload", "Key"] => key,
        ["Upload", "UploadId"] => id,
        ["Upload", "Initiated"] => began,
        ["NextKeyMarker"] => next_key,
        ["NextUploadIdMarker"] => next_id,
        ["IsTruncated"] => is_more,
        _ => return,
    };
    value.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_uploads_is_read_with_the_place_of_the_next() {
        let body = r#"<?xml version="1.0"?><ListMultipartUploadsResult xmlns="x"><Bucket>b</Bucket>
            <NextKeyMarker>x &amp; y</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>
            <IsTruncated>true</IsTruncated><Upload><Key>a/&lt;&#65;</Key><UploadId>1</UploadId>
            <Owner><ID>z</ID></Owner><Initiated>1970-01-01T00:01:00.000Z</Initiated></Upload>
            <Upload><Key>b</Key><UploadId>2</UploadId><Initiated>1970-01-01T00:00:00Z</Initiated>
            </Upload></ListMultipartUploadsResult>"#;
        let page = parse(body).expect("a page");
        assert_eq!(page.next, Some(("x & y".to_owned(), "2".to_owned())));
        let [first, second] = &page.uploads[..] else { panic!("{page:?}") };
        let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
        assert_eq!((&*first.key, &*first.id, first.began), ("a/<A", "1", minute));
        assert_eq!((&*second.key, &*second.id), ("b", "2"));
        assert_eq!(parse("<ListMultipartUploadsResult/>"), Ok(UploadsPage::default()));
        assert!(parse("<R><Upload><Key>a</Key></Upload></R>").is_err());
        assert!(parse("<R><Upload>").is_ok_and(|page| page.uploads.is_empty()));
    }
}
