"""What every test has: mounts that end with it, and zarr-python 2 in a process of its own."""

import contextlib
import functools
import itertools

import pytest

import layouts
import servers
from mounts import Mount, copy_of, until_end
from torture import Bench
from zarr2 import Zarr2


# Modules whose tests take minutes each. They come first, so that no worker ends long after the others.
LONGEST = ["test_zarr_python_suite", "test_icechunk", "test_anndata"]


def pytest_collection_modifyitems(items):
    def order(item):
        name = item.module.__name__.rpartition(".")[2]
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=order)


@pytest.fixture
def mount(tmp_path):
    """`with mount(store) as m:` mounts a copy of `store` (or, with `copy=False`, itself)."""
    numbers = itertools.count()

    @contextlib.contextmanager
    def mounted(store, *options, copy=True):
        number = next(numbers)
        if copy:
            store = copy_of(store, tmp_path / f"store{number}")
        url = servers.upload(store) if servers.SERVER or servers.WEB else None
        with until_end(Mount(store, tmp_path / f"mnt{number}", *options, url=url)) as made:
            yield made

    return mounted


@pytest.fixture
def new(mount, tmp_path):
    """`with new(dialect, *options) as m:` mounts an empty store of a dialect."""

    def made(dialect, *options):
        return mount(tmp_path / "store", "--create", "--format", dialect, *options, copy=False)

    return made


@pytest.fixture
def bench(tmp_path, zarr2):
    """`bench(kind)` is a store of records with what happens to it; its mounts and writers end with the test."""
    with contextlib.ExitStack() as stack:

        def made(kind, **options):
            made = Bench(tmp_path, kind, zarr2, **options)
            stack.callback(made.close)
            return made

        yield made


@pytest.fixture(scope="session")
def zarr2():
    """zarr-python 2.18 with its experimental v3 switch."""
    peer = Zarr2()
    yield peer
    peer.end()


@pytest.fixture(scope="session")
def hierarchy(tmp_path_factory, zarr2):
    """A hierarchy of a layout, made once."""

    @functools.cache
    def made(dialect, name):
        store = tmp_path_factory.mktemp("made") / f"{dialect}-{name}"
        layouts.make(store, dialect, name, zarr2)
        return store

    return made
