"""Ctrl-C to commands while they decode a chunk that takes long."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mounts import BIN, PATIENCE, wait_until

LEN = 64 << 20
CASTS = 14

COMMANDS = {
    "check": (["check", "a"], 1, "interrupted"),
    "check --repair": (["check", "--repair", "a"], 1, "interrupted"),
    "diff": (["diff", "a", "a"], 2, "interrupted"),
    "check --repair --yes": (["check", "--repair", "--yes", "a"], 1, "interrupted"),
    "convert to zip": (["convert", "a", "b.zip", "--codecs", "zstd"], 1, "no archive was made"),
    "convert": (["convert", "a", "b", "--codecs", "zstd"], 1, "run the same command again to continue"),
}


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """An array with a chunk of 64 MiB that many codecs work on, element by element."""
    path = tmp_path_factory.mktemp("slow")
    cast = {"scalar_map": {"decode": [[1, 0]]}}
    casts = [{"data_type": name, **cast} for name in ["int8", "uint8"] * (CASTS // 2)]
    codecs = [{"name": "cast_value", "configuration": one} for one in casts]
    codecs += [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]
    grid = {"name": "regular", "configuration": {"chunk_shape": [LEN]}}
    array = {"zarr_format": 3, "node_type": "array", "shape": [LEN], "data_type": "uint8", "chunk_grid": grid}
    array |= {"chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": codecs}
    (path / "a/c").mkdir(parents=True)
    (path / "a/zarr.json").write_text(json.dumps(array))
    (path / "a/c/0").write_bytes(gzip.compress(bytes(LEN), 1))
    return path


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(directory, command, *pauses):
    """Sends Ctrl-C to a command that decodes, and again after each pause. Returns the exit code, what was said, and how long
    it took to end."""
    process = subprocess.Popen(
        [BIN, *command],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert wait_until(lambda: process.poll() is not None or processor_seconds(process.pid) > 0.4)
    assert process.poll() is None, "ended by itself: nothing was interrupted"
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    for pause in pauses:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
            break
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
    said = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, said, time.monotonic() - begun


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_does_not_wait_for_a_slow_chunk(name, slow, tmp_path):
    os.symlink(slow / "a", tmp_path / "a")
    command, code, sentence = COMMANDS[name]
    found, said, took = interrupted(tmp_path, command)
    # The chunk takes longer.
    assert found == code and sentence in said and took < 8, (found, said, took)
    assert len(said.splitlines()) == 1, said
    if name == "convert":
        assert (tmp_path / "b/.zarrfs/convert").exists(), "nothing tells that the copy is incomplete"
        assert not (tmp_path / "b/zarr.json").exists()
    else:
        assert os.listdir(tmp_path) == ["a"] and sorted(os.listdir(slow / "a")) == ["c", "zarr.json"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_ctrl_c_ends_every_command_at_once(name, slow, tmp_path):
    os.symlink(slow / "a", tmp_path / "a")
    command, code, _ = COMMANDS[name]
    # One that a busy machine delivers less than 250 ms after the first is none, and a second after it the command ends anyway.
    for _ in range(5):
        found, said, took = interrupted(tmp_path, command, 0.4, 0.3)
        if found != code:
            break
    assert found == 130 and "ended at once" in said and took < 3, (found, said, took)
    if name == "convert to zip":
        left = [entry for entry in os.listdir(tmp_path) if entry != "a"]
        assert len(left) == 1 and left[0] in said, (left, said)


def test_a_signal_that_comes_twice_is_one(slow, tmp_path):
    os.symlink(slow / "a", tmp_path / "a")
    # A busy machine may deliver them further apart.
    for _ in range(5):
        found, said, _ = interrupted(tmp_path, COMMANDS["check"][0], 0.02)
        if found != 130:
            break
    assert found == 1 and "ended at once" not in said, (found, said)
