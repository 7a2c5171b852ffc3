"""`zarrfs import`: what comes out of files that xarray and others write, what is refused, and what an interruption
leaves."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import numpy as np
import pandas
import pytest
import tifffile
import xarray as xr
import zarr

from mounts import BIN

RANDOM = np.random.default_rng(50)
LAT, LON = np.linspace(-85, 85, 18), np.arange(0, 360, 10.0)


def month(number):
    """A month of daily values: packed and not, with times since its own beginning."""
    begin = f"2024-{number:02d}-01"
    days = pandas.date_range(begin, periods=pandas.Period(begin[:7]).days_in_month, freq="D")
    shape = (len(days), 18, 36)
    packed = np.where(RANDOM.random(shape) < 0.3, np.nan, RANDOM.normal(280, 5, shape))
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), RANDOM.normal(280, 10, shape).astype("f4"), {"units": "K"}),
            "sst": (("time", "lat", "lon"), packed),
            "time_bnds": (("time", "bnds"), np.stack([days, days + pandas.Timedelta("1D")], 1)),
            "area": (("lat", "lon"), np.ones((18, 36))),
            "crs": ((), np.int32(0)),
        },
        coords={"time": ("time", days, {"bounds": "time_bnds"}), "lat": LAT, "lon": LON},
    )
    data.t2m.encoding.update(zlib=True, chunksizes=(5, 9, 18))
    data.sst.encoding.update(dtype="i2", scale_factor=0.01, add_offset=280.0, _FillValue=-32767, zlib=True)
    data.time.encoding.update(units=f"hours since {begin}", dtype="i8")
    return data


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """The files of four months."""
    directory = tmp_path_factory.mktemp("months")
    for number in range(1, 5):
        month(number).to_netcdf(directory / f"m{number}.nc", unlimited_dims=["time"])
    return [directory / f"m{number}.nc" for number in range(1, 5)]


def run(*args, code=0):
    done = subprocess.run([BIN, "import", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def opened(path):
    return xr.open_zarr(path, consolidated=False).load()


def joined(files):
    return xr.open_mfdataset(files, data_vars="minimal", compat="no_conflicts", coords="minimal").load()


@pytest.mark.parametrize("options", [
    "--chunks 10,18,36",
    "--shards 50k --chunks 3,9,18 --codecs zstd",
    "--format v2 --codecs blosc --chunks 7,10,11",
    "--format v2",
])
def test_an_archive_is_the_store_that_xarray_makes_of_it(months, tmp_path, options):
    run(months[0], tmp_path / "a.zarr", *options.split())
    run(*months[1:3], tmp_path / "a.zarr", "--append-dim", "time", "--verify")
    run(months[3], tmp_path / "a.zarr", "--append-dim", "time")
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), joined(months))
    run(*months, tmp_path / "b.zarr", "--append-dim", "time", *options.split())
    subprocess.run([BIN, "diff", tmp_path / "a.zarr", tmp_path / "b.zarr"], check=True, stdout=subprocess.DEVNULL)
    assert not (tmp_path / "a.zarr/.zarrfs").exists()


def test_groups_below_consolidated_metadata_are_found_there_with_their_new_shapes(months, tmp_path):
    zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    run(months[0], tmp_path / "a.zarr/runs")
    zarr.consolidate_metadata(tmp_path / "a.zarr", zarr_format=2)
    run(months[1], tmp_path / "a.zarr/runs", "--append-dim", "time")
    copies = json.loads((tmp_path / "a.zarr/.zmetadata").read_text())["metadata"]
    assert copies["runs/time/.zarray"]["shape"] == [60] and copies["runs/t2m/.zarray"]["shape"] == [60, 18, 36]
    xr.testing.assert_equal(xr.open_zarr(tmp_path / "a.zarr", group="runs").load(), joined(months[:2]))


def changed(months, tmp_path, change):
    data = xr.open_dataset(months[3])
    data = change(data) or data
    data.to_netcdf(tmp_path / "changed.nc", unlimited_dims=["time"])
    return tmp_path / "changed.nc"


def encode(name, **encoding):
    return lambda data: data[name].encoding.update(encoding)


def other_times(data):
    data["time"] = data.time + np.timedelta64(30, "s")
    data.time.encoding.update(units="seconds since 2024-01-01 00:00:30", dtype="i8")


CHANGES = {
    "units": (lambda data: data.t2m.attrs.update(units="degC"), "/t2m: its units are"),
    "type": (lambda data: data.assign(t2m=data.t2m.astype("f8")), "/t2m: its type is float64"),
    "packing": (encode("sst", scale_factor=0.02), "/sst: its values are packed otherwise"),
    "missing": (encode("sst", _FillValue=-1), "/sst: its values are packed otherwise"),
    "values": (lambda data: data.assign_coords(lat=data.lat + 1), "/lat: its values differ"),
    "lack": (lambda data: data.drop_vars("sst"), 'lacks the array "sst"'),
    "more": (lambda data: data.assign(more=data.t2m), "/more: the target has no such array"),
    "length": (lambda data: data.isel(lat=slice(0, 10)), "10 elements along lat"),
    "calendar": (encode("time", calendar="julian"), "cannot compare"),
    "fraction": (other_times, "no whole number"),
    "order": (lambda data: data.isel(time=slice(None, None, -1)), "do not go on in order"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_does_not_fit_is_refused_and_nothing_changes(months, tmp_path, name):
    change, why = CHANGES[name]
    run(months[0], tmp_path / "a.zarr")
    before = opened(tmp_path / "a.zarr")
    said = run(months[1], changed(months, tmp_path, change), tmp_path / "a.zarr", "--append-dim", "time", code=1)
    assert why in said and "changed.nc" in said or name in ("order", "fraction") and why in said, said
    xr.testing.assert_identical(opened(tmp_path / "a.zarr"), before)
    run(*months[1:], tmp_path / "a.zarr", "--append-dim", "time")
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), joined(months))


def test_a_file_is_not_appended_twice_unless_that_is_asked_for(months, tmp_path):
    run(*months[:2], tmp_path / "a.zarr", "--append-dim", "time")
    assert "Was it appended before?" in run(months[1], tmp_path / "a.zarr", "--append-dim", "time", code=1)
    run(months[1], tmp_path / "a.zarr", "--append-dim", "time", "--any-order")
    assert opened(tmp_path / "a.zarr").sizes["time"] == 31 + 29 + 29


def test_values_are_replaced_in_whole_arrays_and_in_regions(months, tmp_path):
    run(*months[:3], tmp_path / "a.zarr", "--append-dim", "time", "--chunks", "4,10,10", "--shards", "8,20,20", "--codecs", "zstd")
    expected = opened(tmp_path / "a.zarr")
    new = xr.open_dataset(months[1]).load()
    new["t2m"] = new.t2m + 1
    new.to_netcdf(tmp_path / "new.nc", unlimited_dims=["time"])
    run(tmp_path / "new.nc", tmp_path / "a.zarr", "--region", "time=31:60", "--verify")
    expected["t2m"][31:60] += 1
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), expected)
    assert "do not fit" in run(tmp_path / "new.nc", tmp_path / "a.zarr", "--region", "time=80:", code=1)
    part = expected.isel(time=slice(3, 9), lat=slice(5, 13))[["t2m"]] * 2
    part.drop_vars(["time", "lat", "lon"]).to_netcdf(tmp_path / "part.nc")
    run(f"{tmp_path / 'part.nc'}#t2m", tmp_path / "a.zarr/t2m", "--region", "time=3:9,lat=5:13")
    expected["t2m"][3:9, 5:13] *= 2
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), expected)
    whole = expected.copy()
    whole["t2m"] = -expected.t2m
    whole.to_netcdf(tmp_path / "whole.nc")
    run(tmp_path / "whole.nc", tmp_path / "a.zarr", "--into")
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), whole)


def test_files_without_names_of_dimensions_go_along_an_axis_by_its_number(tmp_path):
    parts = [RANDOM.integers(0, 99, (3, n, 5)) for n in (4, 2, 7)]
    for number, part in enumerate(parts):
        np.save(tmp_path / f"x{number}.npy", part)
        shutil.move(tmp_path / f"x{number}.npy", tmp_path / f"{number}.npy")
    array = zarr.create_array(tmp_path / "a.zarr", shape=(3, 1, 5), chunks=(2, 3, 2), dtype="i8")
    array[:] = 1
    run(*[f"{tmp_path / str(n)}.npy#{n}" for n in range(3)], tmp_path / "a.zarr", "--append-dim", "1")
    assert np.array_equal(zarr.open_array(tmp_path / "a.zarr")[:], np.concatenate([np.ones((3, 1, 5)), *parts], 1))


def test_an_image_goes_into_an_array_of_its_name_or_of_another(tmp_path):
    image = RANDOM.integers(0, 255, (70, 90), "u1")
    tifffile.imwrite(tmp_path / "mask.tif", image, tile=(32, 32), compression="zlib")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("mask", shape=(70, 90), chunks=(50, 50), dtype="u1", fill_value=7)
    group.create_array("other", shape=(70, 90), chunks=(50, 50), dtype="u1")
    run(tmp_path / "mask.tif", tmp_path / "a.zarr/mask", "--into")
    run(f"{tmp_path / 'mask.tif'}#mask", tmp_path / "a.zarr/other", "--into")
    group = zarr.open_group(tmp_path / "a.zarr")
    assert np.array_equal(group["mask"][:], image) and np.array_equal(group["other"][:], image)


def test_strings_are_appended_within_chunks(tmp_path):
    names = [np.array([f"{'x' * n}{i}" for i in range(n)], object) for n in (5, 3, 9)]
    for number, part in enumerate(names):
        xr.Dataset({"name": (("n",), part)}).to_netcdf(tmp_path / f"{number}.nc", unlimited_dims=["n"])
    files = [tmp_path / f"{number}.nc" for number in range(3)]
    run(*files, tmp_path / "a.zarr", "--append-dim", "n")
    assert list(zarr.open_group(tmp_path / "a.zarr")["name"][:]) == list(np.concatenate(names))


def values(path):
    group = zarr.open_group(path, mode="r")
    return {name: group[name][:] for name in ("a", "b", "time")}


@pytest.mark.parametrize("options", ["--chunks 10,50", "--chunks 10,50 --shards 40k --codecs zstd"])
def test_an_import_that_is_killed_has_changed_nothing_and_goes_on(tmp_path, options):
    def file(name, begin, count):
        data = {"a": (("time", "x"), RANDOM.integers(0, 100, (count, 2000)).astype("i4")),
                "b": (("time", "y"), RANDOM.random((count, 500)))}
        times = np.arange(begin, begin + count)
        xr.Dataset(data, coords={"time": times}).to_netcdf(tmp_path / name, unlimited_dims=["time"])

    file("1.nc", 0, 37)
    file("2.nc", 37, 150)
    file("3.nc", 37, 20)
    run(tmp_path / "1.nc", tmp_path / "begin.zarr", *options.split())
    old, store = values(tmp_path / "begin.zarr"), tmp_path / "a.zarr"
    new = {name: np.concatenate([xr.open_dataset(tmp_path / f"{n}.nc")[name].values for n in (1, 2)]) for name in old}
    interrupted = 0
    for attempt in range(6):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(tmp_path / "begin.zarr", store)
        command = [BIN, "import", tmp_path / "2.nc", store, "--append-dim", "time"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.4 * random.random())
        process.send_signal(random.choice([signal.SIGKILL, signal.SIGINT]))
        process.wait()
        now = values(store)
        for name, found in now.items():
            expected = old if len(found) == 37 else new
            assert np.array_equal(found, expected[name])
        if len(now["time"]) == 37:
            interrupted += 1
            if attempt % 2:
                # What the first one has left does not come back.
                run(tmp_path / "3.nc", store, "--append-dim", "time")
                grown = zarr.open_group(store)["a"]
                grown.resize((187, 2000))
                assert (grown[57:] == grown.fill_value).all()
                continue
            run(tmp_path / "2.nc", store, "--append-dim", "time", "--verify")
        for name, found in values(store).items():
            assert np.array_equal(found, new[name])
        assert not os.listdir(store / ".zarrfs") if (store / ".zarrfs").exists() else True
    assert interrupted


def test_one_import_at_a_time_writes_to_a_hierarchy(months, tmp_path):
    run(months[0], tmp_path / "a.zarr", "--chunks", "1,6,6")
    command = [BIN, "import", *months[1:], tmp_path / "a.zarr", "--append-dim", "time"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], said
    assert any("another import is writing here" in text or "go on in order" in text for text in said), said
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), joined(months))


def test_a_full_disk_leaves_the_arrays_as_they_were(months, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], check=True)
    try:
        run(months[0], disk / "a.zarr", "--codecs", "none")
        before = opened(disk / "a.zarr")
        said = run(*months[1:], disk / "a.zarr", "--append-dim", "time", code=1)
        assert "No space left" in said and "no array has changed" in said, said
        xr.testing.assert_identical(opened(disk / "a.zarr"), before)
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        run(*months[1:], disk / "a.zarr", "--append-dim", "time", "--verify")
        xr.testing.assert_equal(opened(disk / "a.zarr"), joined(months))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_an_import_into_a_mount_names_the_store(mount, months, tmp_path):
    run(months[0], tmp_path / "a.zarr")
    with mount(tmp_path / "a.zarr", "--metadata-ttl", "0", copy=False) as m:
        said = run(months[1], m.path, "--append-dim", "time", code=1)
        assert str(tmp_path / "a.zarr") in said
        run(months[1], tmp_path / "a.zarr", "--append-dim", "time")
        assert xr.open_dataset(m / "__root__.nc").sizes["time"] == 60


def test_files_beside_each_other_become_groups_of_their_names(months, tmp_path):
    run(*months[:2], tmp_path / "a.zarr")
    run(months[2], tmp_path / "a.zarr/m3")
    for number in (1, 2, 3):
        xr.testing.assert_equal(xr.open_zarr(tmp_path / "a.zarr", group=f"m{number}", consolidated=False).load(), joined(months[number - 1]))
    assert "--append-dim" in run(months[0], tmp_path / "a.zarr", code=1)
    (tmp_path / "other").mkdir()
    shutil.copy(months[0], tmp_path / "other")
    assert "import them one by one" in run(months[0], tmp_path / "other/m1.nc", tmp_path / "b.zarr", code=1)
