//! The one error type: what kind (it gives the errno), where, and why.
//!
//! The leaf says what is wrong; the layer that knows the name adds it with
//! [`At::at`]. The innermost name stays, since it is the key or path that a
//! person can look at. Absence is not an error: it is an `Option`.

use std::borrow::Cow;
use std::fmt::{self, Display};

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure it is. [`Error::errno`] is the only place that turns one into a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No such name. A missing chunk of an array that is read as a whole is not this: it is fill.
    NotFound,
    /// The name is taken.
    Exists,
    /// A directory is needed and this is none.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The directory still holds something.
    NotEmpty,
    /// The mount or the store takes no writes.
    ReadOnly,
    /// The request makes no sense for this file: a wrong length, a document that says the wrong
    /// thing.
    Invalid,
    /// As [`Kind::Invalid`], of a file that nothing was written to yet: said again when it stays
    /// so.
    Incomplete,
    /// Past the end of what has a fixed size, or larger than a limit.
    TooLarge,
    /// The name belongs to zarrfs or to the stored dialect.
    NotPermitted,
    /// Bytes or metadata that no reading of the specification allows.
    Corrupt,
    /// Valid, but not implemented; or a must-understand extension that is not understood.
    Unsupported,
    /// The stored value is not the one that the caller knew.
    Stale,
    /// No such extended attribute.
    NoAttribute,
    /// Extended attributes of a sort that no file here has.
    NoSuchNamespace,
    /// An extended attribute that can only be read. Programs that copy files try to set all
    /// attributes.
    FixedAttribute,
    /// More bytes than the caller has room for.
    Range,
    /// Another program holds it.
    Busy,
    /// Memory for it is over a limit, for now.
    NoMemory,
    /// A request between two file systems or two arrays that must be copied instead.
    CrossDevice,
    /// A mistake of ours: a panic in a request, a broken invariant.
    Internal,
    /// An errno of the backing store, passed on as it is.
    Os(i32),
}

/// Why something did not work: a [`Kind`], the key or path, and the reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    subject: Option<Box<str>>,
    detail: Box<str>,
}

impl Error {
    /// Returns an error of `kind` with its reason, as yet without a subject.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, subject: None, detail: detail.into().into_owned().into_boxed_str() }
    }

    /// Stored bytes that break their specification.
    pub fn corrupt(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Corrupt, detail)
    }

    /// Something valid that zarrfs does not do.
    pub fn unsupported(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported, detail)
    }

    /// Returns a request that makes no sense.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, detail)
    }

    /// Something larger than a limit or than the file it is for.
    pub fn too_large(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::TooLarge, detail)
    }

    /// No such name.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "no such file or directory")
    }

    /// What the operating system said.
    pub fn os(error: &std::io::Error) -> Self {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        let kind = match code {
            libc::ENOENT => Kind::NotFound,
            libc::EEXIST => Kind::Exists,
            libc::ENOTDIR => Kind::NotDirectory,
            libc::EISDIR => Kind::IsDirectory,
            libc::ENOTEMPTY => Kind::NotEmpty,
            libc::EROFS => Kind::ReadOnly,
            other => Kind::Os(other),
        };
        let said = error.to_string();
        // The number of the errno says nothing to a reader.
        let reason = said.split_once(" (os error ").map_or(said.as_str(), |(reason, _)| reason);
        Self::new(kind, reason.to_owned())
    }

    /// The same failure as one of another kind.
    #[must_use]
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the key or path it is about, where one is known.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Returns the reason in words, without the subject.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the errno that a program gets.
    pub fn errno(&self) -> i32 {
        match self.kind {
            Kind::NotFound => libc::ENOENT,
            Kind::Exists => libc::EEXIST,
            Kind::NotDirectory => libc::ENOTDIR,
            Kind::IsDirectory => libc::EISDIR,
            Kind::NotEmpty => libc::ENOTEMPTY,
            Kind::ReadOnly => libc::EROFS,
            Kind::Invalid | Kind::Incomplete => libc::EINVAL,
            Kind::TooLarge => libc::EFBIG,
            Kind::NotPermitted => libc::EPERM,
            Kind::Corrupt | Kind::Internal => libc::EIO,
            // `mv` reports every attribute that it cannot copy, unless the reason is EOPNOTSUPP.
            Kind::Unsupported | Kind::NoSuchNamespace | Kind::FixedAttribute => libc::EOPNOTSUPP,
            Kind::Stale => libc::ESTALE,
            Kind::NoAttribute => libc::ENODATA,
            Kind::Range => libc::ERANGE,
            Kind::Busy => libc::EBUSY,
            Kind::NoMemory => libc::ENOMEM,
            Kind::CrossDevice => libc::EXDEV,
            Kind::Os(code) => code,
        }
    }

    /// Whether it is of what is stored, which will be so the next time too.
    pub fn is_of_data(&self) -> bool {
        matches!(self.kind, Kind::Corrupt | Kind::Unsupported | Kind::TooLarge)
    }

    /// Whether it is part of normal operation (a name that does not exist), so that it is not
    /// logged.
    pub fn is_expected(&self) -> bool {
        matches!(
            self.kind,
            Kind::NotFound
                | Kind::Exists
                | Kind::Incomplete
                | Kind::NotEmpty
                | Kind::NotDirectory
                | Kind::IsDirectory
                | Kind::NoAttribute
                | Kind::NoSuchNamespace
                | Kind::FixedAttribute
                | Kind::Range
        )
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(f, "{subject}: {}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

impl std::error::Error for Error {}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::os(&error.into())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::os(&error)
    }
}

/// Adds the name of the thing that an error is about.
pub trait At {
    /// Names the subject, unless a layer below has named one.
    #[must_use]
    fn at(self, subject: impl Display) -> Self;
}

impl At for Error {
    fn at(mut self, subject: impl Display) -> Self {
        if self.subject.is_none() {
            self.subject = Some(subject.to_string().into_boxed_str());
        }
        self
    }
}

impl<T> At for Result<T> {
    fn at(self, subject: impl Display) -> Self {
        self.map_err(|error| error.at(subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_subject_stays() {
        let error = Error::corrupt("4096 bytes decoded, chunk needs 8192").at("c/0/3").at("mnt");
        assert_eq!(error.to_string(), "c/0/3: 4096 bytes decoded, chunk needs 8192");
    }

    #[test]
    fn an_errno_of_the_backing_store_goes_through_unchanged() {
        let error = Error::os(&std::io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.errno(), libc::ENOSPC);
        assert_eq!(error.to_string(), "No space left on device");
    }
}
