"""A part of the cases of tests that have several: with ZARRFS_PART=N a test runs one in N of them, at least one and at
most `MOST`.

It is always the same part. Tests with the same cases take different ones, so that each hierarchy is read by some."""

import collections
import os
import zlib

PART = int(os.environ.get("ZARRFS_PART", "1"))
MOST = 4


def taken_of(test, cases):
    """The numbers of the cases of a test that run."""
    if PART == 1:
        return range(cases)
    step = max(PART, -(-cases // MOST))
    first = zlib.crc32(test.encode()) % min(step, cases)
    return range(first, cases, step)


def take_part(config, items, tests=1):
    """Leaves out the other cases, and all but one in `tests` of the tests themselves."""

    def test_of(item):
        return item.nodeid.partition("[")[0]

    counts, seen = collections.Counter(map(test_of, items)), collections.Counter()
    taken, left_out = [], []
    for item in items:
        test = test_of(item)
        is_run = PART == 1 or zlib.adler32(test.encode()) % tests == 0
        (taken if is_run and seen[test] in taken_of(test, counts[test]) else left_out).append(item)
        seen[test] += 1
    items[:] = taken
    config.hook.pytest_deselected(items=left_out)
