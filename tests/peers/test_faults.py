"""A store that fails: programs are told, what was stored stays whole, and all goes on when it works again."""

import contextlib
import errno
import os
import random
import re
import subprocess

import pytest

from mounts import files
from records import CHUNKS, GONE, SIZE, record, sync_dir, version_of
from torture import LONG, SEED, count, found_in, is_sharded, stored, traced

ERRORS = ["EIO", "ENOSPC", "EDQUOT", "EROFS", "EMFILE", "EINTR", "EACCES"]
# The first calls of each kind.
FAULTS = count("ZARRFS_FAULTS", 3, 8)
# The calls, and whether they are those of the files that values are written to: fuser's replies are `writev` too.
CALLS = {
    "write pwrite64 writev pwritev": True,
    "openat openat2": False,
    "fsync fdatasync": False,
    "rename renameat renameat2": False,
    "copy_file_range": True,
    "utimensat": False,
    "fcntl": False,
    "unlinkat": False,
    "mkdirat": False,
}
CASES = [
    (kind, mode, call)
    for kind in ["v3", "v3-sharded", "v2", "d2020-10-sharded"]
    for mode in ["inplace", "truncate", "rename"]
    for call in CALLS
    # Only of a shard something is copied, and only an unsharded chunk may need a directory.
    if (is_sharded(kind) or call != "copy_file_range") and (kind == "v3" or call != "mkdirat")
    # Only the temporary file of a program is removed.
    if mode == "rename" or call != "unlinkat"
    if LONG or (kind.startswith("v3") and mode == "truncate") or (call.startswith(("write", "fsync", "unlink")) and mode == "rename")
]


PIECE = 7000


def pieces(data):
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


class Program:
    """Writes a chunk and goes on after errors, which it notes."""

    def __init__(self):
        self.errors = []

    def try_to(self, do, *arguments):
        try:
            return do(*arguments)
        except FileExistsError:
            raise
        except OSError as error:
            self.errors.append((do.__name__, errno.errorcode[error.errno]))

    def write(self, path, data, mode):
        target = path.with_name(path.name + ".new") if mode == "rename" else path
        flags = os.O_RDWR | os.O_CREAT | (0 if mode == "inplace" else os.O_TRUNC)
        with contextlib.suppress(FileExistsError):
            self.try_to(os.mkdir, path.parent)
        fd = self.try_to(os.open, target, flags, 0o644)
        if fd is None:
            return
        for number, part in enumerate(pieces(data)):
            self.try_to(os.pwrite, fd, part, number * PIECE)
        self.try_to(os.fsync, fd)
        self.try_to(os.close, fd)
        if mode == "rename":
            self.try_to(os.rename, target, path)
            self.try_to(sync_dir, path.parent)


@pytest.mark.parametrize("kind, mode, call", CASES)
def test_a_failing_system_call_is_an_error_and_damages_nothing(bench, tmp_path, tried, kind, mode, call):
    b, version = bench(kind), 0
    dice = random.Random(f"{SEED} {kind} {mode} {call}")
    m = b.mount("--threads", "1")
    m.allow("")
    hits = 0
    # The file, or the key that it is stored in, or the directory of one of them.
    key = os.getxattr(m / "x/c/3/0", "user.zarr.key").decode()
    named = "|".join(re.escape(name) for name in ("x/c/3/", key.rsplit("/", 1)[0] + "/"))
    if call == "mkdirat":
        b.wait(b.write(m, 0, script=[[f"3/{j}", "unlink", True] for j in range(4)]))
    # Under these names values are written before they take their keys.
    staged = [b.store / f"{key}.__lock" for key in b.first_keys] if CALLS[call] else ()
    for error in ERRORS if LONG else dice.sample(ERRORS, 3):
        for k in range(1, FAULTS + 1):
            what = f"{error} from the {k}. {call}, {kind} {mode} (ZARRFS_SEED={SEED})"
            path, program, version = m / "x/c/3/0", Program(), version + 1
            new = record("3/0", version)
            before, said = set(files(b.store)), len(m.errors().splitlines())
            with traced(m, tmp_path / "strace", call, f"error={error}:when={k}", staged) as hit:
                program.write(path, new, mode)
            if hit():
                hits += 1
                tried(f"faults, {error}")
            array = stored(b.store, kind, b.zarr2, hits % 2)
            now = found_in(array)
            others = {thing: found for thing, found in now.items() if thing != "3/0" and found != 0}
            others = {thing: found for thing, found in others.items() if call != "mkdirat" or thing[0] != "3"}
            assert not others, f"{what}: others have changed: {others}"
            old = GONE if call == "mkdirat" else version - 1
            if not program.errors:
                assert now["3/0"] == version, f"{what}: no error was told, but version {now['3/0']} is stored"
            if mode == "inplace" and any(call == "pwrite" for call, _ in program.errors):
                # Of a chunk that is updated, the parts that were refused stay as they were.
                parts = zip(pieces(array[3, :SIZE].tobytes()), pieces(record("3/0", version - 1)), pieces(new))
                assert all(part in (was, wanted) for part, was, wanted in parts), f"{what}: neither old nor new; {program.errors}"
            else:
                assert now["3/0"] in (version, old), f"{what}: {old} or {version} expected, {now['3/0']} came; {program.errors}"
            if ("close", error) in program.errors:
                lines = "\n".join(m.errors().splitlines()[said:])
                assert re.search(named, lines), f"{what}: {program.errors} were told, but .zarrfs/errors says {lines!r}"
            # All of it again, without a mount in between.
            again = Program()
            again.write(path, new, mode)
            assert not again.errors, f"{what}: {again.errors} although nothing fails any more (before: {program.errors})"
            assert version_of("3/0", path.read_bytes()) == version, f"{what}: another version is shown"
            assert found_in(stored(b.store, kind, b.zarr2))["3/0"] == version, f"{what}: fsync has stored nothing"
            left = set(files(b.store)) - before - b.first_keys
            assert not left, f"{what}: left in the store: {left}"
            if call == "mkdirat":
                os.unlink(path)
                os.rmdir(path.parent)
                sync_dir(m / "x/c")
            if not hit() and k > 1:
                break
    assert hits, f"{call} was never called: nothing was tested"
    b.end(m)
    b.check_keys(f"after {call}")


@contextlib.contextmanager
def small_disk(path, size):
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, f"a full disk cannot be tested: only root can mount a tmpfs ({done.stderr.strip()})"
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("kind", ["v3", "v3-sharded", "v2", "d2020-10-sharded"])
def test_a_disk_that_fills_up_keeps_what_was_stored_and_goes_on_when_there_is_room(bench, tmp_path, kind):
    with small_disk(tmp_path / "disk", "1M") as disk, contextlib.ExitStack() as stack:
        b = bench(kind, store=disk / "store")
        stack.callback(b.close)
        m = b.mount()
        m.allow("")
        # Ordinary files fill it, until there is no room for a chunk; then between them chunks are rewritten.
        filled, version, held, failed = [], {thing: 0 for thing in CHUNKS}, {}, 0
        while not failed:
            program = Program()
            program.write(m / f"filler{len(filled)}", record("filler", len(filled), 40_000), "inplace")
            failed += len(program.errors)
            filled.append(m / f"filler{len(filled)}")
            assert len(filled) < 100, "the disk is never full"
        # The one that was refused is in the way of all others until it goes.
        os.unlink(filled.pop())
        fillers = {path.name for path in filled}
        refused, free = [], os.statvfs(m.path).f_bavail * os.statvfs(m.path).f_frsize
        assert abs(free - os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize) < 1 << 14, "statfs of another disk"
        (disk / "rest").write_bytes(bytes(max(0, free - 8192)))
        for thing in CHUNKS:
            program = Program()
            program.write(m / "x/c" / thing, record(thing, 1), "truncate")
            if program.errors:
                refused.append(thing)
                assert {why for _, why in program.errors} == {"ENOSPC"}, program.errors
            else:
                held[thing] = 1
        assert refused, "every chunk found room on a full disk"
        # A shard of four chunks is rewritten as a whole.
        assert os.statvfs(m.path).f_bavail * os.statvfs(m.path).f_frsize < (5 if is_sharded(kind) else 2) * SIZE
        found = found_in(stored(b.store, kind, b.zarr2))
        assert found == {thing: held.get(thing, 0) for thing in CHUNKS}, "not what was promised"
        b.check_keys("on the full disk", fillers)
        # Reading goes on, and so does removing.
        for path in filled[:3]:
            assert version_of("filler", path.read_bytes()) is not None, f"{path} is damaged"
        for thing, version in found.items():
            # What was refused, but is complete, stays in this mount as it was written.
            shown = version_of(thing, (m / "x/c" / thing).read_bytes())
            assert shown == 1 if thing not in refused else shown in (0, 1), f"{thing} is read as version {shown}"
        if is_sharded(kind):
            # The rest of the shard needs room, but not when all of it goes.
            removed = Program()
            removed.try_to(os.unlink, m / "x/c" / refused[0])
            removed.try_to(sync_dir, m / "x/c")
            assert {why for _, why in removed.errors} <= {"ENOSPC"}, removed.errors
        else:
            os.unlink(m / "x/c" / refused[0])
        for path in filled[:3]:
            os.unlink(path)
        os.unlink(disk / "rest")
        for thing in refused:
            program = Program()
            program.write(m / "x/c" / thing, record(thing, 2), "truncate")
            assert not program.errors, f"{thing}: {program.errors} although there is room again"
        found = found_in(stored(b.store, kind, b.zarr2))
        assert found == {thing: 2 if thing in refused else 1 for thing in CHUNKS}
        # A whole array goes where there is no room for anything.
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "rest").write_bytes(bytes(free - 4096))
        done = subprocess.run(["rm", "-r", str(m / "x")], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"rm -r on a full disk: {done.stderr}"
        b.end(m)
        b.check_keys("after the full disk", fillers)
        gone = [key for key in files(b.store) if "/x" in f"/{key}"]
        assert not gone, f"rm -r has left {gone}"
        for name in fillers - {path.name for path in filled[:3]}:
            assert version_of("filler", next(disk.rglob(name)).read_bytes()) is not None, f"{name} is damaged"


@pytest.mark.parametrize("kind", ["v3", "v3-sharded"])
def test_umount_says_what_it_cannot_store_and_leaves_the_mount(bench, tmp_path, kind):
    b = bench(kind)
    m = b.mount("--threads", "1", "--writeback-delay", "1h")
    m.allow("")
    fd = os.open(m / "x/c/0/0", os.O_RDWR)
    note = os.open(m / "later", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(note, record("later", 1), 0)
        os.close(note)
        with traced(m, tmp_path / "strace", "rename renameat renameat2", "error=ENOSPC:when=1+"):
            os.pwrite(fd, record("0/0", 1), 0)
            with pytest.raises(OSError) as failed:
                os.fsync(fd)
            assert failed.value.errno == errno.ENOSPC
            with pytest.raises(OSError) as failed:
                os.fsync(fd)
            assert failed.value.errno == errno.ENOSPC, "an error is told again as long as it lasts"
            with contextlib.suppress(OSError):
                os.close(fd)
            said = m.unmount()
            assert said and m.is_mounted(), f"unmounted, although something was not stored: {said}"
        assert version_of("later", (m / "later").read_bytes()) == 1
    finally:
        b.end(m)
    assert version_of("later", (b.store / "later").read_bytes()) == 1
