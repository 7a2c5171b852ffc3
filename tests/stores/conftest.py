"""A server of S3 with a proxy before it, and mounts of hierarchies there."""

import asyncio
import contextlib
import itertools
import os
import sys
import threading
from pathlib import Path
from urllib.parse import urlparse

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

import servers  # noqa: E402
from mounts import Mount, until_end  # noqa: E402
from proxy import Proxy  # noqa: E402

numbers = itertools.count()


@pytest.fixture
def proxy():
    """The proxy, without delay or faults at first."""
    url = urlparse(servers.SERVER)
    made = Proxy(("127.0.0.1", 0), (url.hostname, url.port))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(10)
    yield made
    asyncio.run_coroutine_threadsafe(made.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


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
        url = f"s3://{servers.BUCKET}/{prefix}/{below}".rstrip("/")
        with until_end(Mount(store, path, "--endpoint", proxy.url, *options, source=url)) as made:
            yield made

    return mounted
