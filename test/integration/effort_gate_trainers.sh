#!/usr/bin/env bash
# The trainers of the benchmarks as machine code only, as best-effort jobs with the gate forced, while a client of a high level preempts at
# random: after a number of steps their weights and losses are bit for bit those of a plain run.  A run in which nothing was stopped shows
# nothing, so each trainer runs until enough of its launches were stopped; each of its runs must agree.
#
# `make test` runs one of them; `make test-force` (FULL=1) all kinds on both devices.
set -euo pipefail
. test/integration/gate_jobs.inc
trainer=$build/workloads/code/train
need_built "$trainer" "$trainer.known"

steps=6 least_stops=10 most_runs=40
if [ -n "${FULL:-}" ]; then
    kinds=${KINDS:-short long coarse memory mixed} profiles=${PROFILES:-a100-r535 h100-r580}
else
    kinds=${KINDS:-mixed} profiles=${PROFILES:-h100-r580}
fi
# A part of each: what is trained is as good when it is small.
declare -A scale=([short]=1 [long]=0.1 [coarse]=0.02 [memory]=0.02 [mixed]=0.1)

# What a trainer says but for how fast it was.
result_of() { grep -oE '"(steps|first_loss|last_loss|weights)": [^,}]*' "$1"; }

train() {
    local kind=$1 gated=0 stops=0 runs=0 status
    cat >"$scratch/train" <<END
#!/bin/sh
exec "$trainer" --kind=$kind --steps=$steps --scale=${scale[$kind]}
END
    chmod +x "$scratch/train"
    LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$scratch/train" >"$scratch/alone" 2>/dev/null
    result_of "$scratch/alone" >"$scratch/plain"
    grep -q weights "$scratch/plain"
    while [ $runs -lt $most_runs ] && { [ $gated -eq 0 ] || [ $stops -lt $least_stops ]; }; do
        runs=$((runs + 1)) status=0
        job "$scratch/train" TALLY_FORCE=gate || status=$?
        if [ $status -ne 0 ] || ! cmp -s "$scratch/plain" <(result_of "$scratch/output"); then
            failed=$((failed + 1))
            echo "FAIL  $kind on $TALLY_DEVICE_PROFILE, run $runs: exit status $status"
            diff "$scratch/plain" <(result_of "$scratch/output") | sed 's/^/      | /' || :
            head -n 10 "$scratch/errors" | sed 's/^/      ! /'
            return
        fi
        gated=$((gated + $(count gate))) stops=$((stops + $(count preemptions)))
    done
    if [ $gated -gt 0 ] && [ $stops -ge $least_stops ]; then
        passed=$((passed + 1))
        printf 'ok    %-7s %-10s %2d runs, %5d gated, %4d stops\n' "$kind" "$TALLY_DEVICE_PROFILE" $runs $gated $stops
    else
        failed=$((failed + 1))
        echo "FAIL  $kind on $TALLY_DEVICE_PROFILE: in $runs runs $gated launches were gated, $stops were stopped"
    fi
}

learn "$trainer.known"
start_preempter
for TALLY_DEVICE_PROFILE in $profiles; do
    export TALLY_DEVICE_PROFILE
    for kind in $kinds; do
        train "$kind"
    done
done
finish
