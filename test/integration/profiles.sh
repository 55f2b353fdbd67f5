#!/usr/bin/env bash
# Tests of best-effort jobs and of the interception library on a device that is as strict as a GPU with NVIDIA's driver: where
# memory that is only readable cannot be registered, captures are spoilt by what the documentation forbids, loading and allocating
# wait for the context, and functions of later drivers are missing.
#
# SMs are few and have one block each, so that kernels are cut as well.  The runtime of these programs is newer than R535 and R550,
# and is told that it is not.  PROFILES="a b" runs these; `make test-profiles` all of them, with more programs.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/lib/tally/device/libcuda.so.1" "$build/lib/tally/libcuda.so.1" "$build/test/preempter"
need_plain "$build/lib/tally/device/libcuda.so.1"
need_nvcc
export TALLY_DEVICE_DRIVER_VERSION=13000 TALLY_DEVICE_SMS=2 TALLY_DEVICE_BLOCKS_PER_SM=1
# For compute_90; the ordering programs are for compute_80.  Not turns, whose blocks wait for one another.
few="vector_add reduce_shared graph_capture scan_lookback"
failed=0

# try WHAT COMMAND...: its output only if it fails.
try() {
    local what=$1 begin=$EPOCHREALTIME word=ok
    shift
    "$@" >"$TMPDIR/said" 2>&1 || word=FAIL
    printf '%-5s %-12s %-40s %6d ms\n' "$word" "$TALLY_DEVICE_PROFILE" "$what" \
        $(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 1000))
    if [ $word = FAIL ]; then
        failed=$((failed + 1))
        grep -v '^ok' "$TMPDIR/said" | head -n 30 | sed 's/^/      | /' || :
    fi
}

# Kernels are cut there at all: a job that ran whole would pass everything else.
pieces() {
    local rung folder
    for rung in slice persistent; do
        folder=$(mktemp -d)
        LD_PRELOAD=$build/lib/tally/libcuda.so.1 LD_LIBRARY_PATH=$build/lib/tally TALLY_DRIVER=$build/lib/tally/device/libcuda.so.1 \
            TALLY_DAEMON=no TALLY_CACHE=$folder/cache XDG_RUNTIME_DIR=$folder TALLY_DEVICE_NAME=tally-profiles-$$ TALLY_PRIORITY=low \
            TALLY_FORCE=$rung TALLY_REPORT=$folder/report "$build/workloads/order/events"
        XDG_RUNTIME_DIR=$folder TALLY_CACHE=$folder/cache "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
        "$build/bin/tally" report "$folder/report"
        "$build/bin/tally" report --json "$folder/report" | tr -d ' \n' | grep -q "\"launches_by_rung\":{\"$rung\":[1-9][0-9]*}" ||
            return 1
    done
}

# What the driver says that an SM holds goes into what a block takes, where it does not say that blocks take turns, as the software
# device does otherwise: none is taken together with others for more than 8 us.  That some are taken together at all need not be so
# in the first run: on a busy machine blocks seem too long.
occupancy() {
    local n folder status
    for n in 1 4; do
        for _ in 1 2 3 4 5; do
            folder=$(mktemp -d) status=0
            LD_PRELOAD=$build/lib/tally/libcuda.so.1 LD_LIBRARY_PATH=$build/lib/tally TALLY_DRIVER=$build/lib/tally/device/libcuda.so.1 \
                TALLY_DAEMON=no TALLY_CACHE=$folder/cache XDG_RUNTIME_DIR=$folder TALLY_DEVICE_NAME=tally-profiles-$$ TALLY_PRIORITY=low \
                TALLY_DEVICE_BLOCKS_PER_SM=$n TALLY_DEVICE_BLOCK_BY_BLOCK=untold TALLY_FORCE=persistent TALLY_LOG=debug \
                "$build/workloads/order/events" 2>"$folder/log"
            XDG_RUNTIME_DIR=$folder TALLY_CACHE=$folder/cache "$build/bin/tally-jit" stop >/dev/null 2>&1 || :
            grep 'share an SM' "$folder/log" | sed 's/.*blocks: //' | awk -v n="$n" '
                { told++; sum += $9; if ($1 != n || ($9 > 1 && $5 * $9 > 8000)) { print; bad = 1 } }
                END { print n " on an SM: " told " lines"; exit bad || told == 0 ? 2 : n == 1 && sum <= told }' || status=$?
            [ $status -ne 2 ] || return 1
            [ $status -ne 0 ] || break
        done
        [ $status -eq 0 ] || return 1
    done
}
trap 'rm -f "/dev/shm/tally-profiles-$$"*' EXIT

for TALLY_DEVICE_PROFILE in ${PROFILES:-a100-r535 h100-r580}; do
    export TALLY_DEVICE_PROFILE
    RUNGS=${FULL:+"none whole slice ticket persistent cap"}
    export RUNGS=${RUNGS:-none slice persistent}
    # Blocks of the last wait for one another, for which an SM with one block has no room.
    try "order" env PROGRAMS="$(cd "$build/workloads/order" && echo * | sed 's/ waits//')" bash test/integration/effort_order.sh
    try "waits" env -u TALLY_DEVICE_SMS -u TALLY_DEVICE_BLOCKS_PER_SM PROGRAMS=waits bash test/integration/effort_order.sh
    try "pieces" pieces
    try "occupancy" occupancy
    try "in flight" "$build/test/intercept/high/inflight_test"
    case $TALLY_DEVICE_PROFILE in
    h100* | b200*)
        try "programs" env PROGRAMS="$few ${FULL:+streams constant device_functions odd_blocks split_k}" \
            bash test/integration/shim_programs.sh
        try "rungs" env PROGRAMS="$few ${FULL:+streams constant device_functions odd_blocks split_k}" \
            bash test/integration/force_rungs.sh
        ;;
    esac
done
[ $failed -eq 0 ]
