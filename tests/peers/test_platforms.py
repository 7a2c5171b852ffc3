"""The recipes of docs/platforms.md, with the programs that they are for: Samba, Slurm, MPI, Podman, Docker, Jupyter,
JupyterHub and SSH. `scripts/recipes.sh` installs these programs, and runs this."""

import os
import re
from pathlib import Path

import pytest

from mounts import wait_until
from worlds import World

# The Python environment with Jupyter and mpi4py, and the programs of npm.
RECIPES = os.environ.get("ZARRFS_RECIPES")
pytestmark = pytest.mark.skipif(not RECIPES, reason="scripts/recipes.sh installs the programs that this needs, and runs it")

ROOT = Path(__file__).parents[2]
PYTHON = f"{RECIPES}/bin/python"


@pytest.fixture
def world():
    world = World()
    try:
        yield world
        unmount(world)
        assert wait_until(lambda: world.left() == "", 10), f"left:\n{world.left()}"
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
    return world.run('zarrfs exec climate.zarr -o ro -- sh -c "$1"', script, user="anna").split()[::2]


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
    world.run("cp smb.conf /etc/samba/smb.conf; mkdir -p /run/samba; printf 'secret\\nsecret\\n' | smbpasswd -s -a anna")
    options = "ro,allow_other" if read_only == "yes" else "allow_other"
    world.run(f"zarrfs mount climate.zarr mnt -o {options}", user="anna")
    world.start("exec smbd --foreground --debug-stdout --no-process-group")
    world.until("smbclient -U anna%secret //localhost/climate -c ls")


def smb(world, *commands):
    return world.run('smbclient -U anna%secret //localhost/climate -c "$1"', ";".join(commands))


def test_samba_shows_what_the_mount_shows(world):
    share(world, "yes")
    world.run("mkdir got")
    smb(world, "lcd got", "recurse", "prompt", "mget *", "recurse", "get __root__.nc", "get t2m.npy")
    world.run("cmp got/__root__.nc mnt/__root__.nc; cmp got/t2m.npy mnt/t2m.npy; rm got/__root__.nc got/t2m.npy; diff -r mnt got")
    assert "2592" in smb(world, "ls t2m\\c\\0\\0\\0")


def test_names_that_are_listed_have_any_case_over_samba(world):
    share(world, "yes")
    assert "zarr.json" in smb(world, "cd T2M", "ls")
    said = world.run("smbclient -U anna%secret //localhost/climate -c 'get T2M.npy'", code=1)
    assert "NT_STATUS_OBJECT_NAME_NOT_FOUND" in said


def test_nothing_can_be_written_over_samba_if_the_share_is_read_only(world):
    share(world, "yes")
    said = world.run("smbclient -U anna%secret //localhost/climate -c 'put smb.conf note.txt'", code=1)
    assert "NT_STATUS_ACCESS_DENIED" in said


def test_samba_writes_a_chunk_and_refuses_one_of_another_size(world):
    share(world, "no")
    before = chunks(world, 2)
    world.run("cp mnt/t2m/c/0/0/0 chunk; head -c 100 chunk > short")
    smb(world, "put chunk t2m\\c\\1\\0\\0", "put smb.conf note.txt", "rename note.txt other.txt")
    said = world.run("smbclient -U anna%secret //localhost/climate -c 'put short t2m\\c\\1\\0\\0'", code=1)
    assert "NT_STATUS_INVALID_PARAMETER" in said
    assert "100 bytes written, the chunk has 2592" in world.run("cat mnt/.zarrfs/errors")
    assert "NT_STATUS_OBJECT_NAME_NOT_FOUND" in world.run(
        "smbclient -U anna%secret //localhost/climate -c 'put smb.conf .DS_Store'", code=1
    )
    # Samba keeps its attributes of files nowhere, so that none is refused.
    assert "user.DOSATTRIB" not in world.run("cat mnt/.zarrfs/errors")
    unmount(world)
    assert (world.at / "climate.zarr/other.txt").read_bytes() == (world.at / "smb.conf").read_bytes()
    assert chunks(world, 2) == before[:1] * 2


# --- Slurm

SLURM = """
ClusterName=test
SlurmctldHost=node(10.1.1.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
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


@pytest.fixture
def cluster(world):
    """A cluster of one node with four CPUs."""
    (world.at / "slurm.conf").write_text(SLURM)
    world.run("""
        mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd /run/munge /etc/munge
        cp slurm.conf /etc/slurm
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
    before = chunks(cluster, 6)
    job = cluster.run("cd work; sbatch --parsable job", user="anna").strip()
    cluster.until("[ $(grep -c started work/output) = 2 ]")
    # What Slurm sends 60 seconds before the time limit.
    cluster.run(f"scancel --signal=USR1 {job}", user="anna")
    cluster.until("[ $(grep -c saved work/output) -ge 2 ]")
    cluster.run(f"scancel {job}", user="anna")
    cluster.until("[ -z $(squeue -h) ]")
    assert wait_until(lambda: cluster.left() == "", 10), cluster.left()
    assert chunks(cluster, 6) == before[:1] * 5 + before[5:]


# --- MPI

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
    run = "cd work; mpirun --oversubscribe -n 4 zarrfs exec --join /mnt/climate.zarr -o ro -- ./program {}"
    same_mount(world.run(run, user="anna"), expected)


def test_ranks_of_mpi4py_read_a_view_and_write_chunks(world):
    write(world, "sums.py", SUMS)
    expected = chunks(world, 5)
    run = f"cd work; mpirun --oversubscribe -n 4 zarrfs exec --join /mnt/climate.zarr -- {PYTHON} sums.py {{}}"
    assert len(re.findall("rank . of 4", world.run(run, user="anna"))) == 4
    assert chunks(world, 5) == expected[:1] * 4 + expected[4:]
