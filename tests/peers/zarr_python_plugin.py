"""A pytest plugin for the suite of zarr-python itself: every store that its tests make is in one directory, which may be
a mount. `zarr_python_suite.py` runs it.

Stores in memory become stores in the directory too.
"""

import fnmatch
import itertools
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

import py.path
import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import pytest
import zarr.storage
import zarr.storage._common
from hypothesis import HealthCheck, Verbosity, settings
from zarr.storage import LocalStore, MemoryStore

from part import take_part

# Unique, so that what a run left that was killed is not in the way.
ROOT = Path(os.environ["ZARRFS_SUITE_DIR"], f"suite-{os.getpid()}")
DESELECTED = json.loads(Path(os.environ["ZARRFS_SUITE_DESELECTED"]).read_text())
OTHER_STORES = {"zip", "fsspec", "remote", "object_store", "memory_get_latency"}

numbers = itertools.count()
at = ROOT / "session"
matched = set()


class InDirectory(LocalStore):
    """What a test takes for a MemoryStore: each dictionary is a directory of its own."""

    directories = {}
    lock = threading.Lock()

    def __init__(self, store_dict=None, *, read_only=False, root=None):
        if root is None:
            store_dict = {} if store_dict is None else store_dict
            with self.lock:
                # The dictionary is kept, so that its identity stays its own.
                known = self.directories.setdefault(id(store_dict), (at / f"m{next(numbers)}", store_dict))
            root = known[0]
        super().__init__(root, read_only=read_only)

    @classmethod
    async def open(cls, store_dict=None, *, read_only=False):
        store = cls(store_dict, read_only=read_only)
        store.root.mkdir(parents=True, exist_ok=True)
        await store._open()
        return store

    def with_read_only(self, read_only=False):
        return type(self)(root=self.root, read_only=read_only)

    async def clear(self):
        self.root.mkdir(parents=True, exist_ok=True)
        await super().clear()


# Before zarr.testing and the tests import it.
zarr.storage.MemoryStore = zarr.storage._common.MemoryStore = InDirectory
import zarr.testing.stateful  # noqa: E402
from zarr.testing import strategies  # noqa: E402

# What is compared with.
zarr.testing.stateful.MemoryStore = MemoryStore


def without_zeros(**options):
    """Chunks have no sides of length 0, as the specification has it."""
    return shapes(**options).map(lambda shape: tuple(max(1, side) for side in shape))


def of_version_3(**options):
    return arrays(**{"zarr_formats": st.just(3), **options})


def numbers_alone():
    kinds = (npst.boolean_dtypes, npst.integer_dtypes, npst.unsigned_integer_dtypes)
    kinds += (npst.floating_dtypes, npst.complex_number_dtypes)
    return st.one_of(kind() if kind is npst.boolean_dtypes else kind(endianness="=") for kind in kinds)


# What hypothesis makes: arrays of version 3 without shards, of types that a mount takes.
shapes, arrays = strategies.chunk_shapes, strategies.arrays
strategies.chunk_shapes, strategies.arrays = without_zeros, of_version_3
strategies.shard_shapes = lambda **options: st.none()
strategies.v3_dtypes = strategies.dtypes = numbers_alone

examples = int(os.environ.get("ZARRFS_SUITE_EXAMPLES", "25"))
settings.register_profile(
    "zarrfs",
    max_examples=examples,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.normal,
)


def pytest_sessionstart():
    # After the suite's conftest.py has chosen its own, and before tests are imported.
    settings.load_profile("zarrfs")


@pytest.fixture(autouse=True)
def directory_of_the_test(request):
    """Made for each test, and removed after it: that fails where a file system does not let it."""
    global at
    at = ROOT / f"t{next(numbers)}"
    at.mkdir(parents=True)
    before = tempfile.tempdir, os.getcwd()
    if "store_like" in request.fixturenames:
        tempfile.tempdir = str(at)
    os.chdir(at)  # Some tests name a store by a relative path; no two processes may meet there.
    yield at
    tempfile.tempdir = before[0]
    os.chdir(before[1])
    InDirectory.directories.clear()
    shutil.rmtree(at)
    at = ROOT / "session"


@pytest.fixture
def tmp_path(directory_of_the_test):
    path = directory_of_the_test / "tmp"
    path.mkdir()
    return path


@pytest.fixture
def tmpdir(tmp_path):
    return py.path.local(tmp_path)


def stores_of(item):
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return [value for name, value in params.items() if name in ("store", "sync_store", "store_name") and isinstance(value, str)]


def reason_to_leave_out(item, with_local):
    params = item.callspec.params if hasattr(item, "callspec") else {}
    stores = stores_of(item)
    if any(store in OTHER_STORES for store in stores):
        return "another store"
    if "memory" in stores and item.originalname in with_local:
        return "another store"
    if params.get("zarr_format") == 2 or "zarr2" in item.name or "v2" in item.name.split("[")[-1].split("-"):
        return "Zarr 2"
    name = item.nodeid.removeprefix("tests/")
    for pattern in DESELECTED:
        # Brackets are what they are.
        if fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")):
            matched.add(pattern)
            return DESELECTED[pattern]
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    with_local = {item.originalname for item in items if "local" in stores_of(item)}
    kept, left = [], []
    for item in items:
        reason = reason_to_leave_out(item, with_local)
        (left if reason else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
    if os.environ.get("ZARRFS_SUITE_STRICT") and (stale := sorted(set(DESELECTED) - matched)):
        raise pytest.UsageError("no test has these names: " + ", ".join(stale))
    take_part(config, items, tests=3)


def pytest_sessionfinish(session):
    shutil.rmtree(ROOT, ignore_errors=True)
