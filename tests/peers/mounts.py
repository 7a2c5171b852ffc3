"""A mount of a copy of a store, with everything that has to hold when it ends."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import servers

BIN = os.environ.get("ZARRFS_BIN", "zarrfs")
# How long a daemon may take to answer or to go, on a slow machine too.
PATIENCE = 120


class Mount:
    """`zarrfs mount STORE PATH`, until `end`. A line of its log that `expect` does not name is a failure. With a `url`,
    it mounts the copy of the store there; with a `source`, that."""

    def __init__(self, store, path, *options, url=None, source=None, program=None):
        self.store, self.path, self.url = Path(store), Path(path), url
        with contextlib.suppress(FileExistsError):  # Nobody answers for a dead mount.
            self.path.mkdir(parents=True)
        self.log_file = self.path.with_name(self.path.name + ".log")
        self.expected, self.allowed = [], []
        if url:  # `mv` copies there, with the attributes.
            self.allow("rename: .* cannot move a group or an array in one step")
            self.allow("mounted read-only, because zarrfs does not write to web servers")
            self.allow(r"setxattr: user\.\S*: a program is writing the metadata file")
        command = [str(program or BIN), "mount", source or url or str(store), str(path)]
        command += ["--log-file", str(self.log_file), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        self.stderr = done.stderr
        if done.returncode != 0:
            raise MountFailed(done.returncode, done.stderr)
        self.pid = int(self.stats()["zarrfs_process_id"])

    def __truediv__(self, name):
        return self.path / name

    def stats(self):
        """The counters, by name."""
        text = (self.path / ".zarrfs/stats").read_text()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def errors(self):
        """What `.zarrfs/errors` says."""
        return (self.path / ".zarrfs/errors").read_text()

    def expect(self, pattern):
        """A warning that matches `pattern` is to be in the log when the mount ends."""
        self.expected.append(re.compile(pattern))

    def allow(self, pattern):
        """Warnings that match `pattern` may be in the log, or not."""
        self.allowed.append(re.compile(pattern))

    def refused(self, errno, sentence, request):
        """Does what must fail: with `errno`, and with `sentence` in `.zarrfs/errors`."""
        self.expect(sentence)
        before = len(self.errors().splitlines())
        try:
            request()
        except OSError as error:
            got = error.errno
        else:
            raise AssertionError(f"{sentence!r} expected, but nothing was refused")
        said = "".join(self.errors().splitlines(keepends=True)[before:])
        assert got == errno, f"errno {os.strerror(errno)} expected, {os.strerror(got)} came: {said}"
        assert re.search(sentence, said), f"{sentence!r} is not in .zarrfs/errors:\n{said}"

    def peak_memory(self):
        """The most bytes that the daemon has had in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024

    def sync(self):
        """Stores everything that waits, as `fsync` of the root does."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self.fetch()

    def fetch(self):
        """Copies what is stored at the URL, if there is one, to where a test looks at it."""
        if self.url:
            servers.download(self.url, self.store)

    def is_mounted(self):
        return f" {self.path} " in Path("/proc/self/mounts").read_text()

    def unmount(self):
        """What was wrong, if something was."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                command = [BIN, "umount", str(self.path)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                return f"zarrfs umount did not return in {PATIENCE} s"
            if done.returncode == 0:
                return None
            # TensorStore closes its files a moment after it has said what is in them.
            if "in use" not in done.stderr or time.monotonic() > deadline:
                return done.stderr
            time.sleep(0.05)

    def end(self):
        """Unmounts, and checks that the daemon has gone and said nothing that was not expected."""
        failure = self.unmount() if self.is_mounted() else None
        if self.is_mounted():
            detach(self.path)
        if not wait_until(lambda: not is_alive(self.pid)):
            os.kill(self.pid, signal.SIGKILL)
            failure = failure or "the daemon did not go"
        self.fetch()
        log = self.log_file.read_text() if self.log_file.exists() else ""
        assert failure is None, f"{failure}\n{log}"
        lines = log.splitlines()
        known = self.expected + self.allowed
        strange = [line for line in lines if not any(pattern.search(line) for pattern in known)]
        assert not strange, "not expected in the log:\n" + "\n".join(strange[:20])
        for pattern in self.expected:
            assert any(pattern.search(line) for line in lines), f"{pattern.pattern!r} was not logged"
        assert not [key for key in files(self.store) if ".zarrfs" in key], "left in the store"


@contextlib.contextmanager
def until_end(mount):
    """`with until_end(Mount(..)) as m:` ends the mount after the block."""
    try:
        yield mount
    except BaseException:
        # The failure of the block is the one to show.
        with contextlib.suppress(AssertionError):
            mount.end()
        raise
    mount.end()


class MountFailed(Exception):
    """`zarrfs mount` said no: its exit code, and its sentence."""

    def __init__(self, code, said):
        super().__init__(f"exit code {code}: {said}")
        self.code, self.said = code, said


def detach(path):
    """Takes a mount out of the tree, whatever is in use."""
    for command in (["umount", "-l"], ["fusermount3", "-uz"]):
        if subprocess.run([*command, str(path)], capture_output=True).returncode == 0:
            return


def is_alive(pid):
    """Whether a thread of the process is left: with the last one, its open files are closed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat.rsplit(")", 1)[1].split()
    state, threads = fields[0], int(fields[17])
    return state != "Z" or threads > 1


def wait_until(condition, seconds=PATIENCE):
    """Whether `condition` becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def copy_of(store, directory):
    """A copy of a store that may be written to."""
    shutil.copytree(store, directory, symlinks=True)
    subprocess.run(["chmod", "-R", "u+w", str(directory)], check=True)
    return Path(directory)


def files(directory):
    """Every file below `directory` by its path there: a hash of its bytes, or where a link points. What a daemon that
    lives says of itself while it writes is none."""
    found = {}
    for at, _, names in os.walk(directory):
        for name in names:
            if name.startswith("writing-") and is_alive(name.split("-")[1]):
                continue
            path = os.path.join(at, name)
            key = os.path.relpath(path, directory)
            if os.path.islink(path):
                found[key] = "-> " + os.readlink(path)
            elif os.path.isfile(path):
                found[key] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            else:
                found[key] = "special"
    return found


def changed(before, after):
    """The keys in which two results of `files` differ."""
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
