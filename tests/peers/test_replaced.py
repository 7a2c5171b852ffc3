"""zarr-python in a mount, while other programs grow, shrink and replace its arrays."""

import subprocess
import sys

import numpy as np
import pytest
import zarr

from hierarchies import ident
from zarr2 import PYTHON as PYTHON2

# Opens the array, and waits until another program has changed it.
OPENER = """
import sys, numpy as np, zarr
array = zarr.open_array(sys.argv[1], mode="r+")
print("open", flush=True)
for line in sys.stdin:
    try:
        exec(line)
        print("done", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""

PLACES = [("v3",), ("v3", "--shards", "64K"), ("v2",), ("d2020-10",)]


class Program:
    """A Python of its own that has an array open."""

    def __init__(self, path, python=sys.executable):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process = subprocess.Popen([python, "-c", OPENER, str(path)], **pipes)
        assert self.process.stdout.readline() == "open\n"

    def run(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def create(path):
    array = zarr.create_array(path, shape=(10,), chunks=(5,), dtype="i4", compressors=None)
    array[:] = 1
    return array


@pytest.mark.parametrize("place", PLACES, ids=ident)
def test_an_attribute_does_not_undo_an_append_of_another_program(new, mount, place):
    with new(*place) as m:
        create(m / "x")
        with Program(m / "x") as other:
            zarr.open_array(m / "x", mode="r+").append(np.full(10, 2, "i4"))
            assert other.run("array.attrs['note'] = 'hi'") == "done"
        found = zarr.open_array(m / "x", mode="r")
        assert found.attrs["note"] == "hi"
        assert found[:].tolist() == [1] * 10 + [2] * 10


@pytest.mark.parametrize("place", PLACES, ids=ident)
def test_of_two_programs_that_append_the_second_is_told_and_can_open_the_array_again(new, mount, place):
    with new(*place) as m:
        create(m / "x")
        m.expect("another program has changed the shape")
        with Program(m / "x") as other:
            zarr.open_array(m / "x", mode="r+").append(np.full(20, 2, "i4"))
            assert "OSError" in other.run("array.append(np.full(5, 3, 'i4'))")
            assert zarr.open_array(m / "x", mode="r")[:].tolist() == [1] * 10 + [2] * 20
            again = "zarr.open_array(sys.argv[1], mode='r+')"
            assert other.run(f"{again}.append(np.full(5, 3, 'i4'))") == "done"
        assert zarr.open_array(m / "x", mode="r")[:].tolist() == [1] * 10 + [2] * 20 + [3] * 5


@pytest.mark.parametrize("place", PLACES, ids=ident)
def test_an_array_that_is_open_twice_in_one_program_loses_no_chunk(new, mount, place):
    with new(*place) as m:
        create(m / "x")
        first, second = (zarr.open_array(m / "x", mode="r+") for _ in range(2))
        second.append(np.full(10, 2, "i4"))
        first.attrs["note"] = "hi"
        again = zarr.open_array(m / "x", mode="r+")
        assert again.shape == (10,), "as in a directory"
        again.resize((20,))
        assert again[:].tolist() == [1] * 10 + [2] * 10


@pytest.mark.parametrize("place", PLACES, ids=ident)
def test_zarr_python_3_shrinks_an_array_as_in_a_directory(new, mount, place):
    with new(*place) as m:
        array = create(m / "x")
        array.append(np.full(10, 2, "i4"))
        array.resize((5,))
        array.resize((20,))
        assert array[:].tolist() == [1] * 5 + [0] * 15
        array.append(np.full(10, 3, "i4"))
        array.resize((10,))
        assert zarr.open_array(m / "x")[:].tolist() == [1] * 5 + [0] * 5


@pytest.mark.skipif(PYTHON2 == "python3", reason="no zarr-python 2")
@pytest.mark.parametrize("separator", [".", "/"])
def test_zarr_python_2_stores_the_shape_and_then_removes_chunks(new, mount, separator):
    script = """
import sys, numpy as np, zarr
array = zarr.open(sys.argv[1], mode="w", shape=(20, 4), chunks=(5, 2), dtype="i4",
                  compressor=None, dimension_separator=sys.argv[2])
array[:] = 1
array.resize(10, 4)
array.resize(20, 4)
assert (array[:10] == 1).all() and (array[10:] == 0).all(), array[:]
"""
    with new("v2", "--as=zarr2") as m:
        subprocess.run([PYTHON2, "-c", script, m / "x", separator], check=True)


