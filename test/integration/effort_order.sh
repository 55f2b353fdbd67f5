#!/usr/bin/env bash
# Programs whose result depends on the order of what they ask for (workloads/order), plain and as best-effort jobs, with each
# rung forced and a client of a high level that preempts at random: all say that all is well, and say the same.
#
# PROGRAMS="a b" and RUNGS="ticket" run only these.
set -euo pipefail
. test/integration/effort_jobs.inc

programs=${PROGRAMS:-$(cd "$build/workloads/order" 2>/dev/null && ls)}
if [ -z "$programs" ]; then
    skip "the ordering programs are not built (make workloads)"
fi
start_preempter
for name in $programs; do
    compare_rungs "$name" "$build/workloads/order/$name"
done
# On the lowest rung kernels really ran on a part of the SMs, and nothing was refused.
if [[ " $rungs " == *" cap "* && -z "${PROGRAMS:-}" ]]; then
    LD_PRELOAD=$shim LD_LIBRARY_PATH=$build/lib/tally:$toolkit/lib TALLY_PRIORITY=low TALLY_FORCE=cap TALLY_DEVICE_SMS=4 TALLY_DEVICE_BLOCKS_PER_SM=1 \
        TALLY_DEVICE_NAME=$TALLY_DEVICE_NAME-4 TALLY_REPORT=$scratch/report "$build/workloads/order/events" >/dev/null
    if "$build/bin/tally" report --json "$scratch/report" | tr -d ' \n' | grep -q '"launches_by_rung":{[^}]*"cap":[1-9]' &&
        ! "$build/bin/tally" report "$scratch/report" | grep 'on all SMs'; then
        passed=$((passed + 1))
    else
        echo "FAIL  no kernel ran on a part of the SMs"
        failed=$((failed + 1))
    fi
fi
finish
