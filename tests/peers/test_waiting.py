"""Chunks that may wait, those of a shard for one another: this mount has them at once, the store whatever happens next."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import zarr

from hierarchies import assert_same, read_ts, read_zarr
from mounts import detach, files, is_alive, wait_until
from records import CHUNKS, GONE, GRID, SIZE, record, sync_dir, version_of
from torture import LONG, SEED, found_in, is_sharded, stored, whole

SHARDED = ["v3-sharded", "d2020-10-sharded"]
KINDS = [*SHARDED, "v3", "v2"]
# Of each shard a part, so that all of them wait.
SOME = ["0/0", "0/1", "1/0", "1/2", "3/1", "2/3"]
WAIT = ["--writeback-delay", "1h"]


def waiting(kind, delay="1h"):
    """How to mount, so that chunks of such an array wait."""
    return ["--writeback-delay", delay, *([] if is_sharded(kind) else ["--writeback=all"])]


def put(m, thing, version, array="x"):
    (m / array / "c" / thing).write_bytes(record(thing, version))


def shown(m, array="x"):
    """What the mount shows of each chunk."""
    found = {}
    for thing in CHUNKS:
        path = m / array / "c" / thing
        found[thing] = version_of(thing, path.read_bytes()) if path.exists() else GONE
        listed = path.name in (os.listdir(path.parent) if path.parent.exists() else [])
        assert listed == path.exists(), f"{thing} is listed or exists, not both"
    return found


def of(things, version):
    return {thing: version if thing in things else 0 for thing in CHUNKS}


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_is_what_every_reader_of_the_mount_finds(bench, kind):
    b = bench(kind)
    m = b.mount(*waiting(kind))
    for thing in SOME:
        put(m, thing, 1)
    os.unlink(m / "x/c/2/2")
    expected = of(SOME, 1) | {"2/2": GONE}
    assert shown(m) == expected
    assert found_in(read_zarr(m.path, "x")) == expected
    assert found_in(read_ts(m.path, "x")) == expected
    fd = os.open(m / "x/c/0/0", os.O_RDWR)
    assert os.pread(fd, 100, 50) == record("0/0", 1)[50:150]
    os.pwrite(fd, record("0/0", 2)[:30], 0)
    os.pwrite(fd, record("0/0", 2)[30:], 30)
    os.close(fd)
    put(m, "2/2", 3)
    expected |= {"0/0": 2, "2/2": 3}
    assert shown(m) == expected
    b.end(m)
    assert found_in(stored(b.store, kind, b.zarr2)) == expected
    b.check_keys("after the unmount")


@pytest.mark.parametrize("how", ["file", "another of the shard", "directory", "array", "root"])
@pytest.mark.parametrize("kind", KINDS)
def test_fsync_stores_what_waits_for_its_shard(bench, kind, how):
    b = bench(kind)
    m = b.mount(*waiting(kind))
    for thing in SOME:
        put(m, thing, 1)
    os.unlink(m / "x/c/1/1")
    certain = SOME
    if how in ("file", "another of the shard"):
        fd = os.open(m / "x/c/0/0", os.O_RDONLY) if how == "file" else os.open(m / "x/c/1/0", os.O_RDWR)
        os.fsync(fd)
        os.close(fd)
        certain = ["0/0"] if how == "file" else ["1/0"]
    else:
        sync_dir(m.path / {"directory": "x/c/0", "array": "x", "root": "."}[how])
    found = found_in(stored(b.store, kind, b.zarr2))
    assert {thing: found[thing] for thing in certain} == {thing: 1 for thing in certain}
    assert len(certain) == 1 or found["1/1"] == GONE
    b.kill(m)
    found = found_in(stored(b.store, kind, b.zarr2))
    assert {thing: found[thing] for thing in certain} == {thing: 1 for thing in certain}


@pytest.mark.parametrize("how", ["umount", "fusermount3 -u", "fusermount3 -uz", "SIGTERM", "SIGINT", "delay", "all"])
def test_what_waits_is_stored_at_the_latest_when_the_mount_ends(bench, how):
    b = bench("v3-sharded")
    m = b.mount("--writeback-delay", "300ms" if how == "delay" else "1h")
    expected = of(SOME, 1) | {"2/2": GONE}
    # A shard that is stored while some of it is written again is not complete a second time.
    for thing in SOME if how != "all" else []:
        put(m, thing, 1)
    if how != "all":
        os.unlink(m / "x/c/2/2")
    if how == "delay":
        assert wait_until(lambda: found_in(stored(b.store, b.kind, None)) == expected), "nothing is stored"
    elif how == "all":
        # A shard that is complete need not wait any longer.
        for thing in CHUNKS:
            put(m, thing, 2)
        expected = of(CHUNKS, 2)
        assert wait_until(lambda: found_in(stored(b.store, b.kind, None)) == expected), "complete shards are not stored"
    elif how.startswith("SIG"):
        os.kill(m.pid, getattr(signal, how))
        assert wait_until(lambda: not is_alive(m.pid)), f"{how} does not end it"
    elif how.startswith("fuser"):
        subprocess.run([*how.split(), str(m.path)], check=True)
        assert wait_until(lambda: not is_alive(m.pid)), f"{how} does not end it"
    b.end(m)
    assert found_in(stored(b.store, b.kind, None)) == expected
    b.check_keys(how)


@pytest.mark.parametrize("limit", ["64K", "200K"])
@pytest.mark.parametrize("kind", KINDS)
def test_more_may_be_written_than_may_wait(bench, kind, limit):
    b = bench(kind)
    m = b.mount("--dirty-limit", limit, *waiting(kind))
    for version in range(1, 4):
        for thing in (CHUNKS, CHUNKS[::-1], CHUNKS[::3] + CHUNKS[1::3] + CHUNKS[2::3])[version - 1]:
            put(m, thing, version)
            assert version_of(thing, (m / "x/c" / thing).read_bytes()) == version
    assert shown(m) == of(CHUNKS, 3)
    b.end(m)
    assert found_in(stored(b.store, kind, b.zarr2)) == of(CHUNKS, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_whose_chunks_wait_is_moved_with_them(bench, kind):
    b = bench(kind)
    m = b.mount(*waiting(kind))
    for thing in SOME:
        put(m, thing, 1)
    os.rename(m / "x", m / "y")
    put(m, "0/2", 2, "y")
    assert shown(m, "y") == of(SOME, 1) | {"0/2": 2}
    os.mkdir(m / "deep")
    os.rename(m / "y", m / "deep/x")
    put(m, "3/3", 3, "deep/x")
    expected = of(SOME, 1) | {"0/2": 2, "3/3": 3}
    assert shown(m, "deep/x") == expected
    assert not (m / "x").exists() and not (m / "y").exists()
    b.end(m)
    if kind.startswith("d2020"):
        assert found_in(b.zarr2.read(b.store)["deep/x"]) == expected
    else:
        assert found_in(zarr.open_array(b.store / "deep/x", mode="r")[...]) == expected
    left = [key for key in files(b.store) if "deep" not in key and ("/x/" in f"/{key}" or "/y/" in f"/{key}")]
    assert not left, f"left where the array was: {left}"


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_whose_chunks_wait_is_removed_with_them(bench, kind):
    b = bench(kind)
    m = b.mount(*waiting(kind))
    for thing in SOME:
        put(m, thing, 1)
    shutil.rmtree(m / "x")
    assert not (m / "x").exists()
    b.end(m)
    left = [key for key in files(b.store) if "/x" in f"/{key}"]
    assert not left, f"rm -r has left {left}"


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_is_moved_and_removed_while_its_shards_are_being_stored(bench, tmp_path, kind):
    """Complete shards are stored at once, others after the delay: somewhere in there comes the end."""
    b, dice = bench(kind), random.Random(f"{SEED} {kind}")
    m = b.mount(*waiting(kind, "20ms"))
    m.allow("it was listed, and then it was not there")
    shutil.copytree(m / "x", tmp_path / "copy")
    until, version = time.monotonic() + (30 if LONG else 2), 0
    while time.monotonic() < until:
        version, what = version + 1, f"round {version} (ZARRFS_SEED={SEED})"
        things = dice.sample(CHUNKS, dice.choice([3, 8, 16]))
        before = shown(m)
        for thing in things:
            put(m, thing, version)
        before |= {thing: version for thing in things}
        time.sleep(dice.random() * 0.03)
        if dice.random() < 0.5:
            os.rename(m / "x", m / "y")
            assert shown(m, "y") == before, what
        else:
            shutil.rmtree(m / "x")
        time.sleep(dice.random() * 0.03)
        left = [key for key in files(b.store) if "/x/" in f"/{key}"]
        assert not left, f"{what}: left where the array was: {left}"
        if (m / "y").exists():
            os.rename(m / "y", m / "x")
        else:
            shutil.copytree(tmp_path / "copy", m / "x")
            before = of(CHUNKS, 0)
        assert shown(m) == before, what
    b.end(m)
    assert found_in(stored(b.store, kind, b.zarr2)) == before


def test_another_array_of_the_same_name_has_nothing_of_the_one_before(bench):
    b = bench("v3-sharded")
    m = b.mount(*WAIT, "--shards", "128K", "--codecs", "zstd")
    for thing in SOME:
        put(m, thing, 1)
    document = json.loads((m / "x/zarr.json").read_text())
    shutil.rmtree(m / "x")
    os.mkdir(m / "x")
    (m / "x/zarr.json").write_text(json.dumps(document))
    for thing in ("0/0", "2/1"):
        os.makedirs((m / "x/c" / thing).parent, exist_ok=True)
        put(m, thing, 7)
    expected = {thing: GONE for thing in CHUNKS} | {"0/0": 7, "2/1": 7}
    assert shown(m) == expected
    b.end(m)
    assert found_in(stored(b.store, b.kind, None)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_that_wait_follow_the_shape_of_their_array(bench, kind):
    """Those outside of a smaller shape stay, and a larger one shows them again."""
    b = bench(kind)
    m = b.mount(*waiting(kind))
    for thing in CHUNKS:
        if thing != "3/3":
            put(m, thing, 1)
    put(m, "0/0", 2)
    for rows in (1, GRID[0]):
        document = json.loads((m / "x/zarr.json").read_text())
        document["shape"][0] = rows
        document["attributes"] = {"rows": rows}
        (m / "x/zarr.json").write_text(json.dumps(document))
    expected = {thing: 1 for thing in CHUNKS} | {"0/0": 2, "3/3": 0}
    assert shown(m) == expected
    b.end(m)
    assert found_in(stored(b.store, kind, b.zarr2)) == expected


@pytest.mark.parametrize("kind", SHARDED)
def test_what_others_wrote_to_the_shard_meanwhile_stays(bench, kind):
    """Another mount, and the shard that another program removes."""
    b = bench(kind)
    one, two = b.mount(*WAIT, name="one"), b.mount("--writeback=sync", name="two")
    put(one, "0/0", 1)
    put(one, "2/0", 1)
    put(two, "0/1", 2)
    put(two, "1/1", 2)
    # Both have written this one; who stores last has the last word, but it is the word of one of them.
    put(one, "3/3", 3)
    put(two, "3/3", 4)
    gone = os.getxattr(two / "x/c/2/0", "user.zarr.key").decode()
    os.unlink(b.store / gone)
    b.end(one)
    b.end(two)
    found = found_in(stored(b.store, kind, b.zarr2))
    assert found.pop("3/3") in (3, 4)
    # It waited for its shard, or went with it.
    assert found.pop("2/0") in (1, GONE)
    expected = of([], 0) | {"0/0": 1, "0/1": 2, "1/1": 2} | {thing: GONE for thing in ("2/1", "3/0", "3/1")}
    del expected["3/3"], expected["2/0"]
    assert found == expected


def test_a_shard_that_was_damaged_meanwhile_is_not_written_over(bench):
    """The error comes out at fsync and at the end; what waits is shown as long as it can be."""
    b = bench("v3-sharded")
    m = b.mount(*WAIT)
    m.allow("")
    put(m, "0/0", 1)
    put(m, "2/2", 1)
    key = b.store / os.getxattr(m / "x/c/0/0", "user.zarr.key").decode()
    waits = found_in(stored(b.store, b.kind, None))["0/0"] == 0
    damaged = key.read_bytes()[:-10] + bytes(10)
    time.sleep(1.1)
    key.write_bytes(damaged)
    with pytest.raises(OSError) if waits else contextlib.nullcontext():
        sync_dir(m / "x/c/0")
    with pytest.raises(OSError):
        put(m, "0/0", 2)
        sync_dir(m / "x/c/0")
    assert key.read_bytes() == damaged, "what could be saved from it by hand is lost"
    said = m.unmount()
    if said:
        assert m.is_mounted() and "not everything is stored" in said, said
        while m.is_mounted():
            detach(m.path)
        b.kill(m)
    else:
        b.end(m)
    assert key.read_bytes() == damaged
    part = zarr.open_array(b.store / "x", mode="r")[2:, 2 * SIZE :]
    assert_same(part[:1, :SIZE], np.frombuffer(record("2/2", 1), "u1")[None, :])
    assert_same(part[1:], whole()[3:, 2 * SIZE :])
