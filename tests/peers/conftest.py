"""What every test has: mounts that end with it, and zarr-python 2 in a process of its own."""

import collections
import contextlib
import functools
import itertools
import os

import pytest

import layouts
import mounts
import servers
from confined import ControlGroup
from mounts import Mount, copy_of, until_end
from part import take_part
from torture import Bench
from zarr2 import Zarr2


# Modules whose tests take minutes each. They come first, so that no worker ends long after the others.
LONGEST = ["test_zarr_python_suite", "test_icechunk", "test_anndata"]


def pytest_collection_modifyitems(config, items):
    take_part(config, items)

    def order(item):
        name = item.module.__name__.rpartition(".")[2]
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=order)


class Figures:
    """What a test has done how often, and the most of something that it has needed: `pytest_terminal_summary` adds up
    those of all tests."""

    def __init__(self):
        self.counts, self.most = collections.Counter(), collections.Counter()

    def __call__(self, what, number=1):
        self.counts[what] += number

    def at_most(self, what, number):
        self.most[what] = max(self.most[what], number)


@pytest.fixture
def tried(record_property):
    """`tried("kills")` counts one more."""
    figures = Figures()
    yield figures
    for what, number in figures.counts.items():
        record_property("tried", [what, number])
    for what, number in figures.most.items():
        record_property("most", [what, number])


def pytest_terminal_summary(terminalreporter):
    """With ZARRFS_FIGURES, a line for each thing that was tried: how often, and how many tests have failed in it."""
    if not os.environ.get("ZARRFS_FIGURES"):
        return
    reports = [report for kind in terminalreporter.stats.values() for report in kind if hasattr(report, "failed")]
    failed = {report.nodeid for report in reports if report.failed}
    totals, violations, most = (collections.Counter() for _ in range(3))
    for report in reports:
        for name, (what, number) in report.user_properties if report.when == "teardown" else ():
            if name == "most":
                most[what] = max(most[what], number)
            else:
                totals[what] += number
                violations[what] += report.nodeid in failed
    for what, number in totals.items():
        terminalreporter.write_line(f"tried {number:6} {what}; tests that failed: {violations[what]}")
    for what, number in most.items():
        terminalreporter.write_line(f"at most {number} {what}")


@pytest.fixture
def mount(tmp_path):
    """`with mount(store) as m:` mounts a copy of `store` (or, with `copy=False`, itself), or a `source` in it."""
    numbers = itertools.count()

    @contextlib.contextmanager
    def mounted(store, *options, copy=True, source=None):
        number = next(numbers)
        if copy:
            store = copy_of(store, tmp_path / f"store{number}")
        url = servers.upload(store) if servers.SERVER or servers.WEB else None
        with until_end(Mount(store, tmp_path / f"mnt{number}", *options, url=url, source=source)) as made:
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


@pytest.fixture
def group():
    """Little memory, for zarrfs where `group.wrapper` is the program."""
    made = ControlGroup()
    yield made
    made.end()


@pytest.fixture
def confined(group, tmp_path, monkeypatch):
    """All mounts of the test are in `group`."""
    monkeypatch.setattr(mounts, "BIN", group.wrapper(tmp_path))
    return group


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
