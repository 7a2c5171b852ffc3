"""Chunk files written by programs in every way that they have; a foreign reader looks at the store afterwards."""

import mmap
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from records import CHUNKS, SIZE, record, version_of
from torture import KINDS, SEED, found_in, run, shell, stored


# Each program gives the file `path` the bytes of the file `new`.


def unzip_o(new, path):
    archive = new.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(new, path.name)
    run("unzip", "-q", "-o", archive, "-d", path.parent)


def cp_reflink(new, path):
    run("cp", "--reflink=auto", new, path)


def cp_sparse(new, path):
    run("cp", "--sparse=always", new, path)


def cp_remove(new, path):
    run("cp", "--remove-destination", new, path)


def cp_backup(new, path):
    run("cp", "--backup=simple", "--suffix=.old", new, path)
    os.unlink(f"{path}.old")


def mv_from_elsewhere(new, path):
    run("mv", shutil.copy(new, f"{new}.copy"), path)


def install_644(new, path):
    run("install", "-m", "644", new, path)


def rsync_temp_dir(new, path):
    run("rsync", "-aI", f"--temp-dir={path.parent}", new, path)


def rsync_append(new, path):
    """The first half is there already; of a chunk that is longer than a half nothing can be."""
    os.unlink(path)
    run("rsync", "-a", "--append", new, path)


def dd_seek(new, path):
    for at in (2, 0, 1):
        run("dd", f"if={new}", f"of={path}", "bs=8000", f"skip={at}", f"seek={at}", "count=1", "conv=notrunc,fsync")


def dd_append(new, path):
    shell(f"exec 3> '{path}'; dd if='{new}' of='{path}' bs=1000 oflag=append conv=notrunc", path.parent)


def truncate_then_fill(new, path):
    """`truncate` hears at its close that the length is wrong, but the bytes stay as long as somebody has them open."""
    shell(f"exec 3<> '{path}'; ! truncate -s 0 '{path}'; truncate -s {SIZE} '{path}'; cat '{new}' >&3", path.parent)


def fallocate_then_fill(new, path):
    shell(f"rm '{path}'; exec 3<> '{path}'; fallocate -l {SIZE} '{path}'; cat '{new}' >&3", path.parent)


def shell_appends(new, path):
    """The first of them hears at its close that there is not enough yet."""
    shell(f"{{ ! head -c 5000 '{new}'; tail -c +5001 '{new}'; }} > '{path}'", path.parent)


def tee(new, path):
    shell(f"tee '{path}' < '{new}' > /dev/null", path.parent)


def opened(path, flags, do):
    fd = os.open(path, flags, 0o644)
    try:
        do(fd)
    finally:
        os.close(fd)


def o_append(new, path):
    data = new.read_bytes()

    def write(fd):
        for at in range(0, SIZE, 999):
            assert os.write(fd, data[at : at + 999]) == len(data[at : at + 999])

    opened(path, os.O_WRONLY | os.O_TRUNC | os.O_APPEND, write)


def o_excl(new, path):
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with pytest.raises(FileExistsError):
        os.open(path, flags)
    os.unlink(path)
    opened(path, flags, lambda fd: os.write(fd, new.read_bytes()))


def o_dsync(new, path):
    opened(path, os.O_WRONLY | os.O_DSYNC, lambda fd: os.write(fd, new.read_bytes()))


def o_direct(new, path):
    with mmap.mmap(-1, SIZE) as buffer:
        buffer[:] = new.read_bytes()
        opened(path, os.O_RDWR | os.O_DIRECT, lambda fd: os.pwritev(fd, [buffer], 0))


def ftruncate_first(new, path):
    """The length first, then the bytes from the end to the start."""
    data = new.read_bytes()

    def write(fd):
        os.ftruncate(fd, SIZE)
        for at in reversed(range(0, SIZE, 3001)):
            os.pwrite(fd, data[at : at + 3001], at)

    opened(path, os.O_RDWR | os.O_TRUNC, write)


def vectors(new, path):
    data = new.read_bytes()
    opened(path, os.O_WRONLY, lambda fd: os.writev(fd, [data[:1], data[1:9000], data[9000:]]))


def mapping_shared(new, path):
    """A mapping of a file that was just cut and extended; the descriptor goes first."""

    def write(fd):
        os.ftruncate(fd, SIZE)
        write.mapping = mmap.mmap(fd, SIZE)

    opened(path, os.O_RDWR, write)
    write.mapping[:] = new.read_bytes()
    write.mapping.flush()
    write.mapping.close()


def copy_file_range(new, path):
    """From one file of the mount to another: from another file system the kernel does not."""
    via = path.parent / "via"
    shutil.copyfile(new, via)
    with open(via, "rb") as source:

        def write(fd):
            left = SIZE
            while left:
                left -= os.copy_file_range(source.fileno(), fd, min(left, 7000))

        opened(path, os.O_WRONLY | os.O_TRUNC, write)
    os.unlink(via)


def sendfile(new, path):
    with open(new, "rb") as source:
        opened(path, os.O_WRONLY | os.O_TRUNC, lambda fd: os.sendfile(fd, source.fileno(), 0, SIZE))


def splice(new, path):
    def write(fd):
        reader, writer = os.pipe()
        with open(new, "rb") as source:
            left = SIZE
            while left:
                left -= (moved := os.splice(source.fileno(), writer, min(left, 8192)))
                while moved:
                    moved -= os.splice(reader, fd, moved)
        os.close(reader)
        os.close(writer)

    opened(path, os.O_WRONLY | os.O_TRUNC, write)


LOCKED = """
import fcntl, os, sys
new, path, kind, lock = sys.argv[1:]
data = open(new, "rb").read()
for at in range(0, len(data), 600):
    fd = os.open(path, os.O_RDWR)
    getattr(fcntl, lock)(fd, fcntl.LOCK_EX)
    if (at // 600) % 2 == int(kind):
        os.pwrite(fd, data[at : at + 600], at)
    os.close(fd)
"""


def locked(lock):
    """Two processes write every other piece of it, under a lock."""

    def write(new, path):
        both = [subprocess.Popen([sys.executable, "-S", "-c", LOCKED, new, path, kind, lock]) for kind in "01"]
        assert [process.wait(timeout=120) for process in both] == [0, 0]

    write.__name__ = lock
    return write


def rename_while_open(new, path):
    """A file is renamed onto the chunk while it is being written."""
    scratch, data = path.parent / "scratch", new.read_bytes()

    def write(fd):
        os.write(fd, data)
        os.rename(scratch, path)
        os.pwrite(fd, data[:100], 0)

    opened(scratch, os.O_WRONLY | os.O_CREAT, write)


def unlink_while_open(new, path):
    """Who has the old one open keeps it; what is made anew stays."""
    old = path.read_bytes()

    def write(fd):
        os.unlink(path)
        path.write_bytes(new.read_bytes())
        assert os.pread(fd, SIZE, 0) == old
        os.pwrite(fd, b"to nobody", 0)

    opened(path, os.O_RDWR, write)


def python_buffered(new, path):
    with open(path, "r+b") as file:
        data = new.read_bytes()
        for at in (12_000, 0, 6_000, 18_000):
            file.seek(at)
            file.write(data[at : at + 6_000])


CHUNK_PROGRAMS = [
    unzip_o, cp_reflink, cp_sparse, cp_remove, cp_backup, mv_from_elsewhere, install_644, rsync_temp_dir, rsync_append,
    dd_seek, dd_append, truncate_then_fill, fallocate_then_fill, shell_appends, tee, o_append, o_excl, o_dsync, o_direct,
    ftruncate_first, vectors, mapping_shared, copy_file_range, sendfile, splice,
    locked("flock"), locked("lockf"), rename_while_open, unlink_while_open, python_buffered,
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_programs_write_to_chunk_files_is_in_the_store(bench, tmp_path, kind):
    b, new, version = bench(kind), tmp_path / "new", 0
    m = b.mount()
    # A shell's children close duplicates before all is written.
    m.allow("bytes written, the chunk has 24000")
    expected, failures = {thing: 0 for thing in CHUNKS}, []
    for number, program in enumerate(CHUNK_PROGRAMS):
        version += 1
        for thing in (CHUNKS[number % 16], CHUNKS[(number + 7) % 16]):
            new.write_bytes(record(thing, version))
            path = m / "x/c" / thing
            try:
                program(new, path)
                got = version_of(thing, path.read_bytes())
                assert got == version, f"version {got} is shown, not {version}"
            except Exception as error:
                failures.append(f"{program.__name__}: {thing}: {type(error).__name__}: {error}")
                path.write_bytes(record(thing, version))
            expected[thing] = version
        # Nothing else has changed, and nothing but chunks is left.
        names = sorted(name for i in range(4) for name in os.listdir(m / "x/c" / str(i)))
        if names != sorted("0123" * 4):
            failures.append(f"{program.__name__}: it has left {names}")
    b.end(m)
    found = found_in(stored(b.store, kind, b.zarr2))
    assert not failures, "\n".join(failures)
    assert found == expected, f"{expected} expected, {found} came"
    b.check_keys("after all programs")


@pytest.mark.parametrize("engine, block", [("psync", 800), ("pvsync", 480), ("mmap", 4096)])
@pytest.mark.parametrize("kind", ["v3", "v3-sharded", "v2"])
def test_fio_reads_what_it_wrote_to_a_chunk_file(bench, tmp_path, kind, engine, block):
    b = bench(kind)
    m = b.mount()
    path = m / "x/c/1/2"
    run(
        "fio", "--name=chunk", f"--filename={path}", f"--size={SIZE // block * block}", f"--bs={block}", "--rw=randwrite",
        f"--ioengine={engine}", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fallocate=none", "--overwrite=1",
        "--allow_file_create=0", f"--randseed={SEED}", "--fsync=7", f"--aux-path={tmp_path}", cwd=tmp_path,
    )
    shown = path.read_bytes()
    b.end(m)
    array = stored(b.store, kind, b.zarr2)
    assert len(shown) == SIZE and array[1, 2 * SIZE : 3 * SIZE].tobytes() == shown
    assert version_of("1/2", shown) is None, "fio has written nothing"
    found = found_in(array)
    assert all(version == 0 for thing, version in found.items() if thing != "1/2"), found
    b.check_keys("after fio")


@pytest.mark.parametrize("kind, keys", [("v3", ["x/c/0/0", "x/c/0/1"]), ("v2", ["x/0.0", "x/0.1"])])
def test_times_that_are_set_are_those_of_the_stored_value(bench, kind, keys):
    b = bench(kind)
    m = b.mount()
    path = m / "x/c/0/0"
    os.utime(path, ns=(1_000_000_000, 1_234_567_890_123_456_789))
    assert path.stat().st_mtime_ns == 1_234_567_890_123_456_789
    run("touch", "-d", "2001-02-03 04:05:06 UTC", path)
    run("cp", "-p", path, m / "x/c/0/1")
    b.end(m)
    for key in keys:
        assert int((b.store / key).stat().st_mtime) == 981173106, key
