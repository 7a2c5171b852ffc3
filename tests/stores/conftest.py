"""A server of S3 with a proxy before it, and mounts of hierarchies there."""

import contextlib
import itertools
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

import servers  # noqa: E402
from mounts import Mount, until_end  # noqa: E402
from part import take_part  # noqa: E402
from proxy import running  # noqa: E402

numbers = itertools.count()


def pytest_configure(config):
    config.addinivalue_line("markers", "s3: what only S3 has, or says in this way")


def pytest_collection_modifyitems(config, items):
    take_part(config, items)
    for item in items:
        if item.get_closest_marker("s3") and servers.PROVIDER != "s3":
            item.add_marker(pytest.mark.skip(reason="of S3"))


@pytest.fixture
def proxy():
    """The proxy, without delay or faults at first."""
    with running(servers.SERVER) as made:
        yield made


@pytest.fixture
def prefix():
    """A prefix in the bucket that no other test uses."""
    return f"stores-{os.getpid()}-{next(numbers)}"


@pytest.fixture
def mount(proxy, prefix, tmp_path):
    """`with mount() as m:` mounts the hierarchy at the prefix through the proxy."""
    count = itertools.count()

    @contextlib.contextmanager
    def mounted(*options, below=""):
        store, path = tmp_path / "none", tmp_path / f"mnt{next(count)}"
        url = servers.url(f"{prefix}/{below}")
        with until_end(Mount(store, path, "--endpoint", servers.endpoint(proxy.url), *options, source=url)) as made:
            yield made

    return mounted
