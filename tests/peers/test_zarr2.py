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
NO_FORM = {"z342__rectilinear": "a rectilinear chunk grid cannot be expressed in Zarr 2"}
READABLE = [case for case in CASES if case not in NO_FORM]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)
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


@pytest.mark.parametrize("case", READABLE)
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


@pytest.mark.parametrize("case", READABLE)
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


@pytest.mark.parametrize("case", OF_V2)
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


# ---- GDAL 3.6

GDAL_TYPES = {
    "|b1": "Byte", "|u1": "Byte", "|i1": "Int16", "<i2": "Int16", "<u2": "UInt16", "<i4": "Int32", "<u4": "UInt32",
    "<i8": "Int64", "<u8": "UInt64", "<f2": "Float32", "<f4": "Float32", "<f8": "Float64",
}  # fmt: skip
# It says these of a plain directory, too.
GDAL_SAYS = r"Invalid (fill_value|content for shape|or unsupported format for dtype.*)|Size of _ARRAY_DIMENSIONS .*"


def gdal_arrays(node, path=""):
    """The arrays in what gdalmdiminfo says, by path."""
    if node["type"] == "array":
        # The only array of a hierarchy.
        return {path: node}
    found = {f"{path}/{name}".lstrip("/"): array for name, array in node.get("arrays", {}).items()}
    for name, group in node.get("groups", {}).items():
        found |= gdal_arrays({"type": "group", **group}, f"{path}/{name}".lstrip("/"))
    return found


def gdal_knows(zarray):
    # It reads 2^64 - 1 as a signed number in a fill value.
    is_known = not isinstance(zarray["fill_value"], int) or zarray["fill_value"] < 2**63
    return zarray["dtype"] in list(GDAL_TYPES) and 0 not in zarray["shape"] and is_known


@pytest.mark.parametrize("case", READABLE)
def test_gdal_reads_types_shapes_and_values(mount, case):
    with mount(store_of(case), *AS_ZARR2, copy=False) as m:
        command = ["gdalmdiminfo", "-detailed", str(m.path)]
        # Texts are in no encoding.
        done = subprocess.run(command, capture_output=True, encoding="latin-1", timeout=120)
        assert done.returncode == 0, done.stderr
        for line in done.stderr.splitlines():
            assert re.fullmatch(f"(ERROR|Warning) 1: ({GDAL_SAYS})", line), line
        found = gdal_arrays(json.loads(done.stdout))
        if "" in nodes(m.path) and nodes(m.path)[""] == ".zarray":
            (array,) = found.values()
            found = {"": array}
        for path, truth in truths(case):
            zarray = load(m / path / ".zarray")
            if not gdal_knows(zarray):
                continue
            array = found[path]
            assert array["datatype"] == GDAL_TYPES[zarray["dtype"]], path
            assert array.get("dimension_size", []) == zarray["shape"], path
            assert array.get("block_size", []) == zarray["chunks"], path
            names = attributes(m / path).get("_ARRAY_DIMENSIONS")
            if names and len(names) == len(zarray["shape"]):
                shown = [one["name"] if isinstance(one, dict) else one.rsplit("/", 1)[-1] for one in array["dimensions"]]
                assert shown == names, path
            # It has values in as many digits as tell them apart; of Float16 and of missing chunks it has others.
            got = np.array(array["values"] if truth.ndim else array.get("value", array.get("values")))
            if ALL[case]["arrays"][f"/{path}"].get("undefined_where_missing"):
                continue
            # A fill value of -0.0 is 0 to it.
            assert_same(got.astype(truth.dtype) + truth.dtype.type(0), truth + truth.dtype.type(0), path)


@pytest.mark.parametrize("case", ["z316__codecs_bytes", "z218v3__shard_2x2_gzip", "ts__v2"])
def test_gdal_translates_arrays_of_two_dimensions(mount, tmp_path, case):
    with mount(store_of(case), *AS_ZARR2, copy=False) as m:
        translated = 0
        for path, truth in truths(case):
            zarray = load(m / path / ".zarray")
            if truth.ndim != 2 or not gdal_knows(zarray) or zarray["dtype"] in ("|b1", "|i1", "<f2"):
                continue
            raw = tmp_path / f"{translated}.raw"
            run("gdal_translate", "-q", "-of", "ENVI", f'ZARR:"{m.path}":/{path}', raw)
            assert_same(np.fromfile(raw, truth.dtype.newbyteorder("<")).reshape(truth.shape), truth, path)
            translated += 1
        assert translated


# ---- netCDF 4.9

# What netCDF 4.9.0 does not read, and not in a plain directory either (the test looks).
OTHER_TYPES = "it ends with SIGSEGV at a type that it does not know"
SCALAR = "it ends with SIGSEGV at an array of no dimensions"
ROOT = "it takes an array for no hierarchy"
NAN = "it reads no attribute that is not finite"
EMPTY = "it reads no dimension of length 0"
NETCDF_UNABLE = {
    "gdal3103v3__classic": OTHER_TYPES,
    "ic2026v2__arrays": OTHER_TYPES,
    "si0105v2__recordings": "it takes an attribute for a fill value of another type",
    "gdal36v2__dtypes": OTHER_TYPES,
    "synth__2019-05_hierarchy": OTHER_TYPES,
    "synth__2019-06_http_uris": OTHER_TYPES,
    "synth__2020-10_corners": OTHER_TYPES,
    "ts__v2": OTHER_TYPES,
    "ts__v3_dtypes": OTHER_TYPES,
    "ts__v3_fills_scalar": OTHER_TYPES,
    "z342__rectilinear_shards": OTHER_TYPES,
    "z218v2__dtypes": OTHER_TYPES,
    "z218v2__fills": OTHER_TYPES,
    "z218v2__filters": OTHER_TYPES,
    "z218v3__dtypes_core": OTHER_TYPES,
    "z316__dtypes_core": OTHER_TYPES,
    "z316__fills": OTHER_TYPES,
    "z316__numcodecs": OTHER_TYPES,
    "z316__v2_mixed": OTHER_TYPES,
    "z342__dtypes_core": OTHER_TYPES,
    "z342__dtypes_extension": OTHER_TYPES,
    "zarrita202007__dtypes": OTHER_TYPES,
    "zarrita202009__dtypes": OTHER_TYPES,
    "gdal36v2__groups_fill_0d": SCALAR,
    "gdal36v3__groups_fill_0d": SCALAR,
    "z218v3__groups": SCALAR,
    "z218v3__shard_zero_d": SCALAR,
    "z218v3__zero_d": SCALAR,
    "zarrita202007__basic": SCALAR,
    "zarrita202009__basic": SCALAR,
    "zarrita202009__zero_d_and_dot": SCALAR,
    "ts__v3_codecs": "it wants a document in every directory, and looks for none above",
    "z218v2__root_array_attrs": ROOT,
    "z316__root_array": ROOT,
    "z342__root_array": ROOT,
    "z218v2__attrs_bare_nan": NAN,
    "z218v3__attrs_bare_nan": NAN,
    "z316__attrs_bare_nan": NAN,
    "z342__attrs_bare_nan": NAN,
    "z218v2__zero": EMPTY,
    "z218v3__chunk_larger_than_shape": "it reads no chunk that is longer than its dimension",
}


def ncdump(directory, *options):
    """What ncdump says of a directory of Zarr, with all digits."""
    command = ["ncdump", "-p", "9,17", *options, f"file://{directory}#mode=zarr,file"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def ncdump_values(said):
    """The values of each variable, by path, as they are written."""
    found, group, section = {}, [], None
    for line in said.splitlines():
        if opened := re.match(r"\s*group: (.*) \{", line):
            group.append(opened[1])
            section = None
        elif re.match(r"\s*\} // group", line):
            group.pop()
        elif line.strip() in ("dimensions:", "variables:", "data:"):
            section = line.strip()
        elif section == "data:":
            if started := re.match(r" *([^ =]+) = ?(.*)", line):
                # A name that begins with a digit has a backslash before it.
                name = "/".join([*group, started[1].removeprefix("\\")])
                found[name], line = "", started[2]
            if line.strip(" }"):
                found[name] += line
    return {path: [item.strip() for item in text.rstrip("; }").split(",")] for path, text in found.items()}


def number(item, fill):
    if item == "_":
        return fill
    return float(item.rstrip("f")) if re.search(r"[.enN]", item) else int(re.sub(r"[a-zA-Z]+$", "", item))


# An element of theirs is netCDF's own fill value, which ncdump shows as missing.
NETCDF_FILL = {"imagecodecs2026v2__images", "imagecodecs2026v3__images"}
# Groups of theirs have dimensions of the same name and other lengths: netCDF 4.9 gives all of a name one length.
NETCDF_LENGTHS = {"vt05v3__tiffs"}


@pytest.mark.parametrize("case", [case for case in READABLE if case not in NETCDF_FILL | NETCDF_LENGTHS])
def test_netcdf_reads_dimensions_and_values(mount, tmp_path, case):
    with mount(store_of(case), *AS_ZARR2, copy=False) as m:
        done = ncdump(m.path)
        if case in NETCDF_UNABLE:
            run("cp", "-r", m.path, tmp_path / "copy")
            assert done.returncode != 0 and ncdump(tmp_path / "copy").returncode != 0, "it does read this"
            pytest.skip(NETCDF_UNABLE[case])
        assert done.returncode == 0, done.stderr
        header, found = ncdump(m.path, "-h").stdout, ncdump_values(done.stdout)
        if nodes(m.path)[""] == ".zarray":
            return
        for path, truth in truths(case):
            zarray = load(m / path / ".zarray")
            names = attributes(m / path).get("_ARRAY_DIMENSIONS") or [f"_zdim_{n}" for n in zarray["shape"]]
            assert len(names) != truth.ndim or re.search(rf" \\?{path.rsplit('/')[-1]}\({', '.join(names)}\) ;", header), path
            fill = 0 if zarray["fill_value"] is None else float(zarray["fill_value"])
            got = np.array([number(item, fill) for item in found[path]]).reshape(truth.shape)
            assert_same(got.astype(truth.dtype), truth, path)
