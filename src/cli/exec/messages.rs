//! The messages between a task, which runs a command, and the server of its mount. Each is one
//! byte, over a Unix socket, with a text or descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// From the first task: the device of the mount, and the namespaces if others may join.
pub const MOUNTED: u8 = b'm';

/// From the server: the mount answers. A task that joins gets its path and its namespaces.
pub const READY: u8 = b'r';

/// From a task: its command has ended.
pub const END: u8 = b'e';

/// From the server, after [`END`]: everything is stored.
pub const STORED: u8 = b's';

/// From the server, after [`END`]: not everything is stored, for the reason that follows.
pub const FAILED: u8 = b'f';

/// The most descriptors in a message.
const MAX_DESCRIPTORS: usize = 3;

/// The longest message in bytes. A longer text is cut.
const MAX_LEN: usize = 64 << 10;

/// A message.
#[derive(Debug)]
pub struct Message {
    /// One of the bytes above.
    pub kind: u8,
    pub text: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a message.
pub fn send(
    stream: &UnixStream,
    kind: u8,
    text: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    let text = text.get(..MAX_LEN.saturating_sub(1)).unwrap_or(text);
    let bytes = [&[kind], text].concat();
    // If the other process is gone, the answer is an error and not a signal.
    let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::Error::other("a message was cut")) }
}

/// Receives a message; `None` if the other process has closed the socket.
pub fn receive(stream: &UnixStream) -> io::Result<Option<Message>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MAX_LEN];
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg(stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            // The other process has closed the socket without reading all.
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    bytes.truncate(received.bytes);
    let Some((kind, text)) = bytes.split_first() else { return Ok(None) };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Some(Message { kind: *kind, text: text.to_owned(), descriptors }))
}
