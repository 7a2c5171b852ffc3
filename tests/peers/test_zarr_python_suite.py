"""zarr-python's own tests, run in a directory of a mount: what does not apply there is listed in zarr_python_suite.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mounts import files
from torture import LONG

SUITE = Path(__file__).with_name("zarr_python_suite.py")
# A quarter of the time, for thousands of assignments. The same tests with one dimension stay.
SLOW = [f"--deselect=tests/test_indexing.py::test_set_{name}" for name in (
    "orthogonal_selection_2d", "orthogonal_selection_3d", "block_selection_2d", "coordinate_selection_2d", "mask_selection_2d",
)]  # fmt: skip
# A name that the draft does not allow.
NOT_IN_THE_DRAFT = ["--draft", "--deselect=tests/test_tree.py::test_tree_html_escaping"]


@pytest.mark.parametrize(
    ("options", "arguments", "left"),
    [
        (["--codecs", "gzip", "--shards", "4K"], [], {"zarr.json", "suite/zarr.json"}),
        pytest.param(
            ["--format", "d2020-10", "--shards", "4K"],
            NOT_IN_THE_DRAFT,
            {"zarr.json", "meta/root.group.json", "meta/root/suite.group.json"},
            marks=pytest.mark.skipif(not LONG, reason="ZARRFS_LONG=1: it takes minutes"),
        ),
    ],
    ids=["v3", "d2020-10"],
)
def test_zarr_python_passes_its_own_tests_in_a_directory_of_a_mount(mount, tmp_path, options, arguments, left):
    with mount(tmp_path / "store", "--create", *options, copy=False) as m:
        m.allow("")  # Some of the tests do what is refused, and expect that.
        (m / "suite").mkdir()
        command = [sys.executable, str(SUITE), str(m / "suite"), *arguments, *([] if LONG else SLOW)]
        # A third of its time is one test that hypothesis makes examples for.
        env = {"ZARRFS_SUITE_EXAMPLES": "25" if LONG else "2", **os.environ}
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=env)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:] + m.errors()
    assert set(files(tmp_path / "store")) == left, "the tests remove what they make"
