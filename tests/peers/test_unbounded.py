"""Hierarchies without end, in 256 MiB: everything answers in time, the daemon lives, and the healthy array beside is read."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

import hostile
import mounts
from confined import run
from mounts import is_alive
from torture import LONG

# How long a program looks at something that has no end.
GLANCE = 1
# How long it may go on when it was killed. It would read for years.
SECONDS_TO_END = 60
VIEWS = ["npy", "raw", "nc", "nc4", "h5", "hdr", "nrrd", "mha", "tif", "ome.tif", "nii", "mrc", "fits", "vti", "safetensors", "txt"]

# Those that take a few seconds each to make or to look at.
LONG_CASES = {
    "as_many_values_as_may_be",
    "a_wide_fan_of_links",
    "the_same_group_by_many_names",
    "many_children",
    "many_children_of_consolidated_metadata",
    "many_names_without_metadata",
    "many_children_with_large_metadata",
    "many_children_with_many_values",
    "a_deep_tree",
    "a_deep_tree_without_metadata",
    "names_of_dimensions_in_many_arrays",
    "coordinates_of_long_strings",
    "consolidated_metadata_longer_than_a_metadata_file_may_be",
    "zarr_2_with_a_copy_of_itself",
    "a_hundred_thousand_attributes",
    "attributes_of_long_names",
    "a_long_attribute",
    "a_long_name_of_a_dimension",
    "an_image_of_many_channels",
    "a_grid_of_many_dimensions",
    "a_grid_of_a_billion_small_chunks",
    "an_image_of_many_levels",
    "a_million_codecs",
    "rectilinear_grids_of_long_runs",
    "ten_million_chunks",
    "a_million_names_of_dimensions",
    "chunks_in_one_directory",
    "links_to_a_deep_tree",
    "a_million_attributes",
    "an_attribute_that_names_a_million_coordinates",
    "a_shard_index_as_long_as_it_may_be",
    "a_deep_tree_of_consolidated_metadata",
    "a_fan_of_links",
    "lists_of_many_objects",
    "a_cast_with_many_scalars",
    "strings_of_no_length",
}


@pytest.fixture
def place(tmp_path):
    """A directory that goes with the test: some of what is in it is too deep for pytest to remove."""
    made = tmp_path / "place"
    made.mkdir()
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def look_at_the_mount(m, case):
    run("ls -l", m.path)
    run("ls -lR > /dev/null", m.path, glance=GLANCE if case.endless else None)
    run("cat */c/0 > /dev/null", m.path)
    for node in case.nodes:
        run("; ".join(f"stat -c %s '{node}.{view}'" for view in VIEWS), m.path)
        run(f"getfattr -d '{node}'", m.path)
        run(f"cat '{node}/zarr.json'", m.path)
        run(f"cat '{node}/c/0' | head -c 100000 > /dev/null", m.path)
        run(f"setfattr -n user.attrs.x -v 1 '{node}'", m.path)
        run(f"cat '.zarrfs/views/{node}' '.zarrfs/views/{node}/__group__'", m.path)
    run("; ".join(f"stat -c %s __root__.{view}" for view in ("nc", "nc4", "h5", "safetensors")), m.path)
    run("cat zarr.json", m.path)
    said = run("setfattr -n user.attrs.x -v 1 good", m.path)
    assert not case.changes or not said, said


def look_from_the_command_line(zarrfs, store, case):
    run(f"{zarrfs} tree . > /dev/null", store)
    for node in [".", *case.nodes]:
        run(f"{zarrfs} info '{node}' > /dev/null", store)
        for view in ("npy", "h5", "nc", "txt"):
            run(f"{zarrfs} cat '{node}' --as {view} | head -c 100000 > /dev/null", store, glance=GLANCE)
    for form in ("v2", "v3"):
        run(f"{zarrfs} convert . ../converted-{form} --format {form} --skip-unsupported", store, glance=2 * GLANCE)


@pytest.mark.parametrize("name", [name for name in hostile.CASES if LONG or name not in LONG_CASES])
def test_what_has_no_end_is_bounded_in_time_and_memory(mount, group, place, tried, monkeypatch, name):
    case, store = hostile.CASES[name], place / "made"
    hostile.make(name, store)
    tried("hostile hierarchies")
    zarrfs = group.wrapper(place)
    look_from_the_command_line(zarrfs, store, case)
    assert group.kills() == 0, "memory ran out"
    with monkeypatch.context() as patched:
        patched.setattr(mounts, "BIN", zarrfs)
        with mount(store, copy=False) as m:
            m.allow("")
            look_at_the_mount(m, case)
            assert is_alive(m.pid) and (m / "good/c/0").read_bytes() == b"sibling!"
            assert "a bug in zarrfs" not in m.errors()
            group.check(m, tried)
            subprocess.run(["rm", "-rf", *(str(store / path) for path in case.unfit)], check=True)


# Past the page cache, a program waits for each MiB, and the kernel does not let it end before.
@pytest.mark.parametrize("flag", ["direct", "fullblock"])
def test_a_program_that_reads_millions_of_chunks_ends_when_it_is_killed(mount, place, flag):
    store = place / "made"
    hostile.make("links_to_themselves", store)
    hostile.node(store / "bytes", hostile.array((2,) * 60, (1,) * 60))
    with mount(store, copy=False) as m:
        m.allow("symbolic link")
        reader = subprocess.Popen(["dd", f"if={m / 'bytes.raw'}", "of=/dev/null", "bs=1M", f"iflag={flag}"], stderr=subprocess.DEVNULL)
        time.sleep(GLANCE)
        assert reader.poll() is None
        reader.kill()
        reader.wait(timeout=SECONDS_TO_END)
        assert reader.returncode == -signal.SIGKILL
        began = time.monotonic()
        assert m.unmount() is None
        assert time.monotonic() - began < SECONDS_TO_END


def test_a_program_that_waits_for_a_view_of_many_strings_ends_when_it_is_killed(mount, place):
    store = place / "made"
    strings = 4096
    array = zarr.create_array(store / "x", shape=(1000 * strings,), chunks=(strings,), dtype="variable_length_bytes")
    array[:strings] = np.array([bytes(2000)] * strings, dtype=object)
    for chunk in range(1, 1000):
        os.link(store / "x/c/0", store / f"x/c/{chunk}")
    with mount(store, copy=False) as m:
        reader = subprocess.Popen(["stat", m / "x.h5"], stdout=subprocess.DEVNULL)
        time.sleep(GLANCE)
        assert reader.poll() is None
        reader.kill()
        reader.wait(timeout=SECONDS_TO_END)
        # A description does not read the strings.
        described = subprocess.run(["cat", m / ".zarrfs/views/x"], capture_output=True, text=True, timeout=SECONDS_TO_END)
        assert "x.h5  has a length once it is opened" in described.stdout
        began = time.monotonic()
        assert m.unmount() is None
        assert time.monotonic() - began < SECONDS_TO_END


# Attributes of nodes that are about as large as they may be with this memory.
LARGE = {
    "members": {f"k{n}": n for n in range(16_000)},
    "items": {"x": [0] * 60_000},
}


@pytest.mark.parametrize("kind", LARGE if LONG else ["members"])
def test_programs_that_read_large_metadata_at_a_time_stay_within_memory(mount, group, place, tried, monkeypatch, kind):
    store = place / "made"
    hostile.make("links_to_themselves", store)
    unknown = {"name": "unknown", "configuration": LARGE[kind]}
    nodes = 16 if LONG else 4
    for n in range(nodes):
        hostile.node(store / f"codec{n}", hostile.array(codecs=[hostile.LITTLE, unknown]))
        hostile.node(store / f"array{n}", hostile.array(attributes=LARGE[kind]))
        hostile.node(store / f"group{n}", {**hostile.GROUP, "attributes": LARGE[kind]})
    with monkeypatch.context() as patched:
        patched.setattr(mounts, "BIN", group.wrapper(place))
        with mount(store, copy=False) as m:
            m.allow("")

            def look(of):
                for n in range(of, nodes, 4):
                    names = [f"{node}{n}.{view}" for node in ("codec", "array", "group") for view in ("npy", "nc", "h5", "txt")]
                    subprocess.run(["stat", "-c", "%s", *names], cwd=m.path, capture_output=True)
                    for node in ("codec", "array", "group"):
                        subprocess.run(["getfattr", "-d", f"{node}{n}"], cwd=m.path, capture_output=True)
                        subprocess.run(["setfattr", "-n", "user.attrs.new", "-v", "1", f"{node}{n}"], cwd=m.path, capture_output=True)

            with ThreadPoolExecutor(4) as programs:
                list(programs.map(look, range(4)))
            assert is_alive(m.pid) and (m / "good/c/0").read_bytes() == b"sibling!"
            assert os.getxattr(m / "group3", "user.attrs.new") == b"1"
            group.check(m, tried)


def test_attributes_are_listed_in_time_that_grows_with_their_number_alone(mount, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    counts = (10_000, 100_000) if LONG else (4000, 40_000)
    for count in counts:
        hostile.node(store / f"a{count}", hostile.array(attributes={f"a{n}": n for n in range(count)}))
    with mount(store, "--metadata-ttl=0", copy=False) as m:
        m.allow("symbolic link")
        # Another program may take the processor in one of them.
        for _ in range(5):
            seconds = []
            for count in counts:
                began = time.monotonic()
                said = run(f"getfattr -d a{count}", m.path)
                seconds.append(time.monotonic() - began)
                assert 'user.zarr.shape="[16]"' in said
            if seconds[1] < max(20 * seconds[0], 2):
                break
    assert seconds[1] < max(20 * seconds[0], 2), seconds


@pytest.mark.parametrize("count", [1000, 20_000 if LONG else 4000])
def test_a_look_at_a_directory_does_not_read_all_metadata_below_it(mount, tmp_path, count):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    for n in range(count):
        hostile.node(store / f"a{n}", hostile.array(attributes={"number": n}))
    hostile.consolidate(store)
    with mount(store, "--metadata-ttl=0", copy=False) as m:
        m.allow("symbolic link")
        began = time.monotonic()
        assert f'"number": {count - 1}' in (m / "zarr.json").read_text()
        first = time.monotonic() - began
        # Another program may take the processor in one of them.
        for _ in range(5):
            began = time.monotonic()
            for _ in range(50):
                os.stat(m / "zarr.json")
            looks = time.monotonic() - began
            if looks < max(first * 5, 1):
                break
        assert looks < max(first * 5, 1), f"first {first:.1f} s, 50 looks {looks:.1f} s"
        # What is read is what is there, and this mount's own changes are seen at once.
        hostile.node(store / "a0", hostile.array(attributes={"number": "another"}))
        assert '"another"' in (m / "zarr.json").read_text()
        os.setxattr(m / "a1", "user.attrs.number", b'"here"')
        assert '"here"' in (m / "zarr.json").read_text()
        assert os.stat(m / "zarr.json").st_size == len((m / "zarr.json").read_bytes())


def test_a_root_with_more_than_16_mib_of_consolidated_metadata_is_mounted_and_edited(mount, tmp_path):
    store = tmp_path / "made"
    hostile.make("links_to_themselves", store)
    copies = {"good": hostile.array(), **{f"a{n}": hostile.array(attributes={"x": "y" * 5000}) for n in range(4000)}}
    root = {**hostile.GROUP, "attributes": {"title": "t"}, "consolidated_metadata": {**hostile.CONSOLIDATED, "metadata": copies}}
    hostile.node(store, root)
    assert (store / "zarr.json").stat().st_size > 16 << 20
    with mount(store, copy=False) as m:
        m.allow("symbolic link")
        assert os.getxattr(m.path, "user.attrs.title") == b'"t"'
        os.setxattr(m / "good", "user.attrs.new", b"1")
        os.setxattr(m.path, "user.attrs.title", b'"another"')
        assert (m / "good/c/0").read_bytes() == b"sibling!"
    stored = hostile.json.loads((store / "zarr.json").read_text())
    copies["good"]["attributes"]["new"] = 1
    assert stored["consolidated_metadata"]["metadata"] == copies and stored["attributes"] == {"title": "another"}
