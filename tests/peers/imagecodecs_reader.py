"""Reads the arrays of a hierarchy with the codecs of imagecodecs, in an environment that has them:

    python imagecodecs_reader.py STORE RESULT.npz
"""

import sys

import imagecodecs.numcodecs
import imagecodecs.zarr
import numpy as np
import zarr

imagecodecs.numcodecs.register_codecs(verbose=False)
imagecodecs.zarr.register_codecs(verbose=False)
store, result = sys.argv[1:]
group = zarr.open_group(store, mode="r")
np.savez(result, **{name: array[...] for name, array in group.arrays()})
