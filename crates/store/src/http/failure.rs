//! A request that failed: whether it is made again, the errno, and the sentence.

use std::error::Error as _;
use std::time::Duration;

use zarrfs_base::error::{Error, Kind};

/// How long a server may be silent before the request is made again.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// A request that failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may succeed if it is made again, perhaps not before this time has passed.
    Passing(Error, Option<Duration>),
    /// The answer was not for this request. It is made once more.
    Wrong(Error),
    /// It would fail again.
    Final(Error),
}

impl Failure {
    pub fn error(self) -> Error {
        match self {
            Self::Passing(error, _) | Self::Wrong(error) | Self::Final(error) => error.by_server(),
        }
    }
}

/// Returns the failure for an answer that is not the one to the request.
pub(super) fn wrong(detail: String) -> Failure {
    Failure::Wrong(Error::new(Kind::Os(libc::EIO), detail))
}

pub(super) fn denied(detail: String) -> Failure {
    Failure::Final(Error::new(Kind::Os(libc::EACCES), detail))
}

/// Returns the failure of a request without an answer, or with half of one.
pub(super) fn of_transfer(error: &reqwest::Error) -> Failure {
    let text = innermost(error);
    // The number of the errno does not help the user.
    let reason = text.split_once(" (os error ").map_or(text.as_str(), |(reason, _)| reason);
    if let Some(detail) = of_tls(reason) {
        return Failure::Final(Error::new(Kind::Os(libc::EIO), detail));
    }
    let (kind, detail) = if error.is_connect() && error.is_timeout() {
        (libc::ETIMEDOUT, "no connection to the server: it does not answer".to_owned())
    } else if error.is_connect() && reason.contains("lookup address") {
        (libc::EIO, format!("there is no server with this name: {reason}"))
    } else if error.is_connect() {
        (libc::EIO, format!("no connection to the server: {reason}"))
    } else if error.is_timeout() {
        (libc::ETIMEDOUT, format!("the server was silent for {} s", SILENCE.as_secs()))
    } else {
        (libc::EIO, format!("the answer of the server was cut: {reason}"))
    };
    Failure::Passing(Error::new(Kind::Os(kind), detail), None)
}

/// Returns the sentence if the connection could not be made secret.
fn of_tls(reason: &str) -> Option<String> {
    if let Some((_, why)) = reason.split_once("invalid peer certificate: ") {
        return Some(format!(
            "the certificate of the server is not trusted ({why}); if it is from an authority of \
             your own, name a file with that in SSL_CERT_FILE"
        ));
    }
    let is_plain = reason.contains("InvalidContentType") || reason.contains("corrupt message");
    is_plain.then(|| "the server does not speak TLS; it may be at http:// instead".to_owned())
}

fn innermost(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.source().is_none() { "it ended early".to_owned() } else { innermost.to_string() }
}
