"""Programs as they write, on chunk files, documents and ordinary files; a foreign reader looks at the store afterwards."""

import concurrent.futures
import errno
import fcntl
import json
import mmap
import multiprocessing
import os
import shutil
import subprocess
import sys
import zipfile

import dask.array
import numpy as np
import pytest
import zarr

from hierarchies import assert_same
from mounts import files
from records import CHUNKS, SIZE, record, version_of
from torture import KINDS, SEED, found_in, stored


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr or done.stdout}"
    return done.stdout


def shell(script, directory):
    return run("sh", "-ec", script, cwd=directory)


# ---- Chunk files: each program gives `path` the bytes of the file `new`.


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
        assert [process.wait(timeout=60) for process in both] == [0, 0]

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


# ---- Documents


DOCUMENT_PROGRAMS = {
    "sed -i": "sed -i 's/\"version\": [0-9]*/\"version\": VERSION/' zarr.json",
    "vim": "vim -N -u NONE -es -c '%s/\"version\": [0-9]*/\"version\": VERSION/' -c wq zarr.json",
    "vim with a backup": "vim -N -u NONE -es -c 'set backup' -c '%s/\"version\": [0-9]*/\"version\": VERSION/' -c wq zarr.json; rm -f zarr.json~",
    "vim on a copy": "vim -N -u NONE -es -c 'set backupcopy=yes' -c '%s/\"version\": [0-9]*/\"version\": VERSION/' -c wq zarr.json",
    "install": "sed 's/\"version\": [0-9]*/\"version\": VERSION/' zarr.json > ../new; install -m 644 ../new zarr.json; rm ../new",
    "rsync": "sed 's/\"version\": [0-9]*/\"version\": VERSION/' zarr.json > ../new; rsync -I --inplace ../new zarr.json; rm ../new",
    "dd": "sed 's/\"version\": [0-9]*/\"version\": VERSION/' zarr.json > ../new; dd if=../new of=zarr.json bs=10 status=none; rm ../new",
    "patch": "sed 's/\"version\": [0-9]*/\"version\": VERSION/' zarr.json > ../new; diff -u zarr.json ../new > ../patch || true; patch -s zarr.json < ../patch; rm ../new ../patch",
}


@pytest.mark.parametrize("kind", ["v3", "v2"])
def test_what_editors_write_to_documents_is_in_the_store(bench, kind):
    b = bench(kind)
    m = b.mount()
    failures = []
    for number, (name, script) in enumerate(DOCUMENT_PROGRAMS.items(), 1):
        try:
            shell(script.replace("VERSION", str(number)), m / "x")
            shown = json.loads((m / "x/zarr.json").read_text())["attributes"]["version"]
            assert shown == number, f"{shown} is shown, not {number}"
            store = json.loads((b.store / "x" / ("zarr.json" if kind == "v3" else ".zattrs")).read_text())
            assert (store["attributes"] if kind == "v3" else store)["version"] == number, store
            assert sorted(os.listdir(m / "x")) == ["c", "zarr.json"], os.listdir(m / "x")
        except (AssertionError, OSError) as error:
            failures.append(f"{name}: {error}")
    b.end(m)
    assert not failures, "\n".join(failures)
    assert found_in(stored(b.store, kind, b.zarr2)) == {thing: 0 for thing in CHUNKS}
    array = zarr.open_array(b.store / "x", mode="r")
    assert array.attrs["version"] == len(DOCUMENT_PROGRAMS)
    b.check_keys("after all editors")


# ---- Ordinary files: the same is done in a directory of the mount and in a plain one.


ORDINARY = {
    "editors": "printf 'one\\ntwo\\n' > a; sed -i s/one/ONE/ a; vim -N -u NONE -es -c 's/two/TWO/' -c wq a; cp a b; sed -n 2p b > c",
    "appends": "for i in 1 2 3 4 5; do echo line $i >> log; done; dd if=log of=log2 oflag=append conv=notrunc status=none",
    "dd": "dd if=/dev/zero of=z bs=1000 count=9 status=none; printf mid | dd of=z bs=1 seek=4500 conv=notrunc status=none",
    "lengths": "truncate -s 10000 t; printf x >> t; truncate -s 50 t; truncate -s +7 t; fallocate -l 3000 f; fallocate -l 100 f",
    "sparse": "truncate -s 1M s; printf end | dd of=s bs=1 seek=1048570 conv=notrunc status=none; cp --sparse=always s s2; cp --reflink=auto s s3",
    "tar": "mkdir d; echo 1 > d/one; echo 2 > d/two; tar cf t.tar d; rm -r d; tar xf t.tar; tar xf t.tar --overwrite; rm t.tar",
    "zip": "echo 1 > one; echo 2 > two; zip -q a.zip one two; echo 3 > one; unzip -q -o a.zip; rm a.zip",
    "links": "echo 1 > one; ln one two; echo 2 > two.new; mv two.new two; rm one",
    "install": "echo 1 > one; install -m 644 one two; install -m 644 -D one d/e/three",
    "rsync": "mkdir d; echo 1 > d/one; rsync -a d/ e; echo 22 > d/one; rsync -aI d/ e; echo 333 > d/one; rsync -aI --inplace d/ e",
    "moves": "echo 1 > one; mkdir d; mv one d; mv d/one d/two; mv d/two three; rmdir d; mv -n three four; mv four five",
    "unlink": "exec 3<> u; echo kept >&3; rm u; echo more >&3; echo new > u",
    "split": "seq 1 5000 > n; split -b 7000 n part; cat part* > n2; cmp n n2; sort -o n -r n; gzip -k n; gunzip -c n.gz | cmp - n; rm n.gz",
    "times": "echo 1 > one; touch -d '2001-02-03 04:05:06 UTC' one; cp -p one two; touch -r one three; tar cf t one; rm one; tar xf t; rm t",
}


def mapped_and_locked(directory):
    path = directory / "m"
    path.write_bytes(bytes(10_000))
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with mmap.mmap(file.fileno(), 10_000) as mapping:
            mapping[5_000:5_005] = b"mmap!"
        os.ftruncate(file.fileno(), 20_000)
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        os.pwrite(file.fileno(), b"tail", 19_990)
    with open(directory / "copy", "wb") as to, open(path, "rb") as source:
        os.sendfile(to.fileno(), source.fileno(), 0, 9_000)
        os.copy_file_range(source.fileno(), to.fileno(), 11_000, 9_000, 9_000)
    with pytest.raises(FileExistsError):
        os.open(path, os.O_CREAT | os.O_EXCL)


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_files_are_what_they_are_in_a_plain_directory(bench, tmp_path, kind):
    b = bench(kind)
    m = b.mount()
    m.allow("no holes made")
    failures = []
    for name, script in [*ORDINARY.items(), ("python", mapped_and_locked)]:
        plain, mounted = tmp_path / "plain" / name, m / "x/files" / name
        for directory in (plain, mounted):
            directory.mkdir(parents=True)
            try:
                script(directory) if callable(script) else shell(script, directory)
            except (AssertionError, OSError) as error:
                failures.append(f"{name} in {directory}: {error}")
        if files(mounted) != files(plain):
            failures.append(f"{name}: {sorted(files(plain))} expected, {sorted(files(mounted))} came, or other bytes")
        if name == "times":
            for path in plain.iterdir():
                there = (mounted / path.name).stat().st_mtime
                if int(there) != int(path.stat().st_mtime):
                    failures.append(f"times: {path.name} has {there}")
    b.end(m)
    assert not failures, "\n".join(failures)
    base = next(at for at in (b.store / "x/files", b.store / "data/root/x/files") if at.exists())
    assert files(base) == files(tmp_path / "plain"), "the store has other files"
    assert found_in(stored(b.store, kind, b.zarr2)) == {thing: 0 for thing in CHUNKS}


# ---- Modes and owners


def test_modes_and_owners_can_be_set_to_what_they_are_and_to_nothing_else(bench):
    b = bench("v3")
    m = b.mount()
    m.allow("")
    (m / "notes").write_text("x")
    for path, mode in [(m / "x/c/0/0", 0o644), (m / "x/zarr.json", 0o644), (m / "notes", 0o644), (m / "x", 0o755), (m / "x/c/0", 0o755)]:
        now = path.stat()
        assert now.st_mode & 0o777 == mode, f"{path}: {now.st_mode:o}"
        os.chmod(path, mode)
        os.chown(path, now.st_uid, now.st_gid)
        os.chown(path, -1, -1)
        if path.is_file():
            # Programs that install files ask for it; nothing is executed here.
            os.chmod(path, mode | 0o111)
            assert path.stat().st_mode & 0o777 == mode, "execute bits are ignored"
        wrong = [0o600, 0o640, 0o444, 0o666] if path.is_file() else [0o700, 0o777, 0o555]
        requests = [(lambda new=new: os.chmod(path, new), f"chmod {new:o}") for new in wrong]
        requests += [(lambda: os.chown(path, now.st_uid + 1, -1), "chown"), (lambda: os.chown(path, -1, now.st_gid + 1), "chgrp")]
        for request, what in requests:
            try:
                request()
            except PermissionError as error:
                assert error.errno == errno.EPERM, f"{what} of {path}: {error}"
            else:
                raise AssertionError(f"{what} of {path.name} has pretended to succeed")
        assert (path.stat().st_mode, path.stat().st_uid) == (now.st_mode, now.st_uid)
    new = b.directory / "new"
    new.write_bytes(record("0/1", 1))
    run("install", new, m / "x/c/0/1")
    run("cp", "-p", new, m / "x/c/0/1")
    run("rsync", "-aI", new, m / "x/c/0/1")
    b.end(m)
    assert found_in(stored(b.store, "v3", None))["0/1"] == 1


# ---- Libraries


def zarr_block(path, number):
    """Part of an array, from another process."""
    array = zarr.open_array(path, mode="r+", zarr_format=3)
    for version in range(1, 6):
        for thing in CHUNKS[number::4]:
            i, j = map(int, thing.split("/"))
            array[i, j * SIZE : (j + 1) * SIZE] = np.frombuffer(record(thing, version), "u1")
    return number


@pytest.mark.parametrize("pool", ["threads", "processes"])
@pytest.mark.parametrize("kind", KINDS)
def test_zarr_python_writes_from_many_at_once(bench, kind, pool):
    b = bench(kind)
    m = b.mount()
    pools = concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor
    options = {"mp_context": multiprocessing.get_context("spawn")} if pool == "processes" else {}
    with pools[pool == "processes"](2 if options else 4, **options) as executor:
        futures = [executor.submit(zarr_block, str(m / "x"), number) for number in range(4)]
        assert [future.result(timeout=120) for future in futures] == [0, 1, 2, 3]
    b.end(m)
    assert found_in(stored(b.store, kind, b.zarr2)) == {thing: 5 for thing in CHUNKS}
    b.check_keys("after zarr-python")


SHARDS = ("--shards", "16K")


@pytest.mark.parametrize("format, options", [("v3", ()), ("v3", SHARDS), ("v2", ()), ("d2020-10", SHARDS)])
def test_dask_writes_an_array_with_two_processes(mount, tmp_path, zarr2, format, options):
    values = np.arange(60 * 50, dtype="i4").reshape(60, 50)
    store = tmp_path / "new.zarr"
    with mount(store, "--create", "--format", format, *options, copy=False) as m:
        array = zarr.create_array(m / "d", shape=values.shape, chunks=(10, 25), dtype="i4", compressors=None, zarr_format=3)
        lazy = dask.array.from_array(values, chunks=(10, 25))
        lazy.to_zarr(array, compute=False).compute(scheduler="processes", num_workers=2)
        (lazy + 1).to_zarr(array, region=(slice(0, 60), slice(0, 50)), compute=False).compute(scheduler="processes", num_workers=2)
    got = zarr2.read(store)["d"] if format.startswith("d") else zarr.open_array(store / "d", mode="r")[...]
    assert_same(got, values + 1)


@pytest.mark.parametrize("format, options", [("v3", ()), ("v3", SHARDS), ("v2", ())])
def test_gdal_writes_into_a_mount_of_zarr_2(mount, tmp_path, format, options):
    values = np.arange(60 * 50, dtype="i2").reshape(60, 50)
    raw = tmp_path / "in.img"
    raw.write_bytes(values.tobytes())
    raw.with_suffix(".hdr").write_text("ENVI\nsamples = 50\nlines = 60\nbands = 1\ndata type = 2\ninterleave = bsq\nbyte order = 0\n")
    store = tmp_path / "new.zarr"
    with mount(store, "--create", "--format", format, "--as", "zarr2", *options, copy=False) as m:
        run("gdal_translate", "-q", "-of", "Zarr", "-co", "COMPRESS=NONE", "-co", "BLOCKSIZE=20,25", raw, m / "raster")
        run("gdal_translate", "-q", "-of", "ENVI", m / "raster", tmp_path / "out.img")
        assert (tmp_path / "out.img").read_bytes() == values.tobytes()
    group = zarr.open_group(store, mode="r")
    arrays = [array for _, array in group["raster"].arrays() if array.shape == values.shape]
    assert len(arrays) == 1, list(group["raster"].arrays())
    assert_same(arrays[0][...], values)
