#!/usr/bin/env bash
# Kernels whose blocks wait for blocks that are not begun yet (workloads/order/waits), cut in spite of their verdict
# (TALLY_TEST_TRUST_WAITS), on each rung and with a client of a high level that preempts at random: they end with the right result
# because what stands still is rescued, the report says so, and the next process does not cut them any more.
#
# RUNGS="ticket" runs only that one.
set -euo pipefail
export RUNGS=${RUNGS:-slice ticket persistent}
. test/integration/effort_jobs.inc

program=$build/workloads/order/waits
need_built "$program" "$build/bin/tally"

# run NAME [VARIABLE=VALUE...]: the program as a best-effort job; its report is in $scratch/NAME.
run() {
    local name=$1 status=0
    shift
    env LD_PRELOAD="$shim" LD_LIBRARY_PATH="$build/lib/tally:$toolkit/lib" TALLY_PRIORITY=low TALLY_TEST_TRUST_WAITS=1 \
        TALLY_REPORT="$scratch/$name" "$@" timeout -k 2 120 "$program" 6 "${only:--1}" >"$scratch/output" 2>"$scratch/errors" || status=$?
    [ $status -eq 0 ] && cmp -s "$scratch/plain${only:-}" "$scratch/output"
}

# number NAME FIELD: the sum of a number of the kernels in a report.
number() {
    "$build/bin/tally" report --json "$scratch/$1" | grep -o "\"$2\": *[0-9]*" | awk '{n += $NF} END {print n + 0}'
}

# verdict WHAT CONDITION...
verdict() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        printf 'ok    %s\n' "$what"
    else
        failed=$((failed + 1))
        printf 'FAIL  %s\n' "$what"
        head -n 10 "$scratch/errors" | sed 's/^/      ! /'
    fi
}

# mark RUNG: runs until a kernel is marked, or often enough.
mark() {
    local rung=$1 again
    rm -rf "$TALLY_CACHE/effort"
    for again in $(seq 20); do
        verdict "$rung: run $again ends, with the right result" run "$rung.$again" TALLY_FORCE="$rung"
        "$build/bin/tally" report "$scratch/$rung.$again" >"$scratch/text"
        if [ "$(number "$rung.$again" rescues)" -gt 0 ]; then
            verdict "$rung: the report says that it stood still" grep -q "STOOD STILL in pieces" "$scratch/text"
        fi
        rm -rf "${scratch:?}/$rung.$again"
        if grep -q "IS NOT CUT ANY MORE" "$scratch/text"; then
            break
        fi
    done
    verdict "$rung: a kernel is not cut any more" grep -q "IS NOT CUT ANY MORE" "$scratch/text"
    sed -n 's/.*note of waits: \([^ ]*\) IS NOT CUT ANY MORE.*/\1/p' "$scratch/text" | sort >"$scratch/marked"
}

# busy RUNG: the next slice comes when there is a permit, so slices stand still only without one for long.
busy() {
    if [ "$1" = slice ]; then
        pace=(150000 4000)
        start_preempter
        pace=()
    else
        start_preempter
    fi
}

LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$program" 6 >"$scratch/plain"
for rung in $rungs; do
    busy "$rung"
    mark "$rung"
    stop_preempter
    start_preempter
    # By no other process either, and on no rung.
    for other in $rungs; do
        verdict "$rung: then $other ends, with the right result" run "then.$rung.$other" TALLY_FORCE="$other"
        "$build/bin/tally" report "$scratch/then.$rung.$other" |
            sed -n 's/.*note of waits: \([^ ]*\) STOOD STILL IN PIECES.*/\1/p' | sort >"$scratch/stood"
        verdict "$rung: then $other does not cut it" [ -z "$(comm -12 "$scratch/marked" "$scratch/stood")" ]
    done
    stop_preempter
done
# Kernels of a graph, which are put into the stream one by one.
LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$program" 6 -2 >"$scratch/plain-2"
start_preempter
for rung in ticket persistent; do
    rm -rf "$TALLY_CACHE/effort"
    for again in $(seq 10); do
        only=-2 verdict "$rung: graphs end, with the right result" run "graphs.$rung.$again" TALLY_FORCE="$rung"
        rescues=$(number "graphs.$rung.$again" rescues)
        [ "$rescues" -eq 0 ] || break
    done
    verdict "$rung: one stood still in a graph" [ "$rescues" -gt 0 ]
done
stop_preempter
# The same where the host does not see how far counters are, and the driver has to copy them.
export TALLY_DEVICE_PROFILE=h100-r580 TALLY_DEVICE_NAME=$TALLY_DEVICE_NAME-strict
for rung in $rungs; do
    busy "$rung"
    mark "$rung"
    stop_preempter
done
finish
