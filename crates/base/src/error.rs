//! The one error type: its kind (which decides the errno), its subject, and the reason.
//!
//! The leaf describes the failure; the layer that knows the name adds it with [`WithSubject::at`].
//! The innermost name stays, since it is the key or path that the user can check. Absence is not an
//! error: it is an `Option`.
//!
//! A person reads the reason, and names of a hierarchy in it may have any characters. So it has
//! only printable ones, and not too many. So has the subject, which is a key for the code, when it
//! is shown.

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::printable;

/// The result of fallible functions here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The most characters of a reason, and of a subject as it is shown: names and values in metadata
/// may be long.
const MAX_LEN: usize = 1000;

/// The kind of failure. Only [`Error::errno`] converts one to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No such name. A missing chunk of an array is no such error: it has the fill value.
    NotFound,
    /// The name exists.
    Exists,
    /// A directory is required, and this is not one.
    NotDirectory,
    /// A directory where a file is needed.
    IsDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The mount or the store is read-only.
    ReadOnly,
    /// The request is invalid for this file: a wrong length, or invalid metadata.
    Invalid,
    /// Like [`Kind::Invalid`], for a file without any written bytes yet. It is reported again if
    /// the file stays like this.
    Incomplete,
    /// Past the end of a file of fixed size, or larger than a limit.
    TooLarge,
    /// The name is reserved for zarrfs or for the stored dialect.
    NotPermitted,
    /// Bytes or metadata that violate the specification.
    Corrupt,
    /// Valid, but not implemented; or an unknown must-understand extension.
    Unsupported,
    /// The stored value is not the one that the caller expected.
    Stale,
    /// No such extended attribute.
    NoAttribute,
    /// A namespace of extended attributes that the mount does not have.
    NoSuchNamespace,
    /// A read-only extended attribute. Programs that copy files try to set all attributes.
    FixedAttribute,
    /// The result does not fit the caller's buffer.
    Range,
    /// Another program holds it.
    Busy,
    /// A memory limit is reached for now.
    NoMemory,
    /// A request between two file systems or two arrays; the program must copy instead.
    CrossDevice,
    /// A bug in zarrfs: a panic in a request, or a broken invariant.
    Internal,
    /// An errno of the backing store, passed through.
    Os(i32),
}

/// The fault of stored bytes that violate their specification, if it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A stored checksum does not match the bytes.
    Checksum,
    /// There are more or fewer bytes than the metadata need.
    Length,
    /// The name belongs to something that holds no bytes.
    File,
    /// The name leads to a file that zarrfs does not read for the program: out of the store, or to
    /// one of another user.
    Outside,
    /// A reference or a link leads to nothing.
    Absent,
    /// A limit of zarrfs was reached: nothing is known of the bytes.
    Limit,
    /// A server did not give the bytes: nothing is known of them.
    Away,
}

/// What it means for a value that it could not be read. Only [`Error::word`] decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It is valid, in a form that zarrfs does not read.
    Unsupported,
    /// It may not be read: permissions, a server, or what the user has allowed.
    Refused,
    /// It is not there.
    Missing,
    /// It exceeds a limit, so zarrfs did not look at it.
    Limited,
    /// Its bytes violate their specification.
    Damaged,
    /// The disk, the network or the machine failed.
    Failed,
}

impl Word {
    /// Returns the word, as people read it before "value".
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
            Self::Missing => "missing",
            Self::Limited => "too large",
            Self::Damaged => "damaged",
            Self::Failed => "unreadable",
        }
    }

    /// Returns the word with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Unsupported, Self::Refused, Self::Missing, Self::Limited, Self::Failed];
        let damaged = (name == Self::Damaged.name()).then_some(Self::Damaged);
        all.into_iter().find(|word| word.name() == name).or(damaged)
    }
}

/// A failure: a [`Kind`], the key or path, and the reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    fault: Option<Fault>,
    subject: Option<Box<str>>,
    detail: Box<str>,
}

impl Error {
    /// Returns an error of `kind` with a reason and no subject.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        let detail = plain(&detail).unwrap_or_else(|| detail.into_owned()).into_boxed_str();
        Self { kind, fault: None, subject: None, detail }
    }

    /// Returns an error about stored bytes that violate their specification.
    pub fn corrupt(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Corrupt, detail)
    }

    /// Returns an error about stored bytes with this fault.
    pub fn fault(fault: Fault, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Some(fault), ..Self::corrupt(detail) }
    }

    /// Returns an error about a limit of zarrfs, which says nothing about the bytes.
    pub fn limit(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Some(Fault::Limit), ..Self::new(kind, detail) }
    }

    /// Returns the error of a request. If the server gave no answer to it, that says nothing about
    /// the bytes.
    #[must_use]
    pub fn by_server(self) -> Self {
        match self.kind {
            Kind::Os(libc::EIO | libc::ETIMEDOUT) => {
                Self { fault: self.fault.or(Some(Fault::Away)), ..self }
            }
            _ => self,
        }
    }

    /// Returns an error about something valid that zarrfs does not support.
    pub fn unsupported(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported, detail)
    }

    /// Returns an error about an invalid request.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, detail)
    }

    /// Returns an error about something larger than a limit or than its file.
    pub fn too_large(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::TooLarge, detail)
    }

    /// Returns an error about a name that does not exist.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "no such file or directory")
    }

    /// Returns an error of the operating system.
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
        let message = error.to_string();
        // The number of the errno does not help the user.
        let reason =
            message.split_once(" (os error ").map_or(message.as_str(), |(reason, _)| reason);
        Self::new(kind, reason.to_owned())
    }

    /// Returns the failure with another kind.
    #[must_use]
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the fault of stored bytes, if it is known.
    pub fn fault_of_bytes(&self) -> Option<Fault> {
        self.fault
    }

    /// Returns the key or path that failed, if known. It may have any characters.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Returns the reason in words, without the subject. All its characters are printable.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the errno for the program.
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

    /// Returns what the error means for the value.
    pub fn word(&self) -> Word {
        match self.fault {
            Some(Fault::Outside) => return Word::Refused,
            Some(Fault::Absent) => return Word::Missing,
            Some(Fault::Limit) => return Word::Limited,
            Some(Fault::Away) => return Word::Failed,
            Some(Fault::Checksum | Fault::Length | Fault::File) => return Word::Damaged,
            None => {}
        }
        match self.kind {
            Kind::Corrupt | Kind::Invalid | Kind::Incomplete | Kind::Internal => Word::Damaged,
            Kind::Unsupported
            | Kind::NoSuchNamespace
            | Kind::FixedAttribute
            | Kind::Os(libc::EOPNOTSUPP | libc::ENOSYS) => Word::Unsupported,
            Kind::NotPermitted | Kind::ReadOnly | Kind::Os(libc::EACCES | libc::EPERM) => {
                Word::Refused
            }
            Kind::TooLarge | Kind::NoMemory => Word::Limited,
            Kind::NotFound | Kind::NoAttribute => Word::Missing,
            Kind::Exists
            | Kind::NotDirectory
            | Kind::IsDirectory
            | Kind::NotEmpty
            | Kind::Stale
            | Kind::Range
            | Kind::Busy
            | Kind::CrossDevice
            | Kind::Os(_) => Word::Failed,
        }
    }

    /// Whether the error is about stored data, so that a retry fails too.
    pub fn is_of_data(&self) -> bool {
        matches!(self.kind, Kind::Corrupt | Kind::Unsupported | Kind::TooLarge)
    }

    /// Whether a value cannot be read however often one tries: it is damaged, of another form, too
    /// large, refused, or a reference leads to nothing. A copy can leave it out.
    pub fn is_lasting(&self) -> bool {
        self.is_of_data()
            || self.fault == Some(Fault::Absent)
            || matches!(self.word(), Word::Refused)
    }

    /// Whether it is part of normal operation (a name that does not exist, a program that was
    /// killed), so that it is not logged.
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
                | Kind::Os(libc::EINTR | libc::ENXIO)
        )
    }
}

/// Returns `text` as a person can read it; `None` if that is `text` itself.
fn plain(text: &str) -> Option<String> {
    let short = printable::shortened(text, MAX_LEN);
    match (printable::escaped(&short), &short) {
        (Cow::Borrowed(_), Cow::Borrowed(_)) => None,
        (plain, _) => Some(plain.into_owned()),
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The root of a store has no name.
        match self.subject.as_ref().filter(|subject| !subject.is_empty()) {
            Some(subject) => {
                let subject = plain(subject).map_or(Cow::Borrowed(&**subject), Cow::Owned);
                write!(f, "{subject}: {}", self.detail)
            }
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

/// Adds the subject to an error.
pub trait WithSubject {
    /// Sets the subject, unless a layer below has set one.
    #[must_use]
    fn at(self, subject: impl Display) -> Self;
}

impl WithSubject for Error {
    fn at(mut self, subject: impl Display) -> Self {
        if self.subject.is_none() {
            self.subject = Some(subject.to_string().into_boxed_str());
        }
        self
    }
}

impl<T> WithSubject for Result<T> {
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
    fn names_of_a_hierarchy_cannot_control_the_terminal() {
        let error = Error::corrupt("no codec \x1b[8m\u{202e}").at("a\x1b]0;x\x07\nb");
        assert_eq!(error.to_string(), r"a\u{1b}]0;x\u{7}\nb: no codec \u{1b}[8m\u{202e}");
        assert_eq!(error.subject(), Some("a\x1b]0;x\x07\nb"));
    }

    #[test]
    fn a_long_name_does_not_hide_the_reason() {
        let name = "x".repeat(1 << 20);
        let error = Error::unsupported(format!("codec {name} is not known")).at(name);
        let text = error.to_string();
        assert!(text.len() < 2100 && text.ends_with("xxx is not known"), "{text}");
        assert!(text.contains("x: codec xxx"), "{text}");
    }

    #[test]
    fn only_damage_is_called_damaged() {
        let os = |code| Error::os(&std::io::Error::from_raw_os_error(code));
        for (error, word) in [
            (Error::corrupt("x"), Word::Damaged),
            (Error::fault(Fault::Checksum, "x"), Word::Damaged),
            (Error::fault(Fault::File, "a FIFO"), Word::Damaged),
            (Error::unsupported("x"), Word::Unsupported),
            (os(libc::EOPNOTSUPP), Word::Unsupported),
            (os(libc::EACCES), Word::Refused),
            (os(libc::EPERM), Word::Refused),
            (Error::new(Kind::NotPermitted, "x"), Word::Refused),
            (Error::fault(Fault::Outside, "a link out"), Word::Refused),
            (Error::fault(Fault::Absent, "a dangling link"), Word::Missing),
            (os(libc::ENOENT), Word::Missing),
            (Error::too_large("x"), Word::Limited),
            (Error::limit(Kind::Os(libc::ETIMEDOUT), "too slow"), Word::Limited),
            (os(libc::ENOMEM), Word::Failed),
            (os(libc::EIO), Word::Failed),
            (os(libc::ETIMEDOUT), Word::Failed),
        ] {
            assert_eq!(error.word(), word, "{error:?}");
        }
    }

    #[test]
    fn an_errno_of_the_backing_store_goes_through_unchanged() {
        let error = Error::os(&std::io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.errno(), libc::ENOSPC);
        assert_eq!(error.to_string(), "No space left on device");
    }
}
