"""Mounts Zarr hierarchies as file systems, by the program zarrfs.

    with zarrfs.mount("era5.zarr") as path:
        subprocess.run(["cdo", "timmean", path / "__root__.nc", "mean.nc"], check=True)
"""

import atexit
import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
import warnings
from pathlib import Path

__all__ = ["Error", "Mount", "mount", "program"]

# The right to mount, as a bit of the capabilities of a process (capabilities(7)).
CAP_SYS_ADMIN = 1 << 21

# Seconds that the program may take to end when nothing uses its mount any more.
PATIENCE = 2

# The exit code of `zarrfs exec` if SIGTERM ends its command.
ENDED = 128 + signal.SIGTERM

_first = threading.Lock()


class Error(RuntimeError):
    """What the program says when it fails."""


def program():
    """Returns the path of the program `zarrfs`."""
    # sysconfig of some versions cannot be asked by several threads the first time.
    with _first:
        return _program()


def _program():
    home = Path(sysconfig.get_path("scripts"))
    user = Path(sysconfig.get_path("scripts", f"{os.name}_user"))
    # With `pip install --target`, the programs are beside the modules.
    target = Path(__file__).parent.parent / "bin"
    for directory in [home, user, target]:
        if (directory / "zarrfs").is_file():
            return str(directory / "zarrfs")
    found = shutil.which("zarrfs")
    if found is None:
        raise Error(f"the program zarrfs is not in {home}, {user} or PATH; install the package zarrfs again")
    return found


def mount(source, mountpoint=None, *, options=(), private=None, **long_options):
    """Mounts a Zarr hierarchy. Use it as a context manager, whose value is the mountpoint as a `pathlib.Path`.

    `source` is a path or a URL. The mount is on the empty directory `mountpoint`, or on a new one. `options` are words
    of `-o`, such as "ro" or ["ro", "allow_other"]. Each long option of `zarrfs mount --help` is a keyword:
    `views="nc"`, `cache_size="1G"`, `immutable=True`, `as_="zarr2"`, `from_="n5"`.

    A private mount needs neither root nor fusermount3. It has no path of its own outside of its namespace, but processes
    of the same user reach it below `/proc`. By default (`private=None`) it is used where no other mount is possible.

    The block ends when everything that programs wrote is stored, and the mount is gone. A mount that is still in use
    by then ends with its last open file; a private one ends at once, so close its files first. A failure is an `Error`.
    """
    return Mount(source, mountpoint, options=options, private=private, **long_options)


class Mount:
    """A mount. Its `path` is the mountpoint; `close` ends it."""

    def __init__(self, source, mountpoint=None, *, options=(), private=None, **long_options):
        if private is None:
            private = not can_mount()
        words = list(words_of(options, long_options))
        self._made = None
        self._process = None
        self._lock = threading.Lock()
        # Reading it is the only way to learn why the program failed, and a file never makes the program wait.
        self._messages = tempfile.TemporaryFile()
        try:
            if private:
                self.path = self._start_private(source, mountpoint, words)
            else:
                self.path = self._start(source, mountpoint, words)
        except BaseException:
            self._abandon()
            raise
        self.is_private = private
        self._owner = os.getpid()
        atexit.register(self._close_at_exit)

    def _spawn(self, words, **pipes):
        self._process = subprocess.Popen(
            [program(), *words], stdin=subprocess.PIPE, stderr=self._messages, start_new_session=True, **pipes
        )

    def _start(self, source, mountpoint, words):
        if mountpoint is None:
            mountpoint = self._made = tempfile.mkdtemp(prefix="zarrfs-")
        with tempfile.TemporaryDirectory(prefix="zarrfs-") as directory:
            # The program reports there that the mount answers, as services report to systemd.
            address = os.path.join(directory, "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
                ready.bind(address)
                self._spawn(
                    ["mount", "--foreground", "--until-eof", *words, "--", os.fspath(source), os.fspath(mountpoint)],
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, "NOTIFY_SOCKET": address},
                )
                while not self._is_ready(ready):
                    if self._process.poll() is not None:
                        raise self._error()
        return Path(mountpoint).resolve()

    @staticmethod
    def _is_ready(ready):
        """Waits a moment for the message of the program."""
        with selectors.DefaultSelector() as selector:
            selector.register(ready, selectors.EVENT_READ)
            return bool(selector.select(timeout=0.05)) and ready.recv(4096) == b"READY=1"

    def _start_private(self, source, mountpoint, words):
        if mountpoint is not None:
            words += [f"--mountpoint={os.fspath(mountpoint)}"]
        # The command lives as long as the other end of the pipe is open.
        command = ["/bin/sh", "-c", 'printf "%s\\n" "$ZARRFS"; exec cat']
        self._spawn(["exec", *words, os.fspath(source), "--", *command], stdout=subprocess.PIPE)
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self._process.wait()
            raise self._error()
        return Path(f"/proc/{self._process.pid}/root{os.fsdecode(line[:-1])}")

    def __enter__(self):
        return self.path

    def __exit__(self, kind, error, trace):
        try:
            self.close()
        except Error as failure:
            if error is None:
                raise
            # The first failure is the one that matters.
            warnings.warn(f"zarrfs: {failure}", stacklevel=2)

    def __repr__(self):
        state = "closed" if self._process is None else os.fspath(self.path)
        return f"<zarrfs.Mount {state}>"

    def close(self):
        """Stores what programs have written, and ends the mount. Does nothing the second time."""
        with self._lock:
            # The mount of a process is not for its forked children to end.
            if self._process is None or self._owner != os.getpid():
                return
            atexit.unregister(self._close_at_exit)
            process = self._process
            failure = None
            try:
                if not self.is_private:
                    failure = sync(self.path)
                # A forked child may still hold the pipe, so closing it is not enough.
                process.send_signal(signal.SIGTERM)
                process.stdin.close()
                self._wait(process, failure)
            finally:
                self._process = None
                self._clean_up()

    def _wait(self, process, failure):
        """Waits for the end of the program. Raises its failure."""
        if self.is_private:
            process.wait()
        else:
            deadline = time.monotonic() + PATIENCE
            while process.poll() is None and (os.path.ismount(self.path) or time.monotonic() < deadline):
                time.sleep(0.002)
        if process.poll() is None:
            # Files in the mount are still open. Everything is stored, and the program ends with the last of them.
            threading.Thread(target=process.wait, name="zarrfs", daemon=True).start()
            if failure is not None:
                raise failure
        elif process.returncode not in (0, ENDED):
            raise self._error()

    def _error(self):
        """Returns the failure of a program that has ended."""
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").splitlines()
        # Wrong arguments are an `error`, followed by the usage.
        said = [line.split(": ", 1)[1] for line in lines if line.startswith(("zarrfs: ", "error: "))]
        ended = f"the program zarrfs ended with the status {self._process.returncode}"
        return Error(said[-1] if said else "; ".join(lines[-3:]) or ended)

    def _close_at_exit(self):
        with contextlib.suppress(Error):
            self.close()

    def _abandon(self):
        """Ends what has begun when the mount has failed."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
            self._process.stdin.close()
            self._process.wait()
            self._process = None
        self._clean_up()

    def _clean_up(self):
        self._messages.close()
        if self._made is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self._made)


def can_mount():
    """Whether this process can make a mount that others see."""
    with open("/proc/self/status") as status:
        effective = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    if int(effective, 16) & CAP_SYS_ADMIN:
        return True
    return os.geteuid() != 0 and shutil.which("fusermount3") is not None


def words_of(options, long_options):
    """Yields the words of a command line."""
    joined = options if isinstance(options, str) else ",".join(options)
    if joined:
        yield f"-o{joined}"
    for name, value in long_options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            yield option
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        yield f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"


def sync(path):
    """Stores everything. Returns the failure, if there is one."""
    try:
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return Error(f"{path}: {error.strerror}")
    try:
        os.fsync(root)
    except OSError as error:
        return Error(f"not everything is stored: {error.strerror}")
    finally:
        os.close(root)
    return None
