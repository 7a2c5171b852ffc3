"""Pictures of slices show what matplotlib reads from them: the colours of the values, the right way up."""

import subprocess

import numpy as np
import pytest
import zarr
from matplotlib import colormaps
from matplotlib.image import imread

from mounts import BIN


def cells_of(path, shape):
    """The colours in the middle of the cells of a picture, as positions in viridis; NaN for grey."""
    pixels = imread(path)[..., :3]
    dark = (pixels < 0.05).all(axis=2)
    # The frame of the cells is the longest black line of a row, and of a column.
    rows = np.flatnonzero(dark.sum(axis=1) > 0.4 * dark.sum(axis=1).max())
    columns = np.flatnonzero(dark.sum(axis=0) > 0.6 * dark.sum(axis=0).max())
    inner = pixels[rows[0] + 1 : rows[-1], columns[0] + 1 : columns[1]]
    height, width = inner.shape[:2]
    down = ((np.arange(shape[0]) + 0.5) * height / shape[0]).astype(int)
    across = ((np.arange(shape[1]) + 0.5) * width / shape[1]).astype(int)
    colors = inner[down][:, across]
    scale = colormaps["viridis"](np.linspace(0, 1, 1001))[:, :3]
    found = np.abs(colors[..., None, :] - scale).sum(axis=-1).argmin(axis=-1) / 1000
    is_grey = np.ptp(colors, axis=-1) < 0.01
    return np.where(is_grey, np.nan, found)


@pytest.mark.parametrize("version", [2, 3])
def test_a_picture_has_the_values_of_the_slice_with_north_at_the_top(tmp_path, version):
    lat, lon = np.linspace(-85, 85, 18), np.linspace(0, 350, 36)
    values = np.cos(np.radians(lat))[:, None] * 30 + np.sin(np.radians(lon)) * 5 + lat[:, None] / 20
    values[3:6, 10:20] = np.nan
    group = zarr.create_group(tmp_path / "s", zarr_format=version)
    names = {"dimension_names": ["lat", "lon"]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["lat", "lon"]}}
    group.create_array("t", data=values, chunks=(5, 7), **names)
    for name, coordinates, units in [("lat", lat, "degrees_north"), ("lon", lon, "degrees_east")]:
        own = {"dimension_names": [name]} if version == 3 else {}
        attributes = {"units": units} | ({} if version == 3 else {"_ARRAY_DIMENSIONS": [name]})
        group.create_array(name, data=coordinates, attributes=attributes, **own)
    picture = tmp_path / "t.png"
    printed = subprocess.run([BIN, "info", tmp_path / "s/t", "--plot", picture], check=True, capture_output=True, text=True)
    assert "all elements" in printed.stdout
    found, want = cells_of(picture, values.shape), values[::-1]
    want = (want - np.nanmin(want)) / (np.nanmax(want) - np.nanmin(want))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    assert np.nanmax(np.abs(found - want)) < 0.05


def test_a_picture_is_whole_or_as_it_was(tmp_path):
    array = zarr.create_array(tmp_path / "a", data=np.arange(6.0).reshape(2, 3), chunks=(1, 1))
    picture = tmp_path / "a.png"
    command = [BIN, "info", tmp_path / "a", "--plot", picture]
    subprocess.run(command, check=True, capture_output=True)
    before = picture.read_bytes()
    (tmp_path / "a/c/1/2").write_bytes(b"damaged")
    assert subprocess.run(command, capture_output=True).returncode == 1
    assert picture.read_bytes() == before
    array.resize((0, 3))
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "no elements" in refused.stderr
    assert sorted(at.name for at in tmp_path.iterdir()) == ["a", "a.png"]
