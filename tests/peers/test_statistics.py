"""Compares `zarrfs info --stats` with NumPy for every data type; tests maps and plots of hierarchies that zarr-python wrote."""

import json
import os
import subprocess

import numpy as np
import pytest
import xarray as xr
import zarr

from views import ZARRFS

RNG = np.random.default_rng(41)
SHAPE = (23, 17)
OPTIONS = dict(shape=SHAPE, chunks=(6, 5))


def numbers(dtype):
    """Random elements, with both limits of the type."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return RNG.integers(0, 2, SHAPE).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = RNG.integers(limits.min, limits.max, SHAPE, dtype, endpoint=True)
        values[3, 4], values[22, 16] = limits.min, limits.max
        return values
    if dtype.kind == "f":
        values = (RNG.normal(size=SHAPE) * 100 + 270).astype(dtype)
        values[RNG.random(SHAPE) < 0.1] = np.nan
        return values
    return (RNG.normal(size=SHAPE) + 1j * RNG.normal(size=SHAPE) * 3).astype(dtype)


def info(path, *options, **environment):
    done = subprocess.run([ZARRFS, "info", path, *options], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts(path, *options):
    return json.loads(info(path, "--stats", "--json", *options))["statistics"]


def words(path, *options):
    """The lines of the text, by label."""
    lines = info(path, "--stats", *options).splitlines()[1:]
    return {label: words for label, words in (line.split("  ", 1) for line in lines) for words in [words.strip()]}


def six(number):
    """A number with the digits that zarrfs prints."""
    return "NaN" if np.isnan(number) else f"{number:.6g}".replace("inf", "Infinity")


def stored(tmp_path, values, rows, **options):
    """An array with the first rows of `values`; the others are missing chunks."""
    array = zarr.create_array(tmp_path / "a.zarr", dtype=values.dtype, **(OPTIONS | options))
    array[:rows] = values[:rows]
    return tmp_path / "a.zarr", array[...]


FLOATS = ["f2", "f4", "f8"]
INTS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_the_statistics_of_real_numbers_agree_with_numpy_in_every_digit(tmp_path, dtype):
    fill = {"f": 7.5, "b": True}.get(np.dtype(dtype).kind, 3)
    path, values = stored(tmp_path, numbers(dtype), 20, fill_value=fill)
    # In NumPy, sums of 64-bit integers overflow, and sums of float16 round; long doubles hold both.
    wide = values.astype("g")
    there = wide[~np.isnan(wide)]
    found, text = facts(path), words(path)
    for name, expected in [("minimum", there.min()), ("maximum", there.max())]:
        assert np.array(found[name]).astype(values.dtype) == expected.astype(values.dtype)
        assert text[name].lower() == str(expected.astype(values.dtype)).lower()
    assert text["mean"] == six(there.mean())
    assert text["standard deviation"] == six(there.std())
    assert found["mean"] == pytest.approx(float(there.mean()), rel=1e-14)
    assert found["standard_deviation"] == pytest.approx(float(there.std()), rel=1e-14)
    assert found["finite"] == there.size and found["elements"] == values.size and found["exact"]
    assert found["fill"] == (values == fill).sum()
    # The chunks of rows 18 to 23 hold rows 18 and 19.
    assert found["missing"] == 0
    if np.dtype(dtype).kind == "f":
        assert found["nan"] == np.isnan(wide).sum()
    if np.dtype(dtype).kind == "b":
        assert text["true"].split()[0] == str(values.sum())
    edges = np.array([int(edge) if edge == int(edge) else edge for edge in found["histogram"]["edges"]], "g")
    counts, _ = np.histogram(there, edges)
    assert list(counts) == found["histogram"]["counts"]


def test_missing_chunks_count_as_fill_values(tmp_path):
    values = numbers("f4")
    path, values = stored(tmp_path, values, 6, fill_value=np.nan)
    found = facts(path)
    assert found["missing"] == 17 * 17 and found["chunks_read"] == 4
    assert found["fill"] == found["nan"] == np.isnan(values).sum()
    assert words(path)["mean"] == six(np.nanmean(values.astype("f8")))
    huge = zarr.create_array(tmp_path / "b.zarr", shape=(2**40,), chunks=(2,), dtype="f8", fill_value=0.1)
    huge[0] = -5.0
    found = facts(tmp_path / "b.zarr")
    assert (found["elements"], found["fill"], found["missing"]) == (2**40, 2**40 - 1, 2**40 - 2)
    assert found["minimum"] == -5 and found["mean"] == pytest.approx(0.1)


@pytest.mark.parametrize("values, mean", [([1, np.inf], "Infinity"), ([1, -np.inf], "-Infinity"), ([np.inf, -np.inf], "NaN")])
def test_infinities_have_the_mean_of_numpy(tmp_path, values, mean):
    zarr.create_array(tmp_path / "a.zarr", data=np.array(values))
    text = words(tmp_path / "a.zarr")
    assert (text["mean"], text["standard deviation"]) == (mean, "NaN") and "infinite" in text
    with np.errstate(invalid="ignore"):
        assert six(np.mean(values)) == mean


def test_extreme_floats_lose_no_digit(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=np.array([1e300, 1.0, -1e300, 3.0]))
    assert facts(tmp_path / "a.zarr")["mean"] == 1.0
    zarr.create_array(tmp_path / "b.zarr", data=1e9 + np.array([4, 7, 13, 16.0]))
    assert facts(tmp_path / "b.zarr")["standard_deviation"] == pytest.approx(np.std([4, 7, 13, 16]), rel=1e-15)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_have_a_mean_and_the_range_of_their_absolute_values(tmp_path, dtype):
    path, values = stored(tmp_path, numbers(dtype), 20)
    found, text = facts(path), words(path)
    wide = values.astype("c16")
    mean = wide.mean()
    assert text["mean"] == f"{six(mean.real)}{'-' if mean.imag < 0 else '+'}{six(abs(mean.imag))}j"
    assert text["standard deviation"] == six(wide.std())
    assert found["maximum_absolute"] == pytest.approx(np.abs(wide).max())
    assert found["fill"] == (values == 0).sum()


@pytest.mark.parametrize("dtype", ["M8[ns]", "M8[D]", "M8[25s]", "M8[M]", "m8[us]", "m8[10ms]"])
def test_times_are_written_as_numpy_writes_them(tmp_path, dtype):
    counts = RNG.integers(-(2**40), 2**40, SHAPE) if dtype not in ("M8[D]", "M8[M]") else RNG.integers(-9999, 99999, SHAPE)
    values = counts.astype(dtype)
    values[4, 5] = "NaT"
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(6, 5), fill_value=np.array(5).astype(dtype)[()])
    there = values[~np.isnat(values)]
    found, text = facts(tmp_path / "a.zarr"), words(tmp_path / "a.zarr")

    def shown(count):
        time = np.array(count).astype(dtype)
        return str(time) if dtype[0] == "M" else str(time).replace("microseconds", "us").replace("milliseconds", "ms")

    for name, expected in [("minimum", there.min()), ("maximum", there.max())]:
        assert found[name] == expected.astype("i8")
        if dtype != "m8[10ms]":
            assert text[name] == shown(expected.astype("i8"))
    assert text["NaT"].startswith("1 of") and found["nan"] == 1
    assert found["mean"] == int(there.astype("i8").astype("m8[ns]").mean().astype("i8"))  # rounded towards zero
    assert found["standard_deviation"] == pytest.approx(there.astype("i8").astype("g").std())


def test_other_types_say_which_statistics_they_have(tmp_path):
    texts = np.array(["", "abc", "Zürich", "x" * 9])[RNG.integers(0, 4, SHAPE)]
    for name, values in [("s", texts.astype(np.dtypes.StringDType())), ("u", texts.astype("U9"))]:
        zarr.create_array(tmp_path / f"{name}.zarr", data=values, chunks=(6, 5))
        found, text = facts(tmp_path / f"{name}.zarr"), words(tmp_path / f"{name}.zarr")
        assert "not numbers" in text["statistics"] and "mean" not in found
        assert (found["shortest"], found["longest"]) == (0, 9)
        assert found["empty"] == found["fill"] == (texts == "").sum()
    pairs = np.zeros(SHAPE, [("a", "i4"), ("b", "f4")])
    pairs["a"] = RNG.integers(0, 2, SHAPE)
    zarr.create_array(tmp_path / "p.zarr", data=pairs, chunks=(6, 5))
    assert facts(tmp_path / "p.zarr")["fill"] == (pairs["a"] == 0).sum()


def test_a_sample_is_near_the_whole_and_says_that_it_is_one(tmp_path):
    values = RNG.normal(size=(200, 200)).astype("f4") * 5 + 30
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(10, 10))
    found = facts(tmp_path / "a.zarr", "--sample")
    assert not found["exact"] and found["chunks_read"] == 20 and found["elements"] == 2000
    assert found["mean"] == pytest.approx(30, abs=0.5)
    assert found == facts(tmp_path / "a.zarr", "--sample", "20")
    assert "a sample: chunks 20 of 400 (5%)" in words(tmp_path / "a.zarr", "--sample=5%")["statistics"]
    assert facts(tmp_path / "a.zarr", "--sample=100%")["exact"]


@pytest.mark.parametrize("shards", [None, (12, 10)])
def test_the_map_shows_which_chunks_are_stored(tmp_path, shards):
    array = zarr.create_array(tmp_path / "a.zarr", dtype="i2", shards=shards, config={"write_empty_chunks": True}, **OPTIONS)
    array[:6, 5:10] = 1
    array[6:12, :5] = 0
    found = json.loads(info(tmp_path / "a.zarr", "--chunks", "--json"))["chunk_map"]
    beside = 0 if shards is None else found["only_fill_values"] - 1
    assert found == {"grid": [4, 4], "stored": 2 + beside, "only_fill_values": 1 + beside, "missing": 14 - beside}
    if shards is None:
        assert ".#..o..........." in info(tmp_path / "a.zarr", "--chunks", TERM="dumb")


def test_a_plot_of_a_large_array_reads_little(tmp_path):
    """100 GB in chunks of 4 MB, and a plane that needs more of them than zarrfs reads."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(1000, 5000, 5000), chunks=(1, 1000, 1000), dtype="f4", compressors=None)
    for row in range(5):
        for column in range(5):
            array[500, row * 1000 : (row + 1) * 1000, column * 1000 : (column + 1) * 1000] = row * 5 + column
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=read,pread64", ZARRFS, "info", "--plot", tmp_path / "a.zarr"], check=True)
    read = sum(int(line.rsplit("=", 1)[1].split()[0]) for line in trace.read_text().splitlines() if line.rstrip()[-1].isdigit())
    assert read < 64 << 20
    plot = json.loads(info(tmp_path / "a.zarr", "--plot=500,:,:", "--json"))["plot"]
    assert plot["bytes_decoded"] < 64 << 20
    assert plot["chunks_needed"] == 25 and plot["chunks_read"] < 16
    assert set(plot["values"]) <= set(range(25)) and len(set(plot["values"])) == plot["chunks_read"]
    assert "cells show the nearest element" in info(tmp_path / "a.zarr", "--plot")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([2**64 - 1], "u8"), ([2**64 - 2, 2**64 - 1], "u8"), ([2**63 - 1], "i8"), ([2**63 - 1, -(2**63)], "i8"), ([2**63 - 1], "M8[s]")],
)
def test_the_limits_of_a_type_have_statistics(values, dtype, tmp_path):
    array = zarr.create_array(tmp_path / "a", shape=(len(values),), chunks=(2,), dtype=dtype)
    array[...] = np.array(values, dtype="u8" if dtype == "u8" else "i8").view(np.dtype(dtype))
    assert facts(tmp_path / "a")["minimum"] is not None
    info(tmp_path / "a", "--chunks", "--stats")


def test_a_map_of_chunks_is_drawn_although_one_is_damaged(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(8.0), chunks=(4,))
    (tmp_path / "a.zarr/c/0").write_bytes(b"bad")
    drawn = info(tmp_path / "a.zarr", "--chunks")
    assert "2 of 2 (100%) stored" in drawn and "cannot be decoded" in drawn, drawn


def packed(tmp_path, zarr_format, **encoding):
    """Values with gaps, packed by xarray, and as xarray reads them."""
    values = RNG.normal(size=SHAPE) * 20 + 280
    values[RNG.random(SHAPE) < 0.2] = np.nan
    xr.Dataset({"v": (("y", "x"), values)}).to_zarr(
        tmp_path / "p.zarr", zarr_format=zarr_format, consolidated=False, encoding={"v": {"chunks": (6, 5), **encoding}}
    )
    return tmp_path / "p.zarr", xr.open_zarr(tmp_path / "p.zarr", consolidated=False)["v"].values.astype("f8")


ENCODINGS = {
    "scaled": dict(dtype="i2", _FillValue=-32767, scale_factor=0.01, add_offset=273.15),
    "only scale": dict(dtype="i4", _FillValue=-9, scale_factor=0.5),
    "only offset": dict(dtype="i2", _FillValue=-9, add_offset=200.0),
    "only fill": dict(dtype="i2", _FillValue=-9),
    "unsigned": dict(dtype="i1", _FillValue=255, scale_factor=2.0, _Unsigned="true"),
    "float": dict(dtype="f4", _FillValue=np.float32(-999.5)),
    "missing": dict(dtype="f8", missing_value=1e20),
    "NaN": dict(dtype="f4", _FillValue=np.float32("NaN")),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_statistics_are_those_of_the_values_that_xarray_reads(tmp_path, encoding, zarr_format):
    path, values = packed(tmp_path, zarr_format, **ENCODINGS[encoding])
    there = values[~np.isnan(values)]
    found, raw = facts(path / "v"), facts(path / "v", "--raw")
    stored = zarr.open_array(path / "v", mode="r")[...]
    for of, expected in [(found, there), (raw, stored[~np.isnan(stored)].astype("f8"))]:
        assert of["minimum"] == pytest.approx(expected.min(), rel=1e-6)
        assert of["maximum"] == pytest.approx(expected.max(), rel=1e-6)
        assert of["mean"] == pytest.approx(expected.mean(), rel=1e-6)
        assert of["standard_deviation"] == pytest.approx(expected.std(), rel=1e-5)
        assert of["finite"] == expected.size
    assert found.get("masked", 0) + found.get("nan", 0) == np.isnan(values).sum()
    assert "masked" not in raw and "decoded" not in raw
    assert ("masked" in words(path / "v")) == (encoding != "NaN")
    plot = json.loads(info(path / "v", "--plot=0:6,0:5", "--json", COLUMNS="80"))["plot"]["values"]
    drawn = [value for value in plot if value is not None]
    assert min(drawn) == pytest.approx(np.nanmin(values[:6, :5]), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_group_has_a_line_of_statistics_for_each_array(tmp_path):
    path, values = packed(tmp_path, 3, **ENCODINGS["scaled"])
    root = zarr.open_group(path)
    root.create_group("in").create_array("flags", data=np.array([True, False]))
    root.create_array("words", data=np.array(["a", "bc"], dtype="U2"))
    lines = info(path, "--stats").splitlines()
    assert lines[1].split()[:4] == ["array", "minimum", "maximum", "mean"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert set(rows) == {"v", "in/flags", "words"} and rows["words"] == ["-"] * 5
    assert float(rows["v"][0]) == pytest.approx(np.nanmin(values)) and rows["in/flags"][:2] == ["false", "true"]
    both = json.loads(info(path, "--stats", "--json"))["statistics"]
    assert both["v"] == facts(path / "v") and set(both) == set(rows)
    assert float(dict(line.split()[:2] for line in info(path, "--stats", "--raw").splitlines()[2:])["v"]) == -32767
    (path / "v/c/0/0").write_bytes(b"damaged")
    done = subprocess.run([ZARRFS, "info", path, "--stats"], capture_output=True, text=True)
    assert done.returncode == 1 and "1 of 3 arrays have no statistics" in done.stderr, done
    assert "in/flags" in done.stdout and "v/c/0/0" in done.stdout
