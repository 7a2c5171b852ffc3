"""Names, links, special files and mounts that might lead out of the store, or make zarrfs wait for itself."""

import ctypes
import errno
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import zarr

import mounts
from hostile_forms import SECRET
from mounts import Mount, MountFailed, files, until_end
from test_damage import beneath, read
from torture import count

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")


@pytest.fixture
def store(tmp_path):
    """A group with the array `a`, and an ordinary directory."""
    path = tmp_path / "s"
    root = zarr.create_group(path)
    root.create_array("a", shape=(8,), chunks=(4,), dtype="u1", compressors=None)[:] = range(8)
    (path / "d").mkdir()
    return path


@pytest.fixture
def m(store, tmp_path):
    with until_end(Mount(store, tmp_path / "m")) as mounted:
        mounted.allow("")
        yield mounted


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def errno_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"


# Names

STRANGE = [b"line\nbreak", b"tab\t", b"\x01", b"-rf", b"...", b"__x", b"a b", b"*", b"~", b"%2e%2e", "ä".encode(), "a\u0308".encode(), b"\\", b"x" * 255]
NOT_UTF8 = [b"\xff", b"latin\xe4", b"\xc0\xae\xc0\xae", b"\xed\xa0\x80"]


@pytest.mark.parametrize("place", [b"d", b"a", b"new", b"."])
def test_a_strange_name_is_one_name_in_the_mount_and_in_the_store(m, store, place):
    there, below = os.fsencode(m.path) + b"/" + place, os.fsencode(store) + b"/" + place
    os.makedirs(there, exist_ok=True)
    for name in STRANGE:
        path = there + b"/" + name
        with open(path, "wb") as file:
            file.write(b"bytes")
        assert name in os.listdir(there) and name in os.listdir(below), name
        assert bytes_of(path) == b"bytes" and bytes_of(below + b"/" + name) == b"bytes"
        os.rename(path, there + b"/renamed")
        os.rename(there + b"/renamed", path)
        os.symlink(b"target", there + b"/link")
        os.unlink(there + b"/link")
        os.unlink(path)
        assert name not in os.listdir(below), name
    for name in NOT_UTF8:
        for call in (lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)), os.mkdir, os.mkfifo, lambda path: os.symlink(b"x", path)):
            assert errno_of(call, there + b"/" + name) == "EILSEQ", name
    for call in (lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)), os.mkdir):
        assert errno_of(call, there + b"/" + b"x" * 256) == "ENAMETOOLONG"
        assert errno_of(call, there + b"/..") in ("EEXIST", "EISDIR")


def test_strange_names_of_the_store_are_shown_or_left_out_and_lead_nowhere(store, tmp_path):
    for directory in ("d", "a", "a/c"):
        for name in STRANGE + NOT_UTF8:
            (store / directory / os.fsdecode(name)).write_bytes(b"bytes")
    (store / "d/back\\..\\slash").write_bytes(b"bytes")
    with until_end(Mount(store, tmp_path / "m")) as m:
        m.allow("")
        for directory in ("d", "a"):
            shown = os.listdir(os.fsencode(m / directory))
            assert set(STRANGE) <= set(shown), directory
            for name in shown:
                path = os.fsencode(m / directory) + b"/" + name
                assert stat.S_ISDIR(os.lstat(path).st_mode) or bytes_of(path), name
        assert numpy.array_equal(numpy.frombuffer((m / "a.raw").read_bytes(), "u1"), range(8))


@pytest.mark.parametrize("name", [".zarrfs", ".zarrfs/x", "d/zarr.json/x", "a/c/0/x"])
def test_a_reserved_name_cannot_be_made(m, store, name):
    before = files(store)
    for call in (os.mkdir, os.mkfifo, lambda path: Path(path).write_bytes(b"x"), lambda path: os.symlink("x", path), lambda path: os.rename(m / "d", path)):
        assert errno_of(call, m / name) != "ok", name
    assert files(store) == before


# Special files


def sockets_at(path):
    with socket.socket(socket.AF_UNIX) as made:
        at = os.getcwd()
        os.chdir(path.parent)  # The name of a socket is short.
        try:
            made.bind(path.name)
        finally:
            os.chdir(at)


SPECIAL = {
    "FIFO": os.mkfifo,
    "socket": sockets_at,
    "device": lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
    "dead link": lambda path: os.symlink("nowhere", path),
    "link to itself": lambda path: os.symlink(path.name, path),
    "link to outside": lambda path: os.symlink("/etc/passwd", path),
    "link to a directory": lambda path: os.symlink(".", path),
    "directory": os.mkdir,
}
PLACES = {"chunk": "b/c/0", "directory of chunks": "b/c", "metadata file": "b/zarr.json", "array": "b", "ordinary file": "d/file", "root metadata file": "zarr.json"}
USE = """
import os, sys
root, name = sys.argv[1:]
os.chdir(root)
def each(*calls):
    for call in calls:
        try:
            call()
        except OSError as error:
            print(call, error.errno)
def listing(at):
    for name in os.listdir(at):
        os.lstat(os.path.join(at, name))
def read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.read(fd, 100)
    os.close(fd)
def write(path):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CREAT | os.O_NOFOLLOW)
    os.write(fd, b"12345678")
    os.close(fd)
each(*[lambda path=path: listing(path) for path in (".", "b", "b/c", "d", ".zarrfs/stored/b", ".zarrfs/views")])
each(*[lambda path=path: read(path) for path in (name, "b/c/0", "b.npy", "b.raw", "__root__.nc", "zarr.json", "b/zarr.json", ".zarrfs/stored/b/zarr.json", ".zarrfs/views/b")])
each(lambda: os.listxattr(name), lambda: os.lstat(name), lambda: os.readlink(name))
if not os.path.islink(name):
    each(lambda: write(name), lambda: os.chmod(name, 0o644), lambda: os.truncate(name, 8), lambda: os.utime(name))
each(lambda: os.rename(name, name + "2"), lambda: os.rename(name + "2", name), lambda: os.link(name, name + "3"), lambda: os.unlink(name + "3"))
each(lambda: os.unlink(name), lambda: os.rmdir(name), lambda: write("b/c/0"))
print("done")
"""


@AS_ROOT
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("special", SPECIAL)
def test_no_special_file_in_the_store_is_opened_or_makes_anything_wait(store, tmp_path, special, place):
    array = zarr.create_array(store / "b", shape=(8,), chunks=(8,), dtype="u1", compressors=None)
    array[:] = range(8)
    (store / "d/file").write_bytes(b"bytes")
    path = store / PLACES[place]
    subprocess.run(["rm", "-rf", path], check=True)
    SPECIAL[special](path)
    passwd = Path("/etc/passwd").read_bytes()
    words = ["--from", "v3"] if place == "root metadata file" else []
    try:
        with until_end(Mount(store, tmp_path / "m", *words)) as m:
            m.allow("")
            done = subprocess.run([sys.executable, "-S", "-c", USE, m.path, PLACES[place]], capture_output=True, text=True, timeout=120)
            assert done.stdout.endswith("done\n"), done
            assert read(m / "a/c/0") == bytes(range(4)), "the array beside"
            assert "a bug in zarrfs" not in m.errors()
            if special == "directory" and place == "root metadata file":
                path.rmdir()  # The group cannot be stored as long as it is there, and `zarrfs umount` says so.
    except MountFailed as failed:
        assert place == "root metadata file", failed
        assert f" {tmp_path / 'm'} " not in Path("/proc/self/mounts").read_text(), "a mount that has failed is still there"
    assert Path("/etc/passwd").read_bytes() == passwd


# Hard links


@pytest.mark.parametrize("name, change", [
    ("a/c/0", lambda m: (m / "a/c/0").write_bytes(b"new!")),
    ("a/c/0", lambda m: beneath(m / "a/c/0", "write")),
    ("a/zarr.json", lambda m: os.setxattr(m / "a", "user.attrs.new", b"1")),
    ("a/c/0", lambda m: os.unlink(m / "a/c/0")),
    ("a/c/0", lambda m: (m / "a.raw").open("r+b").write(b"new!")),
])  # fmt: skip
def test_the_other_name_of_a_hard_link_keeps_its_bytes(m, store, tmp_path, name, change):
    """`cp -al` makes a snapshot of a store, which writing must not change."""
    other = tmp_path / "other"
    os.link(store / name, other)
    before, owner = other.read_bytes(), os.stat(other).st_mode
    change(m)
    m.sync()
    assert other.read_bytes() == before and os.stat(other).st_mode == owner
    assert not (store / name).exists() or (store / name).read_bytes() != before or name == "a/c/0"


# A store that changes between check and use

SWAPS = """
import ctypes, random, os, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
names = [os.fsencode(name) for name in sys.argv[1:]]
while True:
    name = random.choice(names)
    exchange(-100, name, -100, name + b"-far", 2)
"""


def put_back(store, names):
    """Ends the exchanges: what leads out of the store at the end could not be stored. Those above come first."""
    exchange = ctypes.CDLL(None).renameat2
    for name in names:
        if (store / name).is_symlink():
            exchange(-100, os.fsencode(store / name), -100, os.fsencode(store / f"{name}-far"), 2)


CHANGES = """
import os, sys, time
sys.path.insert(0, sys.argv[3])
from beneath import open_beneath, remove, write
root, seconds = sys.argv[1], float(sys.argv[2])
# Paths of the kernel: a link that is shown must not be followed by the test itself.
def at(name, call):
    above, last = os.path.split(name)
    fd = open_beneath(root, above or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        call(last, fd)
    finally:
        os.close(fd)
def on_file(name, call):
    fd = open_beneath(root, name, os.O_RDWR | os.O_NOFOLLOW)
    try:
        call(fd)
    finally:
        os.close(fd)
count, until = 0, time.monotonic() + seconds
while time.monotonic() < until:
    for name in ("d/file", "d/new", "b/c/0", "b/zarr.json", "d/sub/file", "d/sub/new", "file"):
        for call in (
            lambda: write(root, name), lambda: remove(root, name), lambda: on_file(name, lambda fd: os.fchmod(fd, 0o640)),
            lambda: at(name, lambda last, fd: os.chmod(last, 0o600, dir_fd=fd, follow_symlinks=True) if not stat_link(last, fd) else None),
            lambda: at(name, lambda last, fd: os.chown(last, 1234, 1234, dir_fd=fd, follow_symlinks=False)),
            lambda: at(name, lambda last, fd: os.rename(last, last + "2", src_dir_fd=fd, dst_dir_fd=fd)),
            lambda: at(name, lambda last, fd: os.rename(last + "2", last, src_dir_fd=fd, dst_dir_fd=fd)),
            lambda: at(name, lambda last, fd: os.mkdir(last + "dir", dir_fd=fd)), lambda: at(name, lambda last, fd: os.rmdir(last + "dir", dir_fd=fd)),
            lambda: at(name, lambda last, fd: os.symlink("x", last + "link", dir_fd=fd)), lambda: at(name, lambda last, fd: os.unlink(last + "link", dir_fd=fd)),
            lambda: at(name, lambda last, fd: os.link(last, last + "3", src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)),
            lambda: at(name, lambda last, fd: os.unlink(last + "3", dir_fd=fd)), lambda: on_file(name, lambda fd: os.setxattr(fd, "user.note", b"1")),
            lambda: on_file(name, lambda fd: os.ftruncate(fd, 0)), lambda: on_file(name, os.utime),
        ):
            count += 1
            try:
                call()
            except (OSError, NotImplementedError):
                pass
print(count)
"""
CHANGES = CHANGES.replace("def on_file", """def stat_link(last, fd):
    import stat
    return stat.S_ISLNK(os.stat(last, dir_fd=fd, follow_symlinks=False).st_mode)
def on_file""", 1)


@AS_ROOT
@pytest.mark.parametrize("user", [0, 1234])
def test_changes_while_links_come_and_go_reach_nothing_outside(store, tmp_path, tried, user):
    """Programs write, rename, remove, chmod and chown, as root and as another user, while links to outside take the places of
    files and directories."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
            above.chmod(0o755)
    outside, seconds = tmp_path / "outside", count("ZARRFS_SECONDS", 3, 60)
    (outside / "sub").mkdir(parents=True)
    for name in ("file", "new", "0", "sub/file", "zarr.json"):
        (outside / name).write_bytes(SECRET)
        (outside / name).chmod(0o604)
    zarr.create_array(store / "b", shape=(8,), chunks=(8,), dtype="u1", compressors=None)[:] = range(1, 9)
    (store / "d/sub").mkdir()
    for name in ("d/file", "d/sub/file", "file"):
        (store / name).write_bytes(b"bytes")
    pairs = {"d": ".", "d/sub": "sub", "d/file": "file", "b": ".", "b/c": ".", "b/c/0": "0", "b/zarr.json": "zarr.json", "file": "file"}
    for name, target in pairs.items():
        (store / f"{name}-far").symlink_to(outside / target)
    for at, names, more in os.walk(store):
        for name in [".", *names, *more]:
            os.chown(os.path.join(at, name), user, user, follow_symlinks=False)

    def seen():
        return {path: (os.lstat(path).st_mode, os.lstat(path).st_uid, os.lstat(path).st_nlink) for path in sorted(outside.rglob("*"))}

    before, modes = files(outside), seen()
    with until_end(Mount(store, tmp_path / "m", "-o", "allow_other", "--metadata-ttl=0s")) as m:
        m.allow("")
        swapper = subprocess.Popen([sys.executable, "-S", "-c", SWAPS, *pairs], cwd=store)
        try:
            become = f"import os\nos.setgroups([])\nos.setresgid({user}, {user}, {user})\nos.setresuid({user}, {user}, {user})\n"
            words = [sys.executable, "-S", "-c", "import struct, ctypes\n" + become + CHANGES, m.path, str(seconds), str(Path(__file__).parent)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 120)
        finally:
            swapper.kill()
            swapper.wait()
        assert done.returncode == 0, done
        put_back(store, pairs)
        tried("changes while links came and went", int(done.stdout))
        assert mounts.is_alive(m.pid) and read(m / "a/c/0") == bytes(range(4))
        assert "a bug in zarrfs" not in m.errors()
    assert files(outside) == before and seen() == modes, "changed outside of the store"


# Mounts


def test_a_mount_and_its_store_are_never_in_each_other(store, tmp_path):
    (store / "sub").mkdir()
    (tmp_path / "link").symlink_to(store)
    for source, target in ((store, store), (store, store / "sub"), (store, tmp_path), (store, tmp_path / "link/sub"), (tmp_path / "link", store / "sub")):
        with pytest.raises(MountFailed, match="own source"):
            Mount(source, target, "-o", "nonempty")
    assert sorted(path.name for path in store.iterdir()) == ["a", "d", "sub", "zarr.json"]


@AS_ROOT
def test_a_mount_is_not_in_its_own_store_under_the_name_of_a_bind_mount(store, tmp_path):
    """It would appear in the store where mounts are shared, and zarrfs would wait for itself."""
    (store / "sub").mkdir()
    alias = tmp_path / "alias"
    alias.mkdir()
    script = f"""mount --make-rshared / && mount --bind '{store}' '{alias}' || exit 9
    '{mounts.BIN}' mount '{store}' '{alias}/sub'; echo $?; '{mounts.BIN}' mount '{alias}/sub' '{store}' -o nonempty; echo $?; umount '{alias}'"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "1\n1\n" and done.stderr.count("own source") == 2, done


@AS_ROOT
def test_a_mount_over_a_mount_is_refused_and_over_another_file_system_is_not(store, tmp_path):
    with until_end(Mount(store, tmp_path / "m")) as m:
        with pytest.raises(MountFailed, match="already mounted"):
            Mount(store, m.path)
        assert read(m / "a/c/0") == bytes(range(4))
        # Two mounts of one store, beside each other, see each other's changes.
        with until_end(Mount(store, tmp_path / "second", "--metadata-ttl=0s")) as second:
            (m / "a/c/0").write_bytes(b"from")
            (m / "d/file").write_bytes(b"first")
            assert read(second / "a/c/0") == b"from" and read(second / "d/file") == b"first"
        # A mount below a mount of another store.
        other = tmp_path / "other"
        zarr.create_array(other, shape=(4,), dtype="u1", compressors=None)[:] = 7
        with until_end(Mount(other, m / "d", "-o", "nonempty")) as below:
            assert read(below / "c/0") == bytes([7] * 4) and read(m / "a/c/0") == b"from"
        assert read(m / "d/file") == b"first"


def test_a_mount_of_a_mount_shows_the_same_and_writes_through(store, tmp_path):
    with until_end(Mount(store, tmp_path / "m")) as m:
        m.allow("")
        with until_end(Mount(m.path, tmp_path / "second", "--metadata-ttl=0s")) as second:
            second.allow("")
            assert read(second / "a/c/0") == bytes(range(4)) and json.loads((second / "a/zarr.json").read_text())["shape"] == [8]
            (second / "a/c/1").write_bytes(b"4321")
            (second / "d/file").write_bytes(b"bytes")
            second.sync()
            assert read(m / "a/c/1") == b"4321"
            assert not mounts.subprocess.run([mounts.BIN, "umount", str(m.path)], capture_output=True).returncode == 0, "unmounted below a mount"
    assert read(store / "a/c/1") == b"4321" and read(store / "d/file") == b"bytes"


def test_a_store_that_is_renamed_or_replaced_keeps_its_mount(store, tmp_path):
    with until_end(Mount(store, tmp_path / "m", "--metadata-ttl=0s")) as m:
        m.allow("")
        os.rename(store, tmp_path / "moved")
        os.symlink("/etc", store)
        assert read(m / "a/c/0") == bytes(range(4)) and not (m / "passwd").exists()
        (m / "d/file").write_bytes(b"bytes")
        assert not Path("/etc/d").exists() and (tmp_path / "moved/d/file").read_bytes() == b"bytes"
        os.unlink(store)
        os.rename(tmp_path / "moved", store)
