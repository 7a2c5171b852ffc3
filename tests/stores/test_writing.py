"""What is written through mounts of S3: read back by zarr-python, kept from other writers, and safe from faults."""

import contextlib
import errno
import itertools
import os
import random
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

import servers
from mounts import MountFailed, wait_until
from proxy import Fault
from test_faults import ONCE, RANGES, REFUSALS, SILENCES, STEP, is_range, only_long, strike, strike_each

CONFLICTS = {
    code: {"status": 409, "body": b"<Error><Code>%s</Code></Error>" % code.encode()}
    for code in ["ConditionalRequestConflict", "OperationAborted"]
}


@pytest.fixture
def root(prefix):
    """A hierarchy at the prefix, written by zarr-python."""
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    root.create_array("plain", shape=(40, 60), chunks=(20, 20), dtype="i4")[...] = 1
    root.create_array("sharded", shape=(40, 60), chunks=(10, 10), shards=(20, 30), dtype="i4")[...] = 1
    return root


def stored(prefix, name):
    """What zarr-python reads."""
    return zarr.open_array(ObjectStore(servers.client(prefix)), path=name, mode="r")[...]


def methods(requests):
    return [it.method for it in requests if not it.path.endswith(".zarrfs%2F")]


def test_a_chunk_is_one_put(proxy, mount, root, prefix):
    with mount() as m:
        os.listdir(m / "plain/c/0")
        proxy.take()
        (m / "plain/c/0/1").write_bytes(np.full(400, 7, "i4").tobytes())
        assert methods(proxy.take()).count("PUT") == 1
    want = np.full((40, 60), 1)
    want[:20, 20:40] = 7
    assert np.array_equal(stored(prefix, "plain"), want)


def puts_aside_after(number):
    """Tells a put of a value aside that follows so many others."""
    puts = itertools.count()
    return lambda it: it.method == "PUT" and "aside" in it.path and next(puts) >= number


@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_a_new_file_in_the_place_of_a_view_changes_the_whole_array_or_nothing(proxy, mount, root, prefix, tmp_path, name):
    values = np.random.default_rng(50).integers(0, 2**31, (40, 60), "i4")
    np.save(tmp_path / "new.npy", np.asfortranarray(values))
    with mount() as m:
        # Refused before the change is declared, and after that.
        for number in (0, 3):
            proxy.faults = [Fault(puts_aside_after(number), status=403)]
            m.allow("the server answered 403|aside")
            with pytest.raises(OSError, match="Permission denied"):
                shutil.copyfile(tmp_path / "new.npy", m / f"{name}.npy")
            proxy.faults = []
            assert (stored(prefix, name) == 1).all()
        shutil.copyfile(tmp_path / "new.npy", m / f"{name}.npy")
        assert np.array_equal(np.load(m / f"{name}.npy"), values)
        assert np.array_equal(stored(prefix, name), values)
    keys = [it["path"] for page in servers.client(prefix).list() for it in page]
    assert not [key for key in keys if "aside" in key], keys


# What `mv` is told, which copies then, and programs that must look again.
REFUSED = [
    "cannot move a group or an array in one step", "a program is writing the metadata file", "another program has changed",
    "another program has stored the chunk",
]


def grown(prefix, name, shape, values):
    """Another program makes an array longer, and writes the new elements."""
    array = zarr.open_array(ObjectStore(servers.client(prefix)), path=name, mode="r+")
    before = array.shape[0]
    array.resize(shape)
    array[before:] = values
    return array


def look(m):
    """Has the mount remember everything."""
    subprocess.run(f"ls -lR {m.path} && cat {m.path}/*/zarr.json {m.path}/*/c/*", shell=True, check=True, capture_output=True)


def test_a_mount_with_an_old_view_loses_nothing_that_another_program_has_stored(mount, prefix):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w")
    for name in ("moved", "longer", "part"):
        root.create_array(name, shape=(8,), chunks=(2,), dtype="i4", fill_value=-1)[:] = np.arange(8)
    with mount("--metadata-ttl", "1h") as m:
        for said in REFUSED:
            m.allow(said)
        look(m)
        whole = list(range(8)) + [80, 81, 82, 83]
        for name in ("moved", "longer"):
            grown(prefix, name, (12,), whole[8:])
        zarr.open_array(ObjectStore(servers.client(prefix)), path="part", mode="r+")[0:2] = [70, 71]
        # `mv` copies the array, since a bucket has no directories, and then removes it.
        done = subprocess.run(["mv", m / "moved", m / "new"], capture_output=True, text=True)
        assert done.returncode == 1 and "busy" in done.stderr, done
        longer, part = (zarr.open_array(m / name, mode="r+") for name in ("longer", "part"))
        with pytest.raises(OSError):
            longer.append(np.array([90, 91, 92, 93], "i4"))
        with pytest.raises(OSError):
            part[1] = 1
        # The program looks again.
        longer, part = (zarr.open_array(m / name, mode="r+") for name in ("longer", "part"))
        longer.append(np.array([90, 91], "i4"))
        part[1] = 1
    assert stored(prefix, "moved").tolist() == whole
    assert stored(prefix, "longer").tolist() == whole + [90, 91]
    assert stored(prefix, "part").tolist() == [70, 1, *range(2, 8)]


def test_an_array_is_copied_within_a_bucket_of_zarr_2(mount, prefix):
    root = zarr.open_group(ObjectStore(servers.client(prefix)), mode="w", zarr_format=2)
    root.create_array("a", shape=(8, 4), chunks=(2, 2), dtype="i4")[:] = np.arange(32).reshape(8, 4)
    with mount() as m:
        m.allow(REFUSED[0])
        m.allow(REFUSED[1])
        subprocess.run(["cp", "-r", m / "a", m / "b"], check=True)
        (m / "d").mkdir()
        shutil.copy(m / "a/zarr.json", m / "d")
        (m / "d/c").mkdir()
        subprocess.run(["mv", m / "a", m / "e"], check=True)
    for name in ("b", "e"):
        assert np.array_equal(stored(prefix, name), np.arange(32).reshape(8, 4)), name


def test_an_inner_chunk_changes_with_four_requests(proxy, mount, root, prefix):
    with mount() as m:
        (m / "sharded/c/3/0").write_bytes(np.full(100, 5, "i4").tobytes())
        m.sync()
        os.listdir(m / "sharded/c/0")
        proxy.take()
        (m / "sharded/c/0/1").write_bytes(np.full(100, 7, "i4").tobytes())
        m.sync()
        made = methods(proxy.take())
        assert len(made) <= 4 and made.count("PUT") == 1, made
    want = np.full((40, 60), 1)
    want[30:, :10], want[:10, 10:20] = 5, 7
    assert np.array_equal(stored(prefix, "sharded"), want)


def test_programs_create_change_move_and_remove_nodes(mount, root, prefix, tmp_path):
    local = tmp_path / "local.zarr"
    zarr.create_array(local / "x", data=np.arange(600).reshape(20, 30), chunks=(10, 10))
    with mount() as m:
        subprocess.run(["cp", "-r", local / "x", m.path], check=True)
        assert np.array_equal(servers.load(m / "x.npy"), np.arange(600).reshape(20, 30))
        m.allow("cannot move|setxattr")
        with pytest.raises(OSError) as refused:
            os.rename(m / "x", m / "y")
        assert refused.value.errno == errno.EXDEV
        subprocess.run(["mv", m / "x", m / "y"], check=True)
        np.save(tmp_path / "new.npy", np.full((20, 30), 3))
        shutil.copyfile(tmp_path / "new.npy", m / "y.npy")
        subprocess.run(["rm", "-r", m / "plain", m / "sharded"], check=True)
        assert sorted(os.listdir(m.path)) == ["y", "zarr.json"]
    assert np.array_equal(stored(prefix, "y"), np.full((20, 30), 3))
    assert {key.split("/")[0] for key in servers.keys(prefix)} == {"y", "zarr.json"}


def test_a_moved_or_copied_array_keeps_its_codecs_shards_and_metadata(mount, root, prefix):
    root["sharded"].attrs["long"] = [2**70, None, {"unit": "K"}]
    server = servers.client(prefix)
    before = {name: bytes(server.get(f"{name}/zarr.json").bytes()) for name in ("plain", "sharded")}
    with mount() as m:
        m.allow("cannot move|setxattr")
        subprocess.run(["mv", m / "sharded", m / "a"], check=True)
        subprocess.run(["mv", m / "plain", m / "b"], check=True)
        subprocess.run(["cp", "-r", m / "a", m / "c"], check=True)
    for name, source in {"a": "sharded", "b": "plain", "c": "sharded"}.items():
        assert bytes(server.get(f"{name}/zarr.json").bytes()) == before[source]
        assert np.array_equal(stored(prefix, name), np.full((40, 60), 1))
    shards = [key for key in servers.keys(prefix) if key.startswith("c/c/")]
    assert len(shards) == 4
    assert not [key for key in servers.keys(prefix) if key.startswith(("plain", "sharded"))]


@pytest.mark.parametrize("name, row", [("plain", 1), ("sharded", 3)])
def test_a_file_in_a_directory_without_chunks_is_listed_and_removed(mount, root, prefix, name, row):
    with mount() as m:
        for chunk in list((m / name / "c" / str(row)).iterdir()):
            chunk.unlink()
        (m / name / "c" / str(row) / "note").write_bytes(b"text")
    rows = sorted(str(i) for i in range(row + 1))
    with mount() as m:
        assert sorted(os.listdir(m / name / "c")) == rows
        assert os.listdir(m / name / "c" / str(row)) == ["note"]
        assert (m / name / "c" / str(row) / "note").read_bytes() == b"text"
        shutil.rmtree(m / name / "c" / str(row))
        assert sorted(os.listdir(m / name / "c")) == rows[:-1]
    assert not [key for key in servers.keys(prefix) if key.endswith("note")]


def test_the_last_inner_chunk_leaves_an_empty_shard(mount, root, prefix):
    with mount() as m:
        for name in ["0/0", "0/1", "0/2", "1/0", "1/1", "1/2"]:
            (m / "sharded/c" / name).unlink()
            m.sync()
        assert sorted(os.listdir(m / "sharded/c")) == ["0", "1", "2", "3"]
        assert not (m / "sharded/c/0/0").exists()
    want = np.full((40, 60), 1)
    want[:20, :30] = 0
    assert np.array_equal(stored(prefix, "sharded"), want)
    assert "sharded/c/0/0" in servers.keys(prefix)


def test_four_mounts_lose_no_inner_chunk(mount, root, prefix):
    coords = [(row, column) for row in range(4) for column in range(6)]
    with contextlib.ExitStack() as stack:
        mounts = [stack.enter_context(mount()) for _ in range(4)]

        def write(at):
            mine = coords[at::4]
            random.Random(at).shuffle(mine)
            for row, column in mine:
                value = np.full(100, 100 * row + column, "i4").tobytes()
                (mounts[at] / f"sharded/c/{row}/{column}").write_bytes(value)
                mounts[at].sync()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
    want = np.zeros((40, 60))
    for row, column in coords:
        want[10 * row : 10 * row + 10, 10 * column : 10 * column + 10] = 100 * row + column
    assert np.array_equal(stored(prefix, "sharded"), want)


@pytest.mark.parametrize("ttl", ["0s", "1m"])
@pytest.mark.parametrize("shards", [None, (20, 30)])
def test_a_removed_array_can_be_made_again_at_the_same_path(mount, root, prefix, ttl, shards):
    with mount("--metadata-ttl", ttl) as m:
        for value in (1, 2, 3):
            group = zarr.open_group(m / "g", mode="a")
            made = group.create_array("x", shape=(40, 60), chunks=(10, 10), shards=shards, dtype="i4")
            made[...] = value
            if value == 2:
                m.sync()
            if value < 3:
                removed = m / ("g/x" if value == 1 else "g")
                subprocess.run(["rm", "-r", removed], check=True)
                assert not removed.exists()
    assert np.array_equal(stored(prefix, "g/x"), np.full((40, 60), 3))


def put(path, flags, text):
    """Opens a file with these flags, writes to it, and has it stored."""
    number = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        os.write(number, text)
        os.fsync(number)
    finally:
        os.close(number)


def value(prefix, key):
    return bytes(servers.client(prefix).get(key).bytes())


def test_a_file_that_another_mount_has_just_made_is_not_replaced(mount, root, prefix):
    with mount() as first, mount() as second:
        for name in ["README", "notes", "linked", "moved", "made"]:
            for m in (first, second):
                os.listdir(m.path)
                assert not (m / name).exists()
        put(second / "mine", os.O_CREAT | os.O_EXCL, b"mine")
        for name in ["README", "notes", "linked", "moved", "made"]:
            put(first / name, os.O_CREAT | os.O_EXCL, b"theirs")
        exists = os.O_CREAT | os.O_EXCL
        for refused in [
            lambda: put(second / "README", exists, b"mine"),
            lambda: os.link(second / "mine", second / "linked"),
            lambda: os.mkdir(second / "made"),
        ]:
            with pytest.raises(FileExistsError):
                refused()
        # `mv -n` renames with RENAME_NOREPLACE.
        subprocess.run(["mv", "-n", second / "mine", second / "moved"], check=False)
        # Without O_EXCL, it is the file that is there.
        put(second / "notes", os.O_CREAT, b"mine")
    for name in ["README", "linked", "moved", "made"]:
        assert value(prefix, name) == b"theirs", name
    assert (value(prefix, "notes"), value(prefix, "mine")) == (b"miners", b"mine")


def test_a_file_that_is_stored_after_that_of_another_mount_is_refused(mount, root, prefix):
    with mount() as first, mount() as second:
        number = os.open(second / "README", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(number, b"mine")
        put(first / "README", os.O_CREAT | os.O_EXCL, b"theirs")
        second.refused(errno.EEXIST, "README: another program has just made a file", lambda: os.fsync(number))
        with pytest.raises(FileExistsError):
            os.close(number)
        assert "README" in (second / ".zarrfs/unstored").read_text()
        os.unlink(second / "README")
        assert (second / "README").read_bytes() == b"theirs"
    assert value(prefix, "README") == b"theirs"


def change(mount, new="new", allow="^$"):
    """Changes a chunk, an inner chunk, attributes and nodes; `new` is added and removed."""
    with mount() as m:
        m.allow(allow)
        (m / "plain/c/0/1").write_bytes(np.full(400, 7, "i4").tobytes())
        with open(m / "plain/c/1/1", "r+b") as part:
            part.write(np.full(100, 6, "i4").tobytes())
        (m / "sharded/c/0/1").write_bytes(np.full(100, 7, "i4").tobytes())
        m.sync()
        document = (m / "zarr.json").read_text()
        (m / "zarr.json").write_text(document.replace('"attributes": {}', '"attributes": {"n": 1}'))
        (m / new).mkdir()
        (m / new / "zarr.json").write_text((m / "plain/zarr.json").read_text())
        (m / new / "c/0").mkdir(parents=True, exist_ok=True)
        (m / new / "c/0/0").write_bytes(np.full(400, 2, "i4").tobytes())
        subprocess.run(["rm", "-r", m / new], check=True)


def check_changed(prefix):
    plain, sharded = np.full((40, 60), 1), np.full((40, 60), 1)
    plain[:20, 20:40], plain[20:25, 20:40] = 7, 6
    sharded[:10, 10:20] = 7
    assert np.array_equal(stored(prefix, "plain"), plain)
    assert np.array_equal(stored(prefix, "sharded"), sharded)
    assert not [key for key in servers.keys(prefix) if key.startswith(("new", ".zarrfs"))]


def is_done(act):
    try:
        act()
    except OSError:
        return False
    return True


def is_put(request):
    return request.method == "PUT"


@pytest.fixture
def changed(mount, root, prefix):
    """Makes the changes and checks them."""

    def act():
        change(mount)
        check_changed(prefix)

    # Later times, there are fewer requests.
    act()
    return act


@pytest.mark.parametrize("name", ONCE)
def test_a_fault_during_a_change_is_not_seen(proxy, changed, name):
    # Each third in the normal run: the others are struck by the other faults.
    strike_each(proxy, ONCE[name], changed, first=list(ONCE).index(name))


@pytest.mark.parametrize("name", RANGES)
def test_a_wrong_range_during_a_change_is_read_again(proxy, changed, name):
    strike_each(proxy, RANGES[name], changed, is_range, list(RANGES).index(name))


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_server_that_is_busy_with_another_put_is_asked_again(proxy, changed, name):
    strike_each(proxy, CONFLICTS[name], changed, is_put, list(CONFLICTS).index(name), min(STEP, 2))


def test_a_put_without_an_answer_is_made_again(proxy, changed):
    # Of the shard.
    strike(proxy, 0, SILENCES["silence"], lambda request: is_put(request) and "sharded" in request.path)
    changed()


@only_long
@pytest.mark.parametrize("name", SILENCES)
def test_silence_during_a_change_is_not_seen(proxy, changed, name):
    strike_each(proxy, SILENCES[name], changed, first=2 - list(SILENCES).index(name), step=3)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_during_a_change_leaves_old_or_new_values(proxy, mount, changed, prefix, name):
    names = (f"new{number}" for number in itertools.count())

    def act():
        with contextlib.suppress(OSError, MountFailed, subprocess.CalledProcessError):
            # SeaweedFS lists directories that are empty by now, so each time has a name of its own.
            change(mount, next(names), allow=".*")
        made = len(proxy.take())
        for array in ["plain", "sharded"]:
            assert np.isin(stored(prefix, array), [1, 6, 7]).all()
        proxy.faults = []
        with mount() as m:
            subprocess.run(["rm", "-rf", *Path(m.path).glob("new*")], capture_output=True)
        change(mount, next(names))
        check_changed(prefix)
        proxy.take()
        return made

    proxy.take()
    for at in range(list(REFUSALS).index(name) % STEP, act(), STEP * 2 - 1):
        strike(proxy, at, REFUSALS[name])
        act()


def test_an_answer_that_is_lost_is_no_conflict(proxy, mount, root, prefix):
    lost = []

    def applies(request):
        # The first answer to each object that is put.
        is_new = request.method == "PUT" and request.path not in lost
        lost.extend([request.path] if is_new else [])
        return is_new

    proxy.faults = [Fault(applies, lose=True)]
    change(mount)
    check_changed(prefix)
    assert len(lost) >= 5, lost


STAYS = {
    "500": (ONCE["500"], {errno.EIO}),
    "503": (ONCE["503 for two seconds"], {errno.EIO}),
    "429": (ONCE["429"], {errno.EIO}),
    "403": (REFUSALS["403"], {errno.EACCES}),
    **({"an expired token": (REFUSALS["an expired token"], {errno.EACCES})} if "an expired token" in REFUSALS else {}),
    "409": (CONFLICTS["OperationAborted"], {errno.EIO, errno.EBUSY}),
    "412": ({"status": 412}, {errno.EIO, errno.EBUSY, errno.ESTALE}),
}


RARE = ["503", "429", "an expired token"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=only_long) if name in RARE else name for name in STAYS])
@pytest.mark.parametrize("path, count", [("plain/c/0/1", 400), ("sharded/c/0/1", 100)])
def test_a_failed_change_leaves_the_old_value_and_is_stored_later(proxy, mount, root, prefix, path, count, name):
    fault, numbers = STAYS[name]
    array, side = path.split("/")[0], int(count**0.5)

    def write(value):
        (m / path).write_bytes(np.full(count, value, "i4").tobytes())
        m.sync()

    with mount("--retry-for", "1s") as m:
        old = stored(prefix, array)
        # Conditions are known to be honoured.
        (m / "sharded/c/3/5").write_bytes(np.full(100, 1, "i4").tobytes())
        m.sync()
        m.allow(".*")
        proxy.faults = [Fault(is_put, **fault)]
        # Without the option it would be tried for 30 s.
        ends = threading.Timer(25, proxy.faults.clear)
        ends.start()
        began = time.monotonic()
        with pytest.raises(OSError) as refused:
            write(7)
        assert time.monotonic() - began < 25
        ends.cancel()
        assert refused.value.errno in numbers, refused.value
        assert np.array_equal(stored(prefix, array), old)
        proxy.faults.clear()
        # Shards are stored first, and report the error until then.
        assert wait_until(lambda: is_done(m.sync))
        write(8)
    assert (stored(prefix, array)[:side, side : 2 * side] == 8).all()


def taken(head):
    """What a server answers that ignores conditions, instead of a refusal."""
    tag = b'ETag: "%s"' % (b"0" * 32)
    return head.replace(b"412 Precondition Failed", b"200 OK").replace(b"\r\n", b"\r\n" + tag + b"\r\n", 1)


@only_long
@pytest.mark.parametrize("path, count", [("plain/c/0/1", 400), ("sharded/c/0/1", 100)])
def test_a_server_that_answers_503_for_long_is_not_called_silent(proxy, mount, root, prefix, path, count):
    with mount() as m:
        (m / "sharded/c/3/5").write_bytes(np.full(100, 1, "i4").tobytes())
        m.sync()
        m.allow(".*")
        proxy.faults = [Fault(is_put, **ONCE["503"])]
        began = time.monotonic()
        with pytest.raises(OSError) as refused:
            (m / path).write_bytes(np.full(count, 7, "i4").tobytes())
            m.sync()
        took, said = time.monotonic() - began, m.errors()
        proxy.faults = []
        assert wait_until(lambda: is_done(m.sync))
    assert 20 < took < 60
    assert "the server answered 503" in said and "silent" not in said, said
    assert refused.value.errno == errno.EIO


def test_the_answers_to_all_puts_of_a_shard_may_be_lost(proxy, mount, root, prefix):
    with mount("--retry-for", "1s") as m:
        proxy.faults = [Fault(lambda request: is_put(request) and "sharded" in request.path, lose=True)]
        for value in [7, 8]:
            (m / "sharded/c/0/1").write_bytes(np.full(100, value, "i4").tobytes())
            m.sync()
            assert (stored(prefix, "sharded")[:10, 10:20] == value).all()


def test_a_server_that_ignores_conditions_is_found_out(proxy, mount, root, prefix):
    proxy.faults = [Fault(lambda request: request.method == "PUT" and "probe" in request.path, change=taken)]
    sentence = "the server ignores the conditions of changes"
    with mount() as m:
        (m / "plain/c/0/1").write_bytes(np.full(400, 7, "i4").tobytes())
        m.allow(".*")
        with pytest.raises(OSError) as refused:
            (m / "sharded/c/0/1").write_bytes(np.full(100, 7, "i4").tobytes())
        assert refused.value.errno == errno.EOPNOTSUPP
        assert sentence in m.errors() and "--single-writer" in m.errors()
        with pytest.raises(OSError):
            (m / "plain/zarr.json").write_text((m / "plain/zarr.json").read_text().replace("40", "39"))
    assert (stored(prefix, "plain")[:20, 20:40] == 7).all()
    with mount("--single-writer") as m:
        (m / "sharded/c/0/1").write_bytes(np.full(100, 7, "i4").tobytes())
    assert (stored(prefix, "sharded")[:10, 10:20] == 7).all()


def test_long_values_go_in_parts(proxy, mount, root, prefix, tmp_path):
    data = np.random.default_rng(0).integers(0, 1 << 30, (1, 25 << 20), "i4")
    with mount("--max-chunk-size", "1G") as m:
        (m / "long").mkdir()
        document = (m / "plain/zarr.json").read_text()
        import json

        members = json.loads(document)
        members["shape"], members["codecs"] = list(data.shape), [{"name": "bytes", "configuration": {"endian": "little"}}]
        members["chunk_grid"]["configuration"]["chunk_shape"] = list(data.shape)
        (m / "long/zarr.json").write_text(json.dumps(members))
        proxy.take()
        (m / "long/c").mkdir(exist_ok=True)
        (m / "long/c/0").mkdir(exist_ok=True)
        (m / "long/c/0/0").write_bytes(data.tobytes())
        assert len([it for it in proxy.take() if "partNumber" in it.path or "comp=block&" in it.path]) == 7
    assert np.array_equal(stored(prefix, "long"), data)
