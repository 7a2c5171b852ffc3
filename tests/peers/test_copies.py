"""The mounted tree is a hierarchy by itself: copied out, it is read by zarr-python 3."""

import subprocess

import pytest

from hierarchies import assert_same, read_zarr
from test_fixtures import CASES, can_read, store_of, truths


@pytest.mark.parametrize("case", CASES)
def test_what_cp_copies_out_of_the_mount_opens_with_equal_values(mount, tmp_path, case):
    copy = tmp_path / "copy.zarr"
    with mount(store_of(case)) as m:
        subprocess.run(["cp", "-r", str(m.path), str(copy)], check=True, capture_output=True)
    for path, truth in truths(case):
        if can_read("zarr-python", copy / path):
            assert_same(read_zarr(copy, path), truth, path)
    assert not (copy / ".zarrfs").exists()
