#!/usr/bin/env bash
# A kernel stands still in pieces, and what would be launched beside it is refused (TALLY_TEST_REFUSE_BESIDE, as if the driver did).  If
# that happens once, the next try ends the kernel, with the right result.  If it always does, the job is told the driver's error and
# ends; it does not hang, and the report says what happened.
set -euo pipefail
export RUNGS=${RUNGS:-ticket persistent}
. test/integration/effort_jobs.inc

program=$build/workloads/order/waits
need_built "$program" "$build/bin/tally"

# run TIMES: the program as a best-effort job, until a kernel stood still; its exit status, and the report's text in $scratch/text.
run() {
    local times=$1 again
    for again in $(seq 20); do
        status=0
        rm -rf "$TALLY_CACHE/effort" "$scratch/record"
        env LD_PRELOAD="$shim" LD_LIBRARY_PATH="$build/lib/tally:$toolkit/lib" TALLY_PRIORITY=low TALLY_TEST_TRUST_WAITS=1 \
            TALLY_FORCE="$rung" TALLY_TEST_REFUSE_BESIDE="$times" TALLY_REPORT="$scratch/record" \
            timeout -k 2 120 "$program" 6 0 >"$scratch/output" 2>"$scratch/errors" || status=$?
        "$build/bin/tally" report "$scratch/record" >"$scratch/text"
        grep -q "STOOD STILL IN PIECES" "$scratch/text" && return
    done
    echo "FAIL  $rung: no kernel stood still in $again runs"
    return 1
}

# check WHAT CONDITION...
check() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        printf 'ok    %s\n' "$what"
    else
        failed=$((failed + 1))
        printf 'FAIL  %s (exit status %s)\n' "$what" "$status"
        head -n 10 "$scratch/errors" | sed 's/^/      ! /'
        grep "note of" "$scratch/text" | head -n 10 | sed 's/^/      | /' || :
    fi
}

LD_LIBRARY_PATH=$device:$toolkit/lib timeout -k 2 120 "$program" 6 0 >"$scratch/plain"
for rung in $rungs; do
    start_preempter
    run 1
    check "$rung: refused once, it ends with the right result" cmp -s "$scratch/plain" "$scratch/output"
    check "$rung: and as it should" [ "$status" -eq 0 ]
    check "$rung: the report says that it was refused" grep -q "ITS REMAINING BLOCKS COULD NOT BE LAUNCHED" "$scratch/text"
    run 1000
    check "$rung: refused for good, the job ends by itself" [ "$status" -ne 0 -a "$status" -ne 124 -a "$status" -ne 137 ]
    check "$rung: and was told the driver's error" grep -q "FAIL.*too many resources" "$scratch/output" "$scratch/errors"
    check "$rung: the report says so" grep -q "STANDS STILL FOR GOOD.*the job is told error 701" "$scratch/text"
    stop_preempter
done
finish
