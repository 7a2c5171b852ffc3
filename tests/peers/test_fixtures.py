"""Every hierarchy that another program wrote, read through the mount by three readers."""

import errno
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr

from hierarchies import NARROW, arrays, assembled, assert_same, chunk_files, document, dtype_of, lengths_of
from hierarchies import name_of, read_ts, read_zarr
from mounts import MountFailed

FIXTURES = Path(__file__).parents[1] / "fixtures"
ALL = {path.parent.name: json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*/case.json"))}
CASES = [case for case in ALL if "reject" not in case]

# What a reader of the mounted tree does not know, which is no fault of the tree: names of data types.
UNKNOWN = {
    # zarr-python reads the registered name of structures from 3.2 on.
    "zarr-python": f"{NARROW}|struct" if zarr.__version__.startswith("3.1.") else NARROW,
    "tensorstore": r"numpy\..*|null_terminated_bytes|fixed_length_utf32|struct(ured)?|string|variable_length_bytes",
}

# Cases that must be refused: by mount itself, or when a chunk is opened or read.
REJECTED = {
    "reject_entry_major_4": ("mount", r"zarr\.json: version 4\.0 of the Zarr core protocol is not supported"),
    "reject_entry_must_understand": ("mount", r'extension "http://example\.org/x" is not supported'),
    "reject_crc32c_bad": (errno.EIO, r"c/0/0: crc32c: checksum 0x\w+ stored, 0x\w+ computed"),
    "reject_short_chunk": (errno.EIO, r"c/0/0: 47 bytes decoded, the chunk needs 48"),
    "reject_dtype": (errno.EOPNOTSUPP, r'zarr\.json: data type "int33" is not known'),
    "reject_grid": (errno.EOPNOTSUPP, r'zarr\.json: chunk grid "hexagonal" is not known'),
    "reject_unknown_codec": (errno.EOPNOTSUPP, r'c/0/0: codec "example\.codec" is not known'),
    "reject_unknown_member": (errno.EOPNOTSUPP, r'zarr\.json: unknown member "surprise"'),
}


def truths(case):
    """The decoded arrays of a case by their path, the root's being empty."""
    for path, about in ALL[case]["arrays"].items():
        yield path.strip("/"), np.load(FIXTURES / case / about["file"], allow_pickle=False)


def can_read(reader, array):
    """Whether a reader knows the data type and the grid of the array in a directory."""
    shown = document(array)
    is_known = not re.fullmatch(UNKNOWN[reader], name_of(shown["data_type"])[0])
    return is_known and shown["chunk_grid"]["name"] == "regular"


def store_of(case):
    return FIXTURES / case / "store"


@pytest.mark.parametrize("case", CASES)
def test_chunk_files_put_together_are_the_decoded_truth(mount, case):
    with mount(store_of(case)) as m:
        known = dict(truths(case))
        assert set(known) <= set(arrays(m.path))
        for path, truth in known.items():
            assert_same(assembled(m / path), truth, path)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reader, read", [("zarr-python", read_zarr), ("tensorstore", read_ts)])
def test_libraries_read_the_same_values_from_the_mount(mount, case, reader, read):
    with mount(store_of(case)) as m:
        for path, truth in truths(case):
            name = name_of(document(m / path)["data_type"])[0]
            if not can_read(reader, m / path):
                with pytest.raises(Exception):
                    read(m.path, path)
            elif (reader, name) == ("tensorstore", "raw_bytes"):
                # It has them along a dimension more, in a type of no length that numpy reads nothing of.
                assert read(m.path, path).shape == (*truth.shape, truth.itemsize)
            else:
                assert_same(read(m.path, path), truth, path)


@pytest.mark.parametrize("case", [case for case in CASES if "groups" in ALL[case]])
def test_groups_are_directories_with_a_document(mount, case):
    with mount(store_of(case)) as m:
        about = ALL[case]
        for path in [*about["groups"], *about.get("implicit_groups", [])]:
            directory = m / path.strip("/")
            assert document(directory)["node_type"] == "group", path
            name = path.strip("/").rsplit("/", 1)[-1]
            assert not name or name in os.listdir(directory.parent), f"{path} is not listed"


@pytest.mark.parametrize("case", CASES)
def test_sizes_are_decoded_and_blocks_are_stored(mount, case):
    with mount(store_of(case)) as m:
        for path, _ in truths(case):
            described = document(m / path)
            dtype, lens = dtype_of(described["data_type"]), lengths_of(described)
            for coords, chunk in chunk_files(m / path).items():
                stat = chunk.stat()
                assert stat.st_size == len(chunk.read_bytes())
                if dtype.kind != "O":
                    count = int(np.prod([each[i] for i, each in zip(coords, lens)]))
                    assert stat.st_size == count * dtype.itemsize
                stored = int(os.getxattr(chunk, "user.zarr.stored_size"))
                assert stat.st_blocks == max(-(-stored // 512), 1), f"{chunk}: {stored} bytes stored"
                if b"shard" not in os.getxattr(m / path, "user.zarr.codecs"):
                    key = os.getxattr(chunk, "user.zarr.key").decode()
                    assert stored == (m.store / key).stat().st_size


def test_du_says_what_the_data_costs_and_with_apparent_size_what_it_holds(mount, tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(4, 65536), chunks=(1, 65536), dtype="i4")
    array[...] = 7

    def du(*options):
        run = subprocess.run(["du", "-s", "-B1", *options, str(m / "c")], capture_output=True, text=True, check=True)
        return int(run.stdout.split()[0])

    with mount(tmp_path / "x.zarr") as m:
        assert du("--apparent-size") >= 4 * 65536 * 4
        directories = sum(path.stat().st_blocks * 512 for path in [m / "c", *(m / "c").iterdir()])
        assert du() <= 4 * 1024 + directories


@pytest.mark.parametrize("case", REJECTED)
def test_a_case_that_must_be_rejected_is_refused_with_the_reason(mount, case):
    where, sentence = REJECTED[case]
    store = store_of(f"synth__{case}")
    if where == "mount":
        with pytest.raises(MountFailed) as failed, mount(store):
            pass
        assert failed.value.code == 1 and re.search(sentence, failed.value.said), failed.value.said
        assert failed.value.said.count("\n") == 1, "one sentence: " + failed.value.said
    else:
        with mount(store) as m:
            assert document(m.path)["node_type"] == "array"
            m.refused(where, sentence, (m / "c/0/0").read_bytes)


def test_every_rejected_case_is_in_the_table():
    assert {f"synth__{case}" for case in REJECTED} == {case for case in ALL if "reject" in case}
