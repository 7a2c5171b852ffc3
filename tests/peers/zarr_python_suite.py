"""Runs zarr-python's own tests in a directory, which may be on a mount.

    python tests/peers/zarr_python_suite.py DIRECTORY [--all | --draft] [arguments for pytest]

The tests come from the source distribution on PyPI and are kept in the cache of scripts/test.sh. With `--all` no test
is left out by name, with `--draft` also those of what the draft of October 2020 lacks. `-n 2` runs two processes;
`ZARRFS_SUITE_EXAMPLES` is how many examples hypothesis makes (25).
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import zarr

FILES = """
test_api.py test_api/test_asynchronous.py test_array.py test_attributes.py test_codecs test_config.py test_group.py test_indexing.py
test_info.py test_metadata/test_consolidated.py test_metadata/test_v3.py test_properties.py test_tree.py
test_store/test_core.py test_store/test_local.py test_store/test_logging.py test_store/test_stateful.py
test_store/test_wrapper.py
""".split()

# Tests that cannot pass on a mount, and why. `*` is any text, brackets are themselves.
DESELECTED = {
    "makes an array below an array": """
        test_array.py::test_creation_from_other_zarr_format[*
        test_array.py::test_from_array[zarr3-*
    """,
    "writes a `zarr.json` that is no document": """
        test_properties.py::test_roundtrip_array_metadata_from_store
        test_store/*::test_delete
        test_store/*::test_delete_dir
        test_store/*::test_exists
        test_store/*::test_get_bytes
        test_store/*::test_get_bytes_sync
        test_store/*::test_get_json
        test_store/*::test_get_json_sync
        test_store/*::test_get_partial_values[key_ranges1]
        test_store/*::test_get_partial_values[key_ranges2]
        test_store/*::test_list
        test_store/*::test_list_dir
        test_store/*::test_list_empty_path
        test_store/*::test_list_prefix
        test_store/*::test_set[*-zarr.json]
        test_store/*::test_set_many
    """,
    "writes the metadata of a Zarr 2 array into an array of Zarr 3, which the mount refuses": """
        test_api.py::test_v2_and_v3_exist_at_same_path[local]
    """,
    "expects consolidated metadata that are not true any more: the mount keeps them true": """
        test_metadata/test_consolidated.py::TestConsolidated::test_use_consolidated_false[3]
        test_metadata/test_consolidated.py::TestConsolidated::test_use_consolidated_for_children_members
    """,
    "counts the bytes of the documents": """
        test_array.py::test_nbytes_stored*
    """,
    "wants the name or the inside of a store in memory": """
        test_api.py::test_open_array[zarr3]
        test_api.py::test_open_group
        test_api/test_asynchronous.py::test_open_no_array
        test_array.py::TestInfo::*
        test_array.py::test_array_v3_nan_fill_value*
        test_config.py::test_config_buffer_implementation
        test_group.py::TestInfo::test_info
        test_group.py::test_open_ambiguous_node
        test_indexing.py::test_accessed_chunks*
        test_metadata/test_consolidated.py::*::test_not_writable_raises
    """,
    "expects a member in `.zmetadata` that Zarr 2 does not have": """
        test_metadata/test_consolidated.py::TestConsolidated::test_consolidated_metadata_v2
    """,
}

# Tests of what the draft of October 2020 cannot express.
NOT_IN_THE_DRAFT = {
    "makes arrays of Zarr 2 with codecs and types that the draft lacks": """
        test_array.py::TestCreateArray::test_v2_chunk_encoding[*
        test_codecs/test_blosc.py::test_blosc_evolve*
    """,
    "makes sharded arrays: the mount does that": """
        test_array.py::*test_chunks_and_shards*
        test_array.py::test_chunk_grid_shape[*shard_shape1-*
        test_array.py::test_chunk_grid_shape[*shard_shape3-*
        test_array.py::test_chunks_initialized[shape1-*
        test_array.py::test_chunks_initialized[shape2-*
        test_array.py::test_nchunks_initialized[shape1-*
        test_array.py::test_nchunks_initialized[shape2-*
        test_array.py::test_create_array_with_data_num_gets*
        test_array.py::test_iter_shard_*
        test_array.py::test_multiprocessing[shards1-*
        test_array.py::test_sharding_coordinate_selection
        test_codecs/test_codecs.py::test_invalid_metadata_create_array
        test_codecs/test_codecs.py::test_order[True-*
        test_codecs/test_codecs.py::test_order_implicit[True-*
        test_codecs/test_sharding.py::*
        test_codecs/test_transpose.py::test_transpose[*-True-*
    """,
    "makes transposed arrays: the mount shows none": """
        test_codecs/test_codecs.py::test_order[False-*
        test_codecs/test_transpose.py::test_transpose[*-False-*
        test_codecs/test_transpose.py::test_transpose_non_self_inverse*
    """,
    "asks for codecs of every kind at once, shards and transpositions among them": """
        test_array.py::TestCreateArray::test_v3_chunk_encoding[*
    """,
    "makes big endian arrays": """
        test_codecs/test_endian.py::test_endian[big-*
        test_codecs/test_endian.py::test_endian_write[big-*
    """,
    "writes chunks that it has compressed": """
        test_codecs/test_blosc.py::test_typesize*
        test_codecs/test_gzip.py::test_gzip*
        test_codecs/test_numcodecs.py::test_generic_checksum*
        test_codecs/test_numcodecs.py::test_generic_compressor*
        test_codecs/test_zstd.py::test_zstd*
    """,
    "makes arrays with filters": """
        test_array.py::test_roundtrip_numcodecs
        test_codecs/test_numcodecs.py::test_delta_astype
        test_codecs/test_numcodecs.py::test_generic_filter*
    """,
    "makes arrays of strings, times, structures or raw bytes, which zarrfs does not know": """
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype14-*
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype15-*
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype16-*
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype17-*
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype18-*
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype19-*
        test_array.py::TestCreateArray::test_default_fill_value*[*dtype2?-*
        test_array.py::TestCreateArray::test_default_filters_compressors[zarr3-dtype2-*
        test_array.py::TestCreateArray::test_dtype_*[zarr3-dtype14-*
        test_array.py::TestCreateArray::test_dtype_*[zarr3-dtype15-*
        test_array.py::TestCreateArray::test_dtype_*[zarr3-dtype16-*
        test_array.py::TestCreateArray::test_dtype_*[zarr3-dtype17-*
        test_array.py::TestCreateArray::test_dtype_*[zarr3-dtype19-*
        test_array.py::TestCreateArray::test_dtype_*[zarr3-dtype2?-*
        test_array.py::test_array_fill_value_default[*npy.bytes.*
        test_array.py::test_array_fill_value_default[*npy.string.*
        test_array.py::test_array_fill_value_default[*npy.structured.*
        test_array.py::test_array_fill_value_default[*npy.time.*
        test_array.py::test_default_fill_value[<U4-*
        test_array.py::test_default_fill_value[<S4-*
        test_array.py::test_scalar_array[3-a?]
        test_codecs/test_vlen.py::test_vlen_string*
    """,
}


def sources():
    """The directory of zarr-python's sources, of the version that is installed."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("ZARRFS_TEST_CACHE") or Path(base, "zarrfs-tests"))
    name = f"zarr-{zarr.__version__}"
    if not (cache / name / "tests").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
            command = [*pip, "--no-binary", ":all:", "-d", scratch, f"zarr=={zarr.__version__}"]
            subprocess.run(command, check=True)
            with tarfile.open(Path(scratch, f"{name}.tar.gz")) as archive:
                archive.extractall(scratch, filter="data")
            # Somebody else may have been faster.
            try:
                Path(scratch, name).rename(cache / name)
            except OSError:
                pass
    return cache / name


def patterns(is_draft):
    """Each name, with the reason."""
    reasons = {**DESELECTED, **(NOT_IN_THE_DRAFT if is_draft else {})}
    return {name: reason for reason, names in reasons.items() for name in names.split()}


def main(directory, *arguments):
    arguments = list(arguments)
    deselected = {} if "--all" in arguments else patterns("--draft" in arguments)
    arguments = [argument for argument in arguments if argument not in ("--all", "--draft")]
    here = sources()
    named = [a for a in arguments if not a.startswith("-") and ("::" in a or a.endswith(".py"))]
    selected = [] if named else [f"tests/{name}" for name in FILES]
    with tempfile.TemporaryDirectory() as scratch:
        listed = Path(scratch, "deselected.json")
        listed.write_text(json.dumps(deselected))
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]),
            "ZARRFS_SUITE_DIR": str(Path(directory).resolve()),
            "ZARRFS_SUITE_DESELECTED": str(listed),
            "ZARRFS_SUITE_STRICT": "" if not selected else "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "zarr_python_plugin", "-p", "no:cacheprovider"]
        # Theirs name plugins that are not needed here.
        command += ["-o", "addopts=", f"--basetemp={scratch}/pytest", "--run-slow-hypothesis", "--tb=short"]
        return subprocess.run([*command, *arguments, *selected], cwd=here, env=env).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
