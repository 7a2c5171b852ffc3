#!/bin/bash
# Kills zarrfs, cuts the power, makes its system calls fail, lets programs write at once, compares it with a model, and
# mounts hostile hierarchies: the figures of docs/reliability.md. As root on Debian.
#
#   scripts/torture.sh [PART..]     kills, points, power, faults, races, model, copies, hostile, access [default: all]
#
# Prints a line for each part: what was tried how often, and how many tests have failed. How often it is tried is decided by
#   KILLS     random kills in each of five ways to write [40]
#   POINTS    kills before the first calls of each kind, in each case [6]
#   CUTS      power cuts in each case [2]
#   FAULTS    faults of the first calls of each kind, in each case [3]
#   SECONDS_OF_RACES, for each race [10], and SECONDS_OF_SWAPS, for each test in which links come and go [10]
#   PAIRS     pairs of hierarchies that each program copies over each other [200]
#   SEQUENCES of the models [1000], and SEQUENCES_OF_MOUNTS of those that mount [50]
# WORKERS tests run at a time [twice the processors]. If ZARRFS_LONG is empty, only some of the cases run. ZARRFS_BIN is the
# program [target/release/zarrfs, which is built].
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'scripts/torture.sh: %s\n' "$*" >&2; exit 1; }
parts=(kills points power faults races model copies hostile access)
[ $# -gt 0 ] || set -- "${parts[@]}"
for part in "$@"; do
    [[ " ${parts[*]} " == *" $part "* ]] || { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || fail "run it as root: it makes file systems and control groups"
[ -c /dev/fuse ] || fail "/dev/fuse is missing, so nothing can be mounted"
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
python=$(scripts/environment py3 tests/peers/requirements-py3.txt)
ZARRFS_PY2=$(scripts/environment py2 tests/peers/requirements-py2.txt)
packages=()
for program in strace:strace mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs setfattr:attr fusermount3:fuse3; do
    PATH=$PATH:/usr/sbin command -v "${program%:*}" > /dev/null || packages+=("${program#*:}")
done
[ ${#packages[@]} = 0 ] || apt-get install -y -q --no-install-recommends "${packages[@]}" > /dev/null
if [ -z "${ZARRFS_BIN:-}" ]; then
    cargo build --locked -q --release
    target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    export ZARRFS_BIN=$target/release/zarrfs
fi
export PATH=$PATH:/usr/sbin PYTHONPYCACHEPREFIX=$cache/pycache PYTHONWARNINGS=ignore ZARRFS_FIGURES=1 ZARRFS_LONG=${ZARRFS_LONG-1} ZARRFS_PY2
work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-torture.XXXXXX")
work=$(cd "$work" && pwd -P)
# Ends the tests of a part: first as Ctrl-C does, so that they can put away what they have.
end_running() {
    local signal
    for signal in INT TERM KILL; do
        kill "-$signal" -- "-$running" 2> /dev/null || return 0
        for _ in {1..100}; do
            kill -0 -- "-$running" 2> /dev/null || return 0
            sleep 0.1
        done
    done
}
cleanup() {
    code=$?
    trap '' INT TERM
    [ -z "${running:-}" ] || end_running
    awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r -n 1 umount -l || true
    for _ in {1..50}; do
        rm -rf --one-file-system "$work" 2> /dev/null && break
        sleep 0.1
    done
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
code=0

# One line for a part: $2 is how much was tried, and $3 what was wrong.
line() {
    printf '%-8s %7s tried, %s failed, %d s\n' "$1" "$2" "$3" $((SECONDS - began))
    [ "$3" = 0 ] || { code=1; tail -n 60 "$work/$1.log"; }
}
# Runs tests of tests/peers. What each has tried is in the last lines of what it says.
peers() {
    local part=$1 failed=0
    shift
    began=$SECONDS
    # A process group of their own.
    set -m
    "$python" -m pytest -q -n "${WORKERS:-$((2 * $(nproc)))}" -p no:cacheprovider --basetemp="$work/$part" "$@" \
        > "$work/$part.log" 2>&1 &
    running=$!
    set +m
    wait "$running" || failed=$(grep -Ec '^(FAILED|ERROR) ' "$work/$part.log" || true)
    running=
    [ "$failed" != 0 ] || grep -Eq ' (passed|skipped)' "$work/$part.log" || failed=all
    line "$part" "$(awk '/^tried /{sum += $2} END {print sum + 0}' "$work/$part.log")" "$failed"
    sed -n 's/^\(tried\|at most\) /    &/p' "$work/$part.log"
    rm -rf --one-file-system "${work:?}/$part"
}
# Runs tests of models with $1 sequences of steps each.
sequences() {
    local count=$1 began=$SECONDS failed=0
    shift
    "$@" > "$work/model.log" 2>&1 || failed=$(grep -Ec '^test .* FAILED$' "$work/model.log" || true)
    grep -Eq '^test result: .* [1-9][0-9]* passed' "$work/model.log" || failed=all
    line model "$count" "$failed"
    sed -n "s/^test \(.*\) \.\.\. ok$/    tried $count sequences: \1/p" "$work/model.log"
}

for part in "$@"; do
    case $part in
        kills) ZARRFS_KILLS=$(((${KILLS:-40} + 7) / 8)) peers kills tests/peers/test_kill.py -k "any_instant" ;;
        points) ZARRFS_POINTS=${POINTS:-6} peers points tests/peers/test_kill.py -k "at_a_system_call" ;;
        power) ZARRFS_CUTS=${CUTS:-2} peers power tests/peers/test_power.py ;;
        faults) ZARRFS_FAULTS=${FAULTS:-3} peers faults tests/peers/test_faults.py ;;
        races) WORKERS=1 ZARRFS_SECONDS=${SECONDS_OF_RACES:-10} peers races tests/peers/test_concurrency.py -k "lose_nothing or loses_nothing" ;;
        hostile) peers hostile tests/peers/test_unbounded.py tests/peers/test_damage.py tests/peers/test_hostile.py ;;
        access) ZARRFS_SECONDS=${SECONDS_OF_SWAPS:-10} peers access tests/peers/test_access.py tests/peers/test_escapes.py ;;
        model)
            export PROPTEST_CASES=${SEQUENCES:-1000}
            sequences "$PROPTEST_CASES" cargo test --locked --lib -- vfs::tests::model
            export PROPTEST_CASES=${SEQUENCES_OF_MOUNTS:-50}
            # One at a time: a process that starts another one closes the files of its other tests, too.
            sequences "$PROPTEST_CASES" cargo test --locked --test it -- --test-threads 1 outside_model:: identity_model::
            unset PROPTEST_CASES
            ;;
        copies)
            PROPTEST_CASES=${PAIRS:-200} sequences "${PAIRS:-200}" cargo test --locked --test it -- copied_model::
            ZARRFS_PAIRS=${PAIRS:-200} peers copies tests/peers/test_mirror.py
            ;;
    esac
done
exit "$code"
