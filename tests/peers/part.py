"""A part of the cases of tests that have many: ZARRFS_PART=N runs one in N of them, or one in N/2 if they are few.

It is always the same part. Tests with the same cases take different ones, so that each hierarchy is read by some."""

import collections
import os
import zlib

PART = int(os.environ.get("ZARRFS_PART", "1"))
# A test with no more cases runs all of them,
LEAST = 3
# and one with no more than these runs one in N/2.
FEW = 10


def step_of(cases):
    """A test with so many cases runs one in this many."""
    return 1 if cases <= LEAST else PART if cases > FEW else max(1, PART // 2)


def take_part(config, items):
    """Leaves out the other cases."""

    def test_of(item):
        return item.nodeid.partition("[")[0]

    counts, seen = collections.Counter(map(test_of, items)), collections.Counter()
    taken, left_out = [], []
    for item in items:
        test = test_of(item)
        seen[test] += 1
        is_taken = (seen[test] + zlib.crc32(test.encode())) % step_of(counts[test]) == 0
        (taken if is_taken else left_out).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left_out)
