//! Answers without a file.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use crate::error::{Error, Kind, Word};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// The answer to a request.
pub type Reply = Response<Body>;

/// Returns a body with these bytes.
pub fn bytes(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns an answer with this type and body.
pub fn of(status: StatusCode, kind: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// The type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// The sentence of an answer that has nothing else, for those who express it in another way.
#[derive(Debug, Clone)]
pub struct Sentence(pub String);

/// Returns an answer with one sentence.
pub fn sentence(status: StatusCode, sentence: &str) -> Reply {
    let mut reply = of(status, TEXT, bytes(format!("{sentence}\n")));
    reply.extensions_mut().insert(Sentence(sentence.to_owned()));
    reply
}

/// Returns the answer for an error of the tree.
pub fn error(error: &Error) -> Reply {
    let status = match error.kind() {
        // No file has a name that is too long.
        Kind::NotFound | Kind::NotDirectory | Kind::Os(libc::ENAMETOOLONG) => StatusCode::NOT_FOUND,
        Kind::NoMemory | Kind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ => match error.word() {
            Word::Refused => StatusCode::FORBIDDEN,
            Word::Unsupported => StatusCode::NOT_IMPLEMENTED,
            // A client would take 404 for a chunk that has the fill value.
            Word::Missing | Word::Limited | Word::Damaged | Word::Failed => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        },
    };
    sentence(status, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_file_can_have_is_not_found() {
        for kind in [Kind::NotFound, Kind::NotDirectory, Kind::Os(libc::ENAMETOOLONG)] {
            let reply = error(&Error::new(kind, "the name is longer than 255 bytes"));
            assert_eq!(reply.status(), StatusCode::NOT_FOUND, "{kind:?}");
        }
        let reply = error(&Error::new(Kind::Os(libc::EIO), "the disk"));
        assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn refused_unsupported_and_damaged_have_different_answers() {
        let status = |error: &Error| super::error(error).status();
        assert_eq!(status(&Error::new(Kind::Os(libc::EACCES), "x")), StatusCode::FORBIDDEN);
        assert_eq!(status(&Error::unsupported("x")), StatusCode::NOT_IMPLEMENTED);
        let server = StatusCode::INTERNAL_SERVER_ERROR;
        assert_eq!(status(&Error::corrupt("x")), server);
        let absent = crate::error::Fault::Absent;
        assert_eq!(status(&Error::fault(absent, "the reference leads nowhere")), server);
    }
}
