"""A file that ends too early, whatever its format: an array of it has all its values, or it is an error. It never has zeros."""

import gzip
import io
import re
import subprocess

import h5py
import nibabel
import numpy as np
import pytest
import scipy.io
import tifffile
from astropy.io import fits

from views import ZARRFS

# No value is zero, and arrays have several pieces.
VALUES = (np.arange(600 * 500, dtype="i4") % 30000 + 1).reshape(600, 500)


def hdf5(**options):
    """A file with nothing after the elements, which is then the first to be cut."""

    def make(path):
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=VALUES, **options)

    return make


def netcdf3(path):
    with scipy.io.netcdf_file(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 500)
        file.createVariable("a", "i4", ("t", "x"))[:] = VALUES
        file.createVariable("b", "i4", ("t", "x"))[:] = VALUES


def nrrd(path):
    path.write_bytes(b"NRRD0004\ntype: int\ndimension: 2\nsizes: 500 600\nendian: little\nencoding: raw\n\n" + VALUES.tobytes())


def metaimage(path):
    header = b"ObjectType = Image\nNDims = 2\nDimSize = 500 600\nElementType = MET_INT\nElementDataFile = LOCAL\n"
    path.write_bytes(header + VALUES.tobytes())


def packed(path):
    file = io.BytesIO()
    np.save(file, VALUES)
    path.write_bytes(gzip.compress(file.getvalue(), 1))


MAKERS = {
    "whole.h5": hdf5(),
    "chunks.h5": hdf5(chunks=(100, 500)),
    "packed.h5": hdf5(chunks=(100, 500), compression="gzip", shuffle=True),
    "f.nc": netcdf3,
    "f.npy": lambda path: np.save(path, VALUES),
    "f.npz": lambda path: np.savez_compressed(path, a=VALUES, b=VALUES),
    "f.npy.gz": packed,
    "strips.tif": lambda path: tifffile.imwrite(path, VALUES, rowsperstrip=64),
    "tiles.tif": lambda path: tifffile.imwrite(path, VALUES, tile=(128, 128)),
    "zlib.tif": lambda path: tifffile.imwrite(path, VALUES, rowsperstrip=64, compression="zlib"),
    "pages.tif": lambda path: tifffile.imwrite(path, VALUES.reshape(6, 100, 500), imagej=False, metadata=None),
    "f.nii": lambda path: nibabel.save(nibabel.Nifti1Image(VALUES, np.eye(4), dtype="i4"), path),
    "f.fits": lambda path: fits.PrimaryHDU(VALUES).writeto(path),
    "f.nrrd": nrrd,
    "f.mha": metaimage,
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_array_of_a_file_that_ends_early_never_has_zeros(tmp_path, name):
    path = tmp_path / name
    MAKERS[name](path)
    whole = path.read_bytes()
    tree = subprocess.check_output([ZARRFS, "tree", path], text=True)
    nodes = [node for node in re.findall(r"[\u251c\u2514]\u2500\u2500 (\S+) +(?:int32|uint8)", tree) if node != "nifti"]
    assert nodes, tree
    read = lost = 0
    for left_out in (0, 1, 700, 5000, len(whole) // 3):
        path.write_bytes(whole[: len(whole) - left_out])
        for node in nodes:
            done = subprocess.run([ZARRFS, "cat", f"{path}#{node}", "--as", "raw"], capture_output=True, timeout=60)
            if done.returncode == 0:
                values = np.frombuffer(done.stdout, "i4")
                assert values.size and (values != 0).all(), (node, left_out, int((values == 0).sum()))
                read += 1
            else:
                assert done.returncode == 1 and b"panicked" not in done.stderr, done.stderr
                lost += 1
    assert read >= len(nodes) and lost > 0, (read, lost)
