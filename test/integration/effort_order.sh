#!/usr/bin/env bash
# Programs whose result depends on the order of what they ask for (workloads/order), plain and as best-effort jobs, with each
# rung forced and a client of a high level that preempts at random: all say that all is well, and say the same.
#
# PROGRAMS="a b" and RUNGS="ticket" run only these.
set -euo pipefail
. test/integration/effort_jobs.inc

programs=${PROGRAMS:-$(cd "$build/workloads/order" 2>/dev/null && ls)}
if [ -z "$programs" ]; then
    echo "the ordering programs are not built (make workloads)"
    exit 77
fi
start_preempter
for name in $programs; do
    compare_rungs "$name" "$build/workloads/order/$name"
done
finish
