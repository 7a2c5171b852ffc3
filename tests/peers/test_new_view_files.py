"""A program that makes a new file on the name of a view: what it says goes into the arrays, all of it or nothing."""

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import h5py
import nibabel
import nrrd
import numpy as np
import pandas
import pytest
import SimpleITK
import tifffile
import xarray as xr
import zarr

from mounts import BIN, detach, is_alive, wait_until

RANDOM = np.random.default_rng(50)
LAT, LON = np.linspace(-40.0, 40.0, 4), np.linspace(0.0, 300.0, 5)
DIALECTS = {
    "v2": {"zarr_format": 2},
    "v3": {"zarr_format": 3},
    "shards": {"zarr_format": 3, "encoding": {"t2m": {"chunks": (2, 2, 5), "shards": (4, 4, 5)}}},
}


@pytest.fixture(params=DIALECTS)
def climate(request, tmp_path):
    return make_climate(tmp_path / "climate.zarr", **DIALECTS[request.param])


def make_climate(path, **options):
    """A hierarchy with elements that netCDF-3 has, and others that it converts: 64-bit integers, and times."""
    shape = (6, 4, 5)
    data = xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), RANDOM.random(shape, "f4"), {"units": "K"}),
            "count": (("time", "lat", "lon"), RANDOM.integers(0, 1000, shape)),
            "flag": (("lat",), np.array([0, 1, 0, 1], "i1")),
            "crs": ((), np.int32(7), {"name": "a sphere"}),
        },
        {"time": pandas.date_range("2020-01-01", periods=6), "lat": ("lat", LAT, {"units": "degrees_north"}), "lon": LON},
        {"title": "before"},
    )
    data.lon.attrs["units"] = "degrees_east"
    data.to_zarr(path, mode="w", consolidated=True, **options)
    return path


def run(*command, code=0):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def stored(path):
    data = xr.open_zarr(path).load()
    data.close()
    return data


def bytes_below(path):
    """Everything in a store, but the files of writers."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and ".zarrfs" not in file.parts)
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def assert_nothing_left(path):
    left = [file for file in path.rglob("*") if file.name.startswith("aside-") or file.suffix in {".tmp", ".nc"}]
    assert not left, left


def test_what_climate_programs_make_comes_back(mount, climate, tmp_path):
    before = stored(climate)
    with mount(climate, copy=False) as m:
        view, made = m / "__root__.nc", tmp_path / "made.nc"
        run("cdo", "-s", "mulc,2", view, made)
        run("cp", made, view)
        now = stored(climate)
        np.testing.assert_array_equal(now.t2m, before.t2m * 2)
        np.testing.assert_array_equal(now["count"], before["count"] * 2)
        assert "mulc,2" in now.attrs["history"] and now.attrs["title"] == "before"
        run("cdo", "-s", "-O", "addc,1", made, view)
        np.testing.assert_array_equal(stored(climate).t2m, before.t2m * 2 + 1)
        run("ncap2", "-O", "-s", "t2m=t2m-1", view, view)
        np.testing.assert_allclose(stored(climate).t2m, before.t2m * 2, rtol=1e-5)
        run("ncap2", "-O", "-s", 'count=count+1;t2m@units="C"', view, made)
        run("ncks", "-A", "-v", "t2m,count", made, view)
        now = stored(climate)
        np.testing.assert_array_equal(now["count"], before["count"] * 2 + 2)
        assert now.t2m.attrs == {"units": "C"}
        assert now.crs == 7 and now.crs.attrs == {"name": "a sphere"}, "CDO leaves it out"
        run("cdo", "-s", "-O", "shifttime,1day", view, made)
        run("cp", made, m / "made.nc")
        run("mv", m / "made.nc", view)
        np.testing.assert_array_equal(stored(climate).time, before.time + np.timedelta64(1, "D"))
        run("nccopy", "-k", "nc4", "-d", "1", "-s", view, made)
        with xr.open_dataset(made) as data:
            changed = data.load()
        changed["t2m"] = (changed.t2m.dims, RANDOM.random(changed.t2m.shape, "f4"), {"units": "K", "new": [1.5, 2.5]})
        changed.to_netcdf(view)
        now = stored(climate)
        np.testing.assert_array_equal(now.t2m, changed.t2m)
        assert now.t2m.attrs["new"] == [1.5, 2.5] and now.t2m.attrs["units"] == "K"
        with xr.open_dataset(view) as shown:
            np.testing.assert_array_equal(shown.t2m, changed.t2m)
            np.testing.assert_array_equal(shown.time, before.time + np.timedelta64(1, "D"))
    assert_nothing_left(climate)
    assert "0 damaged" in run(BIN, "check", climate).stderr
    xr.testing.assert_identical(stored(climate), xr.open_zarr(climate, consolidated=False).load())


def test_a_view_of_one_array_takes_its_values_and_attributes(mount, climate, tmp_path):
    before = stored(climate)
    with mount(climate, copy=False) as m:
        run("ncap2", "-O", "-s", 't2m=t2m*4;t2m@units="4 K"', m / "t2m.nc", tmp_path / "made.nc")
        run("cp", tmp_path / "made.nc", m / "t2m.nc")
        now = stored(climate)
        np.testing.assert_array_equal(now.t2m, before.t2m * 4)
        assert now.t2m.attrs == {"units": "4 K"} and now.attrs == before.attrs
        np.testing.assert_array_equal(now["count"], before["count"])


def resave(path, change):
    """Has a library read a file, change its values, and make the file anew."""
    end = path.suffix
    if end == ".npy":
        np.save(path, np.asfortranarray(change(np.load(path))))
    elif end == ".nii":
        image = nibabel.load(path)
        new = nibabel.Nifti1Image(change(np.asanyarray(image.dataobj)), image.affine)
        new.header["descrip"] = b"new"
        nibabel.save(new, path)
    elif end == ".nrrd":
        values, header = nrrd.read(str(path))
        nrrd.write(str(path), change(values), {**header, "encoding": "gzip"})
    elif end == ".mha":
        image = SimpleITK.ReadImage(str(path))
        new = SimpleITK.GetImageFromArray(change(SimpleITK.GetArrayFromImage(image)))
        new.CopyInformation(image)
        SimpleITK.WriteImage(new, str(path), True)
    elif end == ".tif":
        tifffile.imwrite(path, change(tifffile.imread(path)), compression="zlib", tile=(16, 16))
    elif end == ".h5":
        with h5py.File(path) as file:
            name = next(iter(file))
            values = change(file[name][...])
        with h5py.File(path, "w") as file:
            file.create_dataset(name, data=values, compression="gzip", shuffle=True)
    elif end == ".nc":
        with xr.open_dataset(path, decode_cf=False) as file:
            data = file.load()
        for variable in data.data_vars.values():
            variable.values[...] = change(variable.values)
        data.to_netcdf(path, engine="netcdf4")


ENDS = [".npy", ".nii", ".nrrd", ".mha", ".tif", ".h5", ".nc"]
TYPES = ["u1", "i2", "i4", "f4", "f8", "u2", "i8"]


@pytest.mark.parametrize("layout", ["v3", "v2", "shards"])
@pytest.mark.parametrize("end", ENDS)
def test_a_file_that_a_library_makes_anew_changes_the_array(mount, tmp_path, end, layout):
    store, shape = tmp_path / "a.zarr", (7, 6, 5)
    chunks = {"chunks": (2, 3, 2), "shards": (4, 6, 4)} if layout == "shards" else {"chunks": (3, 4, 5)}
    group = zarr.open_group(store, zarr_format=2 if layout == "v2" else 3)
    values = {dtype: (RANDOM.random(shape) * 90).astype(dtype) for dtype in TYPES if (end, dtype) != (".nii", "i8")}
    for dtype, one in values.items():
        group.create_array(dtype, data=one, **chunks)
    with mount(store, copy=False, *(["--log-level", "error"])) as m:
        for dtype, one in values.items():
            resave(m / f"{dtype}{end}", lambda found: (found + 1).astype(found.dtype))
            np.testing.assert_array_equal(zarr.open_array(store / dtype, mode="r")[...], one + 1, dtype)
        resave(m / f"i4{end}", lambda found: found * 0)
        assert not zarr.open_array(store / "i4", mode="r")[...].any()
    assert "0 damaged" in run(BIN, "check", store).stderr


def refused(m, view, made, why):
    m.refused(errno.EINVAL, why, lambda: shutil.copyfile(made, view))


def test_a_file_that_does_not_fit_changes_nothing_and_says_why(mount, climate, tmp_path):
    before, made = bytes_below(climate), tmp_path / "made.nc"
    with mount(climate, copy=False) as m:
        view = m / "__root__.nc"
        with xr.open_dataset(view) as found:
            data = found.load()
        for change, why in [
            (data.isel(time=slice(5)), "has the shape .*zarrfs import"),
            (xr.Dataset(), "has no variable"),
            (data.assign(more=1), 'has a variable "more"'),
            (data.assign(t2m=data.t2m.astype("f8") + 1e-9), "the variable t2m: .* without a change of"),
            (data.assign(count=data["count"] * 1e20), "the variable count: .* without a change of"),
            (data.assign(flag=data.flag.astype("i4") + 300), "the variable flag: .* without a change of 300"),
            (data.rename_dims(lon="x").drop_vars("lon"), "dimensions have other names"),
        ]:
            change.to_netcdf(made)
            refused(m, view, made, why)
            assert bytes_below(climate) == before, why
        data.to_netcdf(made, format="NETCDF3_64BIT")
        whole = made.read_bytes()
        for length in (1, 100, len(whole) // 2, len(whole) - 100):
            made.write_bytes(whole[:length])
            refused(m, view, made, "__root__.nc")
            assert bytes_below(climate) == before, length
        np.save(tmp_path / "made.npy", np.zeros(3))
        refused(m, view, tmp_path / "made.npy", "another format")
        with xr.open_dataset(view) as found:
            xr.testing.assert_identical(found.load(), data)
    assert_nothing_left(climate)


WRITER = """
import os, signal, sys
data = open(sys.argv[1], "rb").read()
file = os.open(sys.argv[2], os.O_WRONLY | os.O_TRUNC)
os.write(file, data)
print("written", flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end",
    ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGTERM)", "os._exit(1)", "sys.exit(3)", "os._exit(0)"],
)
def test_a_program_that_fails_before_it_closes_the_file_changes_nothing(mount, tmp_path, end):
    climate = make_climate(tmp_path / "climate.zarr")
    before, made = bytes_below(climate), tmp_path / "made.nc"
    with mount(climate, copy=False) as m:
        run("cdo", "-s", "mulc,2", m / "__root__.nc", made)
        if "(0)" not in end:
            m.allow("its program failed or was killed")
        subprocess.run(["python3", "-c", WRITER.format(end=end), made, m / "__root__.nc"], capture_output=True)
        assert (bytes_below(climate) == before) == ("(0)" not in end)
        if "(0)" not in end:
            with xr.open_dataset(m / "__root__.nc") as shown:
                assert "history" not in shown.attrs


def test_a_daemon_that_is_killed_leaves_the_old_or_the_new_values(mount, tmp_path, tried):
    """Killed at random moments of a change of two arrays with 400 chunks, and of attributes."""
    store, made, rng = tmp_path / "a.zarr", tmp_path / "made.nc", random.Random(50)
    shape = (100, 8, 8)
    data = xr.Dataset({name: (("x", "y", "z"), np.zeros(shape, "i4")) for name in "ab"}, attrs={"number": 0})
    data.to_zarr(store, encoding={name: {"chunks": (1, 4, 8)} for name in "ab"}, consolidated=True)
    number, seen = 0, set()
    for _ in range(int(os.environ.get("ZARRFS_KILLS", 6))):
        with mount(store, copy=False) as m:
            now = stored(store)
            assert {int(now[name].min()) for name in "ab"} | {int(now[name].max()) for name in "ab"} == {number}
            assert now.attrs["number"] == number
            (data + number + 1).assign_attrs(number=number + 1).to_netcdf(made, format="NETCDF3_64BIT")
            writer = subprocess.Popen(["cp", made, m / "__root__.nc"], stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.0, 0.35))
            os.kill(m.pid, signal.SIGKILL)
            writer.wait()
            wait_until(lambda: not is_alive(m.pid))
            detach(m.path)
            # Whoever mounts next finishes what has begun.
            run(BIN, "mount", store, m.path, "--log-file", tmp_path / "log")
            run(BIN, "umount", m.path)
            now = stored(store)
            found = {int(value) for name in "ab" for value in np.unique(now[name])} | {now.attrs["number"]}
            assert len(found) == 1 and found <= {number, number + 1}, found
            seen.add(found.copy().pop() - number)
            number = found.pop()
            tried("kills")
    xr.testing.assert_identical(stored(store), xr.open_zarr(store, consolidated=False).load())
    assert_nothing_left(store)


def test_a_full_disk_leaves_the_old_values(mount, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1200k", "none", disk)
    try:
        store, made = disk / "a.zarr", tmp_path / "made.npy"
        zeros = np.zeros((64, 64, 64), "f4")
        zarr.create_array(store, data=zeros, chunks=(8, 64, 64))
        before = bytes_below(store)
        np.save(made, np.asfortranarray(RANDOM.random(zeros.shape, "f4")))  # 1 MiB, which does not shrink
        zarr.create_array(disk / "other.zarr", data=RANDOM.random((20, 64, 64), "f4"))
        with mount(store, copy=False) as m:
            m.expect("No space left|no space|ENOSPC")
            with pytest.raises(OSError, match="No space left"):
                shutil.copyfile(made, m / "__root__.npy")
            assert bytes_below(store) == before
            shutil.rmtree(disk / "other.zarr")
            shutil.copyfile(made, m / "__root__.npy")
            np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], np.load(made))
    finally:
        run("umount", disk)


def test_two_at_once_leave_the_values_of_one(mount, tmp_path):
    store = tmp_path / "a.zarr"
    shape = (40, 16, 16)
    zarr.create_array(store, data=np.zeros(shape, "i4"), chunks=(1, 16, 16))
    for number in (1, 2):
        np.save(tmp_path / f"{number}.npy", np.asfortranarray(np.full(shape, number, "i4")))
    with mount(store, copy=False) as one, mount(store, copy=False) as other:
        for mounts in [(one, one), (one, other)] * 3:
            views = zip((1, 2), mounts, strict=True)
            writers = [subprocess.Popen(["cp", tmp_path / f"{n}.npy", m / "__root__.npy"]) for n, m in views]
            assert [writer.wait() for writer in writers] == [0, 0]
            assert len(np.unique(zarr.open_array(store, mode="r")[...])) == 1


def test_a_file_of_another_layout_can_be_written_in_any_order(mount, tmp_path):
    store, made = tmp_path / "a.zarr", tmp_path / "made.npy"
    values = RANDOM.random((30, 40))
    zarr.create_array(store, data=np.zeros((30, 40)), chunks=(10, 10))
    np.save(made, np.asfortranarray(values))
    whole = made.read_bytes()
    with mount(store, copy=False) as m:
        file = os.open(m / "__root__.npy", os.O_RDWR | os.O_TRUNC)
        assert os.fstat(file).st_size == 0
        for start in reversed(range(0, len(whole), 1000)):
            os.pwrite(file, whole[start : start + 1000], start)
        assert os.fstat(file).st_size == len(whole) and os.pread(file, len(whole), 0) == whole
        os.fsync(file)
        assert not zarr.open_array(store, mode="r")[...].any(), "not before it is closed"
        os.close(file)
        np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values)
        np.testing.assert_array_equal(np.load(m / "__root__.npy"), values)


def test_an_image_at_another_place_is_refused(mount, tmp_path):
    store = tmp_path / "a.zarr"
    zarr.create_array(store / "x", data=np.zeros((4, 5, 6), "i2"))
    with mount(store, copy=False) as m:
        image = nibabel.load(m / "x.nii")
        moved = nibabel.Nifti1Image(np.ones(image.shape, "i2"), np.diag([2.0, 1.0, 1.0, 1.0]))
        m.refused(errno.EINVAL, "another place or size", lambda: nibabel.save(moved, m / "x.nii"))
        assert not zarr.open_array(store / "x", mode="r")[...].any()


@pytest.mark.parametrize("end", [".npy", ".nc", ".h5", ".nii", ".tif"])
def test_an_array_that_is_no_whole_number_of_pieces_is_replaced(mount, tmp_path, end):
    group, shapes = zarr.open_group(tmp_path / "a.zarr", mode="w"), [(600, 500), (2, 500, 700), (3, 3, 200, 400)]
    shapes += [(131_073,)] if end in (".npy", ".nc", ".h5") else []
    arrays = [group.create_array(f"x{len(n)}", data=RANDOM.random(n), chunks=tuple(min(l, 1000) for l in n)) for n in shapes]
    before = [array[...] for array in arrays]
    with mount(tmp_path / "a.zarr", copy=False) as m:
        for array, values in zip(arrays, before):
            resave(m / f"{array.name.strip('/')}{end}", lambda found: found + 1)
            np.testing.assert_array_equal(array[...], values + 1)


def test_programs_that_have_the_view_open_go_on(mount, tmp_path):
    store, values = tmp_path / "a.zarr", np.arange(20_000.0)
    zarr.open_group(store, mode="w").create_array("x", data=values, chunks=(1000,))
    new = (values + 1).astype(">f8")
    np.save(tmp_path / "new.npy", new)
    whole = (tmp_path / "new.npy").read_bytes()
    first = "import numpy, sys; print(numpy.load(sys.argv[1])[0])"
    with mount(store, copy=False) as m, open(m / "x.npy", "rb", buffering=0) as reader:
        file = os.open(m / "x.npy", os.O_RDWR | os.O_TRUNC)
        try:
            os.write(file, whole[:-8])
            # What another program reads has no effect on what the writer reads back.
            assert run(sys.executable, "-c", first, m / "x.npy").stdout == "0.0\n"
            assert os.pread(file, 4096, 0) == whole[:4096]
            # A duplicate that is closed stores nothing yet.
            os.close(os.dup(file))
            assert zarr.open_array(store / "x", mode="r")[0] == 0
            os.pwrite(file, whole[-8:], len(whole) - 8)
        finally:
            os.close(file)
        np.testing.assert_array_equal(zarr.open_array(store / "x", mode="r")[...], new)
        assert len(reader.read(4096)) == 4096


def test_a_writer_of_hdf5_that_is_killed_leaves_a_view_that_others_read(mount, tmp_path):
    store = tmp_path / "a.zarr"
    zarr.open_group(store, mode="w").create_array("x", data=np.arange(10), chunks=(5,))
    program = "import h5py,os,sys; f=h5py.File(sys.argv[1],'w',libver='latest'); f['x']=1; f.flush(); os.kill(os.getpid(),9)"
    with mount(store, copy=False) as m:
        m.allow("its program failed or was killed")
        subprocess.run([sys.executable, "-c", program, m / "x.h5"])
        with h5py.File(m / "x.h5") as file:
            assert file["x"][...].tolist() == list(range(10))


def test_values_that_would_mean_something_else_are_refused(mount, tmp_path):
    store = tmp_path / "a.zarr"
    group = zarr.open_group(store, mode="w")
    group.create_array("when", data=np.array(["2020-01-01", "2020-01-02"], "M8[ns]"), chunks=(2,))
    group.create_array("cz", data=np.zeros((2, 2, 8, 8), "u2"), chunks=(2, 2, 8, 8), dimension_names=["c", "z", "y", "x"])
    group.create_array("z ", data=np.arange(3), chunks=(3,), dimension_names=["i"])
    group.create_array("z", data=np.arange(3), chunks=(3,), dimension_names=["i"])
    before = bytes_below(store)
    with mount(store, copy=False) as m:
        m.refused(errno.EINVAL, "datetime64.* cannot become", lambda: np.save(m / "when.npy", np.array(["2020-01-01"] * 2, "M8[s]")))
        with xr.open_dataset(m / "z .nc", decode_cf=False) as file:
            data = (file.load() + 100).assign_attrs(file.attrs)
        data.to_netcdf(tmp_path / "made.nc", format="NETCDF3_64BIT")
        refused(m, m / "z .nc", tmp_path / "made.nc", "changes the name")
        tifffile.imwrite(tmp_path / "made.tif", np.ones((2, 2, 8, 8), "u2"), photometric="minisblack")
        refused(m, m / "cz.tif", tmp_path / "made.tif", "dimensions have other names|shape")
    assert bytes_below(store) == before


def test_cdo_writes_to_a_store_of_zarr_2_whose_coordinates_have_a_fill_value(mount, tmp_path):
    store = tmp_path / "a.zarr"
    group = zarr.open_group(store, mode="w", zarr_format=2)
    for name, values, names in [("lat", LAT, ["lat"]), ("lon", LON, ["lon"]), ("t", np.ones((4, 5)), ["lat", "lon"])]:
        array = group.create_array(name, data=values, chunks=values.shape, fill_value=0.0)
        array.attrs["_ARRAY_DIMENSIONS"] = names
    with mount(store, copy=False) as m:
        run("cdo", "-s", "addc,1", m / "__root__.nc", tmp_path / "made.nc")
        run("cp", tmp_path / "made.nc", m / "__root__.nc")
        assert (zarr.open_array(store / "t", mode="r")[...] == 2).all()


def test_a_level_of_an_image_leaves_the_header_of_the_image(mount, tmp_path):
    store = tmp_path / "a.zarr"
    group, header = zarr.open_group(store, mode="w"), np.arange(348, dtype="u1")
    group.create_array("0", data=np.zeros((4, 5, 6), "i2"), chunks=(4, 5, 6), dimension_names=["z", "y", "x"])
    group.create_array("nifti", data=header, chunks=(348,))
    with mount(store, copy=False) as m:
        resave(m / "0.nii", lambda found: found + 1)
    assert (zarr.open_array(store / "0", mode="r")[...] == 1).all()
    np.testing.assert_array_equal(zarr.open_array(store / "nifti", mode="r")[...], header)


def test_values_that_could_not_be_stored_replace_none_that_are_newer(mount, tmp_path):
    store, values = tmp_path / "a.zarr", np.zeros((4, 8), "f8")
    zarr.create_array(store, data=values, chunks=(1, 8), fill_value=9)
    for number in (1, 2):
        np.save(tmp_path / f"{number}.npy", values + number)
    # A directory into which nothing can be moved.
    closed = store / "c/2"
    with mount(store, copy=False) as m:
        m.expect("new values|cross-device|Read-only")
        for later in ("a file", "a chunk"):
            run("mount", "--bind", closed, closed)
            try:
                run("mount", "-o", "remount,ro,bind", closed)
                with pytest.raises(OSError):
                    shutil.copyfile(tmp_path / "1.npy", m / "__root__.npy")
                with pytest.raises(OSError):
                    (m / "c/3/0").write_bytes(bytes(64))
            finally:
                run("umount", closed)
            if later == "a file":
                shutil.copyfile(tmp_path / "2.npy", m / "__root__.npy")
            else:
                (m / "c/3/0").write_bytes((values[0] + 7).tobytes())
        assert_nothing_left(store)
    with mount(store, copy=False) as m:
        assert np.load(m / "__root__.npy")[:, 0].tolist() == [1, 1, 1, 7]
        assert zarr.open_array(store, mode="r")[:, 5].tolist() == [1, 1, 1, 7]


def test_a_new_file_is_stored_although_another_program_has_the_view_open_to_write(mount, tmp_path):
    store, values = tmp_path / "a.zarr", np.arange(1000.0)
    zarr.open_group(store, mode="w").create_array("x", data=values, chunks=(100,))
    np.save(tmp_path / "new.npy", values[::-1])
    with mount(store, copy=False) as m, open(m / "x.npy", "r+b"):
        run("cp", tmp_path / "new.npy", m / "x.npy")
        wait_until(lambda: zarr.open_array(store / "x", mode="r")[0] == 999)
        np.testing.assert_array_equal(np.load(m / "x.npy"), values[::-1])


def test_a_length_that_a_program_sets_is_that_of_its_own_new_file(mount, tmp_path):
    store, values = tmp_path / "a.zarr", np.arange(1000.0)
    zarr.open_group(store, mode="w").create_array("x", data=values, chunks=(100,))
    np.save(tmp_path / "new.npy", values.astype(">f8") + 1)
    whole = (tmp_path / "new.npy").read_bytes()
    with mount(store, copy=False) as m:
        m.expect("cannot be resized")
        one = os.open(m / "x.npy", os.O_RDWR | os.O_TRUNC)
        os.write(one, whole)
        other = os.open(m / "x.npy", os.O_RDWR | os.O_TRUNC)
        with contextlib.suppress(OSError):
            os.ftruncate(other, 200)
        assert os.pread(one, len(whole), 0) == whole
        os.close(other)
        os.close(one)
        wait_until(lambda: zarr.open_array(store / "x", mode="r")[-1] == 1000)
        np.testing.assert_array_equal(np.load(m / "x.npy"), values + 1)
