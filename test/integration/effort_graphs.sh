#!/usr/bin/env bash
# Graphs of best-effort jobs: launched as they are where nobody is above and it is known how long they take, or where they are short;
# in sub-graphs of bounded time where somebody is above and they are not; step by step where a rung is forced or not even that is
# known.  Results are those of the plain run.
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

# count NAME: a count of graphs in the report.
count() {
    "$build/bin/tally" report --json "$scratch/report" | tr -d ' \n' | sed -n "s/.*\"graphs\":{[^}]*\"$1\":\([0-9]*\).*/\1/p"
}

# in_parts PROFILE: large graphs with branches and changes are right where they are cut, and every launch of a graph is counted once;
# each sub-graph has two nodes at least, so that there are fewer launches than nodes.
large=$build/workloads/order/graph_parts
need_built "$large"
in_parts() {
    local profile=$1 word=ok found=no sum part
    rm -rf "$scratch/report"
    export TALLY_DEVICE_PROFILE=$profile TALLY_DEVICE_DRIVER_VERSION=13000
    LD_LIBRARY_PATH=$device:$toolkit/lib "$large" >"$scratch/plain" 2>/dev/null
    LD_PRELOAD="$shim" LD_LIBRARY_PATH="$build/lib/tally:$toolkit/lib" TALLY_PRIORITY=low TALLY_TURNAROUND=400us TALLY_LOG=debug \
        TALLY_REPORT=$scratch/report "$large" >"$scratch/output" 2>"$scratch/log" || word=FAIL
    unset TALLY_DEVICE_PROFILE TALLY_DEVICE_DRIVER_VERSION
    cmp -s "$scratch/plain" "$scratch/output" || word=FAIL
    sum=0
    for part in as_they_are in_parts opaque stepped_unknown stepped_measured stepped_changed stepped_forced stepped_divided \
        stepped_no_parts stepped_no_subgraph; do
        sum=$((sum + $(count $part)))
    done
    # 24 + 1 + 8 + 1 + 8 + 8 + 4 of each of four graphs
    [ "$sum" -eq 216 ] || word=FAIL
    [ "$(count in_parts)" -gt 0 ] && [ "$(count subgraphs)" -gt "$(count in_parts)" ] && found=yes
    [ "$(count stepped_no_subgraph)" -eq 0 ] || word=FAIL
    if [ $word = ok ] && [ $found = yes ]; then
        echo "ok    in parts, $profile: $(count in_parts) of $sum launches as $(count subgraphs) sub-graphs"
        passed=$((passed + 1))
    else
        echo "FAIL  in parts, $profile: $word, in sub-graphs: $found"
        diff "$scratch/plain" "$scratch/output" || :
        "$build/bin/tally" report --json "$scratch/report" | grep -A 14 '"graphs"' || :
        tail -n 20 "$scratch/log"
        failed=$((failed + 1))
    fi
}
for profile in soft a100-r535 h100-r580; do
    in_parts $profile
done
finish
