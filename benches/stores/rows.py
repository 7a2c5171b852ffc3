"""The rows of the table of benches/stores/compare.py: what is done, and the goals of stores.md, part 9."""

import random
from dataclasses import dataclass

from data import CHUNK, INNER

R = 0.05  # s, a round trip
ALL = ("zarrfs", "zarr-obstore", "zarr-s3fs", "tensorstore", "obstore", "rclone", "s3fs")
LIBRARIES = ("zarr-obstore", "zarr-s3fs", "tensorstore")
MOUNTS = ("rclone", "s3fs")

ELSEWHERE = """Rows of part 9 that are not here: two mounts that change one shard in turns
(tests/stores/test_machines.py), a second sweep from a disk cache (disk_cache.py), and the build
without the feature `remote`."""


@dataclass
class Row:
    """`method` of a session, with `arguments`, after the methods `before`, which are not measured.

    Rows of one `session` share a mount (or process) and are measured in their order. Goals: `requests` and `seconds` at
    most; `peers` are pairs of a factor and programs, of which the fastest counts; `as_few` requests as these programs.
    `like` is the row whose times of peers count, if this row has none.
    """

    title: str
    session: str
    method: str
    arguments: tuple = ()
    before: tuple = ()
    prefix: str = "v3"
    dialect: str = "v3"
    writes: str = ""
    programs: tuple = ALL
    rounds: int = 1000
    requests: int | None = None
    seconds: float | None = None
    peers: tuple = ()
    as_few: tuple = ()
    no_get: bool = False
    like: object = None

    def opening(self):
        return Row("", "", "root", (self.dialect,))


def rows(data):
    sizes = data.sizes
    return [*mounting(), *listing(sizes), *single(data), *random_reads(sizes), *sweeps(sizes), *writing(data)]


def mounting():
    return [
        Row("mount, v3", "v3", "root", requests=3, seconds=2 * R + 0.1),
        Row("mount, v2", "v2", "root", prefix="v2", dialect="v2", requests=12, seconds=3 * R + 0.1),
        Row("mount, N5", "n5", "root", prefix="n5", dialect="n5", requests=12, seconds=3 * R + 0.1),
    ]


def listing(sizes):
    made = [
        Row("`ls` of a root with 100 groups", "groups", "ls", ("",), prefix="groups", requests=1, seconds=R + 0.05,
            peers=((1.0, MOUNTS),)),
        Row("second `ls`", "groups", "ls", ("",), prefix="groups", programs=("zarrfs", *MOUNTS), requests=0),
        Row("5 names that are not there, after `ls`", "groups", "missing", ("",), prefix="groups", requests=0),
        Row(f"idle for {sizes.idle} s", "idle", "idle", (sizes.idle,), (("ls", ""),), prefix="groups", rounds=1,
            programs=("zarrfs",), requests=0),
    ]
    turns = {"ls": "`ls`", "ls_l": "`ls -l`", "find": "`find`"}
    places = (("few", sizes.few, "groups"), ("many", sizes.many, "groups"), ("nfew/c", sizes.few, "chunks"),
              ("nmany/c", sizes.many, "chunks"))
    for name, count, what in places:
        for method, shown in turns.items():
            session = f"{method} {name}"
            if method == "find" and what == "groups":
                method, shown = "find_1", "`find -maxdepth 1`"
            what_shown = "a group of {:,} names" if what == "groups" else "a directory of {:,} chunks"
            is_few = name == "few" and method == "ls"
            programs = ALL if is_few else ("zarrfs", "obstore", *MOUNTS)
            pages = -(-count // 1000)
            # Part 9: 2 R for a thousand names, 6 s for 100 pages.
            made.append(Row(f"{shown} of {what_shown.format(count)}", session, method, (name,), programs=programs,
                            requests=pages, seconds=max(2 * R, 0.06 * pages)))
    made.append(Row(f"`ls` of a group of {sizes.few:,} names, after `ls` of another one", "second", "ls", ("few",),
                    (("ls", "many"),), programs=("zarrfs", *MOUNTS), requests=1, seconds=2 * R))
    groups, each = sizes.wide
    for method, shown in (("find", "`find`"), ("find_size", "`find -size`")):
        made.append(Row(f"{shown} over {groups} directories of {each:,} chunks", f"wide {method}", method, ("wide/c",),
                        programs=("zarrfs", "obstore", "rclone"), requests=groups * 11 // 10,
                        seconds=3.0 if method == "find" else 6.0))
    return made


def single(data):
    path, at = "a/b/x", (2, 0, 0)
    peers = ("zarr-obstore", "tensorstore")
    start, length = data.shard_part()
    # The second inner chunk is in the shard of the first one.
    inner = [("m", INNER, coords, (0, 0, 0), start, length) for coords in ((3, 1, 0), (9, 0, 1))]
    opened = (("open", "m"),)
    return [
        Row("`cat g/a/zarr.json`", "document", "document", ("g/a",), prefix="deep",
            programs=("zarrfs", "obstore", *MOUNTS), requests=4, seconds=2 * R + 0.03),
        Row("first chunk after the mount, depth 3", "deep", "first", (path, CHUNK, at), prefix="deep", requests=7,
            seconds=4 * R + 0.05, as_few=peers),
        Row("the same, consolidated (`-o ro`)", "consolidated", "first", (path, CHUNK, at), prefix="consolidated",
            requests=1, seconds=R + 0.03, as_few=peers),
        Row("`cat` of a chunk by its name", "chunk", "read", ("x", CHUNK, (5, 0, 0)), (("open", "x"),), requests=1,
            seconds=R + 0.03),
        Row(f"{data.sizes.programs} programs open one chunk at once", "programs", "programs",
            ("x", (9, 0, 0), data.sizes.programs), (("open", "x"),), programs=("zarrfs", *MOUNTS), requests=1),
        Row("inner chunk of a shard", "inner", "inner", inner[0], opened, requests=2, seconds=2 * R),
        Row("another one of that shard", "inner", "inner", inner[1], requests=1, seconds=R),
    ]


def random_reads(sizes):
    dice = random.Random(7)
    places = [(dice.randrange(sizes.chunks), dice.randrange(16)) for _ in range(sizes.places)]
    scattered = [(number,) for number in dice.sample(range(sizes.many), sizes.scattered)]
    arrays = [("x", (number, 0, 0)) for number in range(sizes.chunks)]
    arrays += [("m", (z, y, x)) for z in range(16 * sizes.shards) for y in range(2) for x in range(2)]
    files = dice.sample(arrays, sizes.open)
    part = (1, 16, 1024)  # 64 KiB
    return [
        Row(f"{sizes.places} random reads of 64 KiB in a view", "places", "places", ("x", part, places),
            (("open", "x"), ("open_view", "x")), requests=sizes.places + sizes.places // 50),
        Row(f"{sizes.scattered:,} random chunks, 64 readers", "scattered", "scattered", ("nmany", (1,), scattered),
            (("open", "nmany"),), requests=sizes.scattered * 101 // 100, seconds=1.3 * sizes.scattered * R / 64),
        Row(f"{sizes.open:,} chunk files open, read at random 4 times each", "open", "many_open",
            (files, 4 * sizes.open, 1 << 16), (("open", "x"), ("open", "m")), programs=("zarrfs",)),
    ]


def sweeps(sizes):
    # "Within 1.2 of obstore, and at least 0.9 of the speed of the others".
    peers = ((1.2, ("obstore",)), (1 / 0.9, LIBRARIES))
    shards = f"{sizes.shards} shards of 64 MiB"
    chunks = sizes.chunks + max(10, sizes.chunks // 100)
    view = Row(f"sequential read of {sizes.chunks} chunks of 1 MiB (view)", "x", "sweep", ("x",), (("plan", "x"),),
               requests=chunks, peers=peers)
    return [
        view,
        Row("the same by chunk files", "files", "chunk_files", ("x",), (("open", "x"),), programs=("zarrfs",),
            requests=chunks, peers=peers, like=view),
        Row(f"sequential read of {shards}, Morton order", "m", "sweep", ("m",), (("plan", "m"),),
            requests=9 * sizes.shards, peers=peers),
        Row(f"sequential read of {shards}, C order", "c", "sweep", ("c",), (("plan", "c"),),
            requests=9 * sizes.shards, peers=peers),
        Row(f"{sizes.readers} programs read the {sizes.chunks} chunks at once", "readers", "readers",
            ("x", sizes.readers), programs=("zarrfs",), requests=chunks),
    ]


def writing(data):
    sizes, made = data.sizes, []
    for kind, title, requests in (
        ("wx", f"write {sizes.written_chunks} chunks of 1 MiB, and unmount", sizes.written_chunks + 5),
        ("wm", f"write {sizes.written_shards} shards of 64 MiB, and unmount", 6 * sizes.written_shards),
    ):
        sources = (data.npy[kind], f"{data.work}/{kind}")
        made.append(Row(title, kind, "write", ("y", *sources), (("load", *sources), ("open", "y")), writes=kind,
                        requests=requests, peers=((1.2, ("obstore",)),), no_get=kind == "wm"))
    made.append(Row("change one inner chunk of a shard of 64 MiB, and unmount", "edit", "edit", ("y", INNER, (3, 1, 0)),
                    (("open", "y"),), writes="edit", programs=("zarrfs", *LIBRARIES), requests=4))
    return made
