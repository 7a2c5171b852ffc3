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

from hierarchies import arrays, assembled, assert_same, chunk_files, document, dtype_of
from hierarchies import read_ts, read_zarr
from mounts import MountFailed

FIXTURES = Path(__file__).parents[1] / "fixtures"
ALL = {path.parent.name: json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*/case.json"))}
# What these need is not built yet.
LATER = {
    "z218v3__filters_in_attributes": "filters in the attributes of a draft",
}
LATER_ARRAYS = {("z316__fills", "/M8_nat"): "numpy.datetime64, an extension type"}
LATER_WARNING = 'data type "numpy.datetime64" is not known'
CASES = [case for case in ALL if "reject" not in case and case not in LATER]

# What a reader of the mounted tree cannot read, which is no fault of the tree: (reader, case, path) and why.
EXCEPTIONS = {
    ("zarr-python", "synth__2020-10_corners", "raw24"): "zarr-python 3.1 has no r24",
    ("tensorstore", "synth__2020-10_corners", "raw24"): "tensorstore has no r24",
}

# Cases that must be refused: by mount itself, or when a chunk is opened or read.
REJECTED = {
    "reject_entry_major_4": ("mount", r"zarr\.json: version 4\.0 of the Zarr core protocol is not supported"),
    "reject_entry_must_understand": ("mount", r'extension "http://example\.org/x" must be understood'),
    "reject_crc32c_bad": (errno.EIO, r"c/0/0: crc32c: checksum 0x\w+ stored, 0x\w+ computed"),
    "reject_short_chunk": (errno.EIO, r"c/0/0: 47 bytes decoded, the chunk needs 48"),
    "reject_dtype": (errno.EOPNOTSUPP, r'zarr\.json: data type "int33" is not known'),
    "reject_grid": (errno.EOPNOTSUPP, r'zarr\.json: chunk grid "hexagonal" is not known'),
    "reject_unknown_codec": (errno.EOPNOTSUPP, r'c/0/0: codec "example\.codec" is not known'),
    "reject_unknown_member": (errno.EOPNOTSUPP, r'zarr\.json: member "surprise" is not known'),
}


def truths(case):
    """The decoded arrays of a case by their path, the root's being empty."""
    for path, about in ALL[case]["arrays"].items():
        if (case, path) in LATER_ARRAYS:
            continue
        yield path.strip("/"), np.load(FIXTURES / case / about["file"], allow_pickle=False)


def store_of(case):
    return FIXTURES / case / "store"


@pytest.mark.parametrize("case", CASES)
def test_chunk_files_put_together_are_the_decoded_truth(mount, case):
    with mount(store_of(case)) as m:
        m.allow(LATER_WARNING)
        known = dict(truths(case))
        assert set(known) <= set(arrays(m.path))
        for path, truth in known.items():
            assert_same(assembled(m / path), truth, path)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reader, read", [("zarr-python", read_zarr), ("tensorstore", read_ts)])
def test_libraries_read_the_same_values_from_the_mount(mount, case, reader, read):
    with mount(store_of(case)) as m:
        for path, truth in truths(case):
            if (reader, case, path) not in EXCEPTIONS:
                assert_same(read(m.path, path), truth, path)


@pytest.mark.parametrize("reader, case, path", EXCEPTIONS)
def test_an_exception_is_one_still(mount, reader, case, path):
    with mount(store_of(case)) as m, pytest.raises(Exception):
        {"zarr-python": read_zarr, "tensorstore": read_ts}[reader](m.path, path)


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
            chunk_shape = described["chunk_grid"]["configuration"]["chunk_shape"]
            item = dtype_of(described["data_type"]).itemsize
            for chunk in chunk_files(m / path).values():
                stat = chunk.stat()
                assert stat.st_size == int(np.prod(chunk_shape)) * item == len(chunk.read_bytes())
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
        assert du() <= 4 * 1024


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
