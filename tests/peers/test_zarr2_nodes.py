"""Programs that write Zarr 2 make nodes of a mount that shows Zarr 3, and read back what they wrote."""

import json
import os
import shutil
import subprocess

import numcodecs
import numpy as np
import pytest
import tensorstore as ts
import xarray as xr
import zarr

from hierarchies import assert_same, ident

VALUES = np.random.default_rng(22).integers(0, 100, (50, 70)).astype("i4")
ARRAYS = {
    "default": {},
    "plain": dict(compressors=None),
    "fortran": dict(order="F"),
    "filters": dict(filters=[numcodecs.Delta("<i4")], compressors=numcodecs.Zlib()),
    "big": dict(compressors=None, dtype=">i4"),
    "slashes": dict(chunk_key_encoding={"name": "v2", "separator": "/"}),
}
PLACES = [("v3",), ("v3", "--shards", "64K"), ("v3", "--writeback=all"), ("v2",), ("d2020-10",)]
LACKS = {"d2020-10": ["filters"]}


def create(where, kind):
    options = {"dtype": "<i4", **ARRAYS[kind]}
    array = zarr.create_array(where, shape=VALUES.shape, chunks=(10, 30), zarr_format=2, **options)
    array[...] = VALUES
    return array


@pytest.mark.parametrize("place", PLACES, ids=ident)
def test_zarr_python_writes_its_zarr_2(new, mount, place):
    kinds = [kind for kind in ARRAYS if kind not in LACKS.get(place[0], [])]
    with new(*place) as m:
        group = zarr.open_group(m / "g", mode="w", zarr_format=2, attributes={"title": "x"})
        for kind in kinds:
            array = create(m / f"g/{kind}", kind)
            array.attrs["unit"] = "K"
            again = zarr.open_array(m / f"g/{kind}")
            assert again.metadata.to_dict() == array.metadata.to_dict(), kind
            again[3:14, 5:40] = 9
            again.append(VALUES[:10])
            expected = np.concatenate([VALUES, VALUES[:10]])
            expected[3:14, 5:40] = 9
            assert_same(zarr.open_array(m / f"g/{kind}")[...], expected, kind)
            assert_same(np.load(m / f"g/{kind}.npy"), expected, kind)
            assert sorted(os.listdir(m / f"g/{kind}"))[:2] == [".zarray", ".zattrs"]
        zarr.consolidate_metadata(m / "g", zarr_format=2)
        found = zarr.open_consolidated(m / "g", zarr_format=2)
        assert found.attrs["title"] == "x" and sorted(found) == sorted(kinds)
        zarr.create_array(m / "other", data=VALUES)
        assert sorted(os.listdir(m / "g")) == sorted([".zattrs", ".zgroup", ".zmetadata", *kinds])
        del group[kinds[-1]]
        (m / "g").rename(m / "moved")
        assert_same(zarr.open_group(m / "moved", mode="r")["default"][...], expected, "moved")
        shutil.copytree(m / "moved", m / "copied")
        assert_same(zarr.open_group(m / "copied", mode="r")["default"][...], expected, "copied")
    with mount(m.store, copy=False) as m:
        for group in ("moved", "copied"):
            for kind in kinds[:-1]:
                again = zarr.open_array(m / f"{group}/{kind}", mode="r")
                assert_same(again[...], expected, kind)
                assert again.metadata.zarr_format == 3 and again.attrs["unit"] == "K"
    if place[0] != "d2020-10":
        assert_same(zarr.open_group(m.store, mode="r")["moved/default"][...], expected, "stored")


@pytest.mark.parametrize("place", [("v3",), ("v2",), ("v3", "--shards", "64K")], ids=ident)
def test_xarray_writes_its_zarr_2(new, mount, place):
    data = xr.Dataset(
        {"t": (("time", "x"), VALUES.astype("f4"), {"units": "K"})},
        coords={"time": np.arange("2000-01-01", "2000-02-20", dtype="M8[D]").astype("M8[ns]"), "x": [f"n{i}" for i in range(70)]},
    )
    with new(*place) as m:
        data.to_zarr(m / "d", zarr_format=2, mode="w")
        data.to_zarr(m / "d", zarr_format=2, mode="w")
        xr.testing.assert_identical(xr.open_zarr(m / "d").load(), data)
        later = data.assign_coords(time=data.time + np.timedelta64(50, "D"))
        later.to_zarr(m / "d", append_dim="time")
        both = xr.concat([data, later], "time", data_vars="minimal")
        xr.testing.assert_equal(xr.open_zarr(m / "d").load(), both)
        xr.testing.assert_equal(xr.open_dataset(m / "d.nc").load().t, both.t)
    with mount(m.store, copy=False) as m:
        xr.testing.assert_equal(xr.open_zarr(m / "d").load(), both)
    xr.testing.assert_equal(xr.open_zarr(m.store / "d", consolidated=False).load(), both)


@pytest.mark.parametrize("program", ["cp -rT . MNT/tree", "rsync -rt . MNT/tree", "tar c . | tar xC MNT/tree"])
def test_a_tree_of_zarr_2_is_copied_into_a_mount(mount, tmp_path, program):
    zarr.open_group(tmp_path / "tree", mode="w", zarr_format=2, attributes={"title": "x"})
    for kind in ARRAYS:
        create(tmp_path / f"tree/{kind}", kind)
    zarr.consolidate_metadata(tmp_path / "tree", zarr_format=2)
    with mount(tmp_path / "new", "--create", copy=False) as m:
        (m / "tree").mkdir()
        command = program.replace("MNT", str(m.path))
        subprocess.run(command, cwd=tmp_path / "tree", check=True, shell=True)
        for kind in ARRAYS:
            assert_same(zarr.open_array(m / f"tree/{kind}")[...], VALUES, kind)
            assert (m / f"tree/{kind}.npy").exists()
        assert zarr.open_consolidated(m / "tree", zarr_format=2).attrs["title"] == "x"
    for kind in ARRAYS:
        assert_same(zarr.open_array(m.store / f"tree/{kind}", mode="r")[...], VALUES, kind)


@pytest.mark.parametrize("options", [("v3",), ("v2",), ("v3", "--as", "zarr2")], ids=ident)
def test_tensorstore_writes_its_zarr_2(new, mount, options):
    with new(*options) as m:
        spec = {
            "driver": "zarr",
            "kvstore": f"file://{m / 'x'}/",
            "metadata": {"chunks": [10, 30], "compressor": {"id": "blosc", "cname": "lz4"}, "dimension_separator": "/"},
        }
        array = ts.open(spec, create=True, dtype=ts.int32, shape=VALUES.shape).result()
        array.write(VALUES).result()
        assert_same(array.read().result(), VALUES, "x")
        assert_same(np.load(m / "x.npy"), VALUES, "x")
        # Its default shuffle is -1, which has no other spelling.
        array = array.resize(exclusive_max=[60, 70], expand_only=True).result()
        assert array.resize(exclusive_max=[50, 70], shrink_only=True).result().shape == (50, 70)
    with mount(m.store, copy=False) as m:
        assert_same(zarr.open_array(m / "x", mode="r")[...], VALUES, "x")


def test_the_whole_mount_becomes_zarr_2_when_a_program_replaces_its_root(new, mount):
    with new("v3") as m:
        os.remove(m / "zarr.json")
        zarr.open_group(m.path, mode="a", zarr_format=2, attributes={"title": "x"})
        create(m / "a", "default")
        assert_same(zarr.open_group(m.path, mode="r")["a"][...], VALUES, "a")
        assert sorted(os.listdir(m.path)) == [".zattrs", ".zgroup", ".zmetadata", "a"]
    assert zarr.open_group(m.store, mode="r").attrs["title"] == "x"


@pytest.mark.parametrize("place", PLACES, ids=ident)
@pytest.mark.parametrize("keys", [".", "/"])
def test_a_metadata_file_that_is_removed_and_written_again_describes_the_same_node(mount, tmp_path, place, keys):
    group = zarr.open_group(tmp_path / "tree", mode="w", zarr_format=2, attributes={"title": "x"})
    array = group.create_array("a", shape=(8,), chunks=(4,), dtype="i4", attributes={"unit": "K"}, chunk_key_encoding={"name": "v2", "separator": keys})
    array[:] = 7
    with mount(tmp_path / "new", "--create", "--format", *place, copy=False) as m:
        shutil.copytree(tmp_path / "tree", m / "tree")
        for name in ("tree/a/.zarray", "tree/.zgroup", "tree/.zattrs", "tree/a/.zattrs"):
            text = (m / name).read_bytes()
            (m / name).unlink()
            (m / name).write_bytes(text)
        again = zarr.open_group(m / "tree", mode="r", zarr_format=2)
        assert dict(again.attrs) == {"title": "x"} and dict(again["a"].attrs) == {"unit": "K"}
        assert (again["a"][:] == 7).all()
        text = (m / "tree/a/.zarray").read_bytes()
        (m / "tree/a/.zarray").unlink()
        (m / "tree/a/.zattrs").write_text('{"other": 1}')
        assert json.loads((m / "tree/a/.zattrs").read_bytes()) == {"other": 1}
        (m / "tree/a/.zattrs").unlink()
        assert ".zattrs" not in os.listdir(m / "tree/a")
        (m / "tree/a/.zattrs").write_text('{"third": 1}')
        assert json.loads((m / "tree/a/.zattrs").read_bytes()) == {"third": 1}
        (m / "tree/a/.zattrs").unlink()
        (m / "tree/a/.zarray").write_bytes(text)
        assert dict(zarr.open_array(m / "tree/a", mode="r", zarr_format=2).attrs) == {}, "they were removed, too"


def test_an_array_with_an_unknown_codec_can_be_replaced_by_one_without(mount, tmp_path):
    zarr.create_array(tmp_path / "tree/a", shape=(8,), chunks=(4,), dtype="i4", zarr_format=2, compressors=numcodecs.Zlib())
    stored = tmp_path / "tree/a/.zarray"
    stored.write_text(stored.read_text().replace('"zlib"', '"nobody-knows-it"'))
    with mount(tmp_path / "tree", "--as", "zarr2", copy=False) as m:
        described = json.loads((m / "a/.zarray").read_bytes())
        (m / "a/.zarray").unlink()
        (m / "a/.zarray").write_text(json.dumps(described))
        zarr.open_array(m / "a", mode="r+", zarr_format=2)[:] = 7
    assert (zarr.open_array(tmp_path / "tree/a", mode="r", zarr_format=2)[:] == 7).all()


def test_git_restores_a_tree_of_zarr_2(mount, tmp_path):
    group = zarr.open_group(tmp_path / "repository/tree", mode="w", zarr_format=2, attributes={"title": "x"})
    group.create_array("a", shape=(8,), chunks=(4,), dtype="i4")[:] = 7
    git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], cwd=tmp_path / "repository", check=True)
    with mount(tmp_path / "new", "--create", copy=False) as m:
        subprocess.run([*git, "clone", "-q", tmp_path / "repository", m / "r"], check=True)
        subprocess.run([*git, "reset", "-q", "--hard"], cwd=m / "r", check=True)
        again = zarr.open_group(m / "r/tree", mode="r", zarr_format=2)
        assert dict(again.attrs) == {"title": "x"} and (again["a"][:] == 7).all()


def test_another_file_is_not_lost_when_it_gets_the_name_of_consolidated_metadata(mount, tmp_path):
    with mount(tmp_path / "new", "--create", copy=False) as m:
        m.allow("no consolidated metadata|not JSON|the name of a metadata file")
        (m / "d").mkdir()
        (m / "d/precious").write_text("precious")
        for name, text in {"precious": "precious", "other": "{}"}.items():
            (m / f"d/{name}").write_text(text)
            for change in (os.rename, os.link):
                with pytest.raises(OSError):
                    change(m / f"d/{name}", m / "d/.zmetadata")
            assert (m / f"d/{name}").read_text() == text
        with pytest.raises(OSError):
            (m / "d/.zmetadata").write_text("precious")
        with pytest.raises(OSError):
            (m / "d/.zmetadata").mkdir()
        assert sorted(os.listdir(m / "d")) == ["other", "precious"]


def test_a_scalar_whose_value_is_the_fill_value_keeps_it_when_it_is_moved_and_copied(mount, tmp_path):
    with mount(tmp_path / "new", "--create", "--as", "zarr2", copy=False) as m:
        for name, compressors in {"plain": None, "encoded": numcodecs.GZip()}.items():
            options = {"dtype": "u1", "fill_value": 7, "zarr_format": 2, "compressors": compressors}
            zarr.create_array(m / name, shape=(), chunks=(), **options)
            os.rename(m / name, m / f"{name}-moved")
            subprocess.run(["cp", "-r", m / f"{name}-moved", m / f"{name}-copied"], check=True)
    for name in ("plain", "encoded"):
        for which in ("moved", "copied"):
            found = zarr.open_array(tmp_path / f"new/{name}-{which}", mode="r")
            assert (found[()], found.fill_value) == (7, 7), f"{name}-{which}"
