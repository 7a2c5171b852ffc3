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
from test_views import climate
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


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_recipe_does_what_it_says(tmp_path, number):
    language, text = BLOCKS[number]
    climate(tmp_path / "climate.zarr")
    image(tmp_path / "cells.zarr")
    mounts = []
    try:
        for store, at in (("climate.zarr", "mnt"), ("cells.zarr", "cells")):
            mounts.append(Mount(tmp_path / store, tmp_path / at))
        os.symlink(ZARRFS, tmp_path / "zarrfs")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        if language == "fortran":
            if not shutil.which("gfortran"):
                pytest.skip("gfortran is not there")
            (tmp_path / "first.f90").write_text(text)
            subprocess.run(["gfortran", "-o", "first", "first.f90"], cwd=tmp_path, check=True)
            command = ["./first"]
        elif language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
        else:
            command = [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and (done.stdout or language == "sh"), f"{text}\n{done.stdout}\n{done.stderr}"
    finally:
        for mount in mounts:
            mount.end()
