#!/bin/bash
# Looks for data races with ThreadSanitizer, in unit tests and in a zarrfs that several programs use at a time.
#
#   scripts/threads.sh [TEST..]          tests of tests/peers [default: RACES below]
#   scripts/threads.sh race [TEST..]     the same with a race in a copy of zarrfs, which must be found; no unit tests
#
# It needs nightly Rust with its source (rustup component add rust-src --toolchain nightly), since the standard library is
# compiled, too. Exit code 1, and what the sanitizer has said, if it has found a race or if a test has failed. Compressors in C
# are not watched.
#   UNIT_TESTS: of the unit tests, those whose names contain one of these words [all; "none": no unit tests].
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
# Tests of several programs that use a mount at a time.
RACES=(tests/peers/test_concurrency.py tests/peers/test_writers.py tests/peers/test_close_to_open.py tests/peers/test_waiting.py)
put_race=
if [ "${1:-}" = race ]; then
    put_race=1 UNIT_TESTS=none
    shift
fi
[ $# -gt 0 ] || set -- "${RACES[@]}"
host=$(rustc -vV | sed -n 's/^host: //p')
work=$(mktemp -d "${TMPDIR:-/tmp}/zarrfs-threads.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
export RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/threads}
# Daemons have no place to write to. Their exit code stays that of zarrfs, which the tests check. Threads that end with the
# program are no fault.
export TSAN_OPTIONS="log_path=$work/found exitcode=0 history_size=4 report_thread_leaks=0 ${TSAN_OPTIONS:-}"
code=0
build() { cargo +nightly "$1" --locked -q -Zbuild-std --target "$host" "${@:2}"; }
if [ "${UNIT_TESTS:-}" != none ]; then
    # shellcheck disable=SC2086
    build test --workspace --lib -- ${UNIT_TESTS:-} || code=1
fi
if [ -n "$put_race" ]; then
    git ls-files -z Cargo.toml Cargo.lock benches crates packaging src | xargs -0 cp --parents -t "$work"
    printf '%s\n' '#[allow(unsafe_code)]' 'pub(crate) fn race() {' '    static mut COUNT: u64 = 0;' \
        '    unsafe { COUNT = COUNT.wrapping_add(1) };' '}' >> "$work/crates/base/src/lib.rs"
    sed -i 's/^    fn add(&self, purpose: Purpose, more: u64) {$/&\n        crate::race();/' "$work/crates/base/src/budget.rs"
    grep -q 'crate::race' "$work/crates/base/src/budget.rs" || { echo "scripts/threads.sh: no place for the race in crates/base/src/budget.rs" >&2; exit 1; }
    (cd "$work" && build build)
else
    build build
fi
cache=${ZARRFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zarrfs-tests}
python=$(scripts/environment py3 tests/peers/requirements-py3.txt)
ZARRFS_PY2=$(scripts/environment py2 tests/peers/requirements-py2.txt)
export ZARRFS_BIN=$CARGO_TARGET_DIR/$host/debug/zarrfs PYTHONPYCACHEPREFIX=$cache/pycache PYTHONWARNINGS=ignore ZARRFS_PY2
"$python" -m pytest -q -p no:cacheprovider --basetemp="$work/pytest" -n "${WORKERS:-2}" "$@" || code=1
found=$(cat "$work"/found.* 2> /dev/null | grep -c '^WARNING: ThreadSanitizer' || true)
echo "ThreadSanitizer has found $found races"
if [ -n "$put_race" ]; then
    cat "$work"/found.* 2> /dev/null | grep '^SUMMARY' | sort | uniq -c || true
    [ "$found" != 0 ] || exit 1
    exit "$code"
fi
[ "$found" = 0 ] || { cat "$work"/found.*; code=1; }
exit "$code"
