"""`zarrfs cat --as csv` and `--as json`, against the tables of xarray and pandas."""

import io
import json
import subprocess

import numpy as np
import pandas
import pytest
import xarray as xr
import zarr

from test_selections import CALENDARS, climate
from views import ZARRFS

RNG = np.random.default_rng(52)


def cat(path, form, *options, code=0):
    done = subprocess.run([ZARRFS, "cat", path, "--as", form, *options], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def assert_table(path, expected, *options):
    """Both forms have the rows of `expected`."""
    expected = expected.reset_index()
    for name in expected.columns:
        if expected[name].dtype == object and len(expected) and hasattr(expected[name].iloc[0], "isoformat"):
            expected[name] = [time.isoformat() for time in expected[name]]
    texts = {name: str for name in expected.columns if expected[name].dtype == object}
    read = pandas.read_csv(io.StringIO(cat(path, "csv", *options)), dtype=texts, keep_default_na=False, na_values=[""])
    rows = pandas.DataFrame(json.loads(cat(path, "json", *options)))
    for found in (read, rows):
        assert list(found.columns) == list(expected.columns)
        for name in expected.columns:
            wanted = expected[name].to_numpy()
            if wanted.dtype.kind == "f":
                np.testing.assert_array_equal(found[name].to_numpy("f8").astype(wanted.dtype), wanted, err_msg=name)
            elif wanted.dtype == object:
                got = [text.removesuffix("T00:00:00") for text in found[name]]
                assert got == [str(text).removesuffix("T00:00:00") for text in wanted], name
            else:
                assert found[name].tolist() == wanted.tolist(), name


@pytest.mark.parametrize("calendar", CALENDARS)
def test_elements_are_rows_with_their_coordinates(calendar, tmp_path):
    data = climate(calendar, True, "hours since 1581-12-01", np.arange(0, 360, 40.0), True)
    data.t.values[RNG.random(data.t.shape) < 0.2] = np.nan
    packed = {"dtype": "i2", "scale_factor": 0.25, "add_offset": 3.0, "_FillValue": -32768, "chunks": [9, 9, 9]}
    data["t"] = (data.t * 400).round() / 4
    data.to_zarr(tmp_path / "s", consolidated=False, encoding={"t": packed})
    small = data[["t"]].isel(time=slice(10, 30, None)).sel(lat=slice(60, -30)).astype("f8")
    assert_table(tmp_path / "s/t", small.to_dataframe(), "--region", "time=@10:30,lat=-30:60")
    mask = data.mask.to_dataframe()
    assert_table(tmp_path / "s/mask", mask)
    assert_table(tmp_path / "s", small.to_dataframe(), "--region", "time=@10:30,lat=-30:60")


def test_a_group_of_columns_is_a_table(tmp_path):
    root = zarr.create_group(tmp_path / "s")
    columns = {
        "plain": np.array(["a", "b,c", 'say "x"', " spaced", "line\nbreak"]),
        "count": np.array([0, -1, 2**62, -(2**62), 7]),
        "share": np.array([0.1, 1e300, -0.0, 5e-324, 1 / 3]),
        "single": np.array([0.1, 1e30, -2.5, 1e-40, 3], "f4"),
        "is_good": np.array([True, False, True, True, False]),
    }
    for name, values in columns.items():
        data = values.astype(np.dtypes.StringDType()) if values.dtype.kind == "U" else values
        root.create_array(name, data=data, chunks=(2,), dimension_names=["row"])
    expected = pandas.DataFrame({name: columns[name] for name in sorted(columns)}, index=pandas.RangeIndex(5, name="row"))
    expected["plain"] = expected["plain"].astype(object)
    for name in ("csv", "json"):
        assert cat(tmp_path / "s", name)
    assert_table(tmp_path / "s", expected)
    root.create_array("scalar", data=np.int32(3))
    root.create_array("z", data=np.zeros((5, 2), "c8"))
    assert "no fields of a table" in cat(tmp_path / "s/z", "csv", code=1)
    assert cat(tmp_path / "s/scalar", "csv") == "scalar\n3\n"
    assert json.loads(cat(tmp_path / "s/scalar", "json")) == [{"scalar": 3}]
    zarr.create_group(tmp_path / "empty")
    assert "the group has no arrays" in cat(tmp_path / "empty", "csv", code=1)


def test_times_and_missing_values(tmp_path):
    times = pandas.to_datetime(["2020-02-29T12:30:15.25", "1969-12-31", "2262-01-01T00:00:00.000000001"], format="ISO8601")
    data = xr.Dataset({"x": (("time",), np.array([1.5, np.inf, np.nan], "f4"))}, coords={"time": times})
    data.to_zarr(tmp_path / "s", consolidated=False, encoding={"time": {"units": "nanoseconds since 1970-01-01", "dtype": "i8"}})
    assert cat(tmp_path / "s/x", "csv").splitlines() == [
        "time,x",
        "2020-02-29T12:30:15.25,1.5",
        "1969-12-31T00:00:00,inf",
        "2262-01-01T00:00:00.000000001,",
    ]
    assert json.loads(cat(tmp_path / "s/x", "json"))[1:] == [
        {"time": "1969-12-31T00:00:00", "x": "inf"},
        {"time": "2262-01-01T00:00:00.000000001", "x": None},
    ]
    far = zarr.create_array(tmp_path / "far", data=np.array([0, 2**62]), attributes={"units": "days since 2000-01-01"})
    assert cat(tmp_path / "far", "csv").splitlines()[1:] == ["0,2000-01-01T00:00:00", f"1,{2**62}"] and far.size
    empty = zarr.create_array(tmp_path / "empty", shape=(0, 3), chunks=(1, 3), dtype="f4")
    assert cat(tmp_path / "empty", "csv") == "dim0,dim1,root\n"
    assert json.loads(cat(tmp_path / "empty", "json")) == [] and empty.size == 0
