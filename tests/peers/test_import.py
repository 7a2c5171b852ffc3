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


def test_a_loop_that_imports_file_after_file_begins_with_the_first(months, tmp_path):
    for file in months:
        run(file, tmp_path / "a.zarr", "--append-dim", "time")
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), joined(months))


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
    "packing": (encode("sst", scale_factor=0.02), "/sst: its values mean something else: its scale_factor is 0.02"),
    "missing": (encode("sst", _FillValue=-1), "/sst: its values mean something else: its _FillValue is -1"),
    "values": (lambda data: data.assign_coords(lat=data.lat + 1), "/lat: its values differ"),
    "lack": (lambda data: data.drop_vars("sst"), 'lacks the array "sst"'),
    "more": (lambda data: data.assign(more=data.t2m), "/more: the target has no such array"),
    "length": (lambda data: data.isel(lat=slice(0, 10)), "10 elements along lat"),
    "calendar": (encode("time", calendar="julian"), "cannot compare"),
    "fraction": (other_times, "not a whole number"),
    "order": (lambda data: data.isel(time=slice(None, None, -1)), "would not stay in order"),
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
    assert "was appended before" in run(months[1], tmp_path / "a.zarr", "--append-dim", "time", code=1)
    run(months[1], tmp_path / "a.zarr", "--append-dim", "time", "--any-order")
    assert opened(tmp_path / "a.zarr").sizes["time"] == 31 + 29 + 29


def test_values_are_replaced_in_whole_arrays_and_in_regions(months, tmp_path):
    run(*months[:3], tmp_path / "a.zarr", "--append-dim", "time", "--chunks", "8,10,20", "--shards", "16,20,40", "--codecs", "zstd")
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
    for attempt in range(4):
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
    run(months[0], tmp_path / "a.zarr", "--chunks", "1,9,9")
    command = [BIN, "import", *months[1:], tmp_path / "a.zarr", "--append-dim", "time"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], said
    assert any("another import is writing here" in text or "stay in order" in text for text in said), said
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
    assert "import this one separately" in run(months[0], tmp_path / "other/m1.nc", tmp_path / "b.zarr", code=1)


def test_chunks_of_an_interrupted_import_are_not_taken_for_those_of_another_place(tmp_path):
    array = zarr.open_group(tmp_path / "a.zarr", mode="w").create_array("c", shape=(10,), chunks=(5,), dtype="i4")
    array[:] = 1
    np.savez(tmp_path / "s.npz", c=np.arange(1000, 9000, dtype="i4"))
    command = [BIN, "import", tmp_path / "s.npz", tmp_path / "a.zarr", "--append-dim", "0"]
    for _ in range(20):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.12)
        process.kill()
        process.wait()
        if (tmp_path / "a.zarr/.zarrfs/import").exists():
            break
        shutil.rmtree(tmp_path / "a.zarr/c/c")
        array.resize((10,))
        array[:] = 1
    else:
        pytest.skip("it was faster each time")
    zarr.open_group(tmp_path / "a.zarr")["c"].append(np.full(5, 2, "i4"))
    run(*command[2:], "--verify")
    expected = np.concatenate([np.full(10, 1), np.full(5, 2), np.arange(1000, 9000)])
    assert np.array_equal(zarr.open_group(tmp_path / "a.zarr")["c"][:], expected)


def test_what_another_program_appends_meanwhile_stays(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    array = group.create_array("c", shape=(10,), chunks=(5,), dtype="i4")
    array[:] = 1
    np.savez(tmp_path / "s.npz", c=np.arange(1000, 9000, dtype="i4"))
    command = [BIN, "import", tmp_path / "s.npz", tmp_path / "a.zarr", "--append-dim", "0", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "a.zarr/c/c").glob("[2-9]")) and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    array.append(np.full(20, 2, "i4"))
    process.send_signal(signal.SIGCONT)
    said = process.communicate()[1]
    found = zarr.open_group(tmp_path / "a.zarr")["c"][:]
    if process.returncode:
        assert "shape" in said
        assert np.array_equal(found, np.concatenate([np.full(10, 1), np.full(20, 2)]))


def test_nothing_is_made_of_the_first_file_if_a_later_one_does_not_fit(months, tmp_path):
    other = changed(months, tmp_path, CHANGES["units"][0])
    assert "/t2m: its units are" in run(*months[:2], other, tmp_path / "a.zarr", "--append-dim", "time", code=1)
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize("options", ["--append-dim time", ""])
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_an_import_into_a_new_hierarchy_that_is_interrupted_goes_on(months, tmp_path, options, kill):
    sources = months if options else months[:1]
    command = [BIN, "import", *sources, tmp_path / "a.zarr", *options.split(), "--chunks", "1,9,9", "--codecs", "gzip"]
    interrupted = 0
    for delay in (0.1, 0.4, 1):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(delay * random.random())
        process.send_signal(kill)
        assert process.wait(20) is not None
        interrupted += process.returncode != 0
        if process.returncode == 0:
            break
    else:
        run(*command[2:])
    xr.testing.assert_equal(opened(tmp_path / "a.zarr"), joined(sources))
    assert interrupted


def packed_times(data):
    data.time.encoding.update(units="days since 2023-01-01", dtype="f8", scale_factor=0.5)


def test_parts_that_would_be_lost_or_wrong_are_refused(months, tmp_path):
    run(months[0], tmp_path / "a.zarr")
    assert "same elements" in run(months[0], months[2], tmp_path / "a.zarr", "--region", "time=0:31", code=1)
    assert "time" in run(f"{months[1]}#t2m", tmp_path / "a.zarr/t2m", "--append-dim", "time", code=1)
    assert "no array has a dimension" in run(months[0], tmp_path / "a.zarr", "--region", "time=0:31,zz=0:1", code=1)
    assert "twice" in run(months[0], tmp_path / "a.zarr", "--region", "time=0:31,time=0:31", code=1)
    square = zarr.open_group(tmp_path / "b.zarr", mode="w").create_array("v", shape=(3, 3), dtype="i4", dimension_names=["x", "x"])
    square[:] = 1
    assert "more than once" in run(tmp_path / "b.zarr", tmp_path / "b.zarr", "--append-dim", "x", code=1)
    times = zarr.open_group(tmp_path / "c.zarr", mode="w")
    times.create_array("t", data=np.array([5], "i8"), dimension_names=["t"])
    part = zarr.open_group(tmp_path / "d.zarr", mode="w")
    part.create_array("t", data=np.array([3], "i8"), dimension_names=["t"])
    assert "in order" in run(tmp_path / "d.zarr", tmp_path / "c.zarr", "--append-dim", "t", code=1)


def test_packed_times_in_other_units_are_refused(tmp_path):
    for number, units in enumerate(["days since 2000-01-01", "days since 2000-02-01"]):
        data = xr.Dataset({"v": ("time", [1.0, 2.0])}, coords={"time": ("time", np.array([0, 4], "i4"), {"units": units, "scale_factor": 0.25})})
        data.to_netcdf(tmp_path / f"{number}.nc", unlimited_dims=["time"])
    assert "times are packed" in run(tmp_path / "0.nc", tmp_path / "1.nc", tmp_path / "a.zarr", "--append-dim", "time", code=1)


def test_files_with_one_array_each_are_appended_whatever_their_names(tmp_path):
    images = [RANDOM.integers(0, 255, (n, 30), "u1") for n in (10, 20, 5)]
    for number, image in enumerate(images):
        tifffile.imwrite(tmp_path / f"p{number}.tif", image)
    run(*[tmp_path / f"p{n}.tif" for n in range(3)], tmp_path / "a.zarr", "--append-dim", "y")
    assert np.array_equal(zarr.open_group(tmp_path / "a.zarr")["p0"][:], np.concatenate(images))


def test_arrays_of_zarr_2_with_a_usual_fill_value_are_extended(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    group.create_array("v", data=np.arange(5), chunks=(3,))
    np.savez(tmp_path / "x.npz", v=np.arange(4))
    run(tmp_path / "x.npz", tmp_path / "a.zarr", "--append-dim", "0")
    assert np.array_equal(zarr.open_group(tmp_path / "a.zarr")["v"][:], [0, 1, 2, 3, 4, 0, 1, 2, 3])


def test_a_damaged_source_is_named_and_leaves_nothing_behind(tmp_path):
    source = zarr.open_group(tmp_path / "s.zarr", mode="w")
    source.create_array("c", data=np.arange(100, dtype="i4"), chunks=(5,), compressors=[zarr.codecs.GzipCodec()])
    (tmp_path / "s.zarr/c/c/15").write_bytes(b"broken")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("c", data=np.ones(10, "i4"), chunks=(5,))
    said = run(tmp_path / "s.zarr", tmp_path / "a.zarr", "--append-dim", "0", code=1)
    assert str(tmp_path / "s.zarr") in said and "no array has changed" in said, said
    assert sorted(path.name for path in (tmp_path / "a.zarr/c/c").iterdir()) == ["0", "1"]
    assert not (tmp_path / "a.zarr/.zarrfs").exists()


def test_a_variable_is_not_appended_to_one_of_another_name(tmp_path):
    for name in ("sst", "t2m"):
        xr.Dataset({name: ("time", [1.0, 2.0])}).to_netcdf(tmp_path / f"{name}.nc", unlimited_dims=["time"])
    run(tmp_path / "t2m.nc", tmp_path / "a.zarr")
    assert "/sst: the target has no such array" in run(tmp_path / "sst.nc", tmp_path / "a.zarr", "--append-dim", "time", code=1)
    assert 'no array named "t2m"' in run(tmp_path / "sst.nc", tmp_path / "a.zarr/t2m", "--append-dim", "time", code=1)
