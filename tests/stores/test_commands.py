"""Commands on URLs."""

import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr

import servers
from mounts import BIN, files, wait_until
from proxy import Fault

FIXTURES = Path(__file__).parents[1] / "fixtures"


def zarrfs(*arguments, **environment):
    """Runs a command: its exit code, what it printed, and its sentence."""
    done = subprocess.run(
        [BIN, *map(str, arguments)],
        capture_output=True,
        encoding="latin-1",
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("case", ["z316__shard_nested", "z218v2__consolidated", "ts__v2"])
def test_a_conversion_from_a_url_is_that_of_the_directory(tmp_path, case):
    store = FIXTURES / case / "store"
    for source, dest in [(servers.upload(store), "a"), (store, "b")]:
        code, _, said = zarrfs("convert", source, tmp_path / dest, "--codecs", "gzip")
        assert code == 0, said
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize("case", ["z316__shard_nested", "z218v2__consolidated", "ts__v2"])
@pytest.mark.parametrize("options", [("--codecs", "gzip"), ("--shards", "16K")])
def test_a_conversion_to_a_url_is_that_to_a_directory(tmp_path, case, options, prefix):
    store = FIXTURES / case / "store"
    url = servers.url(prefix)
    for dest in [url, tmp_path / "here"]:
        code, _, said = zarrfs("convert", store, dest, *options)
        assert code == 0, said
    (tmp_path / "there").mkdir()
    servers.download(url, tmp_path / "there")
    assert files(tmp_path / "there") == files(tmp_path / "here")
    code, _, said = zarrfs("convert", store, url)
    assert code == 1 and "neither empty nor an unfinished conversion" in said
    code, _, said = zarrfs("convert", url, f"{url}/below")
    assert code == 1 and "into itself" in said


def part(path, begin, count):
    """A hierarchy with some times of an array."""
    root = zarr.open_group(path, mode="w")
    times = np.arange(begin, begin + count)
    root.create_array("time", data=times, dimension_names=["time"])
    root.create_array("x", data=times[:, None] * np.arange(7), chunks=(3, 4), dimension_names=["time", "y"])
    return path


@pytest.mark.parametrize("options", [(), ("--chunks", "5,2", "--shards", "10,4", "--codecs", "zstd")])
def test_an_import_into_a_url_is_that_into_a_directory(tmp_path, prefix, options):
    parts = [part(tmp_path / f"{begin}.zarr", begin, 8) for begin in (0, 8, 16)]
    url = servers.url(f"{prefix}/a.zarr")
    for dest in [url, tmp_path / "here"]:
        code, _, said = zarrfs("import", *parts[:2], dest, "--append-dim", "time", *options)
        assert code == 0, said
        code, _, said = zarrfs("import", servers.upload(parts[2]), dest, "--append-dim", "time", "--verify")
        assert code == 0, said
        code, _, said = zarrfs("import", parts[2], dest, "--append-dim", "time")
        assert code == 1 and "was appended before" in said
    (tmp_path / "there").mkdir()
    servers.download(url, tmp_path / "there")
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert np.array_equal(zarr.open_group(tmp_path / "there")["x"][:], np.arange(24)[:, None] * np.arange(7))


def test_an_import_into_a_new_url_that_is_killed_goes_on(tmp_path, prefix):
    source = part(tmp_path / "a.zarr", 0, 300)
    url = servers.url(f"{prefix}/a.zarr")
    command = ["import", source, url, "--append-dim", "time", "--chunks", "1,7"]
    process = subprocess.Popen([BIN, *map(str, command)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    client = servers.client(prefix)
    assert wait_until(lambda: any(page for page in client.list()) or process.poll() is not None)
    process.kill()
    process.wait()
    code, _, said = zarrfs(*command)
    assert code == 0 or process.returncode == 0, said
    (tmp_path / "there").mkdir()
    servers.download(url, tmp_path / "there")
    assert np.array_equal(zarr.open_group(tmp_path / "there")["time"][:], np.arange(300))


def test_a_file_at_a_url_is_a_hierarchy(tmp_path):
    (tmp_path / "files").mkdir()
    values = np.arange(6000).reshape(60, 100)
    np.savez(tmp_path / "files/some.npz", values=values)
    url = f"{servers.upload(tmp_path / 'files')}/some.npz"
    code, said, _ = zarrfs("cat", f"{url}#values", "--as", "npy")
    assert code == 0 and said == zarrfs("cat", f"{tmp_path}/files/some.npz#values", "--as", "npy")[1]
    code, _, said = zarrfs("import", url, tmp_path / "new.zarr")
    assert code == 0, said
    assert np.array_equal(zarr.open_group(tmp_path / "new.zarr")["values"][:], values)


def test_nodes_are_created_at_urls(tmp_path, prefix):
    url = servers.url(f"{prefix}/new.zarr")
    for name in ["a/b", "c"]:
        for root in [url, tmp_path / "new.zarr"]:
            code, _, said = zarrfs("create", f"{root}/{name}", "--shape", "10,20", "--dtype", "float32", "--shards", "1K")
            assert code == 0, said
    (tmp_path / "there").mkdir()
    servers.download(url, tmp_path / "there")
    assert files(tmp_path / "there") == files(tmp_path / "new.zarr")
    code, _, said = zarrfs("create", f"{url}/a/b", "--shape", "3", "--dtype", "int8")
    assert code == 1 and "already exists" in said


def test_tree_info_and_cat_read_urls(tmp_path):
    store = FIXTURES / "ts__v2/store"
    url = servers.upload(store)
    for command in ["tree", "info"]:
        here, there = zarrfs(command, store), zarrfs(command, url)
        assert here[0] == there[0] == 0, there[2]
        assert there[1].splitlines()[1:] == here[1].splitlines()[1:]
    assert zarrfs("cat", f"{url}/gzip", "--as", "npy") == zarrfs("cat", store / "gzip", "--as", "npy")


@pytest.mark.s3
def test_a_sentence_says_what_is_missing(tmp_path):
    empty = {"AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "", "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    code, _, said = zarrfs("tree", "s3://bucket/a.zarr", **empty)
    assert code == 1 and "no credentials: set AWS_ACCESS_KEY_ID" in said
    code, _, said = zarrfs("tree", "s3://no-such-bucket/a.zarr")
    assert code == 1 and "NoSuchBucket" in said
    code, _, said = zarrfs("tree", servers.url("no-such-prefix"))
    assert code == 1 and "nothing is stored there" in said
    code, _, said = zarrfs("tree", "s3:///a.zarr")
    assert code == 1 and "names no bucket" in said


@pytest.mark.s3
def test_credentials_come_from_a_program_that_a_profile_names(tmp_path):
    config = tmp_path / "config"
    keys = '{"Version": 1, "AccessKeyId": "any", "SecretAccessKey": "any"}'
    (tmp_path / "keys").write_text(keys)
    config.write_text(f"[profile x]\ncredential_process = cat {tmp_path}/keys\n")
    environment = {"AWS_CONFIG_FILE": str(config), "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    url = servers.upload(FIXTURES / "z316__root_array/store")
    code, printed, said = zarrfs("tree", url, "--profile", "x", **environment)
    assert code == 0 and printed.startswith(url), said
    (tmp_path / "keys").write_text("{}")
    code, _, said = zarrfs("tree", url, "--profile", "x", **environment)
    assert code == 1 and "credential_process: it printed no AccessKeyId" in said


@pytest.mark.s3
def test_unfinished_uploads_are_listed_and_old_ones_ended(proxy, mount, prefix):
    data = os.urandom(100 << 20)
    url = servers.url(prefix)
    assert zarrfs("uploads", url) == (0, "", "")
    code, _, said = zarrfs("create", f"{url}/x", "--shape", len(data), "--dtype", "uint8", "--chunks", len(data), "--codecs", "none")
    assert code == 0, said
    # The third part is never stored: the mount is killed meanwhile.
    proxy.faults = [Fault(lambda it: it.method == "PUT" and "partNumber=3" in it.path, silent=True)]
    with mount(below="x") as m:
        (m / "c").mkdir()
        with subprocess.Popen(["dd", f"of={m / 'c/0'}", "bs=1M", "status=none"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as writing:
            writing.stdin.write(data)
            writing.stdin.close()
            assert wait_until(lambda: any("partNumber=3" in it.path for it in proxy.requests))
            os.kill(m.pid, signal.SIGKILL)
        m.allow(".*")
    code, said, _ = zarrfs("uploads", url)
    assert code == 0 and re.fullmatch(rf"unfinished  \S+Z  {url}/x/c/0\n", said), said
    assert zarrfs("uploads", url, "--end") == (0, said, "")
    assert zarrfs("uploads", url, "--end", "--older-than", "0s") == (0, said.replace("unfinished", "ended"), "")
    assert zarrfs("uploads", url) == (0, "", "")
