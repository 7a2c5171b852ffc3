"""`zarrfs cat --region` in every format, against NumPy's slices of the whole array."""

import io
import subprocess

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from hierarchies import assert_same
from views import ZARRFS

RNG = np.random.default_rng(30)
VALUES = RNG.integers(-1000, 1000, (20, 30, 17)).astype("i4")
REGIONS = [
    ("0:10,:,5", np.s_[0:10, :, 5]),
    (":", np.s_[:]),
    ("3", np.s_[3]),
    ("-1,2:9", np.s_[-1, 2:9]),
    ("-5:,-7:-2,:", np.s_[-5:, -7:-2, :]),
    ("[19:20, 29, 16]", np.s_[19:20, 29, 16]),
    ("4,5,6", np.s_[4, 5, 6]),
]


def region(path, format, text):
    done = subprocess.run([ZARRFS, "cat", path, "--as", format, f"--region={text}"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    path = tmp_path_factory.mktemp("region") / "s.zarr"
    root = zarr.create_group(path)
    options = dict(chunks=(6, 7, 5), fill_value=-3)
    plain = root.create_array("x", shape=VALUES.shape, dtype="i4", **options)
    plain[:12] = VALUES[:12]
    sharded = root.create_array("s", shape=VALUES.shape, dtype="i4", shards=(12, 14, 10), **options)
    sharded[...] = VALUES
    words = np.array(["", "a", "Zürich", "x" * 300])[RNG.integers(0, 4, VALUES.shape)]
    root.create_array("t", data=words.astype(np.dtypes.StringDType()), chunks=(6, 7, 5))
    return path


@pytest.mark.parametrize("text, index", REGIONS, ids=[text for text, _ in REGIONS])
@pytest.mark.parametrize("name", ["x", "s"])
def test_a_region_has_the_elements_of_the_slice(array, name, text, index):
    expected = zarr.open_array(array / name, mode="r")[...][index]
    assert_same(np.load(io.BytesIO(region(array / name, "npy", text))), expected)
    assert region(array / name, "raw", text) == expected.tobytes()
    with h5py.File(io.BytesIO(region(array / name, "h5", text))) as file:
        assert_same(file[name][()], expected)
    if expected.ndim >= 2:
        assert_same(tifffile.imread(io.BytesIO(region(array / name, "tif", text))).reshape(expected.shape), expected)


@pytest.mark.parametrize("text, index", REGIONS, ids=[text for text, _ in REGIONS])
def test_a_region_of_strings(array, text, index):
    expected = zarr.open_array(array / "t", mode="r")[...][index]
    with h5py.File(io.BytesIO(region(array / "t", "h5", text))) as file:
        assert np.asarray(file["t"].asstr()[()], dtype=object).tolist() == np.asarray(expected).tolist()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("format", ["nc", "nc4"])
def test_a_region_has_its_coordinates(tmp_path, format, zarr_format):
    data = xr.Dataset(
        {"t": (("time", "y", "x"), VALUES.astype("f4"), {"grid_mapping": "crs"})},
        coords={
            "time": np.arange("2000-01-01", "2000-01-21", dtype="M8[D]").astype("M8[ns]"),
            "y": np.linspace(5, -5, 30),
            "x": np.arange(17.0),
            "lat": (("y", "x"), RNG.random((30, 17))),
            "crs": ((), 0, {"GeoTransform": "0 1 0 0 0 1"}),
        },
    )
    data.to_zarr(tmp_path / "s", zarr_format=zarr_format)
    for text, index in [("2:5,:,3:9", np.s_[2:5, :, 3:9]), ("7,4:,:", np.s_[7, 4:, :])]:
        (tmp_path / "r.nc").write_bytes(region(tmp_path / "s/t", format, text))
        with xr.open_dataset(tmp_path / "r.nc", engine="netcdf4", decode_coords="all") as found:
            expected = data.t[index]
            assert_same(found.t.values, expected.values)
            for name in expected.dims:
                assert_same(found[name].values, expected[name].values, name)
            assert_same(found.lat.values, expected.lat.values)
            assert "GeoTransform" not in found.crs.attrs


def test_a_region_of_an_image_keeps_its_place(tmp_path):
    root = zarr.create_group(tmp_path / "s")
    axes = [{"name": "c", "type": "channel"}, *({"name": name, "type": "space", "unit": "millimeter"} for name in "zyx")]
    transforms = [{"type": "scale", "scale": [1, 2, 0.5, 0.25]}, {"type": "translation", "translation": [0, 10, 20, 30]}]
    channels = [{"label": name, "color": "FF0000", "window": {}} for name in ("red", "green")]
    image = {
        "version": "0.5",
        "multiscales": [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": transforms}]}],
        "omero": {"channels": channels},
    }
    root.attrs["ome"] = image
    values = RNG.integers(0, 99, (2, 6, 8, 10)).astype("i2")
    root.create_array("0", data=values, chunks=(1, 4, 4, 4))
    (tmp_path / "r.nii").write_bytes(region(tmp_path / "s/0", "nii", "1,2:5,3:,1:9"))
    found = nibabel.load(tmp_path / "r.nii")
    assert_same(np.asarray(found.dataobj).T, values[1, 2:5, 3:, 1:9])
    assert np.allclose(np.abs(found.affine[:3, 3]), [30 + 0.25, 20 + 3 * 0.5, 10 + 2 * 2])
    (tmp_path / "r.tif").write_bytes(region(tmp_path / "s/0", "ome.tif", "1:2,2:5"))
    with tifffile.TiffFile(tmp_path / "r.tif") as file:
        assert 'Name="green"' in file.ome_metadata and 'Name="red"' not in file.ome_metadata


def test_a_region_of_an_array_without_elements_has_none(tmp_path):
    values = np.empty((4, 0, 3), "f4")
    zarr.create_array(tmp_path / "s", shape=values.shape, chunks=(2, 1, 3), dtype="f4")
    for text, index in [
        (":", np.s_[:]),
        ("1", np.s_[1]),
        ("1:3,:", np.s_[1:3, :]),
        (":,0:0,-1", np.s_[:, 0:0, -1]),
        ("-2:,:0,1:", np.s_[-2:, :0, 1:]),
    ]:
        found = np.load(io.BytesIO(region(tmp_path / "s", "npy", text)))
        assert_same(found, values[index])


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("0:99", "dimension 0 has 20 elements"),
        ("20", "20 selects no element"),
        ("5:5", "selects no element"),
        ("0,0,0,0", "4 indices, but the array has 3 dimensions"),
        ("::2", "a region has no steps"),
        ("a", "is no index"),
    ],
)
def test_a_region_outside_of_the_array_is_refused(array, text, sentence):
    done = subprocess.run([ZARRFS, "cat", array / "x", "--as", "npy", f"--region={text}"], capture_output=True, text=True)
    assert done.returncode != 0 and sentence in done.stderr and not done.stdout
    done = subprocess.run([ZARRFS, "cat", array, "--as", "h5", "--region=0"], capture_output=True, text=True)
    assert done.returncode != 0 and "this is a group" in done.stderr
