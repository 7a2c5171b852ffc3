"""Programs that read and write what takes much memory, at a time and in 256 MiB: the daemon lives, and the healthy array beside is read."""

import subprocess

import pytest

import hostile
import mounts
from mounts import is_alive


@pytest.fixture
def mount_in_little_memory(mount, group, tmp_path, tried, monkeypatch):
    """Returns a function that lets programs, each a command of a shell, work at a time in a mount with little memory."""

    def work(store, programs, *allowed):
        with monkeypatch.context() as patched:
            patched.setattr(mounts, "BIN", group.wrapper(tmp_path))
            with mount(store, copy=False) as m:
                m.allow("symbolic link", *allowed)
                begun = [subprocess.Popen(["sh", "-c", program], cwd=m.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for program in programs]
                said = [program.communicate()[0].decode() for program in begun]
                assert is_alive(m.pid) and (m / "good/c/0").read_bytes() == b"sibling!"
                group.check(m, tried)
                return said

    return work


def test_views_of_chunks_of_one_byte_are_read_in_little_memory(mount_in_little_memory, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    hostile.node(store / "bytes", hostile.array((2,) * 24, (1,) * 24))
    said = mount_in_little_memory(store, [f"head -c 300000 bytes.{view} | wc -c" for view in ("npy", "raw", "nc", "nc4")])
    assert [int(count) for count in said] == [300_000] * 4
