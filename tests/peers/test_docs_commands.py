"""Every command of README.md and docs/*.md, run as it stands there, and what it prints.

A page works from top to bottom: the ```console blocks of a page begin in one directory, in which the sample hierarchies
lie (`SAMPLES`), and the working directory and PATH that a command leaves are those of the next one. The directory of
README.md is like a clone in which zarrfs was built: it has `scripts` and `target`. A line that begins with `$ ` is a command, with the lines that continue it after a backslash or begin
with `> `; one that begins with `# ` is a command for root. The lines below a command are what it prints, on standard output or standard
error:

- `...` in a line is any text, and `...` alone is any lines, or none.
- Numbers and times that differ each time are equal to any others (`VOLATILE`). The directory is called /home/me.
- If no command of a block shows what it prints, they may print anything. Otherwise a command without lines below it
  prints nothing.
- A command succeeds, unless the page shows what it prints.

`NOT_RUN` and `RUN_ELSEWHERE` list the commands that cannot be run here, each with a reason. To see what the commands of a page print:

    ZARRFS_BIN=... python tests/peers/test_docs_commands.py docs/guide.md
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mounts import BIN, PATIENCE, detach, is_alive, wait_until

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

INSTALLS = "installs a program: scripts/package-test.sh installs the packages"
NEEDS_ROOT = "changes the machine: tests/it/fstab.rs runs mount.zarrfs"
NOT_RUN = {
    ("docs/guide.md", "ln -s /usr/local/bin/zarrfs /sbin/mount.zarrfs"): NEEDS_ROOT,
    ("docs/guide.md", "cat /etc/fstab"): NEEDS_ROOT,
    ("docs/guide.md", "mount /mnt/climate"): NEEDS_ROOT,
    ("docs/platforms.md", "scripts/package.sh --no-publish"): INSTALLS,
    ("docs/platforms.md", "ls target/packages"): INSTALLS,
    ("docs/platforms.md", "mkdir -p ~/zarrfs"): INSTALLS,
    ("docs/platforms.md", "tar -C ~/zarrfs --strip-components=1 -xzf target/packages/zarrfs-*-x86_64-linux.tar.gz"): INSTALLS,
    ("docs/platforms.md", "~/zarrfs/bin/zarrfs --version"): INSTALLS,
}

# Pages whose commands other tests run.
RUN_ELSEWHERE = {
    "docs/s3.md": "needs a server of S3: tests/stores/test_pages.py",
    "docs/http.md": "needs a web server: tests/stores/test_http.py",
}

HOME = "/home/me"
# What differs each time, on both sides.
VOLATILE = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d", "TIME"),
    (r"\b\d+\.\d s\b", "SECONDS"),
]


def sample_climate(home):
    """The sample of `zarrfs demo`, as its user has it after that."""
    subprocess.run([BIN, "demo", "zarrfs-demo"], cwd=home, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)
    subprocess.run([BIN, "umount", "zarrfs-demo/mnt"], cwd=home, check=True, timeout=PATIENCE)
    (home / "zarrfs-demo/climate.zarr").rename(home / "climate.zarr")
    shutil.rmtree(home / "zarrfs-demo")


def sample_cells(home):
    from test_cookbook import image

    image(home / "cells.zarr")


def sample_probe(home):
    from test_cookbook import recording

    recording(home / "probe.zarr")


def sample_ocean(home):
    from test_icechunk import two_tags

    two_tags(home / "ocean.icechunk")


def sample_archive(home):
    from test_kerchunk import two_days

    two_days(home / "archive")
    shutil.copy(home / "archive/all.json", home / "elsewhere.json")


SAMPLES = {
    "climate.zarr": sample_climate, "cells.zarr": sample_cells, "probe.zarr": sample_probe,
    "ocean.icechunk": sample_ocean, "archive/all.json": sample_archive,
}  # fmt: skip


class Command:
    """A command of a page: its first line there, its text, who runs it, and the lines below it."""

    def __init__(self, line, text, is_for_root):
        self.line, self.text, self.is_for_root = line, text, is_for_root
        self.shown = []


def blocks(page):
    """The ```console blocks of a page, each with its commands."""
    found, commands, language = [], [], None
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if line.startswith("```"):
            if language == "console":
                found.append(commands)
            language, commands = (line[3:] or "text") if language is None else None, []
        elif language != "console":
            continue
        elif commands and commands[-1].text.endswith("\\") and not commands[-1].shown:
            commands[-1].text += "\n" + line
        elif commands and line.startswith("> ") and not commands[-1].shown:
            commands[-1].text += "\n" + line[2:]
        elif line.startswith(("$ ", "# ")):
            commands.append(Command(number, line[2:], line.startswith("# ")))
        else:
            assert commands, f"{page}:{number}: a block begins with a command"
            commands[-1].shown.append(line)
    assert language is None, f"{page}: a block does not end"
    return found


def run(command, home, names=()):
    """The exit code of a command, and what it prints. `names` are pairs of what the page has and what there is."""
    text = command.text
    for shown, real in names:
        text = text.replace(shown, real)
    left = home.parent / "left"
    if left.exists():
        where, path = left.read_text().split("\n")
    else:
        tools = home.parent / "bin"
        where, path = home, f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        "HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8", "ZARRFS_BIN": str(shutil.which(BIN) or BIN),
        **{name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PYTHONPYCACHE"))}, "TZ": "UTC", "TERM": "xterm", "USER": os.environ.get("USER", "me"),
    }
    done = subprocess.run(
        ["bash", "-c", f"trap 'printf \"%s\\n%s\" \"$PWD\" \"$PATH\" > {left}' EXIT; umask 022\n{text}"], cwd=where, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
    )  # fmt: skip
    printed = done.stdout
    for shown, real in [(HOME, str(home)), *names]:
        printed = printed.replace(real, shown)
    printed = printed.replace("bash: line 2: ", "bash: ")
    return done.returncode, [line.rstrip() for line in printed.splitlines()]


def steady(line):
    for pattern, name in VOLATILE:
        line = re.sub(pattern, name, line)
    return line.rstrip()


def is_as_shown(shown, printed):
    """Whether the printed lines are those that the page shows."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, steady(line).split("..."))) + "\n"
    return re.fullmatch(pattern, "".join(steady(line) + "\n" for line in printed)) is not None


def mountpoints(home):
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return sorted((at for at in (line.split()[1] for line in lines) if at.startswith(f"{home}/")), reverse=True)


def pid_of(mountpoint):
    try:
        return int(re.search(r"^zarrfs_process_id (\d+)", (Path(mountpoint) / ".zarrfs/stats").read_text(), re.M)[1])
    except (OSError, TypeError):
        return None


def prepare(directory, page):
    """The directory in which the commands of a page run, with the samples that the page names."""
    home = directory / "me"
    home.mkdir()
    (directory / "bin").mkdir()
    (directory / "bin/zarrfs").symlink_to(shutil.which(BIN) or BIN)
    if page == "README.md":
        # The program is one that ZARRFS_BIN names; it is in the path only as the page says.
        (home / "scripts").symlink_to(ROOT / "scripts")
        (home / "target/release").mkdir(parents=True)
        (directory / "bin/zarrfs").rename(home / "target/release/zarrfs")
    text = "\n".join(command.text for commands in blocks(page) for command in commands)
    for name, make in SAMPLES.items():
        # The README and the quick start make their sample by themselves.
        if name in text and "zarrfs demo" not in text and "scripts/demo.sh" not in text:
            make(home)
    return home


def clear(home):
    """Ends every mount of a page, whatever has happened; returns those that there were."""
    left = mountpoints(home)
    for mountpoint in left:
        pid = pid_of(mountpoint)
        detach(mountpoint)
        if pid:
            wait_until(lambda pid=pid: not is_alive(pid))
    return left


def reason_not_to_run(page, command):
    return NOT_RUN.get((page, command.text.split("\n")[0]))


def check(page, directory, names=()):
    """Runs the commands of a page, and compares what they print."""
    home = prepare(directory, page)
    try:
        for commands in blocks(page):
            shows = any(command.shown for command in commands)
            for command in commands:
                if reason_not_to_run(page, command):
                    continue
                where = f"{page}:{command.line}: {command.text}"
                assert not command.is_for_root, f"{where}\nis for root, and not listed in NOT_RUN"
                code, printed = run(command, home, names)
                # The shell says this if a program is not installed; scripts/test.sh installs them all.
                if code == 127 and not command.shown:
                    pytest.skip(f"{where}: {printed}")
                text = "\n".join(printed)
                assert code == 0 or command.shown, f"{where}\nexit code {code}:\n{text}"
                if shows:
                    assert is_as_shown(command.shown, printed), (
                        f"{where}\nprints (exit code {code}):\n{text}\n\nand the page shows:\n" + "\n".join(command.shown)
                    )
    finally:
        left = clear(home)
    assert not left, f"{page} leaves these mounted: {left}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in RUN_ELSEWHERE])
def test_the_commands_of_a_page_print_what_it_shows(tmp_path, page):
    check(page, tmp_path)


def test_no_command_is_left_out_without_a_need():
    commands = {(page, command.text.split("\n")[0]) for page in PAGES for block in blocks(page) for command in block}
    assert not set(NOT_RUN) - commands, "not on these pages any more"
    assert not set(RUN_ELSEWHERE) - {page for page in PAGES if blocks(page)}, "pages without commands"
    for reason in [*NOT_RUN.values(), *RUN_ELSEWHERE.values()]:
        named = re.findall(r"(?:tests|scripts)/[\w/.-]+", reason)
        assert named and all((ROOT / path).exists() for path in named), reason


def test_every_block_is_run_or_is_no_command():
    """The cookbook has its own test, and `text` is for what nobody types."""
    for page in PAGES:
        languages = set(re.findall(r"^```(\w+)$", (ROOT / page).read_text(), re.MULTILINE))
        if page != "docs/cookbook.md":
            assert languages <= {"console", "text"}, page


def test_the_picture_shows_what_the_commands_print():
    for needed in ("ncdump", "cdo"):
        if not shutil.which(needed):
            pytest.skip(f"{needed} is not there")
    command = [sys.executable, ROOT / "scripts/picture.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def test_elisions_and_volatile_parts_are_understood():
    assert is_as_shown(["a ... c", "...", "z"], ["a b c", "1", "2", "z"])
    assert is_as_shown(["a", "...", "z"], ["a", "z"])
    assert not is_as_shown(["a", "z"], ["a", "1", "z"])
    assert is_as_shown(["took 0.0 s"], ["took 12.3 s"])
    assert not is_as_shown([], ["a warning"])
    assert not is_as_shown(["a.c"], ["abc"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        home_of_page = prepare(Path(made), sys.argv[1])
        try:
            for one in (command for block in blocks(sys.argv[1]) for command in block):
                if reason_not_to_run(sys.argv[1], one):
                    continue
                print(f"$ {one.text}")
                exit_code, lines = run(one, home_of_page)
                print("\n".join(lines) + "\n" * bool(lines) + f"[{exit_code}]" * bool(exit_code), flush=True)
        finally:
            clear(home_of_page)
