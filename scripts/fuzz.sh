#!/bin/bash
# Runs the fuzzers in fuzz/ with nightly Rust and cargo-fuzz, one after another, and prints a line for each.
#
#   scripts/fuzz.sh SECONDS [TARGET..]     SECONDS for each target [default: all targets]
#
# What they find is kept in fuzz/artifacts/TARGET, and makes the exit code 1. They begin with fuzz/corpus and with what
# earlier runs have found in fuzz/target/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1:-} =~ ^[0-9]+$ ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
seconds=$1
shift
command -v cargo-fuzz > /dev/null || cargo install --locked -q cargo-fuzz
cd fuzz
[ $# -gt 0 ] || set -- $(cargo +nightly fuzz list)
mkdir -p target
cargo +nightly fuzz build > target/build.log 2>&1 || { cat target/build.log >&2; exit 1; }
trap 'exit 130' INT
code=0
printf '%-22s %12s %10s %10s %8s  %s\n' target executions "a second" coverage seconds result
for target in "$@"; do
    mkdir -p "target/corpus/$target" "artifacts/$target"
    log=target/$target.log
    result="nothing found"
    # An input may take 20 seconds and 1 GiB at most. The search for leaks takes the data of threads that are just ending
    # for some; the limit of memory finds real ones.
    cargo +nightly fuzz run "$target" "target/corpus/$target" "corpus/$target" -- -max_total_time="$seconds" -detect_leaks=0 -timeout=20 \
        -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 > "$log" 2>&1 || { result="FAILED: fuzz/$log"; code=1; }
    [ -z "$(ls "artifacts/$target")" ] || { result="FOUND: fuzz/artifacts/$target"; code=1; }
    stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -1; }
    printf '%-22s %12s %10s %10s %8s  %s\n' "$target" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" \
        "$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)" "$seconds" "$result"
done
exit "$code"
