#!/usr/bin/env bash
# The sample programs (workloads/cuda) as best-effort jobs, with each rung forced and a client of a high level that preempts at
# random: each prints what it prints when it runs alone, and ends as it does then.
#
# `make test` runs a few of them; `make test-force` (FULL=1) all.  PROGRAMS="a b" and RUNGS="ticket" run only these.
set -euo pipefail
. test/integration/effort_jobs.inc

few="vector_add reduce_shared scan_lookback graph_capture streams constant device_functions odd_blocks split_k turns separate nested"
all=$(cd workloads/cuda && for source in *.cu; do echo "${source%.cu}"; done)
# Its message names the block that failed, and a piece of a kernel has other block numbers.
left_out=assert_fails
if [ -n "${FULL:-}" ]; then
    programs=${PROGRAMS:-$all}
else
    programs=${PROGRAMS:-$few}
fi
start_preempter
for name in $programs; do
    if [ "$name" = "$left_out" ] || [ ! -x "$build/workloads/cuda/$name" ]; then
        echo "left  $name"
        continue
    fi
    compare_rungs "$name" "$build/workloads/cuda/$name"
done
# Where there is no place for a cache, nothing is kept and everything works: kernels, variants, profiles.
if [ -z "${PROGRAMS:-}" ]; then
    "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
    TALLY_CACHE=/proc/nowhere XDG_RUNTIME_DIR=$scratch rungs="none persistent" compare_rungs vector_add "$build/workloads/cuda/vector_add"
    TALLY_CACHE=/proc/nowhere "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
fi
finish
