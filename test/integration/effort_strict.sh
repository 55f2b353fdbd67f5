#!/usr/bin/env bash
# Kernels are stopped in the middle on a device as strict as a GPU with an x86 host (no page that can only be read is registered, no
# atomics on host memory), and also where more jobs are below than those above keep copies of their words for.  What is computed is
# what the plain run computes.
set -euo pipefail
. test/integration/effort_jobs.inc
train=$build/workloads/jobs/train
need_built "$train" "$build/test/poller" "$build/bin/tally"

pollers=()
# shellcheck disable=SC2317  # called by the trap
stop_pollers() {
    for poller in "${pollers[@]}"; do
        kill "$poller" 2>/dev/null || :
        wait "$poller" 2>/dev/null || :
    done
    stop_all
}
trap stop_pollers EXIT

# stopped DIR: how often kernels of that record were stopped on the rung persistent.
stopped() {
    "$build/bin/tally" report --json "$1" | python3 -c '
import json, sys
run = json.load(sys.stdin)["runs"][0]
print(sum(k["preemptions"] for j in run["jobs"] for k in j["kernels"] if k["launches_by_rung"].get("persistent", 0) > 0))'
}

# is_stopped NAME VARIABLE=VALUE...: the trainer with persistent workers, until one of its kernels was stopped.
is_stopped() {
    local name=$1 plain under n=0
    shift
    plain=$(env "$@" LD_LIBRARY_PATH="$device" "$train" --kind=long --steps=6 2>/dev/null | grep -o '"weights.*')
    for _ in 1 2 3 4 5; do
        rm -rf "$scratch/record"
        under=$(env "$@" LD_PRELOAD="$shim" LD_LIBRARY_PATH="$build/lib/tally" TALLY_PRIORITY=low TALLY_FORCE=persistent \
            TALLY_REPORT="$scratch/record" "$train" --kind=long --steps=6 2>/dev/null | grep -o '"weights.*')
        if [ "$under" != "$plain" ]; then
            echo "FAIL  $name: $under, plain $plain"
            failed=$((failed + 1))
            return
        fi
        n=$(stopped "$scratch/record")
        [ "$n" -eq 0 ] || break
    done
    if [ "$n" -gt 0 ]; then
        echo "ok    $name: stopped $n times"
        passed=$((passed + 1))
    else
        echo "FAIL  $name: never stopped"
        "$build/bin/tally" report "$scratch/record"
        failed=$((failed + 1))
    fi
}

start_preempter
is_stopped soft TALLY_DEVICE_PROFILE=soft
is_stopped h100-r580 TALLY_DEVICE_PROFILE=h100-r580
# As many as a client keeps copies for, and the trainer beyond them.
mkfifo "$scratch/polling"
for _ in $(seq 16); do
    "$build/test/poller" <"$scratch/polling" >>"$scratch/pollers" 2>&1 &
    pollers+=($!)
done
exec 7>"$scratch/polling"
until [ "$(grep -c ready "$scratch/pollers")" -eq 16 ]; do
    read -r -t 0.05 _ <&8 || :
done
is_stopped "the 17th below" TALLY_DEVICE_PROFILE=h100-r580
exec 7>&-
finish
