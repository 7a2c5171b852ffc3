"""Lists of tests that are expected to fail, `NAME.expected`: a test a line, two spaces, and the reason."""

import re
from pathlib import Path

HERE = Path(__file__).parent


def read(suite):
    """The reasons, by test."""
    path = HERE / f"{suite}.expected"
    reasons = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line or line.startswith("#"):
            continue
        test, _, reason = line.partition("  ")
        assert reason.strip(), f"{path.name}, line {number}: a test without a reason"
        assert test not in reasons, f"{path.name}, line {number}: {test} is listed twice"
        reasons[test] = reason.strip()
    return reasons


def write(suite, failed, ran):
    """Takes those into the list that have failed, and those out of it that ran and did not."""
    path = HERE / f"{suite}.expected"
    known = read(suite)
    kept = {test: reason for test, reason in known.items() if test in failed or test not in ran}
    new = {test: said for test, said in failed.items() if test not in kept}
    lines = [line for line in (path.read_text().splitlines() if path.exists() else []) if line.startswith("#")]
    lines += [f"{test}  {reason}" for test, reason in sorted({**kept, **new}.items(), key=lambda it: natural(it[0]))]
    path.write_text("".join(line + "\n" for line in lines))


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
