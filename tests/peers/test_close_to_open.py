"""Whoever opens a chunk or a view after another has closed it sees what was written, however it was written."""

import os
import random
import threading
import time

import numpy as np
import pytest
import zarr

CHUNKS, LEN = 6, 1 << 16
SECONDS = 3


def write_chunk(m, number, data):
    with open(m / "x" / "c" / str(number), "wb", buffering=0) as file:
        file.write(data)


def write_in_place(m, number, data):
    with open(m / "x" / "c" / str(number), "r+b", buffering=0) as file:
        file.write(data)


def write_aside(m, number, data):
    scratch = m / "x" / "c" / f"scratch{number}"
    scratch.write_bytes(data)
    os.rename(scratch, m / "x" / "c" / str(number))


def write_through_view(m, number, data):
    with open(m / "x.raw", "r+b", buffering=0) as file:
        file.seek(number * LEN * 4)
        file.write(data)


WAYS = [write_chunk, write_in_place, write_aside, write_through_view]


@pytest.mark.parametrize("reading", [[], ["-o", "nopassthrough"]], ids=["passthrough", "pages"])
@pytest.mark.parametrize("layout", ["none", "gzip", "shards"])
def test_readers_see_at_least_what_was_closed_before_they_opened(mount, tmp_path, layout, reading):
    options = {"chunks": (LEN,), "compressors": zarr.codecs.GzipCodec(level=1) if layout != "none" else None}
    if layout == "shards":
        options["shards"] = (3 * LEN,)
    group = zarr.create_group(tmp_path / "store")
    array = group.create_array("x", shape=(CHUNKS * LEN,), dtype="<u4", fill_value=0, **options)
    array[:] = 1
    # The number that a chunk is full of grows: what was begun, and what was closed.
    begun, closed, errors = [1] * CHUNKS, [1] * CHUNKS, []

    def check(what, number, least, data):
        values = np.frombuffer(data, "<u4")
        if what == "chunk" and len(values) < LEN:
            return  # Cut to nothing by one who is about to write it.
        if not least <= values.min() <= values.max() <= begun[number]:
            errors.append(f"{what} {number}: {values.min()} to {values.max()}, {least} was closed")

    def work(seed, step):
        dice = random.Random(seed)
        try:
            while (time.monotonic() < end or min(closed[0], closed[4]) <= 5) and not errors:
                step(dice)
                time.sleep(dice.random() * 0.02)
        except Exception as error:
            errors.append(repr(error))

    with mount(tmp_path / "store", "--metadata-ttl", "0", *reading) as m:

        def write(number):
            def step(dice):
                begun[number] += 1
                dice.choice(WAYS)(m, number, np.full(LEN, begun[number], "<u4").tobytes())
                closed[number] = begun[number]

            return step

        def read(dice):
            least = list(closed)
            if dice.random() < 0.6:
                number = dice.randrange(CHUNKS)
                check("chunk", number, least[number], (m / "x" / "c" / str(number)).read_bytes())
                return
            whole = (m / "x.raw").read_bytes()
            for number in range(CHUNKS):
                check("view", number, least[number], whole[number * LEN * 4 : (number + 1) * LEN * 4])

        end = time.monotonic() + SECONDS
        steps = [write(0), write(4)] + [read] * 4
        threads = [threading.Thread(target=work, args=item) for item in enumerate(steps)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert min(closed[0], closed[4]) > 5
