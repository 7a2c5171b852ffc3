//! The errno and the sentence for a failed request.

use std::borrow::Cow;
use std::error::Error as _;
use std::time::Duration;

use object_store::Error as Failure;
use object_store::client::{HttpError, HttpErrorKind};

use crate::pace;
use zarrfs_base::error::{Error, Kind};

/// How long a server may be silent before the request is tried again.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// The most bytes that an object can have: file systems have no longer files.
pub(super) const LONGEST_OBJECT: u64 = u64::MAX >> 1;

/// Returns the failure of a request whose answer cannot be used.
pub(super) fn unusable(kind: Kind, detail: impl Into<Cow<'static, str>>) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, Error::new(kind, detail))
}

/// Returns the error for a program, and a sentence for its user.
pub(super) fn error_of(failure: &Failure) -> Error {
    let is_conflict =
        matches!(failure, Failure::AlreadyExists { .. } | Failure::Precondition { .. });
    if let Some(error) = failure.source().and_then(own_error).filter(|_| !is_conflict) {
        return error.by_server();
    }
    let (status, reason) = reason_of(failure);
    let kind = match failure {
        _ if is_refusal(failure) => Kind::Os(libc::EACCES),
        Failure::NotFound { .. } if is_absent(failure) => Kind::NotFound,
        Failure::AlreadyExists { .. } => Kind::Exists,
        Failure::Precondition { .. } => Kind::Stale,
        Failure::InvalidPath { .. } => Kind::Invalid,
        Failure::NotSupported { .. } | Failure::NotImplemented { .. } => Kind::Unsupported,
        _ if status == Some(501) => Kind::Unsupported,
        _ if is_silence(failure) => Kind::Os(libc::ETIMEDOUT),
        _ => Kind::Os(libc::EIO),
    };
    Error::new(kind, reason).by_server()
}

/// Returns the failure of a request that took too long.
pub(super) fn silence(time: Duration) -> Failure {
    let detail = format!("the server was silent for {} s", time.as_secs());
    let source = Box::new(Error::new(Kind::Os(libc::ETIMEDOUT), detail));
    Failure::Generic { store: "S3", source }
}

/// Returns the failure of a request whose answer drips.
pub(super) fn too_slow() -> Failure {
    let source = Box::new(Error::new(Kind::Os(libc::ETIMEDOUT), pace::too_slow()));
    Failure::Generic { store: "S3", source }
}

/// The codes of answers to credentials that have ended.
const EXPIRED: [&str; 3] = ["ExpiredToken", "TokenRefreshRequired", "RequestExpired"];

/// Whether a request was refused in a way that other credentials may mend: not because they were
/// not to be had, and not because the user may not do this.
pub(super) fn is_mended_by_renewal(failure: &Failure) -> bool {
    is_refusal(failure)
        && failure.source().and_then(own_error).is_none()
        && !reason_of(failure).1.contains("AccessDenied")
}

/// Whether the user may not do something, or the credentials are not good. Google says the second
/// to those who have none.
pub(super) fn is_not_allowed(failure: &Failure) -> bool {
    matches!(failure, Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. })
}

/// Whether a request was refused.
pub(super) fn is_refusal(failure: &Failure) -> bool {
    let is_expired = |reason: &str| EXPIRED.iter().any(|code| reason.contains(code));
    match failure {
        _ if is_not_allowed(failure) => true,
        Failure::Generic { .. } => {
            let (status, reason) = reason_of(failure);
            match status {
                Some(401 | 403) => true,
                Some(400) => is_expired(&reason),
                // `DeleteObjects` answers 200, and says for each key what became of it.
                None => reason.contains("AccessDenied"),
                Some(_) => false,
            }
        }
        _ => false,
    }
}

/// The codes of answers that say that an object is not there.
const ABSENT: [&str; 6] =
    ["NoSuchKey", "NoSuchVersion", "BlobNotFound", "ResourceNotFound", "PathNotFound", "NotFound"];

/// Whether the server says that the object is not there. If its bucket is not there, or the answer
/// is the page of a proxy, nothing is known of the object.
pub(super) fn is_absent(failure: &Failure) -> bool {
    let is_page = |body: &str| {
        let start: String = body.chars().take(512).collect();
        let start = start.to_ascii_lowercase();
        start.contains("<html") || start.contains("<!doctype")
    };
    let says_so = |body: &str| match element(body, "Code") {
        Some(code) => ABSENT.contains(&code),
        // The answer to a request without a body has none.
        None => !is_page(body),
    };
    matches!(failure, Failure::NotFound { .. })
        && answer_in(&innermost(failure)).is_none_or(|(_, body)| says_so(body))
}

/// Whether the answer did not arrive, or not as a whole.
pub(super) fn is_of_transfer(failure: &Failure) -> bool {
    matches!(failure, Failure::Generic { .. })
        && status_of(failure).is_none()
        && failure
            .source()
            .and_then(own_error)
            .is_none_or(|error| matches!(error.errno(), libc::EIO | libc::ETIMEDOUT))
}

/// Whether a put may have been stored although it failed, or is to be made again.
pub(super) fn is_unclear(failure: &Failure) -> bool {
    is_of_transfer(failure)
        || status_of(failure)
            .is_some_and(|status| status >= 500 || [408, 409, 429].contains(&status))
}

/// Returns the status that the server answered, if it did.
pub(super) fn status_of(failure: &Failure) -> Option<u16> {
    reason_of(failure).0
}

/// Finds an error of this program, which a provider of credentials has returned.
fn own_error(source: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(source);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<Error>() {
            return Some(own.clone());
        }
        next = error.source();
    }
    None
}

fn is_silence(failure: &Failure) -> bool {
    has_http_kind(failure, HttpErrorKind::Timeout)
}

fn has_http_kind(failure: &Failure, kind: HttpErrorKind) -> bool {
    let mut next = failure.source();
    while let Some(error) = next {
        if error.downcast_ref::<HttpError>().is_some_and(|http| http.kind() == kind) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns the status that the server answered, if it did, and the reason in words.
fn reason_of(failure: &Failure) -> (Option<u16>, String) {
    let text = innermost(failure);
    if text.contains("redirect without LOCATION") {
        let reason = "the bucket is in another region; name it with --bucket-region";
        return (None, reason.to_owned());
    }
    if let Some((status, body)) = answer_in(&text) {
        let number = status.split(' ').next().and_then(|number| number.parse().ok());
        return (number, sentence(status, body));
    }
    if is_silence(failure) {
        return (None, format!("the server was silent for {} s", SILENCE.as_secs()));
    }
    // The number of the errno does not help the user.
    let reason = text.split_once(" (os error ").map_or(text.as_str(), |(reason, _)| reason);
    if has_http_kind(failure, HttpErrorKind::Connect) {
        return (None, format!("no connection to the server: {reason}"));
    }
    (None, reason.to_owned())
}

/// Returns the text of the innermost error.
fn innermost(failure: &Failure) -> String {
    let mut innermost: &dyn std::error::Error = failure;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns the status and the body of an answer that is an error.
fn answer_in(text: &str) -> Option<(&str, &str)> {
    let (_, answer) = text.split_once("status code: ")?;
    Some(answer.split_once(": ").unwrap_or((answer, "")))
}

/// Returns what the server answered.
pub(crate) fn sentence(status: &str, body: &str) -> String {
    let parts = [element(body, "Code"), element(body, "Message")];
    let said: Vec<&str> = parts.into_iter().flatten().collect();
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.join(": ")) };
    format!("the server answered {status}{said}")
}

/// Returns the text of an element of an XML document that has no others in it.
fn element<'b>(body: &'b str, name: &str) -> Option<&'b str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_server_are_in_the_sentence() {
        let body = "<Error><Code>NoSuchBucket</Code><Message>It is not there</Message></Error>";
        let source = format!("Server returned non-2xx status code: 503 Slow Down: {body}");
        let error = error_of(&Failure::Generic { store: "S3", source: source.into() });
        let want = "the server answered 503 Slow Down: NoSuchBucket: It is not there";
        assert_eq!((error.errno(), error.detail()), (libc::EIO, want));
    }

    #[test]
    fn an_object_is_absent_only_if_the_server_says_that_of_the_object() {
        let says_absent = |body: &str| {
            let source = format!("Server returned non-2xx status code: 404 Not Found: {body}");
            is_absent(&Failure::NotFound { path: "x/c/0".to_owned(), source: source.into() })
        };
        for code in ["NoSuchKey", "BlobNotFound"] {
            assert!(says_absent(&format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>"
            )));
        }
        assert!(says_absent("") && says_absent("Not Found"));
        for body in [
            "<Error><Code>NoSuchBucket</Code></Error>",
            "<Error><Code>ContainerNotFound</Code></Error>",
            "<!DOCTYPE html><p>Nothing here",
            "\n<HTML></HTML>",
            "<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"x\">",
        ] {
            assert!(!says_absent(body), "{body}");
        }
    }

    #[test]
    fn ended_credentials_are_a_refusal() {
        let body = "<Error><Code>ExpiredToken</Code></Error>";
        let source = format!("Server returned non-2xx status code: 400 Bad Request: {body}");
        let failure = Failure::Generic { store: "S3", source: source.into() };
        assert!(is_refusal(&failure));
        assert_eq!(error_of(&failure).errno(), libc::EACCES);
        let own = Error::new(Kind::Os(libc::EACCES), "the profile has no credentials");
        let failure = Failure::Generic { store: "S3", source: Box::new(own.clone()) };
        assert_eq!(error_of(&failure), own);
    }
}
