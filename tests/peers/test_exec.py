"""`zarrfs exec` by a user who has no capabilities and no fusermount3: what the command sees, what the store has
afterwards, and what is left on the machine."""

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

import machines
from machines import AS_USER, USER
from machines import SETUP as MACHINE
from mounts import BIN, PATIENCE, is_alive, wait_until


class Machine:
    """A directory with the program and a store, and a way to run the program there as a user."""

    def __init__(self, directory):
        self.at = Path(directory)
        self.store = self.at / "climate.zarr"
        self.program = shutil.copy(BIN, directory)
        for name in ["dev", "tmp", "mnt"]:
            (self.at / name).mkdir()

    def start(self, *words, **options):
        """Starts `zarrfs exec`."""
        return self.start_program(self.program, "exec", *map(str, words), **options)

    def start_shell(self, script, *words, **options):
        return self.start_program("sh", "-c", script, *words, **options)

    def start_program(self, *words, setup=MACHINE, env=None, **options):
        """Starts a program in a mount namespace with another /dev/fuse."""
        command = machines.words(self.at, *words, setup=setup)
        variables = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        variables |= {"TMPDIR": str(self.at / "tmp"), "HOME": str(self.at), **(env or {})}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(command, text=True, env=variables, **{**pipes, **options})

    def run(self, *words, code=0, **options):
        """What the program prints, if it ends with `code`."""
        process = self.start(*words, **options)
        said, failed = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, f"exit code {process.returncode}: {failed}"
        self.said = failed.strip()
        return said

    def processes(self):
        """The processes of the program, by number."""
        return machines.processes(self.program)

    def server(self):
        """The process that serves the mount: it leads a session of its own."""
        [server] = [pid for pid in self.processes() if os.getsid(pid) == pid]
        return server

    def is_clean(self):
        """Whether nothing is left: no process, no directory, no mount that others see."""
        left = [path for path in (self.at / "tmp").iterdir() if "zarrfs" in path.name]
        hidden = str(self.at) not in Path("/proc/mounts").read_text()
        return not self.processes() and not left and hidden

    def array(self, name):
        return zarr.open_array(self.store / name, mode="r")[:]


@pytest.fixture
def machine():
    if os.geteuid() != 0:
        pytest.skip("only root can make a machine with another /dev/fuse")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        machine = Machine(directory)
        group = zarr.create_group(machine.store)
        group.create_array("t2m", data=np.arange(24, dtype="f4").reshape(4, 6), chunks=(2, 3), dimension_names=["y", "x"])
        group.create_array("packed", data=np.zeros((8, 8), "i4"), chunks=(2, 8), shards=(8, 8))
        subprocess.run(["chown", "-R", f"{USER}:{USER}", directory], check=True)
        try:
            yield machine
            assert wait_until(machine.is_clean), f"left: {machine.processes()}, {os.listdir(machine.at / 'tmp')}"
        finally:
            machines.end(machine.program, directory)


def test_a_command_reads_the_views_as_the_same_user_with_no_capability(machine):
    assert "float t2m(y, x)" in machine.run(machine.store, "--", "ncdump", "-h", "{}/__root__.nc")
    assert machine.run(machine.store, "--", "id", "-u") == f"{USER}\n"
    assert machine.run(machine.store, "--", "id", "-g") == f"{USER}\n"
    status = machine.run(machine.store, "--", "cat", "/proc/self/status")
    assert re.findall(r"Cap(?:Prm|Eff|Amb):\s+(\d+)", status) == ["0" * 16] * 3


def test_the_mountpoint_is_in_the_words_and_in_a_variable(machine):
    said = machine.run(machine.store, "--", "sh", "-c", 'test "$ZARRFS" = {} && ls $ZARRFS')
    assert said.split() == ["packed", "t2m", "zarr.json"]


def test_a_directory_can_be_named_and_nobody_else_sees_the_mount(machine):
    script = f"ls {machine.at}/mnt; grep -c '{machine.at}/mnt fuse.zarrfs' /proc/self/mounts; sleep 1"
    process = machine.start(machine.store, "-m", machine.at / "mnt", "--", "sh", "-c", script)
    assert [process.stdout.readline().strip() for _ in range(4)] == ["packed", "t2m", "zarr.json", "1"]
    assert os.listdir(machine.at / "mnt") == []
    assert str(machine.at / "mnt") not in Path("/proc/mounts").read_text()
    assert process.wait(PATIENCE) == 0, process.stderr.read()
    process.communicate()


def test_what_a_command_writes_is_in_the_store_when_it_ends(machine):
    script = "cat t2m/c/0/1 > new; mv new t2m/c/1/1; mkdir fresh; cp -r t2m copied"
    machine.run(machine.store, "--", "sh", "-c", f"cd {{}}; {script}")
    written = machine.array("t2m")
    assert np.array_equal(written[2:, 3:], written[:2, 3:])
    assert np.array_equal(machine.array("copied"), written)
    assert dict(zarr.open_group(machine.store / "fresh", mode="r").attrs) == {}


def test_mapped_pages_are_in_the_store_when_the_command_ends(machine):
    program = "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); m[:4]=b'\\x00\\x00\\x80\\x3f'"
    machine.run(machine.store, "--", "/usr/bin/python3", "-c", program, "{}/t2m/c/0/0")
    assert machine.array("t2m")[0, 0] == 1.0


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("false", 1), ("exit 77", 77), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_the_exit_code_is_that_of_the_command(machine, script, code):
    machine.run(machine.store, "--", "sh", "-c", script, code=code)
    assert machine.said == ""


def test_a_command_that_cannot_run_has_the_exit_codes_of_a_shell(machine):
    machine.run(machine.store, "--", "no-such-program", code=127, env={"PATH": "/usr/bin:/bin"})
    assert machine.said == "zarrfs: no-such-program: No such file or directory (os error 2)"
    machine.run(machine.store, "--", "/etc/passwd", code=126)
    assert machine.said == "zarrfs: /etc/passwd: Permission denied (os error 13)"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["missing.zarr", "--", "true"], 1, "missing.zarr: no such directory; use --create"),
        (["{store}", "-m", "missing", "--", "true"], 1, "missing: the mountpoint does not exist"),
        (["{store}", "-m", "{store}", "--", "true"], 1, "the mountpoint is not empty"),
        (["{store}", "-o", "strange", "--", "true"], 2, "-o strange: unknown option; see zarrfs exec --help"),
        (["{store}", "-o", "uid=0", "--", "true"], 2, "-o uid and gid: with exec, all files belong to the user"),
        (["{store}"], 2, "COMMAND"),
        (["{store}", "--"], 2, "COMMAND"),
        (["{store}", "true"], 2, "unexpected argument 'true'"),
    ],
)
def test_wrong_words_get_one_sentence(machine, words, code, said):
    words = [word.format(store=machine.store) for word in words]
    machine.run(*words, code=code)
    assert said in machine.said


def test_options_of_mount_and_a_new_hierarchy_are_taken(machine):
    machine.run("new.zarr", "--create", "-o", "shards=1K,writeback=all", "--", "mkdir", "{}/group")
    assert (machine.at / "tmp/new.zarr/group/zarr.json").exists()
    machine.run(machine.store, "-o", "ro", "--", "mkdir", "{}/group", code=1)
    assert "Read-only file system" in machine.said


def test_pipes_have_nothing_but_the_bytes_of_the_command(machine):
    process = machine.start(machine.store, "--", "cat", stdin=subprocess.PIPE)
    said, _ = process.communicate("from the pipe", timeout=PATIENCE)
    assert (said, process.returncode) == ("from the pipe", 0)


@pytest.mark.parametrize(
    "use",
    ["cd {}", "exec 9<{}/t2m/c/0/0", "true"],
    ids=["working directory", "open file", "nothing"],
)
def test_a_program_that_is_left_behind_gets_an_error_and_keeps_nothing(machine, use):
    begun, go, said = (machine.at / "tmp" / name for name in ("begun", "go", "said"))
    left = f"cd /; {use}; : >{begun}; while [ ! -e {go} ]; do sleep 0.05; done; ls {{}}/t2m; ls t2m; echo $?"
    script = f"({left}) >{said} 2>&1 </dev/null & while [ ! -e {begun} ]; do sleep 0.05; done"
    machine.run(machine.store, "--", "sh", "-c", script)
    # The program that is left behind still waits.
    assert wait_until(machine.is_clean)
    go.touch()
    assert wait_until(lambda: said.read_text().endswith("2\n"))
    assert "Transport endpoint" in said.read_text() or "No such file" in said.read_text()


def test_a_signal_reaches_the_command_and_its_answer_counts(machine):
    script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    process = machine.start(machine.store, "--", "sh", "-c", script)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 5


def test_a_command_that_ignores_a_signal_goes_on(machine):
    script = "trap '' TERM; echo ready; sleep 1; ls {}; exit 7"
    process = machine.start(machine.store, "--", "sh", "-c", script)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE)
    assert (said.split(), process.returncode) == (["packed", "t2m", "zarr.json"], 7)


def terminal(machine, script):
    """Starts a command in a terminal of its own. Returns the process and the other end."""
    ours, theirs = os.openpty()
    process = machine.start(
        machine.store, "--", "sh", "-c", script,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    return process, ours


def read_until(terminal, text):
    said = b""
    while text not in said:
        said += os.read(terminal, 1000)
    return said.decode()


def test_control_c_is_for_the_command_and_what_it_wrote_is_stored(machine):
    script = "trap 'cp {}/t2m/c/0/0 {}/t2m/c/1/0; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    process, ours = terminal(machine, script)
    read_until(ours, b"ready")
    os.write(ours, b"\x03")
    assert process.wait(PATIENCE) == 9
    assert np.array_equal(machine.array("t2m")[2:, :3], machine.array("t2m")[:2, :3])
    os.close(ours)


def test_control_c_ends_a_command_that_does_not_expect_it(machine):
    process, ours = terminal(machine, "echo ready; sleep 20")
    read_until(ours, b"ready")
    os.write(ours, b"\x03")
    assert process.wait(PATIENCE) == 128 + signal.SIGINT
    os.close(ours)


def test_signals_for_all_processes_of_a_job_leave_the_mount_to_the_command(machine):
    script = "echo ready; read go; cp {}/t2m/c/0/0 {}/t2m/c/1/0; exit 7"
    process = machine.start(machine.store, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    server = machine.server()
    for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]:
        os.kill(server, number)
    time.sleep(0.3)
    process.communicate("go\n", timeout=PATIENCE)
    assert process.returncode == 7
    assert np.array_equal(machine.array("t2m")[2:, :3], machine.array("t2m")[:2, :3])
    assert wait_until(lambda: not is_alive(server))


class Shell:
    """An interactive bash with job control in a terminal of its own."""

    PROMPT = "prompt> "

    def __init__(self, machine):
        self.ours, theirs = os.openpty()
        self.process = machine.start_program(
            "bash", "--norc", "--noprofile", "--noediting", "-i",
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env={"PS1": self.PROMPT, "TERM": "dumb"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.said = ""
        self.until(self.PROMPT)
        self.group = os.tcgetpgrp(self.ours)

    def until(self, pattern):
        """What comes up to the pattern, and that. It is looked for in what has not been returned yet."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.said)):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.ours], [], [], left)[0], f"{pattern!r} did not come: {self.said!r}"
            self.said += os.read(self.ours, 1000).decode()
        said, self.said = self.said[: found.end()], self.said[found.end() :]
        return said

    def type(self, text):
        os.write(self.ours, text.encode())

    def stop(self):
        """Types Control-Z when a job runs in the foreground: bash says that it continues a job before it does."""

        def runs():
            group = os.tcgetpgrp(self.ours)
            return group != self.group and "T" not in states(group)

        assert wait_until(runs)
        group = os.tcgetpgrp(self.ours)
        self.type("\x1a")
        self.until(r"\[1\]\+ +Stopped ")
        self.until(self.PROMPT)
        # bash waits for its own child only. Another process of the job may still take what is typed.
        assert wait_until(lambda: not {"R", "S"} & set(states(group)))

    def run(self, line):
        """What a line prints before the next prompt."""
        self.type(line + "\n")
        self.until(re.escape(line) + "\r?\n")
        return self.until(self.PROMPT).removesuffix(self.PROMPT)

    def end(self):
        self.type("exit 0\n")
        assert self.process.wait(PATIENCE) == 0
        os.close(self.ours)


@pytest.mark.parametrize("join", ["", "--join "], ids=["alone", "joined"])
def test_control_z_stops_the_command_and_fg_continues_it(machine, join):
    shell = Shell(machine)
    command = f"{machine.program} exec {join}{machine.store} -- sh -c 'echo started; read word; cat {{}}/$word'"
    shell.type(command + "\n")
    shell.until("\r\nstarted\r\n")
    for _ in range(2):
        shell.stop()
        said = shell.run("jobs")
        assert re.search(r"\[1\]\+ +Stopped ", said), (said, shell.said)
        assert "here" in shell.run("echo he''re")
        shell.type("fg\n")
        shell.until("exec [^\n]*\n")
    shell.type("zarr.json\n")
    assert '"node_type": "group"' in shell.until(shell.PROMPT)
    assert shell.run("jobs") == ""
    shell.end()


def test_a_stopped_command_goes_on_in_the_background_and_can_be_ended(machine):
    shell = Shell(machine)
    command = f"{machine.program} exec {machine.store} -- sh -c 'echo started; while [ ! -e go ]; do sleep 0.05; done; cp {{}}/t2m/c/0/0 {{}}/t2m/c/1/0'"
    shell.type(command + "\n")
    shell.until("\r\nstarted\r\n")
    shell.stop()
    shell.run("bg")
    (machine.at / "tmp/go").touch()
    assert shell.run("wait %1; echo code=$?").endswith("code=0\r\n")
    assert np.array_equal(machine.array("t2m")[2:, :3], machine.array("t2m")[:2, :3])
    shell.type(f"{machine.program} exec {machine.store} -- sleep 100\n")
    assert wait_until(lambda: len(machine.processes()) == 2)
    assert wait_until(lambda: any("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid in children(machine.processes())))
    shell.stop()
    said = shell.run("kill %1")
    # bash continues a stopped job that it ends, and says before a prompt how it ended.
    assert wait_until(lambda: not machine.processes())
    for _ in range(20):
        said += shell.run("sleep 0.1")
    assert re.search("Exit 143|Terminated", said), said
    shell.end()


def test_a_shell_as_the_command_has_job_control_of_its_own(machine):
    shell = Shell(machine)
    shell.type(f"{machine.program} exec {machine.store} -- bash --norc --noprofile --noediting -i\n")
    shell.until("bash[^\n]*\n")
    shell.until(shell.PROMPT)
    shell.type("(echo go; read word; cat $ZARRFS/$word)\n")
    shell.until("\r\ngo\r\n")
    shell.type("\x1a")
    shell.until("Stopped ")
    shell.until(shell.PROMPT)
    assert "Stopped " in shell.run("jobs")
    shell.type("fg\n")
    shell.until("echo go[^\n]*\n")
    shell.type("t2m/zarr.json\n")
    assert '"float32"' in shell.until(shell.PROMPT)
    # This ends the inner shell.
    assert "code=7" in shell.run("exit 7") + shell.run("echo code=$?")
    shell.end()


def stats():
    """The state, the parent and the group of each process."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                state, parent, group = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
                yield int(entry.name), state, int(parent), int(group)


def states(wanted):
    """The states of the processes of a group."""
    return [state for _, state, _, group in stats() if group == wanted]


def children(pids):
    """The processes whose parent is one of these."""
    return [pid for pid, _, parent, _ in stats() if parent in pids]


def test_allow_other_lets_a_command_of_root_run_as_another_user(machine):
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "ls", "{}"]
    variables = {**os.environ, "TMPDIR": str(machine.at / "tmp")}

    def run(*options):
        words = [machine.program, "exec", machine.store, *options, "--", *command]
        return subprocess.run(words, capture_output=True, text=True, env=variables, timeout=PATIENCE)

    assert run("-o", "allow_other").stdout.split() == ["packed", "t2m", "zarr.json"]
    refused = run()
    assert (refused.returncode, refused.stdout) == (2, "") and "Permission denied" in refused.stderr
    # A user has no others to allow, and needs no permission to say so.
    assert machine.run(machine.store, "-o", "allow_other", "--", "ls", "{}").split() == ["packed", "t2m", "zarr.json"]
    assert machine.said == ""


def test_a_killed_server_is_an_error_for_the_command_and_for_the_user(machine):
    script = "echo ready; read go; ls {}/t2m; cat {}/t2m/c/0/0; true"
    process = machine.start(machine.store, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    os.kill(machine.server(), signal.SIGKILL)
    _, said = process.communicate("go\n", timeout=PATIENCE)
    assert process.returncode == 1
    # The first call learns that the connection has just been cut, or that a dying thread had taken it.
    assert re.search("connection abort|Input/output error|endpoint is not connected", said.splitlines()[0])
    assert len(re.findall("connection abort|endpoint is not connected", said.split("\n", 1)[1])) == 1
    assert "zarrfs: the mount ended before the command" in said
    assert np.array_equal(machine.array("t2m"), np.arange(24, dtype="f4").reshape(4, 6))


def test_a_killed_exec_leaves_nothing_but_the_command_which_gets_errors(machine):
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    script = f"cp {{}}/t2m/c/0/0 {{}}/t2m/c/1/0; echo ready; {wait}; ls {{}}/t2m; echo $?"
    process = machine.start(machine.store, "--", "sh", "-c", script)
    assert process.stdout.readline() == "ready\n"
    server = machine.server()
    [task] = [pid for pid in machine.processes() if pid != server]
    os.kill(task, signal.SIGKILL)
    assert wait_until(machine.is_clean), machine.processes()
    (machine.at / "tmp/go").touch()
    assert process.stdout.readline() == "2\n"
    process.communicate()
    assert np.array_equal(machine.array("t2m")[2:, :3], machine.array("t2m")[:2, :3])


def test_two_write_different_chunks_of_one_shard(machine):
    script = "mkdir -p {{}}/packed/c/{0}; for i in 1 2 3 4 5; do head -c 64 /dev/zero | tr '\\0' '\\{0}' >{{}}/packed/c/{0}/0; done"
    processes = [machine.start(machine.store, "--", "sh", "-c", script.format(n)) for n in range(1, 4)]
    for process in processes:
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    expected = np.repeat(np.array([0, 1, 2, 3], "i4") * 0x01010101, 16).reshape(8, 8)
    assert np.array_equal(machine.array("packed"), expected)


def test_sixteen_that_join_have_one_server_and_the_store_has_what_each_wrote(machine):
    wait = "while [ ! -e go$0 ]; do sleep 0.05; done"
    task = f"mkdir -p {{}}/packed/c/$0; head -c 64 /dev/zero | tr '\\0' '\\1' >{{}}/packed/c/$0/0; ls {{}}; {wait}; ls {{}}"
    start = f"{machine.program} exec --join {machine.store} -o writeback=all -- sh -c \"$0\" $((i % 4)) || exit 1 &"
    script = f"i=0; while [ $i -lt 16 ]; do {start} i=$((i + 1)); done; for i in $(jobs -p); do wait $i || exit 3; done"
    process = machine.start_shell(script, task)
    assert [process.stdout.readline().strip() for _ in range(48)].count("packed") == 16
    server = machine.server()
    assert len(machine.processes()) == 17
    # A quarter of them ends, the one that came first as well.
    (machine.at / "tmp/go0").touch()
    assert [process.stdout.readline().strip() for _ in range(12)].count("packed") == 4
    assert wait_until(lambda: len(machine.processes()) == 13)
    assert machine.server() == server
    for number in range(1, 4):
        (machine.at / f"tmp/go{number}").touch()
    assert [process.stdout.readline().strip() for _ in range(36)].count("packed") == 12
    _, failed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, failed
    assert (machine.array("packed") == 0x01010101).all()


def test_a_join_after_the_last_task_begins_again(machine):
    join = f"{machine.program} exec --join {machine.store} -- "
    script = f"for i in 1 2 3 4 5 6; do {join} sh -c 'cp {{}}/t2m/c/0/0 {{}}/t2m/c/1/0 && ls {{}}' || exit 1; done"
    process = machine.start_shell(script)
    said, failed = process.communicate(timeout=PATIENCE)
    assert (said.count("t2m"), process.returncode) == (6, 0), failed


def test_the_others_go_on_when_the_first_that_joined_is_killed(machine):
    join = f"{machine.program} exec --join {machine.store} -- sh -c"
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    script = f"{join} 'echo first; : >begun; {wait}' & while [ ! -e begun ]; do sleep 0.05; done; "
    script += f"{join} 'echo second; {wait}; cp {{}}/t2m/c/0/0 {{}}/t2m/c/1/0'"
    process = machine.start_shell(script)
    assert [process.stdout.readline().strip() for _ in range(2)] == ["first", "second"]
    server = machine.server()
    first = min(pid for pid in machine.processes() if pid != server)
    os.kill(first, signal.SIGKILL)
    time.sleep(0.2)
    assert machine.server() == server
    (machine.at / "tmp/go").touch()
    _, failed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, failed
    assert np.array_equal(machine.array("t2m")[2:, :3], machine.array("t2m")[:2, :3])


SMALL_DISK = MACHINE + """
mkdir disk
mount -t tmpfs -o size=256k none disk
cp -r climate.zarr disk
chown -R {user}:{user} disk
dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || true
""".format(user=USER)


@pytest.mark.parametrize("rescue", [False, True], ids=["lost", "rescued"])
def test_what_cannot_be_stored_is_named_and_the_exit_code_is_1(machine, rescue):
    options = ["--rescue", "saved"] if rescue else []
    script = "mkdir -p {}/packed/c/1; head -c 64 /dev/urandom >{}/packed/c/1/0"
    store = machine.at / "disk/climate.zarr"
    machine.run(store, "-o", "writeback=all", *options, "--", "sh", "-c", script, setup=SMALL_DISK, code=1)
    said = machine.said.splitlines()[-1]
    assert said.startswith("zarrfs: not everything is stored: packed/c/0/0: No space left on device; "), said
    assert said.endswith(f"saved in {machine.at}/tmp/saved: packed/c/1/0" if rescue else "unstored: packed/c/1/0")
    saved = machine.at / "tmp/saved/packed/c/1/0"
    assert saved.exists() == rescue
    if rescue:
        assert len(saved.read_bytes()) == 64
        shutil.rmtree(machine.at / "tmp/saved")


# Runs a program that may not make the system calls of some numbers (x86-64).
FILTER = """
import ctypes, os, struct, sys
numbers = [int(word) for word in sys.argv[1].split(",")]
load = struct.pack("HBBI", 0x20, 0, 0, 0)
refuse = b"".join(struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 0x06, 0, 0, 0x00050001) for number in numbers)
code = ctypes.create_string_buffer(load + refuse + struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 2 + 2 * len(numbers), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""
UNSHARE, MOUNT = 272, 165
SETTING = MACHINE + "\nmount -t tmpfs none /proc/sys/kernel; echo {1} >/proc/sys/kernel/{0}"
# As root without capabilities in a user namespace, whose limits can be set without harm to others.
LIMITED = """
exec unshare --user --map-root-user --mount sh -c '
echo 0 >/proc/sys/user/max_user_namespaces
TMPDIR=/tmp exec setpriv --inh-caps=-all --bounding-set=-all "$@"' sh "$@"
"""
CHROOT = MACHINE + f'\nmkdir root; mount --rbind / root; exec chroot root {AS_USER} "$@"'


@pytest.mark.parametrize(
    ("setup", "forbidden", "said"),
    [
        ("mount -t tmpfs none /dev", (), "/dev/fuse: missing, so nothing can be mounted; load the kernel module"),
        (MACHINE + "chmod 600 dev/fuse", (), "/dev/fuse: permission denied, so nothing can be mounted"),
        (MACHINE.replace("229", "250"), (), "/dev/fuse: the kernel module fuse is not loaded"),
        (LIMITED, (), "/proc/sys/user/max_user_namespaces: the limit is reached, and a private mount"),
        (
            SETTING.format("unprivileged_userns_clone", 0),
            (UNSHARE,),
            "/proc/sys/kernel/unprivileged_userns_clone: only root may create user namespaces",
        ),
        (
            SETTING.format("apparmor_restrict_unprivileged_userns", 1),
            (UNSHARE,),
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns: only programs with an AppArmor profile",
        ),
        (MACHINE, (UNSHARE,), "a seccomp filter forbids private mounts, as in most containers; start the container with"),
        (MACHINE, (MOUNT,), "a seccomp filter forbids private mounts, as in most containers; start the container with"),
        (CHROOT, (), "the system refuses a user namespace, and a private mount needs one; in a chroot nobody gets one"),
    ],
    ids=["no device", "no access", "no module", "limit", "debian", "apparmor", "unshare", "mount", "chroot"],
)
def test_each_cause_of_a_refusal_is_named_with_its_remedy(machine, setup, forbidden, said):
    words = [machine.program, "exec", str(machine.store), "--", "true"]
    if forbidden:
        words = ["/usr/bin/python3", "-c", FILTER, ",".join(map(str, forbidden)), *words]
    process = machine.start_program(*words, setup=setup)
    _, failed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, failed
    assert said in failed
    assert len(failed.splitlines()) == 1 and failed.startswith("zarrfs: ")


def test_a_join_that_fails_leaves_nothing(machine):
    machine.run("--join", "missing.zarr", "--", "true", code=1)
    assert "missing.zarr: no such directory" in machine.said
    assert os.listdir(machine.at / "tmp") == []
