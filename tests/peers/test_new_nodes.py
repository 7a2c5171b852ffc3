"""Groups and arrays that programs make, move and remove through a mount: the store has them as they were written, by
every program that reads it, and no key more.

`ZARRFS_PLAIN=1` runs what needs no zarrfs in a plain directory, to see that the tests are right.
"""

import concurrent.futures
import contextlib
import errno
import itertools
import multiprocessing
import os
import shutil
import subprocess
import time
import zipfile

import numpy as np
import pandas as pd
import pytest
import tensorstore as ts
import xarray as xr
import zarr
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, TransposeCodec
from zarr.core.group import GroupMetadata

from hierarchies import assert_same, document, open_ts, read_zarr
from new_nodes import (
    KINDS,
    PLAIN,
    assert_keys,
    assert_stored,
    create,
    create_kinds,
    described,
    is_sharded,
    nodes_of,
    plain,
    ramp,
    stored_codecs,
)
from torture import LONG

NONE, SHARDS, TWO = ("--codecs", "none"), ("--codecs", "zstd", "--shards", "64K"), ("--codecs", "gzip,crc32c")
POLICIES = [("v3", ()), ("v3", NONE), ("v3", SHARDS), ("v3", TWO), ("d2020-10", ()), ("d2020-10", SHARDS)]
DIALECTS = ["v3", "d2020-10"]
if PLAIN:
    POLICIES, DIALECTS = [("v3", ())], ["v3"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
    pytest.mark.filterwarnings("ignore:Object at .* is not recognized as a component"),
]
of_zarrfs = pytest.mark.skipif(PLAIN, reason="needs a mount")


def ident(value):
    return value if isinstance(value, str) else "".join(value).replace("--", "-").lstrip("-") or "default"


@pytest.fixture
def new(mount, tmp_path):
    """`with new(dialect, *options) as m:` mounts an empty store of a dialect."""
    numbers = itertools.count()

    @contextlib.contextmanager
    def made(dialect, *options):
        store = tmp_path / f"new{next(numbers)}"
        with plain(store) if PLAIN else mount(store, "--create", "--format", dialect, *options, copy=False) as m:
            yield m

    return made


def open_group(m, name="", **options):
    return zarr.open_group(m / name if name else m.path, **{"mode": "a", "zarr_format": 3, **options})


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


# ---- zarr-python


@pytest.mark.parametrize("consolidated", [False, True], ids=["", "consolidated"])
@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_what_zarr_python_makes_is_the_same_in_the_mount_and_in_the_store(new, zarr2, dialect, options, consolidated):
    with new(dialect, *options) as m:
        group = open_group(m, attributes={"title": "Ω", "nested": {"a": [1, None]}})
        group.attrs.update(title="Ω", nested={"a": [1, None]})
        expected = create_kinds(group)
        inner = group.create_group("some/inner", attributes={"n": 1})
        expected |= {f"some/inner/{name}": values for name, values in create_kinds(inner, {"x": KINDS["f4"]}).items()}
        if consolidated:
            zarr.consolidate_metadata(m.path)
        for path, values in expected.items():
            assert_same(read_zarr(m.path, path), values, path)
        shown = nodes_of(zarr.open_group(m.path, mode="r", use_consolidated=consolidated))
    assert_stored(m.store, dialect, expected, zarr2, groups=["some/inner"])
    if dialect == "v3":
        for use in {False, consolidated}:
            assert nodes_of(zarr.open_group(m.store, mode="r", use_consolidated=use)) == shown


@of_zarrfs
@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_a_new_array_is_stored_as_the_options_say_and_shown_without(new, zarr2, dialect, options):
    with new(dialect, *options) as m:
        values = {"x": create(open_group(m), "x", "f4", (40, 50), (10, 10))}
        codecs = document(m / "x")["codecs"]
        assert codecs == [{"name": "bytes", "configuration": {"endian": "little"}}]
        assert document(m / "x")["chunk_grid"]["configuration"]["chunk_shape"] == [10, 10]
    names = {(): ["zstd"], NONE: [], SHARDS: ["zstd"], TWO: ["gzip", "crc32c"]}[options]
    assert stored_codecs(m.store, dialect, "x") == names
    assert is_sharded(m.store, dialect, "x") == (options == SHARDS)
    assert_stored(m.store, dialect, values, zarr2)


@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_new_arrays_are_resized_appended_to_and_overwritten(new, zarr2, dialect, options):
    with new(dialect, *options) as m:
        group = open_group(m)
        expected = {name: create(group, name, "i4", (10, 6), (3, 4), -1) for name in ("down", "up", "more", "over")}
        group["down"].resize((4, 3))
        expected["down"] = expected["down"][:4, :3]
        group["up"].resize((14, 9))
        expected["up"] = np.pad(expected["up"], ((0, 4), (0, 3)), constant_values=-1)
        group["up"][12:, 8] = 5
        expected["up"][12:, 8] = 5
        group["more"].append(np.full((5, 6), 9, "i4"))
        expected["more"] = np.concatenate([expected["more"], np.full((5, 6), 9, "i4")])
        expected["over"] = create(group, "over", "f8", (5,), (2,), 0.5, overwrite=True)
        group["down"].resize((10, 6))
        expected["down"] = np.pad(expected["down"], ((0, 6), (0, 3)), constant_values=-1)
        cut = group["down"][...]
        # Chunks that were cut keep what lay outside: zarr-python writes no fill values there, in any directory.
        assert_same(cut[:4, :3], expected["down"][:4, :3])
        expected["down"] = cut
    assert_stored(m.store, dialect, expected, zarr2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_attributes_of_new_nodes_change_as_often_as_programs_like(new, zarr2, dialect):
    with new(dialect) as m:
        group = open_group(m)
        values = {"g/x": create(group, "g/x", "i2", (4,), (2,))}
        for number in range(3):
            group["g"].attrs["number"] = number
            group["g/x"].attrs.update({"number": number, f"n{number}": [number]})
        del group["g/x"].attrs["n0"]
        assert dict(group["g/x"].attrs) == {
            "name": "g/x", "Ω": [1, None, {"x": 2.5}], "number": 2, "n1": [1], "n2": [2]
        }
        shown = dict(group["g/x"].attrs)
    assert_stored(m.store, dialect, values, zarr2)
    attributes = described(m.store, dialect, "g/x")["attributes"]
    assert attributes == shown


@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_what_zarr_python_deletes_leaves_no_key(new, zarr2, dialect, options):
    with new(dialect, *options) as m:
        group = open_group(m)
        kept = {"g/kept": create(group, "g/kept", "i4", (5,), (2,))}
        create_kinds(group.create_group("g/gone"))
        create(group, "g/x", "i4", (20, 20), (4, 4))
        del group["g/x"]
        assert "x" not in group["g"]
        del group["g"]["gone"]
        assert sorted(group["g"].keys()) == ["kept"]
    assert_stored(m.store, dialect, kept, zarr2, groups=["g"])


@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_a_group_below_the_mountpoint_can_be_opened_for_overwriting(new, zarr2, dialect, options):
    with new(dialect, *options) as m:
        for number in range(3):
            group = open_group(m, "below", mode="w")
            assert not list(group.members())
            expected = {"below/x": create(group, "x", ["i4", "f8", "u1"][number], (number + 2, 3), (2, 2))}
            create(group, f"other{number}", "i4", (3,), (2,))
        expected["below/other2"] = ramp((3,), "i4")
    assert_stored(m.store, dialect, expected, zarr2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_required_and_overwritten_groups_are_what_they_were_asked_to_be(new, zarr2, dialect):
    with new(dialect) as m:
        group = open_group(m)
        one = group.require_group("a/b/c")
        expected = {"a/b/c/x": create(one, "x", "i4", (3,), (2,))}
        assert nodes_of(group.require_group("a/b/c")).keys() == {"", "x"}
        assert group.require_array("a/b/c/x", shape=(3,), dtype="i4").shape == (3,)
        create(group, "a/old/x", "i4", (3,), (2,))
        group.create_group("a/old", overwrite=True, attributes={"new": True})
        assert nodes_of(group["a/old"]) == {"": {"new": True}}
        with pytest.raises(zarr.errors.ContainsGroupError):
            group.create_group("a/b")
    assert_stored(m.store, dialect, expected, zarr2, groups=["a/old"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_hierarchy_that_zarr_python_creates_at_once_is_there(new, dialect):
    like = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="i4", compressors=None, fill_value=3).metadata
    nodes = {f"g{n // 4}/h{n % 4}/x{n}": like for n in range(16)}
    nodes |= {f"g{n}": GroupMetadata(attributes={"n": n}) for n in range(4)}
    with new(dialect) as m:
        made = dict(zarr.create_hierarchy(store=zarr.storage.LocalStore(m.path), nodes=nodes))
        assert made.keys() >= nodes.keys()
        for n in range(4):
            assert dict(zarr.open_group(m / f"g{n}", mode="r").attrs) == {"n": n}
    arrays = {path: np.full(4, 3, "i4") for path in nodes if path.count("/") == 2}
    assert_keys(m.store, dialect, arrays, groups=[f"g{n}" for n in range(4)])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_threads_make_groups_and_arrays_in_one_group_at_once(new, zarr2, dialect):
    with new(dialect) as m:

        def work(n):
            group = zarr.open_group(m.path, mode="a", zarr_format=3)
            return {f"shared/g{n % 3}/x{n}": create(group, f"shared/g{n % 3}/x{n}", "i4", (6,), (2,))}

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            made = pool.map(work, range(18))
        expected = {path: values for one in made for path, values in one.items()}
    assert_stored(m.store, dialect, expected, zarr2)


# ---- xarray


def dataset(start="2020-01-01", days=4):
    time = pd.date_range(start, periods=days)
    rows = np.arange(days * 3, dtype="f4").reshape(days, 3) + time[0].day_of_year
    rows[0, 1] = np.nan
    return xr.Dataset(
        {
            "t2m": (("time", "x"), rows, {"units": "K"}),
            "count": (("time",), np.arange(days, dtype="i8") + 1),
            "flag": (("x",), np.array([True, False, True])),
        },
        coords={"time": time, "x": [10.5, 11.5, 12.5], "height": 2.0},
        attrs={"title": "Ω"},
    )


def encoding(ds):
    made = {name: {"compressors": None} for name in ds.variables}
    made["t2m"] |= {"_FillValue": -999.0, "chunks": (2, 3)}
    made["time"] |= {"units": "hours since 2020-01-01", "dtype": "int64", "chunks": (2,)}
    made["count"] |= {"chunks": (2,)}
    return made


def read_xarray(path, **options):
    with xr.open_zarr(path, zarr_format=3, **{"consolidated": False, **options}) as ds:
        return ds.load()


@pytest.mark.parametrize("consolidated", [False, True], ids=["", "consolidated"])
@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_what_xarray_writes_it_reads_from_the_mount_and_from_the_store(new, zarr2, dialect, options, consolidated):
    ds = dataset()
    with new(dialect, *options) as m:
        form = dict(zarr_format=3, consolidated=consolidated)
        ds.to_zarr(m / "era", mode="w", encoding=encoding(ds), **form)
        extra = ds[["count"]].rename(count="extra")
        extra.to_zarr(m / "era", mode="a", encoding={"extra": {"compressors": None}}, **form)
        later = dataset("2020-01-05")
        later = later.assign(extra=later["count"]).drop_vars(["flag", "height"])
        later.to_zarr(m / "era", append_dim="time", **form)
        warmer = xr.Dataset({"t2m": (("time", "x"), np.full((2, 3), 300, "f4"))})
        warmer.to_zarr(m / "era", region={"time": slice(4, 6)}, **form)
        how = dict(data_vars="minimal", coords="minimal", compat="override", join="override")
        expected = xr.concat([ds.assign(extra=ds["count"]), later], "time", **how)
        expected["t2m"][4:6] = 300
        shown = read_xarray(m / "era", consolidated=consolidated)
        xr.testing.assert_identical(shown.drop_encoding(), expected.drop_encoding()[list(shown.variables)])
        raw = {f"era/{name}": values[...] for name, values in zarr.open_group(m / "era", mode="r").arrays()}
    assert_stored(m.store, dialect, raw, zarr2)
    if dialect == "v3":
        xr.testing.assert_identical(read_xarray(m.store / "era", consolidated=consolidated), shown)
    with new(dialect) as again:
        ds.to_zarr(again.path, group="a/b", mode="w", encoding=encoding(ds), **form)
        ds.to_zarr(again.path, group="a/b", mode="w", encoding=encoding(ds), **form)
        xr.testing.assert_identical(read_xarray(again.path, group="a/b")[list(ds.variables)], ds)


# ---- TensorStore


def spec(path, **members):
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}, **members}


def metadata(values, chunks, **members):
    return {
        "shape": list(values.shape),
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        **members,
    }


def create_ts(path, values, chunks, **options):
    array = ts.open(spec(path, metadata=metadata(values, chunks)), create=True, **options).result()
    array.write(values).result()
    return array


@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_what_tensorstore_makes_is_in_the_store(new, zarr2, dialect, options):
    with new(dialect, *options) as m:
        expected = {"deep/er/x": ramp((7, 9), "f4"), "scalar": ramp((), "i8"), "y": ramp((5,), "u2")}
        chunks = {"deep/er/x": (3, 4), "scalar": (), "y": (2,)}
        for path, values in expected.items():
            create_ts(m / path, values, chunks[path])
            assert_same(open_ts(m.path, path).read().result(), values, path)
        # It removes what is in the directory and not the directory, and makes another array there.
        expected["y"] = ramp((4, 4), "f8")
        create_ts(m / "y", expected["y"], (2, 2), delete_existing=True)
        x = open_ts(m.path, "deep/er/x").resize(exclusive_max=[5, 12]).result()
        x[4, 11].write(77).result()
        expected["deep/er/x"] = np.asarray(x.read().result())
        assert expected["deep/er/x"][4, 11] == 77
        del x
    assert_stored(m.store, dialect, expected, zarr2)


@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_threads_of_tensorstore_make_arrays_at_once(new, zarr2, dialect, options):
    expected = {f"g{n % 2}/x{n}": ramp((6, 6), "i4") + n for n in range(8)}
    with new(dialect, *options) as m:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda path: create_ts(m / path, expected[path], (2, 3)), expected))
    assert_stored(m.store, dialect, expected, zarr2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_two_that_create_one_array_tensorstore_lets_one_win(new, zarr2, dialect):
    values = ramp((4,), "i4")
    with new(dialect) as m:
        made = [ts.open(spec(m / "x", metadata=metadata(values, (2,))), create=True) for _ in range(6)]
        won = [future for future in made if future.exception() is None]
        assert len(won) == 1
        won[0].result().write(values).result()
    assert_stored(m.store, dialect, {"x": values}, zarr2)


# ---- files that are copied, moved and removed


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """An uncompressed hierarchy in a directory: what a mount takes when it is copied."""
    directory = tmp_path_factory.mktemp("plain") / "tree"
    group = zarr.create_group(directory, attributes={"title": "tree"})
    expected = create_kinds(group)
    inner = group.create_group("inner", attributes={"n": 1})
    expected["inner/z"] = create(inner, "z", "u2", (9, 9), (4, 4))
    expected["inner/more/z"] = create(inner, "more/z", "f4", (5,), (2,))
    return directory, expected


def in_order(tree, chunks_first):
    """The files of a tree, its documents before or after all that is below."""
    found = [path.relative_to(tree) for path in tree.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: ((path.name == "zarr.json") == chunks_first, len(path.parts), path))


def cp_r(tree, to, scratch):
    run("cp", "-r", tree, to)


def cp_a(tree, to, scratch):
    run("cp", "-a", tree, to)


def rsync(tree, to, scratch):
    run("rsync", "-a", f"{tree}/", f"{to}/")
    again = run("rsync", "-ai", "--size-only", f"{tree}/", f"{to}/")
    assert "f+" not in again.stdout


def rsync_inplace(tree, to, scratch):
    run("rsync", "-rW", "--inplace", f"{tree}/", f"{to}/")


def tar(tree, to, scratch):
    run("tar", "cf", scratch / "tree.tar", "-C", tree.parent, tree.name)
    run("tar", "xf", scratch / "tree.tar", "-C", to.parent)


def tar_with_chunks_first(tree, to, scratch):
    names = "\n".join(str(tree.name / path) for path in in_order(tree, True))
    run("tar", "cf", scratch / "tree.tar", "-C", tree.parent, "-T", "-", input=names)
    run("tar", "xf", scratch / "tree.tar", "-C", to.parent)


def unzip(tree, to, scratch, chunks_first=False):
    with zipfile.ZipFile(scratch / "tree.zip", "w") as archive:
        for path in in_order(tree, chunks_first):
            archive.write(tree / path, path)
    run("unzip", "-q", scratch / "tree.zip", "-d", to)


def unzip_with_chunks_first(tree, to, scratch):
    unzip(tree, to, scratch, chunks_first=True)


def copytree(tree, to, scratch):
    shutil.copytree(tree, to)


def mv_from_elsewhere(tree, to, scratch):
    shutil.copytree(tree, scratch / tree.name)
    run("mv", scratch / tree.name, to)


COPIES = [cp_r, cp_a, rsync, rsync_inplace, tar, tar_with_chunks_first, unzip, unzip_with_chunks_first, copytree]
COPIES += [mv_from_elsewhere]


@pytest.mark.parametrize("dialect, options", POLICIES[:1] + POLICIES[5:], ids=ident)
@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.__name__)
def test_a_tree_that_is_copied_into_the_mount_is_in_the_store(new, zarr2, tree, tmp_path, copy, dialect, options):
    directory, values = tree
    with new(dialect, *options) as m:
        copy(directory, m / "tree", tmp_path)
        shown = zarr.open_group(m / "tree", mode="r")
        assert nodes_of(shown) == nodes_of(zarr.open_group(directory, mode="r"))
        for path, expected in values.items():
            assert_same(shown[path][...], expected, path)
    expected = {f"tree/{path}": part for path, part in values.items()}
    assert_stored(m.store, dialect, expected, zarr2)
    if dialect == "v3":
        assert nodes_of(zarr.open_group(m.store / "tree", mode="r")) == nodes_of(zarr.open_group(directory, mode="r"))


@of_zarrfs
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_document_may_come_long_after_the_children_while_these_are_written(new, zarr2, tree, dialect):
    """As `cp -r` and `tar` do it: a group's own document last, and exclusively."""
    directory, values = tree
    with new(dialect, "--writeback-delay", "1s") as m:
        (m / "tree").mkdir()
        (m / "tree/inner").mkdir()
        for path in in_order(directory / "inner/z", False):
            target = m / "tree/inner/z" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((directory / "inner/z" / path).read_bytes())
            time.sleep(0.2)
        for name in ("tree/inner", "tree"):
            assert not (m / name / "zarr.json").exists()
            with open(m / name / "zarr.json", "xb") as file:
                file.write((directory.parent / name / "zarr.json").read_bytes())
        shown = nodes_of(zarr.open_group(m / "tree", mode="r"))
        assert shown[""] == {"title": "tree"} and shown["inner"] == {"n": 1}
    assert_stored(m.store, dialect, {"tree/inner/z": values["inner/z"]}, zarr2)


@pytest.mark.parametrize("dialect, options", POLICIES, ids=ident)
def test_mv_takes_nodes_along_with_all_that_is_below(new, zarr2, dialect, options):
    with new(dialect, *options) as m:
        group = open_group(m)
        values = {name: create(group, name, *KINDS["f4"]) for name in ("a/x", "a/b/x", "a/b/c/y", "z")}
        moves = [("a/x", "a/renamed"), ("a/b", "b"), ("b/c/y", "y"), ("z", "a"), ("b", "a")]
        for source, target in moves:
            into = (m / target).is_dir()
            run("mv", m / source, m / target)
            to = f"{target}/{os.path.basename(source)}" if into else target
            values = {
                to + path[len(source):] if f"{path}/".startswith(f"{source}/") else path: part
                for path, part in values.items()
            }
            for path, part in values.items():
                assert_same(read_zarr(m.path, path), part, path)
        open_group(m)["a/b/x"][0] = 5
        values["a/b/x"][0] = 5
    assert values.keys() == {"a/renamed", "a/b/x", "y", "a/z"}
    assert_stored(m.store, dialect, values, zarr2, groups=["a/b/c"])


def rm_r(path):
    run("rm", "-r", path)


def find_delete(path):
    run("find", path, "-delete")


def documents_first(path):
    for at, _, names in os.walk(path):
        if "zarr.json" in names:
            os.unlink(os.path.join(at, "zarr.json"))
    bottom_up(path)


def documents_last(path):
    found = [path / name for name in in_order(path, True)]
    for name in found:
        name.unlink()
    bottom_up(path)


def bottom_up(path):
    for at, directories, names in os.walk(path, topdown=False):
        for name in names:
            os.unlink(os.path.join(at, name))
    for at, directories, names in os.walk(path, topdown=False):
        assert not names
        os.rmdir(at)


REMOVALS = [rm_r, find_delete, shutil.rmtree, documents_first, documents_last]


@pytest.mark.parametrize("dialect, options", POLICIES[::2] + POLICIES[5:], ids=ident)
@pytest.mark.parametrize("remove", REMOVALS, ids=lambda remove: remove.__name__)
def test_a_tree_that_is_removed_leaves_no_key(new, zarr2, remove, dialect, options):
    with new(dialect, *options) as m:
        group = open_group(m)
        kept = {"kept/x": create(group, "kept/x", "i4", (4,), (2,))}
        create_kinds(group.create_group("tree", attributes={"a": 1}))
        create(group, "array", "f4", (9, 9), (2, 2))
        for name in ("tree", "array"):
            remove(m / name)
            assert not (m / name).exists()
        assert sorted(os.listdir(m.path)) == ["kept", "zarr.json"]
        again = create(group, "array", "u1", (3,), (2,))
        remove(m / "array")
    assert again.size
    assert_stored(m.store, dialect, kept, zarr2)


# ---- what is refused, and the stored document instead


STORED = {
    "transposed": dict(filters=TransposeCodec(order=(1, 0)), compressors=GzipCodec()),
    "big_endian": dict(serializer=BytesCodec(endian="big"), compressors=GzipCodec()),
    "shards": dict(shards=(8, 8), compressors=GzipCodec()),
    "all": dict(
        chunks=(8, 8),
        filters=TransposeCodec(order=(1, 0)),
        serializer=ShardingCodec(chunk_shape=(4, 4), codecs=[BytesCodec(endian="big"), GzipCodec()]),
        compressors=None,
    ),
}


@of_zarrfs
@pytest.mark.parametrize("kind", STORED)
def test_a_stored_document_makes_an_array_of_any_pipeline_with_decoded_chunk_files(new, zarr2, tmp_path, kind):
    values = ramp((20, 12), "i4")
    like = dict(shape=values.shape, dtype="i4", chunks=(4, 4), attributes={"made": "so"}) | STORED[kind]
    zarr.create_array(tmp_path / "like", **like)
    with new("v3") as m:
        stored = m / ".zarrfs/stored/g/x"
        stored.mkdir(parents=True)
        (stored / "zarr.json").write_text((tmp_path / "like/zarr.json").read_text())
        assert document(m / "g/x")["chunk_grid"]["configuration"]["chunk_shape"] == [4, 4]
        for i, j in itertools.product(range(5), range(3)):
            chunk = m / f"g/x/c/{i}/{j}"
            chunk.parent.mkdir(parents=True, exist_ok=True)
            chunk.write_bytes(values[4 * i : 4 * i + 4, 4 * j : 4 * j + 4].tobytes())
        assert_same(read_zarr(m.path, "g/x"), values)
    as_written = zarr.open_array(tmp_path / "like", mode="r").metadata.to_dict()
    assert zarr.open_array(m.store / "g/x", mode="r").metadata.to_dict() == as_written
    assert_same(read_zarr(m.store, "g/x"), values)
    assert_same(open_ts(m.store, "g/x").read().result(), values)


def make_each(barrier, directories):
    """Makes directories, each when another process makes its own."""
    for directory in directories:
        barrier.wait()
        directory.mkdir(parents=True, exist_ok=True)


@of_zarrfs
@pytest.mark.parametrize("maker", ["store", "other mount"])
def test_what_is_made_below_a_directory_that_another_program_makes_at_that_moment_is_below_it(mount, tmp_path, maker):
    with contextlib.ExitStack() as stack:
        m = stack.enter_context(mount(tmp_path / "store", "--create", copy=False))
        other = m.store if maker == "store" else stack.enter_context(mount(tmp_path / "store", copy=False))
        names = [f"g{number}" for number in range(5000 if LONG else 200)]
        barrier = multiprocessing.Barrier(2)
        makers = [
            multiprocessing.Process(target=make_each, args=(barrier, [other / name for name in names])),
            multiprocessing.Process(target=make_each, args=(barrier, [m / name / "s/a" for name in names])),
        ]
        for process in makers:
            process.start()
        for process in makers:
            process.join()
            assert process.exitcode == 0
    assert [name for name in names if not (tmp_path / "store" / name / "s/a").is_dir()] == []
    assert sorted(os.listdir(tmp_path / "store")) == sorted([*names, "zarr.json"])


@of_zarrfs
@pytest.mark.parametrize("maker", ["zarr-python", "other mount"])
def test_attributes_of_a_directory_that_another_program_makes_a_group_are_stored(mount, tmp_path, maker):
    with mount(tmp_path / "store", "--create", copy=False) as m:
        (m / "g").mkdir()
        os.setxattr(m / "g", "user.attrs.k", b"5")
        if maker == "zarr-python":
            zarr.open_group(tmp_path / "store/g", mode="w-", attributes={"theirs": 1})
        else:
            with mount(tmp_path / "store", copy=False) as other:
                (other / "g/s").mkdir(parents=True, exist_ok=True)
    attributes = dict(zarr.open_group(tmp_path / "store/g", mode="r").attrs)
    assert attributes == ({"theirs": 1, "k": 5} if maker == "zarr-python" else {"k": 5})


@of_zarrfs
@pytest.mark.parametrize("number", [2, 3])
def test_consolidated_metadata_with_a_new_array_are_whole_for_zarr_python(mount, tmp_path, number):
    root = zarr.create_group(tmp_path / "store", zarr_format=number)
    for name in "dm":
        root.create_group(name).create_array("c", shape=(2,), dtype="i4")
        root[name].create_group("below").create_array("x", shape=(2,), dtype="i4")
    zarr.consolidate_metadata(tmp_path / "store", zarr_format=number)
    with mount(tmp_path / "store", "--as", {2: "zarr2", 3: "zarr"}[number], copy=False) as m:
        for name in "dm":
            zarr.create_array(m / name / "new", shape=(2,), dtype="i4", zarr_format=number)
            zarr.create_array(m / name / "below/new", shape=(2,), dtype="i4", zarr_format=number)
    found = zarr.open_consolidated(tmp_path / "store", zarr_format=number)
    for name in "dm":
        assert sorted(found[name].array_keys()) == ["c", "new"]
        assert sorted(found[name]["below"].array_keys()) == ["new", "x"]


@of_zarrfs
@pytest.mark.parametrize("dialect", ["v2", "v3"])
def test_a_copy_of_a_group_with_consolidated_metadata_has_them_too(new, dialect):
    with new(dialect) as m:
        data = xr.Dataset({"a": ("x", np.arange(3.0))})
        data.to_zarr(m / "g", zarr_format=3, consolidated=True)
        for name in ("one", "two"):
            subprocess.run(["cp", "-r", m / "g", m / name], check=True)
            assert zarr.open_consolidated(m / name)["a"].shape == (3,)
    for name in ("one", "two"):
        assert zarr.open_consolidated(m.store / name, zarr_format=int(dialect[1:]))["a"].shape == (3,)
