#!/usr/bin/env bash
# /dev/shm as containers have it: 64 MB suffice for several jobs at once; where nothing is left the job gets an error of CUDA and
# a message, never a signal.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
program=$build/workloads/jobs/train
need_built "$program" "$build/bin/tally-run"
need_plain "$build/lib/tally/libcuda.so.1"
unshare --mount true 2>/dev/null || skip "no mount namespace can be made here (takes root)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# in_shm SIZE COMMAND...: runs it where /dev/shm is a file system of its own, of that size.
in_shm() {
    local size=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount sh -c 'mount --make-rprivate / && mount -t tmpfs -o "size=$0" none /dev/shm && exec "$@"' "$size" "$@"
}

export TALLY_SOCKET=$scratch/tallyd.sock TALLY_CACHE=$scratch/cache

# shellcheck disable=SC2016
in_shm 64m sh -c '
    "$0" --device=soft --priority=low "$1" --kind=short --steps=2 &
    one=$!
    "$0" --device=soft --priority=high "$1" --kind=short --steps=2 &&
    wait "$one"' "$build/bin/tally-run" "$program" >"$scratch/output" 2>&1 || {
    echo "FAIL two jobs do not run with 64 MB of /dev/shm"
    cat "$scratch/output"
    failures=$((failures + 1))
}

# Full to the last page.
status=0
# shellcheck disable=SC2016
in_shm 64k sh -c 'dd if=/dev/zero of=/dev/shm/full bs=4k 2>/dev/null; exec "$@"' sh \
    "$build/bin/tally-run" --device=soft --priority=low "$program" --kind=short --steps=2 >"$scratch/output" 2>&1 || status=$?
if [ "$status" -eq 0 ] || [ "$status" -ge 128 ]; then
    echo "FAIL with a full /dev/shm the job ends with status $status"
    failures=$((failures + 1))
fi
grep -q "/dev/shm" "$scratch/output" || {
    echo "FAIL it is not told that /dev/shm is full:"
    cat "$scratch/output"
    failures=$((failures + 1))
}
exit $((failures > 0))
