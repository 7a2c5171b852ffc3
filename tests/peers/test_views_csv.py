"""Views of tables as CSV, against the text of pandas, and read by pandas and R."""

import errno
import io
import os
import shutil
import subprocess

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from test_anndata import annotated
from views import ZARRFS, cat

pytestmark = [pytest.mark.filterwarnings("ignore")]


def read(file, **options):
    return pd.read_csv(file, index_col=0, keep_default_na=False, na_values=[""], float_precision="round_trip", **options)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_data_frames_are_those_of_pandas(mount, tmp_path, zarr_format):
    data = annotated()
    awkward = ['a "word"', "b,c", "", " d", "two\nlines", "Zürich"] * 10
    data.obs["awkward"] = awkward
    data.obs["single"] = np.arange(60, dtype="f4") / 3
    data.obs["choice"] = pd.Categorical(data.obs["int"] > 3)
    with ad.settings.override(zarr_write_format=zarr_format):
        data.write_zarr(tmp_path / "s")
    with mount(tmp_path / "s", "--views", "csv", copy=False) as m:
        assert "obs.csv" in os.listdir(m.path) and "X.csv" not in os.listdir(m.path)
        text = (m / "obs.csv").read_bytes()
        expected = read(io.StringIO(data.obs.drop(columns="awkward").to_csv()))
        found = read(m / "obs.csv", dtype={"single": "f4"})
        found["single"], expected["single"] = found["single"].astype("f4"), expected["single"].astype("f4")
        pd.testing.assert_frame_equal(found.drop(columns="awkward"), expected)
        assert pd.read_csv(m / "obs.csv", keep_default_na=False)["awkward"].tolist() == awkward
        assert read(m / "var.csv").index.tolist() == data.var_names.tolist()
        assert read(m / "obsm/frame.csv")["q"].tolist() == data.obsm["frame"]["q"].tolist()
        with open(m / "obs.csv", "r+b", buffering=0) as file:
            file.seek(200)
            m.refused(errno.EPERM, "the lines of a table cannot change", lambda: file.write(b"\0"))
        if shutil.which("Rscript"):
            script = 'x <- read.csv(commandArgs(TRUE), row.names = 1); cat(sum(x$float), sum(x$bool), sum(x$category == "a"), x$awkward[[1]])'
            done = subprocess.run(["Rscript", "-e", script, m / "obs.csv"], capture_output=True, text=True, check=True)
            total, *others = done.stdout.split(maxsplit=3)
            assert float(total) == pytest.approx(data.obs["float"].sum(), 1e-5)
            assert others == [str(data.obs["bool"].sum()), str((data.obs["category"] == "a").sum()), 'a "word"']
    assert cat(tmp_path / "s/obs", "csv", tmp_path / "obs.csv").read_bytes() == text


def test_times_that_are_missing_are_empty_fields(tmp_path):
    times = np.array(["2020-01-01", "NaT", "1850-06-01T12"], "M8[ns]")
    xr.Dataset({"t": ("row", times), "v": ("row", [1.0, 2.0, 3.0])}).to_zarr(tmp_path / "s", zarr_format=3, consolidated=False)
    done = subprocess.run([ZARRFS, "cat", tmp_path / "s", "--as", "csv"], capture_output=True, text=True, check=True)
    found = pd.read_csv(io.StringIO(done.stdout), parse_dates=["t"])
    np.testing.assert_array_equal(found.t.to_numpy().astype("M8[ns]"), times)


def test_columns_and_structures_are_tables(mount, tmp_path):
    count = 50_000
    dice = np.random.default_rng(4)
    frame = pd.DataFrame({
        "day": np.arange(count).astype("M8[D]").astype("M8[ns]"),
        "name": [f"station {n % 97}" for n in range(count)],
        "value": dice.normal(size=count),
        "whole": dice.integers(-(2**62), 2**62, count),
    })  # fmt: skip
    group = zarr.create_group(tmp_path / "s")
    for name in frame:
        values = frame[name].to_numpy()
        values = values.astype(np.dtypes.StringDType()) if values.dtype == object else values
        group.create_array(f"table/{name}", data=values, chunks=(7000,), dimension_names=["row"])
    group.create_array("table/scalar", data=np.int32(1))
    records = np.array([(1, "a", 2.5, True), (-2, "b,c", np.nan, False)], [("n", "i2"), ("text", "U4"), ("x", "f4"), ("flag", "?")])
    group.create_array("records", data=records, chunks=(1,))
    with mount(tmp_path / "s", copy=False) as m:
        found = read(m / "table.csv", parse_dates=["day"])
        pd.testing.assert_frame_equal(found, frame[sorted(frame)].rename_axis("row"), check_dtype=False)
        lines = (m / "table.csv").read_bytes()
        with open(m / "table.csv", "rb") as file:
            for at in dice.integers(0, len(lines), 20):
                file.seek(at)
                assert file.read(5000) == lines[at : at + 5000]
        assert "left out: scalar: it is a single value" in (m / ".zarrfs/views/table/__group__").read_text()
        assert (m / "records.csv").read_text() == 'dim0,n,text,x,flag\n0,1,a,2.5,TRUE\n1,-2,"b,c",,FALSE\n'


def test_what_is_no_table_or_too_long_has_no_file(tmp_path):
    group = zarr.create_group(tmp_path / "s")
    group.create_array("two", shape=(2, 2), dtype="i4")
    group.create_array("long", shape=(2**40,), chunks=(2**20,), dtype="i4")
    group.create_array("wide/a", shape=(2**40,), chunks=(2**20,), dtype="i4")
    group.create_array("g/a", shape=(2,), dtype="i4")
    group.create_array("g/b", shape=(3,), dtype="i4")
    group.create_group("none")
    frame = {"encoding-type": "dataframe", "_index": "i", "column-order": ["a", "c"]}
    group.create_group("frame", attributes=frame).create_array("i", shape=(3,), dtype="i4")
    group.create_array("frame/a", shape=(4,), dtype="i4")
    codes = group.create_group("codes", attributes=frame | {"column-order": ["c"]})
    codes.create_array("i", shape=(3,), dtype="i4")
    codes.create_group("c", attributes={"encoding-type": "categorical"}).create_array("codes", data=np.array([0, -1, 9], "i1"))
    codes.create_array("c/categories", data=np.array([5, 6]))
    sentences = {
        "two": "a table has one dimension, not 2",
        "long": "1099511627776 elements, the limit of the table of an array is 1048576",
        "wide": "1099511627776 rows of 2 columns, the limit of a file is 16777216 fields",
        "g": "its arrays have different lengths: b",
        "none": "the group has no arrays",
        "frame": "column a has 4 rows, the index another number",
    }
    for name, sentence in sentences.items():
        done = subprocess.run([ZARRFS, "info", tmp_path / "s" / name], capture_output=True, text=True, check=True)
        assert sentence in done.stdout, name
    done = subprocess.run([ZARRFS, "cat", tmp_path / "s/codes", "--as", "csv"], capture_output=True, text=True)
    assert done.returncode == 1 and "row 2 has category 9 of 2" in done.stderr
