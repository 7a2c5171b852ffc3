"""Views of tables as Parquet, read by fastparquet. (pyarrow, polars and DuckDB were tried by hand.)"""

import errno

import fastparquet
import numpy as np
import pandas as pd
import pytest
import zarr

from test_anndata import annotated

pytestmark = [pytest.mark.filterwarnings("ignore")]
COUNT = 3000


def columns():
    """Values of every type that a column can have."""
    dice = np.random.default_rng(2)
    for name in "i1 i2 i4 i8 u1 u2 u4 u8".split():
        info = np.iinfo(name)
        yield name, dice.integers(info.min, info.max, COUNT, dtype=name, endpoint=True)
    for name in ("f2", "f4", "f8"):
        values = dice.normal(size=COUNT).astype(name)
        values[:4] = [np.nan, np.inf, -np.inf, -0.0]
        yield name, values
    for unit in ("ns", "us", "ms", "s", "D"):
        values = dice.integers(-1000, 20_000, COUNT).astype(f"M8[{unit}]")
        values[1] = "NaT"
        yield f"time_{unit}", values
    yield "flag", dice.random(COUNT) > 0.5
    yield "text", np.array([f"Zürich {n % 50}" if n else "" for n in range(COUNT)], np.dtypes.StringDType())


def test_columns_keep_their_types_and_values(mount, tmp_path):
    group, expected = zarr.create_group(tmp_path / "s"), dict(columns())
    for name, values in expected.items():
        group.create_array(f"t/{name}", data=values, chunks=(700,))
    group.create_array("t/days", data=np.arange(COUNT) / 4, attributes={"units": "days since 1990-01-01"})
    group.create_array("t/packed", data=np.arange(COUNT, dtype="i2"), attributes={"scale_factor": 0.5, "_FillValue": 7})
    with mount(tmp_path / "s", copy=False) as m:
        found = fastparquet.ParquetFile(str(m / "t.parquet"))
        assert found.count() == COUNT and found.dtypes["u1"].kind == "u" and found.dtypes["i8"].itemsize == 8
        frame = found.to_pandas()
        for name, values in expected.items():
            read = frame[name].to_numpy()
            if values.dtype.kind == "M":
                assert (read.astype(values.dtype) == values)[2:].all() and np.isnat(read[1]), name
            elif values.dtype.kind == "f":
                np.testing.assert_array_equal(read.astype(values.dtype), values, err_msg=name)
            else:
                assert read.tolist() == values.tolist(), name
        assert (frame["days"] == pd.date_range("1990-01-01", periods=COUNT, freq="6h")).all()
        assert np.isnan(frame["packed"][7]) and frame["packed"][9] == 4.5
        with open(m / "t.parquet", "r+b", buffering=0) as file:
            m.refused(errno.EPERM, "the header and strings cannot change", lambda: file.write(b"x"))


def test_data_frames_equal_their_csv(mount, tmp_path):
    annotated().write_zarr(tmp_path / "s")
    with mount(tmp_path / "s", copy=False) as m:
        for name in ("obs", "var", "uns/records"):
            found = fastparquet.ParquetFile(str(m / f"{name}.parquet")).to_pandas()
            expected = pd.read_csv(m / f"{name}.csv", keep_default_na=False, na_values=[""], float_precision="round_trip")
            for column, other in zip(found, expected, strict=True):
                assert column == other or column == "_index"
                one, two = found[column].astype(object), expected[other].astype(object)
                assert ((one == two) | (one.isna() & two.isna())).all(), column
