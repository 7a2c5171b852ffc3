"""Runs suites on mounts, and compares what has failed with the lists of expected failures: see scripts/suites.sh."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import expected
import places
import stored
import suites
import xfstests

LOGS = Path(os.environ.get("LOGS", "target/suites")).resolve()
PLACES = re.compile(os.environ.get("PLACES", ""))
UPDATE = os.environ.get("UPDATE") == "1"


def in_ordinary(run):
    """A suite on a directory of ordinary files."""

    def on_place(work, log, results):
        with places.ordinary(work) as (_, directory):
            results.update(run(directory, log))
            remove(directory)

    return on_place


def remove(directory):
    subprocess.run(["rm", "-rf", str(directory)], capture_output=True)


def ordinary_of(name, run):
    """A suite that says one thing of a place, and is called like it."""
    return name, in_ordinary(lambda directory, log: {name: run(directory, log)})


def chunk_of(name, codec, run, *options):
    def on_place(work, log, results):
        with places.chunk(work, codec, *options) as (_, path):
            results[name] = run(path, log)

    return name, on_place


def view_of(name, codec, suffix, run, *options):
    def on_place(work, log, results):
        with places.view(work, codec, suffix, *options) as (_, path):
            results[name] = run(path, log)

    return name, on_place


def fsx_places():
    """Each codec with mappings and without them, and the page cache bypassed."""
    yield ordinary_of("ordinary", lambda at, log: suites.fsx(at / "file", log, False))
    fixed = lambda path, log: suites.fsx(path, log, True)
    unmapped = lambda path, log: suites.fsx(path, log, True, maps=False)
    for codec in places.CODECS:
        yield chunk_of(f"chunk {codec} mmap", codec, fixed)
        yield chunk_of(f"chunk {codec} no mmap", codec, unmapped, "-o", "nopassthrough")
        yield chunk_of(f"chunk {codec} direct_io", codec, unmapped, "-o", "direct_io")
    for codec in ("raw", "zstd", "sharded"):
        yield view_of(f"view raw {codec}", codec, ".raw", fixed)


def fsx_c_places():
    yield ordinary_of("ordinary", lambda at, log: suites.fsx_c(at / "file", log, False))
    yield ordinary_of("ordinary O_DIRECT", lambda at, log: suites.fsx_c(at / "file", log, False, True))
    fixed = lambda path, log: suites.fsx_c(path, log, True)
    direct = lambda path, log: suites.fsx_c(path, log, True, direct=True)
    for codec in places.CODECS:
        yield chunk_of(f"chunk {codec} mmap", codec, fixed)
        yield chunk_of(f"chunk {codec} O_DIRECT", codec, direct)
    for codec in ("zstd", "sharded"):
        yield view_of(f"view raw {codec}", codec, ".raw", fixed)


def fsstress_places():
    yield ordinary_of("ordinary", suites.fsstress)

    def beside_chunks(work, log, results):
        with places.chunk(work, "zstd") as (m, _):
            at = m / "x/here"
            at.mkdir()
            results["beside chunks"] = suites.fsstress(at, log)
            remove(at)

    yield "beside chunks", beside_chunks


def fio_places():
    engines = [("psync", False), ("mmap", False), ("libaio", True), ("io_uring", False)]
    for engine, direct in engines:
        name = engine + (" O_DIRECT" if direct else "")

        def run(path, log, engine=engine, direct=direct):
            return suites.fio(path / "file", log, engine, 4 << 20, direct=direct)

        def fixed(path, log, engine=engine, direct=direct):
            # The elements, behind the header of a view.
            length = places.CHUNKS[0] * places.CHUNKS[1] * places.SIZE
            offset = max(os.stat(path).st_size - length, 0)
            size = os.stat(path).st_size - offset
            return suites.fio(path, log, engine, size // 512 * 512, offset, block=512, direct=direct)

        yield ordinary_of(f"ordinary {name}", run)
        for codec in ("raw", "zstd", "sharded"):
            yield chunk_of(f"chunk {codec} {name}", codec, fixed)
            # The header of .npy is no multiple of a page, as fio needs it there.
            for suffix in (".raw", ".npy") if engine == "psync" else (".raw",):
                yield view_of(f"view {suffix[1:]} {codec} {name}", codec, suffix, fixed)


def xfstests_places():
    yield "ordinary", lambda work, log, results: results.update(xfstests.run(work, log))


def stored_places():
    """Hierarchies of other implementations: a name, its clone, and the directory in it."""
    for name, data in (("zarrs", "zarrs/tests/data"), ("zarr-java", "testdata")):

        def run(work, log, results, name=name, data=data):
            results.update(stored.run(work, log, name, data))

        yield name, run


SUITES = {
    "pjdfstest": lambda: [("ordinary", in_ordinary(suites.pjdfstest))],
    "pjdfstest-c": lambda: [("ordinary", in_ordinary(suites.pjdfstest_c))],
    "fsx": fsx_places,
    "fsx-c": fsx_c_places,
    "fsstress": fsstress_places,
    "fio": fio_places,
    "stress-ng": lambda: [("ordinary", in_ordinary(suites.stress_ng))],
    "xfstests": xfstests_places,
    "ltp": lambda: [("ordinary", in_ordinary(suites.ltp))],
    "stored": stored_places,
}


def run_on(name, place, on_place):
    """The results of a suite on a place. If the mount itself was not right, that is a failure as well."""
    log, results = LOGS / f"{name}.log", {}
    with tempfile.TemporaryDirectory(prefix="zarrfs-suites.") as work:
        try:
            on_place(work, log, results)
        except suites.Absent:
            raise
        except Exception as error:
            with open(log, "a") as file:
                traceback.print_exc(file=file)
            results[f"{place}: the mount"] = (str(error) or repr(error)).splitlines()[0][:200]
    return results


def judge(results, reasons, ran):
    """The counts of a line, and sentences for what nobody expected."""
    failed = {test: said for test, said in results.items() if said not in (suites.PASSED, suites.SKIPPED)}
    passed = [test for test, said in results.items() if said == suites.PASSED]
    sentences = [f"{test} fails: {said}" for test, said in failed.items() if test not in reasons]
    sentences += [f"{test} passes, and is in the list ({reasons[test]})" for test in passed if test in reasons]
    known = sum(test in reasons for test in failed)
    ran.update(results)
    return len(passed), len(failed) - known, known, len(results) - len(passed) - len(failed), sentences


FORMAT = "%-12s %-28s %7s %7s %9s %8s %8s"


def main():
    LOGS.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in sys.argv[1:] if name not in SUITES]
    if unknown:
        sys.exit(f"suites: there is no suite {unknown[0]}: {', '.join(SUITES)}")
    print(FORMAT % ("suite", "place", "passed", "failed", "expected", "skipped", "seconds"), flush=True)
    wrong = 0
    for name in sys.argv[1:] or SUITES:
        (LOGS / f"{name}.log").unlink(missing_ok=True)
        reasons, ran = expected.read(name), {}
        try:
            for place, on_place in SUITES[name]():
                if not PLACES.search(place):
                    continue
                began = time.monotonic()
                results = run_on(name, place, on_place)
                passed, failed, known, skipped, sentences = judge(results, reasons, ran)
                seconds = f"{time.monotonic() - began:.1f}"
                print(FORMAT % (name, place, passed, failed, known, skipped, seconds), flush=True)
                for sentence in sentences if not UPDATE else []:
                    print(f"    {sentence}", flush=True)
                wrong += len(sentences)
        except suites.Absent as absent:
            print(f"{name:12} not run: {absent} is not installed", flush=True)
            continue
        absent = [test for test in reasons if test not in ran] if not (PLACES.pattern or "XFSTESTS" in os.environ) else []
        for test in absent if not UPDATE else []:
            print(f"    {test} is in the list, and there is no such test", flush=True)
        wrong += len(absent)
        if UPDATE:
            failed = {test: said for test, said in ran.items() if said not in (suites.PASSED, suites.SKIPPED)}
            expected.write(name, failed, ran)
    if wrong and not UPDATE:
        sys.exit(f"suites: {wrong} tests did what is not in the lists; logs: {LOGS}")


if __name__ == "__main__":
    # In the background of a script SIGINT would be ignored. Mounts end on the way out.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
