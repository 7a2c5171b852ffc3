#!/usr/bin/env python3
"""Compares a mount of a hierarchy in S3 with libraries and with mounts of files: requests, times and memory.

    scripts/bench.sh stores [--quick] [--rounds N] [--only REGEX] [--programs NAME,...] [--zarrfs PATH]

scripts/bench.sh builds zarrfs (unless --zarrfs or ZARRFS_BIN names it) and calls this. A server (SeaweedFS) and a proxy
that adds 25 ms in each direction run on this machine. Each repetition is a new mount, or a new client of a library, so
everything is cold. Requests are exact, and counted in the log of the proxy; times are the best of all repetitions. A
program that took longer than 10 s is not measured again, and it is ended after 45 s. The last columns compare zarrfs
with the goals of stores.md, part 9: requests, time (R is one round trip), and memory: at most --cache-size +
--fetch-memory + 100 MiB.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from data import Data, Sizes
from programs import Library, Mount, Rclone, S3fs, Zarrfs
from rows import ELSEWHERE
from rows import rows as rows_of
from server import KEYS, Proxy, Server, free_ports

# Names in the table, and the columns of times in their order.
PROGRAMS = {
    "zarrfs": "zarrfs",
    "zarr-obstore": "zarr-python (obstore)",
    "zarr-s3fs": "zarr-python (s3fs)",
    "tensorstore": "TensorStore",
    "obstore": "obstore alone",
    "rclone": "rclone mount",
    "s3fs": "s3fs-fuse",
}
SLOW = 10.0  # s
MEMORY = (256 + 256 + 100) << 20


@dataclass
class Figures:
    """What one program did in one row, in all repetitions."""

    seconds: list = field(default_factory=list)
    counts: list = field(default_factory=list)
    methods: Counter = field(default_factory=Counter)
    memory: int = 0
    fault: str = ""

    def best(self):
        return min(self.seconds, default=None)

    def requests(self):
        least, most = min(self.counts), max(self.counts)
        return str(most) if least == most else f"{least} to {most}"


class Comparison:
    def __init__(self, options, work, server, proxy, data):
        self.options, self.work, self.server, self.proxy, self.data = options, work, server, proxy, data
        rows = rows_of(data)
        wanted = {row.session for row in rows if re.search(options.only, row.title)}
        self.rows = [row for row in rows if row.session in wanted]
        self.figures = {(row.title, program): Figures() for row in self.rows for program in PROGRAMS}
        self.libraries, self.absent = {}, {}
        for program, package in (("rclone", "rclone"), ("s3fs", "s3fs")):
            if not shutil.which(program):
                self.absent[program] = f"the program {package} is not installed"

    def session(self, program, prefix):
        if program == "zarrfs":
            return Zarrfs(self.options.zarrfs, self.proxy, self.work, prefix)
        if program == "rclone":
            return Rclone(self.server, self.proxy, self.work, prefix)
        if program == "s3fs":
            return S3fs(self.proxy, self.work, prefix)
        library = self.libraries.get(program)
        if not library or not library.is_running():
            library = self.libraries[program] = Library(program, self.proxy, self.work)
        library.begin(prefix)
        return library

    def close(self):
        for library in self.libraries.values():
            library.end()

    def measure(self, program, rows):
        """All rows of a session, once."""
        rows = [row for row in rows if program in row.programs]
        if all(self.is_done(row, program) for row in rows):
            return
        first = rows[0]
        prefix = self.data.fresh(first.writes) if first.writes else first.prefix
        with contextlib.closing(self.session(program, prefix)) as session:
            try:
                opened = None
                if first.method == "root" or isinstance(session, Mount):
                    opened = self.step(session, first.opening())
                session.mounted()
                for row in rows:
                    # The rows after it do not need what a slow one did.
                    if not self.is_slow(row, program):
                        self.keep(row, program, opened if row.method == "root" else self.step(session, row))
                if first.writes in ("wx", "wm") and len(self.figures[first.title, program].seconds) == 1:
                    self.data.check_written(prefix, first.writes)
            except Exception as error:
                if self.options.debug:
                    traceback.print_exc()
                fault = (str(error) or type(error).__name__).strip().splitlines()[-1]
                print(f"{program}, {row.title if opened else first.title}: {fault}", file=sys.stderr)
                self.figures[row.title if opened else first.title, program].fault = fault[:80]
        if first.writes:
            self.data.remove(prefix)

    def keep(self, row, program, took):
        if took:
            seconds, requests, memory = took
            figures = self.figures[row.title, program]
            figures.seconds.append(seconds)
            figures.counts.append(len(requests))
            figures.methods.update(kind(request) for request in requests)
            figures.memory = max(figures.memory, memory or 0)
            if self.options.debug and program == "zarrfs":
                print(f"    {row.title}: {seconds:.3f} s", *map(" ".join, requests[:25]), sep="\n    ", file=sys.stderr)

    def is_slow(self, row, program):
        figures = self.figures[row.title, program]
        return bool(figures.fault) or figures.best() is not None and figures.best() > SLOW

    def step(self, session, row):
        """Seconds, requests and memory, or `None` if the program has no such thing."""
        method = getattr(session, row.method, None)
        for before, *arguments in row.before:
            getattr(session, before, lambda *_: None)(*arguments)
        if row.before:
            session.settle()
            session.memory()
        self.proxy.take()
        seconds = method(*row.arguments) if method else None
        if seconds is None:
            return None
        session.settle()
        return seconds, self.proxy.take(), session.memory()

    def is_done(self, row, program):
        done = len(self.figures[row.title, program].seconds)
        return done >= min(self.options.rounds, row.rounds) or self.is_slow(row, program)

    def run(self):
        sessions = {}
        for row in self.rows:
            sessions.setdefault(row.session, []).append(row)
        for number, rows in enumerate(sessions.values(), 1):
            began, spent = time.monotonic(), Counter()
            for _ in range(self.options.rounds):
                for program in self.options.programs:
                    if program not in self.absent:
                        spent[program] -= time.monotonic()
                        self.measure(program, rows)
                        spent[program] += time.monotonic()
            took = ", ".join(f"{program} {seconds:.0f}" for program, seconds in spent.items())
            took = f"{time.monotonic() - began:.0f} s ({took})"
            print(f"{number} of {len(sessions)}, {rows[0].title}: {took}", file=sys.stderr, flush=True)

    def cell(self, row, program):
        figures = self.figures[row.title, program]
        if figures.fault:
            return figures.fault
        if program in self.absent or not figures.seconds:
            return ""
        once = " (once)" if len(figures.seconds) == 1 and self.options.rounds > 1 and row.rounds > 1 else ""
        return f"{shown(figures.best())}, {figures.requests()}{once}"

    def best_of(self, row, program):
        return self.figures[row.title, program].best()

    def goal(self, row):
        """The goal as text, and what of it is missed."""
        ours, text, missed = self.figures[row.title, "zarrfs"], [], []
        if not ours.seconds:
            return "", ours.fault
        if row.requests is not None:
            text.append(f"<= {row.requests} requests")
            if max(ours.counts) > row.requests:
                missed.append(f"{ours.requests()} requests")
        if row.no_get:
            text.append("no GET")
            if ours.methods["GET"]:
                missed.append(f"{ours.methods['GET'] / len(ours.counts):.0f} GET")
        if row.seconds is not None:
            text.append(f"<= {shown(row.seconds)}")
            if ours.best() > row.seconds:
                missed.append(shown(ours.best()))
        for factor, programs in row.peers:
            times = {it: self.best_of(row.like or row, it) for it in programs}
            times = {it: seconds for it, seconds in times.items() if seconds is not None}
            if not times:
                continue
            fastest = min(times, key=times.get)
            text.append(f"<= {factor:.2f} x {fastest}")
            if ours.best() > factor * times[fastest]:
                missed.append(f"{ours.best() / times[fastest]:.2f} x {fastest}")
        if row.as_few:
            # TensorStore is given the path of the array, so zarrfs cannot ask as rarely.
            others = {it: max(self.figures[row.title, it].counts, default=0) for it in row.as_few}
            name = max(others, key=others.get)
            if others[name]:
                text.append(f"<= {others[name]} requests ({name})")
                if max(ours.counts) > others[name]:
                    missed.append(f"{ours.requests()} requests")
        if ours.memory > MEMORY:
            missed.append(f"{ours.memory >> 20} MiB")
        return ", ".join(text), ("no: " + ", ".join(missed) if missed else "yes" if text else "")

    def print(self):
        print("\nEach cell is the best time and the number of requests. The memory is that of zarrfs.")
        print("\n| what | requests of zarrfs | " + " | ".join(PROGRAMS.values()) + " | memory, MiB | goal | met |")
        print("| --- " * (len(PROGRAMS) + 5) + "|")
        for row in self.rows:
            ours = self.figures[row.title, "zarrfs"]
            kinds = {name: round(count / len(ours.counts)) for name, count in sorted(ours.methods.items())}
            requests = ours.requests() if ours.counts else ""
            if sum(kinds.values()):
                requests += " (" + ", ".join(f"{count} {name}" for name, count in kinds.items() if count) + ")"
            cells = [self.cell(row, program) for program in PROGRAMS]
            memory = str(ours.memory >> 20) if ours.memory else ""
            print("| " + " | ".join([row.title, requests, *cells, memory, *self.goal(row)]) + " |")
        for program, reason in self.absent.items():
            print(f"\n{PROGRAMS[program]}: {reason}.")
        print("\n" + ELSEWHERE)


def kind(request):
    method, path = request[:2]
    return "LIST" if method == "GET" and re.search(r"[?&](list-type|delimiter|prefix)=", path) else method


def shown(seconds):
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zarrfs", required=True, type=os.path.abspath, help="the program, built with --release")
    parser.add_argument("--quick", action="store_true", help="small arrays, and one repetition")
    parser.add_argument("--rounds", type=int, help="repetitions [5, or 1 with --quick]")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose titles match")
    parser.add_argument("--programs", default=",".join(PROGRAMS), type=lambda text: text.split(","))
    parser.add_argument("--delay", type=float, default=0.025, help="seconds in each direction [0.025]")
    parser.add_argument("--debug", action="store_true", help="print where a program failed")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    for program in options.programs:
        if program not in PROGRAMS:
            parser.error(f"{program}: expected {', '.join(PROGRAMS)}")
    return options


def interrupted(*_):
    """What was started is ended in peace."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    options = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, interrupted)
    os.environ.update(KEYS)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        os.environ.pop(name, None)
    with contextlib.ExitStack() as ends:
        work = tempfile.mkdtemp(prefix="zarrfs-bench.")
        ends.callback(shutil.rmtree, work, ignore_errors=True)
        server = Server(work)
        ends.callback(server.close)
        server.ready()
        proxy = Proxy(free_ports(1)[0], server.s3, options.delay, f"{work}/requests")
        ends.callback(proxy.close)
        data = Data(server, Sizes(options.quick), work, options.zarrfs)
        print("storing the arrays", file=sys.stderr, flush=True)
        data.make()
        data.check()
        comparison = Comparison(options, work, server, proxy, data)
        ends.callback(comparison.close)
        print(f"R = {2000 * options.delay:.0f} ms, best of {options.rounds}, {os.cpu_count()} processors")
        try:
            comparison.run()
        finally:
            comparison.print()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
