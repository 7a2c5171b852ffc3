"""Documents, ordinary files and whole arrays as programs write them; a foreign reader looks at the store afterwards."""

import concurrent.futures
import errno
import fcntl
import json
import mmap
import multiprocessing
import os

import dask.array
import numpy as np
import pytest
import zarr

from hierarchies import assert_same
from mounts import files
from records import CHUNKS, SIZE, record
from torture import KINDS, found_in, run, shell, stored


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
    m.allow("not punch holes")
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


def test_modes_and_owners_of_chunk_and_metadata_files_can_be_set_to_what_they_are_and_to_nothing_else(bench):
    b = bench("v3")
    m = b.mount()
    m.allow("")
    for path, mode in [(m / "x/c/0/0", 0o644), (m / "x/zarr.json", 0o644)]:
        now = path.stat()
        assert now.st_mode & 0o777 == mode, f"{path}: {now.st_mode:o}"
        os.chmod(path, mode)
        os.chown(path, now.st_uid, now.st_gid)
        os.chown(path, -1, -1)
        # Programs that install files ask for it; nothing is executed here.
        os.chmod(path, mode | 0o111)
        assert path.stat().st_mode & 0o777 == mode, "execute bits are ignored"
        wrong = [0o600, 0o640, 0o444, 0o666]
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
