"""Every hierarchy that another program wrote, mounted `--as zarr2`, read by programs that stopped at Zarr 2:
zarr-python 2.18, GDAL 3.6 and netCDF 4.9. And what such programs write there, read from the store.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hierarchies import assert_same, document
from test_fixtures import ALL, store_of, truths

CASES = [case for case in ALL if not ALL[case].get("must_reject")]
AS_ZARR2 = ("-o", "ro", "--as", "zarr2")

# What Zarr 2 cannot say at all.
NO_FORM = {"z342__rectilinear": "a rectilinear chunk grid has no form in Zarr 2"}
READABLE = [case for case in CASES if case not in NO_FORM]


def known(cases, bugs):
    """The cases, those with a bug of zarrfs marked so."""
    marks = {case: [pytest.mark.xfail(reason=reason, strict=True)] for case, reason in bugs.items()}
    return [pytest.param(case, marks=marks.get(case, [])) for case in cases]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return done.stdout


def load(path):
    """A document of Zarr 2, which must be strict JSON."""

    def refuse(name):
        raise AssertionError(f"{path} holds a bare {name}")

    return json.loads(Path(path).read_text(), parse_constant=refuse)


def attributes(directory):
    return load(directory / ".zattrs") if (directory / ".zattrs").exists() else {}


def nodes(root):
    """The directories with a document, by their paths."""
    found = {}
    for at, directories, names in os.walk(root):
        for name in {".zarray", ".zgroup"} & set(names):
            found[os.path.relpath(at, root).removeprefix(".")] = name
    return found


def assert_values(case, found):
    """`found` has every array of the case, with the values that its own writer read."""
    about = ALL[case]["arrays"]
    for path, truth in truths(case):
        assert path in found, f"{path} was not found"
        got = found[path]
        if got.dtype.kind == "V" and truth.dtype.kind in "ui" and not got.dtype.names:
            got = got.view(truth.dtype)  # Bits of numbers that numpy does not know.
        if got.dtype.kind in "SU" and got.dtype.kind == truth.dtype.kind:
            widest = np.promote_types(got.dtype, truth.dtype)  # Of texts of any length numpy has padded ones.
            got, truth = got.astype(widest), truth.astype(widest)
        if about[f"/{path}"].get("undefined_where_missing"):
            missing = got != truth
            assert not missing.all(), path
            got = np.where(missing, truth, got)
        assert_same(got, truth, path)


@pytest.mark.parametrize("case", known(READABLE, {"synth__dual_v2_v3": "ordinary files named .zarray are listed twice"}))
def test_zarr_python_2_reads_the_decoded_truth_from_the_mount_and_from_a_copy(mount, zarr2, tmp_path, case):
    copy = tmp_path / "copy"
    with mount(store_of(case), *AS_ZARR2, copy=False) as m:
        assert_values(case, zarr2.read_v2(m.path))
        # The root's `.zmetadata` is there whatever the store has.
        if (m / ".zgroup").exists():
            assert_values(case, zarr2.read_v2(m.path, consolidated=True))
        run("cp", "-r", m.path, copy)
        shows_all = all(load(m / path / ".zarray")["fill_value"] is not None for path, _ in truths(case))
    assert not (copy / ".zarrfs").exists()
    if shows_all:  # Else chunks that are not stored are in no list, and zarr-python 2 has what is in memory there.
        assert_values(case, zarr2.read_v2(copy, consolidated=(copy / ".zgroup").exists()))


def plain_codecs(zarray):
    """What `filters` must be: nothing, but for elements of any length."""
    if zarray["dtype"] != "|O":
        return [None]
    return [[{"id": "vlen-utf8"}], [{"id": "vlen-bytes"}]]


@pytest.mark.parametrize("case", known(READABLE, {"synth__dual_v2_v3": "the stored .zarray is shown"}))
def test_the_tree_is_one_of_zarr_2(mount, tmp_path, case):
    with mount(store_of(case), *AS_ZARR2, copy=False) as m, mount(store_of(case), "-o", "ro", copy=False) as zarr3:
        found = nodes(m.path)
        for path, kind in found.items():
            directory, v3 = m / path, document(zarr3 / path)
            assert v3["node_type"] == {".zarray": "array", ".zgroup": "group"}[kind]
            assert not (directory / "zarr.json").exists() and not (directory / "c").exists()
            if kind == ".zgroup":
                assert load(directory / kind) == {"zarr_format": 2}
                continue
            zarray = load(directory / kind)
            assert zarray["zarr_format"] == 2
            assert zarray["compressor"] is None and zarray["order"] == "C"
            assert zarray["filters"] in plain_codecs(zarray)
            assert zarray["shape"] == v3["shape"]
            assert zarray["chunks"] == v3["chunk_grid"]["configuration"]["chunk_shape"]
            assert not isinstance(zarray["dtype"], str) or zarray["dtype"][0] in "<|"
            names = v3.get("dimension_names")
            if names and None not in names:
                assert attributes(directory)["_ARRAY_DIMENSIONS"] == names
            # The same chunks by other names, and the same bytes.
            chunks = {os.path.relpath(chunk, zarr3 / path / "c"): chunk for chunk in (zarr3 / path / "c").rglob("*")}
            chunks = {name: chunk for name, chunk in chunks.items() if chunk.is_file()}
            if (zarr3 / path / "c").is_file():
                chunks = {"0": zarr3 / path / "c"}
            listed = {name for name in os.listdir(directory) if re.fullmatch(r"\d+(\.\d+)*", name)}
            assert listed == {name.replace("/", ".") for name in chunks}
            for name, chunk in chunks.items():
                assert (directory / name.replace("/", ".")).read_bytes() == chunk.read_bytes(), f"{path}: {name}"
        assert set(found) == {
            os.path.relpath(path.parent, zarr3.path).removeprefix(".") for path in zarr3.path.rglob("zarr.json")
        }
        assert (m / ".zmetadata").exists() == (found[""] == ".zgroup")
        if found[""] == ".zgroup":
            copies = load(m / ".zmetadata")["metadata"]
            assert copies.keys() >= {f"{path}/{kind}".lstrip("/") for path, kind in found.items()}
            assert all(load(m / path) == copies[path] for path in copies)
            assert all((m / path / ".zattrs").exists() == (f"{path}/.zattrs".lstrip("/") in copies) for path in found)


def strict(value):
    """A value of JSON whose numbers are finite."""
    if isinstance(value, float) and not np.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, list):
        return [strict(item) for item in value]
    return {key: strict(item) for key, item in value.items()} if isinstance(value, dict) else value


OF_V2 = [case for case in READABLE if "v2 " in ALL[case]["dialect"] or ALL[case]["dialect"] == "v2"]
OF_V2.remove("synth__dual_v2_v3")  # Its nodes are those of its v3.


@pytest.mark.parametrize("case", known(OF_V2, {"netcdf49__nczarr": "a scalar gains _FillValue"}))
def test_attributes_of_zarr_2_are_those_of_the_store(mount, case):
    with mount(store_of(case), *AS_ZARR2, copy=False) as m:
        for path in nodes(m.path):
            stored = store_of(case) / path / ".zattrs"
            stored = json.loads(stored.read_text()) if stored.exists() else {}
            assert json.dumps(attributes(m / path), sort_keys=True) == json.dumps(strict(stored), sort_keys=True), path


@pytest.mark.parametrize("case", NO_FORM)
def test_what_zarr_2_cannot_say_is_refused_with_the_reason(mount, case):
    with mount(store_of(case), *AS_ZARR2, copy=False) as m:
        m.allow("lookup|readdir")
        m.refused(95, NO_FORM[case], (m / ".zarray").read_bytes)
