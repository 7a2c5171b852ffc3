"""A copy of one state of a hierarchy over a mount of another one is the first state in the end, or an error.

Two random hierarchies A and B are written by zarr-python; B is A after some changes (grown, shrunk, other values) or
another hierarchy of the same names. A program copies B over a mount of A. Then the store, read by zarr-python, has the
nodes of B with its values, or the program or `zarrfs umount` reported an error: unzip and git do not look at the error
of `close`, so `umount` names the files that were refused. `ZARRFS_PAIRS` says how many pairs each
program copies; a failure prints the seed, which `ZARRFS_SEED` tries again."""

import os
import random
import shutil
import subprocess

import numpy as np
import pytest
import zarr

from mounts import BIN, PATIENCE, detach
from torture import LONG

PAIRS = int(os.environ.get("ZARRFS_PAIRS", "20" if LONG else "8"))
MODES = [["--writeback", mode] for mode in ("sync", "delay", "all")]
SEED = os.environ.get("ZARRFS_SEED")

COPIERS = {
    "cp -r": 'cp -r "$B"/. "$M"/',
    "cp -r --remove-destination": 'cp -r --remove-destination "$B"/. "$M"/',
    "rsync -a": 'rsync -a "$B"/ "$M"/',
    "rsync -a --inplace": 'rsync -a --inplace "$B"/ "$M"/',
    "rsync -a --delete": 'rsync -a --delete "$B"/ "$M"/',
    "rsync -aX": 'rsync -aX "$B"/ "$M"/',
    "tar x": 'tar cf - -C "$B" . | tar xf - -C "$M" --no-same-owner',
    "tar x, chunks first": '(cd "$B" && find . -type f | LC_ALL=C sort | tar cf - -T -) | tar xf - -C "$M"',
    "tar x, backwards": '(cd "$B" && find . -type f | LC_ALL=C sort -r | tar cf - -T -) | tar xf - -C "$M"',
    "unzip": 'rm -f "$B".zip && (cd "$B" && zip -q -r "$B".zip .) && unzip -q -o "$B".zip -d "$M"',
    "git checkout": """
        g="git --git-dir=$A.git -c user.name=a -c user.email=a@b -c core.autocrlf=false"
        test -d "$A".git || git init -q --bare "$A".git
        $g --work-tree="$B" add -A && $g --work-tree="$B" commit -q --allow-empty -m now
        $g --work-tree="$M" checkout -f HEAD -- .""",
}

ENCODINGS = {
    "plain": {"compressors": None},
    "zstd": {},
    "big": {"compressors": None, "serializer": "big"},
    "transposed": {"compressors": None, "filters": "transpose"},
    "gzip": {"compressors": "gzip"},
    "sharded": {"shards": 2},
    "crc": {"compressors": "crc"},
}


def encoding(name, rank, chunks):
    """The arguments of `create_array` for one of `ENCODINGS`."""
    made = dict(ENCODINGS[name])
    if made.get("serializer") == "big":
        made["serializer"] = zarr.codecs.BytesCodec(endian="big")
    if made.get("filters") == "transpose":
        made["filters"] = [zarr.codecs.TransposeCodec(order=tuple(reversed(range(rank))))]
    if made.get("compressors") == "gzip":
        made["compressors"] = [zarr.codecs.GzipCodec(level=1)]
    if made.get("compressors") == "crc":
        made["compressors"] = [zarr.codecs.Crc32cCodec()]
    if made.get("shards"):
        made["shards"] = tuple(2 * length for length in chunks)
    return made


def filled(rng, array):
    array[...] = np.array([rng.randrange(1, 100) for _ in range(array.size)]).reshape(array.shape).astype(array.dtype)


def make_array(rng, group, name):
    rank = rng.choice([1, 1, 2, 2, 3])
    chunks = tuple(rng.choice([2, 3]) for _ in range(rank))
    shape = tuple(rng.randrange(1, 8) for _ in range(rank))
    kind = rng.choice(list(ENCODINGS))
    array = group.create_array(
        name, shape=shape, chunks=chunks, dtype=rng.choice(["i4", "i4", "f8", "u1"]), **encoding(kind, rank, chunks)
    )
    filled(rng, array)
    if rng.random() < 0.5:
        array.attrs["note"] = rng.randrange(10)


def make(rng, path):
    group = zarr.open_group(path, mode="w")
    for name in ["a", "b", "g/c"]:
        if rng.random() < 0.8:
            make_array(rng, group, name)
    if rng.random() < 0.3:
        group.attrs["title"] = rng.randrange(10)


def change(rng, path):
    """Changes some arrays of a hierarchy as zarr-python does."""
    group = zarr.open_group(path, mode="r+")
    for name in ["a", "b", "g/c"]:
        if name not in group:
            if rng.random() < 0.5:
                make_array(rng, group, name)
            continue
        array, what = group[name], rng.choice(["grow", "shrink", "values", "replace", "remove", "attrs", "nothing"])
        if what in ("grow", "shrink"):
            new = (0, 6) if what == "grow" else (-3, 1)
            array.resize(tuple(max(1, length + rng.randrange(*new)) for length in array.shape))
            filled(rng, group[name])
        elif what == "values":
            filled(rng, array)
        elif what == "replace":
            del group[name]
            make_array(rng, group, name)
        elif what == "remove":
            del group[name]
        elif what == "attrs":
            array.attrs["note"] = rng.randrange(10, 20)


def make_later(path):
    """Makes all files newer: rsync takes files of the same length and second for equal."""
    for at, _, names in os.walk(path):
        for name in names:
            file = os.path.join(at, name)
            os.utime(file, (os.stat(file).st_atime, os.stat(file).st_mtime + 10))


def contents(path):
    """The arrays and groups of a hierarchy: their shape, type, attributes and values."""
    found = {}
    for name, node in zarr.open_group(path, mode="r").members(max_depth=None):
        values = (node.shape, str(node.dtype), node[...].tolist()) if isinstance(node, zarr.Array) else None
        found[name] = (dict(node.attrs), values)
    return found


class Pair:
    def __init__(self, directory, seed, options):
        self.rng, self.directory, self.options = random.Random(seed), directory, options
        self.a, self.b, self.store, self.mnt = (directory / name for name in ("a", "b", "store", "mnt"))
        for path in (self.a, self.b, self.store, self.mnt, directory / "a.git"):
            shutil.rmtree(path, ignore_errors=True)
        self.mnt.mkdir()
        make(self.rng, self.a)
        shutil.copytree(self.a, self.b)
        if self.rng.random() < 0.8:
            change(self.rng, self.b)
        else:
            shutil.rmtree(self.b)
            make(self.rng, self.b)
        make_later(self.b)

    def mounted(self, *commands):
        """Runs commands over a mount of the store. Whether all went well, and what was said."""
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        create = [] if self.store.exists() else ["--create"]
        command = [BIN, "mount", *create, "--log-file", log, *self.options, self.store, self.mnt]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        done, env = [], {**os.environ, "B": str(self.b), "A": str(self.a), "M": str(self.mnt)}
        try:
            for text in commands:
                run = ["bash", "-o", "pipefail", "-c", text]
                done.append(subprocess.run(run, env=env, capture_output=True, text=True, timeout=PATIENCE))
        finally:
            umount = [BIN, "umount", self.mnt]
            done.append(subprocess.run(umount, capture_output=True, text=True, timeout=PATIENCE))
            if os.path.ismount(self.mnt):
                detach(self.mnt)
        said = "".join(run.stderr for run in done) + (log.read_text() if log.exists() else "")
        names_refused = "not stored" in done[-1].stderr
        return all(run.returncode == 0 for run in done) and not names_refused, said


def wrong(found, wanted, removes):
    """The names of nodes that are not as wanted. Copies without `--delete` leave what is not in their source."""
    names = set(wanted) | (set(found) if removes else set())
    return {name: (found.get(name), wanted.get(name)) for name in names if found.get(name) != wanted.get(name)}


@pytest.mark.parametrize("programs", [["cp"], ["rsync"], ["tar", "unzip", "git"]], ids="-".join)
def test_a_copy_over_any_state_is_its_source_or_an_error(programs, tmp_path, tried):
    for program in [name for name in COPIERS if name.split()[0] in programs]:
        refused = 0
        for number in range(PAIRS) if SEED is None else [int(SEED)]:
            refused += not copies_well(Pair(tmp_path, f"{program} {number}", MODES[number % 3]), program, number)
            tried("pairs of hierarchies")
        if refused:
            tried("pairs with an error", refused)
        assert PAIRS < 20 or refused < PAIRS, f"{program}: every copy was refused"


def copies_well(pair, program, number):
    """Whether a copy over a mount ended well. Fails if it did, and the store is not its source."""
    command, first = COPIERS[program], COPIERS[program].replace("$B", "$A")
    if number % 2:  # One mount for both, or one for each.
        went_well, said = pair.mounted(first, command)
    else:
        went_well, said = pair.mounted(first)
        assert went_well, f"{program}, ZARRFS_SEED={number}: the first copy into an empty mount failed: {said}"
        went_well, said = pair.mounted(command)
    faults = went_well and wrong(contents(pair.store), contents(pair.b), "--delete" in program)
    assert not faults, f"{program}, ZARRFS_SEED={number}: {faults}\n{said}"
    return went_well


@pytest.mark.parametrize("mode", ["sync", "delay", "all"])
@pytest.mark.parametrize("order", ["rsync -a", "tar x, chunks first", "tar x, backwards"])
def test_a_plain_store_can_be_mirrored_into_a_later_mount_again(tmp_path, order, mode):
    pair = Pair(tmp_path, "mirrored", ["--writeback", mode])
    shutil.rmtree(pair.b)
    group = zarr.open_group(pair.b, mode="w")
    for kind in ["plain", "big", "transposed"]:
        array = group.create_array(kind, shape=(4, 6), chunks=(2, 3), dtype="i4", **encoding(kind, 2, (2, 3)))
        array[...] = np.arange(24).reshape(4, 6)
    command = COPIERS[order]
    assert pair.mounted(command)[0]
    for array in group.array_values():
        array[0, 0] = 1000
        array.append(np.ones((4, 6), "i4"))
    make_later(pair.b)
    went_well, said = pair.mounted(command)
    assert went_well, said
    assert not wrong(contents(pair.store), contents(pair.b), True)


@pytest.mark.parametrize("program", ["cp -r", "rsync -a", "tar x"])
def test_empty_directories_of_chunks_do_not_keep_an_array_from_being_copied(tmp_path, program):
    pair = Pair(tmp_path, "shrunk", [])
    shutil.rmtree(pair.b)
    array = zarr.open_group(pair.b, mode="w").create_array("a", shape=(10, 10), chunks=(5, 5), dtype="i4")
    array[...] = 1
    array.resize((5, 10))
    (pair.b / "a/c/1").mkdir(exist_ok=True)
    went_well, said = pair.mounted(COPIERS[program])
    assert went_well, said
    assert not wrong(contents(pair.store), contents(pair.b), True)


def test_attributes_of_a_new_directory_leave_it_free_to_become_an_array(new):
    with new("v3") as m:
        array = m / "a"
        array.mkdir()
        os.setxattr(array, "user.attrs.units", b'"K"')
        assert os.getxattr(array, "user.attrs.units") == b'"K"'
        assert not (array / "zarr.json").exists()
        zarr.create_array(array, shape=(4,), chunks=(2,), dtype="i4", attributes={"units": "m"})[...] = 1
        assert os.getxattr(array, "user.attrs.units") == b'"m"'
        group = m / "g"
        group.mkdir()
        os.setxattr(group, "user.attrs.title", b'"T"')
        m.sync()
        assert dict(zarr.open_group(group, mode="r").attrs) == {"title": "T"}


def test_an_attribute_with_a_nul_in_its_name_is_left_out_of_the_list(mount, tmp_path):
    store = tmp_path / "nul"
    store.mkdir()
    text = r'{"zarr_format": 3, "node_type": "group", "attributes": {"a\u0000b": 1, "\u0000": 1, "k": 2}}'
    (store / "zarr.json").write_text(text)
    with mount(store) as m:
        assert [name for name in os.listxattr(m.path) if "attrs" in name] == ["user.attrs.k"]
        assert "NUL" in m.errors()


@pytest.mark.parametrize("name", ["x.tmp", ".x.AbCd12", "x.partial", "x"])
def test_scratch_files_are_as_long_as_the_disk_allows(new, name):
    with new("v3", "--max-chunk-size", "1M", "-o", "nopassthrough") as m:
        path = m / name
        with open(path, "wb") as file:
            for _ in range(5):
                file.write(b"x" * (1 << 20))
        assert path.stat().st_size == 5 << 20
        path.unlink()
        path.touch()
        os.truncate(path, 8 << 20)
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 9 << 20)
        assert path.stat().st_size == 9 << 20
        path.rename(m / "done")
        assert (m / "done").stat().st_size == 9 << 20
