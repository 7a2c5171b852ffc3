#!/bin/bash
# The recipes of docs/platforms.md, with the programs that they are for: Samba, Slurm, Open MPI,
# Docker, Podman, Jupyter, JupyterHub and SSH. For Debian, as root.
#
#   scripts/recipes.sh [arguments for pytest]
#   ZARRFS_BIN: the program to test [default: it is built]
#
# It installs these programs. Those of Debian stay installed, but their services are not started.
# Everything runs in namespaces of the tests, so that no process, mount, user or setting outlives
# it. It takes about 3 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'scripts/recipes.sh: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "must run as root: it starts daemons in namespaces"
[ -c /dev/fuse ] || fail "/dev/fuse is missing, so nothing can be mounted"

work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-recipes.XXXXXX")
policy=
cleanup() {
    code=$?
    trap '' INT TERM HUP
    [ -z "${tests:-}" ] || { kill "$tests" && wait "$tests"; } 2> /dev/null || true
    [ -z "$policy" ] || rm -f "$policy"
    # If the tests were killed, their worlds end a moment later, and leave these.
    local world group
    for world in "$work"/pytest/zarrfs-world-*; do
        for group in /sys/fs/cgroup/"${world##*/}" /sys/fs/cgroup/*/"${world##*/}"; do
            for _ in {1..100}; do
                [ -d "$group" ] || break
                find "$group" -depth -type d -exec rmdir {} \; 2> /dev/null || true
                sleep 0.1
            done
        done
    done
    rm -rf --one-file-system "$work"
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

packages=()
need() { command -v "$1" > /dev/null || packages+=("$2"); }
need fusermount3 fuse3
need curl curl
need ip iproute2
need smbd samba
need smbclient smbclient
need slurmctld slurmctld
need slurmd slurmd
need srun slurm-client
need munged munge
need mpirun openmpi-bin
need dockerd docker.io
need podman podman
need runc runc
need newuidmap uidmap
need sshd openssh-server
need ssh openssh-client
need node nodejs
need npm npm
python3 -c 'import ensurepip, venv' 2> /dev/null || packages+=(python3-venv)
if [ ${#packages[@]} -gt 0 ]; then
    echo "installing: ${packages[*]}"
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod 755 "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    install=(apt-get install -y -q --no-install-recommends "${packages[@]}")
    "${install[@]}" > "$work/apt.log" 2>&1 ||
        { apt-get update -q >> "$work/apt.log" 2>&1 && "${install[@]}" >> "$work/apt.log" 2>&1; } ||
        { cat "$work/apt.log" >&2; fail "apt-get could not install: ${packages[*]}"; }
fi

cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
python=$(scripts/environment recipes tests/peers/requirements-recipes.txt)
proxy=configurable-http-proxy@5.3.0
if [ "$(cat "$cache/recipes/zarrfs-proxy" 2> /dev/null)" != "$proxy" ]; then
    npm install --silent --no-package-lock --prefix "$cache/recipes" "$proxy"
    echo "$proxy" > "$cache/recipes/zarrfs-proxy"
fi
if [ -z "${ZARRFS_BIN:-}" ]; then
    cargo build --locked -q
    target=$(cargo metadata --format-version 1 --no-deps |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    ZARRFS_BIN=$target/debug/zarrfs
fi
mkdir "$work/pytest"
# The conftest of the other tests needs their environment.
ZARRFS_BIN=$(realpath "$ZARRFS_BIN")
export ZARRFS_BIN ZARRFS_RECIPES=$cache/recipes PYTHONPYCACHEPREFIX=$cache/pycache TMPDIR=$work/pytest
options=(-v --noconftest --tb=short -p no:cacheprovider)
timeout --kill-after=30 1800 "$python" -m pytest "${options[@]}" tests/peers/test_platforms.py "$@" &
tests=$!
code=0
wait "$tests" || code=$?
tests=
exit "$code"
