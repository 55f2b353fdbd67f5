#!/usr/bin/env bash
# Graphs of best-effort jobs: launched as they are where nobody is above and it is known how long they take, or where they are short;
# step by step where somebody is above and they are not, and where a rung is forced.  Results are those of the plain run.
set -euo pipefail
. test/integration/effort_jobs.inc
program=$build/workloads/order/graphs
need_built "$program"
LD_LIBRARY_PATH=$device:$toolkit/lib "$program" >"$scratch/plain" 2>/dev/null

# launched WHAT yes|no VARIABLE=VALUE...: whether some graph was launched as it is; "yes" need not be so in the first run, since it takes
# a moment in which nobody else is at work.
launched() {
    local what=$1 expected=$2 found=no word=ok
    shift 2
    for _ in 1 2 3 4 5 6 7 8; do
        env "$@" LD_PRELOAD="$shim" LD_LIBRARY_PATH="$build/lib/tally:$toolkit/lib" TALLY_PRIORITY=low TALLY_LOG=debug "$program" \
            >"$scratch/output" 2>"$scratch/log" || word=FAIL
        cmp -s "$scratch/plain" "$scratch/output" || word=FAIL
        grep -q 'graph of .* is launched as it is' "$scratch/log" && found=yes
        if [ $word = FAIL ] || [ $found = "$expected" ]; then
            break
        fi
    done
    if [ $word = ok ] && [ $found = "$expected" ]; then
        echo "ok    $what"
        passed=$((passed + 1))
    else
        echo "FAIL  $what: $word, launched as it is: $found, not $expected"
        tail -n 20 "$scratch/log"
        failed=$((failed + 1))
    fi
}

for profile in soft a100-r535; do
    launched "alone, $profile" yes TALLY_DAEMON=no TALLY_DEVICE_PROFILE=$profile TALLY_DEVICE_DRIVER_VERSION=13000
    launched "forced, $profile" no TALLY_DAEMON=no TALLY_FORCE=persistent TALLY_DEVICE_PROFILE=$profile TALLY_DEVICE_DRIVER_VERSION=13000
done
start_preempter
launched "long, somebody above" no TALLY_TURNAROUND=1us
launched "short, somebody above" yes TALLY_TURNAROUND=1s
finish
