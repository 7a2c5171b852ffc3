"""The recipes of docs/platforms.md, with the programs that they are for: Samba, Slurm, MPI, Docker,
Podman, Jupyter, JupyterHub and SSH. `scripts/recipes.sh` installs these programs, and runs this."""

import os
import re
from pathlib import Path

import pytest

from mounts import wait_until
from worlds import World

# The Python environment with Jupyter and mpi4py, and the programs of npm.
RECIPES = os.environ.get("ZARRFS_RECIPES")
pytestmark = pytest.mark.skipif(
    not RECIPES, reason="scripts/recipes.sh installs what this needs, and runs it"
)

ROOT = Path(__file__).parents[2]
PYTHON = f"{RECIPES}/bin/python"


@pytest.fixture
def world():
    world = World()
    try:
        yield world
        unmount(world)
        assert wait_until(lambda: world.left() == ""), f"left:\n{world.left()}"
    finally:
        world.end()


def unmount(world):
    """Unmounts what a test has mounted on /mnt/mnt."""
    if "/mnt/mnt fuse.zarrfs" in world.run("cat /proc/self/mounts"):
        # A server may close its last file a moment after its client.
        world.until("zarrfs umount mnt", user="anna")


def chunks(world, count):
    """Hashes of the first chunks of t2m in the store, which another mount shows."""
    script = f"for i in $(seq 0 {count - 1}); do md5sum < {{}}/t2m/c/$i/0/0; done"
    mounted = 'zarrfs exec climate.zarr -o ro -- sh -c "$1"'
    return world.run(mounted, script, user="anna").split()[::2]


def write(world, name, text):
    """Writes a file for anna in /mnt/work, which is writable for her."""
    path = world.at / "work" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    world.run("chown -R anna: work")


# --- Samba

SMB = """
[global]
    server role = standalone server
[climate]
    path = /mnt/mnt
    read only = {read_only}
    store dos attributes = no
    veto files = /.DS_Store/._*/Thumbs.db/desktop.ini/
"""


def share(world, read_only):
    """Mounts as anna, and shares the mount."""
    (world.at / "smb.conf").write_text(SMB.format(read_only=read_only))
    world.run("cp smb.conf /etc/samba/smb.conf; mkdir -p /run/samba")
    world.run("printf 'secret\\nsecret\\n' | smbpasswd -s -a anna")
    options = "ro,allow_other" if read_only == "yes" else "allow_other"
    world.run(f"zarrfs mount climate.zarr mnt -o {options}", user="anna")
    world.start("exec smbd --foreground --debug-stdout --no-process-group")
    world.until("smbclient -U anna%secret //localhost/climate -c ls")


def smb(world, *commands, code=0):
    call = 'smbclient -U anna%secret //localhost/climate -c "$1"'
    return world.run(call, ";".join(commands), code=code)


def test_samba_shows_what_the_mount_shows(world):
    share(world, "yes")
    world.run("mkdir got")
    smb(world, "lcd got", "recurse", "prompt", "mget *")
    world.run("diff -r mnt got")
    smb(world, "get __root__.nc", "get t2m.npy")
    world.run("cmp __root__.nc mnt/__root__.nc; cmp t2m.npy mnt/t2m.npy")
    assert "2592" in smb(world, "ls t2m\\c\\0\\0\\0")


def test_names_that_are_listed_have_any_case_over_samba(world):
    share(world, "yes")
    assert "zarr.json" in smb(world, "cd T2M", "ls")
    assert "NT_STATUS_OBJECT_NAME_NOT_FOUND" in smb(world, "get T2M.npy", code=1)


def test_nothing_can_be_written_over_samba_if_the_share_is_read_only(world):
    share(world, "yes")
    assert "NT_STATUS_ACCESS_DENIED" in smb(world, "put smb.conf note.txt", code=1)


def test_samba_writes_a_chunk_and_refuses_one_of_another_size(world):
    share(world, "no")
    before = chunks(world, 2)
    world.run("cp mnt/t2m/c/0/0/0 chunk; head -c 100 chunk > short")
    smb(world, "put chunk t2m\\c\\1\\0\\0", "put smb.conf note.txt", "rename note.txt other.txt")
    assert "NT_STATUS_INVALID_PARAMETER" in smb(world, "put short t2m\\c\\1\\0\\0", code=1)
    assert "100 bytes written, the chunk has 2592" in world.run("cat mnt/.zarrfs/errors")
    assert "NT_STATUS_OBJECT_NAME_NOT_FOUND" in smb(world, "put smb.conf .DS_Store", code=1)
    # Samba keeps its attributes of files nowhere, so that none is refused.
    assert "user.DOSATTRIB" not in world.run("cat mnt/.zarrfs/errors")
    unmount(world)
    world.run("cmp climate.zarr/other.txt smb.conf")
    assert chunks(world, 2) == before[:1] * 2


# --- Slurm

SLURM = """
ClusterName=test
SlurmctldHost=node(10.1.1.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
MailProg=/bin/true
MpiDefault=none
NodeName=node NodeAddr=10.1.1.1 CPUs=4
PartitionName=all Nodes=node Default=YES State=UP
"""
# Each prints the mount, and its chunk.
TASK = """#!/bin/sh
set -e
echo task $1 $(stat -c %d $1) $(md5sum < $1/t2m/c/${SLURM_PROCID:-$OMPI_COMM_WORLD_RANK}/0/0)
pgrep -c zarrfs > /dev/null
sleep 1
"""


@pytest.fixture(params=["linuxproc", "cgroup"])
def cluster(request, world):
    """A cluster of one node with four CPUs."""
    if request.param == "cgroup" and not Path("/sys/fs/cgroup/freezer").exists():
        pytest.skip("needs control groups of version 1: with version 2, Slurm needs systemd")
    (world.at / "slurm.conf").write_text(SLURM.format(proctrack=request.param))
    groups = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"
    (world.at / "cgroup.conf").write_text(groups)
    world.run("""
        mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd /run/munge /etc/munge
        cp slurm.conf cgroup.conf /etc/slurm
        head -c 1024 /dev/urandom > /etc/munge/munge.key
        chmod 400 /etc/munge/munge.key
        chown munge: /run/munge /etc/munge/munge.key /var/lib/munge /var/log/munge
    """)
    world.start("exec runuser -u munge -- munged --foreground")
    world.until("munge -n | unmunge")
    world.start("exec slurmctld -D")
    world.until("scontrol ping | grep UP")
    world.start("exec slurmd -D")
    world.until("sinfo -h -o %t | grep idle")
    write(world, "program", TASK)
    return world


def same_mount(said, expected):
    """Checks what four tasks of TASK print: one mount, and all chunks."""
    tasks = [line.split()[1:] for line in said.splitlines() if line.startswith("task ")]
    assert len(tasks) == 4, said
    assert len({(path, device) for path, device, *_ in tasks}) == 1, said
    assert sorted(task[2] for task in tasks) == sorted(expected), said


def test_tasks_of_a_step_of_slurm_share_a_mount(cluster):
    expected = chunks(cluster, 4)
    run = "cd work; srun -n 4 zarrfs exec --join /mnt/climate.zarr -o ro -- ./program {}"
    same_mount(cluster.run(run, user="anna"), expected)
    assert cluster.left() == ""


JOB = """#!/bin/sh
#SBATCH --ntasks=4 --output=output
srun zarrfs exec --join /mnt/climate.zarr -o ro -- ./program {}
"""
WRITING = """#!/bin/sh
#SBATCH --ntasks=2 --output=output --signal=USR1@60
srun zarrfs exec --join /mnt/climate.zarr -o writeback=all -- ./task {}
"""
TRAP = """#!/bin/bash
trap 'cp $1/t2m/c/0/0/0 $1/t2m/c/$((SLURM_PROCID + 3))/0/0; echo saved' USR1
trap 'sleep 1; cp $1/t2m/c/0/0/0 $1/t2m/c/$((SLURM_PROCID + 5))/0/0; exit' TERM
cp $1/t2m/c/0/0/0 $1/t2m/c/$((SLURM_PROCID + 1))/0/0
echo started
while :; do sleep 0.1; done
"""


def test_a_job_of_slurm_reads_a_mount_and_leaves_nothing(cluster):
    write(cluster, "job", JOB)
    expected = chunks(cluster, 4)
    same_mount(cluster.run("cd work; sbatch --wait job; cat output", user="anna"), expected)
    assert cluster.left() == ""


def test_scancel_leaves_nothing_and_the_store_has_what_was_written(cluster):
    write(cluster, "job", WRITING)
    write(cluster, "task", TRAP)
    before = chunks(cluster, 8)
    job = cluster.run("cd work; sbatch --parsable job", user="anna").strip()
    cluster.until("[ $(grep -c started work/output) = 2 ]")
    # What Slurm sends 60 seconds before the time limit.
    cluster.run(f"scancel --signal=USR1 {job}", user="anna")
    cluster.until("[ $(grep -c saved work/output) -ge 2 ]")
    cluster.run(f"scancel {job}", user="anna")
    cluster.until("[ -z $(squeue -h) ]")
    assert wait_until(lambda: cluster.left() == ""), cluster.left()
    # With proctrack/linuxproc, SIGTERM also goes to the process that serves the mount.
    assert chunks(cluster, 8)[:7] == before[:1] * 7


# --- MPI

MPIRUN = "cd work; mpirun --oversubscribe -n 4"
SUMS = """
import sys

import numpy
from mpi4py import MPI

world, path = MPI.COMM_WORLD, sys.argv[1]
values = numpy.load(f"{path}/t2m.npy", mmap_mode="r")
part = world.allreduce(float(numpy.nansum(values[world.rank :: world.size], dtype="f8")))
assert numpy.isclose(part, numpy.nansum(values, dtype="f8")), part
world.Barrier()
chunk = open(f"{path}/t2m/c/0/0/0", "rb").read()
world.Barrier()
with open(f"{path}/t2m/c/{world.rank}/0/0", "r+b") as file:
    file.write(chunk)
print("rank", world.rank, "of", world.size)
"""


def test_ranks_of_mpi_share_a_mount(world):
    write(world, "program", TASK)
    expected = chunks(world, 4)
    run = f"{MPIRUN} zarrfs exec --join /mnt/climate.zarr -o ro -- ./program {{}}"
    same_mount(world.run(run, user="anna"), expected)


def test_ranks_of_mpi4py_read_a_view_and_write_chunks(world):
    write(world, "sums.py", SUMS)
    expected = chunks(world, 5)
    run = f"{MPIRUN} zarrfs exec --join /mnt/climate.zarr -- {PYTHON} sums.py {{}}"
    assert len(re.findall("rank . of 4", world.run(run, user="anna"))) == 4
    assert chunks(world, 5) == expected[:1] * 4 + expected[4:]


# --- Containers

# An image that holds zarrfs, fusermount3 and a shell, for root and the user with the number 1000.
IMAGE = r"""
mkdir -p image/usr/bin
(cd image; mkdir bin data dev etc proc run sys tmp)
chmod 1777 image/tmp
for program in sh ls cat mkdir cmp fusermount3 zarrfs; do
    file=$(readlink -f "$(command -v $program)")
    cp -p "$file" image/usr/bin/$program
    ldd "$file" | grep -o '/[^ ]*' | xargs -I LIBRARY cp -L --parents LIBRARY image
done
cp image/usr/bin/sh image/bin
printf 'root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/tmp:/bin/sh\n' > image/etc/passwd
cp -r climate.zarr image/data
tar -C image --owner=0 --group=0 --mode=a+rwX -cf image.tar .
chmod 644 image.tar
"""
MOUNT = "cd /tmp; mkdir mnt && zarrfs mount /data/climate.zarr mnt && ls mnt && zarrfs umount mnt"
EXEC = "zarrfs exec /data/climate.zarr -o ro -- ls {}"
LISTING = "lat\nlon\nt2m\ntime\nzarr.json\n"
FORBIDDEN = "mounting is not permitted; fusermount3 must belong to root"


STORAGE = """
[storage]
driver = "overlay"
graphroot = "/mnt/{user}/containers"
runroot = "/run/user/{user}/containers"
"""
CONTAINERS = """
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
"""


class Engine:
    """An engine for containers, and the user who calls it."""

    def __init__(self, world, name):
        self.world = world
        self.program, _, rootless = name.partition(" ")
        self.user = "anna" if rootless else "root"
        self.env = {"XDG_RUNTIME_DIR": "/run/user/anna"} if rootless else {}
        world.run(IMAGE)
        if self.program == "docker":
            # There is no network, and /var is no file system for overlays.
            world.start("exec dockerd --data-root=/mnt/docker --iptables=false --bridge=none")
            world.until("docker info")
        else:
            # Of its own for each user.
            (world.at / "storage.conf").write_text(STORAGE.format(user=self.user))
            (world.at / "containers.conf").write_text(CONTAINERS)
            world.run("""
                mkdir -p /etc/containers /run/user/anna
                cp storage.conf containers.conf /etc/containers
                mkdir -p anna root
                chown anna: /run/user/anna anna
            """)
        # As systemd does it: containers see later mounts of the host.
        world.run("mount --make-rshared /")
        self.call("import /mnt/image.tar zarrfs:test")

    def call(self, words, code=0):
        return self.world.run(f"{self.program} {words}", user=self.user, env=self.env, code=code)

    def run(self, options, script, code=0):
        """What a container prints."""
        self.world.run('printf "%s" "$1" > script', script)
        words = f'run --rm --network=none {options} zarrfs:test sh -c "$(cat script)"'
        return self.call(words, code=code)


@pytest.fixture(params=["docker", "podman", "podman rootless"])
def engine(request, world):
    return Engine(world, request.param)


def test_a_container_mounts_with_the_device_and_one_capability(engine):
    device = "--device /dev/fuse"
    assert "/dev/fuse: missing" in engine.run("", MOUNT, code=1)
    assert FORBIDDEN in engine.run(device, MOUNT, code=1)
    assert FORBIDDEN in engine.run(f"{device} --security-opt seccomp=unconfined", MOUNT, code=1)
    for user in ["--user 0", "--user 1000"]:
        assert engine.run(f"{device} --cap-add SYS_ADMIN {user}", MOUNT) == LISTING
    if engine.program == "docker":
        options = f"{device} --cap-add SYS_ADMIN --user 1000 --security-opt no-new-privileges"
        assert FORBIDDEN in engine.run(options, MOUNT, code=1)


def test_a_command_in_a_container_has_a_mount_without_a_capability(engine):
    device = "--device /dev/fuse"
    assert "/dev/fuse: missing" in engine.run("", EXEC, code=1)
    for user in ["--user 0", "--user 1000"]:
        if engine.program == "docker":
            said = engine.run(f"{device} {user}", EXEC, code=1)
            assert "a seccomp filter forbids private mounts" in said
            assert engine.run(f"{device} {user} --security-opt seccomp=unconfined", EXEC) == LISTING
        else:
            assert engine.run(f"{device} {user}", EXEC) == LISTING


def test_a_container_gets_a_mount_of_the_host_as_a_volume(engine):
    engine.world.run("zarrfs mount climate.zarr mnt -o allow_other", user="anna")
    for user in ["--user 0", "--user 1000"]:
        assert engine.run(f"-v /mnt/mnt:/climate {user}", "ls /climate") == LISTING
    # Owner of the mount: anna, who is root in a container of hers.
    owner = 0 if engine.user == "anna" else engine.world.run("id -u anna").strip()
    engine.run(f"-v /mnt/mnt:/climate --user {owner}", "mkdir /climate/group")
    unmount(engine.world)
    assert (engine.world.at / "climate.zarr/group/zarr.json").exists()


def test_the_host_sees_the_mount_of_a_container_until_it_stops(world):
    engine = Engine(world, "docker")
    world.run("mkdir -p shared/climate")
    volumes = "-v /mnt/climate.zarr:/climate.zarr -v /mnt/shared:/shared:rshared"
    command = "zarrfs mount --foreground /climate.zarr /shared{} -o allow_other"
    mounting = f"run --network=none --device /dev/fuse --cap-add SYS_ADMIN {volumes} --name"
    said = engine.call(f"{mounting} refused zarrfs:test {command.format('')}", code=1)
    assert "something is already mounted there" in said
    engine.call(f"{mounting} server --detach zarrfs:test {command.format('/climate')}")
    world.until("ls shared/climate/t2m", user="anna")
    before = chunks(world, 2)
    world.run("cp shared/climate/t2m/c/0/0/0 shared/climate/t2m/c/1/0/0")
    engine.call("stop server")
    assert engine.call("inspect --format {{.State.ExitCode}} server") == "0\n"
    assert world.run("ls shared/climate") == ""
    assert chunks(world, 2) == before[:1] * 2


# --- Jupyter

JUPYTER = """
c.IdentityProvider.token = "secret"
c.ServerProxy.servers = {{
    "climate": {{
        "command": [
            "zarrfs", "serve", "/mnt/climate.zarr", "--listen=127.0.0.1:{{port}}", "--no-token",
            "--base={{base_url}}climate", "--allow-host={host}",
        ],
    }},
}}
"""
HUB = f"""
c.JupyterHub.bind_url = "http://10.1.1.1:8000"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Spawner.cmd = ["{PYTHON}", "-m", "jupyterhub.singleuser"]
c.Spawner.environment = {{"JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp"}}
c.ConfigurableHTTPProxy.command = ["{RECIPES}/node_modules/.bin/configurable-http-proxy"]
c.JupyterHub.services = [{{"name": "test", "api_token": "secret-of-the-test"}}]
c.JupyterHub.load_roles = [
    {{
        "name": "test",
        "scopes": ["admin:users", "admin:servers", "access:servers"],
        "services": ["test"],
    }},
]
"""


LOGIN = "-H 'Authorization: token secret'"


def links(page):
    return re.findall('href="([^"]*)"', page)


def shows_the_store(world, get, url):
    """Reads the pages at `url`, and compares a chunk and a view there with those of the store."""
    page = f"{get} -H 'Accept: text/html' {url}"
    assert {"zarr.json", "t2m/", "__root__.nc"} <= set(links(world.run(page)))
    assert "c/" in links(world.run(f"{page}t2m/"))
    world.run(f"{get} {url}__root__.nc > got.nc; zarrfs cat climate.zarr --as nc | cmp got.nc")
    assert world.run(f"{get} {url}t2m/c/0/0/0 | md5sum").split()[0] == chunks(world, 1)[0]
    assert world.run(f"{get} --range 1-5 {url}t2m.npy") == "NUMPY"


@pytest.fixture
def jupyter(world):
    """A Jupyter server of anna."""
    write(world, "config.py", JUPYTER.format(host="lab.example.org"))
    command = f"exec {PYTHON} -m jupyter_server --config=config.py --no-browser --port=8888"
    world.start(f"cd work; echo $$ > pid; {command}", user="anna")
    world.until(f"curl -sf {LOGIN} http://localhost:8888/api/status")
    return world


def test_jupyter_server_proxy_shows_a_server_that_was_started_by_hand(jupyter):
    command = "cd work; exec zarrfs serve /mnt/climate.zarr --base /proxy/8600 > url"
    jupyter.start(command, user="anna")
    url = jupyter.until("grep / work/url").strip()
    assert url.startswith("http://127.0.0.1:8600/proxy/8600/")
    url = url.replace(":8600/", ":8888/").replace("127.0.0.1", "localhost")
    shows_the_store(jupyter, f"curl -sfL {LOGIN}", url)
    # Without the token of Jupyter, and without that of zarrfs.
    assert "302" in jupyter.run(f"curl -sI {url}")
    assert "403" in jupyter.run(f"curl -sI {LOGIN} http://localhost:8888/proxy/8600/zarr.json")
    jupyter.run("kill $(pgrep -x zarrfs)")


def test_jupyter_server_proxy_starts_a_server_and_ends_it(jupyter):
    shows_the_store(jupyter, f"curl -sfL {LOGIN}", "http://localhost:8888/climate/")
    assert "302" in jupyter.run("curl -sI http://localhost:8888/climate/zarr.json")
    jupyter.run("kill $(cat work/pid)")


def test_users_of_jupyterhub_have_a_server_at_the_name_of_the_hub(world):
    (world.at / "hub").mkdir()
    (world.at / "hub/config.py").write_text(HUB)
    (world.at / "hub/server.py").write_text(JUPYTER.format(host="hub.example.org"))
    # The hub has tokens of its own.
    world.run("mkdir -p /etc/jupyter")
    world.run("sed /IdentityProvider/d hub/server.py > /etc/jupyter/jupyter_server_config.py")
    world.start(f"cd hub; exec {PYTHON} -m jupyterhub -f config.py")
    get = "curl -sfL -H 'Authorization: token secret-of-the-test'"
    user = "http://node:8000/hub/api/users/anna"
    world.until(f"{get} -X POST {user} || {get} {user}")
    world.run(f"{get} -X POST {user}/server")
    world.until(f"{get} {user} | grep '\"ready\": true'")
    url = "http://node:8000/user/anna/climate/"
    # As a browser says it.
    shows_the_store(world, f"{get} -H 'Host: hub.example.org'", url)
    assert "421" in world.run(f"{get} -I {url}", code=22)
    world.run(f"{get} -X DELETE {user}/server")


# --- The Python package in a notebook

NOTEBOOK = """
import nbclient, nbformat

cells = ['''
import numpy, subprocess, zarrfs
with zarrfs.mount("/mnt/climate.zarr", options="ro", private=PRIVATE) as path:
    listing = subprocess.run(["ls", path], capture_output=True).stdout
    print(numpy.load(path / "t2m.npy", mmap_mode="r").shape, listing)
''']
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, kernel_name="python3").execute()
print(notebook.cells[-1].outputs[0].text)
"""
# Interrupts a cell, and kills the kernel of another.
KERNEL = """
import os, time
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")


def start(cell):
    request = client.execute(cell)
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream" and "mounted" in message["content"]["text"]:
            return
        assert message["msg_type"] != "error", message


def is_zarrfs(name):
    try:
        return name.isdigit() and open(f"/proc/{name}/comm").read() == "zarrfs\\n"
    except OSError:
        return False


def no_process(what):
    deadline = time.time() + 60
    while left := [name for name in os.listdir("/proc") if is_zarrfs(name)]:
        assert time.time() < deadline, f"{what}: left {left}"
        time.sleep(0.05)
    print(what)


start('''
import time, zarrfs
with zarrfs.mount("/mnt/climate.zarr", private=PRIVATE) as path:
    print("mounted", list(path.iterdir()), flush=True)
    time.sleep(100)
''')
# An interrupt while the kernel prints would break its output.
time.sleep(1)
manager.interrupt_kernel()
reply = client.get_shell_msg(timeout=120)
assert reply["content"]["ename"] == "KeyboardInterrupt", reply
no_process("interrupted")
assert manager.is_alive()
start('''
mount = zarrfs.mount("/mnt/climate.zarr", private=PRIVATE)
chunk = (mount.path / "t2m/c/0/0/0").read_bytes()
(mount.path / "t2m/c/1/0/0").write_bytes(chunk)
print("mounted", flush=True)
''')
manager.shutdown_kernel(now=True)
no_process("killed")
"""


@pytest.mark.parametrize("private", [False, True], ids=["mount", "private"])
def test_a_notebook_mounts_and_an_interrupt_or_a_killed_kernel_ends_the_mount(world, private):
    write(world, "notebook.py", NOTEBOOK.replace("PRIVATE", str(private)))
    write(world, "kernel.py", KERNEL.replace("PRIVATE", str(private)))
    path = {"PYTHONPATH": str(ROOT / "python")}
    said = world.run(f"cd work; {PYTHON} notebook.py", user="anna", env=path)
    assert "(12, 36, 72) b'lat\\nlon\\nt2m\\ntime\\nzarr.json\\n'" in said
    before = chunks(world, 2)
    said = world.run(f"cd work; {PYTHON} kernel.py 2> messages", user="anna", env=path)
    assert said.split() == ["interrupted", "killed"]
    # A killed Python cannot remove the directory that it has made.
    world.run("for directory in /tmp/zarrfs-*; do [ ! -e $directory ] || rmdir $directory; done")
    assert chunks(world, 2) == before[:1] * 2


# --- SSH


def test_ssh_brings_a_server_and_ends_it(world):
    world.run("mkdir -p work /run/sshd; chown anna: work; ssh-keygen -q -t ed25519 -N '' -f host")
    # sshd refuses users without a password or a mark that they have none.
    world.run("usermod -p '*' anna")
    world.run(
        """
        mkdir -m 700 ~/.ssh
        ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
        cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
        printf 'Host server\\nHostname node\\nPort 2222\\n' > ~/.ssh/config
        echo 'StrictHostKeyChecking accept-new' >> ~/.ssh/config
    """,
        user="anna",
    )
    world.start("exec /usr/sbin/sshd -D -e -p 2222 -h /mnt/host")
    world.until("ssh server true", user="anna")
    # This machine is both sides, so the ports differ. -tt is -t without a terminal on this side.
    command = "exec ssh {} -L 8601:127.0.0.1:8600 server zarrfs serve /mnt/climate.zarr > work/url"
    for terminal, left in [("-tt", "0"), ("", "1")]:
        client = world.start(command.format(terminal), user="anna")
        url = world.until("grep / work/url").strip().replace(":8600/", ":8601/")
        shows_the_store(world, "curl -sfL", url)
        world.run("kill $(pgrep -x ssh); rm work/url")
        client.wait(120)
        world.until("! pgrep -u anna -x sshd")
        world.until(f"[ $(pgrep -c -x zarrfs) = {left} ]")
    world.run("kill $(pgrep -x zarrfs)")
