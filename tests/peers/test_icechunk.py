"""Repositories of Icechunk, at every state, as its library reads them."""

import contextlib
import datetime
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from hierarchies import assert_same
from mounts import BIN, Mount, until_end
from torture import LONG

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures/icechunk"
# Made here, with the library of this environment and, if there is one, that of ZARRFS_ICECHUNK (version 2).
LIBRARIES = {"made": (sys.executable, 1)}
if os.environ.get("ZARRFS_ICECHUNK"):
    LIBRARIES["made2_spec2"] = (os.environ["ZARRFS_ICECHUNK"], 2)
    if LONG:
        LIBRARIES["made2_spec1"] = (os.environ["ZARRFS_ICECHUNK"], 1)
ALL = [*sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()), *LIBRARIES]


def make_repository(python, spec, tmp_path_factory, name):
    """Makes a repository with the library, which seldom ends by a signal."""
    for left in (2, 1, 0):
        directory = tmp_path_factory.mktemp("icechunk") / name
        command = [python, HERE / "icechunk_repos.py", directory, str(spec)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode >= 0 or left == 0:
            assert done.returncode == 0, done.stderr
            return directory


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """The directory of a repository by name, as `icechunk_repos.py` lays it out."""
    made = {}

    def repository(name):
        if name not in LIBRARIES:
            return FIXTURES / name
        if name not in made:
            python, spec = LIBRARIES[name]
            made[name] = make_repository(python, spec, tmp_path_factory, name)
        return made[name]

    return repository


@pytest.fixture
def mounted(tmp_path):
    """`with mounted(directory, state) as m:` mounts a state of a repository, with its virtual chunks."""

    @contextlib.contextmanager
    def mounted(directory, state="", *options, allowed=True):
        about = json.loads((directory / "states.json").read_text())
        if allowed:
            options = ["--allow-virtual", f"{about['prefix']}={directory / 'virtual'}", *options]
        source = f"icechunk+{directory / 'repo'}{state}"
        with until_end(Mount(directory / "repo", tmp_path / f"mnt{time.monotonic_ns()}", *options, source=source)) as m:
            assert "mounted read-only, because zarrfs only reads Icechunk repositories" in m.stderr
            m.expect("mounted read-only")
            yield m

    return mounted


def nodes_in(path):
    """The paths of groups and of arrays below a directory."""
    groups, arrays = set(), set()
    for directory, below, files in os.walk(path):
        if "zarr.json" in files:
            is_group = json.loads(Path(directory, "zarr.json").read_text())["node_type"] == "group"
            name = os.path.relpath(directory, path)
            (groups if is_group else arrays).add("" if name == "." else name)
            below[:] = below if is_group else []  # Chunks are many, and no nodes.
    return groups, arrays


def assert_state(path, want, expected):
    """A tree has the nodes and elements that the library has read."""
    groups, arrays = nodes_in(path)
    assert (groups - {""}, arrays) == (set(want["groups"]) - {""}, set(want["arrays"]))
    for name, attributes in want["groups"].items():
        assert json.loads((path / name / "zarr.json").read_text()).get("attributes", {}) == attributes
    root = zarr.open_group(path, mode="r")
    for name, about in want["arrays"].items():
        values = np.load(expected / about["file"])
        array = root[name]
        # zarr-python opens each chunk, and one array has 1500; the view below has all.
        part = slice(None if LONG else 100) if array.ndim else ...
        assert_same(array[part], values[part].astype(array.dtype), name)
        assert dict(array.attrs) == about["attributes"]
        names = array.metadata.dimension_names
        assert (list(names) if names else None) == about["names"]
        assert_same(np.load(path / f"{name}.npy"), values, name)


@pytest.mark.parametrize("name", ALL)
def test_every_state_is_what_the_library_reads(mounted, repositories, name):
    directory = repositories(name)
    about = json.loads((directory / "states.json").read_text())
    with mounted(directory) as m:
        assert ".zarrfs" not in os.listdir(m.path)
        for state, snapshot in about["names"].items():
            assert_state(m / ".zarrfs" / state, about["snapshots"][snapshot], directory / "expected")
        kinds = {kind: sorted(os.listdir(m / f".zarrfs/{kind}")) for kind in ("branches", "tags", "snapshots")}
        for kind in ("branches", "tags"):
            names = [name.split("/")[1] for name in about["names"] if name.startswith(kind)]
            assert kinds[kind] == sorted([*names, "zarr.json"])
        kinds["snapshots"].remove("zarr.json")
        assert {entry.split("-")[1] for entry in kinds["snapshots"]} == set(about["snapshots"])
        for entry in kinds["snapshots"]:
            moment, snapshot = entry.split("-")
            want = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(about["times"][snapshot])))
            assert moment == want
            path = m / ".zarrfs/snapshots" / entry
            assert int(path.stat().st_mtime) == int(about["times"][snapshot])
            assert_state(path, about["snapshots"][snapshot], directory / "expected")
        assert_state(m.path, about["snapshots"][about["names"]["branches/main"]], directory / "expected")
        assert m.errors() == ""


@pytest.mark.parametrize("name", ALL)
def test_a_branch_a_tag_and_a_snapshot_can_be_mounted(mounted, repositories, name):
    directory = repositories(name)
    about = json.loads((directory / "states.json").read_text())
    tag = about["names"]["tags/v1"]
    dev = about["names"]["branches/dev"]
    states = {"@dev": dev, "@branch:dev": dev, "@tag:v1": tag, f"@{tag}": tag, f"@{tag.lower()}": tag}
    for state, snapshot in states.items():
        with mounted(directory, state) as m:
            assert_state(m.path, about["snapshots"][snapshot], directory / "expected")
    with mounted(directory, "@tag:v1#gone") as m:
        assert os.listdir(m.path) and np.load(m / "x.npy").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ALL)
def test_a_state_that_is_not_there_is_said_with_those_that_are(repositories, name):
    repo = repositories(name) / "repo"
    for state in ("none", "tag:none", "tag:removed", "branch:v1", "00000000000000000000"):
        done = subprocess.run([BIN, "info", f"icechunk+{repo}@{state}"], capture_output=True, text=True)
        assert done.returncode == 1
        if "0000" not in state or "library2_spec2" in name:
            assert f'no branch, tag or snapshot "{state}"; its branches are: dev, main; its tags are: tag:v1, tag:v2.0' in done.stderr
    done = subprocess.run([BIN, "info", f"icechunk+{repo.parent}"], capture_output=True, text=True)
    assert "not an Icechunk repository" in done.stderr


@pytest.mark.parametrize("name", ALL)
def test_virtual_chunks_need_permission(mounted, repositories, name):
    directory = repositories(name)
    about = json.loads((directory / "states.json").read_text())
    with mounted(directory, allowed=False) as m:
        assert (m / "virtual/c/0").stat().st_size == 256
        sentence = f"the reference leads to {about['prefix']}raw.bin: if it may be read, type `zarrfs mount icechunk.{directory}/repo --allow-virtual /"
        m.refused(errno.EACCES, sentence, (m / "virtual/c/0").read_bytes)
        assert (m / "virtual/c/2").read_bytes() == bytes(range(256))
        assert not (m / "virtual/c/3").exists()


def write_virtual(directory, references):
    """A repository with virtual chunks of 4 bytes, at `(URL, offset, checksum)`."""
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(directory / "repo")))
    session = repo.writable_session("main")
    shape = (4 * len(references),)
    array = zarr.create_array(session.store, name="x", shape=shape, chunks=(4,), dtype="u1", compressors=None)
    assert array.shape == shape
    for number, (url, offset, checksum) in enumerate(references):
        place = dict(offset=offset, length=4, checksum=checksum, validate_container=False)
        session.store.set_virtual_ref(f"x/c/{number}", url, **place)
    session.commit("virtual")
    (directory / "states.json").write_text(json.dumps({"prefix": f"file://{directory}/virtual/"}))


def test_a_hostile_repository_reads_nothing_outside_of_the_allowed_prefix(mounted, tmp_path):
    directory = tmp_path / "hostile"
    allowed = directory / "virtual"
    allowed.mkdir(parents=True)
    (directory / "secret").write_bytes(b"secret")
    (directory / "virtualx").write_bytes(b"secret")
    (allowed / "good").write_bytes(b"good")
    (allowed / "link").symlink_to("../secret")
    (allowed / "absolute").symlink_to("/etc/passwd")
    urls = ["etc/passwd", f"{directory}/secret", f"{directory}/virtualx", f"{allowed}/../secret", f"{allowed}/%2e%2e/secret"]
    urls = [f"file:///{url.lstrip('/')}" for url in urls] + ["s3://bucket/secret", "http://127.0.0.1:1/secret"]
    links = [f"file://{allowed}/link", f"file://{allowed}/absolute"]
    write_virtual(directory, [(f"file://{allowed}/good", 0, None), *((url, 0, None) for url in urls + links)])
    with mounted(directory) as m:
        assert (m / "x/c/0").read_bytes() == b"good"
        for number, url in enumerate(urls, start=1):
            with pytest.raises(PermissionError):
                (m / f"x/c/{number}").read_bytes()
        for number in range(len(urls) + 1, len(urls) + len(links) + 1):
            with pytest.raises(OSError) as refused:
                (m / f"x/c/{number}").read_bytes()
            assert refused.value.errno == errno.EIO
        m.expect("the reference leads to ")
        m.expect("a symbolic link that leads out of the store")


def test_a_source_that_has_changed_is_not_read(mounted, tmp_path):
    directory = tmp_path / "stale"
    source = directory / "virtual/raw"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"0123456789")
    os.utime(source, (1_000_000, 1_000_000))
    stat = source.stat()
    tag = f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"
    moment = datetime.datetime.fromtimestamp(1_000_000, datetime.timezone.utc)
    url = f"file://{source}"
    write_virtual(directory, [(url, 0, moment), (url, 4, tag), (url, 2, None), (url, 8, None), (url, 0, '"d41d8cd98f00b204e9800998ecf8427e"')])
    with mounted(directory) as m:
        assert (m / "x/c/0").read_bytes() == b"0123"
        assert (m / "x/c/1").read_bytes() == b"4567"
        m.refused(errno.EIO, r"raw has 10 bytes; the reference is to 4 bytes from byte 8", (m / "x/c/3").read_bytes)
        m.refused(errno.EOPNOTSUPP, "needs the ETag .*, and the store there has no such tags", (m / "x/c/4").read_bytes)
    source.write_bytes(b"9876543210")
    with mounted(directory) as m:
        m.refused(errno.ESTALE, "has changed since the reference to it was made: it is [0-9]+ seconds newer", (m / "x/c/0").read_bytes)
        m.refused(errno.ESTALE, "has changed since the reference to it was made: its ETag is not ", (m / "x/c/1").read_bytes)
        assert (m / "x/c/2").read_bytes() == b"7654"
    source.unlink()
    with mounted(directory) as m:
        m.refused(errno.EIO, "raw, which does not exist", (m / "x/c/2").read_bytes)


def test_the_root_stays_at_its_snapshot_and_the_branch_follows(mounted, tmp_path):
    directory = tmp_path / "moving"
    directory.mkdir()
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(directory / "repo")))
    (directory / "states.json").write_text(json.dumps({"prefix": "file:///none/"}))

    def commit(number):
        session = repo.writable_session("main")
        root = zarr.open_group(session.store, mode="a")
        root.require_array("x", shape=(4,), chunks=(2,), dtype="i4")[...] = number
        return session.commit(f"{number}")

    commit(1)
    with mounted(directory, "", "--metadata-ttl", "50ms", allowed=False) as m:
        assert np.load(m / ".zarrfs/branches/main/x.npy").tolist() == [1] * 4
        for number in range(2, 6):
            snapshot = commit(number)
            time.sleep(0.2)
            assert np.load(m / ".zarrfs/branches/main/x.npy").tolist() == [number] * 4
            assert np.load(m / "x.npy").tolist() == [1] * 4
            assert any(name.endswith(snapshot) for name in os.listdir(m / ".zarrfs/snapshots"))
        assert zarr.open_array(m / "x", mode="r")[...].tolist() == [1] * 4


def two_tags(path):
    """The repository of docs/references.md."""
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    for number, tag in enumerate(("v1", "v2")):
        session = repo.writable_session("main")
        root = zarr.open_group(session.store, mode="a")
        sst = root.require_array("sst", shape=(4, 6), chunks=(2, 3), dtype="f4")
        sst[...] = np.arange(24, dtype="f4").reshape(4, 6)
        sst[3, 5] += 24 * number
        repo.create_tag(tag, snapshot_id=session.commit(tag))


def test_programs_compare_and_copy_states(mounted, repositories, tmp_path):
    directory = repositories(ALL[0])
    with mounted(directory) as m:
        diff = subprocess.run(["diff", "-rq", ".zarrfs/tags/v1", ".zarrfs/tags/v2.0"], cwd=m.path, capture_output=True, text=True)
        assert "Only in .zarrfs/tags/v1: gone" in diff.stdout and "Only in .zarrfs/tags/v2.0: late" in diff.stdout
        assert diff.stderr == ""
        subprocess.run(["cp", "-r", m / ".zarrfs/tags/v1", tmp_path / "copy.zarr"], check=True)
        want = zarr.open_group(m / ".zarrfs/tags/v1", mode="r")["a"][...]
        assert_same(zarr.open_group(tmp_path / "copy.zarr", mode="r")["a"][...], want)
        with pytest.raises(OSError) as refused:
            os.mkdir(m / "new")
        assert refused.value.errno == errno.EROFS
        for state in (".zarrfs/none", ".zarrfs/tags/none", ".zarrfs/snapshots/none", ".zarrfs/tags/v1/none"):
            assert not (m / state).exists()
    prefix = json.loads((directory / "states.json").read_text())["prefix"]
    states = [f"icechunk+{directory / 'repo'}@tag:{tag}" for tag in ("v1", "v2.0")]
    allow = ["--allow-virtual", f"{prefix}={directory / 'virtual'}"]
    done = subprocess.run([BIN, "diff", *states, *allow], capture_output=True, text=True)
    assert done.returncode == 1 and "late" in done.stdout and "scalar" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_a_damaged_file_is_an_error_and_no_end_of_the_mount(mounted, repositories, tmp_path, name):
    directory = tmp_path / name
    shutil.copytree(repositories(name), directory)
    manifests = sorted((directory / "repo/manifests").iterdir(), key=lambda path: path.stat().st_size)
    for number, manifest in enumerate(manifests):
        manifest.write_bytes(manifest.read_bytes()[:-9] if number % 2 else b"ICE")
    with mounted(directory) as m:
        m.allow("manifests/")
        failed = 0
        for chunk in ("a/c/0/0", "split/c/0/0", "virtual/c/0", "sharded/c/0/0", "scalar/c"):
            try:
                (m / ".zarrfs/tags/v1" / chunk).read_bytes()
            except OSError as error:
                failed += 1
                assert error.errno == errno.EIO
        assert failed == 5
        assert "manifests/" in m.errors()
        assert (m / "zarr.json").exists()
    main = json.loads((directory / "states.json").read_text())["names"]["branches/main"]
    snapshot = directory / "repo/snapshots" / main
    snapshot.write_bytes(snapshot.read_bytes()[:-20])
    done = subprocess.run([BIN, "info", f"icechunk+{directory / 'repo'}"], capture_output=True, text=True)
    assert done.returncode == 1 and f"snapshots/{main}: zstd: " in done.stderr
    snapshot.unlink()
    done = subprocess.run([BIN, "info", f"icechunk+{directory / 'repo'}"], capture_output=True, text=True)
    assert done.returncode == 1 and "this file of the Icechunk repository is missing" in done.stderr
