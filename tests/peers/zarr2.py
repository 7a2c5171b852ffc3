"""zarr-python 2.18 with its experimental v3 switch, in a process of its own that takes one request a line."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

PYTHON = os.environ.get("ZARRFS_PY2", "python3")


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

    def read(self, store):
        """Every array of a hierarchy, by its path."""
        with tempfile.TemporaryDirectory() as directory:
            answer = self.ask(do="read", store=str(store), directory=directory)
            return {
                path: np.load(os.path.join(directory, name), allow_pickle=False)
                for path, name in answer["arrays"].items()
            }

    def create(self, store, path, values, **options):
        """Makes an array with these values."""
        with tempfile.TemporaryDirectory() as directory:
            name = os.path.join(directory, "values.npy")
            np.save(name, values)
            self.ask(do="create", store=str(store), path=path, values=name, options=options)

    def end(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(timeout=30)
