"""The same elements, masks, types, names and attributes in every presentation of an array, for xarray and zarr-python.

Each case is an array of Zarr 3 with a stored chunk and a missing one, whose elements include the fill value, zeros of
both signs and NaN. It is converted to Zarr 2 and back, copied within a mount, copied out of one as Zarr 2, and its
chunk is written back unchanged. `xarray` opens each, with masks and without."""

import base64
import shutil
import struct
import subprocess
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr

from mounts import BIN

FLOATS = [0.0, -0.0, 5.0, -1.5, float("nan"), float("inf"), float("-inf")]
FILLS = {
    "f2": FLOATS,
    "f4": FLOATS,
    "f8": [*FLOATS, 1e300],
    "i1": [0, -1, 127],
    "i8": [0, 5, -(2**62)],
    "u2": [0, 65535],
    "bool": [False, True],
    "c8": [0j, 1 - 2j],
}
CASES = [
    (dtype, fill, masked, named)
    for dtype, fills in FILLS.items()
    for fill in fills
    for masked in ("nothing", "fill")
    for named in (True, False)
]


def coded(fill, dtype):
    """A fill value as the `_FillValue` of Zarr 3 (`FillValueCoder` of xarray)."""
    if dtype.kind == "f":
        return base64.b64encode(struct.pack("<d", float(fill))).decode()
    if dtype.kind == "c":
        return [base64.b64encode(struct.pack("<d", part)).decode() for part in (complex(fill).real, complex(fill).imag)]
    return bool(fill) if dtype.kind == "b" else int(fill)


def source(path, dtype, fill, masked, named):
    dtype = np.dtype(dtype)
    group = zarr.open_group(path, mode="w", zarr_format=3)
    attributes = {"title": "Ω", "long": 2**70, "list": [1, None, {"a": []}]}
    if masked == "fill":
        attributes["_FillValue"] = coded(fill, dtype)
    names = ["y", "x"] if named else None
    array = group.create_array(
        "a", shape=(2, 6), chunks=(1, 6), dtype=dtype, fill_value=dtype.type(fill), dimension_names=names,
        attributes=attributes, config={"write_empty_chunks": True},
    )
    row = np.array([0, 1, 2, 3, 0, 4]).astype(dtype)
    row[4] = fill
    if dtype.kind == "f":
        row[5] = np.nan
        row[3] = -0.0
    array[0] = row


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def seen(path, named):
    """What programs see of the array, as bytes where values may be NaN."""
    array = zarr.open_group(path, mode="r", use_consolidated=False)["a"]
    found = {"type": str(array.dtype), "shape": array.shape, "raw": array[:].tobytes()}
    attributes = dict(array.attrs)
    if named:
        for decoded in (False, True):
            data = xr.open_zarr(path, consolidated=False, mask_and_scale=decoded)["a"]
            found[decoded] = (data.dims, str(data.dtype), data.values.tobytes())
            attributes = dict(data.attrs)
    # xarray has the masked value there if it does not mask, and the forms of both versions differ.
    found["attributes"] = {name: value for name, value in attributes.items() if not name.startswith("_")}
    return found


@pytest.mark.parametrize(("dtype", "fill", "masked", "named"), CASES)
def test_every_presentation_has_the_same_values_and_masks(tmp_path, mount, dtype, fill, masked, named):
    warnings.simplefilter("ignore")
    path = tmp_path / "source.zarr"
    source(path, dtype, fill, masked, named)
    expected = seen(path, named)

    run(BIN, "convert", path, tmp_path / "v2.zarr", "--format", "v2", "--verify")
    assert seen(tmp_path / "v2.zarr", named) == expected, "convert to v2"
    run(BIN, "convert", tmp_path / "v2.zarr", tmp_path / "v3.zarr", "--format", "v3", "--verify")
    assert seen(tmp_path / "v3.zarr", named) == expected, "convert to v2 and back"

    with mount(path, "--as", "zarr2", copy=False) as m:
        assert seen(m.path, named) == expected, "shown as zarr2"
        shutil.copytree(m.path, tmp_path / "out.zarr")
    assert seen(tmp_path / "out.zarr", named) == expected, "copied out of zarr2"

    for presentation in ("zarr", "zarr2"):
        with mount(path, "--as", presentation, copy=False) as m:
            run("cp", "-r", m / "a", m / "copy")
            for chunk in [name for name in (m / "a").rglob("*") if name.is_file() and "z" not in name.name]:
                chunk.write_bytes(chunk.read_bytes())
        assert seen(path, named) == expected, f"written back through {presentation}"
        shutil.rmtree(path / "a")
        (path / "copy").rename(path / "a")
        assert seen(path, named) == expected, f"copied within {presentation}"
