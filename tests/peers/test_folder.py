"""A plain directory of hierarchies in several dialects is one tree."""

import errno
import os
import shutil
import subprocess

import numpy as np
import pytest
import xarray as xr
import zarr

from hierarchies import assert_same
from views import ZARRFS

VALUES = np.random.default_rng(31).integers(0, 100, (20, 30)).astype("i4")
N5 = """
from zarr.n5 import N5Store
x = zarr.create(shape=(20, 30), chunks=(7, 8), dtype="i4", store=N5Store(store), path="x")
x[...] = np.arange(600).reshape(20, 30)
result = {}
"""


@pytest.fixture
def folder(tmp_path, zarr2):
    path = tmp_path / "folder"
    zarr.create_array(path / "v3.zarr/g/x", data=VALUES, chunks=(7, 8))
    zarr.create_array(path / "deep/er/v2.zarr/x", data=VALUES, chunks=(7, 8), zarr_format=2)
    zarr2.create(path / "draft.zarr", "g/x", VALUES, chunks=(7, 8), compressor={"id": "gzip"})
    zarr2.run(N5, store=path / "n.n5")
    (path / "deep/readme.txt").write_text("words")
    return path


NODES = {"v3.zarr/g/x": VALUES, "deep/er/v2.zarr/x": VALUES, "draft.zarr/g/x": VALUES, "n.n5/x": np.arange(600).reshape(20, 30)}


@pytest.mark.parametrize("form", ["zarr", "zarr2"])
def test_every_hierarchy_of_a_folder_is_read_in_its_own_dialect(mount, folder, form):
    with mount(folder, "--as", form, copy=False) as m:
        assert "several dialects, is mounted read-only" in m.stderr
        assert sorted(name for name in os.listdir(m.path) if not name.startswith((".z", "zarr.json"))) == [
            "deep", "draft.zarr", "n.n5", "v3.zarr",
        ]  # fmt: skip
        group = zarr.open_group(m.path, mode="r")
        for path, values in NODES.items():
            assert_same(group[path][...], values.astype("i4"), path)
            assert_same(np.load(m / f"{path}.npy"), values.astype("i4"), path)
        assert (m / "deep/readme.txt").read_text() == "words"
        for name in ("new", "v3.zarr/new", "draft.zarr/new"):
            m.refused(errno.EROFS, "read-only", lambda name=name: os.mkdir(m / name))
        names = dict.fromkeys(os.getxattr(m / path, "user.zarr.dialect").decode() for path in NODES)
        assert list(names) == ["v3", "v2", "d2020-10", "n5"]
    assert not (folder / "zarr.json").exists()


def test_the_other_commands_take_a_folder(folder, tmp_path):
    tree = subprocess.check_output([ZARRFS, "tree", folder], text=True)
    assert tree.count("int32 20 x 30") == 4 and "(several)" in tree
    copy = tmp_path / "copy.zarr"
    subprocess.run([ZARRFS, "convert", folder, copy], check=True, capture_output=True)
    for path, values in NODES.items():
        assert_same(zarr.open_group(copy, mode="r")[path][...], values.astype("i4"), path)
    out = subprocess.check_output([ZARRFS, "cat", folder, "--as", "nc4"])
    (tmp_path / "all.nc").write_bytes(out)
    with xr.open_dataset(tmp_path / "all.nc", group="v3.zarr/g", engine="netcdf4") as data:
        assert_same(data.x.values, VALUES)


def test_a_group_of_n5_that_does_not_say_so_keeps_its_attributes(folder, tmp_path):
    group = folder / "image.n5"
    shutil.copytree(folder / "n.n5/x", group / "s0")
    (group / "attributes.json").write_text('{"resolution": [10, 20]}')
    copy = tmp_path / "copy.zarr"
    subprocess.run([ZARRFS, "convert", folder, copy], check=True, capture_output=True)
    assert dict(zarr.open_group(copy / "image.n5", mode="r").attrs) == {"resolution": [10, 20]}
    assert_same(zarr.open_array(copy / "image.n5/s0", mode="r")[...], NODES["n.n5/x"].astype("i4"), "s0")


def test_a_folder_of_one_dialect_is_writable(mount, folder):
    for other in ("draft.zarr", "n.n5", "deep"):
        shutil.rmtree(folder / other)
    zarr.create_array(folder / "other.zarr/x", data=VALUES)
    with mount(folder, copy=False) as m:
        zarr.open_group(m.path, mode="a")["v3.zarr/g/x"][0, 0] = 7
    assert zarr.open_array(folder / "v3.zarr/g/x", mode="r")[0, 0] == 7


def test_files_of_other_formats_are_groups_beside_hierarchies(mount, folder):
    data = xr.Dataset({"x": (("y", "x"), VALUES)})
    (folder / "deep/files").mkdir()
    data.to_netcdf(folder / "deep/files/run.nc")
    data.to_netcdf(folder / "deep/files/other.nc", format="NETCDF3_64BIT")
    np.save(folder / "deep/files/run.npy", VALUES)
    np.save(folder / "n.npy", VALUES)
    (folder / "bad.h5").write_text("no file of HDF5")
    (folder / "to.nc").symlink_to("deep/files/run.nc")
    with mount(folder, copy=False) as m:
        m.allow("no format that zarrfs reads")
        paths = {**NODES, "deep/files/run_nc/x": VALUES, "deep/files/run_npy/run": VALUES, "n/n": VALUES, "to/x": VALUES}
        group = zarr.open_group(m.path, mode="r", use_consolidated=False)
        for path, values in {**paths, "deep/files/other/x": VALUES}.items():
            assert_same(group[path][...], values.astype("i4"), path)
        assert set(os.listdir(m / "deep/files")) == {"run_nc", "run_npy", "other", "run.nc", "run.npy", "other.nc", "zarr.json"}
        assert (m / "deep/files/run.nc").read_bytes() == (folder / "deep/files/run.nc").read_bytes()
        xr.testing.assert_equal(xr.open_dataset(m / "deep/files/other.nc"), data)
        assert_same(np.load(m / "n/n.npy"), VALUES, "the view")
        with pytest.raises(OSError, match="Invalid argument"):
            os.listdir(m / "bad")
        m.refused(errno.EROFS, "read-only", lambda: os.mkdir(m / "to/new"))
    checked = subprocess.run([ZARRFS, "check", folder], capture_output=True, text=True)
    assert not [line for line in checked.stdout.splitlines() if "foreign" in line and "readme.txt" not in line]
    assert checked.returncode == 3 and "bad.h5: a file of no format" in checked.stdout
    (folder / "bad.h5").unlink()
    assert subprocess.run([ZARRFS, "check", folder]).returncode == 0
    assert subprocess.run([ZARRFS, "diff", f"{folder}#to", folder / "deep/files/run.nc"]).returncode == 0
