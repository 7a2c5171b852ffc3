"""Test suites that others have written for file systems: those parts that take seconds. scripts/suites.sh runs all of them."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "suites"))

import expected  # noqa: E402
import places  # noqa: E402
import suites  # noqa: E402

OPERATIONS = 5000


def need(name):
    """scripts/test.sh installs the program, and says where it is."""
    if "ZARRFS_SUITES" not in os.environ:
        pytest.skip(f"{name} is not installed: run scripts/suites.sh {name}, and set ZARRFS_SUITES")
    suites.program(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="pjdfstest changes owners and users, so it needs root")
def test_ordinary_files_pass_all_tests_of_pjdfstest_but_those_listed(tmp_path):
    need("pjdfstest")
    # That of pytest is too long for the names of sockets.
    with tempfile.TemporaryDirectory() as work:
        for directory in Path(work).parents:
            # Other users must get to the mount.
            if not directory.stat().st_mode & 0o001:
                directory.chmod(directory.stat().st_mode | 0o011)
        with places.ordinary(work) as (_, directory):
            results = suites.pjdfstest(directory, tmp_path / "log")
    failed = {test: said for test, said in results.items() if said not in (suites.PASSED, suites.SKIPPED)}
    assert set(failed) == set(expected.read("pjdfstest")), failed


@pytest.mark.parametrize("codec", ["zstd", "sharded"])
def test_a_chunk_file_holds_what_fsx_has_written_at_random(tmp_path, codec):
    need("fsx")
    with places.chunk(tmp_path, codec) as (_, path):
        result = suites.fsx(path, tmp_path / "log", fixed=True, operations=OPERATIONS)
    assert result == suites.PASSED, (tmp_path / "log").read_text()[-4000:]
