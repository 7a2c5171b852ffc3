"""The mount of an ordinary user, whose daemon may not do all that root may: each script prints there what it prints in a plain directory."""

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
import zarr
from mounts import BIN, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs of several users")

USER, OTHER, SHARED, FOREIGN = 65534, 5002, 5001, 5003

# As root, in a mount namespace with a device for everyone. `user` runs a command as the user who mounts, `other` as another one.
SETUP = f"""
mount --make-rprivate /
mount --bind "$W/fuse" /dev/fuse
export LC_ALL=C
user() {{ setpriv --reuid={USER} --regid={USER} --groups={USER},{SHARED} env HOME="$W/home" "$@"; }}
other() {{ setpriv --reuid={OTHER} --regid={OTHER} --groups={OTHER},{SHARED} "$@"; }}
export -f user other
"""


class Places:
    """A store that a user mounts at `m`, and a plain directory. A test works in `g/d` of both."""

    def __init__(self, work):
        self.work = work
        for name in ("s/g/d", "plain/g/d", "m", "home"):
            (work / name).mkdir(parents=True)
        for group in ("s", "s/g"):
            (work / group / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
        os.mknod(work / "fuse", stat.S_IFCHR | 0o666, os.makedev(10, 229))
        (work / "fuse").chmod(0o666)
        shutil.copy(BIN, work / "zarrfs")
        for path in (work, *work.rglob("*")):
            os.chown(path, USER, USER)
        work.chmod(0o755)

    def run(self, script):
        done = subprocess.run(
            ["nice", "unshare", "--mount", "bash", "-c", SETUP + script],
            env={**os.environ, "W": str(self.work)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def both(self, script, prepare=":"):
        """What `script` prints in the mount and in the plain directory. `prepare` is run by root in both stores before."""
        marks = ["== in the mount", "== in the plain directory"]
        printed = self.run(f"""
        set -e
        for place in s plain; do (cd "$W/$place/g/d"; {prepare}); done
        cd "$W"
        user ./zarrfs mount s m
        (cd /; echo "{marks[0]}"; user bash -c 'cd "$W/m/g/d"; STORE="$W/s/g/d"; exec 2>&1; {script}' || true)
        (cd /; echo "{marks[1]}"; user bash -c 'cd "$W/plain/g/d"; STORE="$W/plain/g/d"; exec 2>&1; {script}' || true)
        user ./zarrfs umount m || {{ user cat m/.zarrfs/errors; umount -l m; exit 1; }}
        """)
        _, _, printed = printed.partition(marks[0])
        mounted, _, plain = printed.partition(marks[1])
        assert mounted.strip() == plain.strip()
        return mounted


@pytest.fixture
def places():
    work = Path(tempfile.mkdtemp(dir="/tmp", prefix="zarrfs-test-user-"))
    try:
        yield Places(work)
    finally:
        subprocess.run(["chattr", "-R", "-f", "-i", "-a", work / "s", work / "plain"])  # Links and pipes have no attributes.
        # A daemon ends a moment after its mount.
        assert wait_until(lambda: shutil.rmtree(work, ignore_errors=True) or not work.exists())


def test_a_scratch_file_keeps_its_mode_group_and_attributes_when_it_is_stored(places):
    printed = places.both(f"""
        for f in plain:644 ro:444 wo:200 none:000 suid:4755 sgid:2755 rosuid:4555; do
            for how in rename sync wait; do
                mode=${{f#*:}} name=${{f%:*}}.$how
                echo text > $name.tmp
                setfattr -n user.q -v $name $name.tmp
                chgrp {SHARED} $name.tmp
                chmod $mode $name.tmp
                case $how in
                    rename) mv $name.tmp $name;;
                    sync) sync $name.tmp || sync .; mv $name.tmp $name;;
                    wait) sync -f .; mv $name.tmp $name;;
                esac
                stat -c "%n %a %g %s" $name $STORE/$name
                getfattr --only-values -n user.q $name
            done
        done 2>&1 | sed "s#$STORE/##; s#No such attribute#Permission denied#"
    """)
    assert "rosuid.wait 4555 5001 5" in printed


def test_a_directory_that_the_user_may_not_search_hides_nothing_around_it(places):
    printed = places.both(
        """
        cd ..
        stat -c "%n %a" d/closed d/own d/own/below
        ls d d/own; cat d/own/file d/own/below/file
        ls d/closed; cat d/closed/x; touch d/closed/y
        mkdir d/new; echo text > d/own/new; sync -f .; ls d d/own
        mkdir d/mine; chmod 0 d/mine; sync -f .; ls d/mine; stat -c %a d/mine; rmdir d/mine
        mkdir d/drop; chmod 300 d/drop; echo text > d/drop/f; cat d/drop/f; ls d/drop; rm d/drop/f; sync -f .; rmdir d/drop; ls d
        """,
        prepare=f"mkdir -p closed own/below/closed; echo text | tee own/file own/below/file > closed/x;"
        f" chown -R {USER} own; chown {OTHER} closed own/below/closed; chmod 700 closed own/below/closed",
    )
    assert "closed 700" in printed and printed.count("Permission denied") == 5, printed


def test_a_file_that_the_user_may_write_but_not_read_is_written(places):
    printed = places.both(
        """
        for f in log620 log622; do echo more >> $f && echo appended; truncate -s 3 $f && stat -c %s $f; cat $f; done
        echo x > own; chmod 200 own; echo y >> own; sync own; cat own; chmod 600 own; cat own; echo z >> own; cat own
        echo more >> append && cat append
        """,
        prepare=f"for m in 620 622; do echo old > log$m; chown {OTHER}:{SHARED} log$m; chmod $m log$m; done;"
        f" echo old > append; chown {USER} append; chattr +a append",
    )
    assert printed.count("appended") == 2 and "old\nmore" in printed


def test_no_file_is_created_where_the_store_refuses_it(places):
    printed = places.both(
        """
        for d in refused fixed; do for f in $d/plain $d/a.tmp $d/.b.XXXXXX; do echo text > $f; done; ls -A $d; done
        """,
        prepare=f"mkdir refused fixed; chown {USER} fixed; chmod 777 refused; setfacl -m u:{USER}:r-x refused; chattr +i fixed",
    )
    assert printed.count("Permission denied") == 3 and printed.count("Operation not permitted") == 3


def test_new_files_get_the_group_and_the_acl_of_their_directory(places):
    printed = places.both(
        f"""
        for d in mine foreign acl; do
            [ $d != acl ] || umask 000
            cd $d; echo text | tee plain scratch.tmp > b.tmp; mkdir made; echo text > made/c.tmp; ln -s x link; mkfifo pipe; mv b.tmp b
            [ $d = acl ] || stat -c "%n %a %g" scratch.tmp made/*
            sync scratch.tmp made/c.tmp; stat -c "%n %a %g" * made/*; cd ..
        done
        getfacl -cp $STORE/acl/plain $STORE/acl/scratch.tmp $STORE/acl/made
        umask 027; touch mine/later; stat -c "%a" mine/later
        """,
        prepare=f"mkdir mine foreign acl; chown {USER}:{SHARED} mine; chown {OTHER}:{FOREIGN} foreign; chmod 2777 mine foreign; chown {USER} acl;"
        f" setfacl -m u:{OTHER}:rwx,o::- -d -m u:{OTHER}:rwx,g::rx,o::- acl",
    )
    assert "plain 644 5001" in printed and "made 2755 5003" in printed and "other::---" in printed


def test_a_write_clears_set_user_id_bits_at_once(places):
    printed = places.both("""
        for mode in 2755 6755 4755 2750; do
            for how in append truncate; do
                echo text > f; chmod $mode f
                case $how in append) echo more >> f;; truncate) : > f;; esac
                for _ in {1..50}; do sleep 0.1; [ -n "$(find f $STORE/f -perm /6000)" ] || break; done; stat -c %a f $STORE/f
            done
        done
    """)
    assert set(printed.split()) == {"755", "750"}


def test_the_lock_of_another_user_is_named(places):
    zarr.create_array(places.work / "s/a", shape=(8,), chunks=(4,), shards=(8,), dtype="u1", compressors=None)[:] = 1
    printed = places.run(f"""
    cd "$W"
    chown -R {USER}:{SHARED} s/a; chmod 2777 s/a/c
    (umask 022; other touch s/a/c/0.__lock)
    user ./zarrfs mount s m
    user sh -c 'printf abcd > m/a/c/0; sync m/a/c/0' 2>&1
    user cat m/.zarrfs/errors
    rm s/a/c/0.__lock
    user sync m/a/c/0 && user ./zarrfs umount m && echo stored
    """)
    assert "another user is writing it, or has left its lock file, 0.__lock" in printed and printed.endswith("stored\n"), printed
    assert zarr.open_array(places.work / "s/a")[:].tolist() == [97, 98, 99, 100, 1, 1, 1, 1]


def test_what_is_written_before_a_directory_becomes_read_only_is_stored(places):
    printed = places.both("""
        mkdir -p ../src/ro; cd ../src; echo text | tee ro/x.tmp ro/y.partial > ro/z; chmod 555 ro; tar -cf ../s.tar .; cd ../d
        mkdir tar rs fd; cp -a ../src cp; tar -C tar -xf ../s.tar; rsync -a --inplace ../src/ rs/
        exec 5> fd/w.tmp; echo text >&5; chmod 555 fd; sync fd/w.tmp; echo more >&5; exec 5>&-
        for d in cp/ro tar/ro rs/ro fd; do (cd $STORE/$d; pwd | sed "s#$STORE##"; tail -n 9 *); done
        mkdir -m 555 empty; mkdir -m 000 none; stat -c "%n %a" empty none
    """)
    assert printed.count("text") == 10 and "more" in printed


@pytest.mark.parametrize("options", ["", "--writeback=all", "--shards 64"])
def test_a_copy_of_a_read_only_hierarchy_is_whole(places, options):
    group = zarr.create_group(places.work / "source")
    group.create_array("p", shape=(50,), chunks=(10,), dtype="i4", compressors=None)[:40] = 5
    group.create_array("q", shape=(50, 50), chunks=(10, 10), dtype="i4", compressors=None)[:40, :40] = 6
    group.create_array("r", shape=(50,), chunks=(10,), dtype="i4")[:40] = 7
    places.run(f"""
    set -e
    cd "$W"
    chown -R {USER} source; chmod -R a-w source; tar -C source -cf s.tar .
    user ./zarrfs mount s m {options}
    user bash -c 'cd m && rsync -a ../source/ rsync && mkdir tar && tar -C tar -xf ../s.tar'
    # cp takes the names in the order in which the directory has them.
    for a in p q r; do user mkdir -p m/cp/$a; user cp -a source/$a/c source/$a/zarr.json m/cp/$a; user chmod a-w m/cp/$a; done
    user ./zarrfs umount m || {{ user cat m/.zarrfs/errors; umount -l m; exit 1; }}
    """)
    for name in ("rsync", "tar", "cp"):
        for array, total in (("p", 200), ("q", 9600), ("r", 280)):
            assert zarr.open_array(places.work / "s" / name / array, mode="r")[:].sum() == total, (name, array)
            assert not os.stat(places.work / "s" / name / array).st_mode & 0o222


@pytest.mark.parametrize("how", ["shard", "file"])
def test_a_limit_of_the_length_of_files_does_not_end_the_mount(places, how):
    zarr.create_array(places.work / "s/a", shape=(50_000,), chunks=(2_000,), shards=(50_000,), dtype="u1", compressors=None)
    write = {
        "shard": "for n in {0..24}; do head -c 2000 /dev/urandom > m/a/c/$n; done; sync m/a/c/3",
        "file": "head -c 30000 /dev/zero > m/g/d/long",
    }[how]
    printed = places.run(f"""
    cd "$W"
    chown -R {USER} s/a
    user bash -c 'ulimit -S -f 20; exec ./zarrfs mount s m'
    user bash -c 'echo important > m/g/d/small.tmp; mkdir -p m/a/c; {write}' 2>&1
    user cat m/g/d/small.tmp
    user ./zarrfs umount m || umount m
    cat s/g/d/small.tmp
    """)
    assert "File too large" in printed and printed.count("important") == 2
