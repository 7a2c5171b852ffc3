"""The hierarchies that zarrs and zarr-java test themselves with: a mount must show the values that zarr-python or
TensorStore reads from the store."""

import os
import shutil
from pathlib import Path

import numpy as np
import zarr

import suites
from hierarchies import assert_same, read_ts, read_zarr
from mounts import Mount, until_end

METADATA = {"zarr.json", ".zarray", ".zgroup"}


def hierarchies(directory):
    """The roots of all hierarchies in `directory`."""
    found = []
    for at, directories, names in os.walk(directory):
        if METADATA & set(names):
            found.append(Path(at))
            directories.clear()
    assert found, f"there is no hierarchy in {directory}"
    return sorted(found)


def run(work, log, name, data):
    """Each hierarchy in the directory `data` of the clone `name`."""
    home = suites.DIRECTORY / name / data
    if not home.exists():
        raise suites.Absent(name)
    results = {}
    for number, root in enumerate(hierarchies(home)):
        with open(log, "a") as file:
            file.write(f"{root}\n")
        store = Path(work) / f"store{number}"
        shutil.copytree(root, store)
        try:
            result = compare(store)
        except Exception as error:  # Other values, or a mount or a program that failed.
            result = (str(error) or repr(error)).splitlines()[0][:160]
        results[f"{name}/{root.relative_to(home)}"] = result
    return results


def compare(store):
    """Skipped if no other program can read an array of the hierarchy."""
    compared, found = 0, arrays(store)
    with until_end(Mount(store, f"{store}.mnt")) as m:
        m.allow("")
        for path in found:
            truth = values_in(store, path)
            if truth is not None:
                assert_equal(read_zarr(m.path, path), truth, path)
                compared += 1
    return suites.PASSED if compared or not found else suites.SKIPPED


def assert_equal(shown, truth, path):
    if truth.dtype.kind in "OT":  # Strings, and values of any length.
        assert shown.tolist() == truth.tolist(), f"{path}: other values"
    else:
        assert_same(shown, truth, path)


def arrays(store):
    """The paths of all arrays."""
    found = []
    for at, _, names in os.walk(store):
        if ".zarray" in names or ("zarr.json" in names and '"array"' in Path(at, "zarr.json").read_text()):
            found.append(os.path.relpath(at, store))
    return sorted(found)


def values_in(store, path):
    """The values that another program reads; `None` if none can."""
    for read in (lambda: zarr.open_array(store / path, mode="r")[...], lambda: read_ts(store, path)):
        try:
            return np.asarray(read())
        except Exception:  # It does not know a codec or a data type.
            continue
    return None
