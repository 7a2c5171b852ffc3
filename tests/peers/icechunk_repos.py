"""Makes an Icechunk repository, and writes down what the library of Icechunk reads of each of its states.

    python icechunk_repos.py DIRECTORY SPEC

The repository is DIRECTORY/repo, in version SPEC of the specification. `DIRECTORY/states.json` has the snapshot and the
nodes of each state, and `DIRECTORY/expected` the elements of their arrays. Virtual chunks lie in DIRECTORY/virtual.

It runs with version 1 of the library, which knows only specification 1, and with version 2, which writes both."""

import datetime
import hashlib
import json
import sys
from pathlib import Path

import icechunk as ic
import numpy as np
import zarr

UNICODE = "grüße/データ"
RAW = np.random.default_rng(7).integers(0, 256, 1 << 16, dtype="u1")


def config(prefix, virtual):
    made = ic.RepositoryConfig.default()
    made.inline_chunk_threshold_bytes = 64
    container = ic.VirtualChunkContainer(prefix, ic.local_filesystem_store(str(virtual)))
    made.set_virtual_chunk_container(container)
    axis = {ic.ManifestSplitDimCondition.Axis(0): 3}
    splitting = ic.ManifestSplittingConfig.from_dict({ic.ManifestSplitCondition.path_matches("/split"): axis})
    made.manifest = ic.ManifestConfig(splitting=splitting)
    return made


def add(group, name, data, **options):
    made = group.create_array(name, shape=data.shape, dtype=data.dtype, **options)
    made[...] = data
    return made


def first(session, prefix):
    """Native, inline and virtual chunks, and none at all; names of every kind; an array without dimensions."""
    root = zarr.open_group(session.store, mode="a", attributes={"title": "states", "scale": 0.5})
    add(root, "a", np.arange(70, dtype="f4").reshape(10, 7), chunks=(4, 3), dimension_names=["y", "x"], attributes={"units": "K"})
    add(root, f"{UNICODE}/x", np.arange(100, dtype="i8"), chunks=(7,))
    add(root, "scalar", np.array(2.5))
    add(root, "gone/x", np.arange(5, dtype="i2"), chunks=(2,))
    add(root, "split", np.arange(400, dtype="u2").reshape(20, 20), chunks=(2, 5))
    add(root, "sharded", np.arange(64, dtype="i4").reshape(8, 8), chunks=(2, 2), shards=(4, 4))
    root.create_array("empty", shape=(9,), chunks=(4,), dtype="i4", fill_value=7)
    root.create_group("nothing")
    virtual = root.create_array("virtual", shape=(1280,), chunks=(256,), dtype="u1", compressors=None, fill_value=9)
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=3650)
    session.store.set_virtual_ref("virtual/c/0", f"{prefix}raw.bin", offset=5, length=256)
    session.store.set_virtual_ref("virtual/c/1", f"{prefix}a/raw%20b.bin", offset=0, length=256, checksum=tomorrow)
    virtual[512:768] = np.arange(256, dtype="u1")
    many = root.create_array("many", shape=(1500, 16), chunks=(1, 16), dtype="u1", compressors=None)
    for number in range(0, 1500):
        place = dict(offset=number, length=16)
        session.store.set_virtual_ref(f"many/c/{number}/0", f"{prefix}many/{number % 7}.bin", **place)
    assert many.shape == (1500, 16)


def second(session):
    """Changes some of the chunks, a shape and attributes; removes a group; adds one."""
    root = zarr.open_group(session.store, mode="a")
    root["a"][3:6, 2:5] = -1
    root["split"][10:, :] = 65535
    root["scalar"][...] = -2.5
    root["a"].attrs["units"] = "degC"
    root[f"{UNICODE}/x"].resize((120,))
    del root["gone"]
    add(root, "late/r/x", np.arange(12, dtype=">f8").reshape(3, 4), chunks=(2, 2))


def make(directory, spec, prefix):
    virtual = directory / "virtual"
    for name in ["raw.bin", "a/raw b.bin", *(f"many/{number}.bin" for number in range(7))]:
        (virtual / name).parent.mkdir(parents=True, exist_ok=True)
        (virtual / name).write_bytes(np.roll(RAW, len(name) + ord(name[-5]))[:4096].tobytes())
    storage = ic.local_filesystem_storage(str(directory / "repo"))
    access = getattr(ic.credentials, "LocalFileSystemAccess", None)
    new = {"config": config(prefix, virtual), "authorize_virtual_chunk_access": {prefix: access}}
    if hasattr(ic, "SpecVersion"):
        new["spec_version"] = spec
    else:
        assert spec == 1, "this library knows only specification 1"
    repo = ic.Repository.create(storage, **new)

    session = repo.writable_session("main")
    first(session, prefix)
    repo.create_tag("v1", snapshot_id=session.commit("first"))
    repo.create_tag("removed", snapshot_id=repo.lookup_branch("main"))
    session = repo.writable_session("main")
    second(session)
    repo.create_tag("v2.0", snapshot_id=session.commit("second"))
    repo.create_branch("dev", snapshot_id=repo.lookup_tag("v1"))
    session = repo.writable_session("dev")
    zarr.open_group(session.store, mode="a")["a"][...] = 5
    session.commit("other")
    if spec > 1:
        session = repo.rearrange_session("main")
        session.move("/a", "/late/moved")
        session.move("/late/r", "/r")
        session.commit("moved")
    repo.delete_tag("removed")
    return repo


def arrays(group, path=""):
    for name, child in group.members():
        if isinstance(child, zarr.Group):
            yield from arrays(child, f"{path}{name}/")
        else:
            yield f"{path}{name}", child


def groups(group, path=""):
    yield path.rstrip("/"), dict(group.attrs)
    for name, child in group.groups():
        yield from groups(child, f"{path}{name}/")


def describe(repo, directory, prefix):
    """Writes down all states, by branch, tag and snapshot."""
    states = {f"branches/{name}": repo.lookup_branch(name) for name in repo.list_branches()}
    states |= {f"tags/{name}": repo.lookup_tag(name) for name in repo.list_tags()}
    times = {}
    for branch in repo.list_branches():
        for snapshot in repo.ancestry(branch=branch):
            times[snapshot.id] = snapshot.written_at.timestamp()
    described = {}
    (directory / "expected").mkdir()
    for snapshot in times:
        store = repo.readonly_session(snapshot_id=snapshot).store
        try:
            root = zarr.open_group(store, mode="r")
        except FileNotFoundError:  # The first snapshot has no nodes.
            described[snapshot] = {"groups": {}, "arrays": {}}
            continue
        nodes = {}
        for path, array in arrays(root):
            values = array[...]
            values = values.astype(values.dtype.newbyteorder("<"))
            file = hashlib.sha256(values.tobytes()).hexdigest()[:16] + ".npy"
            np.save(directory / "expected" / file, values)
            nodes[path] = {"file": file, "attributes": dict(array.attrs), "names": array.metadata.dimension_names}
        described[snapshot] = {"groups": dict(groups(root)), "arrays": nodes}
    about = {"prefix": prefix, "names": states, "times": times, "snapshots": described, "library": ic.__version__}
    (directory / "states.json").write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n")


def main():
    directory, spec = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    prefix = f"file://{directory}/virtual/"
    describe(make(directory, spec, prefix), directory, prefix)


if __name__ == "__main__":
    main()
