#!/usr/bin/env bash
# A job of the highest level that `tally set` lowers while it runs: the best-effort part takes over without the program noticing, and
# the result is the same to the bit.  On the way tallyd sees its launches and its memory.
set -euo pipefail
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
train=$build/workloads/jobs/train
need_built "$build/lib/tally/libcuda.so.1" "$build/lib/tally/libtally-effort.so" "$build/lib/tally/device/libcuda.so.1" \
    "$build/bin/tally-jit" "$build/bin/tallyd" "$build/bin/tally-run"
need_plain "$build/lib/tally/libcuda.so.1"
if ! scripts/tool nvcc >/dev/null || ! make --no-print-directory B="${TALLY_BUILD:-build}" SETUP=no "${train#"$PWD"/}" >/dev/null; then
    skip "no nvcc here (scripts/tool)"
fi
scratch=$(mktemp -d)
export TMPDIR=$scratch XDG_RUNTIME_DIR=$scratch TALLY_CACHE=$scratch/cache TALLY_JIT_IDLE=20 TALLY_DAEMON_IDLE=2
export TALLY_DEVICE_NAME=tally-shim-lowered-$$ TALLY_LOG=info
trap '"$build/bin/tally-jit" stop >/dev/null 2>&1 || :; rm -rf "$scratch" "/dev/shm/$TALLY_DEVICE_NAME".*' EXIT
weights() { grep -o '"weights": "[^"]*"' "$1"; }

LD_LIBRARY_PATH=$build/lib/tally/device "$train" --kind=short --steps=16000 >"$scratch/plain" 2>/dev/null
"$build/bin/tally-run" --quiet --priority=high --device=soft "$train" --kind=short --steps=16000 >"$scratch/job" 2>"$scratch/errors" &
job=$!

# The first client that has launched something and holds memory.
pid=
while [ -z "$pid" ] && kill -0 $job 2>/dev/null; do
    pid=$("$build/bin/tally" ps --json 2>/dev/null | python3 -c '
import json, sys
for client in json.load(sys.stdin)["clients"]:
    if client["launches"] > 100 and client["memory_bytes"] > 0:
        print(client["pid"])
' 2>/dev/null || :)
done
if [ -z "$pid" ]; then
    echo "FAIL  tallyd never saw the job's launches and memory"
    cat "$scratch/errors"
    exit 1
fi
"$build/bin/tally" set "$pid" priority=low >/dev/null || { # it may just have ended
    kill -0 "$pid" 2>/dev/null && exit 1
    skip "the job ended before it could be lowered"
}
wait $job || {
    echo "FAIL  exit status $?"
    cat "$scratch/errors"
    exit 1
}
if ! grep -q 'level -100 now, preemptible' "$scratch/errors"; then
    echo "FAIL  it was not lowered"
    cat "$scratch/errors"
    exit 1
fi
if [ "$(weights "$scratch/plain")" != "$(weights "$scratch/job")" ]; then
    echo "FAIL  other weights"
    cat "$scratch/plain" "$scratch/job"
    exit 1
fi
