"""Opens, replaces and removes files of a mount without leaving it by a link: links are followed by the kernel for the
program that asks, as in any file system, and what is tested is what the daemon itself shows.

As a program: `beneath.py ROOT read|write|remove NAME`. It prints `=` and what it has read, or the errno."""

import ctypes
import os
import struct
import sys

OPENAT2, BENEATH = 437, 0x08


def open_beneath(root, name, flags, mode=0o644):
    """`name` in the directory `root`; EXDEV if it leads out."""
    how = struct.pack("<QQQ", flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, BENEATH)
    at = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.syscall(OPENAT2, at, os.fsencode(name), how, len(how))
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
        return fd
    finally:
        os.close(at)


def read(root, name, most=-1):
    with open(open_beneath(root, name, os.O_RDONLY), "rb") as file:
        return file.read(most)


def write(root, name, data=b"12345678"):
    with open(open_beneath(root, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)


def remove(root, name):
    above, last = os.path.split(name)
    fd = open_beneath(root, above or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.unlink(last, dir_fd=fd)
    finally:
        os.close(fd)


if __name__ == "__main__":
    do = {"read": read, "write": write, "remove": remove}[sys.argv[2]]
    try:
        sys.stdout.buffer.write(b"=" + (do(sys.argv[1], sys.argv[3]) or b""))
    except OSError as error:
        print(error.errno)
