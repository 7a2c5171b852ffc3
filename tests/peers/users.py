"""Users of a mount: what a system call says to each of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

# The owner of files, a user of their group, and another one.
OWNER, MEMBER, OTHER = 7101, 7102, 7103
GROUP = 7100
USERS = {"owner": (OWNER, [GROUP]), "member of the group": (MEMBER, [GROUP]), "other": (OTHER, []), "root": (0, [])}

# Becomes a user. Python itself may lie where no other user gets to, so it is started before.
BECOME = """
import ctypes, errno, json, os, sys
uid, *groups = map(int, sys.argv[1].split(","))
os.setgroups(groups)
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
"""
PROGRAM = BECOME + """
def read(path):
    with open(path, "rb") as file:
        return file.read(200_000).hex()
def write(path):
    with open(path, "r+b") as file:
        file.write(b"x")
def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
def truncate(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
def attributes(path):
    return {name: os.getxattr(path, name).decode("latin1") for name in os.listxattr(path)}
def rename(path):
    os.rename(path, path + ".renamed")
def link(path):
    os.link(path, path + ".linked")
CALLS = {
    "read": read, "write": write, "create": create, "truncate": truncate, "attributes": attributes, "rename": rename, "link": link,
    "list": lambda path: sorted(os.listdir(path)), "stat": lambda path: oct(os.lstat(path).st_mode), "names": lambda path: os.listxattr(path),
    "remove": os.unlink, "rmdir": os.rmdir, "mkdir": os.mkdir, "enter": os.chdir, "execute": lambda path: os.access(path, os.X_OK) or 1 / 0,
    "chmod": lambda path: os.chmod(path, os.stat(path).st_mode & 0o777), "times": os.utime,
    "chown": lambda path: os.chown(path, os.stat(path).st_uid, -1), "set": lambda path: os.setxattr(path, "user.note", b"1"),
    "symlink": lambda path: os.symlink("x", path), "fifo": os.mkfifo, "move": lambda both: os.rename(*both), "copy": lambda both: os.link(*both),
}
said = []
for call, path in json.load(sys.stdin):
    try:
        said.append(["ok", CALLS[call](path)])
    except OSError as error:
        said.append([errno.errorcode[error.errno], None])
    except ZeroDivisionError:
        said.append(["EACCES", None])
json.dump(said, sys.stdout)
"""


def program(user, text):
    """The command that runs a program, which begins with `BECOME`, as a user."""
    uid, groups = USERS[user]
    return [sys.executable, "-S", "-c", text, ",".join(map(str, [uid, *groups]))]


def ask(user, calls):
    """What a user gets from `calls`, each a name of `PROGRAM` and a path: "ok" or the errno, and what was returned."""
    text = json.dumps([[call, [str(one) for one in path] if isinstance(path, tuple) else str(path)] for call, path in calls])
    done = subprocess.run(program(user, PROGRAM), input=text, capture_output=True, text=True, cwd="/", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def errors(user, calls):
    return [said for said, _ in ask(user, calls)]


def let_in(path):
    """Lets all users get to a directory of a test."""
    for above in (path, *Path(path).parents):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(0o755)


def give(path, mode, uid=OWNER, gid=GROUP):
    """The mode last: a change of the owner clears bits."""
    os.chown(path, uid, gid)
    os.chmod(path, mode)
