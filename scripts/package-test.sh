#!/bin/bash
# Shows the packages of scripts/package.sh in fresh Debian systems: installs, uses, upgrades and removes them, also
# while hierarchies are mounted, and starts the service in a systemd that boots. For Debian, as root, with a network.
#
#   scripts/package-test.sh             build the packages if they are missing, and test them
#   scripts/package-test.sh PART...     only these parts: debian12 systemd debian13
#   scripts/package-test.sh --keep ...  keep the trees for a look, and name their directory
#
# Fresh trees are kept in ${ZARRFS_TEST_CACHE:-~/.cache/zarrfs-tests}. Everything runs in namespaces of this script, so
# that no mount and no process outlives it.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'scripts/package-test.sh: %s\n' "$*" >&2; exit 1; }

keep= parts=()
for argument in "$@"; do
    case $argument in
        --keep) keep=yes ;;
        debian12 | systemd | debian13) parts+=("$argument") ;;
        *) fail "unknown argument: $argument" ;;
    esac
done
if [ ${#parts[@]} = 0 ]; then parts=(debian12 systemd debian13); fi
[ "$(id -u)" = 0 ] || fail "must run as root: it makes trees of Debian"
[ -c /dev/fuse ] || fail "/dev/fuse is missing, so nothing can be mounted"
root=$PWD
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
packages=$root/target/packages

if [ -z "${ZARRFS_PACKAGE_TEST:-}" ]; then
    missing=()
    need() { command -v "$1" > /dev/null || missing+=("$2"); }
    need debootstrap debootstrap
    need lintian lintian
    need mandoc mandoc
    need rpm rpm
    need systemd-nspawn systemd-container
    need objdump binutils
    if [ ${#missing[@]} -gt 0 ]; then
        echo "installing: ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q > /dev/null
        apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null
    fi
    compgen -G "$packages/*.deb" > /dev/null || scripts/package.sh --no-publish
    work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-packages.XXXXXX")
    # A control group of its own, which systemd in the test may divide.
    groups=()
    for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        if [ -e "$hierarchy/cgroup.procs" ]; then groups+=("$hierarchy/zarrfs-packages-$$"); fi
    done
    cleanup() {
        code=$?
        trap '' INT TERM HUP
        # All processes below end with the first one of their namespace, and all mounts with the last one.
        [ -z "${inner:-}" ] || { kill "$inner" && wait "$inner"; } 2> /dev/null || true
        if [ -n "$keep" ]; then echo "kept: $work"; else rm -rf --one-file-system "$work"; fi
        local group below
        for group in "${groups[@]}"; do
            [ ! -d "$group" ] || find "$group" -depth -type d | while read -r below; do
                for _ in {1..20}; do rmdir "$below" 2> /dev/null && break; sleep 0.1; done
            done
        done
        exit "$code"
    }
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    if [ ${#groups[@]} -gt 0 ]; then mkdir "${groups[@]}"; fi
    # shellcheck disable=SC2016
    ZARRFS_PACKAGE_TEST=$work unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
        /bin/bash -c 'for group in $1; do echo 0 > "$group/cgroup.procs"; done; exec /bin/bash "${@:2}"' - \
        "${groups[*]}" "$root/scripts/package-test.sh" "${parts[@]}" &
    inner=$!
    code=0
    wait "$inner" || code=$?
    inner=
    exit "$code"
fi

# --- From here on, in the namespaces.
work=$ZARRFS_PACKAGE_TEST
deb=$(echo "$packages"/*.deb) rpm=$(echo "$packages"/*.rpm) archive=$(echo "$packages"/*.tar.gz)
for package in "$deb" "$rpm" "$archive"; do
    [ -e "$package" ] || fail "$packages must hold one .deb, one .rpm and one .tar.gz"
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)

# Unpacks a fresh tree of a release of Debian as $work/NAME.
mirror=${ZARRFS_DEBIAN_MIRROR:-http://deb.debian.org/debian}
fresh() {
    local release=$1 name=$2 kept=$cache/debian-$1.tar
    if [ ! -e "$kept" ]; then
        echo "debootstrap $release into $kept"
        rm -rf "$work/bootstrap"
        debootstrap --variant=minbase --include=systemd-sysv,dbus,man-db,bash-completion,ca-certificates,attr \
            "$release" "$work/bootstrap" "$mirror" > "$work/debootstrap.log" 2>&1 ||
            { tail -n 20 "$work/debootstrap.log" >&2; fail "debootstrap $release failed"; }
        tar -C "$work/bootstrap" -cf "$kept.part" .
        mv "$kept.part" "$kept"
        rm -rf "$work/bootstrap"
    fi
    tree=$work/$name
    mkdir "$tree"
    tar -C "$tree" -xpf "$kept"
    printf '#!/bin/sh\nexit 101\n' > "$tree/usr/sbin/policy-rc.d"
    chmod 755 "$tree/usr/sbin/policy-rc.d"
    cp /etc/resolv.conf "$tree/etc/resolv.conf"
    cp "$deb" "$tree/zarrfs.deb"
    mkdir "$tree/data"
    cp -R "$root/tests/fixtures/z316__shard_end/store" "$tree/data/a.zarr"
}
# The mounts that programs in a tree need.
enter() {
    mount --bind "$tree" "$tree"
    mount -t proc proc "$tree/proc"
    mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
    mkdir "$tree/dev/pts" "$tree/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$tree/dev/pts"
    ln -s pts/ptmx "$tree/dev/ptmx"
    ln -s /proc/self/fd "$tree/dev/fd"
    mknod -m 666 "$tree/dev/null" c 1 3
    mknod -m 666 "$tree/dev/zero" c 1 5
    mknod -m 666 "$tree/dev/full" c 1 7
    mknod -m 666 "$tree/dev/random" c 1 8
    mknod -m 666 "$tree/dev/urandom" c 1 9
    mknod -m 666 "$tree/dev/tty" c 5 0
    mknod -m 666 "$tree/dev/fuse" c 10 229
    # A user with a hierarchy and a mountpoint.
    chroot "$tree" useradd -m -s /bin/bash anna
    cp -R "$tree/data/a.zarr" "$tree/home/anna/a.zarr"
    mkdir "$tree/home/anna/mnt" "$tree/mnt/climate"
    chroot "$tree" chown -R anna: /home/anna
}
# In a script, `! command` does not end it.
not='not() { ! "$@"; }; '
# Runs a script in the tree as root or as the user, with standard error in its output.
as_root() { chroot "$tree" /usr/bin/env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/bash -euc "$not$1" 2>&1; }
as_anna() { chroot --userspec=anna:anna "$tree" /usr/bin/env -i HOME=/home/anna USER=anna TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/home/anna/.local/bin:/usr/bin:/bin /bin/bash -euc "${not}cd; $1" 2>&1; }
# Fails unless a text has a part.
has() { [[ $1 == *"$2"* ]] || fail "expected «$2» in:
$1"; }
has_not() { [[ $1 != *"$2"* ]] || fail "expected no «$2» in:
$1"; }
# Every file of the tree with its contents, except what apt, dpkg and man-db keep about themselves.
contents() {
    (cd "$tree" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/log -o -path ./var/cache \
        -o -path ./zarrfs.deb -o -path ./data -o -path ./home -o -path ./mnt -o -path ./tmp -o -path ./run \) -prune -o \
        \( -type f -printf '%p %m %s ' -exec sha256sum {} \; -o -printf '%p %y %m %l\n' \) | sort)
}
# Waits until the store has a file, which a daemon stores after the unmount.
stored() {
    local _
    for _ in {1..50}; do [ -e "$tree/$1" ] && return; sleep 0.1; done
    fail "$1 is not stored"
}
use='zarrfs mount SOURCE DIR; test -e DIR/c/0; head -c 0 DIR/__root__.npy; printf x > DIR/NOTE; zarrfs umount DIR'
used() { local words=${use//SOURCE/$1}; words=${words//DIR/$2}; echo "${words//NOTE/$3}"; }

say "the packages"
scripts/glibc "$root/target/x86_64-unknown-linux-gnu/dist/zarrfs" 2.28
lintian -I --pedantic --allow-root --fail-on error,warning,info,pedantic "$deb"
echo "lintian reports nothing"
has "$(dpkg-deb -f "$deb" Depends)" "libc6 (>= 2.28)"
has "$(dpkg-deb -f "$deb" Recommends)" "fuse3"
has "$(dpkg-deb -c "$deb")" "./usr/sbin/mount.zarrfs -> ../bin/zarrfs"
has "$(rpm -qp --requires "$rpm" 2> /dev/null)" "libc.so.6(GLIBC_2.28)(64bit)"
has "$(rpm -qp --recommends "$rpm" 2> /dev/null)" "fuse3"

debian12() {
say "Debian 12, by dpkg, without fuse3"
fresh bookworm dpkg
enter
before=$(contents)
text=$(as_root "dpkg -i /zarrfs.deb")
has "$text" "only root can mount, because fusermount3 is missing: apt-get install fuse3"
has "$(as_root "zarrfs --version")" "zarrfs $version"
as_root "$(used /data/a.zarr /mnt/climate first.txt)"
stored data/a.zarr/first.txt
has "$(as_anna "zarrfs mount a.zarr mnt && echo mounted || true")" "fuse3"
text=$(as_root "dpkg --purge zarrfs")
has_not "$text" "warning"
diff <(echo "$before") <(contents) || fail "the package leaves these traces"
echo "installs, mounts for root, names fuse3, and leaves no trace"

say "Debian 12, by apt"
text=$(as_root "apt-get update -q && apt-get install -y -q /zarrfs.deb")
has "$text" "Setting up fuse3"
has_not "$text" "fusermount3 is missing"
as_root "$(used /data/a.zarr /mnt/climate second.txt)"
stored data/a.zarr/second.txt
as_root "echo '/data/a.zarr /mnt/climate zarrfs ro,nofail 0 0' >> /etc/fstab; mount /mnt/climate
    findmnt -n -t fuse.zarrfs /mnt/climate; test -e /mnt/climate/c/0; umount /mnt/climate
    mount -t fuse.zarrfs -o ro /data/a.zarr /mnt/climate; umount /mnt/climate"
as_anna "$(used a.zarr mnt note.txt)"
stored home/anna/a.zarr/note.txt
as_anna "zarrfs mount a.zarr mnt; printf y > mnt/other.txt; fusermount3 -u mnt"
stored home/anna/a.zarr/other.txt
echo "mounts for root, for fstab and for a user"
for page in zarrfs zarrfs-mount zarrfs-formats mount.zarrfs mount.fuse.zarrfs; do
    has "$(as_anna "man -P cat $page" | head -n 5)" NAME
done
has "$(as_anna "man -P cat mount.fuse.zarrfs")" "mount.zarrfs SOURCE DIR"
has "$(as_anna "man -P cat zarrfs-tree")" "zarrfs $version"
echo "man pages are found"
# A terminal, on which a user types, and Tab.
typed() { as_anna "printf '%b' '$1' | script -qc 'bash -i' /dev/null"; }
text=$(typed '. /usr/share/bash-completion/bash_completion\nzarrfs compl\t bash | head -n 1\nexit\n')
has "$text" "_zarrfs() {"
as_root "apt-get install -y -q --no-install-recommends fish zsh > /dev/null"
has "$(as_anna "fish -c 'complete -C \"zarrfs umo\"'")" "umount"
has "$(as_anna "zsh -fc 'autoload -Uz compinit; compinit -D; echo \$_comps[zarrfs]'")" "_zarrfs"
echo "completions are found by bash, fish and zsh"
as_root "apt-get install -y -q --no-install-recommends apparmor > /dev/null; test ! -e /etc/apparmor.d/zarrfs
    not apparmor_parser -QTK /usr/share/zarrfs/apparmor 2> /dev/null"
echo "AppArmor 3, which does not know the rule, gets no profile"

say "an upgrade and a removal while hierarchies are mounted"
as_root "zarrfs mount /data/a.zarr /mnt/climate"
as_anna "zarrfs mount a.zarr mnt"
daemons() { as_root "pidof zarrfs" | tr ' ' '\n' | sort; }
running=$(daemons)
[ "$(wc -l <<< "$running")" -ge 2 ] || fail "expected two daemons, found: $running"
dpkg-deb -R "$deb" "$work/newer"
sed -i 's/^Version: .*/&.1/' "$work/newer/DEBIAN/control"
dpkg-deb -b "$work/newer" "$tree/newer.deb" > /dev/null
text=$(as_root "dpkg -i /newer.deb")
has "$text" "use the old version until they are unmounted"
has "$text" "/mnt/climate"
has "$text" "/home/anna/mnt"
as_anna "printf 1 > mnt/upgraded.txt; cat mnt/upgraded.txt > /dev/null"
text=$(as_root "dpkg --purge zarrfs")
has "$text" "stay until they are unmounted"
has "$text" "/home/anna/mnt"
[ "$(daemons)" = "$running" ] || fail "the daemons were $running, and are $(daemons)"
as_anna "cat mnt/upgraded.txt > /dev/null; printf 2 > mnt/removed.txt; fusermount3 -u mnt"
as_root "printf 3 > /mnt/climate/removed.txt; umount /mnt/climate"
for name in home/anna/a.zarr/upgraded.txt home/anna/a.zarr/removed.txt data/a.zarr/removed.txt; do stored "$name"; done
for _ in {1..50}; do [ -n "$(as_root "pidof zarrfs || true")" ] || break; sleep 0.1; done
[ -z "$(as_root "pidof zarrfs || true")" ] || fail "a daemon runs without its mount"
as_root "test ! -e /usr/bin/zarrfs; test ! -e /usr/share/doc/zarrfs; not ls -d /etc/*zarrfs* 2> /dev/null"
echo "the mounts go on, and store what is written to them"

say "the archive in ~/.local"
cp "$archive" "$tree/archive.tar.gz"
as_anna "mkdir -p .local; tar -xzf /archive.tar.gz --strip-components=1 -C .local"
has "$(as_anna "zarrfs --version; command -v zarrfs")" "/home/anna/.local/bin/zarrfs"
as_anna "$(used a.zarr mnt local.txt)"
stored home/anna/a.zarr/local.txt
has "$(as_anna "man -P cat zarrfs-mount" | head -n 5)" NAME
text=$(typed '. /usr/share/bash-completion/bash_completion\nzarrfs compl\t bash | head -n 1\nexit\n')
has "$text" "_zarrfs() {"
as_anna "rm -r .local"

say "the rpm"
# In a tree of Debian, with its database of rpm in a place of its own.
cp "$rpm" "$tree/zarrfs.rpm"
rpm --root "$tree" --dbpath /tmp/rpm -i --nodeps /zarrfs.rpm 2> "$work/rpm.log" ||
    rpm --root "$tree" --dbpath /tmp/rpm -i --nodeps "$rpm" 2> "$work/rpm.log" || { cat "$work/rpm.log" >&2; exit 1; }
has "$(as_root "rm -f /etc/fstab; zarrfs --version")" "zarrfs $version"
as_root "mount -t zarrfs /data/a.zarr /mnt/climate; test -e /mnt/climate/c/0; umount /mnt/climate"
has "$(as_root "mount.zarrfs 2>&1 || true")" "usage: mount.zarrfs"
rpm --root "$tree" --dbpath /tmp/rpm -e zarrfs
as_root "test ! -e /usr/bin/zarrfs; test ! -e /usr/sbin/mount.zarrfs"
echo "installs (with --nodeps), mounts, and is removed"
}

systemd() {

say "systemd, booted in Debian 12"
fresh bookworm boot
cp "$deb" "$tree/zarrfs.deb"
mkdir -p "$tree/mnt/climate" "$tree/etc/zarrfs"
as_root "dpkg -i /zarrfs.deb > /dev/null"
rm "$tree/usr/sbin/policy-rc.d"
echo 'SOURCE=/data/a.zarr' > "$tree/etc/zarrfs/mnt-climate.conf"
# A change that waits in memory, so that stopping must store it.
echo 'OPTIONS=-o writeback-delay=3600' >> "$tree/etc/zarrfs/mnt-climate.conf"
autofs=()
if [ -c /dev/autofs ]; then autofs=(--bind=/dev/autofs); fi
systemd-nspawn --quiet --directory="$tree" --register=no --keep-unit --bind=/dev/fuse "${autofs[@]}" --console=pipe --boot \
    < /dev/null > "$work/boot.log" 2>&1 &
nspawn=$!
leader=
for _ in {1..100}; do
    leader=$(pgrep -P "$nspawn" -f systemd || true)
    [ -z "$leader" ] || [ ! -S "/proc/$leader/root/run/systemd/private" ] || break
    sleep 0.2
done
[ -n "$leader" ] || { cat "$work/boot.log" >&2; fail "systemd does not boot"; }
inside() { timeout 60 nsenter -t "$leader" -a -- setsid -w /bin/bash -euc "$not$1" 2>&1; }
state=$(inside "systemctl is-system-running --wait || true")
echo "systemd: $state"
inside "systemctl start zarrfs@mnt-climate.service" || { inside "journalctl -u zarrfs@mnt-climate -n 20" >&2; fail "the service does not start"; }
has "$(inside "systemctl show -p ActiveState -p SubState -p NotifyAccess zarrfs@mnt-climate")" "ActiveState=active"
has "$(inside "findmnt -n -t fuse.zarrfs -o SOURCE /mnt/climate")" "/data/a.zarr"
sum() { (cd "$tree/data/a.zarr" && find . -type f ! -path './.zarrfs/*' -exec sha256sum {} + | sort | sha256sum); }
old=$(sum)
inside "chunk=\$(find /mnt/climate/c -type f | sort | head -n 1)
    printf abcd | dd of=\$chunk conv=notrunc status=none; head -c 4 \$chunk > /pending; stat -c %n \$chunk > /chunk"
[ "$(sum)" = "$old" ] || fail "the change was stored at once, so that stopping stores nothing"
inside "systemctl stop zarrfs@mnt-climate.service"
[ "$(sum)" != "$old" ] || fail "stopping the service did not store the pending change"
has "$(inside "systemctl show -p Result zarrfs@mnt-climate")" "Result=success"
inside "not mountpoint -q /mnt/climate"
inside "systemctl start zarrfs@mnt-climate.service; head -c 4 \$(cat /chunk) | cmp - /pending; printf abcd | cmp - /pending"
# A daemon that is killed comes back by itself.
old=$(inside "systemctl show -p MainPID --value zarrfs@mnt-climate")
inside "kill -9 $old"
for _ in {1..150}; do
    now=$(inside "systemctl show -p MainPID --value zarrfs@mnt-climate")
    [ "$now" = "$old" ] || [ "$now" = 0 ] || break
    sleep 0.2
done
inside "for _ in {1..50}; do systemctl is-active -q zarrfs@mnt-climate && break; sleep 0.2; done; test -e \$(cat /chunk)" ||
    { inside "journalctl -u zarrfs@mnt-climate -n 20" >&2; fail "the service does not come back after kill -9"; }
# The package goes while its service runs: the mount stays until the service is stopped.
has "$(inside "dpkg --purge zarrfs")" "/mnt/climate"
inside "test -e \$(cat /chunk); systemctl stop zarrfs@mnt-climate.service; not mountpoint -q /mnt/climate"
# The examples: a mount unit, and one that mounts on demand.
inside "dpkg -i /zarrfs.deb > /dev/null; cp /usr/share/doc/zarrfs/examples/mnt-climate.* /etc/systemd/system/
    sed -i s,/data/climate.zarr,/data/a.zarr, /etc/systemd/system/mnt-climate.mount
    systemctl daemon-reload; systemctl start mnt-climate.mount; findmnt -n -t fuse.zarrfs /mnt/climate > /dev/null
    test -e \$(cat /chunk); systemctl stop mnt-climate.mount; not mountpoint -q /mnt/climate"
if grep -qw autofs /proc/filesystems; then
    inside "systemctl start mnt-climate.automount; not findmnt -n -t fuse.zarrfs /mnt/climate > /dev/null
        test -e \$(cat /chunk); findmnt -n -t fuse.zarrfs /mnt/climate > /dev/null
        systemctl stop mnt-climate.automount mnt-climate.mount"
else
    echo "not shown: the automount unit, because this kernel has no autofs"
fi
kill -s RTMIN+3 "$leader"
wait "$nspawn" || true
echo "the service starts, stops with its changes stored, comes back after a kill; the examples mount"
}

debian13() {
say "Debian 13, with AppArmor 4"
fresh trixie trixie
enter
before=$(contents)
as_root "dpkg -i /zarrfs.deb > /dev/null; test ! -e /etc/apparmor.d/zarrfs"
as_root "dpkg --purge zarrfs > /dev/null"
diff <(echo "$before") <(contents) || fail "the package leaves these traces"
as_root "dpkg -i /zarrfs.deb; apt-get update -q; apt-get install -y -q --no-install-recommends apparmor fuse3" > /dev/null
as_root "cmp /usr/share/zarrfs/apparmor /etc/apparmor.d/zarrfs; apparmor_parser -QTK /etc/apparmor.d/zarrfs"
as_anna "$(used a.zarr mnt note.txt)"
stored home/anna/a.zarr/note.txt
as_root "dpkg --purge zarrfs > /dev/null; test ! -e /etc/apparmor.d/zarrfs"
echo "the profile comes with AppArmor, is accepted by it, and goes with the package"
}

for part in "${parts[@]}"; do "$part"; done
say "all packages work"
