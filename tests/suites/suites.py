"""The suites: each runs a program on a place, and returns what became of each of its tests.

A result is "passed", "skipped", or else what was said of the failure. Programs are looked for in the directory
`ZARRFS_SUITES`, which scripts/suites.sh fills, and in PATH. `Absent` says which one there is not.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import places

DIRECTORY = Path(os.environ.get("ZARRFS_SUITES", "/nonexistent"))
OPERATIONS = int(os.environ.get("OPERATIONS", "20000"))
SECONDS = int(os.environ.get("SECONDS_EACH", "5"))
SEED = int(os.environ.get("ZARRFS_SEED", "0")) or 1
PASSED, SKIPPED = "passed", "skipped"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Absent(Exception):
    """A program that is not installed."""


def program(name):
    for path in (DIRECTORY / "bin" / name, DIRECTORY / name):
        if path.exists():
            return str(path)
    found = shutil.which(name)
    if not found:
        raise Absent(name)
    return found


def run(command, log, timeout=600, **options):
    """The exit code, and what was printed. Both are added to the log."""
    command = [str(word) for word in command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, start_new_session=True, **pipes, **options) as process:
        try:
            said, code = process.communicate(timeout=timeout)[0], process.returncode
        except subprocess.TimeoutExpired:
            end_group(process)
            said, code = process.communicate()[0] + b"\nnot done after %d seconds" % timeout, 124
        except BaseException:
            end_group(process)
            raise
    said = said.decode(errors="replace")
    said = COLOURS.sub("", said)
    with open(log, "a") as file:
        file.write(f"$ {' '.join(command)}\n{said}\nexit code {code}\n")
    return code, said


def end_group(process):
    """Ends a program with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def last_line(said):
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:120] if lines else "nothing was printed"


# pjdfstest in Rust

PJDFSTEST = """
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""


def pjdfstest(directory, log, patterns=()):
    """Debian has its two users, which must get to the directory."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(PJDFSTEST)
        file.flush()
        command = [program("pjdfstest"), "-c", file.name, "-p", directory, *patterns]
        _, said = run(command, log, env={**os.environ, "RUST_BACKTRACE": "0"})
    results, failed = {}, None
    for line in said.splitlines():
        found = re.fullmatch(r"(\S+::\S+|\w+)\s+(ok|FAILED|skipped)", line)
        if found:
            name, result = found.groups()
            results[name] = {"ok": PASSED, "skipped": SKIPPED}.get(result, "failed")
            failed = name if result == "FAILED" else None
        elif failed and line.startswith("\t"):
            results[failed] = re.sub(r"\s+", " ", line.strip())[:120]
            failed = None
    assert results, said[-2000:]
    return results


# pjdfstest in C

def pjdfstest_c(directory, log):
    """Its scripts say `ok N` and `not ok N` for each check."""
    home = DIRECTORY / "pjdfstest-c"
    if not (home / "pjdfstest").exists():
        raise Absent("pjdfstest in C")
    results = {}
    for script in sorted(home.glob("tests/*/*.t")):
        name = f"{script.parent.name}/{script.name}"
        with tempfile.TemporaryDirectory(dir=directory) as place:
            # Its other user must get in.
            os.chmod(place, 0o755)
            _, said = run(["bash", script], log, cwd=place, timeout=300)
            # Some scripts leave what they have made.
            for at, names, _ in os.walk(place):
                for one in names:
                    if not os.path.islink(os.path.join(at, one)):
                        os.chmod(os.path.join(at, one), 0o755)
        for line in said.splitlines():
            found = re.match(r"(not )?ok (\d+)(.*)", line)
            if found:
                wrong, number, rest = found.groups()
                result = SKIPPED if "# SKIP" in rest.upper() else PASSED
                results[f"{name}:{number}"] = rest.strip(" -")[:120] or "failed" if wrong and "TODO" not in rest else result
        planned = re.search(r"^1\.\.(\d+)", said, re.M)
        count = sum(test.startswith(f"{name}:") for test in results)
        if planned and int(planned[1]) != count:
            results[f"{name}:plan"] = f"{count} of {planned[1]} checks were made"
    return results


# fsx in Rust and in C

FSX = """
flen = {length}
blockmode = {fixed}
nosizechecks = {fixed}
nomsyncafterwrite = true
[opsize]
max = {most}
min = {least}
align = 1
[weights]
read = 10
write = 10
mapread = {maps}
mapwrite = {maps}
invalidate = {invalidate}
fsync = 0.2
fdatasync = 0.2
sendfile = 2
posix_fadvise = 2
copy_file_range = 1
punch_hole = 0
"""
MOST_OPERATIONS = 5000
FREE = "truncate = 5\nclose_open = 1\nposix_fallocate = 2\n"
FIXED = "truncate = 0\nclose_open = 0\nposix_fallocate = 0\n"


def fsx(path, log, fixed, maps=True, operations=OPERATIONS):
    """fsx in Rust; with `fixed`, the file keeps its length."""
    length = os.stat(path).st_size if fixed else 256 << 10
    text = FSX.format(
        length=length, fixed=str(fixed).lower(), least=0 if fixed else 1, most=min(length, 64 << 10), maps=10 if maps else 0, invalidate=2 if maps else 0
    ) + (FIXED if fixed else FREE)  # fmt: skip
    with tempfile.TemporaryDirectory() as kept:
        settings = Path(kept) / "fsx.toml"
        settings.write_text(text)
        # It keeps what it has mapped, and becomes slow.
        for seed, done in enumerate(range(0, operations, MOST_OPERATIONS), SEED):
            words = ["-N", min(operations - done, MOST_OPERATIONS), "-S", seed, "-P", kept, "-f", settings]
            code, said = run([program("fsx"), *words, path], log, timeout=3600)
            result = outcome(code, said, path, length if fixed else None)
            if result != PASSED:
                break
    return result


def outcome(code, said, path, length):
    if code != 0:
        return f"exit code {code}: {last_line(said)}"
    if length is not None and os.stat(path).st_size != length:
        return f"the file is {os.stat(path).st_size} bytes long, and was {length}"
    return PASSED


def fsx_c(path, log, fixed, direct=False, operations=OPERATIONS):
    """fsx in C, from xfstests; `direct`: with O_DIRECT, without mappings."""
    length = os.stat(path).st_size if fixed else 256 << 10
    with tempfile.TemporaryDirectory() as kept:
        words = ["-N", operations, "-S", SEED, "-P", kept, "-l", length, "-o", min(length, 64 << 10)]
        words += ["-L"] if fixed else []
        words += ["-Z", "-R", "-W", "-r", 1, "-w", 1] if direct else []
        # No holes in a file of fixed length, nor bytes past its end.
        words += ["-F", "-H", "-z", "-C", "-I", "-u"] if fixed else []
        code, said = run([program("fsx-c"), *words, path], log, timeout=36000)
    return outcome(code, said, path, length if fixed else None)


# fsstress

def fsstress(directory, log, operations=OPERATIONS):
    words = ["-d", directory, "-n", operations // 4, "-p", 4, "-s", SEED, "-c"]
    code, said = run([program("fsstress"), *words], log, timeout=3600)
    if code != 0:
        return f"exit code {code}: {last_line(said)}"
    left = os.listdir(directory)
    return f"left: {left[:5]}" if left else PASSED


# fio

def fio(path, log, engine, size, offset=0, block=4096, direct=False):
    """Writes blocks at random places, each with a checksum, and reads them all back."""
    words = ["--name=verify", f"--filename={path}", f"--size={size}", f"--offset={offset}", f"--bs={block}", "--rw=randwrite"]
    words += [f"--ioengine={engine}", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", f"--randseed={SEED}"]
    words += [f"--direct={int(direct)}", "--verify_state_save=0", "--allow_file_create=1", "--fallocate=none", "--loops=4", "--minimal"]
    words += ["--iodepth=8"] if engine == "libaio" else []
    code, said = run([program("fio"), *words], log)
    return PASSED if code == 0 else f"exit code {code}: {last_line(said)}"


# stress-ng

# They do nothing with the directory that they are given, or what they do concerns all of the machine.
ELSEWHERE = {"binderfs", "ramfs", "chattr", "verity"}


def stressors():
    """The names of the class `filesystem`."""
    said = subprocess.run([program("stress-ng"), "--class", "filesystem?"], capture_output=True, text=True)
    names = re.search(r"stressors: (.*)", said.stdout + said.stderr)
    assert names, said
    return [name for name in names[1].split() if name not in ELSEWHERE]


def stress_ng(directory, log):
    results = {}
    for name in stressors():
        words = [f"--{name}", 2, "--timeout", SECONDS, "--verify", "--temp-path", directory, "--metrics-brief"]
        code, said = run([program("stress-ng"), *words], log, timeout=SECONDS * 20 + 300)
        fails = re.findall(r"(?:fail|error): +\[\d+\] +(.*)", said)
        # The machine lacks something, or the stressor does not apply.
        is_skipped = code in (3, 4) or "disabled '" in said or (code == 0 and "skipped" in said and "successful run" not in said)
        if code == 0 or is_skipped:
            results[name] = SKIPPED if is_skipped else PASSED
        else:
            results[name] = f"exit code {code}: {(fails or [last_line(said)])[0][:100]}"
    return results


# LTP

def ltp(directory, log):
    """The commands of its list `fs`, each for a few seconds."""
    home = DIRECTORY / "ltp"
    if not (home / "runtest/fs").exists():
        raise Absent("LTP")
    folders = {path.parent for path in (home / "testcases").rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    path = ":".join([*map(str, sorted(folders)), os.environ["PATH"]])
    results = {}
    for line in (home / "runtest/fs").read_text().splitlines():
        name, _, command = line.strip().partition(" ") if " " in line else line.strip().partition("\t")
        # They read /proc, /dev and /sys, or need a disk of their own.
        if not command or name.startswith(("#", "proc", "read_all", "quota", "binfmt", "isofs", "squashfs", "fs_fill", "mknod")):
            continue
        command = re.sub(r"-L \d+", f"-L {SECONDS}", command)
        command = re.sub(r"-i \d+s", f"-i {SECONDS}s", command)
        with tempfile.TemporaryDirectory(dir=directory) as place:
            env = {**os.environ, "PATH": path, "TMPDIR": place, "LTPROOT": str(home)}
            code, said = run(["bash", "-c", command], log, cwd=place, env=env, timeout=600)
        said_of_it = {0: PASSED, 4: PASSED, 32: SKIPPED, 127: SKIPPED}
        results[name] = said_of_it.get(code, f"exit code {code}: {failure_of_ltp(said)}")
    return results


def failure_of_ltp(said):
    found = re.findall(r"(?:TFAIL|TBROK).*", said)
    return found[0][:100] if found else last_line(said)
