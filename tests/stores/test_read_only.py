"""The read-only sources on servers: zip archives, Icechunk repositories and references of kerchunk. Their values, faults of
the server, and the disk cache."""

import contextlib
import errno
import itertools
import json
import os
import random
import subprocess
import zipfile
from pathlib import Path

import icechunk
import pytest
import test_faults
import test_fixtures
import web
import zarr
from hierarchies import arrays, assembled, assert_same
from test_faults import DATA, ONCE, RANGES, REFUSALS, STAYS, check_all, failures, is_range, strike_each

import servers
from mounts import BIN, Mount, MountFailed, until_end
from proxy import running

LONG = test_faults.LONG
KINDS = ["zip", "icechunk", "kerchunk"]


def make(store):
    """What `test_faults` reads."""
    root = zarr.open_group(store, mode="w")
    root.create_array("x", data=DATA, chunks=(1, 200, 300), shards=(3, 200, 300))
    root.create_array("y", data=DATA, chunks=(1, 200, 300))


def make_zip(directory):
    with zarr.storage.ZipStore(directory / "made.zip", mode="w") as store:
        make(store)
    return "", "made.zip"


def make_repository(directory):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(directory / "repo")))
    session = repository.writable_session("main")
    make(session.store)
    session.commit("made")
    return "icechunk+", "repo"


def make_references(directory):
    """References to parts of one file, and metadata files in the references."""
    make(zarr.storage.LocalStore(directory / "made.zarr"))
    refs, data = {}, b"before"
    for path in sorted((directory / "made.zarr").rglob("*")):
        if path.is_file():
            key, content = str(path.relative_to(directory / "made.zarr")), path.read_bytes()
            refs[key] = content.decode() if path.name == "zarr.json" else ["data.bin", len(data), len(content)]
            data += content
            path.unlink()
    (directory / "data.bin").write_bytes(data)
    (directory / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    return "kerchunk+", "refs.json"


MAKERS = dict(zip(KINDS, [make_zip, make_repository, make_references], strict=True))


@pytest.fixture
def mount(proxy, tmp_path):
    """`with mount(source) as m:` mounts a source through the proxy."""
    numbers = itertools.count()

    @contextlib.contextmanager
    def mounted(source, *options):
        path = tmp_path / f"mnt{next(numbers)}"
        options = ("--endpoint", servers.endpoint(proxy.url), *options)
        with until_end(Mount(tmp_path / "none", path, *options, source=source)) as m:
            m.expect("mounted read-only")
            yield m

    return mounted


@pytest.fixture
def made(request, mount, tmp_path):
    """`with made(*options) as m:` mounts what `make` has made, as a source of the kind of the test."""
    directory = tmp_path / "made"
    directory.mkdir()
    lead, name = MAKERS[request.param](directory)
    url = servers.upload(directory)
    return lambda *options: mount(f"{lead}{url}/{name}", *options)


each_kind = pytest.mark.parametrize("made", KINDS, indirect=True)


def of_each_kind(names, often):
    """Parameters `made` and `name`: in a normal run one name of `often` for each kind."""
    pairs = list(itertools.product(KINDS, names) if LONG else zip(KINDS, often, strict=True))
    return pytest.mark.parametrize("made, name", pairs, indirect=["made"])


@each_kind
def test_a_source_in_a_bucket_is_read(made):
    with made() as m:
        check_all(m)


# By turns, the archives are compressed or not.
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]


@pytest.mark.parametrize("case", test_fixtures.CASES if LONG else test_fixtures.CASES[::12])
def test_a_fixture_in_an_archive_in_a_bucket_is_its_truth(mount, tmp_path, case):
    directory = tmp_path / "source"
    directory.mkdir()
    store, method = test_fixtures.store_of(case), METHODS[test_fixtures.CASES.index(case) % 2]
    with zipfile.ZipFile(directory / "made.zip", "w", method) as archive:
        for path in sorted(store.rglob("*")):
            archive.write(path, path.relative_to(store))
    with mount(f"{servers.upload(directory)}/made.zip") as m:
        known = dict(test_fixtures.truths(case))
        assert set(known) <= set(arrays(m.path))
        for path, truth in known.items():
            assert_same(assembled(m / path), truth, path)


@of_each_kind(ONCE, ["another tag", "half of the body", "reset after half"])
def test_a_fault_that_passes_is_not_seen(proxy, made, name):
    strike_each(proxy, ONCE[name], lambda: test_faults.run(made), first=list(ONCE).index(name))


@of_each_kind(RANGES, ["another range", "a shorter range", "the whole value"])
def test_a_wrong_range_is_read_again(proxy, made, name):
    strike_each(proxy, RANGES[name], lambda: test_faults.run(made), is_range, list(RANGES).index(name))


@each_kind
@pytest.mark.parametrize("name", REFUSALS if LONG else ["403"])
@pytest.mark.parametrize("count", [1, 2, 3, 4] if LONG else [2])
def test_refusals_that_pass_are_errors_and_never_fill_values(proxy, made, name, count):
    def act():
        try:
            with made() as m:
                m.allow("the server answered 40[03]")
                assert set(failures(m, 30)) <= {errno.EACCES}
                check_all(m)
        except MountFailed as failed:
            assert "the server answered 40" in failed.said

    strike_each(proxy, REFUSALS[name], act, count=count)


@test_faults.only_long
@each_kind
@pytest.mark.parametrize("name", test_faults.SILENCES)
def test_a_silent_server_is_asked_again(proxy, made, name):
    struck = test_faults.strike(proxy, 2, test_faults.SILENCES[name])
    test_faults.run(made)
    assert struck


@of_each_kind(STAYS, ["403", "no answer", "500"])
def test_a_fault_that_stays_is_an_error_and_never_a_fill_value(proxy, made, name):
    test_faults.read_while_a_fault_stays(proxy, made, name)


@of_each_kind(STAYS, ["500", "403", "503"])
def test_a_mount_fails_or_works_while_a_fault_stays(proxy, made, name):
    test_faults.mount_while_a_fault_stays(proxy, made, name)


def damage(cache):
    """Changes a bit in each file of a cache."""
    numbers = random.Random(5)
    # The marks of the directory are no values.
    marks = ("tidying", "zarrfs-cache.txt", "CACHEDIR.TAG")
    files = [path for path in cache.rglob("*") if path.is_file() and path.name not in marks]
    for path in files:
        content = bytearray(path.read_bytes())
        if content:
            content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
            path.write_bytes(content)
    return len(files)


@each_kind
def test_a_later_mount_reads_from_the_disk_and_never_what_is_damaged(proxy, made, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        with made("--disk-cache", cache) as m:
            check_all(m)
    proxy.take()
    with made("--disk-cache", cache) as m:
        check_all(m)
        assert m.stats()["zarrfs_disk_cache_hits_total"] > 0
    requests = proxy.take()
    assert len(requests) <= 8, [f"{it.method} {it.path} {it.length}" for it in requests]
    assert sum(it.length for it in requests) < 20_000, [f"{it.path} {it.length}" for it in requests]
    for _ in range(10 if LONG else 2):
        assert damage(cache)
        with made("--disk-cache", cache) as m:
            check_all(m)


@pytest.mark.s3
def test_a_web_server_is_read_from_the_disk_and_never_what_is_damaged(tmp_path):
    cache, root = tmp_path / "cache", tmp_path / "web"
    root.mkdir()
    make(zarr.storage.LocalStore(root / "made.zarr"))
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    numbers = itertools.count()
    with web.serving("nginx-json", root) as server, running(server) as proxy:

        def read():
            mount = Mount(tmp_path / "none", tmp_path / f"mnt{next(numbers)}", "--disk-cache", cache, source=f"{proxy.url}/made.zarr")
            with until_end(mount) as m:
                m.expect("mounted read-only")
                check_all(m)

        read()
        read()
        proxy.take()
        read()
        requests = proxy.take()
        assert len(requests) <= 16, [f"{it.method} {it.path} {it.length}" for it in requests]
        assert sum(it.length for it in requests) < 20_000, [f"{it.path} {it.length}" for it in requests]
        for _ in range(10 if LONG else 2):
            assert damage(cache)
            read()


@pytest.mark.s3
def test_the_url_of_an_archive_or_of_references_may_have_a_query_and_escapes(tmp_path):
    """As signed URLs have. Every request gets the query."""
    root = tmp_path / "a b"
    root.mkdir()
    query = "token=x/y.z%3D"
    with web.serving("nginx-json", tmp_path) as server, running(server) as proxy:
        for number, (kind, maker) in enumerate(MAKERS.items()):
            lead, name = maker(root)
            if kind == "icechunk":
                name = "repo"
            else:
                path = root / name
                path = path.rename(path.with_name(f"with space {name}"))
                name = path.name.replace(" ", "%20")
            source = f"{lead}{proxy.url}/a%20b/{name}?{query}"
            proxy.take()
            with until_end(Mount(tmp_path / "none", tmp_path / f"mnt{number}", source=source)) as m:
                m.expect("mounted read-only")
                m.allow("the server does not list names")
                check_all(m)
                assert "token" not in m.log_file.read_text() + Path("/proc/self/mounts").read_text()
            requests = proxy.take()
            assert requests and all(it.path.endswith(f"?{query}") for it in requests), [it.path for it in requests]
        said = subprocess.run([BIN, "tree", f"kerchunk+{proxy.url}/none.json?{query}"], capture_output=True, text=True)
        assert said.returncode == 1 and "token" not in said.stderr, said.stderr
