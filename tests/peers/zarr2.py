"""zarr-python 2.18 with its experimental v3 switch, in a process of its own that takes one request a line."""

import json
import os
import re
import subprocess
import tempfile
import textwrap
from pathlib import Path

import numpy as np

PYTHON = os.environ.get("ZARRFS_PY2", "python3")

WALK = """
result = {}
if isinstance(root, zarr.Array):
    result[""] = root[...]
else:
    root.visititems(lambda path, node: isinstance(node, zarr.Array) and result.update({path: node[...]}) or None)
"""
READ_V2 = (
    """
from zarr.storage import DirectoryStore
root = zarr.open_consolidated(store, mode="r") if consolidated else zarr.open(DirectoryStore(store), mode="r")
"""
    + WALK
)
READ_N5 = (
    """
from zarr.n5 import N5Store
root = zarr.open(N5Store(store), mode="r")
"""
    + WALK
)


class Zarr2:
    def __init__(self):
        self.process = None

    def ask(self, **request):
        if self.process is None:
            env = {**os.environ, "ZARR_V3_EXPERIMENTAL_API": "1", "ZARR_V3_SHARDING": "1"}
            script = str(Path(__file__).with_name("zarr2_serve.py"))
            self.process = subprocess.Popen(
                [PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
            )
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "the process has ended"}')
        assert "error" not in answer, answer["error"]
        return answer

    def read(self, store, form="v3", unknown=None):
        """Every array of a hierarchy, by its path; the form is v3 as of 2020, v2 or n5. Those are left out that it
        does not read for a reason that `unknown` matches."""
        with tempfile.TemporaryDirectory() as directory:
            patient = unknown is not None
            answer = self.ask(do="read", store=str(store), directory=directory, form=form, patient=patient)
            for path, why in answer["unread"].items():
                assert re.search(unknown, why), f"{path}: {why}"
            return {
                path: np.load(os.path.join(directory, name), allow_pickle=False)
                for path, name in answer["arrays"].items()
            }

    def run(self, code, **arguments):
        """Runs a piece of a program that has zarr, numcodecs, np and these arguments: its `result`, arrays too."""
        with tempfile.TemporaryDirectory() as directory:
            arguments = {name: str(at) if isinstance(at, Path) else at for name, at in arguments.items()}
            answer = self.ask(do="run", code=textwrap.dedent(code), directory=directory, arguments=arguments)
            result = answer["result"]
            for path, name in answer["arrays"].items():
                result[path] = np.load(os.path.join(directory, name), allow_pickle=False)
            return result

    def read_v2(self, store, consolidated=False):
        """Every array of a hierarchy of Zarr 2 by its path, as `read` has them."""
        return self.run(READ_V2, store=store, consolidated=consolidated)

    def read_n5(self, store):
        """Every array of a hierarchy of N5 by its path."""
        return self.run(READ_N5, store=store)

    def create(self, store, path, values, **options):
        """Makes an array with these values."""
        with tempfile.TemporaryDirectory() as directory:
            name = os.path.join(directory, "values.npy")
            np.save(name, values)
            self.ask(do="create", store=str(store), path=path, values=name, options=options)

    def end(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(timeout=120)
