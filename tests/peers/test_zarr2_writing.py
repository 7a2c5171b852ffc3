"""What programs of Zarr 2 write on a mount `--as zarr2` is in stores of every dialect, for the programs of that dialect."""

import json
import os
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from mounts import files
from new_nodes import ramp
from sources import WRITTEN, assert_arrays, empty, read_source

FOREIGN = [dialect for dialect in WRITTEN if dialect != "d2019-06"]

# name: type, shape, chunks, fill value
NUMBERS = {
    "i1": ("i1", (5, 6), (2, 4), 0),
    "u2": ("u2", (9,), (9,), 0),
    "i4": ("i4", (4, 5, 6), (2, 2, 4), 0),
    "i8": ("i8", (3, 3), (1, 3), 0),
    "u8": ("u8", (6,), (4,), 0),
    "f4": ("f4", (10, 3), (3, 3), 0.0),
    "f8": ("f8", (3, 2, 2, 2), (2, 2, 1, 2), 0.0),
    "a/b/u1": ("u1", (7, 7), (3, 3), 0),
}
# Beyond what N5 has.
MORE = {
    "flag": ("?", (7,), (3,), True),
    "c8": ("c8", (5,), (2,), 0),
    "nan": ("f4", (4, 4), (3, 3), "NaN"),
    "minus": ("i2", (4, 4), (3, 3), -7),
    "scalar": ("f8", (), (), 0.5),
    "empty": ("i4", (0, 3), (2, 2), 5),
}
TEXTS = {
    "S5": ("S5", (4,), (3,), b""),
    "U3": ("<U3", (4,), (3,), ""),
    "M8": ("<M8[s]", (5,), (2,), 0),
    "m8": ("<m8[ms]", (5,), (2,), 0),
}
KINDS = {
    "v3": NUMBERS | MORE | TEXTS,
    "v2": NUMBERS | MORE | TEXTS,
    "n5": NUMBERS,
    "d2020-10": NUMBERS | MORE,
    "d2019-06": NUMBERS | MORE,
}


def values_of(dtype, shape, *_):
    dtype = np.dtype(dtype)
    if dtype.kind in "SU":
        return np.array([f"t{n}" for n in range(int(np.prod(shape)))], dtype).reshape(shape)
    if dtype.kind in "Mm":
        return ramp(shape, "i8").astype(dtype)
    return ramp(shape, dtype)


CREATE = """
from zarr.storage import DirectoryStore
root = zarr.open_group(DirectoryStore(mnt), mode="a")
values = np.load(file)
root.attrs["title"] = "Ω"
for name, (dtype, shape, chunks, fill) in kinds.items():
    x = root.create_dataset(name, shape=tuple(shape), dtype=dtype, chunks=tuple(chunks), fill_value=fill, compressor=None)
    x.attrs.update({"name": name, "nested": {"a": [1, None, 2.5]}})
    x[...] = values[name]
result = {}
root.visititems(lambda path, node: isinstance(node, zarr.Array) and result.update({path: node[...]}) or None)
"""


@pytest.fixture
def new(mount, tmp_path):
    """`with new(dialect) as m:` mounts an empty store of a dialect `--as zarr2`."""

    def made(dialect, *options):
        return empty(mount, tmp_path / "store", dialect, "--as", "zarr2", *options)

    return made


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


def create(zarr2, mnt, kinds, scratch):
    """Makes arrays of these kinds by zarr-python 2; gives their values."""
    values = {name: values_of(*kind) for name, kind in kinds.items()}
    np.savez(scratch / "values.npz", **values)
    kinds = {name: (*kind[:3], kind[3].decode() if isinstance(kind[3], bytes) else kind[3]) for name, kind in kinds.items()}
    found = zarr2.run(CREATE, mnt=mnt, kinds=kinds, file=scratch / "values.npz")
    assert_arrays(found, values)
    return values


@pytest.mark.parametrize("options", [(), ("--codecs", "none")], ids=["", "none"])
@pytest.mark.parametrize("dialect", WRITTEN)
def test_what_zarr_python_2_makes_is_in_the_store(new, zarr2, tmp_path, dialect, options):
    with new(dialect, *options) as m:
        values = create(zarr2, m.path, KINDS[dialect], tmp_path)
        again = zarr2.read_v2(m.path)
        consolidated = zarr2.read_v2(m.path, consolidated=True)
    assert_arrays(again, values)
    assert_arrays(consolidated, values)
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), values)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", ["v3", "v2"])
@pytest.mark.parametrize("kind", ["utf8", "pairs", "bytes"])
def test_texts_of_any_length_and_structures_of_zarr_python_2_are_in_the_store(new, zarr2, tmp_path, dialect, kind):
    code = """
        root = zarr.open_group(mnt, mode="a")
        texts = ["Ω" * n for n in range(5)]
        values = {
            "utf8": np.array(texts, object),
            "bytes": np.array([text.encode() for text in texts], object),
            "pairs": np.array([(n, n / 2, b"t") for n in range(5)], [("a", "<i4"), ("b", "<f8"), ("c", "S3")]),
        }[kind]
        codec = {"utf8": numcodecs.VLenUTF8(), "bytes": numcodecs.VLenBytes(), "pairs": None}[kind]
        x = root.create_dataset("x", shape=5, chunks=2, dtype=values.dtype, object_codec=codec, compressor=None)
        x[...] = values
        x[3] = values[1]
        result = {"x": x[...]}
    """
    with new(dialect) as m:
        expected = zarr2.run(code, mnt=m.path, kind=kind)
        assert expected["x"][3] == expected["x"][1]
    found = read_source(m.store, dialect, zarr2, tmp_path)
    if kind == "bytes":
        found["x"] = found["x"].astype(expected["x"].dtype)
    assert_arrays(found, expected)


# What a program of each dialect finds in the attributes of a node.
ATTRIBUTES = {
    "v2": """
result = {path: dict(zarr.open(store, mode="r")[path].attrs) for path in paths}
""",
    "n5": """
from zarr.n5 import N5Store
result = {path: dict(zarr.open(N5Store(store), mode="r")[path].attrs) for path in paths}
""",
    "d2020-10": """
from zarr._storage.v3 import DirectoryStoreV3
group = zarr.open_group(DirectoryStoreV3(store), mode="r", zarr_version=3)
result = {path: dict(group[path].attrs) for path in paths}
""",
}


def read_attributes(zarr2, store, dialect, paths):
    if dialect == "v3":
        group = zarr.open_group(store, mode="r", zarr_format=3)
        return {path: dict(group[path].attrs) for path in paths}
    return zarr2.run(ATTRIBUTES[dialect], store=store, paths=paths)


@pytest.mark.parametrize("dialect", FOREIGN)
def test_attributes_that_zarr_python_2_changes_are_in_the_store(new, zarr2, tmp_path, dialect):
    with new(dialect) as m:
        create(zarr2, m.path, {"g/x": NUMBERS["f4"]}, tmp_path)
        code = """
            root = zarr.open_group(mnt, mode="r+")
            for path in ("g", "g/x"):
                for number in range(3):
                    root[path].attrs[f"n{number}"] = [number]
                root[path].attrs["number"] = 1
                root[path].attrs["number"] = 2
                del root[path].attrs["n1"]
            root["g/x"].attrs.put({"only": "this", "_ARRAY_DIMENSIONS": ["y", "x"]})
            result = {path: dict(root[path].attrs) for path in ("g", "g/x")}
        """
        shown = zarr2.run(code, mnt=m.path)
    assert shown == {
        "g": {"n0": [0], "n2": [2], "number": 2}, "g/x": {"only": "this", "_ARRAY_DIMENSIONS": ["y", "x"]}
    }  # fmt: skip
    found = read_attributes(zarr2, m.store, dialect, ["g", "g/x"])
    if dialect != "v2":
        # What is a fill value for xarray in Zarr 2 is an attribute in Zarr 3.
        assert found["g/x"].pop("_FillValue") == "AAAAAAAAAAA="
    if dialect == "v3":
        assert zarr.open_array(m.store / "g/x", mode="r").metadata.dimension_names == ("y", "x")
        found["g/x"]["_ARRAY_DIMENSIONS"] = ["y", "x"]
    assert found == shown


@pytest.mark.parametrize("dialect", WRITTEN)
@pytest.mark.parametrize("order", [1, -1], ids=["attributes_last", "attributes_first"])
def test_a_fill_value_of_null_stays_null(new, mount, dialect, order):
    documents = [
        (".zarray", ZARRAY | {"fill_value": None}),
        (".zattrs", {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"}),
    ]
    with new(dialect) as m:
        (m / "x").mkdir()
        for name, document in documents[::order]:
            (m / "x" / name).write_text(json.dumps(document))
        for name, document in documents:
            assert json.loads((m / "x" / name).read_text()) | document == json.loads((m / "x" / name).read_text())
        # A program that copies chunks creates each as a new file. This one made the array, and runs.
        assert not (m / "x/0.0").exists()
        run("cp", "-r", m / "x", m / "y")
        assert (m / "y/0.0").read_bytes() == bytes(16), "cp has ended"
        assert os.listdir(m / "y") == os.listdir(m / "x")
        run("rm", "-r", m / "y")
    with mount(m.store, "--as", "zarr2", copy=False) as again:
        assert (again / "x/0.0").read_bytes() == bytes(16)
    if dialect == "v2":
        assert json.loads((m.store / "x/.zarray").read_text())["fill_value"] is None
        assert json.loads((m.store / "x/.zattrs").read_text()) == documents[1][1]


@pytest.mark.parametrize("dialect", WRITTEN)
def test_zarr_python_2_resizes_overwrites_and_deletes(new, zarr2, tmp_path, dialect):
    with new(dialect) as m:
        create(zarr2, m.path, {name: ("i4", (10, 6), (3, 4), 0) for name in ("down", "up", "more", "over", "g/gone", "h/x")}, tmp_path)
        code = """
            root = zarr.open_group(mnt, mode="r+")
            root["down"].resize(4, 3)
            root["up"].resize(14, 9)
            root["up"][12:, 8] = 5
            root["more"].append(np.full((5, 6), 9, "i4"))
            root.create_dataset("over", shape=(5,), chunks=(2,), dtype="f8", compressor=None, overwrite=True)[...] = 7
            del root["g/gone"]
            del root["h"]
            root.create_group("g", overwrite=True)
            root.require_group("new/deep")
            zarr.consolidate_metadata(root.store)
            root["more"].attrs["later"] = 1
            copied = zarr.open_consolidated(mnt, mode="r")
            assert copied["more"].attrs["later"] == 1 and "h" not in copied and "new/deep" in copied
        """
        zarr2.run(code, mnt=m.path)
        found = zarr2.read_v2(m.path)
        assert sorted(os.listdir(m.path)) == [".zattrs", ".zgroup", ".zmetadata", "down", "g", "more", "new", "over", "up"]
    x = ramp((10, 6), "i4")
    expected = {
        "down": x[:4, :3],
        "up": np.pad(x, ((0, 4), (0, 3))),
        "more": np.concatenate([x, np.full((5, 6), 9, "i4")]),
        "over": np.full(5, 7.0),
    }
    expected["up"][12:, 8] = 5
    assert_arrays(found, expected)
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)
    assert not [key for key in files(m.store) if "gone" in key or key.startswith("h/") or "/h/" in key], "keys were left"


# ---- xarray


def dataset():
    time = pd.date_range("2020-01-01", periods=4)
    rows = np.arange(12, dtype="f4").reshape(4, 3)
    rows[0, 1] = np.nan
    return xr.Dataset(
        {
            "t2m": (("time", "x"), rows, {"units": "K"}),
            "count": (("time",), np.arange(4, dtype="i8") + 1),
        },
        coords={"time": time, "x": [10.5, 11.5, 12.5]},
        attrs={"title": "Ω"},
    )


def encoding(ds, dialect):
    made = {name: {"compressors": None} for name in ds.variables}
    # N5 has one fill value: 0.
    made["t2m"] |= {"chunks": (2, 3), "_FillValue": 0.0 if dialect == "n5" else -999.0}
    made["x"]["_FillValue"] = None
    made["time"] |= {"units": "hours since 2020-01-01", "dtype": "int64", "chunks": (2,)}
    return made


@pytest.mark.parametrize("consolidated", [False, True], ids=["", "consolidated"])
@pytest.mark.parametrize("dialect", WRITTEN)
def test_what_xarray_writes_as_zarr_2_it_reads(new, mount, zarr2, dialect, tmp_path, consolidated):
    ds = dataset()
    if dialect == "n5":
        ds["t2m"] += 1
    form = dict(zarr_format=2, consolidated=consolidated)
    with new(dialect) as m:
        ds.to_zarr(m / "era", mode="w", encoding=encoding(ds, dialect), **form)
        ds[["count"]].rename(count="extra").to_zarr(m / "era", mode="a", encoding={"extra": {"compressors": None}}, **form)
        xr.Dataset({"t2m": (("time", "x"), np.full((2, 3), 300, "f4"))}).to_zarr(
            m / "era", region={"time": slice(2, 4)}, **form
        )
        expected = ds.assign(extra=ds["count"].variable)
        expected["t2m"][2:4] = 300
        shown = xr.open_zarr(m / "era", **form).load()
        xr.testing.assert_identical(shown, expected[list(shown.variables)])
    if dialect in ("v2", "v3"):
        with xr.open_zarr(m.store / "era", consolidated=False) as stored:
            xr.testing.assert_identical(stored.load(), shown)
    with mount(m.store, "-o", "ro", copy=False) as again:
        with xr.open_zarr(again / "era", consolidated=False) as stored:
            xr.testing.assert_identical(stored.load(), shown)


# ---- files that are copied, moved and removed


@pytest.fixture(scope="session")
def tree(tmp_path_factory, zarr2):
    """An uncompressed hierarchy of Zarr 2 in a directory."""
    directory = tmp_path_factory.mktemp("plain") / "tree"
    values = create(zarr2, directory, NUMBERS, directory.parent)
    return directory, values


def documents_first(path):
    return not path.name.startswith(".z"), len(path.parts), path


def chunks_first(path):
    return path.name.startswith(".z"), -len(path.parts), path


def one_by_one(order):
    def copy(tree, to, scratch):
        for name in sorted((path.relative_to(tree) for path in tree.rglob("*") if path.is_file()), key=order):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes((tree / name).read_bytes())

    copy.__name__ = order.__name__
    return copy


def cp_r(tree, to, scratch):
    run("cp", "-r", tree, to)


def cp_a(tree, to, scratch):
    run("cp", "-a", tree, to)


def rsync(tree, to, scratch):
    run("rsync", "-a", f"{tree}/", f"{to}/")
    again = run("rsync", "-ai", "--size-only", f"{tree}/", f"{to}/")
    assert "f+" not in again.stdout


def tar(tree, to, scratch):
    run("tar", "cf", scratch / "tree.tar", "-C", tree.parent, tree.name)
    run("tar", "xf", scratch / "tree.tar", "-C", to.parent)


def mv(tree, to, scratch):
    shutil.copytree(tree, scratch / tree.name)
    run("mv", scratch / tree.name, to)


COPIES = [cp_r, cp_a, rsync, tar, mv, one_by_one(documents_first), one_by_one(chunks_first)]


@pytest.mark.parametrize("dialect", WRITTEN)
@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.__name__)
def test_a_tree_of_zarr_2_that_is_copied_is_in_the_store(new, zarr2, tree, tmp_path, copy, dialect):
    directory, values = tree
    with new(dialect) as m:
        copy(directory, m / "tree", tmp_path)
        assert_arrays(zarr2.read_v2(m / "tree"), values)
        run("cp", "-r", m / "tree", tmp_path / "back")
        assert_arrays(zarr2.read_v2(tmp_path / "back"), values)
    expected = {f"tree/{path}": part for path, part in values.items()}
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)


@pytest.mark.parametrize("dialect", WRITTEN)
def test_mv_and_rm_of_nodes_of_zarr_2(new, zarr2, tree, tmp_path, dialect):
    directory, values = tree
    with new(dialect) as m:
        run("cp", "-r", directory, m / "tree")
        run("cp", "-r", directory, m / "gone")
        run("mv", m / "tree/i4", m / "i4")
        run("mv", m / "tree/a", m / "moved")
        run("rm", "-r", m / "tree")
        run("rm", "-r", m / "gone/a", m / "gone/i1")
        shutil.rmtree(m / "gone")
        expected = {"i4": values["i4"], "moved/b/u1": values["a/b/u1"]}
        assert_arrays(zarr2.read_v2(m.path), expected)
        assert sorted(os.listdir(m.path)) in ([".zgroup", ".zmetadata", "i4", "moved"],)
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)
    assert not [key for key in files(m.store) if "tree" in key or "gone" in key], "keys were left"


@pytest.mark.parametrize("dialect", WRITTEN)
def test_chunks_that_are_changed_as_files_are_in_the_store(new, zarr2, tree, tmp_path, dialect):
    directory, values = tree
    with new(dialect) as m:
        run("cp", "-r", directory, m / "tree")
        chunk = np.full((2, 4), 99, "i1")
        (m / "tree/i1/0.0").write_bytes(chunk.tobytes())
        (m / "tree/i1/2.1").unlink()
        with open(m / "tree/i4/1.1.0", "r+b") as file:
            file.seek(4)
            file.write(np.int32(-5).tobytes())
    expected = {f"tree/{path}": part.copy() for path, part in values.items()}
    expected["tree/i1"][:2, :4] = 99
    expected["tree/i1"][4:, 4:] = 0
    expected["tree/i4"][2, 2, 1] = -5
    assert_arrays(read_source(m.store, dialect, zarr2, tmp_path), expected)


# ---- what is refused


def refuse(m, name, sentence, data):
    def write():
        (m / name).parent.mkdir(exist_ok=True)
        (m / name).write_bytes(data)

    m.refused(22, sentence, write)
    assert not (m / name).exists()


ZARRAY = {
    "zarr_format": 2, "shape": [4, 4], "chunks": [2, 2], "dtype": "<i4", "compressor": None, "fill_value": 0,
    "order": "C", "filters": None,
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["v2", "v3"])
@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"dimension_separator": "_"}, "separator"),
        ({"shape": [4]}, "chunks|shape|dimension"),
        ({"dtype": "<q9"}, "dtype|<q9"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_document_of_other_bytes_than_the_mount_takes_is_refused(new, dialect, change, sentence):
    with new(dialect) as m:
        refuse(m, "x/.zarray", sentence, json.dumps(ZARRAY | change).encode())
        (m / "x").rmdir()
    assert not [key for key in files(m.store) if key.startswith("x")]
