"""A mount with --import: a new file whose name would be that of a view becomes the node of this view."""

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
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from mounts import BIN, detach, is_alive, wait_until
from test_new_view_files import assert_nothing_left, climate, run, stored

__all__ = ["climate"]
RANDOM = np.random.default_rng(51)


def test_what_climate_programs_make_becomes_a_group(mount, climate, tmp_path):
    before = stored(climate)
    with mount(climate, "--import", copy=False) as m:
        run("cdo", "-s", "mulc,2", m / "__root__.nc", m / "twice.nc")
        np.testing.assert_array_equal(stored(climate / "twice").t2m, before.t2m * 2)
        assert (m / "twice").is_dir() and "twice.nc" not in os.listdir(m.path) and not (climate / "twice.nc").exists()
        run("cdo", "-s", "-sub", "-selname,t2m", m / "twice.nc", "-selname,t2m", m / "__root__.nc", m / "again.nc")
        np.testing.assert_array_equal(stored(climate / "again").t2m, before.t2m)
        # NCO writes a scratch file and renames it.
        run("ncap2", "-O", "-s", "t2m=t2m-1", m / "twice.nc", m / "less.nc")
        np.testing.assert_array_equal(stored(climate / "less").t2m, before.t2m * 2 - 1)
        run("ncks", "-O", "-v", "t2m", m / "less.nc", m / "less.nc")
        with xr.open_dataset(m / "less.nc") as file:
            np.testing.assert_array_equal(file.t2m, before.t2m * 2 - 1)
        (m / "runs").mkdir()
        run("nccopy", "-k", "nc4", "-d", "1", "-s", m / "__root__.nc", m / "runs" / "june.nc")
        xr.testing.assert_equal(stored(climate / "runs" / "june"), before)
        with xr.open_dataset(m / "runs/june.nc") as file:
            file.load().to_netcdf(m / "runs/july.nc")
        xr.testing.assert_equal(stored(climate / "runs" / "july"), before)
    assert_nothing_left(climate)
    assert "0 damaged" in run(BIN, "check", climate).stderr
    # The copies of metadata know the new nodes.
    assert {"less/t2m", "runs/july/time"} <= {name for name, _ in zarr.open_consolidated(climate).members(max_depth=None)}


def test_a_rename_onto_a_view_that_is_there_changes_its_node(mount, climate, tmp_path):
    (values := stored(climate).load()).t2m[...] += 1
    values.to_netcdf(tmp_path / "new.nc")
    values.to_netcdf(tmp_path / "new.nc4")
    with mount(climate, "--import", copy=False) as m:
        run("ncap2", "-O", "-s", "t2m=t2m+2", m / "__root__.nc", m / "__root__.nc")
        np.testing.assert_array_equal(stored(climate).t2m, values.t2m + 1)
        shutil.copy(tmp_path / "new.nc4", m / "scratch")
        run("mv", m / "scratch", m / "__root__.nc4")
        np.testing.assert_array_equal(stored(climate).t2m, values.t2m)
        assert "__root__" not in os.listdir(m.path)
    assert not (climate / "__root__").exists()
    assert_nothing_left(climate)


def test_a_file_of_one_array_becomes_an_array(mount, tmp_path):
    store, values = tmp_path / "a.zarr", RANDOM.random((64, 128, 64)).astype("f4")
    zarr.open_group(store, mode="w")
    with mount(store, "--import", "--codecs", "gzip", "--shards", "4M", copy=False) as m:
        np.save(m / "one.npy", values)
        np.save(m / "two.npy", np.asfortranarray(values))
        tifffile.imwrite(m / "three.tif", values, photometric="minisblack")
        for name in ["one", "two", "three"]:
            array = zarr.open_array(store / name, mode="r")
            np.testing.assert_array_equal(array[...], values)
            assert array.shards is not None and "Gzip" in str(array.compressors)
        np.testing.assert_array_equal(np.load(m / "two.npy"), values)
        np.testing.assert_array_equal(tifffile.imread(m / "three.tif"), values)


def test_a_file_of_several_arrays_becomes_a_group(mount, tmp_path):
    store, values = tmp_path / "a.zarr", RANDOM.random((6, 5, 4)).astype("f4")
    zarr.open_group(store, mode="w")
    with mount(store, "--import", copy=False) as m:
        with h5py.File(m / "deep.h5", "w") as file:
            file.create_dataset("a/b/x", data=values, chunks=(3, 5, 2), compression="gzip")
            file["a"].attrs["title"] = "deep"
            file["words"] = ["one", "two"]
        nibabel.save(nibabel.Nifti1Image(values, np.diag([2.0, 3.0, 4.0, 1.0])), m / "scan.nii")
        np.testing.assert_array_equal(zarr.open_array(store / "deep/a/b/x", mode="r")[...], values)
        with h5py.File(m / "deep.h5") as file:
            np.testing.assert_array_equal(file["a/b/x"][...], values)
            assert file["a"].attrs["title"] == "deep" and file["words"].asstr()[...].tolist() == ["one", "two"]
        image = nibabel.load(m / "scan.nii")
        np.testing.assert_array_equal(np.asanyarray(image.dataobj), values)
        np.testing.assert_array_equal(image.affine, np.diag([2.0, 3.0, 4.0, 1.0]))


def test_what_does_not_become_a_node_stays_an_ordinary_file(mount, tmp_path):
    store = tmp_path / "a.zarr"
    group = zarr.open_group(store, mode="w")
    group.create_array("x", data=np.arange(3), chunks=(3,))
    whole = tmp_path / "whole.npy"
    np.save(whole, np.arange(1000))
    with mount(store, "--import", copy=False) as m:
        m.refused(errno.EINVAL, "half.npy.*ends at byte", lambda: (m / "half.npy").write_bytes(whole.read_bytes()[:2000]))
        assert (m / "half.npy").read_bytes() == whole.read_bytes()[:2000] == (store / "half.npy").read_bytes()
        run("cp", whole, m / "half.npy")
        assert zarr.open_array(store / "half", mode="r").shape == (1000,) and not (store / "half.npy").exists()
        m.refused(errno.EINVAL, "text.nc.*no format", lambda: (m / "text.nc").write_text("a text"))
        program = "import sys,os; f=open(sys.argv[1],'wb'); f.write(open(sys.argv[2],'rb').read()); f.flush(); os.kill(os.getpid(), 9)"
        m.allow("its program failed or was killed")
        subprocess.run([sys.executable, "-c", program, m / "killed.npy", whole])
        assert (m / "killed.npy").read_bytes() == whole.read_bytes()
        os.chmod(whole, 0o600)
        run("cp", "-p", whole, m / "private.npy")
        run("sh", "-c", 'umask 077; cat "$1" > "$2"', "sh", whole, m / "hidden.npy")
        assert (store / "hidden").stat().st_mode & 0o777 == 0o700, "no more than the file had"
        for name in ["note.txt", "table.csv", "x.npy.bak", "scan.npy.gz"]:
            (m / name).write_bytes(whole.read_bytes())
            assert (store / name).read_bytes() == whole.read_bytes()
        (m / "empty.nc").touch()
        assert (store / "empty.nc").exists()
        # A duplicate that is closed makes nothing yet.
        file = os.open(m / "slow.npy", os.O_CREAT | os.O_WRONLY)
        os.write(file, whole.read_bytes()[:500])
        os.close(os.dup(file))
        os.write(file, whole.read_bytes()[500:])
        os.close(file)
        assert zarr.open_array(store / "slow", mode="r")[...].tolist() == list(range(1000))
    with mount(store, copy=False) as m:
        run("cp", whole, m / "plain.npy")
        assert (store / "plain.npy").exists() and not (store / "plain").exists()


def test_a_descriptor_that_programs_share_makes_the_node_at_its_last_close(mount, tmp_path):
    store, whole = tmp_path / "a.zarr", tmp_path / "whole.npy"
    zarr.open_group(store, mode="w")
    np.save(whole, np.arange(1000.0))
    with mount(store, "--import", copy=False) as m:
        script = 'head -c 3000 "$1"; sleep 0.3; tail -c +3001 "$1"'
        run("sh", "-c", f'( {script} ) > "$2"', "sh", whole, m / "shared.npy")
        assert zarr.open_array(store / "shared", mode="r")[...].tolist() == list(range(1000))
        late = "import os,sys,time; time.sleep(0.5); os.pwrite(1, bytes(8), 200); os.close(1)"
        run("sh", "-c", f'( cat "$1"; {sys.executable} -c "{late}" ) > "$2"', "sh", whole, m / "late.npy")
        assert zarr.open_array(store / "late", mode="r")[9] == 0
        # The parent closes first.
        program = """import os, sys, time
whole = open(sys.argv[1], "rb").read()
file = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY)
os.write(file, whole[:3000])
if os.fork():
    os.close(file)
    os.wait()
else:
    time.sleep(0.3)
    os.write(file, whole[3000:])
    os.close(file)
"""
        run(sys.executable, "-c", program, whole, m / "forked.npy")
        wait_until(lambda: (store / "forked/zarr.json").exists())
        assert zarr.open_array(store / "forked", mode="r")[...].tolist() == list(range(1000))


def test_a_file_that_would_not_be_found_again_stays(mount, tmp_path):
    store = tmp_path / "a.zarr"
    zarr.open_group(store, mode="w")
    with xr.Dataset({"x": ("n", [1, 2])}) as data:
        data.to_netcdf(tmp_path / "deep.nc", group="g")
    with h5py.File(tmp_path / "names.h5", "w") as file:
        file["__x"], file["n"] = [1, 2], [3]
    with mount(store, "--import", copy=False) as m:
        m.allow("no node can have this name")
        m.refused(errno.EINVAL, "deep.nc.*no file with this name", lambda: shutil.copyfile(tmp_path / "deep.nc", m / "deep.nc"))
        m.refused(errno.EINVAL, "names.h5.*not all of the file", lambda: shutil.copyfile(tmp_path / "names.h5", m / "names.h5"))
        assert {"deep.nc", "names.h5", "zarr.json"} == set(os.listdir(store)) - {".zarrfs"}


def test_a_file_whose_values_lie_in_others_is_no_copy_of_them(mount, tmp_path):
    """zarrfs has only the file that was written: what a virtual data set leads to is somewhere else."""
    layout = h5py.VirtualLayout((2, 3), "i4")
    layout[0] = h5py.VirtualSource("part.h5", "d", (3,))
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["d"] = np.arange(3, dtype="i4") + 1
    with h5py.File(tmp_path / "whole.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    store = tmp_path / "a.zarr"
    group = zarr.open_group(store, mode="w").create_group("g")
    group.create_array("x", data=np.full((2, 3), 7, "i4"), chunks=(1, 3), dimension_names=["a", "b"])
    with mount(store, "--import", copy=False) as m:
        m.allow("1 of its parts do not exist")
        m.refused(errno.EINVAL, "new.h5.*not all of the file can be read: x", lambda: shutil.copyfile(tmp_path / "whole.h5", m / "new.h5"))
        assert (store / "new.h5").exists() and not (store / "new").exists()
        m.refused(errno.EINVAL, "not all of the file", lambda: shutil.copyfile(tmp_path / "whole.h5", m / "g.h5"))
    os.remove(tmp_path / "part.h5")
    run(BIN, "import", tmp_path / "whole.h5", store / "g", "--into", code=1)
    assert (zarr.open_array(store / "g/x", mode="r")[...] == 7).all()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_daemon_that_is_killed_leaves_the_file_or_the_node(mount, tmp_path, zarr_format):
    store, whole = tmp_path / "a.zarr", tmp_path / "whole.npy"
    zarr.open_group(store, mode="w", zarr_format=zarr_format)
    values = RANDOM.random((64, 64, 64))
    np.save(whole, values)
    for attempt in range(6):
        with mount(store, "--import", "--codecs", "none", copy=False) as m:
            begun = time.monotonic()
            if attempt == 0:
                run("cp", whole, m / "x0.npy")
                took = time.monotonic() - begun
                continue
            copier = subprocess.Popen(["cp", whole, m / f"x{attempt}.npy"], stderr=subprocess.DEVNULL)
            time.sleep(took * random.uniform(0.2, 1.1))
            os.kill(m.pid, signal.SIGKILL)
            copier.wait(30)
            wait_until(lambda: not is_alive(m.pid))
            detach(m.path)
            # The next mount finishes or undoes the change.
            run(BIN, "mount", store, m.path, "--log-file", tmp_path / "log")
            run(BIN, "umount", m.path)
            is_node, is_file = (store / f"x{attempt}").exists(), (store / f"x{attempt}.npy").exists()
            assert is_node or is_file or time.monotonic() - begun < took, attempt
            if is_node:
                np.testing.assert_array_equal(zarr.open_array(store / f"x{attempt}", mode="r")[...], values)
        assert not list(store.rglob("aside-*"))


def test_a_reader_that_closes_the_file_of_a_writer_makes_no_node(mount, tmp_path):
    store, whole = tmp_path / "a.zarr", tmp_path / "whole.npy"
    zarr.open_group(store, mode="w")
    np.save(whole, np.arange(1000.0))
    with mount(store, "--import", copy=False) as m:
        one = os.open(m / "x.npy", os.O_CREAT | os.O_WRONLY)
        other = os.open(m / "x.npy", os.O_WRONLY)
        os.write(one, whole.read_bytes())
        os.close(other)
        assert np.load(m / "x.npy")[5] == 5
        time.sleep(0.2)
        assert not (store / "x").exists()
        os.pwrite(one, bytes(8), 128 + 5 * 8)
        os.close(one)
        wait_until(lambda: (store / "x/zarr.json").exists())
        assert zarr.open_array(store / "x", mode="r")[5] == 0


def test_empty_files_and_links_are_renamed_as_they_are(mount, tmp_path):
    store = tmp_path / "a.zarr"
    zarr.open_group(store, mode="w")
    with mount(store, "--import", copy=False) as m:
        (m / "empty").touch()
        (m / "empty").rename(m / "x.nc")
        assert (store / "x.nc").stat().st_size == 0
        (m / "link.nc").symlink_to("x.nc")
        (m / "link.nc").rename(m / "other.nc")
        assert os.readlink(m / "other.nc") == "x.nc"
