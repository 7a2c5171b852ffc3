"""imagecodecs and zfpy read what zarrfs wrote with their codecs."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr

from hierarchies import assert_same

PYTHON = os.environ.get("ZARRFS_IMAGECODECS")
HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
CASES = sorted(path.name for pattern in ("ic2026v*", "nc017v*") for path in FIXTURES.glob(pattern))
# The codecs that lose something, by the beginning of the name of an array.
LOSSY = ("quantize", "float24", "bfloat16", "rate", "precision", "accuracy")
# Those that zarrfs does not write.
READ_ONLY = ("quantize_modebitgroom", "quantize_modegranularbr")


@pytest.mark.skipif(not PYTHON, reason="ZARRFS_IMAGECODECS is no Python with requirements-imagecodecs.txt")
@pytest.mark.parametrize("case", CASES)
def test_a_library_reads_what_zarrfs_wrote_with_its_codecs(mount, case, tmp_path):
    with mount(FIXTURES / case / "store") as m:
        store, written = m.store, {}
        for name, _ in zarr.open_group(m.path, mode="r").arrays():
            if name.startswith(READ_ONLY):
                continue
            array = zarr.open_array(m / name, mode="r+")
            written[name] = np.flip(array[...])
            array[...] = written[name]
    assert len(written) > 15
    with mount(store, copy=False) as m:
        again = {name: zarr.open_array(m / name, mode="r")[...] for name in written}
    result = tmp_path / "result.npz"
    subprocess.run([PYTHON, HERE / "imagecodecs_reader.py", store, result], check=True, timeout=120)
    with np.load(result) as read:
        for name, values in written.items():
            assert_same(read[name], again[name], name)
            if name.startswith(LOSSY):
                # zfp rounds the elements of a block by the largest of them.
                most = 1.1 + np.abs(values).max() / 100
                np.testing.assert_allclose(read[name], values, rtol=0.1, atol=most, err_msg=name)
            else:
                np.testing.assert_array_equal(read[name], values, name)
