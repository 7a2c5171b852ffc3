"""The recipes of docs/cookbook.md, each run as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from mounts import Mount
from programs import BIOFORMATS, PATIENCE, Display
from test_anndata import annotated
from test_views import climate
from test_views_plink import vcf_zarr
from views import ZARRFS

TEXT = (Path(__file__).parents[2] / "docs/cookbook.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def image(path):
    """An OME-Zarr image of two resolutions."""
    group = zarr.create_group(path)
    axes = [{"name": "c", "type": "channel"}, *({"name": a, "type": "space", "unit": "micrometer"} for a in "zyx")]
    datasets = []
    for level, size in enumerate([128, 64]):
        values = np.random.default_rng(level).integers(0, 4000, (2, 8, size, size), dtype="u2")
        group.create_array(str(level), data=values, chunks=(1, 1, 32, 32), dimension_names=list("czyx"))
        scale = [1, 0.5, 0.25 * 2**level, 0.25 * 2**level]
        datasets.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"name": "cells", "axes": axes, "datasets": datasets}]}


def recording(path):
    """A recording of some channels."""
    values = np.random.default_rng(3).normal(0, 100, (3000, 16)).astype("i2")
    zarr.create_group(path).create_array("ap", data=values, chunks=(1000, 4), shards=(2000, 16))


# The program of each language, and how it runs a file.
PROGRAMS = {
    "fortran": ("gfortran", ["sh", "-c", "gfortran -o first FILE && ./first"]),
    "idl": ("gdl", ["gdl", "-quiet", "FILE"]),
    "ijm": ("java", ["java", "-Duser.home=HERE", "-cp", "/usr/share/java/ij.jar", "ij.ImageJ", "-batch", "HERE/FILE"]),
    "octave": ("octave-cli", ["octave-cli", "--no-gui", "--norc", "--quiet", "FILE"]),
    "python": (sys.executable, [sys.executable, "FILE"]),
    "r": ("Rscript", ["Rscript", "--vanilla", "FILE"]),
    "sh": ("bash", ["bash", "-euo", "pipefail", "FILE"]),
}
ENDINGS = {"fortran": "f90", "idl": "pro", "octave": "m"}


def test_the_table_has_the_versions_that_are_tested():
    """Those of Debian's programs are the ones that Debian 12 has."""
    rows = re.findall(r"^\|[^|]*\| ([^|]+) \| ([^|]+) \| `[^|]*\|$", TEXT, re.MULTILINE)
    listed = dict(rows)
    pinned = (Path(__file__).parent / "requirements-py3.txt").read_text()
    pinned = dict(line.split("==") for line in pinned.splitlines() if "==" in line)
    python = {name: version for name, version in listed.items() if name in pinned}
    assert len(rows) > 20 and len(python) > 10, rows
    assert python == {name: pinned[name] for name in python}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_recipe_does_what_it_says(tmp_path, number):
    language, text = BLOCKS[number]
    program, command = PROGRAMS[language]
    jars = ["/usr/share/java/ij.jar"] * (language == "ijm") + [BIOFORMATS] * ("bioformats_package.jar" in text)
    for needed in [program, *["java"] * bool(jars), *["Xvfb"] * (language == "ijm")]:
        if not shutil.which(needed):
            pytest.skip(f"{needed} is not there")
    for jar in jars:
        if not os.path.isfile(jar):
            pytest.skip("a jar of ImageJ or Bio-Formats is not there")
        os.symlink(jar, tmp_path / os.path.basename(jar))
    climate(tmp_path / "climate.zarr")
    image(tmp_path / "cells.zarr")
    recording(tmp_path / "probe.zarr")
    vcf_zarr(tmp_path / "genotypes.vcz")
    annotated().write_zarr(tmp_path / "cells.h5ad.zarr")
    file = f"recipe.{ENDINGS.get(language, language)}"
    (tmp_path / file).write_text(text)
    mounts, display = [], None
    try:
        stores = {"climate.zarr": "mnt", "cells.zarr": "cells", "probe.zarr": "probe", "genotypes.vcz": "genotypes"}
        stores["cells.h5ad.zarr"] = "table"
        for store, at in stores.items():
            mounts.append(Mount(tmp_path / store, tmp_path / at))
        os.symlink(ZARRFS, tmp_path / "zarrfs")
        environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        if language == "ijm":
            display = Display()
            environment |= {"DISPLAY": display.environment["DISPLAY"]}
        command = [word.replace("FILE", file).replace("HERE", str(tmp_path)) for word in command]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0 and (done.stdout or language == "sh"), f"{text}\n{done.stdout}\n{done.stderr}"
        # These say what is wrong, and that all is well.
        assert not (language in ("idl", "ijm") and re.search("^%|not found|Exception", done.stdout + done.stderr)), done
    finally:
        if display:
            display.end()
        for mount in mounts:
            mount.end()
