"""Attributes, names of dimensions and shapes changed through the mount, and what must survive in the stored document."""

import itertools
import json
import os
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

import layouts
from hierarchies import assert_same, chunk_files, document, open_ts
from mounts import changed, files, wait_until

LAYOUTS = [("v3", "zstd"), ("v3", "shards"), ("d2020-10", "gzip"), ("d2020-10", "shards")]


def stored_key(dialect, path):
    if dialect == "v3":
        return f"{path}/zarr.json" if path else "zarr.json"
    return f"meta/root/{path}.array.json" if path else "meta/root.group.json"


def direct(path, text):
    path.write_text(text)


def renamed(path, text):
    """As zarr-python and careful editors do."""
    scratch = path.with_name("zarr.1234.partial")
    scratch.write_text(text)
    os.replace(scratch, path)


def editor(path, text):
    """As vim does with a backup: the new file is written in place, the old one kept beside it for a moment."""
    backup = path.with_name("zarr.json~")
    backup.write_text(path.read_text())
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    backup.unlink()


def sed(path, text):
    """As `sed -i` does: a temporary file of its own making, which is given the mode of the old one."""
    scratch = path.with_name("sedAbCdEf")
    scratch.write_text(text)
    os.chmod(scratch, path.stat().st_mode)
    os.chown(scratch, -1, path.stat().st_gid)
    os.rename(scratch, path)


WRITES = [direct, renamed, editor, sed]


@pytest.fixture(params=LAYOUTS, ids="-".join)
def layout(request):
    return request.param


@pytest.mark.parametrize("write", WRITES)
def test_attributes_and_names_of_dimensions_are_set_by_rewriting_the_document(mount, hierarchy, zarr2, layout, write):
    original = hierarchy(*layout)
    before = files(original)
    with mount(original) as m:
        new = document(m / "x")
        new["attributes"] = {"units": "°C", "nested": {"a": [1, 2.5, None, True]}}
        new["dimension_names"] = ["lat", "lon"]
        write(m / "x/zarr.json", json.dumps(new, ensure_ascii=False))
        shown = document(m / "x")
        assert shown["attributes"]["units"] == "°C" and shown["dimension_names"] == ["lat", "lon"]
        group = document(m.path)
        group["attributes"]["title"] = "new"
        write(m / "zarr.json", json.dumps(group, indent=1))
        assert document(m.path)["attributes"]["title"] == "new"
        assert set(os.listdir(m / "x")) == {"c", "zarr.json"}
    keys = {stored_key(layout[0], "x"), stored_key(layout[0], "")}
    assert changed(before, files(m.store)) == keys
    stored = json.loads((m.store / stored_key(layout[0], "x")).read_text())
    assert stored["attributes"]["nested"] == {"a": [1, 2.5, None, True]}
    if layout[0] == "v3":
        assert zarr.open_array(m.store / "x", mode="r").metadata.dimension_names == ("lat", "lon")
    assert_same(layouts.read(m.store, layout[0], zarr2)["x"], layouts.values())


def test_attributes_are_set_and_removed_as_extended_attributes(mount, hierarchy, layout):
    original = hierarchy(*layout)
    with mount(original) as m:
        run = lambda *command: subprocess.run(command, check=True, capture_output=True, text=True).stdout
        x = str(m / "x")
        run("setfattr", "-n", "user.attrs.units", "-v", r'"\"degC\""', x)
        run("setfattr", "-n", "user.attrs.range", "-v", "[1, 2.50]", x)
        run("setfattr", "-n", "user.attrs.title", "-v", r'"\"all of it\""', str(m.path))
        assert run("getfattr", "--only-values", "-n", "user.attrs.units", x) == '"degC"'
        assert document(m / "x")["attributes"] == {"units": "degC", "range": [1, 2.5]}
        os.removexattr(x, "user.attrs.units")
        with pytest.raises(OSError):
            os.getxattr(x, "user.attrs.units")
        with pytest.raises(OSError):
            os.removexattr(x, "user.attrs.units")
        m.expect("not JSON")
        with pytest.raises(OSError):
            os.setxattr(x, "user.attrs.units", b"degC")
        with pytest.raises(OSError):
            os.setxattr(x, "user.zarr.shape", b"[1]")
    stored = json.loads((m.store / stored_key(layout[0], "x")).read_text())
    assert stored["attributes"] == {"range": [1, 2.5]}
    assert "2.50" in (m.store / stored_key(layout[0], "x")).read_text(), "the number was spelled anew"
    group = json.loads((m.store / stored_key(layout[0], "")).read_text())
    assert group["attributes"]["title"] == "all of it"


def test_zarr_python_sets_attributes_on_the_mount(mount, hierarchy, layout):
    original = hierarchy(*layout)
    with mount(original) as m:
        array = zarr.open_array(str(m / "x"), mode="r+")
        array.attrs["units"] = "Pa"
        array.attrs.update({"valid": True, "list": [1, 2]})
        group = zarr.open_group(str(m.path), mode="r+")
        group.attrs["title"] = "by zarr-python"
        assert zarr.open_array(str(m / "x"), mode="r").attrs["units"] == "Pa"
    stored = json.loads((m.store / stored_key(layout[0], "x")).read_text())
    assert stored["attributes"] == {"units": "Pa", "valid": True, "list": [1, 2]}
    assert json.loads((m.store / stored_key(layout[0], "")).read_text())["attributes"]["title"] == "by zarr-python"


@pytest.mark.parametrize("shape", [(30, 40), (21, 60), (9, 11), (3, 26), (8, 10)])
def test_zarr_python_resizes_on_the_mount(mount, hierarchy, zarr2, layout, shape):
    expected = np.full(shape, -1, "i4")
    both = tuple(map(min, shape, layouts.SHAPE))
    at = tuple(map(slice, both))
    expected[at] = layouts.values()[at]
    with mount(hierarchy(*layout)) as m:
        array = zarr.open_array(str(m / "x"), mode="r+")
        array.resize(shape)
        assert document(m / "x")["shape"] == list(shape)
        again = zarr.open_array(str(m / "x"), mode="r+")
        # What is in chunks that overhang comes back, as in Zarr: the part that was there all the time is compared.
        assert_same(again[...][at], expected[at])
        again[-1, -1] = 99
        expected[-1, -1] = 99
        grid = [-(-n // c) for n, c in zip(shape, layouts.CHUNKS)]
        left = [coords for coords in chunk_files(m / "x") if any(i >= n for i, n in zip(coords, grid))]
        assert not left, "chunks outside were left"
    stored = layouts.read(m.store, layout[0], zarr2)
    at = tuple(slice(0, n) for n in both)
    assert stored["x"].shape == shape and stored["x"][-1, -1] == 99
    got = stored["x"][at].copy()
    want = expected[at].copy()
    assert_same(got, want)
    assert_same(stored["other"], layouts.other())


def test_tensorstore_resizes_on_the_mount(mount, hierarchy, zarr2, layout):
    with mount(hierarchy(*layout)) as m:
        array = open_ts(m.path, "x").resize(exclusive_max=[8, 30]).result()
        assert array.shape == (8, 30)
        assert document(m / "x")["shape"] == [8, 30]
    stored = layouts.read(m.store, layout[0], zarr2)["x"]
    assert_same(stored[:, :26], layouts.values()[:8])


def test_what_no_program_knows_survives_an_edit(mount, hierarchy):
    """Unknown members, bare NaN, integers of any size, the spelling of numbers, the order of members."""
    text = """{
      "future": {"must_understand": false, "x": 1.50},
      "zarr_format": 3, "node_type": "group",
      "attributes": {"nan": NaN, "inf": [-Infinity, 1e40], "big": 1180591620717411303424,
                     "float": 1.0, "exp": 1E+2, "é": "日本", "keep": "\\u00e9\\/"}
    }"""
    with mount(hierarchy("v3", "zstd")) as m:
        (m.store / "zarr.json").write_text(text)
        assert wait_until(lambda: "big" in document(m.path)["attributes"])
        assert (m / ".zarrfs/stored/zarr.json").read_text() == text
        shown = document(m.path)
        assert shown["attributes"]["nan"] == "NaN" and shown["attributes"]["inf"][0] == "-Infinity"
        assert shown["attributes"]["big"] == 2**70
        group = zarr.open_group(str(m.path), mode="r+")
        group.attrs["new"] = [1]
        os.setxattr(m.path, "user.attrs.other", b"2.00")
        after = (m.store / "zarr.json").read_text()
    for kept in re.findall(r'"(?:future|nan|inf|big|float|exp|é|keep)": *(?:\{[^}]*\}|\[[^\]]*\]|[^,}\n]*)', text):
        assert kept in after, f"{kept} became something else in {after}"
    without = json.loads(after)
    assert without["attributes"].pop("new") == [1] and "2.00" in after


def test_consolidated_metadata_is_made_from_what_is_shown(mount):
    fixture = Path(__file__).parents[1] / "fixtures/z316__groups_consolidated/store"
    with mount(fixture) as m:
        consolidated = document(m.path)["consolidated_metadata"]["metadata"]
        for path, shown in consolidated.items():
            assert shown["codecs" if shown["node_type"] == "array" else "node_type"] == (
                document(m / path)["codecs"] if shown["node_type"] == "array" else "group"
            )
        group = zarr.open_consolidated(str(m.path))
        direct_group = zarr.open_group(str(m.path), mode="r", use_consolidated=False)
        assert_same(group["top"][...], direct_group["top"][...])


def test_xarray_opens_the_mount_with_names_and_attributes(mount, tmp_path):
    import xarray

    original = xarray.Dataset(
        {"t2m": (("time", "lat"), np.arange(12.0).reshape(3, 4), {"units": "K"})},
        {"lat": [10.0, 20.0, 30.0, 40.0]},
        {"title": "made by xarray"},
    )
    original.to_zarr(tmp_path / "x.zarr", zarr_format=3)
    with mount(tmp_path / "x.zarr") as m:
        for consolidated in (True, False):
            shown = xarray.open_zarr(str(m.path), consolidated=consolidated).load()
            xarray.testing.assert_identical(shown, original)
            shown.close()


def test_a_document_that_others_rewrite_is_never_shown_in_part(mount, hierarchy, tmp_path):
    """Its length changes behind the mount, at any moment of the time that the mount may take it to be the same."""
    texts = [json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"n": "x" * n}}) for n in (1, 3000, 40)]
    with mount(hierarchy("v3", "zstd"), "--metadata-ttl", "200ms") as m:
        seen, odd, changes = set(), 0, 0
        until = time.monotonic() + 4
        for number in itertools.count():
            if time.monotonic() > until and (len(seen) > 2 or number > 1000):
                break
            if number % 30 == 0:
                changes += 1
                scratch = tmp_path / "zarr.json"
                scratch.write_text(texts[number // 30 % 3])
                os.replace(scratch, m.store / "zarr.json")
            fd = os.open(m / "zarr.json", os.O_RDONLY)
            length = os.fstat(fd).st_size
            text = os.read(fd, 100_000)
            os.close(fd)
            assert json.loads(text)["node_type"] == "group"
            seen.add(len(text))
            odd += len(text) != length  # The document was read anew between two requests.
            time.sleep(0.01)
        assert len(seen) > 2 and odd <= changes, (seen, odd, changes)
