"""Arrays whose maker chose the chunk keys: the mount names their chunks as the maker does, until the next mount."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import tensorstore as ts
import zarr

from hierarchies import assert_same, ident

VALUES = np.random.default_rng(21).integers(0, 100, (50, 70)).astype("f4")
KEYS = {
    "default.": {"name": "default", "separator": "."},
    "v2.": {"name": "v2", "separator": "."},
    "v2/": {"name": "v2", "separator": "/"},
}
FIRST = {"default.": "c.0.0", "v2.": "0.0", "v2/": "0/0", "default/": "c/0/0"}
PLACES = [("v3",), ("v3", "--shards", "64K"), ("v3", "--writeback=all"), ("v2",), ("d2020-10",), ("d2019-06",)]
COMPRESSED = {"plain": None, "compressed": "auto"}


def files_in(directory):
    found = (os.path.relpath(os.path.join(at, name), directory) for at, _, names in os.walk(directory) for name in names)
    return sorted(name for name in found if name not in ("zarr.json", ".zarray", ".zattrs"))


def grid_names(first):
    return sorted(first[:-3] + f"{y}{first[-2]}{x}" for y in range(5) for x in range(3))


@pytest.mark.parametrize("place", PLACES, ids=ident)
@pytest.mark.parametrize("keys", KEYS)
def test_chunks_have_the_names_that_their_maker_expects(new, mount, keys, place):
    with new(*place) as m:
        for kind, compressors in COMPRESSED.items():
            where = m / f"g/{kind}"
            options = dict(chunks=(10, 30), chunk_key_encoding=KEYS[keys], compressors=compressors)
            array = zarr.create_array(where, data=VALUES, **options)
            assert_same(array[...], VALUES, kind)
            assert files_in(where) == grid_names(FIRST[keys])
            again = zarr.open_array(where)
            assert again.metadata.chunk_key_encoding == array.metadata.chunk_key_encoding
            again.append(VALUES[:10])
            assert_same(zarr.open_array(where)[50:], VALUES[:10], kind)
            again.resize((50, 70))
            assert files_in(where) == grid_names(FIRST[keys])
            assert_same(np.load(m / f"g/{kind}.npy"), VALUES, kind)
            scalar = zarr.create_array(m / f"g/{kind}0", data=np.array(7), **{**options, "chunks": ()})
            assert scalar[()] == 7 and zarr.open_array(m / f"g/{kind}0")[()] == 7
            assert files_in(m / f"g/{kind}0") == ["c" if keys == "default." else "0"]
            line = zarr.create_array(m / f"g/{kind}1", data=VALUES[0], **{**options, "chunks": (30,)})
            assert len(files_in(m / f"g/{kind}1")) == 3
            assert_same(line[...], VALUES[0], kind)
            os.remove(where / FIRST[keys])
            assert_same(zarr.open_array(where)[:10, :30], np.zeros((10, 30), "f4"), kind)
            with pytest.raises(FileNotFoundError):
                open(where / "c/0/0")
            again[:10, :30] = VALUES[:10, :30]
            shutil.rmtree(m / f"g/{kind}1")
            assert not os.path.exists(m / f"g/{kind}1")
    with mount(m.store, copy=False) as m:
        for kind in COMPRESSED:
            assert_same(zarr.open_array(m / f"g/{kind}", mode="r")[...], VALUES, kind)
            assert files_in(m / f"g/{kind}") == grid_names("c/0/0")
            assert zarr.open_array(m / f"g/{kind}0")[()] == 7
    if not place[0].startswith("d20"):
        for kind in COMPRESSED:
            assert_same(zarr.open_array(m.store / f"g/{kind}", mode="r")[...], VALUES, kind)
        if place == ("v3",):
            assert files_in(m.store / "g/compressed") == grid_names(FIRST[keys])


@pytest.mark.parametrize("dialect", ["v2", "v3", "d2020-10"])
@pytest.mark.parametrize("compressors", COMPRESSED.values(), ids=COMPRESSED)
def test_zarr_2_writers_choose_the_separator(new, mount, dialect, compressors):
    with new(dialect, "--as", "zarr2") as m:
        for separator in "./":
            where = m / f"g/{ord(separator)}"
            keys = {"name": "v2", "separator": separator}
            options = dict(chunks=(10, 30), zarr_format=2, chunk_key_encoding=keys, compressors=compressors)
            array = zarr.create_array(where, data=VALUES, **options)
            array[3:14, 5:40] = 9
            expected = VALUES.copy()
            expected[3:14, 5:40] = 9
            assert_same(zarr.open_array(where)[...], expected, separator)
            assert files_in(where) == grid_names(f"0{separator}0")
            same = ts.open({"driver": "zarr", "kvstore": f"file://{where}/"}).result()
            assert_same(same.read().result(), expected, separator)
            same[0, 0] = 1
            zarr.create_array(where, data=VALUES, overwrite=True, **options)
            assert_same(zarr.open_array(where)[...], VALUES, separator)
            scalar = zarr.create_array(m / f"g/{ord(separator)}0", data=np.array(7), **{**options, "chunks": ()})
            assert scalar[()] == 7 and zarr.open_array(m / f"g/{ord(separator)}0")[()] == 7
            assert zarr.open_array(where).metadata.dimension_separator == separator
    if dialect == "v2":
        assert files_in(m.store / "g/47") == grid_names("0/0")
        assert files_in(m.store / "g/46") == grid_names("0.0")
    if dialect != "d2020-10":
        assert_same(zarr.open_array(m.store / "g/47", mode="r")[...], VALUES, "stored")
    with mount(m.store, "--as", "zarr2", copy=False) as m:
        for name in ("46", "47"):
            assert_same(zarr.open_array(m / f"g/{name}", mode="r")[...], VALUES, name)
            assert files_in(m / f"g/{name}") == grid_names("0.0")


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("compressors", COMPRESSED.values(), ids=COMPRESSED)
def test_a_tree_with_other_keys_is_copied_into_a_mount(mount, tmp_path, keys, compressors):
    options = dict(chunks=(10, 30), chunk_key_encoding=KEYS[keys], compressors=compressors)
    zarr.create_array(tmp_path / "tree/x", data=VALUES, **options)
    zarr.create_array(tmp_path / "tree/s", data=np.array(7), **{**options, "chunks": ()})
    chunks = "find . -type f ! -name zarr.json -exec cp --parents {} MNT \\;"
    metadata = "find . -name zarr.json -exec cp --parents {} MNT \\;"
    programs = ["cp -rT . MNT", "rsync -rt . MNT", f"{chunks}; {metadata}"]
    for number, program in enumerate(programs):
        with mount(tmp_path / f"new{number}", "--create", copy=False) as m:
            subprocess.run(program.replace("MNT", str(m.path)), cwd=tmp_path / "tree", check=True, shell=True)
            assert_same(zarr.open_array(m / "x")[...], VALUES, program)
            assert zarr.open_array(m / "s")[()] == 7
            assert files_in(m / "x") == grid_names(FIRST[keys])
        assert_same(zarr.open_array(m.store / "x", mode="r")[...], VALUES, program)


def test_tensorstore_chooses_the_keys(new):
    with new("v3") as m:
        for keys in KEYS.values():
            name, separator = keys.values()
            where = f"{name}{ord(separator)}"
            spec = {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": str(m / where)},
                "metadata": {
                    "chunk_key_encoding": {"name": name, "configuration": {"separator": separator}},
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 30]}},
                    "codecs": [{"name": "bytes"}, {"name": "gzip"}],
                },
            }
            array = ts.open(spec, create=True, dtype=ts.float32, shape=VALUES.shape).result()
            array.write(VALUES).result()
            array[3:5, 7] = 1
            assert_same(zarr.open_array(m / where)[5:], VALUES[5:], where)
            assert_same(array.read().result()[5:], VALUES[5:], where)
